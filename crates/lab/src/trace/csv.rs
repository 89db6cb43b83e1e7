//! `cycle,write,address`: one request of a line in each line of text; a first line that names the
//! columns is allowed. `write` is 0 or 1, or R or W.

use super::dramsim3::{request, requests, since};
use super::error::Result;
use super::input::{Lines, number};
use super::{Clock, Header, Reader, Record};
use std::io::BufRead;

pub(crate) const TITLE: &str = "cycle,write,address";

pub(crate) struct Csv<R> {
    lines: Lines<R>,
    header: Header,
    begun: bool,
    cycle: u64,
}

impl<R: BufRead> Csv<R> {
    pub(crate) fn new(name: &str, input: R) -> Self {
        Csv {
            lines: Lines::new(name, input),
            header: requests(name, Clock::Cycles),
            begun: false,
            cycle: 0,
        }
    }

    fn parse(line: &str, before: &mut u64) -> std::result::Result<Record, String> {
        let mut fields = line.split(',').map(str::trim);
        let (Some(cycle), Some(write), Some(address), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(format!("expected {TITLE}, found {line:?}"));
        };
        let write = match write {
            "0" | "R" => false,
            "1" | "W" => true,
            other => return Err(format!("expected 0 or 1, or R or W, found {other:?}")),
        };
        let event = request(number(address)?, write);
        let after = since(number(cycle)?, before)?;
        Ok(Record {
            core: 0,
            after,
            event,
        })
    }
}

impl<R: BufRead + Send> Reader for Csv<R> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self) -> Result<Option<Record>> {
        loop {
            let Some(line) = self.lines.advance()? else {
                return Ok(None);
            };
            if !std::mem::replace(&mut self.begun, true) && line == TITLE {
                continue;
            }
            return match Self::parse(line, &mut self.cycle) {
                Ok(record) => Ok(Some(record)),
                Err(what) => Err(self.lines.refuse(what)),
            };
        }
    }
}
