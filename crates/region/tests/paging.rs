//! Regions larger than their memory: every byte as a model has it, whatever goes and comes.

mod support;

use std::time::Duration;
use support::{Bytes, folders};
use twinpage::{Region, SchemeKind};
use twinpage_campaign::{either, seed};

const PAGE: usize = 4096;

#[test]
fn a_region_larger_than_its_memory_is_as_the_model() {
    let seed = seed();
    for (index, folder) in folders().iter().enumerate() {
        for scheme in [SchemeKind::DualPage, SchemeKind::Packed] {
            for budget in [Some(1 << 20), None] {
                println!("seed {seed}, folder {index}, {scheme}, budget {budget:?}");
                let path = folder.path().join(format!("{scheme}-{}", budget.is_some()));
                model(&path, scheme, budget, seed);
            }
        }
    }
}

fn model(path: &std::path::Path, scheme: SchemeKind, budget: Option<usize>, seed: u64) {
    const WORDS: usize = (6 << 20) / 8;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model = vec![0_u64; WORDS];
    let open = || {
        let options = Region::options().scheme(scheme);
        match budget {
            Some(bytes) => options.memory_budget(bytes).open(path).unwrap(),
            None => options.open(path).unwrap(),
        }
    };
    let (mut went, lives) = (0, either(3, 40));
    for _ in 0..lives {
        let region = open();
        let bytes = Bytes::of(&region);
        bytes.grow(WORDS * 8);
        for _ in 0..random.usize(..4000) {
            let at = random.usize(..WORDS);
            match random.u8(..) {
                0..100 => {
                    let value = random.u64(..);
                    region.update(|_| bytes.set_word(at * 8, value));
                    model[at] = value;
                }
                100..102 => {
                    let first = at * 8 / PAGE;
                    let pages = first..(first + random.usize(1..200)).min(WORDS * 8 / PAGE);
                    region.update(|update| {
                        // SAFETY: the model alone knows what lies there.
                        unsafe { update.place().discard(pages.start * PAGE..pages.end * PAGE) }.unwrap();
                    });
                    model[pages.start * PAGE / 8..pages.end * PAGE / 8].fill(0);
                }
                102 if random.u8(..) < 80 => drop(region.checkpoint().unwrap()),
                _ => assert_eq!(bytes.word(at * 8), model[at], "seed {seed}, word {at}"),
            }
        }
        let paging = region.statistics().paging;
        went += paging.evicted_pages;
        if let Some(budget) = budget {
            let checkpoint = region.checkpoint().unwrap();
            assert!(checkpoint > 0);
            let all = (0..WORDS)
                .step_by(PAGE / 8)
                .filter(|&at| bytes.word(at * 8) != model[at]);
            assert_eq!(all.count(), 0, "seed {seed}");
            let resident = region.statistics().paging.resident_pages as usize * PAGE;
            assert!(
                resident <= 2 * budget,
                "{resident} bytes of {budget} are in memory"
            );
        }
    }
    let region = open();
    let bytes = Bytes::of(&region);
    for (at, &value) in model.iter().enumerate() {
        assert_eq!(bytes.word(at * 8), value, "seed {seed}, word {at}");
    }
    assert_eq!(went > 0, budget.is_some());
}

#[test]
fn threads_share_a_small_memory() {
    const WORDS: usize = 1 << 19;
    let seed = seed();
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for folder in folders() {
        let path = folder.path().join("region");
        let open = || {
            Region::options()
                .every(Duration::from_millis(1))
                .memory_budget(1 << 20)
                .open(&path)
                .unwrap()
        };
        let region = open();
        let bytes = Bytes::of(&region);
        bytes.grow(WORDS * 8);
        let rounds = either(3_000, 200_000);
        // Each thread owns every third word, so lines and pages are shared and words are not.
        let models: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let threads = [0, 1, 2].map(|own| {
                let (mut random, region) = (random.fork(), &region);
                scope.spawn(move || {
                    let mut model = vec![0_u64; WORDS / 3];
                    let mut near = 0;
                    for _ in 0..rounds {
                        // Mostly near the last place, so that a budget can work at all.
                        near = match random.u8(..) {
                            0..20 => random.usize(..model.len()),
                            _ => (near + random.usize(..2000)) % model.len(),
                        };
                        let at = (near * 3 + own) * 8;
                        assert_eq!(bytes.word(at), model[near], "seed {seed}");
                        model[near] = random.u64(..);
                        region.update(|_| bytes.set_word(at, model[near]));
                    }
                    model
                })
            });
            threads.map(|thread| thread.join().unwrap()).into()
        });
        let paging = region.statistics().paging;
        assert!(paging.evicted_pages > 0 && paging.loaded_pages > 0, "{paging:?}");
        drop(region);
        let region = open();
        let bytes = Bytes::of(&region);
        for (own, model) in models.iter().enumerate() {
            for (near, &value) in model.iter().enumerate() {
                assert_eq!(bytes.word((near * 3 + own) * 8), value, "seed {seed}");
            }
        }
    }
}

#[test]
fn system_calls_may_be_given_memory_that_is_not_there_yet() {
    let [folder, _] = folders();
    let path = folder.path().join("region");
    {
        let region = Region::open(&path).unwrap();
        let bytes = Bytes::of(&region);
        bytes.grow(1 << 20);
        bytes.fill(0, 1 << 20, 7);
    }
    let region = Region::open(&path).unwrap();
    assert_eq!(region.statistics().paging.loaded_pages, 0);
    if !region.kernel_loads_pages() {
        region.load(0..1 << 20).unwrap();
    }
    let base = region.place().base();
    // SAFETY: a mebibyte is usable, and does not change.
    let bytes = unsafe { std::slice::from_raw_parts(base, 1 << 20) };
    let copy = folder.path().join("copy");
    std::fs::write(&copy, bytes).unwrap();
    assert!(std::fs::read(copy).unwrap().iter().all(|&byte| byte == 7));
    assert!(matches!(
        region.load(0..usize::MAX),
        Err(twinpage::Error::Invalid(_))
    ));
}
