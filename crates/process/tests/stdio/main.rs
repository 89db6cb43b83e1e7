//! Standard streams of a program that is killed and resumed: real processes, real kills.
//!
//! The test binary runs itself again as a small runner (`runner`), kills it, and looks at what came
//! out. `TWINPAGE_SEED` repeats a random test.

mod kills;
mod live;
mod measure;
mod points;
mod runner;
mod support;
