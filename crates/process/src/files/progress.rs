//! `undo.progress`: how far a rollback has come, so that it can be killed and run again; and `undo.moved`, which
//! it becomes at the end: the files that have other inode numbers than the checkpoint lists.
//!
//! * `undo.progress` exists from before the first change a rollback makes until after the logs are empty.
//! * The program may be killed before its next checkpoint, so another rollback may go to the same epoch:
//!   `undo.moved` of that epoch is its beginning. For every other epoch it means nothing.
//! * Entries are appended one by one, each safe before the rollback goes on; a torn last one is ignored.

use super::error::{Doing, Error, Result};
use super::format::{ENTRY, HEADER, Header, PROGRESS_MAGIC, RawEntry, VERSION};
use super::whole::{make_whole, read_at, sync_directory};
use super::{Epoch, Ident};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

/// Every record from `seq` on is undone.
const UNDONE: u32 = 1;
/// The undo of record `seq` made file `old` again, as `new`.
const MOVED: u32 = 2;
/// Rollbacks to the same epoch made file `old` of the checkpoint again, as `new`, before this one began.
const GIVEN: u32 = 3;

/// The name of the progress file in the state directory.
pub(super) fn progress_path(dir: &Path) -> PathBuf {
    dir.join("undo.progress")
}

/// The name of the list of files that finished rollbacks made again.
fn moved_path(dir: &Path) -> PathBuf {
    dir.join("undo.moved")
}

/// How far a rollback has come.
pub(super) struct Progress {
    file: OwnedFd,
    dir: PathBuf,
    path: PathBuf,
    sync: bool,
    end: u64,
    /// Every record from this on is undone.
    pub(super) undone: u64,
    /// Files of the checkpoint, as they were when this rollback began, by what the checkpoint calls them.
    given: HashMap<Ident, Ident>,
    /// Files that this rollback made again, as they are now, by what they were when it began.
    moved: HashMap<Ident, Ident>,
}

impl Progress {
    /// Begins a rollback to epoch `durable`, or goes on with one that was killed.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Foreign`], and [`Error::Order`] when the one that was killed
    /// went to another epoch.
    pub(super) fn open(dir: &Path, durable: Epoch, sync: bool) -> Result<Progress> {
        let path = progress_path(dir);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = match rustix::fs::open(&path, flags, Mode::empty()) {
            Err(Errno::NOENT) => begin(dir, &path, durable, sync)?,
            opened => opened.doing("open", &path)?,
        };
        let progress = Progress::read(dir, path, file, sync)?;
        if progress.epoch()? != durable {
            let why = format!(
                "a rollback to epoch {} was begun and must be finished",
                progress.epoch()?
            );
            return Err(Error::Order { given: durable, why });
        }
        Ok(progress)
    }

    /// Reads the entries of `path`, which is open as `file`.
    fn read(dir: &Path, path: PathBuf, file: OwnedFd, sync: bool) -> Result<Progress> {
        let mut progress = Progress {
            file,
            dir: dir.to_owned(),
            path,
            sync,
            end: HEADER as u64,
            undone: u64::MAX,
            given: HashMap::new(),
            moved: HashMap::new(),
        };
        progress.read_entries()?;
        Ok(progress)
    }

    /// What a file of the run that is rolled back is called now.
    pub(super) fn now(&self, file: Ident) -> Ident {
        self.moved.get(&file).copied().unwrap_or(file)
    }

    /// What a file of the checkpoint was called when this rollback began.
    pub(super) fn begun_as(&self, file: Ident) -> Ident {
        self.given.get(&file).copied().unwrap_or(file)
    }

    /// The files that had to be made again: what the checkpoint calls them, and what they are now.
    pub(super) fn all_moved(&self) -> Vec<(Ident, Ident)> {
        let given = self
            .given
            .iter()
            .map(|(&listed, &begun)| (listed, self.now(begun)));
        let moved = self.moved.iter().map(|(&listed, &now)| (listed, now));
        let moved = moved.filter(|(listed, _)| !self.given.contains_key(listed));
        given.chain(moved).collect()
    }

    /// Every record from `seq` on is undone, and what that changed is safe.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn set_undone(&mut self, seq: u64) -> Result<()> {
        self.append(RawEntry::new(UNDONE, seq, Ident::NONE, Ident::NONE))?;
        self.undone = seq;
        Ok(())
    }

    /// The undo of record `seq` made file `old` again, as `new`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn set_moved(&mut self, seq: u64, old: Ident, new: Ident) -> Result<()> {
        self.append(RawEntry::new(MOVED, seq, old, new))?;
        self.moved.insert(old, new);
        Ok(())
    }

    /// The rollback is complete and the logs are empty.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn finish(&self) -> Result<()> {
        if self.given.is_empty() && self.moved.is_empty() {
            rustix::fs::unlink(&self.path).doing("remove", &self.path)?;
        } else {
            rustix::fs::rename(&self.path, moved_path(&self.dir)).doing("put away", &self.path)?;
        }
        if self.sync {
            sync_directory(&self.dir)
        } else {
            Ok(())
        }
    }

    /// The epoch of the checkpoint that the rollback goes to.
    fn epoch(&self) -> Result<Epoch> {
        let mut bytes = [0; HEADER];
        let got = read_at(&self.file, &mut bytes, 0).doing("read", &self.path)?;
        let header = Header::read_from_bytes(&bytes).expect("a header is HEADER bytes");
        if got < HEADER || header.magic != PROGRESS_MAGIC || !header.is_whole() {
            let why = "the header is not that of a rollback's progress".into();
            return Err(Error::Damaged {
                file: self.path.clone(),
                at: 0,
                why,
            });
        }
        if !header.is_known() {
            let why = format!(
                "its version is {}, this build reads 1 to {VERSION}",
                header.version
            );
            return Err(Error::Foreign {
                file: self.path.clone(),
                why,
            });
        }
        Ok(header.first_seq.get())
    }

    fn read_entries(&mut self) -> Result<()> {
        self.epoch()?;
        loop {
            let mut bytes = [0; ENTRY];
            let got = read_at(&self.file, &mut bytes, self.end).doing("read", &self.path)?;
            let entry = RawEntry::read_from_bytes(&bytes).expect("an entry is ENTRY bytes");
            let known = matches!(entry.kind.get(), UNDONE | MOVED | GIVEN);
            if got < ENTRY || entry.crc.get() != entry.right_crc() || !known {
                return self.check_tail(got);
            }
            self.end += ENTRY as u64;
            match entry.kind.get() {
                UNDONE => self.undone = entry.seq.get(),
                GIVEN => drop(self.given.insert(entry.old.into(), entry.new.into())),
                _ => drop(self.moved.insert(entry.old.into(), entry.new.into())),
            }
        }
    }

    /// Behind the last whole entry there can be one torn one, and nothing else.
    fn check_tail(&self, got: usize) -> Result<()> {
        let mut more = [0; 1];
        let behind = self.end + ENTRY as u64;
        if got == ENTRY && read_at(&self.file, &mut more, behind).doing("read", &self.path)? > 0 {
            let why = "the checksum of an entry is wrong".into();
            return Err(Error::Damaged {
                file: self.path.clone(),
                at: self.end,
                why,
            });
        }
        Ok(())
    }

    fn append(&mut self, entry: RawEntry) -> Result<()> {
        let mut bytes = entry.as_bytes();
        while !bytes.is_empty() {
            let at = self.end + (ENTRY - bytes.len()) as u64;
            let written = rustix::io::pwrite(&self.file, bytes, at).doing("write to", &self.path)?;
            bytes = &bytes[written..];
        }
        if self.sync {
            rustix::fs::fdatasync(&self.file).doing("sync", &self.path)?;
        }
        self.end += ENTRY as u64;
        Ok(())
    }
}

/// Makes the file with its header whole, and with what earlier rollbacks to this epoch made again; or not at all.
fn begin(dir: &Path, path: &Path, durable: Epoch, sync: bool) -> Result<OwnedFd> {
    let header = Header {
        magic: PROGRESS_MAGIC,
        mark_end: U64::ZERO,
        mark_seq: U64::ZERO,
        ..Header::empty(0, durable)
    };
    let mut given = Vec::new();
    for (listed, now) in moved_before(dir, durable)? {
        given.extend_from_slice(RawEntry::new(GIVEN, 0, listed, now).as_bytes());
    }
    make_whole(path, header, &given, sync)?;
    if sync {
        sync_directory(dir)?;
    }
    rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).doing("open", path)
}

/// What finished rollbacks to epoch `durable` made again.
fn moved_before(dir: &Path, durable: Epoch) -> Result<Vec<(Ident, Ident)>> {
    let path = moved_path(dir);
    match rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => Ok(Vec::new()),
        opened => {
            let before = Progress::read(dir, path.clone(), opened.doing("open", &path)?, false)?;
            let same = before.epoch()? == durable;
            Ok(if same { before.all_moved() } else { Vec::new() })
        }
    }
}
