//! Records of changes to the mapping, appended one after the other (SSP's metadata journal).
//!
//! ```text
//! record   0       4     8          16      24           28         32
//!          | magic | crc | sequence | epoch | generation | body len | body, zeros to 8 bytes
//!
//! body     context len, context crc, then sections in this order, each only where it is not empty:
//!          1 home    pages whose derivative lines were copied home, their derivative page free
//!          2 deaths  pages that hold nothing any more
//!          3 claims  logical extents and where their base pages lie
//!          4 births  pages that hold something now, all of it in the base page
//!          5 frames  derivative pages assigned
//!          6 flips   lines whose checkpoint changed homes: DBV, and CPBV ^= DBV
//!          7 redo    lines that lie in the fall-back buffer until the next record
//!          8 sums    checksums of the lines of 4, 6 and 7, where lines have some
//!          9 unfenced  no fence was between the lines and the record
//!          10 payload  bytes of the layer above
//! ```
//!
//! * One record, one change of the mapping, all or nothing: its checksum covers all of it.
//! * Pages in a section ascend; a page costs the distance from the one before and its mask, two or
//!   three bytes in all for a line here and there.
//! * Records are numbered without gaps; a record of an earlier use of the slot has another generation.

use super::codec::{Cursor, put_mask, put_number, put_step};
use super::map::{Frame, Key};
use super::sums::{PageSums, Sums};
use crate::geometry::{LINES_PER_PAGE, LineMask};
use crate::record::{self, Record};
use crate::scheme::Epoch;
use std::mem::offset_of;
use std::ops::Range;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(super) const MAGIC: [u8; 4] = *b"TpJr";

/// Bytes of a record's header.
pub(super) const HEADER: usize = 32;
/// Records begin at multiples of this.
pub(super) const ALIGN: usize = 8;
/// What a record with a payload and nothing else takes besides it, at most.
pub(super) const PAYLOAD_OVERHEAD: usize = HEADER + 32 + ALIGN;

/// The bytes of a record's header.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 4],
    crc: U32,
    sequence: U64,
    epoch: U64,
    generation: U32,
    body_len: U32,
}

impl Record for RawHeader {
    const SUM_AT: usize = offset_of!(RawHeader, crc);
    const COVERED: Range<usize> = offset_of!(RawHeader, sequence)..HEADER;
}

// In step with docs/format.md.
const _: () = assert!(size_of::<RawHeader>() == HEADER && HEADER.is_multiple_of(ALIGN));

/// What a commit saved of the context: where it ends, and its checksum. Its bytes are in pages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct ContextMark {
    pub(super) len: u64,
    pub(super) crc: u32,
}

/// Lines of a page that lie in the fall-back buffer: line `k` of the set bits at `places[k]`, in
/// lines of the medium.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Redo {
    pub(super) lines: LineMask,
    pub(super) places: Vec<u64>,
}

impl Redo {
    /// Its lines and their sums.
    pub(super) fn sums<'a>(&'a self, sums: &'a Sums) -> impl Iterator<Item = (usize, u32)> + 'a {
        let lines = self.lines.runs().flatten();
        lines
            .zip(&self.places)
            .map(|(line, &place)| (line, sums.get(place)))
    }

    /// Those of `lines` have these sums. `None` where one is not of this list.
    pub(super) fn restore_sums(&self, sums: &mut Sums, lines: LineMask, found: &[u32]) -> Option<()> {
        let mut found = found.iter();
        for (line, &place) in self.lines.runs().flatten().zip(&self.places) {
            let sum = match lines.has(line) {
                true => *found.next()?,
                false => 0,
            };
            sums.restore(place, sum);
        }
        (lines & !self.lines).is_empty().then_some(())
    }
}

/// Ascending pages, as runs: a range may name many in a few bytes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Runs(Vec<Range<u64>>);

impl Runs {
    /// Adds a page after all there are.
    pub(super) fn push(&mut self, key: Key) {
        match self.0.last_mut() {
            Some(run) if run.end == key.0 => run.end += 1,
            _ => self.0.push(key.0..key.0 + 1),
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.0.iter().flat_map(|run| run.clone().map(Key))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// What one record changes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Change {
    pub(super) context: ContextMark,
    pub(super) home: Runs,
    pub(super) deaths: Runs,
    /// Logical extents, and their places on the medium.
    pub(super) claims: Vec<(u64, u32)>,
    pub(super) births: Runs,
    pub(super) frames: Vec<(Key, Frame)>,
    pub(super) flips: Vec<(Key, LineMask)>,
    pub(super) redo: Vec<(Key, Redo)>,
    /// Of every page of `births`, `flips` and `redo`, in that order; nothing in a store without checksums.
    pub(super) sums: PageSums,
    /// No fence is between the lines and the record: it is valid if they are as `sums` say.
    pub(super) unfenced: bool,
    /// Bytes of the layer above, that are a part of the checkpoint until the next commit without any.
    pub(super) payload: Vec<u8>,
}

impl Change {
    pub(super) fn clear(&mut self) {
        let Change {
            context: _,
            home,
            deaths,
            claims,
            births,
            frames,
            flips,
            redo,
            sums,
            unfenced,
            payload,
        } = self;
        [home, deaths, births].into_iter().for_each(Runs::clear);
        claims.clear();
        frames.clear();
        flips.clear();
        redo.clear();
        sums.clear();
        payload.clear();
        *unfenced = false;
    }

    /// How many lines it writes; those of births are all of their pages.
    pub(super) fn lines(&self) -> usize {
        let flips = self.flips.iter().map(|(_, lines)| lines.count());
        self.births.keys().count() * LINES_PER_PAGE + flips.sum::<usize>()
    }
}

/// The writer of a record, and its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    pub(super) generation: u32,
    pub(super) sequence: u64,
    pub(super) epoch: Epoch,
}

const HOME: u8 = 1;
const DEATHS: u8 = 2;
const CLAIMS: u8 = 3;
const BIRTHS: u8 = 4;
const FRAMES: u8 = 5;
const FLIPS: u8 = 6;
const REDO: u8 = 7;
const SUMS: u8 = 8;
const UNFENCED: u8 = 9;
const PAYLOAD: u8 = 10;

/// Makes `out` the record. `None` if it is too large to be one.
pub(super) fn encode(change: &Change, stamp: Stamp, seed: u32, out: &mut Vec<u8>) -> Option<()> {
    out.clear();
    out.resize(HEADER, 0);
    put_context(out, change.context);
    put_section(out, HOME, change.home.0.len(), |out| put_runs(out, &change.home));
    put_section(out, DEATHS, change.deaths.0.len(), |out| {
        put_runs(out, &change.deaths)
    });
    put_section(out, CLAIMS, change.claims.len(), |out| {
        let mut last = (0, 0);
        for &(logical, physical) in &change.claims {
            put_number(out, logical - last.0);
            put_step(out, last.1, physical.into());
            last = (logical + 1, physical.into());
        }
    });
    put_section(out, BIRTHS, change.births.0.len(), |out| {
        put_runs(out, &change.births)
    });
    put_section(out, FRAMES, change.frames.len(), |out| {
        let mut last = (0, 0);
        for &(key, frame) in &change.frames {
            put_number(out, key.0 - last.0);
            put_step(out, last.1, frame.number());
            last = (key.0 + 1, frame.number() + 1);
        }
    });
    put_section(out, FLIPS, change.flips.len(), |out| {
        let mut next = 0;
        for &(key, lines) in &change.flips {
            put_number(out, key.0 - next);
            put_mask(out, lines);
            next = key.0 + 1;
        }
    });
    put_section(out, REDO, change.redo.len(), |out| put_redo(out, &change.redo));
    put_section(out, SUMS, change.sums.len(), |out| change.sums.encode(out));
    put_section(out, UNFENCED, usize::from(change.unfenced), |_| ());
    put_section(out, PAYLOAD, change.payload.len(), |out| {
        out.extend_from_slice(&change.payload);
    });
    let body_len = u32::try_from(out.len() - HEADER).ok()?;
    out.resize(out.len().next_multiple_of(ALIGN), 0);
    let header = RawHeader {
        magic: MAGIC,
        crc: U32::ZERO,
        sequence: stamp.sequence.into(),
        epoch: stamp.epoch.into(),
        generation: stamp.generation.into(),
        body_len: body_len.into(),
    };
    let (to, body) = out.split_at_mut(HEADER);
    to.copy_from_slice(record::seal(header, body, seed).as_bytes());
    Some(())
}

fn put_section(out: &mut Vec<u8>, tag: u8, count: usize, body: impl FnOnce(&mut Vec<u8>)) {
    if count > 0 {
        out.push(tag);
        put_number(out, count as u64);
        body(out);
    }
}

pub(super) fn put_context(out: &mut Vec<u8>, context: ContextMark) {
    put_number(out, context.len);
    out.extend(context.crc.to_le_bytes());
}

/// Distances between runs, and their lengths.
fn put_runs(out: &mut Vec<u8>, runs: &Runs) {
    let mut next = 0;
    for run in &runs.0 {
        put_number(out, run.start - next);
        put_number(out, run.end - run.start);
        next = run.end;
    }
}

pub(super) fn put_redo(out: &mut Vec<u8>, redo: &[(Key, Redo)]) {
    let mut last = (0, 0);
    for (key, redo) in redo {
        put_number(out, key.0 - last.0);
        put_mask(out, redo.lines);
        for run in redo.places.chunk_by(|a, b| a + 1 == *b) {
            put_step(out, last.1, run[0]);
            put_number(out, run.len() as u64);
            last.1 = run[0] + run.len() as u64;
        }
        last.0 = key.0 + 1;
    }
}

/// The record at the start of `bytes`: which it is and where it ends. `None` if there is none.
pub(super) fn find(bytes: &[u8], generation: u32, seed: u32) -> Option<(Stamp, usize)> {
    let header: RawHeader = record::peek(bytes)?;
    if header.magic != MAGIC || header.generation.get() != generation {
        return None;
    }
    let end = (HEADER + header.body_len.get() as usize).next_multiple_of(ALIGN);
    record::verify(&header, bytes.get(HEADER..end)?, seed).ok()?;
    let stamp = Stamp {
        generation,
        sequence: header.sequence.get(),
        epoch: header.epoch.get(),
    };
    Some((stamp, end))
}

/// The first record in `bytes` with a number above this one, and where it begins.
pub(super) fn find_later(bytes: &[u8], generation: u32, seed: u32, last: u64) -> Option<(Stamp, usize)> {
    let (words, _) = bytes.as_chunks::<ALIGN>();
    let begins = (0..words.len()).filter(|&word| words[word].starts_with(&MAGIC));
    let mut found = begins.filter_map(|word| {
        let (stamp, _) = find(&bytes[word * ALIGN..], generation, seed)?;
        Some((stamp, word * ALIGN))
    });
    // A payload may hold the bytes of an earlier record.
    found.find(|(stamp, _)| stamp.sequence > last)
}

/// What a record [`find`] found says.
///
/// # Errors
/// The field that is out of its range.
pub(super) fn decode(record: &[u8]) -> Result<Change, String> {
    let body_len = record::peek::<RawHeader>(record).map_or(0, |header| header.body_len.get() as usize);
    let body = record.get(HEADER..HEADER.saturating_add(body_len));
    let mut body =
        Cursor::new(body.ok_or_else(|| format!("a body of {body_len} bytes, which are not there"))?);
    read_change(&mut body).ok_or_else(|| body.refuse())
}

fn read_change(body: &mut Cursor<'_>) -> Option<Change> {
    let mut change = Change {
        context: read_context(body)?,
        ..Change::default()
    };
    let mut last = 0;
    while body.left() > 0 {
        let tag = body
            .named("number of a section")
            .byte()
            .filter(|&tag| tag > last)?;
        let count = body.number()?;
        last = tag;
        match tag {
            HOME => change.home = read_runs(body.named("pages brought home"), count)?,
            DEATHS => change.deaths = read_runs(body.named("discarded pages"), count)?,
            CLAIMS => change.claims = read_claims(body.named("claimed extents"), count)?,
            BIRTHS => change.births = read_runs(body.named("new pages"), count)?,
            FRAMES => change.frames = read_frames(body.named("derivative pages"), count)?,
            FLIPS => change.flips = read_flips(body.named("changed lines"), count)?,
            REDO => change.redo = read_redo(body.named("lines in the fall-back"), count)?,
            SUMS => change.sums = PageSums::decode(body.named("checksums"), count)?,
            UNFENCED if count == 1 => change.unfenced = true,
            PAYLOAD => change.payload = body.named("payload").bytes(count)?.to_vec(),
            _ => return None,
        }
    }
    Some(change)
}

pub(super) fn read_context(body: &mut Cursor<'_>) -> Option<ContextMark> {
    Some(ContextMark {
        len: body.named("context").number()?,
        crc: body.u32()?,
    })
}

fn read_runs(body: &mut Cursor<'_>, count: u64) -> Option<Runs> {
    let mut next: u64 = 0;
    let runs = (0..count).map(|_| {
        let start = next.checked_add(body.number()?)?;
        next = start.checked_add(body.number().filter(|&len| len > 0)?)?;
        Some(start..next)
    });
    runs.collect::<Option<_>>().map(Runs)
}

fn read_claims(body: &mut Cursor<'_>, count: u64) -> Option<Vec<(u64, u32)>> {
    let mut last = (0_u64, 0);
    let claims = (0..count).map(|_| {
        let logical = last.0.checked_add(body.number()?)?;
        let physical = u32::try_from(body.step(last.1)?).ok()?;
        last = (logical.checked_add(1)?, physical.into());
        Some((logical, physical))
    });
    claims.collect()
}

fn read_frames(body: &mut Cursor<'_>, count: u64) -> Option<Vec<(Key, Frame)>> {
    let mut last = (0_u64, 0);
    let frames = (0..count).map(|_| {
        let key = last.0.checked_add(body.number()?)?;
        let frame = Frame::new(body.step(last.1)?)?;
        last = (key.checked_add(1)?, frame.number() + 1);
        Some((Key(key), frame))
    });
    frames.collect()
}

fn read_flips(body: &mut Cursor<'_>, count: u64) -> Option<Vec<(Key, LineMask)>> {
    let mut next = 0_u64;
    let flips = (0..count).map(|_| {
        let key = next.checked_add(body.number()?)?;
        next = key.checked_add(1)?;
        Some((Key(key), body.mask()?))
    });
    flips.collect()
}

pub(super) fn read_redo(body: &mut Cursor<'_>, count: u64) -> Option<Vec<(Key, Redo)>> {
    let mut last = (0_u64, 0);
    let redo = (0..count).map(|_| {
        let key = last.0.checked_add(body.number()?)?;
        last.0 = key.checked_add(1)?;
        let lines = body.mask()?;
        let mut places = Vec::new();
        while places.len() < lines.count() {
            let first = body.step(last.1)?;
            let count = body
                .number()
                .filter(|&n| n > 0 && n <= (lines.count() - places.len()) as u64)?;
            last.1 = first.checked_add(count)?;
            places.extend(first..last.1);
        }
        Some((Key(key), Redo { lines, places }))
    });
    redo.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{btree_map, btree_set, vec};
    use proptest::prelude::*;

    fn keys() -> impl Strategy<Value = Runs> {
        btree_set((0_u64..1 << 36).prop_flat_map(|first| first..first + 3), 0..20).prop_map(|keys| {
            let mut runs = Runs::default();
            keys.into_iter().for_each(|key| runs.push(Key(key)));
            runs
        })
    }

    fn changes() -> impl Strategy<Value = Change> {
        let context = (any::<u64>(), any::<u32>()).prop_map(|(len, crc)| ContextMark { len, crc });
        let claims = btree_map(0_u64..1 << 26, any::<u32>(), 0..9).prop_map(|map| map.into_iter().collect());
        let frame = (1..u32::MAX).prop_map(|number| Frame::new(number.into()).unwrap());
        let frames = btree_map((0_u64..1 << 36).prop_map(Key), frame, 0..20);
        let mask = (1..u64::MAX).prop_map(LineMask);
        let flips = btree_map((0_u64..1 << 36).prop_map(Key), mask, 0..20);
        let redo = any::<u64>().prop_flat_map(|lines| {
            let lines = LineMask(lines);
            vec(0..u64::MAX - 1, lines.count()).prop_map(move |places| Redo { lines, places })
        });
        let redo = btree_map((0_u64..1 << 36).prop_map(Key), redo, 0..5);
        let sums = vec(vec((0_usize..64, any::<u32>()), 0..9), 0..9).prop_map(|pages| {
            let mut sums = PageSums::default();
            for page in pages {
                let lines: std::collections::BTreeMap<_, _> = page.into_iter().collect();
                sums.push(lines.into_iter());
            }
            sums
        });
        let sums = (sums, any::<bool>(), vec(any::<u8>(), 0..40));
        (context, keys(), keys(), claims, keys(), frames, flips, redo, sums).prop_map(
            |(context, home, deaths, claims, births, frames, flips, redo, (sums, unfenced, payload))| {
                Change {
                    context,
                    home,
                    deaths,
                    claims,
                    births,
                    frames: frames.into_iter().collect(),
                    flips: flips.into_iter().collect(),
                    redo: redo.into_iter().collect(),
                    sums,
                    unfenced,
                    payload,
                }
            },
        )
    }

    const STAMP: Stamp = Stamp {
        generation: 3,
        sequence: 17,
        epoch: 11,
    };

    proptest! {
        #[test]
        fn what_is_written_is_read(change in changes()) {
            let mut record = vec![];
            encode(&change, STAMP, 5, &mut record).unwrap();
            prop_assert_eq!(find(&record, 3, 5), Some((STAMP, record.len())));
            prop_assert_eq!(find(&record, 4, 5), None);
            prop_assert_eq!(find(&record, 3, 6), None);
            prop_assert_eq!(decode(&record), Ok(change));
        }

        #[test]
        fn a_flip_or_a_cut_is_noticed(change in changes(), at: prop::sample::Index, bit in 0_u8..8) {
            let mut record = vec![];
            encode(&change, STAMP, 5, &mut record).unwrap();
            let at = at.index(record.len());
            prop_assert_eq!(find(&record[..at], 3, 5), None);
            record[at] ^= 1 << bit;
            prop_assert_eq!(find(&record, 3, 5), None);
        }

        #[test]
        fn a_record_is_found_after_damage(change in changes(), before in 0_usize..500) {
            let mut bytes = vec![0xee; before * ALIGN];
            let at = bytes.len();
            let mut record = vec![];
            encode(&change, STAMP, 5, &mut record).unwrap();
            bytes.append(&mut record);
            prop_assert_eq!(find_later(&bytes, 3, 5, 16), Some((STAMP, at)));
            prop_assert_eq!(find_later(&bytes, 3, 5, 17), None);
            prop_assert_eq!(find_later(&bytes[at + ALIGN..], 3, 5, 16), None);
            bytes.truncate(bytes.len() - ALIGN);
            prop_assert_eq!(find_later(&bytes, 3, 5, 16), None);
        }

        #[test]
        fn any_bytes_are_read_or_refused(mut body in vec(any::<u8>(), 0..200)) {
            let mut record = vec![0; HEADER];
            let len = U32::new(body.len() as u32);
            record[offset_of!(RawHeader, body_len)..].copy_from_slice(len.as_bytes());
            record.append(&mut body);
            let _ = decode(&record);
        }
    }

    #[test]
    fn a_line_here_and_there_costs_three_bytes() {
        let flips: Vec<_> = (0..65)
            .map(|k| (Key(524_288 + k * 1000), LineMask(1 << (k % 64))))
            .collect();
        let mut record = vec![];
        encode(
            &Change {
                flips,
                ..Change::default()
            },
            STAMP,
            5,
            &mut record,
        )
        .unwrap();
        assert!(record.len() <= HEADER + 65 * 3 + 16, "{}", record.len());
    }
}
