//! What clients of a server saw is never lost: `run --replies held`, and `synced` after an fsync.
//!
//! A client writes keys of its own one after the other and takes note of each acknowledged one. The server is killed every
//! 300 ms and resumed. Whenever a client is connected, and at the end, every acknowledged key must be there.

use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::program::python_with;
use crate::support::server::Server;
use crate::support::state::wait_until;
use crate::support::{chance, long, say, seed, skip};

/// How a server is spoken to.
#[derive(Clone, Copy)]
enum Protocol {
    Memcached,
    Redis,
}

/// A connection to the server.
struct Connection {
    protocol: Protocol,
    stream: BufReader<TcpStream>,
}

impl Connection {
    fn open(protocol: Protocol, port: u16) -> io::Result<Connection> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        // What is left of an earlier life takes connections that nothing answers.
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.set_nodelay(true)?;
        let stream = BufReader::new(stream);
        Ok(Connection { protocol, stream })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        if line.ends_with("\r\n") {
            return Ok(line.trim_end().to_owned());
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    /// Whether it is acknowledged.
    fn set(&mut self, key: &str, value: &str) -> io::Result<bool> {
        let (asked, acknowledged) = match self.protocol {
            Protocol::Memcached => (format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()), "STORED"),
            Protocol::Redis => (
                format!(
                    "*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n{value}\r\n",
                    key.len(),
                    value.len()
                ),
                "+OK",
            ),
        };
        self.stream.get_mut().write_all(asked.as_bytes())?;
        Ok(self.line()? == acknowledged)
    }

    /// What a key has; `None` when there is none.
    fn get(&mut self, key: &str) -> io::Result<Option<String>> {
        let asked = match self.protocol {
            Protocol::Memcached => format!("get {key}\r\n"),
            Protocol::Redis => format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()),
        };
        self.stream.get_mut().write_all(asked.as_bytes())?;
        let head = self.line()?;
        let length = match self.protocol {
            Protocol::Memcached if head == "END" => return Ok(None),
            Protocol::Memcached => head.rsplit(' ').next().and_then(|word| word.parse().ok()),
            Protocol::Redis if head == "$-1" => return Ok(None),
            Protocol::Redis => head.strip_prefix('$').and_then(|word| word.parse().ok()),
        };
        let length: usize = length.ok_or_else(|| io::Error::other(format!("an answer to get: {head}")))?;
        let mut value = vec![0; length + 2];
        self.stream.read_exact(&mut value)?;
        value.truncate(length);
        if let Protocol::Memcached = self.protocol {
            self.line()?;
        }
        String::from_utf8(value).map(Some).map_err(io::Error::other)
    }
}

/// Writes and reads until it is told to stop; how many writes were acknowledged.
fn client(protocol: Protocol, port: u16, name: usize, done: &AtomicBool, acknowledged: &AtomicU64) -> u64 {
    let mut chance = chance(seed(), &format!("client {name}"));
    let mut connection: Option<Connection> = None;
    let mut known: u64 = 0;
    while !done.load(Ordering::Relaxed) {
        let Some(open) = &mut connection else {
            connection = Connection::open(protocol, port).ok();
            if connection.is_none() {
                thread::sleep(Duration::from_millis(2));
            }
            continue;
        };
        let asked = open.set(&format!("c{name}k{known}"), &value(name, known));
        if matches!(asked, Ok(true)) {
            known += 1;
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
        let looked = match known {
            0 => Ok(()),
            known => look(open, name, chance.u64(..known)),
        };
        if !matches!((asked, looked), (Ok(_), Ok(()))) {
            connection = None;
        }
    }
    known
}

fn value(name: usize, key: u64) -> String {
    format!("value {key} of client {name}").repeat(1 + key as usize % 7)
}

/// An acknowledged key is there, if the connection still is.
fn look(connection: &mut Connection, name: usize, key: u64) -> io::Result<()> {
    let found = connection.get(&format!("c{name}k{key}"))?;
    assert_eq!(
        found,
        Some(value(name, key)),
        "acknowledged key {key} of client {name}"
    );
    Ok(())
}

/// Nothing that was acknowledged is lost over the kills.
fn loses_nothing(test: &str, replies: &str, protocol: Protocol, words: impl FnOnce(u16) -> Vec<String>) {
    const CLIENTS: usize = 4;
    let kills = if long() { 60 } else { 8 };
    let mut server = Server::start(replies, words);
    let port = server.port;
    let (done, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let known: Vec<u64> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|name| {
                scope.spawn({
                    let (done, acknowledged) = (&done, &acknowledged);
                    move || client(protocol, port, name, done, acknowledged)
                })
            })
            .collect();
        for _ in 0..kills {
            // However slow the machine is, something is acknowledged in each life.
            let (before, began) = (acknowledged.load(Ordering::Relaxed), Instant::now());
            wait_until("a write is acknowledged", || {
                acknowledged.load(Ordering::Relaxed) > before
                    || clients.iter().any(|client| client.is_finished())
            });
            thread::sleep(Duration::from_millis(300).saturating_sub(began.elapsed()));
            server.expect_alive();
            server.kill();
            server.resume();
        }
        done.store(true, Ordering::Relaxed);
        let ends = clients.into_iter().map(|client| client.join());
        ends.map(|end| end.expect("a client finds what was acknowledged"))
            .collect()
    });
    let mut connection = None;
    for (name, known) in known.iter().enumerate() {
        let mut key = 0;
        while key < *known {
            let open = match &mut connection {
                Some(open) => open,
                none => {
                    let Ok(open) = Connection::open(protocol, port) else {
                        continue;
                    };
                    none.insert(open)
                }
            };
            match look(open, name, key) {
                Ok(()) => key += 1,
                Err(_) => connection = None,
            }
        }
    }
    say(&format!(
        "{test}: {} acknowledged writes are there after {kills} kills; {} checkpoints",
        known.iter().sum::<u64>(),
        server.epoch()
    ));
}

/// A Python program of ours that serves at a port.
fn python(file: &str, needs: &str, port: u16, more: &[&str]) -> Option<Vec<String>> {
    let source = format!("{}/tests/programs/{file}", env!("CARGO_MANIFEST_DIR"));
    let mut words = vec![python_with(needs)?, source, port.to_string()];
    words.extend(more.iter().map(|word| (*word).to_owned()));
    Some(words)
}

fn loses_nothing_in_python(test: &str, replies: &str, file: &str, needs: &str, more: &[&str]) {
    if python(file, needs, 0, more).is_none() {
        return skip(test, "python3", "python3");
    }
    loses_nothing(test, replies, Protocol::Memcached, |port| {
        python(file, needs, port, more).expect("just seen")
    });
}

/// The program, if it is installed.
fn installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

#[test]
fn held_replies_of_a_python_server() {
    let test = "held replies of a Python server";
    loses_nothing_in_python(test, "held", "server_store.py", "selectors", &[]);
}

#[test]
fn synced_replies_of_a_python_server() {
    let test = "synced replies of a Python server";
    loses_nothing_in_python(test, "synced", "server_store.py", "selectors", &["log"]);
}

#[test]
fn held_replies_of_a_server_of_several_processes() {
    let test = "held replies of a server of several processes";
    loses_nothing_in_python(test, "held", "server_workers.py", "fcntl", &["log"]);
}

#[test]
fn synced_replies_of_a_server_of_several_processes() {
    let test = "synced replies of a server of several processes";
    loses_nothing_in_python(test, "synced", "server_workers.py", "fcntl", &["log", "sync"]);
}

#[test]
fn held_replies_of_memcached() {
    let test = "held replies of memcached";
    if !installed("memcached") {
        return skip(test, "memcached", "memcached");
    }
    loses_nothing(test, "held", Protocol::Memcached, |port| {
        let port = port.to_string();
        [
            "memcached",
            "-l",
            "127.0.0.1",
            "-U",
            "0",
            "-u",
            "root",
            "-t",
            "2",
            "-p",
            &port,
        ]
        .map(str::to_owned)
        .to_vec()
    });
}

fn redis(port: u16, more: &[&str]) -> Vec<String> {
    let port = port.to_string();
    let mut words = vec![
        "redis-server",
        "--port",
        &port,
        "--bind",
        "127.0.0.1",
        "--save",
        "",
    ];
    words.extend(more);
    words.into_iter().map(str::to_owned).collect()
}

#[test]
fn held_replies_of_redis() {
    let test = "held replies of redis";
    if !installed("redis-server") {
        return skip(test, "redis-server", "redis-server");
    }
    loses_nothing(test, "held", Protocol::Redis, |port| redis(port, &[]));
}

#[test]
fn synced_replies_of_redis() {
    let test = "synced replies of redis";
    if !installed("redis-server") {
        return skip(test, "redis-server", "redis-server");
    }
    loses_nothing(test, "synced", Protocol::Redis, |port| {
        redis(port, &["--appendonly", "yes", "--appendfsync", "always"])
    });
}

/// Every way to send arrives whole and in order, also where the receiver is slow, or the sender closes or ends at once.
#[test]
fn held_replies_arrive_whole() {
    let Some(python) = python_with("select") else {
        return skip("held replies that arrive whole", "python3", "python3");
    };
    let mut server = Server::start("held", |port| {
        let source = format!("{}/tests/programs/server_sends.py", env!("CARGO_MANIFEST_DIR"));
        vec![python, source, port.to_string()]
    });
    let sent: String = (0..400_000).map(|number| format!("{number:07}\n")).collect();
    let asked = |way: &str| {
        let open = RefCell::new(None);
        wait_until("the server takes a connection", || {
            *open.borrow_mut() = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).ok();
            open.borrow().is_some()
        });
        let mut stream = open.into_inner().expect("just seen");
        stream.write_all(way.as_bytes()).expect("the server reads");
        stream
    };
    let read = |stream: &mut TcpStream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("the end of what it sends");
        all
    };
    for way in ["sendall", "write", "sendmsg", "sendfile", "edges"] {
        let mut stream = asked(way);
        // More than the kernel and twinpage hold: the sender waits.
        thread::sleep(Duration::from_millis(100));
        assert!(read(&mut stream) == sent.as_bytes(), "{way}");
    }
    let mut stream = asked("limited");
    wait_until("its time is up", || server.printed().contains("its time was up"));
    let all = read(&mut stream);
    assert!(
        !all.is_empty()
            && all
                .chunks(sent.len())
                .all(|part| sent.as_bytes().starts_with(part))
    );
    let mut stream = asked("half");
    assert!(read(&mut stream) == sent.as_bytes(), "half");
    stream.write_all(b"thanks").expect("it still reads");
    wait_until("it read on", || {
        server.printed().contains("a broken pipe\nthanks")
    });
    let mut stream = asked("last");
    assert!(
        read(&mut stream) == sent.as_bytes(),
        "what a program sends as it ends"
    );
    server.expect_end();
}
