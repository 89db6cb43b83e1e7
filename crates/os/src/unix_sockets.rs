//! What the kernel knows of a Unix socket and tells by no call on it: sock_diag(7), linux/unix_diag.h.

use crate::diag::{
    BY_FAMILY, DONE, DUMP, ERROR, HEADER_BYTES, REQUEST, ask, attributes, error, half, next_message, short,
    word,
};
use rustix::net::{RecvFlags, recv};
use std::io;

/// A Unix socket as the kernel lists it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Listed {
    /// The inode of the socket it is connected with.
    pub peer: Option<u64>,
    /// The inode of the file that it was bound to, if it was bound to one.
    pub file: Option<u64>,
    /// How many connections may wait at it, if it listens.
    pub backlog: Option<i32>,
    /// How many wait, if it listens.
    pub waiting: u32,
}

/// What a socket is bound to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bound {
    /// The file with this inode.
    File(u64),
    /// An abstract name, without the zero before it.
    Abstract(Vec<u8>),
}

/// `UDIAG_SHOW_VFS`, `UDIAG_SHOW_PEER`, `UDIAG_SHOW_RQLEN`; `UDIAG_SHOW_NAME`; and the attributes that they ask for.
const SHOW: u32 = 0x2 | 0x4 | 0x10;
const SHOW_BOUND: u32 = 0x1 | 0x2;
const NAME: u16 = 0;
const FILE: u16 = 1;
const PEER: u16 = 2;
const QUEUE: u16 = 4;
/// `TCP_LISTEN`, which Unix sockets borrow.
const LISTEN: u8 = 10;
const MESSAGE_BYTES: usize = 16;

/// Looks a Unix socket up by its inode.
///
/// # Errors
/// `ENOENT` when there is none in this network namespace, or the kernel does not list Unix sockets.
pub fn look_up(inode: u64) -> io::Result<Listed> {
    let kernel = ask(&request(REQUEST, u32::MAX, inode, SHOW))?;
    let mut reply = [0; 512];
    let (length, _) = rustix::io::retry_on_intr(|| recv(&kernel, &mut reply, RecvFlags::empty()))?;
    parse(&reply[..length])
}

/// The inode of the socket that listens at this name in this network namespace, if one does.
///
/// # Errors
/// When the kernel does not list Unix sockets.
pub fn listener_at(bound: &Bound) -> io::Result<Option<u64>> {
    let kernel = ask(&request(REQUEST | DUMP, 1 << LISTEN, 0, SHOW_BOUND))?;
    let mut found = None;
    let mut reply = vec![0; 32 << 10];
    loop {
        let (length, _) = rustix::io::retry_on_intr(|| recv(&kernel, &mut reply, RecvFlags::empty()))?;
        let mut rest = &reply[..length];
        while let Some(message) = next_message(&mut rest) {
            match half(message, 4) {
                Some(DONE) => return Ok(found),
                Some(ERROR) => return Err(error(message).unwrap_or_else(short)),
                _ if is_bound_to(message, bound) => found = word(message, HEADER_BYTES + 4).map(u64::from),
                _ => {}
            }
        }
        if length == 0 {
            return Err(short());
        }
    }
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

fn is_bound_to(message: &[u8], bound: &Bound) -> bool {
    attributes(message, MESSAGE_BYTES).any(|(kind, value)| match bound {
        Bound::File(inode) => kind == FILE && word(value, 0) == Some(*inode as u32),
        Bound::Abstract(name) => kind == NAME && value.split_first() == Some((&0, name)),
    })
}

fn parse(reply: &[u8]) -> io::Result<Listed> {
    if half(reply, 4).ok_or_else(short)? == ERROR {
        return Err(error(reply).unwrap_or_else(short));
    }
    let listens = *reply.get(HEADER_BYTES + 2).ok_or_else(short)? == LISTEN;
    let mut listed = Listed::default();
    for (kind, value) in attributes(reply, MESSAGE_BYTES) {
        match kind {
            FILE => listed.file = word(value, 0).map(u64::from),
            PEER => listed.peer = word(value, 0).map(u64::from),
            QUEUE if listens => {
                listed.waiting = word(value, 0).unwrap_or(0);
                listed.backlog = word(value, 4).map(|most| most as i32);
            }
            _ => {}
        }
    }
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixListener, UnixStream};

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
        let file = Bound::File(rustix::fs::stat(&path).unwrap().st_ino);
        assert_eq!(listener_at(&file).unwrap(), Some(inode(&listener)));
        let one = UnixStream::connect(&path).unwrap();
        assert_eq!(look_up(inode(&listener)).unwrap().waiting, 1);
        let (other, _) = listener.accept().unwrap();
        assert_eq!(look_up(inode(&listener)).unwrap().waiting, 0);
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
        drop(listener);
        assert_eq!(listener_at(&bound).unwrap(), None);
    }

    #[test]
    fn nonsense_is_no_socket() {
        assert!(parse(&[]).is_err());
        assert!(parse(&[0; 20]).is_ok_and(|listed| listed == Listed::default()));
        let mut error = [0; 20];
        error[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        error[16..20].copy_from_slice(&(-2i32).to_ne_bytes());
        assert_eq!(parse(&error).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }
}
