//! Messages for the user, each said once: on standard error, or in a file of their own where a script
//! must tell them from what the program prints.

use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;

static FILE: OnceLock<File> = OnceLock::new();

/// From now on every message of this process goes to `file`, opened to append, instead of standard
/// error. The first call counts.
pub fn redirect(file: File) {
    let _ = FILE.set(file);
}

/// Says it, now.
pub fn tell(what: &str) {
    let line = format!("twinpage: {what}\n"); // one write, so that lines stay whole
    // Nobody is left to tell when standard error itself is gone.
    let _ = match FILE.get() {
        Some(mut file) => file.write_all(line.as_bytes()),
        None => std::io::stderr().write_all(line.as_bytes()),
    };
}

/// Says things once.
#[derive(Debug, Default)]
pub struct Notes {
    said: HashSet<String>,
}

impl Notes {
    /// A call was refused: which, and what to do.
    pub fn refused(&mut self, call: &str, why: &str) {
        self.say(&format!("refused {call}: {why}"));
    }

    /// Says it, unless it was said before.
    pub fn say(&mut self, what: &str) {
        if self.said.insert(what.to_owned()) {
            tell(what);
        }
    }
}
