//! Pages of the last checkpoint move to the next level, or back: a commit that changes where they lie, and nothing else.

use crate::next_level::NextLevel;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;
use twinpage_core::{Capture, Later, LineMask, Outcome, PageId, Piece, Source};

/// Pages that move, and what the last commit has beside them.
pub(super) struct Moving {
    pub(super) next: Arc<NextLevel>,
    /// Pages that the store gives up: the level has them.
    pub(super) out: Vec<Range<PageId>>,
    /// Pages that it gets back.
    pub(super) back: Vec<PageId>,
    pub(super) context: Vec<u8>,
}

impl Source for Moving {
    type Error = Infallible;

    fn capture(&mut self, into: &mut Capture) -> Result<(), Infallible> {
        into.discarded.append(&mut self.out);
        into.context.extend_from_slice(&self.context);
        into.later = Some(Box::new(Coming {
            next: self.next.clone(),
            pages: std::mem::take(&mut self.back).into_iter(),
        }));
        Ok(())
    }

    fn settled(&mut self, _: &mut Capture, outcome: Outcome<'_>) {
        settle(&self.next, outcome);
    }
}

/// What became of the commit, told to the level.
pub(super) fn settle(next: &NextLevel, outcome: Outcome<'_>) {
    match outcome {
        Outcome::Durable { .. } => next.landed(),
        Outcome::Lost(_) | Outcome::Poisoned(_) => next.lost(),
    }
}

/// Pages on their way back, one after the other.
#[derive(Debug)]
struct Coming {
    next: Arc<NextLevel>,
    pages: std::vec::IntoIter<PageId>,
}

impl Later for Coming {
    fn more(&mut self, into: &mut Capture) -> bool {
        while into.bytes.len() < super::PART_BYTES
            && let Some(page) = self.pages.next()
        {
            whole_again(&self.next, page, into);
        }
        !into.pieces.is_empty()
    }
}

/// A page that is in the level goes to the store as it is there, before what was written of it.
pub(super) fn whole_again(next: &NextLevel, page: PageId, into: &mut Capture) {
    if let Some(content) = next.take_back(page) {
        let held = LineMask::ALL;
        let whole = Piece {
            page,
            held,
            compare: false,
        };
        into.push(whole, &content);
    }
}

/// Pages in order, those that follow one another together.
pub(super) fn runs(pages: &[PageId]) -> Vec<Range<PageId>> {
    let mut runs: Vec<Range<PageId>> = Vec::new();
    for &page in pages {
        let end = PageId(page.0 + 1);
        match runs.last_mut() {
            Some(last) if last.end == page => last.end = end,
            _ => runs.push(page..end),
        }
    }
    runs
}
