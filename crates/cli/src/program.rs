//! `twinpage run`, `twinpage resume` and `twinpage attach`.

use crate::args::{Attach, PaceArguments, Resume, Run};
use crate::states;
use std::fs::{DirBuilder, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use twinpage_lab::whole_file;
use twinpage_os::{messages, namespaces, signals, user_signals};
use twinpage_process::attach::{self, Begun, Left, Side};
use twinpage_process::context::Ending;
use twinpage_process::launch::Command;
use twinpage_process::session::Summary;
use twinpage_process::state::{Choices, make_directory};
use twinpage_process::{resume, run};

pub(crate) fn run(arguments: Run) -> Result<ExitCode, String> {
    if arguments.explain {
        return crate::explain::print(arguments.json);
    }
    let pace = arguments.pace.pace()?;
    begin_with_rights()?;
    prepare_outputs(&arguments.pace)?;
    let command = Command::find(&arguments.program).map_err(|error| error.to_string())?;
    let (state, chosen) = match arguments.state {
        Some(state) => (state, false),
        None => (default_state(&command.words[0])?, true),
    };
    if chosen {
        messages::tell(&format!(
            "if it is killed, go on with: twinpage resume {}",
            state.display()
        ));
    }
    if arguments.pace.detach
        && let Some(code) = detach(&state)?
    {
        return Ok(code);
    }
    let summary = run::run(
        &command,
        &state,
        arguments.durability.into(),
        Choices {
            replies: arguments.replies.into(),
            resume_signal: arguments.resume_signal,
            network: arguments.network.into(),
            cpu_floor: arguments.cpu_floor,
        },
        pace,
    );
    if chosen && summary.is_err() {
        let _ = std::fs::remove_dir(&state); // only when nothing was put there
    }
    finish(&summary?, &arguments.pace, &state)
}

pub(crate) fn resume(arguments: Resume) -> Result<ExitCode, String> {
    let pace = arguments.pace.pace()?;
    begin_with_rights()?;
    prepare_outputs(&arguments.pace)?;
    if arguments.pace.detach
        && let Some(code) = detach(&arguments.state)?
    {
        return Ok(code);
    }
    let summary = resume::resume(&arguments.state, arguments.at, pace)?;
    finish(&summary, &arguments.pace, &arguments.state)
}

fn begin_with_rights() -> Result<(), String> {
    namespaces::begin_with_rights().map_err(|error| error.to_string())
}

/// Goes on in a process with a terminal that is kept for it; the exit code of the process that was called.
fn detach(state: &Path) -> Result<Option<ExitCode>, String> {
    let side = attach::detach(state).map_err(|error| format!("cannot run in the background: {error}"))?;
    match side {
        Side::Program => Ok(None),
        Side::Caller(Begun::Runs) => {
            messages::tell(&format!(
                "it runs in the background; see it with: twinpage attach {}",
                state.display()
            ));
            Ok(Some(ExitCode::SUCCESS))
        }
        Side::Caller(Begun::Ended(code, printed)) => {
            // Printed on a terminal, which ends lines with a carriage return.
            let text = String::from_utf8_lossy(&printed).replace("\r\n", "\n");
            match code {
                0 => print!("{text}"),
                _ => eprint!("{text}"),
            }
            Ok(Some(ExitCode::from(code)))
        }
    }
}

pub(crate) fn attach(arguments: &Attach) -> Result<ExitCode, String> {
    let state = arguments.state.display();
    let left = attach::attach(&arguments.state, arguments.key.0).map_err(|error| error.to_string())?;
    match left {
        Left::ByKey => {
            messages::tell(&format!("it goes on; come back with: twinpage attach {state}"));
            Ok(ExitCode::SUCCESS)
        }
        Left::Ended(code) => Ok(ExitCode::from(code)),
        Left::TooSlow => Err(format!(
            "this terminal took too little of what the program prints; the program goes on: twinpage attach {state}"
        )),
        Left::KeeperGone => Err(format!(
            "the process that held its terminal was killed, and the program is suspended; go on with: twinpage resume --detach {state}"
        )),
    }
}

/// A new directory below the user's state directory, named after the program and numbered.
fn default_state(program: &str) -> Result<PathBuf, String> {
    let base = states::base()?;
    make_directory(&base).map_err(|error| format!("{error}; name one with --state DIR"))?;
    let told = |path: &Path| format!("cannot make a directory for the state in {}", path.display());
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    let name = Path::new(program)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    // The first number that is free: what is made is this run's alone, however many begin at once.
    for number in 1u64.. {
        let state = base.join(format!("{name}-{number}"));
        match builder.create(&state) {
            Ok(()) => return Ok(state),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(format!("{}: {error}; name one with --state DIR", told(&base))),
        }
    }
    Err(format!("{}; name one with --state DIR", told(&base)))
}

/// Messages go where they are asked for; that statistics can be written is seen before the program runs.
fn prepare_outputs(pace: &PaceArguments) -> Result<(), String> {
    if let Some(path) = &pace.stats {
        whole_file::check(path)?;
    }
    let Some(path) = &pace.messages else {
        return Ok(());
    };
    let file = OpenOptions::new().append(true).create(true).open(path);
    messages::redirect(file.map_err(|error| format!("cannot write to {}: {error}", path.display()))?);
    Ok(())
}

/// What a run that was stopped by `twinpage stop` ends of: SIGTERM.
const TERMINATED: i32 = rustix::process::Signal::TERM.as_raw();

/// Writes statistics, and ends as the program did.
fn finish(summary: &Summary, pace: &PaceArguments, state: &Path) -> Result<ExitCode, String> {
    if let Some(path) = &pace.stats {
        let mut document = serde_json::to_value(summary).map_err(|error| error.to_string())?;
        let bytes_per_hour = summary.pace.bytes_per_hour(summary.bytes_written);
        document["pace"] = crate::info::json_of_pace(&summary.pace, bytes_per_hour);
        // The program ended, and as it did the command ends.
        if let Err(why) = whole_file::write(path, &format!("{document:#}\n")) {
            messages::tell(&format!("cannot write statistics: {why}"));
        }
    }
    if let Some(signal) = summary.suspended {
        messages::tell(&format!(
            "suspended; go on with: twinpage resume {}",
            state.display()
        ));
        let by_request = signal == user_signals::SUSPEND;
        signals::die_of(if by_request { TERMINATED } else { signal });
    }
    // One that was killed by others has not finished: it is still resumable, and stays.
    if summary.ended.is_some() && !pace.keep_state && states::is_own(state) {
        states::remove_if_over(state);
    }
    match summary.ended {
        Some(Ending::Signal(signal)) => signals::die_of(signal),
        Some(Ending::Exit(code)) => Ok(ExitCode::from(code as u8)),
        None => Ok(ExitCode::SUCCESS),
    }
}
