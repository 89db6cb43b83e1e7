//! A ring of words that many threads append records to without a lock, and that one thread empties.
//!
//! ```text
//!            head                                cut                  tail
//! ... zeros | record | record | being written | room | record | ...   | zeros ...
//!            taken next, in order                       reserved by a compare-and-swap each
//! ```
//!
//! * A caller reserves a place with one compare-and-swap on the tail, then writes its record there. Callers never wait
//!   for one another.
//! * The first word of a record is not 0 and is stored last. A place that is reserved or free is zeros, so a record is
//!   there once its first word is not 0. Only the taker waits for one that is being written.
//! * The taker puts zeros where it has taken, then moves the head: a caller that sees the head sees the zeros.
//! * Places are positions of the log: bytes, multiples of 8, which never come again. The lowest bit of the tail says that
//!   the queue is closed.

use super::sync::{AtomicU64, Ordering, yield_now};
use std::ops::Range;

/// Bytes in a word.
pub(super) const WORD: u64 = 8;
/// How often the taker looks at a place that is being written before it lets others run.
const LOOKS: u32 = 100;
/// The bit of the tail that says that the queue is closed.
const CLOSED: u64 = 1;

/// A word on cache lines of its own: callers write the tail, the taker the head.
#[repr(align(128))]
struct Alone(AtomicU64);

pub(super) struct Queue {
    words: Box<[AtomicU64]>,
    tail: Alone,
    head: Alone,
    /// Bytes that are kept free for the room a cut makes.
    room: u64,
}

/// Why nothing was reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    Full,
    Closed,
}

impl Queue {
    /// An empty queue from position `start` on, of at most `bytes` bytes. It begins with room, as after a cut.
    pub(super) fn new(start: u64, bytes: u64, room: u64) -> Queue {
        let words = (bytes / WORD).max(2 * room / WORD);
        // The largest power of two, so that a place is found with a mask.
        let words = 1_usize << words.ilog2();
        Queue {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            tail: Alone(AtomicU64::new(start + room)),
            head: Alone(AtomicU64::new(start)),
            room,
        }
    }

    /// Bytes that it holds.
    pub(super) fn bytes(&self) -> u64 {
        self.words.len() as u64 * WORD
    }

    /// One past the last place that is reserved.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.tail.0.load(Ordering::Acquire) & !CLOSED
    }

    /// Bytes before this were taken.
    #[inline]
    pub(super) fn taken(&self) -> u64 {
        self.head.0.load(Ordering::Acquire)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.tail.0.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Nothing is reserved from now on.
    pub(super) fn close(&self) {
        self.tail.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Reserves a place for a record, which must be written with [`Queue::write`] at once.
    #[inline]
    pub(super) fn reserve(&self, bytes: u64) -> Result<u64, Refused> {
        let mut tail = self.tail.0.load(Ordering::Relaxed);
        loop {
            if tail & CLOSED != 0 {
                return Err(Refused::Closed);
            }
            let end = tail + bytes;
            if end + self.room > self.taken() + self.bytes() {
                return Err(Refused::Full);
            }
            let swapped = self
                .tail
                .0
                .compare_exchange_weak(tail, end, Ordering::Relaxed, Ordering::Relaxed);
            match swapped {
                Ok(_) => return Ok(tail),
                Err(other) => tail = other,
            }
        }
    }

    #[inline]
    fn word(&self, position: u64) -> &AtomicU64 {
        &self.words[(position / WORD) as usize & (self.words.len() - 1)]
    }

    /// Writes a record to its place: `first`, which is not 0, and the words after it.
    #[inline]
    pub(super) fn write(&self, at: u64, first: u64, rest: impl IntoIterator<Item = u64>) {
        debug_assert!(first != 0);
        for (place, word) in (1..).zip(rest) {
            self.word(at + place * WORD).store(word, Ordering::Relaxed);
        }
        self.word(at).store(first, Ordering::Release);
    }

    /// Ends what is taken next: the records before this position, and room from it on. One thread at a time takes.
    pub(super) fn cut(&self) -> u64 {
        self.tail.0.fetch_add(self.room, Ordering::AcqRel) & !CLOSED
    }

    /// Takes the records in a range, which begins after the room of the cut before it and ends at this cut: copies them,
    /// in order. `head` says of a record's first word what is to be copied instead of it, and how long the record is.
    pub(super) fn take(&self, range: Range<u64>, head: impl Fn(u64) -> (u64, u64), into: &mut Vec<u8>) {
        into.reserve((range.end - range.start) as usize);
        let mut at = range.start;
        while at < range.end {
            let (first, bytes) = head(self.wait_for(at));
            into.extend_from_slice(&first.to_le_bytes());
            for rest in (WORD..bytes).step_by(WORD as usize) {
                let word = self.word(at + rest);
                into.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
                word.store(0, Ordering::Relaxed);
            }
            self.word(at).store(0, Ordering::Relaxed);
            at += bytes;
        }
        self.head.0.store(range.end, Ordering::Release);
    }

    /// The first word of the record at a place that is reserved.
    #[inline]
    fn wait_for(&self, at: u64) -> u64 {
        let mut looks = 0;
        loop {
            match self.word(at).load(Ordering::Acquire) {
                0 if looks < LOOKS => {
                    looks += 1;
                    std::hint::spin_loop();
                }
                0 => yield_now(),
                first => return first,
            }
        }
    }
}
