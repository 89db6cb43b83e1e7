//! Sockets that ask the kernel for addresses, interfaces and routes, or are told when they change: rtnetlink(7).
//!
//! * Nothing waits in one that is captured: an answer, or what follows of one, is there when its question returns.
//! * What changes between a checkpoint and its resume is not told.

use crate::sockets::{self, SocketOption, number};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, getpeername, getsockname, socket_with,
};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use twinpage_os::socket;

/// A socket of netlink(7), as far as only the program changes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Netlink {
    /// `SOCK_RAW` or `SOCK_DGRAM`.
    kind: u32,
    /// Its address; 0: it has none yet.
    port: u32,
    /// The groups whose messages it gets, a bit each from group 1 on.
    groups: Vec<u8>,
    /// The port and the groups that it is connected with.
    peer: (u32, u32),
    options: Vec<SocketOption>,
    /// The size of its buffer that the program chose, halved as setsockopt(2) takes it.
    buffer: Option<i32>,
}

/// The options that come back.
const OPTIONS: [(i32, i32); 8] = [
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_PASSCRED),
    (libc::SOL_NETLINK, libc::NETLINK_PKTINFO),
    (libc::SOL_NETLINK, libc::NETLINK_BROADCAST_ERROR),
    (libc::SOL_NETLINK, libc::NETLINK_NO_ENOBUFS),
    (libc::SOL_NETLINK, libc::NETLINK_CAP_ACK),
    (libc::SOL_NETLINK, libc::NETLINK_EXT_ACK),
    (libc::SOL_NETLINK, libc::NETLINK_GET_STRICT_CHK),
];

/// Not captured as options: the size of a buffer, and the groups.
const APART: [(i32, i32); 3] = [
    (libc::SOL_SOCKET, libc::SO_RCVBUF),
    (libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP),
    (libc::SOL_NETLINK, libc::NETLINK_DROP_MEMBERSHIP),
];

/// Whether a program may set this option. A filter of messages is none of them.
#[must_use]
pub fn may_set(level: i32, name: i32) -> bool {
    OPTIONS.contains(&(level, name)) || APART.contains(&(level, name))
}

/// Whether a socket is one of netlink(7).
#[must_use]
pub fn is_netlink(fd: BorrowedFd<'_>) -> bool {
    socket::option(fd, libc::SO_DOMAIN).is_ok_and(|value| number(&value) == libc::AF_NETLINK)
}

impl Netlink {
    /// The steady part of one.
    ///
    /// # Errors
    /// When the system refuses a look.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<Netlink> {
        let peer = getpeername(fd)?.map(SocketAddrNetlink::try_from).transpose()?;
        let option = |&(level, name)| Ok((level, name, socket::option_of(fd, level, name)?));
        let [_, buffer] = sockets::buffers(fd)?;
        Ok(Netlink {
            kind: number(&socket::option(fd, libc::SO_TYPE)?).cast_unsigned(),
            port: SocketAddrNetlink::try_from(getsockname(fd)?)?.pid(),
            groups: socket::option_of(fd, libc::SOL_NETLINK, libc::NETLINK_LIST_MEMBERSHIPS)?,
            peer: peer.map_or((0, 0), |peer| (peer.pid(), peer.groups())),
            options: OPTIONS.iter().map(option).collect::<io::Result<_>>()?,
            buffer,
        })
    }

    /// Makes it again, at the same address or any.
    ///
    /// # Errors
    /// When the system refuses one; `EADDRINUSE` when another program has the address.
    pub fn again(&self, same_port: bool) -> io::Result<OwnedFd> {
        let kind = SocketType::from_raw(self.kind);
        let fd = socket_with(AddressFamily::NETLINK, kind, SocketFlags::CLOEXEC, None)?; // NETLINK_ROUTE
        sockets::set_options(fd.as_fd(), &self.options, [None, self.buffer])?;
        if self.port != 0 {
            let port = if same_port { self.port } else { 0 };
            bind(&fd, &SocketAddrNetlink::new(port, 0))?;
        }
        for group in self.members() {
            socket::set_option_of(
                fd.as_fd(),
                libc::SOL_NETLINK,
                libc::NETLINK_ADD_MEMBERSHIP,
                &group.to_ne_bytes(),
            )?;
        }
        if self.peer != (0, 0) {
            connect(&fd, &SocketAddrNetlink::new(self.peer.0, self.peer.1))?;
        }
        Ok(fd)
    }

    fn members(&self) -> impl Iterator<Item = u32> {
        let is_member = |bit: &u32| self.groups[*bit as usize / 8] >> (bit % 8) & 1 == 1;
        let bits = 0..8 * self.groups.len() as u32;
        bits.filter(is_member).map(|bit| bit + 1)
    }
}

/// Whether nothing waits in a socket.
///
/// # Errors
/// When the system refuses a look.
pub fn is_empty(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    Ok(rustix::io::retry_on_intr(|| poll(&mut polled, Some(&now)))? == 0)
}
