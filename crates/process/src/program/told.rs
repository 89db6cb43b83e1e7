//! What processes are told of their resume, by signals that wait for them when they go on.

use super::Program;
use crate::context::Context;
use rustix::process::{Pid, Signal};

impl Program {
    /// Programs in the foreground of the terminal that notice a change of its size draw the screen again, where keys are
    /// read there: it may show something else than at the checkpoint. Many do so only where it is another size: for a moment
    /// it is. Where lines are read, or none notices it, none is sent anything: a signal that a traced program ignores still
    /// wakes its threads, and may end a wait of one of them.
    pub(super) fn redraw(&mut self, context: &Context) {
        if !self.streams.takes_whole_terminal() {
            return;
        }
        let in_foreground = |one: &&Context| {
            let first = context.fixed.pid;
            let mut members = context.tree.members.iter();
            let member = members.find(|member| member.pid == one.fixed.pid);
            let group = member.map_or(first, |member| member.group);
            // Alone it has the terminal.
            group == context.tree.foreground || context.tree.members.is_empty()
        };
        let drawing = (living(context).filter(in_foreground)).filter(|one| notices(one, libc::SIGWINCH));
        drawing.for_each(|one| {
            self.draws_again = true;
            send(one.fixed.pid, libc::SIGWINCH);
        });
    }

    /// The resume is told by a signal of the user's choice: to each process that notices it.
    /// Others would end of it. Where there is none, the user is told instead.
    pub(super) fn tell_resumed(&mut self, signal: i32, context: &Context) {
        let told = living(context).filter(|one| notices(one, signal));
        let told: Vec<i32> = told.map(|one| one.fixed.pid).collect();
        if told.is_empty() {
            self.notes.say(&format!(
                "no process of the program handles signal {signal}, which was to tell of the resume (--resume-signal): it was not sent"
            ));
        }
        told.into_iter().for_each(|pid| send(pid, signal));
    }
}

/// The processes that go on.
fn living(context: &Context) -> impl Iterator<Item = &Context> {
    let first = Some(context).filter(|first| first.fixed.ended.is_none());
    first.into_iter().chain(&context.members)
}

/// Whether a process has a handler for a signal, or all its threads block it, so that it may wait for it.
fn notices(process: &Context, signal: i32) -> bool {
    const NONE: [u64; 2] = [libc::SIG_DFL as u64, libc::SIG_IGN as u64];
    let mut actions = process.fixed.kernel.actions.iter().zip(1..);
    let handles = actions.any(|(action, number)| number == signal && !NONE.contains(&action.handler));
    let is_blocked = |mask: u64| mask >> (signal - 1) & 1 == 1;
    handles || process.threads.iter().all(|thread| is_blocked(thread.mask))
}

fn send(pid: i32, signal: i32) {
    // One that is gone is told by wait.
    let _ = Pid::from_raw(pid)
        .zip(Signal::from_named_raw(signal))
        .map(|(pid, signal)| rustix::process::kill_process(pid, signal));
}
