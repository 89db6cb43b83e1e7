//! Tables of descriptors beside the first, whose descriptors are made in the first one ([`super::tables`]).

use crate::context::Context;
use crate::descriptors::tables::split;
use crate::descriptors::{Descriptor, Held};
use crate::error::{Error, Result};
use std::borrow::Cow;
use std::collections::HashMap;
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
    pub(super) fn places(&self) -> Vec<(i32, i32, bool)> {
        let places = self.descriptors.iter();
        places
            .map(|(made_at, own)| (*made_at, own.fd, own.cloexec))
            .collect()
    }
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
