//! The program that `bench process` runs: it writes to pages of a heap at a steady pace, as a program
//! with a working set does, and says how long its work took.
//!
//! The work of a round is fixed: one 8-byte word in each page of its share, with computing in
//! between. Alone, a round takes as long as an epoch; under checkpoints it takes longer, and that is
//! what is measured.

use crate::args::{Pattern, WriterArguments};
use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const WORD: usize = 8;

/// Runs the writer.
pub(crate) fn write(arguments: &WriterArguments) -> Result<ExitCode, String> {
    let pages = arguments.heap_mib * (1 << 20) / PAGE;
    let dirty = dirty_pages(arguments.heap_mib, arguments.dirty_percent);
    let mut heap = vec![1u8; pages * PAGE];
    if let Some(ready) = &arguments.ready {
        // The first checkpoint, of the whole heap, is not what is measured.
        std::thread::sleep(Duration::from_millis(1500));
        std::fs::write(ready, b"").map_err(|error| format!("cannot write {}: {error}", ready.display()))?;
    }
    let started = Instant::now();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..arguments.rounds {
        for at in 0..dirty {
            random = next(random);
            let page = match arguments.pattern {
                Pattern::WorkingSet => scatter(at, pages),
                Pattern::Uniform => random as usize % pages,
            };
            let word = page * PAGE + (random >> 40) as usize % (PAGE / WORD) * WORD;
            heap[word..word + WORD].copy_from_slice(&(round as u64 ^ random).to_le_bytes());
            black_box(compute(arguments.spin));
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    black_box(&heap);
    println!("{seconds}");
    Ok(ExitCode::SUCCESS)
}

/// Pages written in a round.
pub(crate) fn dirty_pages(heap_mib: usize, percent: f64) -> usize {
    ((heap_mib * (1 << 20) / PAGE) as f64 * percent / 100.0)
        .round()
        .max(1.0) as usize
}

/// The pages of a working set are spread over the heap, as malloc spreads them.
fn scatter(at: usize, pages: usize) -> usize {
    at.wrapping_mul(2_654_435_761) % pages
}

fn next(random: u64) -> u64 {
    let random = random ^ (random << 13);
    let random = random ^ (random >> 7);
    random ^ (random << 17)
}

/// Work that touches no memory.
fn compute(spin: u64) -> u64 {
    (0..spin).fold(1, |sum: u64, step| {
        black_box(sum.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step))
    })
}

/// How much computing makes a round of `dirty` pages as long as `every`, on this machine now.
pub(crate) fn calibrate(dirty: usize, every: Duration) -> u64 {
    const SAMPLE: u64 = 20_000_000;
    let started = Instant::now();
    black_box(compute(SAMPLE));
    let each_ns = started.elapsed().as_secs_f64() * 1e9 / SAMPLE as f64;
    // A write to a page that is not in the cache takes about as long as this.
    const WRITE_NS: f64 = 200.0;
    let page_ns = every.as_secs_f64() * 1e9 / dirty as f64;
    ((page_ns - WRITE_NS).max(0.0) / each_ns) as u64
}
