//! What all tests of the command share: choices that can be repeated, words that are not captured.

pub(crate) mod campaign;
pub(crate) mod ordinary;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod server;
pub(crate) mod sink;
pub(crate) mod state;
pub(crate) mod tree;

use std::io::Write;

/// Says something even when the test passes and its output is captured.
pub(crate) fn say(words: &str) {
    // One write, so that lines of tests that run side by side stay whole.
    let _ = std::io::stderr().write_all(format!("{words}\n").as_bytes());
}

/// Whether a missing runtime is a failure instead of a skipped test.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true")
}

/// Skips a test for want of something, loudly; in CI that is a failure.
pub(crate) fn skip(test: &str, missing: &str, install: &str) {
    assert!(
        !in_ci(),
        "{test} cannot run: {missing} is missing; install {install}"
    );
    say(&format!(
        "SKIPPED: {test}: {missing} is missing; install {install}"
    ));
}

/// Whether programs that this user runs under twinpage may become other users: credentials.rs of the process crate.
pub(crate) fn may_change_users() -> bool {
    const SETGID_SETUID_SETFCAP: u64 = 1 << 6 | 1 << 7 | 1 << 31;
    const SYS_ADMIN: u64 = 1 << 21;
    let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).expect("it is there");
    let users = (read("uid_map").lines())
        .filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok())
        .sum::<u64>();
    let status = read("status");
    let effective = (status.lines())
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .expect("capabilities");
    let has = |wanted: u64| effective & wanted == wanted;
    rustix::process::geteuid().is_root() && users > 1 && (has(SYS_ADMIN) || has(SETGID_SETUID_SETFCAP))
}

/// Choices of one test: the same seed and name make the same choices.
pub(crate) fn chance(seed: u64, test: &str) -> fastrand::Rng {
    let name = test.bytes().fold(seed, |hash, byte| {
        hash.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte)
    });
    fastrand::Rng::with_seed(name)
}
