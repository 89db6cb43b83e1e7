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

/// The stable methods of `std`'s types (1.95).
const OF_STD: [(&str, &str); 9] = [
    (
        "Vec",
        "append as_mut_ptr as_mut_slice as_ptr as_slice capacity clear dedup dedup_by dedup_by_key drain \
         extend_from_slice extend_from_within extract_if from_raw_parts insert insert_mut into_boxed_slice \
         into_flattened into_raw_parts is_empty leak len new new_in pop pop_if push push_mut remove reserve \
         reserve_exact resize resize_with retain retain_mut set_len shrink_to shrink_to_fit \
         spare_capacity_mut splice split_off swap_remove truncate try_reserve try_reserve_exact with_capacity \
         with_capacity_in",
    ),
    (
        "String",
        "as_bytes as_mut_str as_mut_vec as_str capacity clear drain extend_from_within from_raw_parts \
         from_utf16 from_utf16_lossy from_utf8 from_utf8_lossy from_utf8_unchecked insert insert_str \
         into_boxed_str into_bytes into_raw_parts is_empty leak len new pop push push_str remove \
         replace_range reserve reserve_exact retain shrink_to shrink_to_fit split_off truncate try_reserve \
         try_reserve_exact with_capacity",
    ),
    (
        "VecDeque",
        "append as_mut_slices as_slices back back_mut binary_search binary_search_by binary_search_by_key \
         capacity clear contains drain front front_mut get get_mut insert insert_mut is_empty iter iter_mut \
         len make_contiguous new partition_point pop_back pop_back_if pop_front pop_front_if push_back \
         push_back_mut push_front push_front_mut range range_mut remove reserve reserve_exact resize \
         resize_with retain retain_mut rotate_left rotate_right shrink_to shrink_to_fit split_off swap \
         swap_remove_back swap_remove_front truncate try_reserve try_reserve_exact with_capacity",
    ),
    (
        "BinaryHeap",
        "append as_slice capacity clear drain into_sorted_vec into_vec is_empty iter len new peek peek_mut \
         pop push reserve reserve_exact retain shrink_to shrink_to_fit try_reserve try_reserve_exact \
         with_capacity",
    ),
    (
        "HashMap",
        "capacity clear contains_key drain entry extract_if get get_disjoint_mut get_disjoint_unchecked_mut \
         get_key_value get_mut hasher insert into_keys into_values is_empty iter iter_mut keys len new remove \
         remove_entry reserve retain shrink_to shrink_to_fit try_reserve values values_mut with_capacity \
         with_capacity_and_hasher with_hasher",
    ),
    (
        "HashSet",
        "capacity clear contains difference drain extract_if get hasher insert intersection is_disjoint \
         is_empty is_subset is_superset iter len new remove replace reserve retain shrink_to shrink_to_fit \
         symmetric_difference take try_reserve union with_capacity with_capacity_and_hasher with_hasher",
    ),
    (
        "BTreeMap",
        "append clear contains_key entry extract_if first_entry first_key_value get get_key_value get_mut \
         insert into_keys into_values is_empty iter iter_mut keys last_entry last_key_value len new pop_first \
         pop_last range range_mut remove remove_entry retain split_off values values_mut",
    ),
    (
        "BTreeSet",
        "append clear contains difference extract_if first get insert intersection is_disjoint is_empty \
         is_subset is_superset iter last len new pop_first pop_last range remove replace retain split_off \
         symmetric_difference take union",
    ),
    (
        "Box",
        "as_mut_ptr as_ptr assume_init from_raw into_pin into_raw leak new new_in new_uninit new_uninit_slice \
         new_zeroed new_zeroed_slice pin write",
    ),
];

/// `docs/collections.md` names all public methods of each type and no others, and of those that `std` has and it does not,
/// says why. What is of slices and texts it names besides.
#[test]
fn the_list_of_methods_is_true() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(here.join("../../docs/collections.md")).unwrap();
    let (present, absent) = text.split_once("## Absent").unwrap();
    let rows = present
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let rows: Names<&str, Methods> = rows.map(|(ty, methods)| (ty, named(methods))).collect();
    let absent = named(absent);
    for (ty, std) in OF_STD {
        let (mut own, listed) = (Methods::new(), &rows[ty]);
        methods_of(&here.join("src/collections"), ty, &mut own);
        assert!(
            own.len() > 5 && own.remove("heap") || ty == "Box",
            "{ty}: {own:?}"
        );
        let unlisted: Methods = own.difference(listed).cloned().collect();
        assert!(
            unlisted.is_empty(),
            "{ty} has methods that are not listed: {unlisted:?}"
        );
        let others = ["binary_search", "chunks", "sort", "std", "str", "windows"].map(Into::into);
        let not_there: Methods = &(listed - &own) - &others.into();
        assert!(not_there.is_empty(), "{ty} has no such methods: {not_there:?}");
        // What makes one ends in `_in`.
        let makers = own
            .iter()
            .filter_map(|name| name.strip_suffix("_in").map(Into::into));
        own.extend(makers.collect::<Methods>());
        if ty == "String" {
            own.extend(["as_bytes", "is_empty", "len"].map(Into::into)); // of texts
        }
        let std: Methods = std.split_whitespace().map(Into::into).collect();
        let untold = &(&std - &own) - &absent;
        assert!(untold.is_empty(), "{ty}: neither present nor absent: {untold:?}");
    }
}

type Methods = std::collections::BTreeSet<std::string::String>;

/// The names of methods between backticks.
fn named(text: &str) -> Methods {
    let names = text.split('`').skip(1).step_by(2);
    let names = names.map(|name| name.rsplit("::").next().unwrap_or(name));
    let is_method = |name: &&str| {
        name.bytes()
            .all(|byte| byte.is_ascii_lowercase() || b"_0123456789".contains(&byte))
    };
    names.filter(is_method).map(Into::into).collect()
}

/// The public methods in the blocks `impl Type<..> {` of a folder.
fn methods_of(folder: &std::path::Path, ty: &str, methods: &mut Methods) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            methods_of(&path, ty, methods);
            continue;
        }
        // The words of a block's head, up to its brace.
        let (mut head, mut is_of_type) = (None, false);
        for line in std::fs::read_to_string(path).unwrap().lines() {
            if line.starts_with("impl") {
                head = Some(std::string::String::new());
            }
            if let Some(words) = &mut head {
                *words += line;
                if words.ends_with('{') {
                    let of = words.split(" where").next().unwrap_or(words);
                    is_of_type = !of.contains(" for ")
                        && of
                            .split([' ', '>'])
                            .any(|word| word.starts_with(&format!("{ty}<")));
                    head = None;
                }
            }
            let public = line.strip_prefix("    pub ").unwrap_or_default();
            let (_, method) = public.split_once("fn ").unwrap_or_default();
            if is_of_type && !method.is_empty() && !public.starts_with('(') {
                let name = method.split(['(', '<']).next().unwrap_or_default();
                methods.insert(name.into());
            }
        }
    }
}
