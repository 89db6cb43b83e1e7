//! `resume`: a program from its last checkpoint, or from an older one.
//!
//! * With a port that is taken nothing is changed: sockets that need theirs are made first.
//! * Files are rolled back before anything of the program is made.
//! * A kill while it is made again is no error: the next resume makes it once more.

use crate::clocks::Clocks;
use crate::context::{self, Context, Ending};
use crate::descriptors::Descriptors;
use crate::error::{Error, Result};
use crate::inspect;
use crate::ipc::Ipc;
use crate::launch;
use crate::machine::Machine;
use crate::older::{self, At};
use crate::program::{self, Carried, Program};
use crate::rested::{self, Rested};
use crate::restore::{self, Restored};
use crate::run::{Setting, start_helpers, stream_options};
use crate::session::{self, OutputCommit, Pace, Summary};
use crate::state::{StateDir, Store};
use crate::statistics::{Ledger, Loaded};
use crate::stdio::{self, Stdio};
use crate::timers::Dues;
use std::path::Path;
use std::time::{Duration, SystemTime};
use twinpage_core::{Epoch, Recovered, Scheme};
use twinpage_os::cpuid::Level;
use twinpage_os::ticker::{ALARM, Ticker};
use twinpage_os::{messages, user_signals};

/// Goes on with the program in `state`, from an older checkpoint if `at` names one. Must be called while this process has one thread.
///
/// # Errors
/// One line: what went wrong and what to do.
pub fn resume(state: &Path, at: Option<At>, pace: Pace) -> Result<Summary, String> {
    let started = SystemTime::now(); // the monotonic clock is another inside
    if let Some(at) = at {
        let (about, left) = older::go_back(state, at).map_err(|error| error.to_string())?;
        messages::tell(&format!(
            "went back to {} (epoch {}); where it was is kept as {left}",
            about.number, about.epoch
        ));
    }
    let opened = StateDir::open(state).and_then(|(directory, store, recovered)| {
        let context = checked_context(state, &recovered)?;
        Ok((directory, store, recovered.epoch, context))
    });
    let (directory, store, epoch, mut context) = opened.map_err(|error| error.to_string())?;
    let pace = pace.on(directory.durability());
    let rested_ns = Rested::of(directory.path()).ns_since(context.clocks);
    rested::shorten_timers(&mut context, rested_ns);
    let begins_ns = context.clocks.monotonic_ns + rested_ns;
    let clock_shift = i128::from(begins_ns) - i128::from(Clocks::now().monotonic_ns);
    launch::contained(directory.place(clock_shift), move || {
        go_on(&context, &directory, store, epoch, pace, started)
    })
}

fn checked_context(state: &Path, recovered: &Recovered) -> Result<Context> {
    if recovered.epoch == 0 {
        return Err(Error::State(format!(
            "{}: the program was killed before its first checkpoint; start it again with twinpage run",
            state.display()
        )));
    }
    let context = context::read(&recovered.context)?;
    context.fixed.machine.check_against(&Machine::this()?)?;
    Ok(context)
}

fn go_on(
    captured: &Context,
    directory: &StateDir,
    store: Store,
    epoch: Epoch,
    pace: Pace,
    started: SystemTime,
) -> Result<Summary> {
    pace.prepare_signals();
    if captured.fixed.ended.is_some() {
        user_signals::end_on(&session::ENDING); // there is nothing to pass them on to
    }
    start_helpers()?;
    if let Some(ending) = captured.ending() {
        return finish_printing(captured, directory, ending);
    }
    let alarm = alarm_for_deaths()?;
    let again = make_again(captured, directory, &store, epoch, started);
    let Some(again) = unless_killed(again)? else {
        return Ok(killed());
    };
    drop(alarm); // the session has its own
    let mut ledger = Ledger::open(directory.path(), store.geometry());
    ledger.restored(again.restore_ms, again.loaded.clone());
    let summary = session::run(again.program, store, again.witness, pace, ledger)?;
    Ok(Summary {
        restore_ms: Some(again.restore_ms),
        loaded: Some(again.loaded),
        ..summary
    })
}

/// What a program printed last may still be held.
fn finish_printing(captured: &Context, directory: &StateDir, ending: Ending) -> Result<Summary> {
    streams(captured, directory)?.finish()?;
    messages::tell("the program has finished; there is nothing to resume");
    Ok(Summary {
        ended: Some(ending),
        ..Summary::default()
    })
}

fn streams(captured: &Context, directory: &StateDir) -> Result<Stdio> {
    let held = inspect::decode_streams(captured)?;
    let real = stdio::RealStreams::current()?;
    Ok(Stdio::resume(real, stream_options(directory), &held)?)
}

/// A program that was made again, and how long that took.
struct Again {
    program: Program,
    witness: OutputCommit,
    restore_ms: f64,
    loaded: Loaded,
}

fn make_again(
    captured: &Context,
    directory: &StateDir,
    store: &Store,
    epoch: Epoch,
    started: SystemTime,
) -> Result<Again> {
    let (context, apart) = restore::side_by_side(captured);
    let context = &*context;
    let mut sockets = restore::sockets::make(context)?;
    let streams = streams(captured, directory)?;
    let rolled_back = context.live.roll_back_files(directory.path(), epoch)?;
    rolled_back.tell();
    let moved = rolled_back.moved;
    restore::unix_sockets::make(context, directory.path(), &mut sockets)?;
    let cpu_floor = floor_here(directory.cpu_floor())?;
    let alone = context.members.is_empty() && context.fixed.ended.is_none();
    let mut setting = Setting::new(directory, streams, epoch, cpu_floor, alone)?;
    setting.files.set_links(&context.live.links, &moved);
    program::forget_copies_but(&context.fixed.kernel.memory.exe, directory.path())?;
    let restored = restore::restore(
        context,
        directory.path(),
        store,
        &restore::Surroundings {
            streams: &setting.streams,
            sockets: &sockets,
            cpu_floor,
            is_told: directory.resume_signal().is_some(),
        },
        &setting.filter,
        &moved,
        &apart,
    )?;
    let took = |until: SystemTime| until.duration_since(started).unwrap_or_default().as_secs_f64() * 1e3;
    let loaded = Loaded {
        ms: took(SystemTime::now()),
        waited: restored.waited.map(str::to_owned),
    };
    setting.sockets.lent = sockets.into_lent();
    let went_on = restored.went_on;
    let signal = directory.resume_signal();
    let (program, witness) = put_together(setting, captured, !apart.is_empty(), restored, signal)?;
    let goes_on = match loaded.waited {
        Some(_) => SystemTime::now(),
        None => went_on,
    };
    Ok(Again {
        program,
        witness,
        restore_ms: took(goes_on),
        loaded,
    })
}

/// The alarm of a restore, which waits for threads one by one. If the program is killed, only an alarm ends the wait for
/// the first of several threads: [`twinpage_os::trace::wait`]. Most restores end before it rings.
fn alarm_for_deaths() -> Result<Ticker> {
    let alarm = Ticker::for_this_thread(ALARM);
    let alarm = alarm.map_err(|source| Error::target("cannot set an alarm", source))?;
    alarm.set(Duration::from_secs(2), Duration::from_millis(100));
    Ok(alarm)
}

/// A program, unless it was killed while it was made again. That is no error: the next resume makes it once more.
fn unless_killed<T>(made: Result<T>) -> Result<Option<T>> {
    match made {
        Err(error) if error.is_kill() => {
            messages::tell(&Error::Killed.to_string());
            Ok(None)
        }
        made => made.map(Some),
    }
}

/// The end of a program that was killed before it went on.
fn killed() -> Summary {
    Summary {
        ended: Some(Ending::Signal(libc::SIGKILL)),
        ..Summary::default()
    }
}

/// A program that was made again, with its descendants, about to go on. The context is the captured one: its descriptors
/// are numbered by table, as they are from now on.
fn put_together(
    setting: Setting,
    context: &Context,
    is_apart: bool,
    restored: Restored,
    signal: Option<i32>,
) -> Result<(Program, OutputCommit)> {
    let (fixed, live) = (&context.fixed, &context.live);
    let descriptors = Descriptors::resumed(
        restored.pairs,
        (&fixed.descriptors, &live.held),
        |table| context.process_of_table(table),
        is_apart,
    );
    let carried = Carried {
        ended: fixed.ended,
        main_thread_ended: fixed.main_thread_ended,
        settings: fixed.kernel.settings.clone(),
        dues: Dues::resumed(&fixed.kernel.timers, &live.timers, context.clocks),
        objects: restored.objects,
        segments: restored.segments,
        ipc: Ipc::restored(&fixed.ipc),
        last_id: fixed.last_id,
        descriptors,
        fifos: fixed.fifos.iter().cloned().collect(),
        calls: restored.calls,
        stops: restored.stops,
    };
    let (process, tids, memory) = (restored.process, &restored.tids, restored.memory);
    let (mut program, witness) = setting.program(process, tids, memory, fixed.command.clone(), carried)?;
    program.resume(context, restored.descendants, signal);
    Ok((program, witness))
}

/// The level above which the processor is hidden from a program that goes on here, if it can be.
fn floor_here(floor: Option<Level>) -> Result<Option<Level>> {
    let Some(level) = floor else { return Ok(None) };
    if Machine::this()?.can_hide() {
        return Ok(floor);
    }
    messages::tell(&format!(
        "this processor cannot hide its features (cpuid faulting): from now on the program sees all of them, not {level} alone, and its next checkpoints resume where there are as many"
    ));
    Ok(None)
}
