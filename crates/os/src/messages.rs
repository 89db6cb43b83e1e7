//! Messages for the user: on standard error, or in a file of their own where a script must tell them from what the
//! program prints.
//!
//! * On a terminal in raw mode, which twinpage has taken, a line ends with a carriage return, too.
//! * While a program draws on the whole terminal, messages wait until it has given it back.

use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, OnceLock, PoisonError};

static FILE: OnceLock<File> = OnceLock::new();
/// What waits while messages are held back; `None` when they are not.
static WAITING: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// From now on every message of this process goes to `file`, opened to append, instead of standard
/// error. The first call counts.
pub fn redirect(file: File) {
    let _ = FILE.set(file);
}

/// Whether they go to a file.
#[must_use]
pub fn are_redirected() -> bool {
    FILE.get().is_some()
}

/// Says it: now, or once messages are not held back any more.
pub fn tell(what: &str) {
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    match (FILE.get(), &mut *waiting) {
        (None, Some(waiting)) => waiting.push(what.to_owned()),
        _ => write(what),
    }
}

/// Whether messages to standard error wait from now on.
pub fn hold_back(hold: bool) {
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    if hold {
        waiting.get_or_insert_default();
    } else {
        waiting
            .take()
            .unwrap_or_default()
            .iter()
            .for_each(|what| write(what));
    }
}

fn write(what: &str) {
    let end = if !are_redirected() && needs_return() {
        "\r\n"
    } else {
        "\n"
    };
    let line = format!("twinpage: {what}{end}"); // one write, so that lines stay whole
    // There is no other place to tell when standard error itself is gone.
    let _ = match FILE.get() {
        Some(mut file) => file.write_all(line.as_bytes()),
        None => std::io::stderr().write_all(line.as_bytes()),
    };
}

/// Whether standard error is a terminal on which a line feed leaves the column as it is: termios(3), `OPOST`.
fn needs_return() -> bool {
    let modes = rustix::termios::tcgetattr(std::io::stderr());
    modes.is_ok_and(|modes| !modes.output_modes.contains(rustix::termios::OutputModes::OPOST))
}
