//! Processes of this program that do one part of a benchmark.

use crate::engine::Result;
use serde::de::DeserializeOwned;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// This program, with `words`.
pub(crate) fn own(words: &[impl AsRef<OsStr>]) -> Result<Command> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find itself: {error}"))?;
    let mut command = Command::new(program);
    command.args(words);
    Ok(command)
}

/// Runs it to its end: it prints one JSON document.
pub(crate) fn answer<T: DeserializeOwned>(command: &mut Command) -> Result<T> {
    let output = command
        .output()
        .map_err(|error| format!("cannot start a process: {error}"))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(told.trim().trim_start_matches("twinpage bench: ").to_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("it said something else: {error}"))
}

/// One that goes on until it is killed, when it is no longer needed.
pub(crate) struct Subject {
    child: Child,
}

impl Subject {
    /// Starts it and waits for its first line.
    pub(crate) fn start(command: &mut Command) -> Result<(Subject, String)> {
        let started = command.stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|error| format!("cannot start a process: {error}"))?;
        let output = child.stdout.take().expect("piped");
        let subject = Subject { child };
        let mut line = String::new();
        match BufReader::new(output).read_line(&mut line) {
            Ok(read) if read > 0 => Ok((subject, line.trim().to_owned())),
            _ => Err(format!("{command:?} ended without a word")),
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // That it was killed is the point; where it ended by itself there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
