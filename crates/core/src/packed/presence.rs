//! Which pages hold something: a mask a sheet, kept in the map.
//!
//! ```text
//! a line of the map:   | crc 4 | zero 4 | mask of a sheet, 8 | mask | ...      a line below
//! ```
//!
//! * A sheet below says only that some of its 64 pages is there; a page discarded alone leaves its
//!   bytes where they are, and this map knows that they mean nothing.
//! * A line of the map is written when a page of its sheets comes or goes, which is rare. It carries
//!   the checksum of its masks and its number.

use super::layout::{Layout, SHEET};
use crate::record::{self, Record};
use crc32c::crc32c_append;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What a line of the map begins with; its masks follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawLine {
    crc: U32,
    zero_4: [u8; 4],
}

impl Record for RawLine {
    const SUM_AT: usize = 0;
    // The checksum covers the masks, and begins with the number of the line.
    const COVERED: Range<usize> = MASKS_AT..MASKS_AT;
}

const MASKS_AT: usize = size_of::<RawLine>();

// In step with docs/format.md.
const _: () = assert!(MASKS_AT == 8);

/// The masks.
#[derive(Clone, Debug, Default)]
pub(super) struct Presence {
    sheets: BTreeMap<u64, u64>,
    /// Pages there are.
    pub(super) pages: u64,
    /// Sheets whose mask changed in this epoch.
    changed: BTreeSet<u64>,
}

impl Presence {
    pub(super) fn has(&self, page: u64) -> bool {
        let mask = self.sheets.get(&(page / SHEET)).copied().unwrap_or(0);
        mask >> (page % SHEET) & 1 == 1
    }

    /// The page is there. Whether it was before.
    pub(super) fn set(&mut self, page: u64) -> bool {
        let mask = self.sheets.entry(page / SHEET).or_default();
        let bit = 1 << (page % SHEET);
        let there = *mask & bit != 0;
        if !there {
            *mask |= bit;
            self.pages += 1;
            self.changed.insert(page / SHEET);
        }
        there
    }

    /// Takes the pages away that are there, and says which.
    pub(super) fn clear(&mut self, pages: Range<u64>) -> Vec<u64> {
        let mut gone = Vec::new();
        let mut emptied = Vec::new();
        let sheets = pages.start / SHEET..pages.end.div_ceil(SHEET);
        if sheets.is_empty() {
            return gone;
        }
        for (&sheet, mask) in self.sheets.range_mut(sheets) {
            let had = gone.len();
            for k in (0..SHEET).filter(|&k| pages.contains(&(sheet * SHEET + k))) {
                if *mask >> k & 1 == 1 {
                    *mask &= !(1 << k);
                    gone.push(sheet * SHEET + k);
                }
            }
            if gone.len() > had {
                self.changed.insert(sheet);
            }
            if *mask == 0 {
                emptied.push(sheet);
            }
        }
        for sheet in emptied {
            self.sheets.remove(&sheet);
        }
        self.pages -= gone.len() as u64;
        gone
    }

    /// Sheets with a page that is there.
    pub(super) fn sheets(&self) -> impl ExactSizeIterator<Item = u64> {
        self.sheets.keys().copied()
    }

    /// Sheets that changed in this epoch and have no page any more.
    pub(super) fn emptied(&self) -> impl Iterator<Item = u64> {
        let gone = |sheet: &u64| !self.sheets.contains_key(sheet);
        self.changed.iter().copied().filter(gone)
    }

    /// Whether a page came or went in this epoch.
    pub(super) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Lines of the map that changed in this epoch.
    pub(super) fn changed_lines(&self, layout: Layout) -> Vec<u64> {
        let mut lines: Vec<u64> = self.changed.iter().map(|sheet| sheet / layout.masks()).collect();
        lines.dedup();
        lines
    }

    /// The epoch is over.
    pub(super) fn end_epoch(&mut self) {
        self.changed.clear();
    }

    /// Line `number` of the map.
    pub(super) fn encode(&self, number: u64, seed: u32, layout: Layout, out: &mut Vec<u8>) {
        out.clear();
        out.resize(layout.page_bytes(), 0);
        let first = number * layout.masks();
        for (sheet, mask) in self.sheets.range(first..first + layout.masks()) {
            let at = MASKS_AT + (sheet - first) as usize * 8;
            out[at..at + 8].copy_from_slice(&mask.to_le_bytes());
        }
        let (to, masks) = out.split_at_mut(MASKS_AT);
        let header = RawLine {
            crc: U32::ZERO,
            zero_4: [0; 4],
        };
        to.copy_from_slice(record::seal(header, masks, seed_of(number, seed)).as_bytes());
    }

    /// Adds what line `number` of the map says; one never written says nothing.
    ///
    /// # Errors
    /// Its fault.
    pub(super) fn decode(
        &mut self,
        number: u64,
        bytes: &[u8],
        seed: u32,
        layout: Layout,
    ) -> Result<(), String> {
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        let (header, masks) = RawLine::read_from_prefix(bytes).map_err(|_| "it is cut")?;
        record::verify(&header, masks, seed_of(number, seed)).map_err(|mismatch| mismatch.to_string())?;
        if header.zero_4 != [0; 4] {
            return Err("bytes 4 to 8 are not zero".into());
        }
        let first = number * layout.masks();
        for (mask, sheet) in masks.chunks_exact(8).zip(first..) {
            let mask = u64::from_le_bytes(mask.try_into().unwrap_or_default());
            if mask != 0 {
                self.sheets.insert(sheet, mask);
                self.pages += u64::from(mask.count_ones());
            }
        }
        Ok(())
    }

    /// Whether both say the same.
    pub(super) fn agrees(&self, other: &Presence) -> bool {
        self.sheets == other.sheets
    }
}

/// The seed of the checksum of line `number` of the map.
fn seed_of(number: u64, seed: u32) -> u32 {
    crc32c_append(seed, &number.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Geometry;

    #[test]
    fn pages_come_and_go() {
        let layout = Layout::over(Geometry::DISK).unwrap();
        let mut presence = Presence::default();
        assert!(!presence.set(5) && presence.set(5) && !presence.set(64 * 511 * 3 + 70));
        assert!(presence.has(5) && !presence.has(6));
        assert_eq!((presence.pages, presence.changed_lines(layout)), (2, vec![0, 3]));
        let mut again = Presence::default();
        let mut line = Vec::new();
        for number in [0, 3, 4] {
            presence.encode(number, 9, layout, &mut line);
            again.decode(number, &line, 9, layout).unwrap();
            for at in [0, 3, 4, 7, 8, 4095] {
                line[at] ^= 4;
                assert!(Presence::default().decode(number, &line, 9, layout).is_err());
                line[at] ^= 4;
            }
            assert!(Presence::default().decode(number + 1, &line, 9, layout).is_err());
        }
        assert!(again.agrees(&presence) && again.pages == 2);
        presence.end_epoch();
        assert_eq!(presence.clear(3..7), [5]);
        assert_eq!(presence.emptied().collect::<Vec<_>>(), [0]);
        assert_eq!(presence.clear(0..u64::MAX), [64 * 511 * 3 + 70]);
        assert_eq!((presence.pages, presence.sheets().len()), (0, 0));
    }
}
