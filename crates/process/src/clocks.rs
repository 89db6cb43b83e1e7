//! The clocks that programs see: clock_gettime(2).

use rustix::time::{ClockId, DynamicClockId, TimerfdClockId, Timespec, clock_gettime, clock_gettime_dynamic};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A clock that a timer or a wait goes by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "i32", into = "i32")]
pub enum Clock {
    /// The time of day.
    Realtime,
    /// From an instant in the past on.
    Monotonic,
    /// The same, and what the machine slept.
    Boottime,
    /// The time of day; wakes a machine that sleeps.
    RealtimeAlarm,
    /// As `Boottime`; wakes a machine that sleeps.
    BoottimeAlarm,
    /// Atomic time.
    Tai,
    /// Processor time of a process or a thread, by number: it stands while that does not run.
    Processor(i32),
}

impl From<i32> for Clock {
    fn from(number: i32) -> Clock {
        match number {
            libc::CLOCK_REALTIME => Clock::Realtime,
            libc::CLOCK_MONOTONIC => Clock::Monotonic,
            libc::CLOCK_BOOTTIME => Clock::Boottime,
            libc::CLOCK_REALTIME_ALARM => Clock::RealtimeAlarm,
            libc::CLOCK_BOOTTIME_ALARM => Clock::BoottimeAlarm,
            libc::CLOCK_TAI => Clock::Tai,
            other => Clock::Processor(other),
        }
    }
}

impl From<Clock> for i32 {
    fn from(clock: Clock) -> i32 {
        match clock {
            Clock::Realtime => libc::CLOCK_REALTIME,
            Clock::Monotonic => libc::CLOCK_MONOTONIC,
            Clock::Boottime => libc::CLOCK_BOOTTIME,
            Clock::RealtimeAlarm => libc::CLOCK_REALTIME_ALARM,
            Clock::BoottimeAlarm => libc::CLOCK_BOOTTIME_ALARM,
            Clock::Tai => libc::CLOCK_TAI,
            Clock::Processor(number) => number,
        }
    }
}

impl Clock {
    /// Whether it runs by itself.
    #[must_use]
    pub fn runs(self) -> bool {
        !matches!(self, Clock::Processor(_))
    }

    /// As timerfd_create(2) has it, for those that it takes.
    #[must_use]
    pub fn of_descriptor(self) -> Option<TimerfdClockId> {
        Some(match self {
            Clock::Realtime => TimerfdClockId::Realtime,
            Clock::Monotonic => TimerfdClockId::Monotonic,
            Clock::Boottime => TimerfdClockId::Boottime,
            Clock::RealtimeAlarm => TimerfdClockId::RealtimeAlarm,
            Clock::BoottimeAlarm => TimerfdClockId::BoottimeAlarm,
            Clock::Tai | Clock::Processor(_) => return None,
        })
    }
}

/// Clocks of timer descriptors are kept without a sign.
pub(crate) mod unsigned {
    use super::{Clock, Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(clock: &Clock, serializer: S) -> Result<S::Ok, S::Error> {
        (i32::from(*clock) as u32).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Clock, D::Error> {
        u32::deserialize(deserializer).map(|number| Clock::from(number as i32))
    }
}

/// The clocks of a program at a stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clocks {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub monotonic_ns: u64,
    /// `CLOCK_REALTIME`, nanoseconds.
    pub realtime_ns: u64,
}

fn now_ns(clock: ClockId) -> u64 {
    ns(clock_gettime(clock))
}

/// `CLOCK_TAI`, nanoseconds.
fn tai_ns() -> Option<u64> {
    clock_gettime_dynamic(DynamicClockId::Tai).ok().map(ns)
}

fn ns(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Clocks {
    /// As they are now.
    #[must_use]
    pub fn now() -> Clocks {
        Clocks {
            monotonic_ns: now_ns(ClockId::Monotonic),
            realtime_ns: now_ns(ClockId::Realtime),
        }
    }

    /// A clock at the stop, nanoseconds, if it is one that runs by itself. Those that were not read then are told from
    /// what they are now.
    #[must_use]
    pub fn at(self, clock: Clock) -> Option<u64> {
        Some(match clock {
            Clock::Realtime | Clock::RealtimeAlarm => self.realtime_ns,
            Clock::Monotonic => self.monotonic_ns,
            Clock::Boottime | Clock::BoottimeAlarm => {
                let since_ns = now_ns(ClockId::Monotonic).saturating_sub(self.monotonic_ns);
                now_ns(ClockId::Boottime).saturating_sub(since_ns)
            }
            Clock::Tai => {
                let since_ns = now_ns(ClockId::Realtime).saturating_sub(self.realtime_ns);
                tai_ns()?.saturating_sub(since_ns)
            }
            Clock::Processor(_) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_clock_that_runs_is_told_as_of_the_stop() {
        let stopped = Clocks::now();
        let boottime = now_ns(ClockId::Boottime);
        let tai = tai_ns().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        for (number, then) in [
            (libc::CLOCK_REALTIME, stopped.realtime_ns),
            (libc::CLOCK_REALTIME_ALARM, stopped.realtime_ns),
            (libc::CLOCK_MONOTONIC, stopped.monotonic_ns),
            (libc::CLOCK_BOOTTIME, boottime),
            (libc::CLOCK_BOOTTIME_ALARM, boottime),
            (libc::CLOCK_TAI, tai),
        ] {
            let clock = Clock::from(number);
            assert!(clock.runs());
            let told = stopped.at(clock).unwrap();
            assert!(told.abs_diff(then) < 250_000_000, "{clock:?}: {told}, not {then}");
        }
        for number in [libc::CLOCK_PROCESS_CPUTIME_ID, libc::CLOCK_THREAD_CPUTIME_ID, -6] {
            assert!(!Clock::from(number).runs() && stopped.at(Clock::from(number)).is_none());
        }
    }

    /// As earlier builds wrote them: a number with a sign, and one without for a descriptor.
    #[test]
    fn clocks_are_kept_as_numbers() {
        #[derive(Serialize, Deserialize, PartialEq, Debug)]
        struct OfDescriptor(#[serde(with = "unsigned")] Clock);
        for number in (-20..=12).chain([i32::MIN, i32::MAX]) {
            let clock = Clock::from(number);
            assert_eq!(i32::from(clock), number);
            let bytes = postcard::to_stdvec(&clock).unwrap();
            assert_eq!(bytes, postcard::to_stdvec(&number).unwrap());
            assert_eq!(postcard::from_bytes::<Clock>(&bytes).unwrap(), clock);
            let bytes = postcard::to_stdvec(&OfDescriptor(clock)).unwrap();
            assert_eq!(bytes, postcard::to_stdvec(&(number as u32)).unwrap());
            assert_eq!(
                postcard::from_bytes::<OfDescriptor>(&bytes).unwrap(),
                OfDescriptor(clock)
            );
        }
    }
}
