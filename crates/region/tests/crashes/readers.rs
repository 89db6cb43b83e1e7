//! Readers of the last durable checkpoint, in processes of their own, while another process writes and is killed.

use crate::support::{again, when_free};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;
use twinpage::collections::{String, Vec};
use twinpage::{Error, Options, Persist, ReadRoot, Reader, Region, RootError, SchemeKind};

const PATH: &str = "TWINPAGE_TEST_READ";
const CASE: &str = "TWINPAGE_TEST_READ_CASE";
const WRITER: &str = "a_writer_is_read_while_it_writes_and_is_killed";
const READER: &str = "a_reader_in_a_process_of_its_own";

/// A sum that never changes, moved about in many places; and how often.
#[derive(Persist)]
struct Bank<'r> {
    accounts: Vec<'r, u64>,
    names: Vec<'r, String<'r>>,
    moves: u64,
}

const EACH: u64 = 1000;

fn accounts(case: &str) -> usize {
    // What cannot be copied between two checkpoints is asked for.
    if case == "large" { 300_000 } else { 20_000 }
}

fn options(case: &str) -> Options {
    let options = Region::options().every(Duration::from_micros(if case == "large" { 300 } else { 2000 }));
    match case {
        "dual page" => options.scheme(SchemeKind::DualPage),
        _ => options,
    }
}

/// Writes for ever, and says how far it is once that is durable.
fn write(path: &Path, case: &str) {
    let region = options(case).open(path).unwrap();
    let mut bank = region
        .root_with::<Bank>("bank", |u| Bank {
            accounts: u.collect(std::iter::repeat_n(EACH, accounts(case))),
            names: u.collect((0..100).map(|_| u.string("0"))),
            moves: 0,
        })
        .unwrap();
    let mut random = fastrand::Rng::new();
    loop {
        let moves = (0..200).map(|_| {
            region.update(|u| {
                let bank = bank.get_mut(u);
                let (from, to) = (
                    random.usize(..bank.accounts.len()),
                    random.usize(..bank.accounts.len()),
                );
                let amount = random.u64(..=bank.accounts[from]);
                bank.accounts[from] -= amount;
                bank.accounts[to] += amount;
                bank.moves += 1;
                let moves = bank.moves;
                bank.names[moves as usize % 100] = u.format(format_args!("{moves}"));
                moves
            })
        });
        let moves = moves.last().unwrap();
        region.durable().unwrap();
        println!("durable {moves}");
        std::io::stdout().flush().unwrap();
    }
}

/// Looks at all there is, and returns how many moves there were.
fn look(reader: &Reader, case: &str) -> u64 {
    let bank: ReadRoot<Bank> = reader.root("bank").unwrap();
    reader.read(|v| {
        let bank = bank.get(v);
        let total: u64 = bank.accounts.iter().sum();
        assert_eq!(total, EACH * accounts(case) as u64, "epoch {}", reader.epoch());
        for (place, name) in bank.names.iter().enumerate() {
            let written: u64 = name.parse().unwrap();
            assert!(written <= bank.moves && (written == 0 || written % 100 == place as u64));
            assert!(bank.moves - written < 100 || written == 0 && bank.moves < 100);
        }
        bank.moves
    })
}

fn start(test: &str, path: &Path, case: &str) -> Child {
    again(module_path!(), test)
        .env(PATH, path)
        .env(CASE, case)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn given() -> Option<(std::path::PathBuf, std::string::String)> {
    Some((std::env::var_os(PATH)?.into(), std::env::var(CASE).ok()?))
}

#[test]
fn a_reader_in_a_process_of_its_own() {
    let Some((path, case)) = given() else { return };
    let mut last = 0;
    for _ in 0..3 {
        let now = look(&Reader::open(&path).unwrap(), &case);
        assert!(now >= last, "{last} moves were durable, {now} are read");
        last = now;
    }
}

#[test]
fn a_writer_is_read_while_it_writes_and_is_killed() {
    if let Some((path, case)) = given() {
        return write(&path, &case);
    }
    let mut random = fastrand::Rng::new();
    let rounds = twinpage_campaign::either(1, 60);
    for folder in [
        tempfile::tempdir_in("/dev/shm").unwrap(),
        tempfile::tempdir().unwrap(),
    ] {
        for case in ["default", "dual page", "large"] {
            let path = folder.path().join(case);
            let mut read = 0;
            for _ in 0..rounds {
                let mut writer = start(WRITER, &path, case);
                let said = BufReader::new(writer.stdout.take().unwrap());
                let mut said = said.lines().map_while(Result::ok);
                let mut durable = || {
                    let line = said.find_map(|line| line.strip_prefix("durable ")?.parse::<u64>().ok());
                    line.expect("the writer ended by itself")
                };
                let told = durable();
                let mut other = start(READER, &path, case);
                let now = look(&when_free(|| Reader::open(&path)), case);
                assert!(
                    now >= told.max(read),
                    "{told} was durable, {read} were read; now {now} are"
                );
                assert!(other.wait().unwrap().success());
                let told = durable();
                std::thread::sleep(Duration::from_micros(random.u64(..3000)));
                writer.kill().unwrap();
                // Also in the instant of its end.
                let dying = look(&when_free(|| Reader::open(&path)), case);
                writer.wait().unwrap();
                read = look(&when_free(|| Reader::open(&path)), case);
                assert!(read >= dying && dying >= told, "{told}, {dying}, {read}");
            }
            let next = look(&when_free(|| Reader::open(&path)), case);
            assert_eq!(next, read, "there is no writer any more");
        }
    }
}

#[test]
fn a_reader_changes_nothing_and_locks_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.twin");
    assert!(Reader::open(&path).is_err());
    drop(when_free(|| Region::open(&path)));
    let empty = when_free(|| Reader::open(&path));
    assert!(matches!(
        empty.root::<u64>("n"),
        Err(Error::Root(RootError::Missing { .. }))
    ));
    drop(empty);
    {
        let region = when_free(|| Region::open(&path));
        let words = region.root_with::<Vec<String>>("words", |u| u.collect([u.string("one")]));
        drop(words.unwrap());
        region.durable().unwrap();
        // It lies at the same addresses.
        assert!(matches!(Reader::open(&path), Err(Error::Taken { .. })));
    }
    let before = std::fs::read(&path).unwrap();
    let reader = when_free(|| Reader::open(&path));
    let words = reader.root::<Vec<String>>("words").unwrap();
    let lock = twinpage_os::Lock::take(&path).expect("a reader has no lock");
    drop(lock);
    let told = reader.root::<Vec<u8>>("words").unwrap_err().to_string();
    assert!(told.contains("Vec<String>") && told.contains("Vec<u8>"), "{told}");
    drop(reader); // its roots keep what they need
    let reader = Reader::open(&path);
    assert!(matches!(reader, Err(Error::Taken { .. })));
    assert_eq!(words.name(), "words");
    drop(words);
    let reader = when_free(|| Reader::open(&path));
    let words = reader.root::<Vec<String>>("words").unwrap();
    let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        reader.read(|v| String::from_in("two", words.get(v).heap()).len())
    }));
    assert!(written.is_err(), "nothing is written where nothing is kept");
    assert!(reader.read(|v| words.get(v)[0] == "one"));
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

/// Damage is told, not taken for a writer.
#[test]
fn what_is_damaged_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.twin");
    drop(Region::open(&path).unwrap());
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let error = Reader::open(&path).unwrap_err();
    assert!(!matches!(error, Error::Overtaken { .. }), "{error}");
    std::fs::write(&path, b"something else, longer than a page of it".repeat(999)).unwrap();
    let error = Reader::open(&path).unwrap_err();
    assert!(!matches!(error, Error::Overtaken { .. }), "{error}");
}

/// In a process of its own, which may open so few files that the checkpoint is copied and then not looked at again.
#[test]
fn what_the_system_refuses_is_told() {
    if let Some((path, _)) = given() {
        let used = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64 - 1;
        for more in 0..8 {
            let current = Some(used + more);
            let limit = rustix::process::Rlimit {
                current,
                ..rustix::process::getrlimit(rustix::process::Resource::Nofile)
            };
            rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
            match Reader::open(&path) {
                Ok(_) => return,
                Err(error) => assert!(
                    error.to_string().contains("Too many open files"),
                    "{more}: {error}"
                ),
            }
        }
        panic!("no limit was high enough");
    }
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("test.twin");
    drop(Region::open(&path).unwrap());
    let child = start("what_the_system_refuses_is_told", &path, "");
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", done.stdout.escape_ascii());
}
