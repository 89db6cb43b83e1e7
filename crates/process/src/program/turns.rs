//! Every thread gets its turn.
//!
//! wait4(2) tells of the newest tracee first: where many threads make watched calls without a pause, the oldest would be
//! answered only when no other waits. So with each stop one thread is asked for by its id, in a circle.

use super::Program;
use std::io;
use twinpage_os::trace::{self, Status, Tid};

impl Program {
    /// The next stop of any thread; `waits` for one, or for a signal of twinpage's own.
    ///
    /// # Errors
    /// `ECHILD` when there is nothing left to wait for.
    pub(crate) fn next_stop(&mut self, waits: bool) -> io::Result<Option<(Tid, Status)>> {
        if let Some(tid) = self.after(self.turn).or_else(|| self.after(0))
            && tid != std::mem::replace(&mut self.turn, tid)
            && let stop @ Ok(Some(_)) = trace::wait(tid, false)
        {
            return stop;
        }
        trace::wait(-1, waits)
    }

    /// The thread with the lowest id above this one.
    fn after(&self, tid: Tid) -> Option<Tid> {
        let own = self
            .threads
            .iter()
            .map(|thread| thread.tid)
            .filter(|own| *own > tid);
        own.chain(self.descendants.thread_after(tid)).min()
    }
}
