//! `run`: a program from its first instruction.

use crate::advice::AdviceInForce;
use crate::error::{Error, Result};
use crate::files::{self, Recorder};
use crate::launch::{self, Command};
use crate::layout::Layout;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::notes::Notes;
use crate::pages::Pages;
use crate::program::{self, Carried, Program, Surroundings};
use crate::session::{self, OutputCommit, Pace, Summary};
use crate::sockets::Sockets;
use crate::state::{Choices, StateDir, Store};
use crate::statistics::Ledger;
use crate::stdio::{self, Stdio};
use crate::syscalls;
use std::path::Path;
use std::sync::Arc;
use twinpage_core::{Epoch, Geometry, Scheme};
use twinpage_os::Durability;
use twinpage_os::cpuid::Level;
use twinpage_os::remote::Process;
use twinpage_os::seccomp::Filter;
use twinpage_os::spawn;

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

/// What `run` and `resume` share: the relays, the recorder of files, the filter.
pub(crate) struct Setting {
    pub(crate) streams: Arc<Stdio>,
    pub(crate) files: Recorder,
    pub(crate) filter: Filter,
    /// Whether that one lets the program write.
    writes_freely: bool,
    /// The program goes on from a checkpoint.
    is_resumed: bool,
    pub(crate) sockets: Sockets,
    notes: Notes,
    cpu_floor: Option<Level>,
}

impl Setting {
    /// For a program that is `alone`, one process, or with descendants.
    pub(crate) fn new(
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
            is_resumed: epoch > 0,
            sockets: Sockets::new(replies, epoch)?,
            notes: Notes::of_state(directory.path()),
            cpu_floor,
        })
    }

    /// A program, stopped, and who must know of its commits.
    pub(crate) fn program(
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
        let writes = free.map_or(Ok(()), |&tid| {
            program.write_freely_until_needed(tid, self.is_resumed)
        });
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

pub(crate) fn stream_options(directory: &StateDir) -> stdio::Options {
    stdio::Options::new(directory.path(), directory.durability().outlives_machine())
}

/// The helpers must exist before the program does: their thread ids are below its own, so that no
/// resume finds one taken.
pub(crate) fn start_helpers() -> Result<()> {
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
