//! The recorder: what of the program's files is saved in this epoch, and what is still to be.
//!
//! * `files` knows each file touched in this epoch. Its `base` is its length when the epoch began
//!   and `saved` which of those bytes are in the journal; bytes behind the base need no saving.
//! * A file born in this epoch needs no saving at all: undoing its creation removes it.
//! * `created` holds names that did not exist when the epoch began, that name nothing but what was
//!   born since, and that no record mentions after the one of their creation: a name leaves it when
//!   something older is linked or renamed to it, when it is exchanged, or when it names a directory that
//!   is renamed or removed.
//! * A file needs no record to grow where every checkpoint that can still be resumed from lists it, or the records before
//!   the first that does restore its length.

use super::error::{Doing, Error, Refusal, Result};
use super::journal::Journal;
use super::links::Links;
use super::opened::Opened;
use super::options::{OWN_MAX, Options};
use super::path_at::Found;
use super::ranges::Ranges;
use super::reach::{Own, Reach, duplicate};
use super::seen;
use super::sync::EpochFiles;
use super::{Change, Durability, Epoch, Ident, PathAt, Recorded, Recorder, Summary, safety};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, StatFs};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::path::Path;
use twinpage_os::name;

/// A file touched in this epoch.
#[derive(Default)]
pub(super) struct Tracked {
    /// It came to be in this epoch.
    pub(super) born: bool,
    /// Its length when the epoch began.
    pub(super) base: u64,
    /// A rollback will restore its length: it has a record, or the checkpoints list it.
    pub(super) sized: bool,
    /// Its mode, owner and times are in the journal.
    pub(super) attributes: bool,
    /// Which of its extended attributes are in the journal.
    pub(super) extended: Vec<OsString>,
    /// Which of its bytes are in the journal.
    pub(super) saved: Ranges,
    /// A descriptor of our own, for syncing and for reading what will be overwritten.
    pub(super) own: Option<Own>,
    /// More than the content changes.
    pub(super) sync_all: bool,
    /// It may grow unseen, and nothing else was to change when this was noted.
    may_grow: bool,
}

/// A file that checkpoints list.
pub(super) struct Listed {
    /// The first checkpoint of the unbroken run of checkpoints that list it.
    since: Epoch,
    size: u64,
    /// What was recorded before that checkpoint restores its length, or removes it, until the checkpoint is durable.
    undone: bool,
    /// The round of `begin_epoch` that listed it last.
    round: u64,
}

/// A file system that was seen.
pub(super) struct System {
    dev: u64,
    /// Its files are worth tracking.
    is_tracked: bool,
    /// It does not outlive the machine.
    is_in_memory: bool,
}

impl Recorder {
    /// Starts recording in the state directory `dir`, for a program at the checkpoint of epoch
    /// `epoch` (0: at its start). After a crash [`super::rollback()`] comes first.
    ///
    /// # Errors
    /// [`Error::NotRolledBack`] when it did not, [`Error::Io`].
    pub fn create(dir: &Path, options: Options, epoch: Epoch) -> Result<Recorder> {
        let dir = dir.canonicalize().doing("find the state directory", dir)?;
        if let Some(tag) = super::inspect::newest(&dir, epoch)? {
            return Err(Error::NotRolledBack {
                dir,
                tag,
                durable: epoch,
            });
        }
        let journal = Journal::create(&dir, options, epoch + 1)?;
        Ok(Recorder {
            journal,
            options,
            durable: epoch,
            round: 0,
            files: HashMap::new(),
            spare: Vec::new(),
            created: BTreeSet::new(),
            nameless: HashSet::new(),
            listed: HashMap::new(),
            links: Links::default(),
            systems: Vec::new(),
            dirs: HashMap::new(),
            opened: Opened::default(),
            whole: HashMap::new(),
            others: Vec::new(),
            everything: false,
        })
    }

    /// Records what `change` will destroy; it may go ahead when this returns.
    ///
    /// # Errors
    /// [`Error::Refused`] when it cannot be undone, [`Error::Full`] when there is no room (a
    /// checkpoint makes some), [`Error::Poisoned`] after a failed write. The change must not happen.
    pub fn record(&mut self, change: &Change<'_>) -> Result<Recorded> {
        match self.record_by_name(change) {
            // A file without a name is an object.
            Err(error) if error.is_of_removed_name() => Ok(Recorded::NotTracked),
            recorded => recorded,
        }
    }

    fn record_by_name(&mut self, change: &Change<'_>) -> Result<Recorded> {
        match *change {
            Change::Write { fd, at, len } => self.write(fd, at, len),
            Change::SetLen { target, len } => self.set_len(target, len),
            Change::Allocate { fd, mode, at, len } => self.allocate(fd, mode, at, len),
            Change::Open { place, flags } => self.open(place, flags),
            Change::Create { place, new } => self.create_name(place, new),
            Change::Unlink { place, still_open } => self.unlink(place, still_open),
            Change::Rmdir { place } => self.rmdir(place),
            Change::Rename {
                from,
                to,
                flags,
                still_open,
            } => self.rename(from, to, flags, still_open),
            Change::Attributes { target } => self.attributes(target),
            Change::ExtendedAttribute { target, name } => self.extended_attribute(target, name),
        }
    }

    /// To be called in the stop that captures epoch `epoch`, when `durable` is the newest durable
    /// one and `open` are the files the checkpoint lists, with their lengths. What is recorded from
    /// now on belongs to the next epoch. The same epoch may be captured again when it was abandoned.
    ///
    /// Gives what the epoch changed: to be made durable before its commit, or to be handed to
    /// [`EpochFiles::take_over`] when it is abandoned.
    ///
    /// # Errors
    /// [`Error::Order`] when epochs are out of order, [`Error::Full`] and [`Error::Io`] from the log.
    pub fn begin_epoch(
        &mut self,
        epoch: Epoch,
        durable: Epoch,
        open: impl IntoIterator<Item = (Ident, u64)>,
    ) -> Result<EpochFiles> {
        if durable < self.durable {
            let why = format!("epoch {} was durable already", self.durable);
            return Err(Error::Order { given: durable, why });
        }
        let mut changed = EpochFiles::default();
        self.journal.begin_epoch(epoch, durable, &mut changed.dead)?;
        self.durable = durable;
        self.links.begin_epoch(epoch, durable, &changed.dead.kept);
        if !changed.dead.is_empty() {
            changed.keep = Some(self.journal.keep_handle());
        }
        self.list(epoch, open);
        self.hand_over(&mut changed);
        Ok(changed)
    }

    /// The file behind a descriptor, which is open at its end, may have grown in this epoch without a record.
    ///
    /// # Errors
    /// As [`Recorder::record`].
    pub fn note_growth(&mut self, fd: BorrowedFd<'_>) -> Result<Ident> {
        let file = Ident::from(&seen::stat(fd)?);
        if !self.files.contains_key(&file) {
            let (at, len) = (None, 1);
            self.record(&Change::Write { fd, at, len })?;
        }
        Ok(file)
    }

    /// The same, of an epoch that begins: if it does not grow, there is nothing to make durable.
    ///
    /// # Errors
    /// The same.
    pub fn expect_growth(&mut self, fd: BorrowedFd<'_>) -> Result<()> {
        let file = self.note_growth(fd)?;
        self.files.entry(file).and_modify(|file| file.may_grow = true);
        Ok(())
    }

    /// Whether a file or directory lost its last name in this epoch.
    pub(crate) fn is_nameless_now(&self, file: Ident) -> bool {
        self.nameless.contains(&file)
    }

    /// The state directory.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.journal.dir
    }

    /// The file behind `file` changed by other ways than recorded ones: it is synced with this epoch.
    pub fn sync(&mut self, file: OwnedFd) {
        if self.options.durability == Durability::Disk {
            self.others.push(file);
        }
    }

    /// What changed cannot be named: all file systems are synced with this epoch.
    pub(super) fn sync_everything(&mut self) {
        self.everything |= self.options.durability == Durability::Disk;
    }

    /// Whether an early checkpoint would give back much room.
    #[must_use]
    pub fn pressure(&self) -> bool {
        self.journal.bytes() + self.journal.held_bytes() > self.options.pressure_bytes
    }

    /// What a person may want to know.
    #[must_use]
    pub fn describe(&self) -> Summary {
        Summary::of_journal(&self.journal)
    }

    fn hand_over(&mut self, changed: &mut EpochFiles) {
        let disk = self.options.durability == Durability::Disk;
        for (_, mut file) in self.files.drain() {
            file.saved.clear();
            self.spare.push(file.saved);
            let Some(own) = file.own.filter(|_| disk) else {
                continue;
            };
            let has_grown = || rustix::fs::fstat(&own.fd).is_ok_and(|stat| stat.st_size as u64 > file.base);
            if !file.may_grow || file.sync_all || has_grown() {
                changed.files.push((own.fd, file.sync_all));
            }
        }
        changed
            .files
            .extend(self.others.drain(..).map(|file| (file, true)));
        changed.dirs.extend(self.dirs.drain().map(|(_, fd)| fd));
        changed.whole.extend(self.whole.drain());
        changed.everything = std::mem::take(&mut self.everything);
        self.created.clear();
        self.nameless.clear();
        self.opened.clear();
    }

    fn list(&mut self, epoch: Epoch, open: impl IntoIterator<Item = (Ident, u64)>) {
        self.round += 1;
        for (file, size) in open {
            let before = self.listed.get(&file).map(|listed| (listed.since, listed.undone));
            let is_undone = |file: &Tracked| file.born || file.sized;
            let (since, undone) = before.unwrap_or((epoch, self.files.get(&file).is_some_and(is_undone)));
            self.listed.insert(
                file,
                Listed {
                    since,
                    size,
                    undone,
                    round: self.round,
                },
            );
        }
        let round = self.round;
        self.listed.retain(|_, listed| listed.round == round);
    }

    /// Whether the file behind a descriptor is of a kind that is tracked, on a file system that is.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn is_tracked(&mut self, fd: impl AsFd, stat: &Stat) -> Result<bool> {
        let system =
            || rustix::fs::fstatfs(fd.as_fd()).doing("look at the file system of", name::of_open(&fd));
        self.is_tracked_on(stat, system)
    }

    /// The same for what a name names. It may be the root of another file system than its directory's.
    pub(super) fn is_tracked_name(&mut self, found: &Found, stat: &Stat) -> Result<bool> {
        let system = || match seen::kind(stat) {
            FileType::Symlink => rustix::fs::fstatfs(&found.parent.fd),
            _ => rustix::fs::statfs(&found.path),
        };
        self.is_tracked_on(stat, || system().doing("look at the file system of", &found.path))
    }

    /// Whether changes of what is there under a name are recorded: the kernel does not make it up, and it is no device or
    /// pipe.
    pub(crate) fn is_tracked_at(&mut self, place: PathAt<'_>, stat: &Stat) -> bool {
        let system = || {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(place.dir.unwrap_or(CWD), place.name, flags, Mode::empty());
            let system = opened.and_then(rustix::fs::fstatfs);
            system.doing("look at the file system of", place.name)
        };
        self.is_tracked_on(stat, system).unwrap_or(true)
    }

    fn is_tracked_on(&mut self, stat: &Stat, system: impl FnOnce() -> Result<StatFs>) -> Result<bool> {
        if !matches!(
            seen::kind(stat),
            FileType::RegularFile | FileType::Directory | FileType::Symlink
        ) {
            return Ok(false);
        }
        if let Some(known) = self.systems.iter().find(|system| system.dev == stat.st_dev) {
            return Ok(known.is_tracked);
        }
        let system = system()?;
        let is_tracked = !is_pseudo(&system);
        self.systems.push(System {
            dev: stat.st_dev,
            is_tracked,
            is_in_memory: safety::is_in_memory(&system),
        });
        Ok(is_tracked)
    }

    /// Whether the file system, which was seen, is gone with the machine.
    pub(super) fn is_in_memory(&self, dev: u64) -> bool {
        let mut systems = self.systems.iter();
        systems.any(|system| system.dev == dev && system.is_in_memory)
    }

    /// Makes sure that the file is among those touched in this epoch.
    pub(super) fn note_change(&mut self, stat: &Stat, reach: &Reach<'_>) -> Result<()> {
        let file = Ident::from(stat);
        if let Some(known) = self.files.get_mut(&file) {
            known.may_grow = false;
            return Ok(());
        }
        let size = stat.st_size as u64;
        let mut tracked = Tracked {
            base: size,
            ..Tracked::default()
        };
        match self.listed.get(&file) {
            Some(listed)
                if (listed.since <= self.durable || listed.undone)
                    && listed.size <= size
                    && stat.st_mode & seen::SET_ID == 0 =>
            {
                (tracked.base, tracked.sized) = (listed.size, true);
            }
            _ => tracked.born = !self.created.is_empty() && self.created.contains(&self.name(reach, stat)?),
        }
        if self.options.durability == Durability::Disk {
            self.own_for_sync(stat, &mut tracked, reach);
        }
        tracked.saved = self.spare.pop().unwrap_or_default();
        self.files.insert(file, tracked);
        Ok(())
    }

    /// A descriptor to sync the file with, or its whole file system.
    fn own_for_sync(&mut self, stat: &Stat, file: &mut Tracked, reach: &Reach<'_>) {
        let (dev, many) = (stat.st_dev, self.files.len() >= OWN_MAX);
        if many && self.whole.contains_key(&dev) {
            return;
        }
        let any = match reach.open() {
            Ok(own) if !many => {
                file.own = Some(own);
                return;
            }
            Ok(own) => Some(own.fd),
            Err(_) => reach.around(stat),
        };
        match any {
            Some(fd) => drop(self.whole.insert(dev, fd)),
            None => self.everything = true,
        }
    }

    /// The directory of a name that is about to change, to be synced.
    pub(super) fn touch_directory(&mut self, found: &Found, stat: &Stat) -> Result<()> {
        if self.options.durability == Durability::Memory {
            return Ok(());
        }
        let file = Ident::from(stat);
        if self.dirs.contains_key(&file) || self.whole.contains_key(&stat.st_dev) {
            return Ok(());
        }
        if !found.parent.readable {
            self.everything = true;
        } else if self.dirs.len() < OWN_MAX {
            self.dirs.insert(file, duplicate(&found.parent.fd)?);
        } else {
            self.whole.insert(stat.st_dev, duplicate(&found.parent.fd)?);
        }
        Ok(())
    }

    /// Refuses a name in the state directory.
    pub(super) fn not_our_own(&self, path: &Path) -> Result<()> {
        if path.starts_with(&self.journal.dir) {
            return Err(Refusal::OwnState(path.to_owned()).into());
        }
        Ok(())
    }
}

/// Whether the files of a file system are doors to the kernel and hold no data of the program (statfs(2)).
pub(crate) fn is_pseudo(system: &StatFs) -> bool {
    const PSEUDO: [u32; 13] = [
        0x9fa0,      // proc
        0x6265_6572, // sysfs
        0x6367_7270, // cgroup2
        0x0027_e0eb, // cgroup
        0x6462_6720, // debugfs
        0x7472_6163, // tracefs
        0x6265_6570, // configfs
        0x7363_6673, // securityfs
        0xf97c_ff8c, // selinux
        0x1cd1,      // devpts
        0xcafe_4a11, // bpf
        0x4249_4e4d, // binfmt_misc
        0x6165_676c, // pstore
    ];
    PSEUDO.contains(&(system.f_type as u32))
}
