//! `twinpage lab sections`: one program of failure-atomic sections, on one design.

use crate::output::print_json;
use crate::show::Rows;
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;
use twinpage_lab::eval::ssp::single::{Report, Single};
use twinpage_lab::quantity::Time;
use twinpage_lab::sections::Name;

pub(super) const EXAMPLES: &str = "Example:
  twinpage lab sections --design ssp --program rbtree-rand --smaller 64
  twinpage lab sections --design ssp --program hash-zipf --set tlb.entries=8 --smaller 64
  twinpage lab sections --design redo-log --program vacation --threads 4 --smaller 64 --crash-at 300us

Designs: undo-log, redo-log, ssp. Programs: btree-rand, rbtree-rand, hash-rand, sps, btree-zipf, rbtree-zipf,
hash-zipf, memcached, vacation. The exit code is 1 when what a crash left is not whole sections, all that were
acknowledged among them.";

#[derive(Args, Debug)]
pub(crate) struct SectionsRun {
    /// What makes sections atomic
    #[arg(long, value_name = "DESIGN", value_parser = Name::find)]
    design: Name,
    /// The program
    #[arg(long, value_name = "PROGRAM")]
    program: String,
    /// Threads that run it
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// One map, cache or agency for all threads, and a lock; otherwise each has its own
    #[arg(long)]
    shared: bool,
    /// The machine: ssp, or a machine file
    #[arg(long, value_name = "FILE", default_value = "ssp")]
    config: String,
    /// Change a value of it, such as tlb.entries=8
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Make data and run smaller by this power of two
    #[arg(long, value_name = "N", default_value_t = 1)]
    smaller: u64,
    /// Everything random follows from it
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Cut the power so long after the warm-up, recover, and check
    #[arg(long, value_name = "TIME")]
    crash_at: Option<Time>,
    /// One JSON document on standard output
    #[arg(long)]
    json: bool,
}

pub(super) fn sections(arguments: &SectionsRun) -> Result<ExitCode, String> {
    let single = Single {
        machine: arguments.config.clone(),
        set: arguments.set.clone(),
        design: arguments.design,
        program: arguments.program.clone(),
        threads: arguments.threads,
        shared: arguments.shared,
        smaller: arguments.smaller,
        seed: arguments.seed,
        crash_fs: arguments.crash_at.map(|Time(fs)| fs),
    };
    let report = single.run()?;
    match arguments.json {
        true => print_json(&report)?,
        false => show(&report),
    }
    let is_wrong = |recovery: &twinpage_lab::sections::power::Recovery| !recovery.consistent;
    Ok(ExitCode::from(u8::from(
        report.recovery.as_ref().is_some_and(is_wrong),
    )))
}

fn show(report: &Report) {
    let (machine, design) = (&report.machine, &report.design);
    let time = |ns: u64| format!("{:.1?}", Duration::from_nanos(ns));
    let mut rows = Rows::default();
    rows.add("run", format!("{} on {}", report.name, report.config_hash));
    rows.add(
        "sections",
        format!(
            "{} in {}",
            machine.transactions,
            time(machine.time_fs / 1_000_000)
        ),
    );
    rows.add("sections a second", format!("{:.0}", machine.per_second()));
    rows.add(
        "NVRAM lines written",
        format!(
            "{} of data, {} of logs and journals, {} by consolidation, {} by checkpoints of the journal",
            design.data_writes, design.log_writes, design.consolidation_writes, design.checkpoint_writes
        ),
    );
    rows.add(
        "TLB misses",
        format!(
            "{}, {} entries not in the last cache",
            design.tlb_misses, design.far_entries
        ),
    );
    if let Some(recovery) = &report.recovery {
        let found = match &recovery.why {
            None => "whole sections, all that were acknowledged".to_owned(),
            Some(why) => format!("WRONG: {why}"),
        };
        rows.add("power cut after", time(machine.time_fs / 1_000_000));
        rows.add(
            "recovered",
            format!(
                "{} sections acknowledged, {} under way: {found}; {} lines compared in each of {} images",
                recovery.acknowledged, recovery.under_way, recovery.lines, recovery.images
            ),
        );
    }
    rows.print();
}
