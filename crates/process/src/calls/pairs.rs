//! Calls on socket pairs of the program and its descendants. What a look into a socket would not see is refused when it
//! is sent; the rest of what a program does with them runs freely.

use super::replies::heads;
use super::{Decision, Stopped, do_without, fail};
use crate::error::{Error, Result};
use crate::message::Head;
use crate::netlink::{self, is_netlink};
use crate::pairs::{self, OPTIONS};
use crate::program::Program;
use crate::sockets::{Protocol, Replies, protocol};
use crate::unix_sockets::{is_unix, leads_outside};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use twinpage_os::inject::{self, Call, ROOM};

/// `struct msghdr`, sendmsg(2).
struct Message {
    named: bool,
    bytes: Option<u64>,
    accompanied: bool,
}

impl Program {
    /// Makes the pair on the program's behalf: it is known then which sockets belong together, also where the kernel does
    /// not tell (CONFIG_UNIX_DIAG).
    pub(super) fn before_socketpair(&mut self, call: &Stopped) -> Result<Decision> {
        if call.int(0) != libc::AF_UNIX {
            return Ok(fail(
                libc::EOPNOTSUPP,
                "only pairs of Unix sockets are captured (AF_UNIX)",
            ));
        }
        let [domain, kind, protocol, to, ..] = call.arguments;
        let make = |source| Error::target("cannot make a socket pair", source);
        self.descriptors.give(0);
        self.descriptors.give(0);
        let mut socketpair = [Call::new(libc::SYS_socketpair, &[domain, kind, protocol, ROOM])];
        inject::run(&self.process, call.tid, &mut socketpair).map_err(make)?;
        if let Err(error) = socketpair[0].result() {
            return Ok(Decision::Done(-i64::from(
                error.raw_os_error().unwrap_or(libc::EINVAL),
            )));
        }
        let both = self.process.read_u64(ROOM).map_err(make)?;
        let (one, other) = (both & 0xffff_ffff, both >> 32);
        if self.process.write(to, &both.to_le_bytes()).is_err() {
            let mut close = [one, other].map(|fd| Call::new(libc::SYS_close, &[fd]));
            inject::run(&self.process, call.tid, &mut close).map_err(make)?;
            return Ok(Decision::Done(-i64::from(libc::EFAULT)));
        }
        let inode = |fd| {
            let ours = self.process.duplicate_fd(fd as i32)?;
            Ok::<_, std::io::Error>(rustix::fs::fstat(ours)?.st_ino)
        };
        // Another thread may have closed what it cannot know of yet; then there is nothing to keep.
        if let (Ok(one), Ok(other)) = (inode(one), inode(other)) {
            self.descriptors.pairs.know(one, other);
        }
        Ok(Decision::Done(0))
    }

    pub(super) fn before_send(&mut self, call: &Stopped) -> Decision {
        if call.sends_plain_bytes() && self.caller.is_none() && self.goes_freely(call.int(0)) {
            return Decision::Run;
        }
        if let Some(decision) = self.before_next_reply(call) {
            return decision;
        }
        let Ok(ours) = self.caller().duplicate_fd(call.int(0)) else {
            return Decision::Run; // the kernel will refuse it
        };
        let inode = rustix::fs::fstat(&ours).map(|stat| stat.st_ino).ok();
        let Some(sender) = inode.and_then(|inode| self.sender(ours.as_fd(), inode)) else {
            return Decision::Run; // no socket: the same
        };
        if let Some(protocol) = sender.protocol {
            if protocol == Protocol::Udp && self.caller.is_none() {
                self.descriptors.touch_open_file_of(&self.process, call.int(0)); // perhaps it gets its address now
            }
            if protocol == Protocol::Tcp
                && let Some(refused) = self.refuse_to_stream(call, &ours, sender.inode)
            {
                return refused;
            }
            if protocol == Protocol::Udp && self.sockets.replies == Replies::Refused {
                return fail(libc::EACCES, crate::syscalls::OUTSIDE); // it has no address, so the call has one
            }
            return match self.is_held(call, ours.as_fd(), sender) {
                true => self.before_reply(call, ours, sender),
                false => Decision::Run,
            };
        }
        if is_netlink(ours.as_fd()) {
            return self.before_question(call);
        }
        if let Some(refused) = self.refuse_to_send(call, &ours) {
            return refused;
        }
        match self.is_held(call, ours.as_fd(), sender) {
            true => self.before_reply(call, ours, sender),
            false => Decision::Run,
        }
    }

    /// The kernel is asked for addresses or interfaces; what would change them is refused. See rtnetlink(7).
    pub(super) fn before_question(&mut self, call: &Stopped) -> Decision {
        self.touch_netlink(call); // perhaps it gets its address now
        let a = call.arguments;
        let messages: io::Result<Vec<Option<Vec<u8>>>> = match call.name {
            "sendto" | "write" => self.gathered([(a[1], a[2])]).map(|message| vec![message]),
            "writev" | "pwritev2" => self.in_vector(a[1], a[2]).map(|message| vec![message]),
            "sendmsg" => self.in_message(a[1]).map(|message| vec![message]),
            "sendmmsg" => heads(call).map(|head| self.in_message(head)).collect(),
            _ => Ok(vec![None]), // of a file or a pipe
        };
        match messages {
            Ok(messages) if messages.iter().all(|one| one.as_deref().is_some_and(asks)) => Decision::Run,
            Ok(_) => fail(
                libc::EPERM,
                "a change of the machine's network cannot be taken back",
            ),
            Err(_) => Decision::Run, // the kernel will refuse it
        }
    }

    fn in_message(&self, at: u64) -> io::Result<Option<Vec<u8>>> {
        let head = Head::read(self.caller(), at)?;
        self.in_vector(head.buffers, head.count)
    }

    fn in_vector(&self, at: u64, count: u64) -> io::Result<Option<Vec<u8>>> {
        let count = count.min(MOST_BUFFERS); // the kernel refuses more
        let words = (0..2 * count).map(|index| self.caller().read_u64(at + index * 8));
        let words = words.collect::<io::Result<Vec<u64>>>()?;
        self.gathered(words.chunks_exact(2).map(|buffer| (buffer[0], buffer[1])))
    }

    /// What is in buffers, one after the other; `None` of more than questions are.
    fn gathered(&self, buffers: impl IntoIterator<Item = (u64, u64)>) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        for (at, length) in buffers {
            let before = bytes.len();
            if length > MOST_QUESTION_BYTES - before as u64 {
                return Ok(None);
            }
            bytes.resize(before + length as usize, 0);
            self.caller().read(at, &mut bytes[before..])?;
        }
        Ok(Some(bytes))
    }

    /// What a look into a TCP connection within the tree would not see, and a connection made by sending.
    fn refuse_to_stream(&mut self, call: &Stopped, ours: &OwnedFd, inode: u64) -> Option<Decision> {
        let flags = call.send_flags();
        if flags & libc::MSG_FASTOPEN != 0 && self.sockets.replies == Replies::Refused {
            return Some(do_without(
                libc::EOPNOTSUPP,
                "bytes that go out with a connection (MSG_FASTOPEN) are refused with --replies none; most programs connect first by themselves",
            ));
        }
        let is_urgent = flags & libc::MSG_OOB != 0;
        (is_urgent && self.is_within(ours.as_fd(), inode)).then(out_of_band)
    }

    /// What a look into a socket of the tree would not see, or would not find inside.
    fn refuse_to_send(&mut self, call: &Stopped, ours: &OwnedFd) -> Option<Decision> {
        let kind = pairs::kind(ours.as_fd()).ok()?; // of no socket: the kernel will refuse it
        if !self.is_captured(ours) {
            return None;
        }
        let a = call.arguments;
        let messages = match call.name {
            "sendto" => vec![Message {
                named: a[4] != 0,
                bytes: Some(a[2]),
                accompanied: false,
            }],
            "sendmsg" => self.message(a[1]).into_iter().collect(),
            _ => heads(call).map_while(|head| self.message(head)).collect(),
        };
        if call.send_flags() & libc::MSG_OOB != 0 {
            return Some(out_of_band());
        }
        for message in messages {
            if message.accompanied && (self.caller.is_some() || self.descendants.any_lives()) {
                self.descriptors.expect_sent(); // until they have arrived, checkpoints wait
            } else if message.accompanied {
                return Some(fail(
                    libc::EINVAL,
                    "descriptors and credentials sent along with a message are not captured; share them within the program",
                ));
            }
            let refused = self.sockets.replies == Replies::Refused;
            if message.named && kind == libc::SOCK_DGRAM && refused {
                return Some(fail(libc::EACCES, crate::syscalls::OUTSIDE));
            }
            if message.bytes == Some(0) && kind != libc::SOCK_STREAM {
                return Some(empty_message());
            }
        }
        None
    }

    /// Whether a socket is captured, if at all: while a descendant has one of another family, no checkpoint is made.
    fn is_captured(&self, ours: &OwnedFd) -> bool {
        self.caller.is_none() || is_unix(ours.as_fd()) || protocol(ours.as_fd()).is_some()
    }

    fn message(&self, at: u64) -> Option<Message> {
        let head = Head::read(self.caller(), at).ok()?;
        Some(Message {
            named: head.name != 0 && head.name_bytes() != 0,
            bytes: self.listed_bytes(head.buffers, head.count),
            accompanied: head.is_accompanied(),
        })
    }

    /// Whether a write of nothing would send an empty message, which cannot be captured.
    pub(super) fn sends_empty_message(&self, fd: &OwnedFd, bytes: u64) -> bool {
        let is_message = bytes == 0 && pairs::kind(fd.as_fd()).is_ok_and(|kind| kind != libc::SOCK_STREAM);
        is_message && self.is_captured(fd)
    }

    pub(super) fn before_socket_change(&mut self, call: &Stopped) -> Decision {
        let Ok(ours) = self.caller().duplicate_fd(call.int(0)) else {
            return Decision::Run; // the kernel will refuse it
        };
        let Ok(kind) = pairs::kind(ours.as_fd()) else {
            return Decision::Run; // the same
        };
        if call.name == "shutdown" {
            let may_wait = self.sockets.holds().is_some() && leads_outside(ours.as_fd());
            if protocol(ours.as_fd()).is_some() || may_wait {
                return self.before_half_close(call, ours);
            }
            let sends_only = call.int(1) == libc::SHUT_WR && kind == libc::SOCK_DGRAM;
            let is_open_for_both = pairs::state(&ours).is_ok_and(|state| state.is_empty());
            if sends_only && is_open_for_both && self.is_captured(&ours) {
                return fail(
                    libc::EOPNOTSUPP,
                    "a datagram socket that sends no more and still receives is not captured; close it both ways, or not at all",
                );
            }
            return Decision::Run;
        }
        if !self.is_captured(&ours) {
            return Decision::Run;
        }
        if let Some(protocol) = protocol(ours.as_fd()) {
            return self.before_outside_option(call, &ours, protocol);
        }
        let [level, name] = [1, 2].map(|index| call.int(index));
        if is_netlink(ours.as_fd()) {
            self.touch_netlink(call);
            return match netlink::may_set(level, name) {
                true => Decision::Run,
                false => without_option(level, name),
            };
        }
        if level == libc::SOL_SOCKET && OPTIONS.contains(&name) {
            if self.caller.is_none() {
                self.descriptors.touch_file_of(&self.process, call.int(0));
            }
            return Decision::Run;
        }
        if level != libc::SOL_SOCKET && is_unix(ours.as_fd()) {
            return Decision::Run; // it has no others: the kernel will refuse it
        }
        match is_forced(level, name) {
            true => without_option(level, name),
            false => fail(libc::ENOPROTOOPT, no_option(level, name)),
        }
    }
}

/// An option that is not captured. Larger buffers than the system gives are refused as to a user without that right:
/// programs ask for ordinary ones then, and some end at any other error.
pub(super) fn without_option(level: i32, name: i32) -> Decision {
    let errno = match is_forced(level, name) {
        true => libc::EPERM,
        false => libc::ENOPROTOOPT,
    };
    do_without(errno, no_option(level, name))
}

fn is_forced(level: i32, name: i32) -> bool {
    level == libc::SOL_SOCKET && [libc::SO_SNDBUFFORCE, libc::SO_RCVBUFFORCE].contains(&name)
}

fn no_option(level: i32, name: i32) -> String {
    format!("socket option {name} of level {level} is not captured; the program can go on without it")
}

/// Buffers of a message, writev(2).
const MOST_BUFFERS: u64 = 1024;
const MOST_QUESTION_BYTES: u64 = 64 << 10;

/// Whether all that a message of netlink(7) has the kernel do is to answer: each may be several, one after the other.
fn asks(mut message: &[u8]) -> bool {
    const HEAD: usize = 16; // struct nlmsghdr: its length, its kind
    const LOWEST: u16 = 16; // what is below controls the exchange
    const GETS: u16 = 2; // of each four kinds
    while let Some(head) = message.first_chunk::<HEAD>() {
        let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let kind = u16::from_ne_bytes([head[4], head[5]]);
        if kind >= LOWEST && kind & 3 != GETS {
            return false;
        }
        // The kernel takes no more after one that is cut off.
        message = message
            .get(length.max(HEAD).next_multiple_of(4)..)
            .unwrap_or_default();
    }
    true
}

fn out_of_band() -> Decision {
    fail(
        libc::EOPNOTSUPP,
        "out-of-band bytes are not captured; send them as others",
    )
}

pub(super) fn empty_message() -> Decision {
    fail(
        libc::EINVAL,
        "an empty message cannot be seen in a socket, and so not captured; send at least a byte",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_found_behind_questions() {
        let message = |kind: u16, length: u32| {
            let mut bytes = vec![0; 20];
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes
        };
        let [asks_links, makes_address, ends] = [libc::RTM_GETLINK, libc::RTM_NEWADDR, 3];
        let both = |first: (u16, u32), second: u16| [message(first.0, first.1), message(second, 20)].concat();
        assert!(asks(&message(asks_links, 20)) && asks(&message(ends, 20)) && asks(&[]));
        assert!(asks(&both((asks_links, 20), asks_links)));
        assert!(!asks(&message(makes_address, 20)) && !asks(&message(makes_address, 0)));
        assert!(!asks(&both((asks_links, 20), makes_address)));
        assert!(
            !asks(&both((asks_links, 17), makes_address)),
            "lengths are rounded up"
        );
        assert!(asks(&both((asks_links, 4000), makes_address)), "that is cut off");
    }
}
