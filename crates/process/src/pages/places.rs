//! The places of a store: which are free, and which of them several memories use.
//!
//! * A place is one memory's own, and that writes in it; or it is shared, and nothing is written in it any more.
//! * Of a shared place each page is counted: how many memories have it stored there. A page that none has is to be
//!   discarded, a place without such pages is free.
//! * A shared place that only one memory uses may become its own again.

use super::{Bits, CHUNK_PAGES, is_set};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// How many memories have each page of a place stored there.
type Users = [u16; CHUNK_PAGES];

/// The places of a store, given out to all that keep pages in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<Mutex<Given>>);

#[derive(Debug, Default)]
struct Given {
    free: Vec<u32>,
    /// Which chunk of addresses each place was last given to.
    numbers: Vec<u64>,
    /// Those that are shared.
    shared: HashMap<u32, Box<Users>>,
}

fn pages(bits: &Bits) -> impl Iterator<Item = usize> {
    (0..CHUNK_PAGES).filter(|index| is_set(bits, *index))
}

impl Places {
    fn given(&self) -> MutexGuard<'_, Given> {
        self.0.lock().expect("no panic holds it")
    }

    /// A free place, for a chunk of addresses.
    pub(super) fn give(&self, number: u64) -> u32 {
        let mut given = self.given();
        let id = given.free.pop().unwrap_or(given.numbers.len() as u32);
        if id as usize == given.numbers.len() {
            given.numbers.push(number);
        }
        given.numbers[id as usize] = number;
        id
    }

    /// A place of one memory's own is free again.
    pub(super) fn take_back(&self, id: u32) {
        self.given().free.push(id);
    }

    /// The chunk of addresses that a place was last given to.
    pub(super) fn number(&self, id: u64) -> Option<u64> {
        self.given().numbers.get(id as usize).copied()
    }

    /// Another memory has these pages stored in a shared place; the first that has makes it one.
    pub(super) fn share(&self, id: u32, stored: &Bits) {
        let mut given = self.given();
        let users = given
            .shared
            .entry(id)
            .or_insert_with(|| Box::new([0; CHUNK_PAGES]));
        pages(stored).for_each(|index| users[index] += 1);
    }

    /// A memory has a page stored there no longer, of which `stored` is the page of the store. Whether no memory has
    /// anything of that.
    pub(super) fn leave(&self, id: u32, index: usize, stored: Range<usize>) -> bool {
        let mut given = self.given();
        let users = given
            .shared
            .get_mut(&id)
            .expect("a memory has something stored there");
        users[index] -= 1;
        let emptied = users[stored].iter().all(|users| *users == 0);
        if users.iter().all(|users| *users == 0) {
            given.shared.remove(&id);
            given.free.push(id);
        }
        emptied
    }

    /// Makes a shared place one memory's own, if no other has anything stored there. Whether it is.
    pub(super) fn reclaim(&self, id: u32, stored: &Bits) -> bool {
        let mut given = self.given();
        let alone = given.shared.get(&id).is_some_and(|users| {
            let mut users = users.iter().enumerate();
            users.all(|(index, users)| *users == u16::from(is_set(stored, index)))
        });
        if alone {
            given.shared.remove(&id);
        }
        alone
    }

    /// All that is known of places, as tables in a context have it: the chunk of addresses of each, and which are free.
    pub(super) fn restore(&self, numbers: Vec<u64>, is_free: impl Fn(u32) -> bool) {
        let mut given = self.given();
        given.free = (0..numbers.len() as u32).filter(|id| is_free(*id)).collect();
        given.numbers = numbers;
    }

    /// How many are not free.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        let given = self.given();
        given.numbers.len() - given.free.len()
    }
}
