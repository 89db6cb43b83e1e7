//! Connections that are found reset by their peer: tcp(7).
//!
//! * The kernel itself makes the reset, so reads, writes and epoll(7) answer as after any other reset.
//! * A TCP socket is connected over loopback to a listener here, and its other end is closed with `SO_LINGER` 0.
//!   A socket of IPv6 connects to the mapped address of IPv4, so it needs no loopback of its own.

use crate::socket;
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Resets TCP connections that are made to it.
#[derive(Debug)]
pub struct Resetter(TcpListener);

impl Resetter {
    /// Listens on a free port of the loopback.
    ///
    /// # Errors
    /// When no port is free.
    pub fn new() -> io::Result<Self> {
        Ok(Self(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?))
    }

    /// Where to connect. A socket of IPv6 takes the mapped address: `Ipv4Addr::to_ipv6_mapped`.
    ///
    /// # Errors
    /// When the system refuses a look.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Resets a socket that is connected here, and returns once it is.
    ///
    /// # Errors
    /// When it is not connected.
    pub fn reset(&self, connected: BorrowedFd<'_>) -> io::Result<()> {
        let connected = TcpStream::from(connected.try_clone_to_owned()?);
        let own = canonical(connected.local_addr()?);
        if canonical(connected.peer_addr()?) != self.address()? {
            return Err(io::Error::from(io::ErrorKind::NotConnected));
        }
        // Anyone may connect to a loopback port: other connections are closed too, and are not waited for.
        loop {
            let (other_end, from) = self.0.accept()?;
            close_with_reset(other_end)?;
            if canonical(from) == own {
                return wait_for_reset(connected.as_fd());
            }
        }
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn close_with_reset(connection: impl Into<OwnedFd>) -> io::Result<()> {
    let connection = connection.into();
    let on_for_no_time = [1i32.to_ne_bytes(), 0i32.to_ne_bytes()].concat();
    socket::set_option(connection.as_fd(), libc::SO_LINGER, &on_for_no_time)
}

fn wait_for_reset(fd: BorrowedFd<'_>) -> io::Result<()> {
    loop {
        let mut polled = [PollFd::new(&fd, PollFlags::empty())]; // errors and hang-ups are always told
        match poll(&mut polled, None) {
            Ok(_) if polled[0].revents().contains(PollFlags::HUP) => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::epoll;
    use rustix::net::{AddressFamily, SocketType};
    use std::io::{Read, Write};

    /// A reset is told once by reading, then there is the end; writing fails; epoll tells all of it.
    fn is_reset(fd: OwnedFd) {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(&poll, &fd, epoll::EventData::new_u64(7), flags).unwrap();
        let mut told = Vec::with_capacity(2);
        epoll::wait(&poll, rustix::buffer::spare_capacity(&mut told), None).unwrap();
        let wanted = epoll::EventFlags::ERR | epoll::EventFlags::HUP | epoll::EventFlags::IN;
        let event = told[0].flags;
        assert!(event.contains(wanted), "{event:?}");
        let mut stream = TcpStream::from(fd); // reads and writes any stream socket
        let mut bytes = [0; 8];
        let error = stream.read(&mut bytes).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
        assert_eq!(stream.read(&mut bytes).unwrap(), 0);
        let error = stream.write(&bytes).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
    }

    #[test]
    fn tcp_connections_are_found_reset() {
        let resetter = Resetter::new().unwrap();
        let stranger = TcpStream::connect(resetter.address().unwrap()).unwrap();
        let one = TcpStream::connect(resetter.address().unwrap()).unwrap();
        resetter.reset(one.as_fd()).unwrap();
        is_reset(one.into());
        is_reset(stranger.into());
    }

    #[test]
    fn tcp_connections_of_ipv6_are_found_reset_over_the_mapped_address() {
        let resetter = Resetter::new().unwrap();
        let SocketAddr::V4(address) = resetter.address().unwrap() else {
            panic!("the resetter listens on IPv4")
        };
        let mapped = SocketAddr::from((address.ip().to_ipv6_mapped(), address.port()));
        let one = rustix::net::socket(AddressFamily::INET6, SocketType::STREAM, None).unwrap();
        rustix::net::connect(&one, &mapped).unwrap();
        resetter.reset(one.as_fd()).unwrap();
        is_reset(one);
    }

    #[test]
    fn a_socket_connected_elsewhere_is_refused() {
        let elsewhere = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let one = TcpStream::connect(elsewhere.local_addr().unwrap()).unwrap();
        let error = Resetter::new().unwrap().reset(one.as_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
    }
}
