//! Failure-atomic sections (SSP): a change is all or nothing after any crash, and durable when its call returns.
//!
//! ```text
//! turn:    | section 1 | section 2 |  readers  | section 3 |
//! commits:             | group: 1  | group: 2            | group: 3
//! ```
//!
//! * The sections of a region take turns, and readers share: what runs has the state between two sections.
//! * A section's changed lines are taken while it has the turn (`queue.rs`); they become durable after it, in order, and
//!   threads that wait share a commit (`commit.rs`).
//! * A section that fails leaves memory as it was (`undo.rs`), before anyone else has the turn.
//! * Locks are taken in this order: the turn, or the right to commit; then the open group, the group on its way, the
//!   store. A thread that has the turn never asks for the right to commit.

mod commit;
mod deadline;
mod lent;
mod queue;
mod scopes;
mod turn;
mod undo;

use crate::address::Place;
use crate::epochs::{Checkpoints, Progress};
use crate::error::{Error, Result};
use crate::marks;
use crate::statistics::Counters;
use crate::store::{Shared, Store};
use crate::superblock::Superblock;
use commit::Committer;
pub(crate) use deadline::Behind;
use lent::Lent;
use queue::Queue;
use scopes::Scopes;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, RwLock};
pub(crate) use turn::is_reading;
use twinpage_core::Idle;

/// What a region of sections has besides its checkpoints.
pub(crate) struct Sections {
    turn: RwLock<()>,
    queue: Arc<Queue>,
    /// The scopes of the section that has the turn, one inside the other.
    scopes: Scopes,
    /// What it was handed out to be changed.
    lent: Lent,
    /// That section will be undone.
    doomed: AtomicBool,
    place: Place,
    progress: Arc<Progress>,
    store: Box<dyn Store>,
}

impl Sections {
    /// Sections of a region whose store is as it is in memory, and what makes them durable.
    pub(crate) fn begin<S: Idle + Send + 'static>(
        scheme: Shared<S>,
        place: Place,
        progress: &Arc<Progress>,
        counters: &Arc<Counters>,
    ) -> (Sections, Box<dyn Checkpoints>) {
        let queue = Arc::new(Queue::new(scheme.lock().geometry()));
        let store = Box::new(scheme.clone());
        let (_, last) = progress.last();
        let superblock =
            last.unwrap_or_else(|| Superblock::now(place.base().addr(), place.bytes(), place.bound()));
        marks::start_listing(place);
        let committer = Committer {
            scheme,
            queue: queue.clone(),
            progress: progress.clone(),
            counters: counters.clone(),
            place,
            superblock,
            context: superblock.encode(),
        };
        let sections = Sections {
            turn: RwLock::new(()),
            queue,
            scopes: Scopes::default(),
            lent: Lent::default(),
            doomed: AtomicBool::new(false),
            place,
            progress: progress.clone(),
            store,
        };
        (sections, Box::new(committer))
    }

    /// Undoes the groups that found no room, if there are any. Not while this thread has the turn or a share.
    pub(crate) fn undo_any_lost(&self) {
        if self.queue.is_lost() {
            // An error poisons the store.
            drop(self.take_turn());
        }
    }

    /// With the turn: undoes the groups that found no room.
    #[cold]
    fn undo_lost(&self) -> Result<()> {
        let progress = &self.progress;
        progress.check_poison()?;
        let why = self.queue.why_lost().unwrap_or_default();
        let undone = undo::undo_groups(self.place, &*self.store, &self.queue);
        undone.map_err(|error| poison(progress, error))?;
        progress.sections_undone(&why);
        self.queue.forget();
        Ok(())
    }
}

/// Memory could not be put back: nothing later may become durable.
fn poison(progress: &Progress, error: Error) -> Error {
    progress.set_poison(match error {
        Error::Store(error) => error,
        other => twinpage_core::Error::Invalid(other.to_string()),
    })
}
