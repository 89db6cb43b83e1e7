//! Stores of packed lines that were cut or flipped by others: refused with what is wrong and where, when they are
//! opened or when a damaged page is read, or exactly the state that was committed. Never a panic, never silently
//! another state.

use std::collections::BTreeMap;
use twinpage_core::crash::{Image, Random};
use twinpage_core::dual_page::{self, DualPage};
use twinpage_core::packed::{Options, Packed, Tuning};
use twinpage_core::shell::Mechanism;
use twinpage_core::*;

type Store = Packed<DualPage<Image>>;

const SHEET: usize = 64 * 4096;
const PAGES: u64 = 130;

/// A store and what it holds.
struct Kept {
    image: Vec<u8>,
    context: Vec<u8>,
    pages: BTreeMap<u64, Vec<u8>>,
}

fn write(store: &mut Store, page: u64, lines: LineMask, random: &mut Random) {
    let bytes: Vec<u8> = (0..4096).map(|_| random.number() as u8 | 1).collect();
    let span = PageLines::from(PageId(page), 0, &bytes, 64);
    let _ = store.write(span.only(lines)).unwrap();
}

/// A store after epochs of everything: strips, folded pages, discards, whole pages.
fn kept() -> Kept {
    let geometry = Geometry::new(4096, SHEET as u32).unwrap();
    let options = dual_page::Options::new(geometry).journal_bytes(4096).id(3);
    let below = DualPage::create(Image::new(512), &options).unwrap();
    let mut store = Packed::create(below, &Options::default().log_bytes(3 * SHEET as u64).id(4)).unwrap();
    store.set_tuning(Tuning {
        pressure_percent: 500,
        ..Tuning::default()
    });
    let mut random = Random::new(5);
    let mut context = Vec::new();
    for epoch in 0..12 {
        for page in (0..PAGES).filter(|page| (page + epoch) % 3 > 0) {
            let lines = match (epoch, random.below(20)) {
                (0, _) | (_, 0) => LineMask::ALL,
                _ => LineMask(random.number() & random.number() & random.number() | 1),
            };
            write(&mut store, page, lines, &mut random);
        }
        if epoch % 4 == 2 {
            store.discard(PageId(30)..PageId(40)).unwrap();
            store.discard(PageId(64)..PageId(128)).unwrap();
        }
        context = (0..500 + epoch * 50).map(|_| random.number() as u8).collect();
        store.commit(&context).unwrap();
    }
    assert!(store.info().traffic.write_back_bytes > 0 && store.info().log.unwrap().pages > 20);
    assert_eq!(store.check().unwrap(), []);
    let mut pages = BTreeMap::new();
    for page in (0..PAGES).filter(|&page| store.is_present(PageId(page))) {
        let mut bytes = vec![0; 4096];
        store.read(PageId(page), 0, &mut bytes).unwrap();
        pages.insert(page, bytes);
    }
    Kept {
        image: store.into_medium().bytes().to_vec(),
        context,
        pages,
    }
}

/// Recovers from `bytes` and reads all pages: refused, or as they were kept.
fn outcome(kept: &Kept, bytes: Vec<u8>) -> Result<Store, Error> {
    let (store, found) = match Store::recover(Image::from_bytes(bytes, 512)) {
        Ok(recovered) => recovered,
        Err(error @ (Error::Damaged { .. } | Error::Foreign(_))) => return Err(error),
        Err(other) => panic!("{other}"),
    };
    assert_eq!(
        (found.epoch, &found.context),
        (12, &kept.context),
        "silently another state"
    );
    let mut bytes = vec![0; 4096];
    for page in 0..PAGES + 3 {
        assert_eq!(
            store.is_present(PageId(page)),
            kept.pages.contains_key(&page),
            "page {page}"
        );
        if let Some(expected) = kept.pages.get(&page) {
            if let Err(error) = store.read(PageId(page), 0, &mut bytes) {
                let Error::Damaged { what, at, .. } = &error else {
                    panic!("{error}");
                };
                let found = store.check().unwrap();
                assert!(
                    found
                        .iter()
                        .any(|found| (found.what.as_str(), found.at) == (what, *at))
                );
                return Err(error);
            }
            assert!(bytes == *expected, "page {page} is wrong without a word");
        }
    }
    Ok(store)
}

/// Where `magic` begins a line of the disk, or a structure in it.
fn find(image: &[u8], magic: &[u8]) -> Vec<usize> {
    let starts = (0..image.len()).step_by(4096);
    starts.filter(|&at| image[at..].starts_with(magic)).collect()
}

#[test]
fn a_store_cut_at_any_length_is_refused_or_whole() {
    let kept = kept();
    outcome(&kept, kept.image.clone()).unwrap();
    let mut refused = 0;
    for len in (0..kept.image.len()).filter(|len| len % 8192 < 2) {
        refused += u32::from(outcome(&kept, kept.image[..len].to_vec()).is_err());
    }
    assert!(refused > 500, "{refused}");
}

#[test]
fn a_flipped_byte_is_refused_or_harmless() {
    let kept = kept();
    let mut random = Random::new(1);
    let mut flip = |at: usize| {
        let mut bytes = kept.image.clone();
        bytes[at] ^= 1 << random.below(8);
        outcome(&kept, bytes)
    };
    // The beginnings of batches, with all of their directories; the root; here and there all the rest.
    let mut refused = 0;
    let batches = find(&kept.image, b"TpSt");
    assert!(batches.len() > 10);
    for at in batches
        .iter()
        .flat_map(|&at| (at..at + 36).step_by(3).chain((at + 40..at + 200).step_by(23)))
    {
        match flip(at) {
            // Of a batch that is no longer in the log.
            Ok(_) => {}
            Err(Error::Damaged { what, at: place, .. }) => {
                assert!(
                    what == "line of a page" && at - place as usize <= 8192,
                    "{what} at {place} for {at}"
                );
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > 50, "{refused}");
    for at in find(&kept.image, b"TpPk")
        .into_iter()
        .flat_map(|at| (at..at + 64).step_by(5))
    {
        // It was an older root, or is refused.
        let _ = flip(at);
    }
    let (mut refused, mut harmless) = (0, 0);
    for at in (0..kept.image.len()).step_by(5501) {
        match flip(at) {
            Err(_) => refused += 1,
            Ok(_) => harmless += 1,
        }
    }
    println!("{refused} refused, {harmless} harmless");
    assert!(refused > 100 && harmless > 0);
}

#[test]
fn a_map_that_says_otherwise_is_refused() {
    let kept = kept();
    let (below, _) = DualPage::recover(Image::from_bytes(kept.image.clone(), 512)).unwrap();
    let at = below.newest_place(PageId(1024), 0).unwrap() as usize;
    for at in (at..at + 16).chain((at + 16..at + 4096).step_by(211)) {
        let mut bytes = kept.image.clone();
        bytes[at] ^= 0x20;
        match outcome(&kept, bytes).map(|_| ()) {
            Err(Error::Damaged { what, at: place, .. }) => {
                assert_eq!((what, place as usize), ("line of a page", at / 4096 * 4096));
            }
            other => panic!("byte {at}: {other:?}"),
        }
    }
    let mut bytes = kept.image.clone();
    bytes[at..at + 4096].fill(0);
    assert!(outcome(&kept, bytes).is_err(), "a map of nothing");
}
