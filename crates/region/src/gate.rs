//! Updates go in, a cut keeps them out: the gate of each window.
//!
//! * Going in and out costs a few ordinary stores and loads of one's own cache line; the cutter pays
//!   with a barrier on every thread (`twinpage_os::barrier`).
//! * While the gate is closed no thread is in an update; a thread that begins one waits.
//! * An update inside an update is part of it, and never waits.
//! * An update inside a reading lasts until the reading ends: what was made with the reading's brand may be used that long.
//! * Every thread has one record for all windows. Records are kept for ever and used again by later
//!   threads, so that a cutter can look at all of them without a lock.
//!
//! ```text
//! thread:  depth = 1 | light barrier | closed? no: in.   yes: depth = 0, wait, again
//! cutter:  closed = 1 | heavy barrier | every depth 0? closed. else wait for the updates inside, and if that takes
//!          long open again and try later
//! ```
//!
//! # No cut and no update waits for ever
//!
//! An update may need a thread that waits at the gate: a lock is held by one that wants in, work was handed
//! to others, two regions are updated in opposite orders. So a closed gate always opens again: the cutter
//! waits with the gate closed for as long as it has waited before, then opens it until all that waited are in,
//! and tries again. If an update does not end at all (it may wait for a lock that the thread holds which wants the
//! checkpoint), the cutter gives up after the region's patience, with an error that names both ([`Busy`]).
//!
//! Either the thread sees `closed` or the cutter sees `depth`: that is what the barriers give.
//!
//! Being in also tells a thread where it is ([`MarkState`]), so that what it writes is marked without a search.

use crate::lock::{lock, wait, wait_timeout};
use crate::zone::WINDOWS;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use twinpage_os::barrier;

/// How often a closed gate is looked at before its thread sleeps: cuts take microseconds.
const LOOKS: u32 = 100;
/// How long a cutter keeps the gate closed for a thread that is in an update, and then open.
const PATIENCE: Duration = Duration::from_micros(300);
/// From when on it stays closed for as long as it was waited for before.
const INSISTS: Duration = Duration::from_millis(30);
/// How long an open gate is kept open for those that waited: they need a turn on a processor.
const ADMISSION: Duration = Duration::from_millis(100);

/// A bit of a door: a cut is being made.
const CLOSED: u8 = 1;
/// A bit of a door: going in and out needs a fence of its own (`twinpage_os::barrier`).
const FENCED: u8 = 2;

/// The gate of one window.
pub(crate) struct Gate {
    /// [`CLOSED`] and [`FENCED`]: neither is what updates nearly always find.
    flags: AtomicU8,
    /// Held to look before sleeping, and to wake.
    sleepers: Mutex<()>,
    opened: Condvar,
    left: Condvar,
    /// Threads that wait to go in.
    waiting: AtomicU32,
}

/// In how many updates of each window a thread is, one inside the other, and in how many readings: [`READING`].
#[repr(align(128))]
struct PinCounts {
    of: [AtomicU32; WINDOWS],
    taken: AtomicBool,
    /// The thread's number in the system, for messages.
    thread: AtomicI32,
    next: AtomicPtr<PinCounts>,
}

/// One reading in a count of a window; updates are counted below.
const READING: u32 = 1 << 16;

/// The updates in a count of a window.
const fn updates(count: u32) -> u32 {
    count % READING
}

/// All records, newest first. Only ever added to.
static ALL: AtomicPtr<PinCounts> = AtomicPtr::new(null_mut());

/// What a thread in an update of a window must know to mark what it writes.
#[repr(align(64))]
pub(crate) struct MarkState {
    /// The base of the window, or [`NOWHERE`] when marking is not as simple as most often.
    base: AtomicUsize,
    /// The line map of the epoch in progress; 0 when the window is not in use (`marks.rs`).
    pub(crate) current: AtomicUsize,
    /// The other map while it may have marks that were not swept, else 0.
    pub(crate) frozen: AtomicUsize,
    /// How many cuts there were, from 1 on: what was marked at this number is marked while it is the same.
    pub(crate) cuts: AtomicU64,
}

/// So far from every address that nothing lies at a small offset from here.
const NOWHERE: usize = 1 << 63;

/// Where a thread is that is in no update.
static OUTSIDE: MarkState = MarkState::new();

impl MarkState {
    pub(crate) const fn new() -> MarkState {
        MarkState {
            base: AtomicUsize::new(NOWHERE),
            current: AtomicUsize::new(0),
            frozen: AtomicUsize::new(0),
            cuts: AtomicU64::new(0),
        }
    }

    /// Marking is simple from now on, in the window at `base`; or is not.
    pub(crate) fn set_simple(&self, base: Option<usize>) {
        self.base.store(base.unwrap_or(NOWHERE), Ordering::Release);
    }

    /// Bytes from the window's base to each address, if that is in the window and marking is simple there;
    /// more than a window has otherwise.
    #[inline(always)]
    pub(crate) fn offsets_of<const N: usize>(&self, addresses: [usize; N]) -> [usize; N] {
        let base = self.base.load(Ordering::Acquire);
        addresses.map(|address| address.wrapping_sub(base))
    }
}

thread_local! {
    static MINE: Cell<Option<&'static PinCounts>> = const { Cell::new(None) };
    static HERE: Cell<&'static MarkState> = const { Cell::new(&OUTSIDE) };
    static RETURN: Return = const { Return };
}

/// The window of the innermost update this thread is in.
#[inline(always)]
pub(crate) fn here() -> &'static MarkState {
    HERE.get()
}

/// Gives the thread's record back when the thread ends.
struct Return;

impl Drop for Return {
    fn drop(&mut self) {
        if let Some(mine) = MINE.take() {
            mine.taken.store(false, Ordering::Release);
        }
    }
}

/// Whether this thread is inside an update of the window of that number.
#[inline]
pub(crate) fn is_inside(window: usize) -> bool {
    MINE.get()
        .is_some_and(|mine| updates(mine.of[window].load(Ordering::Relaxed)) != 0)
}

/// Whether this thread is in a reading of the window of that number.
pub(crate) fn is_reading(window: usize) -> bool {
    MINE.get()
        .is_some_and(|mine| mine.of[window].load(Ordering::Relaxed) >= READING)
}

#[inline]
fn mine() -> &'static PinCounts {
    MINE.get().unwrap_or_else(find_record)
}

/// A record for a thread that has none: one that was given back, or a new one.
#[cold]
fn find_record() -> &'static PinCounts {
    let found = records()
        .find(|record| !record.taken.load(Ordering::Relaxed) && !record.taken.swap(true, Ordering::Acquire));
    let record = found.unwrap_or_else(|| {
        let record: &'static PinCounts = Box::leak(Box::new(PinCounts {
            of: [const { AtomicU32::new(0) }; WINDOWS],
            taken: AtomicBool::new(true),
            thread: AtomicI32::new(0),
            next: AtomicPtr::new(ALL.load(Ordering::Relaxed)),
        }));
        let new = std::ptr::from_ref(record).cast_mut();
        let mut head = record.next.load(Ordering::Relaxed);
        while let Err(other) = ALL.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
            record.next.store(other, Ordering::Relaxed);
            head = other;
        }
        record
    });
    record.thread.store(this_thread(), Ordering::Relaxed);
    // In a thread that is ending already nothing gives the record back: it stays taken.
    let _ = RETURN.try_with(|_| ());
    MINE.set(Some(record));
    record
}

/// This thread is inside an update, until dropped.
pub(crate) struct Pinned {
    depth: &'static AtomicU32,
    gate: &'static Gate,
    /// Where the update around this one is.
    outer: &'static MarkState,
    /// It counts for the thread that made it.
    _stays: PhantomData<*const ()>,
}

/// Goes in through the gate of the window of that number; waits while a cut is made.
#[inline]
pub(crate) fn enter(gate: &'static Gate, here: &'static MarkState, window: usize) -> Pinned {
    let depth = &mine().of[window];
    let before = depth.load(Ordering::Relaxed);
    depth.store(before + 1, Ordering::Relaxed);
    barrier::light(true);
    if gate.flags.load(Ordering::Acquire) != 0 {
        gate.wait_to_enter(depth, before);
    }
    Pinned {
        depth,
        gate,
        outer: HERE.replace(here),
        _stays: PhantomData,
    }
}

/// Goes in beside a thread that is in and stays in until this one has gone out: a part of its update, which waits for
/// nothing, as an update inside another.
pub(crate) fn enter_beside(gate: &'static Gate, here: &'static MarkState, window: usize) -> Pinned {
    let depth = &mine().of[window];
    depth.store(depth.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    Pinned {
        depth,
        gate,
        outer: HERE.replace(here),
        _stays: PhantomData,
    }
}

impl Drop for Pinned {
    #[inline]
    fn drop(&mut self) {
        HERE.set(self.outer);
        let before = self.depth.load(Ordering::Relaxed);
        if before > READING && updates(before) == 1 {
            return; // it lasts as long as the reading
        }
        self.gate.leave(self.depth, before - 1);
    }
}

/// This thread reads a window, until dropped.
pub(crate) struct Reading {
    count: &'static AtomicU32,
    gate: &'static Gate,
    /// The count when it began.
    before: u32,
    /// It counts for the thread that made it.
    _stays: PhantomData<*const ()>,
}

/// Begins a reading, which waits for nothing.
#[inline]
pub(crate) fn begin_reading(gate: &'static Gate, window: usize) -> Reading {
    let count = &mine().of[window];
    let before = count.load(Ordering::Relaxed);
    count.store(before + READING, Ordering::Relaxed);
    Reading {
        count,
        gate,
        before,
        _stays: PhantomData,
    }
}

impl Drop for Reading {
    #[inline]
    fn drop(&mut self) {
        let now = self.count.load(Ordering::Relaxed) - READING;
        if self.before >= READING || now == self.before {
            self.count.store(now, Ordering::Relaxed);
        } else {
            // Updates were made in it: they end here.
            self.gate.leave(self.count, self.before);
        }
    }
}

impl Gate {
    pub(crate) const fn new() -> Gate {
        Gate {
            flags: AtomicU8::new(0),
            sleepers: Mutex::new(()),
            opened: Condvar::new(),
            left: Condvar::new(),
            waiting: AtomicU32::new(0),
        }
    }

    fn sleepers(&self) -> MutexGuard<'_, ()> {
        lock(&self.sleepers)
    }

    /// This thread goes out: `left` is its count from now on.
    #[inline]
    fn leave(&self, count: &AtomicU32, left: u32) {
        count.store(left, Ordering::Release);
        barrier::light(true);
        if self.flags.load(Ordering::Relaxed) != 0 {
            self.tell_left(updates(left));
        }
    }

    /// Whether going in and out is free: before the first update.
    pub(crate) fn set_free(&self, free: bool) {
        self.flags.store(if free { 0 } else { FENCED }, Ordering::Release);
    }

    /// Whether a cut waits for the updates that are in, or is being made.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Whether a cut is being made, for a thread that has said whether it is in.
    fn is_closed(&self) -> bool {
        barrier::light(self.flags.load(Ordering::Relaxed) & FENCED == 0);
        self.flags.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Waits while the gate is closed, unless the thread was in `before` updates already.
    #[cold]
    #[inline(never)]
    fn wait_to_enter(&self, depth: &AtomicU32, before: u32) {
        if updates(before) > 0 || !self.is_closed() {
            return;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        while self.is_closed() {
            depth.store(before, Ordering::Release);
            self.tell_left(0);
            let mut looks = 0;
            while self.is_closed() && looks < LOOKS {
                std::hint::spin_loop();
                looks += 1;
            }
            let mut sleeping = self.sleepers();
            while self.is_closed() {
                sleeping = wait(&self.opened, sleeping);
            }
            drop(sleeping);
            depth.store(before + 1, Ordering::Relaxed);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Tells a cutter of a thread that is still in updates.
    #[cold]
    #[inline(never)]
    fn tell_left(&self, still: u32) {
        if still == 0 && self.is_closed() {
            // With the lock, so that a cutter that just looked is asleep by now.
            let _sleepers = self.sleepers();
            self.left.notify_one();
        }
    }

    /// Keeps updates out and waits for those that are in, `limit` at most. One cutter at a time, and not from
    /// inside an update.
    ///
    /// An update may take long, because its thread lost the processor or it is a large one: it is waited for with
    /// the gate open in between, so that others are not held up with it. `gave_up` is told of every time the gate
    /// was closed in vain.
    pub(crate) fn close(
        &'static self,
        window: usize,
        limit: Duration,
        mut gave_up: impl FnMut(Duration),
    ) -> Result<Closed, Busy> {
        debug_assert!(!is_inside(window));
        let begun = Instant::now();
        loop {
            let waited = begun.elapsed();
            let patience = if waited < INSISTS { PATIENCE } else { waited };
            let closed = self.shut();
            if self.drain(window, patience.min(limit)) {
                return Ok(closed);
            }
            let held = closed.since.elapsed();
            let inside = threads_inside(window);
            drop(closed);
            gave_up(held);
            if begun.elapsed() >= limit {
                let waited = begun.elapsed();
                return Err(Busy { inside, waited });
            }
            self.admit();
        }
    }

    /// Leaves the gate open for a moment, and until those that waited are in.
    fn admit(&self) {
        let opened = Instant::now();
        std::thread::sleep(PATIENCE);
        while self.waiting.load(Ordering::Relaxed) > 0 && opened.elapsed() < ADMISSION {
            std::thread::sleep(PATIENCE / 10);
        }
    }

    fn shut(&'static self) -> Closed {
        let was = self.flags.fetch_or(CLOSED, Ordering::SeqCst);
        debug_assert!(was & CLOSED == 0, "one cutter at a time");
        let since = Instant::now();
        barrier::heavy();
        Closed { gate: self, since }
    }

    /// Waits until no thread is inside, so long at most.
    fn drain(&self, window: usize, patience: Duration) -> bool {
        let mut looks = 0;
        while anybody_inside(window) && looks < LOOKS {
            std::hint::spin_loop();
            looks += 1;
        }
        if !anybody_inside(window) {
            return true;
        }
        let until = Instant::now() + patience;
        let mut sleeping = self.sleepers();
        while anybody_inside(window) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            sleeping = wait_timeout(&self.left, sleeping, left);
        }
        true
    }
}

/// The updates that did not end while a cut waited for them.
#[derive(Clone, Debug)]
pub(crate) struct Busy {
    /// The threads that were in updates.
    inside: std::vec::Vec<i32>,
    waited: Duration,
}

impl Busy {
    /// What the thread is told that asks for the cut.
    pub(crate) fn error(&self) -> crate::Error {
        let names: std::vec::Vec<_> = self.inside.iter().map(|&thread| name_of(thread)).collect();
        crate::Error::Busy {
            inside: match names.len() {
                0 => "a thread that has left by now".into(),
                _ => names.join(", "),
            },
            waiting: name_of(this_thread()),
            waited: self.waited,
        }
    }
}

/// The number of this thread in the system.
fn this_thread() -> i32 {
    match cfg!(any(miri, twinpage_plain)) {
        true => 0,
        false => rustix::thread::gettid().as_raw_pid(),
    }
}

fn name_of(thread: i32) -> std::string::String {
    let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
    match name.as_deref().map(str::trim) {
        Ok(name) => format!("thread {thread} ({name})"),
        Err(_) => format!("thread {thread}"),
    }
}

/// No update is running, until dropped.
pub(crate) struct Closed {
    gate: &'static Gate,
    /// When the gate was closed.
    pub(crate) since: Instant,
}

impl Drop for Closed {
    fn drop(&mut self) {
        self.gate.flags.fetch_and(!CLOSED, Ordering::Release);
        // With the lock: a thread that looked before is asleep by now and is woken.
        let _sleepers = self.gate.sleepers();
        self.gate.opened.notify_all();
    }
}

/// Whether a thread is inside an update of the window of that number.
pub(crate) fn anybody_inside(window: usize) -> bool {
    records().any(|record| record.is_in(window))
}

fn threads_inside(window: usize) -> std::vec::Vec<i32> {
    let inside = records().filter(|record| record.is_in(window));
    inside
        .map(|record| record.thread.load(Ordering::Relaxed))
        .collect()
}

impl PinCounts {
    fn is_in(&self, window: usize) -> bool {
        updates(self.of[window].load(Ordering::Acquire)) != 0
    }
}

/// The records of all threads.
fn records() -> impl Iterator<Item = &'static PinCounts> {
    let mut at = ALL.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: records are never freed, and their pointers published with release.
        let record = unsafe { at.as_ref() }?;
        at = record.next.load(Ordering::Relaxed);
        Some(record)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Window;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_cut_is_outside_of_every_update() {
        let window = Window::reserve(None).unwrap();
        let place = window.place();
        // Both counters move together in an update, with a pause now and then.
        let (a, b, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut random = fastrand::Rng::new();
                    while !done.load(Ordering::Relaxed) {
                        let _update = place.enter();
                        a.fetch_add(1, Ordering::Relaxed);
                        if random.u8(..) == 0 {
                            std::thread::sleep(Duration::from_micros(100));
                        }
                        let _inner = place.enter();
                        b.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            while a.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            let mut seen = 0;
            for _ in 0..300 {
                let closed = place.close_gate(LONG, |_| ()).unwrap();
                let now = a.load(Ordering::Relaxed);
                assert_eq!(now, b.load(Ordering::Relaxed));
                assert!(now >= seen);
                seen = now;
                drop(closed);
                std::thread::yield_now();
            }
            done.store(true, Ordering::Relaxed);
            assert!(seen > 0);
        });
    }

    /// A thread stays inside an update: the gate opens again for the others until it is out.
    #[test]
    fn one_who_is_in_for_long_holds_up_nobody() {
        let window = Window::reserve(None).unwrap();
        let place = window.place();
        let gate = &place.state().gate;
        let (inside, opened, done) = (
            AtomicBool::new(false),
            AtomicBool::new(false),
            AtomicBool::new(false),
        );
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _update = place.enter();
                inside.store(true, Ordering::Release);
                while !opened.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                done.store(true, Ordering::Release);
            });
            while !inside.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let closed = place.close_gate(LONG, |_| {
                assert!(!gate.is_closed(), "others may enter");
                drop(place.enter());
                opened.store(true, Ordering::Release);
            });
            let closed = closed.unwrap();
            assert!(done.load(Ordering::Acquire), "the gate closed around an update");
            drop(closed);
        });
    }

    #[test]
    fn an_update_ends_with_a_panic_too() {
        let window = Window::reserve(None).unwrap();
        let place = window.place();
        let panicked = std::panic::catch_unwind(|| {
            let _update = place.enter();
            assert!(place.is_inside());
            panic!("on purpose");
        });
        assert!(panicked.is_err() && !place.is_inside());
        drop(place.close_gate(LONG, |_| ()).unwrap());
    }

    #[test]
    fn records_are_used_again() {
        let window = Window::reserve(None).unwrap();
        let place = window.place();
        let count = || records().count();
        for _ in 0..200 {
            std::thread::spawn(move || drop(place.enter())).join().unwrap();
        }
        // Other tests run at the same time, but never in hundreds of threads.
        assert!(count() < 100, "{}", count());
    }
}
