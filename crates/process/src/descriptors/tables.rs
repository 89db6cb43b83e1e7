//! Tables of descriptors: every process has one, and a thread may leave the one it shared (close_range(2),
//! `CLOSE_RANGE_UNSHARE`).
//!
//! * Table 0 is the one of the thread by which the program is looked at; that is the main thread while it lives.
//! * One number names a table and a descriptor in it, so that lists, sharing and locks know no tables.
//! * While there are several, the effect of no call is foretold: all descriptors are looked at again at every stop.

use crate::error::{Error, Result};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use twinpage_os::remote::{self, Process};
use twinpage_os::trace::Tid;

/// Bits of a number that are the descriptor's own: as many as fs.nr_open allows by default.
const FD_BITS: u32 = 20;
/// Tables beside the first.
const MOST: usize = (i32::MAX >> FD_BITS) as usize;

/// The numbers of all descriptors of a thread, the lowest first.
pub(crate) fn numbers(pid: i32) -> Result<Vec<i32>> {
    let directory = format!("/proc/{pid}/fd");
    let entries = fs::read_dir(&directory).map_err(Error::file("cannot list", &directory))?;
    let mut numbers: Vec<i32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The number of a descriptor in a table.
#[must_use]
pub fn number(table: usize, fd: i32) -> i32 {
    (table as i32) << FD_BITS | fd
}

/// The table of a number, and the descriptor in it.
#[must_use]
pub fn split(number: i32) -> (usize, i32) {
    ((number >> FD_BITS) as usize, number & ((1 << FD_BITS) - 1))
}

/// A number of before version 7 of the context, of which 24 bits were the descriptor's own. `None` of one that is too high.
#[must_use]
pub fn of_earlier_builds(earlier: i32) -> Option<i32> {
    const FD_BITS_BEFORE: u32 = 24;
    let (table, fd) = (earlier >> FD_BITS_BEFORE, earlier & ((1 << FD_BITS_BEFORE) - 1));
    (table >= 0 && fd < 1 << FD_BITS).then(|| number(table as usize, fd))
}

/// The tables beside the first.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// The process by a thread of each.
    by: Vec<Process>,
    /// Their threads, and the table of each.
    members: Vec<(Tid, usize)>,
    /// Processes that have executed a program since: what was opened has their old memory.
    executed: Vec<i32>,
}

impl Tables {
    /// Finds the tables of the `threads`, each with its process, which stand still. Processes share none: a call that
    /// would make such a one is refused. Those that `known` has opened are not opened again; processes `asleep` are
    /// there, as nothing ran in them since.
    pub(super) fn of(
        process: &Process,
        threads: &[(i32, Tid)],
        asleep: &BTreeSet<i32>,
        known: Tables,
    ) -> Result<Tables> {
        let failed = |source| Error::target("cannot look at a thread's descriptors", source);
        let is_there = |by: &Process| asleep.contains(&by.pid()) || by.is_there();
        let is_usable = |by: &Process| is_there(by) && !known.executed.contains(&by.pid());
        let alive = known.by.into_iter().filter(is_usable);
        let mut known: HashMap<(i32, Tid), Process> = alive.map(|by| ((by.pid(), by.thread()), by)).collect();
        let mut found = Tables::default();
        let mut of_process: HashMap<i32, Vec<usize>> = HashMap::new();
        for &(pid, tid) in threads {
            let shares = |other: Tid| remote::share_descriptors(tid, other).map_err(failed);
            if pid == process.pid() && shares(process.thread())? {
                continue;
            }
            let tables = of_process.entry(pid).or_default();
            let mut table = found.by.len();
            for other in tables.iter().copied() {
                if shares(found.by[other].thread())? {
                    table = other;
                    break;
                }
            }
            if table == MOST {
                return Err(Error::Unsupported(format!(
                    "more than {MOST} processes, or threads with descriptors of their own (CLOSE_RANGE_UNSHARE), beside the program's are not captured"
                )));
            }
            if table == found.by.len() {
                let by = known
                    .remove(&(pid, tid))
                    .map_or_else(|| Process::open_by(pid, tid), Ok);
                found.by.push(by.map_err(failed)?);
                tables.push(table);
            }
            found.members.push((tid, table + 1));
        }
        Ok(found)
    }

    /// This process executes another program.
    pub(super) fn executes(&mut self, pid: i32) {
        self.executed.push(pid);
    }

    /// Whether all threads of this process share one table.
    pub(super) fn is_one(&self, process: &Process) -> bool {
        self.by.iter().all(|by| by.pid() != process.pid())
    }

    /// The threads that do not have the first table, and the table of each.
    pub(super) fn members(&self) -> &[(Tid, usize)] {
        &self.members
    }

    /// The process by a thread of each table; `first` has the first one.
    pub(super) fn all<'a>(&'a self, first: &'a Process) -> impl Iterator<Item = &'a Process> {
        std::iter::once(first).chain(&self.by)
    }

    /// The process by a thread that has the descriptor, and its number there.
    pub(super) fn at<'a>(&'a self, first: &'a Process, number: i32) -> (&'a Process, i32) {
        let (table, fd) = split(number);
        (table.checked_sub(1).map_or(first, |table| &self.by[table]), fd)
    }

    /// A duplicate of a descriptor.
    pub(super) fn duplicate(&self, first: &Process, number: i32) -> io::Result<OwnedFd> {
        let (process, fd) = self.at(first, number);
        process.duplicate_fd(fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_earlier_builds_are_understood() {
        for (table, fd) in [(0, 7), (1, 0), (127, (1 << FD_BITS) - 1)] {
            let earlier = table << 24 | fd;
            let now = of_earlier_builds(earlier).unwrap();
            assert_eq!(split(now), (table as usize, fd));
        }
        assert_eq!(of_earlier_builds(1 << FD_BITS), None, "a descriptor that high");
        assert_eq!(of_earlier_builds(-1), None);
        assert_eq!(
            split(number(MOST, (1 << FD_BITS) - 1)),
            (MOST, (1 << FD_BITS) - 1)
        );
    }
}
