//! DRAMsim3's traces: `0xADDRESS READ|WRITE cycle`, one request of a line in each line of text.

use super::error::Result;
use super::input::{Lines, number};
use super::{Addresses, Clock, Event, Header, Reader, Record, Writer};
use std::io::{self, BufRead, Write};

/// A request is for the line of 64 bytes that holds the address.
pub(crate) const REQUEST_BYTES: u16 = 64;

/// The request for the line that holds `address`.
pub(crate) fn request(address: u64, write: bool) -> Event {
    let (at, size) = (address & !63, REQUEST_BYTES);
    match write {
        true => Event::Store {
            at,
            size,
            value: None,
        },
        false => Event::Load { at, size },
    }
}

/// The header of a trace of memory requests.
pub(crate) fn requests(name: &str, clock: Clock) -> Header {
    Header {
        cores: 1,
        clock,
        addresses: Addresses::Physical,
        origin: name.to_owned(),
    }
}

/// Cycles since the request before, or why there are none.
pub(crate) fn since(now: u64, before: &mut u64) -> std::result::Result<u32, String> {
    let gap = now
        .checked_sub(*before)
        .ok_or_else(|| format!("cycle {now} comes after cycle {before}: time goes backwards"))?;
    let after = u32::try_from(gap).map_err(|_| format!("{gap} cycles after the request before: too long"))?;
    *before = now;
    Ok(after)
}

pub(crate) struct DramSim3<R> {
    lines: Lines<R>,
    header: Header,
    cycle: u64,
}

impl<R: BufRead> DramSim3<R> {
    pub(crate) fn new(name: &str, input: R) -> Self {
        DramSim3 {
            lines: Lines::new(name, input),
            header: requests(name, Clock::Cycles),
            cycle: 0,
        }
    }

    fn parse(line: &str, before: &mut u64) -> std::result::Result<Record, String> {
        let mut words = line.split_ascii_whitespace();
        let (Some(address), Some(operation), Some(cycle), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(format!("expected 0xADDRESS READ|WRITE cycle, found {line:?}"));
        };
        if !address.starts_with("0x") {
            return Err(format!("address {address:?} does not begin with 0x"));
        }
        let write = match operation {
            "READ" => false,
            "WRITE" => true,
            other => return Err(format!("expected READ or WRITE, found {other:?}")),
        };
        Ok(Record {
            core: 0,
            event: request(number(address)?, write),
            after: since(number(cycle)?, before)?,
        })
    }
}

impl<R: BufRead + Send> Reader for DramSim3<R> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self) -> Result<Option<Record>> {
        match self.lines.advance()? {
            None => Ok(None),
            Some(line) => match Self::parse(line, &mut self.cycle) {
                Ok(record) => Ok(Some(record)),
                Err(what) => Err(self.lines.refuse(what)),
            },
        }
    }
}

/// Writes one request for each line an access touches; an instruction counts as a cycle. Persist,
/// fence and commit have no form here and are left out.
pub(crate) struct DramSim3Writer<W> {
    output: W,
    cycle: u64,
}

impl<W: Write> DramSim3Writer<W> {
    pub(crate) fn new(output: W) -> Self {
        DramSim3Writer { output, cycle: 0 }
    }
}

/// The lines of an access, and whether it writes; none for what is no access.
pub(crate) fn lines_of(event: &Event) -> Option<(impl Iterator<Item = u64>, bool)> {
    let (at, size, write) = match *event {
        Event::Load { at, size } | Event::Follow { at, size, .. } => (at, size, false),
        Event::Store { at, size, .. } => (at, size, true),
        Event::Persist { .. } | Event::Fence | Event::Commit => return None,
    };
    let last = at + u64::from(size.max(1)) - 1;
    Some(((at >> 6..=last >> 6).map(|line| line << 6), write))
}

impl<W: Write> Writer for DramSim3Writer<W> {
    fn write(&mut self, record: &Record) -> io::Result<()> {
        self.cycle += u64::from(record.after);
        if let Some((lines, write)) = lines_of(&record.event) {
            let operation = if write { "WRITE" } else { "READ" };
            for line in lines {
                writeln!(self.output, "{line:#x} {operation} {}", self.cycle)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}
