//! `twinpage info`: what is in a state.

use crate::args::Look;
use crate::show::{self, Rows};
use crate::states::{self, Older};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use twinpage_core::{Info, Scheme};
use twinpage_os::{Durability, tracker};
use twinpage_process::context::{Context, Ending, Member, MemberState};
use twinpage_process::descriptors::DescriptorKind;
use twinpage_process::inspect::{self, Inspection};
use twinpage_process::machine::Machine;
use twinpage_process::pace::Chosen;
use twinpage_process::pages::Pages;
use twinpage_process::rested::Rested;
use twinpage_process::statistics::{Loaded, Statistics, Summary, Waits};
use twinpage_process::{Result, files};

/// The exit code of a check that found damage.
pub(crate) const DAMAGED: u8 = 1;

pub(crate) fn info(arguments: &Look) -> Result<ExitCode, String> {
    let found = inspect::inspect(&arguments.state).and_then(Found::new);
    let found = found.map_err(|error| error.to_string())?;
    if arguments.json {
        println!("{:#}", found.to_json());
    } else {
        found.to_rows().print();
    }
    Ok(ExitCode::SUCCESS)
}

/// Everything that is told, read once.
struct Found {
    inspection: Inspection,
    info: Info,
    stored_pages: u64,
    undo: Option<files::Summary>,
    held_output_bytes: u64,
    older: Vec<Older>,
    statistics: Option<Statistics>,
    pace: Option<Chosen>,
    waits: Option<Waits>,
    loaded: Option<Loaded>,
    /// Why it cannot be resumed here.
    obstacle: Option<String>,
}

impl Found {
    fn new(inspection: Inspection) -> Result<Found> {
        let all = inspection.pages()?;
        let runs = all.iter().flat_map(Pages::stored_runs);
        let machine = Machine::this()?;
        let obstacle = inspection
            .context
            .as_ref()
            .and_then(|context| context.fixed.machine.check_against(&machine).err());
        let older = states::older(&inspection.path).map_err(twinpage_process::Error::State)?;
        Ok(Found {
            info: inspection.store.info(),
            stored_pages: runs.map(|run| (run.end - run.start) / tracker::PAGE).sum(),
            undo: inspection.undo()?,
            held_output_bytes: inspection.held_output_bytes()?,
            older,
            statistics: inspection.statistics(),
            pace: inspection.pace(),
            waits: inspection.waits(),
            loaded: inspection.loaded(),
            obstacle: obstacle.map(|error| error.to_string()),
            inspection,
        })
    }

    fn to_json(&self) -> Value {
        let mut document = json_of_store(
            self.inspection.version,
            Some(&self.info),
            Some(self.inspection.durability),
        );
        document["in_use"] = json!(self.inspection.in_use);
        document["program"] = json!(
            self.inspection
                .context
                .as_ref()
                .map(|context| self.program(context))
        );
        document["undo_log"] = json!(self.undo);
        document["older"] = json!(self.older.iter().map(Older::to_json).collect::<Vec<_>>());
        document["held_output_bytes"] = json!(self.held_output_bytes);
        document["refused"] = json!(self.inspection.refused_calls());
        document["statistics"] = json!(self.statistics.as_ref().map(json_of_statistics));
        document["pace"] = json!(self.pace.map(|pace| self.json_of_pace(pace)));
        document["waits"] = json!(self.waits);
        document["loaded"] = json!(self.loaded);
        document
    }

    fn program(&self, context: &Context) -> Value {
        let fixed = &context.fixed;
        let finished = context.ending().is_some();
        let machine = &fixed.machine;
        json!({
            "command": fixed.command,
            "pid": fixed.pid,
            "threads": context.threads.len(),
            "processes": usize::from(fixed.ended.is_none()) + context.members.len(),
            "zombies": context.tree.members.len() - context.members.len(),
            "mapped_bytes": if finished { 0 } else { mapped_bytes(context) },
            "stored_pages": self.stored_pages,
            "stored_bytes": self.stored_pages * tracker::PAGE,
            "descriptors": if finished { 0 } else { fixed.descriptors.len() },
            "open_files": open_files(context),
            "directory": fixed.kernel.directory,
            "finished": finished,
            "ended": fixed.ended,
            "checkpoint_unix_ms": context.clocks.realtime_ns / 1_000_000,
            "rested_s": self.rested(context).as_secs_f64(),
            "machine": { "kernel": machine.kernel, "build": machine.build, "processor": machine.processor },
            "resumes_here": self.obstacle.is_none(),
            "why_not_here": self.obstacle,
        })
    }

    fn to_rows(&self) -> Rows {
        let mut rows = Rows::default();
        let version = self.inspection.version;
        rows.add(
            "state",
            format!(
                "{}, {}, format version {version}",
                self.inspection.path.display(),
                inspect::KIND
            ),
        );
        if let Some(context) = &self.inspection.context {
            rows.add("program", context.fixed.command.join(" "));
        }
        rows.add("status", self.status());
        if let Some(context) = &self.inspection.context {
            self.add_checkpoint(context, &mut rows);
        }
        for older in &self.older {
            rows.add("older checkpoint", older.line());
        }
        add_store(&mut rows, &self.info);
        if let Some(undo) = &self.undo {
            rows.add("undo log", undo_line(undo));
        }
        let held = show::bytes(self.held_output_bytes);
        rows.add("held output", format!("{held} printed and not outside yet"));
        if let Some(context) = &self.inspection.context {
            let machine = &context.fixed.machine;
            let here = match (&self.obstacle, context.ending()) {
                (_, Some(_)) => String::new(),
                (Some(why), None) => format!("; {why}"),
                (None, None) => "; can be resumed here".into(),
            };
            rows.add(
                "machine",
                format!("Linux {} on {}{here}", machine.kernel, machine.processor),
            );
        }
        for refusal in self.inspection.refused_calls() {
            rows.add("refused", refusal);
        }
        if let Some(statistics) = &self.statistics {
            rows.add("cost", cost_line(statistics));
        }
        if let Some(pace) = self.pace {
            rows.add("pace", self.pace_line(pace));
        }
        let waited = self.waits.as_ref().filter(|waits| **waits != Waits::default());
        if let Some(waits) = waited {
            rows.add("descendants", waits_line(waits));
        }
        if let Some(loaded) = &self.loaded {
            rows.add("last resume", loaded_line(loaded));
        }
        rows
    }

    /// How long the program did nothing after its last checkpoint.
    fn rested(&self, context: &Context) -> Duration {
        Duration::from_nanos(Rested::of(&self.inspection.path).ns_since(context.clocks))
    }

    /// How much work a kill would lose now: since the last checkpoint, where the program runs, and no time in which
    /// it did nothing.
    fn would_lose(&self) -> Option<Duration> {
        let context = self.inspection.context.as_ref()?;
        let runs = self.inspection.in_use.is_some() && context.ending().is_none();
        let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(context.clocks.realtime_ns);
        let held_until = at + self.rested(context);
        runs.then(|| SystemTime::now().duration_since(held_until).unwrap_or_default())
    }

    fn bytes_per_hour(&self, pace: Chosen) -> u64 {
        let written = self
            .statistics
            .as_ref()
            .map_or(0, |all| all.traffic.total_bytes());
        pace.bytes_per_hour(written)
    }

    fn json_of_pace(&self, pace: Chosen) -> Value {
        let mut document = json_of_pace(&pace, self.bytes_per_hour(pace));
        document["would_lose_ms"] = json!(self.would_lose().map_or(0.0, |time| time.as_secs_f64() * 1e3));
        document
    }

    fn pace_line(&self, pace: Chosen) -> String {
        let lose = self.would_lose().map_or(String::new(), |time| {
            format!("; at most {} would be lost now", show::time(time))
        });
        format!(
            "every {}, {}; {} an hour, {:.1}% slowdown in {}{lose}",
            show::time(Duration::from_micros(pace.every_us)),
            pace.why,
            show::bytes(self.bytes_per_hour(pace)),
            pace.slowdown() * 100.0,
            show::time(Duration::from_secs_f64(pace.run_s)),
        )
    }

    fn status(&self) -> String {
        let ended = self.inspection.context.as_ref().and_then(|c| c.ending());
        match (ended, &self.inspection.in_use, &self.inspection.context) {
            (Some(Ending::Exit(code)), ..) => format!("finished with exit code {code}"),
            (Some(Ending::Signal(number)), ..) => format!("ended by {}", show::signal(number)),
            (None, Some(holder), Some(_)) => format!("in use by {holder}"),
            (None, Some(holder), None) => format!("in use by {holder}; no checkpoint yet"),
            (None, None, Some(_)) => {
                let state = self.inspection.path.display();
                format!("not finished; go on with: twinpage resume {state}")
            }
            (None, None, None) => {
                "killed before its first checkpoint; start it again with twinpage run".into()
            }
        }
    }

    fn add_checkpoint(&self, context: &Context, rows: &mut Rows) {
        let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(context.clocks.realtime_ns);
        let age = SystemTime::now().duration_since(at).unwrap_or_default();
        let survives = match self.inspection.durability {
            Durability::Disk | Durability::Dax => "survives a power cut",
            Durability::Memory => "survives the end of the program, not of the machine",
        };
        let epoch = self.inspection.epoch;
        let rested = match self.rested(context) {
            Duration::ZERO => String::new(),
            rested => format!(", of a program that did nothing for {} since", show::time(rested)),
        };
        rows.add(
            "checkpoint",
            format!("epoch {epoch}, {} ago{rested}; {survives}", show::time(age)),
        );
        if context.ending().is_some() {
            return;
        }
        let first = match context.fixed.ended {
            Some(_) => "ended; those that it made live on".into(),
            None => show::count(context.threads.len() as u64, "thread"),
        };
        rows.add("process", format!("{}, {first}", context.fixed.pid));
        for member in &context.tree.members {
            rows.add("descendant", descendant_line(member));
        }
        rows.add(
            "memory",
            format!(
                "{} mapped, {} stored in {}",
                show::bytes(mapped_bytes(context)),
                show::bytes(self.stored_pages * tracker::PAGE),
                show::count(self.stored_pages, "page"),
            ),
        );
        if context.fixed.ended.is_none() {
            rows.add("directory", context.fixed.kernel.directory.display().to_string());
        }
        let files = open_files(context);
        let names = if files.is_empty() {
            "none".into()
        } else {
            files.join(", ")
        };
        rows.add("open files", names);
    }
}

/// How the store of a state or a region is.
pub(crate) fn add_store(rows: &mut Rows, info: &Info) {
    rows.add(
        "store",
        format!(
            "{} {}, {} of {} and a context of {}; lines of {}",
            info.scheme,
            show::bytes(info.medium_bytes),
            show::count(info.pages, "page"),
            show::bytes(info.geometry.page_bytes() as u64),
            show::bytes(info.context_bytes),
            show::bytes(info.geometry.line_bytes() as u64),
        ),
    );
    let pool = &info.pool;
    rows.add(
        "pool",
        format!(
            "{}, {} in use",
            show::count(pool.pages, "derivative page"),
            pool.used
        ),
    );
}

/// What every look at a state begins with, as scripts read it.
pub(crate) fn json_of_store(version: u32, info: Option<&Info>, durability: Option<Durability>) -> Value {
    json_of(inspect::KIND, version, info, durability)
}

/// The same of any kind of store.
pub(crate) fn json_of(
    kind: &str,
    version: u32,
    info: Option<&Info>,
    durability: Option<Durability>,
) -> Value {
    let geometry = info.map(|info| {
        json!({
            "line_bytes": info.geometry.line_bytes(),
            "page_bytes": info.geometry.page_bytes(),
            "extent_bytes": info.geometry.extent_bytes(),
        })
    });
    json!({
        "kind": kind,
        "version": version,
        "durability": durability.map(|durability| match durability {
            Durability::Disk => "disk",
            Durability::Memory => "memory",
            Durability::Dax => "dax",
        }),
        "scheme": info.map(|info| info.scheme),
        "store_version": info.map(|info| info.version),
        "geometry": geometry,
        "epoch": info.map(|info| info.epoch),
        "pages": info.map(|info| info.pages),
        "medium_bytes": info.map(|info| info.medium_bytes),
        "context_bytes": info.map(|info| info.context_bytes),
        "pool": info.map(|info| info.pool),
    })
}

/// The pace of a program, as scripts read it.
pub(crate) fn json_of_pace(pace: &Chosen, bytes_per_hour: u64) -> Value {
    json!({
        "every_ms": pace.every_us as f64 / 1e3,
        "why": pace.why,
        "run_s": pace.run_s,
        "slowdown": pace.slowdown(),
        "bytes_per_hour": bytes_per_hour,
    })
}

/// What the checkpoints cost in all lives of a program.
fn json_of_statistics(statistics: &Statistics) -> Value {
    let summary = statistics.summary(None);
    let restore = statistics.restores.percentiles();
    json!({
        "epochs": summary.epochs,
        "resumes": statistics.restores.count(),
        "stop_us": summary.stop_us,
        "stop_parts_us": summary.stop_parts_us,
        "pages": summary.pages,
        "lines": summary.lines,
        "changed_bytes": summary.changed_bytes,
        "bytes_written": summary.bytes_written,
        "bytes_per_changed_byte": summary.bytes_per_changed_byte,
        "traffic": summary.traffic,
        "restore_ms": { "p50": restore.p50, "max": restore.max },
    })
}

fn cost_line(statistics: &Statistics) -> String {
    let Summary {
        epochs,
        stop_us,
        bytes_written,
        changed_bytes,
        bytes_per_changed_byte,
        ..
    } = statistics.summary(None);
    format!(
        "{}, {}; stops {} (p50), {} (p99), {} (max); {} written for {} changed, {bytes_per_changed_byte:.2} a byte",
        show::count(epochs, "epoch"),
        show::count(statistics.restores.count(), "resume"),
        show::ms_of_us(stop_us.p50),
        show::ms_of_us(stop_us.p99),
        show::ms_of_us(stop_us.max),
        show::bytes(bytes_written),
        show::bytes(changed_bytes),
    )
}

/// Checkpoints wait for descendants that cannot be captured.
fn waits_line(waits: &Waits) -> String {
    let longest = show::time(Duration::from_micros(waits.longest_us));
    let checkpoints = show::count(waits.checkpoints, "checkpoint");
    let past = format!("{checkpoints} waited for them, {longest} at most");
    if waits.process.is_empty() {
        past
    } else {
        format!("the next checkpoint waits: {}; {past}", waits.process)
    }
}

/// Whether the program ran while its memory came back.
fn loaded_line(loaded: &Loaded) -> String {
    let ran = match &loaded.waited {
        None => "the program ran before".to_owned(),
        Some(why) => format!("the program waited for it: {why}"),
    };
    format!("all memory there after {}; {ran}", show::ms(loaded.ms))
}

fn descendant_line(member: &Member) -> String {
    let state = match member.state {
        MemberState::Lives { .. } => "lives".to_owned(),
        MemberState::Ended(Ending::Exit(code)) => format!("ended with {code}, not waited for"),
        MemberState::Ended(Ending::Signal(signal)) => format!("killed by signal {signal}, not waited for"),
    };
    format!("{}, child of {}, {state}", member.pid, member.parent)
}

fn undo_line(undo: &files::Summary) -> String {
    let mut line = format!(
        "{}, {}; {} kept, {}",
        show::count(undo.records, "record"),
        show::bytes(undo.undo_bytes),
        show::count(undo.kept_files, "file"),
        show::bytes(undo.kept_bytes)
    );
    if undo.rollback_begun {
        line.push_str("; a rollback was begun: resume, and it will be finished");
    }
    line
}

fn mapped_bytes(context: &Context) -> u64 {
    let mappings = context.fixed.mappings.iter();
    mappings.map(|mapping| mapping.end - mapping.start).sum()
}

/// The regular files a program has open, each once.
fn open_files(context: &Context) -> Vec<String> {
    if context.ending().is_some() {
        return Vec::new();
    }
    let mut seen = HashSet::new();
    let files = context
        .fixed
        .descriptors
        .iter()
        .filter_map(|descriptor| match &descriptor.kind {
            DescriptorKind::File { path, .. } if seen.insert(path) => Some(path.display().to_string()),
            _ => None,
        });
    files.collect()
}
