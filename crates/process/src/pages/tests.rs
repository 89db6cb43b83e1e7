//! Tables, places and heat.

use super::*;

#[test]
fn a_table_survives_its_context() {
    for geometry in [Geometry::MEMORY, Geometry::DISK] {
        let mut pages = Pages::new(geometry).unwrap();
        let addresses = [0x40_0000, 0x40_1000, 0x7fff_0000_0000, 0x5555_5540_3000];
        let pieces: Vec<_> = addresses
            .iter()
            .map(|address| pages.piece(*address, true, &mut Vec::new()))
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
    let pieces = [&mut one, &mut other].map(|pages| pages.piece(0x40_0000, true));
    assert_ne!(pieces[0].page, pieces[1].page);
    assert_eq!(
        (one.address(pieces[1]), other.address(pieces[1])),
        (None, Some(0x40_0000))
    );
    let tables = [one.table().to_vec(), other.table().to_vec()];
    let both = |tables: [&[u8]; 2]| Pages::from_tables(Geometry::MEMORY, &tables);
    let mut again = both([&tables[0], &tables[1]]).unwrap();
    assert_eq!(again[1].find(0x40_0000).unwrap().page, pieces[1].page);
    let fresh = again[0].piece(0x80_0000, true);
    assert!(pieces.iter().all(|piece| piece.page != fresh.page));
    assert!(both([&tables[0], &tables[0]]).is_err(), "a place of two memories");
    other.forget(0..u64::MAX, &mut Vec::new(), |_| true);
    assert_eq!(
        one.piece(0x80_0000, true).page,
        pieces[1].page,
        "its place is free again"
    );
}

#[test]
fn emptied_pages_are_discarded_and_chunks_reused() {
    let mut pages = Pages::new(Geometry::MEMORY).unwrap();
    pages.piece(0x40_0000, true);
    let kept = pages.piece(0x60_0000, true);
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
    assert_eq!(pages.piece(0x80_0000, true).page, PageId(0));
}

#[test]
fn a_damaged_table_is_refused() {
    let mut pages = Pages::new(Geometry::MEMORY).unwrap();
    pages.piece(0x40_0000, true);
    let table = pages.table().to_vec();
    assert!(Pages::from_table(Geometry::MEMORY, &table[1..]).is_err());
    let twice = [table.clone(), table].concat();
    assert!(Pages::from_table(Geometry::MEMORY, &twice).is_err());
}

#[test]
fn heat_rises_and_falls() {
    let mut chunk = Chunk::new(0);
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
