//! Killed at random instants and resumed until done: what came out is what an undisturbed run prints.

use crate::runner::{Job, expected, start};
use crate::support::{Rng, collect, null, pipe, same};
use rustix::fd::{AsFd, OwnedFd};
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::time::Duration;

/// Runs `job` to its end, with kills at random instants. Returns how many there were.
fn run_killed(job: &Job, fds: [&OwnedFd; 3], rng: &mut Rng, most: u32) -> u32 {
    let mut kills = 0;
    loop {
        let mut child = start(job, fds.map(AsFd::as_fd), false);
        if kills < most {
            std::thread::sleep(Duration::from_micros(rng.below(40_000)));
            let _ = child.kill();
        }
        let status = child.wait().expect("wait");
        if status.success() {
            return kills;
        }
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(libc::SIGKILL),
            "{status}"
        );
        kills += 1;
    }
}

fn job(dir: &Path, rng: &mut Rng) -> Job {
    Job {
        dir: dir.into(),
        lines: 2000,
        stderr_every: [0, 3, 50][rng.below(3) as usize],
        read_every: 0,
        longest: [80, 3000, 100_000][rng.below(3) as usize],
        disk: rng.below(2) == 0,
        limit_bytes: [1 << 14, 64 << 20][rng.below(2) as usize],
        epoch_us: 500 + rng.below(4000),
        think_us: 100,
    }
}

#[test]
fn through_pipes() {
    let seed = twinpage_campaign::seed();
    for round in 0..4 {
        let mut rng = Rng::new(seed + round);
        let dir = tempfile::tempdir().unwrap();
        let job = job(dir.path(), &mut rng);
        let ((out_read, out), (err_read, err)) = (pipe(), pipe());
        let (out_all, err_all) = (collect(out_read), collect(err_read));
        let kills = run_killed(&job, [&null(), &out, &err], &mut rng, 30);
        drop((out, err));
        let wanted = expected(&job, b"");
        same(&out_all.join().unwrap(), &wanted.0, "stdout");
        same(&err_all.join().unwrap(), &wanted.1, "stderr");
        println!("through_pipes: {kills} kills, {job:?}");
    }
}

#[test]
fn through_one_pipe_in_order() {
    let seed = twinpage_campaign::seed();
    let mut rng = Rng::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let job = Job {
        stderr_every: 3,
        ..job(dir.path(), &mut rng)
    };
    let (read, out) = pipe();
    let all = collect(read);
    let err = out.try_clone().unwrap();
    let kills = run_killed(&job, [&null(), &out, &err], &mut rng, 30);
    drop((out, err));
    same(
        &all.join().unwrap(),
        &expected(
            &Job {
                stderr_every: 0,
                ..job.clone()
            },
            b"",
        )
        .0,
        "both",
    );
    println!("through_one_pipe_in_order: {kills} kills");
}

#[test]
fn into_files() {
    let seed = twinpage_campaign::seed();
    for round in 0..6 {
        let mut rng = Rng::new(seed + round);
        let dir = tempfile::tempdir().unwrap();
        let job = job(dir.path(), &mut rng);
        let (out_path, err_path) = (dir.path().join("out"), dir.path().join("err"));
        std::fs::write(&out_path, "before\n").unwrap();
        let append = round % 2 == 0;
        let mut options = OpenOptions::new();
        let options = if append {
            options.append(true)
        } else {
            options.write(true).truncate(true)
        };
        let out: OwnedFd = options.open(&out_path).unwrap().into();
        let err: OwnedFd = File::create(&err_path).unwrap().into();
        let kills = run_killed(&job, [&null(), &out, &err], &mut rng, 30);
        let (mut wanted, wanted_err) = expected(&job, b"");
        if append {
            wanted.splice(0..0, *b"before\n");
        }
        same(&std::fs::read(&out_path).unwrap(), &wanted, "stdout");
        same(&std::fs::read(&err_path).unwrap(), &wanted_err, "stderr");
        println!("into_files: {kills} kills, append {append}, {job:?}");
    }
}

#[test]
fn what_was_read_is_read_again() {
    let seed = twinpage_campaign::seed();
    let mut rng = Rng::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let job = Job {
        read_every: 2,
        ..job(dir.path(), &mut rng)
    };
    let (read, out) = pipe();
    let (err_read, err) = pipe();
    let (all, err_all) = (collect(read), collect(err_read));
    let (input, keys) = pipe();
    let said: Vec<u8> = (0..900).flat_map(|i| crate::runner::line(i + 7, 300)).collect();
    let types = std::thread::spawn({
        let (said, mut rng) = (said.clone(), rng.clone());
        move || {
            let mut left = &said[..];
            while !left.is_empty() {
                let n = left.len().min(1 + rng.below(2000) as usize);
                rustix::io::write(&keys, &left[..n]).expect("the pipe is read");
                left = &left[n..];
                std::thread::sleep(Duration::from_micros(rng.below(3000)));
            }
        }
    });
    let kills = run_killed(&job, [&input, &out, &err], &mut rng, 30);
    types.join().unwrap();
    drop((out, err));
    let wanted = expected(&job, &said);
    same(&all.join().unwrap(), &wanted.0, "stdout");
    same(&err_all.join().unwrap(), &wanted.1, "stderr");
    println!("what_was_read_is_read_again: {kills} kills");
}

#[test]
fn on_a_terminal() {
    let seed = twinpage_campaign::seed();
    let mut rng = Rng::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let job = Job {
        read_every: 5,
        stderr_every: 7,
        longest: 200,
        ..job(dir.path(), &mut rng)
    };
    use rustix::pty::OpenptFlags;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let terminal = rustix::pty::ioctl_tiocgptpeer(&master, flags).unwrap();
    let mut modes = rustix::termios::tcgetattr(&terminal).unwrap();
    // What is typed shows wherever it is typed; without echo the screen is the program's alone.
    modes.local_modes -= rustix::termios::LocalModes::ECHO;
    rustix::termios::tcsetattr(&terminal, rustix::termios::OptionalActions::Now, &modes).unwrap();
    let screen = collect(master.try_clone().unwrap());
    let said: Vec<u8> = (0..500).flat_map(|i| crate::runner::line(i + 7, 60)).collect();
    let types = std::thread::spawn({
        let (said, mut rng) = (said.clone(), rng.clone());
        move || {
            // One key at a time, and never more lines ahead than the terminal's queue holds.
            for line in said.split_inclusive(|b| *b == b'\n') {
                let mut left = line;
                while !left.is_empty() {
                    let n = left.len().min(1 + rng.below(20) as usize);
                    rustix::io::write(&master, &left[..n]).expect("the terminal takes keys");
                    left = &left[n..];
                    std::thread::sleep(Duration::from_micros(rng.below(2000)));
                }
            }
            master
        }
    });
    let kills = run_killed(&job, [&terminal, &terminal, &terminal], &mut rng, 30);
    let master = types.join().unwrap();
    // However often it was left raw, it is given back as the first life found it.
    let after = rustix::termios::tcgetattr(&terminal).unwrap();
    assert_eq!(
        (after.local_modes, after.input_modes, after.output_modes),
        (modes.local_modes, modes.input_modes, modes.output_modes)
    );
    drop((terminal, master));
    let (wanted, _) = expected(
        &Job {
            stderr_every: 0,
            ..job.clone()
        },
        &said,
    );
    let wanted = String::from_utf8(wanted).unwrap().replace('\n', "\r\n");
    same(&screen.join().unwrap(), wanted.as_bytes(), "the screen");
    println!("on_a_terminal: {kills} kills");
}
