//! Real kills of a real program: whatever the instant, a region is as of one commit, and nothing that
//! was said to be durable is lost.
//!
//! The child has threads that move "money" between words of a region, a ledger of pairs, and a
//! thread that says how far it is once that is durable. `TWINPAGE_LONG` makes it thousands of kills.

use crate::support::{Bytes, again, folders, when_free};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;
use twinpage::{Options, Region, SchemeKind};

const PATH: &str = "TWINPAGE_TEST_REGION";
const CASE: &str = "TWINPAGE_TEST_CASE";
/// Words that money is moved between, and what they sum up to.
const ACCOUNTS: usize = 40_000;
const TOTAL: u64 = ACCOUNTS as u64 * 1000;
const THREADS: usize = 3;
/// After the accounts: a counter for each thread, one that is told, and one of lives.
const COUNTERS: usize = ACCOUNTS * 8 + 4096;
const TOLD: usize = COUNTERS + 64 * THREADS;
/// A part that is given back and written again.
const LOOSE: usize = 1 << 20;

fn options(case: &str) -> Options {
    let options = Region::options().every(Duration::from_micros(300));
    match case {
        "small memory" => options.memory_budget(256 << 10),
        "dual page" => options.scheme(SchemeKind::DualPage),
        _ => options,
    }
}

#[test]
fn killed_at_any_instant() {
    if let (Ok(path), Ok(case)) = (std::env::var(PATH), std::env::var(CASE)) {
        return child(Path::new(&path), &case);
    }
    let kills = twinpage_campaign::either(8, 600);
    let seed = twinpage_campaign::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for folder in folders() {
        for case in ["default", "small memory", "dual page"] {
            let path = folder.path().join(case);
            let (mut told, mut lives) = (0, 0);
            for kill in 0..kills {
                let mut child = start(&path, case);
                let said = BufReader::new(child.stdout.take().unwrap());
                let mut lines = said.lines().map_while(Result::ok);
                // The first line says that it runs; then some more, and an instant in between.
                let mut wanted = random.usize(1..12);
                for line in lines.by_ref() {
                    let Some(number) = line.strip_prefix("durable ") else {
                        continue;
                    };
                    told = number.parse().unwrap();
                    wanted -= 1;
                    if wanted == 0 {
                        break;
                    }
                }
                assert!(wanted == 0, "seed {seed}, kill {kill}: the child ended by itself");
                std::thread::sleep(Duration::from_micros(random.u64(..3000)));
                child.kill().unwrap();
                child.wait().unwrap();
                lives += 1;
                let found = check(&path, case);
                assert!(
                    found >= told,
                    "seed {seed}, kill {kill}: {told} was durable, {found} is there"
                );
            }
            assert_eq!(lives, kills);
        }
    }
}

fn start(path: &Path, case: &str) -> Child {
    again(module_path!(), "killed_at_any_instant")
        .env(PATH, path)
        .env(CASE, case)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Opens the region as the next life would, and says how far it is.
fn check(path: &Path, case: &str) -> u64 {
    let region = when_free(|| options(case).open(path));
    let bytes = Bytes::of(&region);
    if region.place().bytes() == 0 {
        return 0;
    }
    let sum: u64 = (0..ACCOUNTS).map(|account| bytes.word(account * 8)).sum();
    assert_eq!(sum, TOTAL);
    let counters: Vec<u64> = (0..THREADS).map(|own| bytes.word(COUNTERS + own * 64)).collect();
    let loose = bytes.word(LOOSE);
    for at in (0..32 << 10).step_by(8) {
        assert_eq!(
            bytes.word(LOOSE + at),
            loose,
            "a page given back is of another epoch"
        );
    }
    let told = bytes.word(TOLD);
    assert!(counters.iter().sum::<u64>() >= told);
    told
}

/// Moves money until killed.
fn child(path: &Path, case: &str) {
    let region = when_free(|| options(case).open(path));
    let bytes = Bytes::of(&region);
    region.update(|update| {
        if update.place().bytes() == 0 {
            update.place().grow(LOOSE + (64 << 10)).unwrap();
            (0..ACCOUNTS).for_each(|account| bytes.set_word(account * 8, 1000));
        }
    });
    std::thread::scope(|scope| {
        for own in 0..THREADS {
            let region = &region;
            scope.spawn(move || {
                let mut random = fastrand::Rng::new();
                let counter = COUNTERS + own * 64;
                loop {
                    region.update(|update| {
                        // Each thread has accounts of its own, between those of the others.
                        let mut account = || (random.usize(..ACCOUNTS / THREADS) * THREADS + own) * 8;
                        let (from, to) = (account(), account());
                        let moved = bytes.word(from).min(7);
                        bytes.set_word(from, bytes.word(from) - moved);
                        bytes.set_word(to, bytes.word(to) + moved);
                        bytes.set_word(counter, bytes.word(counter) + 1);
                        if own == 0 && random.u8(..) == 0 {
                            let value = random.u64(1..);
                            // SAFETY: nothing but these words lies there.
                            unsafe { update.place().discard(LOOSE..LOOSE + (32 << 10)) }.unwrap();
                            if !value.is_multiple_of(3) {
                                (0..32 << 10)
                                    .step_by(8)
                                    .for_each(|at| bytes.set_word(LOOSE + at, value));
                            }
                        }
                    });
                }
            });
        }
        loop {
            let told = (0..THREADS).map(|own| bytes.word(COUNTERS + own * 64)).sum();
            region.update(|_| bytes.set_word(TOLD, told));
            let ticket = region.ticket();
            match told % 2 {
                0 => region.durable().unwrap(),
                _ => region.wait(ticket).unwrap(),
            }
            println!("durable {told}");
            std::io::stdout().flush().unwrap();
        }
    });
}
