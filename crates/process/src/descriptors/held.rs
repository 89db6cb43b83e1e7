//! What descriptors hold at a stop: offsets, counters, what is in pipes and sockets.

use super::pidfds;
use super::polls::{self, Poll};
use super::tables::split;
use super::{Descriptor, DescriptorKind, Descriptors, Held, countdowns, fdinfo, not_understood};
use crate::clocks::Clocks;
use crate::error::{Error, Result};
use crate::files::{Ident, link_of};
use crate::layout::is_marked_gone;
use crate::sockets::{self, Phase, Replies};
use crate::{datagrams, loopback, netlink, pairs, ptys, unix_sockets};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, SeekFrom, Stat};
use std::collections::{BTreeSet, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use twinpage_os::name;
use twinpage_os::proc_file::field;
use twinpage_os::remote::{self, Process};
use twinpage_os::trace::Tid;

/// The denominator of the share of twinpage's own descriptor limit that duplicates of the program's descriptors may use.
const SHARE_OF_OURS: usize = 4;

/// A look at what descriptors hold.
#[derive(Debug)]
pub struct Look<'a> {
    /// The program, and a thread of it that stands still.
    pub process: &'a Process,
    /// The thread.
    pub tid: Tid,
    /// Processes in which no call may be made now: they sleep, or a signal stopped them.
    pub calls_nothing: BTreeSet<i32>,
    /// The clocks at the stop.
    pub stopped: Clocks,
    /// Whether there are sockets to the outside.
    pub replies: Replies,
    /// Whether connections of the tree are waited for that were not accepted.
    pub awaits_accepts: bool,
}

impl Descriptors {
    /// What each descriptor holds now, in the order of [`Descriptors::list`]. What has lost its name, by others'
    /// doing, is looked at again at the next stop.
    ///
    /// # Errors
    /// When the system refuses a look.
    pub fn held(&mut self, look: &Look<'_>) -> Result<Vec<Held>> {
        let process = look.process;
        let calm = self.calm_connections();
        let held = self.list.values();
        let held: Vec<Held> = held
            .map(|descriptor| match calm.contains(&descriptor.fd) {
                true => Ok(Held::Connection(Phase::Connected)),
                false => self.held_by(look, descriptor),
            })
            .collect::<Result<_>>()?;
        self.keep_connections(process);
        self.note_highest(process, &held);
        let outside = self.outside.get_mut();
        if outside.len() > 2 * self.list.len() {
            outside.clear(); // most are closed
        }
        let nameless = self.find_nameless();
        let is_pipe = |fd: &i32| matches!(self.list[fd].kind, DescriptorKind::Fifo { .. });
        let pipe = nameless.iter().copied().find(is_pipe);
        for fd in nameless {
            self.touch_open_file_of(process, fd);
        }
        match pipe {
            // By its name it would not be found.
            Some(fd) => Err(Error::NotYet(format!(
                "the named pipe of descriptor {fd} was removed"
            ))),
            None => Ok(held),
        }
    }

    /// Duplicated connections to the outside that are established, by one poll(2) for all: a socket that is writable and
    /// not hung up. Every other connection needs a look of its own.
    fn calm_connections(&self) -> HashSet<i32> {
        let is_connection = |fd: &i32| matches!(self.list[fd].kind, DescriptorKind::Connection(_));
        let ours = (self.ours.iter()).filter(|(fd, _)| self.list.contains_key(fd) && is_connection(fd));
        let (numbers, mut asked): (Vec<i32>, Vec<PollFd<'_>>) = ours
            .map(|(fd, ours)| (*fd, PollFd::new(ours, PollFlags::OUT)))
            .unzip();
        if poll(&mut asked, Some(&Timespec::default())).is_err() {
            return HashSet::new(); // interrupted by a signal: every connection gets a look of its own
        }
        let answered = numbers.into_iter().zip(asked);
        let calm = answered.filter(|(_, asked)| asked.revents() == PollFlags::OUT);
        calm.map(|(fd, _)| fd).collect()
    }

    /// Duplicates the program's new connections to the outside, up to a fraction of twinpage's limit of descriptors.
    fn keep_connections(&mut self, process: &Process) {
        let is_new = |one: &&Descriptor| {
            let is_first = split(one.fd).0 == 0 && one.shares == one.fd;
            is_first && !self.ours.contains_key(&one.fd) && self.known_outside(one.fd).is_some()
        };
        let new: Vec<i32> = self.list.values().filter(is_new).map(|one| one.fd).collect();
        if new.is_empty() {
            return;
        }
        let limit = remote::limit(0, libc::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft as usize);
        let room = (limit / SHARE_OF_OURS).saturating_sub(self.ours.len());
        for fd in new.into_iter().take(room) {
            // Without a duplicate the connection gets a look of its own, which reports the error.
            if let Ok(ours) = process.duplicate_fd(fd) {
                self.ours.insert(fd, ours);
            }
        }
    }

    /// Descriptors of files that have lost the name they were opened by. Where a file has links left, its name is asked for
    /// only if its change time is new: losing a name sets it (inode(7), ctime).
    fn find_nameless(&mut self) -> Vec<i32> {
        let mut nameless = Vec::new();
        if self.change_times.len() > 2 * self.list.len() {
            self.change_times.clear(); // most are closed
        }
        for descriptor in self.list.values().filter(|descriptor| is_named(descriptor)) {
            let Some(ours) = self.ours.get(&descriptor.fd) else {
                continue;
            };
            let Ok(stat) = rustix::fs::fstat(ours) else {
                continue;
            };
            let changed = (stat.st_ctime, stat.st_ctime_nsec);
            let is_known = self.change_times.insert(descriptor.fd, changed) == Some(changed);
            if stat.st_nlink == 0 || !is_known && is_name_removed(ours) {
                nameless.push(descriptor.fd);
            }
        }
        nameless
    }

    /// Whether an end of this pipe writes packets.
    fn has_packets(&self, pipe: &Descriptor) -> bool {
        let ends = self
            .open_files
            .file(pipe.fd)
            .map_or(&[][..], |file: Ident| self.open_files.of(file));
        let mut ends = ends.iter().filter_map(|fd| self.list.get(fd));
        ends.any(|end| end.flags & libc::O_DIRECT as u32 != 0)
    }

    /// Whether there is a socket with this inode, on the file system that all sockets are on, as `beside`.
    fn has_socket(&self, beside: &Stat, ino: u64) -> bool {
        let dev = beside.st_dev;
        self.open_files.descriptors(Ident { dev, ino }).next().is_some()
    }

    /// A socket that listens: after a resume, connections that were not accepted are reset. Those of the tree are waited
    /// for, while it makes sense, and what may be one: a connection whose other end is closed, where the tree connected to.
    /// With `--replies none` there are no others.
    fn listener(&self, at: &Look<'_>, owner: &Process, descriptor: &Descriptor) -> Result<Held> {
        if !at.awaits_accepts {
            return Ok(Held::Nothing);
        }
        let (_, fd) = self.tables.at(at.process, descriptor.fd);
        let look = |source| Error::target(format!("cannot look at socket {fd}"), source);
        let ours = owner.duplicate_fd(fd).map_err(look)?;
        let stat = rustix::fs::fstat(&ours).map_err(|error| look(error.into()))?;
        let awaits = |client| match client {
            _ if at.replies == Replies::Refused => true,
            0 => self.reached.has(ours.as_fd()).unwrap_or(true), // nothing tells that none was
            client => self.has_socket(&stat, client),
        };
        match descriptor.kind {
            DescriptorKind::Unix(_) => unix_sockets::check_queue(ours.as_fd(), awaits)?,
            _ => loopback::check_queue(ours.as_fd(), awaits)?,
        }
        Ok(Held::Nothing)
    }

    /// A pseudo-terminal, at its master.
    fn terminal(&self, owner: &Process, fd: i32, number: u32) -> Result<Held> {
        let look = |source| Error::target(format!("cannot look at descriptor {fd}"), source);
        let master = owner.duplicate_fd(fd).map_err(look)?;
        let is_open = (self.list.values()).any(|one| one.kind == DescriptorKind::Terminal { number });
        let mut read_out = self.read_out.borrow_mut();
        let may_have_typed = !read_out.contains(&number);
        let (held, in_packets) = ptys::held(fd, &master, is_open, may_have_typed)?;
        if is_open && !held.has_typed() {
            read_out.insert(number);
        }
        let held = Box::new(held);
        Ok(match in_packets {
            true => Held::PacketTerminal(held),
            false => Held::Terminal(held),
        })
    }

    /// The other end of a pseudo-terminal, of which the master is in the tree, or is closed.
    fn check_master(&self, owner: &Process, fd: i32, number: u32) -> Result<Held> {
        let look = |source| Error::target(format!("cannot look at descriptor {fd}"), source);
        if (self.list.values()).any(|one| one.kind == DescriptorKind::Master { number }) {
            return Ok(Held::Nothing);
        }
        let other = owner.duplicate_fd(fd).map_err(look)?;
        match ptys::is_hung_up(&other).map_err(look)? {
            true => Ok(Held::Nothing),
            false => Err(Error::Unsupported(format!(
                "descriptor {fd} is a terminal of another program, which cannot be captured: of terminals the program's own is, and those that it makes"
            ))),
        }
    }

    /// A TCP socket that does not listen.
    fn connection(&self, at: &Look<'_>, owner: &Process, descriptor: &Descriptor) -> Result<Held> {
        let (_, fd) = self.tables.at(at.process, descriptor.fd);
        let look = |source| Error::target(format!("cannot look at socket {fd}"), source);
        let ours = owner.duplicate_fd(fd).map_err(look)?;
        let known = self.open_files.file(descriptor.fd);
        if known.is_some_and(|file| self.outside.borrow().contains(&file.ino)) {
            return Ok(Held::Connection(sockets::phase(&ours).map_err(look)?));
        }
        let stat = rustix::fs::fstat(&ours).map_err(|error| look(error.into()))?;
        let is_ours = |ino| self.has_socket(&stat, ino);
        if let Some(end) = loopback::held(fd, &ours, is_ours, at.awaits_accepts)? {
            return Ok(Held::Within(end));
        }
        let phase = sockets::phase(&ours).map_err(look)?;
        if phase == Phase::Connected && at.replies == Replies::Refused {
            return Err(Error::Unsupported(format!(
                "descriptor {fd} is a connection with another program, which cannot be taken back: it is not captured with --replies none; with --replies held a resume resets it"
            )));
        }
        if phase == Phase::Connected {
            self.outside.borrow_mut().insert(stat.st_ino);
        }
        Ok(Held::Connection(phase))
    }

    /// A descriptor of a process that a poll descriptor waits for is in the same table: each process opens its own
    /// again.
    fn check_watched_pidfds(&self, fd: i32, table: usize, watched: &[polls::Interest]) -> Result<()> {
        let is_elsewhere = |target: &Descriptor| {
            let mut own = self.list.values().filter(|one| split(one.fd).0 == table);
            target.kind == DescriptorKind::Process && !own.any(|one| one.shares == target.shares)
        };
        let mut targets = watched
            .iter()
            .filter_map(|interest| self.list.get(&interest.target));
        match targets.any(is_elsewhere) {
            true => Err(Error::NotYet(format!(
                "descriptor {fd} waits for the end of a process by a descriptor that another process has (pidfd)"
            ))),
            false => Ok(()),
        }
    }

    fn held_by(&self, at: &Look<'_>, descriptor: &Descriptor) -> Result<Held> {
        if descriptor.shares != descriptor.fd {
            return Ok(Held::Nothing);
        }
        let ours = || &self.ours[&descriptor.fd];
        let (owner, fd) = self.tables.at(at.process, descriptor.fd);
        let look =
            |error: rustix::io::Errno| Error::target(format!("cannot look at descriptor {fd}"), error.into());
        match &descriptor.kind {
            DescriptorKind::File { .. } | DescriptorKind::Object { .. } => {
                let ours = ours();
                let at = rustix::fs::seek(ours, SeekFrom::Current(0)).map_err(look)?;
                let stat = rustix::fs::fstat(ours).map_err(look)?;
                Ok(Held::Offset {
                    at,
                    size: stat.st_size as u64,
                })
            }
            DescriptorKind::Pseudo { .. } => {
                // Some of them cannot seek: they have no place to go on from.
                let at = match rustix::fs::seek(ours(), SeekFrom::Current(0)) {
                    Err(rustix::io::Errno::SPIPE) => 0,
                    at => at.map_err(look)?,
                };
                Ok(Held::Offset { at, size: 0 })
            }
            DescriptorKind::Directory { .. } => {
                let at = rustix::fs::seek(ours(), SeekFrom::Current(0)).map_err(look)?;
                Ok(Held::Offset { at, size: 0 })
            }
            DescriptorKind::Pipe { .. } if descriptor.is_place_of_pipe() => Ok(Held::Nothing),
            DescriptorKind::Pipe { .. }
                if descriptor.flags & libc::O_ACCMODE as u32 == libc::O_RDONLY as u32 =>
            {
                let end = owner
                    .duplicate_fd(fd)
                    .map_err(|source| Error::target("cannot look into a pipe", source))?;
                let packets = peek(end).map_err(look)?;
                Ok(if self.has_packets(descriptor) || packets.len() > 1 {
                    Held::Packets(packets)
                } else {
                    Held::Bytes(packets.concat())
                })
            }
            DescriptorKind::Pair(end) => pairs::held(owner, fd, end).map(Held::Queue),
            DescriptorKind::Unix(named) if named.backlog.is_some() => self.listener(at, owner, descriptor),
            DescriptorKind::Listener { .. } => self.listener(at, owner, descriptor),
            DescriptorKind::Connection(_) => self.connection(at, owner, descriptor),
            DescriptorKind::Unix(named) if named.kind == libc::SOCK_DGRAM => messages(owner, fd),
            DescriptorKind::Datagrams { .. } => messages(owner, fd),
            DescriptorKind::Netlink(_) => answers(owner, fd),
            DescriptorKind::Master { number } => self.terminal(owner, fd, *number),
            DescriptorKind::Terminal { number } => self.check_master(owner, fd, *number),
            DescriptorKind::Fifo { .. } => {
                let ours = owner
                    .duplicate_fd(fd)
                    .map_err(|source| Error::target("cannot look into a named pipe", source))?;
                look_into_fifo(ours).map_err(look)
            }
            DescriptorKind::Process => pidfds::held(owner.thread(), fd),
            DescriptorKind::Poll => {
                let info = fdinfo(owner.thread(), fd)?;
                if let Some(calm) = self.calm_polls.borrow().get(&descriptor.fd)
                    && calm.info == info
                {
                    return Ok(Held::Watched(calm.watched.clone()));
                }
                let place = |number| self.place(at.process, number);
                let (table, _) = split(descriptor.fd);
                let is_calm = !at.calls_nothing.contains(&owner.pid());
                let poll = Poll {
                    process: owner,
                    fd,
                    table,
                    tid: is_calm.then_some(if table == 0 { at.tid } else { owner.thread() }),
                };
                let watched = polls::held(&poll, &info, &self.list, place)?;
                self.check_watched_pidfds(fd, table, &watched)?;
                if let Some(calm) = polls::Calm::of(info, &watched) {
                    self.calm_polls.borrow_mut().insert(descriptor.fd, calm);
                }
                Ok(Held::Watched(watched))
            }
            DescriptorKind::Event => count(owner.thread(), fd),
            DescriptorKind::Inotify => self.watched_by(at.process, descriptor),
            DescriptorKind::Timer { .. } => countdowns::look(owner, fd, at.stopped),
            _ => Ok(Held::Nothing),
        }
    }
}

/// What waits in a datagram socket.
fn messages(owner: &Process, fd: i32) -> Result<Held> {
    let look = |source| Error::target(format!("cannot look into socket {fd}"), source);
    let ours = owner.duplicate_fd(fd).map_err(look)?;
    let messages = datagrams::held(fd, ours.as_fd())?;
    Ok(match messages.is_empty() {
        true => Held::Nothing,
        false => Held::Messages(messages),
    })
}

/// What the kernel answered is read before a checkpoint.
fn answers(owner: &Process, fd: i32) -> Result<Held> {
    let look = |source| Error::target(format!("cannot look into socket {fd}"), source);
    let ours = owner.duplicate_fd(fd).map_err(look)?;
    match netlink::is_empty(ours.as_fd()).map_err(look)? {
        true => Ok(Held::Nothing),
        false => Err(Error::NotYet(format!(
            "descriptor {fd} has answers of the kernel about addresses and interfaces (netlink) that were not read"
        ))),
    }
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
/// through another open of it, which changes nothing: the program stands still.
fn look_into_fifo(end: OwnedFd) -> rustix::io::Result<Held> {
    let mut asked = [PollFd::new(&end, PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(&mut asked, Some(&Timespec::default())))?;
    let hung_up = asked[0].revents().contains(PollFlags::HUP);
    let writes_only = rustix::fs::fcntl_getfl(&end)? & OFlags::ACCMODE == OFlags::WRONLY;
    if rustix::io::ioctl_fionread(&end)? == 0 {
        return Ok(Held::Fifo {
            bytes: Vec::new(),
            hung_up,
        });
    }
    let readable = if writes_only {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open(name::of_open(&end), flags, rustix::fs::Mode::empty())?
    } else {
        end
    };
    Ok(Held::Fifo {
        bytes: peek(readable)?.concat(),
        hung_up,
    })
}

fn count(pid: i32, fd: i32) -> Result<Held> {
    let info = fdinfo(pid, fd)?;
    let number =
        |name: &str, radix: u32| field(&info, name).and_then(|text| u64::from_str_radix(text, radix).ok());
    let count = number("eventfd-count", 16).map(|count| Held::Count {
        count,
        semaphore: number("eventfd-semaphore", 10) == Some(1),
    });
    count.ok_or_else(|| not_understood(pid, fd, &info))
}

/// Whether it is found by its name after a resume.
fn is_named(descriptor: &Descriptor) -> bool {
    match &descriptor.kind {
        DescriptorKind::File { .. } | DescriptorKind::Place { .. } | DescriptorKind::Directory { .. } => true,
        DescriptorKind::Fifo { path, .. } => !is_marked_gone(path),
        _ => false,
    }
}

/// Whether the kernel has no name for an open file. A name that ends like the kernel's mark is looked at again in vain.
fn is_name_removed(ours: &OwnedFd) -> bool {
    link_of(ours).is_ok_and(|link| is_marked_gone(&link))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peeking_leaves_a_pipe_as_it_was() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&write, b"stay").unwrap();
        assert_eq!(peek(read.try_clone().unwrap()).unwrap(), [b"stay"]);
        let mut bytes = [0; 8];
        assert_eq!(rustix::io::read(&read, &mut bytes).unwrap(), 4);
    }
}
