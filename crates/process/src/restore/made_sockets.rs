//! The program's sockets while they are made again.

use crate::sockets::{self, Socket};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

/// The program's sockets, by the number of their descriptor.
#[derive(Debug, Default)]
pub struct MadeSockets {
    pub(super) open: BTreeMap<i32, OwnedFd>,
    /// Those that listen, and where they are bound.
    pub(super) listening: Vec<(i32, SocketAddr)>,
    /// Listeners that have `SO_REUSEADDR` by our doing, by inode.
    pub lent: HashSet<u64>,
}

impl MadeSockets {
    /// The program has them: ours are closed, so that each ends when the program closes it. Gives
    /// [`MadeSockets::lent`].
    #[must_use]
    pub fn into_lent(self) -> HashSet<u64> {
        self.lent
    }
}

/// The family of an address.
pub(super) fn family(address: impl Into<SocketAddr>) -> AddressFamily {
    match address.into() {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    }
}

/// A socket that is closed by execve(2).
pub(super) fn new(family: AddressFamily, kind: SocketType) -> io::Result<OwnedFd> {
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Gives a socket the options and the sizes of buffers that the program's had.
pub(super) fn set_options(fd: &OwnedFd, socket: &Socket) -> io::Result<()> {
    sockets::set_options(fd.as_fd(), &socket.options, socket.buffers)
}

/// The same address, for a socket of this family.
pub(super) fn reached_from(family: AddressFamily, address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(v4) if family == AddressFamily::INET6 => (v4.to_ipv6_mapped(), address.port()).into(),
        IpAddr::V6(_) if family == AddressFamily::INET => {
            (address.ip().to_canonical(), address.port()).into()
        }
        _ => address,
    }
}
