//! What the kernel knows of UDP sockets in this network namespace: sock_diag(7), linux/inet_diag.h.

use crate::diag::{self, REQUEST, word};
use crate::tcp::{INODE, question};
use std::io;
use std::net::SocketAddr;

/// The inode of the socket that receives what is sent from one address of this machine to another; `None` when there is
/// none, or the kernel does not tell (CONFIG_INET_UDP_DIAG).
///
/// # Errors
/// When the system refuses the question.
pub fn receiver(from: SocketAddr, to: SocketAddr) -> io::Result<Option<u64>> {
    // The kernel looks up as it does for a message: the sender comes first.
    let asked = question(libc::IPPROTO_UDP, REQUEST, u32::MAX, from, to);
    match diag::look_up(&asked, 1024) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        found => Ok(found.map(|found| word(&found, INODE).map(u64::from))?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, UdpSocket};

    #[test]
    fn a_receiver_is_found_by_both_addresses() {
        let bind = |address: &str| UdpSocket::bind(address).unwrap();
        let inode = |socket: &UdpSocket| rustix::fs::fstat(socket).unwrap().st_ino;
        let (one, any) = (bind("127.0.0.1:0"), bind("0.0.0.0:0"));
        let from = one.local_addr().unwrap();
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, any.local_addr().unwrap().port()));
        if receiver(from, to).unwrap().is_none() {
            return println!("SKIPPED: the kernel does not list UDP sockets (CONFIG_INET_UDP_DIAG)");
        }
        assert_eq!(receiver(from, to).unwrap(), Some(inode(&any)));
        assert_eq!(receiver(to, from).unwrap(), Some(inode(&one)));
        let Ok(dual) = UdpSocket::bind("[::]:0") else {
            return println!("NOTE: there is no IPv6");
        };
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, dual.local_addr().unwrap().port()));
        assert_eq!(receiver(from, to).unwrap(), Some(inode(&dual)));
        drop(dual);
        assert_eq!(receiver(from, to).unwrap(), None);
    }
}
