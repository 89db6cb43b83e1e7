//! Regions in files with damaged, cut, forged and arbitrary bytes.

use std::cell::Cell;
use twinpage_fuzz::campaign::campaign;
use twinpage_fuzz::edit::damage;
use twinpage_fuzz::forge::{metadata, reseal};
use twinpage_fuzz::meter::Counting;
use twinpage_fuzz::region::{Bench, cuts, damage_heads, noise};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Regions made, in a short run and in a long one.
const RUNS: [u64; 2] = [5, 1000];
/// Pieces of damage tried on each.
const EDITS: usize = 16;

#[test]
fn an_undamaged_region_is_read() {
    let bench = Bench::new(40);
    campaign("an_undamaged_region_is_read", RUNS, |rng| {
        let sample = bench.sample(rng);
        assert!(
            bench
                .read(&sample.image, rng)
                .is_some_and(|text| text == sample.text)
        );
    });
}

#[test]
fn a_cut_file_is_whole_or_refused() {
    let bench = Bench::new(41);
    campaign("a_cut_file_is_whole_or_refused", RUNS, |rng| {
        let sample = bench.sample(rng);
        for len in cuts(&sample, rng) {
            if let Some(text) = bench.read(&sample.image[..len], rng) {
                assert!(text == sample.text, "cut to {len} bytes");
            }
        }
    });
}

#[test]
fn damaged_metadata_is_refused_or_did_not_matter() {
    let bench = Bench::new(42);
    campaign("damaged_metadata_is_refused_or_did_not_matter", RUNS, |rng| {
        let sample = bench.sample(rng);
        let parts = metadata(&sample.image);
        for _ in 0..EDITS {
            let mut image = sample.image.clone();
            for _ in 0..rng.usize(1..3) {
                let part = rng.choice(&parts).cloned().unwrap_or(0..64);
                image[rng.usize(part)] ^= 1 << rng.u8(..8);
            }
            if let Some(text) = bench.read(&image, rng) {
                assert!(text == sample.text, "another state was read");
            }
        }
    });
}

/// Lines of files in memory have no checksum, so damage there may be read; but only what a check calls sound, and then without
/// harm.
#[test]
fn damaged_heads_are_found_or_do_no_harm() {
    let bench = Bench::new(43);
    let (tried, opened) = (Cell::new(0), Cell::new(0));
    campaign("damaged_heads_are_found_or_do_no_harm", RUNS, |rng| {
        let sample = bench.sample(rng);
        assert!(!sample.heads.is_empty());
        for _ in 0..2 * EDITS {
            let mut image = sample.image.clone();
            damage_heads(&sample, &mut image, rng);
            tried.set(tried.get() + 1);
            opened.set(opened.get() + u64::from(bench.read(&image, rng).is_some()));
        }
    });
    println!("{} of {} opened", opened.get(), tried.get());
}

#[test]
fn damage_anywhere_is_found_or_does_no_harm() {
    let bench = Bench::new(44);
    campaign("damage_anywhere_is_found_or_does_no_harm", RUNS, |rng| {
        let sample = bench.sample(rng);
        for _ in 0..EDITS {
            let mut image = sample.image.clone();
            for _ in 0..rng.usize(1..6) {
                if !image.is_empty() {
                    damage(&mut image, &sample.older, rng);
                }
            }
            let _ = bench.read(&image, rng);
        }
    });
}

/// Damage behind right checksums.
#[test]
fn forged_metadata_is_read_or_refused() {
    let bench = Bench::new(45);
    campaign("forged_metadata_is_read_or_refused", RUNS, |rng| {
        let sample = bench.sample(rng);
        let parts = metadata(&sample.image);
        for _ in 0..EDITS {
            let mut image = sample.image.clone();
            for _ in 0..rng.usize(1..4) {
                let part = rng.choice(&parts).cloned().unwrap_or(0..64);
                image[rng.usize(part)] = rng.u8(..);
            }
            reseal(&mut image);
            let _ = bench.read(&image, rng);
        }
    });
}

#[test]
fn arbitrary_bytes_are_refused() {
    let bench = Bench::new(46);
    campaign("arbitrary_bytes_are_refused", RUNS, |rng| {
        let sample = bench.sample(rng);
        for _ in 0..EDITS {
            assert!(bench.read(&noise(&sample, rng), rng).is_none());
        }
    });
}
