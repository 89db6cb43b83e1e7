//! What the kernel knows of a Unix socket and tells by no call on it: sock_diag(7), linux/unix_diag.h.

#![allow(unsafe_code)]

use crate::diag::{self, BY_FAMILY, DUMP, HEADER_BYTES, REQUEST, attributes, list, short, word};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A Unix socket as the kernel lists it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Listed {
    /// The inode of the socket it is connected with.
    pub peer: Option<u64>,
    /// The inode of the file that it was bound to, if it was bound to one.
    pub file: Option<u64>,
    /// How many connections may wait at it, if it listens.
    pub backlog: Option<i32>,
}

/// What a socket is bound to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Bound {
    /// The file with this inode, of which the kernel tells the lower half.
    File(u32),
    /// An abstract name, without the zero before it.
    Abstract(Vec<u8>),
}

/// `UDIAG_SHOW_VFS`, `UDIAG_SHOW_PEER`, `UDIAG_SHOW_RQLEN`; `UDIAG_SHOW_NAME`; `UDIAG_SHOW_ICONS`; and the attributes
/// that they ask for.
const SHOW: u32 = 0x2 | 0x4 | 0x10;
const SHOW_BOUND: u32 = 0x1 | 0x2;
const SHOW_WAITING: u32 = 0x8;
const NAME: u16 = 0;
const FILE: u16 = 1;
const PEER: u16 = 2;
const WAITING: u16 = 3;
const QUEUE: u16 = 4;
/// `TCP_LISTEN`, which Unix sockets borrow.
const LISTEN: u8 = 10;
const MESSAGE_BYTES: usize = 16;

/// Looks a Unix socket up by its inode.
///
/// # Errors
/// `ENOENT` when there is none in this network namespace, or the kernel does not list Unix sockets.
pub fn look_up(inode: u64) -> io::Result<Listed> {
    parse(&ask_for(inode, SHOW, 512)?)
}

/// The file that a Unix socket is bound to, wherever it was moved since, as a place (O_PATH): ioctl(2), `SIOCUNIXFILE`.
///
/// # Errors
/// `EPERM` without the right to administer the socket's network (CAP_NET_ADMIN); `ENOENT` when it is bound to none.
pub fn file_of(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    const SIOCUNIXFILE: libc::Ioctl = 0x89e0; // linux/un.h
    // SAFETY: the request takes no argument and answers with a descriptor that is ours.
    unsafe {
        match libc::ioctl(socket.as_raw_fd(), SIOCUNIXFILE) {
            fd if fd < 0 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// What the socket with this inode is bound to, if it is bound.
///
/// # Errors
/// As [`look_up`].
pub fn bound(inode: u64) -> io::Result<Option<Bound>> {
    Ok(bound_in(&ask_for(inode, SHOW_BOUND, 512)?))
}

/// The inode of the socket that listens at this name in this network namespace, if one does.
///
/// # Errors
/// When the kernel does not list Unix sockets.
pub fn listener_at(bound: &Bound) -> io::Result<Option<u64>> {
    find(1 << LISTEN, |message| bound_in(message).as_ref() == Some(bound))
}

/// The inode of the socket that receives the messages that are sent to this name.
///
/// # Errors
/// As [`listener_at`].
pub fn receiver_at(bound: &Bound) -> io::Result<Option<u64>> {
    find(u32::MAX, |message| {
        message.get(HEADER_BYTES + 1) == Some(&(libc::SOCK_DGRAM as u8))
            && bound_in(message).as_ref() == Some(bound)
    })
}

fn find(states: u32, is_it: impl Fn(&[u8]) -> bool) -> io::Result<Option<u64>> {
    let mut found = None;
    list(&request(REQUEST | DUMP, states, 0, SHOW_BOUND), |message| {
        if is_it(message) {
            found = word(message, HEADER_BYTES + 4).map(u64::from);
        }
    })?;
    Ok(found)
}

/// The inodes of the sockets that are connected with a listener, by its inode, and were not accepted yet; 0 of one that
/// was closed.
///
/// # Errors
/// As [`look_up`].
pub fn waiting_at(listener: u64) -> io::Result<Vec<u64>> {
    const ROOM: usize = 64 << 10; // the largest attribute, netlink(7)
    let reply = ask_for(listener, SHOW_WAITING, ROOM)?;
    let waiting = attributes(&reply, MESSAGE_BYTES).find(|(kind, _)| *kind == WAITING);
    let (inodes, _) = waiting.map_or((&[][..], &[][..]), |(_, value)| value.as_chunks::<4>());
    Ok(inodes
        .iter()
        .map(|inode| u32::from_ne_bytes(*inode).into())
        .collect())
}

/// What the kernel answers about one socket.
fn ask_for(inode: u64, show: u32, room: usize) -> io::Result<Vec<u8>> {
    diag::look_up(&request(REQUEST, u32::MAX, inode, show), room)
}

/// A question for the sockets in some states, or for the one with this inode.
fn request(flags: u16, states: u32, inode: u64, show: u32) -> [u8; 40] {
    let mut request = [0; 40];
    let mut put = |at: usize, bytes: &[u8]| request[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &40u32.to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    put(6, &flags.to_ne_bytes());
    put(16, &[libc::AF_UNIX as u8]);
    put(20, &states.to_ne_bytes());
    put(24, &(inode as u32).to_ne_bytes());
    put(28, &show.to_ne_bytes());
    put(32, &[0xff; 8]); // whatever its cookie
    request
}

fn bound_in(message: &[u8]) -> Option<Bound> {
    attributes(message, MESSAGE_BYTES).find_map(|(kind, value)| match (kind, value) {
        (FILE, value) => word(value, 0).map(Bound::File),
        (NAME, [0, name @ ..]) => Some(Bound::Abstract(name.to_vec())),
        _ => None,
    })
}

fn parse(reply: &[u8]) -> io::Result<Listed> {
    let listens = *reply.get(HEADER_BYTES + 2).ok_or_else(short)? == LISTEN;
    let mut listed = Listed::default();
    for (kind, value) in attributes(reply, MESSAGE_BYTES) {
        match kind {
            FILE => listed.file = word(value, 0).map(u64::from),
            PEER => listed.peer = word(value, 0).map(u64::from),
            QUEUE if listens => listed.backlog = word(value, 4).map(|most| most as i32),
            _ => {}
        }
    }
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    fn inode(socket: impl AsFd) -> u64 {
        rustix::fs::fstat(socket).unwrap().st_ino
    }

    #[test]
    fn peers_files_and_queues_are_listed() {
        let directory = std::env::temp_dir().join(format!("unix-sockets-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 7).unwrap();
        let listed = look_up(inode(&listener)).unwrap();
        assert_eq!(listed.backlog, Some(7));
        assert_eq!(
            listed.file,
            Some(rustix::fs::stat(&path).unwrap().st_ino as u32 as u64)
        );
        assert_eq!(listed.peer, None);
        let file = Bound::File(rustix::fs::stat(&path).unwrap().st_ino as u32);
        assert_eq!(listener_at(&file).unwrap(), Some(inode(&listener)));
        assert_eq!(super::bound(inode(&listener)).unwrap(), Some(file));
        let one = UnixStream::connect(&path).unwrap();
        drop(UnixStream::connect(&path).unwrap());
        assert_eq!(waiting_at(inode(&listener)).unwrap(), [inode(&one), 0]);
        let (other, _) = listener.accept().unwrap();
        listener.accept().unwrap();
        assert!(waiting_at(inode(&listener)).unwrap().is_empty());
        assert_eq!(look_up(inode(&one)).unwrap().peer, Some(inode(&other)));
        assert_eq!(look_up(inode(&other)).unwrap().peer, Some(inode(&one)));
        std::fs::remove_dir_all(&directory).unwrap();
        let gone = inode(&one);
        drop((one, other));
        assert!(look_up(gone).is_err());
    }

    #[test]
    fn listeners_are_found_by_abstract_names() {
        use std::os::linux::net::SocketAddrExt;
        let name = format!("unix-sockets-{}", std::process::id()).into_bytes();
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let bound = Bound::Abstract(name);
        assert_eq!(listener_at(&bound).unwrap(), Some(inode(&listener)));
        assert_eq!(super::bound(inode(&listener)).unwrap().as_ref(), Some(&bound));
        assert_eq!(receiver_at(&bound).unwrap(), None, "it gets no messages");
        drop(listener);
        assert_eq!(listener_at(&bound).unwrap(), None);
        let receiver = UnixDatagram::bind_addr(&address).unwrap();
        assert_eq!(receiver_at(&bound).unwrap(), Some(inode(&receiver)));
    }

    #[test]
    fn nonsense_is_no_socket() {
        assert!(parse(&[]).is_err());
        assert!(parse(&[0; 20]).is_ok_and(|listed| listed == Listed::default()));
    }
}
