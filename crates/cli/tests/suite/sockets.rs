//! Servers under `run --replies loose`: after a kill they listen again, go on from what they remember, and
//! find their connections reset.

use std::cell::RefCell;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};

use crate::support::process::{Victim, kill, twinpage};
use crate::support::program::python_with;
use crate::support::state::{on_state, wait_until};
use crate::support::{chance, say, seed, skip};

/// A server of ours and what it prints.
struct Server {
    scratch: tempfile::TempDir,
    port: u16,
    child: Child,
}

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

impl Server {
    fn start(python: &str, program: &str) -> Server {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = free.local_addr().expect("its address").port();
        drop(free);
        let source = format!("{}/tests/programs/{program}", env!("CARGO_MANIFEST_DIR"));
        let mut command = twinpage();
        command.args(["run", "--every", "10ms", "--durability", "memory"]);
        command.args(["--replies", "loose", "--state"]);
        command.arg(scratch.path().join("state"));
        command.args(["--", python, &source, &port.to_string()]);
        command.stdout(fs::File::create(scratch.path().join("out")).expect("a file"));
        command.stderr(fs::File::create(scratch.path().join("messages")).expect("a file"));
        let child = command.spawn().expect("twinpage starts");
        Server { scratch, port, child }
    }

    fn state(&self) -> PathBuf {
        self.scratch.path().join("state")
    }

    fn printed(&self) -> String {
        fs::read_to_string(self.scratch.path().join("out")).expect("its output")
    }

    /// Two more checkpoints were made: one of them began after this was called.
    fn wait_for_checkpoint(&self) {
        let epoch = || {
            let info = on_state(&["info", "--json"], &self.state());
            let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap_or_default();
            info["epoch"].as_u64().unwrap_or(0)
        };
        // It runs: where nothing runs no checkpoint is made.
        let client = RefCell::new(Client::answered(self.port).0);
        let before = epoch();
        wait_until("a checkpoint is made", || {
            client.borrow_mut().ask().expect("the server answers");
            epoch() > before + 1
        });
    }

    fn kill(&mut self) {
        kill(&mut self.child, Victim::Tree, &mut chance(seed(), "sockets"));
    }

    fn resume(&mut self) {
        let append = |name: &str| {
            let path = self.scratch.path().join(name);
            fs::OpenOptions::new()
                .append(true)
                .open(path)
                .expect("it is there")
        };
        let mut command = twinpage();
        command.args(["resume", "--every", "10ms"]).arg(self.state());
        command.stdout(append("out")).stderr(append("messages"));
        self.child = command.spawn().expect("twinpage starts");
    }

    fn resume_in_vain(&self) -> Output {
        let mut command = twinpage();
        command.arg("resume").arg(self.state());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.output().expect("twinpage starts")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.try_wait().ok().flatten().is_none() {
            self.kill();
        }
    }
}

fn goes_on(test: &str, program: &str) {
    let Some(python) = python_with("asyncio") else {
        return skip(test, "python3", "python3");
    };
    let mut server = Server::start(&python, program);
    let mut seen = 0;
    for life in 1..=3 {
        let (waits, told) = Client::answered(server.port);
        assert!(told > seen, "it forgot {seen}: {told}; {}", server.printed());
        server.wait_for_checkpoint();
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

#[test]
fn modes_that_are_not_built_are_refused_by_name() {
    for mode in ["held", "synced"] {
        let out = twinpage()
            .args(["run", "--replies", mode, "--state", "nowhere", "--", "true"])
            .output()
            .expect("twinpage starts");
        let words = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(
            !out.status.success() && words.contains("not built yet"),
            "{words}"
        );
        assert!(words.contains("--replies loose"), "{words}");
    }
}
