//! Messages that wait in datagram sockets with an address: udp(7), unix(7).
//!
//! * What one process of the tree sends to another is at its receiver at once, where it is looked at with `MSG_PEEK`.
//! * After a resume it is sent again, by the socket that sent it or another with that one's address.
//! * What came from another machine is not kept, and what came from a program whose address another socket has by then
//!   is lost, as messages of UDP may be. Empty messages of UDP are not seen.

use crate::error::{Error, Result};
use crate::loopback;
use crate::pairs::{check_sender, failed_look, state, under_way};
use crate::sockets::{Address, canonical};
use crate::unix_sockets::is_unix;
use rustix::event::PollFlags;
use rustix::net::{SocketAddrAny, SocketAddrUnix};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;
use twinpage_os::{socket, tcp};

/// The address that a message came from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Sender {
    /// It has none.
    None,
    /// That of a UDP socket.
    Internet(Address),
    /// That of a Unix socket, with the zero before an abstract one.
    Unix(Vec<u8>),
}

/// A message that was not received yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Datagram {
    /// The sender.
    pub from: Sender,
    /// What it says.
    pub bytes: Vec<u8>,
}

impl Sender {
    /// From an address as the kernel tells it.
    #[must_use]
    pub fn of(address: Option<SocketAddrAny>) -> Sender {
        let Some(address) = address else {
            return Sender::None;
        };
        if let Ok(address) = SocketAddr::try_from(address.clone()) {
            return Sender::Internet(address.into());
        }
        let Ok(address) = SocketAddrUnix::try_from(address) else {
            return Sender::None;
        };
        match (address.abstract_name(), address.path_bytes()) {
            (Some(name), _) if !name.is_empty() => Sender::Unix([&[0], name].concat()),
            (None, Some(path)) if !path.is_empty() => Sender::Unix(path.to_vec()),
            _ => Sender::None,
        }
    }

    /// Whether a resume may send in its name.
    fn is_here(&self) -> bool {
        match self {
            Sender::Internet(address) => loopback::is_here(SocketAddr::from(*address).ip()),
            Sender::None | Sender::Unix(_) => true,
        }
    }
}

/// The address that a message from this socket to another has, where that is on this machine: of one that is bound to
/// none, the kernel takes the receiver's.
///
/// # Errors
/// When the system refuses a look.
pub fn sent_from(here: SocketAddr, to: SocketAddr) -> io::Result<Option<SocketAddr>> {
    let (here, to) = (canonical(here), canonical(to));
    let from = match here.ip().is_unspecified() {
        true => SocketAddr::new(to.ip(), here.port()),
        false => here,
    };
    if to.ip().is_loopback() {
        return Ok(Some(from));
    }
    // The way there is looked up as for a message. An address of many receivers is refused, or has another way.
    let probe = UdpSocket::bind(tcp::nowhere(to.ip()))?;
    let way = probe.connect(to).and_then(|()| probe.local_addr());
    Ok(way.is_ok_and(|way| way.ip() == to.ip()).then_some(from))
}

/// What waits in a socket and may come back. It stays there. Nothing of the program runs.
///
/// # Errors
/// [`Error::NotYet`] while a look would change something, and when the system refuses one.
pub fn held(number: i32, fd: BorrowedFd<'_>) -> Result<Vec<Datagram>> {
    let look = |source| failed_look(number, source);
    if state(fd).map_err(look)?.contains(PollFlags::ERR) {
        return behind_error(number, fd);
    }
    let all = socket::peek_messages(fd).map_err(look)?;
    if all.iter().any(|message| !message.along.is_empty()) {
        return Err(under_way(number));
    }
    if !all.is_empty() && is_unix(fd) {
        check_sender(number, fd)?;
    }
    let all = all.into_iter().map(|message| Datagram {
        from: Sender::of(message.from),
        bytes: message.bytes,
    });
    Ok(all.filter(|datagram| datagram.from.is_here()).collect())
}

/// The kernel tells an error before the messages, and once: a look would take it from the program.
fn behind_error(number: i32, fd: BorrowedFd<'_>) -> Result<Vec<Datagram>> {
    let waits = rustix::io::ioctl_fionread(fd).is_ok_and(|bytes| bytes > 0);
    if waits && is_unix(fd) {
        return Err(Error::NotYet(format!(
            "descriptor {number} is a socket with messages behind an error that the program was not told yet"
        )));
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn messages_and_their_senders_are_seen_and_stay() {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = receiver.local_addr().unwrap();
        let senders = [0; 2].map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let mut expected = Vec::new();
        for (sender, length) in [(0, 3), (1, 0), (1, 60_000), (0, 1)] {
            let bytes = vec![sender as u8; length];
            senders[sender].send_to(&bytes, to).unwrap();
            let from = Sender::Internet(senders[sender].local_addr().unwrap().into());
            if length > 0 {
                expected.push(Datagram { from, bytes });
            }
        }
        for _ in 0..2 {
            assert_eq!(held(0, receiver.as_fd()).unwrap(), expected);
        }
        let mut bytes = vec![0; 1 << 16];
        for length in [3, 0, 60_000, 1] {
            assert_eq!(receiver.recv(&mut bytes).unwrap(), length);
        }

        let directory = tempfile::tempdir().unwrap();
        let receiver = UnixDatagram::bind(directory.path().join("receiver")).unwrap();
        let sender = UnixDatagram::bind(directory.path().join("sender")).unwrap();
        sender
            .send_to(b"named", directory.path().join("receiver"))
            .unwrap();
        let nameless = UnixDatagram::unbound().unwrap();
        nameless
            .send_to(b"nameless", directory.path().join("receiver"))
            .unwrap();
        let name = directory
            .path()
            .join("sender")
            .into_os_string()
            .into_encoded_bytes();
        let expected = [(Sender::Unix(name), &b"named"[..]), (Sender::None, b"nameless")];
        let found = held(0, receiver.as_fd()).unwrap().into_iter();
        let found: Vec<_> = found.map(|datagram| (datagram.from, datagram.bytes)).collect();
        assert_eq!(found, expected.map(|(from, bytes)| (from, bytes.to_vec())));
    }

    #[test]
    fn an_error_that_waits_stays() {
        let closed = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
            .unwrap()
            .local_addr()
            .unwrap();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.connect(closed).unwrap();
        socket.send(b"to none").unwrap();
        assert_eq!(held(0, socket.as_fd()).unwrap(), []);
        let told = socket.recv(&mut [0]).unwrap_err();
        assert_eq!(told.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn the_way_of_a_message_is_known() {
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 7));
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 7));
        let to = |ip: [u8; 4]| sent_from(any, (ip, 9).into()).unwrap();
        assert_eq!(to([127, 0, 0, 1]), Some(here));
        assert_eq!(to([224, 0, 0, 1]), None, "to many");
        assert_eq!(to([255, 255, 255, 255]), None, "to all");
        assert_eq!(to([192, 0, 2, 1]), None, "to another machine");
        let mapped = SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), 9));
        assert_eq!(sent_from("[::]:7".parse().unwrap(), mapped).unwrap(), Some(here));
    }
}
