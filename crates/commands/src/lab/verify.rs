//! `twinpage lab verify`: the crash explorer as a scheme's conformance test.

use super::bar;
use crate::output::print_json;
use crate::report::table;
use clap::Args;
use std::process::ExitCode;
use twinpage_lab::schemes::SchemeName;
use twinpage_lab::verify::{self, Verified};

pub(super) const EXAMPLES: &str = "Example:
  twinpage lab verify --scheme dual-page
  twinpage lab verify --scheme in-place            one that protects nothing: exit code 1, and the promise it breaks
  twinpage lab verify --scheme thynvm --runs 20 --seed 7 --json

Each run is stopped after every write and fence. What a crash there may leave is recovered, compared with the last
durable commit, used again, and crashed again while it recovers. --runs 1 --seed SEED repeats a run.";

#[derive(Args, Debug)]
pub(crate) struct Verify {
    /// The scheme
    #[arg(long, value_name = "SCHEME")]
    scheme: SchemeName,
    /// Random runs on each kind of medium
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// The seed of the first run; each has the next number
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// One JSON document on standard output
    #[arg(long)]
    json: bool,
}

pub(super) fn verify(arguments: &Verify) -> Result<ExitCode, String> {
    let asked = verify::Verify {
        scheme: arguments.scheme,
        runs: arguments.runs,
        seed: arguments.seed,
    };
    let shown = bar(asked.all_runs(), "runs");
    // A panic of the scheme is a broken promise, which is told below.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let verified = asked.run(&|| shown.inc(1));
    std::panic::set_hook(hook);
    shown.finish_and_clear();
    match arguments.json {
        true => print_json(&verified)?,
        false => show(&verified),
    }
    Ok(ExitCode::from(u8::from(verified.broken.is_some())))
}

fn show(verified: &Verified) {
    let names = [
        "medium",
        "runs",
        "epochs",
        "abandoned",
        "points",
        "images",
        "recoveries",
    ];
    let lines = verified.rows.iter().map(|row| {
        let numbers = [
            row.runs,
            row.epochs,
            row.abandoned,
            row.points,
            row.images,
            row.recoveries,
        ];
        let numbers = numbers.iter().map(u64::to_string);
        std::iter::once(row.medium.to_owned()).chain(numbers).collect()
    });
    let mut shown = table(names);
    shown.add_rows(lines.collect::<Vec<Vec<String>>>());
    println!("{shown}");
    match &verified.broken {
        None => println!("{}: every recovery found what was promised", verified.scheme),
        Some(broken) => println!(
            "{}: BROKEN on {}, --runs 1 --seed {}: {}",
            verified.scheme, broken.medium, broken.seed, broken.promise
        ),
    }
}
