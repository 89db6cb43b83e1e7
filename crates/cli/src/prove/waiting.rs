//! Waiting for a child with a time limit.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::process::{Child, ExitStatus};
use std::time::Instant;

/// How `child` ended; `None` when it still runs at `limit`.
pub(super) fn until(child: &mut Child, limit: Option<Instant>) -> io::Result<Option<ExitStatus>> {
    if let Some(limit) = limit {
        let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        loop {
            let left = limit.saturating_duration_since(Instant::now());
            let left = rustix::time::Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    child.wait().map(Some)
}
