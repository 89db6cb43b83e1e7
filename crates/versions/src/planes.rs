//! Arrays that are rewritten whole in every step, in two or three planes.
//!
//! ```text
//!   plane 0 | step 6 |   persistent: the durable word names it
//!   plane 1 | step 7 |   newest, on its way to the medium
//!   plane 2 | step 8 |   being computed from plane 1, meanwhile
//! ```
//!
//! * A step reads the newest plane and writes one that is neither the newest, nor persistent, nor in flight. With two
//!   planes that is one only when the step before is durable.
//! * The word says which step is durable and in which plane, so a step is there whole or not at all, and opening reads
//!   no plane.
//! * On memory and persistent memory the planes are the file itself. On a disk they are memory, and a plane is
//!   written to the file in order, with a seal instead of a word, so that one flush makes a step durable (`seal.rs`).

#![allow(unsafe_code)]

use crate::error::Result;
use crate::fault::Planted;
use crate::format::{GRAIN, Header, Kind, WORD_PLACE, encode};
use crate::opened::Opened;
use crate::options::{self, File, Options};
use crate::pace::Pace;
use crate::persistence::Shared;
use crate::seal;
use crate::statistics::Statistics;
use crate::ticket::Ticket;
use crate::value::Value;
use crate::words::{no_such_plane, persist, plane_range, step_of, step_word};
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use twinpage_os::Direct;

/// An array of `T` in `N` planes: 2, or 3 where the next step is computed while one is on its way to the medium.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("field.twin");
/// use twinpage_versions::Planes;
///
/// let mut field = Planes::<f64, 3>::open(&path, 1000)?; // zeros
/// for step in field.steps_done()..10 {
///     field.step(|old, new| {
///         for (new, old) in new.iter_mut().zip(old) {
///             *new = old + step as f64;
///         }
///     })?;
/// }
/// field.durable()?;
/// assert_eq!(field.newest()[0], 45.0);
/// # Ok::<(), twinpage_versions::Error>(())
/// ```
#[derive(Debug)]
pub struct Planes<T: Value, const N: usize = 3> {
    opened: Opened,
    newest: usize,
    persistent: usize,
    /// The plane that was handed over and not seen durable yet, and its step.
    in_flight: Option<(usize, u64)>,
    _values: PhantomData<T>,
}

impl<T: Value, const N: usize> Planes<T, N> {
    const POSSIBLE: () = assert!(
        (N == 2 || N == 3) && size_of::<T>() > 0 && align_of::<T>() <= 4096,
        "there are two or three planes of values of at least a byte"
    );

    /// Opens the planes in the file `path`, and makes them with `count` values of zero if there is none.
    ///
    /// # Errors
    /// As [`Versions::open`](crate::Versions::open).
    pub fn open(path: impl AsRef<Path>, count: usize) -> Result<Self> {
        Planes::open_with(&Options::new(), path, count)
    }

    /// As [`Planes::open`], with options.
    ///
    /// # Errors
    /// As [`Planes::open`].
    pub fn open_with(options: &Options, path: impl AsRef<Path>, count: usize) -> Result<Self> {
        let wanted = Self::wanted(count);
        let file = options::open(options, path.as_ref(), &wanted, &mut |_, _| ())?;
        Self::begin(options, file)
    }

    /// As [`Planes::open_with`], on a medium of one's own.
    ///
    /// # Errors
    /// As [`Planes::open`].
    pub fn open_on(options: &Options, direct: Arc<dyn Direct>, count: usize) -> Result<Self> {
        let file = options::open_on(direct, &Self::wanted(count), &mut |_, _| ())?;
        Self::begin(options, file)
    }

    fn wanted(count: usize) -> Header {
        let () = Self::POSSIBLE;
        Header::of::<T>(Kind::Planes, N, count as u64, None)
    }

    fn begin(options: &Options, file: File) -> Result<Self> {
        let unverified = options.planted == Some(Planted::SealBelieved);
        let word = seal::recover(&*file.direct, &file.header, &file.path, unverified)?;
        let (step, plane) = step_of(word);
        if word >> 2 == 0 || plane >= N {
            return Err(no_such_plane(&file.path, plane).into());
        }
        let header = file.header;
        file.direct.load(plane_range(&header, plane))?;
        crate::recover::confirm(&*file.direct);
        let seals = header.version > 1 && file.direct.fence_is_flush();
        let mut shared = Shared::new(file.direct, &file.path, step, options.run, options.planted);
        shared.seals = seals;
        let pace = options.pace.unwrap_or(Pace::Immediate);
        Ok(Planes {
            opened: Opened::begin(shared, header, file.lock, pace)?,
            newest: plane,
            persistent: plane,
            in_flight: None,
            _values: PhantomData,
        })
    }

    /// Values of a plane.
    #[must_use]
    pub fn len(&self) -> usize {
        self.opened.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Steps done since the planes were made, durable or not.
    #[must_use]
    pub fn steps_done(&self) -> u64 {
        self.opened.last
    }

    /// What the last step made.
    #[must_use]
    pub fn newest(&self) -> &[T] {
        let at = self.plane(self.newest);
        // SAFETY: a plane of values, which changes through `&mut self` only, and not while it is the newest.
        unsafe { std::slice::from_raw_parts(at, self.len()) }
    }

    /// Does a step: `compute` reads what the step before made and writes every value; what it leaves is what some
    /// earlier step made. After any crash the step is there whole, or not at all; if `compute` panics, it is not.
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error::Poisoned) after a failed flush, when no plane is free any more.
    pub fn step<R>(&mut self, compute: impl FnOnce(&[T], &mut [T]) -> R) -> Result<R> {
        let to = self.free()?;
        let result = {
            // SAFETY: two planes that do not overlap. The newest is not written by anybody; the other is neither
            // persistent nor in flight, and is reached by this borrow only.
            let (old, new) = unsafe {
                (
                    std::slice::from_raw_parts(self.plane(self.newest).cast_const(), self.len()),
                    std::slice::from_raw_parts_mut(self.plane(to), self.len()),
                )
            };
            catch_unwind(AssertUnwindSafe(|| compute(old, new)))
        };
        match result {
            Ok(result) => {
                self.done(to);
                Ok(result)
            }
            Err(panic) => {
                self.offer();
                resume_unwind(panic)
            }
        }
    }

    /// Does a step that changes only `range`: `compute` gets that part of the new plane. The rest is copied.
    ///
    /// # Errors
    /// As [`Planes::step`].
    ///
    /// # Panics
    /// When `range` is not inside the array.
    pub fn step_range<R>(
        &mut self,
        range: Range<usize>,
        compute: impl FnOnce(&[T], &mut [T]) -> R,
    ) -> Result<R> {
        assert!(
            range.start <= range.end && range.end <= self.len(),
            "{range:?} of {} values",
            self.len()
        );
        let copied = (self.len() - range.len()) * size_of::<T>();
        let result = self.step(|old, new| {
            new[..range.start].copy_from_slice(&old[..range.start]);
            new[range.end..].copy_from_slice(&old[range.end..]);
            compute(old, &mut new[range])
        })?;
        self.opened.counts.copied_bytes += copied as u64;
        Ok(result)
    }

    /// A claim on the durability of all steps so far.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        self.opened.ticket()
    }

    /// Makes all steps so far durable, and returns when they are.
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error::Poisoned) after a failed flush.
    pub fn durable(&self) -> Result<()> {
        self.opened.durable()
    }

    /// Makes the planes `count` values long, if they are shorter; new values are zero. All steps so far are durable
    /// then, too. The next opening is to ask for that many: `look` tells how many a file has.
    ///
    /// # Errors
    /// When there is no room; the planes are as they were. [`Error::Poisoned`](crate::Error::Poisoned) after a failed
    /// flush.
    pub fn reserve(&mut self, count: usize) -> Result<()> {
        self.durable()?;
        self.see_durable();
        let old = self.opened.header.clone();
        if count as u64 <= old.count {
            return Ok(());
        }
        let larger = Header {
            first: self.opened.shared().direct().len().next_multiple_of(GRAIN),
            generation: old.generation + 1,
            ..Self::wanted(count)
        };
        larger.check_possible(self.opened.shared().path())?;
        let unused = old.first..larger.first;
        // The same plane, so that the durable word goes on speaking of it.
        let (from, to) = (plane_range(&old, self.newest), plane_range(&larger, self.newest));
        self.opened.grow(larger, |direct| {
            // SAFETY: both lie in the file, the second past the end of the first; no step runs.
            unsafe {
                let base = direct.base();
                let bytes = (from.end - from.start) as usize;
                base.add(to.start as usize)
                    .copy_from_nonoverlapping(base.add(from.start as usize), bytes);
            }
            persist(direct, to.start, to.end - to.start);
        })?;
        self.opened.shared().direct().discard(unused);
        self.persistent = self.newest;
        Ok(())
    }

    /// Copies the array, as of the last step, to the new file `to`, which is then one like any other. Says of which step it
    /// is.
    ///
    /// # Errors
    /// As `durable`; when there is such a file; those of the file systems.
    pub fn backup(&mut self, to: impl AsRef<Path>) -> Result<u64> {
        self.opened.backup(to.as_ref())
    }

    /// What was done since the planes were opened.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.opened.statistics()
    }

    /// What a test drives the persister by.
    #[cfg(any(test, feature = "faults"))]
    #[must_use]
    pub fn stepper(&self) -> crate::persistence::Stepper {
        crate::persistence::Stepper(Arc::clone(&self.opened.engine.shared))
    }

    fn plane(&self, plane: usize) -> *mut T {
        let at = plane_range(&self.opened.header, plane).start;
        // SAFETY: inside the file.
        unsafe { self.opened.engine.shared.direct().base().add(at as usize).cast() }
    }

    /// Sees what has become durable.
    fn see_durable(&mut self) {
        if let Some((plane, step)) = self.in_flight
            && self.opened.engine.shared.durable() >= step
        {
            self.persistent = plane;
            self.in_flight = None;
        }
    }

    fn taken(&mut self) {
        self.see_durable();
        self.in_flight = Some((self.newest, self.opened.last));
        self.opened.owed.pay();
    }

    /// The plane for the next step. The batch is this side's afterwards.
    fn free(&mut self) -> Result<usize> {
        let shared = Arc::clone(&self.opened.engine.shared);
        let mut waited = false;
        loop {
            if self.opened.collecting.begin(&shared.handover) {
                self.taken();
            }
            self.see_durable();
            let in_use = |plane: usize| {
                plane == self.newest
                    || plane == self.persistent && shared.planted != Some(Planted::ReusedTooEarly)
                    || self.in_flight.is_some_and(|(in_flight, _)| in_flight == plane)
            };
            if let Some(free) = (0..N).find(|&plane| !in_use(plane)) {
                self.opened.counts.version_waits += u64::from(waited);
                return Ok(free);
            }
            waited = true;
            match self.in_flight {
                Some((_, step)) => shared.wait(step)?,
                None => {
                    // The newest is all there is: it goes first.
                    if self.opened.collecting.end(&shared.handover, true) {
                        self.taken();
                    }
                    shared.offered(true);
                    shared.wait(self.opened.last)?;
                }
            }
        }
    }

    /// The step in plane `to` is done.
    fn done(&mut self, to: usize) {
        (self.newest, self.opened.last) = (to, self.opened.last + 1);
        self.opened.counts.updates += 1;
        self.opened.owed.add();
        let shared = Arc::clone(&self.opened.engine.shared);
        let range = plane_range(&self.opened.header, to);
        if shared.planted == Some(Planted::FlushedWhileWritten) {
            shared.direct().write_back(range.clone());
        }
        shared.stored(range.clone());
        let batch = self.opened.collecting.batch(&shared.handover);
        batch.ranges.clear();
        batch.ranges.push(range);
        batch.number = self.opened.last;
        batch.word = encode(step_word(self.opened.last, to), WORD_PLACE);
        self.offer();
    }

    /// Offers the newest step, if it is not handed over yet.
    fn offer(&mut self) {
        let shared = Arc::clone(&self.opened.engine.shared);
        if self.opened.collecting.batch(&shared.handover).ranges.is_empty() {
            return;
        }
        let due = self.opened.owed.is_due();
        if self.opened.collecting.end(&shared.handover, due) {
            self.taken();
        }
        shared.offered(due);
    }
}
