//! A traced program of several threads that is killed, seen by a tracer that waits for its first thread alone.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;
use twinpage_os::ticker::{ALARM, Ticker};
use twinpage_os::trace::{self, Status};

const CHILD: &str = "TWINPAGE_TEST_THREADS";
const THREADS: usize = 4;

/// Starts threads, says so, and sleeps.
fn child() -> ! {
    for _ in 1..THREADS {
        std::thread::spawn(|| std::thread::sleep(Duration::from_secs(1000)));
    }
    println!("\nready");
    std::thread::sleep(Duration::from_secs(1000));
    unreachable!("it is killed")
}

/// What the thread does next, waited for with an alarm that goes on ringing.
fn next_of(tid: i32) -> Status {
    loop {
        if let Some((found, status)) = trace::wait(tid, true).unwrap() {
            assert_eq!(found, tid);
            return status;
        }
    }
}

#[test]
fn the_death_of_a_first_thread_is_told_before_the_others_are_waited_for() {
    if std::env::var_os(CHILD).is_some() {
        child();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "the_death_of_a_first_thread_is_told_before_the_others_are_waited_for",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .process_group(0);
    let mut process = command.spawn().unwrap();
    let pid = process.id() as i32;
    let output = BufReader::new(process.stdout.take().unwrap());
    assert!(output.lines().map_while(Result::ok).any(|line| line == "ready"));
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let threads: Vec<i32> = tasks
        .map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    for &tid in &threads {
        trace::seize(tid).unwrap();
        trace::interrupt(tid).unwrap();
        assert!(matches!(next_of(tid), Status::Interrupted));
        assert!(!trace::stands_no_longer(tid));
    }
    let ticker = Ticker::for_this_thread(ALARM).unwrap();
    ticker.set(Duration::from_millis(5), Duration::from_millis(5));
    process.kill().unwrap();
    for &tid in &threads {
        // Killed and exiting; then stopped at its exit, before wait has reported that stop.
        assert!(trace::stands_no_longer(tid));
        while trace::registers(tid).is_err() {
            std::thread::yield_now();
        }
        assert!(trace::stands_no_longer(tid));
        assert!(matches!(next_of(tid), Status::Event(trace::EVENT_EXIT)));
        trace::go_on(tid, 0).unwrap();
    }
    assert!(matches!(next_of(pid), Status::Killed(libc::SIGKILL)));
    for &tid in threads.iter().filter(|&&tid| tid != pid) {
        assert!(matches!(next_of(tid), Status::Killed(libc::SIGKILL)));
    }
    // The truth, once all others are known to be dead.
    assert!(matches!(next_of(pid), Status::Killed(libc::SIGKILL)));
    assert!(process.wait().is_err(), "nothing is left of it");
}
