//! One lock of all threads, and the code they run without it.
//!
//! * Threads get the lock in the order in which they asked for it, and hold it until they ask for their next batch.
//! * What a section computes outside persistent memory is a batch of its own, without the lock.

use super::Progress;
use crate::space::Port;
use std::collections::VecDeque;

pub(super) struct Turns {
    holder: Option<usize>,
    /// Threads that wait, the first that asked first.
    queue: VecDeque<usize>,
    /// Of each thread, instructions before it asks for the lock again.
    owed: Vec<u32>,
    /// Instructions for each access of a section.
    outside: u32,
}

impl Turns {
    pub(super) fn new(threads: usize, outside: u32) -> Turns {
        Turns {
            holder: None,
            queue: VecDeque::new(),
            owed: vec![0; threads],
            outside,
        }
    }

    /// The thread runs its code outside, waits, or (`None`) has the lock for a section.
    pub(super) fn begin(&mut self, thread: usize, port: &mut Port<'_>) -> Option<Progress> {
        let Some(owed) = self.owed.get_mut(thread) else {
            return Some(Progress::Done);
        };
        if self.holder == Some(thread) {
            self.holder = None;
        }
        if *owed > 0 {
            port.work(std::mem::take(owed));
            return Some(Progress::More);
        }
        if !self.queue.contains(&thread) {
            self.queue.push_back(thread);
        }
        if self.holder.is_some() || self.queue.front() != Some(&thread) {
            return Some(Progress::Waiting);
        }
        self.queue.pop_front();
        self.holder = Some(thread);
        None
    }

    /// The section ends.
    pub(super) fn end(&mut self, thread: usize, port: &mut Port<'_>) {
        // One at least: a thread that goes on at once would be asked before those that wait.
        self.owed[thread] = (port.batched() as u32).saturating_mul(self.outside).max(1);
        port.commit();
    }
}
