//! Recovery of an object, and of a deterministic program (SIMPO 4.1.2).
//!
//! * Threads with names make their calls, and their process is killed.
//! * The object is recovered when it is open and answers.
//! * The program is recovered when it is where it was: it runs from its beginning, and calls that survived are not made
//!   again. Then the object is as undisturbed calls make it.

use super::grid::{self, COLUMNS, ROWS};
use super::{Done, ObjectArguments, team};
use crate::engine::Result;
use crate::engines::failed;
use crate::subject::{Subject, own};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;
use twinpage::thread::named;

/// As many as the paper's.
pub(super) const CALLS: u64 = 640_000;

/// What recovery took, after a number of calls that took some time.
#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
pub(super) struct Recovered {
    pub(super) object_s: f64,
    pub(super) program_s: f64,
    /// Calls that survived: their entries are resilient.
    pub(super) survived: u64,
}

impl Recovered {
    /// Milliseconds for a million entries of calls that survived; none where none did.
    pub(super) fn million_ms(self) -> Option<f64> {
        (self.survived > 0).then(|| (self.program_s - self.object_s) * 1e9 / self.survived as f64)
    }
}

fn path(arguments: &ObjectArguments) -> PathBuf {
    arguments.place.join("grid.twin")
}

/// Each thread makes its calls, those of another life left out; the seconds of that.
fn run_program(arguments: &ObjectArguments, grid: &grid::GridHandle) -> f64 {
    let calls = arguments.calls / u64::from(arguments.threads);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..arguments.threads {
            let grid = grid.clone();
            scope.spawn(move || {
                named(&format!("caller-{thread}"), || {
                    (0..calls).for_each(|_| grid.all_inc())
                })
            });
        }
    });
    begun.elapsed().as_secs_f64()
}

/// The life that ends by a kill: says how long its calls took, and waits for the end.
pub(super) fn first_life(arguments: &ObjectArguments) -> Result<Done> {
    let (_region, grid) = grid::opened(&path(arguments), arguments.threads, None)?;
    println!("{}", run_program(arguments, &grid));
    loop {
        std::thread::park();
    }
}

/// The life after it, which begins the first one: this process, with the same words.
pub(super) fn run(arguments: &ObjectArguments) -> Result<Done> {
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    words.push("--is-killed".into());
    let (first, seconds) = Subject::start(&mut own(&words)?)?;
    let seconds: f64 = seconds
        .parse()
        .map_err(|_| format!("the first life said {seconds:?}"))?;
    drop(first);
    let begun = Instant::now();
    let (region, grid) = grid::opened(&path(arguments), arguments.threads, None)?;
    let found = grid.values().map_err(failed)?;
    let object_s = begun.elapsed().as_secs_f64();
    let survived = found[0];
    team::compared(&found, &[survived; ROWS * COLUMNS])?;
    let program_s = object_s + run_program(arguments, &grid);
    let calls = arguments.calls / u64::from(arguments.threads) * u64::from(arguments.threads);
    team::compared(&grid.values().map_err(failed)?, &[calls; ROWS * COLUMNS])?;
    drop(grid);
    region.close().map_err(failed)?;
    Ok(Done {
        seconds,
        calls,
        recovered: Some(Recovered {
            object_s,
            program_s,
            survived,
        }),
        ..Done::default()
    })
}
