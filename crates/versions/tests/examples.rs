//! The examples, killed thirty times each, end with the bytes of an undisturbed run.

#[path = "../examples/jacobi.rs"]
mod jacobi;
#[path = "../examples/pagerank.rs"]
mod pagerank;
mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::folders;
use twinpage_campaign::seed;
use twinpage_versions::{Error, Result, look};

const PATH: &str = "TWINPAGE_TEST_EXAMPLE";
const KILLS: u32 = 30;

/// What is left of a killed program holds the lock for a moment.
fn patiently(solve: fn(&Path, u64) -> Result<Vec<f64>>, path: &Path, steps: u64) -> Vec<f64> {
    loop {
        match solve(path, steps) {
            Ok(values) => return values,
            Err(Error::Locked(_)) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Runs `solve` killed thirty times, and then to the end; `test` names this test.
fn killed_often(test: &str, solve: fn(&Path, u64) -> Result<Vec<f64>>) {
    if let Ok(path) = std::env::var(PATH) {
        // Without an end, for a child that is killed.
        patiently(solve, Path::new(&path), u64::MAX);
        return;
    }
    let mut random = fastrand::Rng::with_seed(seed());
    for folder in folders() {
        let path = folder.path().join("values");
        let mut steps = 0;
        for _ in 0..KILLS {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", test, "--nocapture"])
                .env(PATH, &path)
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            // Until it is further than the one before, and some more.
            let further = || look(&path).is_ok_and(|found| found.durable > steps);
            while !further() {
                assert!(child.try_wait().unwrap().is_none(), "the child ended by itself");
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_micros(random.u64(..3000)));
            child.kill().unwrap();
            child.wait().unwrap();
            let found = look(&path).unwrap();
            assert!(found.durable > steps);
            steps = found.durable;
        }
        let killed = patiently(solve, &path, steps + 3);
        let undisturbed = solve(&folder.path().join("undisturbed"), steps + 3).unwrap();
        assert!(killed == undisturbed, "{steps} steps");
    }
}

#[test]
fn heat_in_a_plate() {
    killed_often("heat_in_a_plate", jacobi::solve);
}

#[test]
fn ranks_of_pages() {
    killed_often("ranks_of_pages", pagerank::solve);
}
