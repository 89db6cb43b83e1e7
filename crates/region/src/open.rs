//! A region is made, or found again.

use crate::address::PAGE;
use crate::epochs::{Checkpointer, Checkpoints, MarkedLines, Progress};
use crate::error::{Error, Result, RootError};
use crate::inspect;
use crate::marks;
use crate::next_level::{Leveled, NextLevel, Owner};
use crate::options::{Consolidation, Options, Products};
use crate::paging::Pager;
use crate::region::{Inner, Region};
use crate::sections::Sections;
use crate::statistics::Counters;
use crate::store::{Shared, Store};
use crate::superblock::Superblock;
use crate::timer::{Rest, Timer, TimerRequest, Want};
use crate::window::Window;
use crate::zone::DATA_BYTES;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use twinpage_core::{Geometry, Idle, Medium, Stores};
use twinpage_os::{Access, AnyMedium, Durability, Lock};

/// How long a cut waits for an update if never said.
const PATIENCE: Duration = Duration::from_secs(10);

impl Region {
    /// How to make or open a region.
    pub fn options() -> Options {
        Options::default()
    }

    /// Makes or opens the region in the file `path`, with default options.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Region> {
        Options::default().open(path)
    }
}

impl Options {
    /// Opens the region in the file `path`, and makes it if there is none.
    ///
    /// A new file appears under its name only when the region in it is whole.
    ///
    /// # Errors
    /// [`Error::Locked`] when it is open elsewhere, [`Error::Taken`] when its addresses are in use
    /// here, [`Error::Foreign`] and [`Error::Damaged`] and those of the store say what is wrong with
    /// the file, which is then left as it is.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Region> {
        self.open_with(path, &Products)
    }

    /// As [`Options::open`], on a scheme of another crate: those that papers measure the dual page against are in
    /// `twinpage-baselines`. A region of theirs is always opened so.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # std::env::set_current_dir(folder.path())?;
    /// use twinpage::{Region, SchemeKind};
    /// use twinpage_baselines::AllSchemes;
    ///
    /// let options = Region::options().sections().scheme(SchemeKind::UndoLog);
    /// let region = options.open_with("logged.twin", &AllSchemes)?;
    /// let count = region.shared::<u64>("count")?;
    /// region.atomic(|section| {
    ///     *count.write(section) += 1;
    ///     Ok::<(), twinpage::Error>(())
    /// })?; // the old line was in the log, durable, before the new one was written home
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open_with(self, path: impl AsRef<Path>, stores: &impl Stores) -> Result<Region> {
        self.mode()?;
        let path = &twinpage_os::name::resolved(path.as_ref());
        self.level.is_beside(path)?;
        loop {
            match Lock::behind_readers(path) {
                Ok(lock) => return self.open_existing(path, lock, stores),
                Err(twinpage_os::LockError::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(region) = self.create(path, stores)? {
                return Ok(region);
            }
            // Another process made it just now: open that one.
        }
    }

    fn open_existing(&self, path: &Path, lock: Lock, stores: &impl Stores) -> Result<Region> {
        let durability = self.durability_at(path)?;
        let medium = AnyMedium::open(path, durability, Access::ReadWrite).map_err(|e| not_ours(path, e))?;
        let mut region = self.recover(medium, Some(lock), Some((path, durability)), stores)?;
        region.listen(path, durability);
        Ok(region)
    }

    /// Makes the region beside its name and then gives it the name; `None` if that is taken by now.
    fn create(&self, path: &Path, stores: &impl Stores) -> Result<Option<Region>> {
        let (scheme, mut draft) = self.draft(path, stores)?;
        let durability = self.durability_in_folder_of(path)?;
        let mut region = Region::begin(self, scheme, &[], draft.take_lock(), Some((path, durability)))?;
        if !draft.name(path)? {
            return Ok(None);
        }
        region.listen(path, durability);
        Ok(Some(region))
    }

    /// Opens the region on a medium of one's own, and makes it if the medium is empty: `geometry` is
    /// how such a medium is best cut.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open_on<M: Medium + Send + 'static>(self, medium: M, geometry: Geometry) -> Result<Region> {
        self.open_on_with(medium, geometry, &Products)
    }

    /// As [`Options::open_on`], in a store of another make.
    ///
    /// # Errors
    /// As [`Options::open`].
    #[doc(hidden)]
    pub fn open_on_with<M: Medium + Send + 'static>(
        self,
        medium: M,
        geometry: Geometry,
        stores: &impl Stores,
    ) -> Result<Region> {
        self.mode()?;
        if medium.is_empty() {
            Region::begin(&self, self.make(medium, geometry, stores)?, &[], None, None)
        } else {
            self.recover(medium, None, None, stores)
        }
    }

    fn recover<M: Medium + Send + 'static>(
        &self,
        medium: M,
        lock: Option<Lock>,
        file: Option<(&Path, Durability)>,
        stores: &impl Stores,
    ) -> Result<Region> {
        let found = self.find(medium, stores);
        let region =
            found.and_then(|(scheme, found)| Region::begin(self, scheme, &found.context, lock, file));
        region.map_err(|error| match file {
            Some((file, _)) => error.in_file(file),
            None => error,
        })
    }
}

/// Names the way to read a file that may not be written.
fn not_ours(path: &Path, error: twinpage_core::Error) -> Error {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    match error {
        twinpage_core::Error::Io { source, .. }
            if matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem) =>
        {
            let what = format!(
                "opening {} to write (`Reader::open` only reads it)",
                path.display()
            );
            Error::system(what, source)
        }
        other => other.into(),
    }
}

impl Options {
    /// The next level that the region has.
    fn find_level(
        &self,
        owner: Option<&Owner<'_>>,
        found: Option<&Superblock>,
    ) -> Result<Option<Arc<NextLevel>>> {
        let next = match (owner, found) {
            (Some(owner), Some(superblock)) => owner.find(superblock, &self.level)?,
            _ => None,
        };
        if next
            .as_ref()
            .is_some_and(|next| self.sections && !next.is_empty())
        {
            return Err(Error::Invalid(
                "objects of the region are in its next level, which sections cannot use: open it without `sections` \
                 and free them, or copy it"
                    .into(),
            ));
        }
        Ok(next.map(Arc::new))
    }

    /// The next level that it gets.
    fn begin_level(&self, owner: Option<&Owner<'_>>, base: usize) -> Result<Option<Arc<NextLevel>>> {
        match owner {
            Some(owner) => Ok(owner.begin(base, &self.level)?.map(Arc::new)),
            None if self.level.is_nothing() => Ok(None),
            None => Err(Error::Invalid(
                "only a region in a file of its own has a next level".into(),
            )),
        }
    }

    /// Refuses what the region cannot be opened with.
    fn fits(&self, found: Option<&Superblock>) -> Result<()> {
        if self.sections && found.is_some_and(|found| found.log.id != 0) {
            return Err(Error::Invalid(
                "the region's objects have calls in their operation log, which sections cannot run: open it without \
                 `sections`, open its objects, and close it"
                    .into(),
            ));
        }
        if let (Some(wanted), Some(base)) = (self.base, found.map(|found| found.base as usize))
            && wanted != base
        {
            return Err(Error::Invalid(format!(
                "the region lives at {base:#x} and cannot be opened at {wanted:#x}: its pointers are only good there"
            )));
        }
        Ok(())
    }

    /// Verifies the data on the medium before it is used: all of it with `checked`. The page of the heap's header is
    /// always read, because every use begins with it.
    fn verify(&self, store: &dyn Store, found: Option<&Superblock>) -> Result<()> {
        let Some(superblock) = found else {
            return Ok(());
        };
        if self.checked {
            check(store, superblock)?;
        }
        if superblock.bytes > 0 {
            store.read_bytes(0, &mut [0; PAGE])?;
        }
        Ok(())
    }

    /// Reserves the region's addresses, and makes as many usable as it has bytes.
    fn window(&self, found: Option<&Superblock>, geometry: Geometry) -> Result<Window> {
        let base = found.map(|found| found.base as usize);
        let window = Window::reserve(base.or(self.base))?;
        let place = window.place();
        marks::set_geometry(place, geometry);
        let old_bound = found.map_or(DATA_BYTES, |found| found.bound as usize);
        place.set_bound(self.bound.unwrap_or(old_bound));
        place.grow(found.map_or(0, |found| found.bytes as usize))?;
        Ok(window)
    }

    /// Makes the shared state of a region from its last checkpoint. The pager asks for an early checkpoint through `wish`
    /// when memory is short.
    fn begin_inner<S: Idle + Send + 'static>(
        &self,
        scheme: S,
        context: &[u8],
        lock: Option<Lock>,
        file: Option<(&Path, Durability)>,
        wish: Arc<TimerRequest>,
    ) -> Result<Inner> {
        let (geometry, epoch, poison) = (scheme.geometry(), scheme.epoch(), scheme.info().poison);
        let found = match epoch {
            0 => None,
            _ => Some(Superblock::decode(context)?),
        };
        self.fits(found.as_ref())?;
        let owner = file.map(|(file, durability)| Owner {
            file,
            durability,
            page_bytes: geometry.page_bytes(),
        });
        let mut next = self.find_level(owner.as_ref(), found.as_ref())?;
        let scheme = Shared::new(scheme);
        let store = Leveled {
            store: scheme.clone(),
            next: next.clone(),
        };
        self.verify(&store, found.as_ref())?;
        let window = self.window(found.as_ref(), geometry)?;
        let place = window.place();
        if next.is_none() {
            next = self.begin_level(owner.as_ref(), place.base().addr())?;
        }
        let store = Leveled {
            next: next.clone(),
            ..store
        };
        let bytes = found.map_or(0, |found| found.bytes as usize);
        let progress = Arc::new(Progress::new(epoch, found, poison.clone()));
        let serving = Pager::start(
            place,
            bytes,
            Box::new(store.clone()),
            poison,
            self.budget,
            Box::new(move || wish.set(Want::Checkpoint)),
        )?;
        let counters = Arc::new(Counters::default());
        let patience = self.patience.unwrap_or(PATIENCE);
        // A region without a checkpoint gets its first one now.
        let saved_bytes = found.map_or(usize::MAX, |_| bytes);
        let mut source = MarkedLines::new(place, geometry, progress.clone(), counters.clone(), saved_bytes);
        (source.patience, source.next) = (patience, next.clone());
        let mut own = Checkpointer::new(scheme.clone(), source);
        if found.is_none() {
            own.checkpoint()?;
        }
        let (sections, checkpoints): (_, Box<dyn Checkpoints>) = match self.sections {
            false => (None, Box::new(own)),
            true => {
                let (sections, committer) = Sections::begin(scheme, place, &progress, &counters);
                (Some(sections), committer)
            }
        };
        Ok(Inner {
            checkpoints: Mutex::new(checkpoints),
            patience,
            server_threads: self.server_threads,
            kept: self.kept.clone(),
            next,
            room: OnceLock::new(),
            heap: OnceLock::new(),
            sections,
            progress,
            counters,
            store: Box::new(store),
            serving,
            window,
            _lock: lock,
            process: std::process::id(),
        })
    }

    /// The thread that makes checkpoints in time, or gives space back at rest, if there is one.
    fn begin_timer(&self, wish: Arc<TimerRequest>, inner: &Arc<Inner>) -> Result<Option<Timer>> {
        let consolidates = self.consolidation == Consolidation::AtRest;
        // Without a period it makes checkpoints when memory is short. Sections make their own.
        Ok(match (self.every, self.budget, self.sections) {
            (None, None, true) if consolidates => {
                Some(Timer::start(Some(Rest::LEAST), wish, rests(inner.clone()))?)
            }
            (None, None, _) => None,
            (every, ..) => Some(Timer::start(every, wish, ticks(inner.clone(), consolidates))?),
        })
    }
}

impl Region {
    /// The region of a store that was just made (no `context`) or recovered.
    fn begin<S: Idle + Send + 'static>(
        options: &Options,
        scheme: S,
        context: &[u8],
        lock: Option<Lock>,
        file: Option<(&Path, Durability)>,
    ) -> Result<Region> {
        let wish = Arc::new(TimerRequest::default());
        let inner = Arc::new(options.begin_inner(scheme, context, lock, file, wish.clone())?);
        let timer = options.begin_timer(wish, &inner)?;
        let region = Region {
            inner,
            timer,
            is_timed: options.every.is_some(),
            behind: OnceLock::new(),
            listening: None,
            attached: Mutex::new(None),
            file: None,
        };
        if options.sections {
            // So that no section that is undone has made it.
            region.change(|update| Ok(region.inner.heap(update).map(|_| ()).map_err(RootError::Heap)?))?;
        }
        Ok(region)
    }
}

/// What a timer does: a checkpoint, and if it `consolidates`, a step towards less space where nothing was written for some
/// time.
fn ticks(inner: Arc<Inner>, consolidates: bool) -> impl FnMut() -> bool + Send + 'static {
    let mut rest = Rest::new(inner.progress().epoch());
    move || {
        // Its waiters are told; without room the next one tries again.
        let made = inner.checkpoint();
        let given = match &made {
            Ok(epoch) if consolidates && rest.lasts(*epoch) => inner.give_back_step().map(drop),
            _ => Ok(()),
        };
        !matches!(made.map(drop).and(given), Err(Error::Poisoned(_)))
    }
}

/// What the timer of a region of sections does: all steps towards less space, until a section is committed.
fn rests(inner: Arc<Inner>) -> impl FnMut() -> bool + Send + 'static {
    let mut rest = Rest::new(inner.progress().epoch());
    move || {
        while rest.lasts(inner.progress().epoch()) {
            match inner.give_back_step() {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => return false,
            }
        }
        true
    }
}

/// Refuses what is damaged anywhere.
fn check(store: &dyn Store, superblock: &Superblock) -> Result<()> {
    let (damage, report) = (store.check()?, inspect::check_content(store, superblock)?);
    let findings = report.unwrap_or_default().damage;
    let damage = damage
        .iter()
        .map(|d| format!("{} at byte {}: {}", d.what, d.at, d.why));
    let mut all = damage.chain(findings.iter().map(ToString::to_string));
    all.next().map_or(Ok(()), |first| Err(Error::Damaged(first)))
}
