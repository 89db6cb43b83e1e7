//! What each thread is made of beside memory.

use crate::credentials::Credentials;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use twinpage_os::inject::{self, Call, ROOM};
use twinpage_os::proc_file;
use twinpage_os::remote::{self, Process, Scheduling};
use twinpage_os::siginfo::SignalInfo;
use twinpage_os::stat::Stat;
use twinpage_os::trace::{self, Registers, Rseq, Tid};
use twinpage_os::user_signals;

/// State of a thread that changes with every instruction. Kept in the context as fixed-size bytes,
/// so that only what changed is written.
#[derive(Clone, Debug)]
pub struct ThreadRegisters {
    /// Its id.
    pub tid: Tid,
    /// General registers.
    pub registers: Registers,
    /// Blocked signals.
    pub mask: u64,
    /// Robust futex list: head and length.
    pub robust: (u64, u64),
    /// Restartable sequences.
    pub rseq: Rseq,
    /// Extended registers.
    pub extended: Vec<u8>,
}

/// State of a thread that changes only by a watched call; an alternate stack with [`SS_AUTODISARM`] also by a delivery.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ThreadState {
    /// Its id.
    pub tid: Tid,
    /// Its name: up to 15 bytes, proc_pid_comm(5).
    pub name: Vec<u8>,
    /// Alternate signal stack: address, flags, size.
    pub alternate_stack: (u64, u32, u64),
    /// Address cleared and woken when the thread ends.
    pub clear_tid: u64,
    /// `SCHED_*`, priority, niceness, processors.
    pub scheduling: (i32, i32, i32, [u64; 16]),
    /// By how much its timers may be late, `PR_SET_TIMERSLACK`; 0: not kept, the usual.
    pub timer_slack_ns: u64,
    /// The signal it gets when its parent dies, `PR_SET_PDEATHSIG`; 0: none.
    pub parent_death_signal: i32,
    /// Its user, groups and capabilities, where they are not those of the user who resumes it. Behind the others
    /// ([`crate::context`], version 7).
    #[serde(skip)]
    pub credentials: Option<Credentials>,
    /// Whether it keeps its capabilities when it becomes another user, `PR_SET_KEEPCAPS`. Behind the others too
    /// (version 8).
    #[serde(skip)]
    pub keeps_capabilities: bool,
}

impl ThreadState {
    /// Whether a delivery disarms its alternate stack, or may have done so.
    pub(crate) fn disarms(&self) -> bool {
        self.alternate_stack.1 & SS_AUTODISARM != 0
    }

    /// Its alternate stack, as sigaltstack(2) said it.
    pub(crate) fn told_stack(&self) -> (u64, u32, u64) {
        match self.alternate_stack {
            (address, DISARMED, size) => (address, libc::SS_DISABLE as u32, size),
            told => told,
        }
    }
}

/// Signals that wait for a thread, or for the process when `tid` is 0.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pending {
    /// The thread; 0: any.
    pub tid: Tid,
    /// The signal with all that came with it.
    #[serde(with = "counted_bytes")]
    pub info: SignalInfo,
}

/// A signal in a context: the count of its bytes, which is always the same, and they.
mod counted_bytes {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use twinpage_os::siginfo::SignalInfo;

    pub(super) fn serialize<S: Serializer>(info: &SignalInfo, into: S) -> Result<S::Ok, S::Error> {
        info.0[..].serialize(into)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SignalInfo, D::Error> {
        let bytes = Vec::<u8>::deserialize(from)?;
        let whole = bytes.try_into();
        whole.map(SignalInfo).map_err(|bytes: Vec<u8>| {
            D::Error::custom(format!("a waiting signal has {} bytes, not 128", bytes.len()))
        })
    }
}

/// Whether a process outside of the program's namespaces sent the signal.
#[must_use]
pub fn is_from_outside(info: &SignalInfo) -> bool {
    info.sender() == Some(0)
}

/// Whether the signal asks twinpage to suspend the program, whichever process of the tree it meets: one from outside (a
/// service manager, and a system that shuts down, signal all processes), or `^C`.
#[must_use]
pub fn asks_to_suspend(info: &SignalInfo) -> bool {
    user_signals::suspends(info.signal()) && (is_from_outside(info) || is_interrupt(info))
}

/// Whether a terminal made it of `^C`.
#[must_use]
pub fn is_interrupt(info: &SignalInfo) -> bool {
    const BY_THE_KERNEL: i32 = 0x80; // SI_KERNEL
    info.signal() == libc::SIGINT && info.code() == BY_THE_KERNEL
}

/// Whether twinpage passed the signal on: it is process 1 of the program's namespaces.
#[must_use]
pub fn is_passed_on(info: &SignalInfo) -> bool {
    info.sender() == Some(1)
}

/// Whether the signal that ends a stop waits: the process is not stopped any more, though its threads stand where it
/// had stopped them.
#[must_use]
pub fn is_to_continue(pending: &[Pending]) -> bool {
    pending
        .iter()
        .any(|pending| pending.info.signal() == libc::SIGCONT)
}

/// Largest extended state of any x86-64 processor of today.
pub const MOST_EXTENDED: usize = 16 << 10;

/// Reads the moving state of a stopped thread.
///
/// # Errors
/// `ESRCH` when it died.
pub fn moving(tid: Tid) -> Result<ThreadRegisters> {
    let look = |source| Error::target(format!("cannot read the registers of thread {tid}"), source);
    let mut extended = vec![0; MOST_EXTENDED];
    let length = trace::extended_state(tid, &mut extended).map_err(look)?;
    extended.truncate(length);
    Ok(ThreadRegisters {
        tid,
        registers: trace::registers(tid).map_err(look)?,
        mask: trace::signal_mask(tid).map_err(look)?,
        robust: trace::robust_list(tid).map_err(look)?,
        rseq: trace::rseq(tid).map_err(look)?,
        extended,
    })
}

/// Waits until a thread that was let go into its end is a zombie: it has written what the kernel writes to
/// the program's memory for it, set_tid_address(2), get_robust_list(2). Where it ends because another thread executes a
/// program, that one has its number at once, and is found stopped: execve(2), ptrace(2).
///
/// # Errors
/// Never in practice.
pub fn wait_for_end(tid: Tid) -> Result<()> {
    loop {
        match Stat::of(tid) {
            Ok(stat) if matches!(stat.state(), Some('Z' | 'X')) => return Ok(()),
            Ok(_) if trace::has_news(tid) => return Ok(()),
            Ok(_) => std::thread::sleep(std::time::Duration::from_micros(50)),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Error::target(format!("cannot look at thread {tid}"), error)),
        }
    }
}

/// What the kernel says of an alternate stack while a handler runs on one with [`SS_AUTODISARM`]: there is none.
const DISARMED: u32 = libc::SS_DISABLE as u32 | SS_AUTODISARM;

/// Flag of an alternate stack that a delivery disarms, and the handler's return arms: sigaltstack(2).
pub const SS_AUTODISARM: u32 = 1 << 31;

/// Reads the steady state of a stopped thread. Where a delivery may disarm its alternate stack (`disarms`), one that has
/// none is marked, so that a resume knows.
///
/// # Errors
/// `ESRCH` when it died.
pub fn steady(process: &Process, tid: Tid, disarms: bool) -> Result<ThreadState> {
    let look = |source| Error::target(format!("cannot look at thread {tid}"), source);
    let mut calls = [
        Call::new(libc::SYS_sigaltstack, &[0, ROOM]),
        Call::new(libc::SYS_prctl, &[libc::PR_GET_TID_ADDRESS as u64, ROOM + 32]),
        Call::new(libc::SYS_prctl, &[libc::PR_GET_PDEATHSIG as u64, ROOM + 40]),
        Call::new(libc::SYS_prctl, &[libc::PR_GET_TIMERSLACK as u64]),
        Call::new(libc::SYS_prctl, &[libc::PR_GET_KEEPCAPS as u64]),
    ];
    inject::run(process, tid, &mut calls).map_err(look)?;
    for call in &calls {
        call.result().map_err(|source| {
            Error::target(
                "cannot ask for a thread's exit address (the kernel needs CONFIG_CHECKPOINT_RESTORE)",
                source,
            )
        })?;
    }
    let mut bytes = [0; 48];
    process.read(ROOM, &mut bytes).map_err(look)?;
    let word = |at: usize| u64::from_le_bytes(bytes[at..][..8].try_into().expect("eight bytes"));
    let mut name = proc_file::read(format!("/proc/{}/task/{tid}/comm", process.pid())).map_err(look)?;
    name.pop(); // the line's end, which is not the name's
    let Scheduling {
        policy,
        priority,
        nice,
        affinity,
    } = remote::scheduling(tid).map_err(look)?;
    let mut stack_flags = word(8) as u32 & !(libc::SS_ONSTACK as u32);
    if disarms && stack_flags == libc::SS_DISABLE as u32 {
        stack_flags = DISARMED;
    }
    Ok(ThreadState {
        tid,
        name,
        alternate_stack: (word(0), stack_flags, word(16)),
        clear_tid: word(32),
        scheduling: (policy, priority, nice, affinity),
        timer_slack_ns: calls[3].result().unwrap_or(0),
        parent_death_signal: word(40) as i32,
        credentials: Credentials::to_keep(tid)?,
        keeps_capabilities: calls[4].result().is_ok_and(|kept| kept == 1),
    })
}

/// The signals that wait for the stopped threads and for their process.
///
/// # Errors
/// `ESRCH` when a thread died.
pub fn pending(tids: impl IntoIterator<Item = Tid>) -> Result<Vec<Pending>> {
    let look = |source| Error::target("cannot read waiting signals", source);
    // One that asks twinpage to suspend the program is not the program's: it would suspend a resume again.
    let is_own = |info: &SignalInfo| !asks_to_suspend(info);
    let keep = |tid: Tid, infos: Vec<SignalInfo>| {
        let own = infos.into_iter().filter(is_own);
        own.map(move |info| Pending { tid, info })
    };
    let mut all = Vec::new();
    for (index, tid) in tids.into_iter().enumerate() {
        if index == 0 {
            all.extend(keep(0, trace::pending_signals(tid, true).map_err(look)?));
        }
        all.extend(keep(tid, trace::pending_signals(tid, false).map_err(look)?));
    }
    Ok(all)
}
