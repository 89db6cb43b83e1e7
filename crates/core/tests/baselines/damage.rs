//! Stores that were cut, flipped or overwritten by others: refused with what is wrong, or the state
//! that was committed but for the bytes that were damaged. Never a panic.

use crate::{KINDS, create, write_line, write_lines, write_page};
use std::collections::BTreeMap;
use twinpage_baselines::AnyScheme;
use twinpage_core::crash::{Image, Random};
use twinpage_core::*;

const PAGES: u64 = 12;

/// A store and what it holds.
struct Kept {
    kind: SchemeKind,
    image: Vec<u8>,
    found: Recovered,
    pages: BTreeMap<u64, Vec<u8>>,
}

/// A store after some epochs; `open` leaves an epoch in progress.
fn kept(kind: SchemeKind, open: bool) -> Kept {
    let mut store = create(kind);
    let mut random = Random::new(4);
    let mut context = Vec::new();
    for epoch in 0..7 {
        for page in (0..PAGES).filter(|page| (page + epoch) % 3 > 0) {
            let lines = if epoch == 0 { 64 } else { 1 + random.below(9) };
            for line in 0..lines {
                let line = if epoch == 0 { line } else { random.below(64) };
                let _ = write_line(&mut store, page, line as usize, random.number() as u8 | 1);
            }
        }
        if epoch == 4 {
            store.discard(PageId(3)..PageId(5)).unwrap();
        }
        context = (0..900 + epoch * 50).map(|_| random.number() as u8).collect();
        store.commit(&context).unwrap();
    }
    let mut pages = BTreeMap::new();
    for page in (0..PAGES).filter(|&page| store.is_present(PageId(page))) {
        let mut bytes = vec![0; 4096];
        store.read(PageId(page), 0, &mut bytes).unwrap();
        pages.insert(page, bytes);
    }
    let epoch = store.epoch();
    if open {
        for page in [1, 4, 5, 9] {
            write_lines(&mut store, page, 40, 0xee);
        }
    }
    Kept {
        kind,
        image: store.into_medium().bytes().to_vec(),
        found: Recovered { epoch, context },
        pages,
    }
}

/// Recovers from `bytes`: refused, or how many lines of pages are not as they were kept.
fn wrong_lines(kept: &Kept, bytes: Vec<u8>) -> Option<usize> {
    let (store, found) = match AnyScheme::recover(Image::from_bytes(bytes, 8)) {
        Ok(recovered) => recovered,
        Err(Error::Damaged { .. } | Error::Foreign(_)) => return None,
        Err(error) => panic!("{}: refused for another reason: {error}", kept.kind),
    };
    assert_eq!(found, kept.found, "{}", kept.kind);
    assert_eq!(store.info().pages, kept.pages.len() as u64, "{}", kept.kind);
    let mut wrong = 0;
    for (&page, expected) in &kept.pages {
        let mut bytes = vec![0; 4096];
        store.read(PageId(page), 0, &mut bytes).unwrap();
        let lines = bytes.chunks(64).zip(expected.chunks(64));
        wrong += lines.filter(|(found, expected)| found != expected).count();
    }
    Some(wrong)
}

fn all() -> impl Iterator<Item = Kept> {
    KINDS
        .into_iter()
        .flat_map(|kind| [kept(kind, false), kept(kind, true)])
}

#[test]
fn a_store_cut_at_any_length_is_refused_or_whole() {
    for kept in all() {
        assert_eq!(wrong_lines(&kept, kept.image.clone()), Some(0), "{}", kept.kind);
        let lengths = (0..kept.image.len())
            .filter(|len| *len < 4200 || len % 4096 < 2 || len % 4096 == 4095 || len.is_multiple_of(997));
        let mut refused = 0;
        for len in lengths {
            match wrong_lines(&kept, kept.image[..len].to_vec()) {
                None => refused += 1,
                Some(wrong) => assert_eq!(wrong, 0, "{} cut at {len}", kept.kind),
            }
        }
        assert!(refused > 4096, "{}: {refused}", kept.kind);
    }
}

#[test]
fn a_flipped_byte_is_refused_or_harmless_or_in_one_line() {
    for kept in all() {
        let mut random = Random::new(7);
        let (mut refused, mut harmless) = (0, 0);
        let places = (0..4096).chain((4096..kept.image.len()).step_by(13));
        for at in places {
            let mut bytes = kept.image.clone();
            bytes[at] ^= 1 << random.below(8);
            match wrong_lines(&kept, bytes) {
                None => refused += 1,
                Some(wrong) => {
                    harmless += usize::from(wrong == 0);
                    assert!(wrong <= 1, "{}: byte {at}: {wrong} lines are wrong", kept.kind);
                }
            }
        }
        println!("{}: {refused} refused, {harmless} harmless", kept.kind);
        assert!(
            refused > 150 && harmless > 1000,
            "{}: {refused}, {harmless}",
            kept.kind
        );
    }
}

#[test]
fn garbage_is_refused() {
    let mut random = Random::new(5);
    for kept in all() {
        for round in 0..300 {
            let mut bytes = kept.image.clone();
            let most = if round % 2 == 0 { 40 } else { 3000 };
            let len = 1 + random.below(most) as usize;
            let start = random.below((bytes.len() - len) as u64) as usize;
            bytes[start..start + len].fill_with(|| random.number() as u8);
            let wrong = wrong_lines(&kept, bytes);
            assert!(
                wrong.is_none_or(|wrong| wrong <= len / 64 + 2),
                "{}: {len} bytes at {start}: {wrong:?} lines",
                kept.kind
            );
        }
    }
}

#[test]
fn what_an_earlier_store_left_is_not_believed() {
    for kind in KINDS {
        let old = kept(kind, true).image;
        let mut setup = crate::setup();
        setup.id = Some(9);
        let store = AnyScheme::create(kind, Image::from_bytes(old, 8), &setup).unwrap();
        let (mut store, found) = AnyScheme::recover(store.into_medium()).unwrap();
        assert_eq!((found.epoch, store.info().pages), (0, 0), "{kind}");
        let _ = write_line(&mut store, 5, 3, 9);
        store.commit(b"").unwrap();
        let (store, _) = AnyScheme::recover(store.into_medium()).unwrap();
        let mut page = vec![1; 4096];
        store.read(PageId(5), 0, &mut page).unwrap();
        let expected = (0..4096).map(|at| if at / 64 == 3 { 9 } else { 0 });
        assert!(page.iter().copied().eq(expected), "{kind}");
        assert_eq!(store.check().unwrap(), [], "{kind}");
    }
}

/// The last lines of the last segment of an overlay may lie past everything that was ever written.
#[test]
fn an_overlay_reaches_as_far_as_it_was_written() {
    let mut store = create(SchemeKind::PageOverlay);
    let _ = write_line(&mut store, 0, 0, 1);
    write_page(&mut store, 1, LineMask::run(0, 40), 2);
    store.commit(b"").unwrap();
    let (store, _) = AnyScheme::recover(store.into_medium()).unwrap();
    let mut page = vec![0; 4096];
    store.read(PageId(1), 0, &mut page).unwrap();
    assert!(page[..40 * 64].iter().all(|&byte| byte == 2) && page[40 * 64..].iter().all(|&byte| byte == 0));
}
