//! Real kills: whatever the instant, the strings are a permutation of the first after a whole number of swaps, not fewer
//! than were acknowledged; and planes are those of one step. `TWINPAGE_LONG` makes it ten thousand kills.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::folders;
use twinpage_campaign::seed;
use twinpage_os::direct::Instructions;
use twinpage_versions::{Error, Options, Pace, Planes, Result, Versions};

const PATH: &str = "TWINPAGE_TEST_ARRAY";
const CASE: &str = "TWINPAGE_TEST_CASE";
const STRINGS: usize = 1000;
const VALUES: usize = 20_000;

type Text = [u8; 256];

fn text(index: usize) -> Text {
    let mut text = [index as u8; 256];
    text[..8].copy_from_slice(&(index as u64).to_le_bytes());
    text[248..].copy_from_slice(&(index as u64).to_le_bytes());
    text
}

/// What swap `number` swaps: two elements, the same in every life.
fn swap(number: u64) -> (usize, usize) {
    let mut random = fastrand::Rng::with_seed(number);
    let a = random.usize(..STRINGS);
    (a, (a + random.usize(1..STRINGS)) % STRINGS)
}

fn options(case: &str) -> Options {
    match case {
        "threshold" => Options::new(),
        "inline" => Options::new().inline().pace(Pace::Immediate),
        "streamed" => Options::new().instructions(Instructions {
            streams: true,
            ..Instructions::best()
        }),
        _ => Options::new().pace(Pace::Immediate),
    }
}

/// What is left of a killed program holds the lock for a moment.
fn patiently<T>(mut open: impl FnMut() -> Result<T>) -> T {
    loop {
        match open() {
            Ok(opened) => return opened,
            Err(Error::Locked(_)) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn strings<const N: usize>(path: &Path, case: &str) -> Versions<Text, N> {
    patiently(|| Versions::open_with(&options(case), path, STRINGS, text))
}

fn field(path: &Path) -> Planes<u64, 3> {
    patiently(|| Planes::open(path, VALUES))
}

/// Says so when something is durable.
fn tell(number: u64) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\ndurable {number}")
        .and_then(|()| out.flush())
        .unwrap();
}

fn swap_until_killed<const N: usize>(path: &Path, case: &str) -> ! {
    let mut strings = strings::<N>(path, case);
    let mut next = strings.ticket().number();
    loop {
        for _ in 0..next % 40 {
            let (a, b) = swap(next);
            strings.update(|update| update.swap(a, b));
            next += 1;
        }
        let (a, b) = swap(next);
        strings.update(|update| update.swap(a, b));
        next += 1;
        let ticket = strings.ticket();
        ticket.wait().unwrap();
        tell(ticket.number());
    }
}

fn step_until_killed(path: &Path) -> ! {
    let mut field = field(path);
    loop {
        let step = field.steps_done() + 1;
        field
            .step(|old, new| {
                assert!(old.iter().all(|&value| value == step - 1));
                new.fill(step);
            })
            .unwrap();
        if step.is_multiple_of(3) {
            field.durable().unwrap();
            tell(step);
        }
    }
}

/// What a killed child left is whole; returns how far it is.
fn check<const N: usize>(path: &Path, case: &str, model: &mut (u64, Vec<Text>)) -> u64 {
    let strings = strings::<N>(path, case);
    let number = strings.ticket().number();
    // Updates are counted from 1, which made the first strings.
    for number in model.0..number {
        let (a, b) = swap(number);
        model.1.swap(a, b);
    }
    model.0 = number;
    for (index, text) in model.1.iter().enumerate() {
        assert!(strings.get(index) == text, "string {index} after {number} swaps");
    }
    number
}

fn check_field(path: &Path) -> u64 {
    let field = field(path);
    let step = field.steps_done();
    assert!(
        field.newest().iter().all(|&value| value == step),
        "step {step} is torn"
    );
    step
}

fn start(path: &Path, case: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed_at_any_instant", "--nocapture"])
        .env(PATH, path)
        .env(CASE, case)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn killed_at_any_instant() {
    if let (Ok(path), Ok(case)) = (std::env::var(PATH), std::env::var(CASE)) {
        let path = Path::new(&path);
        match case.as_str() {
            "planes" => step_until_killed(path),
            "two" => swap_until_killed::<2>(path, &case),
            _ => swap_until_killed::<3>(path, &case),
        }
    }
    let is_long = twinpage_campaign::is_long();
    let mut random = fastrand::Rng::with_seed(seed());
    for (folder, kills) in folders().iter().zip(if is_long { [200, 2000] } else { [3, 8] }) {
        for case in ["two", "three", "threshold", "inline", "streamed", "planes"] {
            let path = folder.path().join(case);
            let mut model = (1, (0..STRINGS).map(text).collect());
            let mut told = 0;
            for kill in 0..kills {
                let mut child = start(&path, case);
                let said = BufReader::new(child.stdout.take().unwrap()).lines();
                // Open until the child is dead, or it would die of a broken pipe.
                let mut numbers = said
                    .map_while(Result::<_, std::io::Error>::ok)
                    .filter_map(|line| line.strip_prefix("durable ")?.parse().ok());
                let wanted = random.usize(1..6);
                let heard: Vec<u64> = numbers.by_ref().take(wanted).collect();
                assert!(
                    heard.len() == wanted,
                    "{case}, kill {kill}: the child ended by itself"
                );
                told = heard.last().copied().unwrap_or(told);
                std::thread::sleep(Duration::from_micros(random.u64(..1500)));
                child.kill().unwrap();
                child.wait().unwrap();
                let found = match case {
                    "planes" => check_field(&path),
                    "two" => check::<2>(&path, case, &mut model),
                    _ => check::<3>(&path, case, &mut model),
                };
                assert!(
                    found >= told,
                    "{case}, kill {kill}: {told} was durable, {found} is there"
                );
            }
        }
    }
}
