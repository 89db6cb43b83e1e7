//! What the user of a program is told, each once, and the calls that were refused to it.
//!
//! * Refusals that programs usually cope with are not told, but listed in the state.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use twinpage_os::messages;

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
        if messages::are_redirected() {
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
            messages::tell(what);
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
