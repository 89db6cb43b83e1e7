//! Page overlays that grow with each write-back (DPC 5.2): they move, the movement is waited for, and they survive crashes.

use twinpage_baselines::SchemeKind;
use twinpage_core::medium::Cause;
use twinpage_lab::config::Described;
use twinpage_lab::config::machine::Config;
use twinpage_lab::controller::Growth;
use twinpage_lab::experiment::{Experiment, Report};

/// A machine 64 times smaller.
fn run(scheme: SchemeKind, overlays: Growth, overlap: bool, crash_fs: Option<u64>) -> Report {
    let mut config = Config::find("dpc").unwrap().smaller(64).unwrap();
    config.overlap = overlap;
    config.plan.controller.overlays = overlays;
    config.plan.warm_up = 100_000;
    config.plan.instructions = 1_000_000;
    let experiment = Experiment {
        config,
        scheme: scheme.into(),
        workload: "pagerank".into(),
        scale: 1.0 / 64.0,
        seed: 5,
        crash_fs,
    };
    experiment.run().unwrap()
}

fn moved(report: &Report) -> u64 {
    report.outcome.controller.nvm_causes[Cause::Migration as usize]
}

#[test]
fn an_overlay_that_grows_moves_and_costs_time() {
    let [at_once, grown] = [Growth::Eviction, Growth::WriteBack]
        .map(|overlays| run(SchemeKind::PageOverlay, overlays, false, None));
    let lines = [moved(&at_once), moved(&grown)];
    let times = [at_once.outcome.time_ns, grown.outcome.time_ns];
    println!("{lines:?} lines moved, {times:?} ns");
    assert!(lines[1] > 1000 && lines[1] > 10 * lines[0], "{lines:?}");
    assert!(times[1] > times[0], "{times:?}");
}

#[test]
fn schemes_whose_pages_do_not_move_are_as_before() {
    for scheme in [SchemeKind::DualPage, SchemeKind::UndoLog] {
        let [by_eviction, by_write_back] =
            [Growth::Eviction, Growth::WriteBack].map(|overlays| run(scheme, overlays, false, None).outcome);
        assert_eq!(by_eviction, by_write_back, "{scheme}");
    }
}

#[test]
fn what_a_crash_leaves_of_them_is_a_checkpoint() {
    for overlap in [false, true] {
        let mut epochs = std::collections::BTreeSet::new();
        for after_us in [40, 333, 700, 1_100, 1_600] {
            let report = run(
                SchemeKind::PageOverlay,
                Growth::WriteBack,
                overlap,
                Some(after_us * 1_000_000_000),
            );
            let recovery = report.recovery.expect("the run goes on past the crash");
            assert!(recovery.consistent, "overlap {overlap}: {recovery:?}");
            epochs.insert(recovery.epoch);
        }
        assert!(epochs.len() > 1, "{epochs:?}");
    }
}
