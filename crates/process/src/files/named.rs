//! Records as names: safe without a sync, where the file system keeps changes of names in order.
//!
//! ```text
//!   kept/00000000000000a7.3w8A..QQ.record              another name of kept/records; the record is in it
//!   kept/00000000000000a8.record -> 55524543...        a longer one: a symbolic link; its target is the record
//! ```
//!
//! * A file system whose journal holds names makes them durable in the order in which they were made. So what
//!   a record is about is on the medium after a power cut only if the record's own name is.
//! * A record as a name is of a change of names in the file system that `kept/` is in, and of no other: bytes of
//!   files do not go through that journal, and reach the medium whenever they like.
//! * A name that is not there is of a change that did not happen. One that is there is whole: it is made at once.
//! * Another name of a file needs no inode and no block of its own: it takes a third of the time.

use super::error::{Doing, Error, Result};
use super::format::{self, Record};
use super::keep::Keep;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as DIGITS;
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// What the name of a record ends with, behind its sequence number.
const ENDING: &str = ".record";
/// The empty file that names with their records are names of.
const BASE: &str = "records";
/// The longest name in ext3 and ext4.
const NAME_MAX: usize = 255;
/// Digits of a sequence number.
const NUMBER: usize = 16;
/// The longest target of a symbolic link (symlink(7): `PATH_MAX` with its end).
const TARGET_MAX: usize = 4095;
/// Bytes that a record takes on the medium at most: an inode of its own and a block.
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

/// The name that has the record of that number in it, if it fits.
fn whole_name(seq: u64, record: &[u8]) -> Option<String> {
    let name = format!("{seq:016x}.{}{ENDING}", DIGITS.encode(short(record)));
    (name.len() <= NAME_MAX).then_some(name)
}

/// Most of a record's head is zero: which of its bytes are not, one bit each; those; its body without the zeros at its end.
fn short(record: &[u8]) -> Vec<u8> {
    let (head, body) = record.split_at(format::HEAD);
    let mut short = vec![0; format::HEAD / 8];
    for (at, byte) in head.iter().enumerate().filter(|(_, byte)| **byte != 0) {
        short[at / 8] |= 1 << (at % 8);
        short.push(*byte);
    }
    let end = body
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    short.extend_from_slice(&body[..end]);
    short
}

/// The record that is this short; `None` of what no record is.
fn long(short: &[u8]) -> Option<Vec<u8>> {
    let (mask, mut rest) = short.split_at_checked(format::HEAD / 8)?;
    let mut record = vec![0; format::HEAD];
    for at in (0..format::HEAD).filter(|at| mask[at / 8] & 1 << (at % 8) != 0) {
        let (byte, others) = rest.split_first()?;
        (record[at], rest) = (*byte, others);
    }
    record.extend_from_slice(rest);
    let length = format::length(&record);
    let lengths = record.len()..=format::RECORD_MAX as usize;
    lengths.contains(&length).then(|| {
        record.resize(length, 0);
        record
    })
}

/// The sequence number of the record with that name, and the digits of the record if they are in it; `None` for another
/// kind of name.
fn parts(name: &str) -> Option<(u64, Option<&str>)> {
    let name = name.strip_suffix(ENDING)?;
    let (number, digits) = match name.split_once('.') {
        Some((number, digits)) => (number, Some(digits)),
        None => (name, None),
    };
    let is_number = number.len() == NUMBER && number.bytes().all(|digit| digit.is_ascii_hexdigit());
    Some((
        u64::from_str_radix(number, 16).ok().filter(|_| is_number)?,
        digits,
    ))
}

/// Whether the name is one of a record, or of what those are names of, and not one of a kept file.
pub(super) fn is_record(name: &OsStr) -> bool {
    name == BASE || name.len() > NUMBER
}

impl Keep {
    /// Makes the record of that number, whole and [`fits`], a name: that one.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Io`].
    pub(super) fn put_record(&self, seq: u64, record: &[u8]) -> Result<String> {
        let linked = match whole_name(seq, record) {
            Some(name) => self.link_record(&name).map(|()| name),
            None => Err(Errno::NAMETOOLONG),
        };
        let put = match linked {
            // A file has 65,000 names at most (ext4).
            Err(Errno::NAMETOOLONG | Errno::MLINK) => {
                let linked = rustix::fs::symlinkat(hex::encode(record), self.fd(), name(seq));
                linked.map(|()| name(seq))
            }
            linked => linked,
        };
        match put {
            Err(Errno::NOSPC | Errno::DQUOT) => Err(self.full(BYTES)),
            put => put.doing("make a record", self.path().join(name(seq))),
        }
    }

    fn link_record(&self, name: &str) -> Result<(), Errno> {
        let link = || rustix::fs::linkat(self.fd(), BASE, self.fd(), name, AtFlags::empty());
        match link() {
            Err(Errno::NOENT) => {
                let flags = OFlags::CREATE | OFlags::RDONLY | OFlags::CLOEXEC;
                rustix::fs::openat(self.fd(), BASE, flags, Mode::RUSR | Mode::WUSR)?;
                link()
            }
            linked => linked,
        }
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
        if entry.file_name().len() <= NUMBER {
            continue;
        }
        match read(&entry.path()) {
            Ok(Some(named)) => all.push(named),
            Ok(None) => {} // dead, and removed meanwhile
            Err(Error::Damaged { file, why, .. }) => drop(damage.get_or_insert((file, why))),
            Err(error) => return Err(error),
        }
    }
    Ok((all, damage))
}

fn read(path: &Path) -> Result<Option<Named>> {
    let damaged = |why: String| Error::Damaged {
        file: path.to_owned(),
        at: 0,
        why,
    };
    let name = path.file_name().and_then(OsStr::to_str).and_then(parts);
    let Some((seq, digits)) = name else {
        return Err(damaged("expected the name of a record".into()));
    };
    let bytes = match digits {
        Some(digits) => {
            let short = DIGITS.decode(digits).ok();
            let bytes = short.and_then(|short| long(&short));
            bytes.ok_or_else(|| damaged("expected a record in its name".into()))?
        }
        None => match target(path)? {
            Some(Ok(bytes)) => bytes,
            Some(Err(why)) => return Err(damaged(why)),
            None => return Ok(None),
        },
    };
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

/// The bytes that the target of a symbolic link stands for, or what it is instead; `None` when it is gone.
fn target(path: &Path) -> Result<Option<Result<Vec<u8>, String>>> {
    let target = match std::fs::read_link(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
            return Ok(Some(Err("expected a symbolic link".into())));
        }
        target => target.doing("read the record", path)?,
    };
    let bytes = hex::decode(target.as_os_str().as_encoded_bytes());
    Ok(Some(bytes.map_err(|error| {
        format!("expected a record in hexadecimal: {error}")
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_told_from_a_kept_file_by_its_name() {
        assert_eq!(parts(&name(0xa7)), Some((0xa7, None)));
        assert_eq!(parts("00000000000000a7.xyz.record"), Some((0xa7, Some("xyz"))));
        assert!(is_record("00000000000000a7.record".as_ref()) && !is_record("00000000000000a7".as_ref()));
        for other in [
            "00000000000000a7",
            "a.record.new",
            "x.record",
            ".record",
            "+0000000000000a7.record",
        ] {
            assert_eq!(parts(other), None, "{other}");
        }
    }

    #[test]
    fn a_short_record_is_the_same() {
        let mut record = vec![0; format::HEAD + 40];
        for (at, byte) in [(0, 1), (7, 255), (8, 3), (100, 9), (format::HEAD - 1, 4)] {
            record[at] = byte;
        }
        let length = record.len() as u32;
        record[12..16].copy_from_slice(&length.to_le_bytes());
        for body in [&b""[..], b"/a/path", b"\0\0ends late\0\0", &[7; 40]] {
            record[format::HEAD..].fill(0);
            record[format::HEAD..][..body.len()].copy_from_slice(body);
            let short = short(&record);
            assert!(short.len() < 29 + 9 + 41, "{}", short.len());
            assert_eq!(long(&short).unwrap(), record);
            assert_eq!(long(&short[..20]), None);
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
