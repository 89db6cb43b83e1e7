//! Files whose content the checkpoint holds, made again or put back: see [`crate::objects`].
//!
//! * A named file is there, as the rollback left it; the parts that are held are written over it.
//! * Owner, mode, time and seals come last ([`Made::finish`]): they may forbid what is done before.

use crate::context::Context;
use crate::error::{Error, Result};
use crate::files::{Ident, write_all, write_all_at, write_zeros};
use crate::objects::{Id, Objects, Origin, Saved};
use crate::pages::Pages;
use crate::segments::{self, Segment, Segments};
use crate::state::Store;
use rustix::fs::{
    AtFlags, FallocateFlags, Gid, MemfdFlags, Mode, OFlags, SealFlags, Timespec, Timestamps, Uid,
};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use twinpage_core::Scheme;
use twinpage_os::name;
use twinpage_os::tracker::PAGE;

/// The files, open for reading and writing.
pub(super) struct Made(Vec<(Saved, OwnedFd)>);

/// Makes all objects of a checkpoint again.
pub(super) fn make(
    context: &Context,
    store: &Store,
    pages: &Pages,
    moved: &[(Ident, Ident)],
) -> Result<Made> {
    let mut made = Vec::with_capacity(context.live.objects.len());
    for saved in &context.live.objects {
        let failed = |error: Errno| {
            Error::target(
                format!("cannot make a file of the program again ({:?})", saved.origin),
                error.into(),
            )
        };
        let file = open(saved, moved)?;
        if !matches!(saved.origin, Origin::Named { .. }) {
            rustix::fs::ftruncate(&file, saved.size).map_err(failed)?;
        }
        fill(saved, &file, store, pages)?;
        made.push((saved.clone(), file));
    }
    Ok(Made(made))
}

impl Made {
    /// Opens an object, as the program had it open.
    pub(super) fn open(&self, id: Id, flags: OFlags) -> Result<OwnedFd> {
        let found = self.0.iter().find(|(saved, _)| saved.id == id);
        let (saved, file) =
            found.ok_or_else(|| Error::Damaged(format!("context: there is no object {id}")))?;
        // What opened a name before does not hold for the link to an open file.
        let flags = (flags - OFlags::TMPFILE - OFlags::NOFOLLOW) | OFlags::CLOEXEC;
        rustix::fs::open(name::of_open(file), flags, Mode::empty()).map_err(|error| {
            Error::target(
                format!("cannot open a file of the program again ({:?})", saved.origin),
                error.into(),
            )
        })
    }

    /// Segments of System V memory are among them.
    pub(super) fn segments(&self, saved: &segments::Saved) -> Result<Segments> {
        let opened = saved.list.iter().map(|segment| {
            let file = self.open(segment.object, OFlags::RDWR)?;
            let stat = rustix::fs::fstat(&file)
                .map_err(|error| Error::target("cannot look at shared memory", error.into()))?;
            let segment = Segment {
                file: Ident::from(&stat), // of the new file
                ..segment.clone()
            };
            Ok((segment, file))
        });
        Ok(Segments::restored(saved.next, opened.collect::<Result<_>>()?))
    }

    /// Everything that needs them is made: they get what may forbid it.
    pub(super) fn finish(self, context: &Context) -> Result<Objects> {
        let mut ours = Vec::with_capacity(self.0.len());
        for (saved, file) in self.0 {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let opened = rustix::fs::open(name::of_open(&file), flags, Mode::empty());
            let dressed = opened.and_then(|opened| dress(&saved, &file).map(|()| opened));
            let what = || {
                format!(
                    "cannot give a file of the program its owner, mode or seals ({:?})",
                    saved.origin
                )
            };
            let opened = dressed.map_err(|error| Error::target(what(), error.into()))?;
            ours.push((saved, opened));
        }
        let mapped = context
            .processes()
            .map(|one| (one.fixed.pid, &one.fixed.mappings[..]));
        Ok(Objects::restored(ours, mapped))
    }
}

fn open(saved: &Saved, moved: &[(Ident, Ident)]) -> Result<OwnedFd> {
    match &saved.origin {
        Origin::Named { path } => {
            let path = Path::new(path);
            let changed =
                |why: &str| Error::State(format!("{}: {why}: put it back to resume", path.display()));
            let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| {
                changed(&format!(
                    "which the program had mapped, cannot be opened ({error})"
                ))
            })?;
            let stat = rustix::fs::fstat(&file).map_err(|error| changed(&error.to_string()))?;
            let now = moved.iter().find(|(old, _)| *old == saved.file);
            if Ident::from(&stat) != now.map_or(saved.file, |(_, new)| *new) {
                return Err(changed("it is another file than at the checkpoint"));
            }
            Ok(file)
        }
        Origin::Memory { name, .. } => {
            let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
            rustix::fs::memfd_create(name, flags)
                .map_err(|error| Error::target("cannot make a memory file", error.into()))
        }
        Origin::Nameless { directory, temporary } => make_nameless(Path::new(directory), *temporary),
    }
}

/// A file without a name, in the directory or in the next above it that is there.
fn make_nameless(directory: &Path, temporary: bool) -> Result<OwnedFd> {
    let mode = Mode::RUSR | Mode::WUSR;
    let mut place = Some(directory);
    while let Some(directory) = place {
        // With O_EXCL it can have no name, as a removed file.
        let exclusive = if temporary { OFlags::empty() } else { OFlags::EXCL };
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | exclusive;
        match rustix::fs::open(directory, flags, mode) {
            Err(Errno::NOENT | Errno::NOTDIR) => place = directory.parent(),
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => return make_and_remove(directory),
            made => {
                return made.map_err(|error| {
                    Error::State(format!(
                        "{}: the program had a file there that was removed, and it cannot be made again: {error}",
                        directory.display()
                    ))
                });
            }
        }
    }
    Err(Error::State(format!(
        "{}: there is no such directory",
        directory.display()
    )))
}

/// For file systems that make no file without a name.
fn make_and_remove(directory: &Path) -> Result<OwnedFd> {
    let failed = |error: Errno| Error::target("cannot make a file that was removed again", error.into());
    let path = hidden(directory);
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    rustix::fs::unlink(&path).map_err(failed)?;
    Ok(file)
}

fn hidden(directory: &Path) -> PathBuf {
    directory.join(format!(".twinpage-made-again-{}", std::process::id()))
}

fn set_mtime(path: impl rustix::path::Arg, (tv_sec, nanos): (i64, u32)) -> rustix::io::Result<()> {
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_OMIT as _,
        },
        last_modification: Timespec {
            tv_sec,
            tv_nsec: nanos.into(),
        },
    };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, AtFlags::empty())
}

/// Writes the held parts: stored pages, and holes where none is stored.
fn fill(saved: &Saved, file: &OwnedFd, store: &Store, pages: &Pages) -> Result<()> {
    let whole = [(0, saved.size)];
    let is_new = !matches!(saved.origin, Origin::Named { .. });
    let parts = if saved.parts.is_empty() {
        &whole[..]
    } else {
        &saved.parts
    };
    let failed = |error: Errno| {
        Error::target(
            format!("cannot write to a file of the program ({:?})", saved.origin),
            error.into(),
        )
    };
    let mut page = vec![0; PAGE as usize];
    for &(start, end) in parts {
        let end = end.min(saved.size);
        let mut hole = start..start;
        for offset in (start..end).step_by(PAGE as usize) {
            let next = end.min(offset + PAGE);
            let Some(piece) = pages.find(saved.key(offset)) else {
                hole.end = next;
                continue;
            };
            punch(file, &hole, is_new).map_err(failed)?;
            hole = next..next;
            store.read(piece.page, piece.held.0.trailing_zeros() as usize, &mut page)?;
            write_all_at(file, offset, &page[..(next - offset) as usize]).map_err(failed)?;
        }
        punch(file, &hole, is_new).map_err(failed)?;
    }
    Ok(())
}

fn punch(file: &OwnedFd, hole: &Range<u64>, is_new: bool) -> rustix::io::Result<()> {
    if is_new || hole.is_empty() {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, flags, hole.start, hole.end - hole.start) {
        Err(Errno::OPNOTSUPP) => write_zeros(file, hole.clone()),
        punched => punched,
    }
}

fn dress(saved: &Saved, file: &OwnedFd) -> rustix::io::Result<()> {
    if !matches!(saved.origin, Origin::Named { .. }) {
        let stat = rustix::fs::fstat(file)?;
        if (stat.st_uid, stat.st_gid) != saved.owner {
            let (uid, gid) = (Uid::from_raw(saved.owner.0), Gid::from_raw(saved.owner.1));
            rustix::fs::fchown(file, Some(uid), Some(gid))?;
        }
        write_all(file, &saved.attributes)?;
        rustix::fs::fchmod(file, Mode::from_raw_mode(saved.mode))?;
    }
    match set_mtime(name::of_open(file), saved.mtime) {
        Err(Errno::PERM | Errno::ACCESS) => {} // not ours, and so not promised
        set => set?,
    }
    match &saved.origin {
        Origin::Memory { seals, .. } if *seals != 0 => {
            rustix::fs::fcntl_add_seals(file, SealFlags::from_bits_retain(*seals))
        }
        _ => Ok(()),
    }
}
