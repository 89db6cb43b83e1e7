//! Readers beside a writer, in this process and in another: what they see is one durable state, whole.

mod support;

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use support::folders;
use twinpage_versions::{Error, Options, Pace, Planes, PlanesReader, Reader, Versions};

const PATH: &str = "TWINPAGE_TEST_READ";
const ACCOUNTS: usize = 64;

/// Reads until told otherwise: no money is made or lost, and time does not run backwards. Returns the states seen.
fn watch<const N: usize>(reader: &Reader<[u64; 20], N>, until: impl Fn() -> bool) -> u64 {
    let (mut last, mut seen) = (0, 0);
    while !until() || seen == 0 {
        let found = reader.read(|view| {
            let accounts = (0..ACCOUNTS)
                .map(|index| view.get(index))
                .collect::<Result<Vec<_>, _>>()?;
            Ok((view.number(), accounts))
        });
        let (number, accounts) = match found {
            Ok(found) => found,
            Err(Error::Busy { .. }) => continue,
            Err(error) => panic!("{error}"),
        };
        assert!(number >= last, "{number} after {last}");
        assert!(
            accounts
                .iter()
                .all(|account| account.iter().all(|word| *word == account[0]))
        );
        assert_eq!(
            accounts.iter().map(|account| account[0]).sum::<u64>(),
            1000 * ACCOUNTS as u64
        );
        (last, seen) = (number, seen + 1);
    }
    seen
}

fn beside_a_writer<const N: usize>(path: &std::path::Path, pace: Pace) {
    let options = Options::new().pace(pace);
    let mut accounts = Versions::<[u64; 20], N>::open_with(&options, path, ACCOUNTS, |_| [1000; 20]).unwrap();
    let reader = Reader::<[u64; 20], N>::open(path).unwrap();
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "one_durable_state_is_seen", "--nocapture"])
        .env(PATH, path)
        .env("TWINPAGE_TEST_N", N.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| watch(&reader, || stop.load(Ordering::Relaxed)));
        let mut random = fastrand::Rng::new();
        let mut updates = 0_u64;
        while updates < 3000 || other.try_wait().unwrap().is_none() {
            let (a, b) = (random.usize(..ACCOUNTS), random.usize(..ACCOUNTS));
            accounts.update(|update| {
                let amount = update.get(a)[0].min(random.u64(..20));
                update.get_mut(a).iter_mut().for_each(|word| *word -= amount);
                update.get_mut(b).iter_mut().for_each(|word| *word += amount);
            });
            updates += 1;
            // The readers shall get a word in.
            if updates.is_multiple_of(50) {
                accounts.durable().unwrap();
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(other.wait().unwrap().success());
}

#[test]
fn one_durable_state_is_seen() {
    if let (Ok(path), Ok(n)) = (std::env::var(PATH), std::env::var("TWINPAGE_TEST_N")) {
        let started = std::time::Instant::now();
        let until = || started.elapsed().as_millis() > 150;
        let seen = match n.as_str() {
            "2" => watch(&Reader::<_, 2>::open(path).unwrap(), until),
            _ => watch(&Reader::<_, 3>::open(path).unwrap(), until),
        };
        println!("{seen} states");
        return;
    }
    for folder in folders() {
        beside_a_writer::<2>(&folder.path().join("two"), Pace::Immediate);
        beside_a_writer::<3>(&folder.path().join("three"), Pace::Threshold(0.1));
    }
}

#[test]
fn planes_are_read_whole() {
    for folder in folders() {
        let path = folder.path().join("field");
        let mut field = Planes::<u32, 3>::open(&path, 5000).unwrap();
        let mut reader = PlanesReader::<u32, 3>::open(&path).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut values, mut last) = (Vec::new(), 0);
                while !done.load(Ordering::Relaxed) {
                    match reader.read(&mut values) {
                        Ok(step) => {
                            assert!(step >= last);
                            assert!(
                                values.iter().all(|&value| u64::from(value) == step),
                                "step {step}"
                            );
                            last = step;
                        }
                        Err(Error::Busy { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
            for step in 1..=300 {
                field.step(|_, new| new.fill(step)).unwrap();
                if step == 100 {
                    field.durable().unwrap();
                    // What is new is zero until a step fills it.
                    field.reserve(5000).unwrap();
                }
            }
            field.durable().unwrap();
            done.store(true, Ordering::Relaxed);
        });
        let mut values = Vec::new();
        assert_eq!(reader.read(&mut values).unwrap(), 300);
        field.reserve(9000).unwrap();
        field.step(|_, new| new.fill(7)).unwrap();
        field.durable().unwrap();
        assert_eq!(reader.read(&mut values).unwrap(), 301);
        assert!(values.len() == 9000 && values.iter().all(|&value| value == 7));
    }
}

#[test]
fn a_reader_asks_for_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("array");
    drop(Versions::<u64, 2>::open(&path, 10, |_| 1).unwrap());
    assert!(matches!(Reader::<u64, 3>::open(&path), Err(Error::Other { .. })));
    assert!(matches!(
        PlanesReader::<u64, 2>::open(&path),
        Err(Error::Other { .. })
    ));
    assert!(Reader::<u64, 2>::open(folder.path().join("nothing")).is_err());
}
