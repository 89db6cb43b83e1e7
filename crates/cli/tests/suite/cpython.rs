//! CPython's own tests, which others wrote, are killed and resumed until they have ended, and pass.
//!
//! In the gate two modules of them, in a campaign some forty: what they test of the system is what programs use of it.

use std::time::{Duration, Instant};

use twinpage_campaign::{either, seed};

use crate::loading::{resume, run};
use crate::support::process::{Victim, ended_before, kill};
use crate::support::program::python_with;
use crate::support::{chance, say, skip};

const FEW: &[&str] = &["test_mmap", "test_shelve"];
/// Without those that want what is refused by name: splice (test_os), out-of-band bytes (test_ftplib, test_asyncore), F_NOTIFY
/// (test_fcntl).
const MANY: &[&str] = &[
    "test_bz2",
    "test_ctypes",
    "test_dbm",
    "test_eintr",
    "test_epoll",
    "test_faulthandler",
    "test_file",
    "test_fork1",
    "test_httpservers",
    "test_import",
    "test_io",
    "test_logging",
    "test_mailbox",
    "test_mmap",
    "test_pathlib",
    "test_poll",
    "test_popen",
    "test_posix",
    "test_pty",
    "test_queue",
    "test_sched",
    "test_select",
    "test_selectors",
    "test_shelve",
    "test_signal",
    "test_sqlite3",
    "test_subprocess",
    "test_tarfile",
    "test_tempfile",
    "test_threadedtempfile",
    "test_threadsignals",
    "test_wait3",
    "test_wait4",
    "test_xmlrpc",
    "test_zipfile",
];
const KILLS: u32 = 12;

#[test]
fn its_tests_pass_under_kills() {
    let Some(python) = python_with("test.regrtest") else {
        return skip(
            "cpython",
            "the module `test` of Python",
            "a Python with its own tests",
        );
    };
    let seed = seed();
    for module in either(FEW, MANY) {
        let mut chance = chance(seed, module);
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let (state, out) = (scratch.path().join("state"), scratch.path().join("out"));
        let line = [python.as_str(), "-m", "test", "-v", module].map(str::to_owned);
        let mut child = run(&state, &line, &out);
        let mut kills = 0;
        let status = loop {
            let until = Instant::now() + Duration::from_millis(chance.u64(200..1500));
            let ended = match kills < KILLS {
                true => ended_before(&mut child, until),
                false => Some(child.wait().expect("wait for twinpage")),
            };
            if let Some(status) = ended {
                break status;
            }
            kill(&mut child, Victim::Tree, &mut chance);
            kills += 1;
            child = resume(&state, &out);
        };
        let printed = std::fs::read(&out).expect("the output");
        let printed = String::from_utf8_lossy(&printed);
        assert!(
            status.success(),
            "{module}, {kills} kills: {status}; TWINPAGE_SEED={seed}\n{printed}"
        );
        say(&format!("{module}: passed, {kills} kills; TWINPAGE_SEED={seed}"));
    }
}
