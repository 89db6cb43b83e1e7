//! What an update makes as `std` does, kept in a region; and the list of what is present.

use std::collections::BTreeMap as Names;
use twinpage::collections::{BTreeMap, BTreeSet, BinaryHeap, Box, HashMap, HashSet, String, Vec, VecDeque};
use twinpage::{Persist, Region};

#[derive(Persist)]
#[persist(default)]
struct Shelf<'r> {
    titles: Vec<'r, String<'r>>,
    seen: u32,
    note: Option<Box<'r, str>>,
}

#[derive(Persist)]
struct All<'r> {
    shelves: HashMap<'r, String<'r>, Shelf<'r>>,
    jobs: BinaryHeap<'r, (u8, u64)>,
    rows: Vec<'r, Box<'r, [Box<'r, str>]>>,
    nested: BTreeMap<'r, u8, BTreeMap<'r, u8, VecDeque<'r, u8>>>,
    maybe: Option<Box<'r, [bool]>>,
}

#[test]
fn what_an_update_makes_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("test.twin");
    {
        let region = Region::open(&file).unwrap();
        let mut all = region.root::<All>("all").unwrap();
        region.update(|u| {
            let all = all.get_mut(u);
            for (number, title) in ["Emma", "Persuasion", "Emma"].into_iter().enumerate() {
                let shelf = all.shelves.entry_ref(&title[..1]).or_default();
                shelf.titles.push(u.format(format_args!("{number}: {title}")));
                shelf.seen += 1;
            }
            all.jobs.extend((0..100).map(|n| ((n * 37 % 11) as u8, n)));
            let words: Box<[Box<str>]> = u.collect(
                "to be or not"
                    .split(' ')
                    .map(|word| Box::from_text_in(word, u.heap())),
            );
            all.rows.push(words);
            all.rows.push(u.collect([]));
            all.nested
                .entry(3)
                .or_default()
                .entry(4)
                .or_default()
                .push_back(5);
            all.maybe = Some(u.collect([true, false]));
            let letters = u.collect::<BTreeSet<_>>("twinpage".chars());
            let word: String = u.collect(letters);
            all.shelves.get_mut("E").unwrap().note = Some(word.into_boxed_str());
            assert!(u.default::<HashSet<u64>>().is_empty());
        });
        region.durable().unwrap();
    }
    let region = Region::open(&file).unwrap();
    let mut all = region.root::<All>("all").unwrap();
    region.read(|v| {
        let all = all.get(v);
        assert_eq!(all.shelves["E"].titles, ["0: Emma", "2: Emma"]);
        assert_eq!(all.shelves["E"].note.as_deref(), Some("aeginptw"));
        assert_eq!(
            (all.shelves["P"].seen, all.shelves["P"].note.is_none()),
            (1, true)
        );
        assert_eq!(all.jobs.peek(), Some(&(10, 96)));
        let words: std::vec::Vec<&str> = all.rows[0].iter().map(|word| &**word).collect();
        assert_eq!((words, all.rows[1].len()), (vec!["to", "be", "or", "not"], 0));
        assert_eq!(all.nested[&3][&4].front(), Some(&5));
        assert_eq!(all.maybe.as_deref(), Some(&[true, false][..]));
    });
    let report = region.check().unwrap();
    assert!(report.is_sound() && report.leaked_blocks == 0, "{report:?}");
    region.update(|u| {
        let all = all.get_mut(u);
        all.rows.clear();
        all.maybe = None;
        assert_eq!(all.jobs.drain().count(), 100);
    });
    assert!(region.check().unwrap().is_sound());
    drop(all);
    region.remove_root("all").unwrap(); // by its description alone
    assert_eq!(region.check().unwrap().roots.len(), 0);
    assert!(region.check().unwrap().is_sound());
}

/// Each method that `docs/collections.md` says is present is a public one of the sources of its type.
#[test]
fn the_list_of_methods_is_true() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(here.join("../../docs/collections.md")).unwrap();
    let sources = Names::from([
        ("Vec", "vec"),
        ("String", "string"),
        ("VecDeque", "deque"),
        ("BinaryHeap", "binary_heap"),
        ("HashMap", "hash"),
        ("HashSet", "hash"),
        ("BTreeMap", "btree"),
        ("BTreeSet", "btree"),
        ("Box", "boxed"),
    ]);
    let (present, _) = text.split_once("## Absent").unwrap();
    let mut seen = 0;
    for (ty, methods) in present
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
    {
        let source = source_of(&here.join("src/collections"), sources[ty]);
        for name in methods.split('`').skip(1).step_by(2) {
            let is_method = name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || b"_0123456789".contains(&byte));
            if !is_method || ["chunks", "windows", "sort", "str", "std"].contains(&name) {
                continue; // of slices and texts
            }
            let of_slices = ty == "Vec" && name == "binary_search";
            let is_there = [format!("fn {name}("), format!("fn {name}<")]
                .iter()
                .any(|it| source.contains(it));
            assert!(is_there || of_slices, "{ty}::{name} is not there");
            seen += 1;
        }
    }
    assert!(seen > 200, "{seen}");
}

/// The files of a type: those that begin with its name, and those of its folder.
fn source_of(folder: &std::path::Path, name: &str) -> std::string::String {
    let mut text = std::string::String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let of_type = path.file_stem().unwrap().to_str().unwrap().starts_with(name);
        if path.is_dir() && (of_type || name.is_empty()) {
            text += &source_of(&path, "");
        } else if of_type || name.is_empty() {
            text += &std::fs::read_to_string(path).unwrap();
        }
    }
    text
}
