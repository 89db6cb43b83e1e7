//! `twinpage run` and `twinpage resume`.

use crate::args::{PaceArguments, Resume, Run};
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::ExitCode;
use twinpage_process::context::Ending;
use twinpage_process::session::Summary;
use twinpage_process::{notes, run};

pub(crate) fn run(arguments: Run) -> Result<ExitCode, String> {
    if arguments.explain {
        return crate::explain::print(arguments.json);
    }
    redirect_messages(&arguments.pace)?;
    let state = match arguments.state {
        Some(state) => state,
        None => default_state()?,
    };
    let summary = run::run(
        &arguments.program,
        &state,
        arguments.durability.into(),
        arguments.pace.pace(),
    )?;
    finish(&summary, &arguments.pace)
}

pub(crate) fn resume(arguments: Resume) -> Result<ExitCode, String> {
    redirect_messages(&arguments.pace)?;
    let summary = run::resume(&arguments.state, arguments.pace.pace())?;
    finish(&summary, &arguments.pace)
}

/// A directory of its own below the user's state directory, told to the user.
fn default_state() -> Result<PathBuf, String> {
    let base = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))
        .ok_or("no place for the state is known (HOME is not set): name one with --state DIR")?;
    let state = base.join("twinpage").join(std::process::id().to_string());
    notes::tell(&format!(
        "if it is killed, go on with: twinpage resume {}",
        state.display()
    ));
    Ok(state)
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
