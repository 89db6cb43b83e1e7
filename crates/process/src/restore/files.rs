//! The program's descriptors, opened again.
//!
//! They are opened in the tracer at numbers above any the program has, so that the child can put
//! each in its place without stepping on another. What the program had open of its own in `/proc` is
//! there only once the program is, and so is its terminal: the kernel's half of the restore opens them ([`own_path`]).
//! Descriptors of processes come when those are there ([`pidfds`]).

use super::made_sockets::MadeSockets;
use super::objects::Made;
use super::{Surroundings, pidfds};
use crate::context::Context;
use crate::descriptors::countdowns::Countdown;
use crate::descriptors::{Descriptor, DescriptorKind, Held, OWN_TERMINAL, inotify, is_of_process};
use crate::error::{Error, Result};
use crate::files::Ident;
use crate::kernel::{GoneDirectory, Kernel};
use crate::layout::{Kind, Mapping};
use crate::objects::{Id, Origin, Saved};
use crate::ptys;
use crate::stdio::Stream;
use rustix::event::EventfdFlags;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, SealFlags, SeekFrom};
use rustix::io::Errno;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use twinpage_os::name;
use twinpage_os::spawn;

/// Opened descriptors and where they go.
pub(super) struct Sources {
    /// First number that no descriptor of the program has.
    base: i32,
    /// (source, place, close on exec)
    places: Vec<(i32, i32, bool)>,
    /// Gaps between the places, to be closed in the child.
    gaps: Vec<(u32, u32)>,
    files: Files,
    objects: Objects,
    keys: Keys,
    /// Directories that were removed, by the inode they had.
    gone: BTreeMap<u64, i32>,
    /// The terminal, for a program that has ended: it has no descriptor of its own.
    terminal: Option<i32>,
    _open: Vec<OwnedFd>,
}

/// Files of mappings, and the program's own file, by path.
type Files = BTreeMap<PathBuf, i32>;
/// Objects that are mapped, by number and the access that the mappings need.
type Objects = BTreeMap<(Id, u32), i32>;

impl Sources {
    /// The number, in the child too, at which a file is open.
    pub(super) fn file(&self, path: &Path) -> Result<i32> {
        self.files
            .get(path)
            .copied()
            .ok_or_else(|| Error::Internal(format!("{} was not opened", path.display())))
    }

    /// A name by which the child enters the program's working directory.
    pub(super) fn working_directory(&self, kernel: &Kernel) -> Result<CString> {
        let gone = kernel.directory_gone.and_then(|gone| self.gone.get(&gone.inode));
        let name = match gone {
            Some(fd) => format!("/proc/self/fd/{fd}").into_bytes(),
            None => kernel.directory.as_os_str().as_bytes().to_vec(),
        };
        CString::new(name).map_err(|_| Error::Damaged("context: a directory with a zero byte".into()))
    }

    /// The same for the file of a mapping.
    pub(super) fn mapped(&self, mapping: &Mapping) -> Result<i32> {
        match self.keys.of(mapping) {
            None => self.file(&mapping.path),
            Some(key) => (self.objects.get(&key).copied())
                .ok_or_else(|| Error::Internal(format!("{} was not opened", mapping.path.display()))),
        }
    }

    /// First number of what is to be closed at the end.
    pub(super) fn base(&self) -> i32 {
        self.base
    }

    /// The same descriptor, at a number above any that the program has.
    pub(super) fn above(&self, fd: impl AsFd) -> Result<OwnedFd> {
        rustix::io::fcntl_dupfd_cloexec(fd, self.base).map_err(too_many)
    }

    /// In the child: everything to its place, everything else below the base closed.
    pub(super) fn put_in_place(&self, terminal: Option<i32>) {
        for &(source, place, cloexec) in &self.places {
            spawn::place(source, place, cloexec);
        }
        for &(first, last) in &self.gaps {
            spawn::close_range(first, last);
        }
        spawn::place_streams(&[-1; 3], self.terminal.or(terminal));
    }
}

/// Opens everything that `context` lists.
pub(super) fn open(
    context: &Context,
    state: &Path,
    surroundings: &Surroundings<'_>,
    moved: &[(Ident, Ident)],
    made: &Made,
) -> Result<Sources> {
    let fixed = &context.fixed;
    let highest = fixed
        .descriptors
        .iter()
        .map(|descriptor| descriptor.fd)
        .max()
        .unwrap_or(2)
        .max(2);
    let mut opener = Opener {
        base: (highest + 1).max(64),
        objects: made,
        open: Vec::new(),
        streams: surroundings.streams.program_ends(),
        sockets: surroundings.sockets,
        moved,
        bound: bound_files(context),
        pipes: BTreeMap::new(),
        stopped_ns: context.clocks.monotonic_ns,
        ends_given: BTreeSet::new(),
        streams_given: BTreeSet::new(),
        fifos: BTreeSet::new(),
        removed_fifos: BTreeMap::new(),
        terminals: terminals(context)?,
        state,
        gone: BTreeMap::new(),
    };
    if let (Some(gone), None) = (&fixed.kernel.directory_gone, fixed.ended) {
        opener.gone_directory(gone)?;
    }
    spawn::raise_descriptor_limit()
        .map_err(|source| Error::target("cannot raise the limit of open files", source))?;
    let sources = opener.open_descriptors(context)?;
    let mut places: Vec<(i32, i32, bool)> = fixed
        .descriptors
        .iter()
        .filter_map(|descriptor| Some((*sources.get(&descriptor.fd)?, descriptor.fd, descriptor.cloexec)))
        .collect();
    places.sort_by_key(|(_, place, _)| *place);
    let keys = Keys::new(&context.live.objects);
    let (files, objects) = opener.open_mappings(context, &keys)?;
    let terminal = surroundings.streams.terminal().filter(|_| fixed.ended.is_some());
    let terminal = terminal.and_then(|stream| opener.streams[stream as usize].take());
    let terminal = terminal.map(|end| opener.keep(end)).transpose()?;
    let gaps = gaps(&places, opener.base);
    Ok(Sources {
        base: opener.base,
        places,
        gaps,
        files,
        objects,
        keys,
        gone: opener.gone,
        terminal,
        _open: opener.open,
    })
}

/// The files that the program's Unix sockets are bound to.
fn bound_files(context: &Context) -> HashSet<Ident> {
    let files = context
        .fixed
        .descriptors
        .iter()
        .filter_map(|descriptor| match &descriptor.kind {
            DescriptorKind::Unix(named) if named.mode.is_some() => named.name.file(),
            _ => None,
        });
    files
        .filter_map(|file| Some(Ident::from(&rustix::fs::lstat(file).ok()?)))
        .collect()
}

/// The pseudo-terminals that the program had, by number.
fn terminals(context: &Context) -> Result<BTreeMap<u32, (OwnedFd, Option<OwnedFd>)>> {
    let descriptors = &context.fixed.descriptors;
    let masters = descriptors.iter().zip(&context.live.held);
    let masters = masters.filter_map(|(descriptor, held)| match (&descriptor.kind, held) {
        (DescriptorKind::Master { number }, held) => Some((*number, held, held.terminal()?)),
        _ => None,
    });
    let made = masters.map(|(number, held, terminal)| {
        let mut others = descriptors.iter().map(|descriptor| &descriptor.kind);
        let has_other = others.any(|kind| *kind == DescriptorKind::Terminal { number });
        let made = terminal.again(number, has_other).and_then(|made| {
            if matches!(held, Held::PacketTerminal(_)) {
                twinpage_os::terminal::set_packet_mode(made.0.as_fd(), true)?;
            }
            Ok(made)
        });
        made.map(|made| (number, made))
            .map_err(|source| Error::target("cannot make a pseudo-terminal again", source))
    });
    made.collect()
}

/// Its path, when it is a file or directory about a process of the tree, `/proc/PID/...`, or the terminal by its own name.
pub(super) fn own_path(descriptor: &Descriptor) -> Option<&Path> {
    let (DescriptorKind::File { path, .. }
    | DescriptorKind::Pseudo { path }
    | DescriptorKind::Directory { path }
    | DescriptorKind::Device { path }
    | DescriptorKind::Place { path, .. }) = &descriptor.kind
    else {
        return None;
    };
    (is_of_process(path) || path == Path::new(OWN_TERMINAL)).then_some(path)
}

/// Which object a mapping shows, and how that must be open: for reading and writing, as the mapping may be made
/// writable later; but for reading where it may not, and where the file is sealed against writing, which a mapping
/// that may would prevent.
struct Keys {
    sealed: BTreeSet<Id>,
}

impl Keys {
    fn new(objects: &[Saved]) -> Keys {
        let writing = (SealFlags::WRITE | SealFlags::FUTURE_WRITE).bits();
        let sealed = objects
            .iter()
            .filter(|saved| matches!(saved.origin, Origin::Memory { seals, .. } if seals & writing != 0));
        Keys {
            sealed: sealed.map(|saved| saved.id).collect(),
        }
    }

    fn of(&self, mapping: &Mapping) -> Option<(Id, u32)> {
        let id = mapping.object?;
        let reads = !mapping.may_write() && (mapping.only_read || self.sealed.contains(&id));
        let flags = if reads { libc::O_RDONLY } else { libc::O_RDWR };
        Some((id, flags as u32))
    }
}

fn not_again(descriptor: &Descriptor, error: Errno) -> Error {
    Error::target(
        format!("cannot make descriptor {} again", descriptor.fd),
        error.into(),
    )
}

/// A descriptor that holds what none of its kind does.
fn holds_another(descriptor: &Descriptor, held: &Held) -> Error {
    let Descriptor { fd, kind, .. } = descriptor;
    Error::Damaged(format!("context: descriptor {fd} is {kind:?} and holds {held:?}"))
}

/// The ranges of numbers below `base` that are none of the places, which are sorted.
pub(super) fn gaps(places: &[(i32, i32, bool)], base: i32) -> Vec<(u32, u32)> {
    let mut gaps = Vec::new();
    let mut next = 0;
    for place in places.iter().map(|(_, place, _)| *place).chain([base]) {
        if place > next {
            gaps.push((next as u32, place as u32 - 1));
        }
        next = place.saturating_add(1);
    }
    gaps
}

pub(super) struct Opener<'a> {
    base: i32,
    objects: &'a Made,
    open: Vec<OwnedFd>,
    /// The program's ends of its relayed streams, each to be placed once or more.
    streams: [Option<OwnedFd>; 3],
    /// Its sockets to the outside.
    sockets: &'a MadeSockets,
    /// Inodes that changed when files were rolled back.
    moved: &'a [(Ident, Ident)],
    /// The files of its Unix sockets, which were made again.
    bound: HashSet<Ident>,
    /// Both ends of the pipes that were made, by the old pipe's number.
    pub(super) pipes: BTreeMap<u64, (i32, i32)>,
    /// The program's monotonic clock at the stop.
    stopped_ns: u64,
    /// Ends of pipes that are one open file of the program already.
    pub(super) ends_given: BTreeSet<i32>,
    /// The same of its streams.
    streams_given: BTreeSet<usize>,
    /// The named pipes that are held open, by inode.
    pub(super) fifos: BTreeSet<u64>,
    /// Those that were removed, by old inode, each held open.
    pub(super) removed_fifos: BTreeMap<u64, i32>,
    /// Pseudo-terminals by number: the master, and its other end where the program had that open.
    terminals: BTreeMap<u32, (OwnedFd, Option<OwnedFd>)>,
    /// The state directory, where removed directories are made.
    pub(super) state: &'a Path,
    /// Removed directories that were made, by the inode they had.
    gone: BTreeMap<u64, i32>,
}

impl Opener<'_> {
    /// What each descriptor is opened as, but those that come later: entries of processes in /proc, process descriptors,
    /// connections.
    fn open_descriptors(&mut self, context: &Context) -> Result<BTreeMap<i32, i32>> {
        let mut sources: BTreeMap<i32, i32> = BTreeMap::new();
        let fixed = &context.fixed;
        let late = pidfds::living(context);
        let others = |(descriptor, _): &(&Descriptor, &Held)| {
            let comes_later = own_path(descriptor).is_some() || late.contains_key(&descriptor.shares);
            !comes_later && !matches!(descriptor.kind, DescriptorKind::Pair(_))
        };
        // What is done to files while others are opened is none of the program's news. A pipe is made by its ends, which
        // know its size.
        let is_late = |descriptor: &Descriptor| {
            descriptor.kind == DescriptorKind::Inotify || descriptor.is_place_of_pipe()
        };
        let (late, plain): (Vec<_>, Vec<_>) = (fixed.descriptors.iter())
            .zip(&context.live.held)
            .filter(others)
            .partition(|(descriptor, _)| is_late(descriptor));
        for (descriptor, held) in plain.into_iter().chain(late) {
            let source = match sources.get(&descriptor.shares) {
                Some(source) if descriptor.shares != descriptor.fd => *source,
                _ => self.open_again(descriptor, held)?,
            };
            sources.insert(descriptor.fd, source);
        }
        Ok(sources)
    }

    /// The files that are mapped or run, by path, and the objects that are mapped, by key.
    fn open_mappings(&mut self, context: &Context, keys: &Keys) -> Result<(Files, Objects)> {
        let (mut files, mut objects) = (Files::new(), Objects::new());
        let fixed = &context.fixed;
        let members = context.members.iter().map(|member| &member.fixed);
        let first = Some(fixed).filter(|first| first.ended.is_none());
        for fixed in first.into_iter().chain(members) {
            for key in fixed.mappings.iter().filter_map(|mapping| keys.of(mapping)) {
                if let Entry::Vacant(entry) = objects.entry(key) {
                    let file = self.objects.open(key.0, OFlags::from_bits_retain(key.1))?;
                    entry.insert(self.keep(file)?);
                }
            }
            let mapped = fixed.mappings.iter().filter(|mapping| {
                matches!(mapping.kind, Kind::PrivateFile | Kind::SharedFile) && mapping.object.is_none()
            });
            for mapping in mapped {
                if !files.contains_key(&mapping.path) {
                    let file = self.open_mapped(&mapping.path, mapping.inode)?;
                    files.insert(mapping.path.clone(), file);
                }
            }
            let exe = &fixed.kernel.memory.exe;
            if !files.contains_key(exe) {
                files.insert(exe.clone(), self.open_executable(exe)?);
            }
        }
        Ok((files, objects))
    }

    /// Keeps a descriptor at a number above the base.
    pub(super) fn keep(&mut self, fd: impl AsFd) -> Result<i32> {
        let high = rustix::io::fcntl_dupfd_cloexec(fd, self.base).map_err(too_many)?;
        self.open.push(high);
        Ok(self.open[self.open.len() - 1].as_raw_fd())
    }

    pub(super) fn same_file(&self, file: &OwnedFd, path: &Path, inode: u64) -> Result<()> {
        let stat =
            rustix::fs::fstat(file).map_err(|error| Error::file("cannot look at", path)(error.into()))?;
        let moved = self
            .moved
            .iter()
            .find(|(old, _)| (old.dev, old.ino) == (stat.st_dev, inode));
        if stat.st_ino != moved.map_or(inode, |(_, new)| new.ino) {
            return Err(Error::State(format!(
                "{} is another file than at the checkpoint: put the old one back to resume",
                path.display()
            )));
        }
        Ok(())
    }

    fn open_mapped(&mut self, path: &Path, inode: u64) -> Result<i32> {
        let file = reopen(path, OFlags::RDONLY)?;
        self.same_file(&file, path, inode)?;
        self.keep(file)
    }

    /// The program's file, or the copy that the state directory has of it. Where nothing may be executed in the
    /// state directory, a copy in memory.
    fn open_executable(&mut self, exe: &Path) -> Result<i32> {
        use rustix::fs::{MemfdFlags, StatVfsMountFlags};
        let path = self.state.join(exe);
        let file = reopen(&path, OFlags::RDONLY)?;
        let mount = rustix::fs::fstatvfs(&file);
        let is_kept = exe.is_relative();
        if !is_kept || !mount.is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::NOEXEC)) {
            return self.keep(file);
        }
        let copy = rustix::fs::memfd_create("executable", MemfdFlags::CLOEXEC)
            .map_err(|error| Error::target("cannot make the program's file again", error.into()))?;
        let mut copy = std::fs::File::from(copy);
        std::io::copy(&mut std::fs::File::from(file), &mut copy).map_err(Error::file("cannot copy", path))?;
        self.keep(copy)
    }

    fn open_again(&mut self, descriptor: &Descriptor, held: &Held) -> Result<i32> {
        let flags = OFlags::from_bits_retain(descriptor.flags)
            - (OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC | OFlags::CLOEXEC);
        match (&descriptor.kind, held) {
            (DescriptorKind::Stream(stream), _) => self.keep_stream(*stream, flags),
            (DescriptorKind::Inherited { outer }, _) => {
                self.keep(spawn::borrow(i32::from(*outer)).map_err(|error| {
                    Error::State(format!(
                        "descriptor {outer} of the program came from outside and is not open here ({error})"
                    ))
                })?)
            }
            (DescriptorKind::Pipe { inode, capacity }, held) => {
                self.pipe(descriptor, *inode, *capacity, held)
            }
            (
                DescriptorKind::Fifo {
                    path,
                    inode,
                    capacity,
                },
                Held::Fifo { bytes, hung_up },
            ) => self.fifo(path, flags, (*inode, *capacity), (bytes, *hung_up)),
            (
                DescriptorKind::Listener { .. }
                | DescriptorKind::Connection(_)
                | DescriptorKind::Datagrams { .. }
                | DescriptorKind::Netlink(_)
                | DescriptorKind::Unix(_),
                _,
            ) => match self.sockets.open.get(&descriptor.fd) {
                Some(socket) => self.keep(socket),
                None => Err(Error::Damaged(format!(
                    "context: nothing is known of socket {}",
                    descriptor.fd
                ))),
            },
            (DescriptorKind::Master { number }, held) if held.terminal().is_some() => {
                let master = self.terminals.get(number).map(|(master, _)| master.try_clone());
                let master = master.ok_or_else(|| Error::Internal(format!("no terminal {number}")))?;
                let failed = |source| Error::target("cannot make a pseudo-terminal again", source);
                self.keep_with_flags(master.map_err(failed)?, flags)
            }
            (DescriptorKind::Terminal { number }, _) => self.other_end(*number, flags),
            (
                DescriptorKind::Event
                | DescriptorKind::Poll
                | DescriptorKind::Timer { .. }
                | DescriptorKind::Inotify
                | DescriptorKind::Process
                | DescriptorKind::Signals { .. },
                _,
            ) => {
                let made = self.without_name(descriptor, held)?;
                self.keep_with_flags(made, flags)
            }
            _ => self.by_name(descriptor, held, flags),
        }
    }

    /// A file, a directory or a device, at its name.
    fn by_name(&mut self, descriptor: &Descriptor, held: &Held, flags: OFlags) -> Result<i32> {
        let failed = |error| not_again(descriptor, error);
        let seek = |file: &OwnedFd, at| {
            rustix::fs::seek(file, SeekFrom::Start(at))
                .map(drop)
                .map_err(failed)
        };
        match (&descriptor.kind, held) {
            (DescriptorKind::File { path, inode }, Held::Offset { at, size }) => {
                // It may have been made without a name, and got one since.
                let file = reopen(path, flags - OFlags::TMPFILE)?;
                self.same_file(&file, path, *inode)?;
                if rustix::fs::fstat(&file).map_err(failed)?.st_size < *size as i64 {
                    return Err(Error::State(format!(
                        "{} is shorter than at the checkpoint ({size} bytes): put it back to resume",
                        path.display()
                    )));
                }
                seek(&file, *at)?;
                self.keep(file)
            }
            (DescriptorKind::Object { id }, Held::Offset { at, .. }) => {
                let file = self.objects.open(*id, flags)?;
                seek(&file, *at)?;
                self.keep(file)
            }
            (DescriptorKind::Directory { path, .. }, Held::Offset { at, .. }) => {
                let directory = reopen(path, flags)?;
                if !flags.contains(OFlags::PATH) {
                    go_to_name(&directory, *at).map_err(failed)?;
                }
                self.keep(directory)
            }
            (DescriptorKind::Place { path, inode }, _) => {
                let place = reopen(path, flags | OFlags::NOFOLLOW)?;
                let stat = rustix::fs::fstat(&place).map_err(failed)?;
                if !self.bound.contains(&Ident::from(&stat)) {
                    self.same_file(&place, path, *inode)?;
                }
                self.keep(place)
            }
            (DescriptorKind::Pseudo { path }, Held::Offset { at, .. }) => {
                let file = reopen(path, flags)?;
                if *at != 0 {
                    seek(&file, *at)?;
                }
                self.keep(file)
            }
            (DescriptorKind::GoneDirectory(gone), _) => {
                let made = self.gone_directory(gone)?;
                let made =
                    spawn::borrow(made).map_err(|source| Error::target("cannot make a directory", source))?;
                self.keep(reopen(&name::of_open(made), flags)?)
            }
            (DescriptorKind::Device { path }, _) => self.keep(reopen(path, flags)?),
            _ => Err(holds_another(descriptor, held)),
        }
    }

    /// What only a descriptor names: a counter, a timer and the like.
    fn without_name(&self, descriptor: &Descriptor, held: &Held) -> Result<OwnedFd> {
        let failed = |error| not_again(descriptor, error);
        match (&descriptor.kind, held) {
            (DescriptorKind::Event, Held::Count { count, semaphore }) => {
                let kind = if *semaphore {
                    EventfdFlags::SEMAPHORE
                } else {
                    EventfdFlags::empty()
                };
                let event = rustix::event::eventfd(0, kind | EventfdFlags::NONBLOCK).map_err(failed)?;
                if *count > 0 {
                    rustix::io::write(&event, &count.to_ne_bytes()).map_err(failed)?;
                }
                Ok(event)
            }
            (DescriptorKind::Poll, _) => {
                rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).map_err(failed)
            }
            (DescriptorKind::Timer { clock }, Held::Countdown { .. } | Held::CountdownUntilSet { .. }) => {
                let countdown = Countdown::of(held).expect("what a timer holds");
                countdown.make(*clock, self.stopped_ns)
            }
            (DescriptorKind::Inotify, Held::Watches { watches, highest }) => inotify::make(watches, *highest),
            (DescriptorKind::Process, Held::Process(None)) => pidfds::of_waited_for()
                .map_err(|source| Error::target("cannot make a descriptor of a process again", source)),
            (DescriptorKind::Signals { mask }, _) => twinpage_os::signals::signal_descriptor(*mask)
                .map_err(|source| Error::target("cannot make a signal descriptor", source)),
            _ => Err(holds_another(descriptor, held)),
        }
    }

    /// The other end of a pseudo-terminal; of one whose master is closed, an end that has lost it.
    fn other_end(&mut self, number: u32, flags: OFlags) -> Result<i32> {
        let failed = |source| Error::target("cannot make a pseudo-terminal again", source);
        match self.terminals.get(&number) {
            None => {
                let end = ptys::hung_up().map_err(failed)?;
                self.keep_with_flags(end, flags)
            }
            Some((_, Some(other))) => self.open_once_more(other.as_raw_fd(), flags),
            Some((_, None)) => Err(Error::Internal(format!("terminal {number} has one end"))),
        }
    }

    /// A directory without a name, as the removed one was.
    fn gone_directory(&mut self, gone: &GoneDirectory) -> Result<i32> {
        if let Some(made) = self.gone.get(&gone.inode) {
            return Ok(*made);
        }
        let made = (|| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let make = |path: &Path| rustix::fs::mkdir(path, Mode::RWXU);
            let opened = self.open_nameless("gone", make, flags, AtFlags::REMOVEDIR)?;
            let (owner, group) = (
                rustix::fs::Uid::from_raw(gone.owner.0),
                rustix::fs::Gid::from_raw(gone.owner.1),
            );
            let stat = rustix::fs::fstat(&opened)?;
            if (stat.st_uid, stat.st_gid) != gone.owner {
                rustix::fs::fchown(&opened, Some(owner), Some(group))?;
            }
            rustix::fs::fchmod(&opened, Mode::from_raw_mode(gone.mode))?;
            Ok(opened)
        })();
        let made = made.map_err(|error: Errno| {
            Error::file(
                "cannot make again a directory that the program had removed, in",
                self.state,
            )(error.into())
        })?;
        let made = self.keep(made)?;
        self.gone.insert(gone.inode, made);
        Ok(made)
    }

    pub(super) fn keep_with_flags(&mut self, fd: OwnedFd, flags: OFlags) -> Result<i32> {
        rustix::fs::fcntl_setfl(&fd, flags & (OFlags::NONBLOCK | OFlags::APPEND | OFlags::DIRECT))
            .map_err(|error| Error::target("cannot set a descriptor's flags", error.into()))?;
        self.keep(fd)
    }

    /// An end of a stream: the one there is the first time, then another open file of it.
    fn keep_stream(&mut self, stream: Stream, flags: OFlags) -> Result<i32> {
        let end = self.streams[stream as usize].as_ref().map(|end| end.try_clone());
        let end =
            end.ok_or_else(|| Error::Damaged("context: a stream that was relayed is not any more".into()))?;
        let end = end.map_err(|source| Error::target("cannot give the program its streams", source))?;
        if flags.contains(OFlags::PATH) {
            return self.place_of(end.as_raw_fd(), flags);
        }
        if !self.streams_given.insert(stream as usize) {
            return self.open_once_more(end.as_raw_fd(), flags);
        }
        self.keep_with_flags(end, flags)
    }

    /// Opens what is made in the state, and takes its name away. A resume that was killed in between has left one.
    pub(super) fn open_nameless(
        &self,
        name: &str,
        make: impl FnOnce(&Path) -> rustix::io::Result<()>,
        flags: OFlags,
        removes: AtFlags,
    ) -> rustix::io::Result<OwnedFd> {
        let path = self.state.join(name);
        let remove = || rustix::fs::unlinkat(CWD, &path, removes);
        match remove() {
            Err(Errno::NOENT) | Ok(()) => {}
            Err(error) => return Err(error),
        }
        make(&path)?;
        let opened = rustix::fs::open(&path, flags | OFlags::CLOEXEC, Mode::empty());
        remove()?;
        opened
    }

    /// A place of what is open here at `fd`: open(2), `O_PATH`.
    pub(super) fn place_of(&mut self, fd: i32, flags: OFlags) -> Result<i32> {
        let path = PathBuf::from(format!("/proc/self/fd/{fd}"));
        let place = reopen(&path, flags - OFlags::NOFOLLOW)?; // that would be the link itself
        self.keep(place)
    }

    /// Another open file of what is open here at `fd`, with flags of its own.
    pub(super) fn open_once_more(&mut self, fd: i32, flags: OFlags) -> Result<i32> {
        let path = PathBuf::from(format!("/proc/self/fd/{fd}"));
        let opened = reopen(&path, flags & (OFlags::ACCMODE | OFlags::NONBLOCK))?;
        self.keep_with_flags(opened, flags)
    }
}

fn too_many(error: Errno) -> Error {
    Error::Machine(format!(
        "cannot keep all the program's files open ({error}): raise the limit with ulimit -n"
    ))
}

/// Puts a directory's position at `at`. One name is read first: where ext4 begins on a descriptor whose
/// first position is its end, it stays at the end even when it is rewound.
fn go_to_name(directory: &OwnedFd, at: u64) -> rustix::io::Result<()> {
    let mut room = [std::mem::MaybeUninit::uninit(); 1024];
    RawDir::new(directory, &mut room).next().transpose()?;
    rustix::fs::seek(directory, SeekFrom::Start(at)).map(drop)
}

pub(super) fn reopen(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty()).map_err(|error| {
        Error::State(format!(
            "{}, which the program had open, cannot be opened ({error}): put it back to resume",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_lie_between_places() {
        let places = [(70, 0, false), (71, 1, false), (72, 5, true)];
        assert_eq!(gaps(&places, 64), [(2, 4), (6, 63)]);
        assert_eq!(gaps(&[], 64), [(0, 63)]);
        assert_eq!(gaps(&[], i32::MAX), [(0, i32::MAX as u32 - 1)]);
    }
}
