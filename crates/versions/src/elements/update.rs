//! A running update of an array of elements.
//!
//! * It claims a version of each element that it changes, numbers it, and lists it in the batch for the persistence
//!   thread.
//! * Whole, it counts; else all that it changed is taken back, the numbers on the medium included.

use super::{Before, Versions};
use crate::fault::Planted;
use crate::format::{LAST_NUMBER, encode};
use crate::handover::Batch;
use crate::value::Value;
use crate::words::word;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};
use twinpage_core::Offset;

/// A running update. See [`Versions::update`].
#[derive(Debug)]
pub struct Update<'a, T: Value, const N: usize> {
    array: &'a mut Versions<T, N>,
    number: u64,
    pub(super) is_whole: bool,
}

impl<'a, T: Value, const N: usize> Update<'a, T, N> {
    pub(super) fn begin(array: &'a mut Versions<T, N>) -> Self {
        let (work, opened) = (&mut array.work, &mut array.opened);
        if opened.collecting.begin(&opened.engine.shared.handover) {
            work.passed_on(opened.last);
            opened.owed.pay();
        }
        let batch = opened.collecting.batch(&opened.engine.shared.handover);
        work.earlier = batch.ranges.len();
        let number = opened.last + 1;
        assert!(number <= LAST_NUMBER, "an array has at most 2^48 updates");
        Update {
            array,
            number,
            is_whole: false,
        }
    }

    /// Elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.array.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.array.is_empty()
    }

    /// The newest value of an element, as this update sees it.
    ///
    /// # Panics
    /// When `index` is not below the array's length.
    #[must_use]
    pub fn get(&self, index: usize) -> &T {
        self.array.get(index)
    }

    /// Replaces an element. What it held is not read.
    ///
    /// # Panics
    /// As [`Update::get`].
    pub fn set(&mut self, index: usize, value: T) {
        let (_, to) = self.claim(index);
        self.drain();
        // SAFETY: the operating version, which only this update reaches.
        unsafe { self.put(to, &value) };
        self.drain();
    }

    /// An element, to be changed where it is. Its newest value is copied, unless it was changed before and not
    /// handed over since.
    ///
    /// # Panics
    /// As [`Update::get`].
    pub fn get_mut(&mut self, index: usize) -> &mut T {
        let (from, to) = self.claim(index);
        if self.array.streams {
            // What the caller stores is written back with the batch.
            self.list(self.array.offset(to));
            self.drain();
        }
        // SAFETY: two versions do not overlap; the operating one is only reached through `self`.
        unsafe {
            if !std::ptr::eq(from, to) {
                to.copy_from_nonoverlapping(from, 1);
                self.array.opened.counts.copied_bytes += size_of::<T>() as u64;
            }
            &mut *to
        }
    }

    /// Swaps two elements: each value is written once.
    ///
    /// # Panics
    /// As [`Update::get`].
    pub fn swap(&mut self, a: usize, b: usize) {
        if a == b {
            let _ = self.array.numbers(a);
            return;
        }
        let ((from_a, to_a), (from_b, to_b)) = (self.claim(a), self.claim(b));
        self.drain();
        // SAFETY: versions of two elements of the array; those written are operating ones, which only this update
        // reaches.
        unsafe {
            let (value_a, value_b) = (*from_a, *from_b);
            self.put(to_a, &value_b);
            self.put(to_b, &value_a);
        }
        self.drain();
    }

    /// Stores a value.
    ///
    /// # Safety
    /// `to` is an operating version of this array, and `value` is not part of it.
    #[inline]
    unsafe fn put(&self, to: *mut T, value: &T) {
        if self.array.streams {
            let at = self.array.offset(to);
            // SAFETY: a version inside the file, drained before the update goes on.
            unsafe { self.array.opened.shared().direct().stream(at, value.as_bytes()) };
        } else {
            // SAFETY: the caller's.
            unsafe { to.copy_from_nonoverlapping(value, 1) };
        }
    }

    /// What was stored past the caches comes before what follows.
    #[inline]
    fn drain(&self) {
        if self.array.streams {
            self.array.opened.shared().direct().drain();
        }
    }

    /// The value at `at` is written back with the batch, however often that is asked for.
    fn list(&mut self, at: Offset) {
        if self.array.work.listed.insert(at) {
            self.batch().ranges.push(value_range::<T>(at));
        }
    }

    fn batch(&mut self) -> &mut Batch {
        let opened = &mut self.array.opened;
        opened.collecting.batch(&opened.engine.shared.handover)
    }

    /// The newest version of an element and the operating one, made if there is none: the same where the element
    /// was changed before and not handed over since.
    #[inline]
    fn claim(&mut self, index: usize) -> (*const T, *mut T) {
        let (newest, found) = self.array.newest(index);
        if found > self.array.work.handed {
            if found < self.number {
                self.change_again(index, newest);
            }
            let at = self.array.value(index, newest);
            return (at, at);
        }
        let free = self.free(index, found);
        let at = self.array.blocks.numbers(index as u64) + 8 * free as u64;
        self.array.set_number(index, free, self.number);
        fence(Ordering::Release);
        let value = self.array.blocks.value(index as u64, free);
        self.array.work.claimed.push(at);
        if !self.array.streams {
            let batch = self.batch();
            batch.ranges.push(value_range::<T>(value));
            batch.ranges.push(at..at + 8);
        }
        (self.array.value(index, newest), self.array.value(index, free))
    }

    /// The version that no durable state needs. `found` is the newest number.
    fn free(&mut self, index: usize, found: u64) -> usize {
        let shared = &self.array.opened.engine.shared;
        let planted = shared.planted == Some(Planted::ReusedTooEarly);
        if N == 2 && found > shared.durable() && !planted {
            self.array.opened.counts.version_waits += 1;
            if let Err(error) = shared.wait(found) {
                panic!("{error}");
            }
        }
        let oldest = self.array.oldest(index);
        if planted && N == 3 {
            let (newest, _) = self.array.newest(index);
            return 3 - oldest - newest;
        }
        oldest
    }

    /// An earlier update changed the element, and it was not handed over: what it holds is kept until this update is
    /// whole.
    fn change_again(&mut self, index: usize, version: usize) {
        let array = &mut *self.array;
        let value = array.blocks.value(index as u64, version);
        let at = array.blocks.numbers(index as u64) + 8 * version as u64;
        let raw = array.numbers(index)[version].load(Ordering::Relaxed);
        array.set_number(index, version, self.number);
        // SAFETY: a version of an element, which does not change now.
        let bytes = unsafe { std::slice::from_raw_parts(array.base.add(value as usize), size_of::<T>()) };
        array.work.bytes_before.extend_from_slice(bytes);
        array.work.before.push(Before {
            numbers: at,
            raw,
            value,
        });
        array.opened.counts.in_place += 1;
    }

    /// Takes back all that the update changed. Numbers it stored may be on the medium already, so their erasure goes
    /// with the batch; the values do not, as their versions are free again.
    fn roll_back(&mut self) {
        let array = &mut *self.array;
        let shared = &array.opened.engine.shared;
        let batch = array.opened.collecting.batch(&shared.handover);
        if shared.planted != Some(Planted::PanickedNumberStays) {
            for range in batch.ranges.drain(array.work.earlier..) {
                array.work.listed.remove(&range.start);
            }
        }
        for before in array.work.before.drain(..).rev() {
            let at = array.work.bytes_before.len() - size_of::<T>();
            let bytes = array.work.bytes_before.split_off(at);
            // SAFETY: the operating version, as `change_again` found it.
            unsafe {
                let to = array.base.add(before.value as usize);
                to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            }
            word(shared.direct(), before.numbers).store(before.raw, Ordering::Relaxed);
            shared.stored(before.numbers..before.numbers + 8);
            if array.streams {
                // What the earlier update streamed is not written back by its batch.
                batch.ranges.push(value_range::<T>(before.value));
                batch.ranges.push(before.numbers..before.numbers + 8);
            }
        }
        if shared.planted == Some(Planted::PanickedNumberStays) {
            return;
        }
        for at in array.work.claimed.drain(..) {
            word(shared.direct(), at).store(0, Ordering::Relaxed);
            shared.stored(at..at + 8);
            batch.ranges.push(at..at + 8);
        }
    }
}

/// Where the value at `at` is.
fn value_range<T>(at: Offset) -> Range<Offset> {
    at..at + size_of::<T>() as u64
}

impl<T: Value, const N: usize> Drop for Update<'_, T, N> {
    /// The end of an update: a whole one counts, another is taken back; the batch is offered.
    fn drop(&mut self) {
        let changed = !self.array.work.claimed.is_empty() || !self.array.work.before.is_empty();
        if !self.is_whole {
            self.roll_back();
        } else if changed {
            let opened = &mut self.array.opened;
            opened.last = self.number;
            opened.counts.updates += 1;
            opened.owed.add();
        }
        let array = &mut *self.array;
        let (work, opened) = (&mut array.work, &mut array.opened);
        work.before.clear();
        work.bytes_before.clear();
        work.claimed.clear();
        let shared = &opened.engine.shared;
        let Batch { ranges, number, word } = opened.collecting.batch(&shared.handover);
        *number = opened.last;
        *word = encode(opened.last, crate::format::WORD_PLACE);
        let is_empty = ranges.is_empty() && opened.last == work.handed;
        if shared.planted == Some(Planted::FlushedWhileWritten) {
            ranges
                .iter()
                .for_each(|range| shared.direct().write_back(range.clone()));
        }
        if shared.direct().is_watched() {
            ranges.iter().for_each(|range| shared.stored(range.clone()));
        }
        if is_empty {
            // Nothing to hand over: the batch stays this side's.
            return;
        }
        let due = opened.owed.is_due();
        if opened.collecting.end(&shared.handover, due) {
            work.passed_on(opened.last);
            opened.owed.pay();
        }
        shared.offered(due);
        // What is offered is waited for as well: between two batches the other thread may not run for long.
        if opened.owed.is_late() && shared.durable() < opened.last {
            opened.counts.pace_waits += 1;
            // A failure is told by `durable` and by tickets.
            let _ = shared.wait(opened.last);
        }
    }
}
