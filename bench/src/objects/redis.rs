//! Redis with an append-only file that is synced before a command is answered: a server of our own on a socket, a
//! connection for each thread.

use super::{Done, ObjectArguments, team};
use crate::engine::Result;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

struct Server(Child);

impl Server {
    fn start(place: &Path) -> Result<Server> {
        let socket = place.join("socket");
        let started = Command::new("redis-server")
            .args([
                "--port",
                "0",
                "--save",
                "",
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
            ])
            .args(["--daemonize", "no", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(place)
            .stdout(Stdio::null())
            .spawn();
        let mut child = started.map_err(|error| format!("redis-server: {error}"))?;
        loop {
            if let Ok(mut connection) = Connection::open(place)
                && connection.ask("PING").is_ok()
            {
                return Ok(Server(child));
            }
            if let Ok(Some(status)) = child.try_wait() {
                return Err(format!("redis-server ended: {status}"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn stop(mut self, place: &Path) -> Result<()> {
        // It answers by ending.
        let _ = Connection::open(place)?.ask("SHUTDOWN NOSAVE");
        let ended = self.0.wait().map_err(|error| format!("redis-server: {error}"))?;
        match ended.success() {
            true => Ok(()),
            false => Err(format!("redis-server: {ended}")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Where it was stopped there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Connection(BufReader<UnixStream>);

impl Connection {
    fn open(place: &Path) -> Result<Connection> {
        let stream = UnixStream::connect(place.join("socket"));
        Ok(Connection(BufReader::new(
            stream.map_err(|error| format!("redis: {error}"))?,
        )))
    }

    /// Sends a command; the first line of the answer, and for a string its text.
    fn ask(&mut self, command: &str) -> Result<String> {
        let asked = || -> std::io::Result<String> {
            self.0.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
            let mut line = String::new();
            self.0.read_line(&mut line)?;
            if line.starts_with('$') && !line.starts_with("$-1") {
                line.clear();
                self.0.read_line(&mut line)?;
            }
            Ok(line.trim_end().to_owned())
        };
        let mut asked = asked;
        match asked() {
            Ok(line) if line.is_empty() || line.starts_with('-') => {
                Err(format!("redis: {command}: {line:?}"))
            }
            Ok(line) => Ok(line),
            Err(error) => Err(format!("redis: {command}: {error}")),
        }
    }
}

pub(super) fn run(arguments: &ObjectArguments) -> Result<Done> {
    let place = &arguments.place;
    let server = Server::start(place)?;
    let members: Result<Vec<_>> = (0..arguments.threads)
        .map(|thread| {
            let (mut connection, command) = (Connection::open(place)?, format!("INCR number{thread}"));
            Ok(move || connection.ask(&command).map(drop))
        })
        .collect();
    let (done, counts) = team::call(arguments, members?, || Ok(()))?;
    server.stop(place)?;
    let server = Server::start(place)?;
    let mut connection = Connection::open(place)?;
    let found: Result<Vec<String>> = (0..arguments.threads)
        .map(|thread| connection.ask(&format!("GET number{thread}")))
        .collect();
    let counts: Vec<String> = counts.iter().map(u64::to_string).collect();
    team::compared(&found?, &counts)?;
    server.stop(place)?;
    Ok(done)
}
