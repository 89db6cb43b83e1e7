//! `twinpage bench programs`: programs of other people doing real work, alone and under checkpoints, in turns; or,
//! with `--kills`, proved to survive.
//!
//! * Which programs, and how each is made and started, is in `programs/programs.toml`; short jobs, which are proved and
//!   not measured, are in `programs/jobs.toml`.
//! * Each run starts in an empty directory. What it prints, leaves and ends with is compared with the run alone.
//! * A program that is not installed is named, never left out in silence.

use super::own_program;
use crate::args::{Mode, ProgramsArguments};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;
use twinpage_commands::report::{document, median, table};
use twinpage_os::messages;
use twinpage_process::statistics::Percentiles;

const PROGRAMS: &str = include_str!("../../programs/programs.toml");
const JOBS: &str = include_str!("../../programs/jobs.toml");
/// The exit code when a program came to another end under twinpage.
const DIFFERENT: u8 = 1;
const SECONDS_PER_HOUR: f64 = 3600.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    program: Vec<Program>,
}

/// One program, as in the list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Program {
    name: String,
    needs: String,
    install: String,
    prepare: Option<String>,
    command: Vec<String>,
    stdin: Option<String>,
    #[serde(default)]
    files: BTreeMap<String, String>,
}

impl Mode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Mode::Default => "default",
            Mode::Disk => "16ms-disk",
            Mode::Memory => "16ms-memory",
        }
    }

    /// Options of `twinpage run`.
    pub(super) fn options(self) -> &'static [&'static str] {
        match self {
            Mode::Default => &["--durability", "disk"],
            Mode::Disk => &["--every", "16ms", "--durability", "disk"],
            Mode::Memory => &["--every", "16ms", "--durability", "memory"],
        }
    }

    /// The same of `twinpage prove`, which has a pace of its own unless one is named.
    fn of_proof(self) -> impl Iterator<Item = &'static str> {
        let pace: &[_] = match self {
            Mode::Default => &["--every", "auto"],
            Mode::Disk | Mode::Memory => &[],
        };
        pace.iter().chain(self.options()).copied()
    }
}

/// One program in one mode; times are of all its runs.
#[derive(Serialize)]
struct Row {
    program: String,
    mode: &'static str,
    alone_s: Times,
    checkpointed_s: Times,
    /// Median over median.
    over_alone: f64,
    identical: bool,
    stop_us_p50: f64,
    stop_us_p99: f64,
    checkpoints: u64,
    bytes_written: u64,
    bytes_per_hour: f64,
    bytes_per_changed_byte: f64,
}

/// What is read of a run's `--stats`.
#[derive(Deserialize)]
pub(super) struct Cost {
    epochs: u64,
    pub(super) stop_us: Percentiles,
    pub(super) bytes_written: u64,
    pub(super) changed_bytes: u64,
}

impl Cost {
    pub(super) fn read(path: &Path) -> Result<Cost, String> {
        let text = fs::read(path).map_err(|error| format!("the run left no {}: {error}", path.display()))?;
        serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// What several runs came to.
#[derive(Serialize)]
pub(super) struct Times {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Times {
    pub(super) fn of(mut all: Vec<f64>) -> Times {
        let median = median(&mut all);
        Times {
            median,
            least: all[0],
            most: all[all.len() - 1],
        }
    }
}

/// What a run left: how it ended, what it printed, and its files.
#[derive(PartialEq, Eq)]
struct Outcome {
    code: Option<i32>,
    printed: u64,
    files: BTreeMap<PathBuf, u64>,
}

pub(crate) fn bench(arguments: &ProgramsArguments) -> Result<ExitCode, String> {
    let programs = chosen(arguments)?;
    let scratch = tempfile::Builder::new().prefix("twinpage-programs-").tempdir();
    let scratch = scratch.map_err(|error| format!("cannot make a scratch directory: {error}"))?;
    let (mut rows, mut proofs, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for program in &programs {
        let place = Workspace::of(program, scratch.path())?;
        if !place.shell(&program.needs)?.status.success() {
            messages::tell(&format!(
                "{} is not installed and left out: {}",
                program.name, program.install
            ));
            left_out.push(&program.name);
            continue;
        }
        match (place.prepare(), arguments.kills) {
            (Ok(()), Some(kills)) => {
                for mode in &arguments.mode {
                    proofs.push(place.prove(*mode, kills)?);
                }
            }
            (Err(why), Some(_)) => proofs.extend(arguments.mode.iter().map(|mode| Proof {
                program: program.name.clone(),
                mode: mode.name(),
                identical: None,
                error: Some(why.clone()),
                found: None,
            })),
            (prepared, None) => {
                prepared?;
                rows.extend(place.measure(arguments)?);
            }
        }
        place.remove()?;
    }
    match arguments.kills {
        None => report(&rows, &left_out, arguments)?,
        Some(_) => report_proofs(&proofs, &left_out, arguments)?,
    }
    if let Some(failed) = proofs.iter().find(|proof| proof.error.is_some()) {
        let why = failed.error.as_deref().unwrap_or_default();
        return Err(format!("{} could not be proved: {why}", failed.program));
    }
    let proved = proofs.iter().all(|proof| proof.identical == Some(true));
    let same = proved && rows.iter().all(|row| row.identical);
    Ok(if same {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(DIFFERENT)
    })
}

/// The programs named; all of their list if none is.
fn chosen(arguments: &ProgramsArguments) -> Result<Vec<Program>, String> {
    let names = &arguments.only;
    let (file, text) = match arguments.jobs {
        true => ("jobs.toml", JOBS),
        false => ("programs.toml", PROGRAMS),
    };
    let mut list: List = toml::from_str(text).map_err(|error| format!("{file}: {error}"))?;
    let known: BTreeSet<&str> = list.program.iter().map(|program| program.name.as_str()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name.as_str())) {
        let known: Vec<&str> = list.program.iter().map(|program| program.name.as_str()).collect();
        return Err(format!(
            "there is no program {unknown}; there are {}",
            known.join(", ")
        ));
    }
    list.program
        .retain(|program| names.is_empty() || names.contains(&program.name));
    Ok(list.program)
}

/// Where a program's inputs and runs are.
struct Workspace<'a> {
    program: &'a Program,
    directory: PathBuf,
}

impl<'a> Workspace<'a> {
    fn of(program: &'a Program, scratch: &Path) -> Result<Workspace<'a>, String> {
        let directory = scratch.join(&program.name);
        let place = Workspace { program, directory };
        make(&place.inputs())?;
        Ok(place)
    }

    fn inputs(&self) -> PathBuf {
        self.directory.join("inputs")
    }

    fn filled(&self, text: &str) -> String {
        let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
        let inputs = self.inputs().display().to_string();
        text.replace("{inputs}", &inputs).replace("{python}", &python)
    }

    fn shell(&self, text: &str) -> Result<std::process::Output, String> {
        let mut command = Command::new("sh");
        command
            .args(["-e", "-c", &self.filled(text)])
            .current_dir(self.inputs());
        let done = command.stdin(Stdio::null()).output();
        done.map_err(|error| format!("cannot start sh: {error}"))
    }

    fn prepare(&self) -> Result<(), String> {
        for (name, text) in &self.program.files {
            let path = self.inputs().join(name);
            fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
        let Some(prepare) = &self.program.prepare else {
            return Ok(());
        };
        let done = self.shell(prepare)?;
        if done.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&done.stderr);
        Err(format!("cannot make the inputs of {}: {said}", self.program.name))
    }

    fn remove(&self) -> Result<(), String> {
        fs::remove_dir_all(&self.directory)
            .map_err(|error| format!("cannot remove {}: {error}", self.directory.display()))
    }

    fn stdin(&self) -> Result<Stdio, String> {
        let Some(name) = &self.program.stdin else {
            return Ok(Stdio::null());
        };
        let path = self.inputs().join(name);
        File::open(&path)
            .map(Stdio::from)
            .map_err(|error| format!("cannot open {}: {error}", path.display()))
    }

    fn words(&self) -> impl Iterator<Item = String> + '_ {
        self.program.command.iter().map(|word| self.filled(word))
    }

    /// Runs alone and in each mode, in turns.
    fn measure(&self, arguments: &ProgramsArguments) -> Result<Vec<Row>, String> {
        let mut alone = Vec::new();
        let mut under: Vec<(Vec<f64>, Vec<Cost>, bool)> = Vec::new();
        under.resize_with(arguments.mode.len(), || (Vec::new(), Vec::new(), true));
        let runs = u64::from(arguments.repeat) * (arguments.mode.len() as u64 + 1);
        let progress = twinpage_commands::lab::bar(runs, "runs");
        for _ in 0..arguments.repeat {
            progress.set_message(format!("{} alone", self.program.name));
            let (took, undisturbed) = self.run(None)?;
            alone.push(took);
            progress.inc(1);
            for (mode, (times, costs, identical)) in arguments.mode.iter().zip(&mut under) {
                progress.set_message(format!("{} {}", self.program.name, mode.name()));
                let (took, outcome) = self.run(Some(*mode))?;
                times.push(took);
                costs.push(Cost::read(&self.stats())?);
                *identical &= outcome == undisturbed;
                progress.inc(1);
            }
        }
        progress.finish_and_clear();
        let row =
            |(mode, (times, costs, identical)): (&Mode, _)| self.row(*mode, &alone, times, costs, identical);
        Ok(arguments.mode.iter().zip(under).map(row).collect())
    }

    fn row(&self, mode: Mode, alone: &[f64], times: Vec<f64>, mut all: Vec<Cost>, identical: bool) -> Row {
        let (alone_s, checkpointed_s) = (Times::of(alone.to_vec()), Times::of(times));
        all.sort_by(|a, b| a.stop_us.p50.total_cmp(&b.stop_us.p50));
        let middle = &all[all.len() / 2];
        let written: u64 = all.iter().map(|cost| cost.bytes_written).sum::<u64>() / all.len() as u64;
        let changed: u64 = all.iter().map(|cost| cost.changed_bytes).sum::<u64>() / all.len() as u64;
        Row {
            program: self.program.name.clone(),
            mode: mode.name(),
            over_alone: checkpointed_s.median / alone_s.median,
            bytes_per_hour: written as f64 / checkpointed_s.median * SECONDS_PER_HOUR,
            alone_s,
            checkpointed_s,
            identical,
            stop_us_p50: middle.stop_us.p50,
            stop_us_p99: middle.stop_us.p99,
            checkpoints: middle.epochs,
            bytes_written: written,
            bytes_per_changed_byte: written as f64 / changed.max(1) as f64,
        }
    }

    /// One run in an empty directory: seconds, and what it left.
    fn run(&self, mode: Option<Mode>) -> Result<(f64, Outcome), String> {
        let (work, printed) = (self.directory.join("work"), self.directory.join("printed"));
        for directory in [&work, &self.directory.join("state")] {
            if directory.exists() {
                fs::remove_dir_all(directory)
                    .map_err(|error| format!("cannot remove {}: {error}", directory.display()))?;
            }
        }
        make(&work)?;
        let mut command = self.command(mode)?;
        let stdout =
            File::create(&printed).map_err(|error| format!("cannot make {}: {error}", printed.display()))?;
        command
            .current_dir(&work)
            .stdin(self.stdin()?)
            .stdout(stdout)
            .stderr(Stdio::piped());
        let begun = Instant::now();
        let child = command.spawn().and_then(std::process::Child::wait_with_output);
        let done = child.map_err(|error| format!("cannot run {}: {error}", self.program.name))?;
        let took = begun.elapsed().as_secs_f64();
        if done.status.code() == Some(125) {
            let said = String::from_utf8_lossy(&done.stderr);
            return Err(format!("{} cannot run under twinpage: {said}", self.program.name));
        }
        let mut files = BTreeMap::new();
        digest_all(&work, &work, &mut files)?;
        let outcome = Outcome {
            code: done.status.code(),
            printed: digest(&printed)?,
            files,
        };
        Ok((took, outcome))
    }

    fn command(&self, mode: Option<Mode>) -> Result<Command, String> {
        let Some(mode) = mode else {
            let mut words = self.words();
            let mut command = Command::new(words.next().unwrap_or_default());
            command.args(words);
            return Ok(command);
        };
        let mut command = Command::new(own_program()?);
        command.arg("run").args(mode.options());
        command.arg("--stats").arg(self.stats());
        command.arg("--state").arg(self.directory.join("state"));
        command.arg("--").args(self.words());
        Ok(command)
    }

    fn stats(&self) -> PathBuf {
        self.directory.join("stats.json")
    }

    /// What `twinpage prove` finds of the program, killed so many times.
    fn prove(&self, mode: Mode, kills: u32) -> Result<Proof, String> {
        messages::tell(&format!("{}, {}", self.program.name, mode.name()));
        let place = self.directory.join("prove"); // not among the inputs: words that name nothing here stay as they are
        make(&place)?;
        let mut command = Command::new(own_program()?);
        command.args(["prove", "--json", "--kills", &kills.to_string()]);
        command.args(mode.of_proof());
        command.arg("--").args(self.words());
        command.current_dir(&place).stdin(self.stdin()?);
        let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output();
        let output = output.map_err(|error| format!("cannot start twinpage prove: {error}"))?;
        let found: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        let said = String::from_utf8_lossy(&output.stderr);
        // The parser of arguments says more behind its error.
        let error = said.lines().find(|line| line.starts_with("error: "));
        let why = error.or(said.lines().last()).unwrap_or("it said nothing");
        Ok(Proof {
            program: self.program.name.clone(),
            mode: mode.name(),
            identical: found.as_ref().and_then(|found| found["identical"].as_bool()),
            error: found.is_none().then(|| why.to_owned()),
            found,
        })
    }
}

/// What a proof of one program came to.
#[derive(Serialize)]
struct Proof {
    program: String,
    mode: &'static str,
    /// Whether every run was as the one alone, where that could be told.
    identical: Option<bool>,
    /// Why it could not.
    error: Option<String>,
    /// The report of `twinpage prove --json`.
    found: Option<Value>,
}

fn make(directory: &Path) -> Result<(), String> {
    fs::create_dir_all(directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))
}

fn digest(path: &Path) -> Result<u64, String> {
    let bytes = fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    Ok(hasher.finish())
}

fn digest_all(directory: &Path, root: &Path, files: &mut BTreeMap<PathBuf, u64>) -> Result<(), String> {
    let told = |error| format!("cannot list {}: {error}", directory.display());
    for entry in fs::read_dir(directory).map_err(told)? {
        let path = entry.map_err(told)?.path();
        if path.is_dir() {
            digest_all(&path, root, files)?;
        } else {
            let name = path.strip_prefix(root).unwrap_or(&path).to_owned();
            files.insert(name, digest(&path)?);
        }
    }
    Ok(())
}

/// Of a mode, over all programs.
#[derive(Serialize)]
struct Overall {
    mode: &'static str,
    programs: usize,
    over_alone_median: f64,
    over_alone_most: f64,
    stop_us_p50: f64,
    stop_us_p99: f64,
    bytes_per_hour: f64,
    bytes_per_changed_byte: f64,
}

fn overall(rows: &[Row], mode: Mode) -> Option<Overall> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.mode == mode.name()).collect();
    if rows.is_empty() {
        return None;
    }
    let middle = |of: fn(&Row) -> f64| median(&mut rows.iter().map(|row| of(row)).collect::<Vec<f64>>());
    Some(Overall {
        mode: mode.name(),
        programs: rows.len(),
        over_alone_median: middle(|row| row.over_alone),
        over_alone_most: rows.iter().map(|row| row.over_alone).fold(0.0, f64::max),
        stop_us_p50: middle(|row| row.stop_us_p50),
        stop_us_p99: middle(|row| row.stop_us_p99),
        bytes_per_hour: middle(|row| row.bytes_per_hour),
        bytes_per_changed_byte: middle(|row| row.bytes_per_changed_byte),
    })
}

fn report_proofs(
    proofs: &[Proof],
    left_out: &[&String],
    arguments: &ProgramsArguments,
) -> Result<(), String> {
    if arguments.json {
        let measured = serde_json::json!({ "proofs": proofs, "left_out": left_out });
        println!("{:#}", document(measured));
        return Ok(());
    }
    let mut shown = table([
        "program",
        "mode",
        "same",
        "kills",
        "resumes",
        "runs",
        "checkpoints",
        "alone s",
        "seed",
    ]);
    for proof in proofs {
        let found = |field: &str| {
            let found = proof.found.as_ref().map(|found| found[field].to_string());
            found.unwrap_or_default()
        };
        let alone_ms = proof
            .found
            .as_ref()
            .and_then(|found| found["undisturbed_ms"].as_f64());
        shown.add_row([
            proof.program.clone(),
            proof.mode.to_owned(),
            match proof.identical {
                Some(true) => "yes",
                Some(false) => "NO",
                None => "?",
            }
            .to_owned(),
            found("kills"),
            found("resumes"),
            found("runs"),
            found("epochs"),
            alone_ms.map_or(String::new(), |ms| format!("{:.2}", ms / 1e3)),
            found("seed"),
        ]);
    }
    println!("{shown}");
    let same = proofs
        .iter()
        .filter(|proof| proof.identical == Some(true))
        .count();
    println!(
        "{same} of {} are the same, however often they are killed.",
        proofs.len()
    );
    for proof in proofs {
        let difference = proof.found.as_ref().map(|found| &found["difference"]);
        match (&proof.error, difference) {
            (Some(why), _) => println!("{}, {}: {why}", proof.program, proof.mode),
            (None, Some(difference)) if !difference.is_null() => {
                println!("{}, {}: {difference}", proof.program, proof.mode);
            }
            _ => {}
        }
    }
    Ok(())
}

fn report(rows: &[Row], left_out: &[&String], arguments: &ProgramsArguments) -> Result<(), String> {
    let medians: Vec<Overall> = arguments
        .mode
        .iter()
        .filter_map(|mode| overall(rows, *mode))
        .collect();
    if arguments.json {
        let measured = serde_json::json!({ "rows": rows, "medians": medians, "left_out": left_out });
        println!("{:#}", document(measured));
        return Ok(());
    }
    let mut shown = table([
        "program",
        "mode",
        "alone s",
        "under s",
        "over alone",
        "same",
        "stop p50 µs",
        "p99",
        "checkpoints",
        "GB an hour",
        "written/changed",
    ]);
    for row in rows {
        shown.add_row([
            row.program.clone(),
            row.mode.to_owned(),
            format!("{:.2}", row.alone_s.median),
            format!("{:.2}", row.checkpointed_s.median),
            format!("{:.3}", row.over_alone),
            if row.identical { "yes" } else { "NO" }.to_owned(),
            format!("{:.0}", row.stop_us_p50),
            format!("{:.0}", row.stop_us_p99),
            row.checkpoints.to_string(),
            format!("{:.1}", row.bytes_per_hour / 1e9),
            format!("{:.2}", row.bytes_per_changed_byte),
        ]);
    }
    println!("{shown}");
    for all in medians {
        println!(
            "{}: median of {} programs {:.3} of alone, most {:.3}; stop {:.0} µs (p50), {:.0} µs (p99); {:.1} GB an hour",
            all.mode,
            all.programs,
            all.over_alone_median,
            all.over_alone_most,
            all.stop_us_p50,
            all.stop_us_p99,
            all.bytes_per_hour / 1e9
        );
    }
    Ok(())
}
