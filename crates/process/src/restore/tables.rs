//! Descendants, and threads with descriptors of their own, get them again.
//!
//! 1. The descriptors of all tables are made in one, side by side: those of other tables at numbers that no table has.
//!    Descendants inherit them.
//! 2. A thread of each other table leaves with a copy, puts its own in place, and makes the other threads of its table.
//! 3. The first table loses what is not its own. Only then are files locked: closing any descriptor of a file drops
//!    the locks that its table holds on it.

use super::files::gaps;
use super::threads::{make_thread, run_in};
use crate::context::Context;
use crate::descriptors::tables::split;
use crate::descriptors::{Descriptor, Held};
use crate::error::{Error, Result};
use std::borrow::Cow;
use std::collections::HashMap;
use twinpage_os::inject::Call;
use twinpage_os::remote::Process;
use twinpage_os::trace::Tid;

/// A table beside the first.
#[derive(Debug)]
pub struct Table {
    /// Its process.
    pid: i32,
    /// Its threads.
    threads: Vec<Tid>,
    /// Its descriptors by the number in it, each with the number that it is made at.
    descriptors: Vec<(i32, Descriptor)>,
}

/// The context as it is with all descriptors in one table, and the tables beside the first.
#[must_use]
pub fn side_by_side(context: &Context) -> (Cow<'_, Context>, Vec<Table>) {
    let all = &context.fixed.descriptors;
    let count = (context.fixed.apart.iter()).map(|(_, table)| *table).max();
    let Some(count) = count else {
        return (Cow::Borrowed(context), Vec::new());
    };
    let process_of = |tid: Tid| {
        let mut members = context.members.iter();
        let member = members.find(|member| member.threads.iter().any(|thread| thread.tid == tid));
        member.unwrap_or(context).fixed.pid
    };
    let table = |table| {
        let threads = context.fixed.apart.iter().filter(|(_, of)| *of == table);
        let mut threads: Vec<Tid> = threads.map(|(tid, _)| *tid).collect();
        let pid = threads
            .first()
            .map_or(context.fixed.pid, |first| process_of(*first));
        // The main thread is there already. Threads made after a resume may have lower ids than it.
        threads.sort_by_key(|tid| *tid != pid);
        Table {
            pid,
            threads,
            descriptors: Vec::new(),
        }
    };
    let mut tables: Vec<Table> = (1..=count).map(table).collect();
    let free = all.iter().map(|descriptor| split(descriptor.fd).1 + 1).max();
    let mut made_at = HashMap::new();
    for descriptor in all {
        let (table, fd) = split(descriptor.fd);
        let at = match table {
            0 => fd,
            _ => free.unwrap_or(0) + made_at.len() as i32,
        };
        made_at.insert(descriptor.fd, at);
        if let Some(table) = table.checked_sub(1).and_then(|table| tables.get_mut(table)) {
            let own = Descriptor {
                fd,
                ..descriptor.clone()
            };
            table.descriptors.push((at, own));
        }
    }
    let mut context = context.clone();
    let at = |number: i32| made_at.get(&number).copied().unwrap_or(number);
    for descriptor in &mut context.fixed.descriptors {
        (descriptor.fd, descriptor.shares) = (at(descriptor.fd), at(descriptor.shares));
    }
    for held in &mut context.live.held {
        if let Held::Watched(interests) = held {
            let targets = interests.iter_mut().map(|interest| &mut interest.target);
            targets.for_each(|target| *target = at(*target));
        }
    }
    (Cow::Owned(context), tables)
}

/// Gives each table of a process its threads and descriptors. Returns the threads that were made.
pub(super) fn part(process: &Process, tables: &[Table]) -> Result<Vec<Tid>> {
    let mut made = Vec::new();
    for table in tables.iter().filter(|table| table.is_of(process)) {
        let first = table.first()?;
        let mut calls = vec![Call::new(
            libc::SYS_close_range,
            &[
                u64::from(u32::MAX),
                u64::from(u32::MAX),
                u64::from(libc::CLOSE_RANGE_UNSHARE),
            ],
        )];
        let places = table.places();
        calls.extend(places.iter().map(|&(made_at, fd, cloexec)| {
            let flags = if cloexec { libc::O_CLOEXEC } else { 0 };
            Call::new(libc::SYS_dup3, &[made_at as u64, fd as u64, flags as u64])
        }));
        let gaps = gaps(&places, i32::MAX).into_iter();
        calls.extend(
            gaps.map(|(from, to)| Call::new(libc::SYS_close_range, &[u64::from(from), u64::from(to), 0])),
        );
        run_in(process, first, &mut calls)?;
        for tid in table.others() {
            make_thread(process, first, *tid)?;
            made.push(*tid);
        }
    }
    Ok(made)
}

/// Closes in the first table what is not its own.
pub(super) fn close_others(process: &Process, tables: &[Table]) -> Result<()> {
    let beside = tables.iter().flat_map(Table::made_at);
    let mut close: Vec<Call> = beside
        .map(|made_at| Call::new(libc::SYS_close, &[made_at as u64]))
        .collect();
    run_in(process, process.pid(), &mut close)
}

impl Table {
    /// The process that its threads are of.
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether its threads are of this process.
    pub(super) fn is_of(&self, process: &Process) -> bool {
        self.pid == process.pid()
    }

    /// The thread that leaves for it.
    pub(super) fn first(&self) -> Result<Tid> {
        let first = self.threads.first().copied();
        first.ok_or_else(|| Error::Damaged("context: descriptors of a thread that is not there".into()))
    }

    /// The threads that another makes.
    pub(super) fn others(&self) -> &[Tid] {
        self.threads.get(1..).unwrap_or_default()
    }

    /// Its descriptors, by the number in it.
    pub(super) fn own(&self) -> impl Iterator<Item = &Descriptor> {
        self.descriptors.iter().map(|(_, own)| own)
    }

    /// The numbers that its descriptors are made at.
    pub(super) fn made_at(&self) -> impl Iterator<Item = i32> {
        self.descriptors.iter().map(|(made_at, _)| *made_at)
    }

    /// (made at, number in it, close on exec), by number.
    fn places(&self) -> Vec<(i32, i32, bool)> {
        let places = self.descriptors.iter();
        places
            .map(|(made_at, own)| (*made_at, own.fd, own.cloexec))
            .collect()
    }
}
