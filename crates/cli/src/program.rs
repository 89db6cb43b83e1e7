//! `twinpage run` and `twinpage resume`.

use crate::args::{PaceArguments, Resume, Run};
use crate::states;
use std::fs::{DirBuilder, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use twinpage_os::{signals, user_signals};
use twinpage_process::context::Ending;
use twinpage_process::launch::Command;
use twinpage_process::session::Summary;
use twinpage_process::sockets::Replies;
use twinpage_process::state::Choices;
use twinpage_process::{notes, run};

pub(crate) fn run(arguments: Run) -> Result<ExitCode, String> {
    if arguments.explain {
        return crate::explain::print(arguments.json);
    }
    redirect_messages(&arguments.pace)?;
    let command = Command::find(&arguments.program).map_err(|error| error.to_string())?;
    let (state, chosen) = match arguments.state {
        Some(state) => (state, false),
        None => (default_state(&command.words[0])?, true),
    };
    if chosen {
        notes::tell(&format!(
            "if it is killed, go on with: twinpage resume {}",
            state.display()
        ));
    }
    let summary = run::run(
        &command,
        &state,
        arguments.durability.into(),
        Choices {
            replies: arguments.replies.map(Replies::from).unwrap_or_default(),
            resume_signal: arguments.resume_signal,
        },
        arguments.pace.pace(),
    );
    if chosen && summary.is_err() {
        let _ = std::fs::remove_dir(&state); // only when nothing was put there
    }
    finish(&summary?, &arguments.pace, &state)
}

pub(crate) fn resume(arguments: Resume) -> Result<ExitCode, String> {
    redirect_messages(&arguments.pace)?;
    let summary = run::resume(&arguments.state, arguments.at, arguments.pace.pace())?;
    finish(&summary, &arguments.pace, &arguments.state)
}

/// A new directory below the user's state directory, named after the program and numbered.
fn default_state(program: &str) -> Result<PathBuf, String> {
    let base = states::base()?;
    let told = |path: &Path| format!("cannot make a directory for the state in {}", path.display());
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
        .create(&base)
        .map_err(|error| format!("{}: {error}; name one with --state DIR", told(&base)))?;
    let name = Path::new(program)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    builder.recursive(false);
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

fn redirect_messages(pace: &PaceArguments) -> Result<(), String> {
    let Some(path) = &pace.messages else {
        return Ok(());
    };
    let file = OpenOptions::new().append(true).create(true).open(path);
    notes::redirect(file.map_err(|error| format!("cannot write to {}: {error}", path.display()))?);
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
        std::fs::write(path, format!("{document:#}\n"))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    if let Some(signal) = summary.suspended {
        notes::tell(&format!(
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
