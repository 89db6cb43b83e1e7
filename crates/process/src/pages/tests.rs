//! Tables, places, sharing and heat.

use super::*;

fn piece(pages: &mut Pages, address: u64) -> Piece {
    pages.piece(address, true, &mut Vec::new())
}

#[test]
fn a_table_survives_its_context() {
    for geometry in [Geometry::MEMORY, Geometry::DISK] {
        let mut pages = Pages::new(geometry).unwrap();
        let addresses = [0x40_0000, 0x40_1000, 0x7fff_0000_0000, 0x5555_5540_3000];
        let pieces: Vec<_> = addresses
            .iter()
            .map(|address| piece(&mut pages, *address))
            .collect();
        let copy = Pages::from_table(geometry, pages.table()).unwrap();
        for (address, piece) in addresses.iter().zip(pieces) {
            assert_eq!(
                copy.find(*address),
                Some(Piece {
                    compare: false,
                    ..piece
                })
            );
        }
        assert_eq!(copy.find(0x40_2000), None);
        assert_eq!(copy.stored_runs().len(), 3);
    }
}

#[test]
fn pages_of_several_memories_are_kept_apart() {
    let mut one = Pages::new(Geometry::MEMORY).unwrap();
    let mut other = one.beside();
    let pieces = [&mut one, &mut other].map(|pages| piece(pages, 0x40_0000));
    assert_ne!(pieces[0].page, pieces[1].page);
    assert_eq!(
        (one.address(pieces[1]), other.address(pieces[1])),
        (None, Some(0x40_0000))
    );
    let tables = [one.table().to_vec(), other.table().to_vec()];
    let both = |tables: [&[u8]; 2]| Pages::from_tables(Geometry::MEMORY, &tables);
    let mut again = both([&tables[0], &tables[1]]).unwrap();
    assert_eq!(again[1].find(0x40_0000).unwrap().page, pieces[1].page);
    let fresh = piece(&mut again[0], 0x80_0000);
    assert!(pieces.iter().all(|piece| piece.page != fresh.page));
    let elsewhere = [&8u64.to_le_bytes(), &tables[0][8..]].concat();
    assert!(
        both([&tables[0], &elsewhere]).is_err(),
        "a place of two addresses"
    );
    other.forget(0..u64::MAX, &mut Vec::new(), |_| true);
    assert_eq!(
        piece(&mut one, 0x80_0000).page,
        pieces[1].page,
        "its place is free again"
    );
}

#[test]
fn emptied_pages_are_discarded_and_chunks_reused() {
    let mut pages = Pages::new(Geometry::MEMORY).unwrap();
    piece(&mut pages, 0x40_0000);
    let kept = piece(&mut pages, 0x60_0000);
    let mut discarded = Vec::new();
    pages.forget(0x40_0000..0x60_0000, &mut discarded, |_| true);
    assert_eq!(discarded, [PageId(0)..PageId(1)]);
    assert_eq!(
        pages.find(0x60_0000),
        Some(Piece {
            compare: false,
            ..kept
        })
    );
    assert_eq!(piece(&mut pages, 0x80_0000).page, PageId(0));
}

#[test]
fn a_damaged_table_is_refused() {
    let mut pages = Pages::new(Geometry::MEMORY).unwrap();
    piece(&mut pages, 0x40_0000);
    let table = pages.table().to_vec();
    assert!(Pages::from_table(Geometry::MEMORY, &table[1..]).is_err());
    let twice = [table.clone(), table].concat();
    assert!(Pages::from_table(Geometry::MEMORY, &twice).is_err());
}

#[test]
fn heat_rises_and_falls() {
    let mut chunk = Chunk::new();
    for _ in 0..HOT {
        assert!(!chunk.is_hot(7));
        chunk.warm(7);
    }
    assert!(chunk.is_hot(7) && chunk.hot == 1);
    (0..20).for_each(|_| chunk.warm(7));
    (0..HOTTEST - HOT).for_each(|_| chunk.cool(7));
    assert!(chunk.is_hot(7) && chunk.hot == 1);
    chunk.cool(7);
    assert!(!chunk.is_hot(7) && chunk.hot == 0);
}

/// Addresses of the model: some of two chunks.
const ADDRESSES: [u64; 6] = [0x40_0000, 0x40_1000, 0x40_5000, 0x43_f000, 0x60_0000, 0x60_2000];

/// A process of the model: its table, what it holds at each address, and what it changed since its last capture.
struct Simulated {
    pages: Pages,
    holds: BTreeMap<u64, u32>,
    changed: Vec<u64>,
    owed: Vec<Piece>,
}

/// What a checkpoint writes and discards; a write wins.
#[derive(Default)]
struct Epoch {
    written: Vec<(Piece, u32)>,
    discarded: Vec<Range<PageId>>,
}

impl Simulated {
    fn of(pages: Pages) -> Simulated {
        Simulated {
            pages,
            holds: BTreeMap::new(),
            changed: Vec::new(),
            owed: Vec::new(),
        }
    }

    /// A process with the same memory, of which nothing has been captured.
    fn fork(&self) -> Simulated {
        Simulated {
            holds: self.holds.clone(),
            changed: self.holds.keys().copied().collect(),
            ..Simulated::of(self.pages.beside())
        }
    }

    fn write(&mut self, address: u64, value: u32) {
        self.holds.insert(address, value);
        self.changed.push(address);
    }

    fn capture(&mut self, epoch: &mut Epoch) {
        let holds = &self.holds;
        self.pages.forget(0..u64::MAX, &mut epoch.discarded, |address| {
            !holds.contains_key(&address)
        });
        let owed = self.owed.drain(..).filter_map(|piece| self.pages.address(piece));
        let owed: Vec<u64> = owed
            .filter(|address| self.pages.find(*address).is_some())
            .collect();
        self.changed.extend(owed);
        self.changed.sort_unstable();
        self.changed.dedup();
        for address in self.changed.drain(..) {
            if let Some(value) = self.holds.get(&address) {
                epoch
                    .written
                    .push((self.pages.piece(address, true, &mut epoch.discarded), *value));
            }
        }
    }

    /// The first capture, beside the process that made it: what was found is compared run by run.
    fn inherit(&mut self, maker: &mut Simulated) {
        for address in ADDRESSES {
            let value = self.holds.get(&address);
            let mut same = NO_PAGES;
            set(
                &mut same,
                page_index(address),
                value.is_some() && value == maker.holds.get(&address),
            );
            let shared = maker.pages.share(&mut self.pages, address, &same);
            let is_shared = |other: &u64| *other == address && is_set(&shared, page_index(address));
            self.changed.retain(|other| !is_shared(other));
        }
    }
}

type Place = (PageId, u64);

fn at(piece: Piece) -> Place {
    (piece.page, piece.held.0)
}

/// Processes fork, write, forget, end and are captured, and epochs are lost, at random: what the store has is what each
/// process holds, in the tables of a context as well, and no place is lost.
#[test]
fn memories_that_share_places_are_each_as_they_would_be_alone() {
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let geometry = [Geometry::MEMORY, Geometry::DISK][seed as usize % 2];
        let mut all = vec![Simulated::of(Pages::new(geometry).unwrap())];
        let (mut store, mut ended): (BTreeMap<Place, u32>, Vec<Pages>) = Default::default();
        let (mut lost, loses) = (false, random.bool());
        for step in 0..60 {
            for one in &mut all {
                for _ in 0..random.usize(..4) {
                    let address = ADDRESSES[random.usize(..ADDRESSES.len())];
                    match random.u8(..4) {
                        0 => drop(one.holds.remove(&address)),
                        _ => one.write(address, random.u32(..)),
                    }
                }
            }
            let mut epoch = Epoch::default();
            let forks = (all.len() < 5 && random.bool()).then(|| random.usize(..all.len()));
            let mut born = forks.map(|maker| (maker, all[maker].fork()));
            if let (Some((_, one)), true) = (&mut born, random.bool()) {
                one.write(ADDRESSES[random.usize(..ADDRESSES.len())], step);
            }
            if all.len() > 1 && born.is_none() && random.u8(..3) == 0 {
                ended.push(all.swap_remove(random.usize(..all.len())).pages);
            }
            ended
                .drain(..)
                .for_each(|mut pages| pages.forget(0..u64::MAX, &mut epoch.discarded, |_| true));
            all.iter_mut().for_each(|one| one.capture(&mut epoch));
            if let Some((maker, mut one)) = born {
                one.inherit(&mut all[maker]);
                one.capture(&mut epoch);
                all.push(one);
            }
            if loses && random.u8(..4) == 0 {
                let pieces = epoch.written.iter().map(|(piece, _)| *piece);
                all.iter_mut().for_each(|one| one.owed.extend(pieces.clone()));
                lost = true;
                continue;
            }
            for range in &epoch.discarded {
                store.retain(|(page, _), _| !range.contains(page));
            }
            store.extend(epoch.written.iter().map(|(piece, value)| (at(*piece), *value)));
            let stored = check(geometry, &all, &store, seed);
            // A lost epoch discarded nothing, which costs room and nothing else.
            if !lost && geometry.page_bytes() as u64 == PAGE {
                assert_eq!(store.len(), stored, "seed {seed}: pages that are stored");
            }
        }
    }
}

/// Checks that the store holds the pages of each process, also by tables that were read again, and that every place that
/// is given is used. Returns the number of pages stored.
fn check(geometry: Geometry, all: &[Simulated], store: &BTreeMap<Place, u32>, seed: u64) -> usize {
    let tables: Vec<Vec<u8>> = all.iter().map(|one| one.pages.rows()).collect();
    let tables: Vec<&[u8]> = tables.iter().map(Vec::as_slice).collect();
    let again = Pages::from_tables(geometry, &tables).unwrap();
    let mut used = std::collections::HashSet::new();
    for (one, again) in all.iter().zip(&again) {
        for pages in [&one.pages, again] {
            for address in ADDRESSES {
                let found = pages.find(address).map(at);
                let value = found.and_then(|place| store.get(&place));
                assert_eq!(value, one.holds.get(&address), "seed {seed}, {address:x}");
                used.extend(found);
            }
        }
    }
    let chunks: std::collections::HashSet<_> = used
        .iter()
        .map(|(page, _)| page.0 * geometry.page_bytes() as u64 / CHUNK_BYTES)
        .collect();
    assert_eq!(
        all[0].pages.places.used(),
        chunks.len(),
        "seed {seed}: places that are given"
    );
    assert_eq!(
        again[0].places.used(),
        chunks.len(),
        "seed {seed}: places that are given, read again"
    );
    used.len()
}

#[test]
fn what_a_process_has_from_its_maker_is_stored_once() {
    let mut maker = Simulated::of(Pages::new(Geometry::MEMORY).unwrap());
    ADDRESSES.iter().for_each(|address| maker.write(*address, 7));
    let mut epoch = Epoch::default();
    maker.capture(&mut epoch);
    let mut forks: Vec<Simulated> = (0..3).map(|_| maker.fork()).collect();
    for one in &mut forks {
        one.inherit(&mut maker);
        one.capture(&mut epoch);
    }
    assert_eq!(epoch.written.len(), ADDRESSES.len());
    forks[0].write(ADDRESSES[0], 8);
    forks[0].capture(&mut epoch);
    assert_eq!(epoch.written.len(), ADDRESSES.len() + 1);
    assert_eq!(maker.pages.find(ADDRESSES[0]), forks[1].pages.find(ADDRESSES[0]));
    assert_ne!(maker.pages.find(ADDRESSES[0]), forks[0].pages.find(ADDRESSES[0]));
    assert!(epoch.discarded.is_empty());
    drop(
        forks
            .split_off(1)
            .into_iter()
            .map(|mut one| one.pages.forget(0..u64::MAX, &mut epoch.discarded, |_| true))
            .collect::<Vec<()>>(),
    );
    maker.write(ADDRESSES[0], 9);
    maker.capture(&mut epoch);
    let page = epoch.written[0].0.page;
    assert_eq!(
        epoch.discarded,
        [page..PageId(page.0 + 1)],
        "the first page is free"
    );
}
