//! Servers and their clients in one tree, connected over TCP: killed at random instants and resumed.

use serde_json::Value;
use std::fs;
use std::net::TcpListener;

use crate::support::process::twinpage;
use crate::support::program::{python_with, which};
use crate::support::skip;
use crate::trees::survives;

/// A port that is free now.
fn port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    listener.local_addr().expect("its address").port().to_string()
}

#[test]
fn redis_and_its_clients_in_one_script() {
    let script = "redis-server --port $0 --save '' --appendonly no > /dev/null &
        until [ \"$(redis-cli -p $0 ping 2> /dev/null)\" = PONG ]; do sleep 0.02; done
        seq 1 20000 | sed 's/.*/INCRBY total &/' | redis-cli -p $0 --pipe > /dev/null
        for i in 1 2 3 4 5 6; do redis-cli -p $0 get total; redis-cli -p $0 lpush list $i; sleep 0.05; done
        seq 1 3000 | sed 's/.*/RPUSH list &/' | redis-cli -p $0 | tail -1
        redis-cli -p $0 shutdown nosave; wait; echo end";
    survives(
        "redis and its clients",
        &["redis-server", "redis-cli", "bash"],
        &["bash", "-c", script, &port()],
    );
}

/// Connections that are kept, and edges that were told: one process has both ends.
#[test]
fn node_that_asks_itself() {
    let program = r"
const http = require('http'), agent = new http.Agent({ keepAlive: true, maxSockets: 3 });
const server = http.createServer((request, response) => {
    let sum = Number(request.url.slice(1));
    for (let i = 0; i < 200000; i++) sum = (sum * 31 + i) % 1000003;
    response.end(String(sum) + 'x'.repeat(sum % 5000));
});
const ask = path => new Promise((done, failed) => http.get({ port: server.address().port, path, agent }, answer => {
    let text = '';
    answer.on('data', more => text += more).on('end', () => done(text));
}).on('error', failed));
server.listen(0, '127.0.0.1', async () => {
    for (let turn = 0; turn < 60; turn++) {
        const got = await Promise.all([0, 1, 2, 3, 4].map(n => ask('/' + (turn * 5 + n))));
        if (turn % 10 === 0) console.log(turn, got.map(text => parseInt(text) + ' ' + text.length).join(', '));
    }
    agent.destroy();
    server.close(() => console.log('end'));
});";
    survives("node that asks itself", &["node"], &["node", "-e", program]);
}

/// A checkpoint waits for a program without descendants as for a tree: once, until it is made, and is tried more and more
/// rarely.
#[test]
fn a_connection_that_nothing_accepts_is_waited_for_once() {
    const PROGRAM: &str = r#"
import socket, time
def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end: pass
server = socket.create_server(("127.0.0.1", 0))
own = socket.create_connection(server.getsockname())
work(1)
server.accept()
work(0.5)
"#;
    let Some(python) = python_with("socket") else {
        return skip("a connection that nothing accepts", "python3", "python3");
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let stats = scratch.path().join("stats");
    let mut command = twinpage();
    command.args(["run", "--every", "5ms", "--durability", "memory", "--stats"]);
    command
        .arg(&stats)
        .arg("--state")
        .arg(scratch.path().join("state"));
    let out = command.args(["--", &python, "-c", PROGRAM]).output();
    let out = out.expect("twinpage starts");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let stats = fs::read_to_string(stats).expect("statistics");
    let stats: Value = serde_json::from_str(&stats).expect("JSON");
    let longest = stats["waits"]["longest_us"].as_u64();
    assert!(longest.is_some_and(|us| us > 900_000), "{}", stats["waits"]);
}

/// MPI's processes find each other over TCP, and share memory.
#[test]
fn processes_of_mpi() {
    let source = r#"
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int rank, size;
    double x[2000], sums[2000], total = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 2000; i++) x[i] = rank + i * 0.001;
    for (int step = 0; step < 2000; step++) {
        MPI_Allreduce(x, sums, 2000, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < 2000; i++) x[i] = x[i] * 0.999 + sums[i] / size * 0.001 + (i % 7) * 1e-6;
        total += sums[step % 2000];
        if (rank == 0 && step % 400 == 0) printf("%d %.12g\n", step, total), fflush(stdout);
    }
    if (rank == 0) printf("end %.12g\n", total);
    return MPI_Finalize();
}"#;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (file, binary) = (scratch.path().join("ring.c"), scratch.path().join("ring"));
    std::fs::write(&file, source).expect("a source");
    if let Some(compiler) = which("mpicc") {
        let mut compile = std::process::Command::new(compiler);
        let built = compile.arg("-O2").arg("-o").arg(&binary).arg(&file).status();
        assert!(
            built.is_ok_and(|status| status.success()),
            "{} is compiled",
            file.display()
        );
    }
    let binary = binary.display().to_string();
    let words = [
        "mpirun",
        "--allow-run-as-root",
        "--oversubscribe",
        "-n",
        "2",
        &binary,
    ];
    survives("two processes of MPI", &["mpicc", "mpirun"], &words);
}
