//! Notes the commit that reports name.

mod built_from;

use std::path::Path;

/// What a report's numbers come from: all crates, for the benchmarks of programs and regions report too.
fn sources(here: &Path) -> Vec<String> {
    let crates = std::fs::read_dir(here.join("crates"))
        .into_iter()
        .flatten()
        .flatten();
    let crates = crates.map(|each| format!("crates/{}/src", each.file_name().display()));
    let more = ["crates/lab/configs", "crates/lab/devices", "bench/src"].map(str::to_owned);
    let all = crates.chain(more).filter(|source| here.join(source).is_dir());
    all.collect()
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=built_from.rs");
    println!("cargo::rerun-if-env-changed=TWINPAGE_COMMIT");
    let here = Path::new("../..");
    let sources = sources(here);
    for source in &sources {
        println!("cargo::rerun-if-changed={}", here.join(source).display());
    }
    if let Some(moves) = built_from::moves(here) {
        println!("cargo::rerun-if-changed={}", moves.display());
    }
    let given = std::env::var("TWINPAGE_COMMIT").ok();
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    if let Some(commit) = given.or_else(|| built_from::commit(here, &sources)) {
        println!("cargo::rustc-env=TWINPAGE_BUILT_FROM={commit}");
    }
}
