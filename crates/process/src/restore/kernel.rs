//! What the kernel keeps for a program, set again by injected calls.

use super::With;
use super::files::Sources;
use super::space::run;
use super::tables::Table;
use crate::context::Context;
use crate::descriptors::polls::Interest;
use crate::descriptors::{Descriptor, Held, LockKind, OWN_TERMINAL, What};
use crate::error::{Error, Result};
use crate::kernel::{PosixTimer, SIGNALS, Settings};
use crate::notes;
use crate::syscalls::THREAD_FLAGS;
use crate::threads::{Pending, ThreadState};
use crate::timers::{first_after_resume, timer_of};
use std::collections::{BTreeSet, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use twinpage_os::inject::{self, Call, ROOM};
use twinpage_os::remote::{self, Process, Scheduling};
use twinpage_os::seccomp::Filter;
use twinpage_os::trace::{self, Status, Tid};

/// Sets everything that belongs to the process, and puts it under the filter.
pub(super) fn set(process: &Process, context: &Context, with: &With<'_>) -> Result<()> {
    let sources = with.sources;
    set_memory_fields(process, context, sources)?;
    set_actions(process, context)?;
    set_interests(process, with)?;
    set_interval_timers(process, context)?;
    set_membarrier(process, context)?;
    let mut close = [Call::new(
        libc::SYS_close_range,
        &[sources.base() as u64, u64::from(u32::MAX), 0],
    )];
    run(process, &mut close, "close what is not the program's")?;
    set_settings(process.pid(), &context.fixed.kernel.settings);
    drop_privileges(process)?;
    let mut options = context.fixed.kernel.options.calls();
    run(process, &mut options, "set the options of the program")?;
    install(process, with.filter)
}

pub(super) fn write(process: &Process, at: u64, bytes: &[u8]) -> Result<()> {
    process
        .write(at, bytes)
        .map_err(|source| Error::target("cannot write to the new process", source))
}

pub(super) fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// prctl(2), `PR_SET_MM_MAP`: eleven addresses, the auxiliary vector, and the program's file.
fn set_memory_fields(process: &Process, context: &Context, sources: &Sources) -> Result<()> {
    const PR_SET_MM_MAP: u64 = 14;
    let memory = &context.fixed.kernel.memory;
    let mut map = words(&memory.addresses);
    let auxv = ROOM + 256;
    map.extend_from_slice(&auxv.to_le_bytes());
    map.extend_from_slice(&(memory.auxv.len() as u32).to_le_bytes());
    map.extend_from_slice(&sources.file(&memory.exe)?.to_le_bytes());
    write(process, ROOM, &map)?;
    write(process, auxv, &memory.auxv)?;
    let arguments = [libc::PR_SET_MM as u64, PR_SET_MM_MAP, ROOM, map.len() as u64];
    run(
        process,
        &mut [Call::new(libc::SYS_prctl, &arguments)],
        "set where the program's parts are",
    )
}

fn set_actions(process: &Process, context: &Context) -> Result<()> {
    let actions = &context.fixed.kernel.actions;
    let bytes: Vec<u8> = actions.iter().flat_map(|action| action.to_bytes()).collect();
    write(process, ROOM, &bytes)?;
    let changeable =
        |signal: &i64| *signal != i64::from(libc::SIGKILL) && *signal != i64::from(libc::SIGSTOP);
    let mut calls: Vec<Call> = (1..=SIGNALS.min(actions.len() as i64))
        .filter(changeable)
        .map(|signal| {
            Call::new(
                libc::SYS_rt_sigaction,
                &[signal as u64, ROOM + (signal as u64 - 1) * 32, 0, 8],
            )
        })
        .collect();
    run(process, &mut calls, "set the program's signal actions")
}

/// The limits of the program. They come last: it may have more open than it may open now.
pub(super) fn set_limits(process: &Process, context: &Context) -> Result<()> {
    for &(resource, soft, hard) in &context.fixed.kernel.limits {
        remote::set_limit(process.pid(), resource, soft, hard).map_err(|source| {
            Error::target(format!("cannot set limit {resource} to {soft} of {hard}"), source)
        })?;
    }
    Ok(())
}

/// The inodes of the ends of pairs that the program has.
fn ends(context: &Context) -> BTreeSet<u64> {
    let descriptors = context.fixed.descriptors.iter();
    let ends = descriptors.filter_map(|descriptor| match &descriptor.what {
        What::Pair(end) => Some(end.inode),
        _ => None,
    });
    ends.collect()
}

/// Whether a connection ends at the resume.
fn is_reset(descriptor: &Descriptor, ends: &BTreeSet<u64>) -> bool {
    match &descriptor.what {
        What::Connection(_) => true,
        What::Pair(end) => end.kind != libc::SOCK_DGRAM && !ends.contains(&end.peer),
        _ => false,
    }
}

/// What each poll descriptor of this process waits for, while the descriptors of all are side by side in it: an entry
/// for a signal descriptor is woken by the signals of who made it. Entries whose edge was told come first, and what is
/// ready of them is taken: so it is not told again.
fn set_interests(process: &Process, with: &With<'_>) -> Result<()> {
    let (context, sources) = (with.tree, with.sources);
    for (descriptor, held) in context.fixed.descriptors.iter().zip(&context.live.held) {
        let interests: Vec<Interest> = match (&descriptor.what, held) {
            (What::Poll, Held::Watched(interests)) => interests.clone(),
            (What::Poll, Held::Interests(interests)) => interests.iter().map(as_in_version1).collect(),
            _ => continue,
        };
        if descriptor.shares != descriptor.fd || process_of(descriptor.fd, with) != process.pid() {
            continue;
        }
        // That a connection was reset is to be told, whatever was told of it before.
        let ends = ends(context);
        let is_over = |target: i32| {
            let mut all = context.fixed.descriptors.iter();
            all.any(|descriptor| descriptor.fd == target && is_reset(descriptor, &ends))
        };
        let (taken, others): (Vec<_>, Vec<_>) =
            (interests.iter()).partition(|interest| interest.taken && !is_over(interest.target));
        for interest in &taken {
            add_interest(process, context, sources, descriptor.fd, interest)?;
        }
        let room = taken.len().min(1024) as u64;
        let wait = Call::new(libc::SYS_epoll_wait, &[descriptor.fd as u64, ROOM, room, 0]);
        loop {
            let mut take = [wait];
            if taken.is_empty() {
                break;
            }
            run(process, &mut take, "take edges that were told")?;
            if take[0].result().unwrap_or(0) == 0 {
                break;
            }
        }
        for interest in others {
            add_interest(process, context, sources, descriptor.fd, interest)?;
        }
    }
    Ok(())
}

/// The process that has a descriptor, by the number that it is made at.
fn process_of(made_at: i32, with: &With<'_>) -> i32 {
    let mut tables = with.apart.iter();
    let table = tables.find(|table| table.made_at().any(|number| number == made_at));
    table.map_or(with.tree.fixed.pid, Table::pid)
}

fn as_in_version1(&(fd, events, data): &(i32, u32, u64)) -> Interest {
    Interest {
        fd,
        events,
        data,
        target: fd,
        taken: false,
    }
}

/// Adds one entry. One whose number is closed now, or another file's, is made while the number is lent to its
/// file.
fn add_interest(
    process: &Process,
    context: &Context,
    sources: &Sources,
    poll: i32,
    interest: &Interest,
) -> Result<()> {
    const WHAT: &str = "set what a poll descriptor waits for";
    let (number, target) = (interest.fd as u64, interest.target as u64);
    let add = [poll as u64, libc::EPOLL_CTL_ADD as u64, number, ROOM];
    let add = Call::new(libc::SYS_epoll_ctl, &add);
    let lend = Call::new(libc::SYS_dup3, &[target, number, 0]);
    if number == target {
        write(process, ROOM, &interest.event())?;
        return run(process, &mut [add], WHAT);
    }
    let holder = context
        .fixed
        .descriptors
        .iter()
        .find(|descriptor| descriptor.fd == interest.fd);
    let mut kept = [Call::new(
        libc::SYS_fcntl,
        &[number, libc::F_DUPFD_CLOEXEC as u64, sources.base() as u64],
    )];
    let after = match holder {
        None => vec![Call::new(libc::SYS_close, &[number])],
        Some(holder) => {
            run(process, &mut kept, WHAT)?;
            let kept = kept[0].result().unwrap_or_default();
            let cloexec = if holder.cloexec { libc::O_CLOEXEC } else { 0 };
            vec![
                Call::new(libc::SYS_dup3, &[kept, number, cloexec as u64]),
                Call::new(libc::SYS_close, &[kept]),
            ]
        }
    };
    write(process, ROOM, &interest.event())?;
    let mut calls = [vec![lend, add], after].concat();
    run(process, &mut calls, WHAT)
}

/// The locks that the program held on its files, each taken by a thread of the table that held it.
pub(super) fn take_locks(process: &Process, context: &Context, apart: &[Table]) -> Result<()> {
    let beside: HashSet<i32> = apart.iter().flat_map(Table::made_at).collect();
    let own = context.fixed.descriptors.iter();
    let own = own.filter(|descriptor| !beside.contains(&descriptor.fd));
    take_locks_on(process, process.pid(), own)?;
    for table in apart.iter().filter(|table| table.is_of(process)) {
        take_locks_on(process, table.first()?, table.own())?;
    }
    Ok(())
}

fn take_locks_on<'a>(
    process: &Process,
    tid: Tid,
    descriptors: impl Iterator<Item = &'a Descriptor>,
) -> Result<()> {
    for descriptor in descriptors {
        let fd = descriptor.fd as u64;
        for lock in &descriptor.locks {
            let (kind, whole) = if lock.exclusive {
                (libc::F_WRLCK, libc::LOCK_EX)
            } else {
                (libc::F_RDLCK, libc::LOCK_SH)
            };
            // struct flock: type and whence, start, length, process.
            write(process, ROOM, &words(&[kind as u64, lock.start, lock.len, 0]))?;
            let (number, arguments) = match lock.kind {
                LockKind::Whole => (libc::SYS_flock, [fd, (whole | libc::LOCK_NB) as u64, 0]),
                LockKind::Process => (libc::SYS_fcntl, [fd, libc::F_SETLK as u64, ROOM]),
                LockKind::OpenFile => (libc::SYS_fcntl, [fd, libc::F_OFD_SETLK as u64, ROOM]),
            };
            inject::call(process, tid, number, &arguments).map_err(|source| {
                let what =
                    "cannot lock again a file that the program had locked (another program has it now?)";
                Error::target(what, source)
            })?;
        }
    }
    Ok(())
}

fn set_interval_timers(process: &Process, context: &Context) -> Result<()> {
    let mut timers = context.live.timers.interval_timers;
    for [every_s, every_us, left_s, left_us] in &mut timers {
        // One that has rung waits for its signal to be taken before it begins its next period.
        if [*left_s, *left_us] == [0, 0] {
            (*left_s, *left_us) = (*every_s, *every_us);
        }
    }
    let bytes: Vec<u8> = timers.iter().flat_map(|timer| words(timer)).collect();
    write(process, ROOM, &bytes)?;
    let running = (0..3).filter(|which| timers[*which as usize] != [0; 4]);
    let mut calls: Vec<Call> = running
        .map(|which| Call::new(libc::SYS_setitimer, &[which, ROOM + which * 32, 0]))
        .collect();
    run(process, &mut calls, "set the program's interval timers")
}

fn set_membarrier(process: &Process, context: &Context) -> Result<()> {
    let registered = context.fixed.kernel.membarrier;
    let mut calls: Vec<Call> = (0..32)
        .map(|bit| 1 << bit)
        .filter(|command| registered & command != 0)
        .map(|command| Call::new(libc::SYS_membarrier, &[command]))
        .collect();
    run(process, &mut calls, "register the program's memory barriers")
}

/// What the program wrote to `/proc` about itself. Some of it needs a privilege that whoever resumes may not
/// have: the program then goes on with what it inherits, and that is said.
fn set_settings(pid: Tid, settings: &Settings) {
    let wanted = [
        (
            Settings::OOM_SCORE_ADJ,
            settings.oom_score_adj.map(|value| value.to_string()),
        ),
        (
            Settings::COREDUMP_FILTER,
            settings.coredump_filter.map(|value| format!("{value:#x}")),
        ),
        (
            Settings::AUTOGROUP,
            settings.autogroup.map(|value| value.to_string()),
        ),
    ];
    for (name, value) in wanted {
        let Some(value) = value else { continue };
        if let Err(error) = std::fs::write(format!("/proc/{pid}/{name}"), &value) {
            notes::tell(&format!(
                "the program had set its {name} to {value}, which is not allowed now ({error}): it keeps what it inherits"
            ));
        }
    }
}

/// A program of an ordinary user has no capabilities; the tracer's, in its namespace, were inherited.
fn drop_privileges(process: &Process) -> Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    if rustix::process::getuid().is_root() {
        return Ok(());
    }
    write(process, ROOM, &u64::from(VERSION_3).to_le_bytes())?;
    write(process, ROOM + 64, &[0; 24])?;
    run(
        process,
        &mut [Call::new(libc::SYS_capset, &[ROOM, ROOM + 64])],
        "give up capabilities",
    )
}

fn install(process: &Process, filter: &Filter) -> Result<()> {
    let program = ROOM + 64;
    write(process, program, &filter.bytes())?;
    write(process, ROOM, &words(&[filter.len() as u64, program]))?;
    let mut calls = [
        Call::new(libc::SYS_prctl, &[libc::PR_SET_NO_NEW_PRIVS as u64, 1]),
        Call::new(
            libc::SYS_seccomp,
            &[u64::from(libc::SECCOMP_SET_MODE_FILTER), 0, ROOM],
        ),
    ];
    run(process, &mut calls, "install the system call filter")
}

/// The main thread ends, as it had before; the process is looked at by another from then on.
pub(super) fn end_main_thread(process: Process, tids: &[Tid], code: i32) -> Result<Process> {
    let leader = process.pid();
    let failed = |source| Error::target("cannot end the program's main thread again", source);
    let other = tids.iter().find(|tid| **tid != leader);
    let other = *other.ok_or_else(|| Error::Damaged("context: a program without threads".into()))?;
    // Nothing of what the main thread left in memory is to be done again.
    let mut forget = [
        Call::new(libc::SYS_set_tid_address, &[0]),
        Call::new(libc::SYS_set_robust_list, &[0, 24]),
    ];
    run(&process, &mut forget, "end the program's main thread again")?;
    inject::end_thread(&process, leader, code).map_err(failed)?;
    crate::threads::wait_for_end(leader)?;
    Process::open_by(leader, other).map_err(failed)
}

/// The program was stopped by a signal, and begins stopped: it gets the signal before it goes on.
pub(super) fn stop_all(process: &Process) -> Result<()> {
    trace::send_stop(process.thread())
        .map_err(|source| Error::target("cannot stop the program as it was", source))
}

/// The working directory and the file mode mask of a process that was made by another.
pub(super) fn enter_directory(process: &Process, context: &Context) -> Result<()> {
    let directory = &context.fixed.kernel.directory;
    write(process, ROOM, &[directory.as_os_str().as_bytes(), &[0]].concat())?;
    let mut calls = [
        Call::new(libc::SYS_chdir, &[ROOM]),
        Call::new(libc::SYS_umask, &[u64::from(context.fixed.kernel.umask)]),
    ];
    let what = format!(
        "enter {}, where a process of the program was",
        directory.display()
    );
    run(process, &mut calls, &what)
}

/// The process group that has the program's terminal: tcsetpgrp(3).
pub(super) fn give_terminal(first: &Process, terminal: u64, group: i32) -> Result<()> {
    write(first, ROOM, &group.to_le_bytes())?;
    let give = [terminal, libc::TIOCSPGRP, ROOM];
    let given = inject::call(first, first.pid(), libc::SYS_ioctl, &give);
    given
        .map(drop)
        .map_err(|source| Error::target("cannot give the terminal to a process group", source))
}

/// Makes the other threads, each with its id, stopped where the leader is; but those that another thread of their
/// table makes.
pub(super) fn make_threads(process: &Process, context: &Context, apart: &[Table]) -> Result<Vec<Tid>> {
    let leader = process.pid();
    let mut tids = vec![leader];
    for thread in &context.threads {
        let tid = thread.tid;
        if tid != leader && !apart.iter().any(|table| table.others().contains(&tid)) {
            make_thread(process, leader, tid)?;
            tids.push(tid);
        }
    }
    Ok(tids)
}

/// Thread `maker` makes another, which shares everything with it.
pub(super) fn make_thread(process: &Process, maker: Tid, tid: Tid) -> Result<()> {
    let made = |source| Error::target(format!("cannot make thread {tid}"), source);
    // struct clone_args: flags first, then ten words of which the last but two name the id.
    let mut arguments = [0; 11];
    arguments[0] = THREAD_FLAGS;
    arguments[8] = ROOM + 128;
    arguments[9] = 1;
    write(process, ROOM, &words(&arguments))?;
    write(process, ROOM + 128, &tid.to_le_bytes())?;
    inject::call(process, maker, libc::SYS_clone3, &[ROOM, 88]).map_err(made)?;
    loop {
        match trace::wait(tid, true).map_err(made)? {
            Some((_, Status::Interrupted)) => return trace::end_freely(tid).map_err(made), // as it was before
            Some((_, status)) => {
                return Err(Error::Internal(format!("thread {tid} began with {status:?}")));
            }
            None => {}
        }
    }
}

/// Sets what belongs to each thread, the timers that may signal one, and the signals that wait.
pub(super) fn set_threads(process: &Process, context: &Context) -> Result<()> {
    for thread in &context.threads {
        let tid = thread.tid;
        let steady = context.fixed.threads.iter().find(|steady| steady.tid == tid);
        let steady = steady
            .ok_or_else(|| Error::Damaged(format!("context: thread {tid} has registers and no name")))?;
        let mut calls = vec![
            Call::new(libc::SYS_set_tid_address, &[steady.clear_tid]),
            Call::new(
                libc::SYS_set_robust_list,
                &[
                    thread.robust.0,
                    if thread.robust.0 == 0 { 24 } else { thread.robust.1 },
                ],
            ),
            Call::new(libc::SYS_sigaltstack, &[ROOM, 0]),
            Call::new(libc::SYS_prctl, &[libc::PR_SET_NAME as u64, ROOM + 64]),
            Call::new(
                libc::SYS_prctl,
                &[libc::PR_SET_PDEATHSIG as u64, steady.parent_death_signal as u64],
            ),
        ];
        if steady.timer_slack_ns != 0 {
            let slack = [libc::PR_SET_TIMERSLACK as u64, steady.timer_slack_ns];
            calls.push(Call::new(libc::SYS_prctl, &slack));
        }
        if thread.rseq.address != 0 {
            let rseq = thread.rseq;
            calls.push(Call::new(
                libc::SYS_rseq,
                &[rseq.address, u64::from(rseq.size), 0, u64::from(rseq.signature)],
            ));
        }
        let (address, flags, size) = steady.alternate_stack;
        write(process, ROOM, &words(&[address, u64::from(flags), size]))?;
        let mut name = steady.name.clone();
        name.resize(16, 0);
        write(process, ROOM + 64, &name)?;
        run_in(process, tid, &mut calls)?;
        set_scheduling(tid, steady)?;
    }
    set_timers(process, context)?;
    // The signal of a periodic timer is sent by the timer itself, with its overruns.
    let waiting = &context.live.timers.waiting;
    let by_timer = |pending: &&Pending| {
        timer_of(pending).is_some_and(|id| waiting.iter().any(|(timer, _)| *timer == id))
    };
    for pending in context.live.pending.iter().filter(|pending| !by_timer(pending)) {
        let signal = i32::from_le_bytes(pending.info[..4].try_into().expect("checked when read")) as u64;
        let leader = process.pid() as u64;
        write(process, ROOM, &pending.info)?;
        let (tid, call) = match pending.tid {
            0 => (
                process.pid(),
                Call::new(libc::SYS_rt_sigqueueinfo, &[leader, signal, ROOM]),
            ),
            tid => (
                tid,
                Call::new(libc::SYS_rt_tgsigqueueinfo, &[leader, tid as u64, signal, ROOM]),
            ),
        };
        run_in(process, tid, &mut [call])?;
    }
    Ok(())
}

/// The terminal by its own name, which the program and its descendants have open.
pub(super) fn open_terminal(first: &Process, context: &Context) -> Result<()> {
    open_own(first, context, |path| path == Path::new(OWN_TERMINAL))
}

/// What the program had open about itself, read on from where it was.
pub(super) fn open_about_itself(process: &Process, context: &Context) -> Result<()> {
    open_own(process, context, |path| path != Path::new(OWN_TERMINAL))
}

fn open_own(process: &Process, context: &Context, is_asked: impl Fn(&Path) -> bool) -> Result<()> {
    let fixed = &context.fixed;
    for (descriptor, held) in fixed.descriptors.iter().zip(&context.live.held) {
        let own = super::files::own_path(descriptor, fixed.pid);
        let Some(path) = own.filter(|path| is_asked(path)) else {
            continue;
        };
        let open = |source| {
            Error::target(
                format!("cannot open {} again for the program", path.display()),
                source,
            )
        };
        let call =
            |number, arguments: &[u64]| inject::call(process, process.pid(), number, arguments).map_err(open);
        let (place, cloexec) = (
            descriptor.fd as u64,
            if descriptor.cloexec { libc::O_CLOEXEC } else { 0 },
        );
        if descriptor.shares != descriptor.fd {
            call(libc::SYS_dup3, &[descriptor.shares as u64, place, cloexec as u64])?;
            continue;
        }
        write(process, ROOM, &[path.as_os_str().as_bytes(), &[0]].concat())?;
        let flags =
            descriptor.flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_CLOEXEC) as u32;
        let opened = call(libc::SYS_open, &[ROOM, u64::from(flags), 0])?;
        if let Held::Offset { at, .. } = held
            && *at != 0
        {
            call(libc::SYS_lseek, &[opened, *at, libc::SEEK_SET as u64])?;
        }
        if opened != place {
            call(libc::SYS_dup3, &[opened, place, cloexec as u64])?;
            call(libc::SYS_close, &[opened])?;
        } else if descriptor.cloexec {
            call(
                libc::SYS_fcntl,
                &[place, libc::F_SETFD as u64, libc::FD_CLOEXEC as u64],
            )?;
        }
    }
    Ok(())
}

pub(super) fn run_in(process: &Process, tid: Tid, calls: &mut [Call]) -> Result<()> {
    let set = |source| Error::target(format!("cannot set up thread {tid}"), source);
    inject::run(process, tid, calls).map_err(set)?;
    calls
        .iter()
        .try_for_each(|call| call.result().map(drop).map_err(set))
}

fn set_scheduling(tid: Tid, steady: &ThreadState) -> Result<()> {
    let (policy, priority, nice, affinity) = steady.scheduling;
    remote::set_scheduling(
        tid,
        &Scheduling {
            policy,
            priority,
            nice,
            affinity,
        },
    )
    .map_err(|source| Error::target(format!("cannot schedule thread {tid} as it was"), source))
}

/// POSIX timers, with the ids they had: prctl(2), `PR_TIMER_CREATE_RESTORE_IDS`, or, on kernels older
/// than 6.15, by counting up to each id.
fn set_timers(process: &Process, context: &Context) -> Result<()> {
    const RESTORE_IDS: u64 = 77;
    let timers = &context.fixed.kernel.timers;
    if timers.is_empty() {
        return Ok(());
    }
    let leader = process.pid();
    let named = inject::call(process, leader, libc::SYS_prctl, &[RESTORE_IDS, 1]).is_ok();
    let mut sorted: Vec<(&PosixTimer, &[u64; 4])> = timers.iter().zip(&context.live.timers.timers).collect();
    sorted.sort_by_key(|(timer, _)| timer.id);
    let mut next = 0;
    for (timer, setting) in sorted {
        let event = [
            timer.value,
            timer.signal as u32 as u64 | (timer.notify as u64) << 32,
            timer.thread as u64,
        ];
        write(process, ROOM, &words(&event))?;
        let first = first_after_resume(timer, *setting, &context.live.timers, context.clocks);
        let (flags, setting) = match first {
            Some(due) => (
                libc::TIMER_ABSTIME as u64,
                [setting[0], setting[1], due / 1_000_000_000, due % 1_000_000_000],
            ),
            None => (0, *setting),
        };
        write(process, ROOM + 64, &words(&setting))?;
        let create = Call::new(libc::SYS_timer_create, &[timer.clock as u64, ROOM, ROOM + 128]);
        while !named && next < timer.id {
            let delete = Call::new(libc::SYS_timer_delete, &[next as u64]);
            run(process, &mut [create, delete], "count up to a timer's id")?;
            next += 1;
        }
        write(process, ROOM + 128, &timer.id.to_le_bytes())?;
        let set = Call::new(libc::SYS_timer_settime, &[timer.id as u64, flags, ROOM + 64, 0]);
        run(process, &mut [create, set], "make the program's timers")?;
        next = timer.id + 1;
    }
    if named {
        let off = [Call::new(libc::SYS_prctl, &[RESTORE_IDS, 0])];
        run(process, &mut { off }, "make the program's timers")?;
    }
    Ok(())
}
