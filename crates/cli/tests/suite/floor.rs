//! Programs from which all of the processor above a level is hidden (`run --cpu-floor`).

use twinpage_campaign::{either, seed};
use twinpage_os::cpuid::CAN_BE_OFF;

use crate::support::campaign::{Campaign, oracle};
use crate::support::process::twinpage;
use crate::support::program::compile;
use crate::support::{chance, say};

fn can_hide() -> bool {
    let processors = std::fs::read_to_string("/proc/cpuinfo").expect("the processors");
    processors.split_whitespace().any(|word| word == CAN_BE_OFF)
}

/// The program, its threads, its children and the programs they execute ask again and again, before and after kills.
#[test]
fn all_see_the_floor_and_nothing_above_it() {
    const TEST: &str = "a floor of the processor";
    if !can_hide() {
        return say(&format!(
            "SKIPPED {TEST}: this processor cannot hide its features (cpuid faulting)"
        ));
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let Some(program) = compile("c_floor.c", &["-pthread"]) else {
        return;
    };
    let line = [program, either(100, 1000).to_string()];
    for (level, expected) in [
        ("x86-64-v3", "avx 1 avx2 1 avx512 0"),
        ("x86-64-v2", "avx 0 avx2 0 avx512 0"),
    ] {
        let options = ["--durability", "memory", "--cpu-floor", level];
        let state = scratch.path().join(level);
        let tool = env!("CARGO_BIN_EXE_twinpage");
        let undisturbed = [tool, "run", "--state", &state.to_string_lossy()].map(String::from);
        let undisturbed = undisturbed.into_iter().chain(options.map(String::from));
        let undisturbed: Vec<_> = undisturbed.chain(["--".into()]).chain(line.clone()).collect();
        let oracle = oracle(&undisturbed, None);
        let printed = String::from_utf8_lossy(&oracle.stdout).into_owned();
        let seen = printed.lines().next().unwrap_or_default();
        assert!(oracle.status.success(), "{}: {printed}", oracle.status);
        assert!(
            seen.contains("7/1:00000000 d/1:00000000") && seen.ends_with(expected),
            "{seen}"
        );
        let seed = seed();
        let mut chance = chance(seed, level);
        let tally = Campaign::new(TEST, &line, &options, seed).survive(&oracle, &mut chance);
        say(&format!("{level}: {seen}; {tally:?}"));
    }
}

#[test]
fn a_floor_that_is_no_level_is_refused() {
    let out = twinpage()
        .args(["run", "--cpu-floor", "x86-64-v9", "--", "true"])
        .output();
    let out = out.expect("twinpage starts");
    assert!(!out.status.success());
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(told.contains("x86-64-v2, x86-64-v3, x86-64-v4"), "{told}");
}
