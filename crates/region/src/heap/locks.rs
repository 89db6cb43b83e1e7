//! The locks of the heaps: volatile, beside the windows, found by address.
//!
//! A lock is held for a few hundred instructions and never across a call of the user. A thread holds
//! at most one of a shard and then, inside it, that of the units; never in the other order.

use super::format::SHARDS;
use crate::window::{self, WINDOWS};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How often a lock is looked at before its thread lets others run.
const LOOKS: u32 = 100;

/// Most blocks are taken and freed where nobody else is, so what counts is that case: one atomic
/// exchange to lock, a store to unlock.
#[repr(align(128))]
struct Lock(AtomicBool);

/// The lock is free again when this is dropped.
pub(super) struct Locked(&'static Lock);

impl Lock {
    #[inline]
    fn lock(&'static self) -> Locked {
        if self.0.swap(true, Ordering::Acquire) {
            self.wait();
        }
        Locked(self)
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) {
        let mut looks = 0;
        while self.0.load(Ordering::Relaxed) || self.0.swap(true, Ordering::Acquire) {
            looks += 1;
            match looks % LOOKS {
                0 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
    }
}

impl Drop for Locked {
    #[inline]
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

struct Locks {
    units: Lock,
    shards: [Lock; SHARDS],
}

static LOCKS: [Locks; WINDOWS] = [const {
    Locks {
        units: Lock(AtomicBool::new(false)),
        shards: [const { Lock(AtomicBool::new(false)) }; SHARDS],
    }
}; WINDOWS];

#[inline]
fn of(address: usize) -> &'static Locks {
    &LOCKS[window::index_of(address).expect("a heap lies in a window")]
}

/// Locks the units of the heap at `address`.
pub(super) fn units(address: usize) -> Locked {
    of(address).units.lock()
}

/// Locks a shard of the heap at `address`.
#[inline]
pub(super) fn shard(address: usize, shard: usize) -> Locked {
    of(address).shards[shard % SHARDS].lock()
}

/// The shard this thread takes blocks from: threads take turns.
#[inline]
pub(super) fn own_shard() -> usize {
    thread_local! {
        static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let own = OWN.get();
    if own != usize::MAX {
        return own;
    }
    let own = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    OWN.set(own);
    own
}
