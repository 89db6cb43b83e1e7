//! Which numbers a program's calls may have given, closed or changed since the last stop.
//!
//! * A call is seen when it begins, so the number that it will be given is foretold: the lowest from its least
//!   on that is neither known to be open nor foretold already. Calls of several threads may get each other's
//!   numbers, but together no others: each number that becomes open is touched.
//! * A call that puts a descriptor at a number that was foretold takes it away from another call, for which one
//!   more is foretold.

use super::List;
use std::collections::BTreeSet;

/// Numbers to look at.
#[derive(Debug)]
pub(super) struct Touched {
    /// Any number may be.
    pub(super) all: bool,
    numbers: BTreeSet<i32>,
    /// No number below is neither open nor touched.
    free: i32,
}

impl Touched {
    /// Nothing is known yet.
    pub(super) fn all() -> Touched {
        Touched {
            all: true,
            numbers: BTreeSet::new(),
            free: 0,
        }
    }

    /// This one.
    pub(super) fn add(&mut self, fd: i32) {
        if !self.all && fd >= 0 {
            self.numbers.insert(fd);
        }
    }

    /// A call will be given a number, the lowest that is free and not below `least`. `open` are those that
    /// were open at the last stop.
    pub(super) fn foretell(&mut self, least: i32, open: &List) {
        if self.all {
            return;
        }
        let mut number = least.max(self.free);
        while open.contains_key(&number) || self.numbers.contains(&number) {
            number += 1;
        }
        self.numbers.insert(number);
        if least <= self.free {
            self.free = number + 1;
        }
    }

    /// Whether a number is among them.
    pub(super) fn has(&self, fd: i32) -> bool {
        self.all || self.numbers.contains(&fd)
    }

    /// Whether there are any.
    pub(super) fn is_any(&self) -> bool {
        self.all || !self.numbers.is_empty()
    }

    /// How many [`Touched::numbers`] gives.
    pub(super) fn count(&self) -> usize {
        self.numbers.len()
    }

    /// All of them, unless that is not known.
    pub(super) fn numbers(&self) -> impl DoubleEndedIterator<Item = i32> {
        self.numbers.iter().copied()
    }

    /// All were looked at; `open` are open now.
    pub(super) fn clear(&mut self, open: &List) {
        let closed = self.numbers.iter().find(|fd| !open.contains_key(fd));
        self.free = match closed {
            _ if self.all => 0,
            Some(closed) => self.free.min(*closed),
            None => self.free,
        };
        self.numbers.clear();
        self.all = false;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Descriptor, DescriptorKind};
    use super::*;
    use std::collections::HashSet;

    fn open(numbers: &BTreeSet<i32>) -> List {
        let null = |fd: &i32| Descriptor {
            fd: *fd,
            flags: 0,
            cloexec: false,
            kind: DescriptorKind::Event,
            shares: *fd,
            locks: Vec::new(),
            notice: None,
        };
        numbers.iter().map(|fd| (*fd, null(fd))).collect()
    }

    /// Calls of several threads begin and end in any order, as the kernel does them.
    #[test]
    fn each_number_that_becomes_open_is_touched() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = |limit: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % limit
        };
        for _ in 0..1000 {
            let mut table: BTreeSet<i32> = (0..below(12) as i32).collect();
            let mut touched = Touched::all();
            let mut known = open(&table);
            touched.clear(&known);
            let mut begun: Vec<i32> = Vec::new();
            for _ in 0..200 {
                match below(10) {
                    0..4 => {
                        let least = [0, 0, 0, 3, 10][below(5)];
                        touched.foretell(least, &known);
                        begun.push(least);
                    }
                    4..7 if !begun.is_empty() => {
                        let least = begun.swap_remove(below(begun.len()));
                        let given = (least..).find(|fd| !table.contains(fd)).unwrap();
                        table.insert(given);
                    }
                    7 => {
                        let fd = below(16) as i32;
                        touched.add(fd);
                        if !known.contains_key(&fd) {
                            touched.foretell(fd, &known);
                        }
                        table.insert(fd);
                    }
                    8 => {
                        let fd = below(16) as i32;
                        touched.add(fd);
                        table.remove(&fd);
                    }
                    9 if below(4) == 0 => {
                        begun.clear(); // no call is under way at a stop
                        known = open(&table);
                        touched.clear(&known);
                    }
                    _ => {}
                }
                let before: HashSet<i32> = known.keys().copied().collect();
                for fd in 0..64 {
                    let changed = table.contains(&fd) != before.contains(&fd);
                    assert!(!changed || touched.has(fd), "{fd} is not touched");
                }
            }
        }
    }
}
