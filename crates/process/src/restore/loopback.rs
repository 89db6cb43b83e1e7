//! TCP connections within the tree, made again with what is in them.
//!
//! 1. An end listens where it was bound, or the listener does that the program has there; the other end is bound where
//!    it was, and connects.
//! 2. Each end is sent what it had not received, by the other.
//! 3. Ends that sent their end send it; one whose other end was closed loses that.

use super::made_sockets::{MadeSockets, family, new, reached_from, set_options};
use crate::context::Context;
use crate::descriptors::{DescriptorKind, Held};
use crate::error::{Error, Result};
use crate::loopback::End;
use crate::sockets::{Socket, address_of, canonical, covers};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SocketType, acceptfrom, bind, listen};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use twinpage_os::socket;

/// An end to be made: its descriptor, what it is, and what it held.
#[derive(Clone, Copy)]
struct Wanted<'c> {
    fd: i32,
    socket: &'c Socket,
    end: &'c End,
}

/// Makes all of them; the program's listeners are made.
///
/// # Errors
/// Names the descriptor.
pub(super) fn make(context: &Context, made: &mut MadeSockets) -> Result<()> {
    let all = context.fixed.descriptors.iter().zip(&context.live.held);
    let all = all.filter(|(one, _)| one.shares == one.fd);
    let wanted: BTreeMap<u64, Wanted<'_>> = all
        .filter_map(|(descriptor, held)| match (&descriptor.kind, held) {
            (DescriptorKind::Connection(socket), Held::Within(end)) => {
                let fd = descriptor.fd;
                Some((end.inode, Wanted { fd, socket, end }))
            }
            _ => None,
        })
        .collect();
    for one in wanted.values() {
        if made.open.contains_key(&one.fd) {
            continue;
        }
        let other = wanted.get(&one.end.peer).copied();
        let (ours, theirs) = again(*one, other, made)
            .map_err(|source| Error::target(format!("cannot make connection {} again", one.fd), source))?;
        made.open.insert(one.fd, ours);
        if let (Some(other), Some(theirs)) = (other, theirs) {
            made.open.insert(other.fd, theirs);
        }
    }
    Ok(())
}

/// Both ends of a connection; one, where the other was closed.
fn again(
    one: Wanted<'_>,
    other: Option<Wanted<'_>>,
    made: &MadeSockets,
) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
    let here = SocketAddr::from(one.socket.address);
    let there = match (other, one.end.address) {
        (Some(other), _) => other.socket.address.into(),
        (None, Some(address)) => address.into(),
        (None, None) => SocketAddr::new(here.ip(), 0),
    };
    let theirs = other.map(|other| other.socket);
    let (ours, theirs) = match (made.listening_at(there), made.listening_at(here)) {
        (there_listen, _) if !there_listen.is_empty() => {
            let (theirs, ours) = join(&there_listen, there, here, Some(one.socket))?;
            (ours, theirs)
        }
        (_, here_listen) if !here_listen.is_empty() => join(&here_listen, here, there, theirs)?,
        _ => join(&[listens_for_now(one.socket)?.as_fd()], here, there, theirs)?,
    };
    send(&theirs, &one.end.unread)?;
    if let Some(other) = other {
        send(&ours, &other.end.unread)?;
        finish(&theirs, other)?;
    }
    finish(&ours, one)?;
    if other.is_none() && one.end.reset {
        let at_once = [1i32, 0].map(i32::to_ne_bytes).concat();
        socket::set_option(theirs.as_fd(), libc::SO_LINGER, &at_once)?;
    }
    Ok((ours, other.map(|_| theirs)))
}

impl MadeSockets {
    /// The program's listeners that take connections to an address: several, where they share it (`SO_REUSEPORT`).
    fn listening_at(&self, address: SocketAddr) -> Vec<BorrowedFd<'_>> {
        let all = self.listening.iter().filter(|(_, bound)| covers(*bound, address));
        all.filter_map(|(fd, _)| self.open.get(fd))
            .map(AsFd::as_fd)
            .collect()
    }
}

/// A listener for one connection, where an end was bound; at another port, where that one is taken.
fn listens_for_now(end: &Socket) -> io::Result<OwnedFd> {
    let address = SocketAddr::from(end.address);
    let fd = fresh(address, Some(end))?;
    match bind(&fd, &address) {
        Err(Errno::ADDRINUSE) => bind(&fd, &SocketAddr::new(address.ip(), 0))?,
        bound => bound?,
    }
    listen(&fd, 1)?;
    Ok(fd)
}

/// Connects a socket bound to `client` with one of the listeners, which others reach at `server`: the listener's end, and
/// the other, which is to be as `end`.
fn join(
    listeners: &[BorrowedFd<'_>],
    server: SocketAddr,
    client: SocketAddr,
    end: Option<&Socket>,
) -> io::Result<(OwnedFd, OwnedFd)> {
    let to = SocketAddr::new(server.ip(), address_of(listeners[0])?.port());
    let to = reached_from(family(client), to);
    let connect_from = |client: SocketAddr| {
        let fd = fresh(client, end)?;
        bind(&fd, &client)?;
        socket::connect(fd.as_fd(), &to)?;
        io::Result::Ok(fd)
    };
    let connected = match connect_from(client) {
        // The kernel keeps the pair of addresses for a while, or another socket has the port.
        Err(error) if [io::ErrorKind::AddrNotAvailable, io::ErrorKind::AddrInUse].contains(&error.kind()) => {
            connect_from(SocketAddr::new(client.ip(), 0))?
        }
        connected => connected?,
    };
    let expected = address_of(connected.as_fd())?;
    loop {
        let mut asked: Vec<_> = (listeners.iter().copied())
            .map(|listener| PollFd::from_borrowed_fd(listener, PollFlags::IN))
            .collect();
        rustix::io::retry_on_intr(|| poll(&mut asked, None))?;
        let ready = asked.iter().position(|asked| !asked.revents().is_empty());
        let (accepted, from) = rustix::io::retry_on_intr(|| acceptfrom(listeners[ready.unwrap_or(0)]))?;
        let from = from.and_then(|from| SocketAddr::try_from(from).ok());
        if from.is_some_and(|from| canonical(from) == canonical(expected)) {
            rustix::io::fcntl_setfd(&accepted, rustix::io::FdFlags::CLOEXEC)?;
            return Ok((accepted, connected));
        }
        // Another program's, which is reset as all are by a resume.
    }
}

/// A socket for an address, which others may have had before, as `end` is before it is bound.
fn fresh(address: SocketAddr, end: Option<&Socket>) -> io::Result<OwnedFd> {
    let fd = new(family(address), SocketType::STREAM)?;
    socket::set_option(fd.as_fd(), libc::SO_REUSEADDR, &1i32.to_ne_bytes())?;
    let options = end.iter().flat_map(|end| &end.options);
    for (level, name, value) in options.filter(|(level, ..)| *level == libc::IPPROTO_IPV6) {
        socket::set_option_of(fd.as_fd(), *level, *name, value)?;
    }
    Ok(fd)
}

/// Sends what the other end had not received. What finds no room there stays under way.
fn send(from: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        rest = &rest[socket::send(from.as_fd(), rest)?..];
    }
    Ok(())
}

/// What follows the bytes, and the options: buffers have their size once they are full.
fn finish(fd: &OwnedFd, wanted: Wanted<'_>) -> io::Result<()> {
    if wanted.end.sends_no_more {
        socket::shut(fd.as_fd(), libc::SHUT_WR)?;
    }
    if wanted.end.receives_no_more {
        socket::shut(fd.as_fd(), libc::SHUT_RD)?;
    }
    let mut settable = wanted.socket.clone();
    settable
        .options
        .retain(|(level, ..)| *level != libc::IPPROTO_IPV6); // not once it was connected
    set_options(fd, &settable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback::{self, MOST_BYTES};
    use crate::sockets::Sockets;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};

    fn pair(address: &str) -> Option<(TcpStream, TcpStream)> {
        let Ok(listener) = TcpListener::bind(address) else {
            println!("NOTE: {address} is not there");
            return None;
        };
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        Some((one, listener.accept().unwrap().0))
    }

    fn look(stream: &TcpStream) -> (Socket, End) {
        let fd = OwnedFd::from(stream.try_clone().unwrap());
        let end = loopback::held(0, &fd, |_| true, true).unwrap().unwrap();
        (Sockets::default().describe(end.inode, fd.as_fd()).unwrap(), end)
    }

    /// Both ends of a connection that is closed meanwhile, made again, and how they look.
    fn made_again(one: TcpStream, other: Option<TcpStream>) -> (TcpStream, Option<TcpStream>) {
        let before = [Some(&one), other.as_ref()].map(|stream| stream.map(look));
        drop((one, other));
        let [first, second] = before.each_ref().map(|looked| {
            let (socket, end) = looked.as_ref()?;
            Some(Wanted { fd: 0, socket, end })
        });
        let (one, other) = again(first.unwrap(), second, &MadeSockets::default()).unwrap();
        let (one, other) = (TcpStream::from(one), other.map(TcpStream::from));
        for (stream, looked) in [Some(&one), other.as_ref()].into_iter().zip(&before) {
            let (Some(stream), Some((socket, end))) = (stream, looked) else {
                continue;
            };
            let (socket_now, end_now) = look(stream);
            // Bound to an address, a socket of IPv6 is one of IPv6 alone.
            let own = |socket: &Socket| {
                let options = socket
                    .options
                    .iter()
                    .filter(|(level, ..)| *level != libc::IPPROTO_IPV6);
                (options.cloned().collect::<Vec<_>>(), socket.buffers)
            };
            assert_eq!(own(&socket_now), own(socket));
            let ip = |socket: &Socket| SocketAddr::from(socket.address).ip();
            assert_eq!(ip(&socket_now), ip(socket)); // a port may be another one
            let same = |end: &End| {
                (
                    end.unread.clone(),
                    end.sends_no_more,
                    end.receives_no_more,
                    end.reset,
                )
            };
            assert_eq!(same(&end_now), same(end));
            assert_eq!(end_now.peer == 0, end.peer == 0);
        }
        (one, other)
    }

    #[test]
    fn a_connection_comes_back_with_what_waits_at_both_ends() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Some((mut one, mut other)) = pair(address) else {
                continue;
            };
            one.write_all(b"there").unwrap();
            other.write_all(b"and back").unwrap();
            one.set_nodelay(true).unwrap();
            let addresses = [&one, &other].map(|end| (end.local_addr().unwrap(), end.peer_addr().unwrap()));
            // Closed with bytes unread it is reset, so that its ports are free at once.
            let (mut one, other) = made_again(one, Some(other));
            let mut other = other.unwrap();
            let now = [&one, &other].map(|end| (end.local_addr().unwrap(), end.peer_addr().unwrap()));
            assert_eq!(now, addresses);
            one.write_all(b", again").unwrap();
            let mut read = [0; 12];
            other.read_exact(&mut read).unwrap();
            assert_eq!(&read, b"there, again");
            one.read_exact(&mut read[..8]).unwrap();
            assert_eq!(&read[..8], b"and back");
        }
    }

    #[test]
    fn as_much_as_may_wait_comes_back() {
        let (one, other) = pair("127.0.0.1:0").unwrap();
        let [(socket, mut end), (other_socket, mut other_end)] = [&one, &other].map(look);
        drop((one, other));
        let bytes: Vec<u8> = (0..MOST_BYTES).map(|at| (at / 3) as u8).collect();
        (end.unread, other_end.unread) = (bytes.clone(), bytes.clone());
        let [first, second] =
            [(&socket, &end), (&other_socket, &other_end)].map(|(socket, end)| Wanted { fd: 0, socket, end });
        let (one, other) = again(first, Some(second), &MadeSockets::default()).unwrap();
        for end in [one, other.unwrap()] {
            let mut read = vec![0; MOST_BYTES];
            TcpStream::from(end).read_exact(&mut read).unwrap();
            assert!(read == bytes);
        }
    }

    /// The kernel gives a connection to any of the listeners that share a port.
    #[test]
    fn listeners_that_share_a_port_take_it() {
        let mut made = MadeSockets::default();
        let mut address = SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
        for number in 0..3 {
            let fd = new(family(address), SocketType::STREAM).unwrap();
            socket::set_option(fd.as_fd(), libc::SO_REUSEPORT, &1i32.to_ne_bytes()).unwrap();
            bind(&fd, &address).unwrap();
            listen(&fd, 1).unwrap();
            address = address_of(fd.as_fd()).unwrap();
            made.listening.push((number, address));
            made.open.insert(number, fd);
        }
        let listeners = made.listening_at(address);
        assert_eq!(listeners.len(), 3);
        for _ in 0..20 {
            let client = SocketAddr::new(address.ip(), 0);
            let (accepted, connected) = join(&listeners, address, client, None).unwrap();
            assert_eq!(address_of(accepted.as_fd()).unwrap(), address);
            send(&connected, b"x").unwrap();
            assert_eq!(rustix::io::ioctl_fionread(&accepted).unwrap(), 1);
        }
    }

    #[test]
    fn half_closed_and_closed_connections_come_back() {
        let (mut one, other) = pair("127.0.0.1:0").unwrap();
        one.write_all(b"the last").unwrap();
        one.shutdown(Shutdown::Write).unwrap();
        let (one, other) = made_again(one, Some(other));
        other.as_ref().unwrap().write_all(b"an answer").unwrap();
        one.shutdown(Shutdown::Read).unwrap();
        let (one, other) = made_again(one, other);
        let mut other = other.unwrap();
        let mut read = String::new();
        other.read_to_string(&mut read).unwrap();
        assert_eq!(read, "the last");
        drop((one, other));

        let (mut one, other) = pair("127.0.0.1:0").unwrap();
        (&other).write_all(b"and closed").unwrap();
        drop(other);
        let (again, none) = made_again(one, None);
        assert!(none.is_none());
        one = again;
        let mut read = String::new();
        one.read_to_string(&mut read).unwrap();
        assert_eq!(read, "and closed");
        one.write_all(b"to nobody").unwrap();
        let told = (0..100).find_map(|_| one.write(b"x").err());
        assert!(told.is_some(), "the other end is closed");

        // Both ways closed, with bytes left.
        let (one, other) = pair("127.0.0.1:0").unwrap();
        one.shutdown(Shutdown::Write).unwrap();
        (&other).write_all(b"left").unwrap();
        drop(other);
        let (mut one, _) = made_again(one, None);
        let mut read = String::new();
        one.read_to_string(&mut read).unwrap();
        assert_eq!(read, "left");
    }

    #[test]
    fn a_reset_comes_behind_what_is_unread() {
        let (mut one, other) = pair("127.0.0.1:0").unwrap();
        one.write_all(b"not read").unwrap();
        (&other).write_all(b"read").unwrap();
        drop(other);
        let (mut one, _) = made_again(one, None);
        let mut read = [0; 4];
        one.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"read");
        let told = one.read(&mut read).unwrap_err();
        assert_eq!(told.kind(), io::ErrorKind::ConnectionReset);
    }

    /// A listener that goes before a connection was handed to it, as one without room for more does, says nothing of it.
    #[test]
    fn an_end_without_another_is_reset() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT);
        socket::set_option_of(listener.as_fd(), level, name, &30i32.to_ne_bytes()).unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop(listener);
        let fd = OwnedFd::from(one.try_clone().unwrap());
        while let Err(Error::NotYet(_)) = loopback::held(0, &fd, |_| true, true) {
            std::thread::sleep(std::time::Duration::from_millis(10)); // the kernel forgets it at a timer of its own
        }
        drop(fd);
        let (socket, end) = look(&one);
        assert!(end.peer == 0 && end.reset && end.unread.is_empty());
        drop(one);
        let wanted = Wanted {
            fd: 0,
            socket: &socket,
            end: &end,
        };
        let (one, none) = again(wanted, None, &MadeSockets::default()).unwrap();
        assert!(none.is_none());
        let told = TcpStream::from(one).read(&mut [0]).unwrap_err();
        assert_eq!(told.kind(), io::ErrorKind::ConnectionReset);
    }

    /// What is under way is waited for, also where its sender is closed already.
    #[test]
    fn bytes_under_way_are_waited_for() {
        let (one, other) = pair("127.0.0.1:0").unwrap();
        one.set_nonblocking(true).unwrap();
        while (&one).write(&[7; 10_000]).is_ok() {}
        let is_waited_for = |stream: &TcpStream| {
            let fd = OwnedFd::from(stream.try_clone().unwrap());
            matches!(loopback::held(0, &fd, |_| true, true), Err(Error::NotYet(_)))
        };
        assert!(is_waited_for(&other) && !is_waited_for(&one));
        drop(one);
        assert!(is_waited_for(&other));
    }

    #[test]
    fn a_connection_with_another_program_is_none() {
        let (one, _other) = pair("127.0.0.1:0").unwrap();
        let fd = OwnedFd::from(one);
        assert_eq!(loopback::held(0, &fd, |_| false, true).unwrap(), None);
    }
}
