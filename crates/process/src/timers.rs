//! When periodic timers rang that no signal was taken for yet: timer_create(2), timer_getoverrun(2).
//!
//! While the signal of a timer waits, the kernel counts further expirations (overruns) and does not show the
//! count. It follows from the instant of the expiration that the signal is for: so that is kept, from what a
//! timer has left at the stops before, from how it was set, or from how a resume set it again. All that is told
//! of one stop is for one instant of it, [`Clocks`]: looking may take long on a machine with much to do.
//!
//! * A stop may come between the look at a call that sets a timer and the call itself: what it asks for is
//!   remembered until the timer runs.

use crate::clocks::{Clock, Clocks};
use crate::kernel::{PosixTimer, Running, Setting};
use crate::threads::Pending;
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
    /// Of a program that was resumed a moment ago, from a checkpoint with these timers. Those of the monotonic
    /// clock ring at the instants they had: see [`first_after_resume`].
    #[must_use]
    pub fn resumed(timers: &[PosixTimer], running: &Running, stopped: Clocks) -> Dues {
        let mut dues = Dues::default();
        for (timer, setting) in timers.iter().zip(&running.timers) {
            match first_after_resume(timer, *setting, running, stopped) {
                Some(due) => drop(dues.known.insert(timer.id, due)),
                None => dues.set(timer.id, left_ns(*setting), false),
            }
        }
        dues
    }

    /// The timer is about to be set.
    pub fn set(&mut self, id: i32, first_ns: u64, absolute: bool) {
        self.known.remove(&id);
        let called_ns = Clocks::now().monotonic_ns;
        let set = Set {
            called_ns,
            first_ns,
            absolute,
        };
        self.set.insert(id, set);
    }

    /// The periodic timers whose signal waits, and the expiration it is for. `left` is what each of `timers`
    /// had left at the stop, in the same order.
    pub fn waiting(
        &mut self,
        timers: &[PosixTimer],
        left: &[Setting],
        pending: &[Pending],
        stopped: Clocks,
    ) -> Vec<(i32, u64)> {
        let mut set = std::mem::take(&mut self.set);
        let mut waiting = Vec::new();
        let mut known = HashMap::new();
        for (timer, setting) in timers.iter().zip(left) {
            let every = setting[0] * SECOND_NS + setting[1];
            let (Some(now), true) = (stopped.at(timer.clock), every > 0) else {
                // The call that sets it may be still to come.
                if let Some(asked) = set.remove(&timer.id) {
                    self.set(timer.id, asked.first_ns, asked.absolute);
                }
                continue;
            };
            let next = now + left_ns(*setting);
            let is_waiting = pending
                .iter()
                .any(|pending| pending.info.timer() == Some(timer.id));
            if !is_waiting {
                known.insert(timer.id, next);
                continue;
            }
            // An expiration that is known stays as it is: read again at each stop, it would drift.
            let due = self.known.get(&timer.id).copied().unwrap_or_else(|| {
                let first = set.get(&timer.id).map(|set| first_of(*set, now, stopped));
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

fn first_of(set: Set, now_of_clock: u64, stopped: Clocks) -> u64 {
    if set.absolute {
        return set.first_ns;
    }
    let since = stopped.monotonic_ns.saturating_sub(set.called_ns);
    now_of_clock.saturating_sub(since) + set.first_ns
}

/// When a timer of a program that is resumed rings first, in nanoseconds of its clock; a periodic timer whose
/// signal waits, when it rang for that. `None`: as long after the resume as it had left, or never.
#[must_use]
pub fn first_after_resume(
    timer: &PosixTimer,
    setting: Setting,
    running: &Running,
    stopped: Clocks,
) -> Option<u64> {
    if let Some((_, due)) = running.waiting.iter().find(|(id, _)| *id == timer.id) {
        return Some(*due);
    }
    // The program's monotonic clock goes on from the stop while it is restored.
    let left_ns = left_ns(setting);
    (timer.clock == Clock::Monotonic && left_ns > 0).then(|| stopped.monotonic_ns + left_ns)
}

fn left_ns(setting: Setting) -> u64 {
    setting[2] * SECOND_NS + setting[3]
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinpage_os::siginfo::SignalInfo;

    fn timer() -> PosixTimer {
        PosixTimer {
            id: 3,
            clock: Clock::Monotonic,
            signal: 34,
            value: 0,
            notify: 0,
            thread: 0,
        }
    }

    fn signal() -> Pending {
        let info = SignalInfo::of_timer(34, 3);
        Pending { tid: 0, info }
    }

    #[test]
    fn expirations_are_counted_from_the_one_that_the_signal_is_for() {
        const EVERY: u64 = SECOND_NS / 100;
        let left = [[0, EVERY, 0, EVERY / 2]];
        let mut dues = Dues::default();
        let stopped = Clocks::now();
        let next = stopped.monotonic_ns + EVERY / 2;
        assert!(dues.waiting(&[timer()], &left, &[], stopped).is_empty());
        // Five periods before the next one, as a stop then would have seen it.
        dues.known.insert(3, next - 5 * EVERY);
        let periods = |dues: &mut Dues| {
            let found = dues.waiting(&[timer()], &left, &[signal()], stopped)[0];
            assert_eq!(found.0, 3);
            (next - found.1 + EVERY / 4) / EVERY
        };
        for _ in 0..3 {
            assert_eq!(periods(&mut dues), 5);
        }
        // And without a stop before: from how it was set.
        dues.set(3, next - 7 * EVERY, true);
        assert_eq!(periods(&mut dues), 7);
        // The call that sets it is cut by a stop, at which the timer does not run.
        dues.set(3, next - 8 * EVERY, true);
        assert!(dues.waiting(&[timer()], &[[0; 4]], &[], stopped).is_empty());
        assert_eq!(periods(&mut dues), 8);
        // A resume set it again, however long that took, and it rang since.
        let mut running = Running {
            timers: vec![[0, EVERY, 0, EVERY / 2]],
            ..Running::default()
        };
        let before = Clocks {
            monotonic_ns: stopped.monotonic_ns - 6 * EVERY,
            ..stopped
        };
        assert_eq!(periods(&mut Dues::resumed(&[timer()], &running, before)), 6);
        running.waiting = vec![(3, next - 9 * EVERY)];
        assert_eq!(periods(&mut Dues::resumed(&[timer()], &running, before)), 9);
    }

    /// Of each clock that runs by itself.
    #[test]
    fn a_signal_that_waits_is_found_whatever_the_clock() {
        const EVERY: u64 = SECOND_NS / 100;
        for number in [
            libc::CLOCK_REALTIME,
            libc::CLOCK_BOOTTIME,
            libc::CLOCK_REALTIME_ALARM,
            libc::CLOCK_BOOTTIME_ALARM,
            libc::CLOCK_TAI,
        ] {
            let timer = PosixTimer {
                clock: number.into(),
                ..timer()
            };
            let stopped = Clocks::now();
            let mut dues = Dues::default();
            let waiting = dues.waiting(&[timer], &[[0, EVERY, 0, EVERY]], &[signal()], stopped);
            assert_eq!(waiting.len(), 1, "clock {number}");
        }
    }
}
