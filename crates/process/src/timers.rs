//! When periodic timers rang that no signal was taken for yet: timer_create(2), timer_getoverrun(2).
//!
//! While the signal of a timer waits, the kernel counts further expirations (overruns) and shows the count to
//! nobody. It follows from the instant of the expiration that the signal is for: so that is kept, from what a
//! timer has left at the stops before, from how it was set, or from how a resume set it again.
//!
//! * A stop may come between the look at a call that sets a timer and the call itself: what it asks for is
//!   remembered until the timer runs.

use crate::kernel::{PosixTimer, Running, Setting};
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
#[derive(Clone, Debug, Default)]
pub struct Dues {
    known: HashMap<i32, u64>,
    set: HashMap<i32, Set>,
}

impl Dues {
    /// Of a program that was resumed a moment ago, from a checkpoint with these timers.
    #[must_use]
    pub fn resumed(timers: &[PosixTimer], running: &Running) -> Dues {
        let mut dues = Dues::default();
        for (timer, setting) in timers.iter().zip(&running.timers) {
            dues.set(timer.id, setting[2] * SECOND_NS + setting[3], false);
            // It was set somewhat earlier; as expirations are whole periods apart, less than a period does not matter.
            if let Some(set) = dues.set.get_mut(&timer.id) {
                set.called_ns = set
                    .called_ns
                    .saturating_sub((setting[0] * SECOND_NS + setting[1]) / 2);
            }
        }
        for (id, due) in &running.waiting {
            dues.set.remove(id);
            dues.known.insert(*id, *due);
        }
        dues
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
        let mut set = std::mem::take(&mut self.set);
        let mut waiting = Vec::new();
        let mut known = HashMap::new();
        for (timer, setting) in timers.iter().zip(left) {
            let every = setting[0] * SECOND_NS + setting[1];
            let (Some(now), true) = (now(timer.clock), every > 0) else {
                // The call that sets it may be still to come.
                if let Some(asked) = set.remove(&timer.id) {
                    self.set(timer.id, asked.first_ns, asked.absolute);
                }
                continue;
            };
            let next = now + setting[2] * SECOND_NS + setting[3];
            let is_waiting = pending.iter().any(|pending| timer_of(pending) == Some(timer.id));
            if !is_waiting {
                known.insert(timer.id, next);
                continue;
            }
            // An expiration that is known stays as it is: read again at each stop, it would drift.
            let due = self.known.get(&timer.id).copied().unwrap_or_else(|| {
                let first = set.get(&timer.id).map(|set| first_of(*set, now));
                let about = first.unwrap_or(next - every);
                // The expirations are whole periods apart.
                let periods = ((next.saturating_sub(about) + every / 2) / every).max(1);
                next.saturating_sub(periods * every).max(1)
            });
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
        let periods = |dues: &mut Dues| {
            let found = dues.waiting(&[timer()], &left, &[signal()])[0];
            (next(dues) - found.1 + EVERY / 4) / EVERY
        };
        dues.set(3, next(&dues) - 7 * EVERY, true);
        assert_eq!(periods(&mut dues), 7);
        // The call that sets it is cut by a stop, at which the timer does not run.
        dues.set(3, next(&dues) - 8 * EVERY, true);
        assert!(dues.waiting(&[timer()], &[[0; 4]], &[]).is_empty());
        assert_eq!(periods(&mut dues), 8);
        // A resume set it again, and it rang since.
        let mut running = Running {
            timers: vec![[0, EVERY, 0, EVERY / 2]],
            ..Running::default()
        };
        let mut dues = Dues::resumed(&[timer()], &running);
        let at_once = std::time::Instant::now();
        while at_once.elapsed().as_nanos() < u128::from(3 * EVERY) {}
        let found = periods(&mut dues);
        assert!(found >= 3, "{found} periods");
        running.waiting = vec![(3, next(&dues) - 9 * EVERY)];
        assert_eq!(periods(&mut Dues::resumed(&[timer()], &running)), 9);
    }
}
