//! Calls that make a descriptor of a process: pidfd_open(2).
//!
//! * The process is one of the tree, which is there again after a resume, or was waited for.

use super::{Decision, Stopped, do_without, fail};
use crate::program::Program;
use std::path::Path;

/// The descriptor is of a thread: pidfd_open(2), `PIDFD_THREAD`.
const OF_THREAD: i32 = libc::O_EXCL;

impl Program {
    pub(super) fn before_pidfd(&mut self, call: &Stopped) -> Decision {
        let pid = call.int(0);
        if call.int(1) & OF_THREAD != 0 {
            return do_without(
                libc::EINVAL,
                "a descriptor of a thread (PIDFD_THREAD) is not captured; one of its process is",
            );
        }
        if !self.is_of_tree(pid) && Path::new(&format!("/proc/{pid}")).exists() {
            return fail(
                libc::ESRCH,
                format!("process {pid} is none of the program's, and would be another after a resume"),
            );
        }
        self.gives_descriptor();
        Decision::Run
    }

    /// The call that is answered gives its process a descriptor more. A descendant's are looked at in any case.
    pub(super) fn gives_descriptor(&mut self) {
        if self.caller.is_none() {
            self.descriptors.give(0);
        }
    }
}
