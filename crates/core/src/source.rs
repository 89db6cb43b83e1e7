//! Where changed lines come from.

use crate::geometry::PageId;
use std::ops::Range;

/// Consecutive lines of one page that a source captured: `lines` lines from line `first`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The page.
    pub page: PageId,
    /// The first line.
    pub first: u8,
    /// How many lines.
    pub lines: u8,
    /// Compare with the checkpoint and keep only what differs. False where the source knows every
    /// line changed, or where comparing costs more than writing.
    pub compare: bool,
}

/// What one stop captured. `bytes` holds the pieces back to back, in order.
///
/// A capture is a buffer: the engine keeps a few and hands them round, so that a stop never waits
/// for memory.
#[derive(Default, Debug)]
pub struct Capture {
    /// What changed, or may have.
    pub pieces: Vec<Piece>,
    /// The content of the pieces, back to back.
    pub bytes: Vec<u8>,
    /// Pages that hold nothing any more. A piece of the same capture wins over a discard.
    pub discarded: Vec<Range<PageId>>,
    /// What to keep with the checkpoint.
    pub context: Vec<u8>,
}

impl Capture {
    /// Empties the capture and keeps its memory.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.bytes.clear();
        self.discarded.clear();
        self.context.clear();
    }
}

/// A memory that changes under a running program.
pub trait Source {
    /// The source's own errors (a tracer's, say).
    type Error;

    /// Stops every writer, captures what changed since the last stop, lets them go on.
    ///
    /// # Errors
    /// The source's own; the capture is then not used.
    fn capture(&mut self, into: &mut Capture) -> Result<(), Self::Error>;

    /// A captured piece turned out to hold `changed` lines that differ (0: the look was in vain).
    /// A source that leaves hot pages writable learns from it.
    fn learn(&mut self, piece: Piece, changed: u32) {
        let _ = (piece, changed);
    }

    /// The epoch of this capture failed: its pieces and discards must be in the next one.
    fn owe(&mut self, lost: &Capture);
}
