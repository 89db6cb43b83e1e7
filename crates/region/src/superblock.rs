//! What a region keeps beside its pages: where it must be mapped, how large it is, and for which
//! machine and version its content was laid out. It is the context of every commit.
//!
//! ```text
//!  0        8         12       16     17        18      20   24     32      40      48        56   64       72          80
//!  | magic  | version | layout | arch | pointer | page  | 0  | base | bytes | bound | unix ms | 0  | log id | log start |
//!  | 8      | u32     | u32    | u8   | u8      | u16   | 4  | u64  | u64   | u64   | u64     | 8  | u64    | u64       |
//! ```
//!
//! The place in the operation log is there from version 2 on, which a region has once it had objects.
//!
//! The scheme below has a checksum over all of it. Numbers are little-endian.

use crate::address::PAGE;
use crate::error::{Error, Result};
use crate::zone::{DATA_BYTES, STEP, WINDOW_BYTES, ZONE};
use std::time::{SystemTime, UNIX_EPOCH};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute};

/// The first bytes of a region's context.
pub const MAGIC: [u8; 8] = *b"tpregion";
/// The newest version of this record.
pub const VERSION: u32 = 3;
/// The version of a record that says nothing of an operation log.
const WITHOUT_LOG: u32 = 1;
/// The version of one that says nothing of a next level.
const WITHOUT_LEVEL: u32 = 2;
/// The version of what this crate puts into a region: the heap's structures and the collections'.
pub const LAYOUT: u32 = 1;
/// Bytes of the record without a place in an operation log.
pub const BYTES: usize = 64;

/// Processor architectures by number: pointers, alignment and byte order follow from it.
const X86_64: u8 = 1;
/// Bytes of a pointer.
const POINTER: u8 = size_of::<usize>() as u8;

/// The bytes of the record.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    layout: U32,
    arch: u8,
    pointer: u8,
    page: U16,
    zero_20: [u8; 4],
    base: U64,
    bytes: U64,
    bound: U64,
    unix_ms: U64,
    zero_56: [u8; 8],
}

/// What follows in version 2.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawLog {
    id: U64,
    start: U64,
}

/// What follows in version 3.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawLevel {
    id: U64,
    map_at: U64,
    map_bytes: U64,
    map_sum: U32,
    zero: [u8; 4],
}

// In step with docs/format.md.
const _: () = assert!(size_of::<Raw>() == BYTES && size_of::<RawLog>() == 16 && size_of::<RawLevel>() == 32);

/// The place of a region in its operation log ([`twinpage_core::operation_log`]).
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::Region;
/// use twinpage::inspect::inspect;
/// use twinpage::superblock::LogPosition;
///
/// Region::open("counts.twin")?.close()?;
/// let superblock = inspect("counts.twin")?.superblock.expect("it was made");
/// assert_eq!(superblock.log, LogPosition::default()); // it never had objects
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct LogPosition {
    /// The number of the log; 0 when there is none, and nothing to run again.
    pub id: u64,
    /// The position from which on its calls are needed; without a log, one that the next log must begin after.
    pub start: u64,
}

/// The map of a region's next level, where objects are that have no room in its own file: the one that counts.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::Region;
/// use twinpage::inspect::inspect;
/// use twinpage::superblock::LevelMap;
///
/// Region::open("counts.twin")?.close()?;
/// let superblock = inspect("counts.twin")?.superblock.expect("it was made");
/// assert_eq!(superblock.level, LevelMap::default()); // it has no next level
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct LevelMap {
    /// The number of the level; 0 where there is none.
    pub id: u64,
    /// Where in its file the map lies.
    pub at: u64,
    /// Bytes of the map; 0 where nothing is in the level.
    pub bytes: u64,
    /// The checksum of the map.
    pub sum: u32,
}

/// The record. See the [module](self).
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::Region;
/// use twinpage::inspect::inspect;
///
/// let region = Region::open("counts.twin")?;
/// let base = region.place().base().addr();
/// region.close()?;
/// let superblock = inspect("counts.twin")?.superblock.expect("it was made");
/// assert_eq!(superblock.base, base as u64); // where it is mapped in every life
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Superblock {
    /// The version of what is in the region.
    pub layout: u32,
    /// Where the region's first byte must be mapped.
    pub base: u64,
    /// Usable bytes.
    pub bytes: u64,
    /// Bytes it may have at most.
    pub bound: u64,
    /// When the checkpoint was taken, in milliseconds since 1970.
    pub unix_ms: u64,
    /// From where on calls of the region's objects are in their log only.
    pub log: LogPosition,
    /// What is in the next level only.
    pub level: LevelMap,
}

impl Superblock {
    pub(crate) fn now(base: usize, bytes: usize, bound: usize) -> Superblock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Superblock {
            layout: LAYOUT,
            base: base as u64,
            bytes: bytes as u64,
            bound: bound as u64,
            // Whole seconds: a context that stays the same is not written again.
            unix_ms: since.as_secs() * 1000,
            log: LogPosition::default(),
            level: LevelMap::default(),
        }
    }

    /// The same, at a place in an operation log.
    pub(crate) fn at(self, log: LogPosition) -> Superblock {
        Superblock { log, ..self }
    }

    /// The same, with this map of the next level.
    pub(crate) fn over(self, level: LevelMap) -> Superblock {
        Superblock { level, ..self }
    }

    /// The record of a copy, which has no log and no next level of its own.
    pub(crate) fn alone(self) -> Superblock {
        self.at(LogPosition { id: 0, ..self.log })
            .over(LevelMap::default())
    }

    /// The version of the record.
    #[must_use]
    pub fn version(&self) -> u32 {
        match (
            self.log == LogPosition::default(),
            self.level == LevelMap::default(),
        ) {
            (true, true) => WITHOUT_LOG,
            (false, true) => WITHOUT_LEVEL,
            (_, false) => VERSION,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let record: [u8; BYTES] = transmute!(Raw {
            magic: MAGIC,
            version: self.version().into(),
            layout: self.layout.into(),
            arch: X86_64,
            pointer: POINTER,
            page: (PAGE as u16).into(),
            zero_20: [0; 4],
            base: self.base.into(),
            bytes: self.bytes.into(),
            bound: self.bound.into(),
            unix_ms: self.unix_ms.into(),
            zero_56: [0; 8],
        });
        let mut bytes = record.to_vec();
        if self.version() > WITHOUT_LOG {
            let (id, start) = (self.log.id.into(), self.log.start.into());
            bytes.extend_from_slice(RawLog { id, start }.as_bytes());
        }
        if self.version() > WITHOUT_LEVEL {
            let level = RawLevel {
                id: self.level.id.into(),
                map_at: self.level.at.into(),
                map_bytes: self.level.bytes.into(),
                map_sum: self.level.sum.into(),
                zero: [0; 4],
            };
            bytes.extend_from_slice(level.as_bytes());
        }
        bytes
    }

    /// Reads a context.
    ///
    /// # Errors
    /// [`Error::Foreign`] when it is no region's, or one for another machine or version;
    /// [`Error::Damaged`] when its numbers make no sense.
    pub fn decode(context: &[u8]) -> Result<Superblock> {
        let record = Raw::read_from_prefix(context).ok().map(|(record, _)| record);
        let Some(record) = record.filter(|record| record.magic == MAGIC) else {
            return Err(Error::Foreign("it is a store, but not of a region".into()));
        };
        let (version, layout) = (record.version.get(), record.layout.get());
        if !(WITHOUT_LOG..=VERSION).contains(&version) || layout != LAYOUT {
            return Err(Error::Foreign(format!(
                "it has version {version} with layout {layout}; this build reads versions up to {VERSION} with layout \
                 {LAYOUT}"
            )));
        }
        let log = match version {
            WITHOUT_LOG => None,
            _ => match RawLog::read_from_prefix(&context[BYTES..]) {
                Ok((log, _)) => Some(log),
                Err(_) => {
                    let why = format!(
                        "a record of {} bytes, cut before its place in the log",
                        context.len()
                    );
                    return Err(Error::Damaged(why));
                }
            },
        };
        let level = match version {
            WITHOUT_LOG | WITHOUT_LEVEL => LevelMap::default(),
            _ => LevelMap::decode(context)?,
        };
        let (arch, pointer, page) = (record.arch, record.pointer, record.page.get());
        if (arch, pointer, page) != (X86_64, POINTER, PAGE as u16) {
            return Err(Error::Foreign(format!(
                "it was made on another kind of machine (architecture {arch}, pointers of {pointer} bytes, pages of {page})"
            )));
        }
        let found = Superblock {
            layout,
            base: record.base.get(),
            bytes: record.bytes.get(),
            bound: record.bound.get(),
            unix_ms: record.unix_ms.get(),
            log: log.map_or_else(LogPosition::default, |log| LogPosition {
                id: log.id.get(),
                start: log.start.get(),
            }),
            level,
        };
        match found.impossible() {
            None => Ok(found),
            Some(why) => Err(Error::Damaged(why)),
        }
    }

    /// The first number that no region has, and what it may be.
    fn impossible(&self) -> Option<String> {
        let (base, most) = (self.base as usize, DATA_BYTES as u64);
        let (bytes, bound, start) = (self.bytes, self.bound, self.log.start);
        if !ZONE.contains(&base) || !base.is_multiple_of(WINDOW_BYTES) {
            let (from, to) = (ZONE.start, ZONE.end);
            return Some(format!(
                "base {base:#x}: a multiple of {WINDOW_BYTES:#x} from {from:#x} and below {to:#x}"
            ));
        }
        if !bytes.is_multiple_of(STEP as u64) || bytes > most {
            return Some(format!("{bytes} bytes: a multiple of {STEP}, at most {most}"));
        }
        if bound > most {
            return Some(format!("a bound of {bound} bytes: at most {most}"));
        }
        let is_at_a_call = start.is_multiple_of(8);
        (!is_at_a_call).then(|| format!("its log from byte {start} on: a multiple of 8"))
    }
}

impl LevelMap {
    fn decode(context: &[u8]) -> Result<LevelMap> {
        let level = context.get(BYTES + size_of::<RawLog>()..);
        let level = level.and_then(|rest| RawLevel::read_from_prefix(rest).ok());
        let (level, _) = level.ok_or_else(|| {
            Error::Damaged(format!(
                "a record of {} bytes, cut before the map of its next level",
                context.len()
            ))
        })?;
        Ok(LevelMap {
            id: level.id.get(),
            at: level.map_at.get(),
            bytes: level.map_bytes.get(),
            sum: level.map_sum.get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let superblock = Superblock::now(ZONE.start + WINDOW_BYTES, 3 * STEP, 1 << 30);
        assert_eq!(superblock.encode().len(), BYTES);
        assert_eq!(Superblock::decode(&superblock.encode()).unwrap(), superblock);
        let logged = superblock.at(LogPosition { id: 7, start: 64 });
        assert_eq!(Superblock::decode(&logged.encode()).unwrap(), logged);
        let cut = Superblock::decode(&logged.encode()[..BYTES + 15]).unwrap_err();
        assert!(cut.to_string().contains("cut before its place in the log"));
        let level = LevelMap {
            id: 5,
            at: 8192,
            bytes: 48,
            sum: 3,
        };
        for leveled in [superblock.over(level), logged.over(level)] {
            assert_eq!(Superblock::decode(&leveled.encode()).unwrap(), leveled);
            let cut = Superblock::decode(&leveled.encode()[..BYTES + 47]).unwrap_err();
            assert!(cut.to_string().contains("cut before the map of its next level"));
            assert_eq!(leveled.alone().level, LevelMap::default());
        }
    }

    #[test]
    fn everything_else_is_refused() {
        let good = Superblock::now(ZONE.start, STEP, STEP).encode();
        let refused = |at: usize, value: u8| {
            let mut record = good.clone();
            record[at] = value;
            Superblock::decode(&record).unwrap_err().to_string()
        };
        assert!(refused(0, b'x').contains("not of a region"));
        assert!(refused(8, 9).contains("version 9"));
        assert!(refused(12, 7).contains("layout 7"));
        assert!(refused(16, 2).contains("another kind of machine"));
        assert!(refused(17, 4).contains("another kind of machine"));
        assert!(refused(24, 1).contains("base 0x"), "{}", refused(24, 1));
        assert!(refused(29, 0x90).contains("base 0x"));
        assert!(refused(32, 1).contains("bytes: a multiple of"));
        assert!(refused(39, 1).contains("bytes: a multiple of"));
        for len in 0..BYTES {
            assert!(Superblock::decode(&good[..len]).is_err());
        }
    }
}
