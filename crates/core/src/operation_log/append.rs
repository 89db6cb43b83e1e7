//! How calls get into a group: [`Appender`], for many threads, and [`Taker`], for the one that makes them durable.

use super::queue::{Queue, Refused, WORD};
use super::record::{ALL, Call, Group, HEAD, Raw, life_seed, mark_seed, seed_of};
use crate::error::{Error, Result};
use crc32c::crc32c_append;
use std::fmt;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Bytes of arguments that most calls have at most: their record is made where no memory has to be taken.
const SHORT: usize = 64;
/// Where a record's first field after the checksum lies in its image, behind the position.
const IMAGE: usize = WORD as usize;
/// Bytes of an image before the arguments.
const IMAGE_HEAD: usize = IMAGE + HEAD - 4;
/// The bit of a record's first word in the queue that keeps it from being 0. The log has no arguments so long.
const THERE: u64 = 1 << 63;

/// Appends calls from any thread, without a lock. Nothing is flushed: that is [`Log::flush`](super::Log::flush), with a
/// group from the [`Taker`].
#[derive(Clone)]
pub struct Appender {
    queue: Arc<Queue>,
    /// What the checksum of each call begins with.
    seed: u32,
    most: usize,
}

/// Takes what was appended, a group at a time.
pub struct Taker {
    queue: Arc<Queue>,
    seed: u32,
    life: u64,
    /// Where the next group begins: at its mark.
    start: u64,
}

/// Both ends of the queue of log `id`, whose first group begins at `start`, with room for about `room` bytes.
pub(super) fn ends(id: u64, life: u64, start: u64, ring: u64, room: u64) -> (Appender, Taker) {
    let seed = seed_of(id);
    let queue = Arc::new(Queue::new(start, room.min(ring / 2), HEAD as u64));
    let most = (ring / 16).min(queue.bytes() / 2 - 4 * HEAD as u64) as usize;
    let appender = Appender {
        queue: queue.clone(),
        seed: life_seed(seed, life),
        most,
    };
    let taker = Taker {
        queue,
        seed,
        life,
        start,
    };
    (appender, taker)
}

impl Appender {
    /// Appends a call. Says its position.
    ///
    /// # Errors
    /// [`Error::Full`] when what waits must be taken first; [`Error::Invalid`] for arguments longer than
    /// what a call may have, and after [`Taker::close`].
    #[inline]
    pub fn append(&self, call: &Call<'_>) -> Result<u64> {
        let length = call.arguments.len();
        if length > self.most {
            return Err(self.too_long(length));
        }
        let bytes = (HEAD + length).next_multiple_of(WORD as usize) as u64;
        let position = match self.queue.reserve(bytes) {
            Ok(position) => position,
            Err(refused) => return Err(refused.error(bytes)),
        };
        match length {
            ..=SHORT => self.write(position, call, &mut [0; IMAGE_HEAD + SHORT]),
            _ => self.write(
                position,
                call,
                &mut vec![0; IMAGE_HEAD + length.next_multiple_of(8)],
            ),
        }
        Ok(position)
    }

    /// Writes a record to its place. Its image is what its checksum covers: the position, then the record from its second
    /// field on.
    #[inline(always)]
    fn write(&self, position: u64, call: &Call<'_>, image: &mut [u8]) {
        let length = call.arguments.len();
        let place = u64::from(call.object) | u64::from(call.function) << 16 | u64::from(call.thread) << 32;
        let lane = call.lane.unwrap_or(ALL);
        image[..8].copy_from_slice(&position.to_le_bytes());
        image[8..12].copy_from_slice(&(length as u32).to_le_bytes());
        image[12..20].copy_from_slice(&place.to_le_bytes());
        image[20..28].copy_from_slice(&lane.to_le_bytes());
        image[IMAGE_HEAD..][..length].copy_from_slice(call.arguments);
        let sum = crc32c_append(self.seed, &image[..IMAGE_HEAD + length]);
        let first = u64::from(sum) | (length as u64) << 32 | THERE;
        let (words, _) = image[IMAGE_HEAD..].as_chunks::<8>();
        let arguments = words[..length.div_ceil(8)]
            .iter()
            .map(|word| u64::from_le_bytes(*word));
        self.queue
            .write(position, first, [place, lane].into_iter().chain(arguments));
    }

    #[cold]
    fn too_long(&self, length: usize) -> Error {
        let most = self.most;
        Error::Invalid(format!(
            "arguments of {length} bytes: the operation log holds up to {most} bytes for a call; pass less at once, or put it \
             into the region and log where it is"
        ))
    }

    /// One past the last call: all calls that were appended before are before it.
    #[must_use]
    #[inline]
    pub fn end(&self) -> u64 {
        self.queue.end()
    }

    /// Bytes that wait to be taken, up to a position.
    #[must_use]
    #[inline]
    pub fn waiting(&self, position: u64) -> u64 {
        position.saturating_sub(self.queue.taken())
    }

    /// Bytes that can wait.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.queue.bytes()
    }

    /// Whether the taker has ended it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }
}

impl Refused {
    #[cold]
    fn error(self, needed: u64) -> Error {
        match self {
            Refused::Full => Error::Full {
                what: "the open group of the operation log".into(),
                needed,
            },
            Refused::Closed => Error::Invalid("the operation log is closed".into()),
        }
    }
}

impl Taker {
    /// Closes the open group, at this time in milliseconds of Unix time. Later calls go to the next one. The group is empty
    /// if there was no call; its memory is that of `used`.
    pub fn take(&mut self, used: Group, now_ms: u64) -> Group {
        let mut bytes = used.bytes;
        bytes.clear();
        let (start, first) = (self.start, self.next_call());
        if self.is_empty() {
            return Group { start, bytes };
        }
        let end = self.queue.cut();
        let mark = Raw::mark(self.life, now_ms, mark_seed(self.seed, start));
        bytes.extend_from_slice(mark.as_bytes());
        let head = |first: u64| {
            let length = (first & !THERE) >> 32;
            (first & !THERE, (HEAD as u64 + length).next_multiple_of(WORD))
        };
        self.queue.take(first..end, head, &mut bytes);
        self.start = end;
        Group { start, bytes }
    }

    /// Whether no call waits to be taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.end() == self.next_call()
    }

    /// The position of the next call, if none is appended before the next group.
    #[must_use]
    pub fn next_call(&self) -> u64 {
        self.start + HEAD as u64
    }

    /// No call is appended from now on. Those that were can still be taken.
    pub fn close(&mut self) {
        self.queue.close();
    }
}

impl fmt::Debug for Appender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "appender at position {}", self.end())
    }
}

impl fmt::Debug for Taker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "taker at position {}", self.start)
    }
}
