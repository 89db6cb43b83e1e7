//! What clients of a server saw is never lost: `run --replies held`, and `synced` after an fsync.
//!
//! A client writes keys of its own one after the other and takes note of each acknowledged one. The server is killed every
//! 300 ms and resumed. Whenever a client is connected, and at the end, every acknowledged key must be there.

use std::cell::RefCell;
use std::fs::Permissions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use twinpage_campaign::{either, seed};

use crate::support::ordinary::OrdinaryUser;
use crate::support::program::python_with;
use crate::support::server::Server;
use crate::support::state::wait_until;
use crate::support::{chance, may_change_users, say, skip};

/// How a server is spoken to.
#[derive(Clone, Copy)]
enum Protocol {
    Memcached,
    Redis,
    /// Keys are files, set by PUT.
    Http,
    /// Keys are rows of the table `kept`.
    Postgres,
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
        let mut connection = Connection { protocol, stream };
        if let Protocol::Postgres = protocol {
            connection.begin_session()?;
        }
        Ok(connection)
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
            Protocol::Http => return self.put(key, value),
            Protocol::Postgres => {
                return Ok(self
                    .query(&format!("insert into kept values ('{key}', '{value}')"))?
                    .is_some());
            }
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
            Protocol::Http => format!("GET /{key} HTTP/1.1\r\nHost: x\r\n\r\n"),
            Protocol::Postgres => {
                let found = self.query(&format!("select value from kept where key = '{key}'"))?;
                let mut rows = found.ok_or_else(|| io::Error::other("an error in answer to select"))?;
                return Ok(rows.pop());
            }
        };
        self.stream.get_mut().write_all(asked.as_bytes())?;
        let head = self.line()?;
        let length = match self.protocol {
            Protocol::Memcached if head == "END" => return Ok(None),
            Protocol::Memcached => head.rsplit(' ').next().and_then(|word| word.parse().ok()),
            Protocol::Redis if head == "$-1" => return Ok(None),
            Protocol::Redis => head.strip_prefix('$').and_then(|word| word.parse().ok()),
            Protocol::Http => {
                let (code, body) = self.response(&head)?;
                return match code {
                    200 => String::from_utf8(body).map(Some).map_err(io::Error::other),
                    404 => Ok(None),
                    code => Err(io::Error::other(format!("an answer to GET: {code}"))),
                };
            }
            Protocol::Postgres => unreachable!("answered above"),
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

impl Connection {
    /// Whether it is acknowledged: 201 for a new one, 204 for another's place.
    fn put(&mut self, key: &str, value: &str) -> io::Result<bool> {
        let length = value.len();
        let asked = format!("PUT /{key} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{value}");
        self.stream.get_mut().write_all(asked.as_bytes())?;
        let head = self.line()?;
        let (code, _) = self.response(&head)?;
        Ok(matches!(code, 201 | 204))
    }

    /// The code and the body of an answer of HTTP that begins with `head`.
    fn response(&mut self, head: &str) -> io::Result<(u16, Vec<u8>)> {
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let code = code.ok_or_else(|| io::Error::other(format!("an answer of HTTP: {head}")))?;
        let mut length = 0;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((code, body))
    }
}

/// PostgreSQL's protocol, version 3: a message is a letter, its length with the four bytes of that, and its content.
impl Connection {
    fn begin_session(&mut self) -> io::Result<()> {
        const VERSION: u32 = 3 << 16;
        let content = [&VERSION.to_be_bytes()[..], b"user\0twin\0database\0postgres\0\0"].concat();
        let length = (content.len() as u32 + 4).to_be_bytes();
        self.stream
            .get_mut()
            .write_all(&[&length, &content[..]].concat())?;
        self.until_ready().map(drop)
    }

    /// The first column of the rows of an answer; `None`: an error is the answer. A key that is there already was
    /// written by a request whose answer was lost.
    fn query(&mut self, query: &str) -> io::Result<Option<Vec<String>>> {
        const UNIQUE_VIOLATION: &[u8] = b"C23505\0";
        let length = (query.len() as u32 + 5).to_be_bytes();
        let message = [b"Q", &length[..], query.as_bytes(), b"\0"].concat();
        self.stream.get_mut().write_all(&message)?;
        let mut rows = Vec::new();
        for (letter, content) in self.until_ready()? {
            let is_known = || {
                content
                    .windows(UNIQUE_VIOLATION.len())
                    .any(|code| code == UNIQUE_VIOLATION)
            };
            match letter {
                // A count of columns, and the length of the first.
                b'D' => rows.push(String::from_utf8_lossy(&content[6..]).into_owned()),
                b'E' if !is_known() => return Ok(None),
                _ => {}
            }
        }
        Ok(Some(rows))
    }

    /// All messages until the server waits for the next query.
    fn until_ready(&mut self) -> io::Result<Vec<(u8, Vec<u8>)>> {
        let mut messages = Vec::new();
        loop {
            let mut head = [0; 5];
            self.stream.read_exact(&mut head)?;
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let mut content = vec![0; (length as usize).saturating_sub(4)];
            self.stream.read_exact(&mut content)?;
            messages.push((head[0], content));
            if head[0] == b'Z' {
                return Ok(messages);
            }
        }
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

/// An acknowledged key is there, if the connection still is. Another process than the one that acknowledged it may show
/// it some time after a resume, where that one has to go on first: docs/guarantees.md.
fn look(connection: &mut Connection, name: usize, key: u64) -> io::Result<()> {
    const LATEST: Duration = Duration::from_secs(10);
    let since = Instant::now();
    let mut found = connection.get(&format!("c{name}k{key}"))?;
    while found.is_none() && matches!(connection.protocol, Protocol::Postgres) && since.elapsed() < LATEST {
        thread::sleep(Duration::from_millis(1));
        found = connection.get(&format!("c{name}k{key}"))?;
    }
    assert_eq!(
        found,
        Some(value(name, key)),
        "acknowledged key {key} of client {name}"
    );
    Ok(())
}

/// Tells the clients to stop when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Nothing that was acknowledged is lost over the kills.
fn loses_nothing(test: &str, replies: &str, protocol: Protocol, words: impl FnOnce(u16) -> Vec<String>) {
    forgets_nothing(test, protocol, Server::start(replies, words));
}

fn forgets_nothing(test: &str, protocol: Protocol, mut server: Server) {
    const CLIENTS: usize = 4;
    let kills = either(8, 60);
    let port = server.port;
    let (done, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let known: Vec<u64> = thread::scope(|scope| {
        let at_end = Stop(&done); // also when this fails: the scope waits for the clients
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
            server.wait_until("a write is acknowledged", || {
                acknowledged.load(Ordering::Relaxed) > before
                    || clients.iter().any(|client| client.is_finished())
            });
            thread::sleep(Duration::from_millis(300).saturating_sub(began.elapsed()));
            server.expect_alive();
            server.kill();
            server.resume();
        }
        drop(at_end);
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
                        server.expect_alive();
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

/// The process that was started has ended.
#[test]
fn held_replies_of_a_redis_in_the_background() {
    let test = "held replies of a redis in the background";
    if !installed("redis-server") {
        return skip(test, "redis-server", "redis-server");
    }
    loses_nothing(test, "held", Protocol::Redis, |port| {
        redis(port, &["--daemonize", "yes"])
    });
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

/// A master that stays root, where it is, with workers that do not, which it tells by signals about input.
#[test]
fn held_replies_of_nginx() {
    let test = "held replies of nginx";
    if !installed("nginx") {
        return skip(test, "nginx", "nginx");
    }
    if rustix::process::geteuid().is_root() && !may_change_users() {
        return say(&format!(
            "SKIPPED {test}: its workers are other users, and this user may become none"
        ));
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let root = scratch.path();
    for directory in [root.to_owned(), root.join("files"), root.join("body")] {
        std::fs::create_dir_all(&directory).expect("a directory");
        // The workers' user has to come in, and writes.
        std::fs::set_permissions(&directory, Permissions::from_mode(0o1777)).expect("its mode");
    }
    loses_nothing(test, "held", Protocol::Http, |port| {
        let configuration = format!(
            "daemon off; worker_processes 2; pid {root}/pid; error_log {root}/errors notice;
             events {{ worker_connections 64; }}
             http {{
                 access_log {root}/accesses; client_body_temp_path {root}/body;
                 proxy_temp_path {root}/p; fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;
                 server {{ listen 127.0.0.1:{port}; root {root}/files; dav_methods PUT; }}
             }}",
            root = root.display()
        );
        let file = root.join("nginx.conf");
        std::fs::write(&file, configuration).expect("a configuration");
        let words = [
            "nginx",
            "-c",
            &file.display().to_string(),
            "-p",
            &root.display().to_string(),
        ];
        words.map(str::to_owned).to_vec()
    });
}

/// PostgreSQL, whose processes share System V memory and much more, run by an ordinary user as it wants to be.
fn postgres(test: &str, replies: &str) {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let places = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    let Some(programs) = places.max().filter(|bin| bin.join("postgres").is_file()) else {
        return skip(test, "PostgreSQL", "postgresql");
    };
    let Some(user) = OrdinaryUser::of(test) else {
        return;
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    user.give(scratch.path());
    let data = scratch.path().join("data");
    let mut make = user.command(&programs.join("initdb"));
    make.args(["-A", "trust", "-U", "twin", "--no-sync", "-D"]);
    let made = make.arg(&data).current_dir("/").output().expect("initdb starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut alone = user.command(&programs.join("postgres"));
    alone
        .args(["--single", "-D"])
        .arg(&data)
        .arg("postgres")
        .current_dir("/");
    alone
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut alone = alone.spawn().expect("postgres starts");
    let table = b"create table kept (key text primary key, value text)\n";
    let mut input = alone.stdin.take().expect("a pipe");
    input.write_all(table).expect("postgres reads");
    drop(input);
    assert!(alone.wait().is_ok_and(|status| status.success()), "a table");
    let server = Server::start_by(Some(user), replies, |port| {
        let words = ["-k", "", "-h", "127.0.0.1", "-p", &port.to_string(), "-D"].map(str::to_owned);
        let program = [programs.join("postgres").display().to_string()];
        let data = [data.display().to_string()];
        program.into_iter().chain(words).chain(data).collect()
    });
    forgets_nothing(test, Protocol::Postgres, server);
}

#[test]
fn held_replies_of_postgresql() {
    postgres("held replies of PostgreSQL", "held");
}

#[test]
fn synced_replies_of_postgresql() {
    postgres("synced replies of PostgreSQL", "synced");
}

/// A listener that is closed after a resume leaves its port: nothing of the restore holds it.
#[test]
fn a_listener_that_is_closed_after_a_resume_is_gone() {
    let Some(python) = python_with("socket") else {
        return skip("a listener that is closed", "python3", "python3");
    };
    let program = "import os, socket, sys, time
listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))
print('listens', flush=True)
while not os.path.exists('close'): time.sleep(0.01)
listener.close()
print('closed', flush=True)
time.sleep(60)";
    let mut server = Server::start("held", |port| {
        vec![python, "-c".to_owned(), program.to_owned(), port.to_string()]
    });
    wait_until("it listens", || server.printed().contains("listens"));
    server.kill();
    server.resume();
    let connects = |server: &Server| TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).is_ok();
    wait_until("it listens again", || connects(&server));
    std::fs::write(server.directory().join("close"), "").expect("a file");
    wait_until("it is closed", || server.printed().contains("closed"));
    assert!(!connects(&server), "something still listens at its port");
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
    for _ in 0..either(100, 1000) {
        let mut stream = asked("refused");
        assert_eq!(read(&mut stream), b"all", "refused");
        stream.write_all(b"thanks").expect("it still reads");
    }
    assert!(
        !server.printed().contains("sent more"),
        "a half-closed socket took bytes"
    );
    let mut stream = asked("last");
    assert!(
        read(&mut stream) == sent.as_bytes(),
        "what a program sends as it ends"
    );
    server.expect_end();
}

/// No checkpoint is made once the program has ended: what a process that it leaves behind sends waits for none.
#[test]
fn a_server_that_its_maker_leaves_behind_answers() {
    let Some(python) = python_with("socket") else {
        return;
    };
    for replies in ["held", "synced"] {
        let mut server = Server::start(replies, |port| {
            let program = format!(
                "import os, socket\n\
                 server = socket.create_server(('127.0.0.1', {port}))\n\
                 if os.fork(): os._exit(0)\n\
                 while True:\n    client, _ = server.accept()\n    asked = client.recv(100)\n    os.sync()\n    \
                 client.sendall(asked[::-1])\n    client.close()\n    if asked == b'end': os._exit(0)\n"
            );
            vec![python.clone(), "-c".into(), program]
        });
        let port = server.port;
        let ask = |text: &str| {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            stream.write_all(text.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            io::Result::Ok(answer)
        };
        server.wait_until("it answers", || ask("one").is_ok());
        assert_eq!(ask("two").expect("an answer"), "owt");
        assert_eq!(ask("end").expect("an answer"), "dne");
        server.expect_end();
    }
}

/// Others look whether a server is there: they connect, and close at once. That is not waited for, as nothing of the
/// program is lost with it, and the thread that accepts may wait for the checkpoint itself.
#[test]
fn a_look_at_a_port_holds_no_checkpoint_up() {
    const PROGRAM: &str = r#"
import os, socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
here = socket.socket(socket.AF_UNIX)
here.bind("beside")
here.listen()
os.rename("beside", "here")
print("up", flush=True)
while not os.path.exists("looked"): pass
os.sync()
for listener in server, here:
    with listener.accept()[0] as client: print(client.recv(9), flush=True)
"#;
    let Some(python) = python_with("socket") else {
        return skip("a look at a port", "python3", "python3");
    };
    let words = |port: u16| vec![python, "-c".into(), PROGRAM.into(), port.to_string()];
    let mut server = Server::start("synced", words);
    let here = server.directory().join("here");
    server.wait_until("it is up", || here.exists());
    TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("a look");
    UnixStream::connect(here).expect("a look");
    std::fs::write(server.directory().join("looked"), "").expect("a file");
    server.expect_end();
    assert_eq!(server.printed(), "up\nb''\nb''\n");
}

/// Nor is a connection of the program's own waited for for ever, where the thread that would accept it waits for the
/// checkpoint. After a resume it is reset.
#[test]
fn a_program_that_asks_its_own_server_before_a_sync_goes_on() {
    const PROGRAM: &str = r#"
import os, socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
here = socket.socket(socket.AF_UNIX)
here.bind("here")
here.listen()
probes = socket.create_connection(server.getsockname()), socket.socket(socket.AF_UNIX)
probes[1].connect("here")
for probe in probes: probe.sendall(b"asked")
os.sync()
open("synced", "w")
try:
    for listener, probe in zip((server, here), probes):
        listener.settimeout(0.2)
        client = listener.accept()[0]
        assert client.recv(9) == b"asked"
        client.sendall(b"answered")
        print(probe.recv(9), flush=True)
except TimeoutError:
    for probe in probes:
        try: print(probe.recv(9), flush=True)
        except ConnectionResetError: print("reset", flush=True)
while not os.path.exists("looked"): pass
"#;
    let Some(python) = python_with("socket") else {
        return skip("a program that asks its own server", "python3", "python3");
    };
    let words = |port: u16| vec![python, "-c".into(), PROGRAM.into(), port.to_string()];
    let mut server = Server::start("synced", words);
    let synced = server.directory().join("synced");
    server.wait_until("it synced", || synced.exists());
    server.kill();
    std::fs::write(server.directory().join("looked"), "").expect("a file");
    server.resume();
    server.expect_end();
    let answered = "b'answered'\nb'answered'\n"; // by a later checkpoint
    assert!(
        [answered, "reset\nreset\n"].contains(&server.printed().as_str()),
        "{}",
        server.printed()
    );
}

/// Who connects while a resume is under way is told to a server that is told of edges alone (Go's, tokio's).
#[test]
fn who_connects_during_a_resume_is_told_once() {
    const PROGRAM: &str = r#"
import select, socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
server.setblocking(False)
poll = select.epoll()
poll.register(server, select.EPOLLIN | select.EPOLLET)
while True:
    poll.poll()
    try:
        while True: server.accept()[0].sendall(b"answered")
    except BlockingIOError: pass
"#;
    let Some(python) = python_with("select") else {
        return skip("connections during a resume", "python3", "python3");
    };
    let words = |port: u16| vec![python, "-c".into(), PROGRAM.into(), port.to_string()];
    let mut server = Server::start("held", words);
    let port = server.port;
    let ask = || {
        let mut answer = String::new();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.read_to_string(&mut answer)?;
        io::Result::Ok(answer)
    };
    for _ in 0..10 {
        server.wait_until("it answers", || ask().is_ok_and(|answer| answer == "answered"));
        server.kill();
        server.resume();
    }
}
