//! Proof by crashing: a medium that records, and an explorer that stops a run everywhere.
//!
//! The fault model, which everything here stands for: the program or the machine stops at any
//! instant. Writes, growth and discards since the last fence are on the medium in any subset, each
//! write torn at most at the medium's atom; fenced writes are there. Recovery may be stopped the
//! same way, and what follows it.
//!
//! ```text
//! a run of steps ---> scheme ---> Recorder: an image and a log of its writes
//!       |                             |
//!       model: the state of           at every operation of the log: the images a crash may leave
//!       every commit                  |
//!       '--------- compared with ---- scheme recovered from each
//! ```

mod explorer;
mod image;
mod images;
mod random;
mod recorder;
mod run;

pub use explorer::{Broken, Counts, Effort, Explorer, Seen, Subject};
pub use image::Image;
pub use images::{Choice, Crash, Maker};
pub use random::Random;
pub use recorder::{Log, Op, Recorder};
pub use run::{Profile, Run, State, Step, differs_after_recovery, overlapped, random_steps};
