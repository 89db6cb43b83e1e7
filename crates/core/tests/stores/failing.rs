//! A medium fails once, at every operation of a run in turn: with no room, or for good.

#[path = "../support/failing.rs"]
mod medium;

use medium::{Failing, Failure};
use twinpage_core::crash::*;
use twinpage_core::dual_page::{DualPage, Options, PoolLimit};
use twinpage_core::packed::{self, Packed, Tuning};
use twinpage_core::*;

/// A scheme to run on such a medium.
trait Store: Simulated + Sized {
    fn make(medium: Failing, pool: PoolLimit) -> Self;
    fn find(medium: Failing) -> Result<(Self, Recovered)>;
    fn give_back(self) -> Failing;
}

impl Store for DualPage<Failing> {
    fn make(medium: Failing, pool: PoolLimit) -> Self {
        let options = Options::new(Geometry::new(64, 4096).unwrap())
            .pool(pool)
            .journal_bytes(400)
            .id(1);
        DualPage::create(medium, &options).unwrap()
    }
    fn find(medium: Failing) -> Result<(Self, Recovered)> {
        DualPage::recover(medium)
    }
    fn give_back(self) -> Failing {
        self.into_medium()
    }
}

impl Store for Packed<DualPage<Failing>> {
    fn make(medium: Failing, pool: PoolLimit) -> Self {
        let options = Options::new(Geometry::new(4096, 64 * 4096).unwrap())
            .pool(pool)
            .journal_bytes(400)
            .id(1);
        let below = DualPage::create(medium, &options).unwrap();
        let options = packed::Options::default().log_bytes(3 * 64 * 4096).id(2);
        let mut store = Packed::create(below, &options).unwrap();
        store.set_tuning(Tuning {
            pressure_percent: 20_000,
            ..Tuning::default()
        });
        store
    }
    fn find(medium: Failing) -> Result<(Self, Recovered)> {
        Packed::recover(medium)
    }
    fn give_back(self) -> Failing {
        self.into_medium()
    }
}

/// Runs `steps` on a medium that fails at operation `at`. False if the run ended before.
fn fails_at<S: Store>(pool: PoolLimit, steps: &[Step], failure: Failure, at: i64) -> bool {
    let (medium, left) = Failing::new(failure);
    let store = S::make(medium, pool);
    left.set(at);
    let mut run = Run::new(store, Log::default(), State::default());
    let went = run.go(steps);
    let reached = left.get() < 0;
    left.set(i64::MAX);
    match failure {
        Failure::Full | Failure::FullLate => {
            assert!(went.is_ok(), "{went:?}");
            assert_eq!(run.differs().unwrap(), None);
        }
        Failure::Io if reached => {
            let written = run.scheme.write(line());
            let committed = run.scheme.commit(b"");
            assert!(
                written.is_err() || matches!(committed, Err(Error::Poisoned(_))),
                "the next to call is told: {written:?}, {committed:?}"
            );
        }
        Failure::Io => {}
    }
    if went.is_err() {
        assert!(
            matches!(run.scheme.commit(b""), Err(Error::Poisoned(_))),
            "poisoned for good"
        );
    }
    let epoch = run.scheme.epoch();
    let (store, found) = S::find(run.scheme.give_back().healed()).unwrap();
    assert!(
        found.epoch == epoch || found.epoch == epoch + 1,
        "{} of {epoch}",
        found.epoch
    );
    assert_eq!(
        differs_after_recovery(&store, &found, &run.states[&found.epoch]).unwrap(),
        None
    );
    assert_eq!(store.check().unwrap(), []);
    reached
}

fn line() -> PageLines<'static> {
    PageLines::from(PageId(0), 0, &[1; 64], 64)
}

fn whatever_fails<S: Store>(profile: &Profile, pools: &[(u64, PoolLimit)]) {
    for &(seed, pool) in pools {
        let mut steps = random_steps(profile, &mut Random::new(seed));
        steps.push(Step::Commit(5, 5));
        for (failure, least) in [(Failure::Full, 50), (Failure::FullLate, 10), (Failure::Io, 50)] {
            let points = (0..)
                .take_while(|&at| fails_at::<S>(pool, &steps, failure, at))
                .count();
            println!("seed {seed}, {pool:?}, {failure:?}: {points} points");
            assert!(points > least, "{points}");
        }
    }
}

#[test]
fn whatever_fails_the_checkpoint_is_whole() {
    let profile = Profile {
        epochs: 8,
        pages: 9,
        writes: 5,
        context: 200,
    };
    let pools = [
        (1, PoolLimit::Grow),
        (2, PoolLimit::Pages(2)),
        (3, PoolLimit::Pages(7)),
    ];
    whatever_fails::<DualPage<Failing>>(&profile, &pools);
}

#[test]
fn and_so_it_is_with_packed_lines() {
    let profile = Profile {
        epochs: 9,
        pages: 40,
        writes: 12,
        context: 200,
    };
    let pools = [(1, PoolLimit::Grow), (4, PoolLimit::Pages(2))];
    whatever_fails::<Packed<DualPage<Failing>>>(&profile, &pools);
}
