//! What the kernel knows of a Unix socket and tells by no call on it: sock_diag(7), linux/unix_diag.h.

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
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
}

/// `SOCK_DIAG_BY_FAMILY`, `NLMSG_ERROR`, `NLM_F_REQUEST`.
const BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
/// `UDIAG_SHOW_VFS`, `UDIAG_SHOW_PEER`, `UDIAG_SHOW_RQLEN`, and the attributes that they ask for.
const SHOW: u32 = 0x2 | 0x4 | 0x10;
const FILE: u16 = 1;
const PEER: u16 = 2;
const QUEUE: u16 = 4;
/// `TCP_LISTEN`, which Unix sockets borrow.
const LISTEN: u8 = 10;
const HEADER_BYTES: usize = 16;
const MESSAGE_BYTES: usize = 16;

/// Looks a Unix socket up by its inode.
///
/// # Errors
/// `ENOENT` when there is none in this network namespace, or the kernel does not list Unix sockets.
pub fn look_up(inode: u64) -> io::Result<Listed> {
    let kernel = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    send(&kernel, &request(inode), SendFlags::empty())?;
    let mut reply = [0; 512];
    let (length, _) = rustix::io::retry_on_intr(|| recv(&kernel, &mut reply, RecvFlags::empty()))?;
    parse(&reply[..length])
}

fn request(inode: u64) -> [u8; 40] {
    let mut request = [0; 40];
    let mut put = |at: usize, bytes: &[u8]| request[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &40u32.to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    put(6, &REQUEST.to_ne_bytes());
    put(16, &[libc::AF_UNIX as u8]);
    put(20, &u32::MAX.to_ne_bytes()); // in any state
    put(24, &(inode as u32).to_ne_bytes());
    put(28, &SHOW.to_ne_bytes());
    put(32, &[0xff; 8]); // whatever its cookie
    request
}

fn parse(reply: &[u8]) -> io::Result<Listed> {
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let word = |at: usize| {
        let bytes = reply.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_ne_bytes(bytes))
    };
    let half = |at: usize| {
        let bytes = reply.get(at..at + 2)?.try_into().ok()?;
        Some(u16::from_ne_bytes(bytes))
    };
    if half(4).ok_or_else(short)? == ERROR {
        let error = word(HEADER_BYTES).ok_or_else(short)? as i32;
        return Err(io::Error::from_raw_os_error(-error));
    }
    let listens = *reply.get(HEADER_BYTES + 2).ok_or_else(short)? == LISTEN;
    let mut listed = Listed::default();
    let mut at = HEADER_BYTES + MESSAGE_BYTES;
    while let (Some(length), Some(kind)) = (half(at), half(at + 2)) {
        if length < 4 {
            break;
        }
        match kind {
            FILE => listed.file = word(at + 4).map(u64::from),
            PEER => listed.peer = word(at + 4).map(u64::from),
            QUEUE if listens => listed.backlog = word(at + 8).map(|most| most as i32),
            _ => {}
        }
        at += usize::from(length).next_multiple_of(4);
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
        let one = UnixStream::connect(&path).unwrap();
        let (other, _) = listener.accept().unwrap();
        assert_eq!(look_up(inode(&one)).unwrap().peer, Some(inode(&other)));
        assert_eq!(look_up(inode(&other)).unwrap().peer, Some(inode(&one)));
        std::fs::remove_dir_all(&directory).unwrap();
        let gone = inode(&one);
        drop((one, other));
        assert!(look_up(gone).is_err());
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
