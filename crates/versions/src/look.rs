//! Looking at an array's file without changing it.

use crate::error::Result;
use crate::format::{CONFIRMED, HEADERS, Header, Kind, MAGIC, WORD};
use crate::options::{durability_of, header_of};
use crate::recover::{Finding, walk};
use crate::seal;
use crate::words::{durable_word, plane_range, step_of, step_word};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use twinpage_core::{Damage, Error};
use twinpage_os::{Access, DirectFile, Durability, Lock, LockError};

/// Damage told at most; what is beyond is of the same kind.
const MOST_DAMAGE: usize = 100;

/// Whether a file begins as an array's does.
#[must_use]
pub fn is_array(path: &Path) -> bool {
    let begins = |file: &File, at: u64| {
        let mut magic = [0; 8];
        file.read_exact_at(&mut magic, at).is_ok() && magic == MAGIC
    };
    path.is_file() && File::open(path).is_ok_and(|file| HEADERS.into_iter().any(|at| begins(&file, at)))
}

/// An array's file, as others see it.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("counts.twin");
/// use twinpage_versions::{Versions, look};
///
/// drop(Versions::<u64>::open(&path, 1000, |_| 0)?);
/// let found = look(&path)?;
/// assert_eq!((found.header.count, found.durable), (1000, 1));
/// assert!(found.check()?.is_empty());
/// # Ok::<(), twinpage_versions::Error>(())
/// ```
#[derive(Debug)]
pub struct Look {
    /// The file.
    pub path: PathBuf,
    /// The process that has it open for writing, if any.
    pub in_use: Option<String>,
    /// What the array outlives, by where the file lies.
    pub durability: Durability,
    /// What the file says of its array.
    pub header: Header,
    /// The last durable update, or step.
    pub durable: u64,
    /// The plane of that step.
    pub plane: Option<usize>,
    direct: DirectFile,
    lock: Option<Lock>,
}

/// Looks at the array in the file `path`. It may be in use.
///
/// # Errors
/// When there is none, it is something else, or its header or its durable word is damaged.
pub fn look(path: impl AsRef<Path>) -> Result<Look> {
    let path = path.as_ref();
    let (lock, in_use) = match Lock::to_read(path) {
        Ok(lock) => (Some(lock), None),
        Err(LockError::Held { holder, .. }) => (None, Some(holder.to_string())),
        Err(error) => return Err(error.into()),
    };
    let durability = durability_of(path)?;
    let direct = DirectFile::open(path, durability, None, Access::ReadOnly)?;
    let header = header_of(&direct, path)?;
    // Of an array in use, the word as of its last fence; of one that is not, the word itself.
    let at = if in_use.is_some() { CONFIRMED } else { WORD };
    let word = durable_word(&direct, at, path)?;
    let (durable, plane) = match header.kind {
        Kind::Elements => (word, None),
        Kind::Planes => {
            let word = match in_use {
                Some(_) => word,
                None => seal::newest(&direct, &header, word, path)?.word,
            };
            let (step, plane) = step_of(word);
            (step, Some(plane))
        }
    };
    Ok(Look {
        path: path.to_owned(),
        in_use,
        durability,
        header,
        durable,
        plane,
        direct,
        lock,
    })
}

impl Look {
    /// Bytes of the file that the array takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.header.file_bytes()
    }

    /// Reads every number: what is damaged. Values have no checksum; the last step on a disk has one.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an array in use, which does not stand still.
    pub fn check(&self) -> Result<Vec<Damage>> {
        self.at_rest()?;
        let mut damage = Vec::new();
        match (self.header.kind, self.plane) {
            (Kind::Planes, Some(plane)) if plane >= usize::from(self.header.versions) => {
                damage.push(Damage {
                    what: "durable word".into(),
                    at: WORD,
                    why: format!("it speaks of plane {plane}"),
                });
            }
            (Kind::Elements, _) => walk(&self.direct, &self.header, self.durable, &mut |finding| {
                if let Finding::Damaged { at, index, why } = finding
                    && damage.len() < MOST_DAMAGE
                {
                    damage.push(Damage {
                        what: "numbers".into(),
                        at,
                        why: format!("element {index}: {why}"),
                    });
                }
            }),
            (Kind::Planes, Some(plane)) => {
                let word = step_word(self.durable, plane);
                if !seal::is_intact(&self.direct, &self.header, word, &self.path)? {
                    damage.push(Damage {
                        what: "plane".into(),
                        at: plane_range(&self.header, plane).start,
                        why: format!("its sum is not that of step {}", self.durable),
                    });
                }
            }
            _ => {}
        }
        Ok(damage)
    }

    /// Numbers of updates that a crash cut short: the next opening erases them.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        let mut count = 0;
        if self.header.kind == Kind::Elements {
            walk(&self.direct, &self.header, self.durable, &mut |finding| {
                count += u64::from(matches!(finding, Finding::After(_)));
            });
        }
        count
    }

    /// Copies the array to the new file `to`, which is then one like any other. Says of which update, or step, it is.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an array in use, and when there is such a file; when the array is damaged; those of the file
    /// systems.
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<u64> {
        if let Some(damage) = self.check()?.first() {
            return Err(Error::Invalid(format!(
                "{} is damaged ({} at byte {}: {}) and was not copied",
                self.path.display(),
                damage.what,
                damage.at,
                damage.why
            ))
            .into());
        }
        crate::copy::copy(&self.path, self.lock.as_ref(), to.as_ref())?;
        Ok(self.durable)
    }

    fn at_rest(&self) -> Result<()> {
        match &self.in_use {
            None => Ok(()),
            Some(holder) => Err(Error::Invalid(format!(
                "{} is in use by {holder} and does not stand still: let that program make a copy (`backup`), or end it",
                self.path.display()
            ))
            .into()),
        }
    }
}
