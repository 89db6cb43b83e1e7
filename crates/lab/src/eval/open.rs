//! What the papers leave open, each changed by itself (the artifact `sensitivity`).

use super::Paper;
use crate::config::machine::Config;
use crate::controller::lookup::Backup;
use crate::controller::{Growth, Order};
use twinpage_baselines::Switching;

/// One other choice.
pub(super) struct Open {
    /// What is chosen how.
    pub(super) name: &'static str,
    pub(super) change: fn(&mut Config),
}

const fn open(name: &'static str, change: fn(&mut Config)) -> Open {
    Open { name, change }
}

/// The table "What the papers leave open" of `docs/lab.md`, and the look-up that DPC 5.1.1 varies itself.
pub(super) const OPEN: [Open; 24] = [
    open("look-up of 32 cycles", |config| {
        config.plan.controller.cpt_fs *= 2;
        config.plan.controller.table_fs *= 2;
    }),
    open("width 2", |config| config.plan.shape.instruction_fs *= 2),
    open("no branch or fetch misses", |config| {
        config.plan.shape.events_fs = 0
    }),
    open("no page walks", |config| config.plan.shape.tlb = None),
    open("reorder buffer 64", |config| config.plan.shape.reorder /= 2),
    open("reorder buffer 256", |config| config.plan.shape.reorder *= 2),
    open("8 misses a core", |config| config.plan.shape.misses /= 2),
    open("caches twice as slow", |config| {
        config
            .plan
            .shape
            .levels
            .iter_mut()
            .for_each(|level| level.cycles *= 2);
    }),
    open("NVM of 2 channels", |config| {
        config.plan.controller.nvm.set_channels(2);
    }),
    open("NVM of 4 channels", |config| {
        config.plan.controller.nvm.set_channels(4);
    }),
    open("NVM reads half as fast", |config| {
        config.plan.controller.nvm.timing.rcd *= 2;
    }),
    open("NVM writes half as fast", |config| {
        config.plan.controller.nvm.timing.write_pulse *= 2;
    }),
    open("16 KiB of lines waiting for NVM", |config| {
        config.plan.controller.write_buffer_lines /= 4;
    }),
    open("256 KiB of lines waiting for NVM", |config| {
        config.plan.controller.write_buffer_lines *= 4;
    }),
    open("a core's state 4 times as large", |config| {
        config.plan.shape.state_bytes *= 4;
    }),
    open("half the warm-up", |config| config.plan.warm_up /= 2),
    open("twice the warm-up", |config| config.plan.warm_up *= 2),
    open("ThyNVM: a quarter of the page table", |config| {
        let pages = &mut config.plan.tables.pages;
        *pages = (*pages / 4).max(1);
    }),
    open("ThyNVM: its tables' DRAM beside the cache", |config| {
        config.plan.controller.tables_beside = true;
    }),
    open("logging: write-backs posted", |config| {
        config.plan.controller.undo = Order::Posted;
    }),
    open("copy-on-write: copies posted", |config| {
        config.plan.controller.copies = Order::Posted;
    }),
    open("page overlays: grow by evictions", |config| {
        config.plan.controller.overlays = Growth::Eviction;
    }),
    open("table's backup a journal", |config| {
        config.plan.controller.backup = Backup::Journal;
    }),
    open("ThyNVM: thresholds of its code", |config| {
        config.plan.tables.switching = Switching::Code;
    }),
];

/// Execution time of the dual page over what it is with the choice made, where a text says it.
pub(super) fn said(paper: Paper, name: &str) -> Option<f64> {
    // "we also evaluated 32-cycle lookup, which introduced only around 2% slowdown"
    (paper == Paper::Dpc && name == OPEN[0].name).then_some(1.02)
}
