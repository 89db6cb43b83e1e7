//! The queues of a channel, and the order of service: first ready, first come (FR-FCFS).
//!
//! * Of the commands that can go at the earliest cycle, column commands go first, then demand before
//!   background, then the older request's.
//! * In a bank, requests for the open row go before older ones for another, but not more than the hit
//!   streak in turn.
//! * Writes wait until there are many (or no reads), then go together: the bus turns round rarely.
//! * A row that was opened for a demand request is not closed before that request had its turn, and its turn
//!   comes whichever kind goes: what the bus turns round for is less than what opening it again would cost.
//! * Background writes (checkpoints, reclaim) use banks that no read waits for. They never hold back
//!   a demand write, nor make writes go first. A bank has one kind in view at a time: two would close
//!   each other's rows for ever.
//! * A read of many row buffers (a page) is one request: once its turn comes it is read through.
//! * Requests that find the queue full wait in front of it, in order, demand first.
//! * A request is not seen before it comes. So a channel need not be driven cycle by cycle: it works when
//!   something could be done, or its caller wants to know ([`Channel::bound`]).
//! * One request alone is served without the queues, by the same rules (`serve_alone`).
//! * Commands that belong together are decided together. A row is closed and the next opened in one go; where
//!   no other request's data could come before, the request is served through; a run of lines goes whole (of
//!   writes that keep the bank busy, four lines). What comes meanwhile waits for data decided on, not
//!   for more.

use super::arrivals::ArrivalQueue;
use super::bank::{Banks, Command, Run};
use super::choice::Choice;
use super::queue::Queue;
use super::request::{Class, Done, Kind, NO_SWEEP, Request, UNTOLD};
use super::spec::Device;
use super::timing::Timing;
use crate::slab::Slab;

/// So many lines are written in turn where each keeps the bank busy.
const PULSES: u16 = 4;

/// One channel.
#[derive(Clone, Debug)]
pub struct Channel {
    pub(super) banks: Banks,
    pub(super) timing: Timing,
    /// From a column command to the end of its request, by kind, and the least of them.
    pub(super) latencies: [u64; 2],
    pub(super) latency: u64,
    pub(super) queues: [Queue; 2],
    /// Requests that have not come yet.
    pub(super) coming: ArrivalQueue,
    pub(super) drain: [usize; 2],
    pub(super) hit_streak: u32,
    pub(super) streaks: Vec<u32>,
    pub(super) writing: bool,
    /// By kind, banks whose row was opened for a demand request that has not had its turn.
    pub(super) owed: [u64; 2],
    /// When anything last changed.
    pub(super) now: u64,
    pub(super) order: u64,
    pub(super) chosen: Choice,
    /// Nothing not known yet is done before this cycle.
    pub(super) bound: u64,
    pub(super) done: Vec<Done>,
    pub(super) sweeps: Slab<Vec<Run>>,
}

impl Channel {
    /// An idle channel of the device.
    #[must_use]
    pub fn new(device: &Device) -> Channel {
        let (ranks, per_rank) = (device.ranks as usize, device.banks as usize);
        let banks = ranks * per_rank;
        let (queue, timing) = (&device.queue, device.timing);
        Channel {
            banks: Banks::new(timing, ranks, per_rank),
            timing,
            latencies: [timing.read_latency(), timing.write_latency()],
            latency: timing.read_latency().min(timing.write_latency()),
            queues: [
                Queue::new(Kind::Read, queue.reads, banks),
                Queue::new(Kind::Write, queue.writes, banks),
            ],
            coming: ArrivalQueue::default(),
            drain: [queue.drain_from, queue.drain_to],
            hit_streak: queue.hit_streak,
            streaks: vec![0; banks],
            writing: false,
            owed: [0; 2],
            now: 0,
            order: 0,
            chosen: Choice::NONE,
            bound: u64::MAX,
            done: Vec::new(),
            sweeps: Slab::default(),
        }
    }

    /// The banks.
    #[must_use]
    pub fn banks(&self) -> &Banks {
        &self.banks
    }

    /// The cycle up to which it has worked.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Whether a request of the kind would enter the queue at once.
    #[must_use]
    pub fn has_room(&self, kind: Kind) -> bool {
        let queue = &self.queues[kind as usize];
        let coming = self.coming.iter().filter(|request| request.kind == kind);
        queue.count + coming.count() < queue.room
    }

    /// Requests that wait, in the queues and in front of them.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.coming.len() + self.queues[0].waiting() + self.queues[1].waiting()
    }

    /// Takes a request. It must not have come before [`Channel::now`].
    pub fn push(&mut self, request: Request) {
        debug_assert!(request.arrival >= self.now, "a request of the past");
        let soonest = match self.coming.is_empty() && self.is_idle() {
            true => self.done_alone(&request),
            false => request.arrival + self.latency,
        };
        self.bound = self.bound.min(soonest);
        self.coming.push(request);
    }

    /// Takes a read of all the runs that `collect` gives, which is done when the last is. False if there
    /// are none.
    pub fn push_sweep(
        &mut self,
        id: u64,
        class: Class,
        arrival: u64,
        collect: impl FnOnce(&mut Vec<Run>),
    ) -> bool {
        let sweep = self.sweeps.take();
        let runs = &mut self.sweeps[sweep];
        runs.clear();
        collect(runs);
        let Some(&first) = runs.first() else {
            self.sweeps.give_back(sweep);
            return false;
        };
        let mut request = Request::new(id, Kind::Read, class, first, arrival);
        if runs.len() == 1 {
            self.sweeps.give_back(sweep);
        } else {
            request.sweep = sweep;
        }
        self.push(request);
        true
    }

    /// Works up to `cycle`, and returns what became known to be done, in the order it was issued.
    pub fn run_until(&mut self, cycle: u64) -> std::vec::Drain<'_, Done> {
        while self.step(cycle) {}
        self.now = self.now.max(cycle);
        self.choose();
        let coming = self.coming.first();
        self.bound = coming.saturating_add(self.latency).min(self.chosen.bound);
        self.done.drain(..)
    }

    /// The first cycle at which something can happen; `u64::MAX` when nothing waits.
    pub fn next_cycle(&mut self) -> u64 {
        let coming = self.coming.first();
        self.choose();
        coming.min(self.chosen.cycle())
    }

    /// Nothing not known yet is done before this cycle; `u64::MAX` when nothing waits.
    #[must_use]
    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// Whether the queues are empty.
    fn is_idle(&self) -> bool {
        self.queues[0].count + self.queues[1].count == 0
    }

    /// Lets requests come, or issues a command, if it can go by `limit`.
    #[inline]
    fn step(&mut self, limit: u64) -> bool {
        let coming = self.coming.first();
        if self.is_idle() {
            if coming > limit || coming == u64::MAX {
                return false;
            }
            if self.banks.refresh_due() <= coming {
                self.banks.refresh(coming);
            }
            let second = self.coming.second();
            if second > coming
                && let Some(request) = self.coming.pop_if(|_| true)
            {
                self.serve_alone(request, limit.min(second - 1));
                return true;
            }
        }
        self.choose();
        let cycle = self.chosen.cycle();
        let refresh = self.banks.refresh_due();
        if refresh <= cycle.min(coming) {
            if refresh > limit {
                return false;
            }
            self.now = self.now.max(refresh);
            self.banks.refresh(refresh);
            self.streaks.fill(0);
            self.owed = [0; 2];
            self.changed(u64::MAX);
            self.chosen.is_current = false;
            return true;
        }
        if coming <= cycle {
            if coming > limit || coming == u64::MAX {
                return false;
            }
            self.come(coming);
            return true;
        }
        if cycle > limit {
            return false;
        }
        self.chosen.is_current = false;
        self.issue(cycle, self.chosen.kind, usize::from(self.chosen.bank));
        true
    }

    /// The next requests come, as far as they are of one kind and time.
    fn come(&mut self, now: u64) {
        self.now = now;
        let Some(request) = self.coming.pop_if(|_| true) else {
            return;
        };
        let kind = request.kind;
        if self.coming.first() > now && self.queues[kind as usize].is_open(request.class) {
            self.come_alone(request);
            return;
        }
        self.queues[kind as usize].come(request);
        let same = |next: &Request| next.arrival == now && next.kind == kind;
        while let Some(request) = self.coming.pop_if(same) {
            self.queues[kind as usize].come(request);
        }
        self.admit(kind);
    }

    /// When a request is done at the earliest if no other comes.
    fn done_alone(&self, request: &Request) -> u64 {
        let (bank, column) = (usize::from(request.bank), request.kind.column());
        let command = self.banks.next(bank, request.row, column);
        let cycle = self.banks.earliest(command, bank, request.arrival);
        // A refresh before it may close the row for it.
        let left = match self.banks.refresh_due() <= cycle {
            true => 0,
            false => self.to_column(command),
        };
        cycle + left + self.latencies[request.kind as usize]
    }

    /// The only request there is goes as soon as it can, if that is by `limit`. Otherwise it waits in its
    /// queue, and so does what is left of it.
    fn serve_alone(&mut self, mut request: Request, limit: u64) {
        let (bank, kind) = (usize::from(request.bank), request.kind);
        let column = kind.column();
        self.now = request.arrival;
        self.writing = true;
        let command = self.banks.next(bank, request.row, column);
        let cycle = self.banks.earliest(command, bank, self.now);
        if cycle <= limit && cycle < self.banks.refresh_due() {
            self.now = cycle;
            if request.sweep != NO_SWEEP {
                self.issue_sweep(request.id, request.sweep, cycle);
                return;
            }
            let shared = self.banks.shared()[self.banks.rank(bank) * 4 + column as usize];
            let data = shared.max(cycle + self.to_column(command));
            let lines = self.go(&request, cycle, data < self.banks.refresh_due());
            request.lines -= lines;
        }
        if request.lines > 0 {
            self.queues[kind as usize].come(request);
            self.admit(kind);
        }
    }

    /// The chosen request's turn.
    fn issue(&mut self, cycle: u64, kind: Kind, bank: usize) {
        let queue = &mut self.queues[kind as usize];
        let request = *queue.head(bank);
        self.now = cycle;
        if request.sweep != NO_SWEEP {
            queue.remove(bank);
            self.issue_sweep(request.id, request.sweep, cycle);
            return;
        }
        let through = self.chosen.is_first() && self.chosen.own_column < self.banks.refresh_due();
        let lines = self.go(&request, cycle, through);
        let queue = &mut self.queues[kind as usize];
        if lines < request.lines {
            queue.head(bank).lines -= lines;
        } else {
            queue.remove(bank);
            self.admit(kind);
        }
        self.changed(1 << bank);
    }

    /// The request's next command goes at `cycle`; if it is to go `through`, the others up to its data
    /// follow as early as they can. Says how many lines were served.
    fn go(&mut self, request: &Request, cycle: u64, through: bool) -> u16 {
        let (bank, kind) = (usize::from(request.bank), request.kind);
        let column = kind.column();
        let command = self.banks.next(bank, request.row, column);
        let bit = 1_u64 << bank;
        self.owed = self.owed.map(|banks| banks & !bit);
        if command != column {
            self.streaks[bank] = 0;
            if !through {
                if request.class == Class::Demand {
                    self.owed[kind as usize] |= bit;
                }
                self.bring(command, bank, request.row, cycle);
                return 0;
            }
        }
        self.banks.take_bus(cycle);
        self.banks.open(bank, request.row, cycle);
        let first = self.banks.ready(column, bank, cycle);
        let lines = match kind {
            Kind::Write if self.timing.write_pulse > 0 => request.lines.min(PULSES),
            _ => request.lines,
        };
        self.streaks[bank] += u32::from(lines);
        let last = self.banks.columns(column, bank, first, lines);
        if lines == request.lines {
            self.tell(request.id, last + self.latencies[kind as usize]);
        }
        lines
    }

    /// A row is opened, and the one that is open closed before, unless a refresh comes between.
    fn bring(&mut self, command: Command, bank: usize, row: u64, cycle: u64) {
        if command == Command::Precharge && cycle + self.timing.rp < self.banks.refresh_due() {
            self.banks.take_bus(cycle);
            self.banks.open(bank, row, cycle);
        } else {
            self.banks.issue(command, bank, row, cycle);
        }
    }

    /// All of a read of many row buffers.
    fn issue_sweep(&mut self, id: u64, sweep: u32, cycle: u64) {
        let runs = std::mem::take(&mut self.sweeps[sweep]);
        let last = self.banks.sweep(&runs, cycle);
        self.tell(id, last + self.timing.read_latency());
        self.admit(Kind::Read);
        let mut banks = 0;
        for run in &runs {
            banks |= 1_u64 << run.bank;
            self.streaks[usize::from(run.bank)] = 0;
        }
        self.owed = self.owed.map(|owed| owed & !banks);
        self.changed(banks);
        self.sweeps[sweep] = runs;
        self.sweeps.give_back(sweep);
    }

    fn tell(&mut self, id: u64, at: u64) {
        if id != UNTOLD {
            self.done.push(Done { id, at });
        }
    }

    /// Lets requests into the queue while there is room.
    fn admit(&mut self, kind: Kind) {
        while let Some(request) = self.queues[kind as usize].enter() {
            self.insert(request);
        }
    }

    pub(super) fn insert(&mut self, request: Request) {
        self.chosen.is_current = false;
        self.queues[request.kind as usize].insert(request, self.order);
        self.order += 1;
    }
}
