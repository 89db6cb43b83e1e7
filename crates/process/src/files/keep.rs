//! `kept/` in the state directory: files that were removed or replaced, until their epoch is dead. (And records that
//! are names: `named.rs`.)
//!
//! * A kept file is named by the sequence number of the record that wants it back, in hexadecimal.
//! * It is the file itself (a hard link) where that can be, else a copy with mode, owner and times.

use super::attributes;
use super::error::{Doing, Error, Refusal, Result};
use super::format::{Kept, State};
use super::path_at::{self, Found};
use super::seen;
use super::{Durability, Ident};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The directory of kept files.
pub(super) struct Keep {
    dir: OwnedFd,
    path: PathBuf,
    durability: Durability,
}

/// The directory of kept files, in the state directory; a state may be moved.
const RELATIVE: &str = "kept";

/// What a record calls the file that record `seq` keeps.
pub(super) fn relative_name(seq: u64) -> PathBuf {
    Path::new(RELATIVE).join(kept_name(seq))
}

/// The name of the file that record `seq` keeps.
pub(super) fn kept_name(seq: u64) -> String {
    format!("{seq:016x}")
}

impl Keep {
    /// Opens `kept/` in the state directory, made when it is not there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn open(state: &Path, durability: Durability) -> Result<Keep> {
        let path = state.join(RELATIVE);
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error).doing("make the directory", &path),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(&path, flags, Mode::empty()).doing("open the directory", &path)?;
        Ok(Keep {
            dir,
            path,
            durability,
        })
    }

    /// The directory itself.
    pub(super) fn fd(&self) -> &OwnedFd {
        &self.dir
    }

    /// Its absolute name.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The absolute name of the file that record `seq` keeps.
    pub(super) fn path_of(&self, seq: u64) -> PathBuf {
        self.path.join(kept_name(seq))
    }

    /// Where a record's file is: as it is named, unless that is a kept file.
    pub(super) fn find(&self, path: &mut PathBuf) {
        if let Ok(name) = path.strip_prefix(RELATIVE) {
            *path = self.path.join(name);
        }
    }

    /// Whether `path` is the name of a kept file that was forgotten: the checkpoint knows the file without a
    /// name, and holds its content itself.
    pub(super) fn is_gone(&self, path: &Path) -> bool {
        path.parent() == Some(&self.path)
            && rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).err() == Some(Errno::NOENT)
    }

    /// Keeps what `found` names (it is there) for record `seq`: safely when it returns, if that is to be `synced`.
    /// A directory needs no room here. Says how it was kept and how many bytes that takes.
    ///
    /// # Errors
    /// [`Error::Full`] when it would take more than `room` bytes, [`Error::Refused`] when the copy
    /// would not be the same.
    pub(super) fn take(
        &self,
        found: &Found,
        stat: &Stat,
        (seq, room): (u64, u64),
        synced: bool,
    ) -> Result<(Kept, u64)> {
        if seen::is_directory(stat) {
            return Ok((Kept::Directory, 0));
        }
        let kept = match self.link(found, seq) {
            Ok(()) => Kept::Link,
            Err(Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP) => Kept::Copy,
            Err(Errno::NOSPC | Errno::DQUOT) => return Err(self.full(0)),
            Err(error) => return Err(error).doing("keep", &found.path),
        };
        let bytes = if stat.st_nlink == 1 || kept == Kept::Copy {
            stat.st_size as u64
        } else {
            0
        };
        if kept == Kept::Copy {
            if bytes > room {
                let what = "the room for kept files and the undo log".into();
                return Err(Error::Full {
                    what,
                    needed: bytes - room,
                    by_bound: true,
                });
            }
            self.copy(found, stat, seq)?;
        }
        if self.durability == Durability::Disk && (synced || kept == Kept::Copy) {
            self.sync()?;
        }
        Ok((kept, bytes))
    }

    /// Forgets the file that record `seq` keeps, if it is there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn forget(&self, seq: u64) -> Result<()> {
        self.forget_name(&kept_name(seq))
    }

    /// Removes a name in the directory, if it is there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn forget_name(&self, name: &str) -> Result<()> {
        match rustix::fs::unlinkat(&self.dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error).doing("remove", self.path.join(name)),
        }
    }

    fn sync(&self) -> Result<()> {
        rustix::fs::fsync(&self.dir).doing("sync the directory", &self.path)
    }

    /// Forgets all, records too, for good.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn clear(&self) -> Result<()> {
        for entry in rustix::fs::Dir::read_from(&self.dir).doing("list", &self.path)? {
            let entry = entry.doing("list", &self.path)?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                rustix::fs::unlinkat(&self.dir, entry.file_name(), AtFlags::empty())
                    .doing("remove a kept file from", &self.path)?;
            }
        }
        match self.durability {
            // A power cut must not bring back a record of an earlier run.
            Durability::Disk => self.sync(),
            Durability::Memory => Ok(()),
        }
    }

    fn link(&self, found: &Found, seq: u64) -> Result<(), Errno> {
        let name = kept_name(seq);
        rustix::fs::linkat(&found.parent.fd, &found.last, &self.dir, &name, AtFlags::empty())
    }

    fn copy(&self, found: &Found, stat: &Stat, seq: u64) -> Result<()> {
        if stat.st_nlink > 1 {
            return Err(Refusal::LinkedElsewhere(found.path.clone()).into());
        }
        if seen::kind(stat) != FileType::RegularFile {
            refuse_attributes(found)?;
        }
        let copied = copy(
            &found.parent.fd,
            found.last.as_ref(),
            &found.path,
            &self.dir,
            &kept_name(seq),
            stat,
        );
        let copied = copied.and_then(|()| {
            dress(&self.dir, &kept_name(seq), &State::from(stat)).map_err(|error| match error {
                // Of an owner that a user namespace has not, the kernel knows nothing.
                Errno::PERM | Errno::INVAL => Refusal::ForeignOwner(found.path.clone()).into(),
                _ => Error::Io {
                    doing: "keep the mode of",
                    path: found.path.clone(),
                    source: error.into(),
                },
            })?;
            match self.durability {
                Durability::Disk => sync_file(&self.dir, &kept_name(seq), &self.path_of(seq)),
                Durability::Memory => Ok(()),
            }
        });
        copied.inspect_err(|_| {
            // What is left of the copy is harmless: the next clear removes it.
            let _ = self.forget(seq);
        })
    }

    pub(super) fn full(&self, needed: u64) -> Error {
        Error::Full {
            what: format!("the disk of {}", self.path.display()),
            needed,
            by_bound: false,
        }
    }
}

/// Makes `to` in `to_dir` a copy of the file, symbolic link, named pipe or socket `from`, which `stat` describes. Of a
/// pipe and a socket the name is all that a file system holds.
///
/// # Errors
/// [`Error::Refused`] for a device, [`Error::Full`], [`Error::Io`].
pub(super) fn copy(
    from_dir: impl AsFd,
    from: &Path,
    shown: &Path,
    to_dir: impl AsFd,
    to: &str,
    stat: &Stat,
) -> Result<()> {
    match seen::kind(stat) {
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(from_dir, from, Vec::new()).doing("read the link", shown)?;
            rustix::fs::symlinkat(target, to_dir, to).doing("copy", shown)
        }
        FileType::RegularFile => {
            let mut from = File::from(open_to_read(from_dir, from, shown)?);
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let made =
                rustix::fs::openat(&to_dir, to, flags, Mode::RUSR | Mode::WUSR).doing("copy", shown)?;
            attributes::disinherit(to_dir, to.as_ref()).doing("copy", shown)?;
            let mut to = File::from(made);
            // The system copies (copy_file_range(2)), and a signal that comes meanwhile ends that: it goes on from there.
            let copied = loop {
                match io::copy(&mut from, &mut to) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    other => break other,
                }
            };
            match copied {
                Ok(_) => attributes::read_all(&from)
                    .and_then(|all| attributes::write_all(&to, &all))
                    .map_err(|_| Refusal::LosesAttributes(shown.to_owned()).into()),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::StorageFull
                            | io::ErrorKind::QuotaExceeded
                            | io::ErrorKind::FileTooLarge
                    ) =>
                {
                    let needed = stat.st_size as u64;
                    Err(Error::Full {
                        what: format!("the disk for the copy of {}", shown.display()),
                        needed,
                        by_bound: false,
                    })
                }
                Err(error) => Err(error).doing("copy", shown),
            }
        }
        kind @ (FileType::Fifo | FileType::Socket) => {
            rustix::fs::mknodat(&to_dir, to, kind, Mode::RUSR | Mode::WUSR, 0).doing("copy", shown)?;
            attributes::disinherit(to_dir, to.as_ref()).doing("copy", shown)
        }
        _ => Err(Refusal::SpecialReplaced(shown.to_owned()).into()),
    }
}

fn open_to_read(dir: impl AsFd, name: &Path, shown: &Path) -> Result<OwnedFd> {
    match path_at::reopen(dir, name, OFlags::NOFOLLOW) {
        Err(Errno::ACCESS) => Err(Refusal::Unreadable(shown.to_owned()).into()),
        opened => opened.doing("open", shown),
    }
}

/// Gives a thing the owner, mode and times of `state`. Owner first: changing it clears set-user-ID.
///
/// # Errors
/// The system's.
pub(super) fn dress(dir: impl AsFd, name: &str, state: &State) -> Result<(), Errno> {
    let is = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if (is.st_uid, is.st_gid) != (state.uid, state.gid) {
        let (uid, gid) = (Uid::from_raw(state.uid), Gid::from_raw(state.gid));
        rustix::fs::chownat(&dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    if seen::kind(&is) != FileType::Symlink {
        rustix::fs::chmodat(&dir, name, Mode::from_raw_mode(state.mode), AtFlags::empty())?;
    }
    rustix::fs::utimensat(&dir, name, &state.timestamps(), AtFlags::SYMLINK_NOFOLLOW)
}

/// Syncs one file; a symbolic link is made durable by its directory.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn sync_file(dir: impl AsFd, name: &str, shown: &Path) -> Result<()> {
    match path_at::reopen(dir, name.as_ref(), OFlags::NOFOLLOW) {
        Err(Errno::LOOP) => Ok(()),
        // Its mode forbids even its owner to read it; or it is a socket.
        Err(Errno::ACCESS | Errno::NXIO) => path_at::sync_around(shown),
        opened => match rustix::fs::fsync(opened.doing("open", shown)?) {
            Err(Errno::INVAL) => path_at::sync_around(shown), // a named pipe
            synced => synced.doing("sync", shown),
        },
    }
}

/// Refuses what has extended attributes that are not kept.
fn refuse_attributes(found: &Found) -> Result<()> {
    let all = attributes::read_all_of(&found.parent.fd, found.last.as_ref());
    if all
        .doing("list the extended attributes of", &found.path)?
        .is_empty()
    {
        return Ok(());
    }
    Err(Refusal::LosesAttributes(found.path.clone()).into())
}

/// What is kept for record `seq`, if anything.
pub(super) fn kept_ident(keep: &Path, seq: u64) -> Option<Ident> {
    rustix::fs::statat(CWD, keep.join(kept_name(seq)), AtFlags::SYMLINK_NOFOLLOW)
        .ok()
        .map(|stat| Ident::from(&stat))
}
