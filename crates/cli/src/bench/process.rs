//! `twinpage bench process`: a writer alone and under checkpoints, heap by heap.

use super::own_program;
use super::writer::{calibrate, dirty_pages};
use crate::args::{Pattern, ProcessArguments};
use indicatif::ProgressBar;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;
use twinpage_commands::report::{document, median, table};
use twinpage_process::statistics::{self, Statistics};

/// One measured setting; times are medians over the repeats.
#[derive(Clone, Serialize)]
struct Row {
    workload: &'static str,
    engine: &'static str,
    medium: &'static str,
    durability: &'static str,
    threads: u32,
    heap_mib: usize,
    dirty_percent: f64,
    every_ms: f64,
    alone_s: f64,
    checkpointed_s: f64,
    slowdown: f64,
    stop_us_p50: f64,
    stop_us_p99: f64,
    stop_us_max: f64,
    interrupt_us_p50: f64,
    layout_us_p50: f64,
    scan_us_p50: f64,
    copy_us_p50: f64,
    state_us_p50: f64,
    epochs: u64,
    dirty_pages: f64,
    changed_lines: f64,
    bytes_per_changed_byte: f64,
    /// Until the writer ran again, and until all its memory was there.
    restore_ms: f64,
    loaded_ms: f64,
}

/// One setting to measure.
#[derive(Clone, Copy)]
struct Setting {
    heap_mib: usize,
    dirty_percent: f64,
    every: Duration,
    pattern: Pattern,
    rounds: usize,
    spin: u64,
}

pub(crate) fn bench(arguments: &ProcessArguments) -> Result<ExitCode, String> {
    let settings = settings(arguments);
    let progress = ProgressBar::new((settings.len() * (arguments.repeat() + 1)) as u64);
    let mut rows = Vec::new();
    for setting in settings {
        rows.push(measure(setting, arguments, &progress)?);
    }
    progress.finish_and_clear();
    if arguments.json {
        println!("{:#}", document(serde_json::json!({ "rows": rows })));
    } else {
        print(&rows);
    }
    Ok(ExitCode::SUCCESS)
}

fn settings(arguments: &ProcessArguments) -> Vec<Setting> {
    let mut settings = Vec::new();
    for &every in &arguments.every {
        for &heap_mib in &arguments.heap_mib {
            for &dirty_percent in &arguments.dirty_percent {
                for &pattern in &arguments.pattern {
                    let spin = calibrate(dirty_pages(heap_mib, dirty_percent), every);
                    let rounds = (arguments.seconds / every.as_secs_f64()).ceil() as usize;
                    settings.push(Setting {
                        heap_mib,
                        dirty_percent,
                        every,
                        pattern,
                        rounds,
                        spin,
                    });
                }
            }
        }
    }
    settings
}

fn measure(setting: Setting, arguments: &ProcessArguments, progress: &ProgressBar) -> Result<Row, String> {
    let scratch = Scratch::new(arguments)?;
    let (mut alone, mut checkpointed) = (Vec::new(), Vec::new());
    let mut all = Statistics::default();
    for _ in 0..arguments.repeat() {
        alone.push(seconds(writer(setting, None)?.stdout(Stdio::piped()).spawn())?);
        let (took, statistics) = run(setting, arguments, &scratch)?;
        checkpointed.push(took);
        all.merge(&statistics);
        progress.inc(1);
    }
    let [restore_ms, loaded_ms] = restore(setting, arguments, &scratch)?;
    progress.inc(1);
    let (alone_s, checkpointed_s) = (median(&mut alone), median(&mut checkpointed));
    let summary = all.summary(None);
    let each = |count: u64| count as f64 / all.epochs.max(1) as f64;
    let parts = summary.stop_parts_us;
    let name = arguments.durability.name();
    Ok(Row {
        workload: match setting.pattern {
            Pattern::WorkingSet => "writer, working set",
            Pattern::Uniform => "writer, uniform",
        },
        engine: "twinpage run",
        medium: name,
        durability: name,
        threads: 1,
        heap_mib: setting.heap_mib,
        dirty_percent: setting.dirty_percent,
        every_ms: setting.every.as_secs_f64() * 1e3,
        alone_s,
        checkpointed_s,
        slowdown: checkpointed_s / alone_s - 1.0,
        stop_us_p50: summary.stop_us.p50,
        stop_us_p99: summary.stop_us.p99,
        stop_us_max: summary.stop_us.max,
        interrupt_us_p50: parts.interrupt.p50,
        layout_us_p50: parts.layout.p50,
        scan_us_p50: parts.scan.p50,
        copy_us_p50: parts.copy.p50,
        state_us_p50: parts.state.p50,
        epochs: all.epochs,
        dirty_pages: each(all.pages),
        changed_lines: each(all.lines),
        bytes_per_changed_byte: summary.bytes_written as f64 / summary.changed_bytes.max(1) as f64,
        restore_ms,
        loaded_ms,
    })
}

/// The writer itself, as a command.
fn writer(setting: Setting, ready: Option<&Path>) -> Result<Command, String> {
    let mut command = Command::new(own_program()?);
    command.args(writer_arguments(setting, ready));
    Ok(command)
}

fn writer_arguments(setting: Setting, ready: Option<&Path>) -> Vec<String> {
    let pattern = match setting.pattern {
        Pattern::WorkingSet => "working-set",
        Pattern::Uniform => "uniform",
    };
    let mut arguments: Vec<String> = ["bench", "writer"].map(str::to_owned).into();
    for (name, value) in [
        ("--heap-mib", setting.heap_mib.to_string()),
        ("--dirty-percent", setting.dirty_percent.to_string()),
        ("--pattern", pattern.to_owned()),
        ("--rounds", setting.rounds.to_string()),
        ("--spin", setting.spin.to_string()),
    ] {
        arguments.extend([name.to_owned(), value]);
    }
    if let Some(ready) = ready {
        arguments.extend(["--ready".to_owned(), ready.display().to_string()]);
    }
    arguments
}

/// What the writer says its work took.
fn seconds(child: std::io::Result<Child>) -> Result<f64, String> {
    let output = child
        .and_then(Child::wait_with_output)
        .map_err(|error| format!("cannot run the writer: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("the writer failed: {}", output.status));
    }
    text.trim()
        .parse()
        .map_err(|_| format!("the writer said {text:?} instead of a time"))
}

/// The writer under checkpoints, and what they cost from the time its heap was there.
fn run(
    setting: Setting,
    arguments: &ProcessArguments,
    scratch: &Scratch,
) -> Result<(f64, Statistics), String> {
    scratch.clear()?;
    let mut child = start(setting, arguments, scratch)?;
    scratch.wait_until_ready(&mut child)?;
    let before = statistics::read(&scratch.state()).unwrap_or_default();
    let took = seconds(Ok(child))?;
    let after = statistics::read(&scratch.state()).ok_or("the run left no statistics")?;
    Ok((took, after.since(&before)))
}

fn start(setting: Setting, arguments: &ProcessArguments, scratch: &Scratch) -> Result<Child, String> {
    let every = format!("{}ms", setting.every.as_secs_f64() * 1e3);
    Command::new(own_program()?)
        .args([
            "run",
            "--every",
            &every,
            "--durability",
            arguments.durability.name(),
            "--state",
        ])
        .arg(scratch.state())
        .arg("--")
        .arg(own_program()?)
        .args(writer_arguments(setting, Some(&scratch.ready())))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start twinpage run: {error}"))
}

/// Milliseconds it takes to bring the writer back, which is killed with its heap filled and resumed: until it runs, and
/// until all its memory is there.
fn restore(setting: Setting, arguments: &ProcessArguments, scratch: &Scratch) -> Result<[f64; 2], String> {
    let (mut restores, mut loads) = (Vec::new(), Vec::new());
    for _ in 0..arguments.repeat() {
        scratch.clear()?;
        let mut child = start(setting, arguments, scratch)?;
        scratch.wait_until_ready(&mut child)?;
        // It works by then, and is not at its end.
        std::thread::sleep(setting.every * (setting.rounds as u32 / 2).min(16));
        let _ = child.kill();
        // Its output ends when the writer is gone, too: until then the kernel gives its memory back.
        let _ = child.wait_with_output();
        let stats = scratch.directory.path().join("resumed.json");
        let resumed = Command::new(own_program()?)
            .args(["resume", "--stats"])
            .arg(&stats)
            .arg(scratch.state())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
        let resumed = resumed.map_err(|error| format!("cannot start twinpage resume: {error}"))?;
        if !resumed.success() {
            return Err(format!("the writer could not be resumed: {resumed}"));
        }
        let text = std::fs::read_to_string(&stats).map_err(|error| error.to_string())?;
        let json: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let time = |number: &serde_json::Value| number.as_f64().ok_or("the resume gave no time");
        restores.push(time(&json["restore_ms"])?);
        loads.push(time(&json["loaded"]["ms"])?);
    }
    Ok([median(&mut restores), median(&mut loads)])
}

/// A directory for the states of a measurement.
struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    fn new(arguments: &ProcessArguments) -> Result<Scratch, String> {
        let place = arguments.place();
        let directory = tempfile::Builder::new()
            .prefix("twinpage-bench")
            .tempdir_in(&place);
        let directory =
            directory.map_err(|error| format!("cannot make a directory in {}: {error}", place.display()))?;
        Ok(Scratch { directory })
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    fn ready(&self) -> PathBuf {
        self.directory.path().join("ready")
    }

    fn clear(&self) -> Result<(), String> {
        for path in [self.state(), self.ready()] {
            let gone = if path.is_dir() {
                std::fs::remove_dir_all(&path)
            } else {
                std::fs::remove_file(&path)
            };
            if let Err(error) = gone
                && error.kind() != std::io::ErrorKind::NotFound
            {
                return Err(format!("cannot remove {}: {error}", path.display()));
            }
        }
        Ok(())
    }

    fn wait_until_ready(&self, run: &mut Child) -> Result<(), String> {
        while !self.ready().exists() {
            if let Some(status) = run.try_wait().map_err(|error| error.to_string())? {
                return Err(format!(
                    "twinpage run ended before its program was ready: {status}"
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

fn print(rows: &[Row]) {
    let mut table = table([
        "workload",
        "heap MiB",
        "dirty %",
        "every ms",
        "slowdown %",
        "stop p50 µs",
        "p99",
        "max",
        "interrupt",
        "layout",
        "scan",
        "copy",
        "state",
        "pages",
        "lines",
        "written/changed",
        "restore ms",
        "all there",
    ]);
    for row in rows {
        let whole = |number: f64| format!("{number:.0}");
        table.add_row([
            row.workload.to_owned(),
            row.heap_mib.to_string(),
            row.dirty_percent.to_string(),
            whole(row.every_ms),
            format!("{:.1}", row.slowdown * 100.0),
            whole(row.stop_us_p50),
            whole(row.stop_us_p99),
            whole(row.stop_us_max),
            whole(row.interrupt_us_p50),
            whole(row.layout_us_p50),
            whole(row.scan_us_p50),
            whole(row.copy_us_p50),
            whole(row.state_us_p50),
            whole(row.dirty_pages),
            whole(row.changed_lines),
            format!("{:.3}", row.bytes_per_changed_byte),
            format!("{:.1}", row.restore_ms),
            format!("{:.1}", row.loaded_ms),
        ]);
    }
    println!("{table}");
}
