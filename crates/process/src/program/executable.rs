//! The program's own file. A compiler or an upgrade may replace it while it runs: `/proc/PID/exe`.
//!
//! * A checkpoint names it by its path. One without a name is copied into the state directory, whole, at the
//!   first stop that finds it so, and is named by its place there: a state may be moved.
//! * The copy is durable before the checkpoint that names it. Nothing writes to it: its old name is gone.

use super::Program;
use crate::error::{Error, Result};
use crate::files::Ident;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::fs::File;
use std::path::{Path, PathBuf};

const PREFIX: &str = "executable-";

/// Removes copies that the checkpoint does not name: those of programs that it replaced, or that were made for
/// checkpoints that never came to be.
///
/// # Errors
/// When the state directory cannot be listed, or one not be removed.
pub fn forget_copies_but(exe: &Path, state: &Path) -> Result<()> {
    for entry in std::fs::read_dir(state).map_err(Error::file("cannot list", state))? {
        let entry = entry.map_err(Error::file("cannot list", state))?;
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) && name != exe.as_os_str() {
            std::fs::remove_file(entry.path()).map_err(Error::file("cannot remove", entry.path()))?;
        }
    }
    Ok(())
}

impl Program {
    /// What is mapped changed: the program's file may have moved, or lost its name.
    pub(super) fn follow_executable(&mut self) -> Result<()> {
        let link = format!("/proc/{}/exe", self.process.thread());
        let look = |error: rustix::io::Errno| Error::file("cannot look at", &link)(error.into());
        let path = std::fs::read_link(&link).map_err(Error::file("cannot read", &link))?;
        if let Ok(kept) = path.strip_prefix(self.files.state()) {
            self.kernel.memory.exe = kept.to_owned();
            return Ok(());
        }
        let stat = rustix::fs::stat(&link).map_err(look)?;
        let named = rustix::fs::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW);
        if named.is_ok_and(|named| Ident::from(&named) == Ident::from(&stat)) {
            self.kernel.memory.exe = path;
            return Ok(());
        }
        // An inode may be used again; not with the same times.
        let name = PathBuf::from(format!(
            "{PREFIX}{:x}-{:x}-{:x}.{:x}",
            stat.st_dev, stat.st_ino, stat.st_ctime, stat.st_ctime_nsec
        ));
        if self.kernel.memory.exe != name {
            let to = self.files.state().join(&name);
            copy(&link, &to).map_err(Error::file("cannot keep the program's file as", &to))?;
            for path in [&to, &self.files.state().to_owned()] {
                let opened = File::open(path).map_err(Error::file("cannot open", path))?;
                self.files.sync(opened.into());
            }
            self.kernel.memory.exe = name;
        }
        Ok(())
    }
}

fn copy(from: &str, to: &Path) -> std::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    loop {
        let mut to = File::from(rustix::fs::open(to, flags, Mode::RWXU)?);
        match std::io::copy(&mut File::open(from)?, &mut to) {
            // The system copies (copy_file_range(2)), and a signal that comes meanwhile ends that: from the beginning.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            other => return other.map(drop),
        }
    }
}
