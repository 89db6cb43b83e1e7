//! Open files, pipes, event and timer descriptors of the program, and how to open them again.
//!
//! * A descriptor is looked at again only after a call that may have changed it (`table.rs`, `touched.rs`);
//!   offsets, counters and the contents of pipes are read at every stop (`held.rs`).
//! * Descriptors of one open file share its offset; they share it again after a resume (`open_files.rs`).
//! * What cannot be opened again is refused, by descriptor and name (`describe.rs`).

pub mod countdowns;
mod describe;
mod held;
pub mod inotify;
mod notices;
mod open_files;
pub mod pidfds;
pub mod polls;
mod table;
pub mod tables;
mod touched;

pub use describe::Files;
pub use held::Look;
pub use notices::Notice;
pub use table::{Descriptors, is_of_process, is_open_in};
pub(crate) use tables::numbers;

use self::polls::Interest;
use crate::clocks::Clock;
use crate::datagrams::Datagram;
use crate::error::{Error, Result};
use crate::files;
use crate::kernel::GoneDirectory;
use crate::loopback;
use crate::netlink::Netlink;
use crate::objects::Id;
use crate::pairs::{End, Queue};
use crate::ptys;
use crate::sockets::{Address, Phase, Socket};
use crate::stdio::Stream;
use crate::unix_sockets::Named;
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::PathBuf;
use twinpage_os::proc_file;

/// What a descriptor is, as far as it does not change by itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DescriptorKind {
    /// A regular file.
    File {
        /// Where it was opened.
        #[serde(with = "crate::path_bytes")]
        path: PathBuf,
        /// Its inode, to notice a file that was replaced.
        inode: u64,
    },
    /// A directory.
    Directory {
        /// Where it was opened.
        #[serde(with = "crate::path_bytes")]
        path: PathBuf,
    },
    /// A device without state: null, zero, full, random, urandom, tty.
    Device {
        /// Which.
        #[serde(with = "crate::path_bytes")]
        path: PathBuf,
    },
    /// One end of a pipe whose both ends are the program's.
    Pipe {
        /// The pipe's number: ends with the same belong together.
        inode: u64,
        /// Its size in bytes.
        capacity: u32,
    },
    /// A standard stream that twinpage relays.
    Stream(Stream),
    /// A pipe, terminal or socket of the outside, as it was given to the program; given again.
    Inherited {
        /// The descriptor of `resume` itself that stands for it.
        outer: u8,
    },
    /// eventfd(2).
    Event,
    /// epoll(7).
    Poll,
    /// timerfd_create(2).
    Timer {
        /// The clock.
        #[serde(with = "crate::clocks::unsigned")]
        clock: Clock,
    },
    /// socketpair(2).
    Pair(End),
    /// signalfd(2).
    Signals {
        /// Which signals it reads, one bit each.
        mask: u64,
    },
    /// A named pipe of the program's own: fifo(7).
    Fifo {
        /// Where it was opened.
        #[serde(with = "crate::path_bytes")]
        path: PathBuf,
        /// Its inode: descriptors with the same are one pipe.
        inode: u64,
        /// Its size in bytes.
        capacity: u32,
    },
    /// A place in the file system and nothing more, open(2) with `O_PATH`.
    Place {
        /// Where.
        #[serde(with = "crate::path_bytes")]
        path: PathBuf,
        /// Its inode, to notice that it was replaced.
        inode: u64,
    },
    /// A file that the kernel makes up, of `/proc` or `/sys`.
    Pseudo {
        /// Where it was opened.
        #[serde(with = "crate::path_bytes")]
        path: PathBuf,
    },
    /// A directory that was removed.
    GoneDirectory(GoneDirectory),
    /// A regular file whose content the checkpoint holds: see [`crate::objects`].
    Object {
        /// Which.
        id: Id,
    },
    /// A TCP socket that listens.
    Listener {
        /// The socket.
        socket: Socket,
        /// How many connections may wait to be accepted.
        backlog: i32,
    },
    /// A TCP socket that does not.
    Connection(Socket),
    /// A UDP socket.
    Datagrams {
        /// The socket.
        socket: Socket,
        /// The address it is connected with, if it is.
        peer: Option<Address>,
    },
    /// A Unix socket that is no end of a connection.
    Unix(Named),
    /// inotify(7).
    Inotify,
    /// The master of a pseudo-terminal of the program's own: pty(7).
    Master {
        /// The number of the pseudo-terminal.
        number: u32,
    },
    /// The other end of one.
    Terminal {
        /// The number of the pseudo-terminal.
        number: u32,
    },
    /// pidfd_open(2).
    Process,
    /// A socket of netlink(7).
    Netlink(Netlink),
}

impl DescriptorKind {
    /// Whether a resume creates it, instead of taking one of its own standard streams.
    fn is_own(&self) -> bool {
        !matches!(self, DescriptorKind::Stream(_) | DescriptorKind::Inherited { .. })
    }
}

/// One descriptor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Descriptor {
    /// Its number.
    pub fd: i32,
    /// `O_*` status flags and access mode.
    pub flags: u32,
    /// Closed by exec.
    pub cloexec: bool,
    /// The kind of its open file.
    pub kind: DescriptorKind,
    /// The lowest descriptor of the same open file, perhaps itself.
    pub shares: i32,
    /// Locks held on the file through it.
    pub locks: Vec<Lock>,
    /// Signals that its open file sends. Behind the others ([`crate::context`], version 7).
    #[serde(skip)]
    pub notice: Option<Notice>,
}

impl Descriptor {
    /// Whether it is a pipe, opened with `O_PATH`: it is no end.
    pub(crate) fn is_place_of_pipe(&self) -> bool {
        let is_pipe = matches!(self.kind, DescriptorKind::Pipe { .. });
        is_pipe && self.flags & libc::O_PATH as u32 != 0
    }
}

/// Descriptors by number.
pub type List = BTreeMap<i32, Descriptor>;

/// A lock on a file: flock(2) or fcntl_locking(2).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lock {
    /// Whose it is, and so which call takes it.
    pub kind: LockKind,
    /// No other process may have one.
    pub exclusive: bool,
    /// First byte.
    pub start: u64,
    /// How many bytes; 0: to the end, however long the file grows.
    pub len: u64,
}

/// Whose a lock is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LockKind {
    /// The open file's, whole: `flock`.
    Whole,
    /// The process's: `F_SETLK`.
    Process,
    /// The open file's: `F_OFD_SETLK`.
    OpenFile,
}

/// What a descriptor held at a stop.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Held {
    /// Nothing that changes.
    Nothing,
    /// Offset in bytes; and for a file that can be written, its size.
    Offset {
        /// Where the next read or write is.
        at: u64,
        /// How long the file was.
        size: u64,
    },
    /// Bytes in a pipe, on its first read end.
    Bytes(Vec<u8>),
    /// An event counter.
    Count {
        /// The counter.
        count: u64,
        /// Whether it counts down by one: `EFD_SEMAPHORE`.
        semaphore: bool,
    },
    /// What a poll descriptor waits for, as version 1 kept it: (descriptor, events, data).
    Interests(Vec<(i32, u32, u64)>),
    /// A timer: nanoseconds left, period, expirations not yet read.
    Countdown {
        /// Nanoseconds until the next expiration; 0 when it is not set.
        left_ns: u64,
        /// Nanoseconds between expirations; 0 when there is one only.
        every_ns: u64,
        /// Expirations not read yet.
        ticks: u64,
    },
    /// What waits in a socket.
    Queue(Queue),
    /// What is in a named pipe.
    Fifo {
        /// Bytes not read yet.
        bytes: Vec<u8>,
        /// It is known that all writers are gone: a poll says so.
        hung_up: bool,
    },
    /// Packets in a pipe.
    Packets(Vec<Vec<u8>>),
    /// What a poll descriptor waits for.
    Watched(Vec<Interest>),
    /// How far a TCP socket is.
    Connection(Phase),
    /// Files that are watched.
    Watches {
        /// The watches, by number.
        watches: Vec<inotify::Watch>,
        /// The highest number that was given.
        highest: i32,
    },
    /// An end of a TCP connection within the tree.
    Within(loopback::End),
    /// Messages that wait in a datagram socket with an address.
    Messages(Vec<Datagram>),
    /// A pseudo-terminal, at its master.
    Terminal(Box<ptys::Terminal>),
    /// The same, in packet mode: ioctl_tty(2).
    PacketTerminal(Box<ptys::Terminal>),
    /// The process that a descriptor is of; none once it was waited for.
    Process(Option<i32>),
    /// As `Countdown`, of a timer that ends when the wall clock is set: timerfd_create(2), `TFD_TIMER_CANCEL_ON_SET`.
    CountdownUntilSet {
        /// Nanoseconds until the next expiration; 0 when it is not set.
        left_ns: u64,
        /// Nanoseconds between expirations; 0 when there is one only.
        every_ns: u64,
        /// Expirations not read yet.
        ticks: u64,
    },
}

impl Held {
    /// A pseudo-terminal, at its master.
    #[must_use]
    pub fn terminal(&self) -> Option<&ptys::Terminal> {
        match self {
            Held::Terminal(terminal) | Held::PacketTerminal(terminal) => Some(terminal),
            _ => None,
        }
    }
}

/// The terminal that controls a process, whichever it is: tty(4).
pub const OWN_TERMINAL: &str = "/dev/tty";

/// Whether a device keeps nothing that a checkpoint would have to: null, zero, full, random, urandom.
#[must_use]
pub fn is_stateless_device(device: u64) -> bool {
    const MEMORY_DEVICES: u32 = 1;
    rustix::fs::major(device) == MEMORY_DEVICES && matches!(rustix::fs::minor(device), 3 | 5 | 7 | 8 | 9)
}

/// Whether the file is one that the kernel makes up: what is in it is the state of something else.
fn is_pseudo(fd: impl AsFd) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|system| files::is_pseudo(&system))
}

/// Whether writes to this descriptor go to a file whose content is rolled back.
#[must_use]
pub fn is_regular(fd: impl AsFd) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

fn fdinfo(pid: i32, fd: i32) -> Result<String> {
    let path = format!("/proc/{pid}/fdinfo/{fd}");
    proc_file::text(&path).map_err(Error::file("cannot read", path))
}

fn not_understood(pid: i32, fd: i32, info: &str) -> Error {
    Error::Internal(format!("/proc/{pid}/fdinfo/{fd} is not understood: {info}"))
}
