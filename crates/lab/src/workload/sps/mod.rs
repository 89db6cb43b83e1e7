//! SPS: swaps of two random strings of 256 bytes, made durable one way or another (MSS, section 4).
//!
//! * Core 0 swaps. Core 1 is the persistence thread, or makes checkpoints; the others have nothing to do.
//! * Logging: the new strings go into a ring of entries, then into their places. Only the log is written back before
//!   (Figure 2a).
//! * Versions lie in arrays, one for each. A row of numbers for each string says which update wrote which version;
//!   one word says up to which update all is durable. Newest is the largest number (`twinpage-versions` has the same
//!   order of writes: versions and numbers, fence, word, fence).
//! * A string changed again before it was handed over is changed in place.
//! * Non-temporal stores are ordered by their own core's fence alone: with them the operation thread fences when it
//!   hands over.

mod programs;
mod variant;

pub use variant::{ALL, Fence, Method, Variant, WriteBack};

use super::layout::Layout;
use super::{Progress, Workload};
use crate::space::{Plain, Port, Space};

/// Bytes of a string.
pub(super) const STRING: u64 = 256;
/// Bytes of a log entry: number, two places, two strings, in whole lines.
const ENTRY: u64 = 576;
/// Bytes of a row of numbers: three versions in half a line.
const ROW: u64 = 32;
/// Addresses that the operation thread hands over, at a time.
const RING: u64 = 4096;

/// What the programs run with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Size {
    /// Strings.
    pub strings: u64,
    /// Entries of a log.
    pub log_entries: u64,
    /// Hand-overs for each swap.
    pub threshold: f64,
    /// What is handed over.
    pub persist: Persist,
}

/// What the persistence thread makes durable at a time. The paper says "the recently updated data".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Persist {
    /// All that was swapped since the time before: every swap is durable in the end.
    All,
    /// The last swap alone: the others are as durable as the caches' evictions make them.
    Last,
}

/// Where everything lies.
#[derive(Clone, Copy, Debug)]
struct Addresses {
    /// The versions' arrays, one after the other.
    strings: u64,
    numbers: u64,
    /// The durable word.
    word: u64,
    logs: [u64; 2],
    copy: u64,
    ring: u64,
    bytes: u64,
}

/// The workload.
#[derive(Clone, Debug)]
pub struct Sps {
    name: String,
    variant: Variant,
    size: Size,
    places: Addresses,
    random: fastrand::Rng,
    /// Which of the first strings is where.
    model: Vec<u32>,
    /// Swaps done.
    swaps: u64,
    log: programs::Log,
    handover: programs::Handover,
}

impl Sps {
    /// A program of the study.
    #[must_use]
    pub fn new(variant: Variant, size: Size, seed: u64) -> Sps {
        let mut layout = Layout::default();
        let mut region = |is_there: bool, bytes: u64| layout.region(if is_there { bytes } else { 0 });
        let (checkpoint, disk) = match variant.method {
            Method::Logging { checkpoint, disk } => (checkpoint, disk),
            _ => (false, false),
        };
        let is_logging = matches!(variant.method, Method::Logging { .. });
        let has_versions = variant.versions() > 1;
        let log = size.log_entries * ENTRY;
        let places = Addresses {
            strings: region(true, variant.versions() * size.strings * STRING),
            numbers: region(has_versions, size.strings * ROW),
            word: region(has_versions, 64),
            // The second log is that of the checkpoint under way, or the copy that a file's write makes.
            logs: [region(is_logging, log), region(checkpoint || disk, log)],
            copy: region(checkpoint, size.strings * STRING),
            ring: region(variant.method == Method::Threading, RING * 8 + 128),
            bytes: 0,
        };
        Sps {
            name: format!("sps:{}", variant.name),
            variant,
            size,
            places: Addresses {
                bytes: layout.bytes(),
                ..places
            },
            random: fastrand::Rng::with_seed(seed),
            model: (0..size.strings as u32).collect(),
            swaps: 0,
            log: programs::Log::default(),
            handover: programs::Handover::default(),
        }
    }

    /// Hand-overs to the persistence thread so far.
    #[must_use]
    pub fn persists(&self) -> u64 {
        self.handover.persists
    }

    /// How often the operation thread waited for it.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.handover.waits
    }

    /// Swaps done so far.
    #[must_use]
    pub fn swaps(&self) -> u64 {
        self.swaps
    }

    /// Version `version` of string `index`.
    fn string(&self, index: u64, version: u64) -> u64 {
        self.places.strings + (version * self.size.strings + index) * STRING
    }

    fn number(&self, index: u64, version: u64) -> u64 {
        self.places.numbers + index * ROW + version * 8
    }

    /// The version of a string that the space holds as its newest.
    fn newest(&self, space: &Space, index: u64) -> u64 {
        let versions = 0..self.variant.versions();
        let number = |version: &u64| u64::get(space.at(self.number(index, *version), 8));
        versions.max_by_key(number).unwrap_or(0)
    }
}

/// The string that number `number` is at the beginning: no two are the same.
fn first(number: u64) -> [u8; STRING as usize] {
    let mut text = [0; STRING as usize];
    for (k, word) in text.chunks_exact_mut(8).enumerate() {
        let mixed = (number << 5 | k as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&mixed.to_le_bytes());
    }
    text
}

impl Workload for Sps {
    fn name(&self) -> &str {
        &self.name
    }

    fn footprint_bytes(&self) -> u64 {
        self.places.bytes
    }

    fn fill(&self, space: &mut Space) {
        let bytes = space.bytes_mut();
        for index in 0..self.size.strings {
            let at = self.string(index, 0) as usize;
            bytes[at..at + STRING as usize].copy_from_slice(&first(index));
            if self.variant.versions() > 1 {
                1_u64.put(&mut bytes[self.number(index, 0) as usize..][..8]);
            }
        }
        if self.variant.versions() > 1 {
            1_u64.put(&mut bytes[self.places.word as usize..][..8]);
        }
    }

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        match (core, self.variant.method) {
            (0, Method::Plain | Method::Logging { .. }) => self.swap_in_place(port),
            (0, Method::Interleaved) => self.swap_interleaved(port),
            (0, Method::Threading) => self.swap_threading(port),
            (1, Method::Threading) => self.persist(port),
            (1, Method::Logging { checkpoint: true, .. }) => self.checkpoint(port),
            _ => Progress::Done,
        }
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        let has_versions = self.variant.versions() > 1;
        for (index, &from) in (0..).zip(&self.model) {
            let version = if has_versions {
                self.newest(space, index)
            } else {
                0
            };
            let found = space.at(self.string(index, version), STRING as usize);
            if found != first(from.into()) {
                return Err(format!("string {index} is not the one that number {from} was"));
            }
        }
        let word = match has_versions {
            true => u64::get(space.at(self.places.word, 8)),
            false => return Ok(()),
        };
        match word <= self.swaps + 1 {
            true => Ok(()),
            false => Err(format!("update {word} is durable, and {} were done", self.swaps)),
        }
    }
}
