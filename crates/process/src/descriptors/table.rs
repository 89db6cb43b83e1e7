//! The program's table of descriptors, and which of them to look at again.
//!
//! * Ours of a file is the same open file, so its offset is one cheap call away, and so is the state of ours of a
//!   connection. It is closed before the program's own close, so that the program sees what it would see alone.
//! * Locks belong to a file, or to an open file: a call that changes them touches all descriptors of the file.

use super::describe::{Files, describe, is_given};
use super::inotify;
use super::open_files::OpenFiles;
use super::polls;
use super::tables::{Tables, number, numbers, split};
use super::touched::Touched;
use super::{Descriptor, DescriptorKind, Held, List, Lock, LockKind};
use crate::command_line::of_process;
use crate::error::{Error, Result};
use crate::files::Ident;
use crate::objects::Id;
use crate::pairs::Pairs;
use crate::sockets::{Reached, Replies};
use crate::unix_sockets::leads_outside;
use rustix::fs::{FileType, Stat};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use twinpage_os::remote::Process;
use twinpage_os::trace::Tid;

/// As many touched numbers are asked for one by one, however few are open.
const FEW: usize = 8;

/// The program's descriptors.
#[derive(Debug)]
pub struct Descriptors {
    /// Which sockets belong together.
    pub(crate) pairs: Pairs,
    pub(super) list: List,
    pub(super) ours: HashMap<i32, OwnedFd>,
    /// The change times of named files at the last stop, by descriptor.
    pub(super) change_times: HashMap<i32, (i64, u64)>,
    pub(super) open_files: OpenFiles,
    pub(super) tables: Tables,
    /// Where the tree connected to.
    pub(crate) reached: Reached,
    /// Inodes of TCP sockets whose other end was found outside the tree, where it stays.
    pub(super) outside: RefCell<HashSet<u64>>,
    /// What poll descriptors wait for, by descriptor, as far as no call touched a number that matters.
    pub(super) calm_polls: RefCell<HashMap<i32, polls::Calm>>,
    /// Pseudo-terminals at which nothing was typed since all of that was found read.
    pub(super) read_out: RefCell<BTreeSet<u32>>,
    /// The table that each process had, by the thread it is seen by, when all was listed last.
    listed: HashMap<(i32, Tid), usize>,
    /// What is known of files that are watched.
    pub(super) watched: inotify::Known,
    /// The program has ended, and its table with it.
    first_ended: bool,
    /// A thread may have a table of its own.
    may_be_apart: bool,
    /// Descriptors may come in messages of descendants or of other programs.
    may_be_sent: bool,
    /// There were descendants since the last look, which share open files with the program.
    was_shared: bool,
    /// The program may have made a process since, which has its descriptors too.
    was_copied: bool,
    touched: Touched,
    looked_at: u64,
}

impl Default for Descriptors {
    fn default() -> Descriptors {
        Descriptors {
            pairs: Pairs::default(),
            list: List::new(),
            ours: HashMap::new(),
            change_times: HashMap::new(),
            open_files: OpenFiles::default(),
            tables: Tables::default(),
            reached: Reached::default(),
            outside: RefCell::default(),
            calm_polls: RefCell::default(),
            read_out: RefCell::default(),
            listed: HashMap::new(),
            watched: inotify::Known::default(),
            first_ended: false,
            may_be_apart: false,
            may_be_sent: false,
            was_shared: false,
            was_copied: false,
            touched: Touched::all(),
            looked_at: 0,
        }
    }
}

impl Descriptors {
    /// What they are, by number.
    #[must_use]
    pub fn list(&self) -> &List {
        &self.list
    }

    /// How many descriptors were looked at since this was asked last.
    pub fn take_looked_at(&mut self) -> u64 {
        std::mem::take(&mut self.looked_at)
    }

    /// Those that a resume made again, of this list and what it held; `process_of` says which process has a table. With
    /// some `apart` from the first table.
    #[must_use]
    pub fn resumed(
        pairs: Pairs,
        (list, held): (&[Descriptor], &[Held]),
        process_of: impl Fn(usize) -> i32,
        is_apart: bool,
    ) -> Descriptors {
        let mut resumed = Descriptors {
            pairs,
            ..Descriptors::default()
        };
        resumed.watch_again(list, held, process_of);
        if is_apart {
            resumed.part();
        }
        resumed
    }

    /// A thread is about to get a table of its own, or had one.
    pub fn part(&mut self) {
        self.may_be_apart = true;
        self.touched.all = true;
        self.ours.clear();
    }

    /// Something is about to be typed at a pseudo-terminal.
    pub fn types_at(&mut self, number: u32) {
        self.read_out.get_mut().remove(&number);
    }

    /// A descendant sends descriptors, which the program may receive after its end; or another program may send some.
    pub fn expect_sent(&mut self) {
        self.may_be_sent = true;
    }

    /// Whether threads may have tables of their own.
    #[must_use]
    pub fn may_be_apart(&self) -> bool {
        self.may_be_apart
    }

    /// Ours are closed: another process may close its last one of a file, without a call as it ends, and a lock of that
    /// file with it. What is shared is looked at again then.
    pub fn let_go(&mut self) {
        self.ours.clear();
        self.was_shared = true;
    }

    /// The program has ended: the first table is empty.
    pub fn end_first(&mut self) {
        self.first_ended = true;
        self.let_go();
        self.touched.all = true;
    }

    /// The threads that do not share the first table, and the table of each.
    #[must_use]
    pub fn apart(&self) -> &[(Tid, usize)] {
        self.tables.members()
    }

    /// A descendant executes another program.
    pub fn executes(&mut self, pid: i32) {
        self.tables.executes(pid);
    }

    /// A thread that has a descriptor, and its number there.
    pub(super) fn place(&self, process: &Process, number: i32) -> (i32, i32) {
        let (owner, fd) = self.tables.at(process, number);
        (owner.thread(), fd)
    }

    /// A call is about to change this one.
    pub fn touch(&mut self, fd: i32) {
        self.touched.add(fd);
    }

    /// A call is about to change any of them.
    pub fn touch_all(&mut self) {
        self.touched.all = true;
    }

    /// The program is about to make a process, perhaps.
    pub fn expect_copy(&mut self) {
        self.was_copied = true;
    }

    /// Descendants may have changed what they share.
    pub fn touch_shared(&mut self) {
        self.was_shared = true;
    }

    /// A call is about to change what all descriptors of a file have.
    pub fn touch_file(&mut self, file: Ident) {
        for fd in self.open_files.descriptors(file) {
            self.touched.add(fd);
        }
    }

    /// A call is about to change the name of a file of that kind, or to remove it. A socket is not its file: any may be
    /// bound to that.
    pub fn touch_name(&mut self, stat: &Stat) {
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return self.touch_file(Ident::from(stat));
        }
        for (fd, descriptor) in &self.list {
            if matches!(descriptor.kind, DescriptorKind::Unix(_)) {
                self.touched.add(*fd);
            }
        }
    }

    /// A call is about to change what all descriptors of the file of descriptor `fd` have.
    pub fn touch_file_of(&mut self, process: &Process, fd: i32) {
        self.touch(fd);
        let ours = process.duplicate_fd(fd).ok(); // the kernel will refuse the call
        if let Some(stat) = ours.and_then(|ours| rustix::fs::fstat(ours).ok()) {
            self.touch_file(Ident::from(&stat));
        }
    }

    /// A call is about to change what all descriptors of the open file of `fd` have.
    pub fn touch_open_file_of(&mut self, process: &Process, fd: i32) {
        match self.list.get(&fd) {
            Some(known) if !self.may_differ(fd) => {
                self.touched.add(known.shares);
                for other in self.open_files.others(known.shares) {
                    self.touched.add(other);
                }
            }
            _ => self.touch_file_of(process, fd),
        }
    }

    /// A call is about to be given a number, the lowest that is free and not below `least`.
    pub fn give(&mut self, least: i32) {
        self.touched.foretell(least, &self.list);
    }

    /// A call is about to put a descriptor at a number, in place of what is there.
    pub fn put(&mut self, fd: i32) {
        self.close(fd, fd);
        self.touched.add(fd);
        if !self.list.contains_key(&fd) {
            self.give(fd);
        }
    }

    /// The program is about to close its descriptors from `first` to `last`: ours are closed before.
    pub fn close(&mut self, first: i32, last: i32) {
        if self.may_be_apart {
            self.ours.clear(); // the tables of other threads are not told apart here
        }
        if first > last {
            return;
        }
        let mut unlocked = HashSet::new();
        for (fd, descriptor) in self.list.range(first..=last) {
            self.touched.add(*fd);
            self.ours.remove(fd);
            if !descriptor.locks.is_empty() {
                unlocked.extend(self.open_files.file(*fd));
            }
        }
        for file in unlocked {
            self.touch_file(file);
        }
    }

    /// A descriptor whose number no call touched since the last stop: it is as it was found then, with no call to ask
    /// for it.
    #[must_use]
    pub fn known(&self, fd: i32) -> Option<&Descriptor> {
        self.list.get(&fd).filter(|_| !self.may_differ(fd))
    }

    /// Whether a descriptor may be another than it was at the last stop.
    fn may_differ(&self, fd: i32) -> bool {
        self.was_shared || self.touched.has(fd)
    }

    /// The file with content of such a descriptor.
    #[must_use]
    pub fn known_file(&self, fd: i32) -> Option<BorrowedFd<'_>> {
        let known = self.known(fd)?;
        let is_file = matches!(known.kind, DescriptorKind::File { .. });
        self.ours.get(&known.shares).filter(|_| is_file).map(AsFd::as_fd)
    }

    /// Whether the program has a file open.
    #[must_use]
    pub fn has_open(&self, process: &Process, file: Ident) -> bool {
        if self.may_be_apart {
            return threads(process.pid()).any(|tid| {
                let numbers = numbers(tid).unwrap_or_default();
                numbers.into_iter().any(|fd| is_file(tid, fd, file))
            });
        }
        let is_it = |fd: i32| is_file(process.thread(), fd, file);
        let mut known = self.open_files.descriptors(file);
        known.any(|fd| !self.may_differ(fd))
            || self
                .touched_now(process)
                .is_ok_and(|numbers| numbers.into_iter().any(is_it))
    }

    /// The touched numbers that are open, and perhaps others of them.
    fn touched_now(&self, process: &Process) -> Result<Vec<i32>> {
        // Each number costs about as much as one of a listing of all. A program that opened and closed a thousand files
        // has a thousand numbers foretold, and few open.
        if !self.touched.all && !self.was_shared && self.touched.count() <= self.list.len() + FEW {
            return Ok(self.touched.numbers().collect());
        }
        let mut numbers = numbers(process.thread())?;
        numbers.retain(|fd| self.may_differ(*fd));
        Ok(numbers)
    }

    /// Looks at what calls touched, while the `threads` stand still. Of the processes, those `asleep` have stood still
    /// since the last look, and those `untouched`, of which these are some, made no call that touched a descriptor. Whether
    /// anything is not as it was.
    ///
    /// # Errors
    /// Names a descriptor that cannot be captured. All are looked at again then.
    pub fn update(
        &mut self,
        process: &Process,
        threads: &[(i32, Tid)],
        (asleep, mut untouched): (&BTreeSet<i32>, BTreeSet<i32>),
        files: &mut Files<'_>,
    ) -> Result<bool> {
        let with_others = threads.iter().any(|(pid, _)| *pid != process.pid());
        let several = self.may_be_apart || with_others || !self.tables.members().is_empty();
        // Of several tables no number tells it.
        let strangers = self.may_be_sent && (several || self.has_strangers(process));
        if !self.touched.is_any() && !self.was_shared && !strangers {
            return Ok(false);
        }
        let touched = &self.touched;
        let all = touched.all || self.was_shared || strangers;
        self.calm_polls
            .get_mut()
            .retain(|poll, calm| !all && !calm.numbers(*poll).any(|fd| touched.has(fd)));
        if !touched.is_any() && !self.was_copied {
            untouched.insert(process.pid());
        }
        if self.may_be_sent {
            untouched.clone_from(asleep); // receiving one is no call that is seen
        }
        let parted = several && self.find_tables(process, threads, asleep)?;
        let mut updated = match all {
            true => self.list_all(process, &untouched, files),
            false => self.look_at_touched(process, files),
        };
        if self.may_be_sent && !several && updated.is_ok() && self.has_strangers(process) {
            updated = self.list_all(process, &untouched, files).map(|_| true);
        }
        match updated {
            Ok(_) => {
                (self.was_shared, self.was_copied) = (false, false);
                self.touched.clear(&self.list);
                self.keep_pairs();
            }
            Err(_) => self.touched.all = true,
        }
        self.touched.all |= self.may_be_apart;
        Ok(updated? || parted)
    }

    /// Whether descriptors came by messages of other processes, which no call tells of before.
    fn has_strangers(&self, process: &Process) -> bool {
        let directory = rustix::fs::stat(format!("/proc/{}/fd", process.thread()));
        // Its size is their number, proc_pid_fd(5).
        directory.is_ok_and(|stat| stat.st_size as usize != self.list.len())
    }

    /// Whether other threads have tables of their own than before.
    fn find_tables(
        &mut self,
        process: &Process,
        threads: &[(i32, Tid)],
        asleep: &BTreeSet<i32>,
    ) -> Result<bool> {
        let before = self.tables.members().to_vec();
        let found =
            Tables::of(process, threads, asleep, std::mem::take(&mut self.tables)).inspect_err(|_| {
                self.list.clear(); // their tables are not known any more
                self.ours.clear();
                self.open_files = OpenFiles::default();
                self.listed.clear();
                self.touched.all = true;
            })?;
        let changed = found.members() != before;
        self.may_be_apart = !found.is_one(process);
        self.tables = found;
        Ok(changed)
    }

    /// Looks at all, but what only `untouched` processes have and nothing else can change.
    fn list_all(
        &mut self,
        process: &Process,
        untouched: &BTreeSet<i32>,
        files: &mut Files<'_>,
    ) -> Result<bool> {
        let before = std::mem::take(&mut self.list);
        self.ours.clear();
        let open_before = std::mem::take(&mut self.open_files);
        let listed = std::mem::take(&mut self.listed);
        let mut all = Vec::new();
        for (table, owner) in self.tables.all(process).enumerate() {
            let place = (owner.pid(), owner.thread());
            if let Some(then) = listed.get(&place).filter(|_| untouched.contains(&owner.pid())) {
                let first = number(*then, 0);
                let known = before.range(first..=first + (number(1, 0) - 1));
                all.extend(known.map(|(fd, descriptor)| (number(table, split(*fd).1), Some(descriptor))));
                continue;
            }
            let in_it = match self.first_ended && table == 0 {
                true => Vec::new(),
                false => numbers(owner.thread())?,
            };
            if let Some(high) = in_it.iter().find(|fd| split(**fd).0 > 0) {
                return Err(Error::Unsupported(format!(
                    "descriptor {high}: numbers this high are not captured; use lower ones"
                )));
            }
            all.extend(in_it.into_iter().map(|fd| (number(table, fd), None)));
        }
        let in_untouched: HashSet<usize> = (listed.iter())
            .filter(|((pid, _), _)| untouched.contains(pid))
            .map(|(_, table)| *table)
            .collect();
        let changing = changing(&before, &in_untouched);
        // Of each open file that these had then, one descriptor that was looked at now, or needs no look.
        let mut looked_at: HashMap<i32, i32> = HashMap::new();
        for (number, known) in all {
            let file = known.and_then(|known| open_before.file(known.fd));
            match known.zip(file) {
                Some((known, file)) if looked_at.contains_key(&known.shares) => {
                    self.look_through(looked_at[&known.shares], number, known, file);
                }
                Some((known, file)) if !changing.contains(&known.shares) => {
                    self.open_files.keep(number, file);
                    let (fd, shares) = (number, number);
                    self.list.insert(
                        number,
                        Descriptor {
                            fd,
                            shares,
                            ..known.clone()
                        },
                    );
                    looked_at.insert(known.shares, number);
                }
                _ => {
                    self.look_at(number, process, files)?;
                    known.and_then(|known| looked_at.insert(known.shares, number));
                }
            }
        }
        let tables = self.tables.all(process).enumerate();
        self.listed = tables
            .map(|(table, owner)| ((owner.pid(), owner.thread()), table))
            .collect();
        Ok(before != self.list)
    }

    /// Takes in a descriptor of an untouched process, of the same open file as `other`, which was looked at now. Others may
    /// have changed what belongs to the open file, but nothing of the descriptor's own.
    fn look_through(&mut self, other: i32, number: i32, known: &Descriptor, file: Ident) {
        let Some(now) = self.list.get(&other) else {
            return; // closed: no such one is
        };
        let kind = match (&known.kind, &now.kind) {
            // By its own number.
            (DescriptorKind::Inherited { .. }, _) | (_, DescriptorKind::Inherited { .. }) => &known.kind,
            (_, now) => now,
        };
        let is_own = |lock: &&Lock| lock.kind == LockKind::Process;
        let of_file = now.locks.iter().filter(|lock| !is_own(lock));
        let descriptor = Descriptor {
            fd: number,
            flags: now.flags,
            cloexec: known.cloexec,
            kind: kind.clone(),
            shares: now.shares,
            locks: of_file
                .chain(known.locks.iter().filter(is_own))
                .cloned()
                .collect(),
            notice: now.notice,
        };
        self.open_files.join(number, descriptor.shares, file);
        self.list.insert(number, descriptor);
    }

    fn look_at_touched(&mut self, process: &Process, files: &mut Files<'_>) -> Result<bool> {
        let mut before = List::new();
        let mut led = Vec::new();
        // From the highest on: the lowest of an open file is the last to go.
        for fd in self.touched.numbers().rev() {
            let Some(known) = self.list.remove(&fd) else {
                continue;
            };
            self.ours.remove(&fd);
            if let Some(lowest) = self.open_files.remove(fd, known.shares) {
                led.push(lowest);
            }
            before.insert(fd, known);
        }
        let mut changed = false;
        for lowest in led {
            if self.list.contains_key(&lowest) {
                self.lead(lowest, process)?;
                changed = true;
            }
        }
        for fd in self.touched_now(process)? {
            changed |= self.look_at(fd, process, files)?;
        }
        let mut touched = self.touched.numbers();
        Ok(changed || touched.any(|fd| self.list.get(&fd) != before.get(&fd)))
    }

    /// Looks at a descriptor, if it is open. Whether others are called by its number now.
    fn look_at(&mut self, number: i32, process: &Process, files: &mut Files<'_>) -> Result<bool> {
        let (tid, fd) = self.place(process, number);
        let look = |source| Error::target(format!("cannot look at descriptor {fd}"), source);
        let ours = match self.tables.duplicate(process, number) {
            Ok(ours) => ours,
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => return Ok(false), // it is closed
            Err(source) => return Err(look(source)),
        };
        self.looked_at += 1;
        let stat = rustix::fs::fstat(&ours).map_err(|error| look(error.into()))?;
        let place = |number| {
            let (owner, fd) = self.tables.at(process, number);
            (owner.thread(), fd)
        };
        let shares = self.open_files.add(place, number, Ident::from(&stat))?;
        let owner = self.tables.at(process, number).0.pid();
        let described = describe(tid, fd, &ours, &stat, shares, &mut self.pairs, files);
        let mut descriptor = if owner == process.pid() {
            described?
        } else {
            let checked = described.and_then(|found| check_of_descendant(&found, &stat).map(|()| found));
            checked.map_err(|error| of_process(owner, error))?
        };
        descriptor.fd = number;
        self.may_be_sent |=
            files.sockets.replies != Replies::Refused && hears_others(&descriptor.kind, &ours);
        let ours = (shares == number && is_ours_kept(&descriptor.kind)).then_some(ours);
        self.list.insert(number, descriptor);
        let leads = shares == number && self.open_files.others(number).next().is_some();
        if let Some(ours) = ours {
            self.ours.insert(number, ours);
        }
        if leads {
            self.lead(number, process)?;
        }
        Ok(leads)
    }

    /// An open file has another lowest descriptor than before.
    fn lead(&mut self, lowest: i32, process: &Process) -> Result<()> {
        for other in self.open_files.others(lowest) {
            self.ours.remove(&other);
            if let Some(descriptor) = self.list.get_mut(&other) {
                descriptor.shares = lowest;
            }
        }
        let Some(descriptor) = self.list.get_mut(&lowest) else {
            return Ok(());
        };
        descriptor.shares = lowest;
        if is_ours_kept(&descriptor.kind) && !self.ours.contains_key(&lowest) {
            let ours = (self.tables.duplicate(process, lowest))
                .map_err(|source| Error::target(format!("cannot look at descriptor {lowest}"), source))?;
            self.ours.insert(lowest, ours);
        }
        Ok(())
    }

    /// Forgets the pairs of sockets of which neither end is open.
    fn keep_pairs(&mut self) {
        if self.pairs.is_empty() {
            return;
        }
        let ends = self
            .list
            .values()
            .filter_map(|descriptor| match &descriptor.kind {
                DescriptorKind::Pair(end) => Some(end.inode),
                _ => None,
            });
        self.pairs.keep(&ends.collect::<HashSet<u64>>());
    }

    /// Whether a socket is a TCP connection that was found to lead outside the tree.
    pub fn is_outside(&self, inode: u64) -> bool {
        self.outside.borrow().contains(&inode)
    }

    /// The inode of a [known](Descriptors::known) descriptor of such a connection.
    #[must_use]
    pub fn known_outside(&self, fd: i32) -> Option<u64> {
        let known = self.known(fd)?;
        let inode = self.open_files.file(known.fd)?.ino;
        (matches!(known.kind, DescriptorKind::Connection(_)) && self.is_outside(inode)).then_some(inode)
    }

    /// Ours of the regular files that are open for writing, with their names.
    pub fn writable(&self) -> impl Iterator<Item = (&Path, BorrowedFd<'_>)> {
        self.list
            .values()
            .filter_map(|descriptor| match &descriptor.kind {
                DescriptorKind::File { path, .. }
                    if descriptor.flags & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32 =>
                {
                    Some((path.as_path(), self.ours.get(&descriptor.fd)?.as_fd()))
                }
                _ => None,
            })
    }

    /// The open files whose content the checkpoint holds.
    pub fn objects(&self) -> impl Iterator<Item = Id> {
        self.list.values().filter_map(|descriptor| match descriptor.kind {
            DescriptorKind::Object { id } => Some(id),
            _ => None,
        })
    }
}

/// The open files of which something may have changed: all but those that only untouched processes have, and that nothing
/// else is known of than what their own calls change. `in_untouched` are the tables of those since `before`.
fn changing(before: &List, in_untouched: &HashSet<usize>) -> HashSet<i32> {
    let is_plain = |kind: &DescriptorKind| {
        matches!(
            kind,
            DescriptorKind::Device { .. }
                | DescriptorKind::Event
                | DescriptorKind::Poll
                | DescriptorKind::Timer { .. }
                | DescriptorKind::Signals { .. }
        )
    };
    let changing = before
        .values()
        .filter(|descriptor| !is_plain(&descriptor.kind) || !in_untouched.contains(&split(descriptor.fd).0));
    changing.map(|descriptor| descriptor.shares).collect()
}

/// Whether another process than the program may have it: what is known of it does not depend on whose it is, and it
/// can be made for all at once.
///
/// # Errors
/// Names what cannot be captured so.
fn check_of_descendant(descriptor: &Descriptor, stat: &rustix::fs::Stat) -> Result<()> {
    let why = match &descriptor.kind {
        DescriptorKind::Inherited { outer } => {
            if is_given(i32::from(*outer), stat) {
                return Ok(());
            }
            "a device that the program was not started with"
        }
        DescriptorKind::File { path, .. }
        | DescriptorKind::Pseudo { path }
        | DescriptorKind::Directory { path }
        | DescriptorKind::Place { path, .. }
            if is_of_process(path) =>
        {
            "a file about a process (/proc)"
        }
        _ => return Ok(()),
    };
    Err(Error::Unsupported(format!(
        "its descriptor {} is {why}, which is captured of the program alone",
        descriptor.fd
    )))
}

/// Whether a file is about one process: proc(5).
#[must_use]
pub fn is_of_process(path: &Path) -> bool {
    let name = path
        .strip_prefix("/proc")
        .ok()
        .and_then(|rest| rest.iter().next());
    name.is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit))
}

/// Whether process `pid` has a file open.
#[must_use]
pub fn is_open_in(pid: i32, file: Ident) -> bool {
    let numbers = numbers(pid).unwrap_or_default(); // it ended
    numbers.into_iter().any(|fd| is_file(pid, fd, file))
}

/// Whether ours of an open file is kept, for its offset and to see that it loses its name.
fn is_ours_kept(kind: &DescriptorKind) -> bool {
    matches!(
        kind,
        DescriptorKind::File { .. }
            | DescriptorKind::Object { .. }
            | DescriptorKind::Directory { .. }
            | DescriptorKind::Place { .. }
            | DescriptorKind::Pseudo { .. }
    )
}

/// Whether a descriptor of a thread is of this file.
fn is_file(tid: Tid, fd: i32, file: Ident) -> bool {
    rustix::fs::stat(format!("/proc/{tid}/fd/{fd}")).is_ok_and(|stat| Ident::from(&stat) == file)
}

/// The threads of a process, as far as they are alive.
fn threads(pid: i32) -> impl Iterator<Item = Tid> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Whether another program may send messages to it: by a name, or over a connection.
fn hears_others(kind: &DescriptorKind, ours: &OwnedFd) -> bool {
    match kind {
        DescriptorKind::Unix(named) => named.kind == libc::SOCK_DGRAM,
        DescriptorKind::Pair(_) => leads_outside(ours.as_fd()),
        _ => false,
    }
}
