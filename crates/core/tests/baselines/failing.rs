//! A medium fails once, at every operation of a run in turn: with no room, or for good.

use crate::medium::{Failing, Failure};
use crate::{KINDS, setup};
use twinpage_baselines::AnyScheme;
use twinpage_core::crash::*;
use twinpage_core::*;

/// Runs `steps` on a medium that fails at operation `at`. False if the run ended before.
fn fails_at(kind: SchemeKind, steps: &[Step], failure: Failure, at: i64) -> bool {
    let (medium, left) = Failing::new(failure);
    let store = AnyScheme::create(kind, medium, &setup()).unwrap();
    left.set(at);
    let mut run = Run::new(store, Log::default(), State::default());
    let went = run.go(steps);
    let reached = left.get() < 0;
    left.set(i64::MAX);
    match failure {
        Failure::Full | Failure::FullLate => {
            assert!(went.is_ok(), "{kind}, operation {at}: {went:?}");
            assert_eq!(run.differs().unwrap(), None, "{kind}, operation {at}");
        }
        Failure::Io if reached => {
            let refused = run.scheme.commit(b"");
            assert!(refused.is_err(), "{kind}, operation {at}: a failure is for good");
        }
        Failure::Io => {}
    }
    let epoch = run.scheme.epoch();
    let medium = run.scheme.into_medium();
    let (store, found) = AnyScheme::recover(medium.healed()).unwrap();
    assert!(
        (epoch..epoch + 2).contains(&found.epoch),
        "{kind}: {} of {epoch}",
        found.epoch
    );
    let differs = differs_after_recovery(&store, &found, &run.states[&found.epoch]).unwrap();
    assert_eq!(differs, None, "{kind}, {failure:?} at operation {at}");
    assert_eq!(
        store.check().unwrap(),
        [],
        "{kind}, {failure:?} at operation {at}"
    );
    reached
}

#[test]
fn whatever_fails_the_checkpoint_is_whole() {
    let profile = Profile {
        epochs: 7,
        pages: 8,
        writes: 5,
        context: 200,
    };
    for kind in KINDS {
        for seed in 1..3 {
            let mut random = Random::new(seed);
            let steps = random_steps(&profile, &mut random);
            let mut steps = overlapped(&steps, &mut random);
            steps.push(Step::Commit(5, 5));
            for failure in [Failure::Full, Failure::Io] {
                let points = (0..)
                    .take_while(|&at| fails_at(kind, &steps, failure, at))
                    .count();
                println!("{kind}, seed {seed}, {failure:?}: {points} points");
                assert!(points > 30, "{points}");
            }
        }
    }
}
