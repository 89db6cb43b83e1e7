//! Every system call, and what it means for a checkpoint.
//!
//! * A call is **free** when it changes nothing a checkpoint must know of beyond what each stop
//!   looks at anyway (memory, registers, file offsets, pipe contents).
//! * A call is **watched** when it changes something that is looked up again only after it ran, or
//!   when its arguments decide whether it can be honoured.
//! * A call is **refused** when it makes state that cannot be captured: it fails with an error the
//!   program knows how to handle, and the user is told which call and what to do.
//! * A call that is not in the table is refused: what is not understood is never let through.
//!
//! The table is the whole policy: the seccomp filter and `twinpage run --explain` are made from it.

use crate::error::{Error, Result};
use crate::sockets::Replies;
use twinpage_os::notice;
use twinpage_os::seccomp::{Argument, Filter, Rule};

/// What the tracer does when a watched call is about to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watch {
    /// The actions of all signals are read again at the next stop, as that of SIGCHLD was set. Of the others each stop
    /// learns by itself: there are programs that set one for each of their steps, as shells do for each command, or all of
    /// them, as posix_spawn(3) does. And a signal that came while the call stands would find the new handler before the
    /// program has noted it.
    Actions,
    /// The thread's alternate stack and exit address are read again.
    Thread,
    /// The break is read again.
    Break,
    /// The file mode mask is read again.
    Umask,
    /// The working directory is read again.
    Directory,
    /// Interval timers are read again, now and while one is set.
    IntervalTimers,
    /// POSIX timers are read again, now and while one exists.
    Timers,
    /// Affinity, scheduling, niceness and limits are read again.
    Limits,
    /// The processors of its threads are those that it chose.
    Processors,
    /// Membarrier registrations are read again.
    Membarrier,
    /// A descriptor is made, or changes: it is looked at again.
    Descriptors,
    /// A descriptor goes away: ours of the same file must go first.
    Close,
    /// A file may be made or emptied; the new descriptor is looked at.
    Open,
    /// Bytes go to a descriptor: if it is a file, what they overwrite is kept.
    Write,
    /// The offset of a descriptor moves: the file behind it no longer only grows.
    Seek,
    /// A name, mode or length in the file system changes: the old one is kept.
    Change,
    /// Pages may be dropped, or advice stays on them.
    Advise,
    /// A mapping other than plain private memory.
    Map,
    /// A mapping that moves, shrinks or grows: pages may be gone in what stays mapped.
    Remap,
    /// A new thread, or a new process.
    Clone,
    /// A wait with a time limit, which the kernel does not begin again after a stop.
    Wait,
    /// The program replaces itself.
    Exec,
    /// A SIGKILL, perhaps to the program itself.
    Kill,
    /// Options that change kernel state.
    Control,
    /// A pair of sockets.
    Pair,
    /// A message that leaves through a socket.
    Send,
    /// It returns when something is durable.
    Sync,
    /// An option of a socket, or its half-close.
    Socket,
    /// A socket with a name, which may lead outside.
    RealStreams,
    /// What a socket says of its port, which is set for listeners here, or of its peer.
    SocketQuery,
    /// Users, groups and capabilities.
    Identity,
    /// System V shared memory.
    Segments,
    /// System V semaphores and message queues: there may be some from now on; what is undone at an end is counted.
    Ipc,
    /// A file is watched: its name is kept.
    Inotify,
    /// A descriptor of a process is made.
    Pidfd,
    /// It would succeed and change nothing that a program can notice: it succeeds at once.
    Nothing,
}

impl Watch {
    /// Whether it has the program itself look at something of its own again, and nothing else: what such a call changes
    /// of a descendant is looked at when that is captured.
    #[must_use]
    pub const fn changes_the_first_alone(self) -> bool {
        match self {
            Watch::Actions
            | Watch::Thread
            | Watch::Break
            | Watch::Umask
            | Watch::Directory
            | Watch::IntervalTimers
            | Watch::Limits
            | Watch::Processors
            | Watch::Membarrier
            | Watch::Descriptors
            | Watch::Close
            | Watch::Pair
            | Watch::Seek
            | Watch::Identity => true,
            Watch::Timers
            | Watch::Open
            | Watch::Write
            | Watch::Change
            | Watch::Advise
            | Watch::Map
            | Watch::Remap
            | Watch::Clone
            | Watch::Wait
            | Watch::Exec
            | Watch::Kill
            | Watch::Control
            | Watch::Send
            | Watch::Sync
            | Watch::Socket
            | Watch::RealStreams
            | Watch::SocketQuery
            | Watch::Segments
            | Watch::Ipc
            | Watch::Inotify
            | Watch::Pidfd
            | Watch::Nothing => false,
        }
    }

    /// Whether it leaves the descriptors of its process as they are, and makes no other process that has them too.
    #[must_use]
    pub const fn leaves_descriptors(self) -> bool {
        matches!(
            self,
            Watch::Actions
                | Watch::Advise
                | Watch::Break
                | Watch::Change
                | Watch::Directory
                | Watch::IntervalTimers
                | Watch::Ipc
                | Watch::Kill
                | Watch::Limits
                | Watch::Membarrier
                | Watch::Nothing
                | Watch::Processors
                | Watch::Remap
                | Watch::Seek
                | Watch::Sync
                | Watch::Thread
                | Watch::Timers
                | Watch::Umask
                | Watch::Wait
                | Watch::Write
        )
    }
}

/// The policy for one call.
#[derive(Clone, Copy, Debug)]
pub enum Policy {
    /// Runs freely.
    Free,
    /// Runs freely when all the arguments are so (any one of the lists); is watched otherwise.
    FreeWhen(&'static [&'static [Argument]], Watch),
    /// Stops for the tracer, which lets it run or refuses it.
    Watched(Watch),
    /// Fails with `errno`; the reason says what to do.
    Refused(Refusal),
    /// Is refused so to the program itself, and runs in its descendants: what it makes ends with them, and a checkpoint
    /// that cannot hold it waits for that.
    RefusedToFirst(Refusal),
}

/// Why a call is not honoured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The error the program sees.
    pub errno: i32,
    /// What cannot be captured, and what to do.
    pub why: &'static str,
    /// Programs usually go on without it by themselves.
    pub is_optional: bool,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The name, as in the manual.
    pub name: &'static str,
    /// The number on x86-64.
    pub number: i64,
    /// What happens.
    pub policy: Policy,
}

impl Call {
    /// Whether it is a wait whose beginning is known when it has a limit.
    #[must_use]
    pub fn is_watched_wait(&self) -> bool {
        matches!(
            self.policy,
            Policy::FreeWhen(_, Watch::Wait) | Policy::Watched(Watch::Ipc)
        )
    }
}

/// The row of a call, if it is known.
#[must_use]
pub fn call(number: i64) -> Option<&'static Call> {
    ROWS.get(usize::try_from(number).ok()?).copied().flatten()
}

/// The rows of [`CALLS`] by number: they are asked for at each watched call.
static ROWS: [Option<&Call>; 512] = {
    let mut rows = [None; 512];
    let mut at = 0;
    while at < CALLS.len() {
        rows[CALLS[at].number as usize] = Some(&CALLS[at]);
        at += 1;
    }
    rows
};

/// What a program may do freely as well while no write of its is looked at.
const WRITES: [(i64, &[Argument]); 3] = [
    (libc::SYS_write, &[]),
    (libc::SYS_writev, &[]),
    (
        libc::SYS_sendmsg,
        &[bits(2, (libc::MSG_OOB | libc::MSG_FASTOPEN) as u64, 0)],
    ),
];

/// The calls that never stop while a program writes freely: those that never stop, and the writes.
#[must_use]
pub fn free_with_writes(replies: Replies) -> Vec<Rule> {
    let writes = WRITES.map(|(number, when)| Rule {
        number,
        when: when.to_vec(),
    });
    [free_calls(replies), writes.into()].concat()
}

/// The calls that never stop, with what must hold of their arguments: the seccomp filter. Where replies are held, what
/// sends does; where they are synced, what makes something durable.
#[must_use]
pub fn free_calls(replies: Replies) -> Vec<Rule> {
    let mut free = Vec::new();
    for call in CALLS {
        match call.policy {
            Policy::FreeWhen(_, Watch::Send) if replies == Replies::Held => {}
            Policy::FreeWhen(_, Watch::Sync) if replies == Replies::Synced => {}
            Policy::Free => free.push(Rule {
                number: call.number,
                when: Vec::new(),
            }),
            Policy::FreeWhen(any, _) => {
                free.extend(any.iter().map(|all| Rule {
                    number: call.number,
                    when: all.to_vec(),
                }));
            }
            Policy::Watched(_) | Policy::Refused(_) | Policy::RefusedToFirst(_) => {}
        }
    }
    free
}

/// What moves the offset of a descriptor, and does not only ask for it: lseek(2).
#[must_use]
pub fn seeks(fd: i32) -> [Rule; 2] {
    let moves = [is_not(1, 0), is_not(2, libc::SEEK_CUR as u64)];
    moves.map(|moves| Rule {
        number: libc::SYS_lseek,
        when: vec![bits(0, INT, fd as u64 & INT), moves],
    })
}

/// The filter that lets these calls run without a stop.
///
/// # Errors
/// When the table makes no filter: a fault of ours.
pub fn filter(free: &[Rule]) -> Result<Filter> {
    Filter::new(free).map_err(no_filter)
}

/// The filter under which these calls stop as well.
///
/// # Errors
/// The same.
pub fn watching(watched: &[Rule]) -> Result<Filter> {
    Filter::watching(watched).map_err(no_filter)
}

fn no_filter(error: std::io::Error) -> Error {
    Error::Internal(format!("the system call table makes no filter: {error}"))
}

const fn is(index: u8, value: u64) -> Argument {
    Argument::Is { index, value }
}

const fn is_not(index: u8, value: u64) -> Argument {
    Argument::IsNot { index, value }
}

const fn bits(index: u8, mask: u64, value: u64) -> Argument {
    Argument::Bits { index, mask, value }
}

const fn refuse(errno: i32, why: &'static str) -> Policy {
    Policy::Refused(Refusal {
        errno,
        why,
        is_optional: false,
    })
}

/// Refused, where programs usually go on without it by themselves.
const fn do_without(errno: i32, why: &'static str) -> Policy {
    Policy::Refused(Refusal {
        errno,
        why,
        is_optional: true,
    })
}

/// The same, to the program itself only.
const fn not_in_first(errno: i32, why: &'static str, is_optional: bool) -> Policy {
    Policy::RefusedToFirst(Refusal {
        errno,
        why,
        is_optional,
    })
}

/// The low 32 bits of an argument the kernel takes as an int.
const INT: u64 = 0xffff_ffff;

const SCATTERED: Policy = refuse(
    libc::ENOSYS,
    "a mapping whose pages are out of order is not captured; map each part with mmap",
);
const SECRETS: Policy = do_without(
    libc::ENOSYS,
    "memory that the kernel hides (memfd_secret) cannot be read, and so not captured; memfd_create makes memory that is",
);
const MESSAGES: Policy = refuse(
    libc::ENOSYS,
    "POSIX message queues are not captured; those of System V are, and so are pipes and sockets among the program's processes",
);
pub(crate) const OUTSIDE: &str = "the program was started without sockets to other programs (--replies none), as the other side of one cannot be taken back to a checkpoint; with --replies held it may have them, and finds its connections reset after a resume";
const SEGMENTS: Policy = Watched(Watch::Segments);
const SOCKETS: Policy = Watched(Watch::RealStreams);
pub(crate) const IDENTITY: Refusal = Refusal {
    errno: libc::EPERM,
    why: "a change of user is captured only where root runs twinpage, with more users than itself to become; start twinpage as that user instead",
    is_optional: false,
};
const SESSION: Policy = Policy::RefusedToFirst(Refusal {
    errno: libc::EPERM,
    why: "the session of the program itself is twinpage's, and its terminal; let a process that it starts make a session",
    is_optional: false,
});
const KEYRING: Policy = refuse(
    libc::EPERM,
    "keys that the kernel keeps live outside the program; give them in a file or in the environment",
);
const IDENTITIES: Policy = Watched(Watch::Identity);
const SYSTEM: Policy = refuse(
    libc::EPERM,
    "a change of the system, or of the namespaces or the root directory of a process, cannot be taken back",
);
const RINGS: Policy = do_without(
    libc::ENOSYS,
    "the kernel works on the program's memory behind its back; most programs fall back to ordinary reads and writes by themselves",
);
const WATCHERS: Policy = not_in_first(
    libc::ENOSYS,
    "this kind of descriptor is not captured; most programs look now and then instead",
    true,
);
const TRACING: Policy = refuse(
    libc::EPERM,
    "a process has one tracer, and that is twinpage: trace the program outside, or look at it from there",
);
const MEMORY_OF_OTHERS: Policy = refuse(
    libc::EPERM,
    "what one process does to the memory or the descriptors of another is not followed; pass it through a pipe, a socket or shared memory",
);
const FAULTS: Policy = refuse(
    libc::EPERM,
    "page faults that a program handles itself (userfaultfd) are not captured; a handler of SIGSEGV is",
);
const EVENTS: Policy = refuse(
    libc::EPERM,
    "counters and programs in the kernel (perf_event_open, bpf) are not captured; measure the program from outside, or without twinpage",
);
const SANDBOXES: Policy = not_in_first(
    libc::EPERM,
    "a sandbox (Landlock) is not captured of the program itself; a process that it starts may enter one, or start twinpage inside",
    false,
);
const FILTERS: Policy = refuse(
    libc::EPERM,
    "filters of system calls (seccomp) are not captured of the program itself; a process that it starts may have one",
);
const LABELS: Policy = refuse(
    libc::EPERM,
    "attributes of security modules are not captured; set them before twinpage starts the program",
);
/// In descendants too: node asks for a key wherever it starts, and goes on with none.
const KEYS: Policy = do_without(
    libc::ENOSYS,
    "memory protection keys and shadow stacks are not captured; the program can go on without",
);
const LOCAL_SEGMENTS: Policy = not_in_first(
    libc::ENOSYS,
    "segments of its own (modify_ldt, set_thread_area) are not captured; the program can go on without",
    true,
);
/// Where pages lie, and whether they may be swapped out, changes nothing that a program computes.
const PLACEMENT: Policy = Watched(Watch::Nothing);
const PRIORITY: Policy = not_in_first(
    libc::EPERM,
    "the priority of input and output is not captured; set it for twinpage with ionice, and the program inherits it",
    true,
);
const PIPES: Policy = do_without(
    libc::EINVAL,
    "moving pages between pipes is not captured; most programs fall back to read and write by themselves",
);

macro_rules! calls {
    ($($name:ident: $policy:expr,)*) => {
        &[$(Call { name: stringify!($name), number: syscalls::Sysno::$name as i64, policy: $policy },)*]
    };
}

use Policy::{Free, FreeWhen, Watched};

/// Private memory that is neither huge nor growing down.
const PLAIN_MAP: &[&[Argument]] = &[&[bits(
    3,
    0x0f | (libc::MAP_HUGETLB | libc::MAP_GROWSDOWN) as u64,
    libc::MAP_PRIVATE as u64,
)]];

/// Any signal but SIGKILL, 0b1001, as argument `index`: a bit that it has is missing, or one that it has
/// not is there. The kernel takes the lower half of the argument.
macro_rules! but_sigkill {
    ($index:expr) => {
        &[
            &[bits($index, 1, 0)],
            &[bits($index, 2, 2)],
            &[bits($index, 4, 4)],
            &[bits($index, 8, 0)],
            &[bits($index, 16, 16)],
            &[bits($index, 32, 32)],
            &[bits($index, 64, 64)],
        ]
    };
}

/// Questions, and the actions that each stop asks for: all but that of SIGCHLD, 0b10001, of which the default has flags
/// too.
const ASKED_ACTIONS: &[&[Argument]] = &[
    &[is(1, 0)],
    &[bits(0, 1, 0)],
    &[bits(0, 2, 2)],
    &[bits(0, 4, 4)],
    &[bits(0, 8, 8)],
    &[bits(0, 16, 0)],
    &[bits(0, 32, 32)],
    &[bits(0, 64, 64)],
];

const SAFE_ADVICE: &[&[Argument]] = &[
    &[bits(2, INT, libc::MADV_WILLNEED as u64)],
    &[bits(2, INT, libc::MADV_FREE as u64)],
    &[bits(2, INT, libc::MADV_COLD as u64)],
    &[bits(2, INT, libc::MADV_PAGEOUT as u64)],
    &[bits(2, INT, libc::MADV_POPULATE_READ as u64)],
    &[bits(2, INT, libc::MADV_POPULATE_WRITE as u64)],
    &[bits(2, INT, libc::MADV_COLLAPSE as u64)],
];

/// What every thread shares with its process.
pub const THREAD_FLAGS: u64 = (libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM) as u64;

/// They are registers: arch_prctl(2), `ARCH_SET_GS` to `ARCH_GET_GS`.
const SEGMENT_BASES: &[&[Argument]] = &[
    &[bits(0, INT, 0x1001)],
    &[bits(0, INT, 0x1002)],
    &[bits(0, INT, 0x1003)],
    &[bits(0, INT, 0x1004)],
];

const SAFE_CONTROL: &[&[Argument]] = &[
    &[bits(0, INT, libc::PR_GET_NAME as u64)],
    &[bits(0, INT, libc::PR_GET_DUMPABLE as u64)],
    &[bits(0, INT, libc::PR_GET_PDEATHSIG as u64)],
    &[bits(0, INT, libc::PR_GET_NO_NEW_PRIVS as u64)],
    &[bits(0, INT, libc::PR_SET_NO_NEW_PRIVS as u64)],
    &[bits(0, INT, libc::PR_GET_SECCOMP as u64)],
    &[bits(0, INT, libc::PR_GET_TIMERSLACK as u64)],
    &[bits(0, INT, libc::PR_GET_KEEPCAPS as u64)],
    &[bits(0, INT, libc::PR_GET_SECUREBITS as u64)],
    &[bits(0, INT, libc::PR_CAPBSET_READ as u64)],
    &[
        bits(0, INT, libc::PR_CAP_AMBIENT as u64),
        bits(1, u64::MAX, libc::PR_CAP_AMBIENT_IS_SET as u64),
    ],
    &[bits(0, INT, libc::PR_SET_VMA as u64)],
    &[bits(0, INT, libc::PR_GET_THP_DISABLE as u64)],
    &[bits(0, INT, libc::PR_GET_TSC as u64)],
    &[bits(0, INT, libc::PR_GET_SPECULATION_CTRL as u64)],
    &[bits(0, INT, libc::PR_GET_CHILD_SUBREAPER as u64)],
    &[bits(0, INT, libc::PR_GET_TID_ADDRESS as u64)],
];

const SAFE_IOCTL: &[&[Argument]] = &[
    &[bits(1, INT, libc::TCGETS)],
    &[bits(1, INT, libc::TIOCGWINSZ)],
    &[bits(1, INT, libc::TIOCGPGRP)],
    &[bits(1, INT, libc::FIONREAD)],
    &[bits(1, INT, libc::TCSETS)],
    &[bits(1, INT, libc::TCSETSW)],
    &[bits(1, INT, libc::TCSETSF)],
    &[bits(1, INT, libc::TCFLSH)],
    &[bits(1, INT, libc::TIOCOUTQ)],
];

// fcntl(2); not in the C library's headers for Rust.
const F_DUPFD_QUERY: u64 = 1024 + 3;
const F_GET_RW_HINT: u64 = 1024 + 11;

/// All but two options: socket(7).
const SAFE_GETSOCKOPT: &[&[Argument]] = &[&[
    is_not(2, libc::SO_REUSEADDR as u64),
    is_not(2, SO_PEERPIDFD as u64),
]];
/// It makes a descriptor of the process at the other end.
pub(crate) const SO_PEERPIDFD: i32 = 77;

const SAFE_FCNTL: &[&[Argument]] = &[
    &[bits(1, INT, libc::F_GETFD as u64)],
    &[bits(1, INT, libc::F_GETFL as u64)],
    &[bits(1, INT, libc::F_GETLK as u64)],
    &[bits(1, INT, libc::F_OFD_GETLK as u64)],
    &[bits(1, INT, libc::F_GETLEASE as u64)],
    &[bits(1, INT, notice::F_GETSIG as u64)],
    &[bits(1, INT, notice::F_GETOWN_EX as u64)],
    &[bits(1, INT, F_DUPFD_QUERY)],
    &[bits(1, INT, F_GET_RW_HINT)],
    &[bits(1, INT, libc::F_GETOWN as u64)],
    &[bits(1, INT, libc::F_GETPIPE_SZ as u64)],
    &[bits(1, INT, libc::F_GET_SEALS as u64)],
];

/// A poll that waits for ever, or not at all.
const UNLIMITED: &[&[Argument]] = &[&[bits(3, INT, INT)], &[bits(3, INT, 0)]];

/// Free, unless the program waits for its effect to be durable, or another filter stops it.
const ALWAYS: &[&[Argument]] = &[&[]];
const SYNC: Policy = FreeWhen(ALWAYS, Watch::Sync);

/// A message of some bytes to the peer, and nothing else with it.
const PLAIN_SEND: &[&[Argument]] = &[&[is_not(2, 0), bits(3, libc::MSG_OOB as u64, 0), is(4, 0)]];

/// Every call of Linux on x86-64, by what it touches.
pub const CALLS: &[Call] = calls! {
    // Memory: written pages are tracked, layouts compared at each stop.
    mmap: FreeWhen(PLAIN_MAP, Watch::Map),
    munmap: Free, mprotect: Free, mremap: Watched(Watch::Remap), mincore: Free, msync: SYNC, cachestat: Free,
    madvise: FreeWhen(SAFE_ADVICE, Watch::Advise),
    brk: FreeWhen(&[&[is(0, 0)]], Watch::Break),
    remap_file_pages: SCATTERED, shmget: SEGMENTS, shmat: SEGMENTS, shmdt: SEGMENTS, shmctl: SEGMENTS,
    memfd_create: Watched(Watch::Control), memfd_secret: SECRETS, userfaultfd: FAULTS, process_madvise: MEMORY_OF_OTHERS, process_mrelease: MEMORY_OF_OTHERS,
    mlock: PLACEMENT, mlock2: PLACEMENT, mlockall: PLACEMENT, munlock: PLACEMENT, munlockall: PLACEMENT,
    pkey_mprotect: KEYS, pkey_alloc: KEYS, pkey_free: KEYS, map_shadow_stack: KEYS, mseal: KEYS,
    get_mempolicy: Free, set_mempolicy: PLACEMENT, mbind: PLACEMENT, migrate_pages: PLACEMENT, set_mempolicy_home_node: PLACEMENT,
    move_pages: FreeWhen(&[&[is(3, 0)]], Watch::Nothing),

    // Reading, waiting and asking.
    read: Free, readv: Free, pread64: Free, preadv: Free, preadv2: Free, lseek: FreeWhen(ALWAYS, Watch::Seek), getdents: Free, getdents64: Free,
    poll: Free, ppoll: Free, select: Free, pselect6: Free, epoll_wait: FreeWhen(UNLIMITED, Watch::Wait), epoll_pwait: FreeWhen(UNLIMITED, Watch::Wait),
    epoll_pwait2: FreeWhen(&[&[is(3, 0)]], Watch::Wait),
    stat: Free, lstat: Free, fstat: Free, newfstatat: Free, statx: Free, statfs: Free, fstatfs: Free, access: Free,
    faccessat: Free, faccessat2: Free, readlink: Free, readlinkat: Free, getcwd: Free, readahead: Free, fadvise64: Free,
    getxattr: Free, lgetxattr: Free, fgetxattr: Free, listxattr: Free, llistxattr: Free, flistxattr: Free, name_to_handle_at: Free,
    fsync: SYNC, fdatasync: SYNC, sync: SYNC, syncfs: SYNC, sync_file_range: SYNC, ustat: Free, statmount: Free, listmount: Free,
    getpid: Free, gettid: Free, getppid: Free, getuid: Free, geteuid: Free, getgid: Free, getegid: Free, getresuid: Free,
    getresgid: Free, getgroups: Free, getpgrp: Free, getpgid: Free, getsid: Free, capget: Free, uname: Free, sysinfo: Free,
    getcpu: Free, times: Free, getrusage: Free, getrlimit: Free, sysfs: Free, getpriority: Free, ioprio_get: Free,
    gettimeofday: Free, time: Free, clock_gettime: Free, clock_getres: Free, getrandom: Free, kcmp: Free, lsm_get_self_attr: Free,
    lsm_list_modules: Free,

    // Threads, their scheduling, and sleeping.
    futex: Free, futex_wait: Free, futex_wake: Free, futex_requeue: Free, futex_waitv: Free, sched_yield: Free, nanosleep: Free,
    clock_nanosleep: Free, restart_syscall: Free, pause: Free, exit: Free, exit_group: Free, wait4: Free, waitid: Free,
    get_robust_list: Free, set_robust_list: Free, rseq: Free, get_thread_area: Free,
    set_tid_address: Watched(Watch::Thread), clone: Watched(Watch::Clone), clone3: Watched(Watch::Clone),
    fork: Watched(Watch::Clone), vfork: Watched(Watch::Clone),
    execve: Watched(Watch::Exec), execveat: Watched(Watch::Exec),
    sched_getaffinity: Watched(Watch::Processors), sched_getattr: Free, sched_getparam: Free, sched_getscheduler: Free, sched_get_priority_max: Free,
    sched_get_priority_min: Free, sched_rr_get_interval: Free, sched_setaffinity: Watched(Watch::Limits),
    sched_setattr: Watched(Watch::Limits), sched_setparam: Watched(Watch::Limits), sched_setscheduler: Watched(Watch::Limits),
    setpriority: Watched(Watch::Limits), ioprio_set: PRIORITY, setrlimit: Watched(Watch::Limits),
    prlimit64: FreeWhen(&[&[is(2, 0)]], Watch::Limits), membarrier: Watched(Watch::Membarrier),

    // Signals and timers.
    rt_sigaction: FreeWhen(ASKED_ACTIONS, Watch::Actions), rt_sigprocmask: Free, rt_sigpending: Free, rt_sigreturn: Free,
    rt_sigsuspend: Free, rt_sigtimedwait: FreeWhen(&[&[is(2, 0)]], Watch::Wait),
    kill: FreeWhen(but_sigkill!(1), Watch::Kill), tkill: FreeWhen(but_sigkill!(1), Watch::Kill), tgkill: FreeWhen(but_sigkill!(2), Watch::Kill),
    rt_sigqueueinfo: FreeWhen(but_sigkill!(1), Watch::Kill), rt_tgsigqueueinfo: FreeWhen(but_sigkill!(2), Watch::Kill),
    sigaltstack: FreeWhen(&[&[is(0, 0)]], Watch::Thread), getitimer: Free, setitimer: Watched(Watch::IntervalTimers),
    alarm: Watched(Watch::IntervalTimers), timer_create: Watched(Watch::Timers), timer_settime: Watched(Watch::Timers),
    timer_delete: Watched(Watch::Timers), timer_gettime: Free, timer_getoverrun: Free,

    // Descriptors.
    open: Watched(Watch::Open), openat: Watched(Watch::Open), openat2: Watched(Watch::Open), creat: Watched(Watch::Open),
    close: Watched(Watch::Close), close_range: Watched(Watch::Close), dup: Watched(Watch::Descriptors), dup2: Watched(Watch::Close),
    dup3: Watched(Watch::Close), fcntl: FreeWhen(SAFE_FCNTL, Watch::Control), ioctl: FreeWhen(SAFE_IOCTL, Watch::Control),
    pipe: Watched(Watch::Descriptors), pipe2: Watched(Watch::Descriptors), eventfd: Watched(Watch::Descriptors),
    eventfd2: Watched(Watch::Descriptors), epoll_create: Watched(Watch::Descriptors), epoll_create1: Watched(Watch::Descriptors),
    epoll_ctl: Free, timerfd_create: Watched(Watch::Descriptors), timerfd_settime: Free,
    timerfd_gettime: Free,
    signalfd: Watched(Watch::Descriptors), signalfd4: Watched(Watch::Descriptors), inotify_init: Watched(Watch::Descriptors), inotify_init1: Watched(Watch::Descriptors), inotify_add_watch: Watched(Watch::Inotify),
    inotify_rm_watch: Free, fanotify_init: WATCHERS, fanotify_mark: WATCHERS, pidfd_open: Watched(Watch::Pidfd), pidfd_getfd: MEMORY_OF_OTHERS,
    pidfd_send_signal: FreeWhen(but_sigkill!(1), Watch::Kill), flock: Watched(Watch::Descriptors),

    // Files: what they held is kept until the epoch is durable.
    write: Watched(Watch::Write), writev: Watched(Watch::Write), pwrite64: Watched(Watch::Write), pwritev: Watched(Watch::Write),
    pwritev2: Watched(Watch::Write), sendfile: Watched(Watch::Write), copy_file_range: Watched(Watch::Write),
    truncate: Watched(Watch::Change), ftruncate: Watched(Watch::Change), fallocate: Watched(Watch::Change),
    rename: Watched(Watch::Change), renameat: Watched(Watch::Change), renameat2: Watched(Watch::Change),
    unlink: Watched(Watch::Change), unlinkat: Watched(Watch::Change), rmdir: Watched(Watch::Change),
    mkdir: Watched(Watch::Change), mkdirat: Watched(Watch::Change), link: Watched(Watch::Change), linkat: Watched(Watch::Change),
    symlink: Watched(Watch::Change), symlinkat: Watched(Watch::Change), mknod: Watched(Watch::Change), mknodat: Watched(Watch::Change),
    chmod: Watched(Watch::Change), fchmod: Watched(Watch::Change), fchmodat: Watched(Watch::Change), fchmodat2: Watched(Watch::Change),
    chown: Watched(Watch::Change), lchown: Watched(Watch::Change), fchown: Watched(Watch::Change), fchownat: Watched(Watch::Change),
    utime: Watched(Watch::Change), utimes: Watched(Watch::Change), futimesat: Watched(Watch::Change), utimensat: Watched(Watch::Change),
    setxattr: Watched(Watch::Change), lsetxattr: Watched(Watch::Change), fsetxattr: Watched(Watch::Change), removexattr: Watched(Watch::Change), lremovexattr: Watched(Watch::Change),
    fremovexattr: Watched(Watch::Change), chdir: Watched(Watch::Directory), fchdir: Watched(Watch::Directory), umask: Watched(Watch::Umask),
    splice: PIPES, tee: PIPES, vmsplice: PIPES, open_by_handle_at: SYSTEM,

    // Other processes and machines.
    socket: SOCKETS, socketpair: Watched(Watch::Pair), connect: SOCKETS, bind: SOCKETS, listen: SOCKETS, accept: SOCKETS, accept4: SOCKETS,
    sendto: FreeWhen(PLAIN_SEND, Watch::Send), recvfrom: Free, sendmsg: Watched(Watch::Send), recvmsg: Free,
    sendmmsg: Watched(Watch::Send), recvmmsg: Free, shutdown: Watched(Watch::Socket), getsockname: Free, getpeername: Free,
    setsockopt: Watched(Watch::Socket), getsockopt: FreeWhen(SAFE_GETSOCKOPT, Watch::SocketQuery),
    semget: Watched(Watch::Ipc), semop: Watched(Watch::Ipc), semctl: Watched(Watch::Ipc), semtimedop: Watched(Watch::Ipc),
    msgget: Watched(Watch::Ipc), msgsnd: Free, msgrcv: Free, msgctl: Free, mq_open: MESSAGES, mq_unlink: MESSAGES, mq_timedsend: MESSAGES, mq_timedreceive: MESSAGES, mq_notify: MESSAGES,
    mq_getsetattr: MESSAGES,
    io_uring_setup: RINGS, io_uring_enter: RINGS, io_uring_register: RINGS, io_setup: RINGS, io_submit: RINGS, io_getevents: RINGS,
    io_pgetevents: RINGS, io_cancel: RINGS, io_destroy: RINGS,
    ptrace: TRACING, process_vm_readv: Free, process_vm_writev: MEMORY_OF_OTHERS, seccomp: FILTERS, perf_event_open: EVENTS, bpf: EVENTS,
    landlock_create_ruleset: SANDBOXES, landlock_add_rule: SANDBOXES, landlock_restrict_self: SANDBOXES, lsm_set_self_attr: LABELS,

    // Identity, options and the system.
    prctl: FreeWhen(SAFE_CONTROL, Watch::Control), arch_prctl: FreeWhen(SEGMENT_BASES, Watch::Control),
    personality: FreeWhen(&[&[bits(0, INT, INT)]], Watch::Control), modify_ldt: LOCAL_SEGMENTS, set_thread_area: LOCAL_SEGMENTS,
    setuid: IDENTITIES, setgid: IDENTITIES, setreuid: IDENTITIES, setregid: IDENTITIES, setresuid: IDENTITIES,
    setresgid: IDENTITIES, setfsuid: IDENTITIES, setfsgid: IDENTITIES, setgroups: IDENTITIES, capset: IDENTITIES,
    setsid: SESSION, setpgid: Free, add_key: KEYRING, request_key: KEYRING, keyctl: KEYRING,
    unshare: SYSTEM, setns: SYSTEM, chroot: SYSTEM, pivot_root: SYSTEM, mount: SYSTEM, umount2: SYSTEM, mount_setattr: SYSTEM,
    move_mount: SYSTEM, open_tree: SYSTEM, fsopen: SYSTEM, fsconfig: SYSTEM, fsmount: SYSTEM, fspick: SYSTEM, swapon: SYSTEM,
    swapoff: SYSTEM, reboot: SYSTEM, sethostname: SYSTEM, setdomainname: SYSTEM, iopl: SYSTEM, ioperm: SYSTEM, init_module: SYSTEM,
    finit_module: SYSTEM, delete_module: SYSTEM, kexec_load: SYSTEM, kexec_file_load: SYSTEM, settimeofday: SYSTEM,
    clock_settime: SYSTEM, adjtimex: SYSTEM, clock_adjtime: SYSTEM, acct: SYSTEM, quotactl: SYSTEM, quotactl_fd: SYSTEM,
    syslog: SYSTEM, vhangup: SYSTEM, lookup_dcookie: SYSTEM,
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_call_stands_twice() {
        let numbers: HashSet<_> = CALLS.iter().map(|call| call.number).collect();
        assert_eq!(numbers.len(), CALLS.len());
    }

    #[test]
    fn every_call_up_to_the_last_is_known() {
        // The holes are calls that never existed or are gone from the kernel (create_module,
        // getpmsg and their like), which answer ENOSYS anyway.
        let gone = [
            134, 156, 174, 177, 178, 180, 181, 182, 183, 184, 185, 212, 214, 215, 236,
        ];
        let unknown: Vec<i64> = (0..=334)
            .chain(424..=462)
            .filter(|number| call(*number).is_none() && !gone.contains(number))
            .collect();
        assert_eq!(unknown, [] as [i64; 0]);
    }

    #[test]
    fn actions_of_sigchld_are_watched() {
        let holds = |argument: &Argument, signal: u64| match *argument {
            Argument::Bits { mask, value, .. } => signal & mask == value,
            _ => false, // a question
        };
        let is_free = |signal: u64| {
            let mut any = ASKED_ACTIONS.iter();
            any.any(|all| all.iter().all(|argument| holds(argument, signal)))
        };
        let watched: Vec<u64> = (1..=64).filter(|signal| !is_free(*signal)).collect();
        assert_eq!(watched, [libc::SIGCHLD as u64]);
    }

    #[test]
    fn the_filter_fits() {
        for replies in [Replies::Refused, Replies::Loose, Replies::Held, Replies::Synced] {
            let filter = filter(&free_calls(replies)).unwrap();
            assert!(filter.len() < 4096);
        }
    }
}
