//! Where the runs are made, how each of them is started, and what it leaves.
//!
//! ```text
//! DIR/work           the program's directory, in every run
//! DIR/undisturbed/   work, stdout, stderr of the undisturbed run
//! DIR/again/         the same of a second one, when there was a difference
//! DIR/killed/        state, stdout, stderr, messages of the run with kills
//! ```

use super::compare::{self, Difference};
use super::waiting;
use crate::show;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use twinpage_os::family::Family;
use twinpage_os::signals;
use twinpage_process::context::Ending;

/// The directory of a proof.
pub(super) struct Scratch {
    dir: Option<TempDir>,
    path: PathBuf,
    words: Vec<OsString>,
}

/// How a run went.
pub(super) struct Undisturbed {
    pub(super) ended: Ending,
    pub(super) took: Duration,
}

/// What the runs left.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    pub(super) stdout_bytes: u64,
    pub(super) stderr_bytes: u64,
    pub(super) files: u64,
    pub(super) file_bytes: u64,
}

/// Where a run with kills keeps its things.
pub(super) struct Killed {
    pub(super) state: PathBuf,
    pub(super) messages: PathBuf,
    /// One open file for all lives, as in a shell's redirection.
    stdout: File,
    stderr: File,
}

/// How the program is checkpointed, as in the command line.
pub(super) struct Settings {
    pub(super) every: String,
    pub(super) durability: &'static str,
}

fn told(what: &str, path: &Path) -> impl FnOnce(std::io::Error) -> String {
    let path = path.to_owned();
    move |error| format!("cannot {what} {}: {error}", path.display())
}

impl Scratch {
    /// A fresh directory in `parent`, or where temporary files go.
    pub(super) fn new(parent: Option<&Path>, words: Vec<OsString>) -> Result<Scratch, String> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let mut named = tempfile::Builder::new();
        let dir = named.prefix("twinpage-prove-").tempdir_in(&parent);
        let dir = dir.map_err(told("make a scratch directory in", &parent))?;
        let path = dir.path().canonicalize();
        let path = path.map_err(told("find", dir.path()))?;
        let to_remove = path.clone();
        let tidy = move || {
            // What is running there may still make a file: it ends with this process.
            let _ = (0..10).find(|_| fs::remove_dir_all(&to_remove).is_ok());
        };
        signals::tidy_when_asked_to_end(tidy).map_err(|error| format!("cannot start: {error}"))?;
        Ok(Scratch {
            path,
            dir: Some(dir),
            words,
        })
    }

    /// The directory stays when the proof ends.
    pub(super) fn keep(&mut self) -> &Path {
        if let Some(dir) = self.dir.take() {
            let _ = dir.keep();
        }
        &self.path
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// An empty directory, whatever was there.
    fn fresh(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.at(name);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(told("empty", &path)(error));
            }
            _ => {}
        }
        fs::create_dir(&path).map_err(told("make", &path))?;
        Ok(path)
    }

    pub(super) fn run_undisturbed(&self, timeout: Option<Duration>) -> Result<Undisturbed, String> {
        self.run_alone("undisturbed", timeout)
    }

    /// Whether another undisturbed run leaves the same: if not, a difference says nothing of kills.
    pub(super) fn repeats(&self, first: &Undisturbed, timeout: Option<Duration>) -> Result<bool, String> {
        let work = self.at("killed/work");
        fs::rename(self.at("work"), &work).map_err(told("move to", &work))?;
        let again = self.run_alone("again", timeout)?;
        let found = self.compare("again", first.ended, again.ended);
        Ok(found?.is_none())
    }

    /// Runs the program without twinpage, and leaves what it made in `name`. What it started and did not
    /// wait for ends with it, as under twinpage.
    fn run_alone(&self, name: &str, timeout: Option<Duration>) -> Result<Undisturbed, String> {
        let work = self.fresh("work")?;
        let to = self.fresh(name)?;
        let (program, arguments) = self.words.split_first().ok_or("no program was named")?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(input()?);
        command.stdout(create(&to.join("stdout"))?);
        command.stderr(create(&to.join("stderr"))?);
        self.place(&mut command);
        let began = Instant::now();
        let mut family = Family::start(&mut command).map_err(told("start", Path::new(program)))?;
        let until = timeout.map(|timeout| began + timeout);
        let waited = waiting::until(family.guard(), until);
        let Some(status) = waited.map_err(told("wait for", Path::new(program)))? else {
            family.end().map_err(told("end", Path::new(program)))?;
            return Err(format!(
                "alone, the program still ran after {}: give it longer with --timeout",
                show::time(timeout.unwrap_or_default())
            ));
        };
        let took = began.elapsed();
        fs::rename(&work, to.join("work")).map_err(told("move", &work))?;
        Ok(Undisturbed {
            ended: ending(status),
            took,
        })
    }

    /// The directory a program runs in, alone or not.
    fn place(&self, command: &mut Command) {
        let work = self.at("work");
        command.current_dir(&work).env("PWD", &work);
    }

    /// Everything fresh for a run with kills.
    pub(super) fn begin(&self) -> Result<Killed, String> {
        self.fresh("work")?;
        let dir = self.fresh("killed")?;
        Ok(Killed {
            state: dir.join("state"),
            messages: dir.join("messages"),
            stdout: create(&dir.join("stdout"))?,
            stderr: create(&dir.join("stderr"))?,
        })
    }

    /// `twinpage run` or `twinpage resume` of the program.
    pub(super) fn life(
        &self,
        killed: &Killed,
        resumed: bool,
        settings: &Settings,
    ) -> Result<Command, String> {
        let this = Path::new("/proc/self/exe");
        let mut command = Command::new(std::env::current_exe().map_err(told("find", this))?);
        command.arg(if resumed { "resume" } else { "run" });
        command.arg("--messages").arg(&killed.messages);
        command.args(["--every", &settings.every]);
        if resumed {
            command.arg(&killed.state);
            command.stdin(Stdio::null()); // a file it reads from is opened again by name
        } else {
            command.args(["--durability", settings.durability]);
            command.arg("--state").arg(&killed.state);
            command.arg("--").args(&self.words).stdin(input()?);
        }
        let dup = |file: &File| file.try_clone().map_err(told("use", &killed.state));
        command.stdout(dup(&killed.stdout)?).stderr(dup(&killed.stderr)?);
        self.place(&mut command);
        signals::end_with_parent(&mut command);
        Ok(command)
    }

    /// The first difference between the undisturbed run and one under twinpage, which ended or was lost.
    pub(super) fn judge(
        &self,
        alone: Ending,
        other: Result<Ending, Difference>,
    ) -> Result<Option<Difference>, String> {
        match other {
            Ok(ended) => self.compare("killed", alone, ended),
            Err(lost) => Ok(Some(lost)),
        }
    }

    fn compare(&self, other: &str, alone: Ending, ended: Ending) -> Result<Option<Difference>, String> {
        let first = self.at("undisturbed");
        let second = self.at(other);
        let failed = |error| format!("cannot compare the runs in {}: {error}", self.path.display());
        for stream in ["stdout", "stderr"] {
            let found = compare::files(stream, &first.join(stream), &second.join(stream)).map_err(failed)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        if alone != ended {
            return Ok(Some(Difference::new("exit", describe(alone), describe(ended))));
        }
        let work = if other == "killed" {
            self.at("work")
        } else {
            second.join("work")
        };
        compare::directories(&first.join("work"), &work).map_err(failed)
    }

    /// What the undisturbed run left.
    pub(super) fn sizes(&self) -> Result<Sizes, String> {
        let dir = self.at("undisturbed");
        let len = |name: &str| {
            let path = dir.join(name);
            Ok::<_, String>(path.metadata().map_err(told("look at", &path))?.len())
        };
        let work = dir.join("work");
        let (files, file_bytes) = compare::size(&work).map_err(told("look into", &work))?;
        Ok(Sizes {
            stdout_bytes: len("stdout")?,
            stderr_bytes: len("stderr")?,
            files,
            file_bytes,
        })
    }
}

fn create(path: &Path) -> Result<File, String> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).open(path);
    file.map_err(told("make", path))
}

/// A file on standard input is read from its beginning in every run; anything else could be read
/// once only, so the program gets none of it.
fn input() -> Result<Stdio, String> {
    let path = Path::new("/proc/self/fd/0");
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() => Ok(File::open(path).map_err(told("open", path))?.into()),
        _ => Ok(Stdio::null()),
    }
}

/// How a process ended.
pub(super) fn ending(status: ExitStatus) -> Ending {
    match status.signal() {
        Some(signal) => Ending::Signal(signal),
        None => Ending::Exit(status.code().unwrap_or(0)),
    }
}

/// An ending for people.
pub(super) fn describe(ended: Ending) -> String {
    match ended {
        Ending::Exit(code) => format!("exit code {code}"),
        Ending::Signal(number) => show::signal(number),
    }
}
