//! Objects: files whose content a checkpoint holds itself, in the store, as it holds memory.
//!
//! * **Nameless** files: removed or replaced while open, made with `O_TMPFILE`, or by memfd_create(2). After a
//!   kill no name leads to them any more, so a resume makes them again. They are held whole.
//! * **Named** files that are mapped shared and may be written through the mapping: the kernel tells of such a
//!   write only afterwards, when there is nothing left to save. What is mapped is held.
//!
//! What always holds:
//!
//! * Objects are the whole tree's: every process that maps or opens a file has the same one.
//! * An object has a number, and with it 16 TiB of keys behind the addresses of memory, where [`Pages`] finds its
//!   pages: two mappings of one file are one content.
//! * What may have changed is known without reading: watched calls name their range ([`Objects::changed`]),
//!   mappings are tracked as memory is ([`mapped`]), growth is seen by length. An object that did not change
//!   costs one fstat(2) a checkpoint.
//! * A page that lies in a hole of the file is not stored.
//! * Our descriptor is an open file of its own, for reading: the program's offsets, locks and seals are its own.

mod mapped;

use crate::error::{Error, Result};
use crate::files::{Attributes, Ident, Ranges, Recorder, StoredFile, next_data, read_all};
use crate::layout::Mapping;
use crate::pages::Pages;
use rustix::fs::{Mode, OFlags, SealFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use twinpage_core::Capture;
use twinpage_os::name;
use twinpage_os::tracker::PAGE;

/// Keys of one object.
const SPAN: u64 = 1 << 44;
/// Objects whose keys would be addresses.
const BELOW: u64 = (1 << 47) / SPAN;
/// How many objects there can be.
const MOST: u32 = 1 << 19;
/// `__O_TMPFILE`, without the flag of directories that comes with it.
const TEMPORARY: u32 = (libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;

/// Number of an object.
pub use crate::layout::ObjectId as Id;

/// Where a file is from, and so how it is made again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Origin {
    /// It has a name.
    Named {
        /// Which.
        path: OsString,
    },
    /// It has none.
    Nameless {
        /// The directory that its name was in, or that `O_TMPFILE` was given.
        directory: OsString,
        /// It never had one, and may be given one.
        temporary: bool,
    },
    /// memfd_create(2).
    Memory {
        /// The name it was given, for people.
        name: OsString,
        /// `F_SEAL_*` bits.
        seals: u32,
    },
}

/// An object, as a checkpoint lists it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Saved {
    /// Its number.
    pub id: Id,
    /// Which file it was.
    pub file: Ident,
    /// How it is made again.
    pub origin: Origin,
    /// Its length in bytes.
    pub size: u64,
    /// Its type and permissions.
    pub mode: u32,
    /// Its owner and group.
    pub owner: (u32, u32),
    /// When it was last written: seconds and nanoseconds since 1970.
    pub mtime: (i64, u32),
    /// Extended attributes.
    pub attributes: Attributes,
    /// Which bytes are held, from and to; all when there are none.
    pub parts: Vec<(u64, u64)>,
}

impl Saved {
    /// The key of the byte at `offset`.
    #[must_use]
    pub fn key(&self, offset: u64) -> u64 {
        key(self.id, offset)
    }

    fn held(&self) -> Ranges {
        self.parts.iter().map(|(start, end)| *start..*end).collect()
    }

    /// A file with a name, if all of its content is held.
    #[must_use]
    pub fn as_stored_file(&self) -> Option<StoredFile> {
        let Origin::Named { path } = &self.origin else {
            return None;
        };
        self.held().gap(0..self.size).is_none().then(|| StoredFile {
            path: path.into(),
            file: self.file,
            size: self.size,
            mode: self.mode,
            owner: self.owner,
            mtime: self.mtime,
        })
    }
}

/// What an open regular file is.
pub enum Known {
    /// A file with this name.
    Named(PathBuf),
    /// An object.
    Object(Id),
}

struct Object {
    id: Id,
    /// Which file it is in this life of the program.
    ident: Ident,
    file: OwnedFd,
    origin: Origin,
    /// Its length at the last checkpoint.
    size: u64,
    /// The parts of it that are held; `None`: all.
    parts: Option<Ranges>,
    /// What may have changed since.
    changed: Ranges,
}

/// The objects of a program.
#[derive(Default)]
pub struct Objects {
    list: BTreeMap<Id, Object>,
    ids: HashMap<Ident, Id>,
    /// Mapped parts of each process, as of the last look at it.
    mapped: HashMap<i32, Vec<mapped::Part>>,
    saved: Vec<Saved>,
}

fn key(id: Id, offset: u64) -> u64 {
    (u64::from(id) + BELOW) * SPAN + offset
}

/// Whether a place in the page table belongs to an object.
#[must_use]
pub fn is_key(address: u64) -> bool {
    address >= BELOW * SPAN
}

fn all_of(id: Id) -> Range<u64> {
    key(id, 0)..key(id, SPAN)
}

fn to_pages(range: Range<u64>) -> Range<u64> {
    let end = range.end.min(SPAN).next_multiple_of(PAGE);
    (range.start - range.start % PAGE).min(end)..end
}

fn look(error: Errno) -> Error {
    Error::target("cannot look at a file of the program", error.into())
}

impl Objects {
    /// The objects of a tree that was just made again, whose `processes` have these mappings.
    #[must_use]
    pub fn restored<'a>(
        made: Vec<(Saved, OwnedFd)>,
        processes: impl Iterator<Item = (i32, &'a [Mapping])>,
    ) -> Objects {
        let mut objects = Objects {
            mapped: processes
                .map(|(pid, mappings)| (pid, mapped::parts(mappings)))
                .collect(),
            ..Objects::default()
        };
        for (saved, file) in made {
            let Ok(stat) = rustix::fs::fstat(&file) else {
                continue;
            };
            let parts = (!saved.parts.is_empty()).then(|| saved.held());
            objects.insert(Object {
                id: saved.id,
                ident: Ident::from(&stat),
                file,
                origin: saved.origin,
                size: saved.size,
                parts,
                changed: Ranges::default(),
            });
        }
        objects
    }

    fn insert(&mut self, object: Object) {
        self.ids.insert(object.ident, object.id);
        self.list.insert(object.id, object);
    }

    fn of_file(&mut self, file: Ident) -> Option<&mut Object> {
        self.list.get_mut(self.ids.get(&file)?)
    }

    /// What the last capture held.
    #[must_use]
    pub fn saved(&self) -> &[Saved] {
        &self.saved
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The object that a file is.
    #[must_use]
    pub fn find(&self, file: Ident) -> Option<Id> {
        self.ids.get(&file).copied()
    }

    /// A watched call may change these bytes of the file.
    pub fn changed(&mut self, file: Ident, range: Range<u64>) {
        if let Some(object) = self.of_file(file) {
            object.changed.add(range);
        }
    }

    /// All of them may have changed.
    pub fn all_changed(&mut self) {
        for object in self.list.values_mut() {
            object.changed.add(0..u64::MAX);
        }
    }

    /// What the regular file behind `fd`, a duplicate of the program's, is. A nameless one becomes an object.
    ///
    /// # Errors
    /// When it has a name that is not known, or cannot be read.
    pub fn identify(&mut self, fd: BorrowedFd<'_>, stat: &Stat, files: &Recorder) -> Result<Known> {
        let link = rustix::fs::readlink(name::of_open(fd), Vec::new()).map_err(look)?;
        if let Some(name) = link.to_bytes().strip_prefix(b"/memfd:") {
            let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
            let origin = Origin::Memory {
                name: os_string(name),
                seals: 0,
            };
            return self.add(fd, stat, origin, None).map(Known::Object);
        }
        if let Some(path) = files.name_of(fd, stat)? {
            return Ok(Known::Named(path));
        }
        let temporary = rustix::fs::fcntl_getfl(fd).map_err(look)?.bits() & TEMPORARY != 0;
        let origin = nameless(link.to_bytes(), temporary);
        self.add(fd, stat, origin, None).map(Known::Object)
    }

    /// The file behind `fd` is about to be mapped shared, from `range.start` on, and may be written through
    /// the mapping.
    ///
    /// # Errors
    /// As [`Objects::identify`].
    pub fn map(&mut self, fd: BorrowedFd<'_>, range: Range<u64>, files: &Recorder) -> Result<Id> {
        let stat = rustix::fs::fstat(fd).map_err(look)?;
        let id = match self.identify(fd, &stat, files)? {
            Known::Object(id) => id,
            Known::Named(path) => {
                let path = path.into_os_string();
                self.add(fd, &stat, Origin::Named { path }, Some(Ranges::default()))?
            }
        };
        let range = to_pages(range);
        if let Some(object) = self.list.get_mut(&id) {
            object.parts.iter_mut().for_each(|parts| parts.add(range.clone()));
            object.changed.add(range);
        }
        Ok(id)
    }

    fn add(&mut self, fd: BorrowedFd<'_>, stat: &Stat, origin: Origin, parts: Option<Ranges>) -> Result<Id> {
        let ident = Ident::from(stat);
        if let Some(id) = self.find(ident) {
            return Ok(id);
        }
        let taken = self.list.keys().zip(0..).take_while(|(id, at)| *id == at);
        let id = taken.count() as Id; // the lowest that is free
        if id >= MOST {
            return Err(Error::Unsupported(format!(
                "the program has more than {MOST} files without a name open"
            )));
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::open(name::of_open(fd), flags, Mode::empty()).map_err(|error| {
            Error::Unsupported(format!(
                "{origin:?}: a file of the program cannot be read ({error}), so it cannot be captured; give its owner read permission"
            ))
        })?;
        let mut changed = Ranges::default();
        if parts.is_none() {
            changed.add(0..SPAN);
        }
        self.insert(Object {
            id,
            ident,
            file,
            origin,
            size: 0,
            parts,
            changed,
        });
        Ok(id)
    }

    /// A page of an epoch that failed: it is captured again.
    pub fn owe(&mut self, key: u64) {
        let id = (key / SPAN - BELOW) as Id;
        if let Some(object) = self.list.get_mut(&id) {
            object.changed.add(key % SPAN..key % SPAN + PAGE);
        }
    }

    /// Captures what changed, and forgets objects that are not in `used`. Gives named files that are objects no
    /// longer: what was written through their mappings is to be synced.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn capture(
        &mut self,
        used: &HashSet<Id>,
        files: &Recorder,
        pages: &mut Pages,
        into: &mut Capture,
    ) -> Result<Vec<OwnedFd>> {
        self.saved.clear();
        let mut released = Vec::new();
        for (_, object) in self.list.extract_if(.., |id, _| !used.contains(id)) {
            self.ids.remove(&object.ident);
            pages.forget(all_of(object.id), &mut into.discarded, |_| true);
            let has_name = |stat: Stat| stat.st_nlink > 0;
            if rustix::fs::fstat(&object.file).is_ok_and(has_name) {
                released.push(object.file);
            }
        }
        for object in self.list.values_mut() {
            let stat = rustix::fs::fstat(&object.file).map_err(look)?;
            object.follow_name(&stat, files)?;
            object.capture(stat.st_size as u64, pages, into)?;
            self.saved.push(object.saved(&stat)?);
        }
        Ok(released)
    }
}

impl Object {
    /// Its name may have changed, gone, or come.
    fn follow_name(&mut self, stat: &Stat, files: &Recorder) -> Result<()> {
        if matches!(self.origin, Origin::Memory { .. }) {
            return Ok(());
        }
        match files.name_of(self.file.as_fd(), stat)? {
            Some(path) => {
                self.origin = Origin::Named {
                    path: path.into_os_string(),
                }
            }
            None if matches!(self.origin, Origin::Named { .. }) => {
                let link = rustix::fs::readlink(name::of_open(&self.file), Vec::new()).map_err(look)?;
                self.origin = nameless(link.to_bytes(), false);
                self.parts = None;
                self.changed.add(0..SPAN);
            }
            None => {}
        }
        Ok(())
    }

    fn capture(&mut self, size: u64, pages: &mut Pages, into: &mut Capture) -> Result<()> {
        if size > SPAN {
            return Err(Error::Unsupported(format!(
                "{:?}: a file without a name of more than 16 TiB cannot be captured",
                self.origin
            )));
        }
        let end = size.next_multiple_of(PAGE);
        let past = key(self.id, end)..key(self.id, self.size.next_multiple_of(PAGE).max(end));
        pages.forget(past, &mut into.discarded, |_| true);
        if size > self.size {
            self.changed.add(self.size..size);
        }
        self.size = size;
        let whole = std::iter::once(0..SPAN);
        let held: Vec<Range<u64>> = match &self.parts {
            Some(parts) => parts.within(0..SPAN).collect(),
            None => whole.collect(),
        };
        let changed = std::mem::take(&mut self.changed);
        for part in held {
            for range in changed.within(part) {
                let range = to_pages(range);
                self.capture_range(range.start.min(end)..range.end.min(end), pages, into)?;
            }
        }
        Ok(())
    }

    /// Captures whole pages: data is stored, holes are forgotten.
    fn capture_range(&self, range: Range<u64>, pages: &mut Pages, into: &mut Capture) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let data = next_data(&self.file, at..range.end).map_err(look)?;
            let data = data.map_or(range.end..range.end, to_pages);
            let (start, end) = (data.start.max(at), data.end.min(range.end));
            let hole = key(self.id, at)..key(self.id, start);
            pages.forget(hole, &mut into.discarded, |_| true);
            for page in (start..end).step_by(PAGE as usize) {
                let piece = pages.piece(key(self.id, page), true, &mut into.discarded);
                into.pieces.push(piece);
            }
            self.read(start, into.bytes.append((end - start) as usize))?;
            at = end;
        }
        Ok(())
    }

    /// Reads pages, with zeros behind the end of the file.
    fn read(&self, start: u64, into: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        while filled < into.len() {
            match rustix::io::pread(&self.file, &mut into[filled..], start + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                Err(error) => return Err(look(error)),
            }
        }
        into[filled..].fill(0);
        Ok(())
    }

    fn saved(&self, stat: &Stat) -> Result<Saved> {
        let mut origin = self.origin.clone();
        if let Origin::Memory { seals, .. } = &mut origin {
            *seals = rustix::fs::fcntl_get_seals(&self.file)
                .unwrap_or(SealFlags::empty())
                .bits();
        }
        Ok(Saved {
            id: self.id,
            file: self.ident,
            origin,
            size: self.size,
            mode: stat.st_mode,
            owner: (stat.st_uid, stat.st_gid),
            mtime: (stat.st_mtime, stat.st_mtime_nsec as u32),
            attributes: match self.origin {
                Origin::Named { .. } => Vec::new(), // the rollback's
                _ => read_all(&self.file).map_err(look)?,
            },
            parts: self.parts.as_ref().map_or_else(Vec::new, |parts| {
                parts.within(0..SPAN).map(|part| (part.start, part.end)).collect()
            }),
        })
    }
}

/// The origin of a file that the kernel calls `link` now.
fn nameless(link: &[u8], temporary: bool) -> Origin {
    let path = PathBuf::from(os_string(link));
    let directory = path.parent().unwrap_or(Path::new("/"));
    Origin::Nameless {
        directory: directory.as_os_str().to_owned(),
        temporary,
    }
}

fn os_string(bytes: &[u8]) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes.to_vec())
}
