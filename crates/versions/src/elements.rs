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

mod update;

pub use update::Update;

use crate::error::Result;
use crate::fault::Planted;
use crate::format::{Blocks, Header, Kind, WORD, encode, number, place};
use crate::opened::Opened;
use crate::options::{self, File, Options};
use crate::persistence::Shared;
use crate::recover::recover;
use crate::statistics::Statistics;
use crate::ticket::Ticket;
use crate::value::Value;
use crate::words::{durable_word, persist, word};
use std::collections::HashSet;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use twinpage_core::Offset;
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
    /// Where values are stored past the caches: those that the batch writes back, as they were changed in place.
    listed: HashSet<Offset>,
}

impl Work {
    /// The batch was handed over, with update `last` as its last one: the next is empty.
    fn passed_on(&mut self, last: u64) {
        self.handed = last;
        self.listed.clear();
    }
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
    /// are durable then, too. The next opening is to ask for that many: `look` tells how many a file has.
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
        larger.check_possible(self.opened.shared().path())?;
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
