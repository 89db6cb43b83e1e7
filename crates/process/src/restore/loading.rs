//! The pages of a process come back: most of them while it runs.
//!
//! * What the kernel writes or reads by itself, and what registers point at, is filled first. Then the threads go on, and
//!   all processors fill the rest. A thread that touches a page which is not there yet waits for it
//!   (userfaultfd(2)), and that page comes next.
//! * Without privileges the kernel cannot wait for a page in a system call. So whatever a thread stops for, a call or a
//!   signal, waits until all is there. A call is then begun again; other stops are answered as ever.
//! * So nothing of the outside, of the state, or of what is mapped changes meanwhile: a kill loses what a kill before the
//!   resume would have lost.
//! * At the end the threads stand still, as they do where all is filled at once, and what they wrote counts as written.
//! * Pages of files, of the first stack, and of mappings that the kernel refuses to wait for, are there before.

use super::registers;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::layout::{Kind, Mapping};
use crate::pages::Pages;
use crate::state::Store;
use crate::threads::ThreadRegisters;
use rayon::prelude::*;
use std::io::PipeReader;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use twinpage_core::{Buffer, Scheme};
use twinpage_os::remote::Process;
use twinpage_os::trace::{self, Status, Tid};
use twinpage_os::tracker::{PAGE, Tracker};

/// Pages filled by one call.
const FILL_PAGES: u64 = 64;

/// Where the pages of a process come from.
#[derive(Clone, Copy)]
pub(super) struct Filler<'a> {
    pub(super) process: &'a Process,
    pub(super) tracker: &'a Tracker,
    pub(super) store: &'a Store,
    pub(super) pages: &'a Pages,
}

/// Stored pages side by side in one mapping, filled by one call.
struct Piece {
    range: Range<u64>,
    of_file: bool,
    /// It is filled, or about to be.
    taken: AtomicBool,
}

/// What is left to fill of a process.
#[derive(Default)]
pub(super) struct Loading {
    pieces: Vec<Piece>,
    /// The mappings whose empty pages are waited for.
    mappings: Vec<Range<u64>>,
}

/// Why no thread of the program can go on before all its memory is there, if none can.
pub(super) fn hindrance(process: &Process, context: &Context, is_told: bool) -> Result<Option<&'static str>> {
    Ok(if is_told {
        Some("a signal tells it of the resume before it goes on (--resume-signal)")
    } else if !context.members.is_empty() {
        Some("the program has descendants")
    } else if context.fixed.main_thread_ended.is_some() {
        Some("its main thread has ended")
    } else if context.live.stopped {
        Some("it is stopped")
    } else if !context.threads.iter().any(|thread| is_outside(context, thread)) {
        Some("all its threads are in system calls, which wait for its memory")
    } else if registers::are_longer(process, context)? {
        Some("its registers are those of another processor")
    } else {
        None
    })
}

/// Whether a thread goes on outside of a system call.
pub(super) fn is_outside(context: &Context, thread: &ThreadRegisters) -> bool {
    let mut unfinished = context.unfinished.iter();
    (thread.registers.orig_rax as i64) < 0 && !unfinished.any(|call| call.tid == thread.tid)
}

/// Tracks the mappings and fills their stored pages: all of them, or, `early`, those that the process needs to go on. What
/// is filled counts as not written.
pub(super) fn fill(filler: Filler<'_>, context: &Context, early: bool) -> Result<Loading> {
    let mappings = track(filler.tracker, context, early)?;
    let is_waited_for = |piece: &Piece| {
        let next = mappings.partition_point(|range| range.end <= piece.range.start);
        let mapping = mappings.get(next);
        mapping.is_some_and(|range| range.start <= piece.range.start)
    };
    let (late, now): (Vec<Piece>, Vec<Piece>) =
        pieces(context, filler.pages).into_iter().partition(is_waited_for);
    filler.fill_all(&now)?;
    let loading = Loading {
        pieces: late,
        mappings,
    };
    if !loading.is_over() {
        loading.fill_needed(filler, context)?;
    }
    Ok(loading)
}

/// Tracks the mappings. Those whose empty pages are waited for, in order.
fn track(tracker: &Tracker, context: &Context, early: bool) -> Result<Vec<Range<u64>>> {
    let mut waited_for = Vec::new();
    for mapping in context
        .fixed
        .mappings
        .iter()
        .filter(|mapping| mapping.kind.is_tracked())
    {
        let late = early && mapping.kind == Kind::Anonymous;
        if late && tracker.register_empty(mapping.range()).is_ok() {
            waited_for.push(mapping.range());
            continue;
        }
        match tracker.register(mapping.range()) {
            Err(error) if mapping.refuses_tracking(&error) => {}
            registered => registered.map_err(|source| {
                Error::target(
                    format!("cannot track {:x}-{:x}", mapping.start, mapping.end),
                    source,
                )
            })?,
        }
    }
    Ok(waited_for)
}

/// The stored pages in the order of their addresses. Advice parts mappings, and no piece reaches over such a place.
fn pieces(context: &Context, pages: &Pages) -> Vec<Piece> {
    let marks = context.fixed.marks.iter();
    let mut parted: Vec<u64> = marks.flat_map(|mark| [mark.start, mark.end]).collect();
    parted.sort_unstable();
    let mappings = context.fixed.mappings.iter();
    let captured: Vec<&Mapping> = mappings.filter(|mapping| mapping.kind.is_captured()).collect();
    let mut pieces = Vec::new();
    for run in pages.stored_runs() {
        let first = captured.partition_point(|mapping| mapping.end <= run.start);
        for mapping in captured[first..]
            .iter()
            .take_while(|mapping| mapping.start < run.end)
        {
            let (mut at, end) = (run.start.max(mapping.start), run.end.min(mapping.end));
            while at < end {
                let next = parted.get(parted.partition_point(|place| *place <= at));
                let until = end.min(at + FILL_PAGES * PAGE).min(next.copied().unwrap_or(end));
                pieces.push(Piece {
                    range: at..until,
                    of_file: mapping.kind == Kind::PrivateFile,
                    taken: AtomicBool::new(false),
                });
                at = until;
            }
        }
    }
    pieces
}

impl Filler<'_> {
    /// Fills those that are not filled yet, all processors at once.
    fn fill_all(self, pieces: &[Piece]) -> Result<()> {
        pieces
            .par_iter()
            .try_for_each_init(Buffer::default, |buffer, piece| self.fill(piece, buffer))
    }

    fn fill(self, piece: &Piece, buffer: &mut Buffer) -> Result<()> {
        if piece.taken.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let Range { start, end } = piece.range;
        buffer.clear();
        let room = buffer.append((FILL_PAGES * PAGE) as usize);
        let mut given = Vec::with_capacity(FILL_PAGES as usize);
        let starts = (start..end).step_by(PAGE as usize);
        for (address, page) in starts.clone().zip(room.chunks_exact_mut(PAGE as usize)) {
            let stored = self.pages.find(address);
            let stored = stored.ok_or_else(|| Error::Internal(format!("page {address:x} is not stored")))?;
            let first = stored.held.0.trailing_zeros() as usize;
            given.push(match self.store.view(stored.page, first, PAGE as usize) {
                Some(view) => view,
                None => {
                    self.store.read(stored.page, first, page)?;
                    &*page
                }
            });
        }
        // Pages of files are copied on write, through the page tables; others are given to the kernel whole.
        let filled = if piece.of_file {
            let mut given = starts.zip(given);
            given.try_for_each(|(address, page)| self.process.write(address, page))
        } else {
            self.tracker.fill(start, given)
        };
        filled.map_err(|source| Error::target(format!("cannot fill page {start:x}"), source))
    }
}

impl Loading {
    /// Whether nothing is left to fill.
    pub(super) fn is_over(&self) -> bool {
        self.mappings.is_empty()
    }

    fn piece(&self, address: u64) -> Option<&Piece> {
        let next = self.pieces.partition_point(|piece| piece.range.end <= address);
        self.pieces.get(next).filter(|piece| piece.range.start <= address)
    }

    /// Fills what the kernel needs when the threads go on, and what their registers point at.
    fn fill_needed(&self, filler: Filler<'_>, context: &Context) -> Result<()> {
        let mut buffer = Buffer::default();
        let mut need = |address: u64| match self.piece(address) {
            Some(piece) => filler.fill(piece, &mut buffer),
            None => Ok(()),
        };
        for thread in &context.threads {
            trace::words(&thread.registers)
                .into_iter()
                .try_for_each(&mut need)?;
            need(thread.registers.rsp.saturating_sub(PAGE))?;
            // The kernel says there on which processor the thread is, and looks for a critical section: rseq(2).
            let rseq = &thread.rseq;
            if rseq.address == 0 {
                continue;
            }
            need(rseq.address)?;
            need(rseq.address + u64::from(rseq.size))?;
            let section = registers::critical_section(filler.process, rseq)
                .map_err(|source| Error::target("cannot look at the restartable sequences", source))?;
            need(section)?;
            need(section + registers::CRITICAL_SECTION_BYTES - 1)?;
        }
        Ok(())
    }

    /// Lets threads run while the rest is filled. They stand still again at the end, but for those that stopped for what
    /// is given.
    pub(super) fn run(self, filler: Filler<'_>, tids: &[Tid]) -> Result<Vec<(Tid, Status)>> {
        for tid in tids {
            unless_gone(trace::go_on_to_call(*tid, 0))?;
        }
        let loaded = self.fill_rest(filler);
        let stops = stand_still(tids)?;
        if stops.iter().any(|(_, status)| status.is_end()) {
            return Err(Error::Killed);
        }
        loaded?;
        let filled = self.filled();
        for mapping in &self.mappings {
            let inside = filled.partition_point(|range| range.end <= mapping.start)
                ..filled.partition_point(|range| range.start < mapping.end);
            let settled = filler.tracker.loaded(mapping.clone(), &filled[inside]);
            settled.map_err(|source| Error::target("cannot track memory that was loaded", source))?;
        }
        Ok(stops)
    }

    /// The pieces, those of one mapping that lie side by side as one.
    fn filled(&self) -> Vec<Range<u64>> {
        let mut filled: Vec<Range<u64>> = Vec::new();
        for Piece { range, .. } in &self.pieces {
            let parts = self
                .mappings
                .binary_search_by_key(&range.start, |mapping| mapping.start);
            match filled.last_mut() {
                Some(last) if last.end == range.start && parts.is_err() => last.end = range.end,
                _ => filled.push(range.clone()),
            }
        }
        filled
    }

    fn fill_rest(&self, filler: Filler<'_>) -> Result<()> {
        let (end, other_end) =
            std::io::pipe().map_err(|source| Error::target("cannot make a pipe", source))?;
        let mut filled = Ok(());
        let by_all = &mut filled;
        let served = rayon::in_place_scope(|scope| {
            scope.spawn(move |_| {
                *by_all = filler.fill_all(&self.pieces);
                drop(other_end);
            });
            self.serve(filler, &end)
        });
        filled.and(served)
    }

    /// Fills what threads touch, until all is filled.
    fn serve(&self, filler: Filler<'_>, end: &PipeReader) -> Result<()> {
        let failed = |source| Error::target("cannot bring the page that the program waits for", source);
        let mut buffer = Buffer::default();
        while let Some(address) = filler.tracker.next_touched(end).map_err(failed)? {
            match self.piece(address) {
                Some(piece) => filler.fill(piece, &mut buffer)?,
                None => (filler.tracker).zero(address & !(PAGE - 1)).map_err(failed)?,
            }
        }
        Ok(())
    }
}

/// Has threads stand still that ran to their next call. A thread at the beginning of one stands before it. Of the others,
/// what they stopped for.
fn stand_still(tids: &[Tid]) -> Result<Vec<(Tid, Status)>> {
    let mut stops = Vec::new();
    // The first thread of a process that was killed is told of last.
    for tid in tids.iter().rev() {
        stops.extend(stand(*tid)?.map(|status| (*tid, status)));
    }
    Ok(stops)
}

/// Has a thread stand still. What it had stopped for instead, if it had.
fn stand(tid: Tid) -> Result<Option<Status>> {
    let failed = |source| Error::target(format!("cannot stop thread {tid}"), source);
    let mut stop = trace::wait(tid, false).map_err(failed)?;
    if stop.is_none() {
        unless_gone(trace::interrupt(tid))?;
    }
    loop {
        match stop.map(|(_, status)| status) {
            None => {}
            Some(Status::Interrupted) => return Ok(None),
            Some(Status::Signal(libc::SIGSEGV)) if is_kernels_own(tid) => go_on_to_stand(tid)?,
            Some(Status::Call) => {
                step_back(tid)?;
                go_on_to_stand(tid)?;
            }
            // The filter is asked also about a call that is left out.
            Some(Status::Event(trace::EVENT_SECCOMP)) => go_on_to_stand(tid)?,
            stop => return Ok(stop),
        }
        stop = trace::wait(tid, true).map_err(failed)?;
    }
}

/// A thread that stopped is asked to stand still where it goes on.
fn go_on_to_stand(tid: Tid) -> Result<()> {
    unless_gone(trace::interrupt(tid))?;
    unless_gone(trace::go_on(tid, 0))
}

/// A thread at the beginning of a call stands before it.
fn step_back(tid: Tid) -> Result<()> {
    let begins = trace::call_ends(tid).map(|ends| !ends);
    let stepped = begins.and_then(|begins| {
        let mut registers = trace::registers(tid)?;
        if begins {
            let number = registers.orig_rax;
            trace::rewind(&mut registers, number);
        }
        trace::set_registers(tid, &registers)
    });
    unless_gone(stepped)
}

/// Whether a fault was met by the kernel itself, perhaps at a page that was not there. A thread that goes on meets it
/// again, if it was of another kind.
fn is_kernels_own(tid: Tid) -> bool {
    const SI_KERNEL: i32 = 0x80;
    trace::signal_info(tid).is_ok_and(|info| info.code() == SI_KERNEL)
}

/// A thread that was killed is told by wait.
fn unless_gone(result: std::io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
            Err(Error::target("cannot let the program go on", error))
        }
        _ => Ok(()),
    }
}
