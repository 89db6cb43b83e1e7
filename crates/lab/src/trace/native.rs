//! Our own form, drawn byte by byte in `docs/format.md`: a header, compressed blocks of records, an
//! end with totals.
//!
//! * Everything is under a crc, and a block decodes on its own.
//! * A file that lacks its end is refused once its last whole block was given.
//! * What a block claims is checked before memory is taken for it.

use super::error::{Error, Result};
use super::input::Bytes;
use super::{ACCESS_BYTES, Addresses, CORES, Clock, Event, Header, Reader, Record, Writer};
use crate::op::RECENT;
use std::io::{self, Read, Write};

pub(crate) const MAGIC: &[u8; 8] = b"twintrac";
/// The newest version, which is written. Version 1 knows no [`Event::Follow`].
const VERSION: u32 = 2;
const HEAD_BYTES: usize = 20;
const BLOCK_HEAD_BYTES: usize = 16;
const END_BYTES: usize = 16;
/// A block ends with the record that makes it so large, before compression.
const BLOCK_BYTES: usize = 1 << 20;
/// The longest record: tag, core, after, address, size, value or how far behind.
const RECORD_BYTES: usize = 1 + 1 + 5 + 10 + 3 + 8;

const KIND_LOAD: u8 = 0;
const KIND_STORE: u8 = 1;
const KIND_STORE_VALUE: u8 = 2;
const KIND_PERSIST: u8 = 3;
const KIND_FENCE: u8 = 4;
const KIND_COMMIT: u8 = 5;
const KIND_FOLLOW: u8 = 6;
const TAG_CORE: u8 = 1 << 3;
const TAG_SIZE: u8 = 4;
const TAG_AFTER: u8 = 1 << 7;
/// Sizes are 1 << code; this code says that the size follows.
const SIZE_FOLLOWS: u8 = 7;

/// What was said before in a block: the core, and the address that each core would go on at, for
/// loads and for the rest.
struct Before {
    core: u8,
    next: [[u64; 2]; CORES as usize],
}

impl Before {
    fn new() -> Self {
        Before {
            core: 0,
            next: [[0; 2]; CORES as usize],
        }
    }

    fn next(&mut self, core: u8, kind: u8) -> &mut u64 {
        let is_load = kind == KIND_LOAD || kind == KIND_FOLLOW;
        &mut self.next[usize::from(core)][usize::from(!is_load)]
    }
}

fn put(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

fn encode(record: &Record, before: &mut Before, into: &mut Vec<u8>) {
    let (kind, access, value) = match record.event {
        Event::Load { at, size } => (KIND_LOAD, Some((at, size)), None),
        Event::Follow { at, size, .. } => (KIND_FOLLOW, Some((at, size)), None),
        Event::Store {
            at,
            size,
            value: None,
        } => (KIND_STORE, Some((at, size)), None),
        Event::Store { at, size, value } => (KIND_STORE_VALUE, Some((at, size)), value),
        Event::Persist { at, size } => (KIND_PERSIST, Some((at, size)), None),
        Event::Fence => (KIND_FENCE, None, None),
        Event::Commit => (KIND_COMMIT, None, None),
    };
    let code = match access {
        Some((_, size)) if size.is_power_of_two() && size <= 64 => size.trailing_zeros() as u8,
        Some(_) => SIZE_FOLLOWS,
        None => 0,
    };
    let mut tag = kind | code << TAG_SIZE;
    if record.core != before.core {
        tag |= TAG_CORE;
    }
    if record.after != 1 {
        tag |= TAG_AFTER;
    }
    into.push(tag);
    if record.core != before.core {
        into.push(record.core);
        before.core = record.core;
    }
    if record.after != 1 {
        put(into, record.after.into());
    }
    if let Some((at, size)) = access {
        let next = before.next(record.core, kind);
        let step = at.wrapping_sub(*next) as i64;
        put(into, (step << 1 ^ step >> 63) as u64);
        *next = at.wrapping_add(size.into());
        if code == SIZE_FOLLOWS {
            put(into, size.into());
        }
        if let Event::Follow { behind, .. } = record.event {
            into.push(behind);
        }
        if let Some(value) = value {
            into.extend_from_slice(&value.to_le_bytes()[..usize::from(size)]);
        }
    }
}

/// Why a record cannot be written or read.
fn wrong(header: &Header, record: &Record) -> Option<String> {
    if record.core >= header.cores {
        return Some(format!("core {} of {}", record.core, header.cores));
    }
    match record.event {
        Event::Load { at, size }
        | Event::Follow { at, size, .. }
        | Event::Persist { at, size }
        | Event::Store { at, size, .. }
            if size == 0 || size > ACCESS_BYTES || at.checked_add((size - 1).into()).is_none() =>
        {
            Some(format!("an access of {size} bytes at {at:#x}"))
        }
        Event::Follow { behind, .. } if !(1..=RECENT).contains(&behind) => {
            Some(format!("an address from {behind} loads before"))
        }
        Event::Store {
            size,
            value: Some(value),
            ..
        } if size > 8 || size < 8 && value >> (8 * size) != 0 => {
            Some(format!("a value of {value:#x} for a store of {size} bytes"))
        }
        _ => None,
    }
}

/// Writes our form. Without [`Self::finish`] the file is damaged, and refused when it is read.
pub struct NativeWriter<W> {
    output: W,
    header: Header,
    before: Before,
    block: Vec<u8>,
    records: u32,
    totals: [u64; 2],
    compressor: zstd::bulk::Compressor<'static>,
}

impl<W: Write> NativeWriter<W> {
    /// Writes the header. Errors are those of `output`, and `InvalidInput` for a header that no file
    /// can hold.
    pub fn new(mut output: W, header: &Header) -> io::Result<Self> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what);
        if !(1..=CORES).contains(&header.cores) {
            return Err(invalid("a trace has 1 to 64 cores"));
        }
        let origin = header.origin.as_bytes();
        let length = u16::try_from(origin.len()).map_err(|_| invalid("the origin is too long"))?;
        let mut head = Vec::with_capacity(HEAD_BYTES + origin.len() + 4);
        head.extend_from_slice(MAGIC);
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.push(header.cores);
        head.push(u8::from(header.clock == Clock::Cycles));
        head.push(u8::from(header.addresses == Addresses::Physical));
        head.push(0);
        head.extend_from_slice(&length.to_le_bytes());
        head.extend_from_slice(&[0; 2]);
        head.extend_from_slice(origin);
        head.extend_from_slice(&crc32c::crc32c(&head).to_le_bytes());
        output.write_all(&head)?;
        Ok(NativeWriter {
            output,
            header: header.clone(),
            before: Before::new(),
            block: Vec::with_capacity(BLOCK_BYTES + RECORD_BYTES),
            records: 0,
            totals: [0; 2],
            compressor: zstd::bulk::Compressor::new(3)?,
        })
    }

    /// Adds a record. `InvalidInput` for one that the header rules out.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        if let Some(what) = wrong(&self.header, record) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        encode(record, &mut self.before, &mut self.block);
        self.records += 1;
        self.totals[0] += 1;
        self.totals[1] += u64::from(record.after);
        if self.block.len() >= BLOCK_BYTES {
            self.end_block()
        } else {
            Ok(())
        }
    }

    fn end_block(&mut self) -> io::Result<()> {
        let packed = self.compressor.compress(&self.block)?;
        let raw = self.block.len() as u32;
        put_block(&mut self.output, self.records, raw, &packed)?;
        self.before = Before::new();
        self.block.clear();
        self.records = 0;
        Ok(())
    }

    /// Writes the last block and the end.
    pub fn finish(&mut self) -> io::Result<()> {
        if self.records > 0 {
            self.end_block()?;
        }
        let mut totals = [0; END_BYTES];
        totals[..8].copy_from_slice(&self.totals[0].to_le_bytes());
        totals[8..].copy_from_slice(&self.totals[1].to_le_bytes());
        put_block(&mut self.output, 0, 0, &totals)?;
        self.output.flush()
    }
}

fn put_block(output: &mut impl Write, records: u32, raw: u32, payload: &[u8]) -> io::Result<()> {
    let mut head = [0; BLOCK_HEAD_BYTES];
    head[0..4].copy_from_slice(&records.to_le_bytes());
    head[4..8].copy_from_slice(&raw.to_le_bytes());
    head[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..12]), payload);
    head[12..].copy_from_slice(&crc.to_le_bytes());
    output.write_all(&head)?;
    output.write_all(payload)
}

impl<W: Write> Writer for NativeWriter<W> {
    fn write(&mut self, record: &Record) -> io::Result<()> {
        NativeWriter::write(self, record)
    }

    fn finish(&mut self) -> io::Result<()> {
        NativeWriter::finish(self)
    }
}

/// Reads our form.
pub struct NativeReader<R> {
    input: Bytes<R>,
    header: Header,
    version: u32,
    before: Before,
    block: Vec<u8>,
    /// Where the block began, for errors, and the next byte of it once decompressed.
    block_at: u64,
    next: usize,
    left: u32,
    totals: [u64; 2],
    ended: bool,
    decompressor: zstd::bulk::Decompressor<'static>,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

impl<R: Read> NativeReader<R> {
    /// Reads the header.
    pub fn new(name: &str, input: R) -> Result<Self> {
        let mut input = Bytes::new(name, input);
        let mut head = vec![0; HEAD_BYTES];
        input.exact(&mut head, "the header")?;
        if &head[..8] != MAGIC {
            return Err(input.refuse(0, "does not begin with \"twintrac\""));
        }
        let version = u32_at(&head, 8);
        if !(1..=VERSION).contains(&version) {
            return Err(input.refuse(
                8,
                format!("version {version} of the form; this twinpage reads versions 1 to {VERSION}"),
            ));
        }
        let length = usize::from(head[16]) | usize::from(head[17]) << 8;
        head.resize(HEAD_BYTES + length + 4, 0);
        input.exact(&mut head[HEAD_BYTES..], "the header")?;
        let (said, crc) = head.split_at(HEAD_BYTES + length);
        if crc32c::crc32c(said) != u32_at(crc, 0) {
            return Err(input.refuse(0, "the header's crc does not match: damaged"));
        }
        let clock = [Clock::Instructions, Clock::Cycles].get(usize::from(head[13]));
        let addresses = [Addresses::Virtual, Addresses::Physical].get(usize::from(head[14]));
        let (true, Some(&clock), Some(&addresses)) = ((1..=CORES).contains(&head[12]), clock, addresses)
        else {
            return Err(input.refuse(12, "the header's fields have values this version does not know"));
        };
        let Ok(origin) = String::from_utf8(said[HEAD_BYTES..].to_vec()) else {
            return Err(input.refuse(HEAD_BYTES as u64, "the origin is no text"));
        };
        let cores = head[12];
        let no_decompressor = |why| Error::Io {
            name: name.to_owned(),
            why,
        };
        Ok(NativeReader {
            input,
            header: Header {
                cores,
                clock,
                addresses,
                origin,
            },
            version,
            before: Before::new(),
            block: Vec::new(),
            block_at: 0,
            next: 0,
            left: 0,
            totals: [0; 2],
            ended: false,
            decompressor: zstd::bulk::Decompressor::new().map_err(no_decompressor)?,
        })
    }

    /// What holds for the whole trace.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Reads the next block; false after the end.
    fn block(&mut self) -> Result<bool> {
        let at = self.input.at();
        let mut head = [0; BLOCK_HEAD_BYTES];
        self.input
            .exact(&mut head, "the head of a block, so before the trace's end")?;
        let [records, raw, packed, crc] = [0, 4, 8, 12].map(|field| u32_at(&head, field) as usize);
        let bound = zstd::zstd_safe::compress_bound(BLOCK_BYTES + RECORD_BYTES);
        if raw > BLOCK_BYTES + RECORD_BYTES || packed > bound || records > raw || (records == 0) != (raw == 0)
        {
            let what = format!("no block: {records} records in {raw} bytes, {packed} compressed");
            return Err(self.input.refuse(at, what));
        }
        let mut payload = vec![0; packed];
        self.input.exact(&mut payload, "a block")?;
        let found = crc32c::crc32c_append(crc32c::crc32c(&head[..12]), &payload);
        if found as usize != crc {
            return Err(self.input.refuse(at, "the block's crc does not match: damaged"));
        }
        if records == 0 {
            return self.end(at, &payload).map(|()| false);
        }
        self.block.resize(raw, 0);
        match self
            .decompressor
            .decompress_to_buffer(&payload, &mut self.block[..])
        {
            Ok(bytes) if bytes == raw => {}
            Ok(bytes) => {
                let what = format!("the block has {bytes} bytes, not the {raw} it says");
                return Err(self.input.refuse(at, what));
            }
            Err(why) => return Err(self.input.refuse(at, format!("cannot be decompressed: {why}"))),
        }
        (self.before, self.block_at, self.next, self.left) = (Before::new(), at, 0, records as u32);
        Ok(true)
    }

    fn end(&mut self, at: u64, payload: &[u8]) -> Result<()> {
        if payload.len() != END_BYTES || [u64_at(payload, 0), u64_at(payload, 8)] != self.totals {
            let what = format!(
                "the end does not fit what was read: {} records, {} instructions or cycles",
                self.totals[0], self.totals[1]
            );
            return Err(self.input.refuse(at, what));
        }
        let after = self.input.at();
        if self.input.fill(&mut [0])? > 0 {
            return Err(self
                .input
                .refuse(after, "there are bytes after the end of the trace"));
        }
        self.ended = true;
        Ok(())
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.block.get(self.next)?;
        self.next += 1;
        Some(byte)
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// The next record of the block; none where the bytes are no record.
    fn decode(&mut self) -> Option<Record> {
        let tag = self.byte()?;
        let kind = tag & 7;
        if tag & TAG_CORE != 0 {
            self.before.core = self.byte().filter(|&core| core < CORES)?;
        }
        let core = self.before.core;
        let after = match tag & TAG_AFTER {
            0 => 1,
            _ => self.number()?.try_into().ok()?,
        };
        let event = match kind {
            KIND_FENCE => Event::Fence,
            KIND_COMMIT => Event::Commit,
            KIND_FOLLOW if self.version < 2 => return None,
            KIND_LOAD | KIND_FOLLOW | KIND_STORE | KIND_STORE_VALUE | KIND_PERSIST => {
                let step = self.number()?;
                let step = (step >> 1) ^ (step & 1).wrapping_neg();
                let at = self.before.next(core, kind).wrapping_add(step);
                let size = match tag >> TAG_SIZE & 7 {
                    SIZE_FOLLOWS => self.number()?.try_into().ok()?,
                    code => 1 << code,
                };
                *self.before.next(core, kind) = at.wrapping_add(size.into());
                match kind {
                    KIND_LOAD => Event::Load { at, size },
                    KIND_FOLLOW => Event::Follow {
                        at,
                        size,
                        behind: self.byte()?,
                    },
                    KIND_PERSIST => Event::Persist { at, size },
                    KIND_STORE => Event::Store {
                        at,
                        size,
                        value: None,
                    },
                    _ => Event::Store {
                        at,
                        size,
                        value: Some(self.value(size)?),
                    },
                }
            }
            _ => return None,
        };
        Some(Record { core, after, event })
    }

    fn value(&mut self, size: u16) -> Option<u64> {
        if size > 8 {
            return None;
        }
        let mut value = 0;
        for i in 0..size {
            value |= u64::from(self.byte()?) << (8 * i);
        }
        Some(value)
    }

    /// The next record; none at the end.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        if self.left == 0 {
            if self.next < self.block.len() {
                return Err(self
                    .input
                    .refuse(self.block_at, "the block holds more than its records"));
            }
            if self.ended || !self.block()? {
                return Ok(None);
            }
        }
        let from = self.next;
        let record = self
            .decode()
            .filter(|record| wrong(&self.header, record).is_none());
        let Some(record) = record else {
            let what = format!("byte {from} of the block, decompressed, begins no record");
            return Err(self.input.refuse(self.block_at, what));
        };
        self.left -= 1;
        self.totals[0] += 1;
        self.totals[1] = self.totals[1].wrapping_add(record.after.into());
        Ok(Some(record))
    }
}

impl<R: Read + Send> Reader for NativeReader<R> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self) -> Result<Option<Record>> {
        self.next_record()
    }
}
