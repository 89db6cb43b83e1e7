//! A group of sections becomes durable: one commit of the store.

use super::queue::{Group, Queue};
use crate::address::Place;
use crate::epochs::{Checkpoints, Progress};
use crate::error::{Error, Result};
use crate::statistics::Counters;
use crate::store::Shared;
use crate::superblock::Superblock;
use std::sync::Arc;
use twinpage_core::engine::Report;
use twinpage_core::{Epoch, Idle, Pressure, Scheme};

/// Commits groups, one after the other: the thread that holds it does.
pub(super) struct Committer<S> {
    pub(super) scheme: Shared<S>,
    pub(super) queue: Arc<Queue>,
    pub(super) progress: Arc<Progress>,
    pub(super) counters: Arc<Counters>,
    pub(super) place: Place,
    /// What is kept with every commit, and the same as bytes. It changes when the region grows.
    pub(super) superblock: Superblock,
    pub(super) context: Vec<u8>,
}

impl<S: Idle> Committer<S> {
    /// One commit, or nothing of it.
    fn write_group(&self, group: &Group) -> twinpage_core::Result<Report> {
        let mut scheme = self.scheme.lock();
        let before = scheme.traffic();
        let (mut scheme, landed) = match write(&mut *scheme, group) {
            Ok(report) => {
                let (scheme, committed) = self.scheme.commit(scheme, &self.context);
                (scheme, committed.map(|epoch| Report { epoch, ..report }))
            }
            Err(error) => (scheme, Err(error)),
        };
        if landed.is_err() {
            scheme.abandon();
        }
        let traffic = scheme.traffic() - before;
        landed.map(|report| Report { traffic, ..report })
    }

    fn refresh_context(&mut self) {
        let (bytes, bound) = (self.place.bytes(), self.place.bound());
        if (self.superblock.bytes, self.superblock.bound) != (bytes as u64, bound as u64) {
            let Superblock { log, level, .. } = self.superblock;
            let now = Superblock::now(self.place.base().addr(), bytes, bound);
            self.superblock = now.at(log).over(level);
            self.context = self.superblock.encode();
        }
    }

    fn landed(&self, group: &Group, last: u64, report: &Report) {
        self.counters.add_commit(report, group.marked());
        let geometry = self.queue.geometry;
        let written = group.small_lines(geometry).map(|(page, ..)| page);
        let pages = written.chain(group.discarded_pages(geometry).flatten());
        self.progress
            .section_landed(last, report.epoch, self.superblock, pages);
    }
}

impl<S: Idle + Send + 'static> Checkpoints for Committer<S> {
    fn checkpoint(&mut self) -> Result<Epoch> {
        self.progress.check_poison()?;
        if self.queue.is_lost() {
            return Err(Error::Undone(self.queue.why_lost().unwrap_or_default()));
        }
        self.refresh_context();
        let outcome = self.queue.commit(&self.progress, |group, last| {
            let report = self.write_group(group)?;
            self.landed(group, last, &report);
            Ok(report.epoch)
        });
        match outcome {
            None => Ok(self.progress.epoch()),
            Some(Ok(epoch)) => {
                self.queue.landed();
                Ok(epoch)
            }
            Some(Err(error @ twinpage_core::Error::Full { .. })) => {
                self.queue.lose(error.to_string());
                Err(Error::Undone(error.to_string()))
            }
            Some(Err(error)) => Err(self.progress.set_poison(error)),
        }
    }
}

/// Writes a group.
fn write(scheme: &mut impl Scheme, group: &Group) -> twinpage_core::Result<Report> {
    let mut report = Report::default();
    for pages in group.discarded() {
        scheme.discard(pages.clone())?;
    }
    for lines in group.lines(scheme.geometry()) {
        report.pieces += 1;
        report.captured_bytes += lines.bytes.len() as u64;
        report.lines += lines.changed.count() as u64;
        report.fallback |= scheme.write(lines)? == Pressure::Commit;
    }
    Ok(report)
}
