//! The programs of `examples/`, killed at any instant: what they answered holds, and what they keep is whole.
//! `TWINPAGE_LONG` kills them more often.

#[allow(dead_code)]
#[path = "../../../examples/cache.rs"]
mod cache;
#[allow(dead_code)]
#[path = "../../../examples/raft.rs"]
mod raft;
mod support;
#[allow(dead_code)]
#[path = "../../../examples/tally.rs"]
mod tally;
#[allow(dead_code)]
#[path = "../../../examples/word_index.rs"]
mod word_index;
/// The first example of the README.
#[allow(dead_code)]
mod readme {
    include!("support/readme.in");

    pub(super) fn run() -> twinpage::Result<()> {
        main()
    }
}

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use support::{again, folders};

const ROLE: &str = "TWINPAGE_TEST_EXAMPLE";
const FILE: &str = "TWINPAGE_TEST_FILE";

fn kills() -> u64 {
    twinpage_campaign::either(5, 60)
}

fn random() -> fastrand::Rng {
    let seed = twinpage_campaign::seed();
    fastrand::Rng::with_seed(seed)
}

/// Another life of a program: `test` is the one that asks.
fn start(test: &str, role: &str, file: &Path) -> Child {
    again(module_path!(), test)
        .env(ROLE, role)
        .env(FILE, file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Does something to a region of another process. What is left of a killed program holds the lock for a moment, and
/// another test of this process may have a region at the same addresses.
fn patiently<T>(act: impl Fn() -> Result<T, Box<dyn Error>>) -> T {
    use twinpage::Error::{Locked, Taken};
    loop {
        match act() {
            Ok(value) => return value,
            Err(error) if matches!(error.downcast_ref(), Some(Locked(_) | Taken { .. })) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// In a child: which role it has, and its file.
fn role() -> Option<(String, std::path::PathBuf)> {
    Some((std::env::var(ROLE).ok()?, std::env::var_os(FILE)?.into()))
}

#[test]
fn tallies_that_were_answered_hold() {
    if let Some((_, file)) = role() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        println!("\nport {}", listener.local_addr().unwrap().port());
        return patiently(|| tally::serve(&file, &listener));
    }
    let mut random = random();
    for folder in folders() {
        let file = folder.path().join("tallies");
        let (port, answers, done) = (Mutex::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let life = || {
            let mut child = start("tallies_that_were_answered_hold", "serve", &file);
            let mut said = BufReader::new(child.stdout.take().unwrap())
                .lines()
                .map_while(Result::ok);
            let found = said.find_map(|line| line.strip_prefix("port ").map(|port| port.parse().unwrap()));
            *port.lock().unwrap() = found.expect("the server ended by itself");
            child
        };
        let seeds: [u64; 3] = std::array::from_fn(|_| random.u64(..));
        std::thread::scope(|scope| {
            let clients = seeds.map(|seed| {
                let (port, answers, done) = (&port, &answers, &done);
                scope.spawn(move || client(seed, port, answers, done))
            });
            for _ in 0..kills() {
                let child = life();
                let wanted = answers.load(Ordering::Relaxed) + random.u64(1..20);
                while answers.load(Ordering::Relaxed) < wanted {
                    assert!(
                        clients.iter().all(|client| !client.is_finished()),
                        "a client has failed"
                    );
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::thread::sleep(Duration::from_micros(random.u64(..20_000)));
                kill(child);
            }
            done.store(true, Ordering::Relaxed);
            // The last one answers what is still asked.
            let child = life();
            let ended = clients.map(|client| client.join());
            kill(child);
            assert!(ended.iter().all(Result::is_ok), "seeds {seeds:?}");
        });
    }
}

/// Asks again until it is answered, with the port of the life there is. Every answer must be of exactly what was asked.
fn client(seed: u64, port: &Mutex<u16>, answers: &AtomicU64, done: &AtomicBool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut number, mut total) = (0, 0);
    let mut last = false;
    while !last {
        last = done.load(Ordering::Relaxed);
        let amount = random.u64(..1000);
        (number, total) = (number + 1, total + amount);
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(("127.0.0.1", *port.lock().unwrap()))?;
            writeln!(stream, "client-{seed} {number} {amount}")?;
            let mut answer = String::new();
            match BufReader::new(stream).read_line(&mut answer)? {
                0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
                _ => Ok(answer),
            }
        };
        let answer = loop {
            match ask() {
                Ok(answer) if answer.ends_with('\n') => break answer,
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        assert_eq!(answer, format!("{number} {total}\n"), "seed {seed}");
        answers.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn an_index_of_the_first_version_goes_on_in_the_second() {
    if let Some((version, file)) = role() {
        println!("\nruns");
        let text = file.with_extension(&version);
        return patiently(|| match &version[..] {
            "first" => word_index::first(&file, &text),
            _ => word_index::add(&file, &text),
        });
    }
    let mut random = random();
    let words = [
        "Memory", "memory", "memories", "outlives", "its", "ITS", "program", "été",
    ];
    let mut lines = Vec::new();
    let mut index = BTreeMap::<String, Vec<u64>>::new();
    for number in 1..=60_000 {
        let chosen: Vec<&str> = (0..random.usize(..9))
            .map(|_| words[random.usize(..words.len())])
            .collect();
        for word in &chosen {
            let lines = index.entry(word.to_lowercase()).or_default();
            if lines.last() != Some(&number) {
                lines.push(number);
            }
        }
        lines.push(chosen.join(", ") + "\n");
    }
    for folder in folders() {
        let file = folder.path().join("index");
        std::fs::write(file.with_extension("first"), lines[..30_000].concat()).unwrap();
        std::fs::write(file.with_extension("add"), lines.concat()).unwrap();
        for version in ["first", "add"] {
            let mut left = kills();
            loop {
                let mut child = start(
                    "an_index_of_the_first_version_goes_on_in_the_second",
                    version,
                    &file,
                );
                let mut said = BufReader::new(child.stdout.take().unwrap())
                    .lines()
                    .map_while(Result::ok);
                said.find(|line| line == "runs").expect("it begins");
                if left > 0 {
                    left -= 1;
                    std::thread::sleep(Duration::from_micros(random.u64(..60_000)));
                    kill(child);
                    continue;
                }
                said.for_each(drop);
                assert!(child.wait().unwrap().success());
                break;
            }
        }
        let found = patiently(|| word_index::find(&file, ""));
        assert!(found == index.clone().into_iter().collect::<Vec<_>>());
        let found = patiently(|| word_index::find(&file, "memor"));
        assert_eq!(
            found.iter().map(|(word, _)| &word[..]).collect::<Vec<_>>(),
            ["memories", "memory"]
        );
    }
}

#[test]
fn a_cache_larger_than_its_memory_is_whole() {
    if let Some((_, file)) = role() {
        println!("\nruns");
        return patiently(|| cache::ask(&file, u64::MAX));
    }
    let mut random = random();
    for folder in folders() {
        let file = folder.path().join("cache");
        let mut requests = 0;
        for _ in 0..kills() {
            let mut child = start("a_cache_larger_than_its_memory_is_whole", "ask", &file);
            let mut said = BufReader::new(child.stdout.take().unwrap())
                .lines()
                .map_while(Result::ok);
            said.find(|line| line == "runs").expect("it begins");
            std::thread::sleep(Duration::from_micros(random.u64(..300_000)));
            kill(child);
            let found = patiently(|| cache::check(&file));
            assert!(found >= requests, "{requests} requests, and then {found}");
            requests = found;
        }
        patiently(|| cache::ask(&file, 20_000));
        let found = patiently(|| cache::check(&file));
        assert_eq!(found, requests + 20_000);
    }
}

/// What a client of the group asks for with its request of a number.
fn amount(client: u64, number: u64) -> i64 {
    (number * (client + 3) % 101) as i64 - 50
}

/// Asks the group again and again, while now this and now that member is not reached.
fn ask_group(folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut group = raft::Group::open(folder)?;
    let mut random = fastrand::Rng::new();
    let mut numbers = [0; 3];
    for (client, number) in numbers.iter_mut().enumerate() {
        for member in &group.members {
            *number = member.total(client as u64)?.number.max(*number);
        }
    }
    println!("\nruns");
    loop {
        let mut reached = [true; raft::MEMBERS];
        reached[random.usize(..raft::MEMBERS)] = random.bool();
        for _ in 0..random.usize(1..150) {
            let client = random.u64(..3);
            let number = numbers[client as usize] + 1;
            let request = raft::Request {
                client,
                number,
                amount: amount(client, number),
            };
            if let Some(answer) = group.request(request, reached)? {
                assert_eq!(answer.number, number);
                numbers[client as usize] = number;
                println!("answered {client} {number} {}", answer.total);
            }
        }
    }
}

/// No answer is lost or counted twice, whichever member leads after a kill, and all members come to the same totals.
#[test]
fn members_of_a_raft_group_agree_on_all_that_was_answered() {
    if let Some((_, folder)) = role() {
        return patiently(|| ask_group(&folder));
    }
    let mut random = random();
    for folder in folders() {
        let mut answered = [0_u64; 3];
        for kill in 0..kills() {
            let name = "members_of_a_raft_group_agree_on_all_that_was_answered";
            let mut child = start(name, "ask", folder.path());
            let said = BufReader::new(child.stdout.take().unwrap()).lines();
            let mut said = said.map_while(Result::ok);
            said.find(|line| line == "runs").expect("it begins");
            let mut note = |line: &str| {
                let Some(answer) = line.strip_prefix("answered ") else {
                    return;
                };
                // A line that the kill cut has fewer.
                if let [client, number, total] = answer.split(' ').collect::<Vec<_>>()[..]
                    && let Ok(number) = number.parse::<u64>()
                {
                    let client: u64 = client.parse().unwrap();
                    let expected = (1..=number).map(|number| amount(client, number)).sum::<i64>();
                    if !total.is_empty() && number > answered[client as usize] {
                        assert!(expected.to_string().starts_with(total), "{line}: {expected}");
                        answered[client as usize] = number;
                    }
                }
            };
            said.by_ref()
                .take(random.usize(1..400))
                .for_each(|line| note(&line));
            self::kill(child);
            said.for_each(|line| note(&line));

            let mut group = patiently(|| Ok(raft::Group::open(folder.path())?));
            let request = raft::Request {
                client: 99,
                number: kill + 1,
                amount: 0,
            };
            let all = [true; raft::MEMBERS];
            assert!(group.request(request, all).unwrap().is_some());
            let snapshots: Vec<_> = group
                .members
                .iter()
                .map(|member| member.snapshot().unwrap())
                .collect();
            assert!(
                snapshots.iter().all(|snapshot| *snapshot == snapshots[0]),
                "{snapshots:?}"
            );
            for (client, answered) in answered.iter_mut().enumerate() {
                let known = group.members[0].total(client as u64).unwrap();
                // The last one may have been agreed on and not answered.
                assert!(
                    (*answered..=*answered + 1).contains(&known.number),
                    "{known:?}: {answered}"
                );
                let expected = (1..=known.number).map(|number| amount(client as u64, number));
                assert_eq!(known.total, expected.sum::<i64>());
                *answered = known.number;
            }
        }
    }
}

/// In a directory that has no region, and then in one that has it.
#[test]
fn the_first_example_of_the_readme_runs() {
    if std::env::var_os(ROLE).is_some() {
        readme::run().unwrap();
        return println!("RAN");
    }
    let (shown, run) = (
        include_str!("../../../README.md"),
        include_str!("support/readme.in"),
    );
    assert!(
        shown.contains(&format!("```rust,no_run\n{run}```\n")),
        "the README shows another example than `support/readme.in`, which this test runs"
    );
    for folder in folders() {
        for life in 1..3 {
            let child = again(module_path!(), "the_first_example_of_the_readme_runs")
                .env(ROLE, "readme")
                .current_dir(folder.path())
                .output()
                .unwrap();
            let said = std::string::String::from_utf8_lossy(&child.stdout);
            assert!(
                child.status.success() && said.contains("RAN"),
                "life {life}: {said}"
            );
            assert!(folder.path().join("orders.twin").metadata().unwrap().len() > 0);
        }
    }
}
