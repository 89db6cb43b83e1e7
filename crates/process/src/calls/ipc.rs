//! The calls of System V semaphores: see [`crate::ipc`]. Those of message queues run by themselves.

use super::{Decision, Stopped, do_without};
use crate::ipc::{Change, Undo};
use crate::program::Program;
use twinpage_os::ipc;

/// Bytes of a struct sembuf: semaphore, operation, flags.
const OPERATION_BYTES: usize = 6;
/// The most operations of a call, `SEMOPM`: the default of Linux.
const MOST_OPERATIONS: u64 = 500;

impl Program {
    pub(super) fn before_ipc(&mut self, call: &Stopped) -> Decision {
        let change = match call.name {
            "semget" | "msgget" => return self.before_new_ipc(),
            "semctl" => match call.int(2) {
                libc::SETVAL => Some(Change::Clears(call.int(0), Some(call.int(1) as u16))),
                libc::SETALL | libc::IPC_RMID => Some(Change::Clears(call.int(0), None)),
                _ => None,
            },
            _ => {
                self.before_wait(call);
                self.undone(call).map(Change::Adds)
            }
        };
        if let Some(change) = change {
            self.ipc.begins(call.tid, change);
            self.calls.tell_of(call.tid, true); // it is known at its end whether it succeeded
        }
        Decision::Run
    }

    fn before_new_ipc(&mut self) -> Decision {
        if !ipc::may_choose_numbers() {
            let why = "semaphores and message queues come back under their numbers where the kernel lets their numbers be chosen (CONFIG_CHECKPOINT_RESTORE, Linux 5.19 for users without privileges); the program may have a setting to do without";
            return do_without(libc::ENOSYS, why);
        }
        self.ipc.uses();
        Decision::Run
    }

    /// Those of its operations that are undone at the end of the process; `None` when there are none.
    fn undone(&self, call: &Stopped) -> Option<Vec<Undo>> {
        let count = call.arguments[2].min(MOST_OPERATIONS) as usize;
        let mut bytes = vec![0; count * OPERATION_BYTES];
        self.caller().read(call.arguments[1], &mut bytes).ok()?; // else the kernel refuses them
        let half = |bytes: &[u8]| i16::from_le_bytes([bytes[0], bytes[1]]);
        let operations = bytes.chunks_exact(OPERATION_BYTES);
        let undone: Vec<Undo> = operations
            .filter(|one| half(&one[4..]) & libc::SEM_UNDO as i16 != 0 && half(&one[2..]) != 0)
            .map(|one| Undo {
                pid: self.caller().pid(),
                set: call.int(0),
                semaphore: half(one) as u16,
                adjustment: half(&one[2..]).wrapping_neg(),
            })
            .collect();
        (!undone.is_empty()).then_some(undone)
    }
}
