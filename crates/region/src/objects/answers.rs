//! What instant calls returned, until their callers take it.
//!
//! * A caller counts itself as a sleeper, then looks whether another thread has the turn, and sleeps. Who gives up the
//!   turn looks for sleepers afterwards, and wakes them all. A fence on either side: none sleeps while the turn is free.

use super::function::Outcome;
use crate::error::Result;
use crate::lock::{lock, wait};
use std::collections::HashMap;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, fence};
use std::sync::{Condvar, Mutex};

/// How often a caller looks again before it sleeps: a turn on a memory file is over in a microsecond.
const LOOKS: u32 = 16;

type ByPosition = HashMap<u64, Result<Outcome>>;

#[derive(Default)]
pub(super) struct Answers {
    by_position: Mutex<ByPosition>,
    turn_ended: Condvar,
    sleepers: AtomicU32,
    /// Instant calls that were made and have no answer yet.
    expected: AtomicU32,
}

impl Answers {
    /// An instant call is made.
    pub(super) fn expect(&self) {
        self.expected.fetch_add(1, Relaxed);
    }

    /// It has its answer, or has failed.
    pub(super) fn expect_no_more(&self) {
        self.expected.fetch_sub(1, Relaxed);
    }

    /// How many calls have no answer yet.
    pub(super) fn expected(&self) -> u32 {
        self.expected.load(Relaxed)
    }

    pub(super) fn put(&self, position: u64, answer: Result<Outcome>) {
        self.expect_no_more();
        lock(&self.by_position).insert(position, answer);
    }

    pub(super) fn take(&self, position: u64) -> Option<Result<Outcome>> {
        lock(&self.by_position).remove(&position)
    }

    /// Waits until a call has its answer, or the turn is given up. `is_turn_free` takes no lock of the answers.
    pub(super) fn wait(&self, position: u64, is_turn_free: impl Fn() -> bool) -> Option<Result<Outcome>> {
        for _ in 0..LOOKS {
            let answer = self.take(position);
            if answer.is_some() {
                return answer;
            }
            std::thread::yield_now();
        }
        let mut by_position = lock(&self.by_position);
        self.sleepers.fetch_add(1, Relaxed);
        fence(SeqCst);
        if !by_position.contains_key(&position) && !is_turn_free() {
            by_position = wait(&self.turn_ended, by_position);
        }
        self.sleepers.fetch_sub(1, Relaxed);
        by_position.remove(&position)
    }

    /// The turn was given up.
    pub(super) fn wake(&self) {
        fence(SeqCst);
        if self.sleepers.load(Relaxed) > 0 {
            // Who counted as a sleeper sleeps, or has seen that the turn is free.
            drop(lock(&self.by_position));
            self.turn_ended.notify_all();
        }
    }
}
