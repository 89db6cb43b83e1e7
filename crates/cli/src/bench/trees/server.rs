//! Servers: what clients outside get from one, alone and under checkpoints.

use super::client::{Client, Protocol, pipelined};
use super::{Room, Run, Way};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Stdio};
use std::time::Duration;
use twinpage_commands::report::median;

/// Clients, half of them in each of two threads.
const CLIENTS: u64 = 50;
const THREADS: u64 = 2;
/// Between two looks whether a server listens.
const MOMENT: Duration = Duration::from_millis(5);

/// A server of values under keys, and how it is told its port.
#[derive(Clone, Copy)]
pub(super) struct Server {
    program: &'static str,
    options: &'static [&'static str],
    port: &'static str,
    protocol: Protocol,
}

pub(super) const REDIS: Server = Server {
    program: "redis-server",
    options: &["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
    port: "--port",
    protocol: Protocol::Redis,
};

pub(super) const MEMCACHED: Server = Server {
    program: "memcached",
    options: &["-l", "127.0.0.1", "-t", "1", "-u", "root"],
    port: "-p",
    protocol: Protocol::Memcached,
};

/// Requests a second of many clients.
pub(super) fn throughput(room: &Room, server: Server, way: Option<Way>) -> Result<Run, String> {
    let running = Running::start(room, server, way)?;
    running.client(0)?.fill()?;
    let time = Duration::from_secs_f64(room.seconds);
    let share = |thread: u64| -> Result<u64, String> {
        let begin = thread * CLIENTS / THREADS;
        let end = (thread + 1) * CLIENTS / THREADS;
        let clients: Result<Vec<Client>, String> = (begin..end).map(|seed| running.client(seed)).collect();
        pipelined(&mut clients?, room.pipeline, time)
    };
    let answered: Result<u64, String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || share(thread)))
            .collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a client panicked")?);
        ended.sum()
    });
    let value = answered? as f64 / room.seconds;
    running.end()?;
    Ok(Run {
        value,
        cost: room.cost(way)?,
    })
}

/// The median time, in milliseconds, in which one client's store is answered that asks one at a time.
pub(super) fn latency(room: &Room, way: Option<Way>) -> Result<Run, String> {
    let running = Running::start(room, REDIS, way)?;
    let mut client = running.client(0)?;
    client.fill()?;
    let (mut all, mut spent) = (Vec::new(), 0.0);
    while spent < room.seconds {
        let took = client.store_one()?.as_secs_f64();
        spent += took;
        all.push(took * 1e3);
    }
    running.end()?;
    Ok(Run {
        value: median(&mut all),
        cost: room.cost(way)?,
    })
}

/// A server that listens.
struct Running {
    child: Child,
    port: u16,
    server: Server,
}

impl Running {
    fn start(room: &Room, server: Server, way: Option<Way>) -> Result<Running, String> {
        let port = free_port()?;
        let mut command = room.command(server.program, way)?;
        command
            .args(server.options)
            .args([server.port, &port.to_string()]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn();
        let child = child.map_err(|error| format!("cannot start {}: {error}", server.program))?;
        let mut running = Running { child, port, server };
        while Client::connect(port, server.protocol, 0).is_none() {
            let ended = running.child.try_wait().map_err(|error| error.to_string())?;
            if let Some(status) = ended {
                return Err(format!("{} ended before it listened: {status}", server.program));
            }
            std::thread::sleep(MOMENT);
        }
        Ok(running)
    }

    fn client(&self, seed: u64) -> Result<Client, String> {
        Client::connect(self.port, self.server.protocol, seed)
            .ok_or_else(|| format!("{} took no connection", self.server.program))
    }

    /// Asks it to end, and waits until it has.
    fn end(mut self) -> Result<(), String> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .and_then(|()| self.child.wait().map(drop).map_err(|_| rustix::io::Errno::CHILD))
            .map_err(|error| format!("cannot end {}: {error}", self.server.program))
    }
}

impl Drop for Running {
    /// After an error; what has ended is not there to be killed.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    address
        .map(|address| address.port())
        .map_err(|error| format!("no port is free: {error}"))
}
