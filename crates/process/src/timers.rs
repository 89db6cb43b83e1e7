//! When periodic timers rang that no signal was taken for yet: timer_create(2), timer_getoverrun(2).
//!
//! While the signal of a timer waits, the kernel counts further expirations (overruns) and shows the count to
//! nobody. It follows from the instant of the expiration that the signal is for: so that is kept, from what a
//! timer has left at the stops before, or from how it was set.

use crate::kernel::{PosixTimer, Setting};
use crate::threads::Pending;
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;

const SECOND_NS: u64 = 1_000_000_000;

/// A call that sets a timer was about to run.
#[derive(Clone, Copy, Debug)]
struct Set {
    /// `CLOCK_MONOTONIC` then.
    called_ns: u64,
    /// The first expiration: an instant of the timer's clock, or from then on.
    first_ns: u64,
    absolute: bool,
}

/// The next expirations of the program's timers, in nanoseconds of their clocks, by id.
#[derive(Debug, Default)]
pub struct Dues {
    known: HashMap<i32, u64>,
    set: HashMap<i32, Set>,
}

impl Dues {
    /// Of a program that was resumed: the timers whose signals wait.
    #[must_use]
    pub fn new(waiting: &[(i32, u64)]) -> Dues {
        Dues {
            known: waiting.iter().copied().collect(),
            set: HashMap::new(),
        }
    }

    /// The timer is about to be set.
    pub fn set(&mut self, id: i32, first_ns: u64, absolute: bool) {
        self.known.remove(&id);
        let called_ns = now(libc::CLOCK_MONOTONIC).unwrap_or(0);
        let set = Set {
            called_ns,
            first_ns,
            absolute,
        };
        self.set.insert(id, set);
    }

    /// The periodic timers whose signal waits, and the expiration it is for. `left` is what each of `timers`
    /// has left, in the same order.
    pub fn waiting(
        &mut self,
        timers: &[PosixTimer],
        left: &[Setting],
        pending: &[Pending],
    ) -> Vec<(i32, u64)> {
        let set = std::mem::take(&mut self.set);
        let mut waiting = Vec::new();
        let mut known = HashMap::new();
        for (timer, setting) in timers.iter().zip(left) {
            let every = setting[0] * SECOND_NS + setting[1];
            let (Some(now), true) = (now(timer.clock), every > 0) else {
                continue;
            };
            let next = now + setting[2] * SECOND_NS + setting[3];
            let is_waiting = pending.iter().any(|pending| timer_of(pending) == Some(timer.id));
            if !is_waiting {
                known.insert(timer.id, next);
                continue;
            }
            let first = set.get(&timer.id).map(|set| first_of(*set, now));
            let about = self
                .known
                .get(&timer.id)
                .copied()
                .or(first)
                .unwrap_or(next - every);
            // The expirations are whole periods apart.
            let periods = ((next.saturating_sub(about) + every / 2) / every).max(1);
            let due = next.saturating_sub(periods * every).max(1);
            known.insert(timer.id, due);
            waiting.push((timer.id, due));
        }
        self.known = known;
        waiting
    }
}

fn first_of(set: Set, now_of_clock: u64) -> u64 {
    if set.absolute {
        return set.first_ns;
    }
    let since = now(libc::CLOCK_MONOTONIC)
        .unwrap_or(0)
        .saturating_sub(set.called_ns);
    now_of_clock.saturating_sub(since) + set.first_ns
}

/// The timer that a waiting signal comes from.
#[must_use]
pub fn timer_of(pending: &Pending) -> Option<i32> {
    let word = |at: usize| i32::from_le_bytes(pending.info[at..at + 4].try_into().expect("four bytes"));
    (word(8) == libc::SI_TIMER).then(|| word(16))
}

/// The clock now, where it is one that runs by itself.
fn now(clock: i32) -> Option<u64> {
    let clock = match clock {
        libc::CLOCK_REALTIME => ClockId::Realtime,
        libc::CLOCK_MONOTONIC => ClockId::Monotonic,
        libc::CLOCK_BOOTTIME => ClockId::Boottime,
        _ => return None,
    };
    let time = clock_gettime(clock);
    Some(time.tv_sec as u64 * SECOND_NS + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timer() -> PosixTimer {
        PosixTimer {
            id: 3,
            clock: libc::CLOCK_MONOTONIC,
            signal: 34,
            value: 0,
            notify: 0,
            thread: 0,
        }
    }

    fn signal() -> Pending {
        let mut info = vec![0; 128];
        info[..4].copy_from_slice(&34i32.to_le_bytes());
        info[8..12].copy_from_slice(&libc::SI_TIMER.to_le_bytes());
        info[16..20].copy_from_slice(&3i32.to_le_bytes());
        Pending { tid: 0, info }
    }

    #[test]
    fn expirations_are_counted_from_the_one_that_the_signal_is_for() {
        const EVERY: u64 = SECOND_NS / 100;
        let left = [[0, EVERY, 0, EVERY / 2]];
        let mut dues = Dues::default();
        let next = |_: &Dues| now(libc::CLOCK_MONOTONIC).unwrap() + EVERY / 2;
        assert!(dues.waiting(&[timer()], &left, &[]).is_empty());
        // Five periods before the next one, as a stop then would have seen it.
        let first = next(&dues) - 5 * EVERY;
        dues.known.insert(3, first);
        for _ in 0..3 {
            let found = dues.waiting(&[timer()], &left, &[signal()])[0];
            let periods = (next(&dues) - found.1 + EVERY / 4) / EVERY;
            assert_eq!((found.0, periods), (3, 5));
        }
        // And without a stop before: from how it was set.
        dues.set(3, next(&dues) - 7 * EVERY, true);
        let found = dues.waiting(&[timer()], &left, &[signal()])[0];
        assert_eq!((next(&dues) - found.1 + EVERY / 4) / EVERY, 7);
    }
}
