//! Nanoseconds a page, on plain memory: `cargo bench -p twinpage-core`. No statistics, just the best
//! of a few rounds: enough to see whether something became slow.

use std::hint::black_box;
use std::time::{Duration, Instant};
use twinpage_core::crash::{Image, Random};
use twinpage_core::dual_page::{DualPage, Options, PoolLimit};
use twinpage_core::*;

const PAGES: u64 = 16384;

fn best(rounds: usize, mut work: impl FnMut()) -> Duration {
    let times = (0..rounds).map(|_| {
        let begun = Instant::now();
        work();
        begun.elapsed()
    });
    times.min().unwrap_or_default()
}

fn print(what: &str, time: Duration, count: u64) {
    println!("{what:<52}{:>10.1} ns", time.as_nanos() as f64 / count as f64);
}

/// Every page written whole, and then `lines` of them again.
fn store(lines: impl Fn(u64) -> LineMask, pool: PoolLimit) -> DualPage<Image> {
    let mut store = DualPage::create(Image::new(8), &Options::new(Geometry::MEMORY).pool(pool)).unwrap();
    for round in 1..3 {
        for page in 0..PAGES {
            let lines = if round == 1 { LineMask::ALL } else { lines(page) };
            let _ = store
                .write(PageLines::from(PageId(page), 0, &[page as u8 ^ 1; 4096], 64).only(lines))
                .unwrap();
        }
        store.commit(b"").unwrap();
    }
    store
}

fn compare(what: &str, store: &DualPage<Image>, change: impl Fn(u64) -> Option<usize>) {
    let mut memory = vec![0; PAGES as usize * 4096];
    for (page, bytes) in (0..PAGES).zip(memory.chunks_exact_mut(4096)) {
        store.read(PageId(page), 0, bytes).unwrap();
        if let Some(line) = change(page) {
            bytes[line * 64] ^= 0xff;
        }
    }
    let time = best(7, || {
        for (page, bytes) in (0..PAGES).zip(memory.chunks_exact(4096)) {
            black_box(store.diff(&PageLines::from(PageId(page), 0, bytes, 64)).unwrap());
        }
    });
    print(&format!("compare a page, {what}, 64 MiB"), time, PAGES);
    let time = best(7, || {
        for (page, bytes) in (0..64)
            .zip(memory.chunks_exact(4096))
            .cycle()
            .take(PAGES as usize)
        {
            black_box(store.diff(&PageLines::from(PageId(page), 0, bytes, 64)).unwrap());
        }
    });
    print(&format!("compare a page, {what}, 256 KiB"), time, PAGES);
}

fn commits(pages: u64, every: u64) {
    let mut store = store(|_| LineMask(1), PoolLimit::Grow);
    let mut random = Random::new(1);
    let mut writing = Duration::MAX;
    let mut committing = Duration::MAX;
    for round in 0..40_u8 {
        let begun = Instant::now();
        for page in 0..pages {
            let page = PageId((page * every + random.below(every)) % PAGES);
            let _ = store.write(PageLines::from(page, 7, &[round; 64], 64)).unwrap();
        }
        writing = writing.min(begun.elapsed());
        let begun = Instant::now();
        store.commit(b"context").unwrap();
        committing = committing.min(begun.elapsed());
    }
    print(&format!("write one line, {pages} pages"), writing, pages);
    print(
        &format!("commit, {pages} pages of {PAGES}, per page"),
        committing,
        pages,
    );
}

fn main() {
    let base = store(|_| LineMask::NONE, PoolLimit::Grow);
    compare("equal, in the base", &base, |_| None);
    compare("one line differs", &base, |page| Some(page as usize % 64));
    let mixed = store(
        |page| LineMask(page.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        PoolLimit::Grow,
    );
    compare("equal, in both homes", &mixed, |_| None);
    for (pages, every) in [(16, 1024), (160, 100), (1600, 10)] {
        commits(pages, every);
    }
    let image = mixed.into_medium();
    let mut image = Some(image);
    let time = (0..5).map(|_| {
        let medium = image.take().expect("put back below");
        let begun = Instant::now();
        let (store, _) = DualPage::recover(medium).unwrap();
        let time = begun.elapsed();
        image = Some(store.into_medium());
        time
    });
    print("recover, per page", time.min().unwrap_or_default(), PAGES);
}
