//! The fall-back (DPC 4.4.3's buffer area, SSP's fall-back path): where lines go that find no
//! derivative page, so that any commit is atomic however large.
//!
//! ```text
//! in the epoch     a line goes to a place in the buffer; its page keeps its one home, untouched
//! commit           the record names the places: from here on the buffer holds the checkpoint
//! then             the lines are copied home, posted
//! next record      follows a fence, so they are home: it names no places, and the buffer is free
//! ```
//!
//! * The extents of a buffer are reused only when a record after its commit is durable.
//! * Copying home may be repeated any number of times: recovery does when the last record names places.

use super::journal::Redo;
use super::map::Key;
use super::space::{Role, Space};
use crate::error::Result;
use crate::geometry::{Geometry, LineMask};
use crate::medium::{Medium, Offset};
use std::collections::HashMap;
use std::ops::Range;

/// The lines of this epoch that are in the fall-back, and the extents that hold them.
#[derive(Default, Debug)]
pub(super) struct Fallback {
    pub(super) pages: HashMap<Key, Redo>,
    /// Extents in use, the last one up to `next`.
    pub(super) extents: Vec<u32>,
    /// The next line, and the end of its extent.
    next: Range<u64>,
    /// Extents of the last commit's buffer: free when another record is durable.
    pub(super) retired: Vec<u32>,
}

impl Fallback {
    /// What recovery found: it reads these extents.
    pub(super) fn in_extents(extents: Vec<u32>) -> Fallback {
        Fallback {
            extents,
            ..Fallback::default()
        }
    }

    /// Places for `lines` of a page, those it has already included.
    ///
    /// # Errors
    /// [`crate::Error::Full`] when there is no room for more.
    pub(super) fn reserve(
        &mut self,
        key: Key,
        lines: LineMask,
        geometry: Geometry,
        space: &mut Space,
        medium: &mut impl Medium,
    ) -> Result<()> {
        let redo = self.pages.entry(key).or_default();
        for line in (lines & !redo.lines).runs().flatten() {
            if self.next.is_empty() {
                let (extent, _) = space.claim(medium, Role::Fallback)?;
                self.extents.push(extent);
                let bytes = space.bytes(extent);
                let line_bytes = geometry.line_bytes() as u64;
                self.next = bytes.start / line_bytes..bytes.end / line_bytes;
            }
            redo.places
                .insert((redo.lines & LineMask::run(0, line)).count(), self.next.start);
            redo.lines = redo.lines | LineMask::run(line, 1);
            self.next.start += 1;
        }
        Ok(())
    }

    /// Whether it holds no line of this epoch.
    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.extents.is_empty()
    }

    /// The redo list of a commit: every page, in order.
    pub(super) fn list(&self) -> Vec<(Key, Redo)> {
        let mut list: Vec<_> = self
            .pages
            .iter()
            .map(|(&key, redo)| (key, redo.clone()))
            .collect();
        list.sort_unstable_by_key(|&(key, _)| key);
        list
    }

    /// The commit is durable and its lines are on their way home.
    pub(super) fn retire(&mut self) {
        self.pages.clear();
        self.next = 0..0;
        self.retired.append(&mut self.extents);
    }

    /// The epoch is abandoned; the extents it used are returned.
    pub(super) fn abandon(&mut self) -> Vec<u32> {
        self.pages.clear();
        self.next = 0..0;
        std::mem::take(&mut self.extents)
    }
}

impl Redo {
    /// Where lines of the page lie in the buffer: offset on the medium, and which they are, joined
    /// where both touch.
    pub(super) fn runs(&self, lines: LineMask, line_bytes: usize) -> Vec<(Offset, Range<usize>)> {
        let mut runs: Vec<(Offset, Range<usize>)> = Vec::new();
        let held = self.lines.runs().flatten().zip(&self.places);
        for (line, &place) in held.filter(|&(line, _)| lines.has(line)) {
            let at = place * line_bytes as u64;
            match runs.last_mut() {
                Some((start, run)) if run.end == line && *start + (run.len() * line_bytes) as u64 == at => {
                    run.end += 1;
                }
                _ => runs.push((at, line..line + 1)),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::Image;

    #[test]
    fn a_line_keeps_its_place() {
        let geometry = Geometry::new(64, 4096).unwrap();
        let mut medium = Image::new(8);
        medium.grow(4096).unwrap();
        let mut space = Space::new(geometry, 4096);
        let mut fallback = Fallback::default();
        for lines in [0b1100, 0b1111, 1 << 63, 0b1000] {
            fallback
                .reserve(Key(5), LineMask(lines), geometry, &mut space, &mut medium)
                .unwrap();
        }
        let redo = &fallback.list()[0].1;
        assert_eq!(
            (redo.lines, &redo.places[..]),
            (LineMask(1 << 63 | 15), &[66, 67, 64, 65, 68][..])
        );
        let all = redo.runs(LineMask::ALL, 64);
        assert_eq!(all, [(66 * 64, 0..2), (64 * 64, 2..4), (68 * 64, 63..64)]);
        assert_eq!(
            redo.runs(LineMask(0b0110), 64),
            [(67 * 64, 1..2), (64 * 64, 2..3)]
        );
    }
}
