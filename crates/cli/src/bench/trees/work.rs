//! Trees of processes: sleepers beside a busy process, children that come and go, a compilation.

use super::{Room, Run, Way};
use crate::bench::own_program;
use crate::bench::writer::calibrate;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(super) const SLEEPERS: u32 = 64;
/// What the busy process writes between two checkpoints: 64 pages of a heap of 1 MiB.
const HEAP_MIB: usize = 1;
const PAGES: usize = 64;
const INTERVAL: Duration = Duration::from_millis(16);
/// Programs that a shell starts.
const CHILDREN: u32 = 1000;
/// Source files, and functions in each.
const FILES: usize = 100;
const FUNCTIONS: usize = 40;

/// The median stop, in microseconds, of a busy process beside `sleepers`.
pub(super) fn stops(room: &Room, sleepers: u32, way: Way) -> Result<Run, String> {
    const TREE: &str = "i=0; pids=
        while [ $i -lt $0 ]; do sleep 1000000 & pids=\"$pids $!\"; i=$((i+1)); done
        \"$@\"; code=$?
        [ -z \"$pids\" ] || kill $pids
        exit $code";
    let rounds = (room.seconds / INTERVAL.as_secs_f64()).ceil();
    let share = PAGES as f64 * 100.0 / (HEAP_MIB * 256) as f64;
    let mut command = room.command("sh", Some(way))?;
    command.args(["-c", TREE, &sleepers.to_string()]);
    command.arg(own_program()?).args(["bench", "writer"]);
    command.args([
        "--heap-mib",
        &HEAP_MIB.to_string(),
        "--dirty-percent",
        &share.to_string(),
    ]);
    command.args(["--rounds", &rounds.to_string()]);
    command.args(["--spin", &calibrate(PAGES, INTERVAL).to_string()]);
    timed(&mut command, "sh")?;
    let cost = room.cost(Some(way))?;
    let value = cost.as_ref().map_or(f64::NAN, |cost| cost.stop_us.p50);
    Ok(Run { value, cost })
}

/// A shell that starts programs and waits for each.
pub(super) fn children(room: &Room, way: Option<Way>) -> Result<Run, String> {
    let program = ["/bin/true", "/usr/bin/true"]
        .iter()
        .find(|path| Path::new(path).exists());
    let program = program.ok_or("there is no /bin/true")?;
    let script = format!("i=0; while [ $i -lt {CHILDREN} ]; do {program}; i=$((i+1)); done");
    let mut command = room.command("sh", way)?;
    command.args(["-c", &script]);
    let value = timed(&mut command, "sh")?;
    Ok(Run {
        value,
        cost: room.cost(way)?,
    })
}

/// A compilation by two processes at a time.
pub(super) fn make(room: &Room, way: Option<Way>) -> Result<Run, String> {
    write(&room.path("Makefile"), &makefile())?;
    for file in 0..FILES {
        write(&room.path(&format!("part{file}.c")), &source(file))?;
    }
    write(&room.path("main.c"), &main_source())?;
    let mut command = room.command("make", way)?;
    command.args(["-s", "-j2"]);
    let value = timed(&mut command, "make")?;
    let printed = Command::new(room.path("program")).output();
    let printed = printed.map_err(|error| format!("cannot start what make made: {error}"))?;
    if printed.stdout != format!("{FILES} parts\n").as_bytes() {
        return Err("what make made prints something else than it was written to".into());
    }
    Ok(Run {
        value,
        cost: room.cost(way)?,
    })
}

fn makefile() -> String {
    let parts: Vec<String> = (0..FILES).map(|file| format!("part{file}.o")).collect();
    let parts = parts.join(" ");
    format!("program: main.o {parts}\n\tcc -o $@ $^\n%.o: %.c\n\tcc -O2 -c -o $@ $<\n")
}

/// A file with functions that differ from those of the others.
fn source(file: usize) -> String {
    let mut text =
        "#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n".to_owned();
    for function in 0..FUNCTIONS {
        let (a, b) = (file * FUNCTIONS + function + 3, function % 7 + 2);
        let _ = write!(
            text,
            "static long f{function}(const long *x, long n) {{\n    long sum = {a};\n    \
             for (long i = 0; i < n; i++) {{\n        if (x[i] % {b} == 0) sum += x[i] * {a}; else sum ^= x[i] >> {b};\n        \
             for (long j = i; j > 0 && x[j] < x[j - 1]; j /= {b}) sum += j;\n    }}\n    return sum;\n}}\n"
        );
    }
    let calls: Vec<String> = (0..FUNCTIONS)
        .map(|function| format!("f{function}(x, n)"))
        .collect();
    let _ = writeln!(
        text,
        "long part{file}(const long *x, long n) {{ return {}; }}",
        calls.join(" + ")
    );
    text
}

fn main_source() -> String {
    let mut text = "#include <stdio.h>\n".to_owned();
    for file in 0..FILES {
        let _ = writeln!(text, "long part{file}(const long *x, long n);");
    }
    text.push_str("int main(void) {\n    long x[4] = {1, 2, 3, 4}, sum = 0, parts = 0;\n");
    for file in 0..FILES {
        let _ = writeln!(text, "    sum += part{file}(x, 4), parts++;");
    }
    text.push_str("    return printf(\"%ld parts\\n\", parts) < 0 || sum == 0;\n}\n");
    text
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Seconds that a command takes, which must succeed.
fn timed(command: &mut Command, name: &str) -> Result<f64, String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let begun = Instant::now();
    let done = command
        .output()
        .map_err(|error| format!("cannot start {name}: {error}"))?;
    let took = begun.elapsed().as_secs_f64();
    if done.status.success() {
        return Ok(took);
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(format!("{name} failed ({}): {said}", done.status))
}
