//! Arrays of elements, each with two or three versions in place (MSS, 3.1).
//!
//! ```text
//!   numbers of element i   | 17 | 12 | 21 |   durable word: 17, handed over: 19
//!   its versions            v0   v1   v2      v0 is persistent, v2 operating, v1 free
//! ```
//!
//! * A version is the **persistent** one when its number is the highest not above the durable word; **in flight**
//!   when its number is above the word and was handed over; **operating** when it was not handed over yet.
//! * An update changes the operating version of an element, and makes one of the oldest version when there is none.
//! * With three versions the oldest is never persistent and never in flight, as one batch at a time is. With two it
//!   is persistent while the other is in flight: the update waits (Figure 3b).
//! * A number is stored before the value it is for, so a reader that sees a number unchanged has read one value.
//! * Where values are stored past the caches ([`Direct::streams`]), numbers are too, and the operation thread drains
//!   both before the update ends: a fence orders only the stores of its own thread.

#![allow(unsafe_code)]

use crate::error::Result;
use crate::fault::Planted;
use crate::format::{Blocks, Header, Kind, LAST_NUMBER, WORD, encode, number, place};
use crate::handover::Batch;
use crate::opened::Opened;
use crate::options::{self, File, Options};
use crate::persistence::Shared;
use crate::recover::recover;
use crate::statistics::Statistics;
use crate::ticket::Ticket;
use crate::value::Value;
use crate::words::{durable_word, persist, word};
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use twinpage_os::Direct;

/// An array of `T` with `N` versions of each element: 2, or 3 where an update must never wait for the one before.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("strings.twin");
/// use twinpage_versions::Versions;
///
/// let mut strings = Versions::<[u8; 256], 3>::open(&path, 1000, |index| [index as u8; 256])?;
/// strings.update(|update| update.swap(3, 700)); // both or neither, after any crash
/// strings.durable()?;
/// drop(strings);
///
/// let strings = Versions::<[u8; 256], 3>::open(&path, 1000, |_| unreachable!("it is there"))?;
/// assert_eq!(strings.get(3)[0], 700_u32 as u8);
/// # Ok::<(), twinpage_versions::Error>(())
/// ```
#[derive(Debug)]
pub struct Versions<T: Value, const N: usize = 3> {
    opened: Opened,
    blocks: Blocks,
    base: *mut u8,
    /// Values that an update replaces are stored past the caches.
    streams: bool,
    work: Work,
    _values: PhantomData<T>,
}

// SAFETY: the array is this value's alone, as a boxed slice would be; values are `Send`.
unsafe impl<T: Value, const N: usize> Send for Versions<T, N> {}
// SAFETY: through a shared reference it is only read.
unsafe impl<T: Value, const N: usize> Sync for Versions<T, N> {}

/// What the operation thread keeps.
#[derive(Debug, Default)]
struct Work {
    /// The last update handed over.
    handed: u64,
    /// What operating versions held before the update that is running changed them again.
    before: Vec<Before>,
    bytes_before: Vec<u8>,
    /// The numbers of versions that the running update claimed.
    claimed: Vec<u64>,
    /// Ranges of the batch that are of earlier updates.
    earlier: usize,
}

#[derive(Debug)]
struct Before {
    numbers: u64,
    raw: u64,
    value: u64,
}

impl<T: Value, const N: usize> Versions<T, N> {
    const POSSIBLE: () = assert!(
        (N == 2 || N == 3) && size_of::<T>() > 0 && align_of::<T>() <= 4096,
        "an element has two or three versions of at least a byte"
    );

    /// Opens the array in the file `path`, and makes it with `count` elements if there is none: `first` says what
    /// they are.
    ///
    /// # Errors
    /// [`Error::Locked`](crate::Error::Locked) when it is open elsewhere, [`Error::Other`](crate::Error::Other) when it
    /// holds another type or number of elements, those of the store when the file is damaged, is something
    /// else, or there is no room for all of it.
    pub fn open(path: impl AsRef<Path>, count: usize, first: impl FnMut(usize) -> T) -> Result<Self> {
        Versions::open_with(&Options::new(), path, count, first)
    }

    /// As [`Versions::open`], with options.
    ///
    /// # Errors
    /// As [`Versions::open`].
    pub fn open_with(
        options: &Options,
        path: impl AsRef<Path>,
        count: usize,
        mut first: impl FnMut(usize) -> T,
    ) -> Result<Self> {
        let wanted = Self::wanted(options, count);
        let file = options::open(options, path.as_ref(), &wanted, &mut |direct, header| {
            fill::<T, N>(direct, header, 0, &mut first);
        })?;
        Self::begin(options, file)
    }

    /// As [`Versions::open_with`], on a medium of one's own.
    ///
    /// # Errors
    /// As [`Versions::open`].
    pub fn open_on(
        options: &Options,
        direct: Arc<dyn Direct>,
        count: usize,
        mut first: impl FnMut(usize) -> T,
    ) -> Result<Self> {
        let wanted = Self::wanted(options, count);
        let file = options::open_on(direct, &wanted, &mut |direct, header| {
            fill::<T, N>(direct, header, 0, &mut first);
        })?;
        Self::begin(options, file)
    }

    fn wanted(options: &Options, count: usize) -> Header {
        let () = Self::POSSIBLE;
        Header::of::<T>(Kind::Elements, N, count as u64, options.per_block)
    }

    fn begin(options: &Options, file: File) -> Result<Self> {
        let durable = durable_word(&*file.direct, WORD, &file.path)?;
        recover(
            &*file.direct,
            &file.header,
            durable,
            &file.path,
            options.planted == Some(Planted::NumberNotErased),
        )?;
        let (base, streams) = (file.direct.base(), file.direct.streams());
        let shared = Shared::new(file.direct, &file.path, durable, options.run, options.planted);
        let pace = options.pace.unwrap_or_default();
        Ok(Versions {
            blocks: Blocks::of(&file.header),
            opened: Opened::begin(shared, file.header, file.lock, pace)?,
            base,
            streams,
            work: Work {
                handed: durable,
                ..Work::default()
            },
            _values: PhantomData,
        })
    }

    /// Elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.opened.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The newest value of an element, durable or not.
    ///
    /// # Panics
    /// When `index` is not below [`Versions::len`].
    #[must_use]
    pub fn get(&self, index: usize) -> &T {
        let (version, _) = self.newest(index);
        // SAFETY: a version of an element of the array; it holds a value since it was numbered; it changes through
        // `&mut self` only.
        unsafe { &*self.value(index, version) }
    }

    /// Runs `change`. After any crash all that it changed is there, or nothing. If it panics, nothing is.
    ///
    /// # Panics
    /// When `change` does; with two versions also when one must be waited for that cannot become durable any more
    /// ([`Error::Poisoned`](crate::Error::Poisoned)).
    pub fn update<R>(&mut self, change: impl FnOnce(&mut Update<'_, T, N>) -> R) -> R {
        let mut update = Update::begin(self);
        let result = change(&mut update);
        update.is_whole = true;
        drop(update);
        result
    }

    /// A claim on the durability of all updates so far.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        self.opened.ticket()
    }

    /// Makes all updates so far durable, and returns when they are.
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error::Poisoned) after a failed flush.
    pub fn durable(&self) -> Result<()> {
        self.opened.durable()
    }

    /// Makes the array `count` elements long, if it is shorter: `first` says what the new ones are. All updates so far
    /// are durable then, too.
    ///
    /// # Errors
    /// When there is no room; the array is as it was. [`Error::Poisoned`](crate::Error::Poisoned) after a failed flush.
    pub fn reserve(&mut self, count: usize, mut first: impl FnMut(usize) -> T) -> Result<()> {
        self.durable()?;
        let before = self.opened.header.count;
        let larger = Header {
            count: count as u64,
            generation: self.opened.header.generation + 1,
            ..self.opened.header.clone()
        };
        if larger.count <= before {
            return Ok(());
        }
        let header = larger.clone();
        self.opened.grow(larger, |direct| {
            fill::<T, N>(direct, &header, before, &mut first);
        })
    }

    /// Copies the array, as of the last update, to the new file `to`, which is then one like any other. Says of which update it
    /// is.
    ///
    /// # Errors
    /// As `durable`; when there is such a file; those of the file systems.
    pub fn backup(&mut self, to: impl AsRef<Path>) -> Result<u64> {
        self.opened.backup(to.as_ref())
    }

    /// What was done since the array was opened.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.opened.statistics()
    }

    /// What a test drives the persister by.
    #[cfg(any(test, feature = "faults"))]
    #[must_use]
    pub fn stepper(&self) -> crate::persistence::Stepper {
        crate::persistence::Stepper(Arc::clone(self.opened.shared()))
    }

    /// Where a version of an element is.
    #[inline]
    fn value(&self, index: usize, version: usize) -> *mut T {
        // SAFETY: inside the file, which has room for all versions of all elements.
        unsafe {
            self.base
                .add(self.blocks.value(index as u64, version) as usize)
                .cast()
        }
    }

    /// The numbers of an element's versions.
    #[inline]
    fn numbers(&self, index: usize) -> &[AtomicU64; N] {
        assert!(index < self.len(), "element {index} of {}", self.len());
        // SAFETY: aligned words inside the file, only reached as atomics.
        unsafe { &*self.base.add(self.blocks.numbers(index as u64) as usize).cast() }
    }

    /// Where in the file a version is.
    fn offset(&self, version: *mut T) -> u64 {
        (version.addr() - self.base.addr()) as u64
    }

    /// Stores the number of a version.
    #[inline]
    fn set_number(&self, index: usize, version: usize, number: u64) {
        let raw = encode(number, place(index as u64, version));
        let (shared, at) = (
            self.opened.shared(),
            self.blocks.numbers(index as u64) + 8 * version as u64,
        );
        if self.streams {
            let _ = self.numbers(index);
            // SAFETY: a word of an element there is, which others read as an atomic; no aligned word tears.
            unsafe { shared.direct().stream(at, &raw.to_ne_bytes()) };
        } else {
            self.numbers(index)[version].store(raw, Ordering::Relaxed);
            shared.stored(at..at + 8);
        }
    }

    /// The newest version of an element, and its number.
    #[inline]
    fn newest(&self, index: usize) -> (usize, u64) {
        let raw = self
            .numbers(index)
            .each_ref()
            .map(|raw| number(raw.load(Ordering::Relaxed)));
        let mut newest = 0;
        for version in 1..N {
            if raw[version] > raw[newest] {
                newest = version;
            }
        }
        (newest, raw[newest])
    }

    #[inline]
    fn oldest(&self, index: usize) -> usize {
        let raw = self
            .numbers(index)
            .each_ref()
            .map(|raw| number(raw.load(Ordering::Relaxed)));
        let mut oldest = 0;
        for version in 1..N {
            if raw[version] < raw[oldest] {
                oldest = version;
            }
        }
        oldest
    }
}

/// A running update. See [`Versions::update`].
#[derive(Debug)]
pub struct Update<'a, T: Value, const N: usize> {
    array: &'a mut Versions<T, N>,
    number: u64,
    is_whole: bool,
}

impl<'a, T: Value, const N: usize> Update<'a, T, N> {
    fn begin(array: &'a mut Versions<T, N>) -> Self {
        let (work, opened) = (&mut array.work, &mut array.opened);
        if opened.collecting.begin(&opened.engine.shared.handover) {
            work.handed = opened.last;
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
            let at = self.array.offset(to);
            self.batch().ranges.push(at..at + size_of::<T>() as u64);
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
            batch.ranges.push(value..value + size_of::<T>() as u64);
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
            batch.ranges.truncate(array.work.earlier);
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
                batch
                    .ranges
                    .push(before.value..before.value + size_of::<T>() as u64);
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
            work.handed = opened.last;
            opened.owed.pay();
        }
        shared.offered(due);
        if opened.owed.is_late() && shared.durable() < work.handed {
            opened.counts.pace_waits += 1;
            // A failure is told by `durable` and by tickets.
            let _ = shared.wait(work.handed);
        }
    }
}

/// Stores what elements from `from` on are, as of the first update.
fn fill<T: Value, const N: usize>(
    direct: &dyn Direct,
    header: &Header,
    from: u64,
    first: &mut dyn FnMut(usize) -> T,
) {
    let blocks = Blocks::of(header);
    for index in from..header.count {
        let value = blocks.value(index, 0);
        // SAFETY: inside the file; no update and no reader knows of the element yet.
        unsafe {
            direct
                .base()
                .add(value as usize)
                .cast::<T>()
                .write(first(index as usize))
        };
        persist(direct, value, size_of::<T>() as u64);
        for version in 0..N {
            let raw = match version {
                0 => encode(1, place(index, 0)),
                _ => 0,
            };
            word(direct, blocks.numbers(index) + 8 * version as u64).store(raw, Ordering::Relaxed);
        }
        persist(direct, blocks.numbers(index), 8 * N as u64);
    }
}
