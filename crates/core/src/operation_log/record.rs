//! The bytes of the log: its header, definitions, marks and calls; and the group that is made durable together.

use super::VERSION;
use crate::record::{self, Record, peek};
use crc32c::crc32c_append;
use std::mem::offset_of;
use std::ops::Range;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(super) const MAGIC: [u8; 8] = *b"tpoplog\0";
/// Bytes of a record before its content.
pub(super) const HEAD: usize = 24;
/// The object of a mark.
const MARK: u16 = u16::MAX;
/// The function of a call that was withdrawn: it is never run.
pub(super) const WITHDRAWN: u16 = u16::MAX;
/// The bit of a call's thread that says that the thread has a name: the rest is the number of a definition.
pub const NAMED: u32 = 1 << 31;
/// The lane of a call that has none: it may touch all of its object.
pub(super) const ALL: u64 = u64::MAX;

/// The bytes of the log's header.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(super) struct RawHeader {
    pub(super) magic: [u8; 8],
    pub(super) version: U32,
    crc: U32,
    pub(super) id: U64,
    pub(super) ring: U64,
}

impl Record for RawHeader {
    const SUM_AT: usize = offset_of!(RawHeader, crc);
    const COVERED: Range<usize> = offset_of!(RawHeader, id)..32;
}

/// The first bytes of every record.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(super) struct Raw {
    crc: U32,
    pub(super) bytes: U32,
    pub(super) object: U16,
    pub(super) function: U16,
    pub(super) thread: U32,
    pub(super) lane: U64,
}

impl Record for Raw {
    const SUM_AT: usize = offset_of!(Raw, crc);
    const COVERED: Range<usize> = offset_of!(Raw, bytes)..HEAD;
}

// In step with docs/format.md.
const _: () = assert!(size_of::<RawHeader>() == 32 && size_of::<Raw>() == HEAD);

/// The seed of a log's checksums.
pub(super) fn seed_of(id: u64) -> u32 {
    crc32c_append(0, &id.to_le_bytes())
}

/// The seed of the checksum of the definition at a byte of the file.
pub(super) fn definition_seed(seed: u32, at: u64) -> u32 {
    crc32c_append(seed, &at.to_le_bytes())
}

/// The seed of a mark's checksum.
pub(super) fn mark_seed(seed: u32, position: u64) -> u32 {
    crc32c_append(seed, &position.to_le_bytes())
}

/// The seed of the checksums of all calls of a life of the log.
pub(super) fn life_seed(seed: u32, life: u64) -> u32 {
    crc32c_append(seed, &life.to_le_bytes())
}

/// The seed of a call's checksum.
pub(super) fn call_seed(seed: u32, life: u64, position: u64) -> u32 {
    crc32c_append(life_seed(seed, life), &position.to_le_bytes())
}

impl RawHeader {
    pub(super) fn sealed(id: u64, ring: u64) -> RawHeader {
        let raw = RawHeader {
            magic: MAGIC,
            version: VERSION.into(),
            crc: U32::ZERO,
            id: id.into(),
            ring: ring.into(),
        };
        record::seal(raw, &[], 0)
    }
}

impl Raw {
    pub(super) fn mark(life: u64, closed_ms: u64, seed: u32) -> Raw {
        let raw = Raw {
            crc: U32::ZERO,
            bytes: U32::ZERO,
            object: MARK.into(),
            function: ((closed_ms >> 32) as u16).into(),
            thread: (closed_ms as u32).into(),
            lane: life.into(),
        };
        record::seal(raw, &[], seed)
    }

    pub(super) fn call(call: &Call<'_>, seed: u32) -> Raw {
        let raw = Raw {
            crc: U32::ZERO,
            bytes: (call.arguments.len() as u32).into(),
            object: call.object.into(),
            function: call.function.into(),
            thread: call.thread.into(),
            lane: call.lane.unwrap_or(ALL).into(),
        };
        record::seal(raw, call.arguments, seed)
    }

    /// All bytes of a definition.
    pub(super) fn definition(number: u16, text: &str, seed: u32) -> Vec<u8> {
        let call = Call {
            object: number,
            function: 0,
            thread: 0,
            lane: None,
            arguments: text.as_bytes(),
        };
        let mut bytes = Raw::call(&call, seed).as_bytes().to_vec();
        bytes.extend_from_slice(call.arguments);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    /// The life of a mark, if this looks like one.
    pub(super) fn as_mark(&self) -> Option<u64> {
        (self.object.get() == MARK && self.bytes.get() == 0).then_some(self.lane.get())
    }

    /// When the group of a mark was closed, milliseconds of Unix time; 0 where that is not known.
    pub(super) fn closed_ms(&self) -> u64 {
        u64::from(self.function.get()) << 32 | u64::from(self.thread.get())
    }

    /// The lane of a call, if it has one.
    pub(super) fn lane(&self) -> Option<u64> {
        Some(self.lane.get()).filter(|&lane| lane != ALL)
    }
}

/// A call, to be appended.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The number of the definition that names the object and its functions.
    pub object: u16,
    /// The number of the function in it.
    pub function: u16,
    /// The persistent number of the thread that calls.
    pub thread: u32,
    /// The part of the object that the call touches; none for a call that may touch all of it.
    pub lane: Option<u64>,
    /// A copy of the arguments.
    pub arguments: &'a [u8],
}

/// Calls that follow one another, to be made durable together.
#[derive(Debug, Default)]
pub struct Group {
    pub(super) start: u64,
    pub(super) bytes: Vec<u8>,
}

impl Group {
    /// The position of its mark.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// One past its last record.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Its records.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether a call begins at `position`, which is withdrawn then.
    pub(super) fn withdraw(&mut self, position: u64, seed: u32) -> bool {
        if !(self.start..self.end()).contains(&position) {
            return false;
        }
        let at = (position - self.start) as usize;
        let mark = peek::<Raw>(&self.bytes).and_then(|raw| raw.as_mark());
        let (Some(raw), Some(life)) = (peek::<Raw>(&self.bytes[at..]), mark) else {
            return false;
        };
        let content = at + HEAD..at + HEAD + raw.bytes.get() as usize;
        let raw = Raw {
            function: WITHDRAWN.into(),
            ..raw
        };
        let raw = record::seal(raw, &self.bytes[content], call_seed(seed, life, position));
        self.bytes[at..at + HEAD].copy_from_slice(raw.as_bytes());
        true
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}
