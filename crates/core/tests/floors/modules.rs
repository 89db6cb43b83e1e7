//! The modules of a crate and what each of them imports, read from its sources without comments and tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module by its path in the crate; the crate's root has none.
pub(crate) type Module = Vec<String>;

/// Modules, and those that each imports.
pub(crate) type Imports = BTreeMap<Module, BTreeSet<Module>>;

/// The program in a source: without comments, text in quotes, and the modules of its tests.
pub(crate) fn program(source: &str) -> String {
    let (mut code, mut rest) = (String::new(), source);
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            'r' if !code.ends_with(is_of_a_name) => raw_string(rest).unwrap_or(0),
            '"' => string(rest),
            '\'' => character(rest),
            _ => 0,
        };
        match length {
            0 => code.push(first),
            // Text keeps its lines, and nothing else.
            _ if first != '/' => {
                let text = rest[..length].chars();
                code.extend(text.map(|c| if c == '\n' { c } else { '"' }));
            }
            _ => {}
        }
        rest = &rest[length.max(first.len_utf8())..];
    }
    without_tests(&code)
}

fn is_of_a_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Bytes of the raw string that `text` begins with.
fn raw_string(text: &str) -> Option<usize> {
    let hashes = text[1..].bytes().take_while(|&byte| byte == b'#').count();
    let content = text[1 + hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(2 + hashes + content.find(&end)? + end.len())
}

/// Bytes of the string that `text` begins with.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Bytes of the character that `text` begins with; 0 where a lifetime begins.
fn character(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    let content = characters.next().map(|(_, c)| c);
    let end = match content {
        Some('\\') => {
            let escaped = characters.next();
            escaped.and_then(|_| characters.find(|&(_, c)| c == '\''))
        }
        Some(_) => characters.next().filter(|&(_, c)| c == '\''),
        None => None,
    };
    end.map_or(0, |(at, _)| at + 1)
}

fn without_tests(code: &str) -> String {
    let (mut program, mut rest) = (String::new(), code);
    while let Some(at) = rest.find("#[cfg(") {
        let attribute = &rest[at..][..rest[at..].find(']').map_or(rest.len() - at, |end| end + 1)];
        program.push_str(&rest[..at]);
        rest = &rest[at + attribute.len()..];
        let item = rest.trim_start();
        let is_test = attribute.starts_with("#[cfg(test") || attribute.starts_with("#[cfg(all(test");
        if is_test && (item.starts_with("mod ") || item.starts_with("pub mod ")) {
            rest = after_item(rest);
        }
    }
    program.push_str(rest);
    program
}

/// What follows the item at the start of `text`.
fn after_item(text: &str) -> &str {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return &text[at + 1..],
            b'}' => depth -= 1,
            b';' if depth == 0 => return &text[at + 1..],
            _ => {}
        }
    }
    ""
}

/// The modules of the crate whose sources are in `folder`, but for those of tests, and the program of each.
pub(crate) fn sources(folder: &Path) -> BTreeMap<Module, String> {
    let mut all = BTreeMap::new();
    read(folder, &mut Vec::new(), &mut all);
    assert!(!all.is_empty(), "{} has no sources", folder.display());
    all
}

fn read(folder: &Path, module: &mut Module, all: &mut BTreeMap<Module, String>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for path in entries.map(|entry| entry.unwrap().path()) {
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if stem == "tests" || stem.ends_with("_tests") || stem == "bin" {
            continue;
        }
        let own = !matches!(&stem[..], "mod" | "lib" | "main");
        own.then(|| module.push(stem));
        if path.is_dir() {
            read(&path, module, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.insert(module.clone(), program(&fs::read_to_string(&path).unwrap()));
        }
        own.then(|| module.pop());
    }
}

/// What each module imports of its crate, by `use` or by a path in its code. A path ends at the last module of it.
pub(crate) fn imports(sources: &BTreeMap<Module, String>) -> Imports {
    let named = |(module, code): (&Module, &String)| {
        let paths = paths(code).into_iter();
        let found = paths.filter_map(|path| resolve(sources, module, &path));
        (module.clone(), found.filter(|other| other != module).collect())
    };
    sources.iter().map(named).collect()
}

/// The paths in a program that begin at its crate, its module or the one above.
fn paths(code: &str) -> Vec<String> {
    let mut all = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = &code[..at];
            if before.ends_with(is_of_a_name) || before.ends_with(':') || before.ends_with('$') {
                continue;
            }
            expand(&code[at..], "", &mut all);
        }
    }
    all
}

/// The paths of the tree at the start of `text`: `a::{b, c::{d, e}}` are three. Returns what follows it.
fn expand<'a>(text: &'a str, before: &str, all: &mut Vec<String>) -> &'a str {
    let text = text.trim_start();
    let end = text.find(|c| !is_of_a_name(c) && c != ':').unwrap_or(text.len());
    let path = format!("{before}{}", &text[..end]);
    let mut rest = &text[end..];
    if !(path.ends_with("::") && rest.starts_with('{')) {
        all.push(path);
        return rest;
    }
    rest = &rest[1..];
    loop {
        rest = rest.trim_start().trim_start_matches(',').trim_start();
        if let Some(after) = rest.strip_prefix('}') {
            return after;
        }
        let left = expand(rest, &path, all);
        // `name as other`, a star, or something that is no tree at all.
        let skip = left.find([',', '}']).unwrap_or(left.len());
        rest = &left[skip..];
        if rest.is_empty() {
            return rest;
        }
    }
}

/// The module that a path in `module` leads to.
fn resolve(sources: &BTreeMap<Module, String>, module: &Module, path: &str) -> Option<Module> {
    let mut parts = path.split("::").peekable();
    let mut found = match *parts.peek()? {
        "crate" => Vec::new(),
        _ => module.clone(),
    };
    while let Some(&part @ ("crate" | "self" | "super")) = parts.peek() {
        if part == "super" {
            found.pop()?;
        }
        parts.next();
    }
    for part in parts {
        found.push(part.to_owned());
        if !sources.contains_key(&found) {
            found.pop();
            break;
        }
    }
    Some(found)
}

/// The modules that import one another in a circle, each circle's together. What a module imports of those it lies in
/// closes none: a module is made of the modules in it.
pub(crate) fn circles(imports: &Imports) -> Vec<BTreeSet<Module>> {
    let beside = |module: &Module| {
        let others = imports.get(module).into_iter().flatten().cloned();
        let own = module.clone();
        others.filter(move |other| !own.starts_with(other))
    };
    let reached = |module: &Module| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![module.clone()]);
        while let Some(at) = next.pop() {
            next.extend(beside(&at).filter(|other| seen.insert(other.clone())));
        }
        seen
    };
    let reach: BTreeMap<&Module, BTreeSet<Module>> = imports.keys().map(|m| (m, reached(m))).collect();
    let mut circles: Vec<BTreeSet<Module>> = Vec::new();
    for (&module, there) in &reach {
        if there.contains(module) && circles.iter().all(|circle| !circle.contains(module)) {
            let back = there
                .iter()
                .filter(|other| reach.get(other).is_some_and(|r| r.contains(module)));
            circles.push(back.cloned().collect());
        }
    }
    circles
}

/// Lines of code: neither blank, nor comment, nor test.
pub(crate) fn lines(sources: &BTreeMap<Module, String>) -> usize {
    let lines = sources.values().flat_map(|code| code.lines());
    lines.filter(|line| !line.trim().is_empty()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str) -> Module {
        let parts = path.split("::").filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect()
    }

    fn crate_of(files: &[(&str, &str)]) -> BTreeMap<Module, String> {
        files
            .iter()
            .map(|&(path, code)| (module(path), program(code)))
            .collect()
    }

    #[test]
    fn every_form_of_import_is_seen() {
        let sources = crate_of(&[
            ("", "mod a; mod b; mod c;"),
            (
                "a",
                "use super::b::Thing;\nfn f<'a>(x: &'a u8) -> char { '\"' }\nuse crate::{b::{Other, d}, c as e};",
            ),
            (
                "b",
                "fn f() { crate::c::run(); \"crate::a\"; r#\"super::a\"#; } // crate::a",
            ),
            ("b::d", "use super::Thing;"),
            (
                "c",
                "#[cfg(test)]\nmod tests { use crate::a; }\nfn g() { super::b::d::h() }",
            ),
        ]);
        let found = imports(&sources);
        let of = |path| {
            found[&module(path)]
                .iter()
                .map(|m| m.join("::"))
                .collect::<Vec<_>>()
        };
        assert_eq!(of("a"), ["b", "b::d", "c"]);
        assert_eq!(of("b"), ["c"]);
        assert_eq!(of("b::d"), ["b"]);
        assert_eq!(of("c"), ["b::d"]);
        assert_eq!(lines(&sources), 1 + 3 + 1 + 1 + 1);
    }

    #[test]
    fn a_circle_is_found() {
        let circle = |files: &[(&str, &str)]| {
            let found = circles(&imports(&crate_of(files)));
            let names = |circle: &BTreeSet<Module>| circle.iter().map(|m| m.join("::")).collect::<Vec<_>>();
            found.iter().map(names).collect::<Vec<_>>()
        };
        let (b, c) = (("b", "use crate::c;"), ("c", "use super::b;"));
        assert_eq!(
            circle(&[("", ""), ("a", "use crate::b;"), b, c, ("d", "use crate::a;")]),
            [["b", "c"]]
        );
        // A module and the ones in it are one.
        assert!(circle(&[("", ""), ("a", "use self::b::X;"), ("a::b", "use super::Y;")]).is_empty());
        let inside = [
            ("", ""),
            ("a", ""),
            ("a::b", "use super::c::X;"),
            ("a::c", "use crate::a::b::Y;"),
        ];
        assert_eq!(circle(&inside), [["a::b", "a::c"]]);
    }
}
