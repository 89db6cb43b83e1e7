//! Where changed lines come from.

use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::geometry::{Geometry, LINES_PER_PAGE, LineMask, Lines, PageId, Span};
use crate::scheme::Epoch;
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
    /// The commit this capture is for. Set by the engine; an epoch that was lost gives its number
    /// to the next one.
    pub epoch: Epoch,
    /// What changed, or may have.
    pub pieces: Vec<Piece>,
    /// The content of the pieces, back to back.
    pub bytes: Buffer,
    /// Pages that hold nothing any more. A piece of the same capture wins over a discard.
    pub discarded: Vec<Range<PageId>>,
    /// What to keep with the checkpoint.
    pub context: Vec<u8>,
    /// More of what changed, to be read while the writers go on already.
    pub later: Option<Box<dyn Later>>,
}

/// The part of a capture that is read after the stop: a source that keeps writers from overwriting
/// what is not captured yet need not copy it while they wait. The engine asks on its background
/// thread, before the commit.
pub trait Later: Send + std::fmt::Debug {
    /// Fills `into`, which is empty, with the next pieces and their content, as of the stop. False
    /// when there are no more.
    fn more(&mut self, into: &mut Capture) -> bool;
}

impl Capture {
    /// Empties the capture and keeps its memory.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.bytes.clear();
        self.discarded.clear();
        self.context.clear();
        self.later = None;
    }

    /// Adds a piece and its content.
    pub fn push(&mut self, piece: Piece, bytes: &[u8]) {
        self.pieces.push(piece);
        self.bytes.extend_from_slice(bytes);
    }

    /// The pieces with their content, in order.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the pieces leave their page or need more bytes than there are.
    pub fn spans(&self, geometry: Geometry) -> impl Iterator<Item = Result<(Piece, Span<'_>)>> {
        let mut at = 0;
        self.pieces.iter().map(move |&piece| {
            let first = usize::from(piece.first);
            let end = at + usize::from(piece.lines) * geometry.line_bytes();
            piece.is_inside(end, self.bytes.len())?;
            let bytes = &self.bytes[at..end];
            at = end;
            Ok((
                piece,
                Span {
                    page: piece.page,
                    first,
                    bytes,
                },
            ))
        })
    }

    /// The pieces again, those of one page together that follow one another there and are not compared.
    ///
    /// # Errors
    /// As [`Capture::spans`].
    pub fn pages(&self, geometry: Geometry) -> impl Iterator<Item = Result<(&[Piece], Lines<'_>)>> {
        let line_bytes = geometry.line_bytes();
        let together = |a: &Piece, b: &Piece| {
            a.page == b.page
                && !a.compare
                && !b.compare
                && u16::from(a.first) + u16::from(a.lines) <= b.first.into()
        };
        let mut at = 0;
        self.pieces.chunk_by(together).map(move |pieces| {
            let start = at;
            let mut mask = LineMask::NONE;
            for piece in pieces {
                at += usize::from(piece.lines) * line_bytes;
                piece.is_inside(at, self.bytes.len())?;
                mask = mask | piece.mask();
            }
            let bytes = &self.bytes[start..at];
            Ok((
                pieces,
                Lines {
                    mask,
                    line_bytes,
                    bytes,
                },
            ))
        })
    }
}

impl Piece {
    /// Whether it lies in its page, and its content, which ends at byte `end`, in `captured` bytes.
    fn is_inside(&self, end: usize, captured: usize) -> Result<()> {
        let (first, lines) = (usize::from(self.first), usize::from(self.lines));
        if first + lines > LINES_PER_PAGE || end > captured {
            return Err(Error::Invalid(format!(
                "a captured piece of {lines} lines from line {first} of page {}, up to byte {end} of {captured} captured bytes",
                self.page.0,
            )));
        }
        Ok(())
    }

    /// A whole page.
    #[must_use]
    pub fn whole(page: PageId, compare: bool) -> Piece {
        Piece {
            page,
            first: 0,
            lines: LINES_PER_PAGE as u8,
            compare,
        }
    }

    /// The lines of the piece.
    #[must_use]
    pub fn mask(self) -> LineMask {
        LineMask::run(usize::from(self.first), usize::from(self.lines))
    }
}

/// A memory that changes under a running program.
pub trait Source {
    /// The source's own errors (a tracer's, say).
    type Error;

    /// Stops every writer, captures what changed since the last stop, lets them go on. `into` is
    /// empty but for the number of its epoch. What can be read after the stop goes to
    /// [`Capture::later`].
    ///
    /// # Errors
    /// The source's own; the capture is then not used, and the source owes it to the next one.
    fn capture(&mut self, into: &mut Capture) -> Result<(), Self::Error>;

    /// A captured piece turned out to hold `changed` lines that differ (0: the look was in vain).
    /// A source that leaves hot pages writable learns from it.
    fn learn(&mut self, piece: Piece, changed: u32) {
        let _ = (piece, changed);
    }

    /// The epoch of this capture failed: its pieces and discards, and what it left for later, must
    /// be in the next one.
    fn owe(&mut self, lost: &Capture);
}
