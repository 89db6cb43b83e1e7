//! Pages that are given back: zero at once, and no longer in the store from the next checkpoint on.

use super::{FLIP, any, assert_may_write, lines_of, mark_bytes, page_marks, saved, set, summary};
use crate::address::{PAGE, Place};
use crate::lock::lock;
use std::ops::Range;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use twinpage_core::{Geometry, PageId};

/// Makes the whole pages of `range` zero with `zero`, and remembers it for the next cut: pages of the
/// store that are gone altogether are discarded there, the rest is written.
pub(crate) fn discard<E>(
    place: Place,
    range: Range<usize>,
    zero: impl FnOnce() -> Result<(), E>,
) -> Result<(), E> {
    if place.is_volatile() {
        return zero();
    }
    assert_may_write(place.base());
    unmark(place, &range);
    zero()?;
    let stored = place.state().stored_page.load(Ordering::Relaxed);
    let first = range.start.next_multiple_of(stored).min(range.end);
    let whole = first..(range.end / stored * stored).max(first);
    for rest in [range.start..whole.start, whole.end..range.end] {
        mark_bytes(place.base().wrapping_add(rest.start), rest.len());
    }
    if !whole.is_empty() {
        discarded(place).push(whole);
        place.state().has_discarded.store(true, Ordering::Release);
    }
    Ok(())
}

/// The whole pages of `range` are about to lose what they hold: what is frozen of them is saved, and
/// they count as not written.
fn unmark(place: Place, range: &Range<usize>) {
    let map = place.state().here.current.load(Ordering::Acquire);
    let groups = |page: usize| page / super::GROUP..page / super::GROUP + 1;
    let mut page = range.start / PAGE;
    while page < range.end / PAGE {
        // SAFETY: this thread may write in the window (`discard`), which is in use therefore.
        let is_noted = |map| any(unsafe { summary(map, groups(page)) });
        if !is_noted(map) && !is_noted(map ^ FLIP) {
            page = groups(page).end * super::GROUP;
            continue;
        }
        // SAFETY: the range is usable, so its marks are.
        let current = unsafe { page_marks(map, page) };
        saved::save_frozen(place, map ^ FLIP, &lines_of(page));
        set(current, 0);
        page += 1;
    }
}

/// What was given back since the last cut, in bytes from the base.
fn discarded(place: Place) -> MutexGuard<'static, Vec<Range<usize>>> {
    lock(&place.state().discarded)
}

/// Whether anything was given back since the last cut.
pub(super) fn is_owed(place: Place) -> bool {
    !discarded(place).is_empty()
}

pub(super) fn forget(place: Place) {
    discarded(place).clear();
    place.state().has_discarded.store(false, Ordering::Release);
}

/// What was given back since the last cut, in bytes from the base. No other thread writes.
pub(crate) fn take_given_back(place: Place) -> Vec<Range<usize>> {
    if !place.state().has_discarded.load(Ordering::Acquire) {
        return Vec::new();
    }
    place.state().has_discarded.store(false, Ordering::Release);
    std::mem::take(&mut *discarded(place))
}

/// The pages of `geometry` that were given back since the last cut.
pub(crate) fn take_discarded(place: Place, geometry: Geometry) -> Vec<Range<PageId>> {
    let page = geometry.page_bytes();
    let pages = take_given_back(place)
        .into_iter()
        .map(|range| PageId((range.start / page) as u64)..PageId((range.end / page) as u64));
    pages.collect()
}
