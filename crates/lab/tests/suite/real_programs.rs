//! The programs like Memcached and Vacation (SSP, Table 3): what they hold after many requests of several threads in any
//! order, that a fault is found, and what a section writes.

use twinpage_lab::config::Described;
use twinpage_lab::sections::{Config, Counts, Name, Sections};
use twinpage_lab::workload::memcached::Memcached;
use twinpage_lab::workload::turns::Outside;
use twinpage_lab::workload::vacation::Vacation;
use twinpage_lab::workload::{Progress, Workload, next};
use twinpage_lab::{Kind, Space};

const NAMES: [&str; 2] = ["memcached", "vacation"];

fn made(name: &str, size: u64, threads: usize, seed: u64) -> (Box<dyn Workload>, Space) {
    let workload: Box<dyn Workload> = match name {
        "memcached" => Box::new(Memcached::new(size, threads, Outside::Behind(5), 0, seed)),
        _ => Box::new(Vacation::new(size, threads, Outside::Within(5), 0, seed)),
    };
    let mut space = Space::new(workload.footprint_bytes());
    workload.fill(&mut space);
    (workload, space)
}

/// Batches of random threads until that many sections; the stores of the last.
fn run(
    workload: &mut dyn Workload,
    space: &mut Space,
    random: &mut fastrand::Rng,
    sections: usize,
) -> Vec<(u64, usize)> {
    let mut batch = Vec::new();
    let mut done = 0;
    loop {
        let progress = next(workload, random.usize(..4), space, &mut batch);
        assert_ne!(progress, Progress::Done);
        done += usize::from(batch.iter().any(|op| op.kind == Kind::Commit));
        if done == sections {
            let stores = batch.iter().filter(|op| op.kind == Kind::Store);
            return stores.map(|op| (op.at, op.bytes.into())).collect();
        }
    }
}

#[test]
fn many_requests_leave_what_they_should() {
    let seed = fastrand::u64(..);
    for name in NAMES {
        // So small that items are evicted at every other request, held ones among them, and that customers book the
        // same rooms again, and numbers come and go.
        for size in [64, 100, 3000] {
            let (mut workload, mut space) = made(name, size, 4, seed);
            let mut random = fastrand::Rng::with_seed(seed);
            for round in 0..60 {
                let told = workload.check(&space);
                told.unwrap_or_else(|why| panic!("{name} of {size}, seed {seed}, round {round}: {why}"));
                run(&mut *workload, &mut space, &mut random, 200);
            }
        }
    }
}

#[test]
fn a_lost_store_is_found() {
    for name in NAMES {
        let (mut workload, mut space) = made(name, 4000, 4, 5);
        let mut random = fastrand::Rng::with_seed(5);
        run(&mut *workload, &mut space, &mut random, 500);
        let (mut found, mut tried) = (0, 0);
        for _ in 0..60 {
            let before = space.clone();
            let stores = run(&mut *workload, &mut space, &mut random, 1);
            let changed = |&&(at, bytes): &&(u64, usize)| before.at(at, bytes) != space.at(at, bytes);
            let changed: Vec<_> = stores.iter().filter(changed).copied().collect();
            if changed.is_empty() {
                continue;
            }
            tried += 1;
            let (at, bytes) = changed[random.usize(..changed.len())];
            let place = at as usize..at as usize + bytes;
            let now = space.at(at, bytes).to_vec();
            space.bytes_mut()[place.clone()].copy_from_slice(before.at(at, bytes));
            found += usize::from(workload.check(&space).is_err());
            space.bytes_mut()[place].copy_from_slice(&now);
            workload.check(&space).unwrap();
        }
        // The rest are words that nothing reads before they are written again.
        assert!(found * 2 > tried && tried > 20, "{name}: {found} of {tried}");
    }
}

fn counts(name: &str) -> Counts {
    let config = Config::find("ssp").unwrap();
    let (mut workload, mut space) = made(name, 1 << 16, 4, 1);
    let mut program = Sections::new(Name::Ssp, &config.setting, &mut *workload);
    let mut core = 0;
    while program.counts().sections < 3000 {
        program.steps(core, &mut space);
        core = (core + 1) % (config.setting.cores + 1);
    }
    program.check(&space).unwrap();
    program.counts()
}

#[test]
fn a_section_writes_about_as_many_lines_as_table_3_says() {
    for (name, lines, pages) in [("memcached", 3.0, 2.0), ("vacation", 4.0, 3.0)] {
        let counts = counts(name);
        let each = |count: u64| count as f64 / counts.sections as f64;
        println!(
            "{name}: {:.2} lines, {:.2} pages",
            each(counts.lines),
            each(counts.pages)
        );
        assert!(
            (each(counts.lines) / lines - 1.0).abs() < 0.25,
            "{name}: {counts:?}"
        );
        assert!(each(counts.pages) < 2.0 * pages, "{name}: {counts:?}");
    }
}
