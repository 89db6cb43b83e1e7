//! Records as names: safe without a sync, where the file system keeps changes of names in order.
//!
//! ```text
//!   kept/00000000000000a7.record -> 55524543...        a symbolic link; its target is the record, in hexadecimal
//! ```
//!
//! * A file system whose journal holds names makes them durable in the order in which they were made. So what
//!   a record is about is on the medium after a power cut only if the record's own name is.
//! * A record as a name is of a change of names in the file system that `kept/` is in, and of no other: bytes of
//!   files do not go through that journal, and reach the medium whenever they like.
//! * A name that is not there is of a change that did not happen. One that is there is whole: it is made at once.

use super::error::{Doing, Error, Result};
use super::format::{self, Record};
use super::keep::Keep;
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// What the name of a record ends with, behind its sequence number.
const ENDING: &str = ".record";
/// The longest target of a symbolic link (symlink(7): `PATH_MAX` with its end).
const TARGET_MAX: usize = 4095;
/// Bytes that a record takes on the medium: an inode of its own and a block.
pub(super) const BYTES: u64 = 4096;

/// The magic number of ext2, ext3 and ext4 (statfs(2)).
const EXT_MAGIC: u32 = 0xef53;

/// Whether a record with those paths fits into a name.
pub(super) fn fits<'p>(paths: impl IntoIterator<Item = &'p Path>) -> bool {
    let paths: usize = paths.into_iter().map(|path| path.as_os_str().len()).sum();
    2 * (format::HEAD + paths).next_multiple_of(8) <= TARGET_MAX
}

/// Whether the file system makes changes of names durable in their order, whichever of them is synced: ext3 and
/// ext4 with a journal do. Of others it is not known here.
pub(super) fn keeps_order(dir: impl AsFd) -> bool {
    let is_ext = rustix::fs::fstatfs(&dir).is_ok_and(|system| system.f_type as u32 == EXT_MAGIC);
    let Some(stat) = rustix::fs::fstat(&dir).ok().filter(|_| is_ext) else {
        return false;
    };
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let Ok(device) = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")) else {
        return false;
    };
    let Some(device) = device.file_name() else {
        return false;
    };
    // The thread that writes the journal; "<none>" where there is no journal.
    let writer = std::fs::read_to_string(Path::new("/sys/fs/ext4").join(device).join("journal_task"));
    let options = std::fs::read_to_string(Path::new("/proc/fs/ext4").join(device).join("options"));
    // In `data=writeback` the target of a long link may be on the medium after its name.
    writer.is_ok_and(|thread| thread.trim().parse::<u32>().is_ok())
        && options.is_ok_and(|all| {
            all.lines()
                .any(|line| matches!(line, "data=ordered" | "data=journal"))
        })
}

fn name(seq: u64) -> String {
    format!("{seq:016x}{ENDING}")
}

/// The sequence number of the record with that name; `None` for another kind of name.
fn number(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_suffix(ENDING)?, 16).ok()
}

/// Whether the name is one of a record, not of a kept file.
pub(super) fn is_record(name: &std::ffi::OsStr) -> bool {
    name.to_str().and_then(number).is_some()
}

impl Keep {
    /// Makes the record of that number, whole and [`fits`], a name.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Io`].
    pub(super) fn put_record(&self, seq: u64, record: &[u8]) -> Result<()> {
        match rustix::fs::symlinkat(hex::encode(record), self.fd(), name(seq)) {
            Ok(()) => Ok(()),
            Err(Errno::NOSPC | Errno::DQUOT) => Err(self.full(BYTES)),
            Err(error) => Err(error).doing("make a record", self.path().join(name(seq))),
        }
    }

    /// Forgets the record of that number, if it is there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn forget_record(&self, seq: u64) -> Result<()> {
        self.forget_name(&name(seq))
    }
}

/// A record that is a name.
pub(super) struct Named {
    pub(super) path: PathBuf,
    pub(super) record: Record,
    /// Bytes of the record.
    pub(super) length: u64,
}

/// A name that should be a record, and why it is none.
pub(super) type NoRecord = (PathBuf, String);

/// The records in `kept/`, in no order; and the first name that is none, with the reason.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn read_all(kept: &Path) -> Result<(Vec<Named>, Option<NoRecord>)> {
    let (mut all, mut damage) = (Vec::new(), None);
    let entries = match std::fs::read_dir(kept) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((all, damage)),
        entries => entries.doing("list", kept)?,
    };
    for entry in entries {
        let entry = entry.doing("list", kept)?;
        let Some(seq) = entry.file_name().to_str().and_then(number) else {
            continue;
        };
        match read(&entry.path(), seq) {
            Ok(Some(named)) => all.push(named),
            Ok(None) => {} // dead, and removed meanwhile
            Err(Error::Damaged { file, why, .. }) => drop(damage.get_or_insert((file, why))),
            Err(error) => return Err(error),
        }
    }
    Ok((all, damage))
}

fn read(path: &Path, seq: u64) -> Result<Option<Named>> {
    let damaged = |why: String| Error::Damaged {
        file: path.to_owned(),
        at: 0,
        why,
    };
    let target = match std::fs::read_link(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
            return Err(damaged("expected a symbolic link".into()));
        }
        target => target.doing("read the record", path)?,
    };
    let bytes = hex::decode(target.as_os_str().as_encoded_bytes())
        .map_err(|error| damaged(format!("expected a record in hexadecimal: {error}")))?;
    let record = format::decode(&bytes).map_err(damaged)?;
    if record.seq != seq {
        return Err(damaged(format!("it is record {}", record.seq)));
    }
    Ok(Some(Named {
        path: path.to_owned(),
        length: bytes.len() as u64,
        record,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_told_from_a_kept_file_by_its_name() {
        assert_eq!(number(&name(0xa7)), Some(0xa7));
        assert!(is_record("00000000000000a7.record".as_ref()));
        for other in ["00000000000000a7", "a.record.new", "x.record", ".record"] {
            assert!(!is_record(other.as_ref()), "{other}");
        }
    }

    #[test]
    fn paths_that_fit_make_a_target_that_a_link_can_have() {
        let longest = (0..TARGET_MAX).rev().map(|len| "x".repeat(len));
        let longest = longest
            .map(PathBuf::from)
            .find(|path| fits([path.as_path()]))
            .unwrap();
        assert!(fits([longest.as_path(), Path::new("")]) && !fits([longest.join("xxxxxxx").as_path()]));
        let dir = tempfile::tempdir().unwrap();
        let record = vec![7; (format::HEAD + longest.as_os_str().len()).next_multiple_of(8)];
        std::os::unix::fs::symlink(hex::encode(record), dir.path().join("record")).unwrap();
    }
}
