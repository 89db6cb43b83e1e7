//! Small commits of packed lines: one write each, in the journal of the scheme below.

use twinpage_core::crash::Image;
use twinpage_core::dual_page::{self, DualPage, PoolLimit};
use twinpage_core::packed::{Options, Packed};
use twinpage_core::*;

type Store = Packed<DualPage<Image>>;

const SHEET: u64 = 64 * 4096;

/// Nine pages of ones, and a context.
fn create(pool: PoolLimit, journal_bytes: u64) -> Store {
    let geometry = Geometry::new(4096, SHEET as u32).unwrap();
    let options = dual_page::Options::new(geometry);
    let options = options.pool(pool).journal_bytes(journal_bytes).id(7);
    let below = DualPage::create(Image::new(512), &options).unwrap();
    let mut store = Packed::create(below, &Options::default().log_bytes(4 * SHEET).id(8)).unwrap();
    for page in 0..9 {
        let _ = store
            .write(PageLines::from(PageId(page), 0, &[1; 4096], 64))
            .unwrap();
    }
    store.commit(b"first").unwrap();
    store
}

fn write(store: &mut Store, page: u64, line: usize, value: u8) {
    let bytes = [value; 64];
    let lines = PageLines::from(PageId(page), line, &bytes, 64);
    let _ = store.write(lines).unwrap();
}

fn line(store: &Store, page: u64, line: usize) -> u8 {
    let mut bytes = [0; 64];
    store.read(PageId(page), line, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == bytes[0]), "{bytes:?}");
    bytes[0]
}

fn reopen(store: Store) -> (Store, Recovered) {
    let (store, found) = Store::recover(store.into_medium()).unwrap();
    assert_eq!(store.check().unwrap(), []);
    (store, found)
}

/// Bytes of the store in which one thing differs.
fn altered(store: &Store, change: impl FnOnce(&mut Vec<u8>)) -> Image {
    let mut bytes = store.medium().bytes().to_vec();
    change(&mut bytes);
    Image::from_bytes(bytes, 512)
}

/// Where the records of the journal begin, and end.
fn records(store: &Store) -> Vec<(usize, usize)> {
    let bytes = store.medium().bytes();
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let starts = (SHEET as usize..bytes.len()).step_by(8);
    let starts = starts.filter(|&at| bytes[at..].starts_with(b"TpJr"));
    starts
        .map(|at| (at, (at + 32 + number(at + 28)).next_multiple_of(8)))
        .collect()
}

#[test]
fn a_small_commit_is_one_record_and_nothing_else() {
    let mut store = create(PoolLimit::Grow, 1 << 20);
    let before = store.info().traffic;
    for page in [1, 4, 7] {
        write(&mut store, page, 9, 2);
    }
    assert_eq!(store.commit(b"first").unwrap(), 2);
    let spent = store.info().traffic - before;
    assert_eq!(spent.total_bytes(), spent.log_bytes, "{spent:?}");
    assert!((3 * 64..3 * 64 * 14 / 10).contains(&spent.log_bytes), "{spent:?}");
    write(&mut store, 4, 9, 3);
    write(&mut store, 4, 10, 3);
    store.commit(b"another").unwrap();
    write(&mut store, 8, 0, 9);
    let (mut store, found) = reopen(store);
    assert_eq!((found.epoch, &found.context[..]), (3, &b"another"[..]));
    let lines = [(1, 9), (4, 9), (4, 10), (7, 9), (7, 10), (8, 0)].map(|(page, at)| line(&store, page, at));
    assert_eq!(lines, [2, 3, 3, 2, 1, 1]);
    // A commit of another kind has all of it.
    store.discard(PageId(7)..PageId(8)).unwrap();
    store.commit(b"another").unwrap();
    let (store, found) = reopen(store);
    assert_eq!((found.epoch, &found.context[..]), (4, &b"another"[..]));
    let lines = [(1, 9), (4, 9), (4, 10), (7, 9), (7, 10)].map(|(page, at)| line(&store, page, at));
    assert_eq!(lines, [2, 3, 3, 0, 0]);
}

#[test]
fn an_abandoned_epoch_leaves_the_payloads_before_it() {
    let mut store = create(PoolLimit::Grow, 1 << 20);
    write(&mut store, 1, 1, 2);
    store.commit(b"second").unwrap();
    write(&mut store, 1, 1, 3);
    write(&mut store, 2, 1, 3);
    store.abandon();
    assert_eq!((line(&store, 1, 1), line(&store, 2, 1)), (2, 1));
    write(&mut store, 3, 1, 4);
    store.commit(b"second").unwrap();
    let (store, found) = reopen(store);
    assert_eq!((found.epoch, &found.context[..]), (3, &b"second"[..]));
    assert_eq!([1, 2, 3].map(|page| line(&store, page, 1)), [2, 1, 4]);
}

/// A snapshot of a reclaim is no commit: what the payloads hold is nowhere else.
#[test]
fn payloads_are_carried_over_a_snapshot() {
    let mut store = create(PoolLimit::Pages(4), 300);
    let mut snapshots = 0;
    for round in 2..60 {
        write(&mut store, round % 9, round as usize % 64, round as u8);
        store.commit(b"first").unwrap();
        let before = store.info().traffic;
        store.reclaim(1).unwrap();
        let spent = store.info().traffic - before;
        snapshots += u64::from(spent.snapshot_bytes > 0);
        assert_eq!(store.check().unwrap(), []);
        let (again, found) = reopen(store);
        assert_eq!(found.epoch, round);
        for round in 2..=round {
            let found = line(&again, round % 9, round as usize % 64);
            assert_eq!(found, round as u8);
        }
        store = again;
    }
    assert!(snapshots > 0, "no reclaim had a snapshot");
}

#[test]
fn a_flip_ends_the_journal_or_is_told() {
    let mut store = create(PoolLimit::Grow, 1 << 20);
    for round in 2..5 {
        write(&mut store, round, 7, round as u8);
        store.commit(b"first").unwrap();
    }
    let all = records(&store);
    let [.., second, last] = all[..] else {
        panic!("{all:?}")
    };
    for at in last.0..last.1 {
        let (store, found) = Store::recover(altered(&store, |bytes| bytes[at] ^= 4)).unwrap();
        assert_eq!(
            (found.epoch, line(&store, 3, 7), line(&store, 4, 7)),
            (3, 3, 1),
            "byte {at}"
        );
    }
    for at in second.0..second.1 {
        let error = Store::recover(altered(&store, |bytes| bytes[at] ^= 4)).unwrap_err();
        assert!(
            matches!(error, Error::Damaged { what: "journal record", at, .. } if at == second.0 as u64),
            "byte {at}: {error}"
        );
    }
}

/// The mark follows when there is other work: then the last record is known to be there.
#[test]
fn a_flip_of_the_last_record_is_told_once_the_mark_has_followed() {
    let mut store = create(PoolLimit::Grow, 1 << 20);
    for value in 2..5 {
        write(&mut store, 1, 7, value);
        store.commit(b"first").unwrap();
    }
    store.give_back().unwrap();
    let (at, end) = *records(&store).last().unwrap();
    for at in at..end {
        let error = Store::recover(altered(&store, |bytes| bytes[at] ^= 4)).unwrap_err();
        assert!(
            matches!(error, Error::Damaged { what: "mark", .. }),
            "byte {at}: {error}"
        );
    }
    write(&mut store, 1, 7, 5);
    store.commit(b"first").unwrap();
    let (store, found) = reopen(store);
    assert_eq!((found.epoch, line(&store, 1, 7)), (5, 5));
}

/// A page may hold the bytes of a record of this very journal: they are no record where a payload that holds them is torn.
#[test]
fn bytes_of_an_earlier_record_inside_a_torn_one_are_no_record() {
    let mut store = create(PoolLimit::Grow, 1 << 20);
    write(&mut store, 2, 7, 2);
    store.commit(b"first").unwrap();
    let (at, end) = records(&store)[1];
    for shift in 0..8 {
        let mut lines = [0; 4 * 64];
        lines[shift..shift + end - at].copy_from_slice(&store.medium().bytes()[at..end]);
        let _ = store.write(PageLines::from(PageId(5), 0, &lines, 64)).unwrap();
        store.commit(b"first").unwrap();
        let last = records(&store).into_iter().map(|(_, end)| end).max().unwrap();
        let (_, found) = Store::recover(altered(&store, |bytes| bytes[last - 9] ^= 1)).unwrap();
        assert_eq!(found.epoch, 2 + shift as u64);
    }
}

/// The superblock says another version.
fn of_version(version: u8) -> impl FnOnce(&mut Vec<u8>) {
    move |bytes| {
        assert_eq!(bytes[8], 4);
        bytes[8] = version;
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    }
}

#[test]
fn a_store_of_an_earlier_version_has_none() {
    let mut store = create(PoolLimit::Grow, 1 << 20);
    let (mut older, _) = Store::recover(altered(&store, of_version(3))).unwrap();
    write(&mut older, 1, 9, 2);
    older.commit(b"first").unwrap();
    let spent = older.info().traffic;
    assert!(spent.data_bytes == 4096 && spent.log_bytes == 0, "{spent:?}");
    let (older, found) = reopen(older);
    assert_eq!((found.epoch, line(&older, 1, 9)), (2, 2));
    assert_eq!(older.below().info().version, 3);

    write(&mut store, 1, 9, 2);
    store.commit(b"first").unwrap();
    let error = Store::recover(altered(&store, of_version(3))).unwrap_err();
    assert!(
        error.to_string().contains("a payload in a store without"),
        "{error}"
    );
}
