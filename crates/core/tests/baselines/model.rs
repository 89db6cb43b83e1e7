//! Any steps, any medium, any tables: what the model holds.

use crate::{KINDS, setup};
use proptest::collection::vec;
use proptest::prelude::*;
use twinpage_baselines::{AnyScheme, Setup};
use twinpage_baselines::{Switching, Tables};
use twinpage_core::crash::{Image, Log, Run, State, Step, differs_after_recovery};
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
        2 => (0_usize..9000, any::<u64>()).prop_map(|(len, value)| Step::Commit(len, value)),
        3 => (0_usize..9000, any::<u64>()).prop_map(|(len, value)| Step::Begin(len, value)),
        3 => (0_u64..200).prop_map(Step::Proceed),
        1 => Just(Step::Abandon),
    ]
}

fn tables() -> impl Strategy<Value = Tables> {
    let switching = prop_oneof![Just(Switching::Paper), Just(Switching::Code)];
    (1_u32..300, 1_u32..12, switching).prop_map(|(blocks, pages, switching)| Tables {
        blocks,
        pages,
        switching,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn they_hold_what_the_model_holds(
        lives in vec(vec(step(), 0..60), 1..4),
        extent_pages in 1_u32..5,
        limit in prop_oneof![3 => Just(u64::MAX), 1 => 20_u64..80],
        tables in tables(),
    ) {
        for kind in KINDS {
            let geometry = Geometry::new(64, 4096 * extent_pages).unwrap();
            let setup = Setup { geometry, tables, ..setup() };
            let medium = Image::new(8).limited(limit.saturating_mul(geometry.extent_bytes() as u64));
            let mut store = AnyScheme::create(kind, medium, &setup).unwrap();
            let mut state = State::default();
            for steps in &lives {
                let mut run = Run::new(store, Log::default(), state);
                run.go(steps).unwrap();
                prop_assert_eq!(run.differs().unwrap(), None, "{}", kind);
                prop_assert_eq!(run.scheme.check().unwrap(), [], "{}", kind);
                state = run.states[&run.scheme.epoch()].clone();
                let (again, found) = AnyScheme::recover(run.scheme.into_medium()).unwrap();
                prop_assert_eq!(again.kind(), kind);
                prop_assert_eq!(differs_after_recovery(&again, &found, &state).unwrap(), None, "{}", kind);
                prop_assert_eq!(again.check().unwrap(), [], "{}", kind);
                store = again;
            }
        }
    }
}
