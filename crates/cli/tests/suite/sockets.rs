//! Servers under `run --replies loose`: after a kill they listen again, go on from what they remember, and
//! find their connections reset.

use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

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
