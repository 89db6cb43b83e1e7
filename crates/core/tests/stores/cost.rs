//! What the scheme writes for what has changed.

use twinpage_core::crash::{Image, Random};
use twinpage_core::dual_page::{DualPage, Options};
use twinpage_core::*;

const PAGES: u64 = 65536;

fn write(store: &mut DualPage<Image>, page: u64, line: usize, value: u64) {
    let bytes = [value.to_le_bytes(); 8].concat();
    let span = PageLines::from(PageId(page), line, &bytes, 64);
    let _ = store.write(span).unwrap();
}

/// 65536 pages, all of which have been written twice and have a derivative page.
fn settled() -> DualPage<Image> {
    let mut store = DualPage::create(Image::new(8), &Options::new(Geometry::MEMORY)).unwrap();
    for round in 1..3 {
        for page in 0..PAGES {
            write(&mut store, page, page as usize % 64, round);
        }
        store.commit(&[0; 4000]).unwrap();
    }
    store
}

#[test]
fn one_line_in_each_of_65_scattered_pages() {
    let mut store = settled();
    let mut random = Random::new(1);
    let mut worst = 0.0_f64;
    let (before, epochs, changed) = (store.info().traffic, 6000, 65 * 64);
    for epoch in 0..epochs {
        let start = store.info().traffic;
        for stripe in 0..65 {
            let page = stripe * (PAGES / 65) + random.below(PAGES / 65);
            write(&mut store, page, random.below(64) as usize, epoch + 10);
        }
        store.commit(&[0; 4000]).unwrap();
        let spent = store.info().traffic - start;
        assert_eq!(spent.data_bytes, changed);
        let without_snapshot = spent.total_bytes() - spent.snapshot_bytes;
        worst = worst.max(without_snapshot as f64 / changed as f64);
    }
    let spent = store.info().traffic - before;
    let ratio = spent.total_bytes() as f64 / (epochs * changed) as f64;
    println!(
        "bytes written per changed byte: {ratio:.4} with snapshots, {worst:.4} at most without; {spent:?}"
    );
    assert!(spent.snapshot_bytes > 0, "long enough to pay for a snapshot");
    assert!(ratio < 1.10 && worst < 1.10, "{ratio} {worst}");
}

#[test]
fn an_empty_commit_is_a_record_and_a_mark() {
    let mut store = settled();
    let before = store.info().traffic;
    store.commit(&[0; 4000]).unwrap();
    let spent = store.info().traffic - before;
    assert_eq!(spent.total_bytes(), spent.journal_bytes);
    assert!(spent.journal_bytes <= 48, "{spent:?}");
}
