//! One worker for each engine, taking turns: those that wait are stopped, with all their threads.

use crate::args::{Common, Contestant, EngineName, WorkloadName, spelled};
use crate::engine::Result;
use crate::worker::{Answer, Slice, Waits};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use twinpage_core::SchemeKind;

/// What the team is to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task<'a> {
    pub(crate) workload: WorkloadName,
    pub(crate) medium: &'a Path,
    pub(crate) in_memory: bool,
    /// None: each operation.
    pub(crate) every: Option<Duration>,
    pub(crate) threads: u32,
    /// In failure-atomic sections of twinpage; the threads share the data there is.
    pub(crate) sections: bool,
}

impl Task<'_> {
    /// How long the worker of an engine may put off what makes its work durable. Native memory has nothing to
    /// put off, and is not to look at the clock after every operation.
    fn every(&self, engine: EngineName) -> Option<Duration> {
        match engine {
            EngineName::Native => self.every.or(Some(Duration::from_millis(16))),
            _ => self.every,
        }
    }

    /// How much of the data a thread has.
    fn scale(&self, scale: f64) -> f64 {
        match self.sections {
            true => scale / f64::from(self.threads),
            false => scale,
        }
    }
}

/// Why an engine has no place in a task.
pub(crate) fn out_of_place(who: Contestant, task: Task<'_>) -> Option<&'static str> {
    if who.engine == EngineName::Pmemobj && !task.in_memory {
        return Some(
            "with PMEM_IS_PMEM_FORCE=1 it flushes cache lines, which makes nothing durable on a disk: memory files only",
        );
    }
    (task.workload == WorkloadName::Open && who.form.scheme == Some(SchemeKind::InPlace))
        .then_some("it keeps no second version that a kill in an epoch could leave")
}

/// A worker process, stopped but while it is asked.
pub(crate) struct Member {
    pub(crate) who: Contestant,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _directory: TempDir,
}

impl Member {
    /// Starts a worker and waits until its structures are there; the reason when its engine cannot be used.
    pub(crate) fn start(who: Contestant, task: Task<'_>, arguments: &Common) -> Result<Result<Member>> {
        let directory = tempfile::Builder::new()
            .prefix("twinpage-bench")
            .tempdir_in(task.medium);
        let directory = directory
            .map_err(|error| format!("cannot make a directory in {}: {error}", task.medium.display()))?;
        let program = std::env::current_exe().map_err(|error| format!("cannot find itself: {error}"))?;
        let mut command = Command::new(program);
        command
            .args(["worker", "--workload", &spelled(task.workload)])
            .args(["--engine", &spelled(who.engine)])
            .args(who.form.words())
            .args(["--threads", &task.threads.to_string()])
            .args(["--scale", &task.scale(arguments.scale).to_string()])
            .args(["--seed", &arguments.seed.to_string(), "--place"])
            .arg(directory.path());
        if let Some(every) = task.every(who.engine) {
            command.args(["--every", &format!("{}us", every.as_micros())]);
        }
        if task.sections && who.engine == EngineName::Twinpage {
            command.arg("--sections");
        }
        if who.engine == EngineName::Pmemobj {
            command.env("PMEM_IS_PMEM_FORCE", "1");
        }
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|error| format!("cannot start a worker: {error}"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let mut member = Member {
            who,
            child,
            input: input.expect("piped"),
            output: BufReader::new(output.expect("piped")),
            _directory: directory,
        };
        match member.answer()? {
            Answer::Ready => {
                member.signal(Signal::STOP)?;
                Ok(Ok(member))
            }
            Answer::Absent(why) => Ok(Err(why)),
            other => Err(member.unexpected(&other)),
        }
    }

    /// One repetition.
    pub(crate) fn slice(&mut self, seconds: f64) -> Result<Slice> {
        match self.ask(&format!("slice {seconds}"))? {
            Answer::Slice(slice) => {
                self.signal(Signal::STOP)?;
                Ok(slice)
            }
            other => Err(self.unexpected(&other)),
        }
    }

    /// Compares what it computed with what it must have computed, and ends it.
    pub(crate) fn check(mut self) -> Result<Waits> {
        match self.ask("check")? {
            Answer::Checked(waits) => Ok(waits),
            other => Err(self.unexpected(&other)),
        }
    }

    fn ask(&mut self, what: &str) -> Result<Answer> {
        self.signal(Signal::CONT)?;
        writeln!(self.input, "{what}").map_err(|error| self.gone(&error.to_string()))?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Answer> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        let read = read.map_err(|error| self.gone(&error.to_string()))?;
        if read == 0 {
            return Err(self.gone("it ended"));
        }
        serde_json::from_str(&line).map_err(|_| self.gone(&format!("it said {line:?}")))
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).map_err(|error| self.gone(&error.to_string()))
    }

    fn gone(&self, why: &str) -> String {
        format!("the worker of {} is of no use: {why}", self.who)
    }

    fn unexpected(&self, answer: &Answer) -> String {
        match answer {
            Answer::Failed(why) => format!("{}: {why}", self.who),
            other => self.gone(&format!("it said {other:?}")),
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // It has nothing to lose: its directory goes with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
