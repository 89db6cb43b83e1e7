//! Calls: synchronous accesses of the scheme, in order, on the critical path.
//!
//! * A call's accesses go out together, up to a fence, when no fence before the call is waited for: none of
//!   an older call, no barrier of the stream. What is posted after such a call is a call too.
//! * A fence waits for its call's accesses before it, for all older calls, and for what went to the stream
//!   before it.
//! * A background access of a call goes to the stream when those before it have gone out.
//! * A call is over when its last access is done; only then happens what waits for it.

use super::Controller;
use super::nvm::{Action, Entry};
use super::requests::Completion;
use super::stream::{Item, Stream};
use crate::device::Class;
use std::collections::VecDeque;
use twinpage_core::medium::{Cause, Path};

/// What waits for a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Continuation {
    Nothing,
    Fill(u32),
    Commit,
}

#[derive(Debug)]
struct Call {
    entries: VecDeque<Entry>,
    in_flight: usize,
    after: Continuation,
    not_before: u64,
    /// It begins when the stream is past this.
    begin: u64,
    has_begun: bool,
    /// Its fences wait for the stream up to here.
    mark: u64,
}

/// What ends every commit: all that was written is durable.
const FENCE: Entry = Entry {
    action: Action::Fence,
    at: 0,
    lines: 0,
    cause: Cause::Data,
    path: Path::Critical,
};

impl Call {
    /// Whether it has a fence to come.
    fn has_fence(&self) -> bool {
        self.entries.iter().any(|entry| entry.action == Action::Fence)
    }
}

/// All calls that are not over.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// By number, older first. None where one is over, or at work; the first is neither, but while it is at work.
    all: VecDeque<Option<Call>>,
    /// The number of the first.
    first: u32,
    /// Those at a fence that waits for older calls or for the stream.
    fenced: Vec<u32>,
}

impl Calls {
    /// One more. Returns its number.
    fn add(&mut self, call: Call) -> u32 {
        self.all.push_back(Some(call));
        self.first + self.all.len() as u32 - 1
    }

    fn get(&mut self, id: u32) -> Option<&mut Option<Call>> {
        self.all.get_mut(id.checked_sub(self.first)? as usize)
    }

    /// Those before `id`.
    fn before(&self, id: u32) -> impl Iterator<Item = &Call> {
        self.all.iter().take((id - self.first) as usize).flatten()
    }

    /// Whether one of those before `id` has a fence to come.
    fn wait_before(&self, id: u32) -> bool {
        self.before(id).any(Call::has_fence)
    }

    /// Whether a fence is waited for, or will be.
    pub(super) fn wait(&self) -> bool {
        self.all.iter().flatten().any(Call::has_fence)
    }

    /// The call goes to work, unless it has to wait for a fence before it.
    fn begin(&mut self, id: u32, stream: &Stream) -> Option<Call> {
        let call = self.get(id)?.as_ref()?;
        let is_early = !stream.is_past(call.begin);
        let has_begun = call.has_begun;
        if is_early || !has_begun && self.wait_before(id) {
            self.fenced.push(id);
            return None;
        }
        self.get(id)?.take()
    }

    /// The call that was at work waits.
    fn put_back(&mut self, id: u32, call: Call) {
        if let Some(place) = self.get(id) {
            *place = Some(call);
        }
    }

    /// A call that was at work is over.
    fn forget(&mut self) {
        while let Some(None) = self.all.front() {
            self.all.pop_front();
            self.first += 1;
        }
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl Controller {
    /// Makes a call, not before a time. A commit's has a fence if the scheme made none.
    pub(super) fn call(&mut self, mut entries: VecDeque<Entry>, not_before: u64, after: Continuation) {
        let fence = |entry: &Entry| entry.action == Action::Fence && entry.path == Path::Critical;
        if after == Continuation::Commit && !entries.iter().any(fence) {
            entries.push_back(FENCE);
        }
        let call = Call {
            entries,
            in_flight: 0,
            after,
            not_before,
            begin: self.stream.barrier(),
            has_begun: false,
            mark: self.stream.end(),
        };
        let id = self.calls.add(call);
        self.pump_call(id);
    }

    /// One of a call's accesses is done.
    pub(super) fn call_access_done(&mut self, id: u32) {
        if let Some(Some(call)) = self.calls.get(id) {
            call.in_flight -= 1;
        }
        self.pump_call(id);
    }

    /// Lets a call go on, up to a fence that must wait.
    fn pump_call(&mut self, id: u32) {
        let Some(mut call) = self.calls.begin(id, &self.stream) else {
            return;
        };
        call.has_begun = true;
        let mut passed = false;
        while let Some(entry) = call.entries.front().copied() {
            if entry.path == Path::Background {
                let not_before = call.not_before;
                self.stream.push(Item {
                    entry,
                    not_before,
                    source: None,
                });
                call.mark = self.stream.end();
            } else if entry.action == Action::Fence {
                if call.in_flight > 0 {
                    break;
                }
                let older = self.calls.before(id).next().is_some();
                if older || !self.stream.is_past(call.mark) {
                    self.calls.fenced.push(id);
                    break;
                }
                passed = true;
            } else {
                call.in_flight += 1;
                let at = call.not_before.max(self.now);
                self.push_entry(Completion::Call(id, entry), &entry, Class::Demand, at);
            }
            call.entries.pop_front();
        }
        self.pump_stream();
        if call.entries.is_empty() && call.in_flight == 0 {
            self.calls.forget();
            self.finish_call(call.after);
            self.pump_fenced();
        } else {
            self.calls.put_back(id, call);
            // Younger calls may have waited for this fence.
            if passed {
                self.pump_fenced();
            }
        }
    }

    /// Lets the calls at a fence go on, if it waits no more.
    pub(super) fn pump_fenced(&mut self) {
        for id in std::mem::take(&mut self.calls.fenced) {
            self.pump_call(id);
        }
    }

    fn finish_call(&mut self, after: Continuation) {
        match after {
            Continuation::Nothing => {}
            Continuation::Fill(fill) => self.begin_fill(fill),
            Continuation::Commit => self.committed(),
        }
    }
}
