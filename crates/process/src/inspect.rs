//! Looking at a state directory without changing it: `twinpage info` and `twinpage check`.
//!
//! * The directory is locked while it is looked at, so that nothing moves. One that is in use is read
//!   again until its bytes make sense together.
//! * What recovery would finish by writing is finished in this process's memory ([`Access::ReadOnly`]).

use crate::context::{self, Context};
use crate::error::{Error, Result};
use crate::files::{self, Ranges};
use crate::going_back;
use crate::layout::Mapping;
use crate::notes;
use crate::objects;
use crate::pace::Chosen;
use crate::pages::Pages;
use crate::state::{self, Kind, Store};
use crate::statistics::{self, Loaded, Statistics, Waits};
use crate::stdio::{self, StdioContext};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;
use twinpage_core::{Damage, Epoch, Scheme};
use twinpage_os::tracker::PAGE;
use twinpage_os::{Access, AnyMedium, Durability, Lock, LockError};

/// How often a state in use is read before it is given up, and the pause between.
const ATTEMPTS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(2);

/// A state as it is on the medium.
pub struct Inspection {
    /// The directory.
    pub path: PathBuf,
    /// The version of the directory.
    pub version: u32,
    /// What the checkpoints survive.
    pub durability: Durability,
    /// Who runs the program in it now, if anyone.
    pub in_use: Option<String>,
    /// The store, to be looked at only.
    pub store: Store,
    /// The last checkpoint; 0 when there is none yet.
    pub epoch: Epoch,
    /// What is kept with it; none before the first checkpoint.
    pub context: Option<Context>,
}

/// The version of the state directories this build writes; earlier ones are read.
pub const VERSION: u32 = state::VERSION;
/// What a state directory says it is.
pub const KIND: &str = state::PROGRAM;

/// Opens a state to look at it.
///
/// # Errors
/// When there is none, it is of another version or damaged, or, in use, never stands still.
pub fn inspect(path: &Path) -> Result<Inspection> {
    let Kind {
        version, durability, ..
    } = Kind::read(path)?;
    going_back::not_going_back(path)?;
    let (_lock, in_use) = match Lock::to_read(path) {
        Ok(lock) => (Some(lock), None),
        Err(LockError::Held { holder, .. }) => (None, Some(holder.to_string())),
        Err(error) => return Err(Error::State(error.to_string())),
    };
    let (store, epoch, context) = until_it_makes_sense(in_use.is_some(), || {
        let (store, epoch, bytes) = open(path, durability)?;
        let context = (epoch > 0).then(|| context::read(&bytes)).transpose()?;
        Ok((store, epoch, context))
    })?;
    Ok(Inspection {
        path: path.to_owned(),
        version,
        durability,
        in_use,
        store,
        epoch,
        context,
    })
}

/// Looks once at a state that stands still; at one in use until what is found makes sense together.
fn until_it_makes_sense<T>(is_in_use: bool, mut look: impl FnMut() -> Result<T>) -> Result<T> {
    let mut attempts = if is_in_use { ATTEMPTS } else { 1 };
    loop {
        attempts -= 1;
        match look() {
            Err(_) if attempts > 0 => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
}

/// The store of a state, to be looked at only, its newest epoch and that one's context.
pub(crate) fn open(path: &Path, durability: Durability) -> Result<(Store, Epoch, Vec<u8>)> {
    let medium = AnyMedium::open(path.join("store"), durability, Access::ReadOnly)?;
    let (store, recovered) = Store::recover(medium)?;
    Ok((store, recovered.epoch, recovered.context))
}

impl Inspection {
    /// Which pages are stored, and where: of the program first, then of its living descendants; none when it ended or
    /// never had a checkpoint.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn pages(&self) -> Result<Vec<Pages>> {
        match &self.context {
            Some(context) => Pages::from_tables(self.store.geometry(), &context.page_tables()),
            None => Ok(Vec::new()),
        }
    }

    /// What there is to undo in the program's own files; `None` before its first instruction.
    ///
    /// # Errors
    /// [`Error::Files`].
    pub fn undo(&self) -> Result<Option<files::Summary>> {
        until_it_makes_sense(self.in_use.is_some(), || match files::describe(&self.path) {
            Ok(summary) => Ok(Some(summary)),
            Err(files::Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        })
    }

    /// Bytes printed up to the checkpoint that are not outside yet. In a state that is not in use, they and the
    /// input that waits are compared with their checksums.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Streams`].
    pub fn held_output_bytes(&self) -> Result<u64> {
        let Some(context) = &self.context else {
            return Ok(0);
        };
        let streams = decode_streams(context)?;
        if self.in_use.is_none()
            && let Some(error) = streams.damage(&self.path)?.into_iter().next()
        {
            return Err(error.into());
        }
        Ok(streams.held_bytes(&self.path))
    }

    /// The calls that were refused, over all lives, each once: `call: why`.
    #[must_use]
    pub fn refused_calls(&self) -> Vec<String> {
        notes::refused_calls(&self.path)
    }

    /// The pace that was chosen last, over all lives; `None` when it was not kept.
    #[must_use]
    pub fn pace(&self) -> Option<Chosen> {
        statistics::read_pace(&self.path)
    }

    /// How checkpoints waited for the program's descendants, over all lives; `None` when it was not kept.
    #[must_use]
    pub fn waits(&self) -> Option<Waits> {
        statistics::read_waits(&self.path)
    }

    /// How the program's memory came back at the last resume; `None` when there was none, or it was not kept.
    #[must_use]
    pub fn loaded(&self) -> Option<Loaded> {
        statistics::read_loaded(&self.path)
    }

    /// What the checkpoints cost so far, over all lives; `None` when it was not kept.
    #[must_use]
    pub fn statistics(&self) -> Option<Statistics> {
        statistics::read(&self.path)
    }
}

/// The streams of a context.
///
/// # Errors
/// [`Error::Damaged`].
pub(crate) fn decode_streams(context: &Context) -> Result<StdioContext> {
    serde_json::from_slice(&context.streams)
        .map_err(|error| Error::Damaged(format!("context: the streams are not understood: {error}")))
}

/// What a check found.
#[derive(Default)]
pub struct Checked {
    /// Everything that is not as it was written. Empty when all is well.
    pub damage: Vec<Damage>,
    /// What the store says of itself; none when it cannot be opened.
    pub info: Option<twinpage_core::Info>,
    /// The version of the directory, and what the checkpoints should survive; none when that cannot be read.
    pub version: Option<u32>,
    /// See [`Checked::version`].
    pub durability: Option<Durability>,
}

/// What is not as it was written in the state that is kept as older checkpoint `number`.
pub(crate) fn check_older(state: &Path, number: u64) -> Result<Vec<Damage>> {
    let copy = going_back::path_of(state, number).join("state");
    let mut checked = Checked::default();
    let done = Kind::read(&copy).and_then(|kind| {
        checked.durability = Some(kind.durability);
        check_locked(&copy, &mut checked)
    });
    if let Err(error) = done {
        checked.damage.push(damage_of(error)?);
    }
    for damage in &mut checked.damage {
        damage.what = format!("older {number}: {}", damage.what);
    }
    Ok(checked.damage)
}

/// Stops at damage that keeps the rest from being read.
pub(crate) fn check_locked(path: &Path, checked: &mut Checked) -> Result<()> {
    let (store, epoch, bytes) = open(path, checked.durability.unwrap_or(Durability::Disk))?;
    checked.info = Some(store.info());
    checked.damage.extend(store.check()?);
    if epoch == 0 {
        return Ok(());
    }
    let context = context::read(&bytes)?;
    checked.damage.extend(check_pages(&store, &context)?);
    for error in decode_streams(&context)?.damage(path)? {
        checked.damage.push(damage_of(error.into())?);
    }
    checked.damage.extend(files::check(path, epoch)?);
    Ok(())
}

/// Each page of memory lies in a mapping, and the page table leads to places that a store can have. (A place that holds
/// nothing is a page of zeros, which is never written.)
fn check_pages(store: &Store, context: &Context) -> Result<Option<Damage>> {
    let tables = Pages::from_tables(store.geometry(), &context.page_tables())?;
    for (pages, process) in tables.into_iter().zip(context.processes()) {
        let damage = match stray_page(&pages, &process.fixed.mappings) {
            Some(address) => Some(damage_of_page(
                address,
                "it is stored, and nothing is mapped there",
            )),
            None => check_pages_of(store, &pages)?,
        };
        if damage.is_some() {
            return Ok(damage);
        }
    }
    Ok(None)
}

fn damage_of_page(address: u64, why: impl std::fmt::Display) -> Damage {
    Damage {
        what: "page table in the context".into(),
        at: 0,
        why: format!("the program's page {address:x}: {why}"),
    }
}

/// The first stored page of memory in no mapping whose pages are stored.
fn stray_page(pages: &Pages, mappings: &[Mapping]) -> Option<u64> {
    let captured = mappings.iter().filter(|mapping| mapping.kind.is_captured());
    let captured: Ranges = captured.map(Mapping::range).collect();
    let runs = pages.stored_runs().into_iter();
    let mut runs = runs.filter(|run| !objects::is_key(run.start));
    runs.find_map(|run| captured.gap(run)).map(|gap| gap.start)
}

fn check_pages_of(store: &Store, pages: &Pages) -> Result<Option<Damage>> {
    let mut line = vec![0; store.geometry().line_bytes()];
    let mut last = None;
    for address in (pages.stored_runs().into_iter()).flat_map(|run| run.step_by(PAGE as usize)) {
        let Some(piece) = pages.find(address).filter(|piece| last != Some(piece.page)) else {
            continue;
        };
        last = Some(piece.page);
        if let Err(error) = store.read(piece.page, piece.held.0.trailing_zeros() as usize, &mut line) {
            return Ok(Some(damage_of_page(address, error)));
        }
    }
    Ok(None)
}

/// Damage as a list has it.
///
/// # Errors
/// Those that say nothing about the bytes.
pub fn damage_of(error: Error) -> Result<Damage> {
    use twinpage_core::Error as StoreError;
    let is_lost = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::UnexpectedEof);
    let here = |what: String, why: String| Damage { what, at: 0, why };
    Ok(match error {
        Error::Store(StoreError::Damaged { what, at, why }) => Damage {
            what: what.into(),
            at,
            why,
        },
        Error::Store(StoreError::Foreign(why)) => here("store".into(), why),
        Error::Store(StoreError::Io { what, at, source }) if is_lost(source.kind()) => Damage {
            what,
            at,
            why: source.to_string(),
        },
        Error::Files(files::Error::Damaged { file, at, why }) => Damage {
            what: file.display().to_string(),
            at,
            why,
        },
        Error::Files(files::Error::Foreign { file, why }) => here(file.display().to_string(), why),
        Error::Files(files::Error::Io { path, source, .. }) if is_lost(source.kind()) => {
            here(path.display().to_string(), source.to_string())
        }
        Error::Streams(stdio::Error::Damaged { what, why }) => here(what.display().to_string(), why),
        Error::Streams(error @ stdio::Error::Context(_)) => here("context".into(), error.to_string()),
        Error::Damaged(why) => match why.split_once(": ") {
            Some((what, why)) => here(what.into(), why.into()),
            None => here("state".into(), why),
        },
        other => return Err(other),
    })
}
