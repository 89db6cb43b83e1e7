//! Ramulator's two forms of traces.
//!
//! * `LD|ST address`: requests without time; one cycle is taken between two.
//! * `instructions load-address [store-address]`: so many instructions without access, then one that
//!   loads; where a second address is given, a line is written back.

use super::dramsim3::{lines_of, request, requests};
use super::error::Result;
use super::input::{Lines, number};
use super::{Clock, Event, Header, Reader, Record, Writer};
use std::io::{self, BufRead, Write};

pub(crate) struct Ramulator<R> {
    lines: Lines<R>,
    header: Header,
}

impl<R: BufRead> Ramulator<R> {
    pub(crate) fn new(name: &str, input: R) -> Self {
        Ramulator {
            lines: Lines::new(name, input),
            header: requests(name, Clock::Cycles),
        }
    }

    fn parse(line: &str) -> std::result::Result<Record, String> {
        let mut words = line.split_ascii_whitespace();
        let (Some(operation), Some(address), None) = (words.next(), words.next(), words.next()) else {
            return Err(format!("expected LD|ST address, found {line:?}"));
        };
        let write = match operation {
            "LD" => false,
            "ST" => true,
            other => return Err(format!("expected LD or ST, found {other:?}")),
        };
        let event = request(number(address)?, write);
        Ok(Record {
            core: 0,
            after: 1,
            event,
        })
    }
}

impl<R: BufRead + Send> Reader for Ramulator<R> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self) -> Result<Option<Record>> {
        match self.lines.advance()?.map(Self::parse) {
            None => Ok(None),
            Some(Ok(record)) => Ok(Some(record)),
            Some(Err(what)) => Err(self.lines.refuse(what)),
        }
    }
}

pub(crate) struct RamulatorCore<R> {
    lines: Lines<R>,
    header: Header,
    store: Option<Event>,
}

impl<R: BufRead> RamulatorCore<R> {
    pub(crate) fn new(name: &str, input: R) -> Self {
        RamulatorCore {
            lines: Lines::new(name, input),
            header: requests(name, Clock::Instructions),
            store: None,
        }
    }

    fn parse(line: &str) -> std::result::Result<(u32, Event, Option<Event>), String> {
        let mut words = line.split_ascii_whitespace();
        let (Some(instructions), Some(load), store, None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(format!(
                "expected instructions load-address [store-address], found {line:?}"
            ));
        };
        let before = number(instructions)?;
        let after = u32::try_from(before.saturating_add(1))
            .map_err(|_| format!("{before} instructions before one access: too many"))?;
        let store = store.map(number).transpose()?.map(|at| request(at, true));
        Ok((after, request(number(load)?, false), store))
    }
}

impl<R: BufRead + Send> Reader for RamulatorCore<R> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self) -> Result<Option<Record>> {
        if let Some(event) = self.store.take() {
            return Ok(Some(Record {
                core: 0,
                after: 0,
                event,
            }));
        }
        match self.lines.advance()?.map(Self::parse) {
            None => Ok(None),
            Some(Err(what)) => Err(self.lines.refuse(what)),
            Some(Ok((after, event, store))) => {
                self.store = store;
                Ok(Some(Record {
                    core: 0,
                    after,
                    event,
                }))
            }
        }
    }
}

/// Writes `LD|ST address` for each line an access touches. Time, persist, fence and commit have no
/// form here and are left out.
pub(crate) struct RamulatorWriter<W> {
    output: W,
}

impl<W: Write> RamulatorWriter<W> {
    pub(crate) fn new(output: W) -> Self {
        RamulatorWriter { output }
    }
}

impl<W: Write> Writer for RamulatorWriter<W> {
    fn write(&mut self, record: &Record) -> io::Result<()> {
        if let Some((lines, write)) = lines_of(&record.event) {
            let operation = if write { "ST" } else { "LD" };
            for line in lines {
                writeln!(self.output, "{operation} {line:#x}")?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}
