//! What an array is after a crash: of each element the newest version that is not after the durable word.
//!
//! * Only numbers are read, no value.
//! * Numbers after the word are erased, durably, before anything else is done: their places would otherwise come
//!   back to life when the word passes them.

use crate::error::Result;
use crate::format::{Blocks, CONFIRMED, Header, WORD, checked, place};
use crate::words::{persist, word};
use std::path::Path;
use std::sync::atomic::Ordering;
use twinpage_core::{Error as Damage, Offset};
use twinpage_os::Direct;

/// What is not as after a clean end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Finding {
    /// The number there is of an update after the durable word.
    After(Offset),
    /// The numbers of an element are not as they were written.
    Damaged {
        at: Offset,
        index: u64,
        why: &'static str,
    },
}

/// Checks the numbers, and erases those after `durable` (unless a test plants that mistake).
pub(crate) fn recover(
    direct: &dyn Direct,
    header: &Header,
    durable: u64,
    path: &Path,
    leave: bool,
) -> Result<()> {
    let (mut after, mut damaged) = (Vec::new(), None);
    walk(direct, header, durable, &mut |finding| match finding {
        Finding::After(at) => after.push(at),
        Finding::Damaged { at, index, why } => {
            damaged.get_or_insert_with(|| Damage::Damaged {
                what: "numbers",
                at,
                why: format!("{}, element {index}: {why}", path.display()),
            });
        }
    });
    // Nothing is changed in a damaged file.
    if let Some(damaged) = damaged {
        return Err(damaged.into());
    }
    let erased = !after.is_empty() && !leave;
    for at in after.into_iter().filter(|_| erased) {
        word(direct, at).store(0, Ordering::Relaxed);
        persist(direct, at, 8);
    }
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

/// Looks at every number, and tells what it finds.
pub(crate) fn walk(direct: &dyn Direct, header: &Header, durable: u64, tell: &mut dyn FnMut(Finding)) {
    let (blocks, versions) = (Blocks::of(header), usize::from(header.versions));
    for index in 0..header.count {
        let at = blocks.numbers(index);
        let mut persistent = 0;
        for version in 0..versions {
            let at = at + 8 * version as u64;
            let raw = word(direct, at).load(Ordering::Relaxed);
            match checked(raw, place(index, version)) {
                None => tell(Finding::Damaged {
                    at,
                    index,
                    why: "the check of a number is wrong",
                }),
                Some(number) if number > durable => tell(Finding::After(at)),
                Some(number) => persistent = persistent.max(number),
            }
        }
        if persistent == 0 {
            tell(Finding::Damaged {
                at,
                index,
                why: "it has no durable version",
            });
        }
    }
}
