//! TCP and UDP sockets, tcp(7), udp(7): to the outside unless the user wants none (`--replies none`).
//!
//! * A listener comes back with its address; its queue of connections that were not accepted is gone.
//! * A connection does not, unless it is within the tree (`loopback.rs`): after a resume the program finds it reset by
//!   its peer.
//! * A UDP socket comes back with its addresses; what it had received and not given to the program is gone.
//! * A listener has `SO_REUSEADDR` from listen(2) on, or its port would be taken after a kill by the
//!   connections that the kernel still closes. The program sees the value that it gave itself.

use crate::error::{Error, Result};
use crate::outbox::Outbox;
use crate::pairs;
use rustix::event::PollFlags;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use twinpage_core::Epoch;
use twinpage_os::socket;
use twinpage_os::tcp::state::{CLOSE, CLOSE_WAIT, ESTABLISHED, LISTEN, SYN_RECV, SYN_SENT};
use twinpage_os::unix_sockets::{self, Bound};

/// Whether a program may talk to the outside, and when its replies go out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replies {
    /// Sockets to the outside are refused.
    #[default]
    Refused,
    /// They go out at once: a kill forgets at most what ran since the last checkpoint, also where the outside
    /// has seen it.
    Loose,
    /// They go out when the checkpoint that covers them is durable: a kill forgets nothing that the outside has
    /// seen.
    Held,
    /// They go out at once, and calls that make something durable, as fsync(2), return when the checkpoint that
    /// covers them is: a kill forgets nothing that was acknowledged after one.
    Synced,
}

/// A local address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Address {
    ip: IpAddr,
    port: u16,
    /// Of an IPv6 address that belongs to one interface.
    scope: u32,
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        let scope = match address {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(address) => address.scope_id(),
        };
        Address {
            ip: address.ip(),
            port: address.port(),
            scope,
        }
    }
}

impl From<Address> for SocketAddr {
    fn from(address: Address) -> SocketAddr {
        match address.ip {
            IpAddr::V4(ip) => SocketAddr::from((ip, address.port)),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, address.port, 0, address.scope).into(),
        }
    }
}

/// The address in IPv4, where it is one of those.
#[must_use]
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Whether a socket that is bound to one address has another: the same, or any of its port.
#[must_use]
pub fn covers(bound: SocketAddr, address: SocketAddr) -> bool {
    let any = bound.ip().is_unspecified() && bound.port() == address.port();
    any || canonical(bound) == canonical(address)
}

/// An option: its level, its name, its value.
pub type SocketOption = (i32, i32, Vec<u8>);

/// A socket, as far as only the program changes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Socket {
    /// Its address here. That of a socket without one has no port, and says which protocol it speaks.
    pub address: Address,
    /// Options, as the program sees them.
    pub options: Vec<SocketOption>,
    /// Sizes of buffers that the program chose: `SO_SNDBUF`, `SO_RCVBUF`, halved as setsockopt(2) takes them.
    pub buffers: [Option<i32>; 2],
}

/// How far a socket that does not listen is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Phase {
    /// It was never connected.
    New,
    /// A connect(2) is under way.
    Connecting,
    /// It is connected, or closed on one side.
    Connected,
    /// The connection is over.
    Over {
        /// The error that ended it was not told yet.
        error: bool,
    },
}

/// What a socket to the outside speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// tcp(7).
    Tcp,
    /// udp(7).
    Udp,
}

/// What a socket speaks, if it is one that leads outside.
#[must_use]
pub fn protocol(fd: BorrowedFd<'_>) -> Option<Protocol> {
    let option = |name| socket::option(fd, name).ok().map(|value| number(&value));
    if ![libc::AF_INET, libc::AF_INET6].contains(&option(libc::SO_DOMAIN)?) {
        return None;
    }
    match (option(libc::SO_TYPE)?, option(libc::SO_PROTOCOL)?) {
        (libc::SOCK_STREAM, libc::IPPROTO_TCP) => Some(Protocol::Tcp),
        (libc::SOCK_DGRAM, libc::IPPROTO_UDP) => Some(Protocol::Udp),
        _ => None,
    }
}

/// The options of UDP sockets that a program may set, and those of them that IPv6 alone has.
const OF_UDP: [(i32, i32); 13] = [
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_BROADCAST),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_RECVTTL),
    (libc::IPPROTO_IP, libc::IP_RECVTOS),
    (libc::IPPROTO_IP, libc::IP_RECVERR),
    (libc::IPPROTO_IP, libc::IP_PKTINFO),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
];
const OF_UDP6: [(i32, i32); 6] = [
    V6ONLY,
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
];
/// The same of TCP sockets. After a resume they have the same values.
const OF_TCP: [(i32, i32); 19] = [
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_RECVTTL),
    (libc::IPPROTO_IP, libc::IP_RECVTOS),
];
const OF_TCP6: [(i32, i32); 3] = [
    V6ONLY,
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
];
const V6ONLY: (i32, i32) = (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);
/// Not captured: buffer sizes come back as sizes, and TCP_QUICKACK lasts until the next packet.
const PASSING: [(i32, i32); 3] = [
    (libc::SOL_SOCKET, libc::SO_SNDBUF),
    (libc::SOL_SOCKET, libc::SO_RCVBUF),
    (libc::IPPROTO_TCP, libc::TCP_QUICKACK),
];

/// Captured of sockets that are not connected, by [`segment_size`]: it is used when a connection is made.
const SEGMENT_SIZE: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_MAXSEG);

/// Whether a program may set this option.
#[must_use]
pub fn may_set(protocol: Protocol, level: i32, name: i32) -> bool {
    let option = (level, name);
    let captured = match protocol {
        Protocol::Tcp => OF_TCP.contains(&option) || OF_TCP6.contains(&option) || option == SEGMENT_SIZE,
        Protocol::Udp => OF_UDP.contains(&option) || OF_UDP6.contains(&option),
    };
    captured || PASSING.contains(&option)
}

/// Where the tree has connected to since it was started or resumed. Which connection was its own is not told of one that
/// was closed: at a listener that it never connected to, none was.
#[derive(Debug, Default)]
pub struct Reached {
    /// Ports of TCP, of any machine.
    pub ports: HashSet<u16>,
    /// Names of Unix sockets.
    pub names: HashSet<Bound>,
}

impl Reached {
    /// Whether a connection that waits at this listener may be the tree's own.
    ///
    /// # Errors
    /// When the system refuses a look.
    pub fn has(&self, listener: BorrowedFd<'_>) -> io::Result<bool> {
        if protocol(listener).is_some() {
            return Ok(self.ports.contains(&address_of(listener)?.port()));
        }
        let bound = unix_sockets::bound(rustix::fs::fstat(listener)?.st_ino)?;
        Ok(bound.is_some_and(|bound| self.names.contains(&bound)))
    }
}

/// Sockets to the outside of one program.
#[derive(Debug, Default)]
pub struct Sockets {
    /// Whether it may have any.
    pub replies: Replies,
    /// The inodes of listeners that have `SO_REUSEADDR` by our doing.
    pub lent: HashSet<u64>,
    /// Whether connections are within the tree, by the inodes of their ends, as it was found since the last stop.
    pub within: HashMap<u64, bool>,
    /// What waits for a durable epoch, where sockets or calls do.
    pub outbox: Option<Arc<Outbox>>,
}

impl Sockets {
    /// Those of a program with this choice, whose last durable epoch is known.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn new(replies: Replies, durable: Epoch) -> Result<Sockets> {
        let outbox = match replies {
            Replies::Refused | Replies::Loose => None,
            Replies::Held | Replies::Synced => Some(Outbox::new(durable)),
        };
        let outbox = outbox.transpose();
        let outbox = outbox.map_err(|source| Error::target("cannot hold what is sent", source))?;
        Ok(Sockets {
            replies,
            lent: HashSet::new(),
            within: HashMap::new(),
            outbox: outbox.map(Arc::new),
        })
    }

    /// What holds replies, if they are held.
    #[must_use]
    pub fn holds(&self) -> Option<&Arc<Outbox>> {
        self.outbox.as_ref().filter(|_| self.replies == Replies::Held)
    }

    /// The steady part of a socket.
    ///
    /// # Errors
    /// When the system refuses a look.
    pub fn describe(&self, inode: u64, fd: BorrowedFd<'_>) -> io::Result<Socket> {
        let address = address_of(fd)?;
        let (all, of_ipv6): (&[_], &[_]) = match protocol(fd) {
            Some(Protocol::Udp) => (&OF_UDP, &OF_UDP6),
            _ => (&OF_TCP, &OF_TCP6),
        };
        let of_ipv6 = if address.is_ipv6() { of_ipv6 } else { &[] };
        let mut options = Vec::new();
        for &(level, name) in all.iter().chain(of_ipv6) {
            let mut value = socket::option_of(fd, level, name)?;
            if name == libc::SO_REUSEADDR && level == libc::SOL_SOCKET && self.lent.contains(&inode) {
                value.fill(0);
            }
            options.push((level, name, value));
        }
        Ok(Socket {
            address: address.into(),
            options,
            buffers: buffers(fd)?,
        })
    }

    /// The program is about to listen.
    ///
    /// # Errors
    /// When the system refuses it.
    pub fn before_listen(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        if number(&socket::option(fd, libc::SO_REUSEADDR)?) == 0 {
            socket::set_option(fd, libc::SO_REUSEADDR, &1i32.to_ne_bytes())?;
            self.lent.insert(rustix::fs::fstat(fd)?.st_ino);
        }
        Ok(())
    }
}

/// The sizes of a socket's buffers that its program chose, as [`Socket::buffers`] has them.
///
/// # Errors
/// When the system refuses a look.
pub fn buffers(fd: BorrowedFd<'_>) -> io::Result<[Option<i32>; 2]> {
    let locked = number(&socket::option(fd, libc::SO_BUF_LOCK)?);
    let buffer = |bit: i32, name| match locked & bit {
        0 => Ok(None),
        _ => socket::option(fd, name).map(|value| Some(number(&value) / 2)),
    };
    Ok([buffer(1, libc::SO_SNDBUF)?, buffer(2, libc::SO_RCVBUF)?])
}

/// Gives a socket these options and sizes of buffers.
///
/// # Errors
/// When the system refuses one.
pub fn set_options(
    fd: BorrowedFd<'_>,
    options: &[SocketOption],
    buffers: [Option<i32>; 2],
) -> io::Result<()> {
    for (level, name, value) in options {
        if socket::option_of(fd, *level, *name)? != *value {
            socket::set_option_of(fd, *level, *name, value)?;
        }
    }
    for (name, size) in [libc::SO_SNDBUF, libc::SO_RCVBUF].into_iter().zip(buffers) {
        if let Some(size) = size {
            socket::set_option(fd, name, &size.to_ne_bytes())?;
        }
    }
    Ok(())
}

/// The number that the bytes of an option are; 0 if they are fewer.
#[must_use]
pub fn number(value: &[u8]) -> i32 {
    i32::from_ne_bytes(value.first_chunk().copied().unwrap_or_default())
}

/// The address that a socket is connected with, if it is.
#[must_use]
pub fn peer(fd: BorrowedFd<'_>) -> Option<Address> {
    let peer = rustix::net::getpeername(fd).ok()??;
    SocketAddr::try_from(peer).ok().map(Address::from)
}

/// Where a socket is bound.
///
/// # Errors
/// When the system refuses a look.
pub fn address_of(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    TcpListener::from(fd.try_clone_to_owned()?).local_addr()
}

/// How many connections wait at a listener.
///
/// # Errors
/// When the system refuses a look.
pub fn waiting(fd: BorrowedFd<'_>) -> io::Result<i32> {
    const WAITING: usize = 24; // tcpi_unacked
    let info = socket::option_of(fd, libc::IPPROTO_TCP, libc::TCP_INFO)?;
    Ok(info.get(WAITING..).map_or(0, number))
}

/// How many connections may wait at a listener; `None` of other sockets.
///
/// # Errors
/// When the system refuses a look.
pub fn backlog(fd: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    const MOST_WAITING: usize = 28; // tcpi_sacked
    let info = socket::option_of(fd, libc::IPPROTO_TCP, libc::TCP_INFO)?;
    let most = info.get(MOST_WAITING..).map(number);
    Ok(most.filter(|_| info[0] == LISTEN))
}

/// How large segments of a TCP socket that is not connected are to be at most; `None` where it once was connected, to a
/// peer that took larger ones than can be asked for. The kernel tells 536 of a socket that did not ask.
///
/// # Errors
/// When the system refuses a look.
pub fn segment_size(fd: BorrowedFd<'_>) -> io::Result<Option<SocketOption>> {
    const LARGEST: i32 = 32767; // MAX_TCP_WINDOW
    let (level, name) = SEGMENT_SIZE;
    let value = socket::option_of(fd, level, name)?;
    Ok((number(&value) <= LARGEST).then_some((level, name, value)))
}

/// How far a socket that does not listen is. Nothing of the program runs.
///
/// # Errors
/// When the system refuses a look.
pub fn phase(fd: &OwnedFd) -> io::Result<Phase> {
    let info = socket::option_of(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO)?;
    Ok(match info.first() {
        Some(&SYN_SENT) => Phase::Connecting,
        Some(&CLOSE) => {
            let state = pairs::state(fd)?;
            match state.contains(PollFlags::RDHUP) {
                // One that never was connected is shut neither way.
                false => Phase::New,
                true => Phase::Over {
                    error: state.contains(PollFlags::ERR),
                },
            }
        }
        _ => Phase::Connected,
    })
}

/// Whether a socket takes bytes now or later. A connection does when it is made or being made, and no end of it is
/// known; a UDP socket, when it is known where they go.
#[must_use]
pub fn may_send(fd: BorrowedFd<'_>, protocol: Protocol, is_addressed: bool) -> bool {
    if protocol == Protocol::Udp {
        return is_addressed || socket::has_peer(fd);
    }
    let info = socket::option_of(fd, libc::IPPROTO_TCP, libc::TCP_INFO);
    let state = info.ok().and_then(|info| info.first().copied());
    let open = [ESTABLISHED, SYN_SENT, SYN_RECV, CLOSE_WAIT];
    state.is_some_and(|state| open.contains(&state))
        && pairs::state(fd).is_ok_and(|state| !state.intersects(PollFlags::ERR | PollFlags::HUP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::AddressFamily;
    use std::net::{Ipv4Addr, TcpStream, UdpSocket};
    use twinpage_os::reset::Resetter;

    #[test]
    fn phases_are_told_apart() {
        let fresh = rustix::net::socket(AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
        assert_eq!(phase(&fresh).unwrap(), Phase::New);
        let resetter = Resetter::new().unwrap();
        let stream = TcpStream::connect(resetter.address().unwrap()).unwrap();
        let stream = OwnedFd::from(stream);
        assert_eq!(phase(&stream).unwrap(), Phase::Connected);
        resetter.reset(stream.as_fd()).unwrap();
        assert_eq!(phase(&stream).unwrap(), Phase::Over { error: true });
        socket::option(stream.as_fd(), libc::SO_ERROR).unwrap();
        assert_eq!(phase(&stream).unwrap(), Phase::Over { error: false });
    }

    #[test]
    fn udp_sockets_are_described() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_broadcast(true).unwrap();
        let fd = socket.as_fd();
        assert_eq!(protocol(fd), Some(Protocol::Udp));
        assert_eq!(peer(fd), None);
        assert!(!may_send(fd, Protocol::Udp, false) && may_send(fd, Protocol::Udp, true));
        socket.connect(socket.local_addr().unwrap()).unwrap();
        assert_eq!(peer(fd), Some(socket.local_addr().unwrap().into()));
        assert!(may_send(fd, Protocol::Udp, false));
        let described = Sockets::default().describe(0, fd).unwrap();
        let broadcast = (libc::SOL_SOCKET, libc::SO_BROADCAST, vec![1, 0, 0, 0]);
        assert!(described.options.contains(&broadcast), "{described:?}");
        assert_eq!(described.address, socket.local_addr().unwrap().into());
    }

    #[test]
    fn a_listener_is_described_as_the_program_sees_it() {
        let listener =
            rustix::net::socket(AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
        rustix::net::bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let mut sockets = Sockets::default();
        sockets.before_listen(listener.as_fd()).unwrap();
        rustix::net::listen(&listener, 17).unwrap();
        assert_eq!(backlog(listener.as_fd()).unwrap(), Some(17));
        assert_eq!(
            number(&socket::option(listener.as_fd(), libc::SO_REUSEADDR).unwrap()),
            1
        );
        let inode = rustix::fs::fstat(&listener).unwrap().st_ino;
        let described = sockets.describe(inode, listener.as_fd()).unwrap();
        let reuse = described
            .options
            .iter()
            .find(|(_, name, _)| *name == libc::SO_REUSEADDR);
        assert_eq!(number(&reuse.unwrap().2), 0);
        assert_eq!(described.buffers, [None, None]);
        assert_eq!(
            SocketAddr::from(described.address),
            address_of(listener.as_fd()).unwrap()
        );
    }
}
