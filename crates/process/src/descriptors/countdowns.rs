//! What timer descriptors count down, and how they are made again: timerfd_create(2).

use super::{Held, fdinfo, not_understood};
use crate::clocks::{Clock, Clocks};
use crate::error::{Error, Result};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_gettime,
    timerfd_settime,
};
use std::os::fd::OwnedFd;
use twinpage_os::proc_file::field;
use twinpage_os::remote::{Process, set_timer_ticks};

/// How often a timer is asked, or set, that rings meanwhile.
const MOST: usize = 20;

/// Of one timer, at a stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Countdown {
    /// Nanoseconds until the next expiration; 0 when it is not set.
    left_ns: u64,
    /// Nanoseconds between expirations; 0 when there is one only.
    every_ns: u64,
    /// Expirations not read yet.
    ticks: u64,
    /// It ends when the wall clock is set.
    until_set: bool,
}

impl Countdown {
    /// That of a timer's descriptor.
    #[must_use]
    pub fn of(held: &Held) -> Option<Countdown> {
        let (until_set, (left_ns, every_ns, ticks)) = match *held {
            Held::Countdown {
                left_ns,
                every_ns,
                ticks,
            } => (false, (left_ns, every_ns, ticks)),
            Held::CountdownUntilSet {
                left_ns,
                every_ns,
                ticks,
            } => (true, (left_ns, every_ns, ticks)),
            _ => return None,
        };
        Some(Countdown {
            left_ns,
            every_ns,
            ticks,
            until_set,
        })
    }

    /// Whether it did not ring since it was read.
    #[must_use]
    pub fn has_no_ticks(&self) -> bool {
        self.ticks == 0
    }

    fn held(self) -> Held {
        let Countdown {
            left_ns,
            every_ns,
            ticks,
            until_set,
        } = self;
        if until_set {
            Held::CountdownUntilSet {
                left_ns,
                every_ns,
                ticks,
            }
        } else {
            Held::Countdown {
                left_ns,
                every_ns,
                ticks,
            }
        }
    }

    /// A timer that goes on with it. The program's monotonic clock went on since the stop, at `stopped_ns`: what rang
    /// since is counted here, because the kernel's own count is replaced.
    ///
    /// # Errors
    /// When there is no such timer here, or one that wakes the machine is not allowed.
    pub fn make(self, clock: Clock, stopped_ns: u64) -> Result<OwnedFd> {
        let cannot = |error: Errno| {
            match error {
            Errno::PERM => Error::Machine(
                "a timer of the program wakes a machine that sleeps (CLOCK_REALTIME_ALARM, CLOCK_BOOTTIME_ALARM): resume it as root, or with CAP_WAKE_ALARM".into(),
            ),
            error => Error::target("cannot make a timer again", error.into()),
        }
        };
        let id = clock
            .of_descriptor()
            .ok_or_else(|| Error::Damaged(format!("context: a timer's descriptor goes by {clock:?}")))?;
        let timer = timerfd_create(id, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC).map_err(cannot)?;
        for _ in 0..MOST {
            let (flags, value_ns, rung) = self.next(id, stopped_ns);
            let setting = Itimerspec {
                it_interval: time(self.every_ns),
                it_value: time(value_ns),
            };
            timerfd_settime(&timer, flags, &setting).map_err(cannot)?;
            if self.ticks + rung > 0 {
                set_timer_ticks(&timer, self.ticks + rung)
                    .map_err(|source| Error::target("cannot make a timer again", source))?;
            }
            // One that rang before it was told its count has lost that. One that always does loses a few of very many.
            let rang =
                id == TimerfdClockId::Monotonic && value_ns > 0 && Clocks::now().monotonic_ns >= value_ns;
            if !rang {
                break;
            }
        }
        Ok(timer)
    }

    /// When the timer rings next, in which form, and how often it rang since the stop.
    fn next(self, id: TimerfdClockId, stopped_ns: u64) -> (TimerfdTimerFlags, u64, u64) {
        if self.until_set {
            // One that counts down for a time is not ended.
            let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
            let at_ns = Clocks::now().realtime_ns.saturating_add(self.left_ns);
            return (flags, if self.left_ns > 0 { at_ns } else { 0 }, 0);
        }
        if id != TimerfdClockId::Monotonic || self.left_ns == 0 {
            return (TimerfdTimerFlags::empty(), self.left_ns, 0);
        }
        let at_ns = stopped_ns + self.left_ns;
        let Some(late_ns) = Clocks::now().monotonic_ns.checked_sub(at_ns) else {
            return (TimerfdTimerFlags::ABSTIME, at_ns, 0);
        };
        let rung = late_ns.checked_div(self.every_ns).unwrap_or(0) + 1;
        let next_ns = if self.every_ns > 0 {
            at_ns + rung * self.every_ns
        } else {
            0
        };
        (TimerfdTimerFlags::ABSTIME, next_ns, rung)
    }
}

fn time(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    }
}

/// What a timer had left at the stop, by what it has left now. A timer whose time came has nothing left until its
/// interrupt is served, as one that is not set: only a second look tells them apart. The kernel counts the expirations
/// of a periodic timer, and sets it again, when it is asked for the time: one that is set counts on. For a timer that
/// rings more often than it can be asked, a whole interval is left.
pub(super) fn look(process: &Process, fd: i32, stopped: Clocks) -> Result<Held> {
    /// A look that took longer tells too little of when it was. So does one in which the timer may have rung: the kernel
    /// does not read the count at the instant at which it reads the time.
    const SHORT_NS: u64 = 200_000;
    /// No interrupt of a timer is served later: the kernel puts those off of timers that ring too often.
    const LATE_NS: u64 = 5_000_000;
    let pid = process.thread();
    let ask = |source| Error::target("cannot look at a timer", source);
    let ours = process.duplicate_fd(fd).map_err(ask)?;
    let mut looks = 0;
    // The last count of expirations, and when nothing was left at it first.
    let mut nothing_left: Option<(u64, u64)> = None;
    loop {
        let from_ns = Clocks::now().monotonic_ns;
        let first = timerfd_gettime(&ours).map_err(|error| ask(error.into()))?;
        let info = fdinfo(pid, fd)?;
        let now_ns = Clocks::now().monotonic_ns;
        let Some(told) = told(&info) else {
            return Err(not_understood(pid, fd, &info));
        };
        let since_ns = match nothing_left {
            Some((ticks, since_ns)) if ticks == told.ticks && told.left_ns == 0 => since_ns,
            _ => {
                looks += 1;
                now_ns
            }
        };
        nothing_left = (told.left_ns == 0).then_some((told.ticks, since_ns));
        let is_served = told.ticks > 0 || first.it_value == time(0);
        let left_ns = match told.left_ns {
            0 if told.every_ns == 0 && is_served || from_ns.saturating_sub(since_ns) >= LATE_NS => 0,
            0 if looks >= MOST => told.every_ns,
            0 => continue,
            left_ns if now_ns - from_ns > SHORT_NS.min(left_ns) && looks < MOST => continue,
            left_ns => left_ns + from_ns.saturating_sub(stopped.monotonic_ns),
        };
        return Ok(Countdown { left_ns, ..told }.held());
    }
}

/// A timer, as proc_pid_fdinfo(5) shows it.
fn told(info: &str) -> Option<Countdown> {
    const CANCEL_ON_SET: u32 = TimerfdTimerFlags::CANCEL_ON_SET.bits();
    let time = |name: &str| field(info, name).and_then(pair_ns);
    let flags = u32::from_str_radix(field(info, "settime flags")?, 8).ok()?;
    Some(Countdown {
        left_ns: time("it_value")?,
        every_ns: time("it_interval")?,
        ticks: field(info, "ticks")?.parse().ok()?,
        until_set: flags & CANCEL_ON_SET != 0,
    })
}

/// `(seconds, nanoseconds)`
fn pair_ns(text: &str) -> Option<u64> {
    let (seconds, nanoseconds) = text.trim_matches(['(', ')']).split_once(", ")?;
    let whole_ns = seconds.parse::<u64>().ok()?.saturating_mul(1_000_000_000);
    Some(whole_ns.saturating_add(nanoseconds.parse::<u64>().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn times_are_understood() {
        assert_eq!(pair_ns("(1, 5)"), Some(1_000_000_005));
    }

    fn this() -> Process {
        Process::open(std::process::id() as i32).unwrap()
    }

    /// A timer that rings while it is looked at is not taken for one that is not set, also where it always rings meanwhile.
    #[test]
    fn a_periodic_timer_always_has_something_left() {
        let process = this();
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).unwrap();
        for every in [20_000, 1000, 1] {
            let setting = Itimerspec {
                it_interval: time(every),
                it_value: time(every),
            };
            timerfd_settime(&timer, TimerfdTimerFlags::empty(), &setting).unwrap();
            let mut before = 0;
            for _ in 0..1000 {
                let held = look(&process, timer.as_raw_fd(), Clocks::now()).unwrap();
                let Held::Countdown {
                    left_ns,
                    every_ns,
                    ticks,
                } = held
                else {
                    panic!("{held:?}");
                };
                assert!(left_ns > 0 && every_ns == every && ticks >= before, "{held:?}");
                before = ticks;
            }
            let made = Countdown::of(&look(&process, timer.as_raw_fd(), Clocks::now()).unwrap());
            let again = made
                .unwrap()
                .make(Clock::Monotonic, Clocks::now().monotonic_ns)
                .unwrap();
            let again = Countdown::of(&look(&process, again.as_raw_fd(), Clocks::now()).unwrap()).unwrap();
            assert!(again.ticks >= before && again.every_ns == every, "{again:?}");
        }
    }

    /// Nor is one that rings once: it has something left, or it rang.
    #[test]
    fn a_timer_that_rings_once_rings() {
        let process = this();
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).unwrap();
        for pause_ns in 0..20_000 {
            let setting = Itimerspec {
                it_interval: time(0),
                it_value: time(1 + pause_ns),
            };
            timerfd_settime(&timer, TimerfdTimerFlags::empty(), &setting).unwrap();
            let countdown =
                Countdown::of(&look(&process, timer.as_raw_fd(), Clocks::now()).unwrap()).unwrap();
            assert!(
                (countdown.left_ns > 0) != (countdown.ticks == 1),
                "{pause_ns}: {countdown:?}"
            );
        }
    }

    /// One that is not set stays so, though it has an interval.
    #[test]
    fn a_timer_that_is_not_set_is_told_from_one_that_rings_now() {
        let process = this();
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).unwrap();
        for every in [0, 1, SECOND_NS] {
            let setting = Itimerspec {
                it_interval: time(every),
                it_value: time(0),
            };
            timerfd_settime(&timer, TimerfdTimerFlags::empty(), &setting).unwrap();
            let countdown =
                Countdown::of(&look(&process, timer.as_raw_fd(), Clocks::now()).unwrap()).unwrap();
            assert_eq!((countdown.left_ns, countdown.ticks), (0, 0), "{countdown:?}");
        }
    }

    /// Its clock, what is left, and whether it ends when the clock is set. Those that wake the machine need a right.
    #[test]
    fn a_timer_is_made_again_as_it_was() {
        let process = this();
        let relative = TimerfdTimerFlags::empty();
        let until_set = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        for (clock, flags) in [
            (Clock::Monotonic, relative),
            (Clock::Boottime, relative),
            (Clock::Realtime, relative),
            (Clock::Realtime, TimerfdTimerFlags::ABSTIME),
            (Clock::Realtime, until_set),
            (Clock::BoottimeAlarm, relative),
            (Clock::RealtimeAlarm, relative),
            (Clock::RealtimeAlarm, until_set),
        ] {
            let id = clock.of_descriptor().unwrap();
            let made = match timerfd_create(id, TimerfdFlags::CLOEXEC) {
                Err(Errno::PERM) => {
                    println!("SKIPPED: {clock:?} may not be used here; run as root");
                    continue;
                }
                made => made.unwrap(),
            };
            let is_absolute = flags.contains(TimerfdTimerFlags::ABSTIME);
            let from_ns = if is_absolute { Clocks::now().realtime_ns } else { 0 };
            let setting = Itimerspec {
                it_interval: time(7 * SECOND_NS),
                it_value: time(from_ns + 1000 * SECOND_NS),
            };
            timerfd_settime(&made, flags, &setting).unwrap();
            let stopped = Clocks::now();
            let seen = look(&process, made.as_raw_fd(), stopped).unwrap();
            let countdown = Countdown::of(&seen).unwrap();
            assert_eq!(countdown.until_set, flags == until_set, "{clock:?} {flags:?}");
            let again = countdown.make(clock, stopped.monotonic_ns).unwrap();
            let clock_of = |timer: &OwnedFd| {
                let info = fdinfo(process.pid(), timer.as_raw_fd()).unwrap();
                field(&info, "clockid").map(str::to_owned)
            };
            assert_eq!(clock_of(&again), clock_of(&made));
            let again = Countdown::of(&look(&process, again.as_raw_fd(), stopped).unwrap()).unwrap();
            let same = Countdown {
                left_ns: countdown.left_ns,
                ..again
            };
            assert_eq!(same, countdown, "{clock:?} {flags:?}");
            assert!(
                again.left_ns <= countdown.left_ns + SECOND_NS && again.left_ns > 900 * SECOND_NS,
                "{clock:?} {flags:?}: {again:?}"
            );
        }
    }

    /// A far moment, which stands for never, stays as far.
    #[test]
    fn one_that_waits_for_the_clock_to_be_set_alone_waits_on() {
        let process = this();
        let made = timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::CLOEXEC).unwrap();
        let setting = Itimerspec {
            it_interval: time(0),
            it_value: Timespec {
                tv_sec: i64::MAX,
                tv_nsec: 0,
            },
        };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        timerfd_settime(&made, flags, &setting).unwrap();
        let stopped = Clocks::now();
        let countdown = Countdown::of(&look(&process, made.as_raw_fd(), stopped).unwrap()).unwrap();
        let again = countdown.make(Clock::Realtime, stopped.monotonic_ns).unwrap();
        let again = Countdown::of(&look(&process, again.as_raw_fd(), stopped).unwrap()).unwrap();
        assert!(
            again.until_set && again.left_ns.abs_diff(countdown.left_ns) < 60 * SECOND_NS,
            "{again:?}"
        );
    }
}
