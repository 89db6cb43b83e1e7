//! Traces: the memory accesses of a program, as files. Many forms in, three out.
//!
//! * A trace is a [`Header`] and a sequence of [`Record`]s in the order in which they happened.
//! * Every reader refuses what it does not understand, with the line or the byte offset: nothing is
//!   skipped, nothing is guessed.
//! * Compressed files (gzip, xz, zstd) are recognised by their first bytes, whatever their name.

mod accesses;
mod champsim;
mod convert;
mod csv;
mod dramsim3;
mod error;
mod file;
mod input;
mod lackey;
mod native;
mod ramulator;
mod record;

pub use convert::{ConvertError, Converted, convert};
pub use error::{Error, Position, Result};
pub use file::{Progress, Trace};
pub use lackey::Lackey;
pub use native::{NativeReader, NativeWriter};
pub use record::{RecordError, Recorded, Window, can_record, record};

use std::fmt;
use std::str::FromStr;

/// Cores that a trace can have at most.
pub const CORES: u8 = 64;
/// The largest access, in bytes (an x86 `xsave` writes less).
pub const ACCESS_BYTES: u16 = 4096;

/// One thing a core did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Which core, from 0.
    pub core: u8,
    /// Instructions (or cycles: [`Header::clock`]) that this core completed since its record before,
    /// the one that makes this access included. The second access of one instruction has 0.
    pub after: u32,
    /// What it did.
    pub event: Event,
}

/// What a core did. Addresses and sizes are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Read `size` bytes.
    Load {
        /// The first byte.
        at: u64,
        /// How many.
        size: u16,
    },
    /// Read `size` bytes, at an address that a load before it on this core gave.
    Follow {
        /// The first byte.
        at: u64,
        /// How many.
        size: u16,
        /// How many loads before it that load was, 1 to [`RECENT`](crate::op::RECENT): 1 is the last.
        behind: u8,
    },
    /// Wrote `size` bytes.
    Store {
        /// The first byte.
        at: u64,
        /// How many; at most 8 when their value is known.
        size: u16,
        /// The bytes written, little-endian, where the trace carries data.
        value: Option<u64>,
    },
    /// Asked that the lines holding these bytes become durable (`clwb`).
    Persist {
        /// The first byte.
        at: u64,
        /// How many.
        size: u16,
    },
    /// Waited until what was asked is durable (`sfence`).
    Fence,
    /// Ended a transaction, or an epoch: a point a crash may be rolled back to.
    Commit,
}

/// What [`Record::after`] counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// Instructions of that core.
    Instructions,
    /// Cycles of the memory, or of the core, as the form it came from had them.
    Cycles,
}

/// Where addresses point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addresses {
    /// Into the address space of a program, one for each core.
    Virtual,
    /// Into one physical memory.
    Physical,
}

/// What holds for a whole trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Cores, 1 to [`CORES`].
    pub cores: u8,
    /// What is counted between records.
    pub clock: Clock,
    /// Where addresses point.
    pub addresses: Addresses,
    /// Where it came from: a command line, a file. At most 65535 bytes.
    pub origin: String,
}

/// The forms of traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Ours: binary, compressed, with everything a record can say.
    Native,
    /// ChampSim's `input_instr` records of 64 bytes.
    ChampSim,
    /// `0xADDRESS READ|WRITE cycle`.
    DramSim3,
    /// `LD|ST address`, without time.
    Ramulator,
    /// `instructions load-address [store-address]`, Ramulator's traces for a simple core.
    RamulatorCore,
    /// `valgrind --tool=lackey --trace-mem=yes`.
    Lackey,
    /// `cycle,write,address`.
    Csv,
}

impl Form {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Form; 7] = [
        Form::Native,
        Form::ChampSim,
        Form::DramSim3,
        Form::Ramulator,
        Form::RamulatorCore,
        Form::Lackey,
        Form::Csv,
    ];

    /// As it is written on a command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Form::Native => "native",
            Form::ChampSim => "champsim",
            Form::DramSim3 => "dramsim3",
            Form::Ramulator => "ramulator",
            Form::RamulatorCore => "ramulator-core",
            Form::Lackey => "lackey",
            Form::Csv => "csv",
        }
    }

    /// Whether [`convert`] can write it.
    #[must_use]
    pub fn is_written(self) -> bool {
        matches!(self, Form::Native | Form::DramSim3 | Form::Ramulator)
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Form {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Form, String> {
        Form::ALL
            .into_iter()
            .find(|form| form.name() == name)
            .ok_or_else(|| {
                format!(
                    "no form of traces is called {name}; there are {}",
                    Form::ALL.map(Form::name).join(", ")
                )
            })
    }
}

/// What every reader of a form does.
pub(crate) trait Reader: Send {
    /// What holds for the whole trace.
    fn header(&self) -> &Header;
    /// The next record; none at the end.
    fn next(&mut self) -> Result<Option<Record>>;
}

/// What every writer of a form does.
pub(crate) trait Writer {
    /// Adds a record.
    fn write(&mut self, record: &Record) -> std::io::Result<()>;
    /// Writes what is still held back. Without it, the trace is damaged.
    fn finish(&mut self) -> std::io::Result<()>;
}
