//! The run: for each setting a team of workers, repetitions interleaved, ratios within a repetition.

use crate::args::{
    Common, Contestant, Durability, EngineName, RegionArguments, SectionsArguments, WorkloadName, spelled,
};
use crate::engine::Result;
use crate::medium::{self, Bandwidth};
use crate::open;
use crate::report::{self, Report, Row, Run};
use crate::team::{self, Member, Task};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;
use std::time::Duration;

/// The measurements, and the engines measured.
struct Plan<'a> {
    settings: Vec<Setting>,
    contestants: Vec<Contestant>,
    /// Openings after a kill too.
    opens: bool,
    sections: bool,
    arguments: &'a Common,
}

/// `twinpage bench region`.
pub(crate) fn bench(arguments: &RegionArguments) -> Result<()> {
    run(&Plan {
        settings: settings(arguments),
        contestants: arguments.common.contestants(&arguments.scheme),
        opens: arguments.workload.contains(&WorkloadName::Open),
        sections: false,
        arguments: &arguments.common,
    })
}

/// `twinpage bench sections`.
pub(crate) fn bench_sections(arguments: &SectionsArguments) -> Result<()> {
    let mut settings = Vec::new();
    for &workload in &arguments.workload {
        for &threads in &arguments.threads {
            settings.extend([None, Some(arguments.within)].map(|every| (workload, every, threads)));
        }
    }
    run(&Plan {
        settings,
        contestants: arguments.common.contestants(&arguments.scheme),
        opens: false,
        sections: true,
        arguments: &arguments.common,
    })
}

impl Plan<'_> {
    /// Those that take part in a task: each operation of a peer is durable where sections are measured.
    fn of(&self, task: Task<'_>) -> impl Iterator<Item = Contestant> {
        let grouped = self.sections && task.every.is_some();
        let own = |engine| matches!(engine, EngineName::Native | EngineName::Twinpage);
        let all = self.contestants.iter().copied();
        all.filter(move |who| !grouped || own(who.engine))
    }
}

fn run(plan: &Plan<'_>) -> Result<()> {
    let arguments = plan.arguments;
    let media = media(arguments)?;
    let mut report = Report::default();
    let steps = plan.settings.len() * media.len() * (arguments.repeat as usize + 2);
    let progress = ProgressBar::new(steps as u64);
    progress.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}").expect("a template"));
    for path in &media {
        let place = tempfile::tempdir_in(path)
            .map_err(|error| format!("cannot make a directory in {}: {error}", path.display()))?;
        progress.set_message(format!("{}: its own bandwidth", path.display()));
        let bandwidth = medium::measure(place.path(), Duration::from_secs_f64(arguments.seconds))?;
        let in_memory = medium::is_memory(path)?;
        for &(workload, every, threads) in &plan.settings {
            let task = Task {
                workload,
                medium: path,
                in_memory,
                every,
                threads,
                sections: plan.sections,
            };
            measure(task, &bandwidth, plan, &mut report, &progress)?;
        }
        if plan.opens {
            let task = Task {
                workload: WorkloadName::Open,
                medium: path,
                in_memory,
                every: None,
                threads: 1,
                sections: false,
            };
            let all = plan.contestants.iter().copied();
            for who in all.filter(|who| who.engine == EngineName::Twinpage) {
                match team::out_of_place(who, task) {
                    Some(why) => report.leave_out(who, task, why.into(), &progress),
                    None => report.opens.push(open::measure(arguments, who, path, &progress)?),
                }
            }
        }
        report.media.push(Bandwidth {
            path: path.display().to_string(),
            ..bandwidth
        });
    }
    progress.finish_and_clear();
    if arguments.json {
        println!("{:#}", report.json(arguments));
    } else {
        report::print(&report);
    }
    Ok(())
}

/// Where stores are made: as asked, or a memory file system and a disk.
fn media(arguments: &Common) -> Result<Vec<PathBuf>> {
    if !arguments.medium.is_empty() {
        return Ok(arguments.medium.clone());
    }
    let (memory, disk) = (PathBuf::from("/dev/shm"), std::env::temp_dir());
    if !medium::is_memory(&memory)? {
        return Err("/dev/shm is no memory file system here: say --medium".into());
    }
    if medium::is_memory(&disk)? {
        eprintln!(
            "twinpage bench: {} is in memory too: no disk is measured; say --medium for one",
            disk.display()
        );
        return Ok(vec![memory]);
    }
    Ok(vec![memory, disk])
}

type Setting = (WorkloadName, Option<Duration>, u32);

fn settings(arguments: &RegionArguments) -> Vec<Setting> {
    let mut paces: Vec<Option<Duration>> = Vec::new();
    for durability in &arguments.durability {
        match durability {
            Durability::Every => paces.extend(arguments.every.iter().copied().map(Some)),
            Durability::Each => paces.push(None),
        }
    }
    let mut settings = Vec::new();
    let paced = |workload: &&WorkloadName| **workload != WorkloadName::Open;
    for &workload in arguments.workload.iter().filter(paced) {
        for &every in &paces {
            settings.extend(
                arguments
                    .threads
                    .iter()
                    .map(|&threads| (workload, every, threads)),
            );
        }
    }
    settings
}

fn measure(
    task: Task<'_>,
    bandwidth: &Bandwidth,
    plan: &Plan<'_>,
    report: &mut Report,
    progress: &ProgressBar,
) -> Result<()> {
    let arguments = plan.arguments;
    let mut team = Vec::new();
    for who in plan.of(task) {
        if report.is_absent(who, task) {
            continue;
        }
        if let Some(why) = team::out_of_place(who, task) {
            report.leave_out(who, task, why.into(), progress);
            continue;
        }
        progress.set_message(format!("{} {who}: filling", spelled(task.workload)));
        match Member::start(who, task, arguments)? {
            Ok(member) => team.push((member, Vec::new())),
            Err(why) => report.leave_out(who, task, why, progress),
        }
    }
    progress.inc(1);
    for _ in 0..arguments.repeat {
        for (member, slices) in &mut team {
            progress.set_message(format!("{} {}", spelled(task.workload), member.who));
            slices.push(member.slice(arguments.seconds)?);
        }
        progress.inc(1);
    }
    let mut native = Vec::new();
    for (member, slices) in team {
        let who = member.who;
        progress.set_message(format!("{} {who}: checking", spelled(task.workload)));
        let waits = member.check()?;
        if who.engine == EngineName::Native {
            native.clone_from(&slices);
        }
        let run = Run {
            task,
            who,
            slices: &slices,
            native: &native,
            waits,
        };
        report.rows.push(Row::of(&run, bandwidth));
    }
    progress.inc(1);
    Ok(())
}
