//! Time limits of calls that wait: where each stands, and how what is left is put there instead.
//!
//! Limits that name a point in time (`TIMER_ABSTIME`, `FUTEX_WAIT_BITSET`, futex_waitv(2)) need nothing: they
//! mean the same when the call is begun again.

use super::argument;
use crate::clocks::Clock;
use crate::error::{Error, Result};
use std::io;
use std::time::Duration;
use twinpage_os::remote::Process;
use twinpage_os::trace::Registers;

/// Where a relative limit stands: in which argument, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Limit {
    /// Milliseconds; negative: none.
    Milliseconds(usize),
    /// The address of a timespec; 0: none.
    Timespec(usize),
    /// The address of a timeval; 0: none.
    Timeval(usize),
    /// An option of the socket, `SO_RCVTIMEO` or `SO_SNDTIMEO`, or of the terminal. What is left is spent in a ppoll(2)
    /// for these events, and then the call is begun.
    Polled(libc::c_short),
}

use Limit::{Milliseconds, Polled, Timespec, Timeval};

impl Limit {
    /// Of the call in `orig_rax`.
    pub(super) fn of(registers: &Registers) -> Option<Limit> {
        const FUTEX_OPTIONS: u64 = (libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as u64;
        let r = registers;
        Some(match r.orig_rax as i64 {
            libc::SYS_poll => Milliseconds(2),
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait => Milliseconds(3),
            libc::SYS_epoll_pwait2 => Timespec(3),
            libc::SYS_rt_sigtimedwait | libc::SYS_ppoll => Timespec(2),
            libc::SYS_nanosleep => Timespec(0),
            libc::SYS_clock_nanosleep if is_relative_wall_clock(r.rdi, r.rsi) => Timespec(2),
            libc::SYS_futex if r.rsi & 0xffff_ffff & !FUTEX_OPTIONS == libc::FUTEX_WAIT as u64 => Timespec(3),
            libc::SYS_semtimedop => Timespec(3),
            libc::SYS_pselect6 => Timespec(4),
            libc::SYS_select => Timeval(4),
            libc::SYS_read
            | libc::SYS_readv
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_accept
            | libc::SYS_accept4 => Polled(libc::POLLIN),
            libc::SYS_write | libc::SYS_writev | libc::SYS_sendto | libc::SYS_sendmsg => {
                Polled(libc::POLLOUT)
            }
            _ => return None,
        })
    }

    /// Nanoseconds; `None`: for ever.
    fn read(self, registers: &Registers, process: &Process) -> io::Result<Option<u64>> {
        let mut registers = *registers;
        match self {
            Milliseconds(index) => {
                let limit = u64::try_from(*argument(&mut registers, index) as i32);
                Ok(limit.ok().map(|limit| limit * 1_000_000))
            }
            Timespec(index) => time_at(*argument(&mut registers, index), 1, process),
            Timeval(index) => time_at(*argument(&mut registers, index), 1000, process),
            Polled(events) => {
                use rustix::net::sockopt::{Timeout, socket_timeout};
                let kind = if events == libc::POLLIN {
                    Timeout::Recv
                } else {
                    Timeout::Send
                };
                let fd = process.duplicate_fd(registers.rdi as i32);
                // Anything but a socket has none; a terminal's is known where it is needed.
                let limit = fd.ok().and_then(|fd| socket_timeout(fd, kind).ok()).flatten();
                Ok(limit.map(|limit| limit.as_nanos() as u64))
            }
        }
    }

    /// Puts `left_ns` in the place of the limit, never less: in the register, or in `slot` for it.
    pub(super) fn set(
        self,
        registers: &mut Registers,
        left_ns: u64,
        slot: u64,
        process: &Process,
    ) -> io::Result<()> {
        let left = Duration::from_nanos(left_ns);
        let (index, part) = match self {
            Milliseconds(index) => {
                *argument(registers, index) = left_ns.div_ceil(1_000_000);
                return Ok(());
            }
            Timespec(index) => (index, u64::from(left.subsec_nanos())),
            Timeval(index) => (index, u64::from(left.subsec_nanos()).div_ceil(1000)),
            Polled(events) => {
                let polled = (registers.rdi & 0xffff_ffff) | (events as u64) << 32; // struct pollfd
                let words = [polled, 0, left.as_secs(), u64::from(left.subsec_nanos())].map(u64::to_le_bytes);
                registers.rax = libc::SYS_ppoll as u64;
                (registers.rdi, registers.rsi, registers.rdx, registers.r10) = (slot, 1, slot + 16, 0);
                return process.write(slot, words.as_flattened());
            }
        };
        *argument(registers, index) = slot;
        process.write(slot, &[left.as_secs().to_le_bytes(), part.to_le_bytes()].concat())
    }
}

/// Whether the call writes what is left to where its limit stands.
pub(super) fn tells(number: i64) -> bool {
    [libc::SYS_select, libc::SYS_pselect6, libc::SYS_ppoll].contains(&number)
}

/// Copies what is left from `slot` to where the limit of the call stands.
pub(super) fn copy(own: &Registers, slot: u64, process: &Process) -> io::Result<()> {
    let mut own = *own;
    if let Some(Timespec(index) | Timeval(index)) = Limit::of(&own) {
        let mut left = [0; 16];
        process.read(slot, &mut left)?;
        process.write(*argument(&mut own, index), &left)?;
    }
    Ok(())
}

fn is_relative_wall_clock(clock: u64, flags: u64) -> bool {
    Clock::from(clock as i32).runs() && flags as i32 & libc::TIMER_ABSTIME == 0
}

/// The limit of the call in `orig_rax`: nanoseconds from its beginning.
pub(super) fn limit_ns(registers: &Registers, process: &Process) -> Result<Option<u64>> {
    let read = Limit::of(registers).map_or(Ok(None), |limit| limit.read(registers, process));
    read.map_err(|source| Error::target("cannot read a time limit", source))
}

/// What is left of the wait in `orig_rax`, which was cut just now: as the kernel says where a sleep asks for
/// it; otherwise the whole limit, for when it began within this epoch is not known.
pub(super) fn left_ns(registers: &Registers, process: &Process) -> Result<Option<u64>> {
    let told = match registers.orig_rax as i64 {
        libc::SYS_nanosleep => registers.rsi,
        libc::SYS_clock_nanosleep => registers.r10,
        _ => 0,
    };
    if Limit::of(registers).is_some() && told != 0 {
        return time_at(told, 1, process)
            .map_err(|source| Error::target("cannot read what is left of a sleep", source));
    }
    limit_ns(registers, process)
}

/// The seconds and parts of a second, of `part_ns` each, at an address; `None` at 0.
pub(super) fn time_at(address: u64, part_ns: u64, process: &Process) -> io::Result<Option<u64>> {
    if address == 0 {
        return Ok(None);
    }
    let (seconds, parts) = (process.read_u64(address)?, process.read_u64(address + 8)?);
    let ns = seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(parts.saturating_mul(part_ns));
    Ok(Some(ns.min(u64::MAX / 4))) // later than any clock, and still a time when added to one
}
