//! The locks of the heaps: volatile, beside the windows, found by address.
//!
//! A lock is held for a few hundred instructions and never across a call of the user. A thread holds
//! one of a shard, or all of them, and then, inside it, that of the units; never in the other order.
//!
//! Most blocks are taken and freed without contention, so what counts is that case. A thread that took the
//! lock of a shard often in a row *owns* it: from then on it goes in and out with plain stores. Any other
//! thread takes the lock itself, ends the ownership, and pays with a barrier on every thread:
//!
//! ```text
//! owner:  its `inside` = lock | light barrier | still mine? in.   no: `inside` = none, takes the lock
//! other:  takes the lock | owner = none | heavy barrier | owner inside this lock? waits for it. in.
//! ```
//!
//! Either the owner sees that it is no more, or the other sees it inside (`twinpage_os::barrier`).
//!
//! A thread says in memory of its own where it is inside: one that still takes itself for the owner, long after
//! another has become it, must not wipe out that the other is inside.
//!
//! # Invariants
//! * `owner`, `last` and `row` change under the lock only.
//! * While a lock has an owner only the owner is in by it, and the holder that makes it so.
//! * Only a thread itself writes its `inside`, and it is inside one lock at most.

use super::format::SHARDS;
use crate::address;
use crate::lock::lock;
use crate::zone::WINDOWS;
use std::cell::Cell;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use twinpage_os::barrier;

/// How often a lock is looked at before its thread lets others run.
const LOOKS: u32 = 100;
/// How often in a row a thread takes a lock before it owns it: then the end of that, some microseconds, is
/// little beside what those cost.
const OFTEN: u32 = 1000;
/// Where a word says that a lock is free, or a thread inside none.
const NONE: usize = 0;

#[repr(align(128))]
struct Lock {
    /// Not [`NONE`] while it is held, other than by its owner.
    taken: AtomicUsize,
    /// How often the last one took it in a row.
    row: AtomicU32,
    last: AtomicPtr<Seat>,
    owner: AtomicPtr<Seat>,
}

/// The lock is free again when this is dropped.
pub(crate) struct Locked(&'static AtomicUsize);

impl Lock {
    const fn new() -> Lock {
        Lock {
            taken: AtomicUsize::new(NONE),
            row: AtomicU32::new(0),
            last: AtomicPtr::new(ptr::null_mut()),
            owner: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// What a thread inside says of this lock.
    fn name(&'static self) -> usize {
        ptr::from_ref(self).addr()
    }

    fn is_owned_by(&self, thread: Thread) -> bool {
        ptr::eq(self.owner.load(Ordering::Acquire), thread.0)
    }

    /// Locks it for a thread that may own it.
    #[inline]
    fn lock(&'static self, thread: Thread) -> Locked {
        if self.is_owned_by(thread)
            && let Some(locked) = self.enter(thread)
        {
            return locked;
        }
        self.lock_as_one_of_many(thread)
    }

    /// Locks it for a thread that owned it a moment ago, if it still does.
    #[inline]
    fn enter(&'static self, thread: Thread) -> Option<Locked> {
        let inside = &thread.0.inside;
        debug_assert_eq!(inside.load(Ordering::Relaxed), NONE, "a thread is in one lock");
        // Released, because it may follow the end of an earlier stay that no thread has looked at.
        inside.store(self.name(), Ordering::Release);
        barrier::light(true);
        if self.is_owned_by(thread) {
            return Some(Locked(inside));
        }
        inside.store(NONE, Ordering::Release);
        None
    }

    #[inline(never)]
    fn lock_as_one_of_many(&'static self, thread: Thread) -> Locked {
        let locked = self.lock_plain();
        if !ptr::eq(self.last.load(Ordering::Relaxed), thread.0) {
            self.end_ownership();
            self.last.store(thread.as_ptr(), Ordering::Relaxed);
            self.row.store(0, Ordering::Relaxed);
            return locked;
        }
        let row = self.row.load(Ordering::Relaxed) + 1;
        if row < OFTEN {
            self.row.store(row, Ordering::Relaxed);
        } else if barrier::light_is_free() {
            self.owner.store(thread.as_ptr(), Ordering::Release);
        }
        locked
    }

    /// The owner, if there is one, is out and takes the lock from now on, as all do.
    fn end_ownership(&'static self) {
        // SAFETY: an owner is a seat, and seats stay for ever.
        if let Some(owner) = unsafe { self.owner.load(Ordering::Acquire).as_ref() } {
            self.turn_out(owner);
        }
    }

    #[cold]
    fn turn_out(&'static self, owner: &'static Seat) {
        self.owner.store(ptr::null_mut(), Ordering::Relaxed);
        barrier::heavy();
        look_until(|| !self.holds(owner));
    }

    /// Whether the thread says that it is inside.
    fn holds(&'static self, owner: &'static Seat) -> bool {
        owner.inside.load(Ordering::Acquire) == self.name()
    }

    /// Locks one that is never owned.
    #[inline]
    fn lock_plain(&'static self) -> Locked {
        if !self.try_take() {
            self.wait();
        }
        Locked(&self.taken)
    }

    #[inline]
    fn try_take(&'static self) -> bool {
        self.taken.swap(self.name(), Ordering::Acquire) == NONE
    }

    #[cold]
    #[inline(never)]
    fn wait(&'static self) {
        look_until(|| self.taken.load(Ordering::Relaxed) == NONE && self.try_take());
    }
}

fn look_until(is_so: impl Fn() -> bool) {
    let mut looks = 0;
    while !is_so() {
        looks += 1;
        match looks % LOOKS {
            0 => std::thread::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }
}

impl Drop for Locked {
    #[inline]
    fn drop(&mut self) {
        self.0.store(NONE, Ordering::Release);
    }
}

static UNITS: [Lock; WINDOWS] = [const { Lock::new() }; WINDOWS];
static SHARD: [[Lock; SHARDS]; WINDOWS] = [const { [const { Lock::new() }; SHARDS] }; WINDOWS];

#[inline]
fn index_of(address: usize) -> usize {
    address::index_of(address).expect("a heap lies in a window")
}

/// Locks the units of the heap at `address`.
pub(super) fn units(address: usize) -> Locked {
    UNITS[index_of(address)].lock_plain()
}

/// Locks a shard of the heap at `address`.
#[inline]
pub(super) fn shard(address: usize, shard: usize, thread: Thread) -> Locked {
    SHARD[index_of(address)][shard % SHARDS].lock(thread)
}

/// Locks every shard of the heap at `address`: a thread is inside one at most, so none of them as its owner.
pub(super) fn all_shards(address: usize) -> Vec<Locked> {
    let thread = Thread::current();
    let shards = SHARD[index_of(address)].iter();
    shards.map(|lock| lock.lock_as_one_of_many(thread)).collect()
}

/// What the locks know of a thread. It stays for ever: when its thread ends, another takes it over, with the locks
/// that it owns.
#[repr(align(128))]
struct Seat {
    /// The lock that the thread is inside of as its owner.
    inside: AtomicUsize,
    /// The number of the seat.
    number: usize,
}

impl Seat {
    const fn new(number: usize) -> Seat {
        let inside = AtomicUsize::new(NONE);
        Seat { inside, number }
    }
}

/// Those whose threads have ended.
static FREE: Mutex<Vec<&'static Seat>> = Mutex::new(Vec::new());

/// A thread that takes locks.
#[derive(Clone, Copy)]
pub(super) struct Thread(&'static Seat);

impl Thread {
    /// This one.
    #[inline]
    pub(super) fn current() -> Thread {
        SEATED.get().unwrap_or_else(Thread::sit_down)
    }

    #[cold]
    fn sit_down() -> Thread {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let found = lock(&FREE).pop();
        let seat = found.unwrap_or_else(|| {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            Box::leak(Box::new(Seat::new(number)))
        });
        SEATED.set(Some(Thread(seat)));
        // Too late where the thread is ending already: then no other takes the seat.
        let _ = LEAVES.try_with(|_| ());
        Thread(seat)
    }

    fn as_ptr(self) -> *mut Seat {
        ptr::from_ref(self.0).cast_mut()
    }

    /// The shard it takes blocks from: threads take turns.
    #[inline]
    pub(super) fn shard(self) -> usize {
        self.0.number % SHARDS
    }
}

thread_local! {
    static SEATED: Cell<Option<Thread>> = const { Cell::new(None) };
    static LEAVES: Leaves = const { Leaves };
}

/// Frees the thread's seat when the thread ends.
struct Leaves;

impl Drop for Leaves {
    fn drop(&mut self) {
        if let Some(Thread(seat)) = SEATED.take() {
            lock(&FREE).push(seat);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    static LOCK: Lock = Lock::new();

    /// Two numbers that are the same while no thread is in.
    struct Pair(UnsafeCell<[u64; 2]>);
    // SAFETY: only the holder of the lock uses it.
    unsafe impl Sync for Pair {}

    fn add_one(pair: &Pair) {
        let _locked = LOCK.lock(Thread::current());
        // SAFETY: the lock is held.
        let [a, b] = unsafe { &mut *pair.0.get() };
        assert_eq!(a, b, "another thread is in");
        *a += 1;
        std::hint::black_box(&mut *a);
        *b += 1;
    }

    /// A thread that sees itself as the owner may sleep for so long that another has become it and is inside.
    #[test]
    fn who_was_the_owner_once_changes_nothing_for_the_owner() {
        static LOCK: Lock = Lock::new();
        static SEATS: [Seat; 2] = [const { Seat::new(0) }; 2];
        let [late, owner] = [Thread(&SEATS[0]), Thread(&SEATS[1])];
        LOCK.owner.store(owner.as_ptr(), Ordering::Release);
        let locked = LOCK.lock(owner);
        assert!(LOCK.enter(late).is_none());
        assert!(LOCK.holds(owner.0), "the owner is inside, and it is not seen");
        drop(locked);
        assert!(!LOCK.holds(owner.0));
        // Out: another takes it at once.
        drop(LOCK.lock(late));
        assert!(!LOCK.is_owned_by(owner));
    }

    #[test]
    fn a_seat_goes_to_the_next_thread() {
        let sit = || std::thread::spawn(|| Thread::current().0.number).join().unwrap();
        let all: std::collections::BTreeSet<usize> = (0..200).map(|_| sit()).collect();
        assert!(all.len() < 100, "{} seats for one thread at a time", all.len());
    }

    /// Threads own the lock by turns, and are disturbed at any instant of it.
    #[test]
    fn one_at_a_time_whoever_owns_it() {
        let (turns, often) = if cfg!(miri) {
            (3, 5)
        } else {
            (400, u64::from(OFTEN) * 2)
        };
        let pair = Pair(UnsafeCell::new([0; 2]));
        let owned = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for seed in 0..3 {
                let (pair, owned) = (&pair, &owned);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    for _ in 0..turns {
                        let times = if random.bool() { often } else { random.u64(1..4) };
                        (0..times).for_each(|_| add_one(pair));
                        if LOCK.is_owned_by(Thread::current()) {
                            owned.fetch_add(1, Ordering::Relaxed);
                        }
                        random.bool().then(std::thread::yield_now);
                    }
                });
            }
        });
        // SAFETY: all are out.
        let [a, b] = unsafe { *pair.0.get() };
        assert_eq!(a, b);
        if barrier::light_is_free() {
            assert!(owned.load(Ordering::Relaxed) > 0, "no thread ever owned it");
        }
    }
}
