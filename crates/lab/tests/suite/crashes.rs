//! Every workload can be crashed with every scheme: what is recovered is a checkpoint, byte for byte.

use twinpage_baselines::SchemeKind;
use twinpage_lab::config::Described;
use twinpage_lab::config::machine::Config;
use twinpage_lab::experiment::Experiment;
use twinpage_lab::machine::crash::Recovery;
use twinpage_lab::machine::{Machine, Mode, Stop};
use twinpage_lab::workload::list::{self, Setting};

/// Of the papers' footprints.
const SCALE: f64 = 1.0 / 256.0;

/// A machine 64 times smaller, with checkpoints so short that a crash soon has some behind it.
fn config(overlap: bool) -> Config {
    let mut config = Config::find("dpc").unwrap().smaller(64).unwrap();
    config.overlap = overlap;
    config.plan.interval_fs /= 2;
    config.plan.warm_up = 1000;
    config.plan.instructions = u64::MAX / 2;
    config
}

/// The power fails some intervals after the warm-up, and `later` times as late.
fn crash(
    scheme: SchemeKind,
    workload: &str,
    (seed, later): (u64, u64),
    overlap: bool,
) -> Result<Recovery, String> {
    let config = config(overlap);
    let interval = config.plan.interval_fs;
    let experiment = Experiment {
        scheme: scheme.into(),
        workload: workload.into(),
        scale: SCALE,
        seed,
        crash_fs: Some((interval * (6 + seed % 3) + interval / 97 * (seed % 97)) * later),
        config,
    };
    let report = experiment.run()?;
    report
        .recovery
        .ok_or_else(|| "the run ended before the crash".to_owned())
}

fn workloads() -> Vec<&'static str> {
    let listed = list::ALL.iter().map(|entry| entry.name);
    listed.chain(["sps:tcs", "sps:lcs", "sps:l-ckpt"]).collect()
}

fn schemes() -> impl Iterator<Item = SchemeKind> {
    SchemeKind::ALL
        .into_iter()
        .filter(|&scheme| scheme != SchemeKind::InPlace)
}

#[test]
fn every_workload_with_every_scheme() {
    let seed = fastrand::u64(..1 << 32);
    let mut random = fastrand::Rng::with_seed(seed);
    for workload in workloads() {
        for scheme in schemes() {
            let overlap = random.bool();
            let own = random.u64(..1 << 32);
            // The state at the beginning is a checkpoint too, and no scheme may be content with it. Some programs have
            // batches so long that the first one is not over at an early crash.
            let has_more = [1, 2, 4, 8, 16].into_iter().any(|later| {
                let found = crash(scheme, workload, (own, later), overlap);
                let found = found.unwrap_or_else(|why| panic!("{workload}, {scheme}, seed {seed}: {why}"));
                assert!(found.consistent, "{workload}, {scheme}, seed {seed}: {found:?}");
                assert!(found.pages > 0);
                found.epoch > 1 && found.batches > 0
            });
            assert!(has_more, "{workload}, {scheme}, seed {seed}: no later checkpoint");
        }
    }
}

/// The same machine finds out a scheme that protects nothing, with every program that writes.
#[test]
fn without_protection_they_are_found_out() {
    let scheme = SchemeKind::InPlace;
    for name in [
        "tatp",
        "tpcc",
        "echo",
        "nstore",
        "vacation",
        "memcached",
        "uniform",
    ] {
        let torn = (0..96).find(|turn| {
            let mut plan = config(false).plan(scheme);
            plan.mode = Mode::Stall;
            let setting = Setting {
                scale: SCALE,
                cores: 4,
                seed: *turn,
            };
            let made = || list::make(name, &setting).unwrap();
            let mut workload = made();
            let mut machine = Machine::new(plan.clone(), scheme, &mut *workload, true).unwrap();
            let after = plan.interval_fs * (60 + 5 * turn) / 16;
            machine
                .run(Stop {
                    crash_fs: Some(after),
                })
                .unwrap();
            !machine.crash(&mut *made()).consistent
        });
        assert!(torn.is_some(), "{name}");
    }
}
