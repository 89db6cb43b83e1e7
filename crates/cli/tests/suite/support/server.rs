//! A server under `run --replies`, on a port of its own: killed and resumed at will.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use twinpage_campaign::seed;

use super::chance;
use super::ordinary::OrdinaryUser;
use super::process::{Victim, kill, twinpage};
use super::state::{info, wait_until};

/// A server of ours and what it prints.
pub(crate) struct Server {
    scratch: tempfile::TempDir,
    user: Option<OrdinaryUser>,
    pub(crate) port: u16,
    child: Child,
    chance: fastrand::Rng,
}

impl Server {
    /// Runs the words that are made for a free port, in a directory of its own.
    pub(crate) fn start(replies: &str, words: impl FnOnce(u16) -> Vec<String>) -> Server {
        Server::start_by(None, replies, words)
    }

    /// The same, by a user.
    pub(crate) fn start_by(
        user: Option<OrdinaryUser>,
        replies: &str,
        words: impl FnOnce(u16) -> Vec<String>,
    ) -> Server {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        if let Some(user) = &user {
            user.give(scratch.path());
        }
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = free.local_addr().expect("its address").port();
        drop(free);
        let mut command = user.as_ref().map_or_else(twinpage, OrdinaryUser::twinpage);
        command.args(["run", "--every", "10ms", "--durability", "memory"]);
        command.args(["--replies", replies, "--state"]);
        command
            .arg(scratch.path().join("state"))
            .arg("--")
            .args(words(port));
        command.current_dir(scratch.path());
        command.stdout(fs::File::create(scratch.path().join("out")).expect("a file"));
        command.stderr(fs::File::create(scratch.path().join("messages")).expect("a file"));
        let child = command.spawn().expect("twinpage starts");
        let chance = chance(seed(), "server");
        Server {
            scratch,
            user,
            port,
            child,
            chance,
        }
    }

    /// Where it began.
    pub(crate) fn directory(&self) -> &Path {
        self.scratch.path()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.scratch.path().join("state")
    }

    pub(crate) fn printed(&self) -> String {
        fs::read_to_string(self.scratch.path().join("out")).expect("its output")
    }

    /// What twinpage said.
    pub(crate) fn messages(&self) -> String {
        fs::read_to_string(self.scratch.path().join("messages")).expect("its messages")
    }

    /// How many checkpoints are durable.
    pub(crate) fn epoch(&self) -> u64 {
        info(&self.state())["epoch"].as_u64().unwrap_or(0)
    }

    /// Waits until it holds; fails when the server ends before.
    pub(crate) fn wait_until(&mut self, what: &str, holds: impl Fn() -> bool) {
        wait_until(what, || {
            let holds = holds();
            if !holds {
                self.expect_alive();
            }
            holds
        });
    }

    /// Fails when the server ended without being killed.
    pub(crate) fn expect_alive(&mut self) {
        let ended = self.child.try_wait().expect("wait for twinpage");
        assert!(
            ended.is_none(),
            "it ended: {ended:?}; {}{}",
            self.printed(),
            self.messages()
        );
    }

    /// Waits for its end, which must be in good order.
    pub(crate) fn expect_end(&mut self) {
        let status = self.child.wait().expect("wait for twinpage");
        assert!(
            status.success(),
            "{status}; {}{}",
            self.printed(),
            self.messages()
        );
    }

    pub(crate) fn kill(&mut self) {
        kill(&mut self.child, Victim::Tree, &mut self.chance);
    }

    pub(crate) fn resume(&mut self) {
        let append = |name: &str| {
            let path = self.scratch.path().join(name);
            fs::OpenOptions::new()
                .append(true)
                .open(path)
                .expect("it is there")
        };
        let mut command = self.user.as_ref().map_or_else(twinpage, OrdinaryUser::twinpage);
        command.args(["resume", "--every", "10ms"]).arg(self.state());
        command.stdout(append("out")).stderr(append("messages"));
        self.child = command.spawn().expect("twinpage starts");
    }

    pub(crate) fn resume_in_vain(&self) -> Output {
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
