//! Names of files beside the one they were opened by.
//!
//! * A file whose last name is removed while the program has it open is **nameless**: its content belongs to the
//!   checkpoint itself (`crate::objects`), and no record is needed for it.
//! * Until the checkpoint that first holds it is durable, a rollback may have to give it its old name and content
//!   back: as long as it is kept by a link, records of its changes name that link.
//! * Other names are known when the program made them (`link`); a name is believed only after a look.

use super::Recorder;
use super::error::{Refusal, Result};
use super::format::Kept;
use super::keep::relative_name;
use super::path_at;
use super::reach::Reach;
use super::seen;
use super::{Epoch, Ident, OpenFile, PathAt, Target};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use twinpage_os::name;

/// Files whose other names are remembered, and listed by every checkpoint.
const MADE_MAX: usize = 1 << 12;

/// A file and its names, as a checkpoint lists them.
pub type Linked = (Ident, Vec<OsString>);

/// Other names of files.
#[derive(Default)]
pub(super) struct Links {
    /// Names that files got by `link`.
    made: HashMap<Ident, Vec<PathBuf>>,
    /// Files kept by links, and the records that keep each.
    kept: HashMap<Ident, Vec<u64>>,
    /// Files that were: the record, and the epoch with whose commit the link goes away.
    unkept: HashMap<Ident, Vec<(u64, Epoch)>>,
}

impl Links {
    /// A name of the file that is not `except`.
    pub(super) fn other_name(&self, stat: &Stat, except: &Path) -> Option<PathBuf> {
        let file = Ident::from(stat);
        let names = |path: &&PathBuf| {
            path.as_path() != except
                && rustix::fs::statat(CWD, path.as_path(), AtFlags::SYMLINK_NOFOLLOW)
                    .is_ok_and(|named| Ident::from(&named) == file)
        };
        self.made.get(&file)?.iter().find(names).cloned()
    }

    /// A name, and with it all below it, may become another.
    pub(super) fn renamed(&mut self, from: &Path, to: &Path) {
        for names in self.made.values_mut() {
            let moved = names.iter().filter_map(|name| {
                let below = name.strip_prefix(from).ok()?;
                let name = if below.as_os_str().is_empty() {
                    to.to_owned()
                } else {
                    to.join(below)
                };
                (!names.contains(&name)).then_some(name)
            });
            let moved: Vec<PathBuf> = moved.collect();
            names.extend(moved);
        }
    }

    /// Drops names that are none any more, when there are many.
    fn tidy(&mut self) {
        if self.made.len() < MADE_MAX {
            return;
        }
        let is_name = |file: &Ident, path: &PathBuf| {
            rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|named| named.st_nlink > 1 && Ident::from(&named) == *file)
        };
        self.made
            .retain(|file, names| names.iter().filter(|name| is_name(file, name)).count() > 1);
        if self.made.len() > MADE_MAX / 2 {
            self.made.clear(); // what is open and loses a name is refused then
        }
    }

    /// Whether the file is kept by a link.
    pub(super) fn is_kept(&self, file: &Ident) -> bool {
        self.kept.contains_key(file)
    }

    /// Epoch `epoch` is captured, `durable` is durable, and the files of records `dead` are kept no longer.
    pub(super) fn begin_epoch(&mut self, epoch: Epoch, durable: Epoch, dead: &[u64]) {
        self.unkept.retain(|_, links| {
            links.retain(|(_, gone)| *gone > durable);
            !links.is_empty()
        });
        if dead.is_empty() {
            return;
        }
        for (file, records) in &mut self.kept {
            for seq in records.extract_if(.., |seq| dead.contains(seq)) {
                self.unkept.entry(*file).or_default().push((seq, epoch));
            }
        }
        self.kept.retain(|_, records| !records.is_empty());
    }
}

impl Recorder {
    /// The program is about to give the file `old` the name `new` too.
    ///
    /// # Errors
    /// [`super::Error::Io`] when a name cannot be looked up.
    pub fn note_link(&mut self, old: Target<'_>, new: PathAt<'_>) -> Result<()> {
        let Some(new) = path_at::find(&mut self.opened, new, false)? else {
            return Ok(());
        };
        let Ok(opened) = open_path(old) else {
            return Ok(()); // the call will fail
        };
        let stat = seen::stat(&opened)?;
        if stat.st_nlink == 0 {
            // It gets its first name, and was not synced with the epochs that wrote it.
            match path_at::reopen(CWD, &name::of_open(&opened), OFlags::empty()) {
                Ok(file) => self.sync(file),
                Err(_) => self.sync_everything(),
            }
        }
        let (file, old) = (Ident::from(&stat), self.name_of(opened.as_fd(), &stat)?);
        self.links.tidy();
        let names = self.links.made.entry(file).or_default();
        for name in old.into_iter().chain([new.path]) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Ok(())
    }

    /// Names of files that the program gave several, for the checkpoint. Also of files that are closed: they may
    /// be opened, and lose a name, after a resume.
    #[must_use]
    pub fn links(&self) -> Vec<Linked> {
        let bytes = |path: &PathBuf| path.clone().into_os_string();
        let made = self.links.made.iter();
        let mut links: Vec<Linked> = made
            .map(|(file, names)| (*file, names.iter().map(bytes).collect()))
            .collect();
        links.sort_by_key(|(file, _)| (file.dev, file.ino));
        links
    }

    /// The names that a checkpoint listed. Files that had to be made again are others now: `moved`.
    pub fn set_links(&mut self, links: &[Linked], moved: &[(Ident, Ident)]) {
        for (file, names) in links {
            let now = moved.iter().find(|(old, _)| old == file);
            let names = names.iter().map(PathBuf::from).collect();
            self.links.made.insert(now.map_or(*file, |(_, new)| *new), names);
        }
    }

    /// The name of an open file, perhaps another than it was opened by; `None` when it has none, and when others
    /// removed the one it had: what names they know besides cannot be found.
    ///
    /// # Errors
    /// [`Refusal::NoName`] when it has one that is not known.
    pub fn name_of(&self, fd: BorrowedFd<'_>, stat: &Stat) -> Result<Option<PathBuf>> {
        match path_at::name_of(fd, stat) {
            Ok(path) => Ok(Some(path)),
            Err(unknown) => match self.links.other_name(stat, Path::new("")) {
                Some(path) => Ok(Some(path)),
                None if unknown.is_of_removed_name() => Ok(None),
                None => match self.count(Ident::from(stat), || rustix::fs::fstat(fd)) {
                    Ok(0) => Ok(None),
                    _ => Err(unknown),
                },
            },
        }
    }

    /// What a checkpoint lists of the file behind a descriptor; `None` for what is not a regular file with a
    /// name. A file that did not change in this epoch is called `known`, if that is given: its name was looked up
    /// before.
    ///
    /// # Errors
    /// As [`Recorder::name_of`], and when it cannot be looked at.
    pub fn open_file(&self, fd: BorrowedFd<'_>, known: Option<&Path>) -> Result<Option<OpenFile>> {
        let stat = seen::stat(fd)?;
        if !seen::is_regular(&stat) {
            return Ok(None);
        }
        if let Some(known) = known
            && !self.files.contains_key(&Ident::from(&stat))
        {
            return Ok(Some(OpenFile::named(known.to_owned(), &stat)));
        }
        Ok(self.name_of(fd, &stat)?.map(|path| OpenFile::named(path, &stat)))
    }

    /// Names of the file that the program can see. `look` looks at the file again: links of ours go away with a
    /// commit in another thread, so what was seen before may still count one.
    fn count(&self, file: Ident, look: impl Fn() -> rustix::io::Result<Stat>) -> rustix::io::Result<u64> {
        loop {
            let ours = self.kept_links(file);
            let links = look()?.st_nlink;
            if self.kept_links(file) == ours {
                return Ok(links.saturating_sub(ours));
            }
        }
    }

    /// A name of the file is about to go. A directory has but one.
    pub(super) fn note_nameless(&mut self, stat: &Stat) {
        let file = Ident::from(stat);
        if seen::is_directory(stat) || stat.st_nlink <= 1 + self.kept_links(file) {
            self.nameless.insert(file);
        }
    }

    /// Links in the state directory that are there now.
    fn kept_links(&self, file: Ident) -> u64 {
        let kept = self.links.kept.get(&file).into_iter().flatten().copied();
        let unkept = self.links.unkept.get(&file).into_iter().flatten();
        let ours = kept.chain(unkept.map(|(seq, _)| *seq)).filter(|seq| {
            rustix::fs::statat(CWD, self.journal.kept_path(*seq), AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|link| Ident::from(&link) == file)
        });
        ours.count() as u64
    }

    /// Whether the file is nameless, and no rollback gives it a name back.
    pub(super) fn is_nameless(&self, fd: BorrowedFd<'_>, stat: &Stat) -> bool {
        let file = Ident::from(stat);
        let unkept = || self.links.unkept.contains_key(&file) && !self.links.is_kept(&file);
        stat.st_nlink == 0 || unkept() && matches!(self.name_of(fd, stat), Ok(None))
    }

    /// The name that a record of a change to the file gives.
    pub(super) fn name(&self, reach: &Reach<'_>, stat: &Stat) -> Result<PathBuf> {
        let unknown = match reach.name(stat) {
            Ok(path) => return Ok(path),
            Err(error) => error,
        };
        if let Some(path) = self.links.other_name(stat, Path::new("")) {
            return Ok(path);
        }
        match self.links.kept.get(&Ident::from(stat)) {
            // The newest goes away last.
            Some(records) if let Some(seq) = records.last() => Ok(relative_name(*seq)),
            _ => Err(unknown),
        }
    }

    /// A file that the program has open loses the name `path`: another must be known, or none be left.
    pub(super) fn will_be_known(&self, path: &Path, stat: &Stat) -> Result<()> {
        let look = || rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
        if seen::is_directory(stat) || self.count(Ident::from(stat), look).is_ok_and(|names| names <= 1) {
            return Ok(());
        }
        match self.links.other_name(stat, path) {
            Some(_) => Ok(()),
            None => Err(Refusal::StillOpen(path.to_owned()).into()),
        }
    }

    /// Record `seq` keeps the file.
    pub(super) fn note_kept(&mut self, stat: &Stat, (kept, seq): (Kept, u64)) {
        if kept == Kept::Link {
            self.links.kept.entry(Ident::from(stat)).or_default().push(seq);
        }
    }
}

/// The file itself, for a look.
fn open_path(target: Target<'_>) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match target {
        Target::Open(fd) => rustix::io::fcntl_dupfd_cloexec(fd, 3),
        Target::Named { place, follow } => {
            let flags = if follow { flags } else { flags | OFlags::NOFOLLOW };
            rustix::fs::openat(place.dir.unwrap_or(CWD), place.name, flags, Mode::empty())
        }
    }
}

impl OpenFile {
    pub(super) fn named(path: PathBuf, stat: &Stat) -> OpenFile {
        let state = super::format::State::from(stat);
        OpenFile {
            path,
            file: Ident::from(stat),
            size: state.size,
            mtime: state.mtime,
        }
    }
}
