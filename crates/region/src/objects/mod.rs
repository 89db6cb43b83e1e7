//! Persistent objects (SIMPO): their methods are logged as operations, run in batches, and run again after a crash.
//!
//! ```text
//! handles, any thread:   add(7, 1)  add_all(3)  sum(7)?      one call after the other is appended to the log's group
//!                                                 |
//! the thread with the turn:   flush the group | run what waits, in order | checkpoint, every 1000 calls
//! ```
//!
//! * A **deferrable** method changes only its object and returns nothing: its call is appended and returns. An
//!   **instant** method makes durable what waits and its own call with one flush, runs what waits, then itself.
//! * Calls are run in the order of the log by the thread with the turn, which runs those of all others. Those that are on
//!   different lanes may be run by several threads; a call that is on none waits for all before it, and all after it wait
//!   for it. Calls that change nothing run in their callers' threads, beside one another.
//! * A call is run when it is durable, in an update of the region that also notes its position beside the object. So
//!   every checkpoint holds an object and the position up to which its calls are in it, and none is run twice.
//! * After a crash an object is its last checkpoint; when it is opened, the calls past its position are run again.
//! * An object is made in one update and freed in one ([`Region::free_object`]), with its entry in the table of objects.
//! * Objects that were not called for longest go to a second file where the region's is full, and come back when they are
//!   called ([`Options::next_level`](crate::Options::next_level)).
//! * Other processes share an object: the one that has the region open makes their calls ([`share`]).
//! * Six objects are ready-made: [`structures`].
//! * Methods must do the same whenever they are run on the same object with the same arguments: time, randomness and
//!   whatever lies outside go in as arguments.

mod answers;
mod base;
mod calls;
mod cold;
mod file;
mod follow;
mod follower;
mod function;
mod group;
mod host;
mod hosts;
mod keeper;
mod kept;
mod lanes;
mod life;
mod listing;
mod past;
mod remote;
mod replay;
mod run;
mod server;
mod sharing;
pub mod structures;
mod table;
mod tail;
pub mod thread;
mod wire;
mod withdraw;

pub use calls::{Calls, share};
pub use follow::{Follow, News, follow};
pub use follower::Follower;
pub use function::{Arguments, Function, Outcome, Returned, Undecodable, logged};
pub use host::Object;
pub use lanes::{Lane, LaneRun, Lanes, Parts};
pub use listing::{Operation, Operations, operations};
pub use past::{Past, Until, go_back, kept};
pub use table::{ObjectInfo, list};
/// Makes a persistent object of an `impl` block.
///
/// Its public methods become operations. Calls are made through a handle, `ScoresHandle` for `Scores`, which is `Clone`,
/// `Send` and `Sync`: [`Region::object`](crate::Region::object) gives it.
///
/// | method | call |
/// | --- | --- |
/// | `fn add_all(&mut self, by: i64)` | deferrable: it is logged and returns, and runs later |
/// | `#[lane(rows)] fn add(row: &mut Row, by: i64)` | deferrable, on one element of the field `rows`: `add(7, 1)` |
/// | `fn take(&mut self) -> u64` | instant: it runs at once, after all that waits, and is durable with it |
/// | `fn sum(&self) -> u64` | instant: it reads, so nothing of it is logged; what it saw is durable |
/// | `#[instant] fn clear(&mut self)` | instant, though it returns nothing |
///
/// A method must do the same whenever it runs: what it reads is its object and its arguments. One that would be deferrable
/// and prints, asks for the time, takes a lock or the like is refused, with the line: give it what it reads from outside as
/// an argument, or mark it `#[instant]`, or `#[deferrable]` where it does the same all the same. The macro sees this one
/// `impl`, and follows calls within it; `twinpage classify src` is the same library and follows them through all sources.
///
/// ```compile_fail
/// # use twinpage::Persist;
/// # #[derive(Persist)]
/// # struct Counter {
/// #     value: u64,
/// # }
/// #[twinpage::object]
/// impl Counter {
///     pub fn add(&mut self, by: u64) {
///         println!("{by} more"); // error: it may be printed again after a crash
///         self.value += by;
///     }
/// }
/// ```
///
/// Arguments are copied into the log: types that are `Serialize` and `Deserialize` (serde). An argument of the type
/// `Heap` is not logged: it is the heap of the region. Methods without `pub`, and functions that take no object (`new`),
/// stay as they are.
///
/// The log names functions by name and signature, as written. One that is renamed, or has other types, is refused
/// while calls of it wait to be run again; after [`Region::close`](crate::Region::close) none does. Types of arguments
/// should keep their fields as long.
pub use twinpage_macros::object;
pub use withdraw::{Withdrawn, withdraw};

use crate::address::Place;
use crate::control_socket::Sharing;
use crate::error::{Error, Result};
use crate::lock::lock;
use crate::next_level::NextLevel;
use crate::region::{Attached, Region, Update};
use answers::Answers;
use cold::Clock;
use file::LogFile;
use group::Server;
use hosts::Hosts;
use lanes::LaneThreads;
use sharing::Sharers;
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, RwLock};
use thread::Threads;
use twinpage_core::operation_log::Appender;
use twinpage_os::Lock;

/// The objects of a region and their log.
pub(crate) struct Objects {
    window: Place,
    file: LogFile,
    /// What callers append to.
    appender: Appender,
    /// Bytes that may wait before a caller runs them.
    few: u64,
    /// The turn. None when the region is closed.
    server: Mutex<Option<Server>>,
    hosts: RwLock<Hosts>,
    /// All calls before this position were run.
    ran: AtomicU64,
    /// The thread that ran calls last.
    last_server: AtomicU32,
    lanes: LaneThreads,
    threads: Threads,
    answers: Answers,
    /// The last checkpoint will need no log.
    is_clean: AtomicBool,
    /// It runs another region's calls, and takes none.
    follows: AtomicBool,
    /// The lock of the region that this one has taken over from.
    taken_over: Mutex<Option<Lock>>,
    sharers: Sharers,
    /// Calls are kept (`kept.rs`).
    keeps: bool,
    /// Where cold objects go, if the region has such a place, and which are cold.
    next: Option<Arc<NextLevel>>,
    clock: Clock,
}

impl Region {
    /// The persistent object `name`: the one there is, with all calls that the operation log has of it run, or the one
    /// that `make` makes.
    ///
    /// The log is a file beside the region's, `scores.twin.log` for `scores.twin`. It is there as long as the region is
    /// open, and after a crash until the next close; a clean close leaves nothing to run again.
    ///
    /// A handle works until the region is closed or dropped. A second one is a clone of the first.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # std::env::set_current_dir(folder.path())?;
    /// use twinpage::collections::Vec;
    /// use twinpage::{Persist, Region, Update};
    ///
    /// #[derive(Persist)]
    /// struct Row {
    ///     points: [i64; 8],
    /// }
    ///
    /// #[derive(Persist)]
    /// struct Scores<'r> {
    ///     rows: Vec<'r, Row>,
    /// }
    ///
    /// #[twinpage::object]
    /// impl<'r> Scores<'r> {
    ///     fn new_in(u: &Update<'r>, rows: usize) -> Scores<'r> {
    ///         let row = |_| Row { points: [0; 8] };
    ///         Scores { rows: u.collect((0..rows).map(row)) }
    ///     }
    ///     pub fn add_all(&mut self, by: i64) { // deferrable: every lane
    ///         self.rows.iter_mut().for_each(|row| row.points[0] += by);
    ///     }
    ///     #[lane(rows)]
    ///     pub fn add(row: &mut Row, by: i64) { // deferrable: one lane
    ///         row.points[0] += by;
    ///     }
    ///     pub fn sum(&self, row: usize) -> i64 { // instant: returns a value
    ///         self.rows[row].points.iter().sum()
    ///     }
    /// }
    ///
    /// let region = Region::open("scores.twin")?;
    /// let scores = region.object::<Scores>("scores", |u| Scores::new_in(u, 500))?; // Clone, Send, Sync
    /// scores.add_all(3); // logged, not run
    /// scores.add(7, 1);
    /// let sum = scores.sum(7)?; // one flush; what waits is run, then this; all of it is durable
    /// assert_eq!(sum, 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Region::root`] for a root of that name; [`RootError::Opened`](crate::RootError::Opened) when it is open already:
    /// its handle is to be cloned. [`Error::Log`] when the log is not there or has calls that this build
    /// cannot run; [`Error::Store`] when it is damaged. [`Error::Invalid`] inside an update, in a region that was opened
    /// for sections, and in one without a file.
    pub fn object<T: Object>(
        &self,
        name: &str,
        make: impl for<'r> FnOnce(&Update<'r>) -> T::In<'r>,
    ) -> Result<T::Handle> {
        self.outside_update("opening an object")?;
        if name.contains('\n') {
            return Err(Error::Invalid(format!(
                "an object's name is one line, not {name:?}"
            )));
        }
        let objects = self.objects()?;
        let (number, life) = objects.host::<T>(self, name, make)?;
        objects.make_base()?;
        Ok(T::handle(Calls::new(objects, number, life)))
    }

    /// Frees the persistent object `name` with all its memory, whether it is open or not. What its handles called before is
    /// run first; what an earlier process called of one that is not open is dropped. It is gone for good when this returns; a
    /// crash before that leaves it whole, with its calls.
    ///
    /// Its handles refuse calls from then on, also when an object is made anew under the name, which is another one. Calls
    /// of other threads that are made meanwhile are run before, or refused.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # std::env::set_current_dir(folder.path())?;
    /// use twinpage::{Error, Persist, Region};
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
    /// let region = Region::open("counter.twin")?;
    /// let counter = region.object::<Counter>("counter", |_| Counter { value: 0 })?;
    /// counter.add(7);
    /// region.free_object("counter")?;
    /// assert!(matches!(counter.value(), Err(Error::Freed { .. })));
    /// let counter = region.object::<Counter>("counter", |_| Counter { value: 0 })?; // another
    /// assert_eq!(counter.value()?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is no such object, when processes share it ([`objects::share`](share)), inside an
    /// update, and in a region that follows another. Those of
    /// [`Region::object`]; of [`Region::remove_root`] for one that is not open. After [`Error::Full`] of the medium it is
    /// freed here, and durably with the next checkpoint.
    ///
    /// # Panics
    /// When the `Drop` of a type of the program does. What it had not freed by then leaks.
    pub fn free_object(&self, name: &str) -> Result<()> {
        self.outside_update("freeing an object")?;
        let objects = self.objects()?;
        objects.free(self, name)?;
        objects.make_base()
    }

    /// The objects of the region, with the log, which is made or opened with the first of them.
    fn objects(&self) -> Result<Arc<Objects>> {
        let mut attached = lock(&self.attached);
        if let Some(attached) = &*attached {
            let objects: Arc<dyn Any + Send + Sync> = attached.clone();
            let other = |_| Error::Invalid("something else is built on the region".into());
            return objects.downcast::<Objects>().map_err(other);
        }
        let objects = Arc::new(Objects::open(self)?);
        let room: Arc<dyn Attached> = objects.clone();
        let _ = self.inner.room.set(Arc::downgrade(&room)); // there is none yet
        if let Some(listening) = &self.listening {
            let sharing: Arc<dyn Sharing> = objects.clone();
            listening.share(&sharing);
        }
        *attached = Some(objects.clone());
        Ok(objects)
    }
}
