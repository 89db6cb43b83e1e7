//! The lab: the papers' memory controllers, and all they were measured against, in simulated time.
//!
//! A workload computes on a flat memory that really holds data and says, batch by batch, what each
//! core did ([`workload`], [`op`], [`space`]). The machine takes the batches in time order. In a run
//! that will be crashed real bytes lie in every memory below the caches, so that what it recovers to
//! can be checked; other runs move no data, and give exactly the same numbers.
//!
//! Reading order: [`op`], [`space`], [`workload`]; [`device`], [`controller`], [`machine`]; [`experiment`]; [`bus`] is a
//! machine without a controller's scheme, for programs that persist by themselves; [`sections`] are failure-atomic
//! sections on it, [`objects`] persistent objects.

mod added;
pub mod bus;
pub mod characteristics;
pub mod config;
pub mod controller;
pub mod device;
pub mod drive;
pub mod eval;
pub mod experiment;
mod ground;
pub mod machine;
pub mod objects;
pub mod op;
pub mod provenance;
pub mod quantity;
pub mod schemes;
pub mod sections;
mod slab;
pub mod space;
pub mod speed;
pub mod sweep;
pub mod text;
pub mod trace;
pub mod verify;
pub mod whole_file;
pub mod workload;

pub use op::{Kind, Op};
pub use space::{Port, Space};
pub use text::ConfigError;
pub use workload::{Progress, Workload};

/// The thread pool for independent runs: `jobs` threads, or one a processor.
fn threads(jobs: Option<usize>) -> Result<rayon::ThreadPool, String> {
    let threads = rayon::ThreadPoolBuilder::new().num_threads(jobs.unwrap_or(0));
    threads.build().map_err(|why| why.to_string())
}
