//! The lines a core writes back: those under way, and those that wait for their turn.

use std::collections::VecDeque;

/// Of one core.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    /// Those that overlap and end at a known time: the line was clean.
    ends: Vec<u64>,
    /// Those that overlap and wait for the memory.
    open: usize,
    /// Those in order that have not begun: the line, and when its turn could come.
    queue: VecDeque<(u64, u64)>,
    /// One in order waits for the memory.
    is_in_order_open: bool,
    /// When the last in order that is done, was.
    in_order_end: u64,
}

/// Whether something has room, or is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum When {
    /// From this time on.
    At(u64),
    /// When the memory says so.
    Unknown,
}

impl Flushes {
    /// When there is room for one more that overlaps, of `limit` at a time, `taken` of which are taken by misses.
    pub(super) fn room(&mut self, now: u64, limit: usize, taken: usize) -> When {
        self.ends.retain(|end| *end > now);
        if self.ends.len() + self.open + taken < limit {
            return When::At(now);
        }
        self.ends.iter().min().map_or(When::Unknown, |end| When::At(*end))
    }

    /// Whether there is room for one more in order, of `limit`.
    pub(super) fn has_room_in_order(&self, limit: usize) -> bool {
        self.queue.len() + usize::from(self.is_in_order_open) < limit
    }

    /// One that overlaps ends at a time.
    pub(super) fn ends(&mut self, at: u64) {
        self.ends.push(at);
    }

    /// One that overlaps waits for the memory.
    pub(super) fn opens(&mut self) {
        self.open += 1;
    }

    /// It is done.
    pub(super) fn closes(&mut self) {
        self.open -= 1;
    }

    /// One more in order.
    pub(super) fn queue(&mut self, line: u64, at: u64) {
        self.queue.push_back((line, at));
    }

    /// The next in order and when it begins, if it is its turn.
    pub(super) fn next_in_order(&mut self) -> Option<(u64, u64)> {
        if self.is_in_order_open {
            return None;
        }
        let (line, at) = self.queue.pop_front()?;
        Some((line, at.max(self.in_order_end)))
    }

    /// The one in order under way ends at a time.
    pub(super) fn in_order_ends(&mut self, at: u64) {
        self.is_in_order_open = false;
        self.in_order_end = at;
    }

    /// It waits for the memory.
    pub(super) fn in_order_opens(&mut self) {
        self.is_in_order_open = true;
    }

    /// When all are done.
    pub(super) fn all_done(&self) -> When {
        if self.open > 0 || self.is_in_order_open {
            return When::Unknown;
        }
        When::At(self.ends.iter().copied().fold(self.in_order_end, u64::max))
    }
}
