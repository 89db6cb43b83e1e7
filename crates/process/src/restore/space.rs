//! The program's address space, made anew in an emptied process.

use super::files::Sources;
use crate::advice::Advice;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::layout::{self, Kind, Mapping};
use crate::pages::Pages;
use crate::state::Store;
use rayon::prelude::*;
use std::ops::Range;
use twinpage_core::Scheme;
use twinpage_os::inject::{self, Call};
use twinpage_os::remote::Process;
use twinpage_os::tracker::{PAGE, Tracker};

/// Where the kernel's own mappings wait while the rest is unmapped: low, where nothing else is.
const PARK: u64 = 0x10_0000;
/// Pages filled by one call.
const FILL_PAGES: u64 = 64;

/// Runs a batch and fails with the first call that failed.
pub(super) fn run(process: &Process, calls: &mut [Call], what: &str) -> Result<()> {
    inject::run(process, process.pid(), calls)
        .map_err(|source| Error::target(format!("cannot {what}"), source))?;
    for call in calls.iter() {
        call.result().map_err(|source| {
            Error::target(format!("cannot {what} (system call {})", call.number()), source)
        })?;
    }
    Ok(())
}

/// Unmaps everything but the injected code; the kernel's mappings go where the program had them.
pub(super) fn empty(process: &Process, context: &Context) -> Result<()> {
    let path = format!("/proc/{}/maps", process.pid());
    let now = layout::everything(&std::fs::read_to_string(&path).map_err(Error::file("cannot read", path))?);
    let mut park = Vec::new();
    let mut parked = Vec::new();
    let mut unmap = Vec::new();
    let mut at = PARK;
    for (range, kind) in now {
        let size = range.end - range.start;
        let Some(kind) = kind else {
            unmap.push(Call::new(libc::SYS_munmap, &[range.start, size]));
            continue;
        };
        park.push(move_mapping(range.start, at, size));
        parked.push((kind, at, size));
        at += size;
    }
    leave_rseq(process)?;
    run(process, &mut park, "move the kernel's mappings aside")?;
    run(process, &mut unmap, "empty the new process")?;
    let mut place = Vec::new();
    for mapping in context
        .fixed
        .mappings
        .iter()
        .filter(|mapping| mapping.kind.is_kernel())
    {
        let size = mapping.end - mapping.start;
        let same = parked
            .iter()
            .find(|(kind, _, parked)| (*kind, *parked) == (mapping.kind, size));
        let (_, at, _) = same.ok_or_else(|| {
            Error::State("the kernel's own mappings have another shape than at the checkpoint: boot the kernel the state was made on".into())
        })?;
        place.push(move_mapping(*at, mapping.start, size));
    }
    run(process, &mut place, "place the kernel's mappings")
}

/// The child inherited a registration of this program's own, in memory that goes away: rseq(2).
fn leave_rseq(process: &Process) -> Result<()> {
    const UNREGISTER: u64 = 1;
    let ask = |source| Error::target("cannot ask for the restartable sequences", source);
    let rseq = twinpage_os::trace::rseq(process.pid()).map_err(ask)?;
    if rseq.address == 0 {
        return Ok(());
    }
    let arguments = [
        rseq.address,
        u64::from(rseq.size),
        UNREGISTER,
        u64::from(rseq.signature),
    ];
    run(
        process,
        &mut [Call::new(libc::SYS_rseq, &arguments)],
        "leave the inherited restartable sequences",
    )
}

fn move_mapping(from: u64, to: u64, size: u64) -> Call {
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
    Call::new(libc::SYS_mremap, &[from, size, size, flags, to])
}

/// Maps everything as it was, still empty.
pub(super) fn map(process: &Process, context: &Context, sources: &Sources) -> Result<()> {
    let mut calls = Vec::new();
    for mapping in context
        .fixed
        .mappings
        .iter()
        .filter(|mapping| !mapping.kind.is_kernel())
    {
        let (flags, fd) = match mapping.kind {
            Kind::PrivateFile => (libc::MAP_PRIVATE, sources.mapped(mapping)?),
            Kind::SharedFile | Kind::Object => (libc::MAP_SHARED, sources.mapped(mapping)?),
            Kind::Stack => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_GROWSDOWN, -1),
            _ => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1),
        };
        let flags = (flags | libc::MAP_FIXED_NOREPLACE) as u64;
        let size = mapping.end - mapping.start;
        let arguments = [
            mapping.start,
            size,
            u64::from(mapping.protection),
            flags,
            fd as u64,
            mapping.offset,
        ];
        calls.push(Call::new(libc::SYS_mmap, &arguments));
    }
    run(process, &mut calls, "map the program's memory")
}

/// Gives the advice that was in force. Advice may have been refused to the program too.
pub(super) fn advise(process: &Process, context: &Context) -> Result<()> {
    let advise = |mark: &Advice| {
        Call::new(
            libc::SYS_madvise,
            &[mark.start, mark.end - mark.start, mark.advice as u64],
        )
    };
    let mut calls: Vec<Call> = context.fixed.marks.iter().map(advise).collect();
    inject::run(process, process.pid(), &mut calls)
        .map_err(|source| Error::target("cannot give advice on memory", source))
}

/// Makes guard pages, which hold nothing.
pub(super) fn guard(process: &Process, context: &Context) -> Result<()> {
    const GUARD_INSTALL: u64 = 102;
    let install =
        |(start, end): &(u64, u64)| Call::new(libc::SYS_madvise, &[*start, end - start, GUARD_INSTALL]);
    let mut calls: Vec<Call> = context.live.guards.iter().map(install).collect();
    run(process, &mut calls, "make guard pages")
}

/// Tracks the mappings and fills their stored pages. What is filled counts as not written.
pub(super) fn fill(
    process: &Process,
    context: &Context,
    tracker: &Tracker,
    store: &Store,
    pages: &Pages,
) -> Result<()> {
    let captured: Vec<&Mapping> = context
        .fixed
        .mappings
        .iter()
        .filter(|mapping| mapping.kind.is_captured())
        .collect();
    let objects = (context.fixed.mappings.iter()).filter(|mapping| mapping.kind == Kind::Object);
    for mapping in captured.iter().copied().chain(objects) {
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
    let mut pieces: Vec<(Range<u64>, bool)> = Vec::new();
    for run in pages.stored_runs() {
        let first = captured.partition_point(|mapping| mapping.end <= run.start);
        for mapping in captured[first..]
            .iter()
            .take_while(|mapping| mapping.start < run.end)
        {
            let part = run.start.max(mapping.start)..run.end.min(mapping.end);
            let starts = part.clone().step_by((FILL_PAGES * PAGE) as usize);
            let file = mapping.kind == Kind::PrivateFile;
            pieces.extend(starts.map(|start| (start..part.end.min(start + FILL_PAGES * PAGE), file)));
        }
    }
    pieces.par_iter().try_for_each_init(
        || vec![0; (FILL_PAGES * PAGE) as usize],
        |buffer, (range, file)| fill_piece(process, tracker, store, pages, buffer, range.clone(), *file),
    )
}

fn fill_piece(
    process: &Process,
    tracker: &Tracker,
    store: &Store,
    pages: &Pages,
    buffer: &mut [u8],
    range: Range<u64>,
    file: bool,
) -> Result<()> {
    let bytes = &mut buffer[..(range.end - range.start) as usize];
    let mut given = Vec::with_capacity(FILL_PAGES as usize);
    for (address, page) in range
        .clone()
        .step_by(PAGE as usize)
        .zip(bytes.chunks_exact_mut(PAGE as usize))
    {
        let piece = pages
            .find(address)
            .ok_or_else(|| Error::Internal(format!("page {address:x} is not stored")))?;
        let first = piece.held.0.trailing_zeros() as usize;
        given.push(match store.view(piece.page, first, PAGE as usize) {
            Some(view) => view,
            None => {
                store.read(piece.page, first, page)?;
                &*page
            }
        });
    }
    // Pages of files are copied on write, through the page tables; others are given to the kernel whole.
    let filled = if file {
        let mut starts = range.clone().step_by(PAGE as usize).zip(given);
        starts.try_for_each(|(start, page)| process.write(start, page))
    } else {
        tracker.fill(range.start, given)
    };
    filled.map_err(|source| Error::target(format!("cannot fill page {:x}", range.start), source))
}
