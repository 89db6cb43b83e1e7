//! Socket pairs, made again by the new process itself, so that its peer credentials are its own: unix(7).
//!
//! 1. Both ends are made at numbers above the program's, also of a pair of which one end is closed.
//! 2. What waited is sent again, with all the room there may be, while both ends are open for everything.
//! 3. Half-closes, then options, then the closed ends are closed.
//! 4. Every descriptor gets its place.

use super::in_process::run;
use crate::context::Context;
use crate::descriptors::{Descriptor, DescriptorKind, Held};
use crate::error::{Error, Result};
use crate::pairs::{End, OPTIONS, Pairs, Queue};
use rustix::fs::OFlags;
use std::os::fd::{AsFd, OwnedFd};
use twinpage_os::inject::{self, Call, ROOM};
use twinpage_os::remote::Process;
use twinpage_os::socket;

/// An end made again: its number in the new process, and ours of it.
struct Fresh {
    number: u64,
    ours: OwnedFd,
}

/// Makes all pairs that the program had. The numbers from `base` on are free.
pub(super) fn make(process: &Process, context: &Context, base: i32) -> Result<Pairs> {
    let mut pairs = Pairs::default();
    let all = context.fixed.descriptors.iter().zip(&context.live.held);
    let ends: Vec<(&Descriptor, &End, &Queue)> = all
        .filter_map(|(descriptor, held)| match (&descriptor.kind, held) {
            (DescriptorKind::Pair(end), Held::Queue(queue)) => Some((descriptor, end, queue)),
            _ => None,
        })
        .collect();
    for &(descriptor, end, queue) in &ends {
        let other = ends.iter().find(|(_, other, _)| other.inode == end.peer);
        match other {
            // The one that is listed first makes both.
            Some((other, ..)) if other.fd < descriptor.fd => continue,
            _ => {}
        }
        let failed =
            |source| Error::target(format!("cannot make socket pair {} again", descriptor.fd), source);
        let [one, two] = fresh(process, end.kind, base).map_err(failed)?;
        pairs.know(
            inode(&one.ours).map_err(failed)?,
            inode(&two.ours).map_err(failed)?,
        );
        fill(&two, queue).map_err(failed)?;
        match other {
            Some((other, other_end, other_queue)) => {
                fill(&one, other_queue).map_err(failed)?;
                set_state(&one, descriptor, end, queue).map_err(failed)?;
                set_state(&two, other, other_end, other_queue).map_err(failed)?;
                place(process, context, other, &two)?;
            }
            None => {
                let had_peer = end.kind != libc::SOCK_DGRAM && !queue.receives_no_more;
                if queue.reset || had_peer {
                    // The peer was another program's: the connection is reset.
                    socket::send(one.ours.as_fd(), &[0]).map_err(failed)?; // unread when it is closed
                }
                let number = two.number;
                drop(two);
                run(
                    process,
                    &mut [Call::new(libc::SYS_close, &[number])],
                    "close a socket",
                )?;
                if queue.alone {
                    let _ = socket::send(one.ours.as_fd(), &[0]); // refused: from now on it has no peer
                }
                set_state(&one, descriptor, end, queue).map_err(failed)?;
            }
        }
        place(process, context, descriptor, &one)?;
    }
    Ok(pairs)
}

fn inode(fd: &OwnedFd) -> std::io::Result<u64> {
    Ok(rustix::fs::fstat(fd)?.st_ino)
}

fn fresh(process: &Process, kind: i32, base: i32) -> std::io::Result<[Fresh; 2]> {
    let leader = process.pid();
    let call = |number, arguments: &[u64]| inject::call(process, leader, number, arguments);
    let kind = (kind | libc::SOCK_CLOEXEC) as u64;
    call(libc::SYS_socketpair, &[libc::AF_UNIX as u64, kind, 0, ROOM])?;
    let both = process.read_u64(ROOM)?;
    let above = |low: u64| {
        let number = call(libc::SYS_fcntl, &[low, libc::F_DUPFD_CLOEXEC as u64, base as u64])?;
        call(libc::SYS_close, &[low])?;
        let ours = process.duplicate_fd(number as i32)?;
        Ok::<_, std::io::Error>(Fresh { number, ours })
    };
    Ok([above(both & 0xffff_ffff)?, above(both >> 32)?])
}

/// Sends again, through `other`, what waited at its peer.
fn fill(other: &Fresh, queue: &Queue) -> std::io::Result<()> {
    if queue.messages.is_empty() {
        return Ok(());
    }
    let sender = other.ours.as_fd();
    let before = socket::option(sender, libc::SO_SNDBUF)?;
    socket::set_option(sender, libc::SO_SNDBUF, &i32::MAX.to_ne_bytes())?; // as much as anybody may have
    for message in &queue.messages {
        let mut rest = &message[..];
        while !rest.is_empty() {
            let sent = socket::send(sender, rest)?;
            rest = &rest[sent..];
        }
    }
    set_buffer(sender, libc::SO_SNDBUF, &before)
}

/// The kernel doubles what it is told: socket(7).
fn set_buffer(fd: impl AsFd, name: i32, value: &[u8]) -> std::io::Result<()> {
    let bytes = value.first_chunk().copied().unwrap_or_default();
    socket::set_option(fd.as_fd(), name, &(i32::from_ne_bytes(bytes) / 2).to_ne_bytes())
}

/// Half-closes, options and flags: nothing more is sent through it here.
fn set_state(one: &Fresh, descriptor: &Descriptor, end: &End, queue: &Queue) -> std::io::Result<()> {
    let fd = one.ours.as_fd();
    if queue.receives_no_more {
        let both = queue.sends_no_more && end.kind == libc::SOCK_DGRAM;
        socket::shut(fd, if both { libc::SHUT_RDWR } else { libc::SHUT_RD })?;
    }
    for (name, value) in OPTIONS.iter().zip(&end.options) {
        if socket::option(fd, *name)? == *value {
            continue;
        }
        if [libc::SO_SNDBUF, libc::SO_RCVBUF].contains(name) {
            set_buffer(fd, *name, value)?;
        } else {
            socket::set_option(fd, *name, value)?;
        }
    }
    let flags = OFlags::from_bits_retain(descriptor.flags) & OFlags::NONBLOCK;
    Ok(rustix::fs::fcntl_setfl(fd, flags)?)
}

/// Puts an end at the numbers of all descriptors that share it.
fn place(process: &Process, context: &Context, owner: &Descriptor, fresh: &Fresh) -> Result<()> {
    let sharing = context
        .fixed
        .descriptors
        .iter()
        .filter(|other| other.shares == owner.fd);
    let mut calls: Vec<Call> = sharing
        .map(|descriptor| {
            let flags = if descriptor.cloexec { libc::O_CLOEXEC } else { 0 };
            Call::new(
                libc::SYS_dup3,
                &[fresh.number, descriptor.fd as u64, flags as u64],
            )
        })
        .collect();
    run(process, &mut calls, "place a socket")
}
