//! Calls of different lanes, run beside one another.
//!
//! ```text
//! calls, in the order of the log:   add(3)  add(0)  add(5)  add(3)  add(8)     of two threads:
//!                           even            add(0)                  add(8)     the one with the turn
//!                           odd     add(3)          add(5)  add(3)             one of the pool
//! ```
//!
//! * A lane is an element of a field. All calls of one are run by one thread, in their order; what calls of different
//!   lanes write is in different elements, so their order among one another changes nothing in the object.
//! * All of it is one update: the other threads go in beside the one with the turn, so no checkpoint has a call and lacks
//!   one before it.
//! * Lanes that take memory take it from different parts of the heap, as the threads of a region do: after a replay the
//!   object has the same value, and its blocks may have other addresses.
//! * Handing calls over takes some microseconds: what takes less is run by the one thread.

use super::function::{Arguments, Function, Outcome, Undecodable};
use super::run::{Outcomes, in_order};
use crate::address::Place;
use crate::collections;
use crate::error::Error;
use crate::lock::lock;
use crate::marks::mark_value;
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use twinpage_core::operation_log::Logged;

/// The most threads that run lanes, if not said otherwise.
const MOST_THREADS: usize = 8;
/// The time that calls must take for other threads to be worth waking.
const WORTH: Duration = Duration::from_micros(200);
/// The time that lanes may run in one update: a checkpoint waits so long.
const LONGEST: Duration = Duration::from_millis(2);

/// The threads that run lanes: the one with the turn, and those of a pool.
pub(super) struct LaneThreads {
    count: usize,
    /// None where the system has no more threads: then the one with the turn runs all.
    pool: OnceLock<Option<AssertUnwindSafe<rayon::ThreadPool>>>,
}

impl LaneThreads {
    pub(super) fn new(asked: Option<usize>) -> LaneThreads {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        LaneThreads {
            count: asked.unwrap_or_else(|| processors().min(MOST_THREADS)).max(1),
            pool: OnceLock::new(),
        }
    }

    /// How many threads there are, if calls that take so long are worth being shared out.
    pub(super) fn worth(&self, pace: Pace, calls: usize) -> Option<usize> {
        let is_worth = self.count > 1 && calls > 1 && pace.of(calls) >= WORTH;
        (is_worth && self.pool().is_some()).then_some(self.count)
    }

    fn pool(&self) -> Option<&rayon::ThreadPool> {
        let made = self.pool.get_or_init(|| {
            let threads = rayon::ThreadPoolBuilder::new().num_threads(self.count - 1);
            threads
                .thread_name(|number| format!("twinpage-lane-{number}"))
                .build()
                .map(AssertUnwindSafe) // a panic in a call is caught where it runs
                .ok()
        });
        made.as_deref()
    }
}

/// How long the calls of an object took last.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Pace {
    ns_per_call: u64,
}

impl Pace {
    /// Notes how long a number of calls took on a number of threads.
    pub(super) fn note(&mut self, calls: usize, took: Duration, threads: usize) {
        if let Some(now) = (took.as_nanos() as u64 * threads as u64).checked_div(calls as u64) {
            self.ns_per_call = match self.ns_per_call {
                0 => now,
                before => (before + now) / 2,
            };
        }
    }

    /// The time that that many calls will take on one thread.
    pub(super) fn of(self, calls: usize) -> Duration {
        Duration::from_nanos(self.ns_per_call.saturating_mul(calls as u64))
    }

    /// How many calls that many threads run in one update.
    pub(super) fn most(self, threads: usize) -> usize {
        let within = LONGEST.as_nanos() as u64 / self.ns_per_call.max(1);
        (within as usize).max(4) * threads
    }
}

/// What a field must be for its elements to be lanes.
///
/// # Safety
/// The elements lie one after the other from the pointer on, and are the field's alone.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "the elements of `{Self}` cannot be lanes",
    label = "not a field of lanes",
    note = "lanes are the elements of a `twinpage::collections::Vec` or of an array: others cannot be changed by several \
            threads at once",
    note = "take `&mut self` instead of a lane"
)]
pub unsafe trait Lanes {
    /// An element.
    type Part;
    /// The first element, and how many there are. None is marked as written.
    fn elements(&mut self) -> (NonNull<Self::Part>, usize);
}

// SAFETY: a vector's values are a slice, which it owns.
unsafe impl<T> Lanes for collections::Vec<'_, T> {
    type Part = T;
    fn elements(&mut self) -> (NonNull<T>, usize) {
        let all = self.as_slice();
        // Through its address: what is written later is not written through this slice, which is borrowed to be read.
        let at = std::ptr::with_exposed_provenance_mut(all.as_ptr().expose_provenance());
        (NonNull::new(at).unwrap_or(NonNull::dangling()), all.len())
    }
}

// SAFETY: an array's values are a slice, and part of it.
unsafe impl<T, const LEN: usize> Lanes for [T; LEN] {
    type Part = T;
    fn elements(&mut self) -> (NonNull<T>, usize) {
        let all = NonNull::from(self.as_mut_slice());
        (all.cast(), LEN)
    }
}

/// The elements of a field, to be handed out to the threads that run calls of their lanes.
#[doc(hidden)]
pub struct Parts<'a, T> {
    at: NonNull<T>,
    length: usize,
    of: PhantomData<&'a mut [T]>,
}

// SAFETY: an element is handed out to one thread at a time, by `part`; it may go to others.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T: Send> Parts<'a, T> {
    /// Those of a field.
    pub fn of(field: &'a mut impl Lanes<Part = T>) -> Parts<'a, T> {
        let ((at, length), of) = (field.elements(), PhantomData);
        Parts { at, length, of }
    }

    /// The element of a lane, marked as written.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn part<'b>(&'b self, lane: &'b mut Lane) -> &'b mut T {
        let (index, length) = (lane.number, self.length);
        let index = usize::try_from(index).ok().filter(|&index| index < length);
        let Some(index) = index else {
            panic!(
                "index out of bounds: the len is {length} but the index is {}",
                lane.number
            );
        };
        let at = self.at.as_ptr().wrapping_add(index);
        mark_value(at);
        // SAFETY: there are that many elements, borrowed for as long as this is. The lane is borrowed with the element, and
        // there is no second one of its number (`LaneRun::run`).
        unsafe { &mut *at }
    }
}

/// The right to the elements of a number, while a call of that lane runs.
#[doc(hidden)]
#[derive(Debug)]
pub struct Lane {
    number: u64,
}

/// Calls of lanes, to be run by several threads.
#[doc(hidden)]
pub struct LaneRun<'a> {
    pub(super) calls: &'a [Logged<'a>],
    pub(super) threads: &'a LaneThreads,
    pub(super) count: usize,
    /// Where the thread is in an update.
    pub(super) place: Place,
    pub(super) panicked: &'a (dyn Fn(u16, &(dyn Any + Send)) -> Error + Sync),
    /// The object's name and functions.
    pub(super) object: (&'a str, &'static [Function]),
    pub(super) outcomes: &'a mut Outcomes,
}

impl fmt::Debug for LaneRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} calls on {} threads", self.calls.len(), self.count)
    }
}

impl LaneRun<'_> {
    /// Runs them. Those of a lane are run by one thread.
    pub fn run<F>(self, apply: F)
    where
        F: Fn(usize, &Arguments<'_>, &mut Lane) -> Result<Outcome, Undecodable> + Sync,
    {
        let LaneRun {
            calls,
            threads,
            count,
            place,
            panicked,
            object: (name, functions),
            outcomes,
        } = self;
        let all = Mutex::new(std::mem::take(outcomes));
        let share = |which: usize| {
            let of_share = |call: &&Logged<'_>| call.lane.unwrap_or(0) % count as u64 == which as u64;
            let (own, places): (Vec<_>, Vec<_>) = (calls.iter().zip(0..))
                .filter(|(call, _)| of_share(call))
                .map(|(call, place)| (*call, place))
                .unzip();
            let run = |call: &Logged<'_>| {
                let number = call.lane.unwrap_or(0);
                let arguments = Arguments::of(call);
                apply(call.function.into(), &arguments, &mut Lane { number })
            };
            let mut own_outcomes = Outcomes::default();
            let mut at = 0;
            while at < own.len() {
                let ran = in_order(&own[at..], || false, run, panicked);
                let from = ran
                    .outcomes
                    .into_iter()
                    .map(|(index, outcome)| (places[at + index], outcome));
                own_outcomes.extend(from);
                at += ran.calls;
                if let Some(undecodable) = ran.undecodable {
                    let signature = functions[usize::from(own[at].function)].signature;
                    own_outcomes.push((places[at], Err(undecodable.error(name, signature))));
                    at += 1;
                }
            }
            lock(&all).append(&mut own_outcomes);
        };
        let share = &share;
        let pool = threads
            .pool()
            .expect("it was there when the calls were shared out");
        pool.in_place_scope(|scope| {
            for which in 1..count {
                scope.spawn(move |_| {
                    // The thread with the turn is inside until all are done.
                    let _inside = place.enter_beside();
                    share(which);
                });
            }
            share(0);
        });
        *outcomes = all.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcomes.sort_by_key(|(place, _)| *place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::Heap;
    use crate::window::Window;

    /// Elements of one vector in the hands of several threads, each of which grows what its own owns.
    #[test]
    fn parts_are_changed_by_several_threads() {
        let window = Window::volatile().unwrap();
        // SAFETY: nothing of a region or of another heap is in sight.
        let heap = unsafe { Heap::create(&window, 7) }.unwrap();
        let mut rows = collections::Vec::new_in(heap);
        rows.extend((0..6).map(|row: u64| collections::Vec::from_iter_in([row], heap)));
        let mut sums = [0_u64; 6];
        {
            let (rows, sums) = (Parts::of(&mut rows), Parts::of(&mut sums));
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    let (rows, sums) = (&rows, &sums);
                    scope.spawn(move || {
                        for number in [thread, thread + 3, thread] {
                            let mut lane = Lane { number };
                            rows.part(&mut lane).push(number);
                            *sums.part(&mut lane) += 1;
                        }
                    });
                }
            });
        }
        let lengths: std::vec::Vec<_> = rows.iter().map(|row| row.len()).collect();
        assert_eq!(
            (&lengths[..], sums),
            (&[3, 3, 3, 2, 2, 2][..], [2, 2, 2, 1, 1, 1])
        );
    }
}
