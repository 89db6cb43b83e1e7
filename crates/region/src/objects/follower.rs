//! A copy of a region that runs the calls another process logs, and takes over when that has gone.
//!
//! * The copy begins as a backup. It reads the log beside the leader's region and nothing else, and writes to its own
//!   files alone: the leader knows nothing of it.
//! * Its objects take no calls before it has taken over, or both would go ways of their own. They can be read.
//! * The place in the leader's log is a root of the copy, and each object has its own: a copy that was killed goes on
//!   from its last checkpoint and runs nothing twice.
//! * Calls that were written are made durable before they are run, as their caller may still wait for that: a power cut
//!   takes no call from the leader that the copy has run.

use super::Objects;
use super::file::log_path;
use super::tail::{Seen, Tail};
use crate::error::{Error, Result};
use crate::region::{Inner, Region};
use crate::root::Root;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use twinpage_core::operation_log::{Found, GroupAt};
use twinpage_os::{Lock, LockError};

/// The root with the place: log, position and life of the last group, one past the last call.
pub(super) const PLACE: &str = "place in the log that is followed";

/// Follows the objects of another region: [`Region::follow`].
///
/// ```
/// use twinpage::objects::Follower;
///
/// /// Runs what the leader calls, until that has gone and this takes over.
/// fn stand_by(follower: &mut Follower) -> twinpage::Result<()> {
///     while !follower.take_over()? {
///         follower.catch_up()?;
///         std::thread::sleep(std::time::Duration::from_millis(10));
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Follower {
    leader: PathBuf,
    tail: Tail,
    /// None once it follows no more.
    place: Option<Root<[u64; 4]>>,
    /// Of the leader's region, between the end of following and the checkpoint that says so.
    lock: Option<Lock>,
    objects: Arc<Objects>,
    inner: Arc<Inner>,
}

impl Region {
    /// Has this region, a backup of the region in the file `leader`, run the calls that are made of its objects there.
    /// Open its objects afterwards, all that have calls: what they are made of is in the backup.
    ///
    /// A copy lies at the same addresses, so it is followed from another process.
    ///
    /// ```no_run
    /// use std::time::Duration;
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
    ///     pub fn value(&self) -> u64 {
    ///         self.value
    ///     }
    /// }
    ///
    /// // `twinpage backup leader.twin copy.twin`, while the leader has its objects open. Then:
    /// let copy = Region::open("copy.twin")?;
    /// let mut follower = copy.follow("leader.twin")?;
    /// let counter = copy.object::<Counter>("counter", |_| Counter { value: 0 })?;
    /// while !follower.take_over()? { // the leader lives
    ///     follower.catch_up()?;
    ///     println!("{}", counter.value()?);
    ///     std::thread::sleep(Duration::from_millis(10));
    /// }
    /// counter.add(1); // from now on it is here
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Region::object`]; [`Error::Invalid`] when objects were opened before, or this is no backup made since the
    /// leader's objects were.
    pub fn follow(&self, leader: impl AsRef<Path>) -> Result<Follower> {
        self.outside_update("following a region")?;
        let leader = leader.as_ref().to_owned();
        let begun = self.inner.progress().log();
        let is_fresh = begun.id == 0 && begun.start > 0;
        if !is_fresh && !Objects::follows(self)? {
            return Err(Error::Invalid(format!(
                "this region is no fresh backup of {}: back that up while its objects are open, and follow before an \
                 object of the copy is opened",
                leader.display()
            )));
        }
        let mut place = self.root::<[u64; 4]>(PLACE)?;
        let tail = match self.read(|view| *place.get(view)) {
            [0, ..] => Tail::of_copy(&leader, begun.start)?,
            [id, position, life, seen] => Tail::after(&leader, id, GroupAt { position, life }, seen),
        };
        self.update(|update| *place.get_mut(update) = tail.place());
        let objects = self.objects()?;
        objects.refuse_calls(true);
        Ok(Follower {
            leader,
            tail,
            place: Some(place),
            lock: None,
            objects,
            inner: self.inner.clone(),
        })
    }
}

impl Follower {
    /// Runs what the leader logged since. Says how many calls there were.
    ///
    /// # Errors
    /// [`Error::Log`] when the leader's log has lost calls since the last time, and when it has calls of objects that are
    /// not open here, or that this build cannot run. [`Error::System`] when it cannot be made durable.
    pub fn catch_up(&mut self) -> Result<usize> {
        self.objects
            .outside_update("a look at the calls of another region")?;
        if self.place.is_none() {
            return Ok(0); // it has taken over
        }
        loop {
            match self.tail.read()? {
                Seen::New(found, from) => return self.run(&found, from),
                Seen::Lost => return Err(self.lost()),
                Seen::Gone => match self.tail.named()? {
                    // It was closed, which ends at the end of its log.
                    named if named.id == 0 && named.start == self.tail.seen() => return Ok(0),
                    named if named.id == 0 => return Err(self.lost()),
                    named if named.id != self.tail.id() => self.tail.go_on_in(named.id),
                    _ => return Err(self.tail.missing()),
                },
            }
        }
    }

    /// Catches up and ends following, for good, if the leader's region is not open: from then on the objects here take calls. The
    /// leader's region cannot be opened as long as this one is. Whether it is so.
    ///
    /// # Errors
    /// As [`Follower::catch_up`]; [`Error::Log`], too, when the log is damaged behind the calls that were run; those of a
    /// checkpoint, as [`Error::Full`], after which it is to be called again.
    pub fn take_over(&mut self) -> Result<bool> {
        if self.place.is_some() {
            let lock = match Lock::behind_readers(&self.leader) {
                Ok(lock) => lock,
                Err(LockError::Held { .. }) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            self.tail.look_at_all();
            self.catch_up()?;
            if let Some(place) = self.place.take() {
                self.lock = Some(lock);
                self.inner.in_update(|update| place.remove(update))?;
            }
        }
        if self.lock.is_some() {
            self.inner.checkpoint()?;
        }
        if let Some(lock) = self.lock.take() {
            self.objects.keep(lock);
            self.objects.refuse_calls(false);
        }
        Ok(true)
    }

    fn run(&mut self, found: &Found, from: usize) -> Result<usize> {
        let Some(place) = &mut self.place else {
            return Ok(0); // there is nothing to follow any more
        };
        let now = self.tail.place();
        let log = log_path(&self.leader);
        let new = &found.entries[from..];
        let durable = if new.is_empty() { Ok(()) } else { flush(&log) };
        let ran = durable.and_then(|()| {
            self.objects.with_turn(|server| {
                let ran = server.follow(&self.objects, found, new, &log)?;
                self.inner.in_update(|update| *place.get_mut(update) = now);
                Ok(ran)
            })
        });
        // What was not run is to be seen again.
        if ran.is_err() {
            let [id, position, life, seen] = self.inner.in_update(|update| *place.get(update));
            self.tail = Tail::after(&self.leader, id, GroupAt { position, life }, seen);
        }
        ran
    }

    fn lost(&self) -> Error {
        self.tail.error(
            "calls after those that were followed are not in it any more: others were written over them, or the region was \
             closed, which ends its log; begin again with a new backup of the region",
        )
    }
}

/// Makes durable what a log has. One that is gone was closed, and its calls are in its region.
fn flush(log: &Path) -> Result<()> {
    match File::open(log).and_then(|file| file.sync_data()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::system(format!("flushing {}", log.display()), error))
        }
        _ => Ok(()),
    }
}
