//! A client of servers that keep values under keys: many connections, several requests on each on their way.
//!
//! * Keys and values have a fixed length, so each reply is known before it comes; each is compared.
//! * One request in ten stores, the others read.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

/// Keys there are; each has one value, which does not change.
const KEYS: u32 = 10_000;
/// Bytes of a value.
const VALUE: usize = 100;
const STORES: u32 = 10;
/// Requests of one batch while the values are stored at first.
const BATCH: u32 = 100;

/// How requests and replies are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Protocol {
    Redis,
    Memcached,
}

fn key(number: u32) -> String {
    format!("key:{number:08}")
}

fn value(number: u32) -> String {
    format!("{number:0VALUE$}")
}

impl Protocol {
    /// Adds a request that stores, and its reply.
    fn store(self, number: u32, asked: &mut Vec<u8>, replies: &mut Vec<u8>) {
        let (key, value) = (key(number), value(number));
        let (request, reply) = match self {
            Protocol::Redis => (
                format!(
                    "*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${VALUE}\r\n{value}\r\n",
                    key.len()
                ),
                "+OK\r\n",
            ),
            Protocol::Memcached => (format!("set {key} 0 0 {VALUE}\r\n{value}\r\n"), "STORED\r\n"),
        };
        asked.extend_from_slice(request.as_bytes());
        replies.extend_from_slice(reply.as_bytes());
    }

    /// Adds a request that reads, and its reply.
    fn read(self, number: u32, asked: &mut Vec<u8>, replies: &mut Vec<u8>) {
        let (key, value) = (key(number), value(number));
        let (request, reply) = match self {
            Protocol::Redis => (
                format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()),
                format!("${VALUE}\r\n{value}\r\n"),
            ),
            Protocol::Memcached => (
                format!("get {key}\r\n"),
                format!("VALUE {key} 0 {VALUE}\r\n{value}\r\nEND\r\n"),
            ),
        };
        asked.extend_from_slice(request.as_bytes());
        replies.extend_from_slice(reply.as_bytes());
    }
}

/// A connection, what is asked on it now and what must come back.
pub(super) struct Client {
    stream: TcpStream,
    protocol: Protocol,
    random: fastrand::Rng,
    asked: Vec<u8>,
    expected: Vec<u8>,
    found: Vec<u8>,
}

impl Client {
    /// Connects to a server on this machine; `None` as long as none listens.
    pub(super) fn connect(port: u16, protocol: Protocol, seed: u64) -> Option<Client> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
        stream.set_nodelay(true).ok()?;
        Some(Client {
            stream,
            protocol,
            random: fastrand::Rng::with_seed(seed),
            asked: Vec::new(),
            expected: Vec::new(),
            found: Vec::new(),
        })
    }

    /// Stores the value of every key.
    pub(super) fn fill(&mut self) -> Result<(), String> {
        for begin in (0..KEYS).step_by(BATCH as usize) {
            self.asked.clear();
            self.expected.clear();
            for number in begin..begin + BATCH {
                self.protocol.store(number, &mut self.asked, &mut self.expected);
            }
            self.send()?;
            self.receive()?;
        }
        Ok(())
    }

    /// Sends a number of requests at once.
    fn ask(&mut self, requests: u32) -> Result<(), String> {
        self.asked.clear();
        self.expected.clear();
        for _ in 0..requests {
            let number = self.random.u32(..KEYS);
            if self.random.u32(..STORES) == 0 {
                self.protocol.store(number, &mut self.asked, &mut self.expected);
            } else {
                self.protocol.read(number, &mut self.asked, &mut self.expected);
            }
        }
        self.send()
    }

    fn send(&mut self) -> Result<(), String> {
        let sent = self.stream.write_all(&self.asked);
        sent.map_err(|error| format!("a request was not taken: {error}"))
    }

    /// Waits for the replies to all that was asked.
    fn receive(&mut self) -> Result<(), String> {
        self.found.resize(self.expected.len(), 0);
        let read = self.stream.read_exact(&mut self.found);
        read.map_err(|error| format!("no reply came: {error}"))?;
        if self.found == self.expected {
            return Ok(());
        }
        let found = String::from_utf8_lossy(&self.found);
        Err(format!(
            "the server answered something else: {}",
            found.trim_end()
        ))
    }

    /// Stores one value, and says how long the reply took.
    pub(super) fn store_one(&mut self) -> Result<Duration, String> {
        self.asked.clear();
        self.expected.clear();
        let number = self.random.u32(..KEYS);
        self.protocol.store(number, &mut self.asked, &mut self.expected);
        let begun = Instant::now();
        self.send()?;
        self.receive()?;
        Ok(begun.elapsed())
    }
}

/// Requests answered to `clients` within a time, `depth` of each on their way at any time.
pub(super) fn pipelined(clients: &mut [Client], depth: u32, time: Duration) -> Result<u64, String> {
    let begun = Instant::now();
    for client in &mut *clients {
        client.ask(depth)?;
    }
    let mut answered = 0;
    while begun.elapsed() < time {
        for client in &mut *clients {
            client.receive()?;
            answered += u64::from(depth);
            client.ask(depth)?;
        }
    }
    for client in clients {
        client.receive()?;
    }
    Ok(answered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A server that answers what it is told to, whatever it is asked.
    fn answering(reply: Vec<u8>) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(&reply);
        });
        port
    }

    #[test]
    fn a_wrong_reply_is_told() {
        for (protocol, right, wrong) in [
            (Protocol::Redis, "+OK\r\n", "-ERR\r"),
            (Protocol::Memcached, "STORED\r\n", "NOT_STOR"),
        ] {
            let mut client = Client::connect(answering(right.into()), protocol, 1).unwrap();
            assert!(client.store_one().is_ok());
            let mut client = Client::connect(answering(wrong.into()), protocol, 1).unwrap();
            let told = client.store_one().unwrap_err();
            assert!(told.contains(wrong.trim_end()), "{told}");
        }
    }

    #[test]
    fn a_reply_that_is_cut_is_told() {
        let mut client = Client::connect(answering(b"+O".into()), Protocol::Redis, 1).unwrap();
        assert!(client.store_one().unwrap_err().contains("no reply came"));
    }
}
