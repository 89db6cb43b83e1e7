//! A scheme with several users at the same time: the engine that writes and commits, and those that
//! read pages.
//!
//! * A call holds the lock for as long as it takes and no longer, so a reader gets in between the parts of an epoch.
//! * A commit lets go of it while it waits for a device. A write that must make room first does not: its flush is a part
//!   of the call, and readers wait for it.
//! * One thread at a time writes, commits and gives back: the one with the right to make checkpoints.

use crate::lock::lock;
use std::sync::{Arc, Mutex, MutexGuard};
use twinpage_core::engine::Lease;
use twinpage_core::scheme::{Damage, Epoch, Info};
use twinpage_core::{Commit, Error, Idle, PageId, Result};

/// A scheme behind a lock.
#[derive(Debug)]
pub(crate) struct Shared<S>(Arc<Mutex<S>>);

impl<S> Shared<S> {
    pub(crate) fn new(scheme: S) -> Shared<S> {
        Shared(Arc::new(Mutex::new(scheme)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, S> {
        lock(&self.0)
    }
}

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Shared<S> {
        Shared(self.0.clone())
    }
}

impl<S: Idle> Shared<S> {
    /// As [`twinpage_core::Scheme::commit`]. The lock is held, but not while a device is waited for.
    pub(crate) fn commit<'a>(
        &'a self,
        mut scheme: MutexGuard<'a, S>,
        context: &[u8],
    ) -> (MutexGuard<'a, S>, Result<Epoch>) {
        match scheme.begin_commit(context) {
            Ok(Commit::Durable(epoch)) => (scheme, Ok(epoch)),
            Ok(Commit::Flushing(flush)) => {
                drop(scheme);
                let flushed = flush.flush();
                scheme = self.lock();
                let ended = scheme.end_commit(flushed);
                (scheme, ended)
            }
            Err(error) => (scheme, Err(error)),
        }
    }
}

impl<S: Idle + Send> Lease for Shared<S> {
    type Scheme = S;

    fn with<R>(&mut self, operation: impl FnOnce(&mut S) -> R) -> R {
        operation(&mut self.lock())
    }

    fn commit(&mut self, context: &[u8]) -> Result<Epoch> {
        Shared::commit(self, self.lock(), context).1
    }
}

/// What is asked of a store besides by the engine.
pub(crate) trait Store: Send + Sync {
    /// Whole lines of the newest version, `at` bytes from the region's base.
    fn read_bytes(&self, at: usize, into: &mut [u8]) -> Result<()>;
    /// Whether there is anything in the page that holds byte `at`.
    fn has_bytes(&self, at: usize) -> bool;
    /// As [`twinpage_core::Scheme::info`].
    fn info(&self) -> Info;
    /// As [`twinpage_core::Scheme::epoch`].
    fn epoch(&self) -> Epoch;
    /// As [`Idle::give_back`], between two epochs; a medium without room for it keeps its checkpoint as it is.
    fn give_back(&self) -> Result<bool>;
    /// As [`twinpage_core::Scheme::check`].
    fn check(&self) -> Result<Vec<Damage>>;
}

impl<S: Idle + Send> Store for Shared<S> {
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
    fn epoch(&self) -> Epoch {
        self.lock().epoch()
    }
    fn give_back(&self) -> Result<bool> {
        let mut scheme = self.lock();
        match scheme.give_back() {
            // Nothing was written since the last commit: there is nothing to lose, and room may come later.
            Err(Error::Full { .. }) => {
                scheme.abandon();
                Ok(false)
            }
            other => other,
        }
    }
    fn check(&self) -> Result<Vec<Damage>> {
        self.lock().check()
    }
}
