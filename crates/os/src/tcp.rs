//! What the kernel knows of a TCP socket in this network namespace, found by its addresses: sock_diag(7),
//! linux/inet_diag.h; tcp(7), `TCP_INFO`.

use crate::diag::{self, BY_FAMILY, DUMP, HEADER_BYTES, REQUEST, attributes, list, short, word};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::OnceLock;

/// States of a TCP socket: netinet/tcp.h, `TCP_ESTABLISHED` and so on.
pub mod state {
    #![allow(missing_docs)]
    pub const ESTABLISHED: u8 = 1;
    pub const SYN_SENT: u8 = 2;
    pub const SYN_RECV: u8 = 3;
    pub const FIN_WAIT1: u8 = 4;
    pub const FIN_WAIT2: u8 = 5;
    pub const CLOSE: u8 = 7;
    pub const CLOSE_WAIT: u8 = 8;
    pub const LAST_ACK: u8 = 9;
    pub const LISTEN: u8 = 10;
    pub const CLOSING: u8 = 11;
}
use state::{CLOSE_WAIT, ESTABLISHED, LISTEN};

/// `INET_DIAG_INFO`, and the bit that asks for it.
const INFO: u16 = 2;
const SHOW_INFO: u8 = 1 << (INFO - 1);
/// Bytes of a struct inet_diag_msg, and where its state and inode are.
const MESSAGE_BYTES: usize = 72;
const STATE: usize = HEADER_BYTES + 1;
pub(crate) const INODE: usize = HEADER_BYTES + 68;
/// Where the port and the address of either end are.
const LOCAL: (usize, usize) = (HEADER_BYTES + 4, HEADER_BYTES + 8);
const PEER: (usize, usize) = (HEADER_BYTES + 6, HEADER_BYTES + 24);

/// A TCP socket as the kernel lists it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its inode; 0 of one that no process has: a connection that was not accepted yet, or one that was closed.
    pub inode: u64,
    /// Its state, as in [`Info::state`].
    pub state: u8,
    /// What it has sent and received; of one that is being made or is over, nothing is known.
    pub info: Option<Info>,
}

/// The part of `TCP_INFO` that says what is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Info {
    /// Its [`state`].
    pub state: u8,
    /// Bytes that it was given and has not sent yet.
    pub not_sent: u64,
    /// Bytes that it sent, each once.
    pub sent: u64,
    /// Bytes that came in order; the end of the other's bytes counts as one.
    pub received: u64,
}

impl Info {
    /// From the bytes of a struct tcp_info; `None` where the kernel is older than the fields (Linux 4.19).
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Info> {
        let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(Info {
            state: *bytes.first()?,
            not_sent: u64::from(word(bytes, 144)?),
            sent: long(200)?.saturating_sub(long(208)?),
            received: long(128)?,
        })
    }

    /// Of a socket of ours.
    ///
    /// # Errors
    /// The system's; `EOPNOTSUPP` where the kernel is too old.
    pub fn of(fd: impl AsFd) -> io::Result<Info> {
        let info = crate::socket::option_of(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO)?;
        Info::parse(&info).ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
}

/// The socket at `local` that is connected with `peer`; else the one that listens at `local`.
///
/// # Errors
/// When the kernel does not list TCP sockets (CONFIG_INET_TCP_DIAG).
pub fn look_up(local: SocketAddr, peer: SocketAddr) -> io::Result<Option<Listed>> {
    match ask_for(local, peer) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) && lists_any() => Ok(None),
        found => found.map(Some),
    }
}

/// The inode of the socket that listens at this address, if one does.
///
/// # Errors
/// As [`look_up`].
pub fn listener_at(address: SocketAddr) -> io::Result<Option<u64>> {
    let found = look_up(address, nowhere(address.ip()))?;
    Ok(found
        .filter(|found| found.state == LISTEN)
        .map(|found| found.inode))
}

/// The connections to this port that were not accepted yet, of the listeners of this kind of address: their addresses here
/// and there.
///
/// # Errors
/// As [`look_up`].
pub fn waiting_at(listener: SocketAddr) -> io::Result<Vec<(SocketAddr, SocketAddr)>> {
    let port = SocketAddr::new(listener.ip(), listener.port());
    let states = 1 << ESTABLISHED | 1 << CLOSE_WAIT;
    let mut found = Vec::new();
    list(
        &request(REQUEST | DUMP, states, port, nowhere(port.ip())),
        |message| {
            let both = address(message, LOCAL).zip(address(message, PEER));
            // No process has them; one that was closed is in another state.
            found.extend(both.filter(|_| word(message, INODE) == Some(0)));
        },
    )?;
    Ok(found)
}

fn address(message: &[u8], (port, ip): (usize, usize)) -> Option<SocketAddr> {
    let family = i32::from(*message.get(HEADER_BYTES)?);
    let port = u16::from_be_bytes(message.get(port..port + 2)?.try_into().ok()?);
    let bytes: [u8; 16] = message.get(ip..ip + 16)?.try_into().ok()?;
    match family {
        libc::AF_INET => Some((*bytes.first_chunk::<4>()?, port).into()),
        _ => Some((bytes, port).into()),
    }
}

/// No address, of the same kind.
#[must_use]
pub fn nowhere(ip: IpAddr) -> SocketAddr {
    match ip {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => (Ipv4Addr::UNSPECIFIED.to_ipv6_mapped(), 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// Whether the kernel lists TCP sockets at all: it says of a socket that is there what it says where it lists none.
fn lists_any() -> bool {
    static LISTS: OnceLock<bool> = OnceLock::new();
    *LISTS.get_or_init(|| {
        let here = Ipv4Addr::LOCALHOST;
        let listener = TcpListener::bind((here, 0));
        let found = listener.and_then(|listener| ask_for(listener.local_addr()?, nowhere(here.into())));
        found.is_ok()
    })
}

fn ask_for(local: SocketAddr, peer: SocketAddr) -> io::Result<Listed> {
    parse(&diag::look_up(&request(REQUEST, u32::MAX, local, peer), 1024)?)
}

fn request(flags: u16, states: u32, local: SocketAddr, peer: SocketAddr) -> [u8; 72] {
    question(libc::IPPROTO_TCP, flags, states, local, peer)
}

/// A question for one socket of a protocol, or for those in some states: a struct nlmsghdr and a struct inet_diag_req_v2.
pub(crate) fn question(
    protocol: i32,
    flags: u16,
    states: u32,
    local: SocketAddr,
    peer: SocketAddr,
) -> [u8; 72] {
    let mut request = [0; 72];
    let mut put = |at: usize, bytes: &[u8]| request[at..at + bytes.len()].copy_from_slice(bytes);
    let family = match local {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    put(0, &72u32.to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    put(6, &flags.to_ne_bytes());
    put(16, &[family as u8, protocol as u8, SHOW_INFO]);
    put(20, &states.to_ne_bytes());
    for (address, port_at, address_at) in [(local, 24, 28), (peer, 26, 44)] {
        put(port_at, &address.port().to_be_bytes());
        match address.ip() {
            IpAddr::V4(ip) => put(address_at, &ip.octets()),
            IpAddr::V6(ip) => put(address_at, &ip.octets()),
        }
    }
    put(64, &[0xff; 8]); // whatever its cookie
    request
}

fn parse(reply: &[u8]) -> io::Result<Listed> {
    let info = attributes(reply, MESSAGE_BYTES).find(|(kind, _)| *kind == INFO);
    Ok(Listed {
        inode: word(reply, INODE).map(u64::from).ok_or_else(short)?,
        state: *reply.get(STATE).ok_or_else(short)?,
        info: info.and_then(|(_, value)| Info::parse(value)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpStream};

    fn inode(socket: impl AsFd) -> u64 {
        rustix::fs::fstat(socket).unwrap().st_ino
    }

    /// Both ends of a connection, by their addresses.
    fn listed(stream: &TcpStream) -> [Option<Listed>; 2] {
        let (local, peer) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        [look_up(local, peer).unwrap(), look_up(peer, local).unwrap()]
    }

    #[test]
    fn both_ends_are_found_and_what_is_under_way() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(local) else {
                println!("NOTE: {local} is not there");
                continue;
            };
            let address = listener.local_addr().unwrap();
            assert_eq!(listener_at(address).unwrap(), Some(inode(&listener)));
            let mut one = TcpStream::connect(address).unwrap();
            let [ours, theirs] = listed(&one).map(Option::unwrap);
            assert_eq!(
                (ours.inode, theirs.inode),
                (inode(&one), 0),
                "it was not accepted"
            );
            let both = (address, one.local_addr().unwrap());
            assert_eq!(waiting_at(address).unwrap(), [both]);
            let (mut other, _) = listener.accept().unwrap();
            let [_, theirs] = listed(&one).map(Option::unwrap);
            assert_eq!(theirs.inode, inode(&other));
            assert!(waiting_at(address).unwrap().is_empty());

            one.write_all(b"some bytes").unwrap();
            let [ours, theirs] = listed(&one).map(|end| end.unwrap().info.unwrap());
            assert_eq!((ours.not_sent, ours.sent, theirs.received), (0, 10, 10));
            assert_eq!(Info::of(&one).unwrap(), ours);
            one.shutdown(Shutdown::Write).unwrap();
            let [ours, theirs] = listed(&one).map(|end| end.unwrap().info.unwrap());
            assert_eq!((ours.sent, theirs.received), (10, 11));
            let mut read = Vec::new();
            other.read_to_end(&mut read).unwrap();
            assert_eq!(read, b"some bytes");
            let addresses = (one.local_addr().unwrap(), address);
            drop((one, other, listener));
            assert_eq!(listener_at(address).unwrap(), None);
            let left = look_up(addresses.0, addresses.1).unwrap();
            assert!(left.is_none_or(|left| left.inode == 0), "{left:?}");
        }
    }

    /// What does not fit the other's buffer waits where it was sent.
    #[test]
    fn bytes_that_were_not_received_are_seen() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_other, _) = listener.accept().unwrap();
        one.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(more) = one.write(&[7; 10_000]) {
            written += more as u64;
        }
        let [ours, theirs] = listed(&one).map(|end| end.unwrap().info.unwrap());
        assert!(
            ours.not_sent > 0 || ours.sent != theirs.received,
            "{ours:?} {theirs:?}"
        );
        assert_eq!(ours.sent + ours.not_sent, written);
    }

    #[test]
    fn a_dual_listener_is_found_at_both_kinds_of_addresses() {
        let Ok(listener) = TcpListener::bind("[::]:0") else {
            return println!("NOTE: there is no IPv6");
        };
        let port = listener.local_addr().unwrap().port();
        let found = listener_at((Ipv4Addr::LOCALHOST, port).into()).unwrap();
        assert_eq!(found, Some(inode(&listener)));
        let one = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let (other, _) = listener.accept().unwrap();
        assert!(other.local_addr().unwrap().is_ipv6());
        let [_, theirs] = listed(&one).map(Option::unwrap);
        assert_eq!(theirs.inode, inode(&other));
        let [theirs, ours] = listed(&other).map(Option::unwrap);
        assert_eq!((ours.inode, theirs.inode), (inode(&one), inode(&other)));
    }

    #[test]
    fn nonsense_is_no_socket() {
        assert!(parse(&[]).is_err() && parse(&[0; 20]).is_err());
        assert!(Info::parse(&[0; 100]).is_none());
    }
}
