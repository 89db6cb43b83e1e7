//! Pages that a process has from the one that made it, fork(2): the store has them once.
//!
//! * They are looked for at the first capture of a process, when its maker has been captured at the same stop.
//! * A page is inherited where both hold the same bytes at the same address and the store has the maker's. That is asked
//!   of the memories as they stand, so it is right whatever either did since the fork.
//! * From then on the page's place is shared ([`crate::pages`]): the one that writes it stores it elsewhere.

use super::{Found, Memory, add_found};
use crate::pages::{Bits, CHUNK_BYTES, is_set, page_index, set};
use twinpage_os::remote::Process;
use twinpage_os::tracker::PAGE;

/// The process that made one, and its memory.
pub struct Maker<'a> {
    /// It stands still.
    pub process: &'a Process,
    /// It has been captured at this stop.
    pub memory: &'a mut Memory,
}

/// What both hold in a part of a chunk.
#[derive(Default)]
struct Both {
    own: Vec<u8>,
    makers: Vec<u8>,
}

impl Both {
    /// The pages of a part that are the same; none where one of the two cannot be read.
    fn same(&mut self, part: Found, process: &Process, maker: &Process) -> Bits {
        let bytes = (part.pages * PAGE) as usize;
        let mut same = Bits::default();
        for (side, process) in [(&mut self.own, process), (&mut self.makers, maker)] {
            side.resize(bytes, 0);
            if process.read(part.start, side).is_err() {
                return same;
            }
        }
        let pages = self
            .own
            .chunks_exact(PAGE as usize)
            .zip(self.makers.chunks_exact(PAGE as usize));
        for (at, (own, makers)) in pages.enumerate() {
            set(&mut same, page_index(part.start) + at, own == makers);
        }
        same
    }
}

impl Memory {
    /// Takes the pages that the store has as the maker's out of those that were found.
    pub(super) fn leave_inherited(&mut self, process: &Process, maker: &mut Maker<'_>) {
        let mut both = Both::default();
        let found = std::mem::take(&mut self.found);
        for part in found.into_iter().flat_map(by_chunk) {
            let base = part.start / CHUNK_BYTES * CHUNK_BYTES;
            let theirs = &mut maker.memory.pages;
            let inherited = match theirs.has_any(base) {
                true => theirs.share(&mut self.pages, base, &both.same(part, process, maker.process)),
                false => Bits::default(),
            };
            for address in (0..part.pages).map(|page| part.start + page * PAGE) {
                if !is_set(&inherited, page_index(address)) {
                    add_found(&mut self.found, address, part.hot);
                }
            }
        }
    }
}

/// A run of pages, cut where chunks end.
fn by_chunk(found: Found) -> impl Iterator<Item = Found> {
    let end = found.start + found.pages * PAGE;
    let mut start = found.start;
    std::iter::from_fn(move || {
        let until = end.min((start / CHUNK_BYTES + 1) * CHUNK_BYTES);
        let part = (start < end).then(|| Found {
            start,
            pages: (until - start) / PAGE,
            ..found
        });
        start = until;
        part
    })
}
