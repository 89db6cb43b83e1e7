//! The log of an object's operations (SIMPO 3.1): a call is durable before it is run.
//!
//! ```text
//! callers --append--> Appender: a queue in memory, without a lock
//!                        | Taker::take: a group
//!                     Log::flush: one write, one fence ---> file: header | definitions | ring of records | definitions
//! recovery: read() gives the calls from a position on, in order; the owner runs those that its checkpoint lacks
//! ```
//!
//! * The log is a file of its own beside the store: both flush when they like, a store's medium keeps one owner, and a
//!   store without objects keeps its format. The store's context names the log by a random number, and says from which
//!   position on its calls are needed. So truncation is the commit itself: it moves the position, nothing is written
//!   here, and both move together or not at all.
//! * A position counts bytes and never goes back. Position `p` lies at byte `p mod` the ring's size; what was written
//!   one round ago has another position, and so another checksum.
//! * A record is valid by its own checksum, which covers its position. A group begins with a mark, written when all
//!   before it is durable. So a record that is not valid ends the log where no mark follows, and is damage where one
//!   does.
//! * Each opening of the log has a life of its own, a random number that its marks name and its calls' checksums cover:
//!   what a torn group left behind is never taken for part of a later one.
//! * A call that failed before its group was written is withdrawn: its record stays, and is skipped by all readers.
//! * The position a log is read from is that of a mark, or its end.
//! * After a failed write or flush the log is poisoned, with the store whose flag it shares.

mod append;
mod queue;
mod read;
mod record;

/// What the queue is made of: a test of its schedules has others (`tests/schedules.rs`).
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};
    pub(super) use std::thread::yield_now;
}

pub use append::{Appender, Taker};
pub use read::{Entry, Found, GroupAt, Header, InLog, Logged, header, read, read_new};
pub use record::{Call, Group, NAMED};

use crate::error::{Error, Result};
use crate::medium::{Cause, Medium, Path};
use crate::poison::Poison;
use record::{Raw, RawHeader, WITHDRAWN, call_seed, definition_seed, seed_of};
use std::collections::HashMap;
use zerocopy::IntoBytes;

/// Where the definitions begin, after the header.
const DEFINITIONS_AT: u64 = 64;
/// Where the ring begins. Definitions that find no room before it go behind it: as much room again each time.
const RING_AT: u64 = 64 << 10;
/// The smallest ring.
pub const LEAST_RING: u64 = 4096;
/// The version of the format.
pub const VERSION: u32 = 1;

/// A log that is written. See the [module](self).
#[derive(Debug)]
pub struct Log<M> {
    medium: M,
    id: u64,
    ring: u64,
    /// Bytes before it may be written over.
    start: u64,
    /// Bytes before it are durable.
    end: u64,
    definitions: HashMap<String, u16>,
    /// Where the next definition goes.
    next_definition: u64,
    poison: Poison,
}

impl<M: Medium> Log<M> {
    /// A new, empty log with a ring of `ring` bytes, whose first record has the position `start`. It is durable when
    /// this returns.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a ring that is no multiple of 8 or too small; those of the medium.
    pub fn create(mut medium: M, id: u64, ring: u64, start: u64, poison: Poison) -> Result<Log<M>> {
        if ring < LEAST_RING || !ring.is_multiple_of(8) || !start.is_multiple_of(8) {
            return Err(Error::Invalid(format!(
                "an operation log with a ring of {ring} bytes from position {start}: at least {LEAST_RING} bytes, and \
                 multiples of 8"
            )));
        }
        medium.hint(Cause::Log, Path::Critical);
        medium.grow(RING_AT + ring)?;
        // Room for all of it is there from now on, and a flush changes nothing but bytes.
        let zeros = vec![0; ring.min(1 << 20) as usize];
        for at in (0..ring).step_by(zeros.len()) {
            let bytes = zeros.len().min((ring - at) as usize);
            medium.write(RING_AT + at, &zeros[..bytes])?;
        }
        medium.write(0, RawHeader::sealed(id, ring).as_bytes())?;
        medium.fence()?;
        Ok(Log {
            medium,
            id,
            ring,
            start,
            end: start,
            definitions: HashMap::new(),
            next_definition: DEFINITIONS_AT,
            poison,
        })
    }

    /// Opens the log `id` and reads it from position `start` on. All of that is durable when this returns.
    ///
    /// # Errors
    /// As [`read()`].
    pub fn open(mut medium: M, id: u64, start: u64, poison: Poison) -> Result<(Log<M>, Found)> {
        let found = read(&medium, id, start)?;
        // After the end of a process alone it may be in the system's memory only.
        medium.fence()?;
        let log = Log {
            medium,
            id,
            ring: found.ring,
            start,
            end: found.end,
            definitions: found.definitions.iter().cloned().zip(0..).collect(),
            next_definition: found.next_definition,
            poison,
        };
        Ok((log, found))
    }

    /// The number that the store's context names the log by.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The ends of a queue of calls in this life of the log, whose number is random: about `room` bytes of calls can
    /// wait, half of the ring at most. There is one queue at a time.
    pub fn queue(&self, life: u64, room: u64) -> (Appender, Taker) {
        append::ends(self.id, life, self.end, self.ring, room)
    }

    /// The number of a definition, which is made if there is none of that text yet: it is durable when this returns.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it has no number for one more; those of the medium.
    pub fn define(&mut self, text: &str) -> Result<u16> {
        if let Some(&number) = self.definitions.get(text) {
            return Ok(number);
        }
        self.poison.check()?;
        let number = self.definitions.len();
        if number >= usize::from(u16::MAX) {
            return Err(Error::Invalid(format!(
                "the operation log names {number} objects and threads, and no more: close the region, which begins a new \
                 log"
            )));
        }
        let length = Raw::definition(0, text, 0).len() as u64;
        let at = match self.next_definition {
            at if at <= RING_AT && at + length > RING_AT => RING_AT + self.ring,
            at => at,
        };
        let bytes = Raw::definition(number as u16, text, definition_seed(seed_of(self.id), at));
        self.medium.grow((at + length).next_multiple_of(RING_AT))?;
        self.store(at, &bytes).and_then(|()| self.fence())?;
        self.next_definition = at + length;
        self.definitions.insert(text.to_owned(), number as u16);
        Ok(number as u16)
    }

    /// Makes the next group durable: one write, two where the ring ends, and one fence.
    ///
    /// # Errors
    /// [`Error::Full`] when there is no room before a checkpoint and [`Log::release`]: nothing was written then. Those of
    /// the medium poison the log.
    pub fn flush(&mut self, group: &Group) -> Result<()> {
        self.poison.check()?;
        debug_assert_eq!(group.start(), self.end, "groups are flushed in order");
        if !self.has_room(group) {
            return Err(Error::Full {
                what: "the operation log".into(),
                needed: group.end() - self.start - self.ring,
            });
        }
        self.medium.hint(Cause::Log, Path::Critical);
        self.store_in_ring(group.start(), group.bytes())?;
        self.fence()?;
        self.end = group.end();
        Ok(())
    }

    /// Makes the call at `position` of a group that was not flushed one that is never run. Whether it is in the group.
    pub fn withdraw(&self, group: &mut Group, position: u64) -> bool {
        group.withdraw(position, seed_of(self.id))
    }

    /// Makes a call that was found in the log one that is never run. Says which it was; it is durable when this returns. A
    /// crash meanwhile may damage the record, so the log should be a copy.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn take_out<'f>(&mut self, found: &'f Found, position: u64) -> Result<Option<&'f Entry>> {
        let entry = found.entries.iter().find(|entry| entry.position == position);
        let group = found.groups.iter().rfind(|group| group.position < position);
        let (Some(entry), Some(group)) = (entry, group) else {
            return Ok(None);
        };
        let call = Call {
            object: entry.object,
            function: WITHDRAWN,
            thread: entry.thread,
            lane: entry.lane,
            arguments: &entry.arguments,
        };
        let head = Raw::call(&call, call_seed(seed_of(self.id), group.life, position));
        self.store_in_ring(position, head.as_bytes())?;
        self.fence()?;
        Ok(Some(entry))
    }

    /// A durable checkpoint has everything before `start`, which is not needed any more.
    pub fn release(&mut self, start: u64) {
        debug_assert!(start <= self.end);
        self.start = self.start.max(start);
    }

    /// What is in the ring from `start` on is needed, though a checkpoint has it.
    pub fn hold(&mut self, start: u64) {
        self.start = self.start.min(start);
    }

    /// Whether the ring has room for a group before a checkpoint.
    pub fn has_room(&self, group: &Group) -> bool {
        group.end() - self.start <= self.ring
    }

    /// Bytes of the ring that are needed.
    pub fn used(&self) -> u64 {
        self.end - self.start
    }

    /// Bytes of the ring.
    pub fn ring(&self) -> u64 {
        self.ring
    }

    /// One past the last durable record.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The medium.
    pub fn medium(&self) -> &M {
        &self.medium
    }

    /// The medium, and an end to the log.
    pub fn into_medium(self) -> M {
        self.medium
    }

    fn store_in_ring(&mut self, position: u64, bytes: &[u8]) -> Result<()> {
        let at = position % self.ring;
        let (first, rest) = bytes.split_at(bytes.len().min((self.ring - at) as usize));
        self.store(RING_AT + at, first)?;
        match rest.is_empty() {
            true => Ok(()),
            false => self.store(RING_AT, rest),
        }
    }

    fn store(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let poison = &self.poison;
        self.medium
            .write(at, bytes)
            .inspect_err(|error| poison.set(error))
    }

    fn fence(&mut self) -> Result<()> {
        let poison = &self.poison;
        self.medium.fence().inspect_err(|error| poison.set(error))
    }
}
