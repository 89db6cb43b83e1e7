//! Recording changes to what files hold: their bytes, lengths and attributes.

use super::Recorder;
use super::attributes;
use super::error::{Doing, Error, Refusal, Result};
use super::format::{Attribute, Draft, Kind, State};
use super::journal::Journal;
use super::options::OWN_MAX;
use super::path_at::{self, Found};
use super::reach::Reach;
use super::recorder::Tracked;
use super::seen;
use super::{Durability, Ident, PathAt, Recorded, Target};
use rustix::fd::BorrowedFd;
use rustix::fs::{OFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::ops::Range;
use twinpage_os::name;

/// The mode bits of `fallocate` (linux/falloc.h).
mod falloc {
    pub(super) const KEEP_SIZE: u32 = 0x01;
    pub(super) const PUNCH_HOLE: u32 = 0x02;
    pub(super) const COLLAPSE_RANGE: u32 = 0x08;
    pub(super) const ZERO_RANGE: u32 = 0x10;
    pub(super) const INSERT_RANGE: u32 = 0x20;
    pub(super) const UNSHARE_RANGE: u32 = 0x40;
    pub(super) const WRITE_ZEROES: u32 = 0x80;
}

/// What is to be saved of a file: these bytes, as far as they are there and not saved yet.
struct Save {
    range: Range<u64>,
    /// How far the range may be widened, so that neighbours need no record of their own.
    grain: u64,
}

impl Recorder {
    pub(super) fn write(&mut self, fd: BorrowedFd<'_>, at: Option<u64>, len: u64) -> Result<Recorded> {
        let stat = seen::stat(fd)?;
        if !self.has_content(fd, &stat)? {
            return Ok(Recorded::NotTracked);
        }
        if len == 0 {
            return Ok(Recorded::Covered);
        }
        let reach = Reach::Open(fd);
        self.note_change(&stat, &reach)?;
        let Some(file) = self.files.get(&Ident::from(&stat)) else {
            return Ok(Recorded::Covered);
        };
        if file.born {
            return Ok(Recorded::Covered);
        }
        let start = match at {
            Some(at) => at,
            None => {
                let at = rustix::fs::tell(fd).doing("find the offset of", name::of_open(fd))?;
                // Only an offset inside the old content makes it matter whether the write appends.
                if at < file.base && appends(fd)? {
                    stat.st_size as u64
                } else {
                    at
                }
            }
        };
        // A record costs a sync under Disk: save more at a time.
        let grain = if self.journal.durability == Durability::Disk {
            64 << 10
        } else {
            4 << 10
        };
        self.save(
            &reach,
            &stat,
            Some(Save {
                range: start..start.saturating_add(len),
                grain,
            }),
        )
    }

    pub(super) fn set_len(&mut self, target: Target<'_>, len: u64) -> Result<Recorded> {
        self.with_target(target, |recorder, reach, stat| {
            // From the new end on; a file that grows has nothing there.
            let save = Save {
                range: len..u64::MAX,
                grain: 1,
            };
            recorder.save(reach, stat, Some(save))
        })
    }

    pub(super) fn allocate(&mut self, fd: BorrowedFd<'_>, mode: u32, at: u64, len: u64) -> Result<Recorded> {
        let stat = seen::stat(fd)?;
        if !self.has_content(fd, &stat)? {
            return Ok(Recorded::NotTracked);
        }
        let moves = falloc::COLLAPSE_RANGE | falloc::INSERT_RANGE;
        let erases = falloc::PUNCH_HOLE | falloc::ZERO_RANGE | falloc::WRITE_ZEROES;
        let reach = Reach::Open(fd);
        if mode & !(moves | erases | falloc::KEEP_SIZE | falloc::UNSHARE_RANGE) != 0 {
            let path = self.name(&reach, &stat)?;
            return Err(Refusal::UnknownMode { path, mode }.into());
        }
        self.note_change(&stat, &reach)?;
        let end = if mode & moves == 0 {
            at.saturating_add(len)
        } else {
            u64::MAX // what lies behind moves
        };
        let save = Save {
            range: at..end,
            grain: 1,
        };
        self.save(&reach, &stat, (mode & (moves | erases) != 0).then_some(save))
    }

    /// `open`: a new name, or an emptied file, or nothing.
    pub(super) fn open(&mut self, place: PathAt<'_>, flags: OFlags) -> Result<Recorded> {
        // An O_TMPFILE has no name, and an O_PATH changes nothing.
        if flags.contains(OFlags::TMPFILE) || flags.contains(OFlags::PATH) {
            return Ok(Recorded::Covered);
        }
        if !flags.intersects(OFlags::CREATE | OFlags::TRUNC) {
            return Ok(Recorded::Covered);
        }
        let follow = !flags.contains(OFlags::NOFOLLOW) && !flags.contains(OFlags::CREATE | OFlags::EXCL);
        let Some(found) = path_at::find(&mut self.opened, place, follow)? else {
            return Ok(Recorded::Covered);
        };
        match found.stat {
            None if flags.contains(OFlags::CREATE) => self.create_found(&found, super::New::Thing),
            None => Ok(Recorded::Covered),
            Some(_) if flags.contains(OFlags::CREATE | OFlags::EXCL) => Ok(Recorded::Covered),
            Some(stat) if flags.contains(OFlags::TRUNC) => self.set_len_found(&found, &stat, 0),
            Some(_) => Ok(Recorded::Covered),
        }
    }

    fn set_len_found(&mut self, found: &Found, stat: &Stat, len: u64) -> Result<Recorded> {
        self.with_found(found, stat, |recorder, reach, stat| {
            recorder.save(
                reach,
                stat,
                Some(Save {
                    range: len..u64::MAX,
                    grain: 1,
                }),
            )
        })
    }

    pub(super) fn attributes(&mut self, target: Target<'_>) -> Result<Recorded> {
        match target {
            Target::Open(fd) => {
                let stat = seen::stat(fd)?;
                if self.is_nameless(fd, &stat) || !self.is_tracked(fd, &stat)? {
                    return Ok(Recorded::NotTracked);
                }
                self.save_attributes(&Reach::Open(fd), &stat)
            }
            Target::Named { place, follow } => {
                let Some(found) = path_at::find(&mut self.opened, place, follow)? else {
                    return Ok(Recorded::Covered);
                };
                let Some(stat) = found.stat else {
                    return Ok(Recorded::Covered);
                };
                if !self.is_tracked_name(&found, &stat)? {
                    return Ok(Recorded::NotTracked);
                }
                self.not_our_own(&found.path)?;
                self.save_attributes(&Reach::Named(&found), &stat)
            }
        }
    }

    pub(super) fn extended_attribute(&mut self, target: Target<'_>, name: &OsStr) -> Result<Recorded> {
        match target {
            Target::Open(fd) => {
                let stat = seen::stat(fd)?;
                if self.is_nameless(fd, &stat) || !self.is_tracked(fd, &stat)? {
                    return Ok(Recorded::NotTracked);
                }
                let mut value = vec![0; attributes::LONGEST];
                let len = rustix::fs::fgetxattr(fd, name, &mut value[..]);
                self.save_extended(&Reach::Open(fd), &stat, name, (len, value))
            }
            Target::Named { place, follow } => {
                let Some(found) = path_at::find(&mut self.opened, place, follow)? else {
                    return Ok(Recorded::Covered);
                };
                let Some(stat) = found.stat else {
                    return Ok(Recorded::Covered);
                };
                if !self.is_tracked_name(&found, &stat)? {
                    return Ok(Recorded::NotTracked);
                }
                self.not_our_own(&found.path)?;
                let mut value = vec![0; attributes::LONGEST];
                let len = rustix::fs::lgetxattr(&found.path, name, &mut value[..]);
                self.save_extended(&Reach::Named(&found), &stat, name, (len, value))
            }
        }
    }

    fn save_extended(
        &mut self,
        reach: &Reach<'_>,
        stat: &Stat,
        name: &OsStr,
        (len, mut value): (Result<usize, Errno>, Vec<u8>),
    ) -> Result<Recorded> {
        let value = match len {
            Ok(len) => {
                value.truncate(len);
                Some(value)
            }
            Err(Errno::NODATA) => None,
            Err(_) => return Ok(Recorded::Covered), // the call will fail too
        };
        // An access control list changes the mode with it.
        self.save_attributes(reach, stat)?;
        let path = self.name(reach, stat)?;
        let once = !seen::is_directory(stat);
        let safety = self.safety_of_content(stat.st_dev);
        let Some(file) = self.files.get_mut(&Ident::from(stat)) else {
            return Ok(Recorded::Covered);
        };
        let is_saved = file.extended.iter().any(|saved| saved == name);
        if once && (file.born || is_saved || self.created.contains(&path)) {
            return Ok(Recorded::Covered);
        }
        let draft = Draft {
            file: Ident::from(stat),
            before: State::from(stat),
            path: &path,
            ..Draft::new(Kind::Extended)
        };
        let name = name.to_owned();
        let data = Attribute {
            name: name.clone(),
            value,
        };
        self.journal
            .change(safety, |journal| journal.append_data(&draft, &data.to_bytes()))?;
        file.extended.push(name);
        Ok(Recorded::Saved)
    }

    /// Whether the file is regular and has a name a rollback could find it by.
    fn has_content(&mut self, fd: BorrowedFd<'_>, stat: &Stat) -> Result<bool> {
        Ok(seen::is_regular(stat) && !self.is_nameless(fd, stat) && self.is_tracked(fd, stat)?)
    }

    fn with_target(
        &mut self,
        target: Target<'_>,
        then: impl FnOnce(&mut Recorder, &Reach<'_>, &Stat) -> Result<Recorded>,
    ) -> Result<Recorded> {
        match target {
            Target::Open(fd) => {
                let stat = seen::stat(fd)?;
                if !self.has_content(fd, &stat)? {
                    return Ok(Recorded::NotTracked);
                }
                let reach = Reach::Open(fd);
                self.note_change(&stat, &reach)?;
                then(self, &reach, &stat)
            }
            Target::Named { place, follow } => {
                let Some(found) = path_at::find(&mut self.opened, place, follow)? else {
                    return Ok(Recorded::Covered);
                };
                let Some(stat) = found.stat else {
                    return Ok(Recorded::Covered);
                };
                self.with_found(&found, &stat, then)
            }
        }
    }

    fn with_found(
        &mut self,
        found: &Found,
        stat: &Stat,
        then: impl FnOnce(&mut Recorder, &Reach<'_>, &Stat) -> Result<Recorded>,
    ) -> Result<Recorded> {
        if !self.is_tracked_name(found, stat)? {
            return Ok(Recorded::NotTracked);
        }
        if !seen::is_regular(stat) {
            return Ok(Recorded::Covered);
        }
        self.not_our_own(&found.path)?;
        let reach = Reach::Named(found);
        self.note_change(stat, &reach)?;
        match then(self, &reach, stat) {
            // The call will meet the same lock, and change nothing.
            Err(Error::Refused(Refusal::Unreadable(_))) if !is_writable(found) => Ok(Recorded::Covered),
            done => done,
        }
    }

    /// Saves bytes of a touched file, and its length and time of the last write in any case.
    fn save(&mut self, reach: &Reach<'_>, stat: &Stat, save: Option<Save>) -> Result<Recorded> {
        let ident = Ident::from(stat);
        let is_few = self.files.len() <= OWN_MAX;
        let Some(file) = self.files.get(&ident) else {
            return Ok(Recorded::Covered);
        };
        let range = save.map_or(0..0, |save| wanted(&save, file.base.min(stat.st_size as u64)));
        if file.born || (file.sized && file.saved.gap(range.clone()).is_none()) {
            return Ok(Recorded::Covered);
        }
        let path = self.name(reach, stat)?;
        if !self.links.is_kept(&ident) {
            self.not_our_own(&path)?;
        }
        let safety = self.safety_of_content(stat.st_dev);
        let Some(file) = self.files.get_mut(&ident) else {
            return Ok(Recorded::Covered);
        };
        if self.created.contains(&path) {
            file.born = true; // the name it was touched by first was another
            return Ok(Recorded::Covered);
        }
        let draft = Draft {
            file: ident,
            before: State {
                size: file.base,
                ..State::from(stat)
            },
            path: &path,
            ..Draft::new(Kind::Bytes)
        };
        self.journal.change(safety, |journal| {
            save_gaps(journal, file, &draft, range.clone(), reach)
        })?;
        if !is_few && self.journal.durability == Durability::Memory {
            file.own = None;
        }
        file.sized = true;
        file.saved.add(range);
        Ok(Recorded::Saved)
    }

    fn save_attributes(&mut self, reach: &Reach<'_>, stat: &Stat) -> Result<Recorded> {
        self.note_change(stat, reach)?;
        let path = self.name(reach, stat)?;
        let safety = self.safety_of_content(stat.st_dev);
        let Some(file) = self.files.get_mut(&Ident::from(stat)) else {
            return Ok(Recorded::Covered);
        };
        file.sync_all = true;
        // Of a directory every change is recorded: an undo in between may depend on its mode.
        let once = !seen::is_directory(stat);
        if once && (file.born || file.attributes || self.created.contains(&path)) {
            return Ok(Recorded::Covered);
        }
        let (ident, before) = (Ident::from(stat), State::from(stat));
        let draft = Draft {
            file: ident,
            before,
            path: &path,
            ..Draft::new(Kind::Attributes)
        };
        self.journal.change(safety, |journal| journal.append(&draft))?;
        file.attributes = true;
        Ok(Recorded::Saved)
    }
}

/// Appends the parts of `range` that are not saved; when there are none, a record of the length alone.
fn save_gaps(
    journal: &mut Journal,
    file: &mut Tracked,
    draft: &Draft<'_>,
    range: Range<u64>,
    reach: &Reach<'_>,
) -> Result<()> {
    let mut gap = file.saved.gap(range.clone());
    if gap.is_none() {
        return journal.append(draft);
    }
    if file.own.is_none() {
        file.own = Some(reach.open().map_err(|error| unreadable(error, draft.path))?);
    }
    let own = file.own.as_ref().filter(|own| own.readable);
    let own = own.ok_or_else(|| Refusal::Unreadable(draft.path.to_owned()))?;
    while let Some(part) = gap {
        journal.append_content(draft, &own.fd, own.is_ours, part.clone())?;
        gap = file.saved.gap(part.end..range.end);
    }
    Ok(())
}

fn is_writable(found: &Found) -> bool {
    let (access, flags) = (rustix::fs::Access::WRITE_OK, rustix::fs::AtFlags::EACCESS);
    rustix::fs::accessat(&found.parent.fd, &found.last, access, flags).is_ok()
}

fn unreadable(error: rustix::io::Errno, path: &std::path::Path) -> Error {
    match error {
        rustix::io::Errno::ACCESS => Refusal::Unreadable(path.to_owned()).into(),
        _ => Error::Io {
            doing: "open",
            path: path.to_owned(),
            source: error.into(),
        },
    }
}

/// What to save: the range widened to its grain, and no more than the old content.
fn wanted(save: &Save, content: u64) -> Range<u64> {
    let start = save.range.start - save.range.start % save.grain;
    let end = save
        .range
        .end
        .checked_next_multiple_of(save.grain)
        .unwrap_or(u64::MAX);
    let end = end.min(content);
    if save.range.start >= content {
        0..0
    } else {
        start..end
    }
}

fn appends(fd: BorrowedFd<'_>) -> Result<bool> {
    let flags = rustix::fs::fcntl_getfl(fd).doing("read the flags of", name::of_open(fd))?;
    Ok(flags.contains(OFlags::APPEND))
}
