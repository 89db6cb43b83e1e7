//! Messages that waited in datagram sockets, sent again: all sockets of the program have their addresses.
//!
//! Each is sent by the socket that sent it, if the program still has it, so that its receiver sees the same sender.
//! Else another socket has that address for as long as it takes; where it is not to be had, a message to a Unix socket
//! comes from none, and one of UDP is lost.

use super::made_sockets::{MadeSockets, family, new, reached_from};
use crate::context::Context;
use crate::datagrams::{Datagram, Sender};
use crate::descriptors::{DescriptorKind, Held};
use crate::error::{Error, Result};
use crate::sockets::{address_of, canonical, covers};
use crate::unix_sockets::Named;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketType, addr::SocketAddrArg, bind, getsockname, sendto,
};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Puts back all of them, each socket's in its order.
///
/// # Errors
/// Names the descriptor of a Unix socket whose messages could not be sent.
pub(super) fn put_back(context: &Context, made: &MadeSockets) -> Result<()> {
    for (descriptor, held) in context.fixed.descriptors.iter().zip(&context.live.held) {
        let (Held::Messages(messages), Some(receiver)) = (held, made.open.get(&descriptor.fd)) else {
            continue;
        };
        for message in messages {
            match &descriptor.kind {
                DescriptorKind::Unix(named) => send_unix(message, named, made).map_err(|source| {
                    let what = format!("cannot put back a message into socket {}", descriptor.fd);
                    Error::target(what, source)
                })?,
                // One that does not arrive is lost, as messages of UDP may be.
                _ => drop(send_udp(message, receiver, made)),
            }
        }
    }
    Ok(())
}

fn send(from: impl AsFd, bytes: &[u8], to: &impl SocketAddrArg) -> io::Result<()> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| sendto(&from, bytes, flags, to))?;
    Ok(())
}

fn send_unix(message: &Datagram, receiver: &Named, made: &MadeSockets) -> io::Result<()> {
    let is_reached = receiver.mode.is_some() || receiver.name.file().is_none();
    if !is_reached {
        return Ok(()); // its file is gone: nothing can be sent to it any more
    }
    let is_sender = |fd: &&OwnedFd| {
        let name = getsockname(fd).ok();
        Sender::of(name) == message.from
    };
    let sender = made
        .open
        .values()
        .find(is_sender)
        .filter(|_| message.from != Sender::None);
    let sent = receiver.name.reach(|to| match (sender, &message.from) {
        (Some(sender), _) => send(sender, &message.bytes, to),
        (None, from) => send(stand_in(from)?, &message.bytes, to),
    });
    sent.map(drop)
}

/// A Unix socket with the abstract name of one that was closed, if that is to be had. Other names would make a file.
fn stand_in(from: &Sender) -> io::Result<OwnedFd> {
    let fd = new(AddressFamily::UNIX, SocketType::DGRAM)?;
    if let Sender::Unix(name) = from
        && let Some((0, name)) = name.split_first()
    {
        // Taken: the message comes from none.
        let _ = SocketAddrUnix::new_abstract_name(name).and_then(|name| bind(&fd, &name));
    }
    Ok(fd)
}

fn send_udp(message: &Datagram, receiver: &OwnedFd, made: &MadeSockets) -> io::Result<()> {
    let Sender::Internet(from) = message.from else {
        return Ok(());
    };
    let (from, at) = (SocketAddr::from(from), address_of(receiver.as_fd())?);
    let ip = if at.ip().is_unspecified() {
        from.ip()
    } else {
        at.ip()
    };
    let to = SocketAddr::new(ip, at.port());
    let sends_from = |fd: BorrowedFd<'_>| address_of(fd).is_ok_and(|bound| covers(bound, from));
    let is_datagrams = |fd: BorrowedFd<'_>| {
        rustix::net::sockopt::socket_type(fd).is_ok_and(|kind| kind == SocketType::DGRAM)
    };
    let mut all = made.open.values().map(AsFd::as_fd);
    if let Some(sender) = all.find(|fd| is_datagrams(*fd) && sends_from(*fd)) {
        return send(
            sender,
            &message.bytes,
            &reached_from(family(address_of(sender)?), to),
        );
    }
    let from = canonical(from);
    let sender = new(family(from), SocketType::DGRAM)?;
    bind(&sender, &from)?;
    send(&sender, &message.bytes, &reached_from(family(from), to))
}
