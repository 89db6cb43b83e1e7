//! A memory compared with a cycle-by-cycle model of Ramulator 2.1's controller: our own implementation of its
//! scheduling rules and timing constraints.
//!
//! * A command of a request whose row was opened for it goes first, then a refresh, then the first request that is
//!   ready, of those the one that came first (FR-FCFS). Nothing closes a row that was opened and not used.
//! * Reads go before writes until more than 0.8 of the room for writes is taken, or no read waits; then writes do, until
//!   less than 0.2 is taken and a read waits.
//! * A refresh of all ranks falls due at once; until they are under way no other request is begun.

use std::collections::VecDeque;
use twinpage_lab::device::{Device, Memory};
use twinpage_lab::drive::{Request, drive};

/// When a command was given last; long ago at first.
const NEVER: i64 = -100_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Command {
    Activate,
    Precharge,
    Column { write: bool },
}

/// Cycles of the last commands of a bank, or of any bank of a rank.
#[derive(Clone, Copy)]
struct Last {
    activate: i64,
    precharge: i64,
    read: i64,
    write: i64,
}

const QUIET: Last = Last {
    activate: NEVER,
    precharge: NEVER,
    read: NEVER,
    write: NEVER,
};

#[derive(Clone)]
struct Rank {
    last: Last,
    activates: VecDeque<i64>,
    refresh: i64,
    banks: Vec<(Last, Option<u64>)>,
}

#[derive(Clone, Copy)]
struct Waiting {
    rank: usize,
    bank: usize,
    row: u64,
    write: bool,
    came: i64,
}

/// The plain model.
struct Plain<'a> {
    device: &'a Device,
    ranks: Vec<Rank>,
    reads: Vec<Waiting>,
    writes: Vec<Waiting>,
    /// Requests whose rows were opened for them.
    opened: Vec<Waiting>,
    refreshes: VecDeque<usize>,
    opened_keep_their_place: bool,
    writing: bool,
    now: i64,
    latencies: Vec<i64>,
    end: i64,
}

impl Plain<'_> {
    fn new(device: &Device) -> Plain<'_> {
        let rank = Rank {
            last: QUIET,
            activates: VecDeque::from([NEVER; 4]),
            refresh: NEVER,
            banks: vec![(QUIET, None); device.banks as usize],
        };
        Plain {
            device,
            ranks: vec![rank; device.ranks as usize],
            reads: Vec::new(),
            writes: Vec::new(),
            opened: Vec::new(),
            refreshes: VecDeque::new(),
            opened_keep_their_place: false,
            writing: false,
            now: 0,
            latencies: Vec::new(),
            end: 0,
        }
    }

    fn needs(&self, one: &Waiting) -> Command {
        match self.ranks[one.rank].banks[one.bank].1 {
            None => Command::Activate,
            Some(row) if row == one.row => Command::Column { write: one.write },
            Some(_) => Command::Precharge,
        }
    }

    /// The cycle from which a command may be given.
    fn ready(&self, one: &Waiting, command: Command) -> i64 {
        let t = &self.device.timing;
        let burst = t.burst as i64;
        let write_end = t.cwl as i64 + burst;
        let rank = &self.ranks[one.rank];
        let bank = &rank.banks[one.bank].0;
        let of_others = |of: fn(&Last) -> i64| {
            let others = self
                .ranks
                .iter()
                .enumerate()
                .filter(|(rank, _)| *rank != one.rank);
            others.map(|(_, rank)| of(&rank.last)).fold(NEVER, i64::max)
        };
        let bounds = match command {
            Command::Activate => [
                bank.activate + t.rc as i64,
                bank.precharge + t.rp as i64,
                rank.last.activate + t.rrd as i64,
                rank.activates[0] + t.faw as i64,
                rank.refresh + t.rfc as i64,
            ],
            Command::Precharge => [
                bank.activate + t.ras as i64,
                bank.read + t.rtp as i64,
                bank.write + write_end + t.wr as i64,
                NEVER,
                NEVER,
            ],
            Command::Column { write: false } => [
                bank.activate + t.rcd as i64,
                rank.last.read + t.ccd as i64,
                rank.last.write + write_end + t.wtr as i64,
                of_others(|last| last.read) + burst + t.rtrs as i64,
                of_others(|last| last.write) + write_end + t.rtrs as i64 - t.cl as i64,
            ],
            Command::Column { write: true } => [
                bank.activate + t.rcd as i64,
                rank.last.write + t.ccd as i64,
                rank.last.read + t.cl as i64 + burst + 2 - t.cwl as i64,
                of_others(|last| last.read) + burst + t.rtrs as i64,
                of_others(|last| last.write) + burst,
            ],
        };
        bounds.into_iter().fold(NEVER, i64::max)
    }

    fn give(&mut self, one: &Waiting, command: Command) {
        let now = self.now;
        let rank = &mut self.ranks[one.rank];
        let (bank, row) = &mut rank.banks[one.bank];
        let times = [bank, &mut rank.last];
        match command {
            Command::Activate => {
                for last in times {
                    last.activate = now;
                }
                rank.activates.pop_front();
                rank.activates.push_back(now);
                *row = Some(one.row);
            }
            Command::Precharge => {
                for last in times {
                    last.precharge = now;
                }
                *row = None;
            }
            Command::Column { write: true } => {
                for last in times {
                    last.write = now;
                }
            }
            Command::Column { write: false } => {
                for last in times {
                    last.read = now;
                }
                let done = now + (self.device.timing.cl + self.device.timing.burst) as i64;
                self.latencies.push(done - one.came);
                self.end = done;
            }
        }
    }

    /// The first request in a queue that is ready.
    fn first_ready(&self, queue: &[Waiting], keeps_opened: bool) -> Option<(usize, Command)> {
        let all = queue
            .iter()
            .enumerate()
            .map(|(index, one)| (index, one, self.needs(one)));
        let ready = all.filter(|(_, one, command)| {
            let is_kept = keeps_opened
                && *command == Command::Precharge
                && self
                    .opened
                    .iter()
                    .any(|o| (o.rank, o.bank) == (one.rank, one.bank));
            !is_kept && self.ready(one, *command) <= self.now
        });
        let first = ready.min_by_key(|(_, one, _)| one.came);
        first.map(|(index, _, command)| (index, command))
    }

    /// A refresh's next command is given if it may be.
    fn refreshes(&mut self) -> bool {
        let Some(&rank) = self.refreshes.front() else {
            return false;
        };
        let (timing, now) = (&self.device.timing, self.now);
        let t = &mut self.ranks[rank];
        if t.banks.iter().all(|(_, row)| row.is_none()) {
            let may = (t.last.precharge + timing.rp as i64).max(t.last.activate + timing.rc as i64);
            if may <= now {
                t.refresh = now;
                self.refreshes.pop_front();
            }
            return may <= now;
        }
        let write_end = timing.cwl + timing.burst + timing.wr;
        let may = (t.last.activate + timing.ras as i64)
            .max(t.last.read + timing.rtp as i64)
            .max(t.last.write + write_end as i64);
        if may > now || self.opened.iter().any(|one| one.rank == rank) {
            return false;
        }
        t.last.precharge = now;
        for (last, row) in &mut t.banks {
            last.precharge = now;
            *row = None;
        }
        true
    }

    fn tick(&mut self) {
        let refi = self.device.timing.refi as i64;
        if refi > 0 && self.now > 0 && self.now % refi == 0 {
            self.refreshes.extend(0..self.ranks.len());
        }
        if let Some((index, command)) = self.first_ready(&self.opened, false) {
            let one = self.opened.remove(index);
            return self.give(&one, command);
        }
        if self.refreshes() || !self.refreshes.is_empty() {
            return;
        }
        let room = self.device.queue.writes as f64;
        let (waiting, none) = (self.writes.len() as f64, self.reads.is_empty());
        self.writing = match self.writing {
            false => waiting > 0.8 * room || none,
            true => waiting >= 0.2 * room || none,
        };
        let queue = if self.writing { &self.writes } else { &self.reads };
        let Some((index, command)) = self.first_ready(queue, true) else {
            return;
        };
        let one = queue[index];
        self.give(&one, command);
        if command == Command::Precharge {
            return;
        }
        let queue = if self.writing {
            &mut self.writes
        } else {
            &mut self.reads
        };
        queue.remove(index);
        if command == Command::Activate {
            self.opened.push(one);
        }
    }

    /// All requests, one a cycle at most, each when there is room for it. GB/s, and the mean latency of reads in ns.
    fn run(mut self, requests: impl IntoIterator<Item = Request>) -> (f64, f64) {
        let device = self.device;
        let map = Memory::new(device.clone());
        let mut requests = requests.into_iter().peekable();
        let mut count = 0;
        while requests.peek().is_some()
            || !self.reads.is_empty()
            || !self.writes.is_empty()
            || !self.opened.is_empty()
        {
            let wanted = requests.next_if(|request| {
                let (queue, room) = match request.write {
                    true => (&self.writes, device.queue.writes),
                    false => (&self.reads, device.queue.reads),
                };
                let opened = self.opened.iter().filter(|one| one.write == request.write);
                let places = if self.opened_keep_their_place {
                    opened.count()
                } else {
                    0
                };
                request.cycle as i64 <= self.now && queue.len() + places < room
            });
            if let Some(request) = wanted {
                let place = map.place(request.at);
                let place = Waiting {
                    rank: usize::from(place.bank) / device.banks as usize,
                    bank: usize::from(place.bank) % device.banks as usize,
                    row: place.row,
                    write: request.write,
                    came: self.now,
                };
                count += 1;
                match request.write {
                    true => self.writes.push(place),
                    false => self.reads.push(place),
                }
            }
            self.tick();
            self.now += 1;
        }
        let ns = device.cycle_fs as f64 * 1e-6;
        let mean = self.latencies.iter().sum::<i64>() as f64 / self.latencies.len() as f64;
        ((count * 64) as f64 / (self.end as f64 * ns), mean * ns)
    }
}

/// The kinds of traffic that simulators are compared by: sequential reads, random reads, and random lines with every other
/// request a write. Requests come at a fixed interval in cycles; 0 saturates the memory.
fn traffic(device: &Device, kind: &'static str, every: u64) -> impl Iterator<Item = Request> {
    let lines = device.bytes() / 64;
    let mut random = fastrand::Rng::with_seed(1);
    let count = if every == 0 { 100_000 } else { 20_000 };
    (0..count).map(move |number| Request {
        cycle: number * every,
        at: 64
            * if kind == "sequential" {
                number
            } else {
                random.u64(..lines)
            },
        write: kind == "mixed" && number % 2 == 1,
    })
}

const KINDS: [&str; 3] = ["sequential", "random", "mixed"];

fn is_near(ours: f64, theirs: f64, within: f64) -> bool {
    (ours / theirs - 1.0).abs() < within
}

/// What Ramulator 2.1 itself was measured with: DDR3-1600K, saturated.
#[test]
fn the_plain_model_does_what_ramulator_did() {
    let device = Device::find("ddr3-1600k").unwrap();
    for (kind, measured) in [("sequential", 12.27), ("random", 11.42)] {
        let (speed, _) = Plain::new(&device).run(traffic(&device, kind, 0));
        assert!(
            is_near(speed, measured, 0.001),
            "{kind}: {speed} GB/s for {measured}"
        );
    }
}

/// Bandwidth and mean latency within 5% for all traffic, light and saturated. How long requests wait at saturation is how
/// many may: here one whose row is being opened keeps its place among those that wait, so the plain model's does too.
#[test]
fn bandwidth_and_latency_are_those_of_the_plain_model() {
    let device = Device::find("ddr3-1600k").unwrap();
    for (kind, every) in KINDS.iter().flat_map(|kind| [(*kind, 0), (*kind, 100)]) {
        let ours = drive(&device, traffic(&device, kind, every));
        let (speed, latency) = Plain::new(&device).run(traffic(&device, kind, every));
        let mut keeping = Plain::new(&device);
        keeping.opened_keep_their_place = true;
        let (_, keeping) = keeping.run(traffic(&device, kind, every));
        let (our_speed, our_latency) = (ours.gb_per_s, ours.read_ns.mean);
        println!(
            "{kind}, every {every}: {our_speed:.3} GB/s for {speed:.3}, {our_latency:.2} ns for {latency:.2} or {keeping:.2}"
        );
        assert!(is_near(our_speed, speed, 0.05), "{kind}, every {every}");
        assert!(is_near(our_latency, keeping, 0.05), "{kind}, every {every}");
        assert!(
            is_near(our_latency, latency, 0.05) || (kind, every) == ("random", 0),
            "{kind}, every {every}"
        );
    }
}
