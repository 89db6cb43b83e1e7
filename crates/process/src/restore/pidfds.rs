//! Descriptors of processes, opened again when all processes are there: pidfd_open(2).
//!
//! * Each process opens all of them, while the descriptors of all tables are side by side in it: what its poll
//!   descriptors wait for is set then.
//! * One of a process that was waited for is of a helper that was waited for, and is there from the beginning.

use super::in_process::put;
use crate::context::Context;
use crate::descriptors::{DescriptorKind, Held};
use crate::error::{Error, Result};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use twinpage_os::inject;
use twinpage_os::remote::Process;
use twinpage_os::spawn;

/// The processes that the descriptors are of which are opened late, by the number that their open file has.
pub(super) fn living(context: &Context) -> HashMap<i32, i32> {
    let all = context.fixed.descriptors.iter().zip(&context.live.held);
    let living = all.filter_map(|(descriptor, held)| match held {
        Held::Process(Some(pid)) => Some((descriptor.fd, *pid)),
        _ => None,
    });
    living.collect()
}

/// Opens those of living processes in one of them.
pub(super) fn open(process: &Process, context: &Context) -> Result<()> {
    let living = living(context);
    let all = context.fixed.descriptors.iter();
    for descriptor in all.filter(|descriptor| descriptor.kind == DescriptorKind::Process) {
        let Some(pid) = living.get(&descriptor.shares) else {
            continue;
        };
        let flags = u64::from(descriptor.flags & libc::O_NONBLOCK as u32);
        let (number, arguments) = match descriptor.shares == descriptor.fd {
            true => (libc::SYS_pidfd_open, [*pid as u64, flags]),
            false => (libc::SYS_dup, [descriptor.shares as u64, 0]),
        };
        let opened = inject::call(process, process.pid(), number, &arguments);
        opened
            .and_then(|opened| put(process, opened, descriptor))
            .map_err(|source| Error::target(format!("cannot open a descriptor of process {pid}"), source))?;
    }
    Ok(())
}

/// A descriptor of a process that was waited for.
pub(super) fn of_waited_for() -> std::io::Result<OwnedFd> {
    let helper = match spawn::fork()? {
        0 => spawn::exit_now(0),
        helper => helper,
    };
    let opened = Pid::from_raw(helper).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    let waited_for = spawn::wait_for(helper);
    let opened = opened.ok_or(std::io::ErrorKind::NotFound)??;
    waited_for.map(|_| opened)
}
