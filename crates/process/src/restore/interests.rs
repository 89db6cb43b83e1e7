//! What poll descriptors wait for: epoll(7).

use super::With;
use super::apart::Table;
use super::files::Sources;
use super::in_process::{run, write};
use crate::context::Context;
use crate::descriptors::countdowns::Countdown;
use crate::descriptors::polls::Interest;
use crate::descriptors::{Descriptor, DescriptorKind, Held};
use crate::error::Result;
use std::collections::BTreeSet;
use twinpage_os::inject::{Call, ROOM};
use twinpage_os::remote::Process;

/// The inodes of the ends of pairs that the program has.
fn ends(context: &Context) -> BTreeSet<u64> {
    let descriptors = context.fixed.descriptors.iter();
    let ends = descriptors.filter_map(|descriptor| match &descriptor.kind {
        DescriptorKind::Pair(end) => Some(end.inode),
        _ => None,
    });
    ends.collect()
}

/// Whether a connection ends at the resume.
fn is_reset(descriptor: &Descriptor, held: &Held, ends: &BTreeSet<u64>) -> bool {
    match (&descriptor.kind, held) {
        (DescriptorKind::Connection(_), Held::Within(end)) => end.peer == 0,
        (DescriptorKind::Connection(_), _) => true,
        (DescriptorKind::Pair(end), _) => end.kind != libc::SOCK_DGRAM && !ends.contains(&end.peer),
        _ => false,
    }
}

/// Whether it was not ready, and may be since it was made again: by others, or by its time.
fn awaits_anew(descriptor: &Descriptor, held: &Held) -> bool {
    match (&descriptor.kind, held) {
        (DescriptorKind::Datagrams { .. } | DescriptorKind::Unix(_), Held::Messages(waiting)) => {
            waiting.is_empty()
        }
        (DescriptorKind::Unix(named), _) => named.backlog.is_some(),
        (DescriptorKind::Timer { .. }, _) => Countdown::of(held).is_some_and(|timer| timer.has_no_ticks()),
        (DescriptorKind::Listener { .. } | DescriptorKind::Inotify, _) => true,
        _ => false,
    }
}

/// What each poll descriptor of this process waits for, while the descriptors of all are side by side in it: an entry
/// for a signal descriptor is woken by the signals of who made it. Entries whose edge was told come first, and what is
/// ready of them is taken: so it is not told again. So do those that are off, which the kernel adds with errors and ends
/// of connections on.
pub(super) fn set_interests(process: &Process, with: &With<'_>) -> Result<()> {
    let (context, sources) = (with.tree, with.sources);
    for (descriptor, held) in context.fixed.descriptors.iter().zip(&context.live.held) {
        let interests: Vec<Interest> = match (&descriptor.kind, held) {
            (DescriptorKind::Poll, Held::Watched(interests)) => interests.clone(),
            (DescriptorKind::Poll, Held::Interests(interests)) => {
                interests.iter().map(as_in_version1).collect()
            }
            _ => continue,
        };
        if descriptor.shares != descriptor.fd || process_of(descriptor.fd, with) != process.pid() {
            continue;
        }
        // That a connection was reset is to be told, whatever was told of it before, and so is who connects already.
        let ends = ends(context);
        let is_told_anew = |target: i32| {
            let mut all = context.fixed.descriptors.iter().zip(&context.live.held);
            all.any(|(descriptor, held)| {
                descriptor.fd == target
                    && (is_reset(descriptor, held, &ends) || awaits_anew(descriptor, held))
            })
        };
        let (taken, others): (Vec<_>, Vec<_>) = (interests.iter())
            .partition(|interest| interest.is_off() || interest.taken && !is_told_anew(interest.target));
        for interest in &taken {
            add_interest(process, context, sources, descriptor.fd, interest)?;
        }
        let room = taken.len().min(1024) as u64;
        let wait = Call::new(libc::SYS_epoll_wait, &[descriptor.fd as u64, ROOM, room, 0]);
        loop {
            let mut take = [wait];
            if taken.is_empty() {
                break;
            }
            run(process, &mut take, "take edges that were told")?;
            if take[0].result().unwrap_or(0) == 0 {
                break;
            }
        }
        for interest in others {
            add_interest(process, context, sources, descriptor.fd, interest)?;
        }
    }
    Ok(())
}

/// The process that has a descriptor, by the number that it is made at.
fn process_of(made_at: i32, with: &With<'_>) -> i32 {
    let mut tables = with.apart.iter();
    let table = tables.find(|table| table.made_at().any(|number| number == made_at));
    table.map_or(with.tree.fixed.pid, Table::pid)
}

fn as_in_version1(&(fd, events, data): &(i32, u32, u64)) -> Interest {
    Interest {
        fd,
        events,
        data,
        target: fd,
        taken: false,
    }
}

/// Adds one entry. One whose number is closed now, or another file's, is made while the number is lent to its
/// file.
fn add_interest(
    process: &Process,
    context: &Context,
    sources: &Sources,
    poll: i32,
    interest: &Interest,
) -> Result<()> {
    const WHAT: &str = "set what a poll descriptor waits for";
    let (number, target) = (interest.fd as u64, interest.target as u64);
    let add = [poll as u64, libc::EPOLL_CTL_ADD as u64, number, ROOM];
    let add = Call::new(libc::SYS_epoll_ctl, &add);
    let lend = Call::new(libc::SYS_dup3, &[target, number, 0]);
    if number == target {
        write(process, ROOM, &interest.event())?;
        return run(process, &mut [add], WHAT);
    }
    let holder = context
        .fixed
        .descriptors
        .iter()
        .find(|descriptor| descriptor.fd == interest.fd);
    let mut kept = [Call::new(
        libc::SYS_fcntl,
        &[number, libc::F_DUPFD_CLOEXEC as u64, sources.base() as u64],
    )];
    let after = match holder {
        None => vec![Call::new(libc::SYS_close, &[number])],
        Some(holder) => {
            run(process, &mut kept, WHAT)?;
            let kept = kept[0].result().unwrap_or_default();
            let cloexec = if holder.cloexec { libc::O_CLOEXEC } else { 0 };
            vec![
                Call::new(libc::SYS_dup3, &[kept, number, cloexec as u64]),
                Call::new(libc::SYS_close, &[kept]),
            ]
        }
    };
    write(process, ROOM, &interest.event())?;
    let mut calls = [vec![lend, add], after].concat();
    run(process, &mut calls, WHAT)
}
