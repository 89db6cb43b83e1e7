//! Open files, pipes, event and timer descriptors of the program, and how to open them again.
//!
//! * The table is listed only after a call that may have changed it; offsets, counters and pipe
//!   contents are read at every stop.
//! * Descriptors of one open file share its offset; they share it again after a resume.
//! * Ours of a regular file is the same open file, so its offset is one cheap call away. It is
//!   closed before the program's own close, so that the program sees what it would see alone.
//! * What cannot be opened again is refused, by descriptor and name.

use crate::error::{Error, Result};
use crate::files::Recorder;
use crate::kernel::GoneDirectory;
use crate::objects::{Id, Known, Objects};
use crate::pairs::{self, End, Pairs, Queue};
use crate::polls::{self, Interest};
use crate::stdio::{Stdio, Stream};
use rustix::fs::{FileType, OFlags, SeekFrom};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use twinpage_os::remote::Process;
use twinpage_os::trace::Tid;

/// What a descriptor is, as far as it does not change by itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum What {
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
        clock: u32,
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
    /// What it is.
    pub what: What,
    /// The lowest descriptor of the same open file, perhaps itself.
    pub shares: i32,
    /// Locks held on the file through it.
    pub locks: Vec<Lock>,
}

/// A lock on a file: flock(2) or fcntl_locking(2).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lock {
    /// Whose it is, and so which call takes it.
    pub kind: LockKind,
    /// Nobody else may have one.
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
}

/// Which regular files are what.
pub struct Files<'a> {
    /// Those whose content the checkpoint holds.
    pub objects: &'a mut Objects,
    /// The names of the others.
    pub recorder: &'a Recorder,
}

/// Which descriptors are one open file. By file, the lowest descriptor of each of its open files, in the
/// order that kcmp(2) gives: a file opened thousands of times is found in a few steps.
#[derive(Default)]
struct OpenFiles(HashMap<(u64, u64), Vec<i32>>);

impl OpenFiles {
    /// The lowest descriptor of the same open file as `fd`, which is higher than all before.
    fn lowest(&mut self, pid: i32, fd: i32, ours: &OwnedFd) -> Result<i32> {
        let stat = rustix::fs::fstat(ours)
            .map_err(|error| Error::target(format!("cannot look at descriptor {fd}"), error.into()))?;
        let known = self.0.entry((stat.st_dev, stat.st_ino)).or_default();
        let (mut low, mut high) = (0, known.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let order = twinpage_os::remote::order_of_open_files(pid, known[middle], fd);
            match order.map_err(|source| {
                Error::target(
                    "cannot compare descriptors (the kernel needs CONFIG_KCMP)",
                    source,
                )
            })? {
                Ordering::Equal => return Ok(known[middle]),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        known.insert(low, fd);
        Ok(fd)
    }
}

/// The program's descriptors.
#[derive(Debug, Default)]
pub struct Descriptors {
    /// Which sockets belong together.
    pub(crate) pairs: Pairs,
    list: Vec<Descriptor>,
    ours: HashMap<i32, OwnedFd>,
}

impl Descriptors {
    /// What they are, by number.
    #[must_use]
    pub fn list(&self) -> &[Descriptor] {
        &self.list
    }

    /// Closes ours of the descriptors from `first` to `last`: the program is about to close its own.
    pub fn release(&mut self, first: i32, last: i32) {
        self.ours.retain(|fd, _| !(first..=last).contains(fd));
    }

    /// Lists the table again.
    ///
    /// # Errors
    /// Names a descriptor that cannot be captured.
    pub fn list_again(&mut self, process: &Process, streams: &Stdio, files: &mut Files<'_>) -> Result<()> {
        let pid = process.thread();
        let directory = format!("/proc/{pid}/fd");
        let entries = fs::read_dir(&directory).map_err(Error::file("cannot list", &directory))?;
        let mut numbers: Vec<i32> = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        numbers.sort_unstable();
        self.ours.clear();
        self.list.clear();
        let mut known = OpenFiles::default();
        for fd in numbers {
            let ours = match process.duplicate_fd(fd) {
                Ok(ours) => ours,
                Err(error) if error.raw_os_error() == Some(libc::EBADF) => continue, // closed meanwhile
                Err(source) => return Err(Error::target(format!("cannot look at descriptor {fd}"), source)),
            };
            let shares = known.lowest(pid, fd, &ours)?;
            let descriptor = describe(pid, fd, &ours, shares, streams, &self.pairs, files)?;
            if matches!(
                descriptor.what,
                What::File { .. } | What::Object { .. } | What::Directory { .. } | What::Pseudo { .. }
            ) && shares == fd
            {
                self.ours.insert(fd, ours);
            }
            self.list.push(descriptor);
        }
        let ends = self.list.iter().filter_map(|descriptor| match &descriptor.what {
            What::Pair(end) => Some(end.inode),
            _ => None,
        });
        let ends: Vec<u64> = ends.collect();
        self.pairs.keep(&ends);
        self.check_pipes()
    }

    /// A pipe with one end only leads outside, or to an end that was closed. The second is harmless
    /// to restore; the first cannot be told apart, so pipes handed in from outside are recognised
    /// when the program starts ([`What::Inherited`]).
    fn check_pipes(&self) -> Result<()> {
        for descriptor in &self.list {
            if let What::Inherited { outer } = descriptor.what
                && outer > 2
            {
                return Err(Error::Unsupported(format!(
                    "descriptor {} is a pipe or socket to another program: only standard input, output and error may be; close it with {}>&-",
                    descriptor.fd, descriptor.fd
                )));
            }
        }
        Ok(())
    }

    /// Whether an end of this pipe writes packets.
    fn has_packets(&self, pipe: &Descriptor) -> bool {
        let same_pipe = |other: &&Descriptor| match (&pipe.what, &other.what) {
            (What::Pipe { inode: one, .. }, What::Pipe { inode: other, .. }) => one == other,
            _ => false,
        };
        let mut ends = self.list.iter().filter(same_pipe);
        ends.any(|end| end.flags & libc::O_DIRECT as u32 != 0)
    }

    /// Ours of the regular files that are open for writing.
    pub fn writable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let writable = |descriptor: &&Descriptor| {
            matches!(descriptor.what, What::File { .. })
                && descriptor.flags & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32
        };
        self.list
            .iter()
            .filter(writable)
            .filter_map(|descriptor| Some(self.ours.get(&descriptor.fd)?.as_fd()))
    }

    /// What each descriptor holds now, in the order of [`Descriptors::list`].
    ///
    /// # Errors
    /// When the system refuses a look.
    pub fn held(&self, process: &Process, tid: Tid) -> Result<Vec<Held>> {
        self.list
            .iter()
            .map(|descriptor| self.held_by(process, tid, descriptor))
            .collect()
    }

    fn held_by(&self, process: &Process, tid: Tid, descriptor: &Descriptor) -> Result<Held> {
        if descriptor.shares != descriptor.fd {
            return Ok(Held::Nothing);
        }
        let fd = descriptor.fd;
        let look =
            |error: rustix::io::Errno| Error::target(format!("cannot look at descriptor {fd}"), error.into());
        match &descriptor.what {
            What::File { .. } | What::Object { .. } => {
                let ours = &self.ours[&fd];
                let at = rustix::fs::seek(ours, SeekFrom::Current(0)).map_err(look)?;
                let stat = rustix::fs::fstat(ours).map_err(look)?;
                Ok(Held::Offset {
                    at,
                    size: stat.st_size as u64,
                })
            }
            What::Pseudo { .. } => {
                // Some of them cannot seek: they have no place to go on from.
                let at = match rustix::fs::seek(&self.ours[&fd], SeekFrom::Current(0)) {
                    Err(rustix::io::Errno::SPIPE) => 0,
                    at => at.map_err(look)?,
                };
                Ok(Held::Offset { at, size: 0 })
            }
            What::Directory { .. } => {
                let at = rustix::fs::seek(&self.ours[&fd], SeekFrom::Current(0)).map_err(look)?;
                Ok(Held::Offset { at, size: 0 })
            }
            What::Pipe { .. } if descriptor.flags & libc::O_ACCMODE as u32 == libc::O_RDONLY as u32 => {
                let end = process
                    .duplicate_fd(fd)
                    .map_err(|source| Error::target("cannot look into a pipe", source))?;
                let packets = peek(end).map_err(look)?;
                Ok(if self.has_packets(descriptor) || packets.len() > 1 {
                    Held::Packets(packets)
                } else {
                    Held::Bytes(packets.concat())
                })
            }
            What::Pair(end) => pairs::held(process, fd, end).map(Held::Queue),
            What::Fifo { .. } => {
                let ours = process
                    .duplicate_fd(fd)
                    .map_err(|source| Error::target("cannot look into a named pipe", source))?;
                look_into_fifo(ours).map_err(look)
            }
            What::Poll => {
                let info = fdinfo(process.thread(), fd)?;
                polls::held(process, tid, fd, &info, &self.list).map(Held::Watched)
            }
            What::Event | What::Timer { .. } => {
                if let What::Timer { .. } = descriptor.what {
                    // The kernel counts the expirations of a periodic timer only when it is asked.
                    let ours = process
                        .duplicate_fd(fd)
                        .map_err(|source| Error::target("cannot look at a timer", source))?;
                    rustix::time::timerfd_gettime(ours).map_err(look)?;
                }
                held_by_special(process.thread(), fd, &descriptor.what)
            }
            _ => Ok(Held::Nothing),
        }
    }
}

fn deleted(fd: i32, path: &Path) -> Error {
    let path = path.display();
    Error::Unsupported(format!(
        "descriptor {fd} is {path}, which is deleted: it cannot be opened again; keep the file while it is open"
    ))
}

/// A copy of what is in a pipe, in the pieces that reads give: one, or a packet each (pipe(2), `O_DIRECT`).
/// It stays there. See tee(2).
fn peek(end: OwnedFd) -> rustix::io::Result<Vec<Vec<u8>>> {
    let waiting = rustix::io::ioctl_fionread(&end)? as usize;
    let mut packets = Vec::new();
    if waiting == 0 {
        return Ok(packets);
    }
    let (read, write) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK | rustix::pipe::PipeFlags::CLOEXEC)?;
    let capacity = rustix::pipe::fcntl_getpipe_size(&end)?;
    rustix::pipe::fcntl_setpipe_size(&write, capacity)?;
    let copied = rustix::pipe::tee(&end, &write, waiting, rustix::pipe::SpliceFlags::NONBLOCK)?;
    if copied != waiting {
        return Err(rustix::io::Errno::IO);
    }
    let mut left = waiting;
    while left > 0 {
        let mut bytes = vec![0; left];
        let length = rustix::io::read(&read, &mut bytes)?;
        bytes.truncate(length);
        left -= length;
        packets.push(bytes);
    }
    Ok(packets)
}

/// What is in a named pipe, whichever way it is open. One that is open for writing only is looked into
/// through another open of it, which disturbs nobody: the program stands still.
fn look_into_fifo(end: OwnedFd) -> rustix::io::Result<Held> {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut asked = [PollFd::new(&end, PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(&mut asked, Some(&rustix::time::Timespec::default())))?;
    let hung_up = asked[0].revents().contains(PollFlags::HUP);
    let writes_only = rustix::fs::fcntl_getfl(&end)? & OFlags::ACCMODE == OFlags::WRONLY;
    if rustix::io::ioctl_fionread(&end)? == 0 {
        return Ok(Held::Fifo {
            bytes: Vec::new(),
            hung_up,
        });
    }
    let readable = if writes_only {
        let path = format!("/proc/self/fd/{}", end.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, rustix::fs::Mode::empty())?
    } else {
        end
    };
    Ok(Held::Fifo {
        bytes: peek(readable)?.concat(),
        hung_up,
    })
}

fn describe(
    pid: i32,
    fd: i32,
    ours: &OwnedFd,
    shares: i32,
    streams: &Stdio,
    pairs: &Pairs,
    files: &mut Files<'_>,
) -> Result<Descriptor> {
    let look =
        |error: rustix::io::Errno| Error::target(format!("cannot look at descriptor {fd}"), error.into());
    let link = format!("/proc/{pid}/fd/{fd}");
    let path = fs::read_link(&link).map_err(Error::file("cannot read", &link))?;
    let stat = rustix::fs::fstat(ours).map_err(look)?;
    let flags = rustix::fs::fcntl_getfl(ours).map_err(look)?;
    let info = fdinfo(pid, fd)?;
    let listed = u32::from_str_radix(field(&info, "flags").unwrap_or("0"), 8).unwrap_or(0);
    let cloexec = listed & libc::O_CLOEXEC as u32 != 0;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let what = match streams.identify(stat.st_dev, stat.st_ino) {
        Some(stream) => What::Stream(stream),
        None if kind == FileType::Socket && pairs.has(stat.st_ino) => {
            What::Pair(pairs.describe(stat.st_ino, ours)?)
        }
        None if flags.contains(OFlags::PATH) => place(fd, path, &stat)?,
        None if kind == FileType::RegularFile && is_pseudo(ours) => What::Pseudo { path },
        None if kind == FileType::RegularFile => {
            match files.objects.identify(ours.as_fd(), &stat, files.recorder)? {
                Known::Object(id) => What::Object { id },
                Known::Named(path) => What::File {
                    path,
                    inode: stat.st_ino,
                },
            }
        }
        None => what(fd, path, kind, &stat, ours, &info)?,
    };
    if flags.intersects(OFlags::from_bits_retain(libc::O_ASYNC as u32)) {
        return Err(Error::Unsupported(format!(
            "descriptor {fd} sends signals (O_ASYNC), which is not captured; poll it instead"
        )));
    }
    let locks = info.lines().filter_map(lock).collect();
    Ok(Descriptor {
        fd,
        flags: flags.bits(),
        cloexec,
        what,
        shares,
        locks,
    })
}

/// A descriptor made with `O_PATH`, whatever is there.
fn place(fd: i32, path: PathBuf, stat: &rustix::fs::Stat) -> Result<What> {
    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    match GoneDirectory::of(stat) {
        Some(gone) if is_directory => Ok(What::GoneDirectory(gone)),
        Some(_) => Err(deleted(fd, &path)),
        None => Ok(What::Place {
            path,
            inode: stat.st_ino,
        }),
    }
}

fn what(
    fd: i32,
    path: PathBuf,
    kind: FileType,
    stat: &rustix::fs::Stat,
    ours: &OwnedFd,
    info: &str,
) -> Result<What> {
    let unsupported = |why: &str| {
        Error::Unsupported(format!(
            "descriptor {fd} is {}, which cannot be captured: {why}",
            path.display()
        ))
    };
    let name = path.as_os_str().as_bytes();
    Ok(match kind {
        FileType::Directory => match GoneDirectory::of(stat) {
            Some(gone) => What::GoneDirectory(gone),
            None => What::Directory { path },
        },
        FileType::CharacterDevice => match name {
            b"/dev/null" | b"/dev/zero" | b"/dev/full" | b"/dev/random" | b"/dev/urandom" => {
                What::Device { path }
            }
            _ if fd <= 2 => What::Inherited { outer: fd as u8 },
            _ if name.starts_with(b"/dev/pts/") || name.starts_with(b"/dev/tty") => {
                return Err(unsupported(
                    "only standard input, output and error may be a terminal",
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
            What::Pipe {
                inode: stat.st_ino,
                capacity,
            }
        }
        FileType::Fifo => What::Fifo {
            path,
            inode: stat.st_ino,
            capacity: rustix::pipe::fcntl_getpipe_size(ours).unwrap_or(65536) as u32,
        },
        FileType::Socket if fd <= 2 => What::Inherited { outer: fd as u8 },
        FileType::Socket => {
            return Err(unsupported(
                "the other side of a socket cannot be taken back; use files or standard input",
            ));
        }
        _ => match name {
            b"anon_inode:[eventfd]" => What::Event,
            b"anon_inode:[eventpoll]" => What::Poll,
            b"anon_inode:[timerfd]" => What::Timer {
                clock: field(info, "clockid")
                    .and_then(|clock| clock.parse().ok())
                    .unwrap_or(1),
            },
            b"anon_inode:[signalfd]" => What::Signals {
                mask: field(info, "sigmask")
                    .and_then(|mask| u64::from_str_radix(mask, 16).ok())
                    .unwrap_or(0),
            },
            _ => return Err(unsupported("this kind of descriptor is not known")),
        },
    })
}

fn held_by_special(pid: i32, fd: i32, what: &What) -> Result<Held> {
    let info = fdinfo(pid, fd)?;
    let number =
        |name: &str, radix: u32| field(&info, name).and_then(|text| u64::from_str_radix(text, radix).ok());
    let held = match what {
        What::Event => number("eventfd-count", 16).map(|count| Held::Count {
            count,
            semaphore: number("eventfd-semaphore", 10) == Some(1),
        }),
        _ => field(&info, "it_value")
            .and_then(pair_ns)
            .zip(field(&info, "it_interval").and_then(pair_ns))
            .map(|(left_ns, every_ns)| Held::Countdown {
                left_ns,
                every_ns,
                ticks: number("ticks", 10).unwrap_or(0),
            }),
    };
    held.ok_or_else(|| Error::Internal(format!("/proc/{pid}/fdinfo/{fd} is not understood: {info}")))
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

/// `(seconds, nanoseconds)`
fn pair_ns(text: &str) -> Option<u64> {
    let (seconds, nanoseconds) = text.trim_matches(['(', ')']).split_once(", ")?;
    Some(seconds.parse::<u64>().ok()? * 1_000_000_000 + nanoseconds.parse::<u64>().ok()?)
}

fn fdinfo(pid: i32, fd: i32) -> Result<String> {
    let path = format!("/proc/{pid}/fdinfo/{fd}");
    fs::read_to_string(&path).map_err(Error::file("cannot read", path))
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

/// Whether a device keeps nothing that a checkpoint would have to: null, zero, full, random, urandom.
#[must_use]
pub fn is_stateless_device(device: u64) -> bool {
    const MEMORY_DEVICES: u32 = 1;
    rustix::fs::major(device) == MEMORY_DEVICES && matches!(rustix::fs::minor(device), 3 | 5 | 7 | 8 | 9)
}

/// Whether the file is one that the kernel makes up: what is in it is the state of something else.
#[must_use]
pub fn is_pseudo(fd: impl AsFd) -> bool {
    /// `f_type` of statfs(2): proc, sysfs, cgroup2, tracefs, debugfs, securityfs.
    const KINDS: [u32; 6] = [
        0x9fa0,
        0x6265_6572,
        0x6367_7270,
        0x7472_6163,
        0x6462_6720,
        0x7363_6673,
    ];
    rustix::fs::fstatfs(fd).is_ok_and(|system| KINDS.contains(&(system.f_type as u32)))
}

/// Whether writes to this descriptor go to a file whose content is rolled back.
#[must_use]
pub fn is_regular(fd: impl AsFd) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
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
        assert_eq!(pair_ns("(1, 5)"), Some(1_000_000_005));
        assert_eq!(field("pos:\t0\nflags:\t02\n", "flags"), Some("02"));
    }

    #[test]
    fn peeking_leaves_a_pipe_as_it_was() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&write, b"stay").unwrap();
        assert_eq!(peek(read.try_clone().unwrap()).unwrap(), [b"stay"]);
        let mut bytes = [0; 8];
        assert_eq!(rustix::io::read(&read, &mut bytes).unwrap(), 4);
    }
}
