//! `run` and `resume`: a program from its first instruction, or from its last checkpoint.

use crate::advice::AdviceInForce;
use crate::clocks::Clocks;
use crate::context::{self, Ending};
use crate::descriptors::Descriptors;
use crate::error::{Error, Result};
use crate::files::{self, Recorder};
use crate::inspect;
use crate::ipc::Ipc;
use crate::launch::{self, Command};
use crate::layout::Layout;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::notes::Notes;
use crate::older::{self, At};
use crate::pages::Pages;
use crate::program::{self, Carried, Program, Surroundings};
use crate::rested::{self, Rested};
use crate::restore::{self, Restored};
use crate::session::{self, OutputCommit, Pace, Summary};
use crate::sockets::Sockets;
use crate::state::{Choices, StateDir, Store};
use crate::statistics::{Ledger, Loaded};
use crate::stdio::{self, Stdio};
use crate::syscalls;
use crate::timers::Dues;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use twinpage_core::{Epoch, Geometry, Recovered, Scheme};
use twinpage_os::Durability;
use twinpage_os::cpuid::Level;
use twinpage_os::messages;
use twinpage_os::remote::Process;
use twinpage_os::seccomp::Filter;
use twinpage_os::spawn;
use twinpage_os::ticker::{ALARM, Ticker};
use twinpage_os::user_signals;

/// Runs `command` under twinpage, with its state in `state`, until it ends. Must be called while this
/// process has one thread.
///
/// # Errors
/// One line: what went wrong and what to do.
pub fn run(
    command: &Command,
    state: &Path,
    durability: Durability,
    choices: Choices,
    pace: Pace,
) -> Result<Summary, String> {
    let told = |error: Error| error.to_string();
    let pace = pace.on(durability);
    if choices.cpu_floor.is_some() {
        // Before a state is made.
        let here = Machine::this().and_then(|machine| machine.with_floor(choices.cpu_floor));
        here.map_err(told)?;
    }
    let (directory, store) = StateDir::create(state, durability, choices).map_err(told)?;
    launch::contained(directory.place(0), move || {
        begin(command, &directory, store, pace)
    })
}

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

fn checked_context(state: &Path, recovered: &Recovered) -> Result<context::Context> {
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

/// What `run` and `resume` share: the relays, the recorder of files, the filter.
struct Setting {
    streams: Arc<Stdio>,
    files: Recorder,
    filter: Filter,
    /// Whether that one lets the program write.
    writes_freely: bool,
    sockets: Sockets,
    notes: Notes,
    cpu_floor: Option<Level>,
}

impl Setting {
    /// For a program that is `alone`, one process, or with descendants.
    fn new(
        directory: &StateDir,
        streams: Stdio,
        epoch: Epoch,
        cpu_floor: Option<Level>,
        alone: bool,
    ) -> Result<Setting> {
        let replies = directory.replies();
        let free = match alone {
            true => syscalls::free_with_writes(replies),
            false => syscalls::free_calls(replies),
        };
        Ok(Setting {
            streams: Arc::new(streams),
            files: Recorder::create(
                directory.path(),
                files::Options::new(file_durability(directory)),
                epoch,
            )?,
            filter: syscalls::filter(&free)?,
            writes_freely: alone,
            sockets: Sockets::new(replies, epoch)?,
            notes: Notes::of_state(directory.path()),
            cpu_floor,
        })
    }

    /// A program, stopped, and who must know of its commits.
    fn program(
        self,
        process: Process,
        tids: &[i32],
        memory: Memory,
        command: Vec<String>,
        carried: Carried,
    ) -> Result<(Program, OutputCommit)> {
        self.streams.begin();
        let witness = OutputCommit::new(self.streams.clone(), self.sockets.outbox.clone());
        let surroundings = Surroundings {
            command,
            streams: self.streams,
            files: self.files,
            notes: self.notes,
            sockets: self.sockets,
            cpu_floor: self.cpu_floor,
            carried,
        };
        let mut program = Program::new(process, tids, memory, surroundings)?;
        let free = tids.first().filter(|_| self.writes_freely);
        let writes = free.map_or(Ok(()), |&tid| program.write_freely_until_needed(tid));
        let read = writes.and_then(|()| program.read_program());
        match read {
            Err(_) if program.stands_no_longer() => Err(Error::Killed),
            read => read.map(|()| (program, witness)),
        }
    }
}

fn file_durability(directory: &StateDir) -> files::Durability {
    match directory.durability() {
        Durability::Disk | Durability::Dax => files::Durability::Disk,
        Durability::Memory => files::Durability::Memory,
    }
}

fn stream_options(directory: &StateDir) -> stdio::Options {
    stdio::Options::new(directory.path(), directory.durability().outlives_machine())
}

/// The helpers must exist before the program does: their thread ids are below its own, so that no
/// resume finds one taken.
fn start_helpers() -> Result<()> {
    rayon::ThreadPoolBuilder::new()
        .thread_name(|index| format!("helper {index}"))
        .build_global()
        .map_err(|error| Error::Internal(format!("cannot start helpers: {error}")))?;
    rayon::broadcast(|_| ());
    Ok(())
}

fn begin(command: &Command, directory: &StateDir, store: Store, pace: Pace) -> Result<Summary> {
    pace.prepare_signals();
    start_helpers()?;
    let streams = Stdio::run(stdio::RealStreams::current()?, stream_options(directory))?;
    let setting = Setting::new(directory, streams, 0, directory.cpu_floor(), true)?;
    let (program, witness) = match to_first_instruction(setting, command, directory, store.geometry()) {
        Err(error) if error.is_kill() => return Err(launch::killed_before_it_began(libc::SIGKILL)),
        started => started?,
    };
    let ledger = Ledger::open(directory.path(), store.geometry());
    session::run(program, store, witness, pace, ledger)
}

/// A new program, which has run nothing yet.
///
/// # Errors
/// Also one that is [`Error::is_kill`], when it was killed.
fn to_first_instruction(
    setting: Setting,
    command: &Command,
    directory: &StateDir,
    geometry: Geometry,
) -> Result<(Program, OutputCommit)> {
    let terminal = setting.streams.terminal().map(|stream| stream as i32);
    launch::start(
        command,
        &setting.streams.program_ends(),
        terminal,
        &setting.filter,
    )?;
    spawn::raise_descriptor_limit() // ours, not the program's: what it has open is open here too
        .map_err(|source| Error::target("cannot raise the limit of open files", source))?;
    let look = |source| Error::target("cannot look at the program", source);
    let pid = command.pid;
    let process = Process::open(pid).map_err(look)?;
    let layout = Layout::open(pid).map_err(look)?;
    let tracker = program::plant_and_track(&process, pid, directory.cpu_floor())?;
    let memory = Memory::new(
        layout,
        tracker,
        Pages::new(geometry)?,
        AdviceInForce::default(),
        geometry,
    );
    setting.program(process, &[pid], memory, command.words.clone(), Carried::default())
}

fn go_on(
    captured: &context::Context,
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
    let alarm = alarm_for_deaths()?;
    let held = inspect::decode_streams(captured)?;
    let (context, apart) = restore::side_by_side(captured);
    let context = &*context;
    // Before anything else: with a port that is taken nothing is changed.
    let mut sockets = match context.ending() {
        Some(_) => restore::MadeSockets::default(),
        None => restore::sockets::make(context)?,
    };
    let streams = Stdio::resume(stdio::RealStreams::current()?, stream_options(directory), &held)?;
    if let Some(ending) = context.ending() {
        streams.finish()?; // what it printed last may still be held
        messages::tell("the program has finished; there is nothing to resume");
        return Ok(Summary {
            ended: Some(ending),
            ..Summary::default()
        });
    }
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
        &store,
        &restore::Surroundings {
            streams: &setting.streams,
            sockets: &sockets,
            cpu_floor,
            is_told: directory.resume_signal().is_some(),
        },
        &setting.filter,
        &moved,
        &apart,
    );
    let Some(restored) = unless_killed(restored)? else {
        return Ok(killed());
    };
    let took = |until: SystemTime| until.duration_since(started).unwrap_or_default().as_secs_f64() * 1e3;
    let loaded = Loaded {
        ms: took(SystemTime::now()),
        waited: restored.waited.map(str::to_owned),
    };
    setting.sockets.lent = sockets.into_lent();
    let went_on = restored.went_on;
    let together = put_together(
        setting,
        captured,
        !apart.is_empty(),
        restored,
        directory.resume_signal(),
    );
    let Some((program, witness)) = unless_killed(together)? else {
        return Ok(killed());
    };
    drop(alarm); // the session has its own
    let restore_ms = took(match loaded.waited {
        Some(_) => SystemTime::now(),
        None => went_on,
    });
    let mut ledger = Ledger::open(directory.path(), store.geometry());
    ledger.restored(restore_ms, loaded.clone());
    let summary = session::run(program, store, witness, pace, ledger)?;
    Ok(Summary {
        restore_ms: Some(restore_ms),
        loaded: Some(loaded),
        ..summary
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
    context: &context::Context,
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
