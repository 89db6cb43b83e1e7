//! Unix sockets with a name, made again: once the files of the program are as they were at the checkpoint.
//!
//! * A resume that is killed leaves nothing that the next one takes for the program's: a file has [`UNFINISHED`] as its
//!   permissions until it is where it belongs, and directories that are made for a moment are noted in the state.

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
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use twinpage_os::{name, socket};

/// Permissions of files that the killed program left, by the names that they were removed by.
type Left = HashMap<PathBuf, u32>;

/// Permissions of the file of a socket that is not made again yet.
const UNFINISHED: u32 = 0o200;
/// In the state: the name of a socket and the directories that are made for it for a moment, the deepest first, a zero byte
/// after each.
const NOTE: &str = "bound.made";

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
    // First those whose file is gone or moved: another may have taken the name since.
    let mut in_order: Vec<_> = all().collect();
    in_order.sort_by_key(|(_, named)| named.mode.is_some() && !matches!(named.name, Name::Moved { .. }));
    let mut left = Left::new();
    remove_noted(&state.join(NOTE));
    for (descriptor, named) in in_order {
        let fd = again(named, state, &mut left)?;
        let flags = OFlags::from_bits_retain(descriptor.flags) & OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(&fd, flags).map_err(|error| failed(&named.name, error.into()))?;
        into.open.insert(descriptor.fd, fd);
    }
    datagrams::put_back(context, into)?; // also what came before the receiver was connected
    for (descriptor, named) in all() {
        let Some(fd) = into.open.get(&descriptor.fd) else {
            continue;
        };
        // One of the program's own is found where its file lies, whichever directory its name was given in.
        let is_peer = |own: &&Named| {
            own.mode.is_some() && own.kind == named.kind && own.name.given() == named.peer.given()
        };
        let own = all().map(|(_, own)| own).find(is_peer);
        let peer = own.map_or(&named.peer, |own| &own.name);
        // A peer that is gone is heard of at the next message.
        let _ = peer.reach(|address| Ok(connect(fd, address)?));
    }
    Ok(())
}

fn failed(name: &Name, source: io::Error) -> Error {
    let name = match name {
        Name::None => "a Unix socket".into(),
        Name::Abstract(name) => format!("the Unix socket @{}", String::from_utf8_lossy(name)),
        Name::File(path) | Name::Moved { file: path, .. } => format!("the Unix socket {}", path.display()),
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

fn again(named: &Named, state: &Path, left: &mut Left) -> Result<OwnedFd> {
    let mut make = || -> io::Result<OwnedFd> {
        let fd = socket_with(AddressFamily::UNIX, kind(named), SocketFlags::CLOEXEC, None)?;
        for (level, name, value) in &named.options {
            if socket::option_of(fd.as_fd(), *level, *name)? != *value {
                socket::set_option_of(fd.as_fd(), *level, *name, value)?;
            }
        }
        take_name(&fd, named, state, left)?;
        if let Some(backlog) = named.backlog {
            listen(&fd, backlog)?;
        }
        Ok(fd)
    };
    make().map_err(|source| failed(&named.name, source))
}

/// Gives a socket its name again, and its file, where that lay, unless it was gone.
fn take_name(fd: &OwnedFd, named: &Named, state: &Path, left: &mut Left) -> io::Result<()> {
    let Some(file) = named.name.file() else {
        let address = named.name.address().transpose()?;
        return address.map_or(Ok(()), |address| Ok(bind(fd, &address)?));
    };
    let Some(mode) = named.mode else {
        let unlink = |bound: &Path| Ok(rustix::fs::unlink(bound)?);
        return bind_apart(fd, named, &state.join("bound"), state, left, unlink);
    };
    remove_if_left(&file, named, left)?;
    if let Name::Moved { .. } = named.name {
        let put = |bound: &Path| Ok(rustix::fs::rename(bound, &file)?);
        bind_apart(
            fd,
            named,
            &file.with_file_name(".twinpage-bound"),
            state,
            left,
            put,
        )?;
    } else {
        bind_by(fd, &named.name)?;
    }
    let mode = left.remove(&file).unwrap_or(mode);
    Ok(rustix::fs::chmod(&file, Mode::from_raw_mode(mode))?)
}

/// Binds a socket by the name of a file. The file has the permissions of the socket itself, which are set for that long.
fn bind_by(fd: &OwnedFd, name: &Name) -> io::Result<()> {
    let Some(address) = name.address().transpose()? else {
        return Ok(());
    };
    let its_own = rustix::fs::fstat(fd)?.st_mode;
    rustix::fs::fchmod(fd, Mode::from_raw_mode(UNFINISHED))?;
    name.in_directory(|| Ok(bind(fd, &address)?))?;
    Ok(rustix::fs::fchmod(fd, Mode::from_raw_mode(its_own))?)
}

/// Binds a socket by its name and takes its file from there. A name that does not begin at the root begins at
/// `directory`, which is made for that long.
fn bind_apart(
    fd: &OwnedFd,
    named: &Named,
    directory: &Path,
    state: &Path,
    left: &mut Left,
    take: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let name = match &named.name {
        Name::Near { name, .. } | Name::Moved { name, .. } if name.is_relative() => Name::Near {
            directory: directory.to_owned(),
            name: name.clone(),
        },
        Name::Moved { name, .. } => Name::File(name.clone()),
        name => name.clone(),
    };
    let path = name.file().unwrap_or_default();
    with_directories_of(&path, &state.join(NOTE), || {
        remove_if_left(&path, named, left)?;
        bind_by(fd, &name)?;
        take(&path)
    })
}

/// Does something while the directories of a name are there. Those that the program removed, with the file of a socket
/// that has its name still, are made for that long.
fn with_directories_of<T>(path: &Path, note: &Path, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let parents = path.ancestors().skip(1);
    let missing: Vec<&Path> = parents.take_while(|parent| !parent.exists()).collect();
    if missing.is_empty() {
        return work();
    }
    let noted = std::iter::once(&path).chain(&missing);
    let noted = noted.flat_map(|name| [name.as_os_str().as_bytes(), b"\0"]);
    std::fs::write(note, noted.collect::<Vec<_>>().concat())?;
    for parent in missing.iter().rev() {
        rustix::fs::mkdir(*parent, Mode::RWXU)?;
    }
    let done = work();
    for parent in missing {
        rustix::fs::rmdir(parent)?;
    }
    rustix::fs::unlink(note)?;
    done
}

/// Removes what a resume noted that was killed; it may be gone by now.
fn remove_noted(note: &Path) {
    let noted = std::fs::read(note).unwrap_or_default();
    let mut names = noted.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    if let Some(socket) = names.next() {
        let _ = rustix::fs::unlink(socket);
    }
    for directory in names {
        let _ = rustix::fs::rmdir(directory);
    }
    let _ = rustix::fs::unlink(note);
}

/// Removes the file of the killed program's socket, at which none listens, and notes its permissions: what the program
/// did to them since the checkpoint is rolled back.
fn remove_if_left(path: &Path, named: &Named, left: &mut Left) -> io::Result<()> {
    let Ok(file) = rustix::fs::open(
        path,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    ) else {
        return Ok(());
    };
    let stat = rustix::fs::fstat(&file)?;
    let is_socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
    let probe = socket_with(
        AddressFamily::UNIX,
        kind(named),
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    let address = SocketAddrUnix::new(name::of_open(&file))?; // its own name may be too long
    if is_socket && connect(&probe, &address) == Err(Errno::CONNREFUSED) {
        rustix::fs::unlink(path)?;
        let mode = stat.st_mode & 0o7777;
        left.extend((mode != UNFINISHED).then(|| (path.to_owned(), mode)));
    }
    Ok(())
}
