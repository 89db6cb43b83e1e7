//! TCP connections among the program and its processes, captured whole: tcp(7).
//!
//! * A connection is within the tree when the socket at its other address is of the tree; the kernel is asked for that.
//! * What one end sent lies at the other, where it is looked at with `MSG_PEEK`; a checkpoint waits while something is
//!   under way, as where the other end's buffer is full.
//! * Of an end whose other end is closed, what was sent to it is there, and its end behind it.
//! * After a resume both ends have their addresses again. A port of a client that another program took meanwhile, or
//!   that the kernel does not give at once, is another one.

use crate::error::{Error, Result};
use crate::pairs::{self, failed_look};
use crate::sockets::{self, Address, address_of};
use rustix::event::PollFlags;
use rustix::net::{RecvFlags, recv};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use twinpage_os::tcp::state::{
    CLOSE, CLOSE_WAIT, CLOSING, ESTABLISHED, FIN_WAIT1, FIN_WAIT2, LAST_ACK, LISTEN,
};
use twinpage_os::tcp::{self, Info, Listed};

/// The most bytes that wait at one end of a connection: as many as a new one takes, of an ordinary user too (tcp(7),
/// `tcp_wmem`: four times as many).
pub const MOST_BYTES: usize = 1 << 20;

/// One end of a connection within the tree at a stop.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct End {
    /// The socket's inode.
    pub inode: u64,
    /// The inode of the other end; 0 when that is closed.
    pub peer: u64,
    /// The other end's address, where it is known.
    pub address: Option<Address>,
    /// What waits to be received.
    pub unread: Vec<u8>,
    /// Its end was sent.
    pub sends_no_more: bool,
    /// It was shut for receiving, by the program.
    pub receives_no_more: bool,
    /// The other end was closed with bytes unread: `ECONNRESET` waits behind what is unread. Or there is none, which this
    /// end would hear when it sends.
    pub reset: bool,
}

/// What is at the other address of a connection of this machine.
#[derive(Debug)]
pub enum Other {
    /// A socket that a process has.
    Socket(Listed),
    /// A connection that was not accepted, at the listener with this inode.
    Waiting(u64),
    /// One that was closed.
    Closed,
    /// None, and nothing of one is under way: a listener had no room for the connection when this end was told of it, or
    /// it leads on to another machine.
    Gone,
}

/// Whether the address is one of this machine: what is sent there stays here.
#[must_use]
pub fn is_here(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    ip.is_loopback() || ip.is_unspecified() || std::net::UdpSocket::bind((ip, 0)).is_ok()
}

/// The socket that listens at an address of this machine, as connect(2) takes it, if one does.
///
/// # Errors
/// `ENOENT` when the kernel does not list TCP sockets.
pub fn listener_at(address: SocketAddr) -> io::Result<Option<u64>> {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    tcp::listener_at((ip, address.port()).into())
}

/// What is at the other end of a connection; `None` when it leads to another machine, or is none, or the kernel does not
/// tell (CONFIG_INET_TCP_DIAG).
///
/// # Errors
/// When the system refuses a look.
pub fn other_end(fd: BorrowedFd<'_>) -> io::Result<Option<Other>> {
    let (Some(peer), local) = (sockets::peer(fd).map(SocketAddr::from), address_of(fd)?) else {
        return Ok(None);
    };
    if !is_near(local, peer) {
        return Ok(None);
    }
    let listed = match tcp::look_up(peer, local) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        listed => listed?,
    };
    Ok(Some(match listed {
        None => Other::Gone,
        Some(listed) if listed.state == LISTEN => Other::Gone,
        Some(listed) if listed.inode != 0 => Other::Socket(listed),
        Some(_) if is_ended(Info::of(fd)?.state) => Other::Closed,
        Some(_) => match listener_at(peer)? {
            Some(listener) => Other::Waiting(listener),
            None => Other::Closed,
        },
    }))
}

/// Sees that no connection waits at a listener of which `awaits` says, by the inode of its other end, that it is to be
/// waited for: what was sent on it cannot be looked at before it is accepted. The inode is 0 of an end on this machine
/// that was closed; those of other machines are not asked for.
///
/// # Errors
/// [`Error::NotYet`] when one does, and when the system refuses a look.
pub fn check_queue(fd: BorrowedFd<'_>, awaits: impl Fn(u64) -> bool) -> Result<()> {
    let look = |source| Error::target("cannot look at a listener", source);
    if sockets::waiting(fd).map_err(look)? == 0 {
        return Ok(());
    }
    let waiting = match tcp::waiting_at(address_of(fd).map_err(look)?) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Vec::new(), // the kernel does not tell
        waiting => waiting.map_err(look)?,
    };
    for (here, there) in waiting {
        if !is_near(here, there) {
            continue;
        }
        let client = tcp::look_up(there, here).map_err(look)?;
        let client = client.filter(|client| client.state != LISTEN);
        if awaits(client.map_or(0, |client| client.inode)) {
            return Err(Error::NotYet("a connection waits to be accepted".into()));
        }
    }
    Ok(())
}

/// Whether what is sent from one address to another stays on this machine.
fn is_near(here: SocketAddr, there: SocketAddr) -> bool {
    there.ip().to_canonical().is_loopback() || there.ip() == here.ip()
}

/// Whether the end of what the other end sends has come.
fn is_ended(state: u8) -> bool {
    [CLOSE_WAIT, LAST_ACK, CLOSING].contains(&state)
}

/// What an end holds now, if its connection is within the tree. Nothing of the program runs. `is_ours` says whether the
/// tree has a socket, by its inode. A connection that was not accepted is waited for where that is wanted; else it has no
/// other end.
///
/// # Errors
/// [`Error::NotYet`] while something is under way, and when the system refuses a look.
pub fn held(
    number: i32,
    ours: &OwnedFd,
    is_ours: impl Fn(u64) -> bool,
    awaits_accepts: bool,
) -> Result<Option<End>> {
    let look = |source| failed_look(number, source);
    let info = Info::of(ours).map_err(look)?;
    let waiting = |what: &str| Err(Error::NotYet(format!("descriptor {number}: {what}")));
    let unread = rustix::io::ioctl_fionread(ours).map_err(|error| look(error.into()))? as usize;
    let mut is_gone = false;
    let peer = match info.state {
        CLOSE if unread > 0 => 0,
        ESTABLISHED | FIN_WAIT1 | FIN_WAIT2 | CLOSE_WAIT | LAST_ACK | CLOSING => {
            match other_end(ours.as_fd()).map_err(look)? {
                None => return Ok(None),
                Some(Other::Socket(other)) if !is_ours(other.inode) => return Ok(None),
                Some(Other::Socket(other)) if has_arrived(&other, &info) => other.inode,
                Some(Other::Socket(_)) => {
                    return waiting("bytes of a connection are under way, as where a buffer is full");
                }
                Some(Other::Waiting(listener)) if !is_ours(listener) => return Ok(None),
                Some(Other::Waiting(_)) if awaits_accepts => {
                    return waiting("a connection waits to be accepted");
                }
                Some(Other::Closed | Other::Gone) if is_ended(info.state) => 0,
                Some(Other::Gone | Other::Waiting(_)) => {
                    is_gone = true;
                    0
                }
                Some(Other::Closed) => {
                    return waiting("the other end of a connection was closed, and its end is under way");
                }
            }
        }
        _ => return Ok(None),
    };
    if unread > MOST_BYTES {
        return waiting("more bytes wait in a connection than a resume could put back");
    }
    let polled = pairs::state(ours).map_err(look)?;
    Ok(Some(End {
        inode: rustix::fs::fstat(ours)
            .map_err(|error| look(error.into()))?
            .st_ino,
        peer,
        address: sockets::peer(ours.as_fd()),
        unread: peek(ours.as_fd(), unread).map_err(look)?,
        sends_no_more: [FIN_WAIT1, FIN_WAIT2, LAST_ACK, CLOSING, CLOSE].contains(&info.state),
        receives_no_more: polled.contains(PollFlags::RDHUP) && !is_ended(info.state) && info.state != CLOSE,
        reset: is_gone || info.state == CLOSE && polled.contains(PollFlags::ERR),
    }))
}

/// Whether all that the other end sent is here.
fn has_arrived(other: &Listed, ours: &Info) -> bool {
    let end = u64::from(is_ended(ours.state));
    other
        .info
        .is_some_and(|other| other.not_sent == 0 && other.sent == ours.received - end)
}

/// A copy of what waits to be received; it stays there.
fn peek(fd: BorrowedFd<'_>, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    if length > 0 {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let (got, _) = rustix::io::retry_on_intr(|| recv(fd, &mut bytes[..], flags))?;
        if got < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(bytes)
}
