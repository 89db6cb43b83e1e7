//! How an array is opened, and the file made or read.

use crate::error::{Error, Result};
use crate::fault::Planted;
use crate::format::{CONFIRMED, FIRST, GRAIN, HEADERS, Header, WORD, WORD_PLACE, encode};
use crate::pace::Pace;
use crate::persistence::Run;
use crate::words::{persist, step_word, word};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use twinpage_core::Error as Damage;
use twinpage_os::direct::Instructions;
use twinpage_os::folder::folder_of;
use twinpage_os::{Access, CopiedFile, Direct, DirectFile, Draft, Durability, Lock, LockError};

/// How an array is opened: [`Versions::open_with`](crate::Versions::open_with).
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("counts.twin");
/// use twinpage_versions::{Options, Pace, Versions};
///
/// let options = Options::new().pace(Pace::Manual);
/// let mut counts = Versions::<u64, 2>::open_with(&options, &path, 1000, |_| 0)?;
/// counts.update(|update| *update.get_mut(7) += 1);
/// counts.durable()?;
/// # Ok::<(), twinpage_versions::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(crate) pace: Option<Pace>,
    durability: Option<Durability>,
    instructions: Option<Instructions>,
    pub(crate) run: Run,
    pub(crate) per_block: Option<u64>,
    pub(crate) planted: Option<Planted>,
}

impl Options {
    /// As the medium and the kind of array suit.
    #[must_use]
    pub fn new() -> Options {
        Options::default()
    }

    /// How often updates are handed over to be made durable; [`Pace::Threshold`] of 0.6 if not said, and for
    /// planes [`Pace::Immediate`].
    #[must_use]
    pub fn pace(self, pace: Pace) -> Options {
        Options {
            pace: Some(pace),
            ..self
        }
    }

    /// What must be outlived; by where the file lies if not said: on tmpfs the program, elsewhere the machine.
    #[must_use]
    pub fn durability(self, durability: Durability) -> Options {
        Options {
            durability: Some(durability),
            ..self
        }
    }

    /// The instructions that bring stores to the medium: what suits it if not said. For measuring.
    #[must_use]
    pub fn instructions(self, instructions: Instructions) -> Options {
        Options {
            instructions: Some(instructions),
            ..self
        }
    }

    /// Without a persistence thread: what is due is made durable at the end of the update (the paper's ICM, ICS).
    #[must_use]
    pub fn inline(self) -> Options {
        Options {
            run: Run::Inline,
            ..self
        }
    }

    /// For tests: the persister goes on when [`Stepper::step`](crate::Stepper::step) says so.
    #[cfg(any(test, feature = "faults"))]
    #[must_use]
    pub fn stepped(self) -> Options {
        Options {
            run: Run::Stepped,
            ..self
        }
    }

    /// For tests: elements of a block, a power of two.
    #[cfg(any(test, feature = "faults"))]
    #[must_use]
    pub fn per_block(self, elements: u64) -> Options {
        Options {
            per_block: Some(elements),
            ..self
        }
    }

    /// For tests: a mistake made on purpose.
    #[cfg(any(test, feature = "faults"))]
    #[must_use]
    pub fn planted(self, planted: Option<Planted>) -> Options {
        Options { planted, ..self }
    }

    fn durability_at(&self, path: &Path) -> Result<Durability> {
        match self.durability {
            Some(durability) => Ok(durability),
            None => durability_of(path),
        }
    }
}

/// What a file at `path` outlives by itself.
pub(crate) fn durability_of(path: &Path) -> Result<Durability> {
    let found = twinpage_os::name::durability_of(path).map_err(|source| Damage::Io {
        what: format!("looking at {}", path.display()),
        at: 0,
        source,
    })?;
    Ok(found)
}

/// An array's file, open for writing.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) direct: Arc<dyn Direct>,
    pub(crate) header: Header,
    pub(crate) path: PathBuf,
    pub(crate) lock: Option<Lock>,
}

/// Opens the file, or makes it: `fill` stores what a new array holds.
pub(crate) fn open(
    options: &Options,
    path: &Path,
    wanted: &Header,
    fill: &mut dyn FnMut(&dyn Direct, &Header),
) -> Result<File> {
    let path = &twinpage_os::name::resolved(path);
    wanted.check_possible(path)?;
    loop {
        match Lock::behind_readers(path) {
            Ok(lock) => {
                let durability = options.durability_at(path)?;
                let direct = DirectFile::open(path, durability, options.instructions, Access::ReadWrite)?;
                return match is_copied(&direct, wanted) {
                    true => existing(Arc::new(CopiedFile::open(path)?), wanted, path, Some(lock)),
                    false => existing(Arc::new(direct), wanted, path, Some(lock)),
                };
            }
            Err(LockError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(file) = create(options, path, wanted, fill)? {
            return Ok(file);
        }
        // Another program made it just now: open that one.
    }
}

/// The file as another medium.
pub(crate) fn open_on(
    direct: Arc<dyn Direct>,
    wanted: &Header,
    fill: &mut dyn FnMut(&dyn Direct, &Header),
) -> Result<File> {
    let path = Path::new("the array");
    wanted.check_possible(path)?;
    // The header is written last.
    let is_zero = |at: u64| word(&*direct, at).load(Ordering::Relaxed) == 0;
    let is_new = direct.len() < GRAIN || HEADERS.into_iter().all(is_zero);
    if is_new {
        direct.grow(wanted.file_bytes())?;
        make(&*direct, wanted, fill)?;
    }
    existing(direct, wanted, path, None)
}

/// Makes the file under another name, and gives it its own when all in it is durable.
fn create(
    options: &Options,
    path: &Path,
    wanted: &Header,
    fill: &mut dyn FnMut(&dyn Direct, &Header),
) -> Result<Option<File>> {
    let durability = options.durability_at(folder_of(path))?;
    let create = |at: &Path| Ok::<_, Error>(DirectFile::create(at, durability, options.instructions)?);
    let (mut draft, direct) = Draft::make(path, create)?;
    let direct: Arc<dyn Direct> = match is_copied(&direct, wanted) {
        true => Arc::new(CopiedFile::open(draft.path())?),
        false => {
            direct.rename(path); // the draft is an inner matter: an error names the file it will become
            direct.grow(wanted.file_bytes())?;
            direct.populate(&(0..wanted.file_bytes()));
            Arc::new(direct)
        }
    };
    direct.rename(path);
    direct.grow(wanted.file_bytes())?;
    make(&*direct, wanted, fill)?;
    if !draft.name(path)? {
        return Ok(None);
    }
    Ok(Some(File {
        direct,
        header: wanted.clone(),
        path: path.to_owned(),
        lock: draft.take_lock(),
    }))
}

/// Planes on a disk are memory, and written in order: all of a plane changes in a step, and it is known when.
fn is_copied(direct: &DirectFile, wanted: &Header) -> bool {
    direct.is_on_disk() && wanted.kind == crate::format::Kind::Planes
}

fn make(direct: &dyn Direct, header: &Header, fill: &mut dyn FnMut(&dyn Direct, &Header)) -> Result<()> {
    fill(direct, header);
    let first = match header.kind {
        crate::format::Kind::Elements => 1,
        // Step 0, in plane 0, counted from 1: 0 stands for none.
        crate::format::Kind::Planes => step_word(0, 0),
    };
    for at in [WORD, CONFIRMED] {
        word(direct, at).store(encode(first, WORD_PLACE), Ordering::Relaxed);
        persist(direct, at, 8);
    }
    direct.fence()?;
    Ok(write_header(direct, header)?)
}

/// Writes a header of a new generation, durably.
///
/// The checksum at its place is erased first, durably: a header of the same generation that a crash tore there
/// would otherwise be completed by the words of this one that arrive first.
pub(crate) fn write_header(direct: &dyn Direct, header: &Header) -> twinpage_core::Result<()> {
    let (at, record) = (HEADERS[(header.generation as usize + 1) % 2], header.encode());
    let seal = at + record.len() as u64 - 8;
    word(direct, seal).store(0, Ordering::Relaxed);
    persist(direct, seal, 8);
    direct.fence()?;
    for (k, bytes) in record.as_chunks::<8>().0.iter().enumerate() {
        let to = word(direct, at + 8 * k as u64);
        to.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
    persist(direct, at, record.len() as u64);
    direct.fence()
}

fn existing(direct: Arc<dyn Direct>, wanted: &Header, path: &Path, lock: Option<Lock>) -> Result<File> {
    direct.load(0..direct.len().min(FIRST))?;
    let header = header_of(&*direct, path)?;
    fits(&header, wanted, path)?;
    Ok(File {
        direct,
        header,
        path: path.to_owned(),
        lock,
    })
}

/// The header that counts.
pub(crate) fn header_of(direct: &dyn Direct, path: &Path) -> Result<Header> {
    let len = direct.len();
    let start: Vec<u8> = (0..len.min(GRAIN) / 8)
        .flat_map(|k| word(direct, 8 * k).load(Ordering::Relaxed).to_le_bytes())
        .collect();
    Header::find(&start, len, path)
}

/// Whether the array is the one that is wanted; how many values it has is up to the caller.
pub(crate) fn fits(found: &Header, wanted: &Header, path: &Path) -> Result<()> {
    let same = (found.kind, found.versions, found.value_bytes, found.align)
        == (wanted.kind, wanted.versions, wanted.value_bytes, wanted.align)
        && found.type_name == wanted.type_name
        && found.count == wanted.count;
    match same {
        true => Ok(()),
        false => Err(Error::Other {
            path: path.to_owned(),
            found: found.describe(),
            wanted: wanted.describe(),
        }),
    }
}
