//! Threads that stand at the entry of a call: until an epoch is durable that was cut after they came there, or until
//! there is room for what they send, or for what their calls destroy.
//!
//! * A checkpoint finds such a thread before its call: a resume begins the call. What the thread did before is in the
//!   checkpoint that the resume goes on from, so it does not wait again.
//! * A thread whose wait is over makes its call, also where handlers of signals run before: they would run after the
//!   call alone. One that goes on elsewhere, out of a handler, stands again.
//! * A thread that waits for room is let go now and then, so that signals reach it.

use super::{Program, State};
use crate::error::Result;
use crate::outbox::{Outbox, Room};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use twinpage_core::Epoch;
use twinpage_os::trace::{Registers, Tid, WatchedCall};

/// How often a thread that waits for room in the outbox is let go.
const TURN: Duration = Duration::from_millis(50);
/// How often one is that waits for room in the undo log: each time it asks for a checkpoint, if it still has none.
const LONG_TURN: Duration = Duration::from_millis(500);
/// How long a thread stands uncut, and a connection of the program's own is waited for: the thread may be the one that
/// would accept it.
const LONG: Duration = Duration::from_secs(1);

/// What a thread waits for at the entry of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// An epoch that is cut from now on is durable.
    Durable,
    /// There is room in the outbox for the socket with this inode.
    Room(u64),
    /// What the call destroys can be kept: a durable checkpoint empties the undo log, and the disk may have room again.
    Keepable,
}

#[derive(Debug)]
struct Stand {
    tid: Tid,
    until: Until,
    /// The epoch that covers it; none before the next cut.
    epoch: Option<Epoch>,
    since: Instant,
    call: WatchedCall,
}

impl Stand {
    /// `durable` is the last epoch of which the tracer heard; the outbox hears of one sooner.
    fn is_over(&self, durable: Epoch, outbox: Option<&Outbox>) -> bool {
        match self.until {
            Until::Durable => self.is_covered(outbox.map_or(durable, Outbox::last_durable)),
            Until::Room(inode) => {
                let has_room = |outbox: &Outbox| matches!(outbox.room(inode), Room::Some | Room::HalfClosed);
                self.since.elapsed() > TURN || outbox.is_some_and(has_room)
            }
            Until::Keepable => self.since.elapsed() > LONG_TURN || self.is_covered(durable),
        }
    }

    /// Whether what its thread did before is durable.
    fn is_covered(&self, durable: Epoch) -> bool {
        self.epoch.is_some_and(|epoch| epoch <= durable)
    }
}

/// All threads that stand.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    stands: Vec<Stand>,
    /// The calls that threads may make now.
    passes: HashMap<Tid, WatchedCall>,
    /// The last durable epoch.
    durable: Epoch,
    /// Since when threads wait for room for one call.
    tried: HashMap<Tid, (WatchedCall, Instant)>,
}

impl Standing {
    fn add(&mut self, tid: Tid, until: Until, call: &WatchedCall) {
        let now = Instant::now();
        if until != Until::Durable && self.tried.get(&tid).is_none_or(|(tried, _)| tried != call) {
            self.tried.insert(tid, (*call, now));
        }
        self.stands.push(Stand {
            tid,
            until,
            epoch: None,
            since: now,
            call: *call,
        });
    }

    /// The program stands still: what the threads did before their calls is covered by this epoch.
    fn cut(&mut self, epoch: Epoch) {
        let uncovered = self.stands.iter_mut().filter(|stand| stand.epoch.is_none());
        uncovered.for_each(|stand| stand.epoch = Some(epoch));
    }

    /// How many threads wait for a cut.
    fn uncut(&self) -> usize {
        let uncut = |stand: &&Stand| !matches!(stand.until, Until::Room(_)) && stand.epoch.is_none();
        self.stands.iter().filter(uncut).count()
    }

    /// Whether a thread has waited for a cut for long.
    pub(super) fn is_long_uncut(&self) -> bool {
        let is_long = |stand: &Stand| stand.until == Until::Durable && stand.since.elapsed() > LONG;
        (self.stands.iter()).any(|stand| stand.epoch.is_none() && is_long(stand))
    }

    /// A thread stands no longer, whatever it waited for.
    pub(super) fn end(&mut self, tid: Tid) {
        self.stands.retain(|stand| stand.tid != tid);
    }

    /// A thread is gone.
    pub(super) fn forget(&mut self, tid: Tid) {
        self.end(tid);
        self.passes.remove(&tid);
        self.tried.remove(&tid);
    }
}

impl Program {
    /// A thread that is about to make a call stands there; its registers begin the call.
    pub(crate) fn stand(&mut self, tid: Tid, until: Until, call: &WatchedCall) {
        self.standing.add(tid, until, call);
        self.set_state(tid, State::Standing);
    }

    /// Whether a thread stands at a call.
    pub(super) fn stands(&self, tid: Tid) -> bool {
        self.standing.stands.iter().any(|stand| stand.tid == tid)
    }

    /// Whether a thread stood at this call for as long as it had to.
    pub(crate) fn may_pass(&mut self, tid: Tid, call: &WatchedCall) -> bool {
        let may = self.standing.passes.get(&tid).is_some_and(|pass| pass == call);
        if may {
            self.standing.passes.remove(&tid);
        }
        may
    }

    /// A thread goes on from a checkpoint, with these registers: a call that they begin waits for none.
    pub(super) fn begins_at(&mut self, tid: Tid, registers: &Registers) {
        if registers.orig_rax == u64::MAX {
            self.standing.passes.insert(tid, WatchedCall::begun_by(registers));
        }
    }

    /// A thread makes a call. Unless a handler does, which has its frame below that of the call the thread stood at, it
    /// goes on elsewhere.
    pub(crate) fn may_leave(&mut self, tid: Tid, call: &WatchedCall) {
        let pass = self.standing.passes.get(&tid);
        if pass.is_some_and(|pass| pass != call && call.stack >= pass.stack) {
            self.standing.passes.remove(&tid);
        }
    }

    /// How long a thread has tried to make this call for want of room.
    pub(crate) fn tried_for(&self, tid: Tid, call: &WatchedCall) -> Duration {
        let tried = self.standing.tried.get(&tid).filter(|(tried, _)| tried == call);
        tried.map_or(Duration::ZERO, |(_, since)| since.elapsed())
    }

    /// The call of a thread was answered. The same call, made again, has waited for no time.
    pub(crate) fn tries_no_longer(&mut self, tid: Tid) {
        if !self.standing.tried.is_empty() {
            self.standing.tried.remove(&tid);
        }
    }

    /// The program stands still, or has ended: what it sent is covered by this epoch, and so is what its threads did
    /// before the calls they stand at.
    pub(super) fn cut_replies(&mut self, epoch: Epoch) {
        self.standing.cut(epoch);
        if let Some(outbox) = &self.sockets.outbox {
            outbox.cut(epoch);
        }
    }

    /// An epoch is durable, and the undo log has room again.
    pub(super) fn note_durable(&mut self, epoch: Epoch) {
        self.standing.durable = epoch;
    }

    /// Lets the threads go whose wait is over.
    ///
    /// # Errors
    /// When a thread refuses to.
    pub fn let_standing_go(&mut self) -> Result<()> {
        let (durable, outbox) = (self.standing.durable, self.sockets.outbox.as_deref());
        let stands = &mut self.standing.stands;
        let over: Vec<Stand> = stands
            .extract_if(.., |stand| stand.is_over(durable, outbox))
            .collect();
        for stand in over {
            if stand.until == Until::Durable || stand.until == Until::Keepable && stand.is_covered(durable) {
                self.standing.passes.insert(stand.tid, stand.call);
            }
            self.go_on(stand.tid, 0)?;
        }
        Ok(())
    }

    /// Whether the outside waits for a checkpoint.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.awaited() > 0
    }

    /// How much the outside waits for that a checkpoint brings: replies that were sent, and threads that stand until one
    /// is durable.
    #[must_use]
    pub fn awaited(&self) -> usize {
        let replies = self.sockets.outbox.as_ref().map_or(0, |outbox| outbox.uncut());
        self.standing.uncut() + replies
    }

    /// The alarm rings when the epoch under way is durable, if the program has use for that.
    pub fn await_durable(&self) {
        if let Some(outbox) = &self.sockets.outbox
            && (!self.standing.stands.is_empty() || outbox.uncut() > 0)
        {
            outbox.await_durable();
        }
    }

    /// Whether no thread has anything to do: what waits for a checkpoint is all there is.
    #[must_use]
    pub fn sleeps_all(&self) -> bool {
        !self.is_on_processor()
    }
}
