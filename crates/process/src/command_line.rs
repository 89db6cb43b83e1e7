//! What a process is called when people are told of it.

use crate::error::Error;
use twinpage_os::proc_file;

/// The command line of a process, shortened; its name where it has none.
pub(crate) fn command_of(pid: i32) -> String {
    const LONGEST: usize = 60;
    let line = proc_file::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&line).replace(|c: char| c.is_control(), " ");
    let line = match words.trim() {
        "" => {
            let name = proc_file::text(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.trim().to_owned()
        }
        words => words.to_owned(),
    };
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

/// An error about a descendant names it.
pub(crate) fn of_process(pid: i32, error: Error) -> Error {
    match error {
        Error::Unsupported(why) => {
            let command = command_of(pid);
            Error::Unsupported(format!("process {pid} ({command}): {why}"))
        }
        other => other,
    }
}
