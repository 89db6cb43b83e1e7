//! The bytes of an undo log: what a header, a record and a progress entry look like on disk.
//!
//! `docs/undo.md` draws them. Everything is little-endian; every structure carries its checksum;
//! the asserts below keep this file and that document in step.

use super::{Epoch, Ident, StoredFile};
use rustix::fs::{Stat, Timespec, Timestamps};
use std::ffi::{OsStr, OsString};
use std::mem::{offset_of, size_of};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The first bytes of `undo.0` and `undo.1`.
pub(super) const LOG_MAGIC: [u8; 8] = *b"TWINUNDO";
/// The first bytes of `undo.progress`.
pub(super) const PROGRESS_MAGIC: [u8; 8] = *b"TWINROLL";
/// The first bytes of a record.
pub(super) const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"UREC");
/// The version of all three. Since 2 records may be names (`named.rs`), since 3 with the record in them; earlier ones are
/// read.
pub(super) const VERSION: u32 = 3;
/// Header flag: records were synced before the change they undo ([`super::Durability::Disk`]).
pub(super) const FLAG_DISK: u32 = 1;

/// Bytes of a header.
pub(super) const HEADER: usize = 64;
/// Bytes of a record before its paths and data.
pub(super) const HEAD: usize = 232;
/// Bytes of a progress entry.
pub(super) const ENTRY: usize = 64;
/// The largest data of one record; a larger piece of a file takes several records.
pub(super) const DATA_MAX: usize = 1 << 20;
/// The largest record that can be: two longest paths and a full piece of data.
pub(super) const RECORD_MAX: u64 = (HEAD + 2 * u16::MAX as usize + DATA_MAX + 8) as u64;

/// The start of a log: which records are its own, and how many of them are known to be whole.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(super) struct Header {
    pub(super) magic: [u8; 8],
    pub(super) version: U32,
    pub(super) flags: U32,
    /// The sequence number of the first record; older bytes behind it have smaller ones.
    pub(super) first_seq: U64,
    /// Every byte before this belongs to a whole record.
    pub(super) mark_end: U64,
    /// The tag of the last of them.
    pub(super) mark_tag: U64,
    /// The sequence number after the last of them.
    pub(super) mark_seq: U64,
    pub(super) zero: [u8; 12],
    pub(super) crc: U32,
}

/// Which inode.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(super) struct RawIdent {
    dev: U64,
    ino: U64,
}

/// Seconds and nanoseconds since 1970.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(super) struct RawTime {
    secs: I64,
    nanos: U32,
    zero: U32,
}

/// What `stat` said before the change.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(super) struct RawState {
    size: U64,
    mode: U32,
    uid: U32,
    gid: U32,
    zero: U32,
    atime: RawTime,
    mtime: RawTime,
}

/// The fixed part of a record.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawHead {
    magic: U32,
    head_crc: U32,
    body_crc: U32,
    length: U32,
    seq: U64,
    tag: U64,
    kind: u8,
    flags: u8,
    path_len: U16,
    to_len: U16,
    zero: U16,
    at: U64,
    data_len: U32,
    zero2: U32,
    file: RawIdent,
    other: RawIdent,
    before: RawState,
    other_before: RawState,
    dir_mtime: RawTime,
    other_dir_mtime: RawTime,
}

/// One entry of `undo.progress`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(super) struct RawEntry {
    pub(super) kind: U32,
    pub(super) crc: U32,
    pub(super) seq: U64,
    pub(super) old: RawIdent,
    pub(super) new: RawIdent,
    pub(super) zero: [u8; 16],
}

const _: () = assert!(size_of::<Header>() == HEADER && offset_of!(Header, crc) == HEADER - 4);
const _: () = assert!(offset_of!(Header, first_seq) == 16 && offset_of!(Header, mark_seq) == 40);
const _: () =
    assert!(size_of::<RawIdent>() == 16 && size_of::<RawTime>() == 16 && size_of::<RawState>() == 56);
const _: () = assert!(size_of::<RawHead>() == HEAD && HEAD.is_multiple_of(8));
const _: () = assert!(offset_of!(RawHead, kind) == 32 && offset_of!(RawHead, at) == 40);
const _: () = assert!(offset_of!(RawHead, file) == 56 && offset_of!(RawHead, before) == 88);
const _: () = assert!(offset_of!(RawHead, other_before) == 144 && offset_of!(RawHead, dir_mtime) == 200);
const _: () = assert!(size_of::<RawEntry>() == ENTRY);

impl Header {
    /// The header of a log without records; the next one will be `first_seq`.
    pub(super) fn empty(flags: u32, first_seq: u64) -> Header {
        Header {
            magic: LOG_MAGIC,
            version: U32::new(VERSION),
            flags: U32::new(flags),
            first_seq: U64::new(first_seq),
            mark_end: U64::new(HEADER as u64),
            mark_tag: U64::ZERO,
            mark_seq: U64::new(first_seq),
            zero: [0; 12],
            crc: U32::ZERO,
        }
        .sealed()
    }

    /// Whether this build reads what follows.
    pub(super) fn is_known(&self) -> bool {
        (1..=VERSION).contains(&self.version.get())
    }

    /// The same with its checksum right.
    pub(super) fn sealed(mut self) -> Header {
        self.crc = U32::new(crc32c::crc32c(&self.as_bytes()[..HEADER - 4]));
        self
    }

    /// Whether the checksum is right.
    pub(super) fn is_whole(&self) -> bool {
        self.crc.get() == crc32c::crc32c(&self.as_bytes()[..HEADER - 4])
    }
}

impl RawEntry {
    /// An entry with its checksum.
    pub(super) fn new(kind: u32, seq: u64, old: Ident, new: Ident) -> RawEntry {
        let mut entry = RawEntry {
            kind: U32::new(kind),
            crc: U32::ZERO,
            seq: U64::new(seq),
            old: old.into(),
            new: new.into(),
            zero: [0; 16],
        };
        entry.crc = U32::new(entry.right_crc());
        entry
    }

    /// The checksum the entry must have.
    pub(super) fn right_crc(&self) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.as_bytes()[..4]), &self.as_bytes()[8..])
    }
}

impl From<Ident> for RawIdent {
    fn from(ident: Ident) -> RawIdent {
        RawIdent {
            dev: U64::new(ident.dev),
            ino: U64::new(ident.ino),
        }
    }
}

impl From<RawIdent> for Ident {
    fn from(raw: RawIdent) -> Ident {
        Ident {
            dev: raw.dev.get(),
            ino: raw.ino.get(),
        }
    }
}

/// What `stat` said of a file before a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct State {
    /// Its length in bytes.
    pub(super) size: u64,
    /// Its type and permissions.
    pub(super) mode: u32,
    /// Its owner.
    pub(super) uid: u32,
    /// Its group.
    pub(super) gid: u32,
    /// When it was last read: seconds, nanoseconds.
    pub(super) atime: (i64, u32),
    /// When it was last written: seconds, nanoseconds.
    pub(super) mtime: (i64, u32),
}

#[allow(clippy::unnecessary_cast)] // The widths of `stat` differ between architectures.
impl From<&Stat> for State {
    fn from(stat: &Stat) -> State {
        State {
            size: stat.st_size as u64,
            mode: stat.st_mode as u32,
            uid: stat.st_uid,
            gid: stat.st_gid,
            atime: (stat.st_atime as i64, stat.st_atime_nsec as u32),
            mtime: (stat.st_mtime as i64, stat.st_mtime_nsec as u32),
        }
    }
}

impl From<&StoredFile> for State {
    fn from(stored: &StoredFile) -> State {
        State {
            size: stored.size,
            mode: stored.mode,
            uid: stored.owner.0,
            gid: stored.owner.1,
            atime: stored.mtime,
            mtime: stored.mtime,
        }
    }
}

impl State {
    /// Both times as `utimensat` wants them.
    pub(super) fn timestamps(&self) -> Timestamps {
        Timestamps {
            last_access: timespec(self.atime),
            last_modification: timespec(self.mtime),
        }
    }
}

/// Only the time of the last write, the other left as it is.
pub(super) fn mtime_only(mtime: (i64, u32)) -> Timestamps {
    const OMIT: i64 = rustix::fs::UTIME_OMIT;
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: OMIT as _,
        },
        last_modification: timespec(mtime),
    }
}

fn timespec((secs, nanos): (i64, u32)) -> Timespec {
    Timespec {
        tv_sec: secs,
        tv_nsec: nanos.into(),
    }
}

fn raw_time((secs, nanos): (i64, u32)) -> RawTime {
    RawTime {
        secs: I64::new(secs),
        nanos: U32::new(nanos),
        zero: U32::ZERO,
    }
}

fn time(raw: RawTime) -> (i64, u32) {
    (raw.secs.get(), raw.nanos.get())
}

fn raw_state(state: &State) -> RawState {
    RawState {
        size: U64::new(state.size),
        mode: U32::new(state.mode),
        uid: U32::new(state.uid),
        gid: U32::new(state.gid),
        zero: U32::ZERO,
        atime: raw_time(state.atime),
        mtime: raw_time(state.mtime),
    }
}

fn state(raw: &RawState) -> State {
    State {
        size: raw.size.get(),
        mode: raw.mode.get(),
        uid: raw.uid.get(),
        gid: raw.gid.get(),
        atime: time(raw.atime),
        mtime: time(raw.mtime),
    }
}

/// What a record undoes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    /// Bytes overwritten or cut off, and the old size, mode, owner and time of the last write.
    Bytes = 1,
    /// Mode, owner and times.
    Attributes = 2,
    /// A new name: undone by removing it.
    Create = 3,
    /// A removed file or symbolic link: undone from `kept/`.
    Unlink = 4,
    /// A removed directory: undone by making it again.
    Rmdir = 5,
    /// A new name for an old thing, and what it replaced.
    Rename = 6,
    /// Two names that changed places.
    Exchange = 7,
    /// An epoch was captured again: earlier records count as of that epoch, given in `at`.
    Again = 8,
    /// A hole that was written to or cut off: its length is the data. Otherwise as [`Kind::Bytes`].
    Hole = 9,
    /// An extended attribute, by its name and what it was, if it was there: see [`Attribute`].
    Extended = 10,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        use Kind::*;
        [
            Bytes, Attributes, Create, Unlink, Rmdir, Rename, Exchange, Again, Hole, Extended,
        ]
        .into_iter()
        .find(|&kind| kind as u8 == byte)
    }

    /// Whether undoing it changes names, so that what comes after needs it done.
    pub(super) fn changes_names(self) -> bool {
        !matches!(
            self,
            Kind::Bytes | Kind::Hole | Kind::Attributes | Kind::Extended | Kind::Again
        )
    }
}

/// The data of a [`Kind::Extended`] record: length of the name (2 bytes), the name, whether it was there
/// (1 byte), its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Attribute {
    pub(super) name: OsString,
    pub(super) value: Option<Vec<u8>>,
}

impl Attribute {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let name = self.name.as_bytes();
        let mut bytes = (name.len() as u16).to_le_bytes().to_vec();
        bytes.extend_from_slice(name);
        bytes.push(self.value.is_some().into());
        bytes.extend_from_slice(self.value.as_deref().unwrap_or_default());
        bytes
    }

    /// `None` when the bytes are none.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Attribute> {
        let (len, rest) = bytes.split_first_chunk()?;
        let (name, rest) = rest.split_at_checked(u16::from_le_bytes(*len).into())?;
        let (there, value) = rest.split_first()?;
        Some(Attribute {
            name: OsStr::from_bytes(name).to_owned(),
            value: (*there == 1).then(|| value.to_vec()),
        })
    }
}

/// How a removed or replaced thing is kept until its epoch is dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub(super) enum Kept {
    /// Nothing was there.
    #[default]
    Nothing = 0,
    /// The inode itself, by a hard link in `kept/`.
    Link = 1,
    /// A copy in `kept/`.
    Copy = 2,
    /// It was an empty directory; the record says all there is to know.
    Directory = 3,
    /// It has another name, which the record gives as its second.
    Name = 4,
}

impl Kept {
    fn from_byte(byte: u8) -> Option<Kept> {
        [Kept::Nothing, Kept::Link, Kept::Copy, Kept::Directory, Kept::Name]
            .into_iter()
            .find(|&kept| kept as u8 == byte)
    }
}

/// A record about to be written. Its data, if any, is appended to the buffer by the caller.
#[derive(Clone, Copy)]
pub(super) struct Draft<'a> {
    pub(super) kind: Kind,
    pub(super) kept: Kept,
    pub(super) at: u64,
    pub(super) file: Ident,
    pub(super) other: Ident,
    pub(super) before: State,
    pub(super) other_before: State,
    pub(super) dir_mtime: (i64, u32),
    pub(super) other_dir_mtime: (i64, u32),
    pub(super) path: &'a Path,
    pub(super) to: &'a Path,
}

impl Draft<'_> {
    /// A record of one kind about nothing yet.
    pub(super) fn new(kind: Kind) -> Draft<'static> {
        Draft {
            kind,
            kept: Kept::Nothing,
            at: 0,
            file: Ident::NONE,
            other: Ident::NONE,
            before: State::default(),
            other_before: State::default(),
            dir_mtime: (0, 0),
            other_dir_mtime: (0, 0),
            path: Path::new(""),
            to: Path::new(""),
        }
    }

    /// Starts the record in `buffer`: room for the head, then the paths. Data may be appended.
    ///
    /// The paths must not be longer than 65535 bytes (`PATH_MAX` is 4096).
    pub(super) fn start(&self, buffer: &mut Vec<u8>) {
        buffer.clear();
        buffer.resize(HEAD, 0);
        buffer.extend_from_slice(self.path.as_os_str().as_bytes());
        buffer.extend_from_slice(self.to.as_os_str().as_bytes());
    }

    /// Completes the record in `buffer`: padding, lengths and checksums.
    pub(super) fn finish(&self, buffer: &mut Vec<u8>, seq: u64, tag: Epoch) {
        let (path_len, to_len) = (self.path.as_os_str().len(), self.to.as_os_str().len());
        let data_len = buffer.len() - HEAD - path_len - to_len;
        debug_assert!(path_len <= u16::MAX.into() && to_len <= u16::MAX.into() && data_len <= DATA_MAX);
        buffer.resize(buffer.len().next_multiple_of(8), 0);
        let mut head = RawHead {
            magic: U32::new(RECORD_MAGIC),
            head_crc: U32::ZERO,
            body_crc: U32::new(crc32c::crc32c(&buffer[HEAD..])),
            length: U32::new(buffer.len() as u32),
            seq: U64::new(seq),
            tag: U64::new(tag),
            kind: self.kind as u8,
            flags: self.kept as u8,
            path_len: U16::new(path_len as u16),
            to_len: U16::new(to_len as u16),
            zero: U16::ZERO,
            at: U64::new(self.at),
            data_len: U32::new(data_len as u32),
            zero2: U32::ZERO,
            file: self.file.into(),
            other: self.other.into(),
            before: raw_state(&self.before),
            other_before: raw_state(&self.other_before),
            dir_mtime: raw_time(self.dir_mtime),
            other_dir_mtime: raw_time(self.other_dir_mtime),
        };
        head.head_crc = U32::new(crc32c::crc32c(&head.as_bytes()[8..]));
        buffer[..HEAD].copy_from_slice(head.as_bytes());
    }
}

/// A record read back.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) seq: u64,
    pub(super) tag: Epoch,
    pub(super) kind: Kind,
    pub(super) kept: Kept,
    pub(super) at: u64,
    pub(super) file: Ident,
    pub(super) other: Ident,
    pub(super) before: State,
    pub(super) other_before: State,
    pub(super) dir_mtime: (i64, u32),
    pub(super) other_dir_mtime: (i64, u32),
    pub(super) path: PathBuf,
    pub(super) to: PathBuf,
    pub(super) data: Vec<u8>,
}

/// The length of the record that starts with `head`, when its head is whole and `head` holds all of it.
///
/// # Errors
/// What is wrong with it.
pub(super) fn record_length(head: &[u8]) -> Result<u64, String> {
    let (raw, _) = RawHead::ref_from_prefix(head).map_err(|_| "cut off in its head".to_owned())?;
    if raw.magic.get() != RECORD_MAGIC {
        return Err(format!("expected a record, found {:#010x}", raw.magic.get()));
    }
    if raw.head_crc.get() != crc32c::crc32c(&raw.as_bytes()[8..]) {
        return Err("the checksum of the record's head is wrong".to_owned());
    }
    let needed = HEAD as u64
        + u64::from(raw.path_len.get())
        + u64::from(raw.to_len.get())
        + u64::from(raw.data_len.get());
    let length = u64::from(raw.length.get());
    if length != needed.next_multiple_of(8) || length > RECORD_MAX {
        return Err(format!("a record of {length} bytes whose parts take {needed}"));
    }
    Ok(length)
}

/// How long a record is, as its head says it, which is not verified; 0 of less than a head.
pub(super) fn length(head: &[u8]) -> usize {
    RawHead::ref_from_prefix(head).map_or(0, |(head, _)| head.length.get() as usize)
}

/// The record that `bytes` is, whole.
///
/// # Errors
/// What is wrong with it.
pub(super) fn decode(bytes: &[u8]) -> Result<Record, String> {
    let length = record_length(bytes)?;
    if bytes.len() as u64 != length {
        return Err(format!("cut off: {} of {length} bytes are there", bytes.len()));
    }
    let (raw, body) = RawHead::ref_from_prefix(bytes).map_err(|_| "cut off in its head".to_owned())?;
    if raw.body_crc.get() != crc32c::crc32c(body) {
        return Err("the checksum of the record's body is wrong".to_owned());
    }
    let kind = Kind::from_byte(raw.kind).ok_or_else(|| format!("a record of unknown kind {}", raw.kind))?;
    let kept =
        Kept::from_byte(raw.flags).ok_or_else(|| format!("a record with unknown flags {}", raw.flags))?;
    let (path, rest) = body.split_at(raw.path_len.get().into());
    let (to, rest) = rest.split_at(raw.to_len.get().into());
    Ok(Record {
        seq: raw.seq.get(),
        tag: raw.tag.get(),
        kind,
        kept,
        at: raw.at.get(),
        file: raw.file.into(),
        other: raw.other.into(),
        before: state(&raw.before),
        other_before: state(&raw.other_before),
        dir_mtime: time(raw.dir_mtime),
        other_dir_mtime: time(raw.other_dir_mtime),
        path: OsStr::from_bytes(path).into(),
        to: OsStr::from_bytes(to).into(),
        data: rest[..raw.data_len.get() as usize].to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut buffer = Vec::new();
        let draft = Draft {
            at: 4096,
            file: Ident { dev: 1, ino: 2 },
            before: State {
                size: 9,
                mode: 0o100_644,
                mtime: (-5, 7),
                ..State::default()
            },
            path: Path::new("/tmp/a file"),
            ..Draft::new(Kind::Bytes)
        };
        draft.start(&mut buffer);
        buffer.extend_from_slice(b"old bytes");
        draft.finish(&mut buffer, 3, 4);
        buffer
    }

    #[test]
    fn a_record_comes_back() {
        let record = decode(&sample()).unwrap();
        assert_eq!(
            (record.seq, record.tag, record.kind, record.at),
            (3, 4, Kind::Bytes, 4096)
        );
        assert_eq!(record.path, Path::new("/tmp/a file"));
        assert_eq!(record.data, b"old bytes");
        assert_eq!(record.before.mtime, (-5, 7));
        assert_eq!(record.file, Ident { dev: 1, ino: 2 });
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let good = sample();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad).is_err(), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(decode(&good[..len]).is_err(), "cut at {len}");
        }
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let good = Header::empty(FLAG_DISK, 17);
        assert!(good.is_whole());
        for bit in 0..HEADER * 8 {
            let mut bytes = good.as_bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!Header::read_from_bytes(&bytes).unwrap().is_whole(), "bit {bit}");
        }
    }
}
