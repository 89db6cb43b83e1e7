//! Names of files: given to what is whole, and what they say of the medium behind them.

use crate::any::Durability;
use crate::folder::sync_folder_of;
use rustix::fs::{CWD, RenameFlags, StatFs, renameat_with, statfs};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The name by which what is open at a descriptor is opened once more, or looked at: proc_pid_fd(5).
#[must_use]
pub fn of_open(fd: impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()).into()
}

/// File systems in memory: statfs(2).
const TMPFS: u32 = 0x0102_1994;
const RAMFS: u32 = 0x8584_58f6;

/// What a file at `path`, which is there, will outlive by itself.
///
/// # Errors
/// What the system says of the path.
pub fn durability_of(path: &Path) -> io::Result<Durability> {
    let StatFs { f_type, .. } = statfs(path)?;
    Ok(match f_type as u32 {
        TMPFS | RAMFS => Durability::Memory,
        _ => Durability::Disk,
    })
}

/// As many links as the system follows for one name.
const LINKS: u32 = 40;

/// The file that `path` leads to: symbolic links are followed, also the last one to a file that is not there yet. What
/// is made there, or lies beside the file, is found by every name of it. A link that leads back to itself is left to the
/// system to refuse.
#[must_use]
pub fn resolved(path: &Path) -> PathBuf {
    let file_at = |path: &Path| {
        std::fs::metadata(path)
            .map(|found| (found.dev(), found.ino()))
            .ok()
    };
    let file = file_at(path);
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let Ok(target) = std::fs::read_link(&path) else {
            break;
        };
        let target = path.with_file_name(target);
        // A link of `/proc/self/fd` may lead to a file that has no name any more.
        if file_at(&target) != file {
            break;
        }
        path = target;
    }
    path
}

/// Gives the file `draft` the name `name` in the same directory, durably; false when there is such a
/// file already. See rename(2), `RENAME_NOREPLACE`.
///
/// # Errors
/// What the system says.
pub fn give(draft: &Path, name: &Path) -> io::Result<bool> {
    match renameat_with(CWD, draft, CWD, name, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(false),
        // A file system that cannot: a link is refused as well where the name is taken.
        Err(Errno::INVAL | Errno::NOSYS) => match std::fs::hard_link(draft, name) {
            Ok(()) => std::fs::remove_file(draft)?,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(e) => return Err(e),
        },
        Err(e) => return Err(e.into()),
    }
    sync_folder_of(name)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_name_is_given_once() {
        let folder = tempfile::tempdir().unwrap();
        let [draft, name] = ["draft", "name"].map(|name| folder.path().join(name));
        std::fs::write(&draft, "1").unwrap();
        assert!(give(&draft, &name).unwrap());
        std::fs::write(&draft, "2").unwrap();
        assert!(!give(&draft, &name).unwrap());
        assert_eq!(std::fs::read_to_string(name).unwrap(), "1");
    }

    #[test]
    fn links_are_followed_to_what_is_not_there() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("sub")).unwrap();
        symlink("sub/second", at("first")).unwrap();
        symlink("../third", at("sub/second")).unwrap();
        symlink("round", at("round")).unwrap();
        assert_eq!(resolved(&at("first")), at("sub/../third"));
        assert_eq!(resolved(&at("plain")), at("plain"));
        assert_eq!(resolved(&at("round")), at("round"));
        let file = File::create(at("third")).unwrap();
        assert_eq!(resolved(&at("first")), at("sub/../third"));
        std::fs::remove_file(at("third")).unwrap();
        let nameless = of_open(&file);
        assert_eq!(resolved(&nameless), nameless);
    }

    #[test]
    fn file_systems_in_memory_are_known() {
        assert_eq!(durability_of(Path::new("/dev/shm")).unwrap(), Durability::Memory);
        assert!(durability_of(Path::new("/nowhere")).is_err());
    }
}
