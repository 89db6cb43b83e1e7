//! Pseudo-terminals of the tree become the terminals of their sessions again: credentials(7), ioctl_tty(2).

use super::kernel::give_terminal;
use crate::context::Context;
use crate::descriptors::DescriptorKind;
use crate::error::{Error, Result};
use twinpage_os::inject;
use twinpage_os::remote::Process;

/// Gives each session its terminal, while every process has all descriptors; `living` are the program's descendants.
///
/// # Errors
/// Names the descriptor.
pub(super) fn give(first: &Process, living: &[Process], context: &Context) -> Result<()> {
    let descriptors = &context.fixed.descriptors;
    for (descriptor, held) in descriptors.iter().zip(&context.live.held) {
        let (DescriptorKind::Master { number }, Some(terminal)) = (&descriptor.kind, held.terminal()) else {
            continue;
        };
        let number = *number;
        let mut all = std::iter::once(first).chain(living);
        let Some(leader) = all.find(|process| process.pid() == terminal.session) else {
            continue; // it is no session's
        };
        let mut others = descriptors.iter();
        let Some(other) = others.find(|one| one.kind == DescriptorKind::Terminal { number }) else {
            continue; // none is captured without
        };
        let take = [other.fd as u64, libc::TIOCSCTTY, 0];
        inject::call(leader, leader.pid(), libc::SYS_ioctl, &take).map_err(|source| {
            let what = format!("cannot make descriptor {} the terminal of a session", other.fd);
            Error::target(what, source)
        })?;
        if terminal.foreground > 0 {
            give_terminal(leader, other.fd as u64, terminal.foreground)?;
        }
    }
    Ok(())
}
