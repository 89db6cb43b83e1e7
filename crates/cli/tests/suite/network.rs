//! Programs in a network of their own (`run --network keep`).

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use twinpage_campaign::seed;

use crate::support::campaign::{Campaign, oracle};
use crate::support::process::twinpage;
use crate::support::program::python_with;
use crate::support::{chance, say, skip};

const KEEP: [&str; 4] = ["--durability", "memory", "--network", "keep"];

/// A connection with two children, and one with itself. Their addresses, ports of clients included, stay what they are.
const TALKS: &str = r#"
import os, socket, sys
port = int(sys.argv[1])
server = socket.create_server(("127.0.0.1", port))
for child in range(2):
    if os.fork() == 0:
        with socket.create_connection(("127.0.0.1", port)) as own:
            names = own.getsockname(), own.getpeername()
            while got := own.recv(8):
                sum(range(int(got) % 20000))
                assert (own.getsockname(), own.getpeername()) == names
                own.sendall(got)
        os._exit(0)
own = socket.create_connection(("127.0.0.1", port))
ends = [own] + [server.accept()[0] for _ in range(3)]
names = [(end.getsockname(), end.getpeername()) for end in ends]
assert all(here[1] == port for here, _ in names[1:]), names
alone = own.getsockname()
inside = [end for end in ends[1:] if end.getpeername() != alone]
for turn in range(600):
    for end in inside:
        end.sendall(b"%8d" % (turn * 7919))
    for end in inside:
        assert end.recv(8) == b"%8d" % (turn * 7919)
    assert [(end.getsockname(), end.getpeername()) for end in ends] == names, turn
    if turn % 20 == 0:
        print(turn, flush=True)
for end in ends:
    end.close()
print([os.waitpid(-1, 0)[1] for _ in inside], socket.create_server(("", 0)).getsockname()[0])
"#;

/// Another program has the port in the machine's network all the while.
#[test]
fn connections_and_ports_come_back_as_they_were() {
    const TEST: &str = "a program in its own network";
    let Some(python) = python_with("socket") else {
        return skip(TEST, "python3", "python3");
    };
    let taken = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = taken.local_addr().expect("its address").port().to_string();
    drop(taken); // while the program runs alone
    let line = [python, "-c".into(), TALKS.into(), port.clone()];
    let oracle = oracle(&line, None);
    assert!(oracle.status.success(), "{}", oracle.status);
    let _taken = TcpListener::bind(format!("127.0.0.1:{port}")).expect("its port again");
    let seed = seed();
    let mut chance = chance(seed, TEST);
    let tally = Campaign::new(TEST, &line, &KEEP, seed).survive(&oracle, &mut chance);
    say(&format!("{TEST}: {tally:?}"));
}

/// Nothing leads out of it, and nothing into it.
#[test]
fn only_the_program_is_in_its_network() {
    const PROGRAM: &str = r#"
import errno, socket, sys
print([name for _, name in socket.if_nameindex()])
for family, address in (socket.AF_INET, ("192.0.2.1", 80)), (socket.AF_UNIX, sys.argv[1].replace("@", "\0")):
    try:
        socket.socket(family).connect(address)
    except OSError as error:
        print(errno.errorcode[error.errno])
"#;
    let Some(python) = python_with("socket") else {
        return skip("a network of its own", "python3", "python3");
    };
    let name = format!("twinpage-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let _listener = UnixListener::bind_addr(&address).expect("an abstract listener");
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut command = twinpage();
    command
        .arg("run")
        .args(KEEP)
        .arg("--state")
        .arg(scratch.path().join("state"));
    command.args(["--", &python, "-c", PROGRAM, &format!("@{name}")]);
    let out = command.output().expect("twinpage starts");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(
        String::from_utf8_lossy(&out.stdout),
        "['lo']\nENETUNREACH\nECONNREFUSED\n",
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}
