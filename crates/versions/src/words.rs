//! Words of a file that are reached as atomics, and what the durable word says.

#![allow(unsafe_code)]

use crate::error::Result;
use crate::format::{Header, WORD, WORD_PLACE, checked, number};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use twinpage_core::{Error as Damage, Offset};
use twinpage_os::Direct;

/// An aligned word of a file.
pub(crate) fn word(direct: &dyn Direct, at: Offset) -> &AtomicU64 {
    assert!(at.is_multiple_of(8) && at + 8 <= direct.len());
    // SAFETY: aligned, inside the mapping, which does not move while `direct` lives; such words are only reached
    // as atomics.
    unsafe { AtomicU64::from_ptr(direct.base().add(at as usize).cast()) }
}

/// Sends what was stored on its way.
pub(crate) fn persist(direct: &dyn Direct, at: u64, bytes: u64) {
    if direct.is_watched() {
        direct.stored(at..at + bytes);
    }
    direct.write_back(at..at + bytes);
}

/// The durable word at `at`: up to which update, or step, all is durable.
pub(crate) fn durable_word(direct: &dyn Direct, at: u64, path: &Path) -> Result<u64> {
    let raw = word(direct, at).load(Ordering::Acquire);
    match checked(raw, WORD_PLACE) {
        Some(word) if word > 0 => Ok(word),
        _ => Err(Damage::Damaged {
            what: "durable word",
            at,
            why: format!(
                "{}: the check of {} is wrong ({raw:#018x})",
                path.display(),
                number(raw)
            ),
        }
        .into()),
    }
}

/// The durable word of a step in a plane.
pub(crate) fn step_word(step: u64, plane: usize) -> u64 {
    (step + 1) << 2 | plane as u64
}

/// The step and the plane of a durable word.
pub(crate) fn step_of(word: u64) -> (u64, usize) {
    ((word >> 2).wrapping_sub(1), (word & 3) as usize)
}

/// Where a plane lies.
pub(crate) fn plane_range(header: &Header, plane: usize) -> Range<u64> {
    let at = header.first + plane as u64 * header.stride;
    at..at + header.count * header.value_bytes
}

/// The durable word names a plane that is not there.
pub(crate) fn no_such_plane(path: &Path, plane: usize) -> Damage {
    Damage::Damaged {
        what: "durable word",
        at: WORD,
        why: format!("{}: it speaks of plane {plane}", path.display()),
    }
}
