//! Notes the commit that the lab's commands are built from.

mod built_from;

use std::path::Path;

/// The crates whose code a report's numbers come from.
const SOURCES: [&str; 8] = [
    "crates/classify/src",
    "crates/commands/src",
    "crates/lab/src",
    "crates/lab/configs",
    "crates/lab/devices",
    "crates/measure/src",
    "crates/core/src",
    "crates/baselines/src",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=built_from.rs");
    println!("cargo::rerun-if-env-changed=TWINPAGE_COMMIT");
    let here = Path::new("../..");
    for source in SOURCES.map(|source| here.join(source)) {
        println!("cargo::rerun-if-changed={}", source.display());
    }
    if let Some(moves) = built_from::moves(here) {
        println!("cargo::rerun-if-changed={}", moves.display());
    }
    let given = std::env::var("TWINPAGE_COMMIT").ok();
    if let Some(commit) = given.or_else(|| built_from::commit(here, &SOURCES)) {
        println!("cargo::rustc-env=TWINPAGE_BUILT_FROM={commit}");
    }
}
