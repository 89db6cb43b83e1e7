//! The dual-page scheme from outside, on plain memory.

use twinpage_core::crash::Image;
use twinpage_core::dual_page::{DualPage, Options, PoolLimit};
use twinpage_core::*;

const LINE: usize = 64;
const PAGE: usize = 4096;

fn small() -> Options {
    Options::new(Geometry::new(64, 4 * 4096).unwrap())
        .journal_bytes(512)
        .id(1)
}

fn create(options: &Options) -> DualPage<Image> {
    DualPage::create(Image::new(8), options).unwrap()
}

fn write(store: &mut DualPage<Image>, page: u64, line: usize, value: u8) -> Pressure {
    store
        .write(PageLines::from(PageId(page), line, &[value; LINE], LINE))
        .unwrap()
}

fn read(store: &DualPage<Image>, page: u64) -> Vec<u8> {
    let mut bytes = vec![0xaa; PAGE];
    store.read(PageId(page), 0, &mut bytes).unwrap();
    bytes
}

fn reopen(store: DualPage<Image>) -> (DualPage<Image>, Recovered) {
    assert_eq!(store.check().unwrap(), []);
    let (store, recovered) = DualPage::recover(store.into_medium()).unwrap();
    assert_eq!(store.check().unwrap(), []);
    (store, recovered)
}

#[test]
fn what_was_committed_is_there_and_nothing_else() {
    let mut store = create(&small());
    assert_eq!(write(&mut store, 7, 3, 1), Pressure::None);
    assert_eq!(read(&store, 7)[3 * LINE], 1);
    assert_eq!(store.commit(b"one").unwrap(), 1);
    let _ = write(&mut store, 7, 3, 2);
    let _ = write(&mut store, 900, 0, 3);
    assert_eq!((read(&store, 7)[3 * LINE], read(&store, 900)[0]), (2, 3));
    let (store, recovered) = reopen(store);
    assert_eq!(
        recovered,
        Recovered {
            epoch: 1,
            context: b"one".to_vec()
        }
    );
    let page = read(&store, 7);
    assert_eq!(page[3 * LINE..4 * LINE], [1; LINE]);
    assert_eq!(page.iter().filter(|&&byte| byte != 0).count(), LINE);
    assert!(store.is_present(PageId(7)) && !store.is_present(PageId(900)));
}

#[test]
fn abandon_goes_back_to_the_checkpoint() {
    let mut store = create(&small());
    let _ = write(&mut store, 1, 0, 1);
    let _ = write(&mut store, 2, 0, 1);
    store.commit(b"").unwrap();
    let _ = write(&mut store, 1, 0, 9);
    let _ = write(&mut store, 3, 0, 9);
    store.discard(PageId(2)..PageId(3)).unwrap();
    let _ = write(&mut store, 2, 5, 9);
    store.abandon();
    assert_eq!(
        (read(&store, 1)[0], read(&store, 2)[0], read(&store, 2)[5 * LINE]),
        (1, 1, 0)
    );
    assert!(!store.is_present(PageId(3)));
    assert_eq!(store.check().unwrap(), []);
    assert_eq!(store.commit(b"").unwrap(), 2);
    let (store, _) = reopen(store);
    assert_eq!(store.info().pages, 2);
}

#[test]
fn a_discarded_page_reads_as_zero_and_gives_its_space_back() {
    let mut store = create(&small());
    for page in 0..40 {
        let _ = write(&mut store, page, 9, 5);
    }
    store.commit(b"").unwrap();
    for page in 0..40 {
        let _ = write(&mut store, page, 9, 6);
    }
    store.commit(b"").unwrap();
    let before = store.info();
    assert_eq!((before.pages, before.pool.used), (40, 40));
    store.discard(PageId(0)..PageId(u64::MAX)).unwrap();
    assert!(!store.is_present(PageId(3)) && read(&store, 3).iter().all(|&byte| byte == 0));
    store.commit(b"").unwrap();
    let after = store.info();
    assert_eq!((after.pages, after.pool.used, after.pool.pages), (0, 0, 4));
    for page in 100..140 {
        let _ = write(&mut store, page, 1, 7);
    }
    store.commit(b"").unwrap();
    assert_eq!(
        store.info().medium_bytes,
        before.medium_bytes,
        "the space is used again"
    );
    let (store, _) = reopen(store);
    assert_eq!(read(&store, 120)[9 * LINE], 0, "and nothing shows through");
}

#[test]
fn a_page_can_be_discarded_and_written_in_one_epoch() {
    let mut store = create(&small());
    for line in [0, 1, 2] {
        let _ = write(&mut store, 4, line, 1);
        store.commit(b"").unwrap();
    }
    store.discard(PageId(4)..PageId(5)).unwrap();
    let _ = write(&mut store, 4, 1, 2);
    let mut expected = vec![0; PAGE];
    expected[LINE..2 * LINE].fill(2);
    assert_eq!(read(&store, 4), expected);
    store.commit(b"").unwrap();
    let (store, _) = reopen(store);
    assert_eq!(read(&store, 4), expected);
}

#[test]
fn journals_fill_and_snapshots_switch() {
    let mut store = create(&Options {
        geometry: Geometry::new(64, 4096).unwrap(),
        ..small()
    });
    let mut switches = 0;
    for round in 1..=400_u64 {
        for page in [round % 13, round % 7 + 20, 40] {
            let _ = write(&mut store, page, (round % 64) as usize, round as u8);
        }
        assert_eq!(store.commit(&round.to_le_bytes()).unwrap(), round);
        if round % 100 == 0 {
            switches += u64::from(store.info().traffic.snapshot_bytes > 0);
            let (again, recovered) = reopen(store);
            assert_eq!(
                recovered,
                Recovered {
                    epoch: round,
                    context: round.to_le_bytes().to_vec()
                }
            );
            store = again;
        }
    }
    assert_eq!(switches, 4);
}

#[test]
fn a_small_pool_reclaims_clean_pages() {
    let mut store = create(&small().pool(PoolLimit::Pages(10)));
    for round in 0..12_u64 {
        for page in 0..6 {
            assert_eq!(
                write(&mut store, (round * 6 + page) % 30, 0, round as u8 + 1),
                Pressure::None
            );
        }
        store.commit(b"x").unwrap();
    }
    let pool = store.info().pool;
    assert_eq!((pool.pages, pool.failures), (10, 0));
    assert!(pool.reclaimed > 0);
    let (store, _) = reopen(store);
    for page in 0..30 {
        assert_eq!(
            read(&store, page)[0],
            if page < 12 {
                11 + page as u8 / 6
            } else {
                6 + page as u8 / 6
            }
        );
    }
}

#[test]
fn a_commit_larger_than_the_pool_goes_through_the_fall_back() {
    let mut store = create(&small().pool(PoolLimit::Pages(4)));
    for page in 0..50 {
        let _ = write(&mut store, page, 0, 1);
    }
    store.commit(b"").unwrap();
    for round in 2..5 {
        let rooms: Vec<_> = (0..50).map(|page| write(&mut store, page, 0, round)).collect();
        assert_eq!(rooms.iter().filter(|&&room| room == Pressure::Commit).count(), 46);
        let _ = write(&mut store, 30, 63, round);
        assert_eq!((read(&store, 30)[0], read(&store, 30)[PAGE - 1]), (round, round));
        store.discard(PageId(49)..PageId(50)).unwrap();
        let _ = write(&mut store, 49, 1, round);
        store.commit(b"").unwrap();
        assert_eq!((read(&store, 30)[0], read(&store, 30)[PAGE - 1]), (round, round));
        let (again, _) = reopen(store);
        store = again;
        assert!((0..49).all(|page| read(&store, page)[0] == round));
        assert_eq!((read(&store, 49)[0], read(&store, 49)[LINE]), (0, round));
    }
    assert!(store.info().traffic.fallback_bytes > 0 || store.info().pool.failures == 0);
}

#[test]
fn a_full_medium_loses_the_epoch_and_nothing_else() {
    let mut store = DualPage::create(Image::new(8).limited(20 * 4 * 4096), &small()).unwrap();
    for page in 0..20 {
        let _ = write(&mut store, page, 0, 1);
    }
    store.commit(b"whole").unwrap();
    for _ in 0..3 {
        let full = (0..400).find_map(|page| {
            store
                .write(PageLines::from(PageId(page), 0, &[9; LINE], LINE))
                .err()
        });
        assert!(matches!(full, Some(Error::Full { .. })), "{full:?}");
        assert!(
            matches!(store.commit(b""), Err(Error::Invalid(_))),
            "it must be abandoned first"
        );
        store.abandon();
        assert_eq!(store.check().unwrap(), []);
    }
    for page in 0..20 {
        let _ = write(&mut store, page, 1, 2);
    }
    store.commit(b"again").unwrap();
    let (store, recovered) = reopen(store);
    assert_eq!(recovered.context, b"again");
    assert!((0..20).all(|page| read(&store, page)[..2 * LINE] == [[1; LINE], [2; LINE]].concat()));
}

#[test]
fn a_reclaim_gives_derivative_pages_back() {
    let mut store = create(&small());
    for value in [1, 2] {
        for page in 0..64 {
            let _ = write(&mut store, page, page as usize, value);
        }
        store.commit(b"").unwrap();
    }
    let pages = store.info().pool.pages;
    assert_eq!(store.reclaim(1000).unwrap(), 64);
    assert!(store.info().pool.used == 0 && store.info().pool.pages < pages);
    let (store, _) = reopen(store);
    assert!((0..64).all(|page| read(&store, page)[page as usize * LINE] == 2));
}

#[test]
fn contexts_come_and_go_by_changed_lines() {
    let mut store = create(&small());
    let mut context: Vec<u8> = (0..20_000_u32).map(|n| n as u8 ^ (n >> 8) as u8).collect();
    store.commit(&context).unwrap();
    let before = store.info().traffic.context_bytes;
    context[7777] ^= 1;
    store.commit(&context).unwrap();
    assert_eq!(store.info().traffic.context_bytes - before, LINE as u64);
    for len in [0, 1, 63, 64, 4096, 4097, 12_345] {
        store.commit(&context[..len]).unwrap();
        let (again, recovered) = reopen(store);
        assert_eq!(recovered.context, context[..len]);
        store = again;
    }
}

#[test]
fn what_differs_is_found() {
    let mut store = create(&small());
    for (line, value) in [(0, 1), (5, 2), (5, 3), (63, 4)] {
        let _ = write(&mut store, 2, line, value);
        store.commit(b"").unwrap();
    }
    let mut page = read(&store, 2);
    let span = |page: &[u8]| store.diff(&PageLines::from(PageId(2), 0, page, LINE)).unwrap();
    assert_eq!(span(&page), LineMask::NONE);
    for line in [0, 1, 5, 63] {
        page[line * LINE + 7] ^= 1;
    }
    assert_eq!(span(&page), LineMask(1 << 63 | 0b10_0011));
    let part = PageLines::from(PageId(2), 5, &page[5 * LINE..7 * LINE], LINE);
    assert_eq!(store.diff(&part).unwrap(), LineMask(1 << 5));
    assert_eq!(
        store
            .diff(&PageLines::from(PageId(77), 0, &[0; PAGE], LINE))
            .unwrap(),
        LineMask::NONE
    );
}

#[test]
fn nonsense_is_refused_by_name() {
    let mut store = create(&small());
    let far = PageLines::from(PageId(u64::MAX), 0, &[0; LINE], LINE);
    assert!(store.write(far).unwrap_err().to_string().contains("past the end"));
    let ragged = PageLines::from(PageId(0), 0, &[0; 65], LINE);
    assert!(
        store
            .write(ragged)
            .unwrap_err()
            .to_string()
            .contains("whole 64-byte lines")
    );
    let short = PageLines::from(PageId(0), 2, &[0; LINE], LINE);
    assert!(store.write(short.only(LineMask(1))).is_err());
    assert!(
        store
            .commit(&vec![0; 1024 * 4 * 4096 + 1])
            .unwrap_err()
            .to_string()
            .contains("at most")
    );
    assert_eq!(store.commit(b"still usable").unwrap(), 1);
    let foreign = DualPage::recover(Image::from_bytes(vec![7; 1 << 16], 8)).unwrap_err();
    assert!(matches!(foreign, Error::Foreign(_)), "{foreign}");
}

#[test]
fn a_disk_has_larger_lines() {
    let mut store = DualPage::create(Image::new(512), &Options::new(Geometry::DISK)).unwrap();
    let bytes: Vec<u8> = (0..64 * 4096).map(|n| (n / 4096 + n % 251) as u8).collect();
    for round in 0..3_u8 {
        for page in [0, 3, 9] {
            let mut bytes = bytes.clone();
            bytes[5 * 4096] = round;
            let span = PageLines::from(PageId(page), 0, &bytes, 4096);
            let lines = store.diff(&span).unwrap();
            assert_eq!(lines == LineMask(1 << 5), round > 0, "{lines:?}");
            assert_eq!(store.write(span.only(lines)).unwrap(), Pressure::None);
        }
        store.commit(&bytes[..10_000]).unwrap();
    }
    assert_eq!(store.check().unwrap(), []);
    let (store, found) = DualPage::recover(store.into_medium()).unwrap();
    assert_eq!(found.context, bytes[..10_000]);
    let mut line = vec![0; 4096];
    store.read(PageId(9), 5, &mut line).unwrap();
    assert_eq!((line[0], &line[1..]), (2, &bytes[5 * 4096 + 1..6 * 4096]));
}

/// A page, lines of it, whether they are compared, and what they are filled with.
type Drawn = (u8, u64, bool, u8);

/// What lines of a page written together make of the store is what each run of them makes of it alone.
fn lines_as_their_runs(epochs: &[Vec<Drawn>]) {
    let options = small().pool(PoolLimit::Pages(3));
    let [mut together, mut alone] = [(); 2].map(|()| create(&options));
    for writes in epochs {
        for &(page, held, compare, value) in writes {
            let held = LineMask(held);
            let bytes = vec![value; held.count() * LINE];
            let mut lines = PageLines {
                page: PageId(page.into()),
                held,
                changed: held,
                line_bytes: LINE,
                bytes: &bytes,
            };
            let mut by_run = LineMask::NONE;
            for run in held.runs() {
                let mut part = lines.part(run);
                if compare {
                    part.changed = alone.diff(&part).unwrap();
                }
                by_run = by_run | part.changed;
                let _ = alone.write(part).unwrap();
            }
            if compare {
                lines.changed = together.diff(&lines).unwrap();
            }
            assert_eq!(lines.changed, by_run);
            let _ = together.write(lines).unwrap();
        }
        together.commit(&[]).unwrap();
        alone.commit(&[]).unwrap();
        for page in (0..6).map(PageId) {
            let mut read = [[0; PAGE]; 2];
            together.read(page, 0, &mut read[0]).unwrap();
            alone.read(page, 0, &mut read[1]).unwrap();
            assert!(read[0] == read[1], "{page:?}");
        }
    }
    assert_eq!(together.check().unwrap(), []);
}

proptest::proptest! {
    #[test]
    fn lines_are_as_their_runs(epochs in proptest::collection::vec(
        proptest::collection::vec((0..6_u8, 1_u64.., proptest::bool::weighted(0.2), 0..3_u8), 0..40), 1..12))
    {
        lines_as_their_runs(&epochs);
    }
}
