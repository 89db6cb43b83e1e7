//! A medium that counts its writes by cause.

use crate::error::{Error, Result};
use crate::geometry::{LineMask, PageLines};
use crate::medium::{Cause, Flush, Medium, Offset, Path};
use crate::scheme::Traffic;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

// A cause is its place among all of them.
const _: () = {
    let mut at = 0;
    while at < Cause::ALL.len() {
        assert!(Cause::ALL[at] as usize == at);
        at += 1;
    }
};

/// A medium and the bytes written to it since it was opened, by the cause that was last named.
#[derive(Debug)]
pub struct Metered<M> {
    medium: M,
    /// The last cause, by its number in [`Cause::ALL`].
    cause: AtomicUsize,
    /// Whether the path is [`Path::Background`].
    in_background: AtomicBool,
    /// By cause.
    bytes: [u64; Cause::ALL.len()],
}

impl<M: Medium> Metered<M> {
    /// Nothing is counted yet.
    pub fn new(medium: M) -> Metered<M> {
        Metered {
            medium,
            cause: AtomicUsize::new(Cause::Journal as usize),
            in_background: AtomicBool::new(false),
            bytes: [0; Cause::ALL.len()],
        }
    }

    /// The medium itself.
    pub fn inner(&self) -> &M {
        &self.medium
    }

    /// The medium itself, no longer counted.
    pub fn into_inner(self) -> M {
        self.medium
    }

    /// Bytes written so far.
    pub fn traffic(&self) -> Traffic {
        zerocopy::transmute!(self.bytes)
    }

    /// The cause that was last named.
    #[must_use]
    pub fn cause(&self) -> Cause {
        Cause::ALL[self.cause.load(Relaxed)]
    }

    fn path(&self) -> Path {
        match self.in_background.load(Relaxed) {
            true => Path::Background,
            false => Path::Critical,
        }
    }

    fn count(&mut self, bytes: usize) {
        self.bytes[*self.cause.get_mut()] += bytes as u64;
    }

    /// What follows is for `cause`.
    #[inline]
    pub fn on(&self, cause: Cause) {
        self.cause.store(cause as usize, Relaxed);
        self.medium.hint(cause, self.path());
    }

    /// Sets the waiter of the accesses that follow. Returns the one before.
    #[inline]
    pub fn waits(&self, path: Path) -> Path {
        let before = self.path();
        self.hint(self.cause(), path);
        before
    }
}

impl<M: Medium> Medium for Metered<M> {
    fn hint(&self, cause: Cause, path: Path) {
        self.cause.store(cause as usize, Relaxed);
        self.in_background.store(path == Path::Background, Relaxed);
        self.medium.hint(cause, path);
    }

    fn accessed(&self, bytes: usize) {
        self.medium.accessed(bytes);
    }

    fn len(&self) -> u64 {
        self.medium.len()
    }

    fn grow(&mut self, len: u64) -> Result<()> {
        self.medium.grow(len)
    }

    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        self.medium.read(at, into)
    }

    #[inline]
    fn view(&self, at: Offset, len: usize) -> Option<&[u8]> {
        self.medium.view(at, len)
    }

    #[inline]
    fn write(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        self.medium.write(at, bytes)?;
        self.count(bytes.len());
        Ok(())
    }

    #[inline]
    fn write_lines(&mut self, page_at: Offset, chosen: LineMask, from: &PageLines<'_>) -> Result<()> {
        self.medium.write_lines(page_at, chosen, from)?;
        self.count(chosen.count() * from.line_bytes);
        Ok(())
    }

    fn discard(&mut self, range: Range<Offset>) -> Result<()> {
        self.medium.discard(range)
    }

    fn hand_over(&mut self) -> Result<()> {
        self.medium.hand_over()
    }

    /// A failure is for good, even one for want of room: the content of the medium is not known any more.
    fn fence(&mut self) -> Result<()> {
        self.medium.fence().map_err(Error::poisoned)
    }

    /// As for [`Metered::fence`].
    fn begin_fence(&mut self) -> Result<Option<Arc<dyn Flush>>> {
        self.medium.begin_fence().map_err(Error::poisoned)
    }

    fn end_fence(&mut self, flushed: io::Result<()>) -> Result<()> {
        self.medium.end_fence(flushed).map_err(Error::poisoned)
    }

    fn atom(&self) -> usize {
        self.medium.atom()
    }
}
