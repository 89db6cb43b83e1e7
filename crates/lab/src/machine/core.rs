//! A core: out-of-order at the level that matters.
//!
//! * Instructions enter at the machine's width and leave in order. One that is not done holds back
//!   those more than the reorder buffer behind it.
//! * Loads that miss overlap, as many as there are miss registers; one whose address comes from a load
//!   before it waits for that.
//! * Stores leave through a store buffer; only a full one stalls.
//! * Mispredicted branches, missed fetches and page walks each cost their penalty, and the sum is what they cost: the
//!   first-order model of Karkhanis and Smith (ISCA 2004). Branches and fetches are not in the programs: what they cost
//!   is spread over all instructions.

use super::Shape;
use super::tlb::Tlb;
use crate::controller::Source;
use crate::op::{Kind, Op, PAGE_BYTES, RECENT};
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
    /// For stores and write-backs before a fence, or for room for them.
    Fence,
    /// For a disk.
    Disk,
    /// For a lock, or for the line of an atomic access.
    Lock,
}

/// As many as [`Stall`] has.
pub const STALLS: usize = 8;

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

/// Loads or stores in order of instructions, each found by its number.
#[derive(Debug, Default)]
pub struct Window {
    all: VecDeque<Pending>,
    /// How many have left.
    gone: u64,
    /// How many wait for a request.
    open: usize,
}

impl Window {
    /// Comes in, and gets a number.
    pub fn push(&mut self, pending: Pending) -> u64 {
        self.open += usize::from(pending.request != NO_REQUEST);
        self.all.push_back(pending);
        self.gone + self.all.len() as u64 - 1
    }

    /// The one of this number, which waits for a request, has its data.
    fn complete(&mut self, number: u64, at: u64, source: Source) {
        let pending = &mut self.all[(number - self.gone) as usize];
        pending.request = NO_REQUEST;
        pending.done = at;
        pending.source = source;
        self.open -= 1;
    }

    fn pop(&mut self) {
        self.all.pop_front();
        self.gone += 1;
    }
}

/// A load or store that waits for a request.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    /// Whose.
    pub core: u32,
    /// A store.
    pub write: bool,
    /// Its number in its window.
    pub number: u64,
}

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
    /// Loads that have not left.
    pub loads: Window,
    /// Stores that missed.
    pub stores: Window,
    /// The last loads, for those that follow their pointers, and where the next goes.
    recent: [Pending; RECENT as usize],
    next_recent: usize,
    /// Its TLB, where translation takes time.
    pub tlb: Option<Tlb>,
    /// When its last transaction ended.
    pub committed: u64,
    /// Femtoseconds it stood still, by [`Stall`].
    pub stalls: [u64; STALLS],
}

impl Default for Core {
    fn default() -> Core {
        let none = Pending {
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
            loads: Window::default(),
            stores: Window::default(),
            recent: [none; RECENT as usize],
            next_recent: 0,
            tlb: None,
            committed: 0,
            stalls: [0; STALLS],
        }
    }
}

impl Core {
    /// A core of this shape.
    #[must_use]
    pub fn new(shape: &Shape) -> Core {
        Core {
            tlb: shape.tlb.as_ref().map(Tlb::new),
            ..Core::default()
        }
    }

    /// Stands still until a time.
    pub fn stall(&mut self, until: u64, why: Stall) {
        if until > self.now {
            self.stalls[why as usize] += until - self.now;
            self.now = until;
        }
    }

    /// A request's data is there, for one that waits for it.
    pub fn complete(&mut self, waiter: &Waiter, request: u32, at: u64, source: Source) {
        let window = if waiter.write {
            &mut self.stores
        } else {
            &mut self.loads
        };
        window.complete(waiter.number, at, source);
        for load in self.recent.iter_mut().filter(|load| load.request == request) {
            load.request = NO_REQUEST;
            load.done = at;
            load.source = source;
        }
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
            self.now += count * (shape.instruction_fs + shape.events_fs);
            self.entered = true;
            if let Some(tlb) = &mut self.tlb
                && matches!(op.kind, Kind::Load | Kind::Store)
            {
                let walk_fs = tlb.touch(op.at / PAGE_BYTES);
                self.stall(self.now + walk_fs, Stall::Dram);
            }
        }
        while let Some(&oldest) = self.loads.all.front() {
            if oldest.request == NO_REQUEST && oldest.done <= self.now {
                self.loads.pop();
            } else if oldest.index + shape.reorder > self.index {
                break;
            } else if oldest.request != NO_REQUEST {
                return Err(oldest.request);
            } else {
                self.stall(oldest.done, why(oldest.source));
                self.loads.pop();
            }
        }
        Ok(())
    }

    /// When a load can begin: not before the one whose pointer it follows is done. `Err` names the request to wait for.
    #[inline]
    pub fn begin(&self, op: &Op) -> Result<u64, u32> {
        if op.behind == 0 || op.behind > RECENT {
            return Ok(self.now);
        }
        let place = (self.next_recent + usize::from(RECENT - op.behind)) % usize::from(RECENT);
        let load = &self.recent[place];
        match load.request {
            NO_REQUEST => Ok(self.now.max(load.done)),
            request => Err(request),
        }
    }

    /// A load was done, as far as it is known when.
    #[inline]
    pub fn loaded(&mut self, load: Pending) {
        self.recent[self.next_recent] = load;
        self.next_recent = (self.next_recent + 1) % usize::from(RECENT);
    }

    /// A free place in the store buffer.
    #[inline]
    pub fn store_room(&mut self, shape: &Shape) -> Result<(), u32> {
        self.leave_stores(shape.store_buffer, Stall::Store)
    }

    /// Stores leave until less than `room` are left.
    #[inline]
    pub fn leave_stores(&mut self, room: usize, why: Stall) -> Result<(), u32> {
        while let Some(&oldest) = self.stores.all.front() {
            if oldest.request == NO_REQUEST && oldest.done <= self.now {
                self.stores.pop();
            } else if self.stores.all.len() < room {
                break;
            } else if oldest.request != NO_REQUEST {
                return Err(oldest.request);
            } else {
                self.stall(oldest.done, why);
                self.stores.pop();
            }
        }
        Ok(())
    }

    /// Every load leaves.
    pub fn leave_loads(&mut self, why: Stall) -> Result<(), u32> {
        while let Some(&oldest) = self.loads.all.front() {
            if oldest.request != NO_REQUEST {
                return Err(oldest.request);
            }
            self.stall(oldest.done, why);
            self.loads.pop();
        }
        Ok(())
    }

    /// Lines it waits for.
    #[must_use]
    #[inline]
    pub fn open_misses(&self) -> usize {
        self.loads.open + self.stores.open
    }

    /// A free miss register.
    #[inline]
    pub fn miss_room(&self, shape: &Shape) -> Result<(), u32> {
        if self.open_misses() < shape.misses {
            return Ok(());
        }
        let mut all = self.loads.all.iter().chain(&self.stores.all);
        let open = all.find(|pending| pending.request != NO_REQUEST);
        Err(open.expect("as many as there are registers").request)
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
