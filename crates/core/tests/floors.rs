//! Nothing imports upwards: neither a crate another that is built on it, nor a module of this crate one above it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The crates of this project that each crate may know.
const CRATES: &[(&str, &[&str])] = &[
    ("campaign", &[]),
    ("classify", &[]),
    ("core", &[]),
    ("baselines", &["twinpage-core"]),
    ("os", &["twinpage-core"]),
    ("macros", &[]),
    ("versions", &["twinpage-core", "twinpage-os"]),
    (
        "region",
        &[
            "twinpage-core",
            "twinpage-os",
            "twinpage-macros",
            "twinpage-versions",
        ],
    ),
    ("process", &["twinpage-core", "twinpage-os"]),
    (
        "lab",
        &["twinpage-core", "twinpage-baselines", "twinpage-classify"],
    ),
    ("commands", &["twinpage-os", "twinpage-lab"]),
];

/// Crates whose modules import one another without a cycle, and how many modules each has at least.
const ACYCLIC: &[(&str, usize)] = &[("os", 25), ("process", 25), ("lab", 12), ("versions", 15)];

/// The modules of this crate, from the lowest: each may import those before it.
const MODULES: &[&str] = &[
    "error",
    "geometry",
    "kind",
    "buffer",
    "histogram",
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

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The names under a table of a manifest.
fn dependencies(manifest: &str) -> Vec<&str> {
    let lines = manifest
        .lines()
        .skip_while(|line| *line != "[dependencies]")
        .skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    lines
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| name.starts_with("twinpage"))
        .collect()
}

#[test]
fn no_crate_knows_one_that_is_built_on_it() {
    for (name, allowed) in CRATES {
        let manifest = crates().join(name).join("Cargo.toml");
        let manifest =
            fs::read_to_string(&manifest).unwrap_or_else(|e| panic!("{}: {e}", manifest.display()));
        for known in dependencies(&manifest) {
            assert!(
                allowed.contains(&known),
                "crates/{name} must not depend on {known}"
            );
        }
    }
    let cli = fs::read_to_string(crates().join("cli/Cargo.toml")).unwrap();
    assert!(dependencies(&cli).len() > 3, "the manifests are not read: {cli}");
}

/// The Rust files of a folder and below but for tests, and the module of each.
fn sources(folder: &Path, module: Option<&str>, all: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if stem == "tests" {
            continue;
        }
        let module = module.unwrap_or(&stem);
        if path.is_dir() {
            sources(&path, Some(module), all);
        } else if module != "lib" {
            all.push((module.to_owned(), fs::read_to_string(&path).unwrap()));
        }
    }
}

/// What the program itself imports of its crate: neither in comments nor in tests.
fn imports(source: &str) -> Vec<String> {
    let program = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let code = program
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let code = code.collect::<Vec<_>>().join("\n");
    let name = |path: &str| {
        let letters = path.chars().take_while(|c| c.is_alphanumeric() || *c == '_');
        letters.collect::<String>()
    };
    let mut found = Vec::new();
    for path in code.split("crate::").skip(1) {
        match path.strip_prefix('{') {
            // `use crate::{one, other};`
            Some(list) => {
                let list = list.split('}').next().unwrap_or_default();
                found.extend(list.split(',').map(|path| name(path.trim())));
            }
            None => found.push(name(path)),
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

#[test]
fn no_module_of_the_core_imports_one_above_it() {
    let rank = |module: &str| MODULES.iter().position(|&name| name == module);
    let mut files = Vec::new();
    sources(&crates().join("core/src"), None, &mut files);
    let mut seen = BTreeMap::new();
    for (module, source) in &files {
        let own =
            rank(module).unwrap_or_else(|| panic!("the module {module} has no floor: name it in MODULES"));
        for import in imports(source) {
            let other = rank(&import).unwrap_or_else(|| {
                panic!("{module} imports crate::{import}: name the module, so that its floor is seen")
            });
            assert!(other <= own, "{module} imports {import}, which is above it");
            *seen.entry(module.clone()).or_insert(0) += 1;
        }
    }
    assert!(
        seen.len() > 12 && seen["dual_page"] > 50,
        "the sources are not read: {seen:?}"
    );
}

/// A cycle of `edges` from `module` on, if there is one. Modules in `done` are in none.
fn cycle<'a>(
    module: &'a str,
    edges: &'a BTreeMap<String, BTreeSet<String>>,
    path: &mut Vec<&'a str>,
    done: &mut BTreeSet<&'a str>,
) -> Option<Vec<&'a str>> {
    if let Some(at) = path.iter().position(|&on_path| on_path == module) {
        return Some(path[at..].to_vec());
    }
    if done.contains(module) {
        return None;
    }
    path.push(module);
    let imports = edges.get(module).into_iter().flatten();
    let found = imports
        .into_iter()
        .find_map(|import| cycle(import, edges, path, done));
    path.pop();
    done.insert(module);
    found
}

#[test]
fn modules_import_one_another_without_a_cycle() {
    for &(name, least) in ACYCLIC {
        let mut files = Vec::new();
        sources(&crates().join(name).join("src"), None, &mut files);
        files.retain(|(module, _)| module != "main" && !module.ends_with("_tests"));
        let modules: BTreeSet<String> = files.iter().map(|(module, _)| module.clone()).collect();
        assert!(
            modules.len() >= least,
            "the sources of {name} are not read: {modules:?}"
        );
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (module, source) in &files {
            for import in imports(source) {
                assert!(
                    modules.contains(&import),
                    "{name}: {module} imports crate::{import}: name the module, so that its floor is seen"
                );
                if import != *module {
                    edges.entry(module.clone()).or_default().insert(import);
                }
            }
        }
        assert!(
            edges.len() > least / 2,
            "the imports of {name} are not read: {edges:?}"
        );
        let mut done = BTreeSet::new();
        for module in &modules {
            let found = cycle(module, &edges, &mut Vec::new(), &mut done);
            assert!(found.is_none(), "crates/{name}: a cycle of modules: {found:?}");
        }
    }
}

#[test]
fn a_cycle_is_found() {
    let edges = [("a", "b"), ("b", "c"), ("c", "b"), ("d", "a")];
    let edges = edges.map(|(from, to)| (from.to_owned(), BTreeSet::from([to.to_owned()])));
    let edges = BTreeMap::from(edges);
    let search = |from| cycle(from, &edges, &mut Vec::new(), &mut BTreeSet::new());
    assert_eq!(search("d"), Some(vec!["b", "c"]));
    assert_eq!(cycle("e", &edges, &mut Vec::new(), &mut BTreeSet::new()), None);
}

#[test]
fn the_contract_of_a_scheme_stays_small_and_object_safe() {
    fn assert_object_safe(_: Option<&dyn twinpage_core::Scheme>) {}
    assert_object_safe(None);
    let source = fs::read_to_string(crates().join("core/src/scheme.rs")).unwrap();
    let contract = source.split("\npub trait Scheme {").nth(1).expect("the trait");
    let contract = contract.split("\n}").next().unwrap_or_default();
    let methods = contract
        .lines()
        .filter(|line| line.starts_with("    fn "))
        .count();
    assert!((10..=13).contains(&methods), "{methods} methods: at most 13");
}

/// The simulator names a scheme where it makes or recovers one, and asks nothing but [`Simulated`] after that.
///
/// [`Simulated`]: twinpage_core::Simulated
#[test]
fn the_simulator_never_asks_which_scheme_it_has() {
    let mut files = Vec::new();
    sources(&crates().join("lab/src"), None, &mut files);
    let code = |line: &&str| !line.trim_start().starts_with("//");
    let lines = files.iter().flat_map(|(_, source)| source.lines().filter(code));
    let mut made = 0;
    for named in lines.filter(|line| line.contains("AnyScheme::")) {
        let makes = named.contains("AnyScheme::create") || named.contains("AnyScheme::recover");
        assert!(makes, "the lab asks which scheme it has: {named}");
        made += 1;
    }
    assert!(made > 0, "the sources of the lab are not read");
}

/// The modules of the library, from the lowest.
const LIBRARY: &[&str] = &[
    "prefetch",
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
    "backup",
    "reader",
    "objects",
];

#[test]
fn no_module_of_the_library_imports_one_above_it() {
    let rank = |module: &str| {
        let at = LIBRARY.iter().position(|&name| name == module);
        at.unwrap_or_else(|| panic!("the module {module} has no floor: name it in LIBRARY"))
    };
    let mut files = Vec::new();
    sources(&crates().join("region/src"), None, &mut files);
    let (mut upward, mut seen) = (BTreeSet::new(), 0);
    for (module, source) in &files {
        for import in imports(source) {
            let import = match import.as_str() {
                "Error" | "Result" => "error",
                import => import,
            };
            if rank(import) > rank(module) {
                upward.insert((module.as_str(), import.to_owned()));
            }
            seen += 1;
        }
    }
    assert!(seen > 200, "the sources are not read: {seen} imports");
    assert!(upward.is_empty(), "imports of a floor above: {upward:?}");
}
