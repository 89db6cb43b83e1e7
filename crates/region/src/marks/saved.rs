//! Lines that writers saved from being overwritten before the sweep had them.
//!
//! ```text
//! | tags: 16 bytes a slot  | content: a line or a page a slot |
//!   | cut, counts? | offset |
//! ```
//!
//! * Slots are given out in order, neighbours for neighbouring lines, and again after every cut.
//! * A slot's tag is written last. It has the number of the cut, and whether the slot counts.

use super::{LINE, LINES_PER_PAGE, SAVED, any, copy, lines_of, marks, set};
use crate::address::{PAGE, Place};
use crate::zone::{SAVED_BYTES, SIDE};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Memory for the tags. A writer that finds no slot left waits for the sweep.
const TAGS_BYTES: usize = SAVED_BYTES / LINE * size_of::<Tag>();
pub(super) const BYTES: usize = TAGS_BYTES + SAVED_BYTES;

/// What is known of a slot.
#[repr(C)]
pub(super) struct Tag {
    /// The number of the cut, and in the lowest bit whether the slot counts.
    state: AtomicU64,
    /// Bytes from the base.
    offset: AtomicU64,
}

const _: () = assert!(size_of::<Tag>() == 16 && BYTES <= 12 * SIDE);

impl Tag {
    /// The offset of what the slot holds, if it counts. Waits for the writer that has the slot.
    pub(super) fn offset(&self, cut: u64) -> Option<usize> {
        let mut state = self.state.load(Ordering::Acquire);
        while state >> 1 != cut {
            std::thread::yield_now();
            state = self.state.load(Ordering::Acquire);
        }
        (state & 1 == 1).then(|| self.offset.load(Ordering::Relaxed) as usize)
    }
}

/// Bytes in a slot.
pub(super) fn unit(place: Place) -> usize {
    match place.state().by_page.load(Ordering::Relaxed) {
        true => PAGE,
        false => LINE,
    }
}

/// Slots there are.
pub(super) fn count(unit: usize) -> usize {
    SAVED_BYTES / unit
}

/// The slots of these numbers: their tags, and their content.
///
/// # Safety
/// The window stays in use for `'w`, and has such slots: they are below [`count`].
pub(super) unsafe fn slots<'w>(place: Place, slots: Range<usize>, unit: usize) -> (&'w [Tag], *mut u8) {
    debug_assert!(slots.end <= count(unit));
    let at = place.base().wrapping_add(SAVED);
    let tags = at.cast::<Tag>().wrapping_add(slots.start).cast_const();
    let content = at.wrapping_add(TAGS_BYTES + slots.start * unit);
    // SAFETY: the tags are open as long as the window is in use; any bytes are atomic words.
    (unsafe { std::slice::from_raw_parts(tags, slots.len()) }, content)
}

/// Saves what is frozen of these lines, or where it is by page of their pages, so that the lines can be
/// written. Their frozen marks are clear then.
#[inline]
pub(super) fn save_frozen(place: Place, frozen: usize, lines: &Range<usize>) {
    let unit = unit(place);
    let lines = match unit {
        LINE => lines.clone(),
        _ => lines_of(lines.start / LINES_PER_PAGE).start..lines_of((lines.end - 1) / LINES_PER_PAGE).end,
    };
    // SAFETY: the caller is about to write there, so the pages are usable.
    if any(unsafe { marks(frozen, lines.clone()) }) {
        save(place, frozen, lines, unit);
    }
}

#[cold]
#[inline(never)]
fn save(place: Place, frozen: usize, lines: Range<usize>, unit: usize) {
    let mut at = lines.start;
    while at < lines.end {
        // SAFETY: as in `save_frozen`.
        let rest = unsafe { marks(frozen, at..lines.end) };
        let mut units = rest.chunks(unit / LINE);
        let count = units
            .position(|marks| !any(marks))
            .unwrap_or(rest.len() * LINE / unit)
            * unit
            / LINE;
        if count > 0 {
            save_run(place, frozen, at..at + count, unit);
        }
        at += count + unit / LINE;
    }
}

/// Copies lines, all frozen a moment ago, to slots of `unit` bytes, and clears their frozen marks.
fn save_run(place: Place, frozen: usize, lines: Range<usize>, unit: usize) {
    let state = place.state();
    let (offset, bytes) = (lines.start * LINE, lines.len() * LINE);
    // SAFETY: as in `save_frozen`.
    let standing = unsafe { marks(frozen, lines) };
    let wanted = bytes / unit;
    let first = state.saved.0.fetch_add(wanted, Ordering::AcqRel);
    let end = (first + wanted).min(count(unit));
    // SAFETY: the window is in use while it is written; `end` is no more than there are.
    let (tags, content) = unsafe { slots(place, first.min(end)..end, unit) };
    let cut = place.cuts();
    if tags.len() < wanted {
        // Of those that are left nothing counts. The sweep comes by without our help.
        for tag in tags {
            tag.state.store(cut << 1, Ordering::Release);
        }
        while any(standing) {
            std::thread::yield_now();
        }
        return;
    }
    // SAFETY: the lines are usable memory of the window, the slots are ours alone.
    unsafe { copy(place.base().wrapping_add(offset), content, bytes) };
    // The copy is done before the marks are looked at again.
    fence(Ordering::Acquire);
    for (k, (tag, marks)) in tags.iter().zip(standing.chunks(unit / LINE)).enumerate() {
        let counts = any(marks);
        tag.offset.store((offset + k * unit) as u64, Ordering::Relaxed);
        tag.state.store(cut << 1 | u64::from(counts), Ordering::Release);
    }
    set(standing, 0);
}

/// What writers saved since a cut, by page, as far as it was looked at.
///
/// Of each page the slots are linked, from the last to the first. A slot of a page that was swept already
/// is of no interest, and of no harm.
#[derive(Debug)]
pub(super) struct Found {
    place: Place,
    cut: u64,
    unit: usize,
    /// For [`TOGETHER`] pages each, once there is something: of each page its last slot and one more, or 0.
    last: Vec<Box<[u32]>>,
    /// For each slot looked at, the one of the same page before it, likewise.
    before: Vec<u32>,
    /// The page to go on from ([`Found::next_page`]).
    next: usize,
}

/// Pages whose last slots are kept together.
const TOGETHER: usize = 4096;

impl Found {
    pub(super) fn new(place: Place) -> Found {
        Found {
            place,
            cut: place.cuts(),
            unit: unit(place),
            last: Vec::new(),
            before: Vec::new(),
            next: 0,
        }
    }

    /// Looks at the slots that were given since it was last asked. Waits for writers that have one and did
    /// not say yet what is in it.
    fn look(&mut self) {
        let given = self.place.state().saved.0.load(Ordering::Acquire);
        // What does not fit was not saved: its writer waited for the sweep.
        let given = given.min(count(self.unit));
        while self.before.len() < given {
            let slot = self.before.len();
            // SAFETY: a window is in use until its sweep ends; the slot was given out.
            let (tags, _) = unsafe { slots(self.place, slot..slot + 1, self.unit) };
            let before = match tags[0].offset(self.cut) {
                Some(offset) => std::mem::replace(self.last_of(offset / PAGE), slot as u32 + 1),
                None => 0,
            };
            self.before.push(before);
        }
    }

    fn last_of(&mut self, page: usize) -> &mut u32 {
        let (block, at) = (page / TOGETHER, page % TOGETHER);
        if self.last.len() <= block {
            self.last.resize_with(block + 1, Box::default);
        }
        let block = &mut self.last[block];
        if block.is_empty() {
            *block = vec![0; TOGETHER].into();
        }
        &mut block[at]
    }

    /// The slots of a page, among those looked at: their offsets from the base, and their content.
    fn of(&self, page: usize) -> impl Iterator<Item = (usize, *const u8)> {
        let block = self.last.get(page / TOGETHER);
        let last = block.and_then(|block| block.get(page % TOGETHER));
        let mut next = last.copied().unwrap_or(0);
        std::iter::from_fn(move || {
            let slot = next.checked_sub(1)? as usize;
            next = self.before[slot];
            // SAFETY: as in `look`, which has seen the slot.
            let (tags, content) = unsafe { slots(self.place, slot..slot + 1, self.unit) };
            Some((tags[0].offset(self.cut)?, content.cast_const()))
        })
    }

    /// The next page that anything was saved of, from the last one asked for on.
    pub(super) fn next_page(&mut self) -> Option<usize> {
        self.look();
        while let Some(block) = self.last.get(self.next / TOGETHER) {
            let rest = block.get(self.next % TOGETHER..).unwrap_or_default();
            match rest.iter().position(|&last| last != 0) {
                Some(at) => {
                    let page = self.next + at;
                    self.next = page + 1;
                    return Some(page);
                }
                None => self.next = (self.next / TOGETHER + 1) * TOGETHER,
            }
        }
        None
    }

    /// Whether anything of a page was saved.
    #[inline]
    pub(super) fn has(&mut self, page: usize) -> bool {
        self.look();
        self.of(page).next().is_some()
    }

    /// The lines of a page that were saved.
    #[inline]
    pub(super) fn lines(&mut self, page: usize) -> u64 {
        self.look();
        let many = if self.unit == PAGE { !0 } else { 1 };
        self.of(page)
            .fold(0, |lines, (offset, _)| lines | many << (offset % PAGE / LINE))
    }

    /// What was saved of a page, line by line.
    pub(super) fn each(&self, page: usize) -> impl Iterator<Item = (usize, &[u8])> {
        self.of(page).flat_map(|(offset, content)| {
            (0..self.unit / LINE).map(move |k| {
                // SAFETY: the slot's writer is done with it (`Tag::offset`), and slots are given out again
                // only after the next cut, which waits for the end of this sweep.
                let bytes = unsafe { std::slice::from_raw_parts(content.wrapping_add(k * LINE), LINE) };
                (offset % PAGE / LINE + k, bytes)
            })
        })
    }
}
