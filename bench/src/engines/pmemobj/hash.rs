//! A hash table of chained entries in transactions, like the one among PMDK's examples.
//!
//! The buckets are as many as entries are expected, so that no chain is long and nothing is rehashed while it
//! is measured.

use super::{Holds, Pmemobj};
use crate::engine::{Name, Plain, Result};
use std::marker::PhantomData;

/// In the pool; the buckets follow it.
#[repr(C)]
struct Head {
    /// A power of two.
    buckets: u64,
    entries: u64,
}

/// In the pool.
#[repr(C)]
struct Entry<V> {
    key: u64,
    next: u64,
    value: V,
}

pub(crate) struct Hash<V> {
    head: *mut Head,
    holds: Holds<V>,
}

// SAFETY: what it points to lives as long as the pool, and only the thread that holds it changes it.
unsafe impl<V: Send> Send for Hash<V> {}

impl<V: Plain> Hash<V> {
    pub(super) fn open(store: &Pmemobj, name: Name, expected: u64) -> Result<Hash<V>> {
        let buckets = expected.next_power_of_two();
        let head = store.table(name, || {
            let bytes = size_of::<Head>() + buckets as usize * size_of::<u64>();
            let head: *mut Head = store.allocate(bytes, true)?;
            // SAFETY: just allocated.
            unsafe { (*head).buckets = buckets };
            Ok(head)
        })?;
        let holds = PhantomData;
        Ok(Hash { head, holds })
    }

    /// The slot that a key's chain begins in.
    fn bucket(&self, key: u64) -> *mut u64 {
        let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // SAFETY: the buckets follow the head, and there are as many as it says.
        unsafe {
            let index = (mixed >> 32) & ((*self.head).buckets - 1);
            self.head.add(1).cast::<u64>().add(index as usize)
        }
    }

    /// The slot that points to the key's entry, or to nothing at the end of its chain.
    fn slot(&self, store: &Pmemobj, key: u64) -> *mut u64 {
        let mut slot = self.bucket(key);
        // SAFETY: slots hold zero or the offset of a live entry.
        unsafe {
            while *slot != 0 {
                let entry: *mut Entry<V> = store.at(*slot);
                if (*entry).key == key {
                    break;
                }
                slot = &raw mut (*entry).next;
            }
        }
        slot
    }

    pub(super) fn find(&self, store: &Pmemobj, key: u64) -> Option<*mut V> {
        // SAFETY: as above.
        unsafe {
            let at = *self.slot(store, key);
            (at != 0).then(|| &raw mut (*store.at::<Entry<V>>(at)).value)
        }
    }

    fn count(&mut self, store: &Pmemobj, by: i64) -> Result<()> {
        // SAFETY: the head is live, and in the log before it changes.
        unsafe {
            let entries = &raw mut (*self.head).entries;
            store.add(entries)?;
            *entries = (*entries).wrapping_add_signed(by);
        }
        Ok(())
    }

    /// A key that is not there.
    pub(super) fn insert(&mut self, store: &Pmemobj, key: u64, value: &V) -> Result<()> {
        let bucket = self.bucket(key);
        let entry: *mut Entry<V> = store.allocate(size_of::<Entry<V>>(), false)?;
        store.add(bucket)?;
        // SAFETY: the entry is new, the bucket in the log.
        unsafe {
            entry.write(Entry {
                key,
                next: *bucket,
                value: *value,
            });
            *bucket = store.offset(entry);
        }
        self.count(store, 1)
    }

    pub(super) fn remove(&mut self, store: &Pmemobj, key: u64) -> Result<bool> {
        let slot = self.slot(store, key);
        // SAFETY: as in `slot`; the slot is in the log before it changes.
        unsafe {
            if *slot == 0 {
                return Ok(false);
            }
            let entry: *mut Entry<V> = store.at(*slot);
            store.add(slot)?;
            *slot = (*entry).next;
            store.free(entry)?;
        }
        self.count(store, -1)?;
        Ok(true)
    }
}
