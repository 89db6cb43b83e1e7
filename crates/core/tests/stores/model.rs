//! The dual-page scheme beside a simple model: any steps, any pool, any medium.

use proptest::collection::vec;
use proptest::prelude::*;
use twinpage_core::crash::{Image, Log, Run, State, Step, differs_after_recovery};
use twinpage_core::dual_page::{DualPage, Options, PoolLimit};
use twinpage_core::*;

const PAGES: u64 = 30;

fn lines() -> impl Strategy<Value = LineMask> {
    prop_oneof![
        4 => (0_usize..64).prop_map(|line| LineMask::run(line, 1)),
        2 => any::<u64>().prop_map(|bits| LineMask(bits | 1)),
        1 => Just(LineMask::ALL),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        16 => (0..PAGES, lines(), 0_u64..1000).prop_map(|(page, lines, value)| Step::Write { page, lines, value }),
        2 => (0..PAGES).prop_map(Step::Expect),
        2 => (0..PAGES, 1..PAGES).prop_map(|(start, len)| Step::Discard(start..start + len)),
        1 => (1..PAGES).prop_map(Step::Reclaim),
        4 => (0_usize..9000, any::<u64>()).prop_map(|(len, value)| Step::Commit(len, value)),
        1 => Just(Step::Abandon),
    ]
}

fn pool() -> impl Strategy<Value = PoolLimit> {
    prop_oneof![Just(PoolLimit::Grow), (0_u64..20).prop_map(PoolLimit::Pages)]
}

fn check<S: Scheme>(scheme: &S) {
    assert_eq!(scheme.check().unwrap(), []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn it_holds_what_the_model_holds(
        lives in vec(vec(step(), 0..60), 1..4),
        pool in pool(),
        extent_pages in 1_u32..5,
        journal_bytes in 64_u64..2000,
        limit in prop_oneof![Just(u64::MAX), 10_u64..60],
    ) {
        let geometry = Geometry::new(64, 4096 * extent_pages).unwrap();
        let options = Options::new(geometry).pool(pool).journal_bytes(journal_bytes).id(7);
        let medium = Image::new(8).limited(limit.saturating_mul(geometry.extent_bytes() as u64));
        let Ok(mut store) = DualPage::create(medium, &options) else {
            return Ok(());
        };
        let mut state = State::default();
        for steps in lives {
            let mut run = Run::new(store, Log::default(), state);
            run.go(&steps).unwrap();
            prop_assert_eq!(run.differs().unwrap(), None);
            check(&run.scheme);
            state = run.states[&run.scheme.epoch()].clone();
            let (again, found) = DualPage::recover(run.scheme.into_medium()).unwrap();
            prop_assert_eq!(differs_after_recovery(&again, &found, &state).unwrap(), None);
            check(&again);
            store = again;
        }
    }
}
