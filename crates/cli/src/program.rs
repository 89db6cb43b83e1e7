//! `twinpage run` and `twinpage resume`.

use crate::args::{PaceArguments, Resume, Run};
use std::fs::{DirBuilder, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use twinpage_process::context::Ending;
use twinpage_process::launch::Command;
use twinpage_process::session::Summary;
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
        arguments.pace.pace(),
    );
    if chosen && summary.is_err() {
        let _ = std::fs::remove_dir(&state); // only when nothing was put there
    }
    finish(&summary?, &arguments.pace)
}

pub(crate) fn resume(arguments: Resume) -> Result<ExitCode, String> {
    redirect_messages(&arguments.pace)?;
    let summary = run::resume(&arguments.state, arguments.pace.pace())?;
    finish(&summary, &arguments.pace)
}

/// A new directory below the user's state directory, named after the program and numbered.
fn default_state(program: &str) -> Result<PathBuf, String> {
    let base = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))
        .ok_or("no place for the state is known (HOME is not set): name one with --state DIR")?;
    let base = base.join("twinpage");
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

/// Writes statistics, and ends as the program did.
fn finish(summary: &Summary, pace: &PaceArguments) -> Result<ExitCode, String> {
    if let Some(path) = &pace.stats {
        let json = serde_json::to_string_pretty(summary).map_err(|error| error.to_string())?;
        std::fs::write(path, json + "\n")
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    match summary.ended {
        Some(Ending::Signal(signal)) => twinpage_os::spawn::die_of(signal),
        Some(Ending::Exit(code)) => Ok(ExitCode::from(code as u8)),
        None => Ok(ExitCode::SUCCESS),
    }
}
