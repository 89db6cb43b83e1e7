//! Requests to both memories, in groups: what a group was for happens when its last request is done.
//!
//! * A group is known by its number until it is done; then the number is used again.
//! * What happens at one time happens in the order in which it became known.
//! * The end of a request without a group is not told.

use super::Controller;
use super::nvm::Entry;
use crate::device::{Class, Kind, UNTOLD};
use crate::slab::Slab;
use std::collections::VecDeque;

/// What a line came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The DRAM cache.
    Dram,
    /// NVM: the page was not cached.
    Nvm,
}

/// A line that was asked for is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// What the asker called it.
    pub token: u32,
    /// When.
    pub at: u64,
    /// From where.
    pub source: Source,
}

/// What a finished group of requests was for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Completion {
    Line(u32),
    FillHead(u32),
    FillRest(u32),
    Stream(u64, Entry),
    Call(u32, Entry),
    Flush,
    #[default]
    Nothing,
}

#[derive(Clone, Copy, Debug, Default)]
struct Group {
    left: u32,
    latest: u64,
    part: Completion,
}

/// The group of requests that are not waited for.
const NO_GROUP: u32 = u32::MAX;

/// All groups that are not done, and when those that are known to be done are.
#[derive(Debug, Default)]
pub(super) struct Groups {
    all: Slab<Group>,
    /// When, and which: by time, and of one time in the order in which it became known. Few are known, and most of them
    /// in their order.
    done: VecDeque<(u64, u32)>,
}

impl Groups {
    /// A new group, without requests yet.
    pub(super) fn begin(&mut self, part: Completion) -> u32 {
        if matches!(part, Completion::Nothing) {
            return NO_GROUP;
        }
        let group = self.all.take();
        self.all[group] = Group {
            left: 0,
            latest: 0,
            part,
        };
        group
    }

    /// So many requests more are asked for the group.
    fn add(&mut self, group: u32, requests: u32) {
        if group != NO_GROUP {
            self.all[group].left += requests;
        }
    }

    /// Whether nothing was asked for the group.
    pub(super) fn is_empty(&self, group: u32) -> bool {
        self.all[group].left == 0
    }

    /// The group will be done at a time.
    #[inline]
    pub(super) fn schedule(&mut self, group: u32, at: u64) {
        let later = self
            .done
            .iter()
            .rev()
            .take_while(|&&(other, _)| other > at)
            .count();
        match self.done.len() - later {
            place if later > 0 => self.done.insert(place, (at, group)),
            _ => self.done.push_back((at, group)),
        }
    }

    /// A request is done: its group is when it was the last.
    #[inline]
    fn note(&mut self, number: u32, at: u64) {
        let group = &mut self.all[number];
        group.left -= 1;
        group.latest = group.latest.max(at);
        if group.left == 0 {
            let latest = group.latest;
            self.schedule(number, latest);
        }
    }

    /// When the next group is done; `u64::MAX` if of none it is known.
    #[inline]
    pub(super) fn next_done(&self) -> u64 {
        self.done.front().map_or(u64::MAX, |&(at, _)| at)
    }

    /// The next group that is done: what it was for.
    #[inline]
    pub(super) fn take_done(&mut self) -> Option<Completion> {
        let (_, group) = self.done.pop_front()?;
        self.all.give_back(group);
        Some(self.all[group].part)
    }
}

impl Controller {
    /// Requests that `part` waits for, to DRAM.
    pub(super) fn push_dram(
        &mut self,
        part: Completion,
        kind: Kind,
        class: Class,
        at: u64,
        lines: u64,
        time: u64,
    ) {
        let group = self.groups.begin(part);
        self.push_dram_for(group, kind, class, at, lines, time);
    }

    /// Requests that `part` waits for, to NVM.
    pub(super) fn push_nvm(
        &mut self,
        part: Completion,
        kind: Kind,
        class: Class,
        at: u64,
        lines: u64,
        time: u64,
    ) {
        let group = self.groups.begin(part);
        let requests = self.nvm_device.push(name(group), kind, class, at, lines, time);
        self.groups.add(group, requests);
    }

    /// One more request of a group, to DRAM.
    pub(super) fn push_dram_for(
        &mut self,
        group: u32,
        kind: Kind,
        class: Class,
        at: u64,
        lines: u64,
        time: u64,
    ) {
        let requests = self.dram.push(name(group), kind, class, at, lines, time);
        self.groups.add(group, requests);
    }

    /// A read of pieces, each that many lines from an address, for a group, to NVM.
    pub(super) fn read_nvm_for(&mut self, group: u32, pieces: &[(u64, u64)], time: u64) {
        let requests = self
            .nvm_device
            .push_sweep(name(group), Class::Demand, pieces, time);
        self.groups.add(group, requests);
    }

    /// Has `part` happen at a time.
    pub(super) fn later(&mut self, part: Completion, at: u64) {
        let group = self.groups.begin(part);
        self.groups.schedule(group, at);
    }

    /// DRAM works up to a time.
    pub(super) fn work_dram(&mut self, until: u64) {
        let Controller { dram, groups, .. } = self;
        dram.run_until(until, |name, at| groups.note(name as u32, at));
    }

    /// NVM works up to a time.
    pub(super) fn work_nvm(&mut self, until: u64) {
        let Controller {
            nvm_device, groups, ..
        } = self;
        nvm_device.run_until(until, |name, at| groups.note(name as u32, at));
    }
}

/// What a group's requests are called.
fn name(group: u32) -> u64 {
    match group {
        NO_GROUP => UNTOLD,
        group => group.into(),
    }
}
