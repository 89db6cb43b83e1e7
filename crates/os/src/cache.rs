//! A model of the processor's caches, over the crash recorder: what a power cut leaves when bytes reach
//! persistent memory only by the instructions that bring them there.
//!
//! ```text
//!   write ---> persist(): which instructions ---> Modelled: store ------> cache
//!              (the code the DAX medium runs)                             | write back
//!                                                 stream -----------------+--> recorder: posted
//!                                                 drain ---------------------> recorder: fenced
//! ```
//!
//! * A line that was stored and not written back never arrives. This is the worst a cache may do, and
//!   the one thing that neither a killed program nor a killed virtual machine shows.
//! * A cache that evicts early adds nothing: what is written back is posted, and the explorer lets any
//!   subset of what was posted arrive, torn at the atom.
//! * A planted [`Mistake`] leaves an instruction out, and the explorer must notice.

#![allow(unsafe_code)]

use crate::dax::PastTheCaches;
use crate::flush::{CACHE_LINE, Processor};
use std::cell::RefCell;
use std::ops::Range;
use twinpage_core::crash::Recorder;
use twinpage_core::{Medium, Offset, Result};

/// An instruction left out on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// Stored lines are not written back.
    NoWriteBack,
    /// Whole lines are stored instead of streamed, and not written back either.
    StoresForStreams,
    /// No store fence.
    NoDrain,
}

/// A processor whose caches never evict, before a recorder.
#[derive(Debug)]
pub struct Modelled {
    recorder: RefCell<Recorder>,
    mistake: Option<Mistake>,
    /// Where byte 0 of the medium lies in memory.
    base: *mut u8,
    /// Bytes of the medium that are in the cache only.
    dirty: Vec<Range<usize>>,
    failed: RefCell<Result<()>>,
}

impl Modelled {
    fn offset(&self, at: *mut u8) -> usize {
        at.addr() - self.base.addr()
    }

    /// Bytes of the medium arrive at the recorder.
    fn post(&self, range: &Range<usize>) {
        // SAFETY: the range was stored into, so it lies in the memory behind `base`.
        let bytes = unsafe { std::slice::from_raw_parts(self.base.add(range.start), range.len()) };
        self.note(self.recorder.borrow_mut().write(range.start as Offset, bytes));
    }

    fn note(&self, result: Result<()>) {
        let mut failed = self.failed.borrow_mut();
        if failed.is_ok() {
            *failed = result;
        }
    }
}

impl Processor for Modelled {
    unsafe fn stream(&mut self, line: &[u8; CACHE_LINE], to: *mut u8) {
        // SAFETY: the caller's.
        unsafe { self.store(line, to) };
        if self.mistake != Some(Mistake::StoresForStreams)
            && let Some(range) = self.dirty.pop()
        {
            self.post(&range);
        }
    }

    unsafe fn store(&mut self, bytes: &[u8], to: *mut u8) {
        // SAFETY: the caller's.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        let start = self.offset(to);
        self.dirty.push(start..start + bytes.len());
    }

    unsafe fn write_back(&mut self, at: *mut u8) {
        if self.mistake == Some(Mistake::NoWriteBack) {
            return;
        }
        let line = self.offset(at) / CACHE_LINE;
        let is_in_line = |range: &mut Range<usize>| range.start / CACHE_LINE == line;
        let written: Vec<_> = self.dirty.extract_if(.., is_in_line).collect();
        written.iter().for_each(|range| self.post(range));
    }

    fn drain(&self) {
        if self.mistake != Some(Mistake::NoDrain) {
            self.note(self.recorder.borrow_mut().fence());
        }
    }
}

/// Memory that begins where a cache line does.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Line([u8; CACHE_LINE]);

/// A medium behind a modelled cache. See the [module](self).
#[derive(Debug)]
pub struct Cached {
    memory: Vec<Line>,
    len: u64,
    persistence: PastTheCaches<Modelled>,
    grown: bool,
}

impl Cached {
    /// On top of `recorder`, with a mistake if there is one.
    ///
    /// # Errors
    /// As the recorder's.
    pub fn new(recorder: Recorder, mistake: Option<Mistake>) -> Result<Cached> {
        let len = recorder.len();
        let mut held = vec![0; len as usize];
        recorder.read(0, &mut held)?;
        let lines = held.chunks(CACHE_LINE).map(|bytes| {
            let mut line = Line([0; CACHE_LINE]);
            line.0[..bytes.len()].copy_from_slice(bytes);
            line
        });
        Ok(Cached {
            memory: lines.collect(),
            len,
            persistence: PastTheCaches::new(Modelled {
                recorder: RefCell::new(recorder),
                mistake,
                base: std::ptr::null_mut(),
                dirty: Vec::new(),
                failed: RefCell::new(Ok(())),
            }),
            grown: false,
        })
    }

    /// What arrived at the recorder, fenced or not.
    pub fn arrived(&mut self) -> Vec<u8> {
        self.recorder().image().bytes().to_vec()
    }

    fn recorder(&mut self) -> &mut Recorder {
        self.persistence.processor().recorder.get_mut()
    }

    fn outcome(&mut self) -> Result<()> {
        std::mem::replace(self.persistence.processor().failed.get_mut(), Ok(()))
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: lines are bytes without padding, and the medium is no longer than they are.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.len as usize) }
    }
}

impl Medium for Cached {
    fn len(&self) -> u64 {
        self.len
    }

    fn grow(&mut self, len: u64) -> Result<()> {
        self.recorder().grow(len)?;
        self.len = self.len.max(len);
        let lines = self.len.div_ceil(CACHE_LINE as u64) as usize;
        self.memory.resize(lines, Line([0; CACHE_LINE]));
        self.grown = true;
        Ok(())
    }

    /// Without waiting for what was sent: here memory is coherent, and a fence more would hide one that
    /// is missing.
    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        into.copy_from_slice(&self.bytes()[at as usize..][..into.len()]);
        Ok(())
    }

    fn view(&self, at: Offset, len: usize) -> Option<&[u8]> {
        let end = at.checked_add(len as u64)?;
        self.bytes().get(at as usize..end as usize)
    }

    fn write(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        assert!(at + bytes.len() as u64 <= self.len, "a write past the end");
        let base = self.memory.as_mut_ptr().cast();
        self.persistence.processor().base = base;
        // SAFETY: the bytes lie in the memory, which is ours alone, and memory here is coherent.
        unsafe { self.persistence.send(bytes, base.add(at as usize)) };
        self.outcome()
    }

    fn fence(&mut self) -> Result<()> {
        self.persistence.arrive();
        if std::mem::take(&mut self.grown) {
            self.recorder().fence()?;
        }
        self.outcome()
    }

    fn atom(&self) -> usize {
        8
    }
}
