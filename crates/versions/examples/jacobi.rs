//! Heat in a plate, by Jacobi's method: kill it at any time and start it again, it goes on with the step after the last
//! durable one.
//!
//!     cargo run --release -p twinpage-versions --example jacobi -- plate.twin 1000

use std::path::Path;
use twinpage_versions::{Planes, Result};

const SIDE: usize = 200;

/// One step: each point becomes the mean of its neighbours; the edge stays, one side of it hot.
fn step(old: &[f64], new: &mut [f64]) {
    for row in 0..SIDE {
        for column in 0..SIDE {
            let at = row * SIDE + column;
            let is_edge = row == 0 || column == 0 || row == SIDE - 1 || column == SIDE - 1;
            new[at] = match is_edge {
                true if row == 0 => 100.0,
                true => 0.0,
                false => (old[at - 1] + old[at + 1] + old[at - SIDE] + old[at + SIDE]) / 4.0,
            };
        }
    }
}

/// Does what is left of `steps` on the plate in the file `path`, and returns it.
pub(crate) fn solve(path: &Path, steps: u64) -> Result<Vec<f64>> {
    let mut plate = Planes::<f64, 3>::open(path, SIDE * SIDE)?;
    while plate.steps_done() < steps {
        plate.step(step)?;
    }
    plate.durable()?;
    Ok(plate.newest().to_vec())
}

#[allow(dead_code)] // a test has the rest
fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let path = words.next().unwrap_or_else(|| "plate.twin".into());
    let steps = words.next().and_then(|steps| steps.parse().ok()).unwrap_or(1000);
    let plate = solve(Path::new(&path), steps)?;
    println!("in the middle: {:.6}", plate[SIDE * SIDE / 2 + SIDE / 2]);
    Ok(())
}
