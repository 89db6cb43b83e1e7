//! The operations of a region as they are logged, seen by another process.
//!
//! * Only the log is read, from the last group seen on: the ring holds calls that the region's checkpoints have already,
//!   so that a follower may be a whole round behind.
//! * What is seen was written. Of the last group it is not yet known that it is durable: a power cut may take it back,
//!   the end of the process alone does not.

use super::listing::{Operation, operation};
use super::tail::{Seen, Tail};
use crate::error::Result;
use crate::inspect::inspect;
use std::path::Path;

/// The operations of a region as another process logs them: [`follow`].
///
/// ```
/// use twinpage::objects::Follow;
///
/// /// Prints what comes, until the region is closed.
/// fn print(mut following: Follow) -> twinpage::Result<()> {
///     loop {
///         let news = following.news()?;
///         news.operations.iter().for_each(|operation| println!("{operation}"));
///         if news.closed {
///             return Ok(());
///         }
///         std::thread::sleep(std::time::Duration::from_millis(100));
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Follow {
    tail: Tail,
}

/// What happened since the last look: [`Follow::news`].
///
/// ```
/// use twinpage::objects::News;
///
/// let nothing = News::default();
/// assert!(nothing.operations.is_empty() && !nothing.missed && !nothing.closed);
/// ```
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
    let path = path.as_ref();
    let place = inspect(path)?.superblock.map(|superblock| superblock.log);
    let place = place.unwrap_or_default();
    Ok(Follow {
        tail: Tail::new(path, place),
    })
}

impl Follow {
    /// What was logged since the last call, or since the checkpoint that was the last when following began.
    ///
    /// # Errors
    /// As [`look`]; [`Error::Log`](crate::Error::Log) when the log is missing.
    pub fn news(&mut self) -> Result<News> {
        let mut news = News::default();
        loop {
            match self.tail.read()? {
                Seen::New(found, from) => {
                    let new = found.entries[from..].iter();
                    news.operations = new.map(|entry| operation(&found.definitions, entry)).collect();
                    return Ok(news);
                }
                Seen::Lost => {
                    news.missed = true;
                    self.tail.skip_to(self.tail.named()?);
                }
                Seen::Gone => match self.tail.named()? {
                    named if named.id == 0 => {
                        news.closed = self.tail.id() != 0;
                        return Ok(news);
                    }
                    named if self.tail.id() == 0 => self.tail.skip_to(named),
                    named if named.id != self.tail.id() => self.tail.go_on_in(named.id),
                    _ => return Err(self.tail.missing()),
                },
            }
        }
    }
}
