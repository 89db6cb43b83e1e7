//! The program's address space, made anew in an emptied process.

use super::files::Sources;
use super::in_process::run;
use crate::advice::Advice;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::layout::{self, Kind};
use twinpage_os::inject::{self, Call};
use twinpage_os::remote::Process;

/// Where the kernel's own mappings wait while the rest is unmapped: low, where nothing else is.
const PARK: u64 = 0x10_0000;

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
