//! What the kernel keeps for a program, set again by injected calls.

use super::With;
use super::apart::Table;
use super::files::Sources;
use super::in_process::{put, run, words, write};
use super::interests::set_interests;
use super::pidfds;
use crate::context::Context;
use crate::descriptors::{Descriptor, Held, LockKind, OWN_TERMINAL};
use crate::error::{Error, Result};
use crate::kernel::{SIGNALS, Settings};
use crate::limits;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;
use twinpage_os::inject::{self, Call, ROOM};
use twinpage_os::messages;
use twinpage_os::remote::Process;
use twinpage_os::trace::Tid;

/// Sets everything that belongs to the process, and puts it under the filter.
pub(super) fn set(process: &Process, context: &Context, with: &With<'_>) -> Result<()> {
    let sources = with.sources;
    set_memory_fields(process, context, sources)?;
    set_actions(process, context)?;
    pidfds::open(process, with.tree)?;
    set_interests(process, with)?;
    set_interval_timers(process, context)?;
    set_membarrier(process, context)?;
    let mut close = [Call::new(
        libc::SYS_close_range,
        &[sources.base() as u64, u64::from(u32::MAX), 0],
    )];
    run(process, &mut close, "close what is not the program's")?;
    set_settings(process.pid(), &context.fixed.kernel.settings);
    let installed = with.filter.install_in(process, process.pid());
    installed.map_err(|source| Error::target("cannot install the filter of system calls", source))
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
    let changeable = |signal: &u64| *signal != libc::SIGKILL as u64 && *signal != libc::SIGSTOP as u64;
    let mut calls: Vec<Call> = (1..=SIGNALS.min(actions.len()) as u64)
        .filter(changeable)
        .map(|signal| Call::new(libc::SYS_rt_sigaction, &[signal, ROOM + (signal - 1) * 32, 0, 8]))
        .collect();
    run(process, &mut calls, "set the program's signal actions")
}

/// The limits of the program. They come last: it may have more open than it may open now.
pub(super) fn set_limits(process: &Process, context: &Context) -> Result<()> {
    let mut limits = context.fixed.kernel.limits.iter();
    limits.try_for_each(|&limit| limits::set(process, limit))
}

/// The locks that the program held on its files, each taken by a thread of the table that held it.
pub(super) fn take_locks(process: &Process, context: &Context, apart: &[Table]) -> Result<()> {
    for (tid, descriptor) in of_tables(process, context, apart)? {
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

/// Sets the owners of signals that open files send. The owners exist already.
pub(super) fn set_notices(process: &Process, context: &Context, apart: &[Table]) -> Result<()> {
    for (tid, descriptor) in of_tables(process, context, apart)? {
        let Some(notice) = descriptor.notice else {
            continue;
        };
        let (mut calls, owner) = notice.calls(descriptor.fd, descriptor.flags);
        write(process, ROOM, &owner)?;
        let failed = |source| Error::target("cannot set the signals that a descriptor sends", source);
        inject::run(process, tid, &mut calls).map_err(failed)?;
        for result in calls.iter().map(Call::result) {
            match result {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {} // it ended
                result => drop(result.map_err(failed)?),
            }
        }
    }
    Ok(())
}

/// All descriptors of a process, each with a thread whose table holds it.
fn of_tables<'a>(
    process: &Process,
    context: &'a Context,
    apart: &'a [Table],
) -> Result<Vec<(Tid, &'a Descriptor)>> {
    let beside: HashSet<i32> = apart.iter().flat_map(Table::made_at).collect();
    let first = context.fixed.descriptors.iter();
    let first = first.filter(|descriptor| !beside.contains(&descriptor.fd));
    let mut all: Vec<_> = first.map(|descriptor| (process.pid(), descriptor)).collect();
    for table in apart.iter().filter(|table| table.is_of(process)) {
        let tid = table.first()?;
        all.extend(table.own().map(|descriptor| (tid, descriptor)));
    }
    Ok(all)
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
        if let Err(error) = set_patiently(&format!("/proc/{pid}/{name}"), &value) {
            messages::tell(&format!(
                "the program had set its {name} to {value}, which is not allowed now ({error}): it keeps what it inherits"
            ));
        }
    }
}

/// Who has no CAP_SYS_ADMIN sets a session's scheduling group ten times a second, and all of them together:
/// proc_autogroup_write() of the kernel says `EAGAIN`.
fn set_patiently(path: &str, value: &str) -> std::io::Result<()> {
    const WAIT: Duration = Duration::from_millis(20);
    const WAITS: u32 = 100;
    for _ in 0..WAITS {
        match std::fs::write(path, value) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(WAIT),
            done => return done,
        }
    }
    std::fs::write(path, value)
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
    match inject::call(first, first.pid(), libc::SYS_ioctl, &give) {
        // A group that has ended, and whose session has not taken the terminal back yet.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EPERM)) => Ok(()),
        Err(source) => Err(Error::target(
            "cannot give the terminal to a process group",
            source,
        )),
        Ok(_) => Ok(()),
    }
}

/// The terminal by its own name, which the program and its descendants have open.
pub(super) fn open_terminal(first: &Process, context: &Context) -> Result<()> {
    open_own(first, context, |path| path == Path::new(OWN_TERMINAL))
}

/// What the program had open about itself and its descendants, which are there already, read on from where it was.
pub(super) fn open_about_itself(process: &Process, context: &Context) -> Result<()> {
    open_own(process, context, |path| path != Path::new(OWN_TERMINAL))
}

fn open_own(process: &Process, context: &Context, is_asked: impl Fn(&Path) -> bool) -> Result<()> {
    let fixed = &context.fixed;
    for (descriptor, held) in fixed.descriptors.iter().zip(&context.live.held) {
        let own = super::files::own_path(descriptor);
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
        put(process, opened, descriptor).map_err(open)?;
    }
    Ok(())
}
