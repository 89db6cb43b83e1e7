//! Servers under `run --replies loose`: after a kill they listen again, go on from what they remember, and
//! find their connections reset.

use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::support::program::python_with;
use crate::support::server::Server;
use crate::support::state::wait_until;
use crate::support::{say, skip};

/// A client that has been answered.
struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// A connection that was answered, and the answer. Until the processes of an earlier life are gone, the kernel
    /// takes connections for them that nothing answers.
    fn answered(port: u16) -> (Client, u64) {
        let answered = RefCell::new(None);
        wait_until("the server answers", || {
            *answered.borrow_mut() = Client::try_new(port).ok();
            answered.borrow().is_some()
        });
        answered.into_inner().expect("just seen")
    }

    fn try_new(port: u16) -> io::Result<(Client, u64)> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        let mut client = Client {
            stream: BufReader::new(stream),
        };
        let told = client.ask()?;
        Ok((client, told))
    }

    /// How many messages the server has counted with this one.
    fn ask(&mut self) -> io::Result<u64> {
        self.stream.get_mut().write_all(b"x")?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        line.trim().parse().map_err(io::Error::other)
    }
}

/// Two more checkpoints were made: one of them began after this was called.
fn wait_for_checkpoint(server: &Server) {
    // It runs: where nothing runs no checkpoint is made.
    let client = RefCell::new(Client::answered(server.port).0);
    let before = server.epoch();
    wait_until("a checkpoint is made", || {
        client.borrow_mut().ask().expect("the server answers");
        server.epoch() > before + 1
    });
}

fn goes_on(test: &str, program: &str) {
    let Some(python) = python_with("asyncio") else {
        return skip(test, "python3", "python3");
    };
    let mut server = Server::start("loose", |port| {
        let source = format!("{}/tests/programs/{program}", env!("CARGO_MANIFEST_DIR"));
        vec![python.clone(), source, port.to_string()]
    });
    let mut seen = 0;
    for life in 1..=3 {
        let (waits, told) = Client::answered(server.port);
        assert!(told > seen, "it forgot {seen}: {told}; {}", server.printed());
        wait_for_checkpoint(&server);
        seen = told; // what is told later may be forgotten
        server.kill();
        server.resume();
        let resets = || server.printed().matches("error 104").count();
        wait_until("the open connection is reset", || resets() >= life);
        drop(waits);
    }
    server.kill();
    let taken = RefCell::new(None);
    wait_until("the port is free", || {
        *taken.borrow_mut() = TcpListener::bind((Ipv4Addr::LOCALHOST, server.port)).ok();
        taken.borrow().is_some()
    });
    let refused = server.resume_in_vain();
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{words}");
    assert!(words.contains(&format!("port {}", server.port)), "{words}");
    drop(taken);
    server.resume();
    assert!(Client::answered(server.port).1 > seen, "nothing was lost");
    say(&format!("{test}: {seen} messages remembered over three kills"));
}

#[test]
fn a_server_of_threads_goes_on() {
    goes_on("a server of threads", "server_threads.py");
}

#[test]
fn a_server_that_polls_goes_on() {
    goes_on("a server that polls", "server_polls.py");
}

/// The answer of a UDP server: how many messages it got, and how many it sent itself.
fn asked_by_udp(client: &UdpSocket, port: u16) -> (u64, u64) {
    let mut room = [0; 64];
    // What is sent while nothing is there, or waits at a kill, is lost. An answer may come late.
    for number in 0u64.. {
        let question = format!("{number}-{}", fastrand::u64(..));
        let _ = client.send_to(question.as_bytes(), (Ipv4Addr::LOCALHOST, port));
        while let Ok(length) = client.recv(&mut room) {
            let answer = String::from_utf8_lossy(&room[..length]).into_owned();
            let words: Vec<&str> = answer.split(' ').collect();
            if words[0] == question {
                let count = |word: &str| word.parse().expect("a number");
                return (count(words[1]), count(words[2]));
            }
        }
    }
    unreachable!("it is answered, or asked again")
}

#[test]
fn udp_sockets_come_back() {
    for replies in ["loose", "held"] {
        let Some(python) = python_with("socket") else {
            return skip("UDP sockets", "python3", "python3");
        };
        let mut server = Server::start(replies, |port| {
            let source = format!("{}/tests/programs/server_udp.py", env!("CARGO_MANIFEST_DIR"));
            vec![python, source, port.to_string()]
        });
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        client
            .set_read_timeout(Some(Duration::from_millis(500)))
            .expect("a limit");
        let mut seen = 0;
        for _ in 0..3 {
            let (told, inside) = asked_by_udp(&client, server.port);
            assert!(told > seen, "{replies}: it forgot {seen}: {told}");
            seen = told;
            let before = server.epoch();
            let mut now = (told, inside);
            // Its own messages arrive, and a checkpoint covers the answer.
            while server.epoch() <= before + 1 || now.1 <= inside {
                server.expect_alive();
                now = asked_by_udp(&client, server.port);
            }
            if replies == "held" {
                seen = now.0;
            }
            server.kill();
            server.resume();
        }
        assert!(
            asked_by_udp(&client, server.port).0 > seen,
            "{replies}: it forgot {seen}"
        );
    }
}

/// Sends a message, and with it a new file that is open for appending.
fn send_along(stream: &mut BufReader<UnixStream>, path: &Path) {
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    let file = file.expect("a file");
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut along = SendAncillaryBuffer::new(&mut room);
    let files = [file.as_fd()];
    assert!(along.push(SendAncillaryMessage::ScmRights(&files)));
    let message = [io::IoSlice::new(b"x")];
    sendmsg(stream.get_ref(), &message, &mut along, SendFlags::empty()).expect("the server takes it");
    stream.read_line(&mut String::new()).expect("an answer");
}

#[test]
fn unix_sockets_come_back() {
    for replies in ["loose", "held"] {
        let Some(python) = python_with("selectors") else {
            return skip("Unix sockets", "python3", "python3");
        };
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let path = scratch.path().join("socket");
        let name = format!("twinpage-{}-{replies}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).expect("a name");
        let mut server = Server::start(replies, |_| {
            let source = format!("{}/tests/programs/server_unix.py", env!("CARGO_MANIFEST_DIR"));
            vec![python, source, path.display().to_string(), name]
        });
        let ask = |stream: &mut BufReader<UnixStream>| -> io::Result<u64> {
            stream.get_mut().write_all(b"x")?;
            let mut line = String::new();
            stream.read_line(&mut line)?;
            line.trim().parse().map_err(io::Error::other)
        };
        let answered = |by_file: bool| {
            let answered = RefCell::new(None);
            wait_until("the server answers", || {
                let stream = match by_file {
                    true => UnixStream::connect(&path),
                    false => UnixStream::connect_addr(&abstract_name),
                };
                *answered.borrow_mut() = stream.ok().and_then(|stream| {
                    let mut stream = BufReader::new(stream);
                    let told = ask(&mut stream).ok()?;
                    Some((stream, told))
                });
                answered.borrow().is_some()
            });
            answered.into_inner().expect("just seen")
        };
        let given = scratch.path().join("given");
        send_along(&mut answered(true).0, &given);
        let mut seen = 0;
        for life in 1..=3 {
            let (waits, told) = answered(life % 2 == 0);
            assert!(
                told > seen,
                "{replies}: it forgot {seen}: {told}; {}",
                server.printed()
            );
            let before = server.epoch();
            let client = RefCell::new(answered(true).0);
            wait_until("a checkpoint is made", || {
                ask(&mut client.borrow_mut()).expect("the server answers");
                server.epoch() > before + 1
            });
            seen = told;
            server.kill();
            let file = std::fs::symlink_metadata(&path).expect("the socket's file");
            assert!(file.file_type().is_socket());
            server.resume();
            let resets = || server.printed().matches("error 104").count();
            wait_until("the open connection is reset", || resets() >= life);
            let mode = std::fs::symlink_metadata(&path)
                .expect("the socket's file")
                .permissions();
            assert_eq!(mode.mode() & 0o777, 0o600);
            drop(waits);
        }
        let (_, told) = answered(true);
        assert!(told > seen);
        let counts = std::fs::read_to_string(&given).expect("the file that was sent along");
        let counts: Vec<u64> = counts
            .lines()
            .map(|line| line.parse().expect("a count"))
            .collect();
        assert!(
            counts.contains(&told) && counts.is_sorted_by(|one, other| one + 1 == *other),
            "{counts:?}"
        );
        server.kill();
        std::fs::remove_file(&path).expect("what the killed one left");
        let other = UnixListener::bind(&path).expect("a socket of ours");
        let refused = server.resume_in_vain();
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && words.contains(&path.display().to_string()),
            "{words}"
        );
        drop(other);
        server.resume();
        assert!(answered(false).1 > seen, "nothing was lost");
    }
}
