//! Where a workload's data lies: regions one after another, arrays of records in them.

use crate::op::PAGE_BYTES;
use crate::space::{Plain, Port, Space};
use std::marker::PhantomData;

/// Hands out regions from its first address up, each beginning on a page.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    next: u64,
}

impl Layout {
    /// From an address on, the first of a page.
    pub(super) fn from(at: u64) -> Layout {
        Layout { next: at }
    }

    /// So many bytes.
    pub(super) fn region(&mut self, bytes: u64) -> u64 {
        let at = self.next;
        self.next = (at + bytes).next_multiple_of(PAGE_BYTES);
        at
    }

    /// An array of `len` numbers.
    pub(super) fn array<T: Plain>(&mut self, len: u64) -> Array<T> {
        Array {
            base: self.region(len * size_of::<T>() as u64),
            len,
            holds: PhantomData,
        }
    }

    /// An array of `len` records of `each` bytes.
    pub(super) fn records(&mut self, len: u64, each: u64) -> Records {
        Records {
            base: self.region(len * each),
            len,
            each,
        }
    }

    /// Bytes handed out.
    pub(super) fn bytes(&self) -> u64 {
        self.next
    }
}

/// An array of numbers in the space.
#[derive(Clone, Copy, Debug)]
pub(super) struct Array<T> {
    base: u64,
    len: u64,
    holds: PhantomData<T>,
}

impl<T: Plain> Array<T> {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    pub(super) fn at(&self, i: u64) -> u64 {
        debug_assert!(i < self.len);
        self.base + i * size_of::<T>() as u64
    }

    #[inline]
    pub(super) fn load(&self, port: &mut Port<'_>, i: u64) -> T {
        port.load(self.at(i))
    }

    #[inline]
    pub(super) fn store(&self, port: &mut Port<'_>, i: u64, value: T) {
        port.store(self.at(i), value);
    }

    /// Read outside the simulation.
    #[inline]
    pub(super) fn peek(&self, space: &Space, i: u64) -> T {
        peek(space, self.at(i))
    }

    /// Written outside the simulation.
    #[inline]
    pub(super) fn poke(&self, space: &mut Space, i: u64, value: T) {
        poke(space, self.at(i), value);
    }
}

/// An array of records: all of one size, their fields at offsets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Records {
    base: u64,
    len: u64,
    each: u64,
}

impl Records {
    /// Where record `i` begins.
    #[inline]
    pub(super) fn at(&self, i: u64) -> u64 {
        debug_assert!(i < self.len);
        self.base + i * self.each
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Whether a record begins there.
    pub(super) fn is_one(&self, at: u64) -> bool {
        let place = at.wrapping_sub(self.base);
        place.is_multiple_of(self.each) && place / self.each < self.len
    }
}

/// A number read outside the simulation.
#[inline]
pub(super) fn peek<T: Plain>(space: &Space, at: u64) -> T {
    T::get(space.at(at, size_of::<T>()))
}

/// A number written outside the simulation.
#[inline]
pub(super) fn poke<T: Plain>(space: &mut Space, at: u64, value: T) {
    let at = at as usize;
    value.put(&mut space.bytes_mut()[at..at + size_of::<T>()]);
}
