//! Things that are hard to carry over: each must be carried whole, through kills, or be refused by name
//! when it is attempted. What must never happen is a program that goes on with something silently lost.

use std::fs;
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use twinpage_campaign::seed;

use crate::support::campaign::{Campaign, Oracle, oracle};
use crate::support::process::twinpage;
use crate::support::program::{compile, python_with, sources};
use crate::support::state::{info, wait_until};
use crate::support::{chance, say, sink};

/// An attempt and the words one of which a refusal must use.
type Attempt = (&'static str, &'static [&'static str]);

const SOCKETS: &[Attempt] = &[
    ("listen", &["socket", "bind", "listen"]),
    ("socket-connect", &["socket", "connect"]),
    ("socket-nowhere", &["socket", "connect"]),
    ("socket-udp", &["socket", "connect", "bind"]),
    ("socketpair", &["socketpair"]),
];

const PROCESSES: &[Attempt] = &[
    ("change-user", &["setresgid", "setresuid"]),
    ("clone3", &["clone3"]),
    ("exec", &["execve"]),
    ("fork", &["fork", "clone"]),
    ("ptrace", &["ptrace"]),
    ("session", &["setsid"]),
    ("spawn", &["clone", "vfork"]),
    ("thread-unshare", &["unshare"]),
    ("user-namespace", &["unshare"]),
];

const MEMORY: &[Attempt] = &[
    ("droppable", &["mmap"]),
    ("memfd", &["memfd_create"]),
    ("mlock", &["mlock"]),
    ("mlockall", &["mlockall"]),
    ("mq", &["mq_open"]),
    ("msgget", &["msgget"]),
    ("protection-key", &["pkey_alloc"]),
    ("secret-memory", &["memfd_secret"]),
    ("semget", &["semget"]),
    ("shared-anonymous", &["mmap", "shared"]),
    ("shared-file", &["mmap", "shared"]),
    ("shared-made-writable", &["mprotect", "mmap", "shared"]),
    ("shmget", &["shmget"]),
];

const FILES: &[Attempt] = &[
    ("copied-ranges", &["copy_file_range"]),
    ("deleted-file", &["unlink", "deleted"]),
    ("device", &["/dev/"]),
    ("file-attributes", &["fchmod", "utimens"]),
    ("file-lock", &["flock", "lock"]),
    ("links", &["link"]),
    ("named-pipe", &["mknod", "attempt.fifo"]),
    ("preallocated", &["fallocate"]),
    ("proc-file", &["/proc/"]),
    ("unnamed-file", &["O_TMPFILE"]),
];

const DESCRIPTORS: &[Attempt] = &[
    ("aio", &["io_setup"]),
    ("inotify", &["inotify_init"]),
    ("io-uring", &["io_uring_setup"]),
    ("perf-event", &["perf_event_open"]),
    ("pidfd", &["pidfd_open"]),
    ("signalfd", &["signalfd"]),
    ("userfaultfd", &["userfaultfd"]),
];

const MODES: &[Attempt] = &[
    ("gs-base", &["arch_prctl"]),
    ("int80", &["int 0x80", "32-bit"]),
    ("landlock", &["landlock"]),
    ("ldt", &["modify_ldt"]),
    ("membarrier", &["membarrier"]),
    ("personality", &["personality"]),
    ("profiling-timer", &["setitimer"]),
    ("seccomp", &["seccomp", "prctl"]),
    ("tiles", &["arch_prctl"]),
    ("time-stamp", &["prctl"]),
];

/// The line with which twinpage refuses, if it does, naming one of the words.
fn refusal<'a>(stderr: &'a str, words: &[&str]) -> Option<&'a str> {
    let said = stderr.lines().filter(|line| line.starts_with("twinpage"));
    said.into_iter()
        .find(|line| words.iter().any(|word| line.contains(word)))
}

fn run_once(line: &[String], options: &[&str]) -> Output {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let work = dir.path().join("work");
    fs::create_dir(&work).expect("a working directory");
    let mut command = twinpage();
    command
        .args(["run", "--every", "16ms"])
        .args(options)
        .arg("--state");
    command
        .arg(dir.path().join("state"))
        .arg("--")
        .args(line)
        .current_dir(work)
        .output()
        .expect("twinpage starts")
}

/// `true`: carried over; `false`: refused by name.
fn carried(name: &str, line: &[String], options: &[&str], words: &[&str], alone: &Oracle) -> bool {
    let out = run_once(line, options);
    let stderr = String::from_utf8_lossy(&out.stderr);
    if out.status == alone.status && out.stdout == alone.stdout {
        return true;
    }
    let said = refusal(&stderr, words);
    let want =
        "must do what it does alone, or be refused in a line that begins with twinpage and names one of";
    assert!(
        said.is_some(),
        "{name} {want} {words:?}; it ended with {}, saying:\n{stderr}",
        out.status
    );
    say(&format!("refused by name: {name}: {}", said.unwrap_or_default()));
    false
}

fn attempts(group: &str, of: &[Attempt]) {
    attempts_with(group, of, &[]);
}

fn attempts_with(group: &str, of: &[Attempt], options: &[&str]) {
    let Some(binary) = compile("attempts", &["-pthread", "-lrt"]) else {
        return;
    };
    let seed = seed();
    let (mut survived, mut refused) = (0, 0);
    for (name, words) in of {
        let line = [binary.clone(), (*name).to_string(), "25".into()];
        let alone = oracle(&line, None);
        if alone.status.code() == Some(77) {
            say(&format!(
                "SKIPPED: the attempt {name}: this machine does not allow it"
            ));
            continue;
        }
        assert!(alone.status.success(), "{name} fails alone: {}", alone.status);
        if !carried(name, &line, options, words, &alone) {
            refused += 1;
            continue;
        }
        let mut chance = chance(seed, name);
        let options = [&["--every", "8ms"], options].concat();
        let campaign = Campaign {
            kills: 3,
            sink: sink::Kind::File,
            ..Campaign::new(name, &line, &options, seed)
        };
        campaign.survive(&alone, &mut chance);
        survived += 1;
        say(&format!("carried over kills: {name}"));
    }
    say(&format!(
        "{group}: {survived} carried over kills, {refused} refused by name; TWINPAGE_SEED={seed}"
    ));
}

#[test]
fn sockets() {
    attempts("sockets", SOCKETS);
}

/// Where nothing may go to the outside.
const INSIDE: &[&str] = &["--replies", "none"];

#[test]
fn sockets_inside() {
    attempts_with("sockets inside", SOCKETS, INSIDE);
}

#[test]
fn processes() {
    attempts("processes", PROCESSES);
}

#[test]
fn memory() {
    attempts("memory", MEMORY);
}

#[test]
fn files() {
    attempts("files", FILES);
}

#[test]
fn descriptors() {
    attempts("descriptors", DESCRIPTORS);
}

#[test]
fn modes() {
    attempts("modes", MODES);
}

#[test]
fn every_attempt_is_tested() {
    let Some(binary) = compile("attempts", &["-pthread", "-lrt"]) else {
        return;
    };
    let listed = Command::new(binary)
        .output()
        .expect("the list of attempts")
        .stdout;
    let all = [SOCKETS, PROCESSES, MEMORY, FILES, DESCRIPTORS, MODES].concat();
    for name in String::from_utf8_lossy(&listed).lines() {
        assert!(
            all.iter().any(|(tested, _)| *tested == name),
            "{name} is in no group"
        );
    }
}

/// It fails where nothing may go to the outside, and is refused in one of these words.
fn expect_refused(line: &[String], words: &[&str]) {
    let out = run_once(line, INSIDE);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success(), "{line:?} went through");
    assert!(
        refusal(&stderr, words).is_some(),
        "{line:?} is not refused by name:\n{stderr}"
    );
}

#[test]
fn python_that_connects() {
    let Some(python) = python_with("socket") else {
        return;
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = listener.local_addr().expect("its address").port();
    let connect = format!("import socket; socket.create_connection(('127.0.0.1', {port}))");
    expect_refused(&[python, "-c".into(), connect], &["socket", "connect"]);
}

/// Unix sockets are for the program and its children: nothing of a connection to another program goes out.
#[test]
fn python_that_connects_to_another_program() {
    let Some(python) = python_with("socket") else {
        return;
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let file = scratch.path().join("outside");
    let name = file.display().to_string();
    let abstract_address = SocketAddr::from_abstract_name(name.as_bytes()).expect("a name");
    let listeners = [
        (UnixListener::bind(&file), format!("'{name}'")),
        (UnixListener::bind_addr(&abstract_address), format!("'\\0{name}'")),
    ];
    for (listener, address) in listeners {
        let listener = listener.expect("a listener");
        let connect = format!("import socket; socket.socket(socket.AF_UNIX).connect({address})");
        expect_refused(&[python.clone(), "-c".into(), connect], &["connect"]);
        listener.set_nonblocking(true).expect("a listener that asks");
        let came = listener.accept().map(drop).map_err(|error| error.kind());
        assert_eq!(came, Err(std::io::ErrorKind::WouldBlock), "{address}");
    }
}

/// A connection that another program makes to a program ends its run at the next checkpoint, with the way out. `listens`
/// makes a listener `s` in Python; `connect` connects to it, when it is there.
fn an_outsider_is_told_of<Connection>(
    scratch: &Path,
    listens: &str,
    connect: impl Fn() -> Option<Connection>,
) {
    let Some(python) = python_with("socket") else {
        return;
    };
    let program = format!("import socket; {listens}; c = s.accept()\nwhile True: pass");
    let mut command = twinpage();
    command
        .args(["run", "--every", "5ms", "--replies", "none", "--state"])
        .arg(scratch.join("state"));
    command.args(["--", &python, "-c", &program]);
    let child = command.stderr(Stdio::piped()).spawn().expect("twinpage starts");
    let connection = std::cell::RefCell::new(None);
    wait_until("it listens", || {
        *connection.borrow_mut() = connect();
        connection.borrow().is_some()
    });
    let out = child.wait_with_output().expect("wait for twinpage");
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && stderr.contains("--replies"), "{stderr}");
}

#[test]
fn python_that_another_program_connects_to() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let name = scratch.path().join("inside");
    let listens = format!(
        "s = socket.socket(socket.AF_UNIX); s.bind('{}'); s.listen()",
        name.display()
    );
    an_outsider_is_told_of(scratch.path(), &listens, || UnixStream::connect(&name).ok());
}

/// What waits at a port to be accepted is waited for first.
#[test]
fn python_that_another_program_reaches_by_its_port() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let port = scratch.path().join("port");
    let listens = format!(
        "s = socket.create_server(('127.0.0.1', 0)); open('{}', 'w').write('%05d' % s.getsockname()[1])",
        port.display()
    );
    an_outsider_is_told_of(scratch.path(), &listens, || {
        let port = fs::read_to_string(&port).ok().filter(|port| port.len() == 5)?;
        TcpStream::connect(("127.0.0.1", port.parse::<u16>().ok()?)).ok()
    });
}

/// What programs usually go on without is in `info`, and on the terminal only where the program fails.
#[test]
fn what_programs_go_without_is_listed() {
    let Some(binary) = compile("without.c", &[]) else {
        return;
    };
    let run = |words: &[&str]| {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let state = scratch.path().join("state");
        let mut command = twinpage();
        command
            .arg("run")
            .args(INSIDE)
            .arg("--state")
            .arg(&state)
            .arg("--");
        let out = command
            .arg(&binary)
            .args(words)
            .output()
            .expect("twinpage starts");
        assert_eq!(out.status.code(), words[0].parse().ok());
        let listed = info(&state)["refused"].as_array().expect("a list").clone();
        let listed = listed
            .iter()
            .map(|call| call.as_str().expect("a text").to_owned());
        let stderr = String::from_utf8(out.stderr).expect("text");
        (stderr, listed.collect::<Vec<_>>())
    };
    let (stderr, listed) = run(&["0"]);
    assert_eq!(stderr, "", "it did what it was to do");
    assert!(
        listed.len() == 1 && listed[0].starts_with("prctl: "),
        "{listed:?}"
    );
    let (stderr, again) = run(&["3"]);
    assert_eq!(stderr, format!("twinpage: refused {}\n", listed[0]), "it failed");
    assert_eq!(again, listed);
    let (stderr, listed) = run(&["0", "and a socket"]);
    assert!(
        stderr.starts_with("twinpage: refused socket: ") && stderr.lines().count() == 1,
        "{stderr}"
    );
    assert_eq!(listed.len(), 2, "{listed:?}");
}

/// Sockets that are not captured are refused to the program and to its descendants, with the errors that have programs go
/// on without them: as a kernel without Multipath TCP, SCTP and UDP-Lite answers, and for a user without rights.
#[test]
fn sockets_of_other_kinds_are_refused_to_all() {
    let Some(python) = python_with("socket") else {
        return;
    };
    let program = "import socket
def error(*kind):
    try: socket.socket(*kind)
    except OSError as error: return error.errno
    return 0
inet, inet6, stream, datagram, raw, packets = 2, 10, 1, 2, 3, 5
print(error(inet, stream, 262), error(inet6, stream, 262), error(inet, stream, 132), error(inet, datagram, 136))
print(error(inet, datagram, 1), error(inet, raw, 1), error(17, raw, 0), error(40, stream, 0), error(38, packets, 0), error(16, raw, 4))
print(error(inet, stream, 6), error(inet, stream, 0), error(inet6, datagram, 17), error(1, stream, 0), error(16, raw, 0))";
    for replies in ["held", "none"] {
        for script in ["exec \"$0\" -c \"$1\"", "\"$0\" -c \"$1\"; exit $?"] {
            let line = ["sh", "-c", script, &python, program].map(str::to_owned);
            let out = run_once(&line, &["--replies", replies]);
            let (told, said) = (
                String::from_utf8_lossy(&out.stderr),
                String::from_utf8_lossy(&out.stdout),
            );
            assert_eq!(
                said, "93 93 93 93\n13 13 13 13 13 13\n0 0 0 0 0\n",
                "--replies {replies}, {script}: {told}"
            );
        }
    }
}

/// The network of the machine is asked, and not changed: not behind a question in one message, nor by write(2).
#[test]
fn netlink_asks_and_changes_nothing() {
    let Some(python) = python_with("socket") else {
        return;
    };
    let program = "import os, socket, struct
def message(kind, body, flags=0x301): return struct.pack('IHHII', 16 + len(body), kind, flags, 1, 0) + body
links, address = message(18, bytes(16)), message(20, struct.pack('BBBBI', 2, 32, 0, 0, 99999), 1)
asker = socket.socket(16, 3, 0)
def error(send, *messages):
    try: send(*messages)
    except OSError as error: return error.errno
    return 0
write, gathered = (lambda message: os.write(asker.fileno(), message)), (lambda *all: os.writev(asker.fileno(), all))
print(error(asker.send, links), len(asker.recv(65536)) > 0)
print(error(write, links), len(asker.recv(65536)) > 0)
print(*[error(send, links + address) for send in (asker.send, write)], error(gathered, links, address), error(write, address))
print(error(lambda *all: asker.sendmsg(all), links, address), error(lambda *all: asker.sendmsg(all), links[:7], links[7:]))";
    for script in ["exec \"$0\" -c \"$1\"", "\"$0\" -c \"$1\"; exit $?"] {
        let line = ["sh", "-c", script, &python, program].map(str::to_owned);
        let out = run_once(&line, &[]);
        let (told, said) = (
            String::from_utf8_lossy(&out.stderr),
            String::from_utf8_lossy(&out.stdout),
        );
        assert_eq!(said, "0 True\n0 True\n1 1 1 1\n1 0\n", "{script}: {told}");
    }
}

/// A program that is refused before it runs: one line, which names it and the reason.
fn refused_at_once(program: &Path, word: &str) {
    let out = run_once(&[program.display().to_string()], &[]);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(
        !out.status.success() && out.stdout.is_empty(),
        "{} ran: {}",
        program.display(),
        out.status
    );
    assert_eq!(stderr.lines().count(), 1, "more than one line:\n{stderr}");
    assert!(stderr.contains(word), "the reason is not {word:?}: {stderr}");
}

#[test]
fn a_32_bit_program() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let program = dir.path().join("program32");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-m32", "-nostdlib", "-static", "-o"])
        .arg(&program)
        .arg(sources().join("exit32.S"));
    let built = compiler.stderr(Stdio::null()).status();
    assert!(
        built.is_ok_and(|status| status.success()),
        "exit32.S is not assembled; install gcc and binutils"
    );
    refused_at_once(&program, "32-bit");
}

#[test]
fn a_setuid_program() {
    use std::os::unix::fs::{PermissionsExt, chown};
    const NOBODY: u32 = 65534;
    if !rustix::process::getuid().is_root() {
        // Every system has this one, and it belongs to root.
        return refused_at_once(Path::new("/bin/su"), "setuid");
    }
    let dir = tempfile::tempdir().expect("a scratch directory");
    let program = dir.path().join("program");
    fs::copy("/bin/true", &program).expect("copy a program");
    if chown(&program, Some(NOBODY), None).is_err() {
        return say("SKIPPED: a setuid program: this user namespace has one user");
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("make it setuid");
    refused_at_once(&program, "setuid");
}
