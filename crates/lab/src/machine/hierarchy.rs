//! The caches of all cores: private levels, and one shared by all.
//!
//! * Inclusive: what a private cache holds, the levels below hold too.
//! * One writer: a line is writable in one core's private caches at most, and dirty there only.
//! * Lines come in when their data arrives; until then an access is a miss.

use super::cache::{Cache, Line, State};
use super::distances::Distances;
use super::sharers::Sharers;

/// How an access ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// After that many cycles.
    Hit(u32),
    /// No cache has it.
    Miss,
}

/// The shape of a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Level {
    /// Bytes, of each core's cache where private.
    pub bytes: u64,
    /// Lines in a set.
    pub ways: u32,
    /// Cycles to an answer.
    pub cycles: u32,
}

/// What was asked of the caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Counts {
    /// Accesses that left the first level.
    pub first_misses: u64,
    /// Accesses that left the last level, and lines then asked for.
    pub last_misses: u64,
    /// Dirty lines written back by the last level.
    pub write_backs: u64,
    /// Lines taken from another core's cache, or asked back from it.
    pub snoops: u64,
    /// Lines that came from the last cache of another node, on machines that have several.
    #[serde(default)]
    pub remote: u64,
}

impl Counts {
    /// What was asked since `before`.
    #[must_use]
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            first_misses: self.first_misses - before.first_misses,
            last_misses: self.last_misses - before.last_misses,
            write_backs: self.write_backs - before.write_backs,
            snoops: self.snoops - before.snoops,
            remote: self.remote - before.remote,
        }
    }
}

/// All caches.
#[derive(Clone, Debug)]
pub struct Hierarchy<S = u16> {
    /// For each core its private levels, the first first.
    private: Vec<Vec<Cache<S>>>,
    shared: Cache<S>,
    cycles: Vec<u32>,
    distances: Option<Distances>,
    /// What was asked.
    pub counts: Counts,
}

impl Hierarchy {
    /// For up to 16 cores; the last level is shared. Two levels at least.
    #[must_use]
    pub fn new(cores: usize, levels: &[Level]) -> Hierarchy {
        Hierarchy::of(cores, levels, None)
    }
}

impl<S: Sharers> Hierarchy<S> {
    /// For as many cores as `S` has bits; the last level is shared, or that of several nodes together. Two levels at
    /// least.
    #[must_use]
    pub fn of(cores: usize, levels: &[Level], distances: Option<Distances>) -> Hierarchy<S> {
        let cache = |level: &Level| Cache::of(level.bytes, level.ways as usize);
        let (last, first) = levels.split_last().expect("a shared level");
        Hierarchy {
            private: (0..cores).map(|_| first.iter().map(cache).collect()).collect(),
            shared: cache(last),
            cycles: levels.iter().map(|level| level.cycles).collect(),
            distances,
            counts: Counts::default(),
        }
    }

    /// Cycles of a hit in the first level.
    #[must_use]
    pub fn first_cycles(&self) -> u32 {
        self.cycles[0]
    }

    /// Cycles of a hit in the last level.
    #[must_use]
    pub fn last_cycles(&self) -> u32 {
        self.cycles[self.cycles.len() - 1]
    }

    /// An access of `core`. One that misses is counted by [`Hierarchy::missed`].
    #[inline]
    pub fn access(&mut self, core: usize, number: u64, write: bool) -> Access {
        if let Some(line) = self.private[core][0].find(number)
            && (!write || line.writable)
        {
            line.dirty |= write;
            return Access::Hit(self.cycles[0]);
        }
        let access = self.beyond_first(core, number, write);
        self.counts.first_misses += u64::from(access != Access::Miss);
        access
    }

    /// Counts an access that missed them all, once its line is asked for: for want of room it may have to come again, and
    /// another may have asked already.
    pub fn missed(&mut self, is_new: bool) {
        self.counts.first_misses += 1;
        self.counts.last_misses += u64::from(is_new);
    }

    fn beyond_first(&mut self, core: usize, number: u64, write: bool) -> Access {
        for level in 1..self.private[core].len() {
            if let Some(line) = self.private[core][level].find(number)
                && (!write || line.writable)
            {
                let writable = line.writable;
                self.bring_up(core, level, number, writable, write);
                return Access::Hit(self.cycles[level]);
            }
        }
        let last = self.cycles.len() - 1;
        let Some(line) = self.shared.find(number) else {
            return Access::Miss;
        };
        let (own, sharers) = (S::only(core), line.sharers);
        let others = sharers.without(core);
        let taken = others != S::default() && self.ask_back(number, others, write);
        let near = self.cycles[last];
        let cycles = match &self.distances {
            None if taken => near * 2,
            None => near,
            Some(distances) => {
                let (cycles, is_remote) = distances.cycles(core, sharers, write, taken, near);
                self.counts.remote += u64::from(is_remote);
                cycles
            }
        };
        let line = self.shared.peek(number).expect("found just now");
        line.sharers = if write { own } else { sharers.with(core) };
        let alone = line.sharers == own;
        self.bring_up(core, last, number, alone, write);
        Access::Hit(cycles)
    }

    /// The line is in `level` and goes to the private levels above it.
    fn bring_up(&mut self, core: usize, level: usize, number: u64, writable: bool, write: bool) {
        for above in (0..level).rev() {
            let dirty = write && above == 0;
            if let Some(line) = self.private[core][above].find(number) {
                line.writable = writable;
                line.dirty |= dirty;
                continue;
            }
            let state = State {
                dirty,
                writable,
                sharers: S::default(),
            };
            if let Some(gone) = self.private[core][above].insert(number, state) {
                self.leave(core, above, gone);
            }
        }
    }

    /// A line left a private level to make room: those above lose it too, the one below learns.
    fn leave(&mut self, core: usize, level: usize, gone: Line<S>) {
        let mut dirty = gone.state.dirty;
        for above in 0..level {
            dirty |= self.private[core][above]
                .remove(gone.number)
                .is_some_and(|line| line.dirty);
        }
        if dirty {
            let below = match self.private[core].get_mut(level + 1) {
                Some(cache) => cache.peek(gone.number),
                None => self.shared.peek(gone.number),
            };
            below.expect("levels below hold it too").dirty = true;
        }
    }

    /// Other cores give the line up (`write`), or their right to write it. Says whether one had it.
    fn ask_back(&mut self, number: u64, others: S, write: bool) -> bool {
        let (mut had, mut dirty) = (false, false);
        for core in others.cores() {
            for cache in &mut self.private[core] {
                if write {
                    if let Some(line) = cache.remove(number) {
                        had = true;
                        dirty |= line.dirty;
                    }
                } else if let Some(line) = cache.peek(number) {
                    had |= line.writable;
                    dirty |= line.dirty;
                    line.writable = false;
                    line.dirty = false;
                }
            }
        }
        if dirty {
            self.shared.peek(number).expect("levels below hold it too").dirty = true;
        }
        self.counts.snoops += u64::from(had);
        had
    }

    /// The data of a miss has come. Says which dirty line must be written below for it.
    pub fn fill(&mut self, core: usize, number: u64, write: bool) -> Option<u64> {
        if self.shared.peek(number).is_some() {
            // The access was counted when it missed.
            let misses = self.counts.first_misses;
            let hit = self.access(core, number, write);
            debug_assert_ne!(hit, Access::Miss);
            self.counts.first_misses = misses;
            return None;
        }
        // No cache has it: it comes to all levels, and may be written.
        let state = State {
            dirty: false,
            writable: false,
            sharers: S::only(core),
        };
        let gone = self.shared.insert(number, state);
        let evicted = gone.and_then(|gone| self.drop_shared(gone));
        for level in (0..self.private[core].len()).rev() {
            let state = State {
                dirty: write && level == 0,
                writable: true,
                sharers: S::default(),
            };
            if let Some(gone) = self.private[core][level].insert(number, state) {
                self.leave(core, level, gone);
            }
        }
        evicted
    }

    /// A line left the shared cache: every private cache loses it.
    fn drop_shared(&mut self, gone: Line<S>) -> Option<u64> {
        let dirty = self.drop_private(gone);
        self.counts.write_backs += u64::from(dirty);
        dirty.then_some(gone.number)
    }

    /// Cleans one line everywhere. Says whether it was dirty.
    pub fn clean(&mut self, number: u64) -> bool {
        let Some(line) = self.shared.peek(number) else {
            return false;
        };
        let mut dirty = std::mem::take(&mut line.dirty);
        let sharers = line.sharers;
        for core in sharers.cores() {
            for cache in &mut self.private[core] {
                if let Some(line) = cache.peek(number) {
                    dirty |= std::mem::take(&mut line.dirty);
                }
            }
        }
        dirty
    }

    /// Takes one line out of every cache. Says whether it was dirty.
    pub fn evict(&mut self, number: u64) -> bool {
        match self.shared.remove(number) {
            Some(state) => self.drop_private(Line { number, state }),
            None => false,
        }
    }

    /// A line left the shared cache: private caches lose it. Says whether it was dirty anywhere.
    fn drop_private(&mut self, gone: Line<S>) -> bool {
        let mut dirty = gone.state.dirty;
        for core in gone.state.sharers.cores() {
            for cache in &mut self.private[core] {
                dirty |= cache.remove(gone.number).is_some_and(|line| line.dirty);
            }
        }
        dirty
    }

    /// Cleans everything, and tells the lines that were dirty, in order.
    pub fn clean_all(&mut self) -> Vec<u64> {
        let mut all = Vec::new();
        for cache in self.private.iter_mut().flatten().chain([&mut self.shared]) {
            cache.clean_all(|number| all.push(number));
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(bytes: u64, ways: u32, cycles: u32) -> Level {
        Level { bytes, ways, cycles }
    }

    fn small() -> Hierarchy {
        Hierarchy::new(2, &[level(2 * 64, 2, 4), level(8 * 64, 8, 12)])
    }

    #[test]
    fn a_miss_a_fill_and_hits() {
        let mut caches = small();
        assert_eq!(caches.access(0, 7, false), Access::Miss);
        assert_eq!(caches.fill(0, 7, false), None);
        assert_eq!(caches.access(0, 7, true), Access::Hit(4), "alone, so writable");
        assert_eq!(
            caches.access(1, 7, false),
            Access::Hit(24),
            "taken from the other core"
        );
        assert_eq!(caches.access(1, 7, true), Access::Hit(24), "asked back");
        assert_eq!(caches.access(0, 7, false), Access::Hit(24));
        assert_eq!(caches.counts.snoops, 3);
        assert_eq!(caches.clean_all(), [7]);
        assert!(caches.clean_all().is_empty());
    }

    #[test]
    fn dirty_lines_come_out_at_the_bottom_and_nowhere_else() {
        let mut caches = small();
        let mut out = Vec::new();
        for number in 0..20 {
            assert_eq!(caches.access(0, number, true), Access::Miss);
            out.extend(caches.fill(0, number, true));
        }
        assert_eq!(out, (0..12).collect::<Vec<_>>());
        assert_eq!(caches.clean_all(), (12..20).collect::<Vec<_>>());
        assert!(!caches.clean(13));
    }

    #[test]
    fn a_line_is_taken_out_of_every_cache() {
        let mut caches = small();
        caches.fill(0, 7, false);
        assert_eq!(caches.access(0, 7, true), Access::Hit(4));
        assert!(caches.evict(7), "it was dirty in the first core's cache");
        assert!(!caches.evict(7));
        let misses = caches.counts.first_misses;
        assert_eq!(caches.access(0, 7, false), Access::Miss);
        assert_eq!(caches.access(0, 7, false), Access::Miss);
        caches.missed(true);
        caches.fill(0, 7, false);
        assert_eq!(caches.counts.first_misses, misses + 1, "a miss is counted once");
        assert!(caches.clean_all().is_empty());
    }

    #[test]
    fn three_levels() {
        let levels = [level(2 * 64, 2, 4), level(4 * 64, 4, 12), level(16 * 64, 16, 40)];
        let mut caches = Hierarchy::new(2, &levels);
        for number in 0..6 {
            caches.fill(0, number, true);
        }
        assert_eq!(caches.access(0, 5, false), Access::Hit(4));
        assert_eq!(caches.access(0, 3, false), Access::Hit(12));
        assert_eq!(caches.access(0, 0, false), Access::Hit(40));
        assert_eq!(caches.clean_all(), (0..6).collect::<Vec<_>>());
    }
}
