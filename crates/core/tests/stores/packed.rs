//! What packed lines promise, one thing a test.

use proptest::collection::vec;
use proptest::prelude::*;
use twinpage_core::crash::{Image, Log, Random, Run, State, Step, differs_after_recovery};
use twinpage_core::dual_page::{self, DualPage, PoolLimit};
use twinpage_core::packed::{Options, Packed, Tuning, is_packed};
use twinpage_core::shell::Mechanism;
use twinpage_core::*;

type Store = Packed<DualPage<Image>>;

const SHEET: u64 = 64 * 4096;

fn disk() -> dual_page::Options {
    let geometry = Geometry::new(4096, SHEET as u32).unwrap();
    dual_page::Options::new(geometry).journal_bytes(4096).id(7)
}

/// Every commit goes to the log or to the pages' own places: `payloads.rs` has the others.
const OTHER: Tuning = Tuning {
    whole_lines: 40,
    pressure_percent: 100,
    log_percent: 100,
    payload_bytes: 0,
};

fn create(log_sheets: u64) -> Store {
    let below = DualPage::create(Image::new(512), &disk()).unwrap();
    let options = Options::default().log_bytes(log_sheets * SHEET).id(8);
    let mut store = Packed::create(below, &options).unwrap();
    store.set_tuning(OTHER);
    store
}

fn write(store: &mut Store, page: u64, line: usize, value: u8) {
    let _ = store
        .write(PageLines::from(PageId(page), line, &[value; 64], 64))
        .unwrap();
}

fn fill(store: &mut Store, pages: impl IntoIterator<Item = u64>, value: u8) {
    for page in pages {
        let _ = store
            .write(PageLines::from(PageId(page), 0, &[value; 4096], 64))
            .unwrap();
    }
}

fn read(store: &Store, page: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    store.read(PageId(page), 0, &mut bytes).unwrap();
    bytes
}

fn reopen(store: Store) -> (Store, Recovered) {
    assert_eq!(store.check().unwrap(), []);
    let image = store.into_medium();
    let (store, found) = Store::recover(image).unwrap();
    assert_eq!(store.check().unwrap(), []);
    (store, found)
}

fn log(store: &Store) -> LogInfo {
    store.info().log.unwrap()
}

#[test]
fn sparse_lines_are_packed_and_found_again() {
    let mut store = create(8);
    fill(&mut store, 0..200, 1);
    store.commit(b"one").unwrap();
    assert_eq!(log(&store).pages, 0, "whole pages go straight home");
    let before = store.info().traffic;
    for page in 0..200 {
        write(&mut store, page, page as usize % 64, 2);
        assert_eq!(
            read(&store, page)[page as usize % 64 * 64],
            2,
            "before it has a place"
        );
    }
    store.commit(b"two").unwrap();
    let spent = store.info().traffic - before;
    assert!(
        spent.log_bytes < 200 * 64 + 4096 && spent.data_bytes + spent.write_back_bytes == 0,
        "{spent:?}"
    );
    assert_eq!((log(&store).pages, log(&store).live_bytes), (200, 200 * 64));
    let (store, found) = reopen(store);
    assert_eq!(
        found,
        Recovered {
            epoch: 2,
            context: b"two".to_vec()
        }
    );
    for page in 0..200 {
        let mut expected = vec![1; 4096];
        expected[page as usize % 64 * 64..][..64].fill(2);
        assert_eq!(read(&store, page), expected);
        assert!(store.view(PageId(page), 0, 4096).is_none());
        let other = (page as usize + 1) % 64;
        assert_eq!(store.view(PageId(page), other, 64), Some(&[1; 64][..]));
        let span = PageLines::from(PageId(page), 0, &[1; 4096], 64);
        assert_eq!(store.diff(&span).unwrap(), LineMask::run(page as usize % 64, 1));
        let at = store.newest_place(PageId(page), page as usize % 64).unwrap() as usize;
        assert_eq!(store.medium().bytes()[at..at + 64], [2; 64]);
    }
}

#[test]
fn pages_wished_for_and_given_whole_are_folds() {
    let mut store = create(8);
    store.set_tuning(Tuning {
        pressure_percent: 1_000_000,
        ..OTHER
    });
    fill(&mut store, 0..100, 1);
    store.commit(b"").unwrap();
    assert_eq!(store.fold_hints().unwrap().pages, []);
    (0..100).for_each(|page| write(&mut store, page, 3, 2));
    store.commit(b"").unwrap();
    let fold_hints = store.fold_hints().unwrap();
    assert_eq!(fold_hints.whole_from, OTHER.whole_lines);
    let wished: Vec<u64> = fold_hints.pages.iter().map(|page| page.0).collect();
    assert!(wished.len() > 50 && wished.is_sorted(), "{wished:?}");
    let (before, whole) = (store.info().traffic, read(&store, 0));
    for &page in &wished {
        let span = PageLines::from(PageId(page), 0, &whole, 64);
        let _ = store.write(span).unwrap();
    }
    store.commit(b"").unwrap();
    let spent = store.info().traffic - before;
    assert_eq!(
        (spent.write_back_bytes, spent.data_bytes),
        (wished.len() as u64 * 4096, 0)
    );
    assert_eq!(log(&store).pages as usize, 100 - wished.len());
    let (store, _) = reopen(store);
    assert!((0..100).all(|page| read(&store, page) == whole));
}

#[test]
fn two_pages_alone_are_written_whole() {
    let mut store = create(8);
    fill(&mut store, 0..9, 1);
    store.commit(b"").unwrap();
    let before = store.info().traffic;
    write(&mut store, 3, 3, 2);
    write(&mut store, 7, 3, 2);
    store.commit(b"").unwrap();
    let spent = store.info().traffic - before;
    assert_eq!(
        (spent.data_bytes, spent.log_bytes, spent.context_bytes),
        (2 * 4096, 0, 0)
    );
    (0..3).for_each(|page| write(&mut store, page, 3, 2));
    store.commit(b"").unwrap();
    assert_eq!(log(&store).pages, 3);
    let (store, _) = reopen(store);
    assert!(
        (0..9).all(|page| read(&store, page)[3 * 64] == if [4, 5, 6, 8].contains(&page) { 1 } else { 2 })
    );
}

#[test]
fn the_ring_comes_round_and_every_page_holds_its_newest_lines() {
    let mut store = create(3);
    let mut random = Random::new(1);
    let mut model: Vec<Vec<u8>> = vec![vec![1; 4096]; 500];
    fill(&mut store, 0..500, 1);
    store.commit(b"").unwrap();
    let (mut worst, mut folded) = (0, 0);
    for round in 0..60_u8 {
        let before = store.info().traffic;
        for _ in 0..1500 {
            let (page, line) = (random.below(500), random.below(64) as usize);
            write(&mut store, page, line, round);
            model[page as usize][line * 64..][..64].fill(round);
        }
        store.commit(&[round]).unwrap();
        let spent = store.info().traffic - before;
        worst = worst.max(spent.total_bytes());
        folded += spent.write_back_bytes;
        assert!(log(&store).used_bytes <= 3 * SHEET);
        if round % 20 == 19 {
            let (again, found) = reopen(store);
            assert_eq!(found.context, [round]);
            store = again;
            for (page, expected) in model.iter().enumerate() {
                assert_eq!(&read(&store, page as u64), expected, "page {page}");
            }
        }
    }
    assert!(folded > 0);
    println!("the largest commit wrote {worst} bytes, {folded} were folded in all");
}

#[test]
fn pages_that_come_and_go_with_strips_in_the_log() {
    let mut store = create(3);
    fill(&mut store, 0..100, 1);
    store.commit(b"").unwrap();
    (0..100).for_each(|page| write(&mut store, page, 5, 2));
    store.commit(b"").unwrap();
    store.discard(PageId(10)..PageId(90)).unwrap();
    write(&mut store, 20, 6, 3);
    fill(&mut store, [21], 4);
    write(&mut store, 21, 5, 5);
    store.commit(b"").unwrap();
    let (mut store, _) = reopen(store);
    let mut twenty = vec![0; 4096];
    twenty[6 * 64..7 * 64].fill(3);
    assert_eq!(read(&store, 20), twenty, "born anew: nothing of before");
    assert_eq!((read(&store, 21)[0], read(&store, 21)[5 * 64]), (4, 5));
    assert!(!store.is_present(PageId(10)) && store.is_present(PageId(20)) && store.is_present(PageId(9)));
    assert_eq!((store.info().pages, log(&store).pages), (22, 21));
    store.discard(PageId(0)..PageId(u64::MAX)).unwrap();
    store.commit(b"").unwrap();
    let (store, _) = reopen(store);
    assert_eq!(
        (store.info().pages, log(&store).pages, log(&store).used_bytes),
        (0, 0, 0)
    );
    assert!((0..100).all(|page| read(&store, page) == [0; 4096]));
}

#[test]
fn what_is_abandoned_was_never_there() {
    let mut store = create(3);
    fill(&mut store, 0..50, 1);
    store.commit(b"").unwrap();
    (0..50).for_each(|page| write(&mut store, page, 5, 2));
    store.commit(b"").unwrap();
    for round in 3..5 {
        for _ in 0..60 {
            (0..50).for_each(|page| write(&mut store, page, round as usize * 2, round));
        }
        fill(&mut store, 3..9, round);
        fill(&mut store, 70..75, round);
        store.discard(PageId(30)..PageId(40)).unwrap();
        store.abandon();
        assert_eq!(store.check().unwrap(), []);
        for page in 0..80 {
            let mut expected = vec![u8::from(page < 50); 4096];
            expected[5 * 64..6 * 64].fill(if page < 50 { 2 } else { 0 });
            assert_eq!(read(&store, page), expected, "page {page}");
        }
        store.commit(b"").unwrap();
        store = reopen(store).0;
    }
}

#[test]
fn a_full_medium_loses_the_epoch_and_nothing_else() {
    let medium = Image::new(512).limited(14 * SHEET);
    let below = DualPage::create(medium, &disk()).unwrap();
    let mut store = Packed::create(below, &Options::default().log_bytes(3 * SHEET)).unwrap();
    fill(&mut store, 0..100, 1);
    store.commit(b"whole").unwrap();
    for _ in 0..3 {
        let full = (100..10_000).find_map(|page| {
            store
                .write(PageLines::from(PageId(page), 0, &[9; 4096], 64))
                .err()
        });
        assert!(matches!(full, Some(Error::Full { .. })), "{full:?}");
        assert!(
            matches!(store.commit(b""), Err(Error::Invalid(_))),
            "it must be abandoned first"
        );
        store.abandon();
        assert_eq!(store.check().unwrap(), []);
        (0..100).for_each(|page| write(&mut store, page, 3, 2));
        store.commit(b"again").unwrap();
    }
    let (store, found) = reopen(store);
    assert_eq!(found.context, b"again");
    assert!((0..100).all(|page| read(&store, page)[3 * 64] == 2 && read(&store, page)[0] == 1));
}

#[test]
fn the_log_grows_and_shrinks_with_what_is_stored() {
    let mut store = create(16);
    store.set_tuning(Tuning {
        log_percent: 2000,
        ..OTHER
    });
    let sheets = |store: &Store| log(store).limit_bytes / SHEET;
    fill(&mut store, 0..60, 1);
    store.commit(b"").unwrap();
    let mut lengths = vec![sheets(&store)];
    for line in 0..3 {
        (0..60).for_each(|page| write(&mut store, page, line, 2));
        store.commit(b"").unwrap();
        lengths.push(sheets(&store));
    }
    assert_eq!(lengths, [8, 16, 16, 16]);
    store.discard(PageId(4)..PageId(60)).unwrap();
    store.commit(b"").unwrap();
    assert_eq!(sheets(&store), 8, "at most four times as long as is right");
    let (mut store, _) = reopen(store);
    assert_eq!(sheets(&store), 8);
    assert!((0..4).all(|page| read(&store, page)[..4 * 64] == [&[2; 3 * 64][..], &[1; 64]].concat()));
    write(&mut store, 0, 0, 3);
    store.abandon();
    assert_eq!(store.check().unwrap(), []);
    for epochs in 0..200 {
        (0..4).for_each(|page| write(&mut store, page, epochs % 60, 4));
        fill(&mut store, 100..101, epochs as u8);
        store.commit(b"").unwrap();
        assert!(log(&store).used_bytes <= 8 * SHEET, "no longer than it is");
    }
    reopen(store);
}

#[test]
fn a_store_says_whether_it_is_packed() {
    let mut store = create(3);
    store.commit(b"mine").unwrap();
    assert_eq!(store.info().context_bytes, 4);
    let image = store.into_medium();
    let (below, found) = DualPage::recover(image).unwrap();
    assert!(is_packed(&found.context) && !is_packed(b"mine"));
    let (store, found) = Packed::over(below, found).unwrap();
    assert_eq!(found.context, b"mine");
    let (below, _) = DualPage::recover(store.into_medium()).unwrap();
    let why = Packed::create(below, &Options::default()).unwrap_err();
    assert!(why.to_string().contains("has a checkpoint"), "{why}");

    let mut plain = DualPage::create(Image::new(512), &disk()).unwrap();
    plain.commit(b"plain").unwrap();
    let why = Store::recover(plain.into_medium()).unwrap_err();
    assert!(
        matches!(&why, Error::Foreign(what) if what.contains("not packed")),
        "{why}"
    );

    let small = DualPage::create(Image::new(8), &dual_page::Options::new(Geometry::MEMORY)).unwrap();
    let why = Packed::create(small, &Options::default()).unwrap_err();
    assert!(why.to_string().contains("nothing to gain"), "{why}");
    for bytes in [0, 2 * SHEET, 1 << 40] {
        let below = DualPage::create(Image::new(512), &disk()).unwrap();
        let why = Packed::create(below, &Options::default().log_bytes(bytes)).unwrap_err();
        assert!(why.to_string().contains("a log of"), "{why}");
    }
}

#[test]
fn nonsense_is_refused_by_name() {
    let mut store = create(3);
    let write = |store: &mut Store, page, first, bytes: &[u8], lines| {
        let span = PageLines::from(PageId(page), first, bytes, 64);
        store.write(span.only(lines)).unwrap_err().to_string()
    };
    assert!(write(&mut store, u64::MAX, 0, &[0; 64], LineMask(1)).contains("past the end"));
    assert!(write(&mut store, 1 << 40, 0, &[0; 64], LineMask(1)).contains("past the end"));
    assert!(write(&mut store, 0, 0, &[0; 65], LineMask(1)).contains("whole 64-byte lines"));
    assert!(write(&mut store, 0, 2, &[0; 64], LineMask(1)).contains("are held"));
    assert_eq!(store.commit(b"still usable").unwrap(), 1);
}

const PAGES: u64 = 150;

fn lines() -> impl Strategy<Value = LineMask> {
    prop_oneof![
        6 => (0_usize..64).prop_map(|line| LineMask::run(line, 1)),
        2 => any::<u64>().prop_map(|bits| LineMask(bits | 1)),
        1 => Just(LineMask::ALL),
    ]
}

fn step() -> impl Strategy<Value = Vec<Step>> {
    let write = |page, lines, value| Step::Write { page, lines, value };
    prop_oneof![
        8 => (0..PAGES, lines(), 0_u64..1000).prop_map(move |(page, lines, value)| vec![write(page, lines, value)]),
        5 => (0..PAGES, 1..PAGES, lines(), 0_u64..1000).prop_map(move |(from, len, lines, value)| {
            (from..PAGES.min(from + len)).map(|page| write(page, lines, value)).collect()
        }),
        1 => (0..PAGES).prop_map(|page| vec![Step::Expect(page)]),
        3 => Just(vec![Step::Grant]),
        2 => (0..PAGES, 1..PAGES).prop_map(|(start, len)| vec![Step::Discard(start..start + len)]),
        1 => (1..9_u64).prop_map(|pages| vec![Step::Reclaim(pages)]),
        5 => (0_usize..9000, any::<u64>()).prop_map(|(len, value)| vec![Step::Commit(len, value)]),
        1 => Just(vec![Step::Abandon]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn it_holds_what_the_model_holds(
        lives in vec(vec(step(), 0..60), 1..4),
        pool in prop_oneof![Just(PoolLimit::Grow), (0_u64..8).prop_map(PoolLimit::Pages)],
        extent_pages in 1_u32..3,
        whole_lines in 1_u32..66,
        pressure_percent in prop_oneof![Just(0), Just(100), Just(5000)],
        log_percent in prop_oneof![Just(50), Just(2000)],
        payload_bytes in prop_oneof![Just(0), 100_usize..9000],
        log_sheets in prop_oneof![Just(3), Just(8), Just(32)],
        limit in prop_oneof![3 => Just(u64::MAX), 1 => 10_u64..30],
    ) {
        let geometry = Geometry::new(4096, SHEET as u32 * extent_pages).unwrap();
        let options = dual_page::Options::new(geometry).pool(pool).journal_bytes(2000).id(7);
        let medium = Image::new(512).limited(limit.saturating_mul(SHEET));
        let Ok(below) = DualPage::create(medium, &options) else {
            return Ok(());
        };
        let mut store = Packed::create(below, &Options::default().log_bytes(log_sheets * SHEET).id(1)).unwrap();
        let mut state = State::default();
        for steps in lives {
            store.set_tuning(Tuning { whole_lines, pressure_percent, log_percent, payload_bytes });
            let mut run = Run::new(store, Log::default(), state);
            run.go(&steps.concat()).unwrap();
            prop_assert_eq!(run.differs().unwrap(), None);
            prop_assert_eq!(run.scheme.check().unwrap(), []);
            state = run.states[&run.scheme.epoch()].clone();
            let (again, found) = Store::recover(run.scheme.into_medium()).unwrap();
            prop_assert_eq!(differs_after_recovery(&again, &found, &state).unwrap(), None);
            prop_assert_eq!(again.check().unwrap(), []);
            store = again;
        }
    }
}

/// Bytes written by epochs of few lines here and there, with checksums of lines or without.
fn written(checksums: bool, pages: u64, lines: u64) -> u64 {
    let options = dual_page::Options::new(Geometry::DISK).checksums(checksums).id(7);
    let below = DualPage::create(Image::new(512), &options).unwrap();
    let mut store = Packed::create(below, &Options::default().log_bytes(4 << 20).id(8)).unwrap();
    fill(&mut store, 0..pages, 1);
    store.commit(b"filled").unwrap();
    let (before, mut random) = (store.info().traffic, Random::new(3));
    for epoch in 0..60 {
        for _ in 0..lines {
            write(&mut store, random.below(pages), random.below(64) as usize, epoch);
        }
        store.commit(b"").unwrap();
    }
    (store.info().traffic - before).total_bytes()
}

#[test]
fn checksums_of_lines_cost_at_most_two_percent_of_the_bytes_written() {
    for (pages, lines) in [(500, 20), (4000, 400), (4000, 3000)] {
        let [without, with] = [false, true].map(|checksums| written(checksums, pages, lines));
        let percent = 100.0 * (with as f64 / without as f64 - 1.0);
        println!(
            "{lines} lines of {pages} pages an epoch: {without} bytes, with checksums {percent:.3} % more"
        );
        assert!(percent <= 2.0, "{percent}");
    }
}
