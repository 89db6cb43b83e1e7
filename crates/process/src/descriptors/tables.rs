//! Tables of descriptors: every process has one, and a thread may leave the one it shared (close_range(2),
//! `CLOSE_RANGE_UNSHARE`).
//!
//! * Table 0 is the one of the thread by which the program is looked at; that is the main thread while it lives.
//! * One number names a table and a descriptor in it, so that lists, sharing and locks know no tables.
//! * While there are several, the effect of no call is foretold: all descriptors are looked at again at every stop.

use crate::error::{Error, Result};
use std::io;
use std::os::fd::OwnedFd;
use twinpage_os::remote::{self, Process};
use twinpage_os::trace::Tid;

/// Bits of a number that are the descriptor's own: more than fs.nr_open allows by default.
const FD_BITS: u32 = 24;
/// Tables beside the first.
const MOST: usize = (i32::MAX >> FD_BITS) as usize;

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

/// The tables beside the first.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// The process by a thread of each.
    by: Vec<Process>,
    /// Their threads, and the table of each.
    members: Vec<(Tid, usize)>,
}

impl Tables {
    /// Finds the tables of the `threads`, each with its process, which stand still.
    pub(super) fn of(process: &Process, threads: &[(i32, Tid)]) -> Result<Tables> {
        let failed = |source| Error::target("cannot look at a thread's descriptors", source);
        let mut found = Tables::default();
        for &(pid, tid) in threads {
            let shares = |other: Tid| remote::share_descriptors(tid, other).map_err(failed);
            if shares(process.thread())? {
                continue;
            }
            let mut table = 0;
            while table < found.by.len() && !shares(found.by[table].thread())? {
                table += 1;
            }
            if table == MOST {
                return Err(Error::Unsupported(format!(
                    "more than {MOST} processes, or threads with descriptors of their own (CLOSE_RANGE_UNSHARE), beside the program's are not captured"
                )));
            }
            if table == found.by.len() {
                found.by.push(Process::open_by(pid, tid).map_err(failed)?);
            }
            found.members.push((tid, table + 1));
        }
        Ok(found)
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
