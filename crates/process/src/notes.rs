//! Messages for the user, on standard error, each said once.

use std::collections::HashSet;
use std::io::Write;

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
            // Nobody is left to tell when standard error itself is gone.
            let _ = writeln!(std::io::stderr(), "twinpage: {what}");
        }
    }
}
