//! The threads of a process made again: ids, rights, what belongs to each, and the timers that may signal one.

use super::apart::Table;
use super::in_process::{run, run_in, words, write};
use crate::context::Context;
use crate::credentials::CAPABILITIES_VERSION_3;
use crate::error::{Error, Result};
use crate::kernel::PosixTimer;
use crate::syscalls::THREAD_FLAGS;
use crate::threads::{Pending, ThreadState};
use crate::timers::first_after_resume;
use twinpage_os::inject::{self, Call, ROOM};
use twinpage_os::remote::{self, Process, Scheduling};
use twinpage_os::trace::{self, Tid};

/// Gives the threads of a process their credentials, and then sets its options, some of which that resets. What needs
/// capabilities that the program has not, such as the id of a new thread, is done before.
pub(super) fn set_credentials(process: &Process, context: &Context) -> Result<()> {
    for thread in &context.fixed.threads {
        match &thread.credentials {
            Some(credentials) => credentials.give(process, thread.tid)?,
            None if rustix::process::getuid().is_root() => {}
            None => drop_capabilities(process, thread.tid)?,
        }
    }
    let mut options = context.fixed.kernel.options.calls();
    run(process, &mut options, "set the options of the program")
}

/// A program of an ordinary user has none; the tracer's, in its namespace, were inherited.
fn drop_capabilities(process: &Process, tid: Tid) -> Result<()> {
    write(process, ROOM, &u64::from(CAPABILITIES_VERSION_3).to_le_bytes())?;
    write(process, ROOM + 64, &[0; 24])?;
    run_in(
        process,
        tid,
        &mut [Call::new(libc::SYS_capset, &[ROOM, ROOM + 64])],
    )
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
    trace::await_first_stop(tid).map_err(made)?;
    trace::end_freely(tid).map_err(made) // as it was before
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
        if steady.keeps_capabilities {
            calls.push(Call::new(libc::SYS_prctl, &[libc::PR_SET_KEEPCAPS as u64, 1]));
        }
        if thread.rseq.address != 0 {
            let rseq = thread.rseq;
            calls.push(Call::new(
                libc::SYS_rseq,
                &[rseq.address, u64::from(rseq.size), 0, u64::from(rseq.signature)],
            ));
        }
        let (address, flags, size) = steady.told_stack();
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
        pending
            .info
            .timer()
            .is_some_and(|id| waiting.iter().any(|(timer, _)| *timer == id))
    };
    for pending in context.live.pending.iter().filter(|pending| !by_timer(pending)) {
        let signal = pending.info.signal() as u64;
        let leader = process.pid() as u64;
        write(process, ROOM, &pending.info.0)?;
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
        let clock = i32::from(timer.clock) as u64;
        let create = Call::new(libc::SYS_timer_create, &[clock, ROOM, ROOM + 128]);
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
