//! Messages for the user, each said once: on standard error, or in a file of their own where a script
//! must tell them from what the program prints.
//!
//! * On a terminal in raw mode, which twinpage has taken, a line ends with a carriage return, too.
//! * Refusals that programs usually cope with are not told, but listed in the state.
//! * While a program draws on the whole terminal, messages wait until it has given it back.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

static FILE: OnceLock<File> = OnceLock::new();
/// What waits while messages are held back; `None` when they are not.
static WAITING: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// From now on every message of this process goes to `file`, opened to append, instead of standard
/// error. The first call counts.
pub fn redirect(file: File) {
    let _ = FILE.set(file);
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
    let end = if FILE.get().is_none() && needs_return() {
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

/// Whether standard error is a terminal that does not begin a new line by itself: termios(3), `OPOST`.
fn needs_return() -> bool {
    let modes = rustix::termios::tcgetattr(std::io::stderr());
    modes.is_ok_and(|modes| !modes.output_modes.contains(rustix::termios::OutputModes::OPOST))
}

/// Says things once, and lists the calls that were refused.
#[derive(Debug, Default)]
pub struct Notes {
    said: HashSet<String>,
    /// Refusals of this life that the user was not told of.
    unsaid: Vec<String>,
    /// What is in the list of the state, and where that is.
    listed: HashSet<String>,
    list: PathBuf,
}

impl Notes {
    /// For a program with this state directory.
    #[must_use]
    pub fn of_state(dir: &Path) -> Notes {
        Notes {
            listed: refused_calls(dir).into_iter().collect(),
            list: dir.join(LIST),
            ..Notes::default()
        }
    }

    /// A call was refused: which, and what to do.
    pub fn refused(&mut self, call: &str, why: &str) {
        self.list(call, why);
        self.say(&format!("refused {call}: {why}"));
    }

    /// A call was refused that programs usually go on without: `twinpage info` lists it. It is told at once in a
    /// file for a script, and at the end where the program fails.
    pub fn went_without(&mut self, call: &str, why: &str) {
        self.list(call, why);
        if FILE.get().is_some() {
            self.say(&format!("went without {call}: {why}"));
        } else {
            let what = format!("refused {call}: {why}");
            if !self.unsaid.contains(&what) {
                self.unsaid.push(what);
            }
        }
    }

    /// The program failed: perhaps because of what it went without.
    pub fn failed(&mut self) {
        for what in std::mem::take(&mut self.unsaid) {
            self.say(&what);
        }
    }

    /// Says it, unless it was said before.
    pub fn say(&mut self, what: &str) {
        if self.said.insert(what.to_owned()) {
            tell(what);
        }
    }

    fn list(&mut self, call: &str, why: &str) {
        let line = format!("{call}: {why}").replace('\n', " ");
        if self.listed.insert(line.clone()) {
            let file = OpenOptions::new().append(true).create(true).open(&self.list);
            // No checkpoint depends on the list.
            let _ = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        }
    }
}

/// The list of calls that were refused, in a state: a line each, `call: why`.
const LIST: &str = "refused";

/// The calls that were refused to the program of a state, in all its lives, each once.
#[must_use]
pub fn refused_calls(dir: &Path) -> Vec<String> {
    let list = std::fs::read(dir.join(LIST)).unwrap_or_default();
    String::from_utf8_lossy(&list)
        .lines()
        .map(str::to_owned)
        .collect()
}
