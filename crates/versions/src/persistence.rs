//! The persister (Algorithm 2), its thread, and how a thread waits for it.
//!
//! A batch becomes durable in this order: its ranges are written back; fence; the durable word is stored
//! and written back; fence; and only then it is called durable.
//!
//! * The word never arrives before what it speaks of: there is a fence between them.
//! * Where a fence is a flush of a disk, a seal is written with the ranges instead, and the word after their one fence
//!   (`seal.rs`).
//! * Nothing is called durable after a failed fence.
//! * The same steps run on the persistence thread, on a thread that waits, or one by one under a test.
//! * The persister of a closed array does nothing more.

#![allow(unsafe_code)]

use crate::error::{Error, Result};
use crate::fault::Planted;
use crate::format::{CONFIRMED, WORD};
use crate::handover::{Handover, InFlight};
use crate::seal;
use crate::words::word;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use twinpage_core::Offset;
use twinpage_core::poison::Poison;
use twinpage_os::Direct;

/// Looks for work before the thread sleeps, about half a microsecond each.
const LOOKS: u32 = 64;
const PAUSES: u32 = 16;

/// Shared by the operation thread, the persistence thread and the threads that wait.
#[derive(Debug)]
pub(crate) struct Shared {
    direct: Arc<dyn Direct>,
    path: PathBuf,
    pub(crate) handover: Handover,
    /// The last update, or step, that is durable.
    durable: AtomicU64,
    /// The last that a thread waits for.
    wanted: AtomicU64,
    waiters: AtomicU32,
    turn: Mutex<()>,
    changed: Condvar,
    poison: Poison,
    closed: AtomicBool,
    persists: AtomicU64,
    /// Held for a batch, from its first write-back to its last fence: a fence is for write-backs of its own thread.
    persister: Mutex<Persister>,
    run: Run,
    /// The persistence thread, where there is one.
    thread: OnceLock<Thread>,
    /// Whether it sleeps.
    parked: AtomicBool,
    /// Steps have seals.
    pub(crate) seals: bool,
    pub(crate) planted: Option<Planted>,
}

/// How the persister is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Run {
    #[default]
    Thread,
    /// At the end of each update that is due.
    Inline,
    /// By a test, step by step, and by threads that wait.
    Stepped,
}

impl Shared {
    pub(crate) fn new(
        direct: Arc<dyn Direct>,
        path: &Path,
        durable: u64,
        run: Run,
        planted: Option<Planted>,
    ) -> Shared {
        Shared {
            direct,
            path: path.to_owned(),
            handover: Handover::default(),
            durable: AtomicU64::new(durable),
            wanted: AtomicU64::new(0),
            waiters: AtomicU32::new(0),
            turn: Mutex::new(()),
            changed: Condvar::new(),
            poison: Poison::default(),
            closed: AtomicBool::new(false),
            persists: AtomicU64::new(0),
            persister: Mutex::default(),
            run,
            thread: OnceLock::new(),
            parked: AtomicBool::new(false),
            seals: false,
            planted,
        }
    }

    pub(crate) fn direct(&self) -> &dyn Direct {
        &*self.direct
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The last update that is durable.
    #[inline]
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::SeqCst)
    }

    /// How often something was made durable.
    pub(crate) fn persists(&self) -> u64 {
        self.persists.load(Ordering::Relaxed)
    }

    /// A word of the file.
    ///
    /// # Panics
    /// When it is not an aligned one inside the file.
    pub(crate) fn word(&self, at: Offset) -> &AtomicU64 {
        word(self.direct(), at)
    }

    /// The program stored into `range`.
    pub(crate) fn stored(&self, range: Range<Offset>) {
        if self.direct.is_watched() {
            self.direct.stored(range);
        }
    }

    /// # Errors
    /// [`Error::Poisoned`] after a failed flush.
    pub(crate) fn sound(&self) -> Result<()> {
        self.poison.check().map_err(|error| match error {
            twinpage_core::Error::Poisoned(cause) => Error::Poisoned {
                path: self.path.clone(),
                cause,
            },
            other => other.into(),
        })
    }

    pub(crate) fn poison(&self, cause: &twinpage_core::Error) {
        self.poison.set(cause);
        self.tell();
    }

    /// The end of an update, or of a plane's step, whose batch was offered.
    #[inline]
    pub(crate) fn offered(&self, due: bool) {
        let wanted = self.is_waited_for();
        let due = due && self.run != Run::Stepped;
        match self.run {
            Run::Thread if (due || wanted) && self.parked.load(Ordering::SeqCst) => self.wake(),
            Run::Inline | Run::Stepped if due || wanted => {
                lock(&self.persister).run(self);
            }
            _ => {}
        }
    }

    /// Whether a thread waits for more than is durable.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) > self.durable()
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// One step of the persister, where a test drives it; false when there is nothing to do.
    #[cfg(any(test, feature = "faults"))]
    pub(crate) fn step(&self) -> bool {
        self.run != Run::Thread && lock(&self.persister).step(self)
    }

    /// Returns when update `number` is durable.
    pub(crate) fn wait(&self, number: u64) -> Result<()> {
        if self.durable() >= number {
            return Ok(());
        }
        self.wanted.fetch_max(number, Ordering::SeqCst);
        // A fence of this thread is faster than a message to another processor. A persister at work sees `wanted`.
        match self.persister.try_lock() {
            // Closed: the file may belong to another opening by now.
            Ok(persister) if self.closed.load(Ordering::SeqCst) => drop(persister),
            Ok(mut persister) => {
                persister.run(self);
            }
            Err(_) => self.wake(),
        }
        // Where it takes no longer than this, sleeping would.
        for _ in 0..LOOKS {
            if self.durable() >= number {
                return Ok(());
            }
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        }
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = loop {
            if self.durable() >= number {
                break Ok(());
            }
            if let Err(error) = self.sound() {
                break Err(error);
            }
            if self.closed.load(Ordering::SeqCst) {
                let path = self.path.clone();
                break Err(Error::Closed { path, number });
            }
            turn = self.changed.wait(turn).unwrap_or_else(PoisonError::into_inner);
        };
        drop(turn);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    /// Wakes the waiters, if there are any.
    fn tell(&self) {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            drop(self.turn.lock().unwrap_or_else(PoisonError::into_inner));
            self.changed.notify_all();
        }
    }
}

fn lock(persister: &Mutex<Persister>) -> MutexGuard<'_, Persister> {
    persister.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Algorithm 2, a step at a time.
#[derive(Debug, Default)]
pub(crate) struct Persister {
    in_flight: InFlight,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Idle,
    WriteBack(usize),
    Fence,
    Word,
    FenceWord,
}

impl Persister {
    /// Makes durable what there is; whether there was anything.
    fn run(&mut self, shared: &Shared) -> bool {
        let mut any = false;
        while self.step(shared) {
            any = true;
        }
        any
    }

    /// Does one thing; false when there is nothing to do.
    fn step(&mut self, shared: &Shared) -> bool {
        if shared.poison.is_set() {
            return false;
        }
        self.stage = match self.stage {
            Stage::Idle => {
                if !self.in_flight.take(&shared.handover, shared.is_waited_for()) {
                    return false;
                }
                // No other thread adds: the persister is locked.
                shared.persists.store(shared.persists() + 1, Ordering::Relaxed);
                Stage::WriteBack(0)
            }
            Stage::WriteBack(_) if shared.seals => {
                let batch = self.in_flight.batch(&shared.handover);
                let plane = batch.ranges.first().expect("a step is a plane");
                // SAFETY: a plane in flight, which no step writes.
                unsafe { seal::write_back(shared.direct(), plane, batch.word) };
                Stage::FenceWord
            }
            Stage::WriteBack(next) => match self.in_flight.batch(&shared.handover).ranges.get(next) {
                Some(range) => {
                    shared.direct.write_back(range.clone());
                    Stage::WriteBack(next + 1)
                }
                None if shared.planted == Some(Planted::WordBeforeFence) => Stage::Word,
                None => Stage::Fence,
            },
            Stage::Fence => match self.fence(shared) {
                true => Stage::Word,
                false => return false,
            },
            Stage::Word => {
                let word = self.in_flight.batch(&shared.handover).word;
                if shared.direct.streams() {
                    // SAFETY: an aligned word of the file, which others read as an atomic; a fence follows.
                    unsafe { shared.direct.stream(WORD, &word.to_ne_bytes()) };
                } else {
                    shared.word(WORD).store(word, Ordering::Release);
                    shared.stored(WORD..WORD + 8);
                    shared.direct.write_back(WORD..WORD + 8);
                }
                Stage::FenceWord
            }
            Stage::FenceWord => {
                if !self.fence(shared) {
                    return false;
                }
                let batch = self.in_flight.batch(&shared.handover);
                if shared.seals {
                    // The next fence is that of the next step: until then the seal speaks for this one.
                    shared.word(WORD).store(batch.word, Ordering::Release);
                    shared.stored(WORD..WORD + 8);
                    shared.direct.write_back(WORD..WORD + 8);
                    shared.direct.publish(WORD..WORD + 8);
                }
                shared.word(CONFIRMED).store(batch.word, Ordering::Release);
                shared.stored(CONFIRMED..CONFIRMED + 8);
                shared.direct.publish(CONFIRMED..CONFIRMED + 8);
                shared.durable.store(batch.number, Ordering::SeqCst);
                self.in_flight.done(&shared.handover);
                shared.tell();
                Stage::Idle
            }
        };
        true
    }

    fn fence(&self, shared: &Shared) -> bool {
        shared
            .direct
            .fence()
            .map_err(|error| shared.poison(&error))
            .is_ok()
    }
}

/// An array that is open: what is shared, and the thread. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

impl Engine {
    pub(crate) fn start(shared: Shared) -> Result<Engine> {
        let shared = Arc::new(shared);
        let thread = match shared.run {
            Run::Inline | Run::Stepped => None,
            Run::Thread => {
                let own = Arc::clone(&shared);
                let spawned = std::thread::Builder::new()
                    .name("persistence".into())
                    .spawn(move || persist(&own));
                Some(spawned.map_err(|source| twinpage_core::Error::Io {
                    what: format!("starting the persistence thread of {}", shared.path.display()),
                    at: 0,
                    source,
                })?)
            }
        };
        Ok(Engine {
            shared,
            thread,
            process: std::process::id(),
        })
    }

    /// Whether this process opened the array. A child made by fork(2) did not: it has the parent's memory of the file, not
    /// its thread, and knows of no later update.
    pub(crate) fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if !self.is_ours() {
            return std::mem::forget(self.thread.take());
        }
        self.shared.closed.store(true, Ordering::SeqCst);
        // A waiter that runs the persister is done before the file is closed; later ones see `closed`.
        drop(lock(&self.shared.persister));
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // It has told the waiters if it failed.
            let _ = thread.join();
        }
        self.shared.tell();
    }
}

/// The persistence thread.
fn persist(shared: &Shared) {
    let _ = shared.thread.set(std::thread::current());
    let mut looks = 0;
    loop {
        let found = match shared.persister.try_lock() {
            Ok(mut persister) => persister.run(shared),
            Err(_) => false,
        };
        if found {
            looks = 0;
            continue;
        }
        if shared.closed.load(Ordering::SeqCst) {
            return;
        }
        if looks < LOOKS {
            looks += 1;
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            continue;
        }
        shared.parked.store(true, Ordering::SeqCst);
        // Batches offered before `parked` was seen. Not `try_lock`: a waiter may have looked before them.
        if !lock(&shared.persister).run(shared) && !shared.closed.load(Ordering::SeqCst) {
            std::thread::park();
        }
        shared.parked.store(false, Ordering::SeqCst);
        looks = 0;
    }
}

/// Drives the persister of an array that was opened [`stepped`](Options::stepped).
#[cfg(any(test, feature = "faults"))]
#[derive(Clone, Debug)]
pub struct Stepper(pub(crate) Arc<Shared>);

#[cfg(any(test, feature = "faults"))]
impl Stepper {
    /// Does one thing; false when there is nothing to do.
    pub fn step(&self) -> bool {
        self.0.step()
    }

    /// The last update that is durable.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.0.durable()
    }
}
