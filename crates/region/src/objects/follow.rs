//! The operations of a region as they are logged, seen by another process.
//!
//! * Only the log is read, from the last group seen on: the ring holds calls that the region's checkpoints have already,
//!   so that a follower may be a whole round behind.
//! * What is seen was written. Of the last group it is not yet known that it is durable: a power cut may take it back,
//!   the end of the process alone does not.

use super::file::log_path;
use super::listing::{Operation, operation};
use crate::error::Result;
use crate::look::look;
use std::path::{Path, PathBuf};
use std::time::Duration;
use twinpage_core::operation_log::{header, read};
use twinpage_os::{Access, AnyMedium, Durability};

/// How often a log that is written meanwhile is read before it is taken for damaged, and the pause between.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);

/// The operations of a region as another process logs them: [`follow`].
#[derive(Debug)]
pub struct Follow {
    region: PathBuf,
    /// The log; 0: none was there yet.
    id: u64,
    /// The position of the last group that was seen.
    group: u64,
    /// Operations before it were given.
    seen: u64,
}

/// What happened since the last look.
#[derive(Clone, Debug, Default)]
pub struct News {
    /// What was logged, in order.
    pub operations: Vec<Operation>,
    /// Operations before these were written over before they were seen.
    pub missed: bool,
    /// The region was closed: its log is gone.
    pub closed: bool,
}

/// Follows the operation log of the region in the file `path`, from its last checkpoint on.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::objects::follow;
/// use twinpage::{Persist, Region};
///
/// #[derive(Persist)]
/// struct Counter {
///     value: u64,
/// }
///
/// #[twinpage::object]
/// impl Counter {
///     pub fn add(&mut self, by: u64) {
///         self.value += by;
///     }
/// }
///
/// let region = Region::open("counter.twin")?;
/// let counter = region.object::<Counter>("counter", |_| Counter { value: 0 })?;
/// let mut following = follow("counter.twin")?; // most often in another process
/// counter.add(7);
/// counter.sync()?;
/// assert_eq!(following.news()?.operations[0].to_string(), "counter.add(by: 7)");
/// counter.add(8);
/// counter.sync()?;
/// assert_eq!(following.news()?.operations[0].to_string(), "counter.add(by: 8)");
/// region.close()?;
/// assert!(following.news()?.closed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`look`].
pub fn follow(path: impl AsRef<Path>) -> Result<Follow> {
    let mut follow = Follow {
        region: path.as_ref().to_owned(),
        id: 0,
        group: 0,
        seen: 0,
    };
    follow.find()?;
    Ok(follow)
}

impl Follow {
    /// What was logged since the last call, or since the checkpoint that was the last when following began.
    ///
    /// # Errors
    /// As [`look`]; [`Error::Store`] when the log is damaged.
    pub fn news(&mut self) -> Result<News> {
        let mut attempts = ATTEMPTS;
        let mut missed = false;
        loop {
            attempts -= 1;
            match self.read() {
                Ok(Some(operations)) => {
                    return Ok(News {
                        operations,
                        missed,
                        closed: false,
                    });
                }
                Ok(None) => {
                    let before = self.id;
                    self.find()?;
                    if self.id == 0 {
                        return Ok(News {
                            closed: before != 0,
                            missed,
                            ..News::default()
                        });
                    }
                    missed |= before != 0;
                }
                Err(error) if attempts == 0 => return Err(error),
                // It was written meanwhile; or written over, if that lasts.
                Err(_) if attempts > ATTEMPTS / 2 => std::thread::sleep(PAUSE),
                Err(_) => missed |= self.skip()?,
            }
        }
    }

    /// What is in the log; none where it is another now, or gone.
    fn read(&mut self) -> Result<Option<Vec<Operation>>> {
        let file = log_path(&self.region);
        if self.id == 0 || !file.exists() {
            return Ok(None);
        }
        let medium = AnyMedium::open(&file, Durability::Memory, Access::ReadOnly)?;
        if header(&medium)?.id != self.id {
            return Ok(None);
        }
        let found = read(&medium, self.id, self.group)?;
        let new = found.entries.iter().filter(|entry| entry.position >= self.seen);
        let operations = new.map(|entry| operation(&found, entry)).collect();
        (self.group, self.seen) = (found.last_group, found.end);
        Ok(Some(operations))
    }

    /// The log that the region's last checkpoint names.
    fn find(&mut self) -> Result<()> {
        let place = look(&self.region)?.superblock.map(|superblock| superblock.log);
        let place = place.unwrap_or_default();
        if self.id != place.id {
            (self.id, self.group, self.seen) = (place.id, place.start, place.start);
        }
        Ok(())
    }

    /// Goes on from the last checkpoint, if that is further than what was seen. Whether it is.
    fn skip(&mut self) -> Result<bool> {
        let place = look(&self.region)?.superblock.map(|superblock| superblock.log);
        let further = place.filter(|place| place.id == self.id && place.start > self.seen);
        if let Some(place) = further {
            (self.group, self.seen) = (place.start, place.start);
        }
        Ok(further.is_some())
    }
}
