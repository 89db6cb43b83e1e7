//! The clocks that programs see.

/// The clocks of a program at a stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clocks {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub monotonic_ns: u64,
    /// `CLOCK_REALTIME`, nanoseconds.
    pub realtime_ns: u64,
}

impl Clocks {
    /// As they are now.
    #[must_use]
    pub fn now() -> Clocks {
        let now = |clock| {
            let time = rustix::time::clock_gettime(clock);
            time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
        };
        Clocks {
            monotonic_ns: now(rustix::time::ClockId::Monotonic),
            realtime_ns: now(rustix::time::ClockId::Realtime),
        }
    }
}
