//! Recovery as programs on the machine, to be timed (3.3.2).
//!
//! * Of the object: its copy is read from NVM, and a group of functions, the most there can be, is run again.
//! * Of the application: each thread calls again from the beginning and looks at every entry of the log for its own;
//!   resilient ones are not run. Entries lie one after the other, as the truncated log of that many functions does.

use super::config::{Call, Config, Sizes};
use super::places::{COPY_HEADER, ENTRY, Function, Places, add};
use crate::op::LINE_BYTES;
use crate::space::{Plain, Port, Space};
use crate::workload::{Progress, Workload};

/// Entries looked at in a batch.
const LOOKED_AT: u64 = 64;

/// A recovery.
pub struct Scan {
    threads: usize,
    /// Entries, and of each thread those it has looked at.
    entries: u64,
    at: Vec<u64>,
    /// Entries that each thread found to be its own.
    found: Vec<u64>,
    is_restored: bool,
    /// Functions to be run again before, and those that were.
    replayed: u64,
    run: u64,
    call: Call,
    places: Places,
    log: u64,
}

impl Scan {
    /// Of the object alone: its copy, and a group of functions.
    #[must_use]
    pub fn object(config: &Config) -> Scan {
        Scan {
            replayed: config.sizes.group,
            ..Scan::application(config, 1, 0)
        }
    }

    /// Of the object alone, of that many bytes: its copy, with no function after it.
    #[must_use]
    pub fn copy(config: &Config, bytes: u64) -> Scan {
        let sizes = Sizes {
            rows: 1,
            columns: bytes / 4,
            others: [0, 0],
            ..config.sizes
        };
        Scan::of(config.call, Places::new(sizes), 1, 0)
    }

    /// Of an application of that many threads that called that many functions, all of them resilient.
    #[must_use]
    pub fn application(config: &Config, threads: usize, entries: u64) -> Scan {
        Scan::of(config.call, Places::new(config.sizes), threads, entries)
    }

    fn of(call: Call, places: Places, threads: usize, entries: u64) -> Scan {
        Scan {
            threads,
            entries,
            at: vec![0; threads],
            found: vec![0; threads],
            is_restored: false,
            replayed: 0,
            run: 0,
            call,
            log: places.bytes,
            places,
        }
    }

    /// Batches until it is over: each ends with a commit.
    #[must_use]
    pub fn batches(&self) -> u64 {
        1 + self.replayed + self.threads as u64 * self.entries.div_ceil(LOOKED_AT)
    }

    fn thread_of(&self, number: u64) -> u64 {
        number % self.threads as u64
    }

    fn restore(&self, port: &mut Port<'_>) {
        let _: u64 = port.load(self.places.index);
        let _: u64 = port.load(self.places.cursor);
        let from = self.places.copy(0) + COPY_HEADER;
        let all = self.places.array_bytes();
        for at in (0..all).step_by(LINE_BYTES as usize) {
            let mut line = vec![0; LINE_BYTES.min(all - at) as usize];
            port.load_bytes(from + at, &mut line);
            port.store_bytes(self.places.array + at, &line);
        }
    }

    fn run_again(&self, number: u64, port: &mut Port<'_>) {
        let _: u64 = port.load(self.places.entry(number));
        let _: u64 = port.follow(self.places.context(number));
        port.work(self.call.wrapper);
        let all = self.places.array_bytes();
        for at in (0..all).step_by(LINE_BYTES as usize) {
            let mut line = vec![0; LINE_BYTES.min(all - at) as usize];
            port.work(self.call.element * line.len() as u32 / 4);
            port.load_bytes(self.places.array + at, &mut line);
            add(&mut line, Function::All(1));
            port.store_bytes(self.places.array + at, &line);
        }
    }

    fn look(&mut self, core: usize, port: &mut Port<'_>) {
        for _ in 0..LOOKED_AT.min(self.entries - self.at[core]) {
            let number = self.at[core];
            let thread: u64 = port.load(self.log + number * ENTRY + 8);
            port.work(self.call.checked);
            if thread >> 32 == core as u64 {
                self.found[core] += 1;
                port.work(self.call.caller);
            }
            self.at[core] += 1;
        }
    }
}

impl Workload for Scan {
    fn name(&self) -> &str {
        "recovery"
    }

    fn footprint_bytes(&self) -> u64 {
        self.log + self.entries * ENTRY
    }

    fn persistent_from(&self) -> u64 {
        self.places.nvm
    }

    fn fill(&self, space: &mut Space) {
        for number in 0..self.entries {
            let at = (self.log + number * ENTRY + 8) as usize;
            (self.thread_of(number) << 32).put(&mut space.bytes_mut()[at..at + 8]);
        }
    }

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        if core >= self.threads {
            return Progress::Done;
        }
        // The first batch restores the copy; then come functions that are run again, then entries.
        match self.at[core] {
            _ if core == 0 && !self.is_restored => {
                self.is_restored = true;
                self.restore(port);
            }
            _ if core == 0 && self.run < self.replayed => {
                self.run += 1;
                self.run_again(self.run, port);
            }
            at if at < self.entries => self.look(core, port),
            _ => return Progress::Done,
        }
        port.commit();
        Progress::More
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        let expected = self.replayed as u32;
        let array = space.at(self.places.array, self.places.array_bytes() as usize);
        if array.chunks_exact(4).any(|element| u32::get(element) != expected) {
            return Err(format!("the array is not what {expected} functions make"));
        }
        let of = |thread: u64| {
            (0..self.entries)
                .filter(|number| self.thread_of(*number) == thread)
                .count()
        };
        let all = (0..self.threads).all(|thread| self.found[thread] == of(thread as u64) as u64);
        match all {
            true => Ok(()),
            false => Err("a thread did not find every entry of its own".into()),
        }
    }
}
