//! Stopping and steering another process: ptrace(2).
//!
//! * Every function must be called from the one thread that seized the tracee.
//! * A tracee is a thread, named by its thread id; it must be stopped for everything but
//!   [`seize`], [`interrupt`] and [`wait`].
//! * Only x86-64 tracees.

#![allow(unsafe_code)]

use crate::proc_file;
use crate::siginfo::{self, SignalInfo};
use crate::stat::Stat;
use libc::{c_int, c_long, c_void, pid_t};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::io;

/// A thread id, as this process sees it.
pub type Tid = pid_t;

/// General registers of a thread.
pub use libc::user_regs_struct as Registers;

const PTRACE_GET_RSEQ_CONFIGURATION: c_int = 0x420f;
const NT_PRSTATUS: usize = 1;
const NT_X86_XSTATE: usize = 0x202;
const SIGSET_BYTES: usize = 8;

/// Why a thread stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It is gone, with this exit code.
    Exited(i32),
    /// It was killed by this signal.
    Killed(i32),
    /// This signal is about to be delivered.
    Signal(i32),
    /// `PTRACE_INTERRUPT` took effect, or a new thread begins.
    Interrupted,
    /// A stopping signal stopped the whole group.
    GroupStop(i32),
    /// One of the `PTRACE_EVENT_*` stops: clone, fork, vfork, exec, seccomp, exit.
    Event(c_int),
    /// A system call begins or ends, of a thread that goes on by [`go_on_to_call`].
    Call,
}

impl Status {
    /// Whether the thread is gone, or about to exit.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(
            self,
            Status::Exited(_) | Status::Killed(_) | Status::Event(EVENT_EXIT)
        )
    }
}

/// `PTRACE_EVENT_CLONE`: a thread was made, or a process that sends another signal than SIGCHLD when it ends;
/// [`event_message`] is its id.
pub const EVENT_CLONE: c_int = libc::PTRACE_EVENT_CLONE;
/// `PTRACE_EVENT_FORK`: a process was made; [`event_message`] is its id.
pub const EVENT_FORK: c_int = libc::PTRACE_EVENT_FORK;
/// `PTRACE_EVENT_VFORK`: a process was made, and its maker waits until it ends or executes a program.
pub const EVENT_VFORK: c_int = libc::PTRACE_EVENT_VFORK;
/// `PTRACE_EVENT_EXEC`: the program was replaced.
pub const EVENT_EXEC: c_int = libc::PTRACE_EVENT_EXEC;
/// `PTRACE_EVENT_SECCOMP`: a watched system call is about to run.
pub const EVENT_SECCOMP: c_int = libc::PTRACE_EVENT_SECCOMP;
/// `PTRACE_EVENT_EXIT`: a thread is about to end; [`event_message`] is its wait status.
pub const EVENT_EXIT: c_int = libc::PTRACE_EVENT_EXIT;

const OPTIONS: c_int = libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACESECCOMP
    | libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_EXITKILL;

fn ptrace(request: c_int, tid: Tid, address: usize, data: usize) -> io::Result<c_long> {
    // SAFETY: every caller passes, for `data`, a plain number or a pointer to memory it owns that
    // is as large as the request writes.
    let result = unsafe { libc::ptrace(request as _, tid, address as *mut c_void, data as *mut c_void) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Becomes the tracer of a main thread without stopping it. The tracee dies with its tracer, and stops
/// when it ends; so do the threads and processes it makes, until [`end_freely`].
///
/// # Errors
/// `EPERM` where ptrace is restricted (Yama, containers) or the thread is traced already.
pub fn seize(tid: Tid) -> io::Result<()> {
    let options = OPTIONS | libc::PTRACE_O_TRACEEXIT;
    ptrace(libc::PTRACE_SEIZE as c_int, tid, 0, options as usize).map(drop)
}

/// A stopped thread will not stop when it ends.
///
/// # Errors
/// `ESRCH` when it is gone.
pub fn end_freely(tid: Tid) -> io::Result<()> {
    ptrace(libc::PTRACE_SETOPTIONS as c_int, tid, 0, OPTIONS as usize).map(drop)
}

/// Lets the thread go for good.
///
/// # Errors
/// `ESRCH` when it is not stopped or gone.
pub fn detach(tid: Tid) -> io::Result<()> {
    ptrace(libc::PTRACE_DETACH as c_int, tid, 0, 0).map(drop)
}

/// Asks a running thread to stop; [`wait`] reports it.
///
/// # Errors
/// `ESRCH` when it is gone.
pub fn interrupt(tid: Tid) -> io::Result<()> {
    ptrace(libc::PTRACE_INTERRUPT as c_int, tid, 0, 0).map(drop)
}

/// Sends SIGSTOP to a thread: tkill(2).
///
/// # Errors
/// `ESRCH` when it is gone.
pub fn send_stop(tid: Tid) -> io::Result<()> {
    // SAFETY: tkill takes integers.
    match unsafe { libc::syscall(libc::SYS_tkill, tid, libc::SIGSTOP) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Lets a stopped thread run, delivering `signal` (0: none).
///
/// # Errors
/// `ESRCH` when it is gone.
pub fn go_on(tid: Tid, signal: i32) -> io::Result<()> {
    ptrace(libc::PTRACE_CONT as c_int, tid, 0, signal as usize).map(drop)
}

/// Lets a stopped thread run as [`go_on`] does, until its next system call begins or the one it is in ends.
///
/// # Errors
/// `ESRCH` when it is gone.
pub fn go_on_to_call(tid: Tid, signal: i32) -> io::Result<()> {
    ptrace(libc::PTRACE_SYSCALL as c_int, tid, 0, signal as usize).map(drop)
}

/// Whether the system call of a thread that stopped for it ([`Status::Call`]) ends, not begins.
///
/// # Errors
/// `ESRCH` when the thread is gone.
pub fn call_ends(tid: Tid) -> io::Result<bool> {
    const EVENTMSG_SYSCALL_EXIT: u64 = 2;
    Ok(event_message(tid)? == EVENTMSG_SYSCALL_EXIT)
}

/// Leaves a thread in its group stop, still listening for events.
///
/// # Errors
/// `ESRCH` when it is gone.
pub fn listen(tid: Tid) -> io::Result<()> {
    ptrace(libc::PTRACE_LISTEN as c_int, tid, 0, 0).map(drop)
}

/// Waits until `tid` (any tracee when -1) changes state. `None` when a signal handler of the
/// tracer ran instead, or, with `block` false, when nothing happened yet. That a first thread is dead is told when a
/// signal handler ran, and once more when all other threads have been waited for: a wait for one thread needs an alarm
/// that goes on ringing ([`Ticker`](crate::ticker::Ticker)).
///
/// # Errors
/// `ECHILD` when there is nothing left to wait for.
pub fn wait(tid: Tid, block: bool) -> io::Result<Option<(Tid, Status)>> {
    let mut status: c_int = 0;
    let flags = libc::__WALL | if block { 0 } else { libc::WNOHANG };
    // SAFETY: `status` is a live c_int.
    let stopped = unsafe { libc::waitpid(tid, &raw mut status, flags) };
    if stopped == -1 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::Interrupted if tid > 0 && is_zombie(tid) => dead_or_told(tid),
            io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        };
    }
    if stopped == 0 {
        return Ok(None);
    }
    Ok(Some((stopped, decode(status))))
}

/// Whether a tracee has stopped and was not waited for since; it stays to be.
#[must_use]
pub fn has_news(tid: Tid) -> bool {
    let look = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Pid::from_raw(tid).is_some_and(|tid| matches!(waitid(WaitId::Pid(tid), look), Ok(Some(_))))
}

/// Waits for the first stop of a thread that is traced from its beginning, as one is that a traced thread made.
///
/// # Errors
/// `ESRCH` when it was killed before.
pub fn await_first_stop(tid: Tid) -> io::Result<()> {
    loop {
        match wait(tid, true)?.map(|(_, status)| status) {
            Some(Status::Interrupted) => return Ok(()),
            Some(status) if status.is_end() => return Err(let_end(tid, status)),
            Some(status) => return Err(io::Error::other(format!("it began with {status:?}"))),
            None => {}
        }
    }
}

/// Lets an exiting thread exit. Returns the error of a request to a thread that is gone, `ESRCH`.
pub(crate) fn let_end(tid: Tid, status: Status) -> io::Error {
    if status == Status::Event(EVENT_EXIT)
        && let Err(error) = go_on(tid, 0)
    {
        return error;
    }
    io::Error::from_raw_os_error(libc::ESRCH)
}

/// What is told of a thread that is dead. The first thread of a process whose threads were all killed is told of after
/// all others have been waited for (`ptrace(2)`, "Death under ptrace"): who waits for this one alone would wait for ever.
fn dead_or_told(tid: Tid) -> io::Result<Option<(Tid, Status)>> {
    let told = wait(tid, false)?;
    Ok(told.or(Some((tid, Status::Killed(libc::SIGKILL)))))
}

/// Whether the thread is dead and was not waited for.
fn is_zombie(tid: Tid) -> bool {
    Stat::of(tid).is_ok_and(|stat| stat.state() == Some('Z'))
}

/// Whether a thread is traced. One that ended stays traced until its tracer has waited for it.
#[must_use]
pub fn is_traced(tid: Tid) -> bool {
    let status = proc_file::text(format!("/proc/{tid}/status")).unwrap_or_default();
    proc_file::field(&status, "TracerPid").is_some_and(|tracer| tracer != "0")
}

fn decode(status: c_int) -> Status {
    if libc::WIFEXITED(status) {
        return Status::Exited(libc::WEXITSTATUS(status));
    }
    if libc::WIFSIGNALED(status) {
        return Status::Killed(libc::WTERMSIG(status));
    }
    const CALL: c_int = libc::SIGTRAP | 0x80; // PTRACE_O_TRACESYSGOOD
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        0 if signal == CALL => Status::Call,
        0 => Status::Signal(signal),
        libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Status::Interrupted,
        libc::PTRACE_EVENT_STOP => Status::GroupStop(signal),
        event => Status::Event(event),
    }
}

/// What came with the event: a new thread's id, or the number a seccomp filter returned.
///
/// # Errors
/// `ESRCH` when the thread is gone.
pub fn event_message(tid: Tid) -> io::Result<u64> {
    let mut message: libc::c_ulong = 0;
    ptrace(
        libc::PTRACE_GETEVENTMSG as c_int,
        tid,
        0,
        &raw mut message as usize,
    )?;
    Ok(message)
}

/// A system call that is about to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchedCall {
    /// Its number.
    pub number: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
    /// The stack pointer.
    pub stack: u64,
    /// The address after the instruction.
    pub after: u64,
    /// The number that the seccomp filter returned.
    pub message: u32,
}

/// Bytes of the `syscall` instruction.
pub const SYSCALL_BYTES: u64 = 2;

/// What `orig_rax` has where no call is to be made, or to be restarted.
pub const NO_CALL: u64 = u64::MAX;

/// The arguments of a call, in the order of the registers that have them: syscall(2).
#[must_use]
pub fn arguments(registers: &Registers) -> [u64; 6] {
    let r = registers;
    [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]
}

impl WatchedCall {
    /// The call that a thread makes next that stands before its instruction with these registers.
    #[must_use]
    pub fn begun_by(registers: &Registers) -> WatchedCall {
        WatchedCall {
            number: registers.rax,
            arguments: arguments(registers),
            stack: registers.rsp,
            after: registers.rip.wrapping_add(SYSCALL_BYTES),
            message: 0,
        }
    }
}

/// `struct ptrace_syscall_info` of linux/ptrace.h, as it is at a stop of a seccomp filter.
#[repr(C)]
#[derive(Default)]
struct SyscallInfo {
    op: u8,
    pad: [u8; 3],
    architecture: u32,
    instruction_pointer: u64,
    stack_pointer: u64,
    number: u64,
    arguments: [u64; 6],
    message: u32,
    reserved: u32,
}

/// The call that a thread with [`EVENT_SECCOMP`] is about to make, by one request: `PTRACE_GET_SYSCALL_INFO`.
///
/// # Errors
/// `ESRCH` when the thread is gone, `EINVAL` when it did not stop for that.
pub fn watched_call(tid: Tid) -> io::Result<WatchedCall> {
    const GET_SYSCALL_INFO: c_int = 0x420e;
    const SECCOMP: u8 = 3;
    let mut info = SyscallInfo::default();
    ptrace(
        GET_SYSCALL_INFO,
        tid,
        size_of::<SyscallInfo>(),
        &raw mut info as usize,
    )?;
    if info.op != SECCOMP {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    Ok(WatchedCall {
        number: info.number,
        arguments: info.arguments,
        stack: info.stack_pointer,
        after: info.instruction_pointer,
        message: info.message,
    })
}

/// Skips the call that a thread stopped before: it returns `result` at once.
///
/// # Errors
/// `ESRCH` when the thread is gone.
pub fn skip_call(tid: Tid, result: i64) -> io::Result<()> {
    let poke = |register: usize, value: u64| {
        ptrace(libc::PTRACE_POKEUSER as c_int, tid, register, value as usize).map(drop)
    };
    // The registers come first in a struct user: ptrace(2). Two of them one by one cost less than all of them twice.
    poke(std::mem::offset_of!(Registers, orig_rax), NO_CALL)?;
    poke(std::mem::offset_of!(Registers, rax), result as u64)
}

/// Skips the call that a thread stopped before: it is begun again when the thread goes on.
///
/// # Errors
/// `ESRCH` when the thread is gone.
pub fn begin_call_again(tid: Tid, call: &WatchedCall) -> io::Result<()> {
    let mut registers = registers(tid)?;
    rewind(&mut registers, call.number);
    set_registers(tid, &registers)
}

/// Puts registers of a call that was entered back to before its instruction.
pub fn rewind(registers: &mut Registers, number: u64) {
    registers.orig_rax = NO_CALL;
    registers.rax = number;
    registers.rip -= SYSCALL_BYTES;
}

/// General registers. In a system call that was interrupted, `rax` is the kernel's own
/// `-ERESTART*` code and `orig_rax` the call.
///
/// # Errors
/// `ESRCH` when the thread is gone.
pub fn registers(tid: Tid) -> io::Result<Registers> {
    // SAFETY: all-zero is a valid user_regs_struct, a struct of integers.
    let mut registers: Registers = unsafe { std::mem::zeroed() };
    let mut slice = libc::iovec {
        iov_base: (&raw mut registers).cast(),
        iov_len: size_of::<Registers>(),
    };
    ptrace(
        libc::PTRACE_GETREGSET as c_int,
        tid,
        NT_PRSTATUS,
        &raw mut slice as usize,
    )?;
    Ok(registers)
}

/// Sets the general registers.
///
/// # Errors
/// `ESRCH` when the thread is gone, `EIO` for impossible values.
pub fn set_registers(tid: Tid, registers: &Registers) -> io::Result<()> {
    let mut slice = libc::iovec {
        iov_base: (registers as *const Registers).cast_mut().cast(),
        iov_len: size_of::<Registers>(),
    };
    ptrace(
        libc::PTRACE_SETREGSET as c_int,
        tid,
        NT_PRSTATUS,
        &raw mut slice as usize,
    )
    .map(drop)
}

/// Reads the extended state (x87, SSE, AVX, AMX, protection keys) into `into` and returns its
/// length, which the processor decides. 16 KiB is enough for every x86-64 of today.
///
/// # Errors
/// `ESRCH` when the thread is gone.
pub fn extended_state(tid: Tid, into: &mut [u8]) -> io::Result<usize> {
    let mut slice = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    ptrace(
        libc::PTRACE_GETREGSET as c_int,
        tid,
        NT_X86_XSTATE,
        &raw mut slice as usize,
    )?;
    Ok(slice.iov_len)
}

/// Sets the extended state, as read by [`extended_state`] on the same kind of processor.
///
/// # Errors
/// `EINVAL` when the processor's extended state is of another shape.
pub fn set_extended_state(tid: Tid, state: &[u8]) -> io::Result<()> {
    let mut slice = libc::iovec {
        iov_base: state.as_ptr().cast_mut().cast(),
        iov_len: state.len(),
    };
    ptrace(
        libc::PTRACE_SETREGSET as c_int,
        tid,
        NT_X86_XSTATE,
        &raw mut slice as usize,
    )
    .map(drop)
}

/// The signals the thread blocks, bit `n - 1` for signal `n`.
///
/// # Errors
/// `ESRCH` when the thread is gone.
pub fn signal_mask(tid: Tid) -> io::Result<u64> {
    let mut mask = 0u64;
    ptrace(
        libc::PTRACE_GETSIGMASK as c_int,
        tid,
        SIGSET_BYTES,
        &raw mut mask as usize,
    )?;
    Ok(mask)
}

/// Sets the signals the thread blocks.
///
/// # Errors
/// `ESRCH` when the thread is gone.
pub fn set_signal_mask(tid: Tid, mask: u64) -> io::Result<()> {
    ptrace(
        libc::PTRACE_SETSIGMASK as c_int,
        tid,
        SIGSET_BYTES,
        &raw const mask as usize,
    )
    .map(drop)
}

/// A thread's registered restartable-sequence area, rseq(2).
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Rseq {
    /// Address of the area; 0 when none is registered.
    pub address: u64,
    /// Its size in bytes.
    pub size: u32,
    /// The signature before abort handlers.
    pub signature: u32,
    flags: u32,
    pad: u32,
}

impl Rseq {
    /// A registration of `size` bytes at `address`.
    #[must_use]
    pub fn new(address: u64, size: u32, signature: u32) -> Rseq {
        Rseq {
            address,
            size,
            signature,
            flags: 0,
            pad: 0,
        }
    }
}

/// The thread's restartable-sequence registration.
///
/// # Errors
/// `EIO` where the kernel has no rseq.
pub fn rseq(tid: Tid) -> io::Result<Rseq> {
    let mut configuration = Rseq::default();
    ptrace(
        PTRACE_GET_RSEQ_CONFIGURATION,
        tid,
        size_of::<Rseq>(),
        &raw mut configuration as usize,
    )?;
    Ok(configuration)
}

/// The thread's robust futex list: address of its head, and length. See get_robust_list(2).
///
/// # Errors
/// `ESRCH` when the thread is gone.
pub fn robust_list(tid: Tid) -> io::Result<(u64, u64)> {
    let (mut head, mut length) = (0u64, 0u64);
    // SAFETY: get_robust_list writes one pointer and one size, both 8 bytes.
    let result = unsafe { libc::syscall(libc::SYS_get_robust_list, tid, &raw mut head, &raw mut length) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok((head, length))
}

/// The signal that is about to be delivered to a thread that stopped for it.
///
/// # Errors
/// `ESRCH` when the thread is gone.
pub fn signal_info(tid: Tid) -> io::Result<SignalInfo> {
    let mut info = SignalInfo([0; siginfo::SIZE]);
    ptrace(
        libc::PTRACE_GETSIGINFO as c_int,
        tid,
        0,
        info.0.as_mut_ptr() as usize,
    )?;
    Ok(info)
}

/// Whether a thread that its tracer had stopped was killed since. It is gone, exiting, or stopped at its exit
/// (`PTRACE_EVENT_EXIT`), where its registers can be read again.
#[must_use]
pub fn stands_no_longer(tid: Tid) -> bool {
    match signal_info(tid) {
        Ok(info) => info.code() >> 8 == EVENT_EXIT,
        Err(error) => error.raw_os_error() == Some(libc::ESRCH),
    }
}

/// Sets what a thread stopped for: a signal that it is let go with goes on as this one, if it has the same number.
///
/// # Errors
/// `ESRCH` when it is not stopped or gone.
pub fn set_signal_info(tid: Tid, info: &SignalInfo) -> io::Result<()> {
    ptrace(libc::PTRACE_SETSIGINFO as c_int, tid, 0, info.0.as_ptr() as usize).map(drop)
}

/// The signals that wait to be delivered, to the thread or (`shared`) to the whole process.
///
/// # Errors
/// `ESRCH` when the thread is gone.
pub fn pending_signals(tid: Tid, shared: bool) -> io::Result<Vec<SignalInfo>> {
    const SHARED_QUEUE: u32 = 1;
    const MOST: usize = 32;
    let mut pending = Vec::new();
    loop {
        let mut batch = [SignalInfo([0; siginfo::SIZE]); MOST];
        let arguments = libc::ptrace_peeksiginfo_args {
            off: pending.len() as u64,
            flags: if shared { SHARED_QUEUE } else { 0 },
            nr: MOST as i32,
        };
        let got = ptrace(
            libc::PTRACE_PEEKSIGINFO as c_int,
            tid,
            &raw const arguments as usize,
            batch.as_mut_ptr() as usize,
        )? as usize;
        pending.extend_from_slice(&batch[..got]);
        if got < MOST {
            return Ok(pending);
        }
    }
}

/// Words in [`Registers`].
const WORDS: usize = size_of::<Registers>() / 8;

/// The registers as words, in the order of `struct user_regs_struct`.
#[must_use]
pub fn words(registers: &Registers) -> [u64; WORDS] {
    // SAFETY: user_regs_struct is 27 unsigned longs and no padding.
    unsafe { std::mem::transmute::<Registers, [u64; WORDS]>(*registers) }
}

/// Registers from such words.
#[must_use]
pub fn from_words(words: &[u64; WORDS]) -> Registers {
    // SAFETY: user_regs_struct is 27 unsigned longs without padding, for which every bit pattern is valid.
    unsafe { std::mem::transmute::<[u64; WORDS], Registers>(*words) }
}
