//! Steps that become durable with one flush, on a disk: the plane and its *seal* are written, then flushed together.
//!
//! A seal names a step and its plane, and has a sum of the plane's bytes. There are two, used in turn.
//!
//! * A step whose seal and plane fit together is whole. A crash before the flush leaves one that do not, and the other
//!   seal, or the durable word, names the step before.
//! * The durable word is stored after the flush, and reaches the disk with the next one: it may be one step behind.
//! * The seal that is written is never that of the last durable step.
//! * Opening erases the seal of a step that a crash cut short, durably, before anything else is written.

#![allow(unsafe_code)]

use crate::error::Result;
use crate::format::{
    Header, LAST_NUMBER, SEAL_BYTES, SEAL_PLACE, SEALS, WORD, WORD_PLACE, checked, encode, number,
};
use crate::words::{durable_word, no_such_plane, persist, plane_range, step_of, word};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering;
use twinpage_core::{Error as Damage, Offset};
use twinpage_os::Direct;

/// Bytes summed together: they are still in a cache when they were just written.
const PIECE: usize = 512 << 10;

/// What the seals and the durable word say together.
pub(crate) struct Newest {
    /// The last whole step and its plane, as a durable word has them.
    pub(crate) word: u64,
    /// Seals of steps that a crash cut short.
    cut: Vec<Offset>,
}

/// The sum of a plane, bound to its step. Each piece is handed to `meanwhile`, and summed.
///
/// # Safety
/// The plane does not change meanwhile.
unsafe fn sum(
    direct: &dyn Direct,
    plane: &Range<Offset>,
    step: u64,
    mut meanwhile: impl FnMut(Range<Offset>),
) -> u64 {
    assert!(plane.start <= plane.end && plane.end <= direct.len());
    let mut sum = 0;
    for start in plane.clone().step_by(PIECE) {
        let piece = start..plane.end.min(start + PIECE as u64);
        // SAFETY: inside the file; the caller's.
        let bytes = unsafe {
            let at = direct.base().add(start as usize);
            std::slice::from_raw_parts(at, (piece.end - start) as usize)
        };
        meanwhile(piece);
        sum = crc32c::crc32c_append(sum, bytes);
    }
    // Never 0, which stands for no number.
    encode(u64::from(sum) + 1, step)
}

/// Writes a step back whose plane is `plane`, and its seal. `raw` names it, as a durable word does.
///
/// # Safety
/// As for `sum`.
pub(crate) unsafe fn write_back(direct: &dyn Direct, plane: &Range<Offset>, raw: u64) {
    let named = number(raw);
    let durable = number(word(direct, WORD).load(Ordering::Relaxed));
    let is_free = |at: &Offset| number(word(direct, *at).load(Ordering::Relaxed)) != durable;
    let at = SEALS.into_iter().find(is_free).unwrap_or(SEALS[0]);
    // SAFETY: the caller's.
    let sum = unsafe { sum(direct, plane, named, |piece| direct.write_back(piece)) };
    word(direct, at).store(encode(named, SEAL_PLACE), Ordering::Relaxed);
    word(direct, at + 8).store(sum, Ordering::Relaxed);
    persist(direct, at, SEAL_BYTES);
}

/// Erases both seals: the sums no longer fit. The durable word must have arrived.
pub(crate) fn erase(direct: &dyn Direct) {
    SEALS.into_iter().for_each(|at| erase_one(direct, at));
}

fn erase_one(direct: &dyn Direct, at: Offset) {
    for at in [at, at + 8] {
        word(direct, at).store(0, Ordering::Relaxed);
    }
    persist(direct, at, SEAL_BYTES);
}

/// Finds the last whole step. Where the word is behind, planes are read.
pub(crate) fn newest(direct: &dyn Direct, header: &Header, durable: u64, path: &Path) -> Result<Newest> {
    let mut seals: Vec<(u64, Offset)> = SEALS
        .into_iter()
        .filter_map(|at| Some((checked(word(direct, at).load(Ordering::Relaxed), SEAL_PLACE)?, at)))
        .filter(|(word, _)| step_is_after(*word, durable))
        .collect();
    seals.sort_unstable_by(|a, b| b.cmp(a));
    let mut cut = Vec::new();
    for (word, at) in seals {
        if fits(direct, header, word, at, path)? {
            return Ok(Newest { word, cut });
        }
        // Of two seals after the word the older was durable before the other was begun.
        if !cut.is_empty() {
            let (step, plane) = step_of(word);
            return Err(Damage::Damaged {
                what: "plane",
                at: plane_range(header, plane).start,
                why: format!("{}: its sum is not that of step {step}", path.display()),
            }
            .into());
        }
        cut.push(at);
    }
    Ok(Newest { word: durable, cut })
}

fn step_is_after(word: u64, durable: u64) -> bool {
    word >> 2 > durable >> 2 && word <= LAST_NUMBER
}

/// Whether the plane that a seal names is the one it was written for.
fn fits(direct: &dyn Direct, header: &Header, named: u64, at: Offset, path: &Path) -> Result<bool> {
    let (_, plane) = step_of(named);
    if plane >= usize::from(header.versions) {
        return Err(no_such_plane(path, plane).into());
    }
    let range = plane_range(header, plane);
    direct.load(range.clone())?;
    // SAFETY: the array is being opened, or stands still: no plane changes.
    let sum = unsafe { sum(direct, &range, named, drop) };
    Ok(word(direct, at + 8).load(Ordering::Relaxed) == sum)
}

/// The seal of the durable step, if it has one: whether its plane is as it was written.
pub(crate) fn is_intact(direct: &dyn Direct, header: &Header, durable: u64, path: &Path) -> Result<bool> {
    let raw = encode(durable, SEAL_PLACE);
    match SEALS
        .into_iter()
        .find(|at| word(direct, *at).load(Ordering::Relaxed) == raw)
    {
        Some(at) => fits(direct, header, durable, at, path),
        None => Ok(true),
    }
}

/// The durable word after a crash: that of the last whole step, in the file as well, and no seal is after it.
///
/// `unverified` plants a mistake: every seal is believed.
pub(crate) fn recover(direct: &dyn Direct, header: &Header, path: &Path, unverified: bool) -> Result<u64> {
    let durable = durable_word(direct, WORD, path)?;
    let mut newest = newest(direct, header, durable, path)?;
    if unverified && let Some(at) = newest.cut.pop() {
        newest.word = number(word(direct, at).load(Ordering::Relaxed));
    }
    if newest.word != durable {
        word(direct, WORD).store(encode(newest.word, WORD_PLACE), Ordering::Relaxed);
        persist(direct, WORD, 8);
    }
    newest.cut.iter().for_each(|at| erase_one(direct, *at));
    if newest.word != durable || !newest.cut.is_empty() {
        direct.fence()?;
    }
    Ok(newest.word)
}
