//! System V semaphores and message queues, made again: see [`crate::ipc`].

use crate::context::Context;
use crate::error::{Error, Result};
use crate::ipc::{Saved, Undo};
use twinpage_os::inject::{self, ROOM};
use twinpage_os::ipc;
use twinpage_os::remote::Process;

/// Makes all sets and queues, under their numbers.
pub(super) fn make(saved: &Saved) -> Result<()> {
    let failed = |kind: &str, number: i32| {
        let why = format!("cannot make {kind} {number} of the program again");
        move |source| Error::target(why, source)
    };
    for set in &saved.sets {
        ipc::make_set(set).map_err(failed("semaphores", set.identity.number))?;
    }
    for queue in &saved.queues {
        ipc::make_queue(queue).map_err(failed("message queue", queue.identity.number))?;
    }
    Ok(())
}

/// The end of a process undoes again what it was to undo. Both operations of a call are done at once, so that the
/// semaphore keeps its value: one adds, the other takes away, and one of both is undone.
pub(super) fn undo(process: &Process, context: &Context, saved: &Saved) -> Result<()> {
    let own = saved.undo.iter().filter(|one| one.pid == context.fixed.pid);
    for &Undo {
        set,
        semaphore,
        adjustment,
        ..
    } in own
    {
        let added = adjustment.saturating_abs();
        let flags = |is_undone: bool| if is_undone { libc::SEM_UNDO as i16 } else { 0 };
        let operations = [
            [semaphore as i16, added, flags(adjustment < 0)],
            [semaphore as i16, -added, flags(adjustment > 0)],
        ];
        let bytes: Vec<u8> = operations
            .iter()
            .flatten()
            .flat_map(|half| half.to_le_bytes())
            .collect();
        let failed = |source| {
            let pid = context.fixed.pid;
            Error::target(
                format!("cannot have the end of process {pid} undo what it did to semaphores {set}"),
                source,
            )
        };
        process.write(ROOM, &bytes).map_err(failed)?;
        let arguments = [set as u64, ROOM, operations.len() as u64];
        inject::call(process, process.pid(), libc::SYS_semop, &arguments).map_err(failed)?;
    }
    Ok(())
}
