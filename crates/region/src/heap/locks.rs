//! The locks of the heaps: volatile, beside the windows, found by address.
//!
//! A lock is held for a few hundred instructions and never across a call of the user. A thread holds
//! at most one of a shard and then, inside it, that of the units; never in the other order.
//!
//! Most blocks are taken and freed without contention, so what counts is that case. A thread that took the
//! lock of a shard often in a row *owns* it: from then on it goes in and out with plain stores. Any other
//! thread takes the lock itself, ends the ownership, and pays with a barrier on every thread:
//!
//! ```text
//! owner:  inside = 1 | light barrier | still mine? in.      no: inside = 0, takes the lock
//! other:  takes the lock | owner = none | heavy barrier | inside 0? in. else wait for it
//! ```
//!
//! Either the owner sees that it is no more, or the other sees it inside (`twinpage_os::barrier`).
//!
//! # Invariants
//! * `owner`, `last` and `row` change under the lock only.
//! * While a lock has an owner only the owner is in by it, and the holder that makes it so.

use super::format::SHARDS;
use crate::address;
use crate::zone::WINDOWS;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use twinpage_os::barrier;

/// How often a lock is looked at before its thread lets others run.
const LOOKS: u32 = 100;
/// How often in a row a thread takes a lock before it owns it: then the end of that, some microseconds, is
/// little beside what those cost.
const OFTEN: u32 = 1000;
/// The number of no thread.
const NO_OWNER: usize = 0;

#[repr(align(128))]
struct Lock {
    taken: AtomicBool,
    /// The owner is in.
    inside: AtomicBool,
    /// How often the last one took it in a row.
    row: AtomicU32,
    last: AtomicUsize,
    owner: AtomicUsize,
}

/// The lock is free again when this is dropped.
pub(crate) struct Locked(&'static AtomicBool);

impl Lock {
    const fn new() -> Lock {
        Lock {
            taken: AtomicBool::new(false),
            inside: AtomicBool::new(false),
            row: AtomicU32::new(0),
            last: AtomicUsize::new(NO_OWNER),
            owner: AtomicUsize::new(NO_OWNER),
        }
    }

    /// Locks it for a thread that may own it.
    #[inline]
    fn lock(&'static self, thread: Thread) -> Locked {
        if self.owner.load(Ordering::Acquire) == thread.0 {
            debug_assert!(!self.inside.load(Ordering::Relaxed), "a lock is taken once");
            self.inside.store(true, Ordering::Relaxed);
            barrier::light(true);
            if self.owner.load(Ordering::Acquire) == thread.0 {
                return Locked(&self.inside);
            }
            self.inside.store(false, Ordering::Release);
        }
        self.lock_as_one_of_many(thread)
    }

    #[inline(never)]
    fn lock_as_one_of_many(&'static self, thread: Thread) -> Locked {
        let locked = self.lock_plain();
        if self.last.load(Ordering::Relaxed) != thread.0 {
            if self.owner.load(Ordering::Relaxed) != NO_OWNER {
                self.end_ownership();
            }
            self.last.store(thread.0, Ordering::Relaxed);
            self.row.store(0, Ordering::Relaxed);
            return locked;
        }
        let row = self.row.load(Ordering::Relaxed) + 1;
        if row < OFTEN {
            self.row.store(row, Ordering::Relaxed);
        } else if barrier::light_is_free() {
            self.owner.store(thread.0, Ordering::Release);
        }
        locked
    }

    /// The owner is out and takes the lock from now on, as all do.
    #[cold]
    fn end_ownership(&self) {
        self.owner.store(NO_OWNER, Ordering::Relaxed);
        barrier::heavy();
        look_until(|| !self.inside.load(Ordering::Acquire));
    }

    /// Locks one that is never owned.
    #[inline]
    fn lock_plain(&'static self) -> Locked {
        if self.taken.swap(true, Ordering::Acquire) {
            self.wait();
        }
        Locked(&self.taken)
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) {
        look_until(|| !self.taken.load(Ordering::Relaxed) && !self.taken.swap(true, Ordering::Acquire));
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
        self.0.store(false, Ordering::Release);
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

/// A thread's number, never used again, and never [`NO_OWNER`].
#[derive(Clone, Copy)]
pub(super) struct Thread(usize);

impl Thread {
    /// This one.
    #[inline]
    pub(super) fn current() -> Thread {
        thread_local! {
            static NUMBER: Cell<usize> = const { Cell::new(NO_OWNER) };
        }
        static NEXT: AtomicUsize = AtomicUsize::new(NO_OWNER + 1);
        #[cold]
        fn number() -> usize {
            NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
            NUMBER.get()
        }
        match NUMBER.get() {
            NO_OWNER => Thread(number()),
            number => Thread(number),
        }
    }

    /// The shard it takes blocks from: threads take turns.
    #[inline]
    pub(super) fn shard(self) -> usize {
        self.0 % SHARDS
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
                        if LOCK.owner.load(Ordering::Relaxed) == Thread::current().0 {
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
