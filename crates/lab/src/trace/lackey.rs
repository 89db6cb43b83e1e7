//! What `valgrind --tool=lackey --trace-mem=yes` prints.
//!
//! ```text
//! I  0401ab73,5        an instruction at this address, of so many bytes
//!  S 1fff000748,8      it stores
//!  L 1fff000748,8      it loads
//!  M 04222cac,4        it loads, then stores
//! ==123== ...          what valgrind itself has to say
//! ```
//!
//! Addresses are hexadecimal. Instruction fetches become instruction counts; their addresses are
//! not kept. No data.

use super::error::Result;
use super::input::{Lines, hexadecimal};
use super::{ACCESS_BYTES, Addresses, Clock, Event, Header, Reader, Record};
use std::io::BufRead;

/// Reads lackey's lines as records.
pub struct Lackey<R> {
    lines: Lines<R>,
    header: Header,
    instructions: u32,
    store: Option<Event>,
    seen: u64,
}

enum Line {
    Instruction,
    Load(u64, u16),
    Store(u64, u16),
    Modify(u64, u16),
    Remark,
}

impl<R: BufRead> Lackey<R> {
    /// `origin` says where it comes from.
    pub fn new(origin: &str, input: R) -> Self {
        Lackey {
            lines: Lines::new(origin, input),
            header: Header {
                cores: 1,
                clock: Clock::Instructions,
                addresses: Addresses::Virtual,
                origin: origin.to_owned(),
            },
            instructions: 0,
            store: None,
            seen: 0,
        }
    }

    /// Instructions read until now.
    pub fn instructions(&self) -> u64 {
        self.seen
    }

    fn parse(line: &str) -> std::result::Result<Line, String> {
        if line.starts_with("==") {
            return Ok(Line::Remark);
        }
        let expected = || format!("expected I, S, L or M with an address and a size, found {line:?}");
        let (kind, access) = line.split_at_checked(3).ok_or_else(expected)?;
        let (address, size) = access.split_once(',').ok_or_else(expected)?;
        let at = hexadecimal(address).ok_or_else(|| format!("{address:?} is no hexadecimal address"))?;
        let size = size
            .parse()
            .ok()
            .filter(|size| (1..=ACCESS_BYTES).contains(size))
            .ok_or_else(|| format!("{size:?} is no size from 1 to {ACCESS_BYTES}"))?;
        if at.checked_add(u64::from(size)).is_none() {
            return Err(format!("an access at {at:#x} does not fit the address space"));
        }
        match kind {
            "I  " => Ok(Line::Instruction),
            " L " => Ok(Line::Load(at, size)),
            " S " => Ok(Line::Store(at, size)),
            " M " => Ok(Line::Modify(at, size)),
            _ => Err(expected()),
        }
    }

    fn record(&mut self, event: Event) -> Option<Record> {
        let after = std::mem::take(&mut self.instructions);
        Some(Record {
            core: 0,
            after,
            event,
        })
    }

    /// The next record; none at the end.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        if let Some(store) = self.store.take() {
            return Ok(self.record(store));
        }
        loop {
            let Some(line) = self.lines.advance()? else {
                return Ok(None);
            };
            let value = None;
            match Self::parse(line).map_err(|what| self.lines.refuse(what))? {
                Line::Remark => {}
                Line::Instruction => {
                    self.instructions = self.instructions.saturating_add(1);
                    self.seen += 1;
                }
                Line::Load(at, size) => return Ok(self.record(Event::Load { at, size })),
                Line::Store(at, size) => return Ok(self.record(Event::Store { at, size, value })),
                Line::Modify(at, size) => {
                    self.store = Some(Event::Store { at, size, value });
                    return Ok(self.record(Event::Load { at, size }));
                }
            }
        }
    }
}

impl<R: BufRead + Send> Reader for Lackey<R> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self) -> Result<Option<Record>> {
        self.next_record()
    }
}
