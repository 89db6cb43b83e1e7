//! Checksums made right again after damage, so that what lies behind them is reached: the decoders
//! must hold against bytes made on purpose. Offsets as in `docs/format.md`.

use crc32c::{crc32c, crc32c_append};
use std::ops::Range;

const BLOCK: usize = 64;
const RECORD_HEADER: usize = 32;

/// Where the metadata lies, as far as it can be found: superblock, mark, switch records, snapshots and
/// the records behind them.
#[must_use]
pub fn metadata(image: &[u8]) -> Vec<Range<usize>> {
    if image.len() < BLOCK {
        return Vec::new();
    }
    let extent = get(image, 16) as usize;
    let stride = (extent / 4).min(4096);
    let mut found = vec![0..BLOCK, 3 * stride..3 * stride + 8];
    for at in [stride, 2 * stride] {
        if is_switch(image, at) {
            let (snapshot, end) = slot(image, at, extent);
            let mut tail = snapshot.end.saturating_add(7) / 8 * 8;
            while let Some(record) = record_at(image, tail, end) {
                tail = record.end;
            }
            found.extend([at..at + BLOCK, snapshot.clone(), snapshot.end..tail]);
        }
    }
    found.retain(|range| !range.is_empty() && range.end <= image.len());
    found
}

/// Makes every checksum of `image` right that can be found: superblock, switch records, snapshots,
/// journal records, and the mark after the last of them.
pub fn reseal(image: &mut [u8]) {
    if image.len() < BLOCK {
        return;
    }
    let crc = crc32c(&image[..60]);
    put(image, 60, crc);
    let seed = crc32c(&image[24..32]);
    let extent = get(image, 16) as usize;
    let stride = (extent / 4).min(4096);
    let mut last = 0;
    for at in [stride, 2 * stride] {
        if is_switch(image, at) {
            last = last.max(reseal_slot(image, at, extent, seed));
        }
    }
    let mark = 3 * stride..3 * stride + 8;
    if let Some(word) = image.get_mut(mark) {
        let number = last & ((1 << 48) - 1);
        let crc = crc32c_append(seed, &number.to_le_bytes());
        let check = u64::from(crc as u16 ^ (crc >> 16) as u16);
        word.copy_from_slice(&(number | check << 48).to_le_bytes());
    }
}

/// The snapshot that the switch record at `at` names, the records behind it, and the switch record
/// itself. Returns the number of the last record.
fn reseal_slot(image: &mut [u8], at: usize, extent: usize, seed: u32) -> u64 {
    let (snapshot, end) = slot(image, at, extent);
    let mut last = get_u64(image, at + 32);
    if let Some(bytes) = image.get(snapshot.clone()) {
        let crc = crc32c_append(seed, bytes);
        put(image, at + 20, crc);
        let mut record = snapshot.end.saturating_add(7) / 8 * 8;
        while let Some(bytes) = record_at(image, record, end) {
            let crc = crc32c_append(seed, &image[bytes.start + 8..bytes.end]);
            put(image, bytes.start + 4, crc);
            last = get_u64(image, bytes.start + 8);
            record = bytes.end;
        }
    }
    let crc = crc32c_append(seed, &image[at + 8..at + BLOCK]);
    put(image, at + 4, crc);
    last
}

fn is_switch(image: &[u8], at: usize) -> bool {
    image
        .get(at..at + BLOCK)
        .is_some_and(|block| block.starts_with(b"TpSw"))
}

/// The snapshot that the switch record at `at` names, and the end of its slot.
fn slot(image: &[u8], at: usize, extent: usize) -> (Range<usize>, usize) {
    let start = (get(image, at + 12) as usize).saturating_mul(extent);
    let end = start.saturating_add((get(image, at + 16) as usize).saturating_mul(extent));
    (
        start..start.saturating_add(get_u64(image, at + 24) as usize),
        end.min(image.len()),
    )
}

/// The bytes of the record at `at`, if there is one that ends before `end`.
fn record_at(image: &[u8], at: usize, end: usize) -> Option<Range<usize>> {
    let header = image.get(at..at.checked_add(RECORD_HEADER)?)?;
    let body = get(header, 28) as usize;
    let record = at..(at + RECORD_HEADER + body).next_multiple_of(8);
    (header.starts_with(b"TpJr") && record.end <= end).then_some(record)
}

fn put(image: &mut [u8], at: usize, value: u32) {
    image[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn get(image: &[u8], at: usize) -> u32 {
    let mut value = [0; 4];
    value.copy_from_slice(&image[at..at + 4]);
    u32::from_le_bytes(value)
}

fn get_u64(image: &[u8], at: usize) -> u64 {
    u64::from(get(image, at)) | u64::from(get(image, at + 4)) << 32
}
