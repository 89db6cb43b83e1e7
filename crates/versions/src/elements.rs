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

#![allow(unsafe_code)]

use crate::error::Result;
use crate::format::{Blocks, Header, Kind, LAST_NUMBER, encode, number, place};
use crate::handover::{Batch, Collecting};
use crate::options::{self, File, Options, durable_word, persist, write_header};
use crate::pace::Owed;
use crate::persistence::{Engine, Planted, Shared, word};
use crate::recover::recover;
use crate::statistics::Statistics;
use crate::ticket::Ticket;
use crate::value::Value;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use twinpage_os::{Direct, Lock};

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
    /// Dropped first: it ends the thread.
    engine: Engine,
    header: Header,
    blocks: Blocks,
    base: *mut u8,
    work: Work,
    run_to_end: bool,
    _lock: Option<Lock>,
    _values: PhantomData<T>,
}

// SAFETY: the array is this value's alone, as a boxed slice would be; values are `Send`.
unsafe impl<T: Value, const N: usize> Send for Versions<T, N> {}
// SAFETY: through a shared reference it is only read.
unsafe impl<T: Value, const N: usize> Sync for Versions<T, N> {}

/// What the operation thread keeps.
#[derive(Debug)]
struct Work {
    collecting: Collecting,
    owed: Owed,
    /// The last update done.
    last: u64,
    /// The last update handed over.
    handed: u64,
    counts: Statistics,
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
        let durable = durable_word(&*file.direct, &file.path)?;
        recover(
            &*file.direct,
            &file.header,
            durable,
            &file.path,
            options.planted == Some(Planted::NumberNotErased),
        )?;
        let base = file.direct.base();
        let shared = Shared::new(file.direct, &file.path, durable, options.run, options.planted);
        let pace = options.pace.unwrap_or_default();
        Ok(Versions {
            engine: Engine::start(shared)?,
            blocks: Blocks::of(&file.header),
            header: file.header,
            base,
            work: Work {
                collecting: Collecting::default(),
                owed: Owed::new(pace),
                last: durable,
                handed: durable,
                counts: Statistics::default(),
                before: Vec::new(),
                bytes_before: Vec::new(),
                claimed: Vec::new(),
                earlier: 0,
            },
            run_to_end: pace != crate::Pace::Manual,
            _lock: file.lock,
            _values: PhantomData,
        })
    }

    /// Elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.header.count as usize
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.header.count == 0
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
        Ticket {
            shared: Arc::clone(&self.engine.shared),
            number: self.work.last,
        }
    }

    /// Makes all updates so far durable, and returns when they are.
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error::Poisoned) after a failed flush.
    pub fn durable(&self) -> Result<()> {
        self.engine.shared.sound()?;
        self.engine.shared.wait(self.work.last)
    }

    /// Makes the array `count` elements long, if it is shorter: `first` says what the new ones are. All updates so far
    /// are durable then, too.
    ///
    /// # Errors
    /// When there is no room; the array is as it was. [`Error::Poisoned`](crate::Error::Poisoned) after a failed flush.
    pub fn reserve(&mut self, count: usize, mut first: impl FnMut(usize) -> T) -> Result<()> {
        self.durable()?;
        let larger = Header {
            count: count as u64,
            generation: self.header.generation + 1,
            ..self.header.clone()
        };
        if larger.count <= self.header.count {
            return Ok(());
        }
        let shared = Arc::clone(&self.engine.shared);
        let direct = shared.direct();
        direct.grow(larger.file_bytes())?;
        fill::<T, N>(direct, &larger, self.header.count, &mut first);
        let written = direct
            .fence()
            .map_err(crate::Error::from)
            .and_then(|()| write_header(direct, &larger));
        if let Err(error) = written {
            shared.poison(&error);
            return Err(error);
        }
        self.header = larger;
        Ok(())
    }

    /// Copies the array, as of the last update, to the new file `to`, which is then one like any other. Says of which update it
    /// is.
    ///
    /// # Errors
    /// As `durable`; when there is such a file; those of the file systems.
    pub fn backup(&mut self, to: impl AsRef<Path>) -> Result<u64> {
        self.durable()?;
        let shared = &self.engine.shared;
        crate::look::copy(shared.path(), to.as_ref())?;
        Ok(shared.durable())
    }

    /// What was done since the array was opened.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let shared = &self.engine.shared;
        let (persists, updates) = (shared.persists(), self.work.counts.updates);
        Statistics {
            persists,
            threshold: persists as f64 / updates.max(1) as f64,
            durable: shared.durable(),
            medium: shared.direct().counts(),
            ..self.work.counts
        }
    }

    /// What a test drives the persister by.
    #[cfg(any(test, feature = "faults"))]
    #[must_use]
    pub fn stepper(&self) -> crate::Stepper {
        crate::Stepper(Arc::clone(&self.engine.shared))
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

impl<T: Value, const N: usize> Drop for Versions<T, N> {
    fn drop(&mut self) {
        if self.run_to_end && self.engine.shared.sound().is_ok() {
            // `durable` is there for those who must know.
            let _ = self.durable();
        }
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
        let work = &mut array.work;
        if work.collecting.begin(&array.engine.shared.handover) {
            work.handed = work.last;
            work.owed.pay();
        }
        work.earlier = work.collecting.batch(&array.engine.shared.handover).ranges.len();
        let number = work.last + 1;
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
        // SAFETY: the operating version, which only this update reaches.
        unsafe { to.write(value) };
    }

    /// An element, to be changed where it is. Its newest value is copied, unless it was changed before and not
    /// handed over since.
    ///
    /// # Panics
    /// As [`Update::get`].
    pub fn get_mut(&mut self, index: usize) -> &mut T {
        let (from, to) = self.claim(index);
        // SAFETY: two versions do not overlap; the operating one is only reached through `self`.
        unsafe {
            if !std::ptr::eq(from, to) {
                to.copy_from_nonoverlapping(from, 1);
                self.array.work.counts.copied_bytes += size_of::<T>() as u64;
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
        // SAFETY: versions of two elements of the array; those written are operating ones, which only this update
        // reaches. Where one is changed in place, its old value is read first.
        unsafe {
            if std::ptr::eq(from_a, to_a) {
                let value = *from_a;
                to_a.copy_from_nonoverlapping(from_b, 1);
                to_b.write(value);
            } else {
                // `from_a` is not written, whichever `to_b` is.
                let in_place = std::ptr::eq(from_b, to_b);
                to_a.copy_from_nonoverlapping(from_b, 1);
                debug_assert!(!in_place || !std::ptr::eq(to_b, from_a));
                to_b.copy_from_nonoverlapping(from_a, 1);
            }
        }
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
        let raw = encode(self.number, place(index as u64, free));
        self.array.numbers(index)[free].store(raw, Ordering::Relaxed);
        fence(Ordering::Release);
        let value = self.array.blocks.value(index as u64, free);
        let array = &mut *self.array;
        array.work.claimed.push(at);
        let batch = array.work.collecting.batch(&array.engine.shared.handover);
        batch.ranges.push(value..value + size_of::<T>() as u64);
        batch.ranges.push(at..at + 8);
        array.engine.shared.stored(at..at + 8);
        (self.array.value(index, newest), self.array.value(index, free))
    }

    /// The version that no durable state needs. `found` is the newest number.
    fn free(&mut self, index: usize, found: u64) -> usize {
        let shared = &self.array.engine.shared;
        let planted = shared.planted == Some(Planted::ReusedTooEarly);
        if N == 2 && found > shared.durable() && !planted {
            self.array.work.counts.version_waits += 1;
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
        let slot = &array.numbers(index)[version];
        let raw = slot.load(Ordering::Relaxed);
        slot.store(
            encode(self.number, place(index as u64, version)),
            Ordering::Relaxed,
        );
        array.engine.shared.stored(at..at + 8);
        // SAFETY: a version of an element, which nobody changes now.
        let bytes = unsafe { std::slice::from_raw_parts(array.base.add(value as usize), size_of::<T>()) };
        array.work.bytes_before.extend_from_slice(bytes);
        array.work.before.push(Before {
            numbers: at,
            raw,
            value,
        });
        array.work.counts.in_place += 1;
    }

    /// Takes back all that the update changed. Numbers it stored may be on the medium already, so their erasure goes
    /// with the batch; the values do not, as their versions are free again.
    fn roll_back(&mut self) {
        let array = &mut *self.array;
        let shared = &array.engine.shared;
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
        }
        if shared.planted == Some(Planted::PanickedNumberStays) {
            return;
        }
        let work = &mut array.work;
        let batch = work.collecting.batch(&shared.handover);
        batch.ranges.truncate(work.earlier);
        for at in work.claimed.drain(..) {
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
            self.array.work.last = self.number;
            self.array.work.counts.updates += 1;
            self.array.work.owed.add();
        }
        let array = &mut *self.array;
        let work = &mut array.work;
        work.before.clear();
        work.bytes_before.clear();
        work.claimed.clear();
        let shared = &array.engine.shared;
        let Batch { ranges, number, word } = work.collecting.batch(&shared.handover);
        *number = work.last;
        *word = encode(work.last, crate::format::WORD_PLACE);
        let is_empty = ranges.is_empty();
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
        let due = work.owed.is_due();
        if work.collecting.end(&shared.handover, due) {
            work.handed = work.last;
            work.owed.pay();
        }
        shared.offered(due);
        if work.owed.is_late() && shared.durable() < work.handed {
            work.counts.pace_waits += 1;
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
