//! The end of an operation log that another process writes.

use super::file::{APART, log_path};
use crate::error::{Error, Result};
use crate::inspect::inspect;
use crate::superblock::LogPosition;
use std::path::{Path, PathBuf};
use std::time::Duration;
use twinpage_core::operation_log::{Found, GroupAt, header, read, read_new};
use twinpage_os::{Access, AnyMedium, Durability};

/// How often a log that is written meanwhile is read before it is taken for damaged, and the pause between.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);

/// Looks that find nothing new before all of the log is read.
const THOROUGH_AFTER: u32 = 100;

/// How far a log was read.
#[derive(Debug)]
pub(super) struct Tail {
    region: PathBuf,
    /// The log; 0: none was there yet.
    id: u64,
    /// The last group that was seen. Life 0: none of it was.
    group: GroupAt,
    /// One past what was seen.
    seen: u64,
    /// Looks since anything was new.
    idle: u32,
}

/// What a look at a log gives.
pub(super) enum Seen {
    /// The calls from this element on are new.
    New(Found, usize),
    /// The calls after those seen are written over; or those were never durable, and a power cut has taken them back.
    Lost,
    /// The log is not there, or another is.
    Gone,
}

impl Tail {
    /// From a place on, which is that of a group or the end of the log.
    pub(super) fn new(region: &Path, place: LogPosition) -> Tail {
        Tail::after(
            region,
            place.id,
            GroupAt {
                position: place.start,
                life: 0,
            },
            place.start,
        )
    }

    /// After what was seen.
    pub(super) fn after(region: &Path, id: u64, group: GroupAt, seen: u64) -> Tail {
        Tail {
            region: region.to_owned(),
            id,
            group,
            seen,
            idle: 0,
        }
    }

    /// Of a region whose backup was made at the position `start`, where its log was then.
    pub(super) fn of_copy(region: &Path, start: u64) -> Result<Tail> {
        let mut tail = Tail::new(region, LogPosition { id: 0, start });
        let named = tail.named()?;
        tail.id = named.id;
        if named.id != 0 && named.start - start.min(named.start) >= APART {
            tail.go_on_in(named.id); // it was closed meanwhile
        }
        Ok(tail)
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// One past the last call that was seen.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// Log, position and life of the last group that was seen, and one past the last call.
    pub(super) fn place(&self) -> [u64; 4] {
        [self.id, self.group.position, self.group.life, self.seen]
    }

    /// The log that the region's last checkpoint names, and where.
    pub(super) fn named(&self) -> Result<LogPosition> {
        let superblock = inspect(&self.region)?.superblock;
        Ok(superblock.map(|superblock| superblock.log).unwrap_or_default())
    }

    /// From the beginning of the log that the region has after this one was closed, if all of this was seen.
    pub(super) fn go_on_in(&mut self, id: u64) {
        let start = self.seen + APART;
        *self = Tail::new(&self.region, LogPosition { id, start });
    }

    /// A checkpoint names the log, and it is not there.
    pub(super) fn missing(&self) -> Error {
        self.error("it is not there, and calls since the last checkpoint are in it")
    }

    pub(super) fn error(&self, why: impl Into<String>) -> Error {
        Error::Log {
            file: log_path(&self.region),
            why: why.into(),
        }
    }

    /// From a place on that the region's last checkpoint names.
    pub(super) fn skip_to(&mut self, place: LogPosition) {
        *self = Tail::new(&self.region, place);
    }

    /// The next reading looks at all of the log: it ends where it ends, and not at a damaged call.
    pub(super) fn look_at_all(&mut self) {
        self.idle = THOROUGH_AFTER;
    }

    /// Looks for new calls.
    pub(super) fn read(&mut self) -> Result<Seen> {
        let mut attempts = ATTEMPTS;
        loop {
            attempts -= 1;
            match self.read_once() {
                // It was written meanwhile; or written over, if that lasts.
                Err(_) if attempts > 0 => std::thread::sleep(PAUSE),
                Err(Error::Store(twinpage_core::Error::Damaged { .. })) => return Ok(Seen::Lost),
                other => return other,
            }
        }
    }

    fn read_once(&mut self) -> Result<Seen> {
        let file = log_path(&self.region);
        if self.id == 0 || !file.exists() {
            return Ok(Seen::Gone);
        }
        // Where nothing of it was seen, it may begin later than at the place that was expected: calls of an earlier log were
        // not seen. Asked before the log is read, as what is checkpointed meanwhile was just read.
        let checkpointed = match self.group.life {
            0 => Some(self.named()?).filter(|named| named.id == self.id),
            _ => None,
        };
        let medium = AnyMedium::open(&file, Durability::Memory, Access::ReadOnly)?;
        if header(&medium)?.id != self.id {
            return Ok(Seen::Gone);
        }
        // From time to time all of it, so that what is damaged is not waited for.
        let is_thorough = self.group.life == 0 || self.idle == THOROUGH_AFTER;
        let found = match is_thorough {
            true => read(&medium, self.id, self.group.position)?,
            false => read_new(&medium, self.id, self.group.position)?,
        };
        self.idle = match found.end > self.seen || is_thorough {
            true => 0,
            false => self.idle + 1,
        };
        let begins_later = checkpointed.is_some_and(|named| named.start > found.end);
        if begins_later || !self.continues(&found) {
            return Ok(Seen::Lost);
        }
        let from = found.entries.partition_point(|entry| entry.position < self.seen);
        self.group = found.groups.last().copied().unwrap_or(self.group);
        self.seen = found.end;
        Ok(Seen::New(found, from))
    }

    /// Whether what was seen is still there: no other group begins in it.
    fn continues(&self, found: &Found) -> bool {
        let is_same = self.group.life == 0 || found.groups.first() == Some(&self.group);
        let mut later = found.groups.iter().map(|group| group.position);
        let begins_within = later.any(|position| position > self.group.position && position < self.seen);
        is_same && !begins_within && found.end >= self.seen
    }
}
