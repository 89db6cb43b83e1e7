//! Asynchronous accesses to NVM: in order, up to a number at a time, with barriers between.
//!
//! A barrier holds back what follows it until all before it is durable; nothing stalls for it.

use super::nvm::{Action, Entry};
use std::collections::VecDeque;

/// One access that waits its turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// What the scheme did.
    pub(super) entry: Entry,
    /// Not before this time, in femtoseconds.
    pub(super) not_before: u64,
    /// Lines to be read from this frame of DRAM for it.
    pub(super) source: Option<(u32, u32)>,
}

/// The stream.
#[derive(Debug)]
pub(super) struct Stream {
    items: VecDeque<Item>,
    /// Accesses in flight, in order, and whether each is done; the first is not.
    issued: VecDeque<bool>,
    /// The number of the first of them.
    first: u64,
    in_flight: usize,
    window: usize,
    /// Where the last barrier ends.
    barrier: u64,
    /// Lines to write that are in it or in flight.
    pub(super) lines: u64,
}

impl Stream {
    /// With at most `window` accesses in flight.
    pub(super) fn new(window: usize) -> Stream {
        Stream {
            items: VecDeque::new(),
            issued: VecDeque::new(),
            first: 0,
            in_flight: 0,
            window,
            barrier: 0,
            lines: 0,
        }
    }

    /// Where the stream ends now, for [`Stream::is_past`].
    pub(super) fn end(&self) -> u64 {
        self.first + (self.issued.len() + self.items.len()) as u64
    }

    /// Whether everything before `mark` is done.
    pub(super) fn is_past(&self, mark: u64) -> bool {
        self.first >= mark
    }

    /// Where the last barrier ends: what comes after it must wait till the stream is past this.
    pub(super) fn barrier(&self) -> u64 {
        self.barrier
    }

    /// Appends an access or a barrier.
    pub(super) fn push(&mut self, item: Item) {
        if item.entry.action == Action::Fence {
            self.barrier = self.end() + 1;
        }
        if matches!(item.entry.action, Action::Write(_)) {
            self.lines += item.entry.lines;
        }
        self.items.push_back(item);
    }

    /// The next access that may go now, and its number.
    pub(super) fn next(&mut self) -> Option<(u64, Item)> {
        loop {
            let item = self.items.front()?;
            let barrier = item.entry.action == Action::Fence;
            if self.in_flight >= if barrier { 1 } else { self.window } {
                return None;
            }
            let number = self.first + self.issued.len() as u64;
            let item = self.items.pop_front()?;
            self.issued.push_back(barrier);
            if !barrier {
                self.in_flight += 1;
                return Some((number, item));
            }
            self.forget_issued();
        }
    }

    /// An access is done.
    pub(super) fn done(&mut self, number: u64, entry: &Entry) {
        self.in_flight -= 1;
        if matches!(entry.action, Action::Write(_)) {
            self.lines -= entry.lines;
        }
        self.issued[(number - self.first) as usize] = true;
        self.forget_issued();
    }

    fn forget_issued(&mut self) {
        while self.issued.front() == Some(&true) {
            self.issued.pop_front();
            self.first += 1;
        }
    }
}
