//! Undoing one record.
//!
//! Every undo looks first: the change may not have happened (the call failed, or the program was
//! killed before it), or be undone in part by a rollback that was killed.

use super::error::{Doing, Error, Result};
use super::extents::{write_all_at, write_zeros};
use super::format::{Attribute, Kept, Kind, Record, State, mtime_only};
use super::keep::{self, Keep, kept_name};
use super::path_at;
use super::progress::Progress;
use super::seen;
use super::{Ident, OpenFile, StoredFile, attributes};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, RenameFlags, Stat, Uid, XattrFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use twinpage_os::name;

/// Files written but not yet noted as undone; above this the progress is noted at once.
const TOUCHED_MAX: usize = 256;

/// In place of a record's number, for what no record is of.
const NO_RECORD: u64 = 0;

/// A rollback under way.
pub(super) struct Undo<'a> {
    keep: &'a Keep,
    progress: Progress,
    sync: bool,
    watch: &'a mut dyn FnMut(&'static str) -> Result<()>,
    /// Files written since the progress was noted.
    touched: HashMap<Ident, OwnedFd>,
    /// The oldest record undone since the progress was noted.
    pending: Option<u64>,
}

/// A name to be put back: its directory, open, and the name in it.
struct Spot<'r> {
    dir: OwnedFd,
    dir_path: &'r Path,
    last: &'r OsStr,
    path: &'r Path,
}

impl Spot<'_> {
    /// What is there now.
    fn look(&self) -> Result<Option<Stat>> {
        match rustix::fs::statat(&self.dir, self.last, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error).doing("look at", self.path),
        }
    }
}

impl<'a> Undo<'a> {
    pub(super) fn new(
        keep: &'a Keep,
        progress: Progress,
        sync: bool,
        watch: &'a mut dyn FnMut(&'static str) -> Result<()>,
    ) -> Undo<'a> {
        let touched = HashMap::new();
        Undo {
            keep,
            progress,
            sync,
            watch,
            touched,
            pending: None,
        }
    }

    /// Says what comes next.
    ///
    /// # Errors
    /// The watcher's: stop here.
    pub(super) fn step(&mut self, what: &'static str) -> Result<()> {
        (self.watch)(what)
    }

    /// Undoes a record. Newer ones are undone.
    ///
    /// # Errors
    /// [`Error::Changed`], [`Error::Io`].
    pub(super) fn record(&mut self, record: &mut Record) -> Result<()> {
        self.keep.find(&mut record.path);
        if record.kind.changes_names() {
            self.flush()?;
        }
        match record.kind {
            Kind::Bytes | Kind::Hole | Kind::Attributes | Kind::Extended
                if self.keep.is_gone(&record.path) => {}
            Kind::Bytes => self.bytes(record)?,
            Kind::Hole => self.hole(record)?,
            Kind::Attributes => self.attributes(record)?,
            Kind::Extended => self.extended(record)?,
            Kind::Create => self.created(record)?,
            Kind::Unlink | Kind::Rmdir => self.removed(record)?,
            Kind::Rename => self.renamed(record)?,
            Kind::Exchange => self.exchanged(record)?,
            Kind::Again => {}
        }
        self.pending = Some(record.seq);
        if record.kind.changes_names() || self.touched.len() > TOUCHED_MAX {
            self.flush()?;
        }
        Ok(())
    }

    /// Makes what was undone safe and notes the progress.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.sync {
            for file in self.touched.values() {
                rustix::fs::fsync(file).doing("sync", name::of_open(file))?;
            }
        }
        self.touched.clear();
        if let Some(seq) = self.pending.take() {
            self.step("note the progress")?;
            self.progress.set_undone(seq)?;
        }
        Ok(())
    }

    /// Cuts open files to the lengths the checkpoint lists; says how many were longer.
    ///
    /// # Errors
    /// [`Error::Changed`] when one is gone, replaced or shorter.
    pub(super) fn cut(&mut self, open: &[OpenFile]) -> Result<u64> {
        let mut cut = 0;
        for file in open {
            let begun_as = self.progress.begun_as(file.file);
            let stat = self.expect(&file.path, begun_as)?;
            let size = stat.st_size as u64;
            if size < file.size {
                let why = format!("it has {size} bytes, the checkpoint had {}", file.size);
                return Err(Error::Changed {
                    path: file.path.clone(),
                    why,
                });
            }
            let mtime = State::from(&stat).mtime;
            if size == file.size && mtime == file.mtime {
                continue;
            }
            self.open_to_write(&file.path, begun_as)?;
            let fd = &self.touched[&begun_as];
            if size > file.size {
                (self.watch)("cut an open file")?;
                rustix::fs::ftruncate(fd, file.size).doing("cut", &file.path)?;
                cut += 1;
            }
            self.step("set the time of an open file")?;
            set_mtime(&file.path, file.mtime)?;
        }
        self.flush()?;
        Ok(cut)
    }

    /// Makes a file again that is gone, and the directories it was in: as long as it was, and empty until what the store
    /// has of it is written to it. Whether it was gone. Where another file system lies there now it is not made.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn make_stored_again(&mut self, stored: &StoredFile) -> Result<bool> {
        match rustix::fs::statat(CWD, &stored.path, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) if self.make_directories(stored)? => {}
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => return Ok(false),
            Err(error) => return Err(error).doing("look at", &stored.path),
        }
        let spot = needed_spot(&stored.path)?;
        self.step("make a stored file again")?;
        let fresh = name_beside(stored);
        remove_any(&spot.dir, &fresh, spot.path)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let made = rustix::fs::openat(&spot.dir, &fresh, flags, Mode::RUSR | Mode::WUSR);
        let file = made.doing("make again", spot.path)?;
        let dressed = rustix::fs::ftruncate(&file, stored.size)
            .and_then(|()| keep::dress(&spot.dir, &fresh, &State::from(stored)));
        dressed.doing("make again", spot.path)?;
        let begun_as = self.progress.begun_as(stored.file);
        self.put_in_place(&spot, &fresh, NO_RECORD, begun_as)?;
        self.sync_directory(&spot)?;
        Ok(true)
    }

    /// Makes the directories above a file that are gone, for the file's owner. False where there is nothing to make: the
    /// next above them is on another file system.
    fn make_directories(&mut self, stored: &StoredFile) -> Result<bool> {
        let mut missing = Vec::new();
        for above in stored.path.ancestors().skip(1) {
            match rustix::fs::stat(above) {
                Ok(stat) if stat.st_dev == stored.file.dev => break,
                Err(Errno::NOENT) => missing.push(above),
                Ok(_) | Err(Errno::NOTDIR) => return Ok(false),
                Err(error) => return Err(error).doing("look at", above),
            }
        }
        for directory in missing.into_iter().rev() {
            self.make_directory(directory, stored)?;
        }
        Ok(true)
    }

    /// Makes a directory again that is gone. It has its owner before it has its name.
    fn make_directory(&mut self, directory: &Path, stored: &StoredFile) -> Result<()> {
        let spot = needed_spot(directory)?;
        let fresh = name_beside(stored);
        self.step("make a directory again")?;
        remove_any(&spot.dir, &fresh, directory)?;
        rustix::fs::mkdirat(&spot.dir, &fresh, Mode::from_raw_mode(0o755)).doing("make again", directory)?;
        self.step("set the owner of a directory made again")?;
        let (uid, gid) = (Uid::from_raw(stored.owner.0), Gid::from_raw(stored.owner.1));
        rustix::fs::chownat(&spot.dir, &fresh, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            .doing("set the owner of", directory)?;
        self.step("put a directory made again in place")?;
        rustix::fs::renameat(&spot.dir, &fresh, &spot.dir, spot.last).doing("make again", directory)?;
        self.sync_directory(&spot)
    }

    /// Files that had to be made again: what the checkpoint calls them, and what they are now.
    pub(super) fn moved(&self) -> Vec<(Ident, Ident)> {
        self.progress.all_moved()
    }

    /// The rollback is complete and the logs are empty.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn finish(self) -> Result<()> {
        self.progress.finish()
    }

    /// Checks that `path` still names `file`.
    fn expect(&self, path: &Path, file: Ident) -> Result<Stat> {
        let changed = |why: &str| Error::Changed {
            path: path.to_owned(),
            why: why.to_owned(),
        };
        match rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if Ident::from(&stat) == self.progress.now(file) => Ok(stat),
            Ok(_) => Err(changed("it is another file now")),
            Err(Errno::NOENT | Errno::NOTDIR) => Err(changed("it is gone")),
            Err(error) => Err(error).doing("look at", path),
        }
    }

    /// Opens `path`, which names `file`, for writing, into `touched`.
    fn open_to_write(&mut self, path: &Path, file: Ident) -> Result<()> {
        if self.touched.contains_key(&file) {
            return Ok(());
        }
        let stat = self.expect(path, file)?;
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match rustix::fs::open(path, flags, Mode::empty()) {
            // The program had it open since before its mode forbade that. The record sets it back.
            Err(Errno::ACCESS) => {
                self.step("make a file writable")?;
                let mode = Mode::from_raw_mode(stat.st_mode) | Mode::RUSR | Mode::WUSR;
                rustix::fs::chmodat(CWD, path, mode, AtFlags::empty()).doing("make writable", path)?;
                let opened = rustix::fs::open(path, flags, Mode::empty());
                let _ = rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(stat.st_mode), AtFlags::empty());
                opened
            }
            opened => opened,
        };
        self.touched.insert(file, fd.doing("open for writing", path)?);
        Ok(())
    }

    fn bytes(&mut self, record: &Record) -> Result<()> {
        let path = &record.path;
        self.open_to_write(path, record.file)?;
        self.step("put bytes back")?;
        write_all_at(&self.touched[&record.file], record.at, &record.data)
            .doing("put bytes back into", path)?;
        self.set_length(record)
    }

    fn hole(&mut self, record: &Record) -> Result<()> {
        let path = &record.path;
        let len = record.data.as_slice().try_into().map_or(0, u64::from_le_bytes);
        self.open_to_write(path, record.file)?;
        self.step("make a hole again")?;
        let fd = &self.touched[&record.file];
        let size = rustix::fs::fstat(fd).doing("look at", path)?.st_size as u64;
        let end = record.at.saturating_add(len).min(size);
        if record.at < end {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let punched = match rustix::fs::fallocate(fd, flags, record.at, end - record.at) {
                Err(Errno::OPNOTSUPP) => write_zeros(fd, record.at..end),
                punched => punched,
            };
            punched.doing("make a hole again in", path)?;
        }
        self.set_length(record)
    }

    /// The length, mode, owner and time that go with bytes or a hole.
    fn set_length(&mut self, record: &Record) -> Result<()> {
        let path = &record.path;
        let fd = &self.touched[&record.file];
        let stat = rustix::fs::fstat(fd).doing("look at", path)?;
        if stat.st_size as u64 != record.before.size {
            (self.watch)("set a length back")?;
            rustix::fs::ftruncate(fd, record.before.size).doing("set back the length of", path)?;
        }
        self.dress(path, &record.before, false)
    }

    /// Sets an extended attribute back. One that gives rights (an access control list) changes the mode with it;
    /// the record of that comes next.
    fn extended(&mut self, record: &Record) -> Result<()> {
        let path = &record.path;
        self.expect(path, record.file)?;
        let Some(Attribute { name, value }) = Attribute::from_bytes(&record.data) else {
            return Ok(());
        };
        self.step("set an extended attribute back")?;
        let set = match value {
            Some(value) => rustix::fs::lsetxattr(path, &name, &value, XattrFlags::empty()),
            None => match rustix::fs::lremovexattr(path, &name) {
                Err(Errno::NODATA) => Ok(()),
                removed => removed,
            },
        };
        set.doing("set back an extended attribute of", path)?;
        self.sync_attributes(record)
    }

    fn sync_attributes(&self, record: &Record) -> Result<()> {
        if !self.sync || self.touched.contains_key(&record.file) {
            return Ok(());
        }
        match path_at::reopen(CWD, &record.path, OFlags::NOFOLLOW) {
            Ok(fd) => rustix::fs::fsync(fd).doing("sync", &record.path),
            Err(_) => path_at::sync_around(&record.path),
        }
    }

    fn attributes(&mut self, record: &Record) -> Result<()> {
        self.expect(&record.path, record.file)?;
        self.dress(&record.path, &record.before, true)?;
        self.sync_attributes(record)
    }

    /// Sets owner, mode and times back. Owner first: changing it clears set-user-ID.
    fn dress(&mut self, path: &Path, before: &State, both_times: bool) -> Result<()> {
        self.step("set attributes back")?;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let stat = rustix::fs::statat(CWD, path, flags).doing("look at", path)?;
        let is = State::from(&stat);
        if (is.uid, is.gid) != (before.uid, before.gid) {
            let (uid, gid) = (Uid::from_raw(before.uid), Gid::from_raw(before.gid));
            rustix::fs::chownat(CWD, path, Some(uid), Some(gid), flags)
                .doing("set back the owner of", path)?;
        }
        let is_link = seen::kind(&stat) == rustix::fs::FileType::Symlink;
        if !is_link && (is.mode != before.mode || (is.uid, is.gid) != (before.uid, before.gid)) {
            let mode = Mode::from_raw_mode(before.mode);
            rustix::fs::chmodat(CWD, path, mode, AtFlags::empty()).doing("set back the mode of", path)?;
        }
        if both_times {
            let set = rustix::fs::utimensat(CWD, path, &before.timestamps(), flags);
            return unless_not_ours(set, path);
        }
        set_mtime(path, before.mtime)
    }

    fn created(&mut self, record: &Record) -> Result<()> {
        let Some(spot) = spot(&record.path)? else {
            return Ok(());
        };
        if let Some(stat) = spot.look()? {
            self.step("remove what was made")?;
            let directory = seen::is_directory(&stat);
            let flags = if directory {
                AtFlags::REMOVEDIR
            } else {
                AtFlags::empty()
            };
            match rustix::fs::unlinkat(&spot.dir, spot.last, flags) {
                Err(Errno::NOTEMPTY | Errno::EXIST) => {
                    let why = "the program made it, and something else was put into it since".into();
                    return Err(Error::Changed {
                        path: record.path.clone(),
                        why,
                    });
                }
                removed => removed.doing("remove", &record.path)?,
            }
        }
        self.end_directory(&spot, record.dir_mtime)
    }

    fn removed(&mut self, record: &Record) -> Result<()> {
        let spot = needed_spot(&record.path)?;
        if record.kept == Kept::Name {
            self.link_again(&spot, record)?;
        } else {
            self.restore(&spot, record.seq, record.kept, record.file, &record.before)?;
        }
        self.end_directory(&spot, record.dir_mtime)
    }

    fn renamed(&mut self, record: &Record) -> Result<()> {
        let (from, to) = (needed_spot(&record.path)?, needed_spot(&record.to)?);
        let file = self.progress.now(record.file);
        let is = |stat: Option<Stat>| stat.map(|stat| Ident::from(&stat));
        match (is(from.look()?), is(to.look()?)) {
            (None, Some(there)) if there == file => {
                self.step("rename back")?;
                rename_to_free(&to, &from)?;
            }
            (Some(here), _) if here == file => {}
            (Some(_), Some(there)) if there == file => return Err(replaced(from.path)),
            _ => {
                let why = format!("it was renamed from {} and is not there", record.path.display());
                return Err(Error::Changed {
                    path: record.to.clone(),
                    why,
                });
            }
        }
        if record.kept != Kept::Nothing {
            self.restore(&to, record.seq, record.kept, record.other, &record.other_before)?;
        }
        self.end_directory(&from, record.dir_mtime)?;
        self.end_directory(&to, record.other_dir_mtime)
    }

    fn exchanged(&mut self, record: &Record) -> Result<()> {
        let (from, to) = (needed_spot(&record.path)?, needed_spot(&record.to)?);
        let (file, other) = (self.progress.now(record.file), self.progress.now(record.other));
        let is = |stat: Option<Stat>| stat.map(|stat| Ident::from(&stat));
        match (is(from.look()?), is(to.look()?)) {
            (Some(here), Some(there)) if (here, there) == (file, other) => {}
            (Some(here), Some(there)) if (here, there) == (other, file) => {
                self.step("exchange back")?;
                let flags = RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(&from.dir, from.last, &to.dir, to.last, flags)
                    .doing("exchange back", from.path)?;
            }
            _ => return Err(replaced(from.path)),
        }
        self.end_directory(&from, record.dir_mtime)?;
        self.end_directory(&to, record.other_dir_mtime)
    }

    /// Puts back what was removed or replaced, unless it is there.
    fn restore(&mut self, spot: &Spot<'_>, seq: u64, kept: Kept, file: Ident, before: &State) -> Result<()> {
        match spot.look()? {
            Some(stat) if Ident::from(&stat) == self.progress.now(file) => return Ok(()),
            Some(_) => return Err(replaced(spot.path)),
            None => {}
        }
        match kept {
            Kept::Nothing | Kept::Name => Ok(()),
            Kept::Link => {
                self.step("put a kept file back")?;
                rustix::fs::renameat(self.keep.fd(), kept_name(seq), &spot.dir, spot.last)
                    .doing("put back the kept file", self.keep.path_of(seq))?;
                if self.sync {
                    rustix::fs::fsync(self.keep.fd())
                        .doing("sync the directory of", self.keep.path_of(seq))?;
                }
                Ok(())
            }
            Kept::Copy | Kept::Directory => self.make_again(spot, seq, kept, file, before),
        }
    }

    /// Gives a file that has another name the removed one back.
    fn link_again(&mut self, spot: &Spot<'_>, record: &Record) -> Result<()> {
        match spot.look()? {
            Some(stat) if Ident::from(&stat) == self.progress.now(record.file) => return Ok(()),
            Some(_) => return Err(replaced(spot.path)),
            None => {}
        }
        self.expect(&record.to, record.file)?;
        self.step("link a file again")?;
        rustix::fs::linkat(CWD, &record.to, &spot.dir, spot.last, AtFlags::empty())
            .doing("link again", spot.path)
    }

    /// Makes a file or directory again beside its place, notes which it is now, and puts it there.
    fn make_again(
        &mut self,
        spot: &Spot<'_>,
        seq: u64,
        kept: Kept,
        file: Ident,
        before: &State,
    ) -> Result<()> {
        let fresh = format!(".twinpage-undo-{seq}");
        self.step("make a file again")?;
        remove_any(&spot.dir, &fresh, spot.path)?;
        if kept == Kept::Directory {
            rustix::fs::mkdirat(&spot.dir, &fresh, Mode::RWXU).doing("make again", spot.path)?;
            attributes::disinherit(&spot.dir, fresh.as_ref()).doing("make again", spot.path)?;
        } else {
            let name = kept_name(seq);
            let shown = self.keep.path_of(seq);
            let stat = rustix::fs::statat(self.keep.fd(), &name, AtFlags::SYMLINK_NOFOLLOW)
                .doing("find the kept file", &shown)?;
            keep::copy(self.keep.fd(), name.as_ref(), &shown, &spot.dir, &fresh, &stat)?;
        }
        self.step("dress a file made again")?;
        keep::dress(&spot.dir, &fresh, before).doing("set the mode of", spot.path)?;
        self.put_in_place(spot, &fresh, seq, file)
    }

    /// What was made again beside its place, as `fresh`, is noted to be `file`, and put there.
    fn put_in_place(&mut self, spot: &Spot<'_>, fresh: &str, seq: u64, file: Ident) -> Result<()> {
        if self.sync {
            keep::sync_file(&spot.dir, fresh, spot.path)?;
        }
        let stat =
            rustix::fs::statat(&spot.dir, fresh, AtFlags::SYMLINK_NOFOLLOW).doing("look at", spot.path)?;
        self.step("note a file made again")?;
        self.progress.set_moved(seq, file, Ident::from(&stat))?;
        self.step("put a file made again in place")?;
        rustix::fs::renameat(&spot.dir, fresh, &spot.dir, spot.last).doing("make again", spot.path)
    }

    /// The names of a directory are as they were: its time of the last write too, and all is safe.
    fn end_directory(&mut self, spot: &Spot<'_>, mtime: (i64, u32)) -> Result<()> {
        self.step("set the time of a directory")?;
        set_mtime(spot.dir_path, mtime)?;
        self.sync_directory(spot)
    }

    fn sync_directory(&self, spot: &Spot<'_>) -> Result<()> {
        if !self.sync {
            return Ok(());
        }
        match rustix::fs::fsync(&spot.dir) {
            // Opened with O_PATH, for want of permission to read it.
            Err(Errno::BADF) => path_at::sync_around(spot.dir_path),
            synced => synced.doing("sync the directory", spot.dir_path),
        }
    }
}

/// Where a name is to be put back; `None` when its directory is not there.
fn spot(path: &Path) -> Result<Option<Spot<'_>>> {
    let (Some(dir_path), Some(last)) = (path.parent(), path.file_name()) else {
        return Ok(None);
    };
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = match rustix::fs::open(dir_path, flags | OFlags::RDONLY, Mode::empty()) {
        Err(Errno::ACCESS) => rustix::fs::open(dir_path, flags | OFlags::PATH, Mode::empty()),
        opened => opened,
    };
    match opened {
        Ok(dir) => Ok(Some(Spot {
            dir,
            dir_path,
            last,
            path,
        })),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error).doing("open the directory", dir_path),
    }
}

fn needed_spot(path: &Path) -> Result<Spot<'_>> {
    spot(path)?.ok_or_else(|| Error::Changed {
        path: path.to_owned(),
        why: "the directory it was in is gone".into(),
    })
}

fn replaced(path: &Path) -> Error {
    Error::Changed {
        path: path.to_owned(),
        why: "another file was put in its place".into(),
    }
}

/// What is made again for a stored file is called so until it is whole.
fn name_beside(stored: &StoredFile) -> String {
    format!(".twinpage-again-{}", stored.file.ino)
}

/// Renames to a name that is free; not every file system can promise to see that it is.
fn rename_to_free(from: &Spot<'_>, to: &Spot<'_>) -> Result<()> {
    let flags = RenameFlags::NOREPLACE;
    let renamed = match rustix::fs::renameat_with(&from.dir, from.last, &to.dir, to.last, flags) {
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(&from.dir, from.last, &to.dir, to.last),
        renamed => renamed,
    };
    renamed.doing("rename back", from.path)
}

/// Removes what an earlier attempt left, if it did.
fn remove_any(dir: impl AsFd, name: &str, shown: &Path) -> Result<()> {
    for flags in [AtFlags::empty(), AtFlags::REMOVEDIR] {
        match rustix::fs::unlinkat(&dir, name, flags) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) if !flags.contains(AtFlags::REMOVEDIR) => {}
            Err(error) => return Err(error).doing("make again", shown),
        }
    }
    Ok(())
}

fn set_mtime(path: &Path, mtime: (i64, u32)) -> Result<()> {
    let set = rustix::fs::utimensat(CWD, path, &mtime_only(mtime), AtFlags::SYMLINK_NOFOLLOW);
    unless_not_ours(set, path)
}

/// The times of a file that belongs to someone else cannot be set, and are not promised.
fn unless_not_ours(set: std::result::Result<(), Errno>, path: &Path) -> Result<()> {
    match set {
        Err(Errno::PERM | Errno::ACCESS) => Ok(()),
        set => set.doing("set the times of", path),
    }
}
