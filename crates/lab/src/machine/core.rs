//! A core: out-of-order at the level that matters.
//!
//! * Instructions enter at the machine's width and leave in order. One that is not done holds back
//!   those more than the reorder buffer behind it.
//! * Loads that miss overlap, as many as there are miss registers; one whose address comes from the load
//!   before it waits for that.
//! * Stores leave through a store buffer; only a full one stalls.

use super::Shape;
use crate::controller::Source;
use crate::op::Op;
use std::collections::VecDeque;

/// Why a core stood still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stall {
    /// For data from the DRAM cache (or the caches).
    Dram,
    /// For data of a page that came from NVM.
    Nvm,
    /// For room in the store buffer.
    Store,
    /// For a checkpoint.
    Checkpoint,
    /// For another core, or for the end.
    Idle,
}

/// What a core is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It can go on.
    Ready,
    /// It waits for this request.
    Blocked(u32),
    /// It is at the end of a batch and waits for the checkpoint.
    Parked,
    /// Its program waits for another core's.
    Waiting,
    /// Its program is over.
    Over,
}

/// A load or store whose data has not come, or will come.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// The instruction.
    pub index: u64,
    /// The request, or [`NO_REQUEST`] once `done` is known.
    pub request: u32,
    /// When its data is there.
    pub done: u64,
    /// From where.
    pub source: Source,
}

/// No request: the time is known.
pub const NO_REQUEST: u32 = u32::MAX;

/// One core.
#[derive(Debug)]
pub struct Core {
    /// The time the next instruction enters.
    pub now: u64,
    /// Instructions so far.
    pub index: u64,
    /// What it is doing.
    pub state: State,
    /// The batch, and how far it is.
    pub batch: Vec<Op>,
    /// The next operation of the batch.
    pub next: usize,
    /// The instructions of that operation have entered already.
    pub entered: bool,
    /// Loads, in order of instructions.
    pub loads: VecDeque<Pending>,
    /// Stores that missed.
    pub stores: VecDeque<Pending>,
    /// The last load, for chained ones.
    pub last: Pending,
    /// When its last transaction ended.
    pub committed: u64,
    /// Femtoseconds it stood still, by [`Stall`].
    pub stalls: [u64; 5],
}

impl Default for Core {
    fn default() -> Core {
        let last = Pending {
            index: 0,
            request: NO_REQUEST,
            done: 0,
            source: Source::Dram,
        };
        Core {
            now: 0,
            index: 0,
            state: State::Ready,
            batch: Vec::new(),
            next: 0,
            entered: false,
            loads: VecDeque::new(),
            stores: VecDeque::new(),
            last,
            committed: 0,
            stalls: [0; 5],
        }
    }
}

impl Core {
    /// Stands still until a time.
    pub fn stall(&mut self, until: u64, why: Stall) {
        if until > self.now {
            self.stalls[why as usize] += until - self.now;
            self.now = until;
        }
    }

    /// A request's data is there.
    pub fn complete(&mut self, request: u32, at: u64, source: Source) {
        let known = |pending: &mut Pending| {
            if pending.request == request {
                *pending = Pending {
                    request: NO_REQUEST,
                    done: at,
                    source,
                    ..*pending
                };
            }
        };
        self.loads.iter_mut().for_each(known);
        self.stores.iter_mut().for_each(known);
        known(&mut self.last);
        if self.state == State::Blocked(request) {
            self.state = State::Ready;
        }
    }

    /// Instructions enter: waits for those that hold back the reorder buffer. `Err` names the request
    /// to wait for.
    #[inline]
    pub fn enter(&mut self, op: &Op, shape: &Shape) -> Result<(), u32> {
        if !self.entered {
            let count = op.instructions();
            self.index += count;
            self.now += count * shape.instruction_fs;
            self.entered = true;
        }
        while let Some(&oldest) = self.loads.front() {
            if oldest.request == NO_REQUEST && oldest.done <= self.now {
                self.loads.pop_front();
            } else if oldest.index + shape.reorder > self.index {
                break;
            } else if oldest.request != NO_REQUEST {
                return Err(oldest.request);
            } else {
                self.stall(oldest.done, why(oldest.source));
                self.loads.pop_front();
            }
        }
        Ok(())
    }

    /// A free place in the store buffer.
    #[inline]
    pub fn store_room(&mut self, shape: &Shape) -> Result<(), u32> {
        while let Some(&oldest) = self.stores.front() {
            if oldest.request == NO_REQUEST && oldest.done <= self.now {
                self.stores.pop_front();
            } else if self.stores.len() < shape.store_buffer {
                break;
            } else if oldest.request != NO_REQUEST {
                return Err(oldest.request);
            } else {
                self.stall(oldest.done, Stall::Store);
                self.stores.pop_front();
            }
        }
        Ok(())
    }

    /// A free miss register.
    pub fn miss_room(&mut self, shape: &Shape) -> Result<(), u32> {
        let open = |pending: &&Pending| pending.request != NO_REQUEST;
        let all = || self.loads.iter().chain(&self.stores).filter(open);
        match all().count() < shape.misses {
            true => Ok(()),
            false => Err(all().next().expect("as many as there are registers").request),
        }
    }
}

/// The stall for data from there.
#[must_use]
pub fn why(source: Source) -> Stall {
    match source {
        Source::Dram => Stall::Dram,
        Source::Nvm => Stall::Nvm,
    }
}
