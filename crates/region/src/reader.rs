//! The last durable checkpoint of a region, read by any process while another one changes the region.
//!
//! * A reader takes no lock, writes nothing and stops no writer: it copies the checkpoint into memory of its own, at the
//!   region's addresses, and lets the file go.
//! * A copy counts only if no checkpoint, and no other change of the mapping, became durable meanwhile: until then
//!   nothing the checkpoint needs is written over. To know, recovery runs again after the copy and must read the same
//!   bytes ([`Witness`]): every such change begins with a record that recovery reads.
//! * A copy that was overtaken is made again. A writer too quick for that is asked for a copy ([`crate::control_socket`]).
//! * A file that stands still can be recovered, whatever its writer is at. One that cannot, twice with the same bytes, is
//!   damaged.

use crate::address::PAGE;
use crate::check::Report;
use crate::control_socket;
use crate::error::RootError;
use crate::error::{Error, Result};
use crate::heap::{Heap, HeapError, RawHeap};
use crate::next_level::{Leveled, NextLevel};
use crate::persist::Persist;
use crate::region::View;
use crate::root_table;
use crate::store::{Shared, Store};
use crate::superblock::Superblock;
use crate::window::Window;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use twinpage_core::{Cause, Epoch, LineMask, Medium, Offset, PageLines, ProductScheme, Scheme};
use twinpage_os::{Access, AnyMedium};

/// How often a copy is tried, with a pause between; after every few a writer is asked for one.
const ATTEMPTS: u32 = 20;
const ASKED_AFTER: u32 = 4;
const PAUSE: Duration = Duration::from_millis(1);

/// A region as it was at its last durable checkpoint, to be read: [`Region::open`](crate::Region::open)'s sibling for
/// processes that look at what another one writes.
///
/// It does not change any more; open another one for a newer checkpoint, when this one is dropped: both have the
/// region's addresses. It takes memory for all of the region.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::collections::Vec;
/// use twinpage::{Reader, Region};
///
/// let region = Region::open("temperatures.twin")?;
/// let mut measured = region.root::<Vec<f64>>("measured")?;
/// region.update(|u| measured.get_mut(u).push(21.5));
/// # drop(measured);
/// region.close()?; // or in another process, which goes on
///
/// let reader = Reader::open("temperatures.twin")?;
/// let measured = reader.root::<Vec<f64>>("measured")?;
/// assert_eq!(reader.read(|v| measured.get(v).last().copied()), Some(21.5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    window: Arc<Window>,
    epoch: Epoch,
}

/// A named value of a region that is only read: [`Reader::root`].
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::{ReadRoot, Reader, Region};
///
/// Region::open("count.twin")?.root_with::<u64>("count", |_| 7)?;
/// let reader = Reader::open("count.twin")?;
/// let count: ReadRoot<u64> = reader.root("count")?;
/// assert_eq!(reader.read(|v| *count.get(v)), 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ReadRoot<T> {
    at: NonNull<T>,
    name: String,
    window: Arc<Window>,
}

// SAFETY: its memory does not change.
unsafe impl<T: Sync> Send for ReadRoot<T> {}
// SAFETY: its memory does not change, and is shared already by the clones of `window`.
unsafe impl<T: Sync> Sync for ReadRoot<T> {}

impl Reader {
    /// Copies the last durable checkpoint of the region in the file `path`.
    ///
    /// # Errors
    /// [`Error::Overtaken`] when the process that writes is too quick and cannot be asked for a copy;
    /// [`Error::Taken`] when this process has the region open; otherwise as [`Options::open`](crate::Options::open)
    /// of a region that is there.
    pub fn open(path: impl AsRef<Path>) -> Result<Reader> {
        let path = path.as_ref();
        let (mut unreadable, mut why) = (None, String::new());
        for attempt in 1..=ATTEMPTS {
            match copy(path)? {
                Copied::Whole(reader) => return Ok(reader),
                Copied::Overtaken => unreadable = None,
                Copied::Unreadable(error, seen) if unreadable == Some(seen) => return Err(error),
                Copied::Unreadable(_, seen) => unreadable = Some(seen),
            }
            if attempt % ASKED_AFTER == 0 {
                match ask(path) {
                    Ok(reader) => return Ok(reader),
                    Err(error) => why = error.to_string(), // no writer, or one that died just now
                }
            }
            std::thread::sleep(PAUSE);
        }
        Err(Error::Overtaken {
            path: path.to_owned(),
            attempts: ATTEMPTS,
            why,
        })
    }

    /// The epoch of the checkpoint.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Reads the region: roots are read with the view that `look` is given.
    pub fn read<R>(&self, look: impl for<'r> FnOnce(&View<'r>) -> R) -> R {
        look(&View::new(self.window.place(), std::ptr::null()))
    }

    /// The root `name`.
    ///
    /// # Errors
    /// [`RootError`]: there is none, it is of another type (also of one this type was before: only an opening that
    /// may write migrates it), or the heap is damaged.
    pub fn root<T: Persist>(&self, name: &str) -> Result<ReadRoot<T>> {
        let at = self.find::<T>(name)?;
        Ok(ReadRoot {
            at,
            name: name.to_owned(),
            window: self.window.clone(),
        })
    }

    /// Looks at all of the heap and at every root: what is in use, leaked or damaged.
    ///
    /// # Errors
    /// [`RootError::Heap`] when there is no heap to be looked at.
    pub fn check(&self) -> Result<Report> {
        if self.window.place().bytes() == 0 {
            return Ok(Report::default());
        }
        let heap = RawHeap::open(self.window.place()).map_err(RootError::from)?;
        Ok(heap.check())
    }

    fn find<T: Persist>(&self, name: &str) -> Result<NonNull<T>, RootError> {
        let missing = || RootError::Missing { name: name.into() };
        if self.window.place().bytes() == 0 {
            return Err(missing());
        }
        let raw = RawHeap::open(self.window.place())?;
        // SAFETY: used here only, while the window is there.
        let heap = unsafe { Heap::branded(raw) };
        let found = root_table::find(heap, name)?.ok_or_else(missing)?;
        found.is_read_as::<T>(name)?;
        let at = std::ptr::with_exposed_provenance_mut::<T>(found.at as usize);
        NonNull::new(at).ok_or_else(|| HeapError::damaged(format!("root {name:?} at address 0")).into())
    }
}

impl<T: Persist> ReadRoot<T> {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value.
    ///
    /// # Panics
    /// In a reading of another region.
    #[must_use]
    #[track_caller]
    pub fn get<'a, 'r>(&'a self, view: &'a View<'r>) -> &'a T::In<'r> {
        let is_its_own = view.place() == self.window.place();
        assert!(
            is_its_own,
            "root {:?} is of another region than this reading",
            self.name
        );
        // SAFETY: the value is there as long as the window, of this type, and it does not change. The brand is of this
        // reading only.
        unsafe { self.at.cast().as_ref() }
    }
}

/// A store that is recovered for looking, and what was committed with its last epoch.
type Found = (Leveled<ProductScheme<Witness>>, Superblock, Epoch);

/// Recovers the store, or not, and says what that read.
fn recover(path: &Path) -> (Result<Found>, u64) {
    let seen = Arc::new(AtomicU64::new(0));
    let found = recover_seen(path, seen.clone());
    (found, seen.load(Ordering::Relaxed))
}

fn recover_seen(path: &Path, seen: Arc<AtomicU64>) -> Result<Found> {
    let durability = twinpage_os::name::durability_of(path)
        .map_err(|e| Error::system(format!("looking at {}", path.display()), e))?;
    let medium = Witness {
        medium: AnyMedium::open(path, durability, Access::ReadOnly)?,
        seen,
    };
    let found = ProductScheme::recover(medium).map_err(Error::from);
    let found =
        found.and_then(|(scheme, found)| Ok((scheme, Superblock::decode(&found.context)?, found.epoch)));
    let (scheme, superblock, epoch) = found.map_err(|error| error.in_file(path))?;
    let next = NextLevel::look(path, &superblock, scheme.geometry().page_bytes())?;
    let store = Leveled {
        store: Shared::new(scheme),
        next: next.map(Arc::new),
    };
    Ok((store, superblock, epoch))
}

/// What came of copying a checkpoint.
enum Copied {
    Whole(Reader),
    Overtaken,
    /// The file cannot be recovered: it is damaged, or a writer changed it meanwhile. With what was read.
    Unreadable(Error, u64),
}

fn copy(path: &Path) -> Result<Copied> {
    let (found, first) = recover(path);
    let (store, superblock, epoch) = match found {
        Ok(found) => found,
        Err(error) => return Ok(Copied::Unreadable(error, first)),
    };
    let copied = fill(&store, &superblock, epoch);
    match recover(path) {
        // What was not read right was not because of a writer.
        (Ok(_), second) if first == second => copied.map(Copied::Whole),
        (Ok(_), _) => Ok(Copied::Overtaken),
        (Err(error), second) => Ok(Copied::Unreadable(error, second)),
    }
}

/// A copy that the process which has the region open makes.
fn ask(path: &Path) -> Result<Reader> {
    let folder = Private::new().map_err(|e| Error::system("making a folder for a copy of the region", e))?;
    let to = folder.0.join("copy.twin");
    control_socket::copy(path, &to)?;
    match copy(&to)? {
        Copied::Whole(reader) => Ok(reader),
        Copied::Overtaken => Err(Error::Invalid("the copy changed".into())),
        Copied::Unreadable(error, _) => Err(error),
    }
}

fn fill(store: &dyn Store, superblock: &Superblock, epoch: Epoch) -> Result<Reader> {
    let window = Window::reserve(Some(superblock.base as usize))?;
    let place = window.place();
    let bytes = superblock.bytes as usize;
    place.grow(bytes)?;
    for at in (0..bytes).step_by(PAGE).filter(|&at| store.has_bytes(at)) {
        let length = PAGE.min(bytes - at);
        // SAFETY: usable bytes of a window that is known only here.
        let page = unsafe { std::slice::from_raw_parts_mut(place.base().wrapping_add(at), length) };
        store.read_bytes(at, page)?;
    }
    Ok(Reader {
        window: Arc::new(window),
        epoch,
    })
}

/// A medium, and a sum of all that was read of it, in order.
#[derive(Debug)]
struct Witness {
    medium: AnyMedium,
    seen: Arc<AtomicU64>,
}

impl Medium for Witness {
    fn hint(&self, cause: Cause, path: twinpage_core::Path) {
        self.medium.hint(cause, path);
    }
    fn accessed(&self, bytes: usize) {
        self.medium.accessed(bytes);
    }
    fn len(&self) -> u64 {
        self.medium.len()
    }
    fn grow(&mut self, len: u64) -> twinpage_core::Result<()> {
        self.medium.grow(len)
    }
    fn read(&self, at: Offset, into: &mut [u8]) -> twinpage_core::Result<()> {
        self.medium.read(at, into)?;
        let seen = self.seen.load(Ordering::Relaxed).rotate_left(17) ^ at;
        let sum = u64::from(crc32c::crc32c_append(seen as u32, into));
        let next = seen.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ sum;
        self.seen.store(next, Ordering::Relaxed);
        Ok(())
    }
    fn write(&mut self, at: Offset, bytes: &[u8]) -> twinpage_core::Result<()> {
        self.medium.write(at, bytes)
    }
    fn write_lines(
        &mut self,
        page_at: Offset,
        chosen: LineMask,
        from: &PageLines<'_>,
    ) -> twinpage_core::Result<()> {
        self.medium.write_lines(page_at, chosen, from)
    }
    fn discard(&mut self, range: Range<Offset>) -> twinpage_core::Result<()> {
        self.medium.discard(range)
    }
    fn hand_over(&mut self) -> twinpage_core::Result<()> {
        self.medium.hand_over()
    }
    fn fence(&mut self) -> twinpage_core::Result<()> {
        self.medium.fence()
    }
    fn atom(&self) -> usize {
        self.medium.atom()
    }
}

/// A folder that only this user can look into, removed when it is dropped.
struct Private(PathBuf);

impl Private {
    fn new() -> std::io::Result<Private> {
        use std::hash::{BuildHasher, RandomState};
        use std::os::unix::fs::DirBuilderExt;
        let name = format!(
            "twinpage-{:016x}",
            RandomState::new().hash_one(std::process::id())
        );
        let path = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Private(path))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // What is left is a file of the system's folder for such.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
