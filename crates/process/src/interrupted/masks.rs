//! Calls that wait with a signal mask of their own: sigsuspend(2), ppoll(2) and their like.
//!
//! Such a call blocks other signals while it waits than its thread does. A stop takes the thread out of it, and until
//! the call is begun again only the thread's own mask is in force.

use twinpage_os::remote::Process;
use twinpage_os::trace::Registers;

/// The signals that the call in `orig_rax` blocks while it waits, bit `n - 1` for signal `n`; `None`: it has no mask of
/// its own.
pub(super) fn of_call(registers: &Registers, process: &Process) -> Option<u64> {
    let r = registers;
    // A mask that cannot be read is refused by the kernel too.
    let word = |address: u64| process.read_u64(address).ok();
    let given = |address: u64| Some(address).filter(|address| *address != 0);
    let address = match r.orig_rax as i64 {
        libc::SYS_rt_sigsuspend => given(r.rdi),
        libc::SYS_ppoll => given(r.r10),
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => given(r.r8),
        // The address of the mask's address and length.
        libc::SYS_pselect6 => given(r.r9).and_then(word).and_then(given),
        _ => None,
    };
    let never_blocked = 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);
    address.and_then(word).map(|mask| mask & !never_blocked)
}
