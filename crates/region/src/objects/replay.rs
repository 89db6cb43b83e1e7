//! Calls that an earlier process logged, and that no checkpoint has yet.

use super::file::LogFile;
use super::function::Function;
use crate::error::Result;
use std::collections::HashMap;
use twinpage_core::operation_log::{Entry, Found, NAMED};

/// The text that names an object and its functions in the log: its name, their signatures, `#` and its number in the table.
pub(super) fn definition(name: &str, functions: &[Function], id: u64) -> String {
    let lines = functions.iter().map(|function| function.signature);
    let id = format!("#{id}");
    let all = std::iter::once(name).chain(lines).chain([&*id]);
    all.collect::<Vec<_>>().join("\n")
}

/// The number in the table of the object that a definition is of; none in a log of a build without a table.
pub(super) fn id_of(definition: &str) -> Option<u64> {
    definition.lines().last()?.strip_prefix('#')?.parse().ok()
}

/// Whether a definition is the name of a thread: an object has functions, each on a line.
pub(super) fn is_thread(definition: &str) -> bool {
    !definition.contains('\n')
}

/// Calls that wait for their objects to be opened.
#[derive(Debug, Default)]
pub(super) struct Left {
    definitions: Vec<String>,
    entries: Vec<Entry>,
}

impl Left {
    pub(super) fn new(found: Found) -> Left {
        Left {
            definitions: found.definitions,
            entries: found.entries,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The names of threads, by their numbers in the log.
    pub(super) fn thread_names(&self) -> HashMap<u32, String> {
        let threads = (0..).zip(&self.definitions).filter(|(_, text)| is_thread(text));
        threads
            .map(|(number, name)| (NAMED | number, name.clone()))
            .collect()
    }

    fn name(&self, entry: &Entry) -> &str {
        let definition = &self.definitions[usize::from(entry.object)];
        definition.lines().next().unwrap_or_default()
    }

    /// Drops the calls of objects that are not there any more: of each object the name and number are asked about.
    pub(super) fn keep(&mut self, is_there: impl Fn(&str, Option<u64>) -> bool) {
        let entries = std::mem::take(&mut self.entries);
        let is_of_one = |entry: &Entry| {
            let id = id_of(&self.definitions[usize::from(entry.object)]);
            is_there(self.name(entry), id)
        };
        self.entries = entries.into_iter().filter(is_of_one).collect();
    }

    /// The objects that have calls here.
    pub(super) fn names(&self) -> String {
        let mut names: Vec<_> = self
            .entries
            .iter()
            .map(|entry| format!("{:?}", self.name(entry)))
            .collect();
        names.sort();
        names.dedup();
        names.join(", ")
    }

    /// The calls of an object from a position on, in order, each with the number that its function has in this build.
    /// They stay here until [`Left::forget`].
    ///
    /// # Errors
    /// A function that this build lacks, or has with another signature, by name.
    pub(super) fn calls(
        &self,
        name: &str,
        position: u64,
        functions: &[Function],
        log_file: &LogFile,
    ) -> Result<Vec<(usize, Entry)>> {
        let of_object = self
            .entries
            .iter()
            .filter(|entry| entry.position >= position && self.name(entry) == name);
        of_object
            .map(|entry| {
                let definition = &self.definitions[usize::from(entry.object)];
                let number = number(definition, entry, functions).map_err(|why| log_file.error(why))?;
                Ok((number, entry.clone()))
            })
            .collect()
    }

    /// The calls of the object were run.
    pub(super) fn forget(&mut self, name: &str) {
        let entries = std::mem::take(&mut self.entries);
        self.entries = entries
            .into_iter()
            .filter(|entry| self.name(entry) != name)
            .collect();
    }
}

/// The number that a call's function has in this build.
///
/// # Errors
/// Says by name that this build lacks it, or has it with another signature.
pub(super) fn number(definition: &str, entry: &Entry, functions: &[Function]) -> Result<usize, String> {
    let mut lines = definition.lines();
    let name = lines.next().unwrap_or_default();
    let signature = lines.nth(usize::from(entry.function)).unwrap_or_default();
    let number = (functions.iter()).position(|function| function.signature == signature);
    number.ok_or_else(|| lacking(name, signature, functions))
}

/// Why a logged function cannot be run.
fn lacking(name: &str, signature: &str, functions: &[Function]) -> String {
    let called = |signature: &str| signature.split('(').next().unwrap_or_default().to_owned();
    let same = functions
        .iter()
        .find(|function| called(function.signature) == called(signature));
    let has = match same {
        Some(function) => format!("has it as `{}`", function.signature),
        None => "has no such method".to_owned(),
    };
    format!(
        "it has calls of the object {name:?} to `{signature}`, and this build {has}; run the build that made them until it \
         closes the region, then this one"
    )
}
