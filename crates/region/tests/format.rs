//! Regions that were made by the first build of each format must open for ever: files of them, kept here.
//!
//! `TWINPAGE_MAKE_FORMAT=1` makes those that are not there, for a new version of the format; one that is there
//! is never made again.

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use twinpage::collections::{BTreeMap, BTreeSet, Box, HashMap, HashSet, String, Vec, VecDeque};
use twinpage::window::{WINDOW_BYTES, ZONE};
use twinpage::{Durability, Persist, Region, Root, SchemeKind, Update};

/// The version of what is in them, and how their lines became durable.
const KEPT: [(u32, SchemeKind); 4] = [
    (1, SchemeKind::DualPage),
    (1, SchemeKind::Packed),
    (2, SchemeKind::Packed),
    (4, SchemeKind::Packed),
];

#[derive(Persist, PartialEq, Debug)]
#[repr(u8)]
enum State {
    Open,
    Sent { at: u64, by: Option<NonZeroU16> },
}

#[derive(Persist)]
struct Order<'r> {
    item: u32,
    state: State,
    notes: Vec<'r, String<'r>>,
    last: Option<Box<'r, u64>>,
}

#[derive(Persist)]
struct All<'r> {
    orders: HashMap<'r, u64, Order<'r>>,
    names: BTreeMap<'r, String<'r>, (u64, char)>,
    ring: VecDeque<'r, u16>,
    flags: [bool; 5],
}

fn make_all<'r>(update: &Update<'r>) -> All<'r> {
    let heap = update.heap();
    let mut all = All {
        orders: HashMap::new_in(heap),
        names: BTreeMap::new_in(heap),
        ring: VecDeque::new_in(heap),
        flags: [true, false, true, true, false],
    };
    for id in 0..100 {
        let mut notes = Vec::new_in(heap);
        notes.extend((0..id % 4).map(|note| String::from_in(&format!("note {note} of {id}"), heap)));
        let state = match id % 3 {
            0 => State::Open,
            _ => State::Sent {
                at: id * 1000,
                by: NonZeroU16::new(id as u16 % 2),
            },
        };
        let last = (id % 5 == 0).then(|| Box::new_in(id, heap));
        all.orders.insert(
            id,
            Order {
                item: id as u32 * 7,
                state,
                notes,
                last,
            },
        );
        all.names
            .insert(String::from_in(&format!("{id:03}"), heap), (id, 'ß'));
    }
    (0..20).for_each(|n| all.ring.push_back(n));
    (0..7).for_each(|_| all.ring.rotate_left(1));
    all
}

fn assert_all(all: &All<'_>) {
    assert_eq!(all.flags, [true, false, true, true, false]);
    assert!(all.ring.iter().copied().eq((7..20).chain(0..7)));
    assert_eq!((all.orders.len(), all.names.len()), (100, 100));
    for (id, (name, found)) in (0..100).zip(all.names.iter()) {
        assert_eq!((name.as_str(), *found), (&*format!("{id:03}"), (id, 'ß')));
        let order = &all.orders[&id];
        assert_eq!((order.item, order.notes.len() as u64), (id as u32 * 7, id % 4));
        for (note, text) in order.notes.iter().enumerate() {
            assert_eq!(text.as_str(), format!("note {note} of {id}"));
        }
        match &order.state {
            State::Open => assert_eq!(id % 3, 0),
            State::Sent { at, by } => assert_eq!((*at, by.map_or(0, u16::from)), (id * 1000, id as u16 % 2)),
        }
        assert_eq!(
            order.last.as_ref().map(|last| **last),
            (id % 5 == 0).then_some(id)
        );
    }
}

type Sets<'r> = (HashSet<'r, u64>, BTreeSet<'r, i8>);

struct Roots {
    all: Root<All<'static>>,
    large: Root<Vec<'static, u64>>,
    sets: Root<Sets<'static>>,
}

fn roots(region: &Region) -> Roots {
    Roots {
        all: region.root_with::<All>("all", make_all).unwrap(),
        large: region
            .root_with("large", |u| Vec::from_iter_in(0..30_000, u.heap()))
            .unwrap(),
        sets: region
            .root_with::<Sets>("sets", |u| {
                (
                    HashSet::from_iter_in(0..50, u.heap()),
                    BTreeSet::from_iter_in(-50..50, u.heap()),
                )
            })
            .unwrap(),
    }
}

fn kept(version: u32, scheme: SchemeKind) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/format");
    folder.join(format!("v{version}-{}.twin.gz", scheme.name()))
}

/// Several epochs, so that derivative pages, journal records and batches are in it.
fn make(file: &Path, number: usize, scheme: SchemeKind) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("region");
    let options = Region::options().scheme(scheme).durability(Durability::Disk);
    let region = options
        .base(ZONE.start + (60 + number) * WINDOW_BYTES)
        .open(&path)
        .unwrap();
    let mut roots = roots(&region);
    region.checkpoint().unwrap();
    for turn in 0..6 {
        let mut large = |change: fn(&mut u64)| {
            region.update(|u| roots.large.get_mut(u).iter_mut().step_by(97).for_each(change));
        };
        large(|n| *n += 1);
        large(|n| *n -= 1);
        region.update(|u| roots.all.get_mut(u).ring.rotate_left(turn));
        region.checkpoint().unwrap();
        region.update(|u| roots.all.get_mut(u).ring.rotate_right(turn));
        region.checkpoint().unwrap();
    }
    drop(roots);
    region.close().unwrap();
    let mut packed = GzEncoder::new(std::fs::File::create(file).unwrap(), Compression::best());
    packed.write_all(&std::fs::read(path).unwrap()).unwrap();
    packed.finish().unwrap();
}

#[test]
fn regions_of_every_format_open() {
    for (number, (version, scheme)) in KEPT.into_iter().enumerate() {
        let file = kept(version, scheme);
        if !file.exists() && std::env::var_os("TWINPAGE_MAKE_FORMAT").is_some() {
            make(&file, number, scheme);
        }
        let mut bytes = std::vec::Vec::new();
        let packed = std::fs::File::open(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("region");
        std::fs::write(&path, bytes).unwrap();
        for life in 0..2 {
            let region = Region::options().checked().open(&path).unwrap();
            let info = region.info();
            assert_eq!((info.scheme, info.checksums), (scheme.name(), version > 1));
            let mut roots = roots(&region);
            region.read(|v| {
                assert_all(roots.all.get(v));
                let (large, (hashed, sorted)) = (roots.large.get(v), roots.sets.get(v));
                assert_eq!(large.len(), 30_000 + life);
                assert!((0..30_000).eq(large.iter().copied().take(30_000)));
                assert!((0..50).all(|n| hashed.contains(&n)) && hashed.len() == 50);
                assert!(sorted.iter().copied().eq(-50..50));
            });
            // And it goes on.
            region.update(|u| roots.large.get_mut(u).push(0));
            drop(roots);
            region.close().unwrap();
        }
    }
}
