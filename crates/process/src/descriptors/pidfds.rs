//! Descriptors of processes: pidfd_open(2).

use super::{Held, fdinfo};
use crate::error::{Error, Result};
use twinpage_os::proc_file::field;
use twinpage_os::trace::Tid;

/// The process that descriptor `fd` of a thread is of; none once that was waited for.
///
/// # Errors
/// When there is no such descriptor, or it is none of a process.
pub fn process_of(tid: Tid, fd: i32) -> Result<Option<i32>> {
    let info = fdinfo(tid, fd)?;
    let pid = field(&info, "Pid").and_then(|pid| pid.parse().ok());
    match pid {
        Some(-1) => Ok(None),
        Some(pid) if pid > 0 => Ok(Some(pid)),
        _ => Err(Error::Unsupported(format!(
            "descriptor {fd} is of a process that is not seen from here; only processes of the program are captured"
        ))),
    }
}

pub(super) fn held(tid: Tid, fd: i32) -> Result<Held> {
    process_of(tid, fd).map(Held::Process)
}
