//! Untrusted bytes, given to all that reads twinpage's files. Runs on stable Rust, as a test:
//!
//! ```text
//! cargo test --release -p twinpage-fuzz                      a short run, the seed is printed
//! TWINPAGE_FUZZ_SEED=7 TWINPAGE_FUZZ_RUNS=1 cargo test ...   the run that failed
//! TWINPAGE_LONG=1 cargo test ...                             a long one
//! ```
//!
//! * [`history`] makes valid stores whose every commit is known;
//! * [`edit`] damages them, [`forge`] makes the checksums right again;
//! * [`reader`] reads them, and says what a reader may answer;
//! * [`meter`] counts what reading costs;
//! * [`region`] makes and reads regions, the same way;
//! * [`campaign`] runs one seed after another.

pub mod campaign;
pub mod edit;
pub mod forge;
pub mod history;
pub mod meter;
pub mod reader;
pub mod region;
