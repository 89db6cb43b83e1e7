//! Where changed lines come from.

use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::geometry::{Geometry, LineMask, PageId, PageLines};
use crate::report::Report;
use crate::scheme::Epoch;
use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;

/// Lines of one page that a source captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The page.
    pub page: PageId,
    /// Its lines.
    pub held: LineMask,
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
    /// The rest of the changes, read while the writers go on already.
    pub later: Option<Box<dyn Later>>,
    /// What else belongs to the epoch, for the source's witness and for [`Source::settled`].
    pub attachment: Option<Box<dyn Any + Send>>,
}

/// The part of a capture that is read after the stop: a source that keeps writers from overwriting
/// what is not captured yet need not copy it while they wait. The engine asks on its background
/// thread, before the commit. It stays in the capture until the epoch is settled.
pub trait Later: Any + Send + Debug {
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
        self.attachment = None;
    }

    /// Adds a piece and its content.
    pub fn push(&mut self, piece: Piece, bytes: &[u8]) {
        self.pieces.push(piece);
        self.bytes.extend_from_slice(bytes);
    }

    /// The pieces with their content, in order, as lines that changed.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the pieces need more bytes than there are.
    pub fn lines(&self, geometry: Geometry) -> impl Iterator<Item = Result<(Piece, PageLines<'_>)>> {
        let line_bytes = geometry.line_bytes();
        let mut at = 0;
        self.pieces.iter().map(move |&piece| {
            let Piece { page, held, .. } = piece;
            let end = at + held.count() * line_bytes;
            let Some(bytes) = self.bytes.get(at..end) else {
                return Err(Error::Invalid(format!(
                    "{} captured lines of page {} end at byte {end} of {} captured bytes",
                    held.count(),
                    page.0,
                    self.bytes.len()
                )));
            };
            at = end;
            let lines = PageLines {
                page,
                held,
                changed: held,
                line_bytes,
                bytes,
            };
            Ok((piece, lines))
        })
    }
}

impl Piece {
    /// A whole page.
    #[must_use]
    pub fn whole(page: PageId, compare: bool) -> Piece {
        Piece {
            page,
            held: LineMask::ALL,
            compare,
        }
    }
}

/// How an epoch ended.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// It is durable.
    Durable {
        /// Its cost.
        report: &'a Report,
        /// How many lines of each piece had changed (0: the comparison was in vain).
        changed: &'a [u8],
    },
    /// It found no room: its pieces and discards, and what it left for later, must be in the next one.
    Lost(&'a Error),
    /// The store is poisoned, and no later epoch will be durable.
    Poisoned(&'a Error),
}

/// A memory that changes under a running program.
pub trait Source {
    /// The source's own errors (a tracer's, say).
    type Error;

    /// Stops every writer, captures what changed since the last stop, lets them go on. `into` is
    /// empty but for the number of its epoch. What can be read after the stop goes to
    /// [`Capture::later`], what else belongs to the epoch to [`Capture::attachment`].
    ///
    /// # Errors
    /// The source's own; the capture is then not used, and the source owes it to the next one.
    fn capture(&mut self, into: &mut Capture) -> Result<(), Self::Error>;

    /// The epoch of this capture has ended. Called once for each capture that succeeded, before the next.
    fn settled(&mut self, capture: &mut Capture, outcome: Outcome<'_>);
}
