//! Stores that were cut, flipped or overwritten by others: refused with what is wrong, or exactly
//! the state that was committed. Never a panic, never silently another state. Where lines have checksums, a damaged
//! line is refused when it is read, and named by a check; where they have none, its bytes are read as they are.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use twinpage_campaign::either;
use twinpage_core::crash::{Image, Random};
use twinpage_core::dual_page::{DualPage, Options, PoolLimit};
use twinpage_core::*;

const PAGES: u64 = 14;

/// The superblock's extent and both slots of the stores here, in bytes.
const METADATA: usize = 5 * 4096;

/// A store and what it holds.
struct Kept {
    image: Vec<u8>,
    epoch: Epoch,
    context: Vec<u8>,
    pages: BTreeMap<u64, Vec<u8>>,
    checksums: bool,
}

fn write(store: &mut DualPage<Image>, page: u64, lines: LineMask, random: &mut Random) {
    let bytes: Vec<u8> = (0..4096).map(|_| random.number() as u8 | 1).collect();
    let _ = store
        .write(PageLines::from(PageId(page), 0, &bytes, 64).only(lines))
        .unwrap();
}

/// A store after `epochs` of everything, on a small pool so that the last commit is in the fall-back.
fn kept(pool: PoolLimit, epochs: u64, checksums: bool) -> Kept {
    let options = Options::new(Geometry::new(64, 4096).unwrap())
        .pool(pool)
        .journal_bytes(700)
        .checksums(checksums)
        .id(3);
    let mut store = DualPage::create(Image::new(8), &options).unwrap();
    let mut random = Random::new(epochs);
    let mut context = Vec::new();
    for epoch in 0..epochs {
        for page in (0..PAGES).filter(|page| (page + epoch) % 3 > 0) {
            let lines = if epoch == 0 {
                LineMask::ALL
            } else {
                LineMask(1 << (random.number() % 64))
            };
            write(&mut store, page, lines, &mut random);
        }
        if epoch % 4 == 2 {
            store.discard(PageId(3)..PageId(6)).unwrap();
        }
        context = (0..3000 + epoch * 50).map(|_| random.number() as u8).collect();
        store.commit(&context).unwrap();
    }
    let mut pages = BTreeMap::new();
    for page in (0..PAGES).filter(|&page| store.is_present(PageId(page))) {
        let mut bytes = vec![0; 4096];
        store.read(PageId(page), 0, &mut bytes).unwrap();
        pages.insert(page, bytes);
    }
    let epoch = store.epoch();
    Kept {
        image: store.into_medium().bytes().to_vec(),
        epoch,
        context,
        pages,
        checksums,
    }
}

/// Recovers from `bytes`: refused, or how many bytes of pages are not as they were kept.
fn wrong_bytes(kept: &Kept, bytes: Vec<u8>) -> Option<usize> {
    let (store, found) = match DualPage::recover(Image::from_bytes(bytes, 8)) {
        Ok(recovered) => recovered,
        Err(Error::Damaged { .. } | Error::Foreign(_)) => return None,
        Err(other) => panic!("{other}"),
    };
    assert_eq!(
        (found.epoch, &found.context),
        (kept.epoch, &kept.context),
        "silently another state"
    );
    let mut wrong = 0;
    let mut bytes = vec![0; 4096];
    for page in 0..PAGES + 3 {
        assert_eq!(
            store.is_present(PageId(page)),
            kept.pages.contains_key(&page),
            "page {page}"
        );
        if let Some(expected) = kept.pages.get(&page) {
            match store.read(PageId(page), 0, &mut bytes) {
                Ok(()) => wrong += bytes.iter().zip(expected).filter(|(a, b)| a != b).count(),
                Err(Error::Damaged { what, at, .. }) => {
                    let found = store.check().unwrap();
                    assert!(
                        kept.checksums
                            && found
                                .iter()
                                .any(|found| (found.what.as_str(), found.at) == (what, at))
                    );
                    return None;
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(
        wrong == 0 || !kept.checksums,
        "{wrong} wrong bytes without a word"
    );
    Some(wrong)
}

fn stores() -> [Kept; 6] {
    let kinds = [
        (PoolLimit::Grow, 11),
        (PoolLimit::Pages(4), 5),
        (PoolLimit::Pages(9), 14),
    ];
    let [a, b, c] = kinds.map(|(pool, epochs)| [false, true].map(|checksums| kept(pool, epochs, checksums)));
    let ([a, x], [b, y], [c, z]) = (a, b, c);
    [a, b, c, x, y, z]
}

#[test]
fn a_store_cut_at_any_length_is_refused_or_whole() {
    for kept in stores() {
        assert_eq!(wrong_bytes(&kept, kept.image.clone()), Some(0));
        let fine =
            |len: &usize| *len < METADATA || len % 4096 < 2 || len % 4096 == 4095 || len.is_multiple_of(97);
        let refused = (0..kept.image.len()).filter(fine).filter(|&len| {
            match wrong_bytes(&kept, kept.image[..len].to_vec()) {
                None => true,
                Some(wrong) => {
                    assert_eq!(wrong, 0, "cut at {len}");
                    false
                }
            }
        });
        // What is never refused is unused space at the end.
        assert!(refused.count() > METADATA);
    }
}

#[test]
fn a_flipped_byte_is_refused_or_harmless_or_in_one_line() {
    for (number, kept) in stores().into_iter().enumerate() {
        let mut refused = 0;
        let mut random = Random::new(number as u64);
        // Every byte of metadata, every now and then one of a page.
        let data = (METADATA..kept.image.len()).step_by(either(241, 61));
        let rounds = either(1, 4);
        let metadata = (0..rounds).flat_map(|_| 0..METADATA);
        for at in metadata.chain(data) {
            let mut bytes = kept.image.clone();
            let bit = 1 << random.below(8);
            bytes[at] ^= if random.once_in(2) {
                bit
            } else {
                bit | random.number() as u8
            };
            match wrong_bytes(&kept, bytes) {
                None => refused += 1,
                Some(wrong) => assert!(wrong <= 1, "byte {at}: {wrong} bytes are wrong"),
            }
        }
        assert!(refused > rounds * 32 * 8, "{refused}");
    }
}

/// What was written first, until something was read so often; then what is there later.
struct Moving {
    images: [Image; 2],
    left: Rc<Cell<u32>>,
}

impl Medium for Moving {
    fn len(&self) -> u64 {
        self.images[0].len()
    }
    fn grow(&mut self, _: u64) -> Result<()> {
        unreachable!("it is only looked at")
    }
    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        self.images[usize::from(left == 0)].read(at, into)
    }
    fn write(&mut self, _: Offset, _: &[u8]) -> Result<()> {
        unreachable!("it is only looked at")
    }
    fn fence(&mut self) -> Result<()> {
        Ok(())
    }
    fn atom(&self) -> usize {
        8
    }
}

/// A store in use, read while it goes on: its mark is then of a later journal, and that is no damage.
#[test]
fn a_mark_that_moves_on_is_no_damage() {
    let after = |commits: u64| {
        let options = Options::new(Geometry::new(64, 4096).unwrap()).id(3);
        let mut store = DualPage::create(Image::new(8), &options).unwrap();
        let mut random = Random::new(1);
        for commit in 0..commits {
            write(&mut store, 1, LineMask(1 << (commit % 64)), &mut random);
            store.commit(b"the same").unwrap();
        }
        (store.epoch(), store.into_medium())
    };
    let [(first, old), (last, new)] = [20, 60].map(after);
    let mut between = 0;
    for reads in 0.. {
        let left = Rc::new(Cell::new(reads));
        let medium = Moving {
            images: [old.clone(), new.clone()],
            left: left.clone(),
        };
        match DualPage::recover(medium) {
            Ok((_, found)) => {
                assert!((first..=last).contains(&found.epoch), "{reads} reads");
                between += u32::from(found.epoch == first);
            }
            // What does not fit together is read again.
            Err(error) => assert!(
                !error.to_string().contains("the journal ends with"),
                "{reads} reads: {error}"
            ),
        }
        if left.get() > 0 {
            break;
        }
    }
    assert!(between > 1, "the mark was read before what it is of");
}

#[test]
fn garbage_is_refused() {
    let mut random = Random::new(5);
    for kept in [false, true].map(|checksums| kept(PoolLimit::Grow, 8, checksums)) {
        garbage_in(&kept, &mut random);
    }
}

fn garbage_in(kept: &Kept, random: &mut Random) {
    for round in 0..1000 {
        let mut bytes = kept.image.clone();
        let start = random.below(6 * 4096) as usize;
        let len = 1 + random.below(if round % 2 == 0 { 40 } else { 4096 }) as usize;
        bytes[start..start + len].fill_with(|| random.number() as u8);
        assert!(wrong_bytes(kept, bytes).is_none_or(|wrong| wrong <= len));
    }
    for len in [0, 1, 63, 64, 65, 4095, 4096, 10_000] {
        let noise = (0..len).map(|_| random.number() as u8).collect();
        assert_eq!(wrong_bytes(kept, noise), None);
        assert_eq!(wrong_bytes(kept, vec![0; len]), None);
    }
}

#[test]
fn what_an_earlier_store_left_is_not_believed() {
    let options = |id| {
        Options::new(Geometry::new(64, 4096).unwrap())
            .journal_bytes(700)
            .id(id)
    };
    let old = kept(PoolLimit::Grow, 9, true).image;
    let store = DualPage::create(Image::from_bytes(old, 8), &options(4)).unwrap();
    let (store, found) = DualPage::recover(store.into_medium()).unwrap();
    assert_eq!(
        found,
        Recovered {
            epoch: 0,
            context: vec![]
        }
    );
    assert_eq!((store.info().pages, store.check().unwrap()), (0, vec![]));
}

#[test]
fn a_list_that_is_cut_says_so() {
    for (pages, listed) in [(16, 16), (17, 17), (40, 17)] {
        let options = Options::new(Geometry::new(64, 4096).unwrap()).checksums(true);
        let mut store = DualPage::create(Image::new(8), &options).unwrap();
        for page in 0..pages {
            let bytes = [page as u8 + 100; 4096];
            let _ = store.write(PageLines::from(PageId(page), 0, &bytes, 64)).unwrap();
        }
        store.commit(b"").unwrap();
        let mut image = store.into_medium();
        for page in image.bytes_mut().chunks_exact_mut(4096) {
            if page.iter().all(|byte| *byte >= 100 && *byte == page[0]) {
                page[70] ^= 1;
                page[700] ^= 1;
            }
        }
        let (store, _) = DualPage::recover(image).unwrap();
        let found = store.check().unwrap();
        assert_eq!(found.len(), listed, "{found:?}");
        let is_cut = found.iter().any(|found| found.why.contains("the first 16"));
        assert_eq!(is_cut, pages > 16, "{found:?}");
    }
}
