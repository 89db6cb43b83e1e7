//! Looking into sockets without changing them: recv(2) with `MSG_PEEK`, unix(7), socket(7).

#![allow(unsafe_code)]

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrAny, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Makes a call until no signal interrupts it: even those that never wait take locks.
fn uninterrupted(mut call: impl FnMut() -> libc::ssize_t) -> io::Result<usize> {
    loop {
        if let Ok(result) = usize::try_from(call()) {
            return Ok(result);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Connects a socket that waits for it, whatever interrupts the wait: connect(2), `EINTR`.
///
/// # Errors
/// Why it cannot be connected.
pub fn connect(fd: BorrowedFd<'_>, to: &SocketAddr) -> io::Result<()> {
    match rustix::net::connect(fd, to) {
        Err(Errno::INTR) => {
            let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
            rustix::io::retry_on_intr(|| poll(&mut polled, None))?;
            rustix::net::sockopt::socket_error(fd)?.map_err(io::Error::from)
        }
        connected => connected.map_err(io::Error::from),
    }
}

/// Numbers, times, and `TCP_INFO`.
const MOST_OPTION_BYTES: usize = 256;

/// The value of a `SOL_SOCKET` option.
///
/// # Errors
/// `ENOPROTOOPT` when the socket has no such option.
pub fn option(fd: BorrowedFd<'_>, name: i32) -> io::Result<Vec<u8>> {
    option_of(fd, libc::SOL_SOCKET, name)
}

/// The value of an option of any level, cut to 256 bytes.
///
/// # Errors
/// `ENOPROTOOPT` when the socket has no such option.
pub fn option_of(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<Vec<u8>> {
    let mut value = [0u8; MOST_OPTION_BYTES];
    let mut length = MOST_OPTION_BYTES as libc::socklen_t;
    // SAFETY: `value` is as long as `length` says; the kernel writes no more and tells how much.
    uninterrupted(|| unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut length,
        ) as libc::ssize_t
    })?;
    Ok(value[..length as usize].to_vec())
}

/// Sets a `SOL_SOCKET` option.
///
/// # Errors
/// `EINVAL` for a value of the wrong size.
pub fn set_option(fd: BorrowedFd<'_>, name: i32, value: &[u8]) -> io::Result<()> {
    set_option_of(fd, libc::SOL_SOCKET, name, value)
}

/// Sets an option of any level.
///
/// # Errors
/// `EINVAL` for a value of the wrong size.
pub fn set_option_of(fd: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads `value.len()` bytes of a live slice.
    uninterrupted(|| unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        ) as libc::ssize_t
    })
    .map(drop)
}

/// What a look into a socket found.
#[derive(Debug)]
pub struct Peeked {
    /// How many bytes.
    pub len: usize,
    /// Duplicates of the descriptors that were sent along with them.
    pub along: Vec<OwnedFd>,
    /// Who sent a message, if that is told.
    pub from: Option<SocketAddrAny>,
}

/// The most descriptors that are sent along with a message: `SCM_MAX_FD`.
const MOST_ALONG: usize = 253;

/// The kernel's own: begin the call again.
const ERESTARTSYS: i32 = 512;

/// The next bytes or the next message behind the socket's peek offset, left where they are; the offset
/// goes on by what was read, and behind a message of UDP. With `whole` the length of the whole message is the
/// answer, however small `into` is. Of a stream no look goes beyond bytes that descriptors were sent along with.
///
/// # Errors
/// `EAGAIN` when there are no more.
pub fn peek(fd: BorrowedFd<'_>, into: &mut [u8], whole: bool) -> io::Result<Peeked> {
    let mut flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    flags.set(RecvFlags::TRUNC, whole);
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_ALONG), ScmCredentials(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut room);
    let mut read = || recvmsg(fd, &mut [IoSliceMut::new(into)], &mut beside, flags);
    let received = loop {
        match read() {
            Err(Errno::INTR) => {}
            // The kernel notes what cut a recvmmsg(2) as an error of the socket, and clears it as it tells it.
            Err(error) if error.raw_os_error() == ERESTARTSYS => {}
            received => break received?,
        }
    };
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other(
            "more was sent along with a message than there is room for",
        ));
    }
    let along = beside.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => rights.collect(),
        _ => Vec::new(),
    });
    Ok(Peeked {
        len: received.bytes,
        along: along.collect(),
        from: received.address,
    })
}

/// A message that waits in a socket.
#[derive(Debug)]
pub struct Message {
    /// What it says.
    pub bytes: Vec<u8>,
    /// Duplicates of the descriptors that were sent along with it.
    pub along: Vec<OwnedFd>,
    /// Who sent it, if that is told.
    pub from: Option<SocketAddrAny>,
}

/// All messages that wait in a socket, left where they are, but for empty ones: the kernel shows each of them once.
///
/// # Errors
/// When the socket has no peek offset (`SO_PEEK_OFF`), and the errors of recv(2).
pub fn peek_messages(fd: BorrowedFd<'_>) -> io::Result<Vec<Message>> {
    // As long as a message of UDP may be. Of a longer one of another kind the rest is behind the offset.
    let mut room = vec![0; 1 << 16];
    let mut messages = Vec::new();
    set_option(fd, libc::SO_PEEK_OFF, &0i32.to_ne_bytes())?;
    let looked = loop {
        match next_message(fd, &mut room) {
            Ok(Some(message)) if message.bytes.is_empty() => {}
            Ok(Some(message)) => messages.push(message),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    set_option(fd, libc::SO_PEEK_OFF, &(-1i32).to_ne_bytes())?;
    looked.map(|()| messages)
}

/// The message behind the socket's peek offset, if there is one.
fn next_message(fd: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<Option<Message>> {
    let Peeked { len, along, from } = match peek(fd, room, true) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        next => next?,
    };
    if len == 0 && from.is_none() {
        return Ok(None); // half-closed: nothing follows
    }
    let mut bytes = room[..len.min(room.len())].to_vec();
    while bytes.len() < len {
        let filled = bytes.len();
        bytes.resize(len, 0);
        let rest = peek(fd, &mut bytes[filled..], false)?.len;
        if rest == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.truncate(filled + rest);
    }
    Ok(Some(Message { bytes, along, from }))
}

/// Sends without waiting and without SIGPIPE.
///
/// # Errors
/// `EAGAIN` when there is no room, `ECONNREFUSED` and `EPIPE` without a receiver.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the kernel reads `bytes.len()` bytes of a live slice.
    uninterrupted(|| unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) })
}

/// The same to an address, as the kernel takes it: sendto(2).
///
/// # Errors
/// As [`send`].
pub fn send_to(fd: BorrowedFd<'_>, bytes: &[u8], address: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the kernel reads live slices, as long as it is told.
    uninterrupted(|| unsafe {
        libc::sendto(
            fd.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            flags,
            address.as_ptr().cast(),
            address.len() as libc::socklen_t,
        )
    })
}

/// Sends a byte, and a descriptor along with it: unix(7), `SCM_RIGHTS`.
///
/// # Errors
/// As [`send`].
pub fn send_descriptor(via: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut along = SendAncillaryBuffer::new(&mut room);
    let sent = [fd];
    along.push(SendAncillaryMessage::ScmRights(&sent));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(via, &[IoSlice::new(&[0])], &mut along, flags)?;
    Ok(())
}

/// Half-closes the socket: shutdown(2), `SHUT_*`.
///
/// # Errors
/// `ENOTCONN` when it is not connected.
pub fn shut(fd: BorrowedFd<'_>, how: i32) -> io::Result<()> {
    // SAFETY: takes integers.
    uninterrupted(|| unsafe { libc::shutdown(fd.as_raw_fd(), how) as libc::ssize_t }).map(drop)
}

/// Whether the socket has a peer, also one that is closed: getpeername(2).
#[must_use]
pub fn has_peer(fd: BorrowedFd<'_>) -> bool {
    let mut address = [0u8; 128];
    let mut length = address.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to a live buffer.
    unsafe { libc::getpeername(fd.as_raw_fd(), address.as_mut_ptr().cast(), &raw mut length) == 0 }
}
