//! The queues of a channel, and the order of service: first ready, first come (FR-FCFS).
//!
//! * Of the commands that can go at the earliest cycle, column commands go first, then demand before
//!   background, then the older request's.
//! * In a bank, requests for the open row go before older ones for another, but not more than the hit
//!   streak in turn.
//! * Writes wait until there are many (or no reads), then go together: the bus turns round rarely.
//! * Background writes (checkpoints, reclaim) use banks that no read waits for. They never hold back
//!   a demand write, nor make writes go first. A bank has one kind in view at a time: two would close
//!   each other's rows for ever.
//! * A read of many row buffers (a page) is one request: once its turn comes it is read through.
//! * Requests that find the queue full wait in front of it, in order, demand first.

use super::bank::{Banks, Command, Run};
use super::spec::Device;
use std::collections::VecDeque;

/// Reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A read.
    Read,
    /// A write.
    Write,
}

/// Who waits for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// A core, or something a core waits for.
    Demand,
    /// Nobody.
    Background,
}

/// A run of lines in one row buffer of one bank.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Told back when it is done.
    pub id: u64,
    /// What it is.
    pub kind: Kind,
    /// For whom.
    pub class: Class,
    /// The bank, over all ranks of the channel.
    pub bank: u16,
    /// Lines, one at least.
    pub lines: u16,
    /// The row buffer.
    pub row: u64,
    /// When it came, in cycles.
    pub arrival: u64,
    /// Runs of other row buffers that follow it; see [`Channel::push_sweep`].
    pub(super) sweep: u32,
}

/// Nothing follows.
pub(super) const NO_SWEEP: u32 = u32::MAX;

/// A request whose last command was issued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// The request.
    pub id: u64,
    /// The cycle its last data arrives, or is safe in the cells.
    pub at: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    request: Request,
    order: u64,
}

/// The requests of one kind that wait in the queue.
#[derive(Clone, Debug)]
struct Queue {
    room: usize,
    count: usize,
    demand: usize,
    banks: Vec<VecDeque<Waiting>>,
    /// For each bank, which request is next: its place in the bank's queue.
    next: Vec<usize>,
    /// Banks with requests, and those with demand requests.
    any: u64,
    demand_banks: u64,
    front: [VecDeque<Request>; 2],
    /// How many of each class the bank holds.
    classes: Vec<[u16; 2]>,
}

impl Queue {
    fn new(room: usize, banks: usize) -> Queue {
        Queue {
            room,
            count: 0,
            demand: 0,
            banks: vec![VecDeque::new(); banks],
            next: vec![0; banks],
            any: 0,
            demand_banks: 0,
            front: [VecDeque::new(), VecDeque::new()],
            classes: vec![[0; 2]; banks],
        }
    }

    fn insert(&mut self, request: Request, order: u64) {
        let bank = usize::from(request.bank);
        self.banks[bank].push_back(Waiting { request, order });
        self.count += 1;
        self.any |= 1 << bank;
        self.classes[bank][request.class as usize] += 1;
        if request.class == Class::Demand {
            self.demand += 1;
            self.demand_banks |= 1 << bank;
        }
    }

    fn remove(&mut self, bank: usize, place: usize) {
        let Some(gone) = self.banks[bank].remove(place) else {
            return;
        };
        self.count -= 1;
        self.classes[bank][gone.request.class as usize] -= 1;
        self.demand -= usize::from(gone.request.class == Class::Demand);
        if self.classes[bank][Class::Demand as usize] == 0 {
            self.demand_banks &= !(1 << bank);
        }
        if self.banks[bank].is_empty() {
            self.any &= !(1 << bank);
        }
    }

    /// Chooses the bank's next request: by class, then the open row (unless its streak is over), then age.
    fn choose(&mut self, bank: usize, open: Option<u64>, streak_over: bool) {
        let mut best: Option<(usize, (Class, bool, u64))> = None;
        for (place, waiting) in self.banks[bank].iter().enumerate() {
            let hit = !streak_over && open == Some(waiting.request.row);
            let key = (waiting.request.class, !hit, waiting.order);
            if best.is_none_or(|(_, best)| key < best) {
                best = Some((place, key));
            }
        }
        self.next[bank] = best.map_or(0, |(place, _)| place);
    }
}

/// A bank's next command, as far as the bank alone decides it.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    /// Not before this cycle.
    ready: u64,
    /// Ranks commands of the same cycle: lower goes first. See [`Head::tag`].
    tag: u64,
    /// Which of the shared constraints count: rank and command.
    shared: u16,
}

impl Head {
    /// Column commands first, then demand, then age.
    fn tag(column: bool, class: Class, order: u64) -> u64 {
        u64::from(!column) << 63 | (class as u64) << 62 | order
    }
}

#[derive(Clone, Copy, Debug)]
struct Choice {
    cycle: u64,
    tag: u64,
    kind: Kind,
    bank: u16,
}

/// One channel.
#[derive(Clone, Debug)]
pub struct Channel {
    banks: Banks,
    timing: super::timing::Timing,
    queues: [Queue; 2],
    drain: [usize; 2],
    hit_streak: u32,
    streaks: Vec<u32>,
    heads: [Vec<Head>; 2],
    per_rank: usize,
    writing: bool,
    now: u64,
    /// Nothing can be issued before this cycle, unless something new comes.
    idle_until: u64,
    order: u64,
    /// The command to go next, as long as nothing has changed.
    chosen: Option<Choice>,
    done: Vec<Done>,
    sweeps: Vec<Vec<Run>>,
    free_sweeps: Vec<u32>,
}

impl Channel {
    /// An idle channel of the device.
    #[must_use]
    pub fn new(device: &Device) -> Channel {
        let (ranks, per_rank) = (device.ranks as usize, device.banks as usize);
        let banks = ranks * per_rank;
        let queue = &device.queue;
        Channel {
            banks: Banks::new(device.timing, ranks, per_rank),
            timing: device.timing,
            queues: [Queue::new(queue.reads, banks), Queue::new(queue.writes, banks)],
            drain: [queue.drain_from, queue.drain_to],
            hit_streak: queue.hit_streak,
            streaks: vec![0; banks],
            heads: [vec![Head::default(); banks], vec![Head::default(); banks]],
            per_rank,
            writing: false,
            now: 0,
            idle_until: 0,
            order: 0,
            chosen: None,
            done: Vec::new(),
            sweeps: Vec::new(),
            free_sweeps: Vec::new(),
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
        queue.count < queue.room
    }

    /// Requests that wait, in the queues and in front of them.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let all = |queue: &Queue| queue.count + queue.front[0].len() + queue.front[1].len();
        all(&self.queues[0]) + all(&self.queues[1])
    }

    /// Takes a request. It must not have come before [`Channel::now`].
    pub fn push(&mut self, request: Request) {
        self.changed();
        let kind = request.kind as usize;
        self.queues[kind].front[request.class as usize].push_back(request);
        self.admit(kind);
    }

    /// Takes a read of the request's run and others after it, which are done when the last is.
    pub fn push_sweep(&mut self, mut request: Request, rest: impl Iterator<Item = Run>) {
        let sweep = self.free_sweeps.pop().unwrap_or_else(|| {
            self.sweeps.push(Vec::new());
            self.sweeps.len() as u32 - 1
        });
        let Request { bank, lines, row, .. } = request;
        let runs = &mut self.sweeps[sweep as usize];
        runs.clear();
        runs.push(Run { bank, lines, row });
        runs.extend(rest);
        request.sweep = sweep;
        self.push(request);
    }

    /// Works up to `cycle`, and returns what became known to be done, in the order it was issued.
    pub fn run_until(&mut self, cycle: u64) -> std::vec::Drain<'_, Done> {
        while self.step(cycle) {}
        self.now = self.now.max(cycle);
        self.done.drain(..)
    }

    /// Works until something is known to be done. Empty only when nothing waits.
    pub fn run_until_done(&mut self) -> std::vec::Drain<'_, Done> {
        while self.done.is_empty() && self.step(u64::MAX) {}
        self.done.drain(..)
    }

    /// The first cycle at which something can be issued; `u64::MAX` when nothing waits.
    pub fn next_cycle(&mut self) -> u64 {
        if self.waiting() == 0 {
            return u64::MAX;
        }
        if self.idle_until <= self.now {
            self.idle_until = self
                .choose()
                .map_or(u64::MAX, |choice| choice.cycle.min(self.banks.refresh_due()));
        }
        self.idle_until
    }

    /// Issues one command, if one can go by `limit`.
    fn step(&mut self, limit: u64) -> bool {
        if self.idle_until > limit {
            return false;
        }
        let Some(choice) = self.choose() else {
            self.idle_until = u64::MAX;
            return false;
        };
        if self.banks.refresh_due() <= choice.cycle {
            if self.banks.refresh_due() > limit {
                self.idle_until = self.banks.refresh_due();
                return false;
            }
            self.banks.refresh(choice.cycle);
            self.rechoose_all();
            self.changed();
            return true;
        }
        if choice.cycle > limit {
            self.idle_until = choice.cycle;
            return false;
        }
        self.changed();
        self.issue(choice);
        true
    }

    /// What was chosen may not be the best any more.
    fn changed(&mut self) {
        self.idle_until = 0;
        self.chosen = None;
    }

    /// The command to go next, and when.
    #[inline]
    fn choose(&mut self) -> Option<Choice> {
        if self.chosen.is_none() {
            self.chosen = self.find();
        }
        self.chosen
    }

    fn find(&mut self) -> Option<Choice> {
        let [reads, writes] = &self.queues;
        let full = writes.demand >= self.drain[0];
        let over = writes.demand <= self.drain[1] && reads.count > 0;
        self.writing = (self.writing && !over) || full || reads.count == 0;
        let (reading, mut also) = match self.writing {
            true => (0, writes.any),
            false => (reads.any, writes.any & !writes.demand_banks & !reads.any),
        };
        if self.writing && writes.count == 0 {
            also = 0;
        }
        let mut shared = [0; 64];
        self.banks
            .shared(&mut shared[..4 * self.heads[0].len() / self.per_rank]);
        let mut best = Choice {
            cycle: u64::MAX,
            tag: u64::MAX,
            kind: Kind::Read,
            bank: 0,
        };
        self.look(Kind::Read, reading, &shared, &mut best);
        self.look(Kind::Write, also, &shared, &mut best);
        (best.cycle != u64::MAX).then_some(best)
    }

    #[inline]
    fn look(&self, kind: Kind, mut among: u64, shared: &[u64; 64], best: &mut Choice) {
        let heads = &self.heads[kind as usize];
        while among != 0 {
            let bank = among.trailing_zeros() as usize;
            among &= among - 1;
            let head = &heads[bank];
            let cycle = head
                .ready
                .max(shared[usize::from(head.shared & 63)])
                .max(self.now);
            if cycle < best.cycle || cycle == best.cycle && head.tag < best.tag {
                let tag = head.tag;
                best.cycle = cycle;
                best.tag = tag;
                best.kind = kind;
                best.bank = bank as u16;
            }
        }
    }

    fn issue(&mut self, choice: Choice) {
        let Choice { cycle, kind, .. } = choice;
        let bank = usize::from(choice.bank);
        let column = column(kind);
        let queue = &mut self.queues[kind as usize];
        let place = queue.next[bank];
        let request = &mut queue.banks[bank][place].request;
        self.now = cycle;
        if request.sweep != NO_SWEEP {
            let (id, sweep) = (request.id, request.sweep);
            queue.remove(bank, place);
            self.issue_sweep(id, sweep, cycle);
            return;
        }
        let command = self.banks.next(bank, request.row, column);
        self.banks.issue(command, bank, request.row, cycle);
        if command != column {
            self.streaks[bank] = 0;
            self.rechoose(bank);
            return;
        }
        // The rest of the run follows at once as long as the bus does not wait for the bank.
        let mut last = cycle;
        request.lines -= 1;
        self.streaks[bank] += 1;
        let pace = self.timing.read_to_read();
        while request.lines > 0 && self.banks.earliest(command, bank, last) <= last + pace {
            last = self.banks.earliest(command, bank, last);
            self.banks.issue(command, bank, request.row, last);
            request.lines -= 1;
            self.streaks[bank] += 1;
        }
        if request.lines == 0 {
            let latency = match kind {
                Kind::Read => self.timing.read_latency(),
                Kind::Write => self.timing.write_latency(),
            };
            let id = request.id;
            queue.remove(bank, place);
            self.done.push(Done {
                id,
                at: last + latency,
            });
            self.admit(kind as usize);
        }
        self.rechoose(bank);
    }

    /// All of a read of many row buffers.
    fn issue_sweep(&mut self, id: u64, sweep: u32, cycle: u64) {
        let runs = std::mem::take(&mut self.sweeps[sweep as usize]);
        let last = self.banks.sweep(&runs, cycle);
        self.done.push(Done {
            id,
            at: last + self.timing.read_latency(),
        });
        self.admit(Kind::Read as usize);
        for run in &runs {
            self.streaks[usize::from(run.bank)] = 0;
            self.rechoose(usize::from(run.bank));
        }
        self.sweeps[sweep as usize] = runs;
        self.free_sweeps.push(sweep);
    }

    /// Lets requests into the queue while there is room, demand first. Background writes leave a place.
    fn admit(&mut self, kind: usize) {
        loop {
            let queue = &mut self.queues[kind];
            let spare = if kind == Kind::Write as usize {
                queue.room.div_ceil(4)
            } else {
                0
            };
            let class = match () {
                () if queue.count < queue.room && !queue.front[0].is_empty() => 0,
                () if queue.count + spare < queue.room && !queue.front[1].is_empty() => 1,
                () => return,
            };
            let Some(request) = queue.front[class].pop_front() else {
                return;
            };
            queue.insert(request, self.order);
            self.order += 1;
            let bank = usize::from(request.bank);
            self.rechoose_kind(kind, bank);
        }
    }

    fn rechoose(&mut self, bank: usize) {
        self.rechoose_kind(0, bank);
        self.rechoose_kind(1, bank);
    }

    fn rechoose_kind(&mut self, kind: usize, bank: usize) {
        let queue = &mut self.queues[kind];
        if queue.any >> bank & 1 == 0 {
            return;
        }
        queue.choose(bank, self.banks.row(bank), self.streaks[bank] >= self.hit_streak);
        let Waiting { request, order } = queue.banks[bank][queue.next[bank]];
        let column = column(request.kind);
        let command = self.banks.next(bank, request.row, column);
        self.heads[kind][bank] = Head {
            ready: self.banks.own(command, bank).max(request.arrival),
            tag: Head::tag(command == column, request.class, order),
            shared: (bank / self.per_rank * 4 + command as usize) as u16,
        };
    }

    fn rechoose_all(&mut self) {
        for bank in 0..self.streaks.len() {
            self.streaks[bank] = 0;
            self.rechoose(bank);
        }
    }
}

fn column(kind: Kind) -> Command {
    match kind {
        Kind::Read => Command::Read,
        Kind::Write => Command::Write,
    }
}
