//! Questions to the kernel about sockets, and its answers: sock_diag(7), netlink(7).

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use std::io;
use std::os::fd::OwnedFd;

/// `SOCK_DIAG_BY_FAMILY`, `NLMSG_ERROR`, `NLMSG_DONE`, `NLM_F_REQUEST`, `NLM_F_DUMP`.
pub(crate) const BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
const DONE: u16 = 3;
pub(crate) const REQUEST: u16 = 1;
pub(crate) const DUMP: u16 = 0x300;
/// Bytes of a struct nlmsghdr.
pub(crate) const HEADER_BYTES: usize = 16;

/// Asks the kernel; what it answers can be received.
fn ask(request: &[u8]) -> io::Result<OwnedFd> {
    let kernel = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    send(&kernel, request, SendFlags::empty())?;
    Ok(kernel)
}

/// Asks for one; the answer, with its header, of at most `room` bytes.
pub(crate) fn look_up(request: &[u8], room: usize) -> io::Result<Vec<u8>> {
    let kernel = ask(request)?;
    let mut reply = vec![0; room];
    let (length, _) = rustix::io::retry_on_intr(|| recv(&kernel, &mut reply, RecvFlags::empty()))?;
    reply.truncate(length);
    check(&reply)?;
    Ok(reply)
}

/// Sees that a message is no error.
fn check(message: &[u8]) -> io::Result<()> {
    match half(message, 4).ok_or_else(short)? {
        ERROR => Err(error(message).unwrap_or_else(short)),
        _ => Ok(()),
    }
}

/// Asks for all of a kind; each answer is given to `each`, with its header.
pub(crate) fn list(request: &[u8], mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let kernel = ask(request)?;
    let mut reply = vec![0; 32 << 10];
    loop {
        let (length, _) = rustix::io::retry_on_intr(|| recv(&kernel, &mut reply, RecvFlags::empty()))?;
        let mut rest = &reply[..length];
        while let Some(message) = next_message(&mut rest) {
            if half(message, 4) == Some(DONE) {
                return Ok(());
            }
            check(message)?;
            each(message);
        }
        if length == 0 {
            return Err(short());
        }
    }
}

pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(crate) fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(crate) fn short() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

/// The error that a message of kind [`ERROR`] tells.
fn error(message: &[u8]) -> Option<io::Error> {
    let error = word(message, HEADER_BYTES)? as i32;
    Some(io::Error::from_raw_os_error(-error))
}

/// The next of several messages, with its header.
fn next_message<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = word(rest, 0)? as usize;
    let message = rest.get(..length).filter(|_| length >= HEADER_BYTES)?;
    *rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some(message)
}

/// The attributes that follow the first `bytes` of a message behind its header: their kinds and values.
pub(crate) fn attributes(message: &[u8], bytes: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = message.get(HEADER_BYTES + bytes..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (length, kind) = (usize::from(half(rest, 0)?), half(rest, 2)?);
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_no_answer() {
        assert!(check(&[]).is_err() && check(&[0; 20]).is_ok());
        let mut refused = [0; 20];
        refused[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        assert!(check(&refused[..6]).is_err());
        refused[16..20].copy_from_slice(&(-2i32).to_ne_bytes());
        assert_eq!(check(&refused).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }
}
