//! Unix sockets with a name, and those that are connected with other programs: unix(7).
//!
//! * A listener comes back with its name, options and length of queue; connections that were not accepted are gone.
//!   Those of the program and its processes are waited for ([`check_queue`]).
//! * A connection within the program is a pair ([`crate::pairs`]): both ends come back with what waits in them.
//! * A connection with another program is one too, of which the other end is gone: after a resume what waited can be
//!   read, and then the program finds it reset.
//! * A datagram socket comes back with its name, and connected if its peer is there; what it had received is gone.
//! * A file that a socket is bound to is made again, unless the program removed it.

use crate::error::{Error, Result};
use crate::pairs::{self, Pairs};
use crate::sockets::SocketOption;
use rustix::event::PollFlags;
use rustix::fs::{Mode, OFlags};
use rustix::net::{SocketAddrUnix, getpeername, getsockname};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use twinpage_os::{name, socket, unix_sockets};

/// A name of a socket.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Name {
    /// It has none.
    #[default]
    None,
    /// One that is no file.
    Abstract(Vec<u8>),
    /// A file, by its absolute name.
    File(#[serde(with = "crate::path_bytes")] PathBuf),
    /// A file, by a name that begins at a directory.
    Near {
        /// The directory, by its absolute name.
        #[serde(with = "crate::path_bytes")]
        directory: PathBuf,
        /// The name from there.
        #[serde(with = "crate::path_bytes")]
        name: PathBuf,
    },
    /// A file that lies elsewhere than its name leads: it, or a directory on the way, was renamed.
    Moved {
        /// The name that it was bound by.
        #[serde(with = "crate::path_bytes")]
        name: PathBuf,
        /// Where it is, by its absolute name.
        #[serde(with = "crate::path_bytes")]
        file: PathBuf,
    },
}

impl Name {
    /// The absolute name of its file, if it is one.
    #[must_use]
    pub fn file(&self) -> Option<PathBuf> {
        match self {
            Name::None | Name::Abstract(_) => None,
            Name::File(path) | Name::Moved { file: path, .. } => Some(path.clone()),
            Name::Near { directory, name } => Some(directory.join(name)),
        }
    }

    /// As bind(2) was given it, if it is a file.
    #[must_use]
    pub fn given(&self) -> Option<&Path> {
        match self {
            Name::None | Name::Abstract(_) => None,
            Name::File(path) | Name::Near { name: path, .. } | Name::Moved { name: path, .. } => Some(path),
        }
    }

    /// The address that binds a socket with it, in [`Name::in_directory`].
    #[must_use]
    pub fn address(&self) -> Option<rustix::io::Result<SocketAddrUnix>> {
        match self {
            Name::None => None,
            Name::Abstract(name) => Some(SocketAddrUnix::new_abstract_name(name)),
            _ => self.given().map(SocketAddrUnix::new),
        }
    }

    /// Does something with the address by which its socket is reached, from any directory, if it is a name.
    ///
    /// # Errors
    /// Those of the work; the file is not there.
    pub fn reach<T>(&self, work: impl FnOnce(&SocketAddrUnix) -> io::Result<T>) -> io::Result<Option<T>> {
        let file = self.file();
        let file = file.map(|file| rustix::fs::open(file, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()));
        let file = file.transpose()?;
        let address = match &file {
            Some(file) => Some(SocketAddrUnix::new(name::of_open(file))), // its name may be too long
            None => self.address(),
        };
        address.transpose()?.map(|address| work(&address)).transpose()
    }

    /// Does something in the directory at which it begins.
    ///
    /// # Errors
    /// Those of the work; the directory is not there.
    pub fn in_directory<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let Name::Near { directory, .. } = self else {
            return work();
        };
        let before = rustix::fs::open(".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        rustix::process::chdir(directory)?;
        let done = work();
        rustix::process::fchdir(before)?;
        done
    }
}

/// A socket that is no end of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Named {
    /// `SOCK_STREAM`, `SOCK_DGRAM` or `SOCK_SEQPACKET`.
    pub kind: i32,
    /// Its name.
    pub name: Name,
    /// Permissions of the file that it is bound to; none when there is no such file any more.
    pub mode: Option<u32>,
    /// What a datagram socket is connected with.
    pub peer: Name,
    /// How many connections may wait, of a listener.
    pub backlog: Option<i32>,
    /// Options, as the program sees them.
    pub options: Vec<SocketOption>,
}

/// What a Unix socket is that was not made as an end of a pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// An end of a connection, which `pairs` knows now.
    End,
    /// Anything else.
    Named(Named),
}

/// The options that a program may set.
const OPTIONS: [i32; 8] = [
    libc::SO_RCVTIMEO,
    libc::SO_SNDTIMEO,
    libc::SO_RCVLOWAT,
    libc::SO_KEEPALIVE,
    libc::SO_REUSEADDR,
    libc::SO_PRIORITY,
    libc::SO_PASSCRED,
    libc::SO_LINGER,
];

/// Whether it is a Unix socket.
#[must_use]
pub fn is_unix(fd: BorrowedFd<'_>) -> bool {
    let domain = socket::option(fd, libc::SO_DOMAIN);
    domain.is_ok_and(|domain| domain == libc::AF_UNIX.to_ne_bytes())
}

/// Whether what is sent on it reaches another program: none of those that twinpage runs is its peer.
#[must_use]
pub fn leads_outside(fd: BorrowedFd<'_>) -> bool {
    // struct ucred begins with the process id, which is 0 for one of another namespace.
    let peer = socket::option(fd, libc::SO_PEERCRED).unwrap_or_default();
    is_unix(fd) && peer.first_chunk() == Some(&[0; 4])
}

/// Whether a socket takes bytes: a connection, when no end of it is known; a datagram socket, when it is known where
/// they go.
#[must_use]
pub fn may_send(fd: BorrowedFd<'_>, is_addressed: bool) -> bool {
    let is_datagram = pairs::kind(fd).is_ok_and(|kind| kind == libc::SOCK_DGRAM);
    if is_datagram {
        return is_addressed || socket::has_peer(fd);
    }
    let ended = PollFlags::ERR | PollFlags::HUP;
    socket::has_peer(fd) && pairs::state(fd).is_ok_and(|state| !state.intersects(ended))
}

/// What a Unix socket is, by its inode, of a program that is in a directory.
///
/// # Errors
/// When the system refuses a look, or its name cannot be made again.
pub fn look(fd: BorrowedFd<'_>, inode: u64, directory: &Path, pairs: &mut Pairs) -> Result<Found> {
    let failed = |source: io::Error| Error::target("cannot look at a Unix socket", source);
    let kind = pairs::kind(fd).map_err(failed)?;
    let listed = look_up(inode)?;
    // What a datagram socket is connected with has a name, unless both were made as a pair.
    let peer = getpeername(fd).ok().flatten();
    let is_end = match kind {
        libc::SOCK_DGRAM => peer
            .clone()
            .is_some_and(|peer| name_of(Some(peer), directory) == Name::None),
        _ => listed.peer.is_some() || socket::has_peer(fd),
    };
    if is_end {
        pairs.know_peer(inode, listed.peer.unwrap_or(0));
        return Ok(Found::End);
    }
    let mut name = name_of(getsockname(fd).ok(), directory);
    let mode_at = |name: &Name| name.file().and_then(|path| mode_of(&path, listed.file));
    let mut mode = mode_at(&name);
    if mode.is_none() && listed.file.is_some() {
        name = where_it_lies(fd, name);
        mode = mode_at(&name);
    }
    let options = OPTIONS.iter().map(|option| {
        let value = socket::option(fd, *option)?;
        Ok((libc::SOL_SOCKET, *option, value))
    });
    Ok(Found::Named(Named {
        kind,
        mode,
        peer: name_of(peer, directory),
        backlog: listed.backlog,
        options: options.collect::<io::Result<_>>().map_err(failed)?,
        name,
    }))
}

/// Sees that what `look` found has no other side than the program and its descendants.
///
/// # Errors
/// When another program has the other end.
pub fn check_within(fd: BorrowedFd<'_>, found: &Found) -> Result<()> {
    let may_lead_out = match found {
        Found::End => true,
        Found::Named(named) => named.backlog.is_some() || named.kind == libc::SOCK_DGRAM,
    };
    if may_lead_out && leads_outside(fd) {
        let why = "a socket with another program at its other side, which cannot be taken back, is not captured with --replies none; with --replies held a resume resets it";
        return Err(Error::Unsupported(why.into()));
    }
    Ok(())
}

/// Sees that no connection waits at a listener of which `awaits` says, by the inode of its other end, that it is to be
/// waited for: what was sent on it cannot be looked at before it is accepted. The inode is 0 of an end that was closed.
///
/// # Errors
/// [`Error::NotYet`] when one does, and when the system refuses a look.
pub fn check_queue(fd: BorrowedFd<'_>, awaits: impl Fn(u64) -> bool) -> Result<()> {
    let look = |source| Error::target("cannot look at a Unix socket", source);
    let stat = rustix::fs::fstat(fd).map_err(|error| look(error.into()))?;
    let waiting = unix_sockets::waiting_at(stat.st_ino).map_err(look)?;
    match waiting.into_iter().any(awaits) {
        false => Ok(()),
        true => Err(Error::NotYet(
            "a connection waits to be accepted at a Unix socket".into(),
        )),
    }
}

fn look_up(inode: u64) -> Result<unix_sockets::Listed> {
    unix_sockets::look_up(inode).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT) => Error::Unsupported(
            "the kernel does not tell which Unix sockets belong together, so they are not captured (CONFIG_UNIX_DIAG)"
                .into(),
        ),
        _ => Error::target("cannot look at a Unix socket", error),
    })
}

fn name_of(address: Option<rustix::net::SocketAddrAny>, directory: &Path) -> Name {
    let Some(address) = address.and_then(|address| SocketAddrUnix::try_from(address).ok()) else {
        return Name::None;
    };
    match address.abstract_name() {
        Some([]) => return Name::None, // how a socket without a name is told
        Some(name) => return Name::Abstract(name.to_vec()),
        None => {}
    }
    let path = address.path_bytes().unwrap_or_default();
    let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
    let path = Path::new(OsStr::from_bytes(path)).to_owned();
    if path.as_os_str().is_empty() {
        Name::None
    } else if path.is_absolute() {
        Name::File(path)
    } else {
        Name::Near {
            directory: directory.to_owned(),
            name: path,
        }
    }
}

/// The name of a socket whose file is not found by it: with the file's place, as far as the kernel tells that.
fn where_it_lies(fd: BorrowedFd<'_>, name: Name) -> Name {
    let file = unix_sockets::file_of(fd).and_then(|file| std::fs::read_link(name::of_open(&file)));
    let Ok(file) = file else { return name };
    match name {
        Name::Near { name, .. } if file.ends_with(&name) => Name::Near {
            directory: file
                .ancestors()
                .nth(name.components().count())
                .unwrap_or(&file)
                .to_owned(),
            name,
        },
        Name::File(name) | Name::Near { name, .. } => Name::Moved { name, file },
        other => other,
    }
}

/// Permissions of the file with this name, if it is the one a socket was bound to.
fn mode_of(path: &Path, inode: Option<u64>) -> Option<u32> {
    let stat = rustix::fs::lstat(path).ok()?;
    (inode? == stat.st_ino & 0xffff_ffff).then_some(stat.st_mode & 0o7777)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    fn looked(fd: &impl AsFd, pairs: &mut Pairs) -> Found {
        let inode = rustix::fs::fstat(fd).unwrap().st_ino;
        look(fd.as_fd(), inode, Path::new("/"), pairs).unwrap()
    }

    #[test]
    fn listeners_and_connections_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("listener");
        let listener = UnixListener::bind(&path).unwrap();
        let mut pairs = Pairs::default();
        let Found::Named(named) = looked(&listener, &mut pairs) else {
            panic!("a listener is no end");
        };
        assert_eq!(named.name, Name::File(path.clone()));
        assert!(named.backlog.is_some_and(|most| most > 0) && named.mode.is_some());
        let client = UnixStream::connect(&path).unwrap();
        let inode = rustix::fs::fstat(&client).unwrap().st_ino;
        assert_eq!(looked(&client, &mut pairs), Found::End);
        assert!(!pairs.has(inode), "it is not accepted yet");
        let (server, _) = listener.accept().unwrap();
        assert_eq!(looked(&client, &mut pairs), Found::End);
        assert_eq!(looked(&server, &mut pairs), Found::End);
        assert!(pairs.has(inode));
        std::fs::remove_file(&path).unwrap();
        let Found::Named(named) = looked(&listener, &mut pairs) else {
            panic!("a listener is no end");
        };
        assert_eq!(named.mode, None);
        drop(server);
        assert_eq!(looked(&client, &mut pairs), Found::End, "its peer is gone");
    }

    #[test]
    fn files_are_found_where_they_were_moved() {
        let directory = tempfile::tempdir().unwrap();
        let [path, moved] = ["listener", "moved"].map(|name| directory.path().join(name));
        let listener = UnixListener::bind(&path).unwrap();
        if let Err(error) = unix_sockets::file_of(listener.as_fd()) {
            return eprintln!(
                "skipped: the kernel does not tell this user where a socket's file lies: {error}"
            );
        }
        let name = || match looked(&listener, &mut Pairs::default()) {
            Found::Named(named) => (named.mode.is_some(), named.name),
            Found::End => panic!("a listener is no end"),
        };
        std::fs::rename(&path, &moved).unwrap();
        let file = moved.canonicalize().unwrap();
        let known = Name::Moved {
            name: path.clone(),
            file,
        };
        assert_eq!(name(), (true, known));
        std::fs::rename(&moved, &path).unwrap();
        assert_eq!(name(), (true, Name::File(path.clone())));
        std::fs::remove_file(&path).unwrap();
        assert!(!name().0);
        std::fs::write(&path, "").unwrap();
        assert!(!name().0, "another has its name");
    }

    #[test]
    fn a_name_begins_where_its_file_lies() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("listener")).unwrap();
        if unix_sockets::file_of(listener.as_fd()).is_err() {
            return eprintln!("skipped: the kernel does not tell this user where a socket's file lies");
        }
        let file = directory.path().canonicalize().unwrap().join("listener");
        let last = file.parent().unwrap().file_name().unwrap();
        let from = |name: PathBuf| {
            let elsewhere = Name::Near {
                directory: "/".into(),
                name,
            };
            where_it_lies(listener.as_fd(), elsewhere)
        };
        for name in [PathBuf::from("listener"), Path::new(last).join("listener")] {
            let begins = from(name.clone());
            assert_eq!(begins.file(), Some(file.clone()), "{}", name.display());
            assert!(matches!(begins, Name::Near { .. }), "{begins:?}");
        }
        let name = PathBuf::from("another");
        assert_eq!(from(name.clone()), Name::Moved { name, file });
    }

    #[test]
    fn a_damaged_record_is_another_one_or_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("listener")).unwrap();
        let Found::Named(named) = looked(&listener, &mut Pairs::default()) else {
            panic!("a listener is no end");
        };
        let near = Named {
            name: Name::Near {
                directory: directory.path().to_owned(),
                name: "socket".into(),
            },
            peer: Name::Abstract(vec![1, 0, 255]),
            ..named.clone()
        };
        let moved = Named {
            name: Name::Moved {
                name: "socket".into(),
                file: directory.path().join("moved"),
            },
            ..named.clone()
        };
        for named in [named, near, moved] {
            let bytes = postcard::to_allocvec(&named).unwrap();
            assert_eq!(postcard::from_bytes::<Named>(&bytes).unwrap(), named);
            for length in 0..bytes.len() {
                assert!(postcard::from_bytes::<Named>(&bytes[..length]).is_err());
            }
            for at in 0..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[at / 8] ^= 1 << (at % 8);
                let read = postcard::from_bytes::<Named>(&damaged);
                assert!(read.is_err() || read.is_ok_and(|read| read != named), "bit {at}");
            }
        }
    }

    #[test]
    fn datagram_sockets_have_a_name_and_a_peer() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (directory.path().join("one"), directory.path().join("other"));
        let receiver = UnixDatagram::bind(&other).unwrap();
        let socket = UnixDatagram::bind(&one).unwrap();
        socket.connect(&other).unwrap();
        let Found::Named(named) = looked(&socket, &mut Pairs::default()) else {
            panic!("it is no end");
        };
        assert_eq!((named.name, named.peer), (Name::File(one), Name::File(other)));
        assert!(leads_outside(socket.as_fd()), "it is not known who receives");
        drop(receiver);
        let (one, _other) = UnixStream::pair().unwrap();
        assert!(!leads_outside(one.as_fd()));
        let (one, other) = UnixDatagram::pair().unwrap();
        let mut pairs = Pairs::default();
        assert_eq!(looked(&one, &mut pairs), Found::End, "none has a name");
        let inode = |socket: &UnixDatagram| rustix::fs::fstat(socket).unwrap().st_ino;
        let end = pairs.describe(inode(&one), &one.into()).unwrap();
        assert_eq!(end.peer, inode(&other));
    }
}
