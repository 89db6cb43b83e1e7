//! `twinpage list`, `twinpage stop`, `twinpage clean`: the states there are, and what becomes of them.
//!
//! * A state that a person did not name lies below the user's state directory; one that they did, wherever they
//!   said. So each command takes directories too: states, or directories of states.
//! * Only what has nothing to be resumed for is removed: a program that finished and whose output is all outside,
//!   or one that never had a checkpoint.

use crate::args::{Clean, Fork, List, Stop};
use crate::show;
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};
use twinpage_commands::FAILED;
use twinpage_commands::report::table;
use twinpage_os::messages;
use twinpage_os::{Holder, Lock, LockError, user_signals};
use twinpage_process::inspect::{self, Inspection};
use twinpage_process::older::{self, About};
use twinpage_process::rested::Rested;
use twinpage_process::state;

/// Below the user's state directory: `XDG_STATE_HOME`, or its default.
pub(crate) fn base() -> Result<PathBuf, String> {
    let base = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))
        .ok_or("no place for the state is known (HOME is not set): name one with --state DIR")?;
    Ok(base.join("twinpage"))
}

/// What can be done with a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Status {
    Running,
    Resumable,
    Finished,
    /// Killed before its first checkpoint.
    Empty,
    Damaged,
    /// It cannot be read: another build made it, or `resume --at` was interrupted.
    Unknown,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Status::Running => "running",
            Status::Resumable => "resumable",
            Status::Finished => "finished",
            Status::Empty => "no checkpoint",
            Status::Damaged => "damaged",
            Status::Unknown => "unknown",
        }
    }
}

/// One state, as in a list.
struct State {
    path: PathBuf,
    status: Status,
    command: Vec<String>,
    /// Since its last checkpoint.
    age: Option<Duration>,
    bytes: u64,
    held_output_bytes: u64,
    /// Not known where they cannot be read.
    older: Option<Vec<Older>>,
    why: Option<String>,
}

impl State {
    /// `None` when there is no state of a program.
    fn at(path: &Path) -> Option<State> {
        if !path.join("kind").is_file() {
            return None;
        }
        let (older, why) = match older(path) {
            Ok(older) => (Some(older), None),
            Err(error) => (None, Some(error)),
        };
        let mut state = State {
            path: path.to_owned(),
            status: Status::Unknown,
            command: Vec::new(),
            age: None,
            bytes: bytes_in(path),
            held_output_bytes: 0,
            older,
            why,
        };
        match inspect::inspect(path) {
            Ok(found) => state.fill(&found),
            Err(error) => {
                state.why = Some(error.to_string());
                // The bytes of one that runs may never have stood still.
                let is_held = matches!(Lock::to_read(path), Err(LockError::Held { .. }));
                state.status = match (is_held, inspect::damage_of(error)) {
                    (true, _) => Status::Running,
                    (false, Ok(_)) => Status::Damaged,
                    (false, Err(_)) => Status::Unknown,
                };
            }
        }
        Some(state)
    }

    fn fill(&mut self, found: &Inspection) {
        let ended = found
            .context
            .as_ref()
            .is_some_and(|context| context.ending().is_some());
        self.status = match (&found.in_use, &found.context) {
            (Some(_), _) => Status::Running,
            (None, None) => Status::Empty,
            (None, Some(_)) if ended => Status::Finished,
            (None, Some(_)) => Status::Resumable,
        };
        match found.held_output_bytes() {
            Ok(held) => self.held_output_bytes = held,
            Err(error) => {
                self.why = Some(error.to_string());
                self.status = match inspect::damage_of(error) {
                    Ok(_) => Status::Damaged,
                    Err(_) => Status::Unknown,
                };
            }
        }
        if let Some(context) = &found.context {
            let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(context.clocks.realtime_ns);
            self.age = Some(SystemTime::now().duration_since(at).unwrap_or_default());
            self.command.clone_from(&context.fixed.command);
        }
    }

    /// Whether it is of no use any more.
    fn is_over(&self) -> bool {
        if !self.older.as_ref().is_some_and(Vec::is_empty) {
            return false;
        }
        match self.status {
            Status::Finished => self.held_output_bytes == 0,
            Status::Empty => true,
            Status::Running | Status::Resumable | Status::Damaged | Status::Unknown => false,
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "state": self.path,
            "status": self.status.name(),
            "command": self.command,
            "age_s": self.age.map(|age| age.as_secs_f64()),
            "bytes": self.bytes,
            "held_output_bytes": self.held_output_bytes,
            "older": self.older.as_ref().map(|older| older.iter().map(Older::to_json).collect::<Vec<_>>()),
            "why": self.why,
        })
    }
}

/// An older checkpoint that is kept.
pub(crate) struct Older {
    about: About,
    age: Duration,
    bytes: u64,
}

impl Older {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "number": self.about.number,
            "epoch": self.about.epoch,
            "age_s": self.age.as_secs_f64(),
            "bytes": self.bytes,
            "left": self.about.left,
            "files": self.about.files.len(),
        })
    }

    pub(crate) fn line(&self) -> String {
        let About {
            number, epoch, left, ..
        } = self.about;
        let left = if left {
            "; where it was when it went back"
        } else {
            ""
        };
        let (age, bytes) = (show::time(self.age), show::bytes(self.bytes));
        format!("{number}: epoch {epoch}, {age} ago, {bytes}{left}")
    }
}

/// The older checkpoints that are kept with a state, oldest first.
pub(crate) fn older(state: &Path) -> Result<Vec<Older>, String> {
    let kept = older::list(state).map_err(|error| error.to_string())?;
    let look = |about: About| Older {
        age: SystemTime::now().duration_since(about.time()).unwrap_or_default(),
        bytes: bytes_in(&older::path_of(state, about.number)),
        about,
    };
    Ok(kept.into_iter().map(look).collect())
}

/// Bytes that the files of a directory take on the disk.
fn bytes_in(path: &Path) -> u64 {
    const BLOCK: u64 = 512;
    let Ok(entries) = std::fs::read_dir(path) else {
        return 0;
    };
    let sizes = entries.flatten().filter_map(|entry| {
        let meta = entry.metadata().ok()?;
        Some(if meta.is_dir() {
            bytes_in(&entry.path())
        } else {
            meta.blocks() * BLOCK
        })
    });
    sizes.sum()
}

/// The states in these directories, which are states or hold some; without any, those of the user.
fn find(places: &[PathBuf]) -> Result<Vec<State>, String> {
    let own;
    let places = if places.is_empty() {
        own = [base()?];
        &own[..]
    } else {
        places
    };
    let mut found = Vec::new();
    for place in places {
        if let Some(state) = State::at(place) {
            found.push(state);
            continue;
        }
        let mut inside: Vec<PathBuf> = match std::fs::read_dir(place) {
            Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && own_place(place) => Vec::new(),
            Err(error) => {
                let place = place.display();
                return Err(format!(
                    "cannot list {place}: {error}; name a state, or a directory of states"
                ));
            }
        };
        inside.sort();
        found.extend(inside.iter().filter_map(|path| State::at(path)));
    }
    Ok(found)
}

fn own_place(place: &Path) -> bool {
    base().is_ok_and(|base| base == place)
}

pub(crate) fn list(arguments: &List) -> Result<ExitCode, String> {
    let found = find(&arguments.places)?;
    if arguments.json {
        let states: Vec<Value> = found.iter().map(State::to_json).collect();
        println!("{:#}", json!({ "states": states }));
        return Ok(ExitCode::SUCCESS);
    }
    if found.is_empty() {
        println!("no states");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = table(["state", "status", "checkpoint", "older", "size", "program"]);
    for state in &found {
        let age = state
            .age
            .map_or("none".into(), |age| format!("{} ago", show::time(age)));
        table.add_row([
            state.path.display().to_string(),
            state.status.name().into(),
            age,
            (state.older.as_ref()).map_or("unknown".into(), |older| older.len().to_string()),
            show::bytes(state.bytes),
            state.why.clone().unwrap_or_else(|| state.command.join(" ")),
        ]);
    }
    println!("{table}");
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn clean(arguments: &Clean) -> Result<ExitCode, String> {
    let (mut gone, mut failed) = (Vec::new(), Vec::new());
    for state in find(&arguments.places)? {
        if !state.is_over() {
            // Of one that was named, saying nothing would say that it is gone.
            if !arguments.json && arguments.places.contains(&state.path) {
                println!(
                    "kept {} ({}): only what has finished is removed",
                    state.path.display(),
                    state.status.name()
                );
            }
            continue;
        }
        if !arguments.dry_run
            && let Err(why) = remove(&state.path)
        {
            if !arguments.json {
                messages::tell(&why);
            }
            failed.push(json!({ "state": state.path, "why": why }));
            continue;
        }
        if !arguments.json {
            let done = if arguments.dry_run {
                "would remove"
            } else {
                "removed"
            };
            let program = state.command.join(" ");
            println!(
                "{done} {} ({}, {}) {program}",
                state.path.display(),
                state.status.name(),
                show::bytes(state.bytes)
            );
        }
        gone.push(state.to_json());
    }
    let code = match failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(FAILED),
    };
    if arguments.json {
        let removed = !arguments.dry_run;
        println!(
            "{:#}",
            json!({ "removed": removed, "states": gone, "failed": failed })
        );
    }
    Ok(code)
}

pub(crate) fn fork(arguments: &Fork) -> Result<ExitCode, String> {
    let Fork { json, state, new } = arguments;
    let epoch = twinpage_process::fork::fork(state, new).map_err(|error| error.to_string())?;
    if *json {
        println!("{:#}", json!({ "state": state, "new": new, "epoch": epoch }));
    } else {
        messages::tell(&format!(
            "{} has epoch {epoch} of {}; go on with: twinpage resume {}",
            new.display(),
            state.display(),
            new.display()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes a state that is not in use.
pub(crate) fn remove(path: &Path) -> Result<(), String> {
    let _lock = state::lock(path).map_err(|error| error.to_string())?;
    let told = |error| format!("cannot remove {}: {error}", path.display());
    Rested::of(path).remove();
    // First what makes it a state: what is left after a kill is none.
    std::fs::remove_file(path.join("kind")).map_err(told)?;
    std::fs::remove_dir_all(path).map_err(told)
}

/// Whether a state lies in the folder of states without a given name.
pub(crate) fn is_own(state: &Path) -> bool {
    let parent = state
        .canonicalize()
        .ok()
        .and_then(|state| Some(state.parent()?.to_owned()));
    parent.is_some() && parent == base().ok().and_then(|base| base.canonicalize().ok())
}

/// Removes a state that has nothing to be resumed for. One that cannot be removed is found by `clean`.
pub(crate) fn remove_if_over(path: &Path) {
    if State::at(path).is_some_and(|state| state.status == Status::Finished && state.is_over()) {
        let _ = remove(path);
    }
}

/// Between two looks whether a run has been suspended.
const PAUSE: Duration = Duration::from_millis(5);
/// A process that has the state for longer, and was not asked for a suspension, is named.
const SILENCE: Duration = Duration::from_secs(1);

/// Whether another process is a twinpage, by its name.
fn is_twinpage(holder: &Holder) -> bool {
    let own = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    holder.name.as_deref() == Some(own.trim_end())
}

/// Returns when no process has the state any more. The one that runs its program is asked to suspend it: whether one was.
fn suspend(state: &Path) -> Result<bool, String> {
    let (mut asked, mut has_it, mut since, mut is_told) = (None, None, Instant::now(), false);
    loop {
        let holder = match Lock::take(state) {
            Ok(_) => return Ok(asked.is_some()),
            Err(LockError::Held { holder, .. }) => holder,
            Err(error) => return Err(error.to_string()),
        };
        if has_it.as_ref() != Some(&holder) {
            (has_it, since, is_told) = (Some(holder.clone()), Instant::now(), false);
        }
        let may_be_asked = |pid: &u32| asked == Some(*pid) || user_signals::can_be_suspended(*pid);
        if let Some(pid) = holder.pid.filter(may_be_asked) {
            if asked != Some(pid) {
                user_signals::ask_other_to_suspend(pid)
                    .map_err(|error| format!("cannot stop process {pid}: {error}"))?;
                asked = Some(pid);
            }
            user_signals::continue_stopped(pid); // its user may have stopped it with ^Z
        } else if since.elapsed() >= SILENCE.max(holder.patience()) && !is_twinpage(&holder) {
            let why = match holder.pid {
                Some(_) => {
                    format!("is in use by {holder}, which cannot be suspended; wait for it to end, or end it")
                }
                None => {
                    "is used in another container: stop it from there, or send SIGTERM to its twinpage".into()
                }
            };
            return Err(format!("{} {why}", state.display()));
        } else if since.elapsed() >= SILENCE && !is_told {
            // What is left of a killed one, a reader, or a twinpage that begins or does something else with it.
            messages::tell(&format!("{} is in use by {holder}: waiting", state.display()));
            is_told = true;
        }
        std::thread::sleep(PAUSE);
    }
}

pub(crate) fn stop(arguments: &Stop) -> Result<ExitCode, String> {
    let state = &arguments.state;
    let told = |error: twinpage_process::Error| error.to_string();
    let before = inspect::inspect(state).map_err(told)?.in_use.is_some();
    let asked = suspend(state)?;
    let found = State::at(state).ok_or_else(|| {
        format!(
            "{}: the program has finished, and its state is gone",
            state.display()
        )
    })?;
    if arguments.json {
        let mut document = found.to_json();
        document["stopped"] = json!(asked);
        println!("{document:#}");
    } else {
        messages::tell(&match found.status {
            Status::Resumable if before => {
                format!("stopped; go on with: twinpage resume {}", state.display())
            }
            Status::Resumable => format!(
                "nothing runs in it; go on with: twinpage resume {}",
                state.display()
            ),
            status => format!("{}: {}", state.display(), status.name()),
        });
    }
    Ok(ExitCode::SUCCESS)
}
