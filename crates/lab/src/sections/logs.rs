//! The baselines: undo logging and redo logging (SSP 5.1). A section that writes nothing logs nothing.

use super::config::Setting;
use super::design::{Area, Design, Out, line};
use super::step::{Record, Step};
use crate::op::{Kind, Op};
use std::collections::BTreeSet;

/// Lines from one core's log to the next, beyond its size: eight rows of 2 KiB. Logs of a power of two of bytes would
/// otherwise all begin in one bank, and go on in step.
const APART: u64 = 8 * 32;

/// A log for each core, from this line on.
pub(super) fn logs(setting: &Setting, first: u64) -> Vec<Area> {
    let lines = setting.log_bytes / 64 + APART;
    (0..setting.cores as u64)
        .map(|core| Area::new(first + core * lines, setting.log_bytes, setting.log_stride))
        .collect()
}

/// Writes `records`, `bytes` bytes long, at the end of a log. They are complete with its last line.
pub(super) fn append(log: &mut Area, bytes: u64, records: Vec<Record>, out: &mut Out) {
    let lines: Vec<u64> = log.append(bytes).collect();
    out.counts.log_writes += lines.len() as u64;
    let (last, before) = lines.split_last().expect("a record has bytes");
    out.steps
        .extend(before.iter().map(|&line| Step::Append(line, Vec::new())));
    out.steps.push(Step::Append(*last, records));
}

/// Each entry is durable before its store. The log buffer remembers the lines of the section, so that a line has one
/// entry.
pub(super) struct Undo {
    logs: Vec<Area>,
    entry_bytes: u64,
    lines: Vec<BTreeSet<u64>>,
}

impl Undo {
    pub(super) fn new(setting: &Setting, first: u64) -> Undo {
        Undo {
            logs: logs(setting, first),
            entry_bytes: setting.undo_entry_bytes,
            lines: vec![BTreeSet::new(); setting.cores],
        }
    }
}

impl Design for Undo {
    fn store(&mut self, core: usize, op: &Op, out: &mut Out) -> bool {
        let line = line(op.at);
        if self.lines[core].insert(line) {
            // The entry holds the line, so the line is there first.
            let load = Op {
                kind: Kind::Load,
                work: 0,
                ..*op
            };
            out.steps.push(Step::Own(load));
            self.logs[core].align();
            append(
                &mut self.logs[core],
                self.entry_bytes,
                vec![Record::Old(line)],
                out,
            );
            out.steps.push(Step::Fence);
        }
        out.steps.push(Step::Own(*op));
        true
    }

    fn end(&mut self, core: usize, out: &mut Out) {
        let lines = std::mem::take(&mut self.lines[core]);
        if lines.is_empty() {
            return;
        }
        for &line in &lines {
            out.counts.data_writes += 1;
            out.steps.push(Step::WriteBack(line));
        }
        out.steps.push(Step::Fence);
        self.logs[core].align();
        append(&mut self.logs[core], 8, vec![Record::End(lines.len())], out);
        out.steps.push(Step::Fence);
    }
}

/// The final state of each line goes to the log at the end; data is written back while the program goes on, until the
/// next section begins. A line is not written to its home before its entry is durable.
pub(super) struct Redo {
    logs: Vec<Area>,
    entry_bytes: u64,
    lines: Vec<BTreeSet<u64>>,
    /// Of the section that was just acknowledged.
    behind: Vec<BTreeSet<u64>>,
}

impl Redo {
    pub(super) fn new(setting: &Setting, first: u64) -> Redo {
        Redo {
            logs: logs(setting, first),
            entry_bytes: setting.redo_entry_bytes,
            lines: vec![BTreeSet::new(); setting.cores],
            behind: vec![BTreeSet::new(); setting.cores],
        }
    }
}

impl Design for Redo {
    fn store(&mut self, core: usize, op: &Op, out: &mut Out) -> bool {
        self.lines[core].insert(line(op.at));
        out.steps.push(Step::Own(*op));
        true
    }

    fn end(&mut self, core: usize, out: &mut Out) {
        let lines = std::mem::take(&mut self.lines[core]);
        if lines.is_empty() {
            return;
        }
        let log = &mut self.logs[core];
        log.align();
        // Entries leave the log buffer together, and the mark with them: it counts with all of them or not at all.
        let bytes = lines.len() as u64 * self.entry_bytes + 8;
        let mut records: Vec<Record> = lines.iter().map(|&line| Record::New(line)).collect();
        records.push(Record::End(lines.len()));
        append(log, bytes, records, out);
        out.steps.push(Step::Fence);
        self.behind[core] = lines;
    }

    fn after(&mut self, core: usize, out: &mut Out) {
        for line in std::mem::take(&mut self.behind[core]) {
            out.counts.data_writes += 1;
            out.steps.push(Step::WriteBack(line));
        }
    }
}
