//! The end of an epoch (DPC 4.5.2): caches to DRAM, DRAM to NVM, the commit.

use super::Machine;
use super::Mode;
use super::core::{Stall, State};
use super::run::context;
use crate::quantity::in_time;
use std::collections::BTreeMap;
use twinpage_core::Error;

impl Machine<'_> {
    /// Every core is at the end of a batch: ends the epoch. False if the power failed meanwhile.
    pub(super) fn checkpoint(&mut self) -> Result<bool, Error> {
        let parked = self
            .cores
            .iter()
            .filter(|core| core.state == State::Parked)
            .map(|core| core.now)
            .max();
        let begin = parked.unwrap_or(0).max(self.controller.now());
        self.controller.advance(begin.min(self.crash_at), &self.space);
        let mode = self.plan.mode;
        // One checkpoint at a time: the one before must be durable.
        if !self.wait(|machine| !machine.controller.is_committing() && machine.controller.is_quiet())? {
            return Ok(false);
        }
        let early = self.controller.wants_checkpoint && begin < self.epoch_end;
        self.durable();
        let direct = self.flush();
        if mode == Mode::Stall && !self.wait(|machine| !machine.controller.is_flushing())? {
            return Ok(false);
        }
        self.controller.write_pages(mode == Mode::Overlap);
        for (page, lines) in direct {
            self.controller.write_direct(page, lines, &self.space);
        }
        self.ledger.ended(self.controller.now(), early);
        let context = context(&self.plan, self.batches);
        self.controller.commit(&context, mode == Mode::Scheme);
        if mode == Mode::Stall {
            if !self.wait(|machine| !machine.controller.is_committing())? {
                return Ok(false);
            }
            self.durable();
        }
        self.go_on(begin);
        Ok(true)
    }

    /// Dirty lines of the caches go to DRAM; tells those whose page is not there.
    fn flush(&mut self) -> BTreeMap<u64, u64> {
        let mut direct = BTreeMap::new();
        for line in self.caches.clean_all() {
            if !self.controller.flush_line(line, &self.space) {
                *direct.entry(line / 64).or_default() |= 1 << (line % 64);
            }
        }
        direct
    }

    /// Cores go on, now.
    fn go_on(&mut self, begun: u64) {
        let now = self.controller.now();
        for core in &mut self.cores {
            if core.state == State::Parked {
                core.state = State::Ready;
                core.stall(now, Stall::Checkpoint);
            }
        }
        self.parking = false;
        self.epoch_end = now + self.plan.interval_fs;
        self.ledger.stalled(now - begun);
        self.sample();
    }

    /// Memory works until it is so. False if the power failed first.
    fn wait(&mut self, so: impl Fn(&Self) -> bool) -> Result<bool, Error> {
        while !so(self) {
            if let Some(error) = self.controller.failed.take() {
                return Err(error);
            }
            in_time(self.controller.now()).map_err(Error::Invalid)?;
            if self.controller.now() >= self.crash_at {
                return Ok(false);
            }
            assert!(self.step(), "a checkpoint in flight has something under way");
        }
        Ok(self.controller.now() < self.crash_at)
    }

    /// Tells the ledger of a commit that became durable.
    pub(super) fn durable(&mut self) {
        if let Some(at) = self.controller.take_committed() {
            self.ledger.durable(at);
        }
    }
}
