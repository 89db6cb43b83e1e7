//! Damage: what bad memory, a bad disk, a bad copy or a curious person does to a file.

use crate::forge::metadata;
use crate::history::random;
use fastrand::Rng;
use std::ops::Range;

/// Values that are at the edge of something.
const EDGES: [u64; 12] = [
    0,
    1,
    7,
    0x7f,
    0x80,
    0xffff,
    0x7fff_ffff,
    0xffff_fffe,
    0xffff_ffff,
    1 << 48,
    i64::MAX as u64,
    u64::MAX,
];

/// One piece of damage to `image`; `older` is the same medium some time before. Returns how many bytes
/// it may have changed.
pub fn damage(image: &mut Vec<u8>, older: &[u8], rng: &mut Rng) -> usize {
    let at = place(image, older, rng);
    match rng.u8(..10) {
        0 => {
            image[at] ^= 1 << rng.u8(..8);
            1
        }
        1 => {
            image[at] = rng.u8(..);
            1
        }
        2..4 => {
            let value = if rng.bool() {
                EDGES[rng.usize(..EDGES.len())]
            } else {
                rng.u64(..)
            };
            let len = [1, 2, 4, 8][rng.usize(..4)];
            let run = cut(at / len * len, len, image);
            image[run.clone()].copy_from_slice(&value.to_le_bytes()[..run.len()]);
            run.len()
        }
        4 => {
            // A small step up or down: a length or a number off by little.
            let step = rng.i8(-3..=3);
            image[at] = image[at].wrapping_add_signed(step);
            1
        }
        5 => {
            let run = run(at, image, rng);
            image[run.clone()].fill(if rng.bool() { 0 } else { 0xff });
            run.len()
        }
        6 => {
            // A write that never reached the medium. Switch records and mark are 1 KiB apart in the
            // smallest geometry, so that no one write has two of them.
            let len = [8, 64, 512][rng.usize(..3)];
            let run = cut(at / len * len, len, image);
            let run = run.start.min(older.len())..run.end.min(older.len());
            image[run.clone()].copy_from_slice(&older[run.clone()]);
            run.len()
        }
        7 => {
            // A write that went to another place.
            let to = run(at, image, rng);
            let from = rng.usize(..=image.len() - to.len()) / 8 * 8;
            image.copy_within(from..from + to.len(), to.start);
            to.len()
        }
        8 => {
            let len = if rng.bool() {
                at
            } else {
                image.len() - rng.usize(..image.len().min(9))
            };
            let lost = image.len() - len;
            image.truncate(len);
            lost
        }
        _ => {
            let more = rng.usize(1..10_000);
            image.extend(random(rng, more));
            0
        }
    }
}

/// Where to do it: anywhere, in the metadata, or where something was written last.
fn place(image: &[u8], older: &[u8], rng: &mut Rng) -> usize {
    let anywhere = rng.usize(..image.len());
    match rng.u8(..4) {
        0 => anywhere,
        1 => {
            let rest = anywhere..image.len().min(older.len());
            rest.into_iter()
                .find(|&at| image[at] != older[at])
                .unwrap_or(anywhere)
        }
        _ => {
            let found = metadata(image);
            let range = rng.choice(found).unwrap_or(anywhere..anywhere + 1);
            rng.usize(range)
        }
    }
}

/// A run of a line, a sector or a page around `at`.
fn run(at: usize, image: &[u8], rng: &mut Rng) -> Range<usize> {
    let len = [8, 16, 64, 512, 4096][rng.usize(..5)];
    cut(at / len * len, len, image)
}

fn cut(start: usize, len: usize, image: &[u8]) -> Range<usize> {
    start..(start + len).min(image.len())
}
