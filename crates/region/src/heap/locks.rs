//! The locks of the heaps: volatile, beside the windows, found by address.
//!
//! A lock is held for a few hundred instructions and never across a call of the user. A thread holds
//! at most one of a shard and then, inside it, that of the units; never in the other order.

use super::format::SHARDS;
use crate::window::{self, WINDOWS};
use parking_lot::{Mutex, MutexGuard};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

#[repr(align(128))]
struct Lock(Mutex<()>);

struct Locks {
    units: Lock,
    shards: [Lock; SHARDS],
}

static LOCKS: [Locks; WINDOWS] = [const {
    Locks {
        units: Lock(Mutex::new(())),
        shards: [const { Lock(Mutex::new(())) }; SHARDS],
    }
}; WINDOWS];

fn of(address: usize) -> &'static Locks {
    &LOCKS[window::index_of(address).expect("a heap lies in a window")]
}

/// Locks the units of the heap at `address`.
pub(super) fn units(address: usize) -> MutexGuard<'static, ()> {
    of(address).units.0.lock()
}

/// Locks a shard of the heap at `address`.
#[inline]
pub(super) fn shard(address: usize, shard: usize) -> MutexGuard<'static, ()> {
    of(address).shards[shard % SHARDS].0.lock()
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
