//! Every public type, and every macro, shows how it is used.
//!
//! What is `pub` in these sources can be reached (`unreachable_pub` sees to that), so the sources tell which
//! types are public. That the examples are right is for the documentation tests to say.

use std::fs;
use std::path::Path;

const KINDS: [&str; 5] = ["struct ", "enum ", "union ", "trait ", "type "];

#[test]
fn every_public_type_has_an_example() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut seen, mut missing) = (0, Vec::new());
    for folder in [here.join("src"), here.join("../macros/src")] {
        walk(&folder, &mut |path, text| {
            for (line, docs) in public_types(text) {
                seen += 1;
                if !has_example(&docs) {
                    missing.push(format!("{}:{line}", path.display()));
                }
            }
        });
    }
    assert!(seen > 60, "only {seen} were found");
    assert!(missing.is_empty(), "without an example: {missing:#?}");
}

fn walk(folder: &Path, look: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, look);
        } else if path.extension().is_some_and(|end| end == "rs") {
            look(&path, &fs::read_to_string(&path).unwrap());
        }
    }
}

/// The line and the documentation of each public type and derive macro; those that are hidden are left out.
fn public_types(text: &str) -> Vec<(usize, Vec<&str>)> {
    let (mut found, mut docs, mut attributes) = (Vec::new(), Vec::new(), String::new());
    for (number, line) in text.lines().map(str::trim_start).enumerate() {
        let is_type = line
            .strip_prefix("pub ")
            .map(|rest| rest.strip_prefix("unsafe ").unwrap_or(rest))
            .is_some_and(|rest| KINDS.iter().any(|kind| rest.starts_with(kind)));
        let is_macro = line.starts_with("pub fn ") && attributes.contains("proc_macro");
        let unclosed = attributes.matches('[').count() > attributes.matches(']').count();
        if let Some(doc) = line.strip_prefix("///") {
            docs.push(doc.trim());
        } else if line.starts_with("#[") || unclosed {
            attributes.push_str(line);
        } else {
            if (is_type || is_macro) && !attributes.contains("doc(hidden)") {
                found.push((number + 1, docs.clone()));
            }
            docs.clear();
            attributes.clear();
        }
    }
    found
}

/// Whether one of the blocks of code is compiled and run.
fn has_example(docs: &[&str]) -> bool {
    let fences = docs.iter().filter_map(|line| line.strip_prefix("```"));
    fences
        .step_by(2)
        .any(|language| language.is_empty() || language == "rust")
}

#[test]
fn what_is_missing_is_noticed() {
    let bare = "/// A thing.\n#[derive(\n    Debug,\n)]\npub struct Thing;\n";
    let shown = "/// A thing.\n///\n/// ```\n/// Thing;\n/// ```\n#[must_use]\npub enum Thing {}\n";
    let text = "/// ```text\n/// a | b\n/// ```\npub unsafe trait Thing {}\n";
    let hidden = "/// A thing.\n#[doc(hidden)]\npub struct Thing;\npub(crate) struct Other;\n";
    let examples = |text| {
        let found = public_types(text);
        found
            .iter()
            .map(|(_, docs)| has_example(docs))
            .collect::<Vec<_>>()
    };
    assert_eq!(examples(bare), [false]);
    assert_eq!(examples(shown), [true]);
    assert_eq!(examples(text), [false]);
    assert!(examples(hidden).is_empty());
}
