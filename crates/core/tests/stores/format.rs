//! `docs/format.md` and the bytes agree, and stores made by earlier builds open.
//!
//! `TWINPAGE_BLESS=1` makes a fixture that is not there, for a new version of the format.

use twinpage_core::crash::Image;
use twinpage_core::dual_page::{DualPage, Options, PoolLimit};
use twinpage_core::*;

/// Without checksums of lines, with them, with records that are valid by them, and with payloads in records.
const FIXTURES: [&str; 4] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/store-v1.bin"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/store-v2.bin"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/store-v3.bin"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/store-v4.bin"),
];

const EXTENT: usize = 4096;

fn write(store: &mut DualPage<Image>, page: u64, lines: LineMask, value: u8) {
    let _ = store
        .write(PageLines::from(PageId(page), 0, &[value; 4096], 64).only(lines))
        .unwrap();
}

/// A little of everything: derivative pages, discards, reclaim, a switch, a fall-back at the end.
fn made(checksums: bool) -> DualPage<Image> {
    let geometry = Geometry::new(64, EXTENT as u32).unwrap();
    let options = Options::new(geometry)
        .pool(PoolLimit::Pages(3))
        .journal_bytes(250)
        .checksums(checksums)
        .id(0x1122_3344_5566_7788);
    let mut store = DualPage::create(Image::new(8), &options).unwrap();
    for page in 0..5 {
        write(&mut store, page, LineMask::run(page as usize, 2), 1);
    }
    store.commit(b"one").unwrap();
    for value in 2..7 {
        write(&mut store, u64::from(value) % 3, LineMask(0b1_0001), value);
        store.commit(&[value; 200]).unwrap();
    }
    store.discard(PageId(4)..PageId(5)).unwrap();
    store.commit(b"seven").unwrap();
    for page in 0..4 {
        write(&mut store, page, LineMask(1 << 63 | 6), 9);
    }
    store.commit(b"the last").unwrap();
    store
}

/// What is in page `page` after [`made`].
fn expected(page: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let mut fill = |line: u64, value: u8| bytes[line as usize * 64..][..64].fill(value);
    if page < 4 {
        (page..page + 2).for_each(|line| fill(line, 1));
        for value in (2..7_u8).filter(|value| u64::from(*value) % 3 == page) {
            [0, 4].into_iter().for_each(|line| fill(line, value));
        }
        [1, 2, 63].into_iter().for_each(|line| fill(line, 9));
    }
    bytes
}

fn check(store: &DualPage<Image>, found: &Recovered) {
    assert_eq!((found.epoch, &found.context[..]), (8, &b"the last"[..]));
    assert_eq!(store.check().unwrap(), []);
    for page in 0..6 {
        let mut bytes = vec![0; 4096];
        store.read(PageId(page), 0, &mut bytes).unwrap();
        assert!(bytes == expected(page), "page {page}");
        assert_eq!(store.is_present(PageId(page)), page < 4);
    }
}

#[test]
fn a_store_of_each_version_opens() {
    for (fixture, version) in FIXTURES.into_iter().zip(1..) {
        let checksums = version > 1;
        if std::env::var_os("TWINPAGE_BLESS").is_some() && !std::path::Path::new(fixture).exists() {
            std::fs::write(fixture, made(checksums).into_medium().bytes()).unwrap();
        }
        let kept = std::fs::read(fixture).unwrap();
        let (mut store, found) = DualPage::recover(Image::from_bytes(kept, 8)).unwrap();
        let info = store.info();
        assert_eq!((info.checksums, info.version), (checksums, version));
        check(&store, &found);
        // It goes on as it was made.
        for value in 0..9 {
            write(&mut store, 1, LineMask(1 << 7), value);
            store.commit(b"the last").unwrap();
        }
        let (store, found) = DualPage::recover(store.into_medium()).unwrap();
        assert_eq!((found.epoch, store.info().version), (17, version));
        let mut line = [0; 64];
        store.read(PageId(1), 7, &mut line).unwrap();
        assert_eq!(line, [8; 64]);
    }
}

/// The record of one page's first write, by the document alone.
#[test]
fn checksums_are_where_the_document_says() {
    let options = Options::new(Geometry::new(64, EXTENT as u32).unwrap())
        .checksums(true)
        .id(5);
    let mut store = DualPage::create(Image::new(8), &options).unwrap();
    write(&mut store, 0, LineMask(0b1001), 7);
    store.commit(b"").unwrap();
    let slot = (EXTENT..).step_by(EXTENT);
    let image = store.into_medium();
    let bytes = image.bytes();
    assert_eq!(u32_at(bytes, 8), 4);
    let record = slot
        .take_while(|at| at + EXTENT <= bytes.len())
        .flat_map(|slot| (slot..slot + EXTENT).step_by(8))
        .find(|&at| bytes[at..at + 4] == *b"TpJr")
        .unwrap();
    let body = &bytes[record + 32..][..u32_at(bytes, record + 28) as usize];
    let sum = (crc32c::crc32c(&[7; 64]) ^ crc32c::crc32c(&[0; 64])).to_le_bytes();
    let section = [&[8, 1, 0x81, 1, 0b1001][..], &sum, &sum].concat();
    assert!(body.ends_with(&section), "{body:x?}");
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Reads the store by the document alone.
#[test]
fn the_bytes_are_where_the_document_says() {
    let image = made(false).into_medium();
    let bytes = image.bytes();
    assert_eq!(bytes[..8], *b"twinpage");
    assert_eq!([8, 12, 16, 20].map(|at| u32_at(bytes, at)), [1, 64, 4096, 0]);
    assert_eq!(
        [24, 32, 40].map(|at| u64_at(bytes, at)),
        [0x1122_3344_5566_7788, 3, 250]
    );
    assert_eq!(u32_at(bytes, 60), crc32c::crc32c(&bytes[..60]));
    let seed = crc32c::crc32c(&bytes[24..32]);

    let switches = [&bytes[1024..1088], &bytes[2048..2112]];
    let valid = |block: &&[u8]| {
        block[..4] == *b"TpSw" && u32_at(block, 4) == crc32c::crc32c_append(seed, &block[8..])
    };
    let newest = switches
        .into_iter()
        .filter(valid)
        .max_by_key(|block| u32_at(block, 8))
        .unwrap();
    let generation = u32_at(newest, 8);
    assert!(generation > 1, "there was a switch");
    assert_eq!(switches[generation as usize % 2], newest);
    let slot = u32_at(newest, 12) as usize * EXTENT;
    let snapshot_len = u64_at(newest, 24) as usize;
    let snapshot = &bytes[slot..slot + snapshot_len];
    assert_eq!(u32_at(newest, 20), crc32c::crc32c_append(seed, snapshot));

    let (mut sequence, mut epoch) = (u64_at(newest, 32), u64_at(newest, 40));
    let mut at = slot + snapshot_len.next_multiple_of(8);
    while bytes[at..at + 4] == *b"TpJr" && u32_at(bytes, at + 24) == generation {
        let end = (at + 32 + u32_at(bytes, at + 28) as usize).next_multiple_of(8);
        assert_eq!(
            u32_at(bytes, at + 4),
            crc32c::crc32c_append(seed, &bytes[at + 8..end])
        );
        assert_eq!(u64_at(bytes, at + 8), sequence + 1);
        sequence += 1;
        epoch = u64_at(bytes, at + 16);
        at = end;
    }
    assert_eq!(epoch, 8);
    let mark = u64_at(bytes, 3072);
    let crc = crc32c::crc32c_append(seed, &sequence.to_le_bytes());
    assert_eq!(
        (mark & ((1 << 48) - 1), mark >> 48),
        (sequence, u64::from((crc ^ crc >> 16) & 0xffff))
    );
}
