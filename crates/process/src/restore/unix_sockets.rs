//! Unix sockets with a name, made again: once the files of the program are as they were at the checkpoint.

use super::datagrams;
use super::made_sockets::MadeSockets;
use crate::context::Context;
use crate::descriptors::DescriptorKind;
use crate::error::{Error, Result};
use crate::unix_sockets::{Name, Named};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use twinpage_os::socket;

/// Makes all of them. Datagram sockets are connected at the end, when all have their names. `state` is the state
/// directory.
///
/// # Errors
/// Names what is taken.
pub fn make(context: &Context, state: &Path, into: &mut MadeSockets) -> Result<()> {
    let all = || {
        let descriptors = context.fixed.descriptors.iter();
        descriptors.filter_map(|descriptor| match &descriptor.kind {
            DescriptorKind::Unix(named) if descriptor.shares == descriptor.fd => Some((descriptor, named)),
            _ => None,
        })
    };
    for (descriptor, named) in all() {
        let fd = again(named, state)?;
        let flags = OFlags::from_bits_retain(descriptor.flags) & OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(&fd, flags).map_err(|error| failed(&named.name, error.into()))?;
        into.open.insert(descriptor.fd, fd);
    }
    datagrams::put_back(context, into)?; // also what came before the receiver was connected
    for (descriptor, named) in all() {
        if let (Some(fd), Some(peer)) = (into.open.get(&descriptor.fd), named.peer.address()) {
            // A peer that is gone is heard of at the next message.
            let _ = peer.and_then(|peer| connect(fd, &peer));
        }
    }
    Ok(())
}

fn failed(name: &Name, source: io::Error) -> Error {
    let name = match name {
        Name::None => "a Unix socket".into(),
        Name::Abstract(name) => format!("the Unix socket @{}", String::from_utf8_lossy(name)),
        Name::File(path) => format!("the Unix socket {}", path.display()),
        Name::Near { directory, name } => format!("the Unix socket {}", directory.join(name).display()),
    };
    if source.kind() == io::ErrorKind::AddrInUse {
        return Error::State(format!(
            "{name} is taken, and the program had it: end the program that has it now (ss -lxp names it), or remove it, then resume again"
        ));
    }
    Error::target(format!("cannot make {name} again"), source)
}

fn kind(named: &Named) -> SocketType {
    match named.kind {
        libc::SOCK_DGRAM => SocketType::DGRAM,
        libc::SOCK_SEQPACKET => SocketType::SEQPACKET,
        _ => SocketType::STREAM,
    }
}

fn again(named: &Named, state: &Path) -> Result<OwnedFd> {
    let make = || -> io::Result<OwnedFd> {
        let fd = socket_with(AddressFamily::UNIX, kind(named), SocketFlags::CLOEXEC, None)?;
        for (level, name, value) in &named.options {
            if socket::option_of(fd.as_fd(), *level, *name)? != *value {
                socket::set_option_of(fd.as_fd(), *level, *name, value)?;
            }
        }
        match (&named.name, named.mode) {
            (Name::Near { name, .. }, None) => take_name_apart(&fd, named, name, state)?,
            _ => take_name(&fd, named)?,
        }
        if let Some(backlog) = named.backlog {
            listen(&fd, backlog)?;
        }
        Ok(fd)
    };
    make().map_err(|source| failed(&named.name, source))
}

/// Gives a socket its name again, and the file to it, unless the program removed that.
fn take_name(fd: &OwnedFd, named: &Named) -> io::Result<()> {
    let Some(address) = named.name.address().transpose()? else {
        return Ok(());
    };
    let Some(path) = named.name.file() else {
        return Ok(bind(fd, &address)?);
    };
    let bind = || {
        let left = remove_if_left(&path, &address, named)?;
        bind(fd, &address)?;
        io::Result::Ok(left)
    };
    named.name.in_directory(|| match named.mode {
        Some(mode) => {
            let mode = bind()?.unwrap_or(mode);
            Ok(rustix::fs::chmod(&path, Mode::from_raw_mode(mode))?)
        }
        None => with_directories_of(&path, || {
            bind()?;
            Ok(rustix::fs::unlink(&path)?)
        }),
    })
}

/// The same of one whose file is gone, by a name that begins at a directory, which may have been any: in one of its own.
fn take_name_apart(fd: &OwnedFd, named: &Named, name: &Path, state: &Path) -> io::Result<()> {
    let directory = state.join("bound");
    match rustix::fs::mkdir(&directory, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {} // a resume that was killed left it
        Err(error) => return Err(error.into()),
    }
    let name = Name::Near {
        directory: directory.clone(),
        name: name.to_owned(),
    };
    let apart = Named {
        name,
        ..named.clone()
    };
    take_name(fd, &apart)?;
    Ok(rustix::fs::rmdir(&directory)?)
}

/// Does something while the directories of a name are there. Those that the program removed, with the file of a socket
/// that has its name still, are made for that long.
fn with_directories_of<T>(path: &Path, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let parents = path.ancestors().skip(1);
    let missing: Vec<&Path> = parents.take_while(|parent| !parent.exists()).collect();
    for parent in missing.iter().rev() {
        rustix::fs::mkdir(*parent, Mode::RWXU)?;
    }
    let done = work();
    for parent in missing {
        rustix::fs::rmdir(parent)?;
    }
    done
}

/// Removes the file of the killed program's socket, at which none listens, and says its permissions: what the program
/// did to them since the checkpoint is rolled back.
fn remove_if_left(path: &Path, address: &SocketAddrUnix, named: &Named) -> io::Result<Option<u32>> {
    let Ok(stat) = rustix::fs::lstat(path) else {
        return Ok(None);
    };
    let is_socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
    let probe = socket_with(
        AddressFamily::UNIX,
        kind(named),
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    if is_socket && connect(&probe, address) == Err(Errno::CONNREFUSED) {
        rustix::fs::unlink(path)?;
        return Ok(Some(stat.st_mode & 0o7777));
    }
    Ok(None)
}
