//! One processor for the tracer and a thread that makes one watched call after another.
//!
//! A watched call switches from the thread to the tracer and back. A switch that wakes another processor takes some
//! 25 µs, more than all the rest of a call, and 60 where that one is virtual and stands still; on one processor it takes
//! about 2. So a thread is bound that makes a call now and then, and not only one that does nothing else.
//!
//! * A thread is bound from its second call in a row on, a new process from its first stop on, and for 50 ms at most: the
//!   scheduler then has its say.
//! * The program does not see it. Its processors are given back before it asks for them, changes them or makes a thread,
//!   before it opens a file of `/proc`, and before a checkpoint.
//! * What another process chose for the thread meanwhile stays.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::time::{Duration, Instant};
use twinpage_os::trace::Tid;

/// Calls of one thread in a row, each within [`CLOSE`] of the one before, after which it is bound.
const CALLS: u32 = 2;
const CLOSE: Duration = Duration::from_millis(5);
/// Without a call for as long a bound thread goes free, at the tracer's next alarm.
const QUIET: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(50);

/// The calls of late, and the thread that is bound.
#[derive(Debug)]
pub(super) struct SharedProcessor {
    last: Option<(Tid, Instant)>,
    in_a_row: u32,
    bound: Option<Bound>,
}

/// A thread and the tracer, on one processor.
#[derive(Debug)]
struct Bound {
    thread: Pid,
    since: Instant,
    processor: CpuSet,
    /// Where they may run otherwise.
    of_thread: CpuSet,
    of_tracer: CpuSet,
}

impl SharedProcessor {
    pub(super) const NONE: SharedProcessor = SharedProcessor {
        last: None,
        in_a_row: 0,
        bound: None,
    };

    /// A thread stopped for a call.
    pub(super) fn called(&mut self, tid: Tid) {
        let now = Instant::now();
        let follows = |(last, at): (Tid, Instant)| last == tid && now - at < CLOSE;
        if self.last.is_some_and(follows) {
            self.in_a_row = self.in_a_row.saturating_add(1);
        } else {
            self.part();
            self.in_a_row = 1;
        }
        self.last = Some((tid, now));
        if self.bound.is_none() && self.in_a_row >= CALLS {
            self.bind_to(tid, now);
        }
    }

    /// Best effort: without it calls are as right, and slower.
    fn bind_to(&mut self, tid: Tid, now: Instant) {
        self.bound = Pid::from_raw(tid).and_then(|thread| bind(thread, now).ok().flatten());
    }

    /// A new process stopped: it makes one call after another, and the program that it executes does until it is linked.
    pub(super) fn began(&mut self, tid: Tid) {
        let now = Instant::now();
        self.part();
        (self.last, self.in_a_row) = (Some((tid, now)), CALLS);
        self.bind_to(tid, now);
    }

    /// The tracer's alarm rang.
    pub(super) fn look(&mut self) {
        let is_quiet = self.last.is_none_or(|(_, at)| at.elapsed() > QUIET);
        if let Some(bound) = &self.bound
            && (is_quiet || bound.since.elapsed() > LONGEST)
        {
            self.part();
        }
    }

    /// Both may run where they could before.
    pub(super) fn part(&mut self) {
        self.in_a_row = 0;
        let Some(bound) = self.bound.take() else {
            return;
        };
        // A thread that is gone needs none.
        if sched_getaffinity(Some(bound.thread)).is_ok_and(|now| now == bound.processor) {
            let _ = sched_setaffinity(Some(bound.thread), &bound.of_thread);
        }
        let _ = sched_setaffinity(None, &bound.of_tracer);
    }
}

/// Binds the tracer, and a thread that stands still, to the tracer's processor. None where the thread may not run there,
/// or only there.
fn bind(thread: Pid, since: Instant) -> rustix::io::Result<Option<Bound>> {
    let of_thread = sched_getaffinity(Some(thread))?;
    let here = sched_getcpu();
    if !of_thread.is_set(here) || of_thread.count() == 1 {
        return Ok(None);
    }
    let of_tracer = sched_getaffinity(None)?;
    let mut processor = CpuSet::new();
    processor.set(here);
    sched_setaffinity(None, &processor)?;
    let bound = Bound {
        thread,
        since,
        processor,
        of_thread,
        of_tracer,
    };
    if let Err(error) = sched_setaffinity(Some(thread), &processor) {
        let _ = sched_setaffinity(None, &of_tracer);
        return Err(error);
    }
    Ok(Some(bound))
}
