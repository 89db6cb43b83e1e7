//! Nothing imports upwards: neither a crate another that is built on it, nor a module one above it.

mod modules;

use modules::{Module, circles, imports, lines, sources};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates of this project, and those that each may know.
const CRATES: &[(&str, &[&str])] = &[
    ("twinpage-campaign", &[]),
    ("twinpage-classify", &[]),
    ("twinpage-measure", &[]),
    ("twinpage-core", &[]),
    ("twinpage-baselines", &["twinpage-core"]),
    ("twinpage-os", &["twinpage-core"]),
    ("twinpage-macros", &["twinpage-classify"]),
    ("twinpage-versions", &["twinpage-core", "twinpage-os"]),
    (
        "twinpage",
        &[
            "twinpage-core",
            "twinpage-measure",
            "twinpage-os",
            "twinpage-macros",
            "twinpage-versions",
        ],
    ),
    (
        "twinpage-process",
        &["twinpage-core", "twinpage-measure", "twinpage-os"],
    ),
    (
        "twinpage-lab",
        &[
            "twinpage-core",
            "twinpage-baselines",
            "twinpage-classify",
            "twinpage-measure",
        ],
    ),
    ("twinpage-commands", &["twinpage-os", "twinpage-lab"]),
    (
        "twinpage-cli",
        &[
            "twinpage",
            "twinpage-classify",
            "twinpage-commands",
            "twinpage-core",
            "twinpage-lab",
            "twinpage-os",
            "twinpage-process",
        ],
    ),
    (
        "twinpage-bench",
        &[
            "twinpage",
            "twinpage-baselines",
            "twinpage-commands",
            "twinpage-core",
            "twinpage-measure",
            "twinpage-os",
        ],
    ),
    // What a user of the lab writes.
    (
        "own-scheme",
        &["twinpage-commands", "twinpage-core", "twinpage-lab"],
    ),
    (
        "twinpage-fuzz",
        &[
            "twinpage",
            "twinpage-campaign",
            "twinpage-core",
            "twinpage-process",
        ],
    ),
];

/// What is made for use. The command `twinpage` is no part of it: it has the lab in it, and so the baselines.
const PRODUCTS: &[&str] = &[
    "twinpage-core",
    "twinpage-measure",
    "twinpage-os",
    "twinpage-versions",
    "twinpage",
    "twinpage-process",
];

/// What no product may have in it.
const NOT_IN_PRODUCTS: &[&str] = &[
    "twinpage-baselines",
    "twinpage-lab",
    "twinpage-bench",
    "twinpage-campaign",
    "twinpage-fuzz",
];

/// The modules of this crate, from the lowest: each may import those before it.
const MODULES: &[&str] = &[
    "error",
    "geometry",
    "kind",
    "buffer",
    "medium",
    "poison",
    "record",
    "operation_log",
    "scheme",
    "metered",
    "shell",
    "compare",
    "dual_page",
    "packed",
    "product",
    "report",
    "source",
    "engine",
    "crash",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn crates() -> PathBuf {
    root().join("crates")
}

/// Each package of the project, and those of the project that it is built from, as Cargo has it. Tests and benchmarks
/// may use more.
fn packages() -> BTreeMap<String, BTreeSet<String>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version", "1", "--no-deps", "--offline"]);
    let out = cargo.current_dir(root()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let all: Value = serde_json::from_slice(&out.stdout).unwrap();
    let own = |package: &Value| {
        let known = package["dependencies"].as_array().unwrap().iter();
        let known = known
            .filter(|known| known["kind"] != "dev")
            .map(|known| known["name"].as_str().unwrap());
        let known = known
            .filter(|name| name.starts_with("twinpage"))
            .map(str::to_owned);
        (package["name"].as_str().unwrap().to_owned(), known.collect())
    };
    all["packages"].as_array().unwrap().iter().map(own).collect()
}

#[test]
fn no_crate_knows_one_that_is_built_on_it() {
    let packages = packages();
    for (name, known) in &packages {
        let (_, allowed) = CRATES
            .iter()
            .find(|(listed, _)| listed == name)
            .unwrap_or_else(|| panic!("the crate {name} has no floor: name it in CRATES"));
        for known in known {
            assert!(allowed.contains(&&known[..]), "{name} must not depend on {known}");
        }
    }
    assert_eq!(packages.len(), CRATES.len(), "{packages:?}");
}

/// All that a package is built from, of the project.
fn built_from(package: &str, packages: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let (mut all, mut next) = (BTreeSet::new(), vec![package.to_owned()]);
    while let Some(package) = next.pop() {
        next.extend(
            packages[&package]
                .iter()
                .filter(|known| all.insert((*known).clone()))
                .cloned(),
        );
    }
    all
}

#[test]
fn no_product_is_built_from_what_it_is_compared_with() {
    let packages = packages();
    for product in PRODUCTS {
        let parts = built_from(product, &packages);
        for part in NOT_IN_PRODUCTS {
            assert!(
                !parts.contains(*part),
                "{product} is built from {part}: {parts:?}"
            );
        }
    }
    for with_baselines in ["twinpage-bench", "twinpage-lab", "twinpage-cli"] {
        assert!(built_from(with_baselines, &packages).contains("twinpage-baselines"));
    }
    assert!(
        !built_from("twinpage-cli", &packages).contains("twinpage-bench"),
        "it has peers in it"
    );
}

/// The modules right below a crate's root, and those that each imports.
fn floors_of(folder: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut floors: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (module, found) in imports(&sources(folder)) {
        let Some(own) = module.first().cloned() else {
            continue;
        };
        let others = found
            .into_iter()
            .filter_map(|other: Module| other.first().cloned());
        let others: Vec<String> = others.filter(|other| *other != own).collect();
        floors.entry(own).or_default().extend(others);
    }
    floors
}

/// Imports of the modules in `folder` that go up `order`, which names the lowest first; a crate's root is none of
/// them. Says how many imports there are.
fn upward(folder: &Path, order: &[&str]) -> (Vec<String>, usize) {
    let rank = |module: &str| {
        let at = order.iter().position(|&name| name == module);
        at.unwrap_or_else(|| panic!("the module {module} has no floor: name it in its list"))
    };
    let floors = floors_of(folder);
    let each = || {
        floors
            .iter()
            .flat_map(|(own, others)| others.iter().map(move |other| (own, other)))
    };
    let up = each().filter(|(own, other)| rank(other) > rank(own));
    (
        up.map(|(own, other)| format!("{own} imports {other}")).collect(),
        each().count(),
    )
}

#[test]
fn no_module_of_the_core_imports_one_above_it() {
    let (upward, seen) = upward(&crates().join("core/src"), MODULES);
    assert!(seen > 40, "the sources are not read: {seen} imports");
    assert!(upward.is_empty(), "imports of a floor above: {upward:?}");
}

/// Without the baselines the core is a library that one can read.
#[test]
fn the_core_stays_under_ten_thousand_lines() {
    let lines = lines(&sources(&crates().join("core/src")));
    assert!((5000..10_000).contains(&lines), "{lines} lines of code");
}

/// Of every crate. A type whose parts stand in several files of a folder is declared in the folder's own file.
#[test]
fn modules_import_one_another_without_a_circle() {
    let mut circled = Vec::new();
    for folder in folders() {
        let found = imports(&sources(&root().join(&folder).join("src")));
        for circle in circles(&found) {
            let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            circled.push(format!("{folder}: {}", names.join(", ")));
        }
    }
    assert!(
        circled.is_empty(),
        "modules that import one another in a circle:\n{}",
        circled.join("\n")
    );
}

/// The folders of all crates.
fn folders() -> Vec<String> {
    let mut folders = ["bench", "fuzz", "examples/own-scheme"]
        .map(str::to_owned)
        .to_vec();
    let crates = fs::read_dir(crates())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    folders.extend(crates.map(|name| format!("crates/{}", name.to_str().unwrap())));
    assert_eq!(folders.len(), CRATES.len(), "{folders:?}");
    folders
}

/// Methods of a trait of the core.
fn methods(of: &str) -> usize {
    let source = fs::read_to_string(crates().join("core/src/scheme.rs")).unwrap();
    let body = source
        .split(&format!("\npub trait {of}"))
        .nth(1)
        .expect("the trait");
    let body = body.split("\n}").next().unwrap_or_default();
    let methods = body.lines().filter(|line| line.starts_with("    fn "));
    methods.count()
}

#[test]
fn the_contract_of_a_scheme_stays_small_and_object_safe() {
    fn assert_object_safe(_: Option<&dyn twinpage_core::Scheme>, _: Option<&dyn twinpage_core::Idle>) {}
    assert_object_safe(None, None);
    let (scheme, idle) = (methods("Scheme {"), methods("Idle: Scheme {"));
    assert!((10..=13).contains(&scheme), "{scheme} methods: at most 13");
    // What the products ask besides: a commit in two halves, its traffic, space given back.
    assert!(
        (1..=4).contains(&idle),
        "{idle} methods more for the products: at most 4"
    );
}

/// The simulator names a scheme where it makes or recovers one and where it repeats a paper, and asks nothing but
/// [`Simulated`] after that.
///
/// [`Simulated`]: twinpage_core::Simulated
#[test]
fn the_simulator_never_asks_which_scheme_it_has() {
    let sources = sources(&crates().join("lab/src"));
    let mut made = 0;
    for (module, code) in &sources {
        let names = module.iter().map(String::as_str).collect::<Vec<_>>();
        for line in code.lines().filter(|line| line.contains("AnyScheme::")) {
            let makes = line.contains("AnyScheme::create") || line.contains("AnyScheme::recover");
            assert!(makes, "{names:?} asks which scheme it has: {line}");
            made += 1;
        }
        for line in code.lines().filter(|line| line.contains("SchemeKind::")) {
            // The dual page is named as what a comparison is with, and all of them as what a user may choose.
            let chooses = line.contains("SchemeKind::ALL") || line.contains("SchemeKind::DualPage)");
            let is_in_place = names[0] == "eval" || names == ["schemes"] && chooses;
            assert!(is_in_place, "{names:?} asks which scheme it has: {line}");
        }
    }
    assert!(made > 0, "the sources of the lab are not read");
}

/// The modules of the library, from the lowest.
const LIBRARY: &[&str] = &[
    "prefetch",
    "lock",
    "held_locks",
    "description",
    "store",
    "error",
    "zone",
    "gate",
    "address",
    "superblock",
    "next_level",
    "residence",
    "marks",
    "paging",
    "window",
    "statistics",
    "epochs",
    "heap",
    "persist",
    "collections",
    "root_entry",
    "check",
    "root_table",
    "timer",
    "sections",
    "options",
    "control_socket",
    "copy",
    "inspect",
    "region",
    "atomic",
    "open",
    "root",
    "handle",
    "shared",
    "refused",
    "backup",
    "reader",
    "objects",
];

#[test]
fn no_module_of_the_library_imports_one_above_it() {
    let (upward, seen) = upward(&crates().join("region/src"), LIBRARY);
    assert!(seen > 120, "the sources are not read: {seen} imports");
    assert!(upward.is_empty(), "imports of a floor above: {upward:?}");
}
