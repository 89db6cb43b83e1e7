//! The closures of the section that has the turn, one inside the other.
//!
//! * Numbers ascend: one below that of the outermost is over.
//! * Only the thread that has the turn changes them, or asks.

use crate::lock::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The scopes of a region.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    last: AtomicU64,
    /// That of the outermost closure; 0: none is running.
    outermost: AtomicU64,
    /// Those inside.
    inner: Mutex<Vec<u64>>,
}

impl Scopes {
    /// One more, inside those there are.
    pub(super) fn open(&self) -> u64 {
        let number = self.last.load(Ordering::Relaxed) + 1;
        self.last.store(number, Ordering::Relaxed);
        match self.outermost.load(Ordering::Relaxed) {
            0 => self.outermost.store(number, Ordering::Relaxed),
            _ => lock(&self.inner).push(number),
        }
        number
    }

    /// The one of this number is over, which is the innermost.
    pub(super) fn close(&self, number: u64) {
        match self.outermost.load(Ordering::Relaxed) == number {
            true => self.outermost.store(0, Ordering::Relaxed),
            false => drop(lock(&self.inner).pop()),
        }
    }

    /// Whether the closure that was given the number is running.
    pub(super) fn is_open(&self, number: u64) -> bool {
        match self.outermost.load(Ordering::Relaxed) {
            0 => false,
            outermost if number <= outermost => number == outermost,
            _ => lock(&self.inner).contains(&number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_ones_are_open() {
        let scopes = Scopes::default();
        let first = scopes.open();
        let (second, third) = (scopes.open(), scopes.open());
        scopes.close(third);
        let fourth = scopes.open();
        let open = [first, second, third, fourth, fourth + 1].map(|scope| scopes.is_open(scope));
        assert_eq!(open, [true, true, false, true, false]);
        [fourth, second, first]
            .into_iter()
            .for_each(|scope| scopes.close(scope));
        assert!(!scopes.is_open(first) && !scopes.is_open(0));
        let next = scopes.open();
        assert!(scopes.is_open(next) && !scopes.is_open(fourth) && !scopes.is_open(second));
    }
}
