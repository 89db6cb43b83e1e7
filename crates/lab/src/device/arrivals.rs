//! Requests that have not come yet, by when they come; of one time, the first asked for first.
//!
//! Most are asked for nearly in the order in which they come, and lie in that order. The others lie in a heap.

use super::request::Request;
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

/// A request that comes before this many others goes to the heap.
const NEAR: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Arrival {
    request: Request,
    /// Which of all that were asked for.
    number: u64,
}

/// The requests.
#[derive(Clone, Debug, Default)]
pub(super) struct ArrivalQueue {
    near: VecDeque<Arrival>,
    /// None comes before the first that is near, and none is here when none is near.
    far: BinaryHeap<Reverse<Arrival>>,
    count: u64,
}

impl ArrivalQueue {
    /// Whether there is none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.near.is_empty()
    }

    /// How many there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.near.len() + self.far.len()
    }

    /// All, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Request> {
        let far = self.far.iter().map(|Reverse(asked)| asked);
        self.near.iter().chain(far).map(|asked| &asked.request)
    }

    /// When the next comes; `u64::MAX` if there is none.
    #[inline]
    pub(super) fn first(&self) -> u64 {
        self.near.front().map_or(u64::MAX, |asked| asked.request.arrival)
    }

    /// When the one after it comes.
    #[inline]
    pub(super) fn second(&self) -> u64 {
        let near = self.near.get(1).map_or(u64::MAX, |asked| asked.request.arrival);
        match self.far.peek() {
            None => near,
            Some(Reverse(asked)) => near.min(asked.request.arrival),
        }
    }

    /// One more.
    #[inline]
    pub(super) fn push(&mut self, request: Request) {
        let number = self.count;
        self.count += 1;
        let asked = Arrival { request, number };
        let is_later = |before: &Arrival| before.request.arrival > request.arrival;
        if !self.near.back().is_some_and(is_later) {
            self.near.push_back(asked);
            return;
        }
        let later = self.near.iter().rev().take_while(|before| is_later(before));
        let later = later.take(NEAR).count();
        if later == self.near.len() {
            self.near.push_front(asked);
        } else if later < NEAR {
            self.near.insert(self.near.len() - later, asked);
        } else if self.near.front().is_some_and(is_later) {
            self.near.push_front(asked);
        } else {
            self.far.push(Reverse(asked));
        }
    }

    /// The next, if it is so.
    #[inline]
    pub(super) fn pop_if(&mut self, so: impl FnOnce(&Request) -> bool) -> Option<Request> {
        let asked = self.near.pop_front_if(|asked| so(&asked.request))?;
        if let Some(Reverse(far)) = self.far.peek()
            && self.near.front().is_none_or(|near| far < near)
        {
            let first = *far;
            self.far.pop();
            self.near.push_front(first);
        }
        Some(asked.request)
    }
}

impl Ord for Arrival {
    fn cmp(&self, other: &Arrival) -> Ordering {
        let key = |asked: &Arrival| (asked.request.arrival, asked.number);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Arrival {
    fn partial_cmp(&self, other: &Arrival) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Arrival {
    fn eq(&self, other: &Arrival) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Arrival {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::request::{Class, Kind, NO_SWEEP};

    #[test]
    fn they_come_in_order_of_time_then_of_asking() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut coming = ArrivalQueue::default();
        let (mut expected, mut id) = (Vec::<(u64, u64)>::new(), 0);
        for _ in 0..10_000 {
            if random.u32(..100) < 51 {
                let arrival = random.u64(..40);
                coming.push(Request {
                    id,
                    kind: Kind::Read,
                    class: Class::Demand,
                    bank: 0,
                    lines: 1,
                    row: 0,
                    arrival,
                    sweep: NO_SWEEP,
                });
                expected.push((arrival, id));
                id += 1;
            } else {
                expected.sort_unstable();
                let next = (!expected.is_empty()).then(|| expected.remove(0));
                let found = coming.pop_if(|_| true);
                assert_eq!(
                    found.map(|request| (request.arrival, request.id)),
                    next,
                    "seed {seed}"
                );
            }
            expected.sort_unstable();
            let at = |place: usize| expected.get(place).map_or(u64::MAX, |one| one.0);
            assert_eq!(
                (coming.len(), coming.first(), coming.second(), coming.is_empty()),
                (expected.len(), at(0), at(1), expected.is_empty()),
                "seed {seed}"
            );
            assert_eq!(coming.iter().count(), expected.len());
        }
    }
}
