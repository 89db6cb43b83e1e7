//! Threads with a name that means the same in the next life of a program: a deterministic program, started again after a
//! crash, finds its place (SIMPO 3.3.2).
//!
//! * The calls that a named thread makes of an object are counted beside the object, in the update that runs them, with
//!   what the instant ones returned. So a checkpoint has an object, the count and the results of one instant, and what is
//!   run again after a crash adds to all of them.
//! * The program runs from its beginning. A thread's calls up to the count are not made again: a deferrable one returns, an
//!   instant one returns what it returned then. The rest is made.
//! * Calls that read are logged, too: what they returned may decide what comes next.
//! * A program that takes another way than before is no deterministic one. A checksum of the calls notices that, and the
//!   first new call is refused.
//! * A close ends the run: the next one begins again.

use super::Objects;
use crate::error::{Error, Result};
use crate::lock::lock;
use crate::persist::Persist;
use crc32c::crc32c_append;
use serde::de::DeserializeOwned;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use twinpage_core::operation_log::NAMED;

/// The names of the threads that run.
static RUNNING: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

thread_local! {
    static IS_NAMED: Cell<bool> = const { Cell::new(false) };
    static NAME: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
    static NUMBER: Cell<u32> = const { Cell::new(0) };
}

/// The number of this thread: in the order in which threads first called.
pub(super) fn thread_number() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    if NUMBER.get() == 0 {
        NUMBER.set(LAST.fetch_add(1, Ordering::Relaxed) % (NAMED - 1) + 1);
    }
    NUMBER.get()
}

/// The thread has its name until this is dropped.
struct Running {
    name: Arc<str>,
    outer: Option<Arc<str>>,
}

impl Running {
    fn begin(name: &str) -> Running {
        assert!(
            !name.is_empty() && !name.contains('\n'),
            "a thread's name is one line, not {name:?}"
        );
        let is_new = lock(&RUNNING).insert(name.to_owned());
        assert!(is_new, "a thread of the name {name:?} runs already");
        let name: Arc<str> = name.into();
        IS_NAMED.set(true);
        let outer = NAME.replace(Some(name.clone()));
        Running { name, outer }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        IS_NAMED.set(self.outer.is_some());
        NAME.set(self.outer.take());
        lock(&RUNNING).remove(&*self.name);
    }
}

/// Starts a thread whose calls of objects are known by its name in the next life of the program.
///
/// It is for **deterministic** programs: a thread makes the same calls whenever its instant calls return the same. After a
/// crash such a program is started again as it is. Its threads run from their beginnings; calls that survived are not made
/// again, and instant ones among them return what they returned then. Where the program goes another way, its next call is
/// refused. [`Region::close`](crate::Region::close), or dropping the region, ends the run: the next one is a new one.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::{Persist, Region, thread};
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
/// let worker = thread::spawn("worker-1", move || -> twinpage::Result<()> {
///     while counter.value()? < 1000 {
///         counter.add(1); // killed anywhere and started again, it ends at 1000
///     }
///     Ok(())
/// });
/// worker.join().unwrap()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// When the system has no more threads. The thread panics when one of the name runs already, or the name is not one line.
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    run: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let name = name.into();
    std::thread::spawn(move || named(&name, run))
}

/// Gives this thread a name for as long as `run` runs, as [`spawn`] gives one: for the first thread of a program, and for
/// scoped ones.
///
/// # Panics
/// When a thread of the name runs already, or the name is not one line.
pub fn named<T>(name: &str, run: impl FnOnce() -> T) -> T {
    let _running = Running::begin(name);
    run()
}

/// What an object keeps of a thread.
#[derive(Persist)]
pub(super) struct Record<'r> {
    /// Its calls so far.
    pub(super) calls: u64,
    /// A checksum of them.
    pub(super) sum: u64,
    /// What the instant ones returned, one after the other.
    pub(super) results: crate::collections::Vec<'r, u8>,
}

/// The same, outside the region.
#[derive(Default)]
pub(super) struct Known {
    pub(super) calls: u64,
    pub(super) sum: u64,
    pub(super) results: Vec<u8>,
}

/// How far a thread is with an object in this life.
pub(super) struct Progress {
    /// The thread's number in the log.
    number: u32,
    known: Known,
    calls: u64,
    sum: u64,
    /// Bytes of the results that were returned again.
    returned: usize,
}

type ByThread = HashMap<(Arc<str>, u16), Arc<Mutex<Progress>>>;

/// How far the named threads are, by name and object.
#[derive(Default)]
pub(super) struct Threads {
    progress: Mutex<ByThread>,
}

/// What becomes of a call.
pub(super) enum Next {
    /// It is made, by the thread of this number.
    Made(u32),
    /// It survived. What it returned is known.
    Known(Arc<Mutex<Progress>>),
}

/// The checksum of calls with one more.
pub(super) fn sum_with(sum: u64, function: u16, lane: Option<u64>, arguments: &[u8]) -> u64 {
    let sum = crc32c_append(sum as u32, &function.to_le_bytes());
    let sum = crc32c_append(sum, &lane.unwrap_or(u64::MAX).to_le_bytes());
    crc32c_append(sum, arguments).into()
}

/// What becomes of this thread's next call.
#[inline]
pub(super) fn next(
    objects: &Objects,
    object: u16,
    function: u16,
    lane: Option<u64>,
    arguments: &[u8],
) -> Result<Next> {
    match IS_NAMED.get() {
        false => Ok(Next::Made(thread_number())),
        true => next_of_named(objects, object, function, lane, arguments),
    }
}

fn next_of_named(
    objects: &Objects,
    object: u16,
    function: u16,
    lane: Option<u64>,
    arguments: &[u8],
) -> Result<Next> {
    let name = NAME.with_borrow(|name| name.clone()).expect("it is named");
    let key = (name.clone(), object);
    let there = lock(&objects.threads.progress).get(&key).cloned();
    let progress = match there {
        Some(progress) => progress,
        None => {
            let (number, known) = objects.know(&name, object)?;
            let progress = Arc::new(Mutex::new(Progress {
                number,
                known,
                calls: 0,
                sum: 0,
                returned: 0,
            }));
            lock(&objects.threads.progress).insert(key, progress.clone());
            progress
        }
    };
    let mut now = lock(&progress);
    if now.calls == now.known.calls {
        if now.sum != now.known.sum {
            return Err(Error::Invalid(format!(
                "the thread {name:?} has made other calls than before the crash, so it cannot go on where that was: the \
                 program is not deterministic; close the region to begin anew"
            )));
        }
        return Ok(Next::Made(now.number));
    }
    now.calls += 1;
    now.sum = sum_with(now.sum, function, lane, arguments);
    drop(now);
    Ok(Next::Known(progress))
}

impl Next {
    /// Whether the thread that this is has a name.
    pub(super) fn is_of_named() -> bool {
        IS_NAMED.get()
    }
}

/// What a call that survived returned; text for one that panicked.
pub(super) fn returned<R: DeserializeOwned>(progress: &Mutex<Progress>) -> Result<Result<R, String>> {
    let mut now = lock(progress);
    let left = &now.known.results[now.returned..];
    let (result, rest) = postcard::take_from_bytes(left).map_err(|error| {
        Error::Invalid(format!(
            "what a call returned before the crash is not what it returns now ({error}): the program is not the same"
        ))
    })?;
    now.returned = now.known.results.len() - rest.len();
    Ok(result)
}
