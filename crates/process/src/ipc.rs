//! System V semaphores and message queues: sysvipc(7). The kernel keeps them, in an IPC namespace of the tree's own;
//! a checkpoint reads them, and a resume makes them again.
//!
//! * Nothing is read of a tree that never made one.
//! * The kernel does not show the adjustments that it makes when a process ends (`SEM_UNDO` of semop(2)). They are
//!   counted here, at the end of each call that adds to them. A process that ends is forgotten: the kernel has undone its part.
//! * Threads of a process share what is undone at its end, as all threads do that a thread library makes.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use twinpage_os::ipc::{self, Queue, Set};
use twinpage_os::trace::Tid;

/// What is added to one semaphore when a process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Undo {
    /// The process.
    pub pid: i32,
    /// The number of the set.
    pub set: i32,
    /// The semaphore in the set.
    pub semaphore: u16,
    /// What is added.
    pub adjustment: i16,
}

/// All of a tree, as a checkpoint lists it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Saved {
    /// Sets of semaphores.
    pub sets: Vec<Set>,
    /// Message queues.
    pub queues: Vec<Queue>,
    /// What is undone at the ends of processes.
    pub undo: Vec<Undo>,
}

/// What a call changes of that when it succeeds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// More is undone.
    Adds(Vec<Undo>),
    /// Nothing is undone any more of a semaphore, or of a whole set.
    Clears(i32, Option<u16>),
}

/// Semaphores and queues of the running tree.
#[derive(Debug, Default)]
pub struct Ipc {
    /// There may be some.
    used: bool,
    saved: Saved,
    /// By process, set and semaphore.
    undo: BTreeMap<(i32, i32, u16), i16>,
    /// What the calls that threads are in change.
    calls: HashMap<Tid, Change>,
}

impl Ipc {
    /// Those of a checkpoint, which are there again.
    #[must_use]
    pub fn restored(saved: &Saved) -> Ipc {
        let undo = saved.undo.iter();
        Ipc {
            used: *saved != Saved::default(),
            saved: saved.clone(),
            undo: undo
                .map(|one| ((one.pid, one.set, one.semaphore), one.adjustment))
                .collect(),
            calls: HashMap::new(),
        }
    }

    /// One may be made now.
    pub(crate) fn uses(&mut self) {
        self.used = true;
    }

    /// A thread begins a call.
    pub(crate) fn begins(&mut self, tid: Tid, change: Change) {
        self.calls.insert(tid, change);
    }

    /// A thread left its call, with this result.
    pub(crate) fn ends_call(&mut self, tid: Tid, result: i64) {
        match self.calls.remove(&tid) {
            Some(Change::Adds(all)) if result >= 0 => {
                for one in all {
                    let sum = self.undo.entry((one.pid, one.set, one.semaphore)).or_default();
                    *sum = sum.wrapping_add(one.adjustment);
                }
                self.undo.retain(|_, adjustment| *adjustment != 0);
            }
            Some(Change::Clears(of, one)) if result >= 0 => {
                self.undo
                    .retain(|(_, set, semaphore), _| *set != of || one.is_some_and(|one| one != *semaphore));
            }
            _ => {}
        }
    }

    /// A thread is gone, and perhaps its process lives on.
    pub(crate) fn forget_call(&mut self, tid: Tid) {
        self.calls.remove(&tid);
    }

    /// A thread is gone, and with the first of a process the process.
    pub(crate) fn forget(&mut self, tid: Tid) {
        self.forget_call(tid);
        self.undo.retain(|(pid, ..), _| *pid != tid);
    }

    /// Reads all while nothing runs. Whether anything is not as at the last look.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn look(&mut self) -> Result<bool> {
        if !self.used {
            return Ok(false);
        }
        let read = |source| Error::target("cannot read the program's semaphores and messages", source);
        let sets = ipc::sets().map_err(read)?;
        let queues = ipc::queues().map_err(read)?;
        let is_there = |number: i32| sets.iter().any(|set| set.identity.number == number);
        self.undo.retain(|(_, set, _), _| is_there(*set));
        let undo = self
            .undo
            .iter()
            .map(|(&(pid, set, semaphore), &adjustment)| Undo {
                pid,
                set,
                semaphore,
                adjustment,
            });
        let now = Saved {
            undo: undo.collect(),
            sets,
            queues,
        };
        let is_other = now != self.saved;
        self.saved = now;
        Ok(is_other)
    }

    /// As they were at the last look.
    pub(crate) fn saved(&self) -> Saved {
        self.saved.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adds(pid: i32, set: i32, semaphore: u16, adjustment: i16) -> Change {
        Change::Adds(vec![Undo {
            pid,
            set,
            semaphore,
            adjustment,
        }])
    }

    #[test]
    fn what_is_undone_is_counted_where_calls_succeed() {
        let mut ipc = Ipc::default();
        ipc.begins(30, adds(30, 1, 0, 1));
        ipc.ends_call(30, 0);
        ipc.begins(31, adds(30, 1, 0, 2)); // another thread
        ipc.ends_call(31, 0);
        ipc.begins(31, adds(30, 1, 1, 5));
        ipc.ends_call(31, -11);
        ipc.begins(40, adds(40, 1, 1, 7));
        ipc.ends_call(40, 0);
        assert_eq!(ipc.undo, BTreeMap::from([((30, 1, 0), 3), ((40, 1, 1), 7)]));
        ipc.begins(30, adds(30, 1, 0, -3));
        ipc.ends_call(30, 0);
        assert_eq!(ipc.undo, BTreeMap::from([((40, 1, 1), 7)]));
    }

    #[test]
    fn it_is_forgotten_with_its_process_and_by_setting() {
        let mut ipc = Ipc::default();
        for (pid, semaphore) in [(30, 0), (40, 0), (40, 1), (50, 1)] {
            ipc.begins(pid, adds(pid, 1, semaphore, 1));
            ipc.ends_call(pid, 0);
        }
        ipc.forget(30);
        assert_eq!(ipc.undo.len(), 3);
        ipc.begins(60, Change::Clears(1, Some(1)));
        ipc.ends_call(60, -1);
        assert_eq!(ipc.undo.len(), 3);
        ipc.begins(60, Change::Clears(1, Some(1)));
        ipc.ends_call(60, 0);
        assert_eq!(ipc.undo, BTreeMap::from([((40, 1, 0), 1)]));
        ipc.begins(60, Change::Clears(2, None));
        ipc.ends_call(60, 0);
        assert_eq!(ipc.undo.len(), 1);
        ipc.begins(60, Change::Clears(1, None));
        ipc.ends_call(60, 0);
        assert!(ipc.undo.is_empty());
    }
}
