//! What a workload is like, as in DPC's Table 5: requests to the DRAM cache, misses there, footprint.
//!
//! No time passes here. Accesses go through a first-level cache for each core and one shared by all, both
//! least-recently-used and written back; what leaves the last is a request to a DRAM cache of pages,
//! least-recently-used too.

use crate::op::{Kind, Op, PAGE_BYTES};
use crate::space::Space;
use crate::workload::list::Characteristics;
use crate::workload::{self, Progress, Workload};
use std::time::{Duration, Instant};

/// The caches. DPC's and Twins' machine by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caches {
    /// Of each core.
    pub first_bytes: u64,
    /// Shared.
    pub last_bytes: u64,
    /// Page-grain cache of NVM.
    pub dram_bytes: u64,
}

impl Caches {
    /// 128 KB for each core, 2 MB shared, 256 MB of DRAM (DPC 5.1.1, Twins V-A), the last two scaled as the
    /// workload is.
    #[must_use]
    pub fn paper(scale: f64) -> Caches {
        Caches {
            first_bytes: 128 << 10,
            last_bytes: scaled(2 << 20, scale).max(256 << 10),
            dram_bytes: scaled(256 << 20, scale),
        }
    }
}

fn scaled(bytes: u64, scale: f64) -> u64 {
    ((bytes as f64 * scale.min(1.0)) as u64 / PAGE_BYTES).max(16) * PAGE_BYTES
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Instructions of all cores, and how many loaded and stored.
    pub instructions: u64,
    /// Loads.
    pub loads: u64,
    /// Stores.
    pub stores: u64,
    /// Lines asked of the DRAM cache.
    pub reads: u64,
    /// Lines written back to it.
    pub writes: u64,
    /// Of both, those whose page was not there.
    pub misses: u64,
    /// Pages touched, in bytes.
    pub touched_bytes: u64,
    /// The workload's memory.
    pub footprint_bytes: u64,
    /// Accesses made for each second of this machine, the caches left out.
    pub accesses_per_s: f64,
}

impl Measured {
    /// As Table 5 has it: misses and reads to writes at the DRAM cache, the footprint.
    #[must_use]
    pub fn characteristics(&self) -> Characteristics {
        Characteristics {
            miss_percent: 100.0 * self.misses as f64 / (self.reads + self.writes).max(1) as f64,
            read_write_ratio: self.reads as f64 / self.writes.max(1) as f64,
            footprint_mb: self.footprint_bytes as f64 / 1e6,
        }
    }
}

/// Runs a workload on `cores` cores in turn: `warm_up` instructions that are not counted, then
/// `instructions` that are, fewer where it ends; then checks its results.
///
/// # Errors
/// The results are wrong.
pub fn measure(
    workload: &mut dyn Workload,
    cores: usize,
    caches: &Caches,
    warm_up: u64,
    instructions: u64,
    mut step: impl FnMut(u64),
) -> Result<Measured, String> {
    let mut space = Space::new(workload.footprint_bytes());
    workload.fill(&mut space);
    let mut model = Model::new(cores, caches, space.len());
    let mut batch = Vec::new();
    let mut left: Vec<usize> = (0..cores).collect();
    let (mut turn, mut done, mut warm, mut busy) = (0, 0, warm_up == 0, Duration::ZERO);
    while done < warm_up.saturating_add(instructions) && !left.is_empty() {
        if !warm && done >= warm_up {
            (warm, busy) = (true, Duration::ZERO);
            model.restart();
        }
        turn = (turn + 1) % left.len();
        let core = left[turn];
        let begin = Instant::now();
        let progress = workload::next(workload, core, &mut space, &mut batch);
        busy += begin.elapsed();
        for op in &batch {
            done += op.instructions();
            model.run(core, op);
        }
        if progress == Progress::Done {
            left.remove(turn);
        }
        step(done);
    }
    workload.check(&space)?;
    let mut measured = model.measured;
    measured.touched_bytes = model.touched.iter().filter(|&&touched| touched).count() as u64 * PAGE_BYTES;
    measured.footprint_bytes = workload.footprint_bytes();
    measured.accesses_per_s = (measured.loads + measured.stores) as f64 / busy.as_secs_f64().max(1e-9);
    Ok(measured)
}

struct Model {
    first: Vec<Lines>,
    last: Lines,
    pages: Pages,
    touched: Vec<bool>,
    measured: Measured,
}

const NOTHING: Measured = Measured {
    instructions: 0,
    loads: 0,
    stores: 0,
    reads: 0,
    writes: 0,
    misses: 0,
    touched_bytes: 0,
    footprint_bytes: 0,
    accesses_per_s: 0.0,
};

impl Model {
    fn new(cores: usize, caches: &Caches, bytes: u64) -> Model {
        let pages = bytes / PAGE_BYTES;
        Model {
            first: (0..cores).map(|_| Lines::new(caches.first_bytes)).collect(),
            last: Lines::new(caches.last_bytes),
            pages: Pages::new(caches.dram_bytes / PAGE_BYTES, pages),
            touched: vec![false; pages as usize],
            measured: NOTHING,
        }
    }

    /// Counts from here; the caches stay as they are.
    fn restart(&mut self) {
        self.measured = NOTHING;
        self.touched.fill(false);
    }

    fn run(&mut self, core: usize, op: &Op) {
        self.measured.instructions += op.instructions();
        let store = match op.kind {
            Kind::Load => false,
            Kind::Store => true,
            Kind::Persist => return self.persist(core, op.at / 64),
            Kind::Flush | Kind::FlushOpt => {
                self.persist(core, op.at / 64);
                return self.remove(core, op.at / 64);
            }
            Kind::Stream => {
                self.measured.stores += 1;
                self.touched[(op.at / PAGE_BYTES) as usize] = true;
                self.remove(core, op.at / 64);
                self.measured.writes += 1;
                return self.request(op.at / 64);
            }
            _ => return,
        };
        self.measured.loads += u64::from(!store);
        self.measured.stores += u64::from(store);
        self.touched[(op.at / PAGE_BYTES) as usize] = true;
        let line = op.at / 64;
        let (hit, evicted) = self.first[core].access(line, store);
        if let Some(evicted) = evicted {
            self.below(evicted, true);
        }
        if !hit {
            self.below(line, false);
        }
    }

    /// A line asked of the last level, or written back to it.
    fn below(&mut self, line: u64, store: bool) {
        let (hit, evicted) = self.last.access(line, store);
        if let Some(evicted) = evicted {
            self.measured.writes += 1;
            self.request(evicted);
        }
        if !hit && !store {
            self.measured.reads += 1;
            self.request(line);
        }
    }

    fn persist(&mut self, core: usize, line: u64) {
        let dirty = self.first[core].clean(line) | self.last.clean(line);
        if dirty {
            self.measured.writes += 1;
            self.request(line);
        }
    }

    fn remove(&mut self, core: usize, line: u64) {
        self.first[core].remove(line);
        self.last.remove(line);
    }

    fn request(&mut self, line: u64) {
        let hit = self.pages.access((line / (PAGE_BYTES / 64)) as usize);
        self.measured.misses += u64::from(!hit);
    }
}

const WAYS: usize = 8;

/// A cache of lines: in each set the latest used first, `line << 1 | dirty`.
struct Lines {
    entries: Vec<[u64; WAYS]>,
}

impl Lines {
    fn new(bytes: u64) -> Lines {
        let sets = (bytes as usize / 64 / WAYS).next_power_of_two();
        Lines {
            entries: vec![[u64::MAX; WAYS]; sets],
        }
    }

    fn set(&mut self, line: u64) -> &mut [u64; WAYS] {
        let sets = self.entries.len();
        &mut self.entries[line as usize & (sets - 1)]
    }

    /// Whether the line was there, and a dirty line that had to go.
    #[inline]
    fn access(&mut self, line: u64, store: bool) -> (bool, Option<u64>) {
        let set = self.set(line);
        if let Some(way) = set.iter().position(|entry| entry >> 1 == line) {
            let entry = set[way] | u64::from(store);
            set.copy_within(..way, 1);
            set[0] = entry;
            return (true, None);
        }
        let evicted = set[WAYS - 1];
        set.copy_within(..WAYS - 1, 1);
        set[0] = line << 1 | u64::from(store);
        (
            false,
            (evicted != u64::MAX && evicted & 1 == 1).then_some(evicted >> 1),
        )
    }

    /// The line is clean from here; whether it was dirty.
    fn clean(&mut self, line: u64) -> bool {
        let entry = self.set(line).iter_mut().find(|entry| **entry >> 1 == line);
        entry.is_some_and(|entry| {
            let dirty = *entry & 1 == 1;
            *entry &= !1;
            dirty
        })
    }

    /// The line is here no more.
    fn remove(&mut self, line: u64) {
        if let Some(entry) = self.set(line).iter_mut().find(|entry| **entry >> 1 == line) {
            *entry = u64::MAX;
        }
    }
}

/// The pages in DRAM, from the latest used to the one that goes next.
struct Pages {
    /// Of each page the neighbours in order of use; of one that is not there, itself. One more: the ends.
    newer: Vec<u32>,
    older: Vec<u32>,
    free: u64,
}

impl Pages {
    fn new(frames: u64, pages: u64) -> Pages {
        let own: Vec<u32> = (0..=pages as u32).collect();
        Pages {
            newer: own.clone(),
            older: own,
            free: frames,
        }
    }

    fn access(&mut self, page: usize) -> bool {
        let ends = self.newer.len() - 1;
        let there = self.newer[page] as usize != page;
        if there {
            self.unlink(page);
        } else if self.free > 0 {
            self.free -= 1;
        } else {
            let oldest = self.newer[ends] as usize;
            self.unlink(oldest);
        }
        let newest = self.older[ends] as usize;
        (self.older[page], self.newer[page]) = (newest as u32, ends as u32);
        (self.newer[newest], self.older[ends]) = (page as u32, page as u32);
        there
    }

    fn unlink(&mut self, page: usize) {
        let (newer, older) = (self.newer[page] as usize, self.older[page] as usize);
        (self.older[newer], self.newer[older]) = (older as u32, newer as u32);
        (self.newer[page], self.older[page]) = (page as u32, page as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_page_goes() {
        let mut pages = Pages::new(2, 5);
        let hits: Vec<bool> = [0, 1, 0, 2, 0, 1, 2]
            .iter()
            .map(|&page| pages.access(page))
            .collect();
        assert_eq!(hits, [false, false, true, false, true, false, false]);
    }

    #[test]
    fn dirty_lines_are_written_back() {
        let mut lines = Lines::new(64 * WAYS as u64);
        assert_eq!(lines.access(7, true), (false, None));
        assert_eq!(lines.access(7, false), (true, None));
        let evicted: Vec<_> = (8..8 + WAYS as u64)
            .filter_map(|line| lines.access(line, false).1)
            .collect();
        assert_eq!(evicted, [7]);
        assert!(!lines.clean(9));
        lines.access(9, true);
        assert!(lines.clean(9) && !lines.clean(9));
        lines.remove(9);
        assert_eq!(lines.access(9, false), (false, None));
    }
}
