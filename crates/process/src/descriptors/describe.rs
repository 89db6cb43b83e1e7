//! What a descriptor is: read once after each call that may have changed it.

use super::{Descriptor, DescriptorKind, Lock, LockKind, Notice, OWN_TERMINAL, fdinfo, is_pseudo};
use crate::error::{Error, Result};
use crate::files::{Ident, Recorder};
use crate::kernel::{self, GoneDirectory};
use crate::netlink::{self, Netlink};
use crate::objects::{Known, Objects};
use crate::pairs::Pairs;
use crate::ptys;
use crate::sockets::{self, Phase, Protocol, Replies, Sockets, protocol};
use crate::stdio::Stdio;
use crate::unix_sockets::{self, Found, is_unix};
use rustix::fs::{FileType, OFlags, Stat};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use twinpage_os::proc_file::field;
use twinpage_os::spawn;

/// Which files are what.
pub struct Files<'a> {
    /// The relayed standard streams.
    pub streams: &'a Stdio,
    /// Regular files whose content the checkpoint holds.
    pub objects: &'a mut Objects,
    /// The names of other regular files.
    pub recorder: &'a Recorder,
    /// Sockets to the outside.
    pub sockets: &'a Sockets,
}

/// What descriptor `fd` of process `pid` is. `ours` is a duplicate of it, and `stat` what fstat(2) says of it.
pub(super) fn describe(
    pid: i32,
    fd: i32,
    ours: &OwnedFd,
    stat: &Stat,
    shares: i32,
    pairs: &mut Pairs,
    files: &mut Files<'_>,
) -> Result<Descriptor> {
    let look =
        |error: rustix::io::Errno| Error::target(format!("cannot look at descriptor {fd}"), error.into());
    let path = kernel::link(pid, &format!("fd/{fd}"), &format!("the file of descriptor {fd}"))?;
    let flags = rustix::fs::fcntl_getfl(ours).map_err(look)?;
    let info = fdinfo(pid, fd)?;
    let listed = u32::from_str_radix(field(&info, "flags").unwrap_or("0"), 8).unwrap_or(0);
    let cloexec = listed & libc::O_CLOEXEC as u32 != 0;
    let file_type = FileType::from_raw_mode(stat.st_mode);
    let kind = match files.streams.identify(stat.st_dev, stat.st_ino) {
        Some(stream) => DescriptorKind::Stream(stream),
        None if flags.contains(OFlags::PATH) => place(fd, path, stat)?,
        None if file_type == FileType::Socket && pairs.has(stat.st_ino) => {
            DescriptorKind::Pair(pairs.describe(stat.st_ino, ours)?)
        }
        None if file_type == FileType::Socket && fd <= 2 && is_given(fd, stat) => {
            DescriptorKind::Inherited { outer: fd as u8 }
        }
        // A connection with another program is refused by its look (held.rs).
        None if file_type == FileType::Socket && protocol(ours.as_fd()).is_some() => {
            internet(fd, stat.st_ino, ours, files.sockets)?
        }
        None if file_type == FileType::Socket && is_unix(ours.as_fd()) => {
            unix_socket(pid, stat.st_ino, ours, pairs, files.sockets.replies)?
        }
        None if file_type == FileType::RegularFile && is_pseudo(ours) => DescriptorKind::Pseudo { path },
        None if file_type == FileType::RegularFile => match own_namespace(pid, &path, stat) {
            Some(path) => DescriptorKind::Pseudo { path },
            None => regular(stat, ours, files)?,
        },
        None => match own_terminal(fd, stat, ours, files.streams) {
            Some(ptys::End::Master(number)) => DescriptorKind::Master { number },
            Some(ptys::End::Other(number)) => DescriptorKind::Terminal { number },
            None => kind_of(fd, path, stat, ours, &info)?,
        },
    };
    let notice = match file_type {
        _ if flags.contains(OFlags::PATH) => None, // it is no open file that is ready for anything
        FileType::Fifo | FileType::Socket if kind.is_own() => Notice::of(ours.as_fd(), flags, pid)?,
        _ if flags.contains(Notice::FLAG) => {
            let why = "sends signals when it is ready (O_ASYNC), which is captured of pipes and sockets alone; the program may have a setting to wait in another way, or goes on without checkpoints while it is open: --on-uncapturable warn";
            return Err(Error::Unsupported(format!("descriptor {fd} {why}")));
        }
        _ => None,
    };
    let locks = info.lines().filter_map(lock).collect();
    Ok(Descriptor {
        fd,
        flags: (flags - Notice::FLAG).bits(),
        cloexec,
        kind,
        shares,
        locks,
        notice,
    })
}

/// A regular file that holds data.
fn regular(stat: &Stat, ours: &OwnedFd, files: &mut Files<'_>) -> Result<DescriptorKind> {
    let known = files.objects.identify(ours.as_fd(), stat, files.recorder)?;
    Ok(match known {
        Known::Object(id) => DescriptorKind::Object { id },
        Known::Named(path) => DescriptorKind::File {
            path,
            inode: stat.st_ino,
        },
    })
}

/// The name of a namespace (`uts:[4026531838]`) that the process is in: namespaces(7). After a resume it is another, in
/// which the process is again.
fn own_namespace(pid: i32, link: &Path, stat: &Stat) -> Option<PathBuf> {
    let (kind, _) = link.to_str()?.split_once(":[")?;
    let path = PathBuf::from(format!("/proc/{pid}/ns/{kind}"));
    let own = rustix::fs::stat(&path).ok()?;
    (Ident::from(&own) == Ident::from(stat)).then_some(path)
}

/// The end of a pseudo-terminal that the program or a process of its own made.
fn own_terminal(fd: i32, stat: &Stat, ours: &OwnedFd, streams: &Stdio) -> Option<ptys::End> {
    let end = ptys::end(ours.as_fd(), stat)?;
    let is_streams = |number: u32| {
        let stat = rustix::fs::stat(format!("/dev/pts/{number}"));
        stat.is_ok_and(|stat| streams.identify(stat.st_dev, stat.st_ino).is_some())
    };
    match end {
        ptys::End::Other(_) if fd <= 2 && is_given(fd, stat) => None,
        ptys::End::Other(number) if is_streams(number) => None, // as /dev/tty
        end => Some(end),
    }
}

/// A Unix socket that is not known as an end of a pair.
fn unix_socket(
    pid: i32,
    inode: u64,
    ours: &OwnedFd,
    pairs: &mut Pairs,
    replies: Replies,
) -> Result<DescriptorKind> {
    let directory = kernel::link(pid, "cwd", "the working directory")?;
    let found = unix_sockets::look(ours.as_fd(), inode, &directory, pairs)?;
    if replies == Replies::Refused {
        unix_sockets::check_within(ours.as_fd(), &found)?;
    }
    match found {
        Found::Named(named) => Ok(DescriptorKind::Unix(named)),
        Found::End => pairs.describe(inode, ours).map(DescriptorKind::Pair),
    }
}

/// Whether it is the file that twinpage itself was started with at this number.
pub(super) fn is_given(outer: i32, stat: &Stat) -> bool {
    let given = spawn::borrow(outer).ok();
    let given = given.and_then(|given| rustix::fs::fstat(given).ok());
    given.is_some_and(|given| Ident::from(&given) == Ident::from(stat))
}

fn internet(fd: i32, inode: u64, ours: &OwnedFd, sockets: &Sockets) -> Result<DescriptorKind> {
    let look = |source| Error::target(format!("cannot look at socket {fd}"), source);
    let mut socket = sockets.describe(inode, ours.as_fd()).map_err(look)?;
    if protocol(ours.as_fd()) == Some(Protocol::Udp) {
        let peer = sockets::peer(ours.as_fd());
        return Ok(DescriptorKind::Datagrams { socket, peer });
    }
    let backlog = sockets::backlog(ours.as_fd()).map_err(look)?;
    if backlog.is_some() || sockets::phase(ours).map_err(look)? == Phase::New {
        let size = sockets::segment_size(ours.as_fd()).map_err(look)?;
        socket.options.extend(size);
    }
    Ok(match backlog {
        Some(backlog) => DescriptorKind::Listener { socket, backlog },
        None => DescriptorKind::Connection(socket),
    })
}

/// A descriptor made with `O_PATH`, whatever is there.
fn place(fd: i32, path: PathBuf, stat: &Stat) -> Result<DescriptorKind> {
    let file_type = FileType::from_raw_mode(stat.st_mode);
    let is_nameless = path.is_relative(); // pipe:[123]
    match GoneDirectory::of(stat) {
        None if is_nameless && file_type == FileType::Fifo => Ok(DescriptorKind::Pipe {
            inode: stat.st_ino,
            capacity: 0, // its ends tell it
        }),
        None if is_nameless => Err(Error::Unsupported(format!(
            "descriptor {fd} is {}, opened with O_PATH, which is captured of files and pipes alone: close it when it is not used any more",
            path.display()
        ))),
        Some(gone) if file_type == FileType::Directory => Ok(DescriptorKind::GoneDirectory(gone)),
        Some(_) => Err(deleted(fd, &path)),
        None => Ok(DescriptorKind::Place {
            path,
            inode: stat.st_ino,
        }),
    }
}

/// The kind of a descriptor that is no stream, pair, internet or Unix socket, file or terminal of its own.
fn kind_of(fd: i32, path: PathBuf, stat: &Stat, ours: &OwnedFd, info: &str) -> Result<DescriptorKind> {
    let unsupported = |why: &str| {
        Error::Unsupported(format!(
            "descriptor {fd} is {}, which cannot be captured: {why}",
            path.display()
        ))
    };
    let name = path.as_os_str().as_bytes();
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => match GoneDirectory::of(stat) {
            Some(gone) => DescriptorKind::GoneDirectory(gone),
            None => DescriptorKind::Directory { path },
        },
        FileType::CharacterDevice => match name {
            b"/dev/null" | b"/dev/zero" | b"/dev/full" | b"/dev/random" | b"/dev/urandom" => {
                DescriptorKind::Device { path }
            }
            name if name == OWN_TERMINAL.as_bytes() => DescriptorKind::Device { path },
            _ if fd <= 2 => DescriptorKind::Inherited { outer: fd as u8 },
            _ if name.starts_with(b"/dev/pts/") || name.starts_with(b"/dev/tty") => {
                return Err(unsupported(
                    "of terminals only the program's own is captured, that of its standard input, output and error",
                ));
            }
            _ => {
                return Err(unsupported(
                    "devices keep state of their own; read what it gives before, or through standard input",
                ));
            }
        },
        FileType::Fifo if name.starts_with(b"pipe:") => {
            let capacity = rustix::pipe::fcntl_getpipe_size(ours).unwrap_or(65536) as u32;
            DescriptorKind::Pipe {
                inode: stat.st_ino,
                capacity,
            }
        }
        FileType::Fifo => DescriptorKind::Fifo {
            path,
            inode: stat.st_ino,
            capacity: rustix::pipe::fcntl_getpipe_size(ours).unwrap_or(65536) as u32,
        },
        FileType::Socket if netlink::is_netlink(ours.as_fd()) => {
            let look = |source| Error::target(format!("cannot look at socket {fd}"), source);
            DescriptorKind::Netlink(Netlink::of(ours.as_fd()).map_err(look)?)
        }
        FileType::Socket => {
            return Err(unsupported(
                "the other side of a socket cannot be taken back; use files or standard input",
            ));
        }
        _ => match name {
            b"anon_inode:[eventfd]" => DescriptorKind::Event,
            b"anon_inode:[eventpoll]" => DescriptorKind::Poll,
            b"anon_inode:inotify" | b"anon_inode:[inotify]" => DescriptorKind::Inotify,
            b"anon_inode:[pidfd]" if of_thread(ours) => {
                return Err(unsupported(
                    "it is of a thread (PIDFD_THREAD); one of its process is captured",
                ));
            }
            b"anon_inode:[pidfd]" => DescriptorKind::Process,
            b"anon_inode:[timerfd]" => DescriptorKind::Timer {
                clock: field(info, "clockid")
                    .and_then(|clock| clock.parse::<i32>().ok())
                    .ok_or_else(|| unsupported("the kernel does not tell the timer's clock"))?
                    .into(),
            },
            b"anon_inode:[signalfd]" => DescriptorKind::Signals {
                mask: field(info, "sigmask")
                    .and_then(|mask| u64::from_str_radix(mask, 16).ok())
                    .unwrap_or(0),
            },
            _ => return Err(unsupported("this kind of descriptor is not known")),
        },
    })
}

fn deleted(fd: i32, path: &Path) -> Error {
    let path = path.display();
    Error::Unsupported(format!(
        "descriptor {fd} is {path}, which is deleted: it cannot be opened again; keep the file while it is open"
    ))
}

/// Whether a descriptor is of a thread, not of a process: pidfd_open(2), `PIDFD_THREAD`.
fn of_thread(pidfd: &OwnedFd) -> bool {
    rustix::fs::fcntl_getfl(pidfd).is_ok_and(|flags| flags.contains(OFlags::EXCL))
}

/// `lock: 1: POSIX  ADVISORY  WRITE 300 fe:00:1234 0 EOF`, as proc_locks(5) has it.
fn lock(line: &str) -> Option<Lock> {
    let mut words = line.strip_prefix("lock:")?.split_whitespace().skip(1);
    let kind = match words.next()? {
        "FLOCK" => LockKind::Whole,
        "OFDLCK" => LockKind::OpenFile,
        _ => LockKind::Process,
    };
    let exclusive = words.nth(1)? == "WRITE";
    let start = words.nth(2)?.parse().ok()?;
    let len = match words.next()? {
        "EOF" => 0,
        last => last.parse::<u64>().ok()? - start + 1,
    };
    Some(Lock {
        kind,
        exclusive,
        start,
        len,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fdinfo_is_understood() {
        let expected = Lock {
            kind: LockKind::Process,
            exclusive: true,
            start: 8,
            len: 4,
        };
        assert_eq!(
            lock("lock:\t1: POSIX  ADVISORY  WRITE 300 fe:00:12 8 11"),
            Some(expected)
        );
        assert_eq!(field("pos:\t0\nflags:\t02\n", "flags"), Some("02"));
    }
}
