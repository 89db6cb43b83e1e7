//! Resource limits of a process: prlimit(2).
//!
//! They are read and set from outside. Those of another user's process may be out of reach for root itself, where it lacks
//! CAP_SYS_RESOURCE, as in many containers: the process then makes the call.

use crate::error::{Error, Result};
use std::io;
use twinpage_os::inject::{self, ROOM};
use twinpage_os::remote::{self, Process};
use twinpage_os::trace::Tid;

const RESOURCES: u32 = 16;

/// (resource, soft, hard).
pub type Limit = (u32, u64, u64);

/// All limits of a process whose thread `tid` is stopped.
///
/// # Errors
/// When the process is gone.
pub fn read(process: &Process, tid: Tid) -> Result<Vec<Limit>> {
    let inside = |resource: u32| {
        inject::call(process, tid, libc::SYS_prlimit64, &[0, resource.into(), 0, ROOM])?;
        Ok((process.read_u64(ROOM)?, process.read_u64(ROOM + 8)?))
    };
    let limit = |resource| {
        let limit = or_inside(remote::limit(process.thread(), resource), || inside(resource));
        limit
            .map(|(soft, hard)| (resource, soft, hard))
            .map_err(|source| Error::target("cannot read the program's limits", source))
    };
    (0..RESOURCES).map(limit).collect()
}

/// Sets one limit of a process whose main thread is stopped.
///
/// # Errors
/// When it may not be set.
pub fn set(process: &Process, (resource, soft, hard): Limit) -> Result<()> {
    let outside = remote::set_limit(process.pid(), resource, soft, hard);
    let inside = || {
        process.write(ROOM, &[soft.to_le_bytes(), hard.to_le_bytes()].concat())?;
        let arguments = [0, resource.into(), ROOM, 0];
        inject::call(process, process.pid(), libc::SYS_prlimit64, &arguments).map(drop)
    };
    or_inside(outside, inside)
        .map_err(|source| Error::target(format!("cannot set limit {resource} to {soft} of {hard}"), source))
}

fn or_inside<T>(outside: io::Result<T>, inside: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    match outside {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => inside(),
        outside => outside,
    }
}
