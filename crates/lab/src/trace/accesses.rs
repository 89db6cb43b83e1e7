//! What the plugin of qemu tells (`accesses.c` draws its records), read as it comes.
//!
//! * The parts in which qemu does a wide access of one instruction become one access again.
//! * Instructions without an access count in [`Record::after`] of the next access.

use super::error::Result;
use super::input::Bytes;
use super::{ACCESS_BYTES, Event, Record};
use std::io::Read;

const RECORD_BYTES: usize = 16;
const LOAD: u8 = 0;
const STORE: u8 = 1;
const PASSED: u8 = 2;

/// What is read next.
pub(super) enum Told {
    /// An access.
    Access(Record),
    /// Instructions went by.
    Passed,
}

/// Reads the plugin's records.
pub(super) struct Accesses<R> {
    input: Bytes<R>,
    /// The access that may still grow.
    held: Option<Record>,
    /// Instructions since it.
    passed: u64,
    seen: u64,
}

impl<R: Read> Accesses<R> {
    /// `origin` says where they come from.
    pub(super) fn new(origin: &str, input: R) -> Self {
        Accesses {
            input: Bytes::new(origin, input),
            held: None,
            passed: 0,
            seen: 0,
        }
    }

    /// Instructions until now; those of the access told last are the last of them.
    pub(super) fn instructions(&self) -> u64 {
        let held = self.held.map_or(0, |record| u64::from(record.after));
        self.seen - self.passed - held
    }

    /// All instructions that went by.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// What comes next; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<Told>> {
        loop {
            let at = self.input.at();
            let mut bytes = [0; RECORD_BYTES];
            match self.input.fill(&mut bytes)? {
                0 => return Ok(self.held.take().map(Told::Access)),
                RECORD_BYTES => {}
                _ => return Err(self.input.refuse(at, "ends inside a record")),
            }
            let address = u64::from_ne_bytes(std::array::from_fn(|i| bytes[i]));
            let after = u32::from_ne_bytes(std::array::from_fn(|i| bytes[8 + i]));
            let size = u16::from_ne_bytes([bytes[12], bytes[13]]);
            self.seen += u64::from(after);
            self.passed += u64::from(after);
            let event = match bytes[14] {
                PASSED => return Ok(Some(self.held.take().map_or(Told::Passed, Told::Access))),
                LOAD if bytes[15] > 0 => Event::Follow {
                    at: address,
                    size,
                    behind: bytes[15],
                },
                LOAD => Event::Load { at: address, size },
                STORE => Event::Store {
                    at: address,
                    size,
                    value: None,
                },
                kind => return Err(self.input.refuse(at, format!("{kind} is no kind of access"))),
            };
            if let Some(access) = self.take(event) {
                return Ok(Some(Told::Access(access)));
            }
        }
    }

    /// Holds an access back, or makes it part of the one held; gives the one held before.
    fn take(&mut self, event: Event) -> Option<Record> {
        if self.passed == 0
            && let Some(held) = &mut self.held
            && grow(&mut held.event, &event)
        {
            return None;
        }
        let after = u32::try_from(self.passed).unwrap_or(u32::MAX);
        self.passed = 0;
        self.held.replace(Record {
            core: 0,
            after,
            event,
        })
    }
}

/// Makes `event` part of `held` where it does the same to the bytes that follow.
fn grow(held: &mut Event, event: &Event) -> bool {
    match (held, event) {
        (Event::Load { at, size }, Event::Load { at: next, size: more })
        | (
            Event::Follow { at, size, .. },
            Event::Follow {
                at: next, size: more, ..
            },
        )
        | (
            Event::Store { at, size, .. },
            Event::Store {
                at: next, size: more, ..
            },
        ) if at.wrapping_add(u64::from(*size)) == *next && *size + *more <= ACCESS_BYTES => {
            *size += more;
            true
        }
        _ => false,
    }
}
