//! Whether what is sent on a socket stays in the tree: who is at its other side is asked of the kernel.
//!
//! * What stays in the tree is part of each checkpoint, and is not held.
//! * Where the kernel does not tell, another program may be there.

use super::Stopped;
use crate::datagrams::sent_from;
use crate::files::Ident;
use crate::loopback::{self, Other};
use crate::pairs;
use crate::program::Program;
use crate::sockets::{self, Protocol, address_of, canonical, protocol};
use crate::unix_sockets::leads_outside;
use rustix::fs::AtFlags;
use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use twinpage_os::udp;
use twinpage_os::unix_sockets::{self, Bound};

/// Bytes of the family at the beginning of an address.
pub(super) const FAMILY_BYTES: usize = 2;

/// The file that an address names; empty of one that names none.
pub(super) fn path_of(name: &[u8]) -> &Path {
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Path::new(OsStr::from_bytes(name))
}

/// The address of TCP or UDP in the bytes that the kernel takes.
pub(super) fn internet_address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    match i32::from(family) {
        libc::AF_INET => {
            let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some((ip, port).into())
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            Some((ip, port).into())
        }
        _ => None,
    }
}

/// What a socket is that a call sends on: asked once for the call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    pub(super) inode: u64,
    /// `None` of a Unix socket, and of one that asks the kernel: netlink(7).
    pub(super) protocol: Option<Protocol>,
    kind: i32,
}

impl Sender {
    /// Whether it is no socket of the internet, nor one of a stream.
    pub(super) fn may_be_netlink(self) -> bool {
        self.protocol.is_none() && self.sends_messages()
    }

    /// Whether what is sent stays apart.
    pub(super) fn sends_messages(self) -> bool {
        self.kind != libc::SOCK_STREAM
    }
}

impl Program {
    /// What the socket with this inode is; `None` of what is none.
    pub(super) fn sender(&self, fd: BorrowedFd<'_>, inode: u64) -> Option<Sender> {
        // Most that is sent goes to clients.
        let (protocol, kind) = match self.descriptors.is_outside(inode) {
            true => (Some(Protocol::Tcp), libc::SOCK_STREAM),
            false => (protocol(fd), pairs::kind(fd).ok()?),
        };
        Some(Sender {
            inode,
            protocol,
            kind,
        })
    }

    /// Whether what a call sends on this socket is held.
    pub(super) fn is_held(&mut self, call: &Stopped, fd: BorrowedFd<'_>, sender: Sender) -> bool {
        if self.sockets.holds().is_none() {
            return false;
        }
        match sender.protocol {
            Some(Protocol::Tcp) => !self.is_within(fd, sender.inode),
            Some(Protocol::Udp) => !self.stays(call, |to| self.udp_receiver(fd, to), fd),
            None if !leads_outside(fd) => false,
            None => sender.kind != libc::SOCK_DGRAM || !self.stays(call, |to| self.unix_receiver(fd, to), fd),
        }
    }

    /// Whether the tree has the receivers of all messages of a call.
    fn stays(
        &self,
        call: &Stopped,
        receiver: impl Fn(&[u8]) -> io::Result<Option<u64>>,
        fd: BorrowedFd<'_>,
    ) -> bool {
        let is_ours = |to: &Vec<u8>| {
            let receiver = receiver(to).ok().flatten();
            receiver.is_some_and(|inode| self.has_socket(fd, inode))
        };
        let addressees = self.addressees(call);
        addressees.is_some_and(|addressees| addressees.iter().all(is_ours))
    }

    /// The inode of the UDP socket on this machine that a message goes to.
    fn udp_receiver(&self, fd: BorrowedFd<'_>, to: &[u8]) -> io::Result<Option<u64>> {
        let to = match to {
            [] => sockets::peer(fd).map(SocketAddr::from),
            to => internet_address(to),
        };
        let Some(to) = to else {
            return Ok(None);
        };
        match sent_from(address_of(fd)?, to)? {
            Some(from) => udp::receiver(from, canonical(to)),
            None => Ok(None),
        }
    }

    /// The inode of the Unix datagram socket that a message goes to.
    fn unix_receiver(&self, fd: BorrowedFd<'_>, to: &[u8]) -> io::Result<Option<u64>> {
        match to.get(FAMILY_BYTES..) {
            Some(name) => self
                .bound(name)
                .map_or(Ok(None), |bound| unix_sockets::receiver_at(&bound)),
            None => Ok(unix_sockets::look_up(rustix::fs::fstat(fd)?.st_ino)?.peer),
        }
    }

    /// Whether a TCP connection, the socket with this inode, has both ends in the tree.
    pub(super) fn is_within(&mut self, fd: BorrowedFd<'_>, inode: u64) -> bool {
        if self.descriptors.is_outside(inode) {
            return false;
        }
        if let Some(known) = self.sockets.within.get(&inode) {
            return *known;
        }
        let other = match loopback::other_end(fd) {
            Ok(Some(Other::Socket(other))) => other.inode,
            Ok(Some(Other::Waiting(listener))) => listener,
            _ => return false,
        };
        let is_within = self.has_socket(fd, other);
        self.sockets.within.insert(inode, is_within);
        is_within
    }

    /// Whether the tree has the socket with this inode, on the file system that all sockets are on, as `beside`.
    pub(super) fn has_socket(&self, beside: impl AsFd, inode: u64) -> bool {
        let stat = rustix::fs::fstat(beside);
        stat.is_ok_and(|stat| {
            let (dev, ino) = (stat.st_dev, inode);
            self.has_open(Ident { dev, ino })
        })
    }

    /// What a socket with this address is bound to, if it is there.
    pub(super) fn bound(&self, name: &[u8]) -> Option<Bound> {
        if let Some((0, name)) = name.split_first() {
            return Some(Bound::Abstract(name.to_vec()));
        }
        let path = path_of(name);
        let start = self.start(libc::AT_FDCWD, path)?;
        let stat = rustix::fs::statat(start.as_fd(), path, AtFlags::empty()).ok()?;
        Some(Bound::File(stat.st_ino as u32))
    }
}
