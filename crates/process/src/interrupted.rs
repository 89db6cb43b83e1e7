//! Calls that a stop interrupted, mended so that the program never notices.
//!
//! Most waiting calls are begun again by the kernel itself when their thread goes on. Two kinds are
//! not (signal(7), "Interruption of system calls by stop signals"):
//!
//! * epoll_wait(2) and sigtimedwait(2) return `EINTR`. They are begun again; one with a time limit
//!   answers that the time is up at the first stop after its limit, at most an epoch late.
//! * A write(2) to a pipe that moved some bytes and waited for room returns what it moved. The rest is
//!   taken from the program's memory, so the program sees a whole write.

use crate::descriptors::{Descriptors, What};
use crate::error::{Error, Result};
use crate::stdio::Stdio;
use crate::threads::Moving;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use twinpage_os::remote::Process;
use twinpage_os::trace::{Registers, Tid};

/// When threads began waits that have a time limit. Such calls are watched, so their beginning is
/// known; one that is begun again after a stop is the same wait.
#[derive(Debug, Default)]
pub struct Waits(HashMap<Tid, Wait>);

#[derive(Debug)]
struct Wait {
    since: Instant,
    begun_again: bool,
}

impl Waits {
    /// The thread is about to wait.
    pub fn begin(&mut self, tid: Tid) {
        let wait = self.0.entry(tid).or_insert_with(|| Wait {
            since: Instant::now(),
            begun_again: false,
        });
        if !std::mem::take(&mut wait.begun_again) {
            wait.since = Instant::now();
        }
    }

    /// The thread is gone.
    pub fn forget(&mut self, tid: Tid) {
        self.0.remove(&tid);
    }

    /// How long the wait has lasted; it is begun again.
    fn lasted(&mut self, tid: Tid) -> Duration {
        let wait = self.0.entry(tid).or_insert_with(|| Wait {
            since: Instant::now(),
            begun_again: true,
        });
        wait.begun_again = true;
        wait.since.elapsed()
    }
}

/// Bytes of the `syscall` instruction.
const SYSCALL_BYTES: u64 = 2;

/// Mends the call that `thread` was stopped in. True when its registers changed. Not to be called for
/// a thread that a signal waits for: `EINTR` may be what the program needs to see then.
///
/// # Errors
/// When the program's memory cannot be read.
pub fn mend(
    thread: &mut Moving,
    process: &Process,
    waits: &mut Waits,
    streams: &Stdio,
    descriptors: &Descriptors,
) -> Result<bool> {
    let registers = &mut thread.registers;
    match registers.orig_rax as i64 {
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 | libc::SYS_rt_sigtimedwait
            if registers.rax as i64 == -i64::from(libc::EINTR) =>
        {
            wait_on(thread.tid, registers, process, waits)?;
            Ok(true)
        }
        libc::SYS_write => finish_write(registers, process, streams, descriptors),
        _ => Ok(false),
    }
}

fn wait_on(tid: Tid, registers: &mut Registers, process: &Process, waits: &mut Waits) -> Result<()> {
    let call = registers.orig_rax as i64;
    let limit = match call {
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => u64::try_from(registers.r10 as i32)
            .ok()
            .map(Duration::from_millis),
        libc::SYS_epoll_pwait2 => time_at(process, registers.r10)?,
        _ => time_at(process, registers.rdx)?,
    };
    if limit.is_some_and(|limit| waits.lasted(tid) >= limit) {
        waits.forget(tid);
        registers.rax = if call == libc::SYS_rt_sigtimedwait {
            -i64::from(libc::EAGAIN) as u64
        } else {
            0
        };
    } else {
        registers.rip -= SYSCALL_BYTES;
        registers.rax = registers.orig_rax;
    }
    registers.orig_rax = u64::MAX;
    Ok(())
}

/// The timespec at an address of the program; `None` for a null pointer, which waits for ever.
fn time_at(process: &Process, address: u64) -> Result<Option<Duration>> {
    if address == 0 {
        return Ok(None);
    }
    let look = |source| Error::target("cannot read a time limit", source);
    let seconds = process.read_u64(address).map_err(look)?;
    let nanoseconds = process.read_u64(address + 8).map_err(look)?;
    Ok(Some(Duration::new(seconds, (nanoseconds % 1_000_000_000) as u32)))
}

/// Completes a write to a relayed stream that was cut short.
fn finish_write(
    registers: &mut Registers,
    process: &Process,
    streams: &Stdio,
    descriptors: &Descriptors,
) -> Result<bool> {
    let (fd, address, wanted, done) = (registers.rdi as i32, registers.rsi, registers.rdx, registers.rax);
    if done == 0 || done >= wanted || (done as i64) < 0 {
        return Ok(false);
    }
    let Some(descriptor) = descriptors.list().iter().find(|descriptor| descriptor.fd == fd) else {
        return Ok(false);
    };
    let (What::Stream(stream), 0) = (&descriptor.what, descriptor.flags & libc::O_NONBLOCK as u32) else {
        return Ok(false);
    };
    let mut rest = vec![0; (wanted - done) as usize];
    process
        .read(address + done, &mut rest)
        .map_err(|source| Error::target("cannot read the rest of a write", source))?;
    registers.rax = done + streams.append_rest(*stream, &rest)? as u64;
    registers.orig_rax = u64::MAX;
    Ok(true)
}
