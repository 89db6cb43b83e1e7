//! Recording changes to names: what is made, removed and renamed.

use super::Recorder;
use super::error::{Refusal, Result};
use super::format::{Draft, Kept, Kind, State};
use super::path_at::{self, Found};
use super::safety::Safety;
use super::seen;
use super::whole::sync_directory;
use super::{Ident, New, PathAt, Recorded};
use rustix::fs::{FileType, Mode, RenameFlags, Stat};
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// The directory of a name.
struct Directory {
    file: Ident,
    state: State,
}

impl Directory {
    /// Whether a call that removes this of it will fail: from one with the sticky bit a user removes what belongs to him
    /// (unlink(2)), and no user has rights over others here but root.
    fn protects(&self, stat: &Stat) -> bool {
        let user = rustix::process::geteuid();
        let is_ours = [self.state.uid, stat.st_uid].contains(&user.as_raw());
        self.state.mode & Mode::SVTX.bits() != 0 && !is_ours && !user.is_root()
    }
}

impl Recorder {
    pub(super) fn create_name(&mut self, place: PathAt<'_>, new: New) -> Result<Recorded> {
        let Some(found) = path_at::find(&mut self.opened, place, false)? else {
            return Ok(Recorded::Covered);
        };
        if found.stat.is_some() {
            return Ok(Recorded::Covered);
        }
        self.create_found(&found, new)
    }

    /// A name that is not there is about to be.
    pub(super) fn create_found(&mut self, found: &Found, new: New) -> Result<Recorded> {
        let Some(dir) = self.directory(found)? else {
            return Ok(Recorded::NotTracked);
        };
        self.record_created(found, &dir, new)
    }

    /// A name comes to be, or a name that was created comes to name something else.
    fn record_created(&mut self, found: &Found, dir: &Directory, new: New) -> Result<Recorded> {
        // What a known name comes to name, an undo of the first creation removes, unless it is a link:
        // then it names something old, and the name is no longer a sign of having been born.
        let known = match new {
            New::Thing => self.created.contains(&found.path),
            New::Link => self.created.remove(&found.path),
        };
        if known {
            return Ok(Recorded::Covered);
        }
        let draft = Draft {
            dir_mtime: dir.state.mtime,
            path: &found.path,
            ..Draft::new(Kind::Create)
        };
        let safety = self.safety_of_names(&[found], dir.file.dev);
        self.journal.change(safety, |journal| journal.append(&draft))?;
        match new {
            New::Link => self.note_renamed(safety, &[(dir, found)])?,
            New::Thing => drop(self.created.insert(found.path.clone())),
        }
        Ok(Recorded::Saved)
    }

    pub(super) fn unlink(&mut self, place: PathAt<'_>, still_open: bool) -> Result<Recorded> {
        let Some(found) = path_at::find(&mut self.opened, place, false)? else {
            return Ok(Recorded::Covered);
        };
        let Some(stat) = found.stat else {
            return Ok(Recorded::Covered);
        };
        if seen::is_directory(&stat) {
            return Ok(Recorded::Covered);
        }
        if matches!(
            seen::kind(&stat),
            FileType::BlockDevice | FileType::CharacterDevice
        ) {
            return Ok(Recorded::NotTracked);
        }
        self.remove(&found, &stat, still_open, Kind::Unlink)
    }

    pub(super) fn rmdir(&mut self, place: PathAt<'_>) -> Result<Recorded> {
        let Some(found) = path_at::find(&mut self.opened, place, false)? else {
            return Ok(Recorded::Covered);
        };
        let Some(stat) = found.stat.filter(seen::is_directory) else {
            return Ok(Recorded::Covered);
        };
        self.remove(&found, &stat, false, Kind::Rmdir)
    }

    fn remove(&mut self, found: &Found, stat: &Stat, still_open: bool, kind: Kind) -> Result<Recorded> {
        let Some(dir) = self.directory(found)? else {
            return Ok(Recorded::NotTracked);
        };
        if dir.protects(stat) {
            return Ok(Recorded::Covered);
        }
        self.note_nameless(stat);
        if still_open {
            self.will_be_known(&found.path, stat)?;
        }
        // A directory is recorded even when it was born: names that come and go in it need it.
        if kind == Kind::Unlink && self.created.contains(&found.path) {
            return Ok(Recorded::Covered);
        }
        let draft = Draft {
            file: Ident::from(stat),
            before: State::from(stat),
            dir_mtime: dir.state.mtime,
            path: &found.path,
            ..Draft::new(kind)
        };
        let safety = self.safety_of_names(&[found], dir.file.dev);
        let other = self.links.other_name(stat, &found.path);
        let mut kept = (Kept::Nothing, 0);
        if let Some(other) = other.filter(|_| kind == Kind::Unlink) {
            // A record mentions it, so it must not go without one.
            self.created.remove(&other);
            if let (Safety::Synced, Some(dir)) = (safety, other.parent()) {
                sync_directory(dir)?;
            }
            let draft = Draft {
                kept: Kept::Name,
                to: &other,
                ..draft
            };
            self.journal.change(safety, |journal| journal.append(&draft))?;
        } else {
            self.journal.change(safety, |journal| {
                kept = (journal.keep(found, stat)?, journal.next_seq());
                journal.append(&Draft {
                    kept: kept.0,
                    ..draft
                })
            })?;
        }
        self.note_kept(stat, kept);
        self.forget_below(&found.path);
        Ok(Recorded::Saved)
    }

    /// A name is removed with a record. What is made again at it, or below it where it was a directory, needs records of
    /// its own, which are undone before that.
    fn forget_below(&mut self, path: &Path) {
        let from = (Bound::Included(path), Bound::Unbounded);
        let below = self.created.range::<Path, _>(from);
        let below: Vec<PathBuf> = below.take_while(|name| name.starts_with(path)).cloned().collect();
        for name in below {
            self.created.remove(&name);
        }
    }

    pub(super) fn rename(
        &mut self,
        from: PathAt<'_>,
        to: PathAt<'_>,
        flags: u32,
        still_open: bool,
    ) -> Result<Recorded> {
        let (Some(from), Some(to)) = (
            path_at::find(&mut self.opened, from, false)?,
            path_at::find(&mut self.opened, to, false)?,
        ) else {
            return Ok(Recorded::Covered);
        };
        let Some(stat) = from.stat else {
            return Ok(Recorded::Covered);
        };
        let known = RenameFlags::NOREPLACE | RenameFlags::EXCHANGE;
        if flags & !known.bits() != 0 {
            return Err(Refusal::RenameFlags {
                path: from.path,
                flags,
            }
            .into());
        }
        let flags = RenameFlags::from_bits_truncate(flags);
        if flags.contains(RenameFlags::EXCHANGE) {
            return self.exchange(&from, &to, &stat);
        }
        let replaced = to.stat;
        let same = replaced.is_some_and(|other| Ident::from(&other) == Ident::from(&stat));
        let mismatch = replaced.is_some_and(|other| seen::is_directory(&other) != seen::is_directory(&stat));
        if same || mismatch || (flags.contains(RenameFlags::NOREPLACE) && replaced.is_some()) {
            return Ok(Recorded::Covered);
        }
        if let Some(replaced) = replaced.filter(|_| still_open) {
            self.will_be_known(&to.path, &replaced)?;
        }
        self.rename_found(&from, &to, &stat)
    }

    fn rename_found(&mut self, from: &Found, to: &Found, stat: &Stat) -> Result<Recorded> {
        let Some((dir, other_dir)) = self.directories(from, to)? else {
            return Ok(Recorded::NotTracked);
        };
        if dir.protects(stat) || (to.stat.as_ref()).is_some_and(|replaced| other_dir.protects(replaced)) {
            return Ok(Recorded::Covered);
        }
        if let Some(replaced) = &to.stat {
            self.note_nameless(replaced);
        }
        // A replaced file that was born in this epoch is not missed.
        let replaced = to
            .stat
            .filter(|other| seen::is_directory(other) || !self.created.contains(&to.path));
        if replaced.is_none() && !seen::is_directory(stat) && self.created.contains(&from.path) {
            // To undo it is to remove what was born from there. The old name stays one that was created.
            self.links.renamed(&from.path, &to.path);
            return self.record_created(to, &other_dir, New::Thing);
        }
        let draft = Draft {
            file: Ident::from(stat),
            before: State::from(stat),
            other: replaced.as_ref().map_or(Ident::NONE, Ident::from),
            other_before: replaced.as_ref().map_or_else(State::default, State::from),
            dir_mtime: dir.state.mtime,
            other_dir_mtime: other_dir.state.mtime,
            path: &from.path,
            to: &to.path,
            ..Draft::new(Kind::Rename)
        };
        let mut kept = (Kept::Nothing, 0);
        let safety = self.safety_of_names(&[from, to], dir.file.dev);
        self.journal.change(safety, |journal| {
            if let Some(other) = &replaced {
                kept = (journal.keep(to, other)?, journal.next_seq());
            }
            journal.append(&Draft {
                kept: kept.0,
                ..draft
            })
        })?;
        self.note_renamed(safety, &[(&dir, from), (&other_dir, to)])?;
        if let Some(other) = &replaced {
            self.note_kept(other, kept);
        }
        self.forget_created(&[&from.path, &to.path], seen::is_directory(stat));
        self.links.renamed(&from.path, &to.path);
        Ok(Recorded::Saved)
    }

    fn exchange(&mut self, from: &Found, to: &Found, stat: &Stat) -> Result<Recorded> {
        let Some(other) = to.stat else {
            return Ok(Recorded::Covered);
        };
        if Ident::from(&other) == Ident::from(stat) {
            return Ok(Recorded::Covered);
        }
        let Some((dir, other_dir)) = self.directories(from, to)? else {
            return Ok(Recorded::NotTracked);
        };
        let draft = Draft {
            file: Ident::from(stat),
            before: State::from(stat),
            other: Ident::from(&other),
            other_before: State::from(&other),
            dir_mtime: dir.state.mtime,
            other_dir_mtime: other_dir.state.mtime,
            path: &from.path,
            to: &to.path,
            ..Draft::new(Kind::Exchange)
        };
        let safety = self.safety_of_names(&[from, to], dir.file.dev);
        self.journal.change(safety, |journal| journal.append(&draft))?;
        self.note_renamed(safety, &[(&dir, from), (&other_dir, to)])?;
        let directories = seen::is_directory(stat) || seen::is_directory(&other);
        self.forget_created(&[&from.path, &to.path], directories);
        self.links.renamed(&from.path, &to.path);
        self.links.renamed(&to.path, &from.path);
        Ok(Recorded::Saved)
    }

    /// Names that moved no longer say what was born; when a directory moved, none below it does.
    fn forget_created(&mut self, paths: &[&Path], directory: bool) {
        if directory {
            self.created.clear();
            self.opened.clear();
        }
        for &path in paths {
            self.created.remove(path);
        }
    }

    fn directories(&mut self, from: &Found, to: &Found) -> Result<Option<(Directory, Directory)>> {
        for path in [&from.path, &to.path] {
            if self.journal.dir.starts_with(path) {
                return Err(Refusal::OwnState(path.clone()).into());
            }
        }
        let (Some(dir), Some(other_dir)) = (self.directory(from)?, self.directory(to)?) else {
            return Ok(None);
        };
        Ok(Some((dir, other_dir)))
    }

    /// Old files get these names by a change with a record of that safety.
    fn note_renamed(&mut self, safety: Safety, names: &[(&Directory, &Found)]) -> Result<()> {
        if safety == Safety::Named {
            for (dir, name) in names {
                self.journal.note_renamed_in(dir.file, name)?;
            }
        }
        Ok(())
    }

    /// The directory of a name that is about to change; `None` on a pseudo file system.
    fn directory(&mut self, found: &Found) -> Result<Option<Directory>> {
        let stat = seen::stat(&found.parent.fd)?;
        if !self.is_tracked(&found.parent.fd, &stat)? {
            return Ok(None);
        }
        self.not_our_own(&found.path)?;
        self.touch_directory(found, &stat)?;
        Ok(Some(Directory {
            file: Ident::from(&stat),
            state: State::from(&stat),
        }))
    }
}
