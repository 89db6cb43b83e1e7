//! The collections beside those of `std` (and hashbrown), in one run: processor time for the same operations.
//!
//! `cargo bench -p twinpage --bench collections [-- --json] [-- --fresh] [-- NAME]`. Ours are in an update of a
//! region in memory that is kept, so every write is marked; no checkpoint falls in between. With `--fresh` there
//! is a checkpoint before each round, so that no line is marked already when it begins. Each pair runs in turns;
//! the ratio is the median over the rounds. Growth is another matter: see `bulk`.

mod bulk;
mod single;

use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;

use twinpage::{Persist, Region, Root, Update};
use twinpage_commands::report::{document, median, table};

const ROUNDS: usize = 9;

#[derive(serde::Serialize)]
struct Row {
    operation: &'static str,
    peer: &'static str,
    peer_ns_per_op: f64,
    ours_ns_per_op: f64,
    over_peer: f64,
    over_peer_min: f64,
    over_peer_max: f64,
}

struct Bench {
    region: Region,
    only: Option<String>,
    /// A checkpoint before each round.
    fresh: bool,
    rows: Vec<Row>,
}

/// What a side did: how long it took, and a number that both must agree on.
type Run = (Duration, u64);

/// The time of the processor, not of the clock: others that run meanwhile do not count.
fn timed(f: impl FnOnce() -> u64) -> Run {
    let now =
        || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("a time since the thread began");
    let start = now();
    let result = black_box(f());
    (now() - start, result)
}

impl Bench {
    /// A vector that several rounds use.
    fn make<T: Persist>(&self, make: impl for<'r> FnOnce(&Update<'r>) -> T::In<'r>) -> Root<T> {
        self.region.root_with("made", make).expect("a root")
    }

    fn drop(&self, made: Root<impl Persist>) {
        self.region.update(|u| made.remove(u)).expect("it is removed");
    }

    fn compare(
        &mut self,
        operation: &'static str,
        peer: &'static str,
        ops: usize,
        mut theirs: impl FnMut() -> Run,
        mut ours: impl for<'r> FnMut(&Update<'r>) -> Run,
    ) {
        if !self.is_asked(operation) {
            return;
        }
        let mut rounds = Vec::new();
        for round in 0..=ROUNDS {
            let first = theirs();
            if self.fresh {
                self.region.checkpoint().expect("a checkpoint");
            }
            let second = self.region.update(&mut ours);
            assert_eq!(first.1, second.1, "{operation}");
            if round > 0 {
                rounds.push((first.0, second.0));
            }
        }
        self.row(operation, peer, ops, &rounds);
    }

    fn is_asked(&self, operation: &str) -> bool {
        let only = self.only.as_ref();
        only.is_none_or(|only| operation.contains(only.as_str()))
    }

    /// Times of the peer's and ours, of one round each.
    fn row(
        &mut self,
        operation: &'static str,
        peer: &'static str,
        ops: usize,
        rounds: &[(Duration, Duration)],
    ) {
        let ns = |d: Duration| d.as_secs_f64() * 1e9 / ops as f64;
        let mut theirs: Vec<f64> = rounds.iter().map(|(theirs, _)| ns(*theirs)).collect();
        let mut ours: Vec<f64> = rounds.iter().map(|(_, ours)| ns(*ours)).collect();
        let mut ratios: Vec<f64> = rounds.iter().map(|(a, b)| ns(*b) / ns(*a)).collect();
        self.rows.push(Row {
            operation,
            peer,
            peer_ns_per_op: median(&mut theirs),
            ours_ns_per_op: median(&mut ours),
            over_peer_min: ratios.iter().copied().fold(f64::MAX, f64::min),
            over_peer_max: ratios.iter().copied().fold(0.0, f64::max),
            over_peer: median(&mut ratios),
        });
    }
}

/// Keys in no order, the same in every run.
fn keys(count: usize, seed: u64) -> Vec<u64> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| random.u64(..)).collect()
}

fn rows(bench: &mut Bench) {
    single::vectors(bench);
    single::rings(bench);
    single::text(bench);
    single::boxes(bench);
    single::hashes(bench);
    single::trees(bench);
    bulk::trees(bench);
    bulk::growth(bench);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let region = Region::options()
        .open(directory.path().join("region"))
        .expect("a region");
    let only = arguments.iter().find(|a| !a.starts_with("--")).cloned();
    let mut bench = Bench {
        region,
        only,
        fresh: arguments.iter().any(|a| a == "--fresh"),
        rows: Vec::new(),
    };
    rows(&mut bench);
    if arguments.iter().any(|a| a == "--json") {
        println!("{:#}", document(serde_json::json!({ "rows": bench.rows })));
        return;
    }
    let mut table = table([
        "operation",
        "peer",
        "peer ns",
        "ours ns",
        "over peer",
        "least",
        "most",
    ]);
    for row in &bench.rows {
        table.add_row([
            row.operation.to_string(),
            row.peer.to_string(),
            format!("{:.1}", row.peer_ns_per_op),
            format!("{:.1}", row.ours_ns_per_op),
            format!("{:.2}", row.over_peer),
            format!("{:.2}", row.over_peer_min),
            format!("{:.2}", row.over_peer_max),
        ]);
    }
    println!("{table}");
}
