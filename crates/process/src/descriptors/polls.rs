//! What poll descriptors wait for: epoll(7).
//!
//! * An entry belongs to a number and to the open file that the number was when the entry was made. The
//!   number may be closed since, or be another file; kcmp(2) tells which number is that file now.
//! * An edge that was told is not told again. Which edges are still to be told is found by taking them, on a
//!   duplicate of the descriptor while the program stands still, and giving them back.
//! * Whether a signalfd is ready depends on who asks: the kernel takes one off the list of what is ready when the tracer
//!   looks. Its entry is armed again by the program, and may be told once more.
//! * A poll descriptor is looked at in one of the processes that have it. Where no call can be made in that one, because
//!   it sleeps or a signal stopped it, edges that may still be to be told stay so.

use super::tables;
use super::{DescriptorKind, List};
use crate::error::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use twinpage_os::inject::{self, Call, ROOM};
use twinpage_os::remote::{self, Process};
use twinpage_os::trace::Tid;

/// One entry of a poll descriptor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Interest {
    /// The number it was made with.
    pub fd: i32,
    /// `EPOLL*` bits.
    pub events: u32,
    /// What comes with an event.
    pub data: u64,
    /// A number of the open file it belongs to.
    pub target: i32,
    /// Its edge, if there was one, was told (`EPOLLET`).
    pub taken: bool,
}

const EDGE: u32 = libc::EPOLLET as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;

impl Interest {
    /// The `struct epoll_event` of the entry, packed, and padding.
    #[must_use]
    pub fn event(&self) -> [u8; 16] {
        event(self.events, self.data)
    }

    /// Whether it was told once, and is to be told no more until it is set again.
    #[must_use]
    pub fn is_off(&self) -> bool {
        const PRIVATE: u32 = EDGE | ONCE | EXCLUSIVE | libc::EPOLLWAKEUP as u32;
        self.events & ONCE != 0 && self.events & !PRIVATE == 0
    }
}

/// A packed `struct epoll_event`, and padding.
#[must_use]
pub fn event(events: u32, data: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&events.to_le_bytes());
    bytes[4..12].copy_from_slice(&data.to_le_bytes());
    bytes
}

/// A poll descriptor.
pub(super) struct Poll<'a> {
    /// A process that has it open, accessed through a thread whose descriptors are in `table`.
    pub(super) process: &'a Process,
    /// Its number in that table.
    pub(super) fd: i32,
    /// The number of the table of descriptors.
    pub(super) table: usize,
    /// A thread of the process that stands still and may make calls.
    pub(super) tid: Option<Tid>,
}

/// The interests of a poll descriptor, cached with its lines in `/proc/PID/fdinfo`. The same lines mean the same interests
/// until one of its numbers is closed or reused.
#[derive(Clone, Debug)]
pub(super) struct Calm {
    pub(super) info: String,
    pub(super) watched: Vec<Interest>,
}

impl Calm {
    /// `None` where an edge may be told at any time.
    pub(super) fn of(info: String, watched: &[Interest]) -> Option<Calm> {
        (!has_edge(watched)).then(|| Calm {
            info,
            watched: watched.to_vec(),
        })
    }

    /// The numbers of the poll descriptor, which is `poll`, and of all that it waits for.
    pub(super) fn numbers(&self, poll: i32) -> impl Iterator<Item = i32> {
        let (table, _) = tables::split(poll);
        let waited = self.watched.iter();
        let waited = waited.flat_map(move |interest| [tables::number(table, interest.fd), interest.target]);
        std::iter::once(poll).chain(waited)
    }
}

/// What a poll descriptor waits for, by its lines in `/proc/PID/fdinfo`. `list` has all descriptors of the program by
/// number, of which `place` gives a thread and the number there.
///
/// # Errors
/// Names an entry whose file the program has no number of.
pub(super) fn held(
    at: &Poll<'_>,
    info: &str,
    list: &List,
    place: impl Fn(i32) -> (i32, i32),
) -> Result<Vec<Interest>> {
    let mut seen: HashMap<i32, u32> = HashMap::new();
    let mut interests = Vec::new();
    for (number, events, data) in info.lines().filter_map(entry) {
        let nth = seen.entry(number).or_default();
        if let Some(target) = target(at, number, *nth, list, &place)? {
            interests.push(Interest {
                fd: number,
                events,
                data,
                target,
                taken: false,
            });
        }
        *nth += 1;
    }
    if has_edge(&interests) {
        let tells_signals = |interest: &Interest| {
            let target = list.get(&interest.target).map(|descriptor| &descriptor.kind);
            matches!(target, Some(DescriptorKind::Signals { .. }))
        };
        look_at_edges(at, &mut interests, tells_signals)?;
    }
    Ok(interests)
}

fn has_edge(watched: &[Interest]) -> bool {
    watched.iter().any(|interest| interest.events & EDGE != 0)
}

/// `tfd: 5 events: 19 data: 7f... pos:0 ...`
fn entry(line: &str) -> Option<(i32, u32, u64)> {
    let mut words = line.strip_prefix("tfd:")?.split_whitespace();
    let number = words.next()?.parse().ok()?;
    let events = u32::from_str_radix(words.nth(1)?, 16).ok()?;
    let data = u64::from_str_radix(words.nth(1)?, 16).ok()?;
    Some((number, events, data))
}

/// A number of the open file that the `nth` entry made with `number` belongs to. `None`: the program has closed the file, and
/// only twinpage still has it open, to send a held reply.
fn target(
    at: &Poll<'_>,
    number: i32,
    nth: u32,
    list: &List,
    place: impl Fn(i32) -> (i32, i32),
) -> Result<Option<i32>> {
    let (thread, poll) = (at.process.thread(), at.fd);
    let own = tables::number(at.table, number);
    let others =
        (list.values()).filter(|descriptor| descriptor.fd != own && descriptor.shares == descriptor.fd);
    let is_of = |place| {
        remote::is_poll_target(place, thread, poll, number, nth)
            .map_err(|source| Error::target("cannot compare what a poll descriptor waits for", source))
    };
    for descriptor in list.get(&own).into_iter().chain(others) {
        if is_of(place(descriptor.fd))? {
            return Ok(Some(descriptor.fd));
        }
    }
    let this = std::process::id() as i32;
    for ours in tables::numbers(this)? {
        if is_of((this, ours))? {
            return Ok(None);
        }
    }
    Err(Error::Unsupported(format!(
        "descriptor {poll} waits for what descriptor {number} was when it was added, which the program has closed and another has open; remove it with EPOLL_CTL_DEL first"
    )))
}

/// Finds out which edges were told.
fn look_at_edges(
    at: &Poll<'_>,
    interests: &mut [Interest],
    tells_signals: impl Fn(&Interest) -> bool,
) -> Result<()> {
    // What is taken must be given back by its number, which for these cannot be done.
    let is_elsewhere = |interest: &Interest| interest.target != tables::number(at.table, interest.fd);
    let is_stuck =
        |interest: &Interest| at.tid.is_none() || interest.events & EXCLUSIVE != 0 || is_elsewhere(interest);
    let consumed = EDGE | ONCE;
    let any_stuck = (interests.iter())
        .any(|interest| is_stuck(interest) && (interest.events & consumed != 0 || tells_signals(interest)));
    if any_stuck && interests.iter().any(&tells_signals) {
        return Ok(()); // all may still be to be told
    }
    let look = |error: rustix::io::Errno| Error::target("cannot look at a poll descriptor", error.into());
    let ours = (at.process)
        .duplicate_fd(at.fd)
        .map_err(|source| Error::target("cannot look at a poll descriptor", source))?;
    let mut asked = [PollFd::new(&ours, PollFlags::IN)];
    let now = Timespec::default();
    let ready = rustix::io::retry_on_intr(|| poll(&mut asked, Some(&now))).map_err(look)? > 0;
    if ready && any_stuck {
        return Ok(()); // the same
    }
    let mut waiting = HashSet::new();
    if ready {
        let mut events = Vec::with_capacity(interests.len());
        rustix::io::retry_on_intr(|| {
            epoll::wait(&ours, rustix::buffer::spare_capacity(&mut events), Some(&now))
        })
        .map_err(look)?;
        waiting.extend(events.iter().map(|event| event.data.u64()));
    }
    let was_told = |interest: &Interest| interest.events & consumed != 0 && waiting.contains(&interest.data);
    if let Some(tid) = at.tid {
        let lost = interests
            .iter()
            .filter(|interest| was_told(interest) || tells_signals(interest));
        give_back(at, tid, &lost.collect::<Vec<_>>())?;
    }
    for interest in interests {
        let may_be_told = waiting.contains(&interest.data) || tells_signals(interest);
        interest.taken = interest.events & EDGE != 0 && !may_be_told;
    }
    Ok(())
}

/// Arms what a look has lost again: what is ready is told once more.
fn give_back(at: &Poll<'_>, tid: Tid, lost: &[&Interest]) -> Result<()> {
    let failed = |source| Error::target("cannot give an event back", source);
    for batch in lost.chunks(1024) {
        let events: Vec<u8> = batch.iter().flat_map(|interest| interest.event()).collect();
        at.process.write(ROOM, &events).map_err(failed)?;
        let modify = |(index, interest): (usize, &&Interest)| {
            let event = ROOM + index as u64 * 16;
            let modify = libc::EPOLL_CTL_MOD as u64;
            let arguments = [at.fd as u64, modify, interest.fd as u64, event];
            Call::new(libc::SYS_epoll_ctl, &arguments)
        };
        let mut calls: Vec<Call> = batch.iter().enumerate().map(modify).collect();
        inject::run(at.process, tid, &mut calls).map_err(failed)?;
        calls
            .iter()
            .try_for_each(|call| call.result().map(drop).map_err(failed))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_understood() {
        assert_eq!(
            entry("tfd:        5 events:       19 data:             7f05 pos:0 ino:61"),
            Some((5, 0x19, 0x7f05))
        );
    }

    #[test]
    fn an_entry_that_was_told_once_is_off() {
        let with = |events: u32| Interest {
            fd: 5,
            events,
            data: 0,
            target: 5,
            taken: false,
        };
        assert!(with(ONCE).is_off() && with(ONCE | EDGE).is_off());
        assert!(!with(ONCE | libc::EPOLLIN as u32).is_off());
        assert!(!with(0).is_off() && !with(EDGE).is_off(), "it waits for errors");
    }
}
