//! Registers, and what a signal left of them on a stack, as this processor takes them.

use crate::context::Context;
use crate::error::{Error, Result};
use crate::interrupted::{Calls, Unfinished};
use crate::threads::{MOST_EXTENDED, ThreadRegisters};
use twinpage_os::remote::Process;
use twinpage_os::trace::{self, Registers, Rseq, Tid};
use twinpage_os::xsave::{self, Unfit};

/// How many bytes of extended registers the threads of a stopped process have here.
pub(super) fn extended_length(tid: Tid) -> Result<usize> {
    trace::extended_state(tid, &mut vec![0; MOST_EXTENDED])
        .map_err(|source| Error::target(format!("cannot look at the registers of thread {tid}"), source))
}

fn lacking(tid: Tid) -> Error {
    Error::State(format!(
        "thread {tid} uses registers that this processor lacks: resume it where it ran; a program that is to go on with less needs run --cpu-floor"
    ))
}

/// Whether the registers are of a processor with more of them.
pub(super) fn are_longer(process: &Process, context: &Context) -> Result<bool> {
    let longest = context.threads.iter().map(|thread| thread.extended.len()).max();
    Ok(longest > Some(extended_length(process.pid())?))
}

/// Makes handlers of signals that are under way return here, where the state is of a processor with more registers.
pub(super) fn shorten_frames(process: &Process, context: &Context) -> Result<()> {
    if !are_longer(process, context)? {
        return Ok(());
    }
    let length = xsave::length_on_stacks();
    for thread in &context.threads {
        let steady = context
            .fixed
            .threads
            .iter()
            .find(|steady| steady.tid == thread.tid);
        let apart = steady.map(|steady| steady.alternate_stack.0);
        for at in std::iter::once(thread.registers.rsp).chain(apart) {
            shorten_frames_above(process, context, at, length, thread.tid)?;
        }
    }
    Ok(())
}

fn shorten_frames_above(
    process: &Process,
    context: &Context,
    at: u64,
    length: usize,
    tid: Tid,
) -> Result<()> {
    let Some(mapping) = context
        .fixed
        .mappings
        .iter()
        .find(|mapping| (mapping.start..mapping.end).contains(&at))
    else {
        return Ok(());
    };
    let failed = |source| Error::target(format!("cannot look at the stack of thread {tid}"), source);
    let from = at & !(xsave::ALIGNMENT as u64 - 1);
    let mut stack = vec![0; (mapping.end - from) as usize];
    process.read(from, &mut stack).map_err(failed)?;
    match xsave::shorten_frames(&mut stack, length) {
        Ok(0) => Ok(()),
        Ok(_) => process.write(from, &stack).map_err(failed),
        Err(Unfit) => Err(lacking(tid)),
    }
}

/// Sets the registers a thread had. A call it was in is taken up where it was.
pub(super) fn begin_where_it_was(
    process: &Process,
    thread: &ThreadRegisters,
    length: usize,
    call: Option<&Unfinished>,
    calls: &mut Calls,
) -> Result<()> {
    let set = |source| {
        Error::target(
            format!("cannot set the registers of thread {}", thread.tid),
            source,
        )
    };
    let mut registers = thread.registers;
    calls.resume(thread.tid, &mut registers, call, process)?;
    leave_critical_section(process, thread, &mut registers).map_err(set)?;
    let extended = xsave::fit(&thread.extended, length).map_err(|Unfit| lacking(thread.tid))?;
    trace::set_extended_state(thread.tid, &extended).map_err(set)?;
    trace::set_registers(thread.tid, &registers).map_err(set)?;
    trace::set_signal_mask(thread.tid, thread.mask).map_err(set)
}

/// A restartable sequence (rseq(2)) that was interrupted is aborted, as the kernel would have done:
/// the thread may be on another processor now.
fn leave_critical_section(
    process: &Process,
    thread: &ThreadRegisters,
    registers: &mut Registers,
) -> std::io::Result<()> {
    if thread.rseq.address == 0 {
        return Ok(());
    }
    let section = critical_section(process, &thread.rseq)?;
    if section == 0 {
        return Ok(());
    }
    let (start, length, abort) = (
        process.read_u64(section + 8)?,
        process.read_u64(section + 16)?,
        process.read_u64(section + 24)?,
    );
    if registers.rip.wrapping_sub(start) < length {
        registers.rip = abort;
    }
    process.write(thread.rseq.address + SECTION_FIELD, &[0; 8])
}

/// Where the description of a restartable sequence stands in the thread's area.
const SECTION_FIELD: u64 = 8;
/// Bytes of a description.
pub(super) const CRITICAL_SECTION_BYTES: u64 = 32;

/// The description of the restartable sequence that a thread is in; 0: in none.
pub(super) fn critical_section(process: &Process, rseq: &Rseq) -> std::io::Result<u64> {
    process.read_u64(rseq.address + SECTION_FIELD)
}
