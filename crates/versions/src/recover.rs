//! What an array is after a crash: of each element the newest version that is not after the durable word.
//!
//! * Only numbers are read, no value.
//! * Numbers after the word are erased, durably, before anything else is done: their places would otherwise come
//!   back to life when the word passes them.

use crate::error::Result;
use crate::format::{Blocks, CONFIRMED, Header, WORD, checked, place};
use crate::options::persist;
use crate::persistence::word;
use std::path::Path;
use std::sync::atomic::Ordering;
use twinpage_core::Error as Damage;
use twinpage_os::Direct;

/// What is known of the numbers of an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Numbers {
    /// Numbers after the durable word: of updates that were under way.
    pub(crate) after: u64,
}

/// Checks the numbers, and erases those after `durable` (unless a test plants that mistake).
pub(crate) fn recover(
    direct: &dyn Direct,
    header: &Header,
    durable: u64,
    path: &Path,
    leave: bool,
) -> Result<()> {
    let mut erased = false;
    let mut erase = |at: u64| {
        if !leave {
            word(direct, at).store(0, Ordering::Relaxed);
            persist(direct, at, 8);
            erased = true;
        }
    };
    walk(direct, header, durable, path, &mut erase)?;
    if erased {
        direct.fence()?;
    }
    confirm(direct);
    Ok(())
}

/// What the durable word says is known to have arrived: readers go by it.
pub(crate) fn confirm(direct: &dyn Direct) {
    let raw = word(direct, WORD).load(Ordering::Relaxed);
    word(direct, CONFIRMED).store(raw, Ordering::Relaxed);
    if direct.is_watched() {
        direct.stored(CONFIRMED..CONFIRMED + 8);
    }
    direct.publish(CONFIRMED..CONFIRMED + 8);
}

/// Looks at every number. `after` is given the places of those after `durable`.
///
/// # Errors
/// [`Damage::Damaged`] names the first element with a wrong number, or without a version.
pub(crate) fn walk(
    direct: &dyn Direct,
    header: &Header,
    durable: u64,
    path: &Path,
    after: &mut dyn FnMut(u64),
) -> Result<Numbers> {
    let (blocks, versions) = (Blocks::of(header), usize::from(header.versions));
    let mut found = Numbers::default();
    for index in 0..header.count {
        let at = blocks.numbers(index);
        let mut persistent = 0;
        for version in 0..versions {
            let at = at + 8 * version as u64;
            let raw = word(direct, at).load(Ordering::Relaxed);
            if raw == 0 {
                continue;
            }
            let Some(number) = checked(raw, place(index, version)) else {
                return Err(damaged(path, at, index, "the check of a number is wrong"));
            };
            if number > durable {
                found.after += 1;
                after(at);
            } else {
                persistent = persistent.max(number);
            }
        }
        if persistent == 0 {
            return Err(damaged(path, at, index, "it has no durable version"));
        }
    }
    Ok(found)
}

fn damaged(path: &Path, at: u64, index: u64, why: &str) -> crate::Error {
    Damage::Damaged {
        what: "numbers",
        at,
        why: format!("{}, element {index}: {why}", path.display()),
    }
    .into()
}
