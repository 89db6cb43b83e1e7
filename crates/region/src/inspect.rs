//! Looking at a region's file without changing it.

use crate::address::PAGE;
use crate::check::{self, Report};
use crate::copy::Copy;
use crate::epochs::not_run;
use crate::error::{Error, Result};
use crate::next_level::{Leveled, NextLevel};
use crate::store::{Shared, Store};
use crate::superblock::Superblock;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use twinpage_core::{Damage, Epoch, Info, ProductScheme, Scheme};
use twinpage_os::{Access, AnyMedium, Durability, Lock, LockError};

/// How often the file of a region in use is read before it is given up, and the pause between.
const ATTEMPTS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(2);

/// A region as it is in its file, at its last checkpoint.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::Region;
/// use twinpage::inspect::inspect;
///
/// Region::open("counts.twin")?.close()?;
/// let found = inspect("counts.twin")?;
/// assert_eq!((found.in_use.as_deref(), found.info().epoch), (None, 1));
/// let (damage, _) = found.check()?;
/// assert!(damage.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Inspection {
    path: PathBuf,
    /// The process that has it open now, if any.
    pub in_use: Option<String>,
    /// What the checkpoints survive, by where the file lies.
    pub durability: Durability,
    /// What is kept beside the pages; none before the first checkpoint.
    pub superblock: Option<Superblock>,
    store: Leveled<ProductScheme<AnyMedium>>,
    _lock: Option<Lock>,
}

/// Reads a region's file. It may be in use.
///
/// # Errors
/// When there is none, it is something else or damaged, or, in use, never stands still.
pub fn inspect(path: impl AsRef<Path>) -> Result<Inspection> {
    let path = path.as_ref();
    let (lock, in_use) = match Lock::to_read(path) {
        Ok(lock) => (Some(lock), None),
        Err(LockError::Held { holder, .. }) => (None, Some(holder.to_string())),
        Err(error) => return Err(error.into()),
    };
    let durability = twinpage_os::name::durability_of(path)
        .map_err(|e| Error::system(format!("looking at {}", path.display()), e))?;
    let mut attempts = if in_use.is_some() { ATTEMPTS } else { 1 };
    loop {
        attempts -= 1;
        match read(path, durability) {
            Ok((store, superblock)) => {
                return Ok(Inspection {
                    path: path.to_owned(),
                    in_use,
                    durability,
                    superblock,
                    store,
                    _lock: lock,
                });
            }
            Err(_) if attempts > 0 => std::thread::sleep(PAUSE),
            Err(error) => {
                let Some(holder) = in_use else {
                    return Err(error);
                };
                return Err(Error::Invalid(format!(
                    "{} is in use by {holder}, and could not be read beside it ({error}): make a copy with `twinpage backup` and look at that",
                    path.display()
                )));
            }
        }
    }
}

type Found = (Leveled<ProductScheme<AnyMedium>>, Option<Superblock>);

fn read(path: &Path, durability: Durability) -> Result<Found> {
    let medium = AnyMedium::open(path, durability, Access::ReadOnly)?;
    let (scheme, found) = ProductScheme::recover(medium)?;
    let superblock = (found.epoch > 0).then(|| Superblock::decode(&found.context));
    let superblock = superblock.transpose()?;
    let look = |superblock: &Superblock| NextLevel::look(path, superblock, scheme.geometry().page_bytes());
    let next = superblock.as_ref().map_or(Ok(None), look)?;
    let store = Leveled {
        store: Shared::new(scheme),
        next: next.map(Arc::new),
    };
    Ok((store, superblock))
}

impl Inspection {
    /// What the store says of itself.
    #[must_use]
    pub fn info(&self) -> Info {
        Store::info(&self.store)
    }

    /// The file of the region's next level, and the objects that are there: their numbers, and the bytes of each. None
    /// where nothing is in one.
    #[must_use]
    pub fn next_level(&self) -> Option<(&Path, BTreeMap<u64, u64>)> {
        let next = self.store.next.as_ref()?;
        Some((next.file(), next.objects()))
    }

    /// Reads everything: what is not as it was written in the store and the next level, and what the heap and its roots
    /// are like, if the region has a heap.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a region in use, which does not stand still.
    pub fn check(&self) -> Result<(Vec<Damage>, Option<Report>)> {
        self.at_rest("check")?;
        let mut damage = self.store.check()?;
        let checked = self
            .superblock
            .map(|superblock| check_content(&self.store, &superblock));
        let report = match checked.transpose() {
            Ok(report) => report.flatten(),
            // A page that cannot be believed: the heap in it cannot be looked at.
            Err(Error::Store(twinpage_core::Error::Damaged { what, at, why })) => {
                let what = what.to_owned();
                let found = Damage { what, at, why };
                if !damage.contains(&found) {
                    damage.push(found);
                }
                None
            }
            Err(error) => return Err(error),
        };
        Ok((damage, report))
    }

    /// Copies the region to the new file `to`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a region in use (see [`crate::control_socket::backup`]), or one without a
    /// checkpoint, and when there is such a file; those of the file's medium.
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<Epoch> {
        self.at_rest("backup")?;
        let superblock = self
            .superblock
            .ok_or_else(|| Error::Invalid(format!("{} has no checkpoint yet", self.path.display())))?;
        if superblock.log.id != 0 {
            return Err(not_run());
        }
        let mut copy = Copy::begin(to.as_ref())?;
        copy.pages(&self.store, 0..superblock.bytes as usize / PAGE)?;
        copy.end(&superblock, to.as_ref())?;
        Ok(self.store.epoch())
    }

    fn at_rest(&self, deed: &str) -> Result<()> {
        match &self.in_use {
            None => Ok(()),
            Some(holder) => Err(Error::Invalid(format!(
                "{} is in use by {holder} and does not stand still: make a copy with `twinpage backup` and {deed} that",
                self.path.display()
            ))),
        }
    }
}

/// What the heap of a region is like, if it has one. Reads all there is.
pub(crate) fn check_content(store: &dyn Store, superblock: &Superblock) -> Result<Option<Report>> {
    let bytes = usize::try_from(superblock.bytes)
        .map_err(|_| Error::Damaged(format!("a region of {} bytes", superblock.bytes)))?;
    let no_memory = |_| Error::Invalid(format!("no memory for all {bytes} bytes of the region"));
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(no_memory)?;
    // The system's zeros take no room, and only what is there is read over them.
    let mut image = vec![0; bytes];
    for (page, at) in image.chunks_mut(PAGE).zip((0..).step_by(PAGE)) {
        if store.has_bytes(at) {
            store.read_bytes(at, page)?;
        }
    }
    let first = &image[..bytes.min(PAGE)];
    let has_heap = first.iter().any(|&byte| byte != 0);
    Ok(has_heap.then(|| check::check_image(&image, superblock.base)))
}
