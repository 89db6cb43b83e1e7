//! What the schemes cost: bits of metadata as the papers count them, bytes written for what has
//! changed.

use crate::{create, setup, write_line, write_lines, write_page};
use twinpage_baselines::AnyScheme;
use twinpage_baselines::{copy_on_write, page_overlay, redo_log, thynvm, undo_log};
use twinpage_core::crash::Image;
use twinpage_core::dual_page;
use twinpage_core::*;

/// DPC Table 3, and the sizes of DPC 5.5.1.
#[test]
fn metadata_costs_what_the_papers_say() {
    assert_eq!(thynvm::BLOCK_INDEX_BITS, 42, "a cache line of ThyNVM");
    assert_eq!(page_overlay::BITS_PER_PAGE, 352, "a page with an overlay");
    assert_eq!(
        dual_page::BITS_PER_PAGE,
        37,
        "a page of the derivative page table"
    );
    assert_eq!(undo_log::BITS_PER_LINE, 42, "an address of a line");
    // 300 MB of derivative pages, of 4 KB each.
    let kib = |bits: u64| (bits / 8) as f64 / 1024.0;
    let entries = 76_800;
    assert_eq!(dual_page::metadata_bits(entries), entries * 37);
    assert_eq!(kib(dual_page::metadata_bits(entries)).round(), 347.0);
    // ThyNVM: about 37 KB for 2048 and 4096 entries.
    assert_eq!(
        kib(thynvm::metadata_bits(&thynvm::Tables::default())).round(),
        37.0
    );
    // Its line table of DPC's size: as many lines as fit into the bits of the derivative page table.
    assert_eq!(thynvm::Tables::dpc().blocks, 67_657);
    // "Around 20 and 5 times": bits a line of ThyNVM, bits a page of page overlays, over two bits a line.
    assert_eq!(thynvm::BLOCK_INDEX_BITS / 2, 21);
    assert_eq!((page_overlay::BITS_PER_PAGE as f64 / 64.0).floor(), 5.0);
}

/// DPC Table 1: small tables write more, those that write little have large ones. Per page with
/// 25 of its 64 lines written (DPC figure 1: 61.1% of a dirty page is clean).
#[test]
fn the_trade_off_of_table_1() {
    let lines = 25;
    let rows = [
        ("undo log", undo_log::metadata_bits(lines), SchemeKind::UndoLog),
        ("redo log", redo_log::metadata_bits(lines), SchemeKind::RedoLog),
        (
            "copy-on-write",
            copy_on_write::metadata_bits(1),
            SchemeKind::CopyOnWrite,
        ),
        (
            "page overlays",
            page_overlay::metadata_bits(1),
            SchemeKind::PageOverlay,
        ),
        ("dual page", dual_page::metadata_bits(1), SchemeKind::DualPage),
    ];
    let mut written = Vec::new();
    println!(
        "{:<16}{:>16}{:>24}",
        "scheme", "bits a page", "bytes per changed byte"
    );
    for (name, bits, kind) in rows {
        let ratio = amplification(kind, lines as usize);
        println!("{name:<16}{bits:>16}{ratio:>24.3}");
        written.push((kind, bits, ratio));
    }
    let [undo, redo, copy, overlay, dual] = written[..] else {
        unreachable!("five rows")
    };
    assert!(
        written.iter().all(|row| row.1 >= dual.1),
        "the dual page has the smallest table"
    );
    assert!(written.iter().all(|row| row.2 >= dual.2), "and writes least");
    // Twice every line, and what says which line it is.
    assert!(
        (2.2..2.4).contains(&undo.2) && (2.2..2.4).contains(&redo.2),
        "{written:?}"
    );
    // The whole page: 64 lines for 25.
    assert!((2.5..2.7).contains(&copy.2), "{written:?}");
    // Twice every line, and its metadata.
    assert!((2.0..2.2).contains(&overlay.2), "{written:?}");
}

/// Bytes written for each byte changed, when that many lines of every page of many are written at once,
/// as a DRAM cache of pages does, epoch after epoch.
fn amplification(kind: SchemeKind, lines: usize) -> f64 {
    let mut setup = setup();
    setup.geometry = Geometry::MEMORY;
    let mut store = AnyScheme::create(kind, Image::new(8), &setup).unwrap();
    for page in 0..512 {
        write_page(&mut store, page, LineMask::ALL, 1);
    }
    store.commit(b"").unwrap();
    let before = store.info().traffic;
    let epochs = 4;
    for epoch in 2..2 + epochs {
        for page in 0..512 {
            write_page(&mut store, page, LineMask::run(20, lines), epoch);
        }
        store.commit(b"").unwrap();
    }
    let spent = store.info().traffic - before;
    spent.total_bytes() as f64 / (u64::from(epochs) * 512 * lines as u64 * 64) as f64
}

/// Every cause is counted where it belongs; 16 bytes of a log entry are not its line.
#[test]
fn traffic_has_the_causes_of_its_scheme() {
    let one_line = |kind| {
        let mut store = create(kind);
        // Three epochs, so that all it uses is there.
        for value in 1..4 {
            write_page(&mut store, 0, LineMask::ALL, value);
            store.commit(b"").unwrap();
        }
        let before = store.info().traffic;
        let _ = write_line(&mut store, 0, 7, 9);
        store.commit(b"").unwrap();
        store.info().traffic - before
    };
    let undo = one_line(SchemeKind::UndoLog);
    assert_eq!((undo.log_bytes, undo.data_bytes), (80, 64), "{undo:?}");
    let redo = one_line(SchemeKind::RedoLog);
    assert_eq!((redo.log_bytes, redo.write_back_bytes), (80, 64), "{redo:?}");
    let copy = one_line(SchemeKind::CopyOnWrite);
    assert_eq!((copy.copy_bytes, copy.data_bytes), (63 * 64, 64), "{copy:?}");
    let overlay = one_line(SchemeKind::PageOverlay);
    assert_eq!(
        (
            overlay.data_bytes,
            overlay.write_back_bytes,
            overlay.migration_bytes
        ),
        (64, 64, 0)
    );
}

/// A page grows line by line through all five segments: 3, 7, 15 and 31 lines move.
#[test]
fn overlays_migrate_through_every_size() {
    let mut store = create(SchemeKind::PageOverlay);
    write_lines(&mut store, 0, 64, 1);
    store.commit(b"").unwrap();
    let before = store.info().traffic;
    write_lines(&mut store, 0, 64, 2);
    let spent = store.info().traffic - before;
    assert_eq!(spent.migration_bytes, (3 + 7 + 15 + 31) * 64);
}

/// A line goes to a slot, then home, and is free again: no byte more than it was given (its table).
#[test]
fn thynvm_writes_a_line_once() {
    let mut store = create(SchemeKind::ThyNvm);
    let _ = write_line(&mut store, 0, 0, 1);
    store.commit(b"").unwrap();
    for value in 2..8 {
        let before = store.info().traffic;
        assert_eq!(write_line(&mut store, 0, 0, value), Pressure::None);
        store.commit(b"").unwrap();
        let spent = store.info().traffic - before;
        assert_eq!(
            (spent.data_bytes, spent.copy_bytes, spent.migration_bytes),
            (64, 0, 0)
        );
    }
}

/// A page of many stores is written whole, until it has few.
#[test]
fn thynvm_changes_the_grain_of_a_page() {
    let mut store = create(SchemeKind::ThyNvm);
    let mut epoch = |lines: usize, value: u8| {
        let before = store.info().traffic;
        write_lines(&mut store, 0, lines, value);
        store.commit(b"").unwrap();
        store.info().traffic - before
    };
    assert_eq!(epoch(22, 1).copy_bytes, 0, "line by line");
    assert_eq!(
        epoch(22, 2).copy_bytes,
        (64 - 22) * 64,
        "as a page, from 22 stores on"
    );
    assert_eq!(epoch(16, 3).copy_bytes, (64 - 16) * 64, "and so with 16");
    let spent = epoch(15, 4);
    assert_eq!(spent.copy_bytes, (64 - 15) * 64, "it leaves after the epoch");
    let after = epoch(1, 5);
    assert_eq!(
        (after.copy_bytes, after.data_bytes),
        (0, 64),
        "line by line again"
    );
}

/// A table full of lines that cannot leave asks for a checkpoint; clean lines leave for others.
#[test]
fn thynvm_overflows_and_evicts() {
    let mut store = create(SchemeKind::ThyNvm);
    let rooms = (0..80).map(|page| write_line(&mut store, page, 0, 1));
    let full = rooms.collect::<Vec<_>>();
    assert_eq!(
        full.iter().filter(|room| **room == Pressure::Commit).count(),
        20,
        "60 entries"
    );
    store.commit(b"").unwrap();
    let before = store.info().traffic;
    assert_eq!(write_line(&mut store, 70, 1, 2), Pressure::None);
    assert_eq!(
        (store.info().traffic - before).migration_bytes,
        64,
        "a clean line goes home"
    );
    assert_eq!(store.info().pool.failures, 20);
}
