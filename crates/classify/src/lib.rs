//! Which methods of an object can be deferred: logged now and run later, in a batch with others (SIMPO, 2.3.1 and
//! 3.1.1).
//!
//! A **deferrable** method touches only its object, its arguments and locals, and returns nothing. Every other
//! method is **instant**: its caller waits for it.
//!
//! * Every call is followed through the sources that are given. A call whose source is not given makes instant,
//!   unless it is in the list of pure functions of Rust's own libraries and of twinpage's collections.
//! * Types are not inferred. Where a name may mean several functions, all of them are followed, and one that is not
//!   deferrable decides. A value of a type whose source is not given makes instant, too.
//! * Each instant method says which lines made it so, and the way out.
//! * `#[instant]` and `#[deferrable]` on a function overrule what is found. `#[deferrable]` is the author's promise.
//! * The macro `#[twinpage::object]` sees one `impl` and asks [`in_impl`]: there only what is seen decides, and a call whose
//!   source is elsewhere does not.
//!
//! ```
//! use twinpage_classify::{Class, Sources};
//!
//! let mut sources = Sources::default();
//! sources.add("counter.rs", "impl Counter {
//!     pub fn add(&mut self, by: u64) { self.value += by }
//!     pub fn value(&self) -> u64 { self.value }
//! }")?;
//! let methods = sources.classify();
//! assert_eq!(methods[0].class, Class::Deferrable);
//! assert_eq!(methods[1].class, Class::Instant);
//! assert_eq!(methods[1].reasons[0].why, "it returns `u64`, and its caller waits for that");
//! # Ok::<(), twinpage_classify::Error>(())
//! ```

mod body;
mod index;
mod known;
mod macros;
mod one_impl;
mod report;
mod scope;
mod verdict;

pub use index::Sources;
pub use one_impl::{Found, in_impl};
pub use report::Summary;

use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// When a method runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// It is logged; it runs later.
    Deferrable,
    /// Its caller waits for it.
    Instant,
}

/// A place in a source.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Position {
    /// The file.
    pub file: PathBuf,
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in characters.
    pub column: usize,
}

/// Something that makes a method instant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Reason {
    /// Where the method does it: for a call, where the call is.
    pub at: Position,
    /// What it does.
    pub why: String,
    /// For a call, the calls from there to the function that does it, each with its place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<(String, Position)>,
    /// How the method could become deferrable.
    pub way_out: &'static str,
    /// Whether the source does it: false where a source is not given, so that it only may.
    pub is_seen: bool,
}

/// A method of an object, classified.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Method {
    /// The type it is a method of.
    pub object: String,
    /// Its name.
    pub name: String,
    /// Where it is.
    pub at: Position,
    /// The field whose parts are lanes: `#[lane(rows)]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// The result.
    pub class: Class,
    /// Whether an attribute said so.
    pub overruled: bool,
    /// What makes it instant: nothing for a deferrable method that is not overruled.
    pub reasons: Vec<Reason>,
}

/// A source that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// It is not Rust.
    #[error("{at}: {why}")]
    Syntax {
        /// Where.
        at: Position,
        /// The parser's error.
        why: String,
    },
    /// Nothing to look at.
    #[error("there is no Rust source in {}", path.display())]
    NoSource {
        /// The directory.
        path: PathBuf,
    },
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file.display(), self.line, self.column)
    }
}
