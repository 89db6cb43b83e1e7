//! The NVM as a medium: real bytes, and a record of what was done to them, for the machine to time.
//!
//! * The bytes are there at once; when they are durable the machine says, once it has timed the write.
//! * With `remember`, what a write replaced is kept until it is durable, so that a crash can leave
//!   exactly what was.
//! * Without it the data is never looked at: only what schemes keep for themselves has bytes. What
//!   is done, and how long it takes, is the same.
//! * Wear is counted a line.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::rc::Rc;
use twinpage_core::medium::{Cause, Offset, Path};
use twinpage_core::{Error, Medium, Result};

const CHUNK: usize = 1 << 21;
const LINES: usize = CHUNK / 64;

/// What was done, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Lines were read.
    Read,
    /// Lines were written; the number names the write when it is durable.
    Write(u64),
    /// A fence.
    Fence,
    /// Bytes of the scheme's own DRAM.
    Touch,
}

/// One access of the scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What.
    pub action: Action,
    /// The first line's address.
    pub at: u64,
    /// Lines.
    pub lines: u64,
    /// For what.
    pub cause: Cause,
    /// Who waits.
    pub path: Path,
}

#[derive(Debug)]
struct State {
    bytes: Vec<Option<Box<[u8]>>>,
    wear: Vec<Option<Box<[u32]>>>,
    len: u64,
    limit: u64,
    log: Vec<Entry>,
    /// Whether the log is kept at all: not while memory is filled before a run.
    logging: bool,
    remember: bool,
    /// Which half of the place for copies of tables was written last.
    standby: bool,
    next: u64,
    /// What writes not durable yet replaced.
    replaced: BTreeMap<u64, (u64, Box<[u8]>)>,
    /// Those of them that are on their way into the cells.
    issued: HashSet<u64>,
}

/// The medium; clones are the same memory.
#[derive(Clone, Debug)]
pub struct Nvm {
    state: Rc<RefCell<State>>,
    hint: Rc<Cell<(Cause, Path)>>,
    /// Reads are noted, and bring nothing.
    blind: Rc<Cell<bool>>,
}

/// How worn a memory is.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Wear {
    /// Lines written at least once.
    pub lines: u64,
    /// Writes to lines.
    pub writes: u64,
    /// The most written line.
    pub max: u32,
    /// Median, 90th and 99th percentile over the lines written.
    pub p50: u32,
    /// 90th percentile.
    pub p90: u32,
    /// 99th percentile.
    pub p99: u32,
}

impl Nvm {
    /// `limit` bytes of zeros, of which nothing is in use yet.
    #[must_use]
    pub fn new(limit: u64, remember: bool) -> Nvm {
        let chunks = limit.div_ceil(CHUNK as u64) as usize;
        Nvm {
            state: Rc::new(RefCell::new(State {
                bytes: vec![None; chunks],
                wear: vec![None; chunks],
                len: 0,
                limit,
                log: Vec::new(),
                logging: false,
                remember,
                standby: false,
                next: 0,
                replaced: BTreeMap::new(),
                issued: HashSet::new(),
            })),
            hint: Rc::new(Cell::new((Cause::Data, Path::Critical))),
            blind: Rc::new(Cell::new(false)),
        }
    }

    /// Until told otherwise, what is read is data that is not looked at.
    pub fn read_blindly(&self, blind: bool) {
        self.blind.set(blind);
    }

    /// Whether it can be crashed.
    #[must_use]
    pub fn remembers(&self) -> bool {
        self.state.borrow().remember
    }

    /// A write of so many bytes that hold nothing a scheme reads: to the place for copies of tables, past
    /// all else, by turns to one half of it and the other.
    pub fn write_standby(&self, bytes: u64) {
        let mut state = self.state.borrow_mut();
        let bytes = bytes.next_multiple_of(64);
        state.standby = !state.standby;
        let at = state.limit.next_multiple_of(CHUNK as u64) + if state.standby { 0 } else { bytes };
        let number = state.next;
        state.next += 1;
        state.note(Action::Write(number), at, bytes as usize, self.hint.get());
        if state.logging {
            let chunks = (at + bytes).div_ceil(CHUNK as u64) as usize;
            if state.wear.len() < chunks {
                state.wear.resize(chunks, None);
            }
            state.wear_out(at, bytes as usize);
        }
    }

    /// From now on accesses are recorded.
    pub fn start(&self) {
        self.state.borrow_mut().logging = true;
    }

    /// What was done since the last call, into `log`, which is emptied first.
    pub fn take_log(&self, log: &mut Vec<Entry>) {
        log.clear();
        std::mem::swap(&mut self.state.borrow_mut().log, log);
    }

    /// The write is on its way: a crash may find any part of it.
    pub fn issued(&self, write: u64) {
        let mut state = self.state.borrow_mut();
        if state.remember {
            state.issued.insert(write);
        }
    }

    /// The write is in the cells.
    pub fn durable(&self, write: u64) {
        let mut state = self.state.borrow_mut();
        if state.remember {
            state.issued.remove(&write);
            state.replaced.remove(&write);
        }
    }

    /// The power fails: writes not durable yet are undone, but of those on their way each 8-byte
    /// piece for which `survives` says so.
    pub fn crash(&self, mut survives: impl FnMut() -> bool) {
        let mut state = self.state.borrow_mut();
        while let Some((write, (at, before))) = state.replaced.pop_last() {
            let issued = state.issued.remove(&write);
            for (piece, bytes) in before.chunks(8).enumerate() {
                if !(issued && survives()) {
                    state.put(at + piece as u64 * 8, bytes);
                }
            }
        }
        state.log.clear();
    }

    /// How worn it is.
    #[must_use]
    pub fn wear(&self) -> Wear {
        let state = self.state.borrow();
        let all = state
            .wear
            .iter()
            .flatten()
            .flat_map(|chunk| chunk.iter().copied());
        let mut counts: Vec<u32> = all.filter(|&count| count > 0).collect();
        counts.sort_unstable();
        let at = |percent: usize| {
            counts
                .get((counts.len().max(1) - 1) * percent / 100)
                .copied()
                .unwrap_or(0)
        };
        Wear {
            lines: counts.len() as u64,
            writes: counts.iter().map(|&count| u64::from(count)).sum(),
            max: at(100),
            p50: at(50),
            p90: at(90),
            p99: at(99),
        }
    }

    /// Forgets the wear of filling the memory before a run.
    pub fn forget_wear(&self) {
        self.state.borrow_mut().wear.fill(None);
    }
}

impl State {
    fn check(&self, at: Offset, len: usize) -> Result<()> {
        match at.checked_add(len as u64) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(Error::Io {
                what: format!("reach {len} bytes of an NVM of {}", self.len),
                at,
                source: std::io::ErrorKind::UnexpectedEof.into(),
            }),
        }
    }

    fn note(&mut self, action: Action, at: u64, len: usize, (cause, path): (Cause, Path)) {
        if self.logging {
            let first = at / 64;
            let lines = if len == 0 {
                0
            } else {
                (at + len as u64 - 1) / 64 - first + 1
            };
            self.log.push(Entry {
                action,
                at: first * 64,
                lines,
                cause,
                path,
            });
        }
    }

    fn get(&self, at: u64, into: &mut [u8]) {
        pieces(at, into.len(), |chunk, inside, piece| match &self.bytes[chunk] {
            Some(bytes) => into[piece].copy_from_slice(&bytes[inside]),
            None => into[piece].fill(0),
        });
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        pieces(at, bytes.len(), |chunk, inside, piece| {
            let bytes = &bytes[piece];
            let slot = &mut self.bytes[chunk];
            if slot.is_none() && bytes.iter().all(|&byte| byte == 0) {
                return;
            }
            let chunk = slot.get_or_insert_with(|| vec![0; CHUNK].into());
            chunk[inside].copy_from_slice(bytes);
        });
    }

    fn wear_out(&mut self, at: u64, len: usize) {
        pieces(at, len, |chunk, inside, _| {
            let chunk = self.wear[chunk].get_or_insert_with(|| vec![0; LINES].into());
            for line in &mut chunk[inside.start / 64..inside.end.div_ceil(64)] {
                *line += 1;
            }
        });
    }
}

/// Whether a scheme may read what it wrote for this, to know what to do next.
fn is_its_own(cause: Cause) -> bool {
    match cause {
        Cause::Context | Cause::Journal | Cause::Snapshot | Cause::Fallback | Cause::Log => true,
        Cause::Data | Cause::Reclaim | Cause::Copy | Cause::Migration | Cause::WriteBack => false,
    }
}

/// Cuts a range at chunks: chunk, range inside it, range of the whole.
fn pieces(at: u64, len: usize, mut each: impl FnMut(usize, Range<usize>, Range<usize>)) {
    let mut done = 0;
    while done < len {
        let here = at + done as u64;
        let inside = (here % CHUNK as u64) as usize;
        let some = (len - done).min(CHUNK - inside);
        each(
            (here / CHUNK as u64) as usize,
            inside..inside + some,
            done..done + some,
        );
        done += some;
    }
}

impl Medium for Nvm {
    fn hint(&self, cause: Cause, path: Path) {
        self.hint.set((cause, path));
    }

    fn accessed(&self, bytes: usize) {
        self.state
            .borrow_mut()
            .note(Action::Touch, 0, bytes, self.hint.get());
    }

    fn len(&self) -> u64 {
        self.state.borrow().len
    }

    fn grow(&mut self, len: u64) -> Result<()> {
        let mut state = self.state.borrow_mut();
        if len > state.limit {
            let needed = len - state.limit;
            return Err(Error::Full {
                what: "the simulated NVM".into(),
                needed,
            });
        }
        state.len = state.len.max(len);
        Ok(())
    }

    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        let mut state = self.state.borrow_mut();
        state.check(at, into.len())?;
        state.note(Action::Read, at, into.len(), self.hint.get());
        if state.remember || !self.blind.get() {
            state.get(at, into);
        }
        Ok(())
    }

    fn write(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        let mut state = self.state.borrow_mut();
        state.check(at, bytes.len())?;
        let number = state.next;
        state.next += 1;
        if state.remember && state.logging {
            let mut before = vec![0; bytes.len()].into_boxed_slice();
            state.get(at, &mut before);
            state.replaced.insert(number, (at, before));
        }
        state.note(Action::Write(number), at, bytes.len(), self.hint.get());
        if state.logging {
            state.wear_out(at, bytes.len());
        }
        if state.remember || is_its_own(self.hint.get().0) {
            state.put(at, bytes);
        }
        Ok(())
    }

    fn discard(&mut self, range: Range<Offset>) -> Result<()> {
        // Hardware has no such request; the bytes stay as they were.
        self.state
            .borrow()
            .check(range.start, (range.end - range.start) as usize)
    }

    fn fence(&mut self) -> Result<()> {
        self.state.borrow_mut().note(Action::Fence, 0, 0, self.hint.get());
        Ok(())
    }

    fn atom(&self) -> usize {
        8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_durable_stays() {
        let mut nvm = Nvm::new(8 << 20, true);
        nvm.grow(4 << 20).unwrap();
        nvm.write(100, &[1; 8]).unwrap();
        nvm.start();
        nvm.hint(Cause::Log, Path::Background);
        let at = (2 << 20) - 4;
        nvm.write(at, &[2; 8]).unwrap();
        nvm.write(100, &[3; 8]).unwrap();
        nvm.write(100, &[4; 8]).unwrap();
        let mut log = Vec::new();
        nvm.take_log(&mut log);
        assert_eq!(
            (log[0].at, log[0].lines, log[0].cause),
            ((2 << 20) - 64, 2, Cause::Log)
        );
        let Action::Write(second) = log[1].action else {
            panic!("{log:?}")
        };
        nvm.durable(second);
        nvm.crash(|| true);
        let mut found = [0; 8];
        nvm.read(100, &mut found).unwrap();
        assert_eq!(found, [3; 8], "the last was not durable");
        nvm.read(at, &mut found).unwrap();
        assert_eq!(found, [0; 8]);
        assert_eq!(
            nvm.wear(),
            Wear {
                lines: 3,
                writes: 4,
                max: 2,
                p50: 1,
                p90: 1,
                p99: 1
            }
        );
        assert!(matches!(nvm.grow(9 << 20), Err(Error::Full { .. })));
        assert!(nvm.write(4 << 20, &[1]).is_err());
    }
}
