//! How updates pass from the operation thread to the persistence thread, without a lock.
//!
//! ```text
//! operation thread          state of the batch       persistence thread
//!   begin an update   --->   its own      (taken back, if it was offered)
//!   end an update     --->   offered      (due, when the pace wants it durable)
//!     "         "     --->   in flight    (given, when it is due and the other side has none: Algorithm 1, line 7)
//!                            in flight    <---        takes what is offered and due, or waited for
//!                            empty        <---        done: all of it is durable
//! ```
//!
//! * There are two batches: one collects updates, the other is in flight or empty.
//! * A batch passes on between two updates only, so it never ends in the middle of one.
//! * Giving, taking back and taking are one atomic instruction each, and one of them wins.

#![allow(unsafe_code)]

use crate::sync::{AtomicU8, Ordering};
use std::cell::UnsafeCell;
use std::ops::Range;
use twinpage_core::Offset;

const OFFERED: u8 = 1;
const DUE: u8 = 2;
const BUSY: u8 = 4;

/// Updates that become durable together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// What was stored.
    pub(crate) ranges: Vec<Range<Offset>>,
    /// The number of the last update.
    pub(crate) number: u64,
    /// The durable word that says so.
    pub(crate) word: u64,
}

/// The two batches and whose they are. See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Handover {
    state: AtomicU8,
    batches: [UnsafeCell<Batch>; 2],
}

// SAFETY: a batch is reached by the one side whose it is (see `Collecting` and `InFlight`), and passes from one to
// the other through `state`, acquired and released.
unsafe impl Sync for Handover {}

/// The operation thread's side: there is one.
#[derive(Debug, Default)]
pub(crate) struct Collecting {
    mine: usize,
    offered: bool,
}

/// The persistence thread's side: there is one.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    next: usize,
}

impl Collecting {
    /// An update begins. True when the batch that was offered has been taken: the other one is ours, empty.
    pub(crate) fn begin(&mut self, handover: &Handover) -> bool {
        if !self.offered {
            return false;
        }
        self.offered = false;
        let before = handover.state.fetch_and(!(OFFERED | DUE), Ordering::SeqCst);
        let taken = before & OFFERED == 0;
        self.mine ^= usize::from(taken);
        taken
    }

    /// The batch, between `begin` and `end`.
    pub(crate) fn batch<'a>(&'a mut self, handover: &'a Handover) -> &'a mut Batch {
        assert!(
            !self.offered,
            "the batch is the operation thread's inside an update"
        );
        // SAFETY: `mine` is not offered, so the other side cannot take it; the other side's batch, if it has one,
        // is the other one, as both sides count the taken ones. `&mut self` makes this the only borrow here.
        unsafe { &mut *handover.batches[self.mine].get() }
    }

    /// An update ends: the batch is offered, or given when it is `due` and the other side has none. True when it was
    /// given: the other one is ours, empty.
    pub(crate) fn end(&mut self, handover: &Handover, due: bool) -> bool {
        let state = &handover.state;
        if due {
            let given = state.compare_exchange(0, BUSY, Ordering::SeqCst, Ordering::SeqCst);
            if given.is_ok() {
                self.mine ^= 1;
                return true;
            }
        }
        self.offered = true;
        state.fetch_or(if due { OFFERED | DUE } else { OFFERED }, Ordering::SeqCst);
        false
    }
}

impl InFlight {
    /// Begins with the batch that was given, or is offered and either due or `wanted`; whether there is one.
    pub(crate) fn take(&mut self, handover: &Handover, wanted: bool) -> bool {
        let mut state = handover.state.load(Ordering::SeqCst);
        loop {
            if state & BUSY != 0 {
                return true;
            }
            if state & OFFERED == 0 || state & DUE == 0 && !wanted {
                return false;
            }
            let taken = handover
                .state
                .compare_exchange(state, BUSY, Ordering::SeqCst, Ordering::SeqCst);
            match taken {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
    }

    /// The batch that was taken and is not done.
    pub(crate) fn batch<'a>(&'a mut self, handover: &'a Handover) -> &'a mut Batch {
        assert!(
            handover.state.load(Ordering::Relaxed) & BUSY != 0,
            "a batch that was not taken"
        );
        // SAFETY: taken, so it is this side's until it is done; see `Collecting::batch`.
        unsafe { &mut *handover.batches[self.next].get() }
    }

    /// All of the batch is durable.
    pub(crate) fn done(&mut self, handover: &Handover) {
        self.batch(handover).ranges.clear();
        self.next ^= 1;
        handover.state.fetch_and(!BUSY, Ordering::SeqCst);
    }
}
