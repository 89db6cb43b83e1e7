//! One lock of all threads, and the code they run without it.
//!
//! * Threads get the lock in the order in which they asked for it, and hold it until they ask for their next batch.
//! * What a section computes outside persistent memory is within it, or a batch of its own behind it, without the lock.

use super::Progress;
use crate::space::Port;
use std::collections::VecDeque;

/// Instructions outside persistent memory, for each access to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outside {
    /// While the section lasts.
    Within(u32),
    /// Behind it.
    Behind(u32),
}

pub(super) struct Turns {
    holder: Option<usize>,
    /// Threads that wait, the first that asked first.
    queue: VecDeque<usize>,
    /// Of each thread, instructions before it asks for the lock again.
    owed: Vec<u32>,
    outside: Outside,
}

impl Turns {
    pub(super) fn new(threads: usize, outside: Outside) -> Turns {
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
        if let Outside::Within(instructions) = self.outside {
            port.each(instructions);
        }
        None
    }

    /// The section ends.
    pub(super) fn end(&mut self, thread: usize, port: &mut Port<'_>) {
        let owed = match self.outside {
            Outside::Behind(instructions) => (port.batched() as u32).saturating_mul(instructions),
            Outside::Within(_) => 0,
        };
        // One at least: a thread that goes on at once would be asked before those that wait.
        self.owed[thread] = owed.max(1);
        port.commit();
    }
}
