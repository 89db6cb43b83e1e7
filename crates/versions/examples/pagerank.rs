//! PageRank of a random graph: kill it at any time and start it again, it goes on with the step after the last durable
//! one.
//!
//!     cargo run --release -p twinpage-versions --example pagerank -- ranks.twin 200

use std::path::Path;
use twinpage_versions::{Planes, Result};

const NODES: usize = 20_000;
const LINKS: usize = 8;
const DAMPING: f64 = 0.85;

/// The nodes that node `from` links to: always the same, with a few that many link to.
fn links(from: usize) -> [usize; LINKS] {
    std::array::from_fn(|link| {
        let mixed = ((from * LINKS + link) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (mixed >> 11) as f64 / (1_u64 << 53) as f64;
        (place * place * NODES as f64) as usize
    })
}

fn step(old: &[f64], new: &mut [f64]) {
    new.fill((1.0 - DAMPING) / NODES as f64);
    for (from, rank) in old.iter().enumerate() {
        let share = DAMPING * rank / LINKS as f64;
        links(from).into_iter().for_each(|to| new[to] += share);
    }
}

/// Does what is left of `steps` on the ranks in the file `path`, and returns them.
pub(crate) fn solve(path: &Path, steps: u64) -> Result<Vec<f64>> {
    let mut ranks = Planes::<f64, 3>::open(path, NODES)?;
    if ranks.steps_done() == 0 {
        ranks.step(|_, new| new.fill(1.0 / NODES as f64))?;
    }
    while ranks.steps_done() < steps {
        ranks.step(step)?;
    }
    ranks.durable()?;
    Ok(ranks.newest().to_vec())
}

#[allow(dead_code)] // a test has the rest
fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let path = words.next().unwrap_or_else(|| "ranks.twin".into());
    let steps = words.next().and_then(|steps| steps.parse().ok()).unwrap_or(200);
    let ranks = solve(Path::new(&path), steps)?;
    let best = (0..NODES).max_by(|&a, &b| ranks[a].total_cmp(&ranks[b]));
    println!("first: node {best:?}, sum {:.9}", ranks.iter().sum::<f64>());
    Ok(())
}
