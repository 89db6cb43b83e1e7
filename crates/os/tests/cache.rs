//! What the DAX medium leaves when the caches are lost, and that a forgotten instruction is noticed.

use twinpage_core::crash::{Effort, Explorer, Image, Profile, Random, Recorder, Subject, random_steps};
use twinpage_core::dual_page::{DualPage, Options, PoolLimit};
use twinpage_core::{Geometry, Medium};
use twinpage_os::cache::{Cached, Mistake};

const EFFORT: Effort = Effort {
    samples: 6,
    lives: 40,
    deep: 0,
    short_recovery: 4,
    only_crashes: true,
};

const PROFILE: Profile = Profile {
    epochs: 10,
    pages: 12,
    writes: 5,
    context: 300,
};

/// Runs a mistake may survive.
const TRIES: u64 = 20;

fn subject(mistake: Option<Mistake>) -> Subject<DualPage<Cached>> {
    let geometry = Geometry::new(64, 8192).unwrap();
    let options = Options::new(geometry)
        .pool(PoolLimit::Pages(6))
        .journal_bytes(512);
    Subject {
        create: Box::new(move |recorder| DualPage::create(Cached::new(recorder, mistake)?, &options)),
        recover: Box::new(move |recorder| DualPage::recover(Cached::new(recorder, mistake)?)),
    }
}

/// One random run of the dual-page scheme, crashed everywhere; says which promise breaks.
fn explore(seed: u64, mistake: Option<Mistake>) -> Result<u64, String> {
    let steps = random_steps(&PROFILE, &mut Random::new(seed));
    let mut explorer = Explorer::new(subject(mistake), EFFORT, seed);
    match explorer.explore(Image::new(8), &steps) {
        Ok(()) => Ok(explorer.counts.images),
        Err(broken) => Err(format!("seed {seed}: {broken}")),
    }
}

fn first_seed() -> u64 {
    twinpage_campaign::seed()
}

#[test]
fn no_commit_is_lost_with_the_caches() {
    let runs = twinpage_campaign::either(8, 200);
    let first = first_seed();
    let images: u64 = (first..first + runs)
        .map(|seed| explore(seed, None).unwrap_or_else(|broken| panic!("{broken}")))
        .sum();
    println!("{runs} runs, {images} images of what a power cut left");
    assert!(images > runs * 100);
}

#[test]
fn a_forgotten_instruction_is_noticed() {
    let first = first_seed();
    for mistake in [Mistake::NoWriteBack, Mistake::StoresForStreams, Mistake::NoDrain] {
        let found = (first..first + TRIES).find_map(|seed| explore(seed, Some(mistake)).err());
        println!("{mistake:?}: {}", found.as_deref().unwrap_or("not found"));
        assert!(found.is_some(), "{mistake:?} survived {TRIES} runs");
    }
}

#[test]
fn after_a_fence_nothing_is_in_the_caches_only() {
    let mut random = Random::new(first_seed());
    let mut medium = Cached::new(Recorder::new(Image::new(8)), None).unwrap();
    medium.grow(10_001).unwrap();
    for _ in 0..3000 {
        let at = random.below(medium.len());
        let len = random.below(300).min(medium.len() - at) as usize;
        let byte = random.number() as u8;
        medium.write(at, &vec![byte; len]).unwrap();
        medium.fence().unwrap();
        let seen = medium.view(0, 10_001).unwrap().to_vec();
        assert!(medium.arrived() == seen, "{len} bytes at {at}");
    }
}
