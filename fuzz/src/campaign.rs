//! One seed after another.

use fastrand::Rng;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| {
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is no number: {value}"))
    })
}

/// Runs `deed` with one seed after another, as often as a short run or (`TWINPAGE_LONG`) a long one has it.
/// The seed of a run that fails is printed, and makes it fail again.
///
/// # Panics
/// When `deed` does.
pub fn campaign(name: &str, [short, long]: [u64; 2], deed: impl Fn(&mut Rng)) {
    let first = number("TWINPAGE_FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..));
    let runs = number("TWINPAGE_FUZZ_RUNS").unwrap_or(twinpage_campaign::either(short, long));
    // Past the harness, which would hide it where a run hangs or is aborted.
    let _ = writeln!(
        std::io::stderr(),
        "{name}: {runs} runs from TWINPAGE_FUZZ_SEED={first}"
    );
    for run in 0..runs {
        let seed = first.wrapping_add(run);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| deed(&mut Rng::with_seed(seed)))) {
            eprintln!(
                "again with: TWINPAGE_FUZZ_SEED={seed} TWINPAGE_FUZZ_RUNS=1 cargo test -p twinpage-fuzz {name}"
            );
            resume_unwind(panic);
        }
    }
}
