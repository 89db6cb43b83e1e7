//! `twinpage bench trees`: process trees, servers and a terminal session, each beside the same without checkpoints.
//!
//! * What a measure is divided by is run in turns with it, as often.
//! * A run has a directory of its own. Its state lies in memory or on the disk, by its durability.
//! * What is not installed is named, never left out in silence.

mod client;
mod server;
mod terminal;
mod work;

use super::programs::{Cost, Times};
use crate::args::{Measure, Mode, TreesArguments};
use serde::Serialize;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use twinpage_commands::report::{document, table};
use twinpage_os::messages;
use twinpage_process::launch::find;

/// How it is checkpointed, and when what it sends goes out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Way {
    mode: Mode,
    replies: &'static str,
}

impl Way {
    fn name(self) -> String {
        match self.replies {
            "held" => self.mode.name().to_owned(),
            replies => format!("{}, {replies}", self.mode.name()),
        }
    }
}

const DEFAULT: Way = way(Mode::Default, "held");
const DISK: Way = way(Mode::Disk, "held");
const MEMORY: Way = way(Mode::Memory, "held");
const LOOSE: Way = way(Mode::Memory, "loose");

const fn way(mode: Mode, replies: &'static str) -> Way {
    Way { mode, replies }
}

impl Measure {
    fn name(self) -> &'static str {
        match self {
            Measure::Sleepers => "sleepers",
            Measure::Children => "children",
            Measure::Make => "make",
            Measure::Redis => "redis",
            Measure::Memcached => "memcached",
            Measure::Latency => "latency",
            Measure::Tmux => "tmux",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Measure::Sleepers => "µs",
            Measure::Children | Measure::Make => "s",
            Measure::Redis | Measure::Memcached => "requests/s",
            Measure::Latency | Measure::Tmux => "ms",
        }
    }

    /// Programs it starts, and the packages of Debian that have them.
    fn needs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Measure::Sleepers | Measure::Children => &[],
            Measure::Make => &[("make", "make"), ("cc", "gcc libc6-dev")],
            Measure::Redis | Measure::Latency => &[("redis-server", "redis-server")],
            Measure::Memcached => &[("memcached", "memcached")],
            Measure::Tmux => &[("tmux", "tmux")],
        }
    }

    fn ways(self) -> &'static [Way] {
        match self {
            Measure::Sleepers => &[MEMORY],
            Measure::Children => &[DEFAULT, MEMORY],
            Measure::Make => &[DEFAULT, DISK],
            Measure::Redis | Measure::Memcached => &[LOOSE, MEMORY],
            Measure::Latency => &[MEMORY, DISK],
            Measure::Tmux => &[DEFAULT],
        }
    }

    /// What it is compared with; a resume with nothing.
    fn base(self, room: &Room) -> Result<Option<Run>, String> {
        Ok(Some(match self {
            Measure::Sleepers => work::stops(room, 0, MEMORY)?,
            Measure::Children => work::children(room, None)?,
            Measure::Make => work::make(room, None)?,
            Measure::Redis => server::throughput(room, server::REDIS, None)?,
            Measure::Memcached => server::throughput(room, server::MEMCACHED, None)?,
            Measure::Latency => server::latency(room, None)?,
            Measure::Tmux => return Ok(None),
        }))
    }

    fn run(self, room: &Room, way: Way) -> Result<Run, String> {
        match self {
            Measure::Sleepers => work::stops(room, work::SLEEPERS, way),
            Measure::Children => work::children(room, Some(way)),
            Measure::Make => work::make(room, Some(way)),
            Measure::Redis => server::throughput(room, server::REDIS, Some(way)),
            Measure::Memcached => server::throughput(room, server::MEMCACHED, Some(way)),
            Measure::Latency => server::latency(room, Some(way)),
            Measure::Tmux => terminal::resume(room, way),
        }
    }
}

/// What one run came to, in the unit of its measure, and what its checkpoints cost.
struct Run {
    value: f64,
    cost: Option<Cost>,
}

/// One measure in one way.
#[derive(Serialize)]
struct Row {
    measure: &'static str,
    way: String,
    unit: &'static str,
    base: Option<Times>,
    measured: Times,
    /// Median over median.
    over_base: Option<f64>,
    stop_us_p50: Option<f64>,
    stop_us_p99: Option<f64>,
    bytes_per_changed_byte: Option<f64>,
}

pub(crate) fn bench(arguments: &TreesArguments) -> Result<ExitCode, String> {
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    for &measure in &arguments.only {
        let missing = measure
            .needs()
            .iter()
            .find(|(program, _)| find(OsStr::new(program)).is_err());
        if let Some((program, packages)) = missing {
            let name = measure.name();
            messages::tell(&format!(
                "{name} is left out: {program} is not installed; apt install {packages}"
            ));
            left_out.push(name);
            continue;
        }
        rows.extend(in_turns(measure, arguments)?);
    }
    report(&rows, &left_out, arguments);
    Ok(ExitCode::SUCCESS)
}

/// The base and each way, one after the other, as often as is asked for.
fn in_turns(measure: Measure, arguments: &TreesArguments) -> Result<Vec<Row>, String> {
    let ways = measure.ways();
    let mut base = Vec::new();
    let mut under: Vec<Vec<Run>> = ways.iter().map(|_| Vec::new()).collect();
    let runs = u64::from(arguments.repeat) * (ways.len() as u64 + 1);
    let progress = twinpage_commands::lab::bar(runs, "runs");
    for _ in 0..arguments.repeat {
        progress.set_message(format!("{} without", measure.name()));
        base.extend(measure.base(&Room::new(arguments)?)?.map(|run| run.value));
        progress.inc(1);
        for (way, runs) in ways.iter().zip(&mut under) {
            progress.set_message(format!("{} {}", measure.name(), way.name()));
            runs.push(measure.run(&Room::new(arguments)?, *way)?);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    let rows = ways.iter().zip(under);
    Ok(rows.map(|(way, runs)| row(measure, *way, &base, &runs)).collect())
}

fn row(measure: Measure, way: Way, base: &[f64], runs: &[Run]) -> Row {
    let measured = Times::of(runs.iter().map(|run| run.value).collect());
    let base = (!base.is_empty()).then(|| Times::of(base.to_vec()));
    let mut costs: Vec<&Cost> = runs.iter().filter_map(|run| run.cost.as_ref()).collect();
    costs.sort_by(|a, b| a.stop_us.p50.total_cmp(&b.stop_us.p50));
    let middle = costs.get(costs.len() / 2);
    let written: u64 = costs.iter().map(|cost| cost.bytes_written).sum();
    let changed: u64 = costs.iter().map(|cost| cost.changed_bytes).sum();
    Row {
        measure: measure.name(),
        way: way.name(),
        unit: measure.unit(),
        over_base: base.as_ref().map(|base| measured.median / base.median),
        base,
        measured,
        stop_us_p50: middle.map(|cost| cost.stop_us.p50),
        stop_us_p99: middle.map(|cost| cost.stop_us.p99),
        bytes_per_changed_byte: (changed != 0).then(|| written as f64 / changed as f64),
    }
}

/// Where one run works: its own directory, and one for its state.
struct Room {
    work: tempfile::TempDir,
    in_memory: tempfile::TempDir,
    seconds: f64,
    pipeline: u32,
}

impl Room {
    fn new(arguments: &TreesArguments) -> Result<Room, String> {
        let made = |place: &Path| {
            let directory = tempfile::Builder::new()
                .prefix("twinpage-trees-")
                .tempdir_in(place);
            directory.map_err(|error| format!("cannot make a directory in {}: {error}", place.display()))
        };
        Ok(Room {
            work: made(&std::env::temp_dir())?,
            in_memory: made(Path::new("/dev/shm"))?,
            seconds: arguments.seconds,
            pipeline: arguments.pipeline,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    fn state(&self, way: Way) -> PathBuf {
        match way.mode {
            Mode::Memory => self.in_memory.path().join("state"),
            Mode::Default | Mode::Disk => self.path("state"),
        }
    }

    /// `program`, under twinpage if a way is given, to be started in the room.
    fn command(&self, program: impl AsRef<OsStr>, way: Option<Way>) -> Result<Command, String> {
        let mut command = match way {
            None => Command::new(program),
            Some(way) => {
                let mut command = Command::new(super::own_program()?);
                command.arg("run").args(way.mode.options());
                command.args(["--replies", way.replies, "--on-term", "forward", "--stats"]);
                command.arg(self.path("stats.json"));
                command.arg("--state").arg(self.state(way));
                command.arg("--").arg(program);
                command
            }
        };
        command.current_dir(self.work.path());
        Ok(command)
    }

    /// What the checkpoints of a run that has ended cost.
    fn cost(&self, way: Option<Way>) -> Result<Option<Cost>, String> {
        way.map(|_| Cost::read(&self.path("stats.json"))).transpose()
    }
}

fn report(rows: &[Row], left_out: &[&str], arguments: &TreesArguments) {
    if arguments.json {
        let measured = serde_json::json!({
            "pipeline": arguments.pipeline,
            "rows": rows,
            "left_out": left_out,
        });
        return println!("{:#}", document(measured));
    }
    let mut shown = table([
        "measure",
        "checkpointed",
        "unit",
        "without",
        "with",
        "least",
        "most",
        "over without",
        "stop p50 µs",
        "p99",
        "written/changed",
    ]);
    for row in rows {
        let number = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let digits = if row.measured.median < 100.0 { 2 } else { 0 };
        shown.add_row([
            row.measure.to_owned(),
            row.way.clone(),
            row.unit.to_owned(),
            number(row.base.as_ref().map(|base| base.median), digits),
            number(Some(row.measured.median), digits),
            number(Some(row.measured.least), digits),
            number(Some(row.measured.most), digits),
            number(row.over_base, 3),
            number(row.stop_us_p50, 0),
            number(row.stop_us_p99, 0),
            number(row.bytes_per_changed_byte, 2),
        ]);
    }
    println!("{shown}");
}
