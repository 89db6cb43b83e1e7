//! A scheme shared by those who need it at the same time: the engine's thread that writes and
//! commits, and whoever reads pages.
//!
//! A call holds the lock for as long as it takes and no longer, so a reader gets in between the
//! parts of an epoch.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use twinpage_core::scheme::{Damage, Epoch, Info, Recovered, Room, Traffic, Wishes};
use twinpage_core::{Capture, Geometry, LineMask, PageId, Result, Scheme, Span};

/// A scheme behind a lock.
#[derive(Debug)]
pub(crate) struct Shared<S>(Arc<Mutex<S>>);

impl<S> Shared<S> {
    pub(crate) fn new(scheme: S) -> Shared<S> {
        Shared(Arc::new(Mutex::new(scheme)))
    }

    fn lock(&self) -> MutexGuard<'_, S> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Shared<S> {
        Shared(self.0.clone())
    }
}

/// What is asked of a store besides by the engine.
pub(crate) trait Store: Send + Sync {
    /// Whole lines of the newest version, `at` bytes from the region's base.
    fn read_bytes(&self, at: usize, into: &mut [u8]) -> Result<()>;
    /// Whether there is anything in the page that holds byte `at`.
    fn has_bytes(&self, at: usize) -> bool;
    /// As [`Scheme::info`].
    fn info(&self) -> Info;
}

impl<S: Scheme + Send> Store for Shared<S> {
    fn read_bytes(&self, at: usize, into: &mut [u8]) -> Result<()> {
        let scheme = self.lock();
        let (page, line) = (scheme.geometry().page_bytes(), scheme.geometry().line_bytes());
        let mut done = 0;
        while done < into.len() {
            let inside = (at + done) % page;
            let end = into.len().min(done + page - inside);
            let id = PageId(((at + done) / page) as u64);
            scheme.read(id, inside / line, &mut into[done..end])?;
            done = end;
        }
        Ok(())
    }
    fn has_bytes(&self, at: usize) -> bool {
        let scheme = self.lock();
        scheme.is_present(PageId((at / scheme.geometry().page_bytes()) as u64))
    }
    fn info(&self) -> Info {
        self.lock().info()
    }
}

impl<S: Scheme> Scheme for Shared<S> {
    type Medium = S::Medium;

    fn recover(medium: S::Medium) -> Result<(Self, Recovered)> {
        let (scheme, found) = S::recover(medium)?;
        Ok((Shared::new(scheme), found))
    }
    fn geometry(&self) -> Geometry {
        self.lock().geometry()
    }
    fn read(&self, page: PageId, first: usize, into: &mut [u8]) -> Result<()> {
        self.lock().read(page, first, into)
    }
    fn is_present(&self, page: PageId) -> bool {
        self.lock().is_present(page)
    }
    fn diff(&self, span: Span<'_>) -> Result<LineMask> {
        self.lock().diff(span)
    }
    fn write(&mut self, span: Span<'_>, lines: LineMask) -> Result<Room> {
        self.lock().write(span, lines)
    }
    fn write_capture(&mut self, capture: &Capture, changed: &mut dyn FnMut(LineMask)) -> Result<Room> {
        self.lock().write_capture(capture, changed)
    }
    fn wishes(&mut self) -> Result<Wishes> {
        self.lock().wishes()
    }
    fn expect(&mut self, page: PageId) -> Result<Room> {
        self.lock().expect(page)
    }
    fn discard(&mut self, pages: Range<PageId>) -> Result<()> {
        self.lock().discard(pages)
    }
    fn commit(&mut self, context: &[u8]) -> Result<Epoch> {
        self.lock().commit(context)
    }
    fn begin(&mut self, context: &[u8]) -> Result<Epoch> {
        self.lock().begin(context)
    }
    fn proceed(&mut self, lines: u64) -> Result<bool> {
        self.lock().proceed(lines)
    }
    fn abandon(&mut self) {
        self.lock().abandon();
    }
    fn epoch(&self) -> Epoch {
        self.lock().epoch()
    }
    fn traffic(&self) -> Traffic {
        self.lock().traffic()
    }
    fn consolidate(&mut self, pages: u64) -> Result<u64> {
        self.lock().consolidate(pages)
    }
    fn info(&self) -> Info {
        self.lock().info()
    }
    fn check(&self) -> Result<Vec<Damage>> {
        self.lock().check()
    }
}
