//! Sockets to the outside made again: TCP listeners and UDP sockets with their ports, TCP connections as their peers'
//! reset leaves them.

use super::loopback;
use super::made_sockets::{MadeSockets, family, new, reached_from, set_options};
use crate::context::Context;
use crate::descriptors::{Descriptor, DescriptorKind, Held};
use crate::error::{Error, Result};
use crate::sockets::{Address, Phase, Socket};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with};
use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};
use twinpage_os::reset::Resetter;
use twinpage_os::socket;

/// Makes all of them, those first whose ports must be free: nothing else has changed when a port is taken.
///
/// # Errors
/// Names the address that is taken.
pub fn make(context: &Context) -> Result<MadeSockets> {
    let mut made = MadeSockets::default();
    let all =
        || (context.fixed.descriptors.iter().zip(&context.live.held)).filter(|(one, _)| one.shares == one.fd);
    for (descriptor, _) in all() {
        if let DescriptorKind::Listener { socket, backlog } = &descriptor.kind {
            let fd = listener(socket, *backlog, &mut made.lent)?;
            made.open.insert(descriptor.fd, fd);
            made.listening.push((descriptor.fd, socket.address.into()));
        }
        if let DescriptorKind::Datagrams { socket, peer } = &descriptor.kind {
            made.open.insert(descriptor.fd, datagrams(socket, *peer)?);
        }
        if let DescriptorKind::Netlink(netlink) = &descriptor.kind {
            let same = once_free(PATIENCE_FOR_ANSWERS, || netlink.again(true));
            let fd = match same {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => netlink.again(false),
                made => made,
            };
            let fd = fd.map_err(|source| cannot_make(descriptor, source))?;
            made.open.insert(descriptor.fd, fd);
        }
    }
    loopback::make(context, &mut made)?;
    let mut resetter = None;
    for (descriptor, held) in all() {
        if let (DescriptorKind::Connection(socket), Held::Connection(phase)) = (&descriptor.kind, held) {
            let fd = connection(socket, *phase, &mut resetter);
            let fd = fd.map_err(|source| cannot_make(descriptor, source))?;
            made.open.insert(descriptor.fd, fd);
        }
    }
    for (descriptor, _) in all() {
        let fd = made.open.get(&descriptor.fd);
        if let Some(fd) = fd {
            let flags = OFlags::from_bits_retain(descriptor.flags) & OFlags::NONBLOCK;
            rustix::fs::fcntl_setfl(fd, flags)
                .map_err(|error| Error::target("cannot make a socket again", error.into()))?;
        }
    }
    Ok(made)
}

fn cannot_make(descriptor: &Descriptor, source: io::Error) -> Error {
    Error::target(format!("cannot make socket {} again", descriptor.fd), source)
}

/// The processes of a run that was just killed may still hold their ports. One that asks the kernel may have another.
const PATIENCE: Duration = Duration::from_secs(2);
const PATIENCE_FOR_ANSWERS: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(10);

/// Makes a socket as soon as its address is free.
fn once_free(patience: Duration, mut make: impl FnMut() -> io::Result<OwnedFd>) -> io::Result<OwnedFd> {
    let until = Instant::now() + patience;
    loop {
        match make() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => sleep(PAUSE),
            made => return made,
        }
    }
}

/// Why a socket did not get its address again.
fn no_address(address: SocketAddr, source: io::Error) -> Error {
    if source.kind() == io::ErrorKind::AddrInUse {
        return Error::State(format!(
            "port {} of {} is taken, and the program listens there: end the program that has it now (ss -lntup names it), then resume again",
            address.port(),
            address.ip()
        ));
    }
    Error::target(format!("cannot listen on {address} again"), source)
}

/// A UDP socket. One that is connected goes on from another port where its own is taken: its peer is told by the next
/// message.
fn datagrams(socket: &Socket, peer: Option<Address>) -> Result<OwnedFd> {
    let address = SocketAddr::from(socket.address);
    let again = || {
        let fd = new(family(socket.address), SocketType::DGRAM)?;
        set_options(&fd, socket)?;
        if address.port() != 0 {
            match bind(&fd, &address) {
                Err(rustix::io::Errno::ADDRINUSE) if peer.is_some() => {}
                bound => bound?,
            }
        }
        if let Some(peer) = peer {
            connect(&fd, &SocketAddr::from(peer))?;
        }
        Ok(fd)
    };
    once_free(PATIENCE, again).map_err(|source| no_address(address, source))
}

fn listener(socket: &Socket, backlog: i32, lent: &mut HashSet<u64>) -> Result<OwnedFd> {
    let address = SocketAddr::from(socket.address);
    let again = || {
        let fd = new(family(socket.address), SocketType::STREAM)?;
        set_options(&fd, socket)?;
        let reuses = socket::option(fd.as_fd(), libc::SO_REUSEADDR)?;
        if reuses.iter().all(|byte| *byte == 0) {
            socket::set_option(fd.as_fd(), libc::SO_REUSEADDR, &1i32.to_ne_bytes())?;
            lent.insert(rustix::fs::fstat(&fd)?.st_ino);
        }
        bind(&fd, &address)?;
        listen(&fd, backlog)?;
        Ok(fd)
    };
    once_free(PATIENCE, again).map_err(|source| no_address(address, source))
}

fn connection(socket: &Socket, phase: Phase, resetter: &mut Option<Resetter>) -> io::Result<OwnedFd> {
    let fd = new(family(socket.address), SocketType::STREAM)?;
    if phase == Phase::New {
        set_options(&fd, socket)?;
        let address = SocketAddr::from(socket.address);
        if address.port() != 0 {
            bind(&fd, &address)?;
        }
        return Ok(fd);
    }
    if family(socket.address) == AddressFamily::INET6 {
        // What stands in for its peer is reached by a mapped address of IPv4.
        socket::set_option_of(
            fd.as_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_V6ONLY,
            &0i32.to_ne_bytes(),
        )?;
    }
    if phase == Phase::Connecting {
        be_refused(&fd, family(socket.address))?;
    } else {
        let resetter = match resetter {
            Some(resetter) => resetter,
            none => none.insert(Resetter::new()?),
        };
        socket::connect(
            fd.as_fd(),
            &reached_from(family(socket.address), resetter.address()?),
        )?;
        resetter.reset(fd.as_fd())?;
        if phase == (Phase::Over { error: false }) {
            socket::option(fd.as_fd(), libc::SO_ERROR)?; // reading tells it, and it is gone
        }
    }
    let mut settable = socket.clone();
    settable
        .options
        .retain(|(level, ..)| *level != libc::IPPROTO_IPV6); // not once it was connected
    set_options(&fd, &settable)?;
    Ok(fd)
}

/// Leaves a socket as a connect(2) does that was begun, and refused meanwhile: a second one is told of it.
fn be_refused(fd: &OwnedFd, family: AddressFamily) -> io::Result<()> {
    let deaf = socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    bind(&deaf, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?; // and nothing listens there
    let address = std::net::TcpListener::from(deaf.try_clone()?).local_addr()?;
    rustix::fs::fcntl_setfl(fd, OFlags::NONBLOCK)?;
    match connect(fd, &reached_from(family, address)) {
        Err(rustix::io::Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
        Ok(()) => return Err(io::Error::other("a port where nothing listens took a connection")),
    }
    let mut polled = [PollFd::new(fd, PollFlags::OUT)];
    rustix::io::retry_on_intr(|| poll(&mut polled, None))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// connect(2) that is begun again after a resume says that it failed, and not that it is connected.
    #[test]
    fn a_connect_under_way_is_refused() {
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            let fd = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
            be_refused(&fd, family).unwrap();
            let elsewhere = reached_from(family, (Ipv4Addr::LOCALHOST, 1).into());
            assert_eq!(connect(&fd, &elsewhere), Err(rustix::io::Errno::CONNREFUSED));
        }
    }
}
