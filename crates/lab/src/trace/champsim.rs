//! ChampSim's traces: one record of 64 bytes for each instruction.
//!
//! ```text
//!  0     8           9        10               12              16                   32             64
//!  | ip  | is branch | taken  | dest registers | src registers | stored addresses   | loaded       |
//!  | u64 | u8        | u8     | 2 x u8         | 4 x u8        | 2 x u64, 0: none   | 4 x u64      |
//! ```
//!
//! An instruction loads before it stores. The form says no sizes: an access is taken as 8 bytes.

use super::error::Result;
use super::input::Bytes;
use super::{Addresses, Clock, Event, Header, Reader, Record};
use std::io::Read;

const RECORD_BYTES: usize = 64;
const ACCESS: u16 = 8;

pub(crate) struct ChampSim<R> {
    input: Bytes<R>,
    header: Header,
    /// Accesses of the instruction read last that are still to be given, last first.
    pending: Vec<Event>,
    instructions: u32,
}

impl<R: Read> ChampSim<R> {
    pub(crate) fn new(name: &str, input: R) -> Self {
        ChampSim {
            input: Bytes::new(name, input),
            header: Header {
                cores: 1,
                clock: Clock::Instructions,
                addresses: Addresses::Virtual,
                origin: name.to_owned(),
            },
            pending: Vec::with_capacity(6),
            instructions: 0,
        }
    }

    /// Reads one instruction; false at the end.
    fn instruction(&mut self) -> Result<bool> {
        let from = self.input.at();
        let mut bytes = [0; RECORD_BYTES];
        match self.input.fill(&mut bytes)? {
            0 => return Ok(false),
            RECORD_BYTES => {}
            part => {
                return Err(self.input.refuse(
                    from,
                    format!("an instruction of {RECORD_BYTES} bytes expected, {part} there"),
                ));
            }
        }
        if bytes[8] > 1 || bytes[9] > 1 {
            let what = format!("branch flags are {} and {}, not 0 or 1", bytes[8], bytes[9]);
            return Err(self.input.refuse(from + 8, what));
        }
        self.instructions = self.instructions.saturating_add(1);
        let address = |slot: usize| {
            let at = 16 + 8 * slot;
            u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
        };
        // The first to be given is pushed last: loads, then stores.
        for slot in [1, 0, 5, 4, 3, 2] {
            let at = address(slot);
            if at > u64::MAX - u64::from(ACCESS) {
                let what = format!("an access at {at:#x} does not fit the address space");
                return Err(self.input.refuse(from + 16 + 8 * slot as u64, what));
            }
            let (size, value) = (ACCESS, None);
            match (at, slot) {
                (0, _) => {}
                (at, 0 | 1) => self.pending.push(Event::Store { at, size, value }),
                (at, _) => self.pending.push(Event::Load { at, size }),
            }
        }
        Ok(true)
    }
}

impl<R: Read + Send> Reader for ChampSim<R> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self) -> Result<Option<Record>> {
        loop {
            if let Some(event) = self.pending.pop() {
                let after = std::mem::take(&mut self.instructions);
                return Ok(Some(Record {
                    core: 0,
                    after,
                    event,
                }));
            }
            if !self.instruction()? {
                return Ok(None);
            }
        }
    }
}
