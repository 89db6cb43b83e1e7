//! The check: sound heaps are sound, every kind of damage is told of, and no bytes make it fall over.

use twinpage::check::{Report, check_image};
use twinpage::collections::{BTreeMap, Box, HashMap, String, Vec, VecDeque};
use twinpage::{Persist, Region};

#[derive(Persist)]
struct All<'r> {
    words: Vec<'r, String<'r>>,
    map: HashMap<'r, u64, Box<'r, u32>>,
    tree: BTreeMap<'r, u16, Vec<'r, u8>>,
    ring: VecDeque<'r, (bool, Option<Box<'r, char>>)>,
    large: Vec<'r, u64>,
}

/// The bytes of a region with roots and freed blocks, and its address.
fn image() -> (std::vec::Vec<u8>, u64) {
    let dir = tempfile::tempdir().unwrap();
    let region = Region::open(dir.path().join("check.twin")).unwrap();
    let mut all = region.root::<All>("all").unwrap();
    region.update(|u| {
        let (all, heap) = (all.get_mut(u), u.heap());
        all.large.extend(0..20_000);
        for k in 0..300_u16 {
            all.words.push(String::from_in(&format!("word {k}"), heap));
            all.map.insert(k.into(), Box::new_in(k.into(), heap));
            all.tree.insert(k, Vec::from_iter_in(0..(k % 9) as u8, heap));
            all.ring
                .push_front((k % 2 == 0, (k % 5 == 0).then(|| Box::new_in('x', heap))));
        }
        drop(Vec::<u64>::with_capacity_in(30_000, heap));
        for k in (0..300).step_by(4) {
            all.map.remove(&k);
            all.tree.remove(&(k as u16));
        }
    });
    let _number = region.root_with::<u32>("number", |_| 5).unwrap();
    let place = region.place();
    // SAFETY: these bytes are usable, and do not change.
    let bytes = unsafe { std::slice::from_raw_parts(place.base(), place.bytes()) }.to_vec();
    (bytes, place.base().addr() as u64)
}

#[test]
fn a_sound_heap_is_sound() {
    let (bytes, base) = image();
    let report = check_image(&bytes, base);
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(
        report
            .roots
            .iter()
            .map(|root| root.name.as_str())
            .collect::<std::vec::Vec<_>>(),
        ["all", "number"]
    );
    assert_eq!(report.roots[1].blocks, 1);
    let stats = &report.stats;
    assert_eq!(
        stats.used_bytes + stats.free_bytes + stats.scattered_bytes + stats.own_bytes,
        stats.span_bytes
    );
    assert!(check_image(&[], 0).is_sound());
}

#[test]
fn a_check_beside_updates_sees_none_half_done() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let region = Region::options().every(std::time::Duration::from_millis(1));
    let region = region.open(folder.path().join("test.twin")).unwrap();
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let mut texts = region
                .root::<HashMap<u64, String>>(&format!("texts {thread}"))
                .unwrap();
            let (region, ended) = (&region, &ended);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    let (key, length) = (random.u64(..200), random.usize(..2000));
                    region.update(|u| {
                        texts
                            .get_mut(u)
                            .insert(key, u.string(&"x".repeat(length)))
                            .is_some()
                    });
                }
            });
        }
        let reports: std::vec::Vec<_> = (0..100).map(|_| region.check().unwrap()).collect();
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        for report in reports {
            assert!(report.is_sound(), "{report:?}");
        }
    });
    let inside = region.update(|_| region.check());
    assert!(matches!(inside, Err(twinpage::Error::Invalid(_))), "{inside:?}");
}

#[test]
fn a_block_nobody_owns_is_a_leak() {
    let dir = tempfile::tempdir().unwrap();
    let region = Region::open(dir.path().join("leak.twin")).unwrap();
    let mut words = region.root::<Vec<String>>("words").unwrap();
    region.update(|u| {
        words.get_mut(u).push(u.string("kept"));
        std::mem::forget(u.string(&"lost ".repeat(20)));
        std::mem::forget(Vec::<u64>::with_capacity_in(10_000, u.heap()));
    });
    let report = region.check().unwrap();
    assert_eq!((report.leaked_blocks, report.leaks.len()), (2, 2));
    assert_eq!(report.leaked_bytes, 112 + (128 << 10));
    assert!(report.damage.is_empty() && !report.is_sound());
}

/// Damages one number and says what the check found.
fn damaged(image: &(std::vec::Vec<u8>, u64), at: usize, bytes: &[u8]) -> Report {
    let mut changed = image.0.clone();
    assert_ne!(&changed[at..at + bytes.len()], bytes);
    changed[at..at + bytes.len()].copy_from_slice(bytes);
    check_image(&changed, image.1)
}

#[test]
fn what_is_damaged_is_told() {
    let image = image();
    let number = |at: usize| u64::from_le_bytes(image.0[at..at + 8].try_into().unwrap());
    let offset = |address: u64| (address - image.1) as usize;
    let table = offset(number(48));
    let entry = offset(number(table));
    let root = offset(number(entry + 64));
    let description = twinpage::persist::Description::of::<All>();
    let twinpage::persist::Kind::Struct(fields) = &description.get(0).kind else {
        panic!()
    };
    let field = |name: &str| root + fields.iter().find(|f| f.name == name).unwrap().at as usize;
    let (words, map, tree, ring) = (field("words"), field("map"), field("tree"), field("ring"));
    let word = offset(number(words));
    let slab = offset(number(word)) & !0xffff;
    let cases: [(&str, usize, &[u8]); 26] = [
        ("magic", 0, b"X"),
        ("version", 8, &[9]),
        ("top", 16, &[0, 0, 0, 1]),
        ("top a little less", 16, &[2]),
        ("free units", 28, &[7, 7]),
        ("a bin", 80 + 3 * 4, &[1]),
        ("a list of slabs", 1024 + 8, &[1, 0, 0, 0]),
        ("an entry of the units", (16 << 10) + 16, &[9]),
        ("a slab's free bits", slab + 32, &[0x5a, 0x5a]),
        ("a slab's magic", slab + 24, &[0]),
        ("the root table", 48, &[8]),
        ("a root's name", entry + 8, &[0xff, 0xff]),
        ("a root's layout", offset(number(entry + 32)), b"?"),
        ("a root's address", entry + 64, &[1]),
        ("a vector's block", words, &[1]),
        ("a vector's length", words + 8, &[0xff, 0xff]),
        ("a vector's room", words + 16, &[0xff, 0xff]),
        ("a vector's heap", words + 24, &[1]),
        ("text", offset(number(word)), &[0xff]),
        ("a second owner", word, &number(word + 32).to_le_bytes()),
        ("a map's controls", offset(number(map)), &[0xfd]),
        ("a map's items", map + 16, &[1, 1]),
        ("a tree's root", tree, &[1]),
        ("a tree's length", tree + 16, &[1]),
        ("a ring's head", ring + 8, &[0xff, 0xff, 0xff]),
        ("a bool", offset(number(ring)) + 8, &[7]),
    ];
    for (what, at, bytes) in cases {
        let report = damaged(&image, at, bytes);
        assert!(!report.is_sound(), "{what} at {at:#x}: {report:?}");
    }
}

#[test]
fn no_bytes_make_the_check_fall_over() {
    let (bytes, base) = image();
    let rounds = twinpage_campaign::either(300, 20_000);
    let seed = twinpage_campaign::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let used: std::vec::Vec<usize> = (0..bytes.len() / 8)
        .filter(|k| bytes[k * 8..k * 8 + 8] != [0; 8])
        .collect();
    let mut changed = bytes.clone();
    for _ in 0..rounds {
        let mut undo = std::vec::Vec::new();
        for _ in 0..random.usize(1..6) {
            let at = used[random.usize(..used.len())] * 8;
            undo.push(at);
            let old = u64::from_le_bytes(changed[at..at + 8].try_into().unwrap());
            let new = match random.u8(..6) {
                0 => random.u64(..),
                1 => old ^ 1 << random.u32(..64),
                2 => old.wrapping_add(random.u64(..100)),
                3 => u64::MAX,
                4 => base + random.u64(..bytes.len() as u64),
                _ => u64::from_le_bytes(
                    bytes[used[random.usize(..used.len())] * 8..][..8]
                        .try_into()
                        .unwrap(),
                ),
            };
            changed[at..at + 8].copy_from_slice(&new.to_le_bytes());
        }
        let _ = check_image(&changed, base);
        undo.into_iter()
            .for_each(|at| changed[at..at + 8].copy_from_slice(&bytes[at..at + 8]));
    }
    for _ in 0..50 {
        let end = random.usize(..bytes.len());
        let _ = check_image(&bytes[..end], base);
    }
    let noise: std::vec::Vec<u8> = (0..1 << 20).map(|_| random.u8(..)).collect();
    assert!(!check_image(&noise, base).is_sound());
}

#[test]
fn an_address_that_no_process_has_is_told_of() {
    let (bytes, base) = image();
    for far in [
        u64::MAX,
        u64::MAX - 8,
        u64::MAX - bytes.len() as u64,
        u64::MAX / 2,
    ] {
        let report = check_image(&bytes, far);
        assert!(report.damage[0].what.contains("no process"), "{report:?}");
        assert!(!check_image(&bytes[..16], far).is_sound());
    }
    assert!(check_image(&bytes, base).is_sound());
}
