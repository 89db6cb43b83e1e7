//! Persistent objects (SIMPO): the mechanisms of its Table 7 on a machine of many cores, with NVM beside DRAM.
//!
//! Reading order: `config.rs` is what a machine file says; `variant.rs` the mechanisms; `places.rs` where everything lies and
//! what the log's entries are; `program.rs` what threads and servers do, `checkpoint.rs` how
//! checkpoints are made; `recovery.rs` what is made of memory after a
//! crash; `crash.rs` crashes the programs anywhere; `scan.rs` is recovery as a program, to be timed. Beside them,
//! `library/` has objects with functions of both classes and `mixed.rs` the threads that call them; `table.rs` is the
//! persistent object table with its swap, `pool.rs` the threads that share more objects than NVM has room for, and
//! `passes.rs` how long they are at one of those.
//!
//! * Functions really compute on their objects (the paper's TwoDimIntArray, but for `library/`), and entries are really
//!   written; of the large objects of `pool.rs` the time alone is simulated.
//! * Functions take effect in the order of their numbers in the log, as far as they touch the same elements.
//! * What was acknowledged survives a crash: everything up to the last durable end of a group; with `simpo-all` each entry
//!   that was flushed after all before it; with `nvram` and `ssd` each function.
//! * Resilient entries are overwritten when their turn comes: that they go to the next level of storage is not timed.

mod checkpoint;
pub mod config;
pub mod crash;
pub mod library;
mod mixed;
mod passes;
mod places;
mod pool;
mod program;
mod recovery;
mod scan;
mod table;
mod variant;

pub use config::Config;
pub use mixed::Mixed;
pub use passes::{Pass, Passes};
pub use places::Function;
pub use pool::{Large, Pool, Times};
pub use program::{Calls, Program};
pub use recovery::Recovered;
pub use scan::Scan;
pub use table::{ObjectTable, Swap};
pub use variant::{ALL, Execution, Form, Log, NATIVE, Variant};
