//! Processes below a `twinpage`: finding them, killing them all, seeing that they are gone.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The built command. The caller of the tests may ignore some signals (a shell does so for what it runs
/// in the background), and a program would go on ignoring them.
pub(crate) fn twinpage() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_twinpage")]);
    command.stdin(Stdio::null());
    command
}

/// The target of a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    /// Twinpage and all below it, in an order drawn by chance.
    Tree,
    /// Twinpage alone; what it runs must end with it.
    Tool,
    /// The program alone, as when memory runs out; twinpage must see that it has not finished.
    Program,
}

/// The parent and the state letter of a process; `None` when it is gone.
fn parent_and_state(pid: i32) -> Option<(i32, char)> {
    parse_stat(Path::new(&format!("/proc/{pid}")))
}

/// The same of a process or a thread by its directory in /proc.
fn parse_stat(directory: &Path) -> Option<(i32, char)> {
    let stat = std::fs::read_to_string(directory.join("stat")).ok()?;
    let mut fields = stat[stat.rfind(')')? + 2..].split(' ');
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}

fn all_pids() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("/proc");
    entries
        .filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// A process and everything below it, now.
pub(crate) fn family(of: i32) -> Vec<i32> {
    let mut known = BTreeSet::from([of]);
    let parents: Vec<(i32, i32)> = all_pids()
        .into_iter()
        .filter_map(|pid| Some((pid, parent_and_state(pid)?.0)))
        .collect();
    loop {
        let before = known.len();
        known.extend(
            parents
                .iter()
                .filter(|(_, parent)| known.contains(parent))
                .map(|(pid, _)| *pid)
                .collect::<Vec<_>>(),
        );
        if known.len() == before {
            return known.into_iter().collect();
        }
    }
}

/// Whether a thread is left: the first one may be dead while another, in a flush, still holds the files.
fn alive(pid: i32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    let mut states = threads.filter_map(|thread| parse_stat(&thread.ok()?.path()));
    states.any(|(_, state)| !matches!(state, 'Z' | 'X'))
}

/// The processes with such an argument.
pub(crate) fn with_argument(argument: &str) -> Vec<i32> {
    let mut pids = all_pids();
    pids.retain(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .any(|word| word == argument.as_bytes())
    });
    pids
}

/// The name of a process, as ps(1) shows it.
pub(crate) fn name_of(pid: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

pub(crate) fn send(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// The process that twinpage started, of a family: of those that have twinpage as their parent the one made first, as
/// orphans have that parent, too.
fn first_of(family: &[i32], tool: i32) -> Option<i32> {
    let parent = |pid: i32| parent_and_state(pid).map_or(0, |(parent, _)| parent);
    let is_twinpage = |pid: i32| pid == tool || parent(pid) == tool && name_of(pid) == "twinpage";
    let below = family.iter().filter(|pid| !is_twinpage(**pid));
    below.filter(|pid| is_twinpage(parent(**pid))).min().copied()
}

/// Kills with SIGKILL, and returns when nothing of the family is alive any more.
pub(crate) fn kill(child: &mut Child, victim: Victim, chance: &mut fastrand::Rng) -> ExitStatus {
    let tool = child.id() as i32;
    let mut doomed = family(tool);
    chance.shuffle(&mut doomed);
    // The program comes first: it may exit when it sees the death of a child.
    let first = first_of(&doomed, tool);
    doomed.sort_by_cached_key(|pid| (name_of(*pid) != "twinpage", Some(*pid) != first));
    match victim {
        Victim::Tool => send(tool, Signal::KILL),
        // While a tree is brought back, children have their names before the program does: then there is none yet.
        Victim::Program if first.is_some_and(|first| name_of(first) != "twinpage") => {
            let programs = doomed.iter().filter(|pid| name_of(**pid) != "twinpage");
            programs.for_each(|pid| send(*pid, Signal::KILL));
        }
        Victim::Tree | Victim::Program => doomed.iter().for_each(|pid| send(*pid, Signal::KILL)),
    }
    let status = child.wait().expect("wait for twinpage");
    let mut polls = 0;
    while let Some(left) = doomed.iter().find(|pid| alive(**pid)) {
        polls += 1;
        let what = std::fs::read_to_string(format!("/proc/{left}/cmdline")).unwrap_or_default();
        assert!(
            polls < 60_000,
            "process {left} ({what:?}) outlives the twinpage that ran it"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    status
}

/// Waits for the end of a process, but no longer than `until`.
pub(crate) fn ended_before(child: &mut Child, until: Instant) -> Option<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait().expect("wait for twinpage") {
            return Some(status);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::sleep(left.min(Duration::from_millis(2)));
    }
}
