//! Things that come and go, by number: a number, and the memory behind it, is used again.

use std::ops::{Index, IndexMut};

/// All of them. One that is taken is as its last user left it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slab<T> {
    all: Vec<T>,
    free: Vec<u32>,
}

impl<T: Default> Slab<T> {
    /// One that is free.
    #[inline]
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.all.push(T::default());
            self.all.len() as u32 - 1
        })
    }

    /// Its user needs it no more.
    #[inline]
    pub(crate) fn give_back(&mut self, number: u32) {
        self.free.push(number);
    }

    /// Whether all are free.
    pub(crate) fn is_unused(&self) -> bool {
        self.free.len() == self.all.len()
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, number: u32) -> &T {
        &self.all[number as usize]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.all[number as usize]
    }
}
