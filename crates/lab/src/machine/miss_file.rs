//! Lines the caches asked memory for, and who waits for each.

use super::core::Waiter;
use crate::slab::Slab;

/// Buckets, a power of two: many more than there are miss registers.
const BUCKETS: usize = 1024;
const NONE: u32 = u32::MAX;

#[derive(Debug, Default)]
struct Request {
    line: u64,
    /// The next of its bucket.
    next: u32,
    waiters: Vec<Waiter>,
}

/// Requests under way, found by line and by number.
#[derive(Debug)]
pub(crate) struct MissFile {
    all: Slab<Request>,
    buckets: Vec<u32>,
}

impl MissFile {
    pub(crate) fn new() -> MissFile {
        MissFile {
            all: Slab::default(),
            buckets: vec![NONE; BUCKETS],
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_unused()
    }

    /// The request for a line, if there is one.
    pub(crate) fn find(&self, line: u64) -> Option<u32> {
        let mut number = self.buckets[bucket(line)];
        while number != NONE {
            let request = &self.all[number];
            if request.line == line {
                return Some(number);
            }
            number = request.next;
        }
        None
    }

    /// The request for a line, and whether it is new.
    #[inline]
    pub(crate) fn ask(&mut self, line: u64) -> (u32, bool) {
        if let Some(number) = self.find(line) {
            return (number, false);
        }
        let bucket = bucket(line);
        let number = self.all.take();
        let request = &mut self.all[number];
        request.line = line;
        request.next = std::mem::replace(&mut self.buckets[bucket], number);
        (number, true)
    }

    /// One more waits.
    #[inline]
    pub(crate) fn wait(&mut self, number: u32, waiter: Waiter) {
        self.all[number].waiters.push(waiter);
    }

    /// The request is over: its line, and who waited, to be given back by [`MissFile::reuse`].
    pub(crate) fn end(&mut self, number: u32) -> (u64, Vec<Waiter>) {
        let Request { line, next, .. } = self.all[number];
        let first = &mut self.buckets[bucket(line)];
        if *first == number {
            *first = next;
        } else {
            let mut before = *first;
            while self.all[before].next != number {
                before = self.all[before].next;
            }
            self.all[before].next = next;
        }
        (line, std::mem::take(&mut self.all[number].waiters))
    }

    /// The number is free, and the memory of those who waited.
    pub(crate) fn reuse(&mut self, number: u32, mut waiters: Vec<Waiter>) {
        waiters.clear();
        self.all[number].waiters = waiters;
        self.all.give_back(number);
    }
}

/// Neighbouring lines in neighbouring buckets.
fn bucket(line: u64) -> usize {
    (line ^ line >> 12) as usize % BUCKETS
}
