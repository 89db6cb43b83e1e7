//! Socket pairs of the program's own, socketpair(2): which sockets belong together, and what is in them.
//!
//! * Pairs of the program itself are made by the tracer on its behalf (`calls/pairs.rs`), which knows then which
//!   sockets belong together. Of those that descendants make the kernel is asked ([`crate::unix_sockets`]).
//! * What waits to be received is looked at with `MSG_PEEK` at an offset, `SO_PEEK_OFF`, which no program
//!   here may use itself.
//! * Streams and sequenced packets mirror a half-close at the peer, so it is enough to know who receives no
//!   more. Datagram sockets do not; a half-close of their sending side alone is refused.
//! * An error that waits is told by the next look at packets, but not at a stream; that case is refused.
//!
//! Empty messages and out-of-band bytes would not be seen; they are refused when they are sent. Descriptors that are
//! under way in a message are seen, and waited for.

use crate::error::{Error, Result};
use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use twinpage_os::remote::Process;
use twinpage_os::socket;

/// One end of a pair, as far as it does not change by itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct End {
    /// The socket's inode.
    pub inode: u64,
    /// The inode of the other end, which may be closed.
    pub peer: u64,
    /// `SOCK_STREAM`, `SOCK_DGRAM` or `SOCK_SEQPACKET`.
    pub kind: i32,
    /// Options and their values, in the order of [`OPTIONS`].
    pub options: Vec<Vec<u8>>,
}

/// The options of `SOL_SOCKET` that a program may set and that are captured. Earlier builds kept fewer, the first ones.
pub const OPTIONS: [i32; 10] = [
    libc::SO_SNDBUF,
    libc::SO_RCVBUF,
    libc::SO_RCVTIMEO,
    libc::SO_SNDTIMEO,
    libc::SO_RCVLOWAT,
    libc::SO_KEEPALIVE,
    libc::SO_REUSEADDR,
    libc::SO_PRIORITY,
    libc::SO_PASSCRED,
    libc::SO_LINGER,
];

/// What an end holds at a stop.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Queue {
    /// What waits to be received: messages, or all bytes of a stream in one.
    pub messages: Vec<Vec<u8>>,
    /// It no longer receives: `SHUT_RD`, or the peer no longer sends.
    pub receives_no_more: bool,
    /// It no longer sends either.
    pub sends_no_more: bool,
    /// An error waits to be told: the peer was closed with unread data, `ECONNRESET`.
    pub reset: bool,
    /// A datagram socket was told that its peer is gone, and has none since.
    pub alone: bool,
}

/// Which sockets belong together, by inode.
#[derive(Debug, Default)]
pub struct Pairs(HashMap<u64, u64>);

impl Pairs {
    /// Two ends of one pair.
    pub fn know(&mut self, one: u64, other: u64) {
        self.0.insert(one, other);
        self.0.insert(other, one);
    }

    /// A socket and its peer, which may be another program's; 0 when that is gone, or was not accepted yet.
    pub fn know_peer(&mut self, one: u64, peer: u64) {
        self.0.insert(one, peer);
    }

    /// Whether none are known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a socket is an end of a pair of which the other is known.
    #[must_use]
    pub fn has(&self, inode: u64) -> bool {
        self.0.get(&inode).is_some_and(|peer| *peer != 0)
    }

    /// The steady part of an end.
    ///
    /// # Errors
    /// When the system refuses a look, or it is no end of a known pair.
    pub fn describe(&self, inode: u64, ours: &OwnedFd) -> Result<End> {
        let unknown = || Error::Internal(format!("socket {inode} is no end of a pair"));
        let peer = *self.0.get(&inode).ok_or_else(unknown)?;
        let look = |source| Error::target("cannot look at a socket", source);
        let options = OPTIONS.iter().map(|name| socket::option(ours.as_fd(), *name));
        Ok(End {
            inode,
            peer,
            kind: kind(ours.as_fd()).map_err(look)?,
            options: options.collect::<io::Result<_>>().map_err(look)?,
        })
    }

    /// Forgets the pairs of which neither end is among `open`.
    pub fn keep(&mut self, open: &HashSet<u64>) {
        self.0
            .retain(|one, other| open.contains(one) || open.contains(other));
    }
}

/// What a look into a socket failed with. A process that slept in recv(2) may wake up during it, and take what
/// waits.
pub(crate) fn failed_look(number: i32, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::UnexpectedEof => Error::NotYet(format!(
            "descriptor {number} is a socket that a process receives from just now"
        )),
        _ => Error::target(format!("cannot look into socket {number}"), source),
    }
}

/// Why a checkpoint waits while descriptors are under way in a message.
pub(crate) fn under_way(number: i32) -> Error {
    Error::NotYet(format!(
        "descriptor {number} is a socket with a message that was not received and has descriptors with it (SCM_RIGHTS), which are captured once they have arrived"
    ))
}

/// A message of which the receiver is told who sent it waits until it was received: sent again, it would come from
/// twinpage.
///
/// # Errors
/// [`Error::NotYet`] if the receiver asked to be told, and when the system refuses a look.
pub(crate) fn check_sender(number: i32, fd: BorrowedFd<'_>) -> Result<()> {
    let asks = socket::option(fd, libc::SO_PASSCRED).map_err(|source| failed_look(number, source))?;
    match asks == 0i32.to_ne_bytes() {
        true => Ok(()),
        false => Err(Error::NotYet(format!(
            "descriptor {number} is a socket with a message that was not received and tells the process that sent it (SO_PASSCRED), which is captured once it has arrived"
        ))),
    }
}

/// `SOCK_*`.
///
/// # Errors
/// `ENOTSOCK`.
pub fn kind(fd: BorrowedFd<'_>) -> io::Result<i32> {
    let value = socket::option(fd, libc::SO_TYPE)?;
    let bytes = value.first_chunk().copied().unwrap_or_default();
    Ok(i32::from_ne_bytes(bytes))
}

/// What an end holds now. Nothing of the program runs.
///
/// # Errors
/// When the system refuses a look.
pub fn held(process: &Process, fd: i32, end: &End) -> Result<Queue> {
    let look = |source| failed_look(fd, source);
    let ours = process.duplicate_fd(fd).map_err(look)?;
    let state = state(&ours).map_err(look)?;
    let told_first = end.kind == libc::SOCK_SEQPACKET && state.contains(PollFlags::ERR);
    if told_first && rustix::io::ioctl_fionread(&ours).map_err(|error| look(error.into()))? > 0 {
        // A look at the messages would be told of the error, and the program would not.
        return Err(Error::Unsupported(format!(
            "descriptor {fd} is a socket for packets whose peer was closed with packets unread, while it has packets unread itself, which cannot be looked at: read them before the peer is closed"
        )));
    }
    let (messages, along) = waiting(ours.as_fd(), end.kind).map_err(look)?;
    if !along.is_empty() {
        return Err(under_way(fd));
    }
    if !messages.is_empty() {
        check_sender(fd, ours.as_fd())?;
    }
    Ok(Queue {
        messages,
        receives_no_more: state.contains(PollFlags::RDHUP),
        sends_no_more: state.contains(PollFlags::HUP),
        reset: state.contains(PollFlags::ERR),
        alone: end.kind == libc::SOCK_DGRAM && !socket::has_peer(ours.as_fd()),
    })
}

/// `RDHUP`: it no longer receives; `HUP`: it does neither; `ERR`: an error waits to be told.
pub(crate) fn state(fd: impl AsFd) -> io::Result<PollFlags> {
    let fd = fd.as_fd();
    let mut asked = [PollFd::from_borrowed_fd(fd, PollFlags::RDHUP)];
    rustix::io::retry_on_intr(|| poll(&mut asked, Some(&rustix::time::Timespec::default())))?;
    Ok(asked[0].revents())
}

/// Messages, and duplicates of all descriptors that were sent along with them.
type Waiting = (Vec<Vec<u8>>, Vec<OwnedFd>);

/// A copy of what waits to be received; it stays there.
fn waiting(fd: BorrowedFd<'_>, kind: i32) -> io::Result<Waiting> {
    let all = rustix::io::ioctl_fionread(fd)? as usize; // of datagrams: the first
    if all == 0 {
        return Ok(Waiting::default());
    }
    if kind != libc::SOCK_STREAM {
        let messages = socket::peek_messages(fd)?.into_iter();
        let (messages, along): (_, Vec<_>) = messages.map(|message| (message.bytes, message.along)).unzip();
        return Ok((messages, along.into_iter().flatten().collect()));
    }
    socket::set_option(fd, libc::SO_PEEK_OFF, &0i32.to_ne_bytes())?;
    let read = peek_stream(fd, all);
    socket::set_option(fd, libc::SO_PEEK_OFF, &(-1i32).to_ne_bytes())?;
    read
}

fn peek_stream(fd: BorrowedFd<'_>, length: usize) -> io::Result<Waiting> {
    let mut bytes = vec![0; length];
    let (mut filled, mut along) = (0, Vec::new());
    while filled < length {
        let some = socket::peek(fd, &mut bytes[filled..], false)?;
        if some.len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        filled += some.len;
        along.extend(some.along);
    }
    Ok((vec![bytes], along))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    #[test]
    fn a_look_changes_nothing() {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        for piece in ["these", "are", "one"] {
            one.write_all(piece.as_bytes()).unwrap();
        }
        for _ in 0..2 {
            let (found, along) = waiting(other.as_fd(), libc::SOCK_STREAM).unwrap();
            assert!(found == [b"theseareone"] && along.is_empty());
        }
        let mut read = [0; 20];
        assert_eq!(other.read(&mut read).unwrap(), 11);
        assert!(waiting(other.as_fd(), libc::SOCK_STREAM).unwrap().0.is_empty());

        let (one, other) = UnixDatagram::pair().unwrap();
        let messages = [vec![1; 3], vec![2; 100_000], vec![3]];
        for message in &messages {
            one.send(message).unwrap();
        }
        for _ in 0..2 {
            assert_eq!(waiting(other.as_fd(), libc::SOCK_DGRAM).unwrap().0, messages);
        }
        assert_eq!(other.recv(&mut read).unwrap(), 3);
        assert_eq!(waiting(other.as_fd(), libc::SOCK_DGRAM).unwrap().0, messages[1..]);
    }

    #[test]
    fn descriptors_under_way_are_seen_and_stay() {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        let (one, mut other) = UnixStream::pair().unwrap();
        let (mut read, write) = std::io::pipe().unwrap();
        (&one).write_all(b"before").unwrap();
        let along = [write.as_fd()];
        let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut room);
        assert!(beside.push(SendAncillaryMessage::ScmRights(&along)));
        sendmsg(
            &one,
            &[io::IoSlice::new(b"with")],
            &mut beside,
            SendFlags::empty(),
        )
        .unwrap();
        (&one).write_all(b"after").unwrap();
        for _ in 0..2 {
            let (found, along) = waiting(other.as_fd(), libc::SOCK_STREAM).unwrap();
            assert_eq!((found, along.len()), (vec![b"beforewithafter".to_vec()], 1));
            std::fs::File::from(along.into_iter().next().unwrap())
                .write_all(b"x")
                .unwrap();
        }
        drop(write);
        other.read_exact(&mut [0; 15]).unwrap(); // and what is under way is closed
        let mut came = Vec::new();
        read.read_to_end(&mut came).unwrap();
        assert_eq!(came, b"xx");
    }

    #[test]
    fn a_half_close_is_seen() {
        let (mut one, other) = UnixStream::pair().unwrap();
        one.write_all(b"unread").unwrap();
        let ends = [OwnedFd::from(one.try_clone().unwrap()), other.into()];
        one.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(state(&ends[0]).unwrap().is_empty());
        assert_eq!(state(&ends[1]).unwrap(), PollFlags::RDHUP);
        let [first, second] = ends;
        drop(second);
        let ended = state(&first).unwrap();
        assert_eq!(ended, PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR);
    }
}
