//! Bodies whose class is written above them, followed calls, objects among other types, and bad input.

use std::path::{Path, PathBuf};
use twinpage_classify::{Class, Error, Method, Reason, Sources, Summary, in_impl};

fn bodies() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bodies")
}

/// The expectation above a method: none of attributes or documentation is in between but the former.
fn expectation<'a>(lines: &[&'a str], method: &Method) -> Option<&'a str> {
    let above = lines[..method.at.line - 1].iter().rev();
    above
        .map(|line| line.trim())
        .take_while(|line| line.starts_with("#[") || line.starts_with("//~"))
        .find_map(|line| line.strip_prefix("//~ "))
}

fn classify(text: &str) -> Vec<Method> {
    let mut sources = Sources::default();
    sources.add("object.rs", text).unwrap();
    sources.classify()
}

#[test]
fn bodies_are_of_the_class_that_is_written_above_them() {
    let (mut total, mut wrong) = (0, Vec::new());
    for entry in std::fs::read_dir(bodies()).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let mut sources = Sources::default();
        sources.read(&path).unwrap();
        let methods = sources.classify();
        let expected = lines.iter().filter(|line| line.trim().starts_with("//~")).count();
        let mut seen = 0;
        for method in &methods {
            let Some(expected) = expectation(&lines, method) else {
                continue;
            };
            seen += 1;
            let right = match expected.split_once(": ") {
                Some(("instant", why)) => {
                    let found = method.reasons.iter().map(ToString::to_string).collect::<String>();
                    method.class == Class::Instant && why.split(" | ").any(|why| found.contains(why))
                }
                _ => expected == "deferrable" && method.class == Class::Deferrable,
            };
            if !right {
                wrong.push(format!("{}: expected {expected}\n{method}", method.at));
            }
        }
        assert_eq!(
            seen,
            expected,
            "{}: an expectation belongs to no method",
            path.display()
        );
        total += seen;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(total >= 100, "{total} bodies");
    println!("{total} bodies");
}

#[test]
fn only_objects_are_listed_where_some_are_marked() {
    let methods = classify(
        "#[twinpage::object] impl A { fn a(&mut self) { B::new().b() } fn new() -> A { A } }
         impl B { fn b(&self) { println!() } fn new() -> B { B } }",
    );
    let [a] = &methods[..] else {
        panic!("{methods:?}");
    };
    assert_eq!((&*a.object, &*a.name, a.class), ("A", "a", Class::Instant));
    assert!(a.reasons[0].why.contains("`println!`"), "{a}");
    assert_eq!(a.reasons[0].through[0].0, "b");
}

/// A function of another file decides as well; without that file its caller is instant for want of its source.
#[test]
fn calls_are_followed_into_other_files() {
    let object = "use crate::helpers::help; impl A { fn a(&mut self) { help(&mut self.x) } }";
    let with = |helper: Option<&str>| {
        let mut sources = Sources::default();
        sources.add("object.rs", object).unwrap();
        if let Some(helper) = helper {
            sources.add("helpers.rs", helper).unwrap();
        }
        sources.classify().remove(0)
    };
    assert_eq!(
        with(Some("pub fn help(x: &mut u64) { *x += 1 }")).class,
        Class::Deferrable
    );
    let impure = with(Some(
        "pub fn help(x: &mut u64) { deeper(x) }\nfn deeper(x: &mut u64) { print!(\"{x}\") }",
    ));
    assert_eq!(impure.class, Class::Instant);
    let reason = &impure.reasons[0];
    assert_eq!(reason.at.file, Path::new("object.rs"));
    let (name, place) = reason.through.last().unwrap();
    assert_eq!(
        (&**name, &*place.file, place.line),
        ("deeper", Path::new("helpers.rs"), 2)
    );
    assert!(
        with(None).reasons[0]
            .why
            .contains("the source of `crate::helpers::help` is not given")
            || with(None).reasons[0]
                .why
                .contains("the source of `help` is not given"),
        "{}",
        with(None)
    );
}

/// Two functions of one name: the impure one decides.
#[test]
fn of_functions_with_one_name_all_are_followed() {
    let twice = "mod a { pub fn help() {} } mod b { pub fn help() { std::process::exit(1) } }
                 impl A { fn a(&mut self) { a::help() } }";
    assert_eq!(classify(twice)[0].class, Class::Instant);
}

#[test]
fn a_summary_counts() {
    let methods = classify(
        "impl A { fn a(&mut self) {} fn b(&mut self) {} fn c(&self) -> u8 { 1 } } impl B { fn d(&mut self) {} }",
    );
    let summaries = Summary::of(&methods);
    let counts: Vec<_> = summaries
        .iter()
        .map(|s| (&*s.object, s.deferrable, s.instant))
        .collect();
    assert_eq!(counts, [("A", 2, 1), ("B", 1, 0)]);
}

#[test]
fn bad_input_is_named() {
    let mut sources = Sources::default();
    let error = sources.add("a.rs", "fn a() {\n    let = 3;\n}").unwrap_err();
    let Error::Syntax { at, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!((at.line, at.column), (2, 9), "{error}");
    let empty = tempfile::tempdir().unwrap();
    let error = sources.read(empty.path()).unwrap_err();
    assert!(matches!(error, Error::NoSource { .. }), "{error}");
    let error = sources.read(&empty.path().join("none.rs")).unwrap_err();
    assert!(error.to_string().contains("none.rs"), "{error}");
    std::fs::write(empty.path().join("a.rs"), [0xff, 0xfe]).unwrap();
    let error = sources.read(empty.path()).unwrap_err();
    assert!(error.to_string().contains("a.rs"), "{error}");
}

/// What one thinks of as the source of a method is that of the crate: its own source is pure nowhere by accident.
#[test]
fn the_crate_reads_itself() {
    let mut sources = Sources::default();
    sources
        .read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
        .unwrap();
    let methods = sources.classify();
    let read = methods.iter().find(|method| method.name == "read").unwrap();
    assert!(read.to_string().contains("reads or writes files"), "{read}");
}

/// The macro refuses nothing that the command takes for deferrable, and what it refuses is among the command's reasons: one
/// library is behind both. It sees less, one `impl` alone, so of bodies that only call what is elsewhere it says nothing.
#[test]
fn one_impl_shows_what_all_sources_do() {
    let (mut instant, mut found_in) = (0, 0);
    for entry in std::fs::read_dir(bodies()).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut sources = Sources::default();
        sources.read(&path).unwrap();
        let methods = sources.classify();
        instant += methods
            .iter()
            .filter(|method| method.class == Class::Instant)
            .count();
        let impls = syn::parse_file(&text).unwrap().items.into_iter();
        let impls = impls.filter_map(|item| match item {
            syn::Item::Impl(item) if item.trait_.is_none() => Some(item),
            _ => None,
        });
        for item in impls {
            let found = in_impl(&item);
            let mut names: Vec<_> = found.iter().map(|found| &found.method).collect();
            names.dedup();
            found_in += names.len();
            for found in &found {
                let line = found.at.start().line;
                let is_it = |method: &&Method| {
                    let has = |reason: &Reason| reason.at.line == line;
                    method.name == found.method && method.reasons.iter().any(has)
                };
                let method = methods.iter().find(is_it);
                let method = method.unwrap_or_else(|| panic!("{}:{line}: {found:?}", path.display()));
                assert_eq!(method.class, Class::Instant, "{method}");
            }
        }
    }
    assert!(found_in * 3 >= instant, "{found_in} of {instant} instant methods");
}

/// What an `impl` alone shows, and what it does not.
#[test]
fn what_the_macro_sees() {
    let found = |body: &str| {
        let item = format!(
            "impl A {{ pub fn a(&mut self) {{ {body} }} fn tell(&self) {{ println!() }} \
             fn tells(&self) {{ self.tell() }} }}"
        );
        let found = in_impl(&syn::parse_str(&item).unwrap()).into_iter();
        found
            .filter(|found| found.method == "a")
            .map(|found| found.why)
            .collect::<Vec<_>>()
    };
    for (body, why) in [
        ("println!()", "`println!` writes"),
        ("self.t = SystemTime::now()", "is a time of a clock"),
        ("self.t = std::time::Instant::now()", "is a time of a clock"),
        ("self.t = begun.elapsed()", "`.elapsed()` asks for the time"),
        ("*LOCK.lock().unwrap() += 1", "`.lock()` waits"),
        ("COUNT.fetch_add(1, Relaxed);", "changes what threads share"),
        ("std::thread::sleep(x)", "uses threads"),
        ("let m = std::collections::HashMap::new();", "another order"),
        ("unsafe { RAW += 1 }", "`unsafe` code"),
        ("self.tells()", "`tells`: `tell`: `println!` writes"),
    ] {
        let found = found(body);
        assert!(found.iter().any(|found| found.contains(why)), "{body}: {found:?}");
    }
    for body in [
        "self.rows.push(helper(1))",
        "self.row.add(1)",
        "other::tell()",
        "self.x = LIMIT",
        "log!(1)",
        "self.x = Row::new()",
    ] {
        assert_eq!(found(body), Vec::<String>::new(), "{body}");
    }
    let marked = "impl A { #[deferrable] pub fn a(&mut self) { println!() } }";
    assert!(in_impl(&syn::parse_str(marked).unwrap()).is_empty());
}
