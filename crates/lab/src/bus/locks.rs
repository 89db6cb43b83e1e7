//! Locks and atomic accesses: their lines move between caches one access after the other.
//!
//! * An atomic access has its line alone, after the core's earlier stores; the next one of any core begins when it is
//!   done.
//! * A lock that is given back goes to the first of those that spin; the others fetch its line again, one after the other.
//! * Who sleeps is woken, one each time the lock is given back, and tries again: a core that comes in the meantime goes
//!   before it.

use super::{Machine, Wait};
use crate::machine::core::Stall;
use crate::machine::hierarchy::Access;
use crate::op::Kind;
use std::collections::{HashMap, VecDeque};

/// Whether it is an access to a lock, or atomic.
pub(super) fn is_atomic(kind: Kind) -> bool {
    matches!(kind, Kind::Lock | Kind::Unlock | Kind::Atomic)
}

/// A lock.
#[derive(Debug, Default)]
struct Lock {
    holder: Option<usize>,
    /// Cores that wait, and until when each spins.
    spinning: VecDeque<(usize, u64)>,
    /// Those that sleep, and since when.
    sleeping: VecDeque<(usize, u64)>,
}

/// All locks, and when each line of atomic accesses is free for the next.
#[derive(Debug, Default)]
pub(super) struct Held {
    locks: HashMap<u64, Lock>,
    free: HashMap<u64, u64>,
}

impl Machine<'_> {
    /// The line is this core's alone, once all its stores are in the caches.
    pub(super) fn own(&mut self, number: usize, line: u64) -> Result<(), Wait> {
        let core = &mut self.cores[number].core;
        core.leave_stores(1, Stall::Lock).map_err(Wait::Line)?;
        let (index, now) = (core.index, core.now);
        let access = self.caches.access(number, line, true);
        let Access::Hit(cycles) = access else {
            let request = self.request(number, line, now)?;
            self.store_waits(number, index, request);
            return Err(Wait::Line(request));
        };
        self.accessed(access);
        let done = self.moves(line, now, cycles);
        self.cores[number].core.stall(done, Stall::Lock);
        Ok(())
    }

    /// An access to the line from `at` on, after those before. Says when it is done.
    fn moves(&mut self, line: u64, at: u64, cycles: u32) -> u64 {
        let taken = self.cycles(cycles);
        let free = self.locks.free.entry(line).or_insert(0);
        *free = at.max(*free) + taken;
        *free
    }

    /// The same of a core that waits for a lock.
    fn fetch(&mut self, number: usize, line: u64, at: u64, write: bool) -> u64 {
        let cycles = match self.caches.access(number, line, write) {
            Access::Hit(cycles) => cycles,
            Access::Miss => self.caches.last_cycles(),
        };
        self.moves(line, at, cycles)
    }

    pub(super) fn lock(&mut self, number: usize, line: u64) -> Result<(), Wait> {
        if std::mem::take(&mut self.cores[number].is_granted) {
            return Ok(());
        }
        self.own(number, line)?;
        let spin_fs = self.config.locks.map_or(0, |locks| locks.spin_fs);
        let now = self.cores[number].core.now;
        let lock = self.locks.locks.entry(line).or_default();
        if lock.holder.is_none() {
            lock.holder = Some(number);
            return Ok(());
        }
        lock.spinning.push_back((number, now.saturating_add(spin_fs)));
        Err(Wait::Lock)
    }

    pub(super) fn unlock(&mut self, number: usize, line: u64) -> Result<(), Wait> {
        self.own(number, line)?;
        let costs = self
            .config
            .locks
            .expect("a program with locks, on a machine that has them");
        let now = self.cores[number].core.now;
        let lock = self.locks.locks.entry(line).or_default();
        assert_eq!(
            lock.holder.take(),
            Some(number),
            "a lock is given back by its holder"
        );
        // Whose time to spin is over went to sleep then.
        while let Some(&(core, until)) = lock.spinning.front().filter(|(_, until)| *until <= now) {
            lock.spinning.pop_front();
            lock.sleeping.push_back((core, until + costs.sleep_fs));
        }
        let next = lock.spinning.pop_front();
        let rest: Vec<usize> = lock.spinning.iter().map(|(core, _)| *core).collect();
        lock.holder = next.map(|(core, _)| core);
        let woken = lock.sleeping.pop_front();
        if let Some((core, _)) = next {
            let granted = self.fetch(core, line, now, true);
            self.cores[core].is_granted = true;
            self.goes_on(core, granted, Stall::Lock);
            for core in rest {
                self.fetch(core, line, granted, false);
            }
        }
        if let Some((core, asleep)) = woken {
            self.cores[number].core.stall(now + costs.wake_fs, Stall::Lock);
            self.goes_on(core, now.max(asleep) + costs.turnaround_fs, Stall::Lock);
        }
        Ok(())
    }
}
