//! The state directory: where a program's checkpoints live.
//!
//! ```text
//! DIR/store      the checkpoints (docs/format.md): on a disk packed lines, else a dual page
//! DIR/kind       one line of JSON: what this is, its format version, its durability
//! DIR/undo.*     what the program's changes to its own files destroyed (docs/undo.md)
//! DIR/statistics what the checkpoints cost so far (`statistics`)
//! DIR/older/     older checkpoints that are kept (`older`)
//! DIR/...        the streams' logs (docs/guarantees.md)
//! ```
//!
//! * The directory is locked by whoever runs the program in it.
//! * `kind` is written last when a state is made, so a directory with one is complete.

use crate::copy::{OLDER, entries, sync};
use crate::error::{Error, Result};
use crate::going_back;
use crate::sockets::Replies;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};
use twinpage_core::product::{ProductScheme, Setup};
use twinpage_core::{Geometry, Recovered, SchemeKind};
use twinpage_os::cpuid::Level;
use twinpage_os::namespaces::Place;
use twinpage_os::{Access, AnyMedium, Durability, Holder, Lock, LockError, dax};

/// The scheme a program's memory is kept with.
pub type Store = ProductScheme<AnyMedium>;

/// The version of states with a dual page: in memory, and by earlier builds on a disk, with lines of 4 KiB.
const DUAL_PAGE: u32 = 1;
/// That of states with packed lines. Raised when the directory changes shape.
const PACKED: u32 = 2;
pub(crate) const VERSION: u32 = PACKED;
pub(crate) const PROGRAM: &str = "twinpage program";
/// The name that a resume gives for a moment to a named pipe whose own is gone.
pub(crate) const GONE_FIFO: &str = "gone.fifo";

/// What the directory says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct KindFile {
    kind: String,
    version: u32,
    durability: String,
    /// States of earlier builds say nothing: sockets to the outside were refused.
    #[serde(default)]
    replies: Replies,
    /// The signal that tells the program of a resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resume_signal: Option<i32>,
    /// Those of earlier builds had the machine's.
    #[serde(default, skip_serializing_if = "Network::is_machines")]
    network: Network,
    /// The name of the level above which the processor's features are hidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpu_floor: Option<String>,
}

/// The network that a program is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// The machine's: connections to the outside are reset at a resume.
    #[default]
    Machine,
    /// One of its own, with nothing but a loopback: it holds no connection that a resume would reset, and no port that
    /// another program could take.
    Kept,
}

impl Network {
    const fn is_machines(&self) -> bool {
        matches!(self, Network::Machine)
    }
}

/// What the user chose for all lives of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Choices {
    /// When what it sends to the outside goes out.
    pub replies: Replies,
    /// The signal that tells it of each resume.
    pub resume_signal: Option<i32>,
    /// The network it is in.
    pub network: Network,
    /// The level of the least processor that it is to go on with: what is above is hidden from it.
    pub cpu_floor: Option<Level>,
}

/// A locked state directory.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    durability: Durability,
    choices: Choices,
    _lock: Lock,
}

impl StateDir {
    /// Makes a new state in `path`, which does not exist, is empty, or has a state without a checkpoint: that one's
    /// program has nothing to go on from.
    ///
    /// # Errors
    /// When there is a state already, or the directory cannot be written: nothing is left in it then, so that it can be
    /// tried again.
    pub fn create(path: &Path, durability: Durability, choices: Choices) -> Result<(StateDir, Store)> {
        make_directory(path)?;
        let lock = lock(path)?;
        if !entries(path)?.is_empty() {
            if !lacks_checkpoint(path) {
                return Err(Error::State(format!(
                    "{} is not empty: to go on with the program in it, use twinpage resume; to begin anew, remove it or name another with --state",
                    path.display()
                )));
            }
            clear(path)?;
        }
        let store = begin(path, durability, choices).inspect_err(|_| {
            let _ = clear(path); // the first error is told
        })?;
        let path = path.canonicalize().map_err(Error::file("cannot find", path))?;
        Ok((
            StateDir {
                path,
                durability,
                choices,
                _lock: lock,
            },
            store,
        ))
    }

    /// Opens the state in `path` to go on with it.
    ///
    /// # Errors
    /// When there is none, it is in use, damaged, or of another version.
    pub fn open(path: &Path) -> Result<(StateDir, Store, Recovered)> {
        read_kind(path)?;
        let lock = lock(path)?;
        let path = path.canonicalize().map_err(Error::file("cannot find", path))?;
        going_back::finish(&path)?;
        let Kind {
            durability, choices, ..
        } = Kind::read(&path)?;
        let medium = AnyMedium::open(path.join("store"), durability, Access::ReadWrite)?;
        let (store, recovered) = Store::recover(medium)?;
        Ok((
            StateDir {
                path,
                durability,
                choices,
                _lock: lock,
            },
            store,
            recovered,
        ))
    }

    /// Where it is, with no link on the way.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the program may talk to the outside.
    #[must_use]
    pub fn replies(&self) -> Replies {
        self.choices.replies
    }

    /// The signal that tells the program of a resume, if one does.
    #[must_use]
    pub fn resume_signal(&self) -> Option<i32> {
        self.choices.resume_signal
    }

    /// The level above which the processor's features are hidden from the program, if they are.
    #[must_use]
    pub fn cpu_floor(&self) -> Option<Level> {
        self.choices.cpu_floor
    }

    /// Where the program lives, with clocks that are moved so far.
    #[must_use]
    pub fn place(&self, clock_shift_ns: i128) -> Place {
        Place {
            clock_shift_ns,
            own_network: self.choices.network == Network::Kept,
        }
    }

    /// What its checkpoints survive.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.durability
    }
}

/// Makes a directory that only its owner can read, and those above it that are missing. Its name is durable then, also
/// where it was there.
///
/// # Errors
/// When it cannot be made.
pub fn make_directory(path: &Path) -> Result<()> {
    let is_missing = |above: &&Path| !above.as_os_str().is_empty() && !above.exists();
    let missing = path.ancestors().skip(1).take_while(is_missing).count();
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    let real = made.and_then(|()| path.canonicalize());
    let real = real.map_err(Error::file("cannot make the directory", path))?;
    for above in real.ancestors().skip(1).take(missing + 1) {
        match sync(above) {
            // One that may not be read was not made here, and is left to the file system.
            Err(Error::File { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {}
            done => done?,
        }
    }
    Ok(())
}

/// What a new state begins with, in an empty directory.
fn begin(path: &Path, durability: Durability, choices: Choices) -> Result<Store> {
    let medium = AnyMedium::create(path.join("store"), durability)?;
    let (version, scheme) = form_for(&medium);
    let store = Store::create(scheme, medium, &Setup::new(Geometry::MEMORY))?;
    // Whether a file lies on persistent memory is found again by looking, also where it was moved.
    let name = if durability.outlives_machine() {
        "disk"
    } else {
        "memory"
    };
    let kind = KindFile {
        kind: PROGRAM.into(),
        version,
        durability: name.into(),
        replies: choices.replies,
        resume_signal: choices.resume_signal,
        network: choices.network,
        cpu_floor: choices.cpu_floor.map(|level| level.name().to_owned()),
    };
    write_synced(&path.join("kind"), &serde_json::to_vec(&kind).unwrap_or_default())?;
    sync(path)?;
    Ok(store)
}

/// Whether the program of the state in `path` was killed before its first checkpoint.
fn lacks_checkpoint(path: &Path) -> bool {
    let recovered = Kind::read(path).and_then(|kind| {
        let medium = AnyMedium::open(path.join("store"), kind.durability, Access::ReadOnly)?;
        Ok(Store::recover(medium)?.1)
    });
    recovered.is_ok_and(|recovered| recovered.epoch == 0) && !path.join(OLDER).exists()
}

/// Removes all that is in a directory.
fn clear(directory: &Path) -> Result<()> {
    let mut inside = entries(directory)?.into_iter();
    inside.try_for_each(|entry| going_back::remove_all(&entry.path()))
}

/// Where a write is of 4 KiB at least, changed lines of 64 bytes are packed together; memory takes them as they are.
fn form_for(medium: &AnyMedium) -> (u32, SchemeKind) {
    match medium {
        AnyMedium::File(_) => (PACKED, SchemeKind::Packed),
        AnyMedium::Memory(_) | AnyMedium::Dax(_) => (DUAL_PAGE, SchemeKind::DualPage),
    }
}

/// Makes a file that is whole whenever it is there.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let unfinished = path.with_extension("new");
    let written = fs::File::create(&unfinished).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    });
    written.map_err(Error::file("cannot write", path))
}

/// Takes the lock of one that goes on with the state, or removes it.
///
/// # Errors
/// When another program has it, and goes on having it.
pub fn lock(path: &Path) -> Result<Lock> {
    waiting_for(|| Lock::take(path))
}

/// Takes the lock of a reader.
pub(crate) fn lock_to_read(path: &Path) -> Result<Lock> {
    waiting_for(|| Lock::to_read(path))
}

fn waiting_for(take: impl Fn() -> Result<Lock, LockError>) -> Result<Lock> {
    Lock::waiting(take, Holder::patience).map_err(|error| Error::State(error.to_string()))
}

/// What the checkpoints in `path` survive, once it is known that there are some for this build.
pub(crate) fn read_kind(path: &Path) -> Result<Durability> {
    Ok(Kind::read(path)?.durability)
}

/// What a state directory says of itself, understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind {
    pub(crate) version: u32,
    pub(crate) durability: Durability,
    choices: Choices,
}

impl Kind {
    /// That of the state in `path`, for this build.
    ///
    /// # Errors
    /// When there is none, it is damaged, or of another version.
    pub(crate) fn read(path: &Path) -> Result<Kind> {
        refuse_special(path)?;
        let file = path.join("kind");
        let bytes = match fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                let what = match path.exists() {
                    true => "holds no state of a program",
                    false => "does not exist",
                };
                return Err(Error::State(format!(
                    "{} {what}: name the directory that twinpage run was given with --state",
                    path.display()
                )));
            }
            Err(error) => return Err(Error::file("cannot read", &file)(error)),
        };
        let damaged = |why: &str| Error::Damaged(format!("{}: {why}", file.display()));
        let said: KindFile = serde_json::from_slice(&bytes).map_err(|error| damaged(&error.to_string()))?;
        if said.kind != PROGRAM {
            return Err(damaged("it is not the state of a program"));
        }
        if !(DUAL_PAGE..=PACKED).contains(&said.version) {
            return Err(Error::State(format!(
                "{} is of version {}, this build reads versions {DUAL_PAGE} to {PACKED}: use the twinpage that wrote it",
                path.display(),
                said.version
            )));
        }
        let durability = match said.durability.as_str() {
            "disk" if is_on_dax(&path.join("store")) => Durability::Dax,
            "disk" => Durability::Disk,
            "memory" => Durability::Memory,
            _ => return Err(damaged("its durability is neither disk nor memory")),
        };
        let floor = said.cpu_floor.as_deref();
        let cpu_floor =
            floor.map(|name| Level::named(name).ok_or_else(|| damaged("its cpu_floor is no level")));
        Ok(Kind {
            version: said.version,
            durability,
            choices: Choices {
                replies: said.replies,
                resume_signal: said.resume_signal,
                network: said.network,
                cpu_floor: cpu_floor.transpose()?,
            },
        })
    }
}

/// A named pipe or a device in the place of a file would be waited for, or read without end. A resume that was killed may
/// have left its [`GONE_FIFO`].
fn refuse_special(state: &Path) -> Result<()> {
    let is_special = |kind: fs::FileType| kind.is_fifo() || kind.is_char_device() || kind.is_block_device();
    let is_refused =
        |entry: &fs::DirEntry| entry.file_name() != GONE_FIFO && entry.file_type().is_ok_and(is_special);
    // Where no state is, that is said next.
    match entries(state).into_iter().flatten().find(is_refused) {
        None => Ok(()),
        Some(entry) => Err(Error::Damaged(format!(
            "{} is a named pipe or a device, and no file of a state: remove it, or bring back the file that was there",
            entry.path().display()
        ))),
    }
}

/// Whether the file lies on persistent memory; not being able to tell is for whoever opens it.
fn is_on_dax(path: &Path) -> bool {
    fs::File::open(path).is_ok_and(|file| dax::is_dax(&file).unwrap_or(false))
}
