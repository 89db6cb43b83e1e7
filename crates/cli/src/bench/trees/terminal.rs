//! A session of tmux in the background, killed as a machine dies: how soon it answers again.

use super::{Room, Run, Way};
use crate::bench::own_program;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use twinpage_process::statistics;

/// Beside tmux and its server: four processes, each in a window.
const WINDOWS: [&str; 4] = ["sh", "cat", "sh", "sleep 1000000"];
/// Checkpoints that cover the session before it is killed.
const CHECKPOINTS: u64 = 3;
const MOMENT: Duration = Duration::from_millis(1);

/// Milliseconds from the start of the resume until a client of tmux is answered.
pub(super) fn resume(room: &Room, way: Way) -> Result<Run, String> {
    let session = Session {
        state: room.state(way),
        socket: room.path("socket"),
    };
    session.start(way)?;
    session.settle();
    session.kill();
    let begun = Instant::now();
    session.twinpage(&["resume", "--detach"], way)?;
    while !session.answers() {
        std::thread::sleep(MOMENT);
    }
    let value = begun.elapsed().as_secs_f64() * 1e3;
    Ok(Run { value, cost: None })
}

struct Session {
    state: PathBuf,
    socket: PathBuf,
}

impl Session {
    fn start(&self, way: Way) -> Result<(), String> {
        let mut command = Command::new(own_program()?);
        command.args(["run", "--detach"]).args(way.mode.options());
        command.arg("--state").arg(&self.state);
        command
            .args(["--", "tmux", "-f", "/dev/null", "-S"])
            .arg(&self.socket);
        command.args(["new-session", "-x", "90", "-y", "25", WINDOWS[0]]);
        for window in &WINDOWS[1..] {
            command.args([";", "new-window", window]);
        }
        succeed(command.env("TERM", "xterm"), "twinpage run")
    }

    fn twinpage(&self, words: &[&str], way: Way) -> Result<(), String> {
        let mut command = Command::new(own_program()?);
        // The durability is the state's.
        let pace = way
            .mode
            .options()
            .iter()
            .take_while(|word| **word != "--durability");
        command.args(words).args(pace).arg(&self.state);
        succeed(&mut command, "twinpage resume")
    }

    fn answers(&self) -> bool {
        let mut command = Command::new("tmux");
        command
            .arg("-S")
            .arg(&self.socket)
            .args(["list-windows", "-F", "#I"]);
        let windows = command.stdin(Stdio::null()).output();
        windows.is_ok_and(|done| done.stdout.split(|byte| *byte == b'\n').count() > WINDOWS.len())
    }

    /// Waits until all windows are there and checkpoints hold them.
    fn settle(&self) {
        while !self.answers() {
            std::thread::sleep(MOMENT);
        }
        let epochs = || statistics::read(&self.state).map_or(0, |statistics| statistics.epochs);
        let enough = epochs() + CHECKPOINTS;
        while epochs() < enough {
            // Something happens, else nothing would have to be made durable.
            self.answers();
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills twinpage, and with it all that it traces.
    fn kill(&self) {
        while !self.processes().is_empty() {
            for pid in self.processes() {
                // One that has ended meanwhile is no loss.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            std::thread::sleep(MOMENT);
        }
    }

    /// The processes that name the state or the socket in their command lines.
    fn processes(&self) -> Vec<rustix::process::Pid> {
        let named = |pid: i32| {
            let line = std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline"));
            line.is_ok_and(|line| {
                line.split(|byte| *byte == 0).any(|word| {
                    [&self.state, &self.socket]
                        .iter()
                        .any(|path| word == path.as_os_str().as_encoded_bytes())
                })
            })
        };
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| named(*pid))
            .filter_map(rustix::process::Pid::from_raw)
            .collect()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.kill();
    }
}

fn succeed(command: &mut Command, name: &str) -> Result<(), String> {
    let done = command.stdin(Stdio::null()).output();
    let done = done.map_err(|error| format!("cannot start {name}: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!(
        "{name} failed: {}",
        String::from_utf8_lossy(&done.stderr)
    ))
}
