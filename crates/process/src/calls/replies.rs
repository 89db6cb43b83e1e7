//! Calls that send on sockets to the outside where replies are held, and calls that make something durable where they
//! are synced.
//!
//! * What a call sends is taken over while its thread stands still, and goes out when an epoch cut from now on is
//!   durable. The call is over for the program, which goes on.
//! * A call is taken over whole as soon as there is room for a byte: a program that waits for its socket to take more
//!   is told by the kernel, whose buffers are not full.
//! * Where the kernel will refuse a call itself, it is let run.

use super::within::Sender;
use super::{Decision, Stopped, do_without, fail};
use crate::message::{self, Head};
use crate::outbox::{Content, Outbox, Room, SOCKET_BYTES};
use crate::program::{Program, Until};
use crate::sockets::{self, Protocol, Replies};
use crate::unix_sockets;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use twinpage_os::remote::{Process, Remote};
use twinpage_os::socket;

/// Bytes of a struct mmsghdr, and where its count is.
const COUNTED_MESSAGE_BYTES: u64 = 64;
const COUNT_AT: u64 = 56;
const MOST_MESSAGES: u64 = 1024;
/// The most bytes the kernel moves in one call.
const MOST_BYTES: usize = 0x7fff_f000;

/// The longest message of UDP, and the longest address.
const MOST_UDP_BYTES: usize = 65_507;
const MOST_ADDRESS_BYTES: u64 = 128;

/// One message of a call.
struct Message {
    buffers: Vec<Remote>,
    /// The address it is for, as the kernel takes it; empty: the socket's peer.
    to: Vec<u8>,
    /// Something is sent along with it.
    accompanied: bool,
}

impl Message {
    fn len(&self) -> usize {
        message::len(&self.buffers)
    }
}

/// Where the messages of sendmmsg(2) begin.
pub(super) fn heads(call: &Stopped) -> impl Iterator<Item = u64> {
    let [_, first, count, ..] = call.arguments;
    let count = (count & 0xffff_ffff).min(MOST_MESSAGES);
    (0..count).map(move |index| first + index * COUNTED_MESSAGE_BYTES)
}

/// The longest message that the kernel takes: of a Unix socket, what fits its buffer.
fn most_message_bytes(fd: BorrowedFd<'_>, protocol: Option<Protocol>) -> usize {
    const OVERHEAD: usize = 32;
    if protocol == Some(Protocol::Udp) {
        return MOST_UDP_BYTES;
    }
    let buffer = socket::option(fd, libc::SO_SNDBUF).unwrap_or_default();
    let bytes = buffer.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    (bytes as usize).saturating_sub(OVERHEAD)
}

impl Program {
    /// A call sends on a socket to the outside whose replies are held.
    pub(super) fn before_reply(&mut self, call: &Stopped, ours: OwnedFd, sender: Sender) -> Decision {
        let Some(outbox) = self.sockets.holds().cloned() else {
            return Decision::Run;
        };
        let flags = call.send_flags();
        if flags & libc::MSG_FASTOPEN != 0 {
            return do_without(
                libc::EOPNOTSUPP,
                "bytes that go out with a connection (MSG_FASTOPEN) cannot be held; most programs connect first by themselves",
            );
        }
        if flags & libc::MSG_OOB != 0 {
            let why = "out-of-band bytes cannot be held (--replies held); send them as others";
            return fail(libc::EOPNOTSUPP, why);
        }
        // Asked first: a half-close that is held now may be the kernel's a moment later, and is not to be missed between.
        let room = outbox.room(sender.inode);
        // Of a datagram socket the call itself may say where its messages go.
        let is_addressed = call.name.starts_with("send");
        let may_send = match sender.protocol {
            Some(protocol) => sockets::may_send(ours.as_fd(), protocol, is_addressed),
            None => unix_sockets::may_send(ours.as_fd(), is_addressed),
        };
        if !may_send {
            return Decision::Run; // the kernel tells why
        }
        if let Some(decision) = self.has_no_room(call, room, sender.inode, &ours, flags) {
            return decision;
        }
        match call.name {
            "sendfile" if sender.sends_messages() => Decision::Done(-i64::from(libc::EINVAL)),
            "sendfile" => self.hold_file(call, &outbox, sender.inode, ours),
            "sendmmsg" => self.hold_messages(call, &outbox, sender, ours),
            _ => {
                let Some(message) = self.outgoing(call) else {
                    return Decision::Done(-i64::from(libc::EFAULT));
                };
                match self.hold_message(&message, &outbox, sender, ours) {
                    Ok(held) => Decision::Done(held as i64),
                    Err(decision) => decision,
                }
            }
        }
    }

    /// A call sends on a connection for which something waits already: nothing is asked again. If its peer is gone, the
    /// bytes are as good as sent before that was known.
    pub(super) fn before_next_reply(&self, call: &Stopped) -> Option<Decision> {
        let outbox = self.sockets.holds()?;
        let has_one_message = matches!(call.name, "write" | "writev" | "sendto" | "sendmsg");
        if !has_one_message || !call.sends_plain_bytes() || self.caller.is_some() {
            return None;
        }
        let inode = self.descriptors.known_outside(call.int(0))?;
        if !outbox.takes_more(inode) {
            return None;
        }
        let message = self.outgoing(call)?;
        let is_held = !message.accompanied && (1..=MOST_BYTES).contains(&message.len());
        let bytes = is_held.then(|| self.bytes_of(&message))?.ok()?;
        let length = bytes.len();
        outbox
            .hold_more(inode, bytes)
            .then_some(Decision::Done(length as i64))
    }

    /// What becomes of a call for which there is no room now; `None` when there is.
    fn has_no_room(
        &mut self,
        call: &Stopped,
        room: Room,
        inode: u64,
        ours: &OwnedFd,
        flags: i32,
    ) -> Option<Decision> {
        let is_full = match room {
            Room::HalfClosed => return Some(self.broken_pipe(flags)),
            Room::Some => return None,
            _ if !self.may_stand() => return None,
            Room::None => false,
            Room::PeerFull => true,
        };
        let nonblocking = rustix::fs::fcntl_getfl(ours).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK));
        if is_full && (nonblocking || flags & libc::MSG_DONTWAIT != 0 || self.is_timed_out(call, ours)) {
            return Some(Decision::Done(-i64::from(libc::EAGAIN)));
        }
        Some(Decision::Stand(Until::Room(inode)))
    }

    /// Whether it has waited as long as `SO_SNDTIMEO` allows.
    fn is_timed_out(&self, call: &Stopped, ours: &OwnedFd) -> bool {
        let limit = socket::option(ours.as_fd(), libc::SO_SNDTIMEO).unwrap_or_default();
        let word = |at: usize| limit.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
        let (seconds, micros) = (word(0).unwrap_or(0), word(8).unwrap_or(0));
        let limit = Duration::from_secs(seconds) + Duration::from_micros(micros);
        !limit.is_zero() && self.tried_for(call.tid, &call.made) >= limit
    }

    /// It was half-closed, though its peer does not know yet.
    fn broken_pipe(&self, flags: i32) -> Decision {
        if flags & libc::MSG_NOSIGNAL == 0 {
            // A program that is gone needs none.
            let _ = Pid::from_raw(self.caller().pid()).map(|pid| kill_process(pid, Signal::PIPE));
        }
        Decision::Done(-i64::from(libc::EPIPE))
    }

    /// The addresses that a call names for what it sends; empty of a message to the socket's peer.
    pub(super) fn addressees(&self, call: &Stopped) -> Option<Vec<Vec<u8>>> {
        let messages = match call.name {
            "sendmmsg" => heads(call).map(|head| self.outgoing_message(head)).collect(),
            "sendfile" => return Some(vec![Vec::new()]),
            _ => self.outgoing(call).map(|message| vec![message]),
        };
        Some(messages?.into_iter().map(|message| message.to).collect())
    }

    /// What a call with one message sends.
    fn outgoing(&self, call: &Stopped) -> Option<Message> {
        let a = call.arguments;
        let plain = |buffers| Message {
            buffers,
            to: Vec::new(),
            accompanied: false,
        };
        let one = |start, length| {
            let len = usize::try_from(length).ok()?;
            Some(plain(vec![Remote { start, len }]))
        };
        match call.name {
            "write" => one(a[1], a[2]),
            "sendto" => Some(Message {
                to: self.address(a[4], a[5])?,
                ..one(a[1], a[2])?
            }),
            "sendmsg" => self.outgoing_message(a[1]),
            _ => self.buffers(a[1], a[2]).map(plain), // writev, pwritev2
        }
    }

    /// The message of a struct msghdr.
    fn outgoing_message(&self, at: u64) -> Option<Message> {
        let head = Head::read(self.caller(), at).ok()?;
        Some(Message {
            buffers: self.buffers(head.buffers, head.count)?,
            to: self.address(head.name, head.name_bytes())?,
            accompanied: head.is_accompanied(),
        })
    }

    /// An address of the program's memory, as the kernel takes it.
    fn address(&self, at: u64, length: u64) -> Option<Vec<u8>> {
        if at == 0 {
            return Some(Vec::new());
        }
        let mut bytes = vec![0; length.min(MOST_ADDRESS_BYTES) as usize];
        self.caller().read(at, &mut bytes).ok()?;
        Some(bytes)
    }

    /// The buffers of a list.
    pub(super) fn buffers(&self, at: u64, count: u64) -> Option<Vec<Remote>> {
        message::buffers(self.caller(), at, count).ok()
    }

    /// Holds a message; how many bytes it has, or what becomes of its call instead.
    fn hold_message(
        &self,
        message: &Message,
        outbox: &Outbox,
        sender: Sender,
        ours: OwnedFd,
    ) -> Result<usize, Decision> {
        if message.accompanied {
            return Err(fail(
                libc::EINVAL,
                "what is sent along with bytes (control messages) cannot be held (--replies held); the program may have a setting to do without",
            ));
        }
        if message.len() > MOST_BYTES {
            return Err(Decision::Done(-i64::from(libc::EINVAL)));
        }
        let is_message = sender.sends_messages();
        let goes_nowhere = || message.to.is_empty() && !socket::has_peer(ours.as_fd());
        let is_too_long = || message.len() > most_message_bytes(ours.as_fd(), sender.protocol);
        if is_message && (goes_nowhere() || is_too_long()) {
            return Err(Decision::Run); // the kernel refuses it
        }
        if !is_message && message.len() == 0 {
            return Err(Decision::Run); // nothing goes out
        }
        let bytes = self
            .bytes_of(message)
            .map_err(|_| Decision::Done(-i64::from(libc::EFAULT)))?;
        let length = bytes.len();
        let content = match is_message {
            true => Content::Message {
                bytes,
                to: message.to.clone(),
            },
            false => Content::Bytes(bytes),
        };
        outbox.hold(sender.inode, ours, content);
        Ok(length)
    }

    fn bytes_of(&self, message: &Message) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; message.len()];
        self.caller().gather(&message.buffers, &mut bytes)?;
        Ok(bytes)
    }

    /// sendmmsg(2): how many bytes of each were sent is written to it.
    fn hold_messages(&self, call: &Stopped, outbox: &Outbox, sender: Sender, ours: OwnedFd) -> Decision {
        let mut held = 0;
        for at in heads(call) {
            let message = self
                .outgoing_message(at)
                .ok_or(Decision::Done(-i64::from(libc::EFAULT)));
            let fd = ours
                .try_clone()
                .map_err(|_| Decision::Done(-i64::from(libc::ENOBUFS)));
            let length = message.and_then(|message| {
                let is_nothing = message.len() == 0 && !sender.sends_messages();
                if is_nothing {
                    return Ok(0);
                }
                self.hold_message(&message, outbox, sender, fd?)
            });
            match length {
                Ok(length) => {
                    let told = self.caller().write(at + COUNT_AT, &(length as u32).to_ne_bytes());
                    held += i64::from(told.is_ok());
                }
                Err(decision) if held == 0 => return decision,
                Err(_) => break,
            }
        }
        Decision::Done(held)
    }

    /// sendfile(2): what the file holds now.
    fn hold_file(&self, call: &Stopped, outbox: &Outbox, inode: u64, ours: OwnedFd) -> Decision {
        let error = |errno: i32| Decision::Done(-i64::from(errno));
        let [_, _, offset_at, count, ..] = call.arguments;
        let Ok(file) = self.caller().duplicate_fd(call.int(1)) else {
            return error(libc::EBADF);
        };
        if !crate::descriptors::is_regular(&file) {
            return do_without(
                libc::EINVAL,
                "what comes from anything but a file is held only where it is sent by write (--replies held); most programs read and write by themselves then",
            );
        }
        let offset = match offset_at {
            0 => rustix::fs::tell(&file).ok(),
            at => self.caller().read_u64(at).ok(),
        };
        let (Some(offset), Ok(stat)) = (offset, rustix::fs::fstat(&file)) else {
            return error(libc::EFAULT);
        };
        let rest = (stat.st_size as u64).saturating_sub(offset);
        // As from the kernel, a socket takes no more at once than it has room for.
        let mut bytes = vec![0; (count.min(rest) as usize).min(SOCKET_BYTES)];
        let mut read = 0;
        while read < bytes.len() {
            match rustix::io::pread(&file, &mut bytes[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(rustix::io::Errno::INTR) => {}
                Err(failed) if read == 0 => return error(failed.raw_os_error()),
                Err(_) => break,
            }
        }
        bytes.truncate(read);
        let end = offset + read as u64;
        let moved = match offset_at {
            0 => rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(end)).is_ok(),
            at => self.caller().write(at, &end.to_ne_bytes()).is_ok(),
        };
        if !moved {
            return error(libc::EFAULT);
        }
        if read > 0 {
            outbox.hold(inode, ours, Content::Bytes(bytes));
        }
        Decision::Done(read as i64)
    }

    /// shutdown(2) of a socket to the outside: its peer hears of it behind what it is sent before.
    pub(super) fn before_half_close(&mut self, call: &Stopped, ours: OwnedFd) -> Decision {
        let held = self.sockets.holds().map(Arc::clone);
        let inode = rustix::fs::fstat(&ours).map(|stat| stat.st_ino);
        let (Some(outbox), Ok(inode)) = (held, inode) else {
            return Decision::Run;
        };
        if call.int(1) == libc::SHUT_RD || !outbox.has(inode) {
            return Decision::Run;
        }
        if call.int(1) == libc::SHUT_RDWR {
            // A connection that is over needs none.
            let _ = socket::shut(ours.as_fd(), libc::SHUT_RD);
        }
        outbox.hold(inode, ours, Content::HalfClose(call.int(1)));
        Decision::Done(0)
    }

    /// fsync(2) and its kind: they return when what the program did until now is durable.
    pub(super) fn before_sync(&mut self, call: &Stopped) -> Decision {
        if self.sockets.replies != Replies::Synced || !self.may_stand() {
            return Decision::Run;
        }
        if call.name == "msync" && call.int(2) & libc::MS_SYNC == 0 {
            return Decision::Run;
        }
        self.stands_until_durable(call)
    }

    /// A write to a file of which each write is durable when it returns: open(2), `O_SYNC`.
    pub(super) fn writes_durably(&self, call: &Stopped, fd: i32) -> bool {
        if self.sockets.replies != Replies::Synced || !self.may_stand() {
            return false;
        }
        if call.name == "pwritev2" && call.int(5) & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0 {
            return true;
        }
        let known = self.descriptors.known_file(fd).filter(|_| self.caller.is_none());
        let flags = match known {
            Some(known) => rustix::fs::fcntl_getfl(known).ok(),
            None => {
                let ours = self.caller().duplicate_fd(fd).ok();
                ours.and_then(|ours| rustix::fs::fcntl_getfl(ours).ok())
            }
        };
        flags.is_some_and(|flags| flags.contains(OFlags::DSYNC))
    }

    /// Whether a checkpoint may come before the call. None does before the end of a descendant that its maker waits for:
    /// vfork(2).
    pub(super) fn may_stand(&self) -> bool {
        let shares_memory = |caller: &Process| self.descendants.shares_memory(caller.pid());
        !self.caller.as_ref().is_some_and(shares_memory)
    }

    pub(super) fn stands_until_durable(&mut self, call: &Stopped) -> Decision {
        if self.may_pass(call.tid, &call.made) {
            return Decision::Run;
        }
        Decision::Stand(Until::Durable)
    }
}
