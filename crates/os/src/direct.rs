//! Bytes that a program stores into directly, and that become durable range by range, later and perhaps from
//! another thread.
//!
//! A [`Medium`](twinpage_core::Medium) is handed bytes and copies them; here the program's own stores are the
//! write. The rules are those of processor caches, and they hold for the system's page cache as well:
//!
//! * A stored word reaches the medium at any time, whole, or never.
//! * Ranges that were written back ([`Direct::write_back`]) have reached it when [`Direct::fence`] returns.
//! * After a failed fence nothing more is durable: every later fence fails ([`Error::Poisoned`]).
//!
//! | [`DirectFile`] on | write back | fence |
//! | --- | --- | --- |
//! | a memory file (survives the program) | nothing | nothing |
//! | persistent memory, mapped `MAP_SYNC` | `clwb`, else `clflushopt`, `clflush` | `sfence` |
//! | a disk | nothing: the system writes pages when it likes | `fdatasync` |
//! | [`CopiedFile`](crate::CopiedFile), a disk | writes to the file, in order | `fdatasync` |
//!
//! All space is taken when the file is opened or grown, so no store meets a full file system (SIGBUS). No other process
//! may shorten the file meanwhile. Bytes the medium itself lost raise SIGBUS when they are read.

#![allow(unsafe_code)]

use crate::any::Durability;
use crate::dax::{is_dax, not_dax};
use crate::file::{create_private, open_regular, sync_name};
use crate::flush::{self, CACHE_LINE, Fence, WriteBack};
use crate::health::{Access, Health, full, refused};
use crate::mapping::{Mapping, ROOM_TO_STAY};
use crate::space::{again, fill_holes, is_unsupported, punch, reserve};
use rustix::fs::{FallocateFlags, fallocate, fdatasync};
use rustix::mm::MapFlags;
use std::cell::Cell;
use std::fmt::Debug;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use twinpage_core::{Error, Offset, Result};

/// Memory whose stores become durable later. See the [module](self).
pub trait Direct: Debug + Send + Sync {
    /// The address of byte 0, which never changes, aligned to a page.
    fn base(&self) -> *mut u8;

    /// Bytes there are.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes it at least `len` bytes long; new bytes are zero, and durable with the next fence.
    ///
    /// # Errors
    /// [`Error::Full`] when there is no room; what is there stays.
    fn grow(&self, len: u64) -> Result<()>;

    /// Sends the stores in `range` on their way to the medium.
    fn write_back(&self, range: Range<Offset>);

    /// Returns when all that was written back before is durable.
    ///
    /// # Errors
    /// [`Error::Io`] poisons; [`Error::Poisoned`] ever after.
    fn fence(&self) -> Result<()>;

    /// Whether values are better stored by [`Direct::stream`].
    fn streams(&self) -> bool {
        false
    }

    /// Stores `bytes` at `at` and sends them on their way, past the caches where [`Direct::streams`]. No aligned word of
    /// 8 bytes tears.
    ///
    /// # Safety
    /// The bytes lie inside, are valid for writes and not borrowed; this thread calls [`Direct::drain`] or
    /// [`Direct::fence`] before anybody accesses them.
    unsafe fn stream(&self, at: Offset, bytes: &[u8]) {
        let range = at..at + bytes.len() as u64;
        // SAFETY: the caller's.
        unsafe { flush::store(bytes, self.base().add(at as usize)) };
        self.stored(range.clone());
        self.write_back(range);
    }

    /// Bytes that this thread streamed come before its later stores, for every other thread.
    fn drain(&self) {}

    /// What lies in `range` of the file is there in memory: for those that do not map the file.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn load(&self, range: Range<Offset>) -> Result<()> {
        let _ = range;
        Ok(())
    }

    /// Other processes see `range` of the file from now on as it is in memory: for those that do not map the file.
    fn publish(&self, range: Range<Offset>) {
        let _ = range;
    }

    /// The bytes are no longer needed: their space is given back, where that can be done.
    fn discard(&self, range: Range<Offset>) {
        let _ = range;
    }

    /// Whether a fence is a flush of a device, which takes as long as thousands of stores.
    fn fence_is_flush(&self) -> bool {
        false
    }

    /// Whether [`Direct::stored`] is to be called: by models, which cannot see a store.
    fn is_watched(&self) -> bool {
        false
    }

    /// The program stored into `range`.
    fn stored(&self, range: Range<Offset>) {
        let _ = range;
    }

    /// The counts so far.
    fn counts(&self) -> Counts;

    /// Errors name the file so from now on: for one that gets its name when it is whole.
    fn rename(&self, path: &Path) {
        let _ = path;
    }
}

/// Instructions and calls executed. Write-backs count with the next fence of their thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Counts {
    /// Cache lines and words written back by an instruction, or stored past the caches.
    pub write_backs: u64,
    /// Fences: instructions, or calls of `fdatasync`.
    pub fences: u64,
}

/// How stores leave the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instructions {
    /// How a line is written back; not at all where none is needed.
    pub write_back: Option<WriteBack>,
    /// How the write-backs are waited for.
    pub fence: Option<Fence>,
    /// Values are stored past the caches, by non-temporal stores, and need no write-back.
    pub streams: bool,
}

impl Instructions {
    /// None: for memory that outlives the program by itself.
    pub const NONE: Instructions = Instructions {
        write_back: None,
        fence: None,
        streams: false,
    };

    /// What suits persistent memory best on this processor.
    #[must_use]
    pub fn best() -> Instructions {
        Instructions {
            write_back: Some(WriteBack::best()),
            fence: Some(Fence::Sfence),
            streams: false,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Memory,
    Dax,
    Disk,
}

/// A file mapped whole. See the [module](self).
#[derive(Debug)]
pub struct DirectFile {
    file: File,
    kind: Kind,
    instructions: Instructions,
    base: Base,
    len: AtomicU64,
    mapping: Mutex<Mapping>,
    health: Mutex<Health>,
    /// The length changed since the last fence.
    grown: AtomicBool,
    write_backs: AtomicU64,
    fences: AtomicU64,
}

/// The address of the mapping.
#[derive(Clone, Copy, Debug)]
struct Base(*mut u8);

// SAFETY: a number; each dereference has a safety comment of its own.
unsafe impl Send for Base {}
// SAFETY: a number that does not change; each dereference has a safety comment of its own.
unsafe impl Sync for Base {}

thread_local! {
    /// Lines that this thread sent on their way since its last fence. A locked addition to a shared counter would wait
    /// for each of them.
    static SENT: Cell<u64> = const { Cell::new(0) };
}

fn sent(lines: u64) {
    SENT.set(SENT.get() + lines);
}

impl DirectFile {
    /// Makes a new, empty file that only its owner can read. `instructions` are those that suit the medium, if
    /// not given.
    ///
    /// # Errors
    /// [`Error::Io`], also when there is such a file already; [`Error::Invalid`] for [`Durability::Dax`] where
    /// the file is not on persistent memory.
    pub fn create(
        path: &Path,
        durability: Durability,
        instructions: Option<Instructions>,
    ) -> Result<DirectFile> {
        let file = create_private(path)?;
        let made = DirectFile::over(file, path, durability, instructions, Access::ReadWrite);
        if made.is_err() {
            // Best effort: it is empty, and the error says more.
            let _ = std::fs::remove_file(path);
        } else if durability.outlives_machine() {
            sync_name(path)?;
        }
        made
    }

    /// Opens a file that is there, and takes the space it lacks. With [`Access::ReadOnly`] nothing is taken, and
    /// a store ends the program.
    ///
    /// # Errors
    /// As [`DirectFile::create`]; [`Error::Foreign`] when it is not a regular file; [`Error::Full`].
    pub fn open(
        path: &Path,
        durability: Durability,
        instructions: Option<Instructions>,
        access: Access,
    ) -> Result<DirectFile> {
        DirectFile::over(
            open_regular(path, access)?,
            path,
            durability,
            instructions,
            access,
        )
    }

    fn over(
        file: File,
        path: &Path,
        durability: Durability,
        instructions: Option<Instructions>,
        access: Access,
    ) -> Result<DirectFile> {
        let failed = |what| move |e| refused(what, path, 0, e);
        let kind = match durability {
            Durability::Memory => Kind::Memory,
            _ if is_dax(&file).map_err(failed("looking at the file system of"))? => Kind::Dax,
            Durability::Dax => return Err(not_dax(&file, path)),
            Durability::Disk => Kind::Disk,
        };
        let suits = match kind {
            Kind::Dax => Instructions::best(),
            Kind::Memory | Kind::Disk => Instructions::NONE,
        };
        let found = file.metadata().map_err(failed("asking for the size of"))?;
        let len = found.len();
        let writable = access == Access::ReadWrite;
        if writable && found.blocks() * 512 < len {
            take_space(&file, kind, 0..len).map_err(|e| no_space(path, len, e))?;
        }
        if writable && len > 0 && kind != Kind::Memory {
            // What a killed process stored may still be in flight. A recovery sees it, and builds on it.
            again(|| fdatasync(&file)).map_err(failed("syncing"))?;
        }
        let flags = match kind {
            Kind::Dax if writable => MapFlags::SHARED_VALIDATE.union(MapFlags::SYNC),
            _ => MapFlags::SHARED,
        };
        let mut mapping = Mapping::keep_free(flags, ROOM_TO_STAY.max(2 * len))
            .map_err(failed("keeping addresses free for"))?;
        if !writable {
            mapping = mapping.read_only();
        }
        if len > mapping.room() {
            return Err(no_room(path, &mapping, len));
        }
        mapping.extend(&file, len).map_err(failed("mapping"))?;
        Ok(DirectFile {
            kind,
            instructions: instructions.unwrap_or(suits),
            base: Base(mapping.at(0)),
            len: AtomicU64::new(len),
            mapping: Mutex::new(mapping),
            health: Mutex::new(Health::new(path, access)),
            grown: AtomicBool::new(false),
            write_backs: AtomicU64::new(0),
            fences: AtomicU64::new(0),
            file,
        })
    }

    /// Whether durable bytes outlive the machine.
    #[must_use]
    pub fn outlives_machine(&self) -> bool {
        self.kind != Kind::Memory
    }

    /// Whether the file lies on a disk: its stores are the system's to write, page by page, when it likes. Memory that is
    /// rewritten whole is better a [`CopiedFile`](crate::CopiedFile).
    #[must_use]
    pub fn is_on_disk(&self) -> bool {
        self.kind == Kind::Disk
    }

    /// Brings `range` into the page table at once, for writing: half the price of one fault a page.
    pub fn populate(&self, range: &Range<Offset>) {
        // Only an improvement: what it fails to bring comes when it is touched.
        let _ = self.mapping.lock().expect("no panic holds it").populate(range);
    }

    fn sync(&self) -> Result<()> {
        // Out of room here means that stores are lost already: never `Full`.
        again(|| fdatasync(&self.file)).map_err(|e| self.health().poisoned("syncing", 0, e))
    }

    fn count_fence(&self) {
        self.write_backs.fetch_add(SENT.replace(0), Relaxed);
        self.fences.fetch_add(1, Relaxed);
    }

    fn health(&self) -> std::sync::MutexGuard<'_, Health> {
        self.health.lock().expect("no panic holds it")
    }
}

impl Direct for DirectFile {
    fn base(&self) -> *mut u8 {
        self.base.0
    }

    fn len(&self) -> u64 {
        self.len.load(Relaxed)
    }

    fn grow(&self, len: u64) -> Result<()> {
        let mut health = self.health();
        health.writable()?;
        let mut mapping = self.mapping.lock().expect("no panic holds it");
        let old = self.len();
        if len <= old {
            return Ok(());
        }
        let path = health.path().to_owned();
        if len > mapping.room() {
            return Err(no_room(&path, &mapping, len));
        }
        if let Err(e) = extend(&self.file, self.kind, old..len) {
            // A refused growth may have taken a part: give it back, so that the length stays true.
            return Err(match self.file.set_len(old) {
                Ok(()) => full(&path, len - old, &e).unwrap_or_else(|| refused("growing", &path, old, e)),
                Err(e) => health.poisoned("shrinking back", old, e),
            });
        }
        mapping
            .extend(&self.file, len)
            .map_err(|e| refused("mapping", &path, old, e))?;
        self.len.store(len, Relaxed);
        self.grown.store(true, Relaxed);
        Ok(())
    }

    fn write_back(&self, range: Range<Offset>) {
        let Some(how) = self.instructions.write_back else {
            return;
        };
        assert!(range.start <= range.end && range.end <= self.len());
        if range.is_empty() {
            return;
        }
        let first = range.start as usize / CACHE_LINE * CACHE_LINE;
        let lines = (range.end as usize - first).div_ceil(CACHE_LINE);
        // SAFETY: the lines lie in the mapping, whose length is a whole number of pages.
        unsafe { how.write_back(self.base.0.add(first), lines) };
        sent(lines as u64);
    }

    fn streams(&self) -> bool {
        self.instructions.streams
    }

    unsafe fn stream(&self, at: Offset, bytes: &[u8]) {
        assert!(at <= self.len() && bytes.len() as u64 <= self.len() - at);
        let parts = self.instructions.write_back.unwrap_or(WriteBack::Clflush);
        // SAFETY: inside the mapping; the rest is the caller's.
        sent(unsafe { flush::stream(bytes, self.base.0.add(at as usize), parts) });
    }

    fn drain(&self) {
        if let Some(fence) = self.instructions.fence {
            fence.fence();
            self.count_fence();
        }
    }

    fn fence(&self) -> Result<()> {
        self.health().writable()?;
        if let Some(fence) = self.instructions.fence {
            fence.fence();
        }
        if self.kind == Kind::Disk || self.kind == Kind::Dax && self.grown.swap(false, Relaxed) {
            self.sync()?;
        }
        self.count_fence();
        Ok(())
    }

    fn discard(&self, range: Range<Offset>) {
        // Best effort: the bytes are of no use, and only take room.
        let _ = punch(&self.file, &range);
    }

    fn counts(&self) -> Counts {
        Counts {
            write_backs: self.write_backs.load(Relaxed),
            fences: self.fences.load(Relaxed),
        }
    }

    fn rename(&self, path: &Path) {
        self.health().rename(path);
    }
}

/// Makes the file as long as `range` ends, with all the space of `range`.
fn extend(file: &File, kind: Kind, range: Range<u64>) -> std::io::Result<()> {
    let grown = again(|| {
        fallocate(
            file,
            FallocateFlags::empty(),
            range.start,
            range.end - range.start,
        )
    });
    match (grown, kind) {
        // Space that cannot be reserved is taken by writing zeros.
        (Err(e), _) if is_unsupported(&e) => {
            file.set_len(range.end)?;
            fill_holes(file, &range)
        }
        (Ok(()), Kind::Dax) => take_space(file, kind, range),
        (done, _) => done,
    }
}

/// Takes the space of `range`, inside the file. What is there stays, the rest reads as zero.
fn take_space(file: &File, kind: Kind, range: Range<u64>) -> std::io::Result<()> {
    if kind == Kind::Dax {
        fill_holes(file, &range)?;
        return again(|| fdatasync(file));
    }
    match reserve(file, &range) {
        Err(e) if is_unsupported(&e) => fill_holes(file, &range),
        done => done,
    }
}

fn no_space(path: &Path, needed: u64, source: std::io::Error) -> Error {
    full(path, needed, &source).unwrap_or_else(|| refused("taking space in", path, 0, source))
}

fn no_room(path: &Path, mapping: &Mapping, needed: u64) -> Error {
    let (path, room) = (path.display(), mapping.room() >> 20);
    Error::Full {
        what: format!("the address range of {room} MiB for {path} (see ulimit -v)"),
        needed,
    }
}
