//! Work in a new process, which it does itself: calls, and bytes for them.

use crate::descriptors::Descriptor;
use crate::error::{Error, Result};
use twinpage_os::inject::{self, Call};
use twinpage_os::remote::Process;
use twinpage_os::trace::Tid;

/// Runs a batch and fails with the first call that failed.
pub(super) fn run(process: &Process, calls: &mut [Call], what: &str) -> Result<()> {
    inject::run(process, process.pid(), calls)
        .map_err(|source| Error::target(format!("cannot {what}"), source))?;
    for call in calls.iter() {
        call.result().map_err(|source| {
            Error::target(format!("cannot {what} (system call {})", call.number()), source)
        })?;
    }
    Ok(())
}

/// The same in one of its threads.
pub(super) fn run_in(process: &Process, tid: Tid, calls: &mut [Call]) -> Result<()> {
    let set = |source| Error::target(format!("cannot set up thread {tid}"), source);
    inject::run(process, tid, calls).map_err(set)?;
    calls
        .iter()
        .try_for_each(|call| call.result().map(drop).map_err(set))
}

/// Writes to its memory.
pub(super) fn write(process: &Process, at: u64, bytes: &[u8]) -> Result<()> {
    process
        .write(at, bytes)
        .map_err(|source| Error::target("cannot write to the new process", source))
}

/// Words as they lie in memory.
pub(super) fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Puts what a process opened at `opened` where `descriptor` was.
pub(super) fn put(process: &Process, opened: u64, descriptor: &Descriptor) -> std::io::Result<()> {
    let call = |number, arguments: &[u64]| inject::call(process, process.pid(), number, arguments);
    let (place, cloexec) = (
        descriptor.fd as u64,
        if descriptor.cloexec { libc::O_CLOEXEC } else { 0 },
    );
    if opened != place {
        call(libc::SYS_dup3, &[opened, place, cloexec as u64])?;
        call(libc::SYS_close, &[opened])?;
    } else if descriptor.cloexec {
        call(
            libc::SYS_fcntl,
            &[place, libc::F_SETFD as u64, libc::FD_CLOEXEC as u64],
        )?;
    }
    Ok(())
}
