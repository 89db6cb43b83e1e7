//! A mini twinpage: a fake program in a thread, checkpointed with its streams to a file.
//!
//! The fake program is a counter and a write in progress, so that its checkpoint is a few numbers. It
//! prints lines (and says back what it reads), and is "stopped" between two system calls, at times in
//! the middle of a large write that a full pipe interrupted.

use crate::support::Rng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio as Fds};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use twinpage_process::stdio::{Options, RealStreams, Stdio, StdioContext};

/// What a runner is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) dir: PathBuf,
    /// Lines to print.
    pub(crate) lines: u64,
    /// Every how many lines one goes to stderr; 0 for never.
    pub(crate) stderr_every: u64,
    /// Every how many lines one is read from stdin; 0 for never.
    pub(crate) read_every: u64,
    /// The longest line, bytes.
    pub(crate) longest: u64,
    pub(crate) disk: bool,
    pub(crate) limit_bytes: u64,
    pub(crate) epoch_us: u64,
    /// How long the program thinks after each line.
    pub(crate) think_us: u64,
}

/// Line `i` of the program, without what it read.
pub(crate) fn line(i: u64, longest: u64) -> Vec<u8> {
    let mut rng = Rng::new(i);
    // Mostly short lines, some very long.
    let len = if rng.below(8) == 0 {
        rng.below(longest)
    } else {
        rng.below(40)
    };
    let mut line = format!("{i} ").into_bytes();
    line.extend((0..len).map(|j| b'a' + ((i + j) % 26) as u8));
    line.push(b'\n');
    line
}

/// What the program prints to stdout and to stderr when nothing disturbs it.
pub(crate) fn expected(job: &Job, input: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut input = input.split_inclusive(|b| *b == b'\n');
    for i in 0..job.lines {
        let to = if to_stderr(job, i) { &mut err } else { &mut out };
        if job.read_every > 0 && i.is_multiple_of(job.read_every) {
            to.extend(b"read ");
            to.extend(input.next().unwrap_or(b"nothing\n"));
        } else {
            to.extend(line(i, job.longest));
        }
    }
    (out, err)
}

fn to_stderr(job: &Job, i: u64) -> bool {
    job.stderr_every > 0 && i % job.stderr_every == 1 % job.stderr_every
}

/// Starts a runner whose real streams are `fds`. `traced`: it stops at exec, for this thread to trace.
pub(crate) fn start(job: &Job, fds: [BorrowedFd<'_>; 3], traced: bool) -> Child {
    let raw = fds.map(|fd| fd.as_raw_fd());
    let mut command = Command::new(std::env::current_exe().expect("this test's own path"));
    command
        .args(["--exact", "runner::runner", "--nocapture"])
        .env(
            "TWINPAGE_STDIO_JOB",
            serde_json::to_string(job).expect("a job in JSON"),
        )
        .stdin(Fds::null())
        .stdout(Fds::null());
    // SAFETY: dup2 and ptrace only, system calls that are allowed between fork and exec.
    unsafe {
        command.pre_exec(move || {
            for (n, fd) in raw.into_iter().enumerate() {
                // Out of the way of each other first: a real one may be numbered 200.
                if libc::dup2(fd, 210 + n as i32) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            if traced && libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    command.spawn().expect("the test binary starts")
}

/// The checkpoint of the fake program.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Program {
    /// The line in work.
    i: u64,
    /// What is left of it to write, when it was begun.
    rest: Option<Vec<u8>>,
    /// Bytes of a line of input read so far.
    heard: Vec<u8>,
    /// The input ended.
    deaf: bool,
}

#[derive(Serialize, Deserialize)]
struct Checkpoint {
    epoch: u64,
    program: Program,
    streams: StdioContext,
}

#[test]
fn runner() {
    let Ok(job) = std::env::var("TWINPAGE_STDIO_JOB") else {
        return;
    };
    let job: Job = serde_json::from_str(&job).expect("a job");
    // SAFETY: `start` left these three open for this process, which takes them here, once.
    let fds = [210, 211, 212].map(|fd| Some(unsafe { OwnedFd::from_raw_fd(fd) }));
    run(&job, RealStreams::new(fds));
}

fn run(job: &Job, outside: RealStreams) {
    let mut options = Options::new(&job.dir, job.disk);
    options.limit_bytes = job.limit_bytes;
    let file = job.dir.join("checkpoint");
    let before = std::fs::read(&file)
        .ok()
        .map(|c| serde_json::from_slice::<Checkpoint>(&c).expect("whole"));
    let (stdio, program, mut epoch) = match before {
        Some(c) => (
            Stdio::resume(outside, options, &c.streams).expect("resume"),
            c.program,
            c.epoch,
        ),
        None => (Stdio::run(outside, options).expect("run"), Program::default(), 0),
    };
    let program = Arc::new(Mutex::new(program));
    let ends = stdio.program_ends();
    if epoch == 0 {
        // Before the first checkpoint there is nothing to resume: no input is taken yet.
        epoch = 1;
        let streams = stdio.stop_point(epoch).expect("stop");
        stdio.before_commit(epoch).expect("sync");
        commit(
            &file,
            &Checkpoint {
                epoch,
                program: Program::default(),
                streams,
            },
        );
        stdio.durable(epoch).expect("durable");
    }
    stdio.begin();
    let runs = std::thread::spawn({
        let (job, program) = (job.clone(), Arc::clone(&program));
        move || while step(&job, &program, &ends) {}
    });
    loop {
        let ended = runs.is_finished();
        epoch += 1;
        let (streams, now) = {
            let program = program.lock().expect("the program");
            (stdio.stop_point(epoch).expect("stop"), program.clone())
        };
        stdio.before_commit(epoch).expect("sync");
        commit(
            &file,
            &Checkpoint {
                epoch,
                program: now,
                streams,
            },
        );
        stdio.durable(epoch).expect("durable");
        if ended {
            break;
        }
        std::thread::sleep(Duration::from_micros(job.epoch_us));
    }
    stdio.finish().expect("finish");
}

fn commit(file: &Path, checkpoint: &Checkpoint) {
    let temporary = file.with_extension("new");
    std::fs::write(&temporary, serde_json::to_vec(checkpoint).expect("JSON")).expect("write");
    std::fs::rename(&temporary, file).expect("rename");
}

/// One system call of the program. False when it ended.
fn step(job: &Job, program: &Mutex<Program>, ends: &[Option<OwnedFd>; 3]) -> bool {
    let (blocked_on, flags) = {
        let mut p = program.lock().expect("the program");
        if p.i >= job.lines {
            return false;
        }
        let n = if to_stderr(job, p.i) { 2 } else { 1 };
        if p.rest.is_none()
            && job.read_every > 0
            && p.i.is_multiple_of(job.read_every)
            && !hear(&mut p, ends[0].as_ref())
        {
            (0, PollFlags::IN)
        } else {
            let rest = p.rest.take().unwrap_or_else(|| line(p.i, job.longest));
            let end = ends[n].as_ref().expect("an output");
            match nonblocking(end, |fd| rustix::io::write(fd, &rest)) {
                Ok(wrote) if wrote == rest.len() => {
                    p.i += 1;
                    drop(p);
                    if job.think_us > 0 {
                        std::thread::sleep(Duration::from_micros(job.think_us));
                    }
                    return true;
                }
                Ok(wrote) => p.rest = Some(rest[wrote..].to_vec()),
                Err(Errno::AGAIN) => p.rest = Some(rest),
                Err(e) => panic!("write: {e}"),
            }
            (n, PollFlags::OUT)
        }
    };
    let end = ends[blocked_on].as_ref().expect("an end");
    // Wakes now and then: a stop may have made room.
    let soon = Timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    let _ = poll(&mut [PollFd::from_borrowed_fd(end.as_fd(), flags)], Some(&soon));
    true
}

/// Reads a line of input, a few bytes at a time, into what is to be said. False when there is none.
fn hear(p: &mut Program, end: Option<&OwnedFd>) -> bool {
    while !p.deaf && p.heard.last() != Some(&b'\n') {
        let mut bytes = [0; 1];
        match nonblocking(end.expect("an input"), |fd| rustix::io::read(fd, &mut bytes)) {
            Ok(0) => p.deaf = true,
            Ok(n) => p.heard.extend(&bytes[..n]),
            Err(Errno::AGAIN) => return false,
            Err(e) => panic!("read: {e}"),
        }
    }
    let heard = std::mem::take(&mut p.heard);
    let heard = if heard.is_empty() {
        b"nothing\n".to_vec()
    } else {
        heard
    };
    p.rest = Some([b"read ", &heard[..]].concat());
    true
}

/// One system call that does not wait, as a thread that is interrupted does not.
fn nonblocking<T>(fd: &OwnedFd, call: impl FnOnce(&OwnedFd) -> Result<T, Errno>) -> Result<T, Errno> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?;
    call(fd)
}
