//! What is known of a descendant that may sleep through a checkpoint ([`super::asleep`]).

use crate::context::Member;
use crate::descendants::State;
use std::collections::BTreeSet;
use std::sync::Arc;
use twinpage_os::trace::Tid;

/// What a checkpoint held of one, and how it was let go.
#[derive(Default)]
pub(super) struct Slumber {
    pub(super) kept: Option<(Member, Arc<[u8]>)>,
    /// Threads that wait for futexes in shared memory. Another process may have woken one that has had no turn yet: its
    /// state alone tells.
    pub(super) in_shared_futexes: Vec<Tid>,
    /// Threads that entered the call they were let go with.
    pub(super) entered: BTreeSet<Tid>,
}

impl Slumber {
    /// A thread entered its call.
    pub(super) fn enters(&mut self, tid: Tid) {
        self.entered.insert(tid);
    }

    /// What the last checkpoint held of it.
    pub(super) fn kept(&self) -> Option<&(Member, Arc<[u8]>)> {
        self.kept.as_ref()
    }

    pub(super) fn is_of_child(&self, parent: i32) -> bool {
        self.kept
            .as_ref()
            .is_some_and(|(member, _)| member.parent == parent)
    }

    /// Whether all these threads are in their calls, or were when they were asked last.
    pub(super) fn holds(&self, mut threads: impl Iterator<Item = (Tid, State)>) -> bool {
        let inside = |(tid, state)| state == State::Running && self.entered.contains(&tid);
        self.kept.is_some() && threads.all(inside)
    }
}
