//! Job control: `^Z` stops a program as it does alone, its shell sees it stopped, and goes on with it.

use std::fs;
use std::process::Command;

use crate::support::program::python_with;
use crate::support::skip;

/// A small shell with job control, in a session on a pseudo-terminal of its own: its master types and looks, and its
/// only child, in a process group of its own, is the job. Each step says what must hold before the next; a job that ends
/// before that fails the test.
const SHELL: &str = r#"
import os, pty, signal, sys, termios, time, fcntl, struct, select
how, command = sys.argv[1], sys.argv[2:]
master, slave = pty.openpty()
shown = b''
def look():
    global shown
    if select.select([master], [], [], 0.01)[0]: shown += os.read(master, 65536)
def wait(job, holds):
    while not holds():
        pid, status = os.waitpid(job, os.WUNTRACED | os.WNOHANG)
        assert pid == 0, ('ended or stopped', status, shown)
        look()
def until(job, text): wait(job, lambda: text in shown)
def ticks(job):
    before = shown.count(b'tick')
    wait(job, lambda: shown.count(b'tick') > before + 1)
def modes(): return termios.tcgetattr(slave)[:4]
def size(rows): fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack('HHHH', rows, 80, 0, 0))
def front(pgrp): os.tcsetpgrp(slave, pgrp)
os.setsid()
fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
size(24)
cooked = modes()
def start(command):
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        front(os.getpid())
        for number in [signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP, signal.SIGINT, signal.SIGQUIT]:
            signal.signal(number, signal.SIG_DFL)
        for fd in range(3): os.dup2(slave, fd)
        os.execvp(command[0], command)
    return job
def stopped(job):
    pid = 0
    while not pid:
        look()
        pid, status = os.waitpid(job, os.WUNTRACED | os.WNOHANG)
    assert os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGTSTP, (status, shown)
    front(os.getpgrp())
    look()
    assert modes() == cooked, 'the terminal is not as it was'
    before = shown.count(b'tick')
    time.sleep(0.3); look()
    assert shown.count(b'tick') == before, 'it goes on'
def ended(job):
    pid = 0
    while not pid:
        look()
        pid, status = os.waitpid(job, os.WNOHANG)
    for _ in range(3): look()
    return status

job = start(command)
until(job, b'ready')
os.write(master, b'\x1a')
if how == 'own':
    until(job, b'a stop of its own')
    ticks(job)
else:
    stopped(job)
if how == 'kill':
    os.kill(-job, signal.SIGKILL)
    assert os.WIFSIGNALED(ended(job))
    job = start([command[0], 'resume', 'state'])
    ticks(job)
if how == 'stop':
    stopper = os.spawnv(os.P_WAIT, command[0], [command[0], 'stop', 'state'])
    assert stopper == 0, stopper
    ended(job)
    job = start([command[0], 'resume', 'state'])
    ticks(job)
if how == 'go on':
    os.kill(-job, signal.SIGCONT) # in the background
    until(job, b'continued 1')
    ticks(job)
    assert modes() == cooked, 'the terminal is not its own'
    front(job)
    os.kill(-job, signal.SIGCONT) # in the foreground
    until(job, b'continued 2')
    wait(job, lambda: modes() != cooked)
    os.write(master, b'\x1a')
    stopped(job)
    size(30)
    front(job)
    os.kill(-job, signal.SIGCONT)
    until(job, b'continued 3')
    until(job, b'rows 30')
wait(job, lambda: modes() != cooked)
os.write(master, b'end\n')
status = ended(job)
assert status == 0, (status, shown)
assert modes() == cooked
assert b'bye end' in shown, shown
"#;

/// Ticks, and says what it hears: `^Z` if it is to handle it, SIGCONT, a window of another size, a line that ends it.
const PROGRAM: &str = r#"
import os, select, signal, sys
n = 0
def say(*words): os.write(1, (' '.join(map(str, words)) + '\n').encode())
def continued(*_):
    global n
    n += 1
    say('continued', n)
def resized(*_): say('rows', os.get_terminal_size(0).lines)
def key(*_): say('a stop of its own')
signal.signal(signal.SIGCONT, continued)
signal.signal(signal.SIGWINCH, resized)
if sys.argv[1] == 'own': signal.signal(signal.SIGTSTP, key)
say('ready')
while not select.select([0], [], [], 0.02)[0]: say('tick')
say('bye', sys.stdin.readline().strip())
"#;

fn under_a_shell(how: &str) {
    let Some(python) = python_with("termios") else {
        return skip("job control", "a python3", "python3");
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let file = |name: &str, text: &str| fs::write(scratch.path().join(name), text).expect("a file");
    file("shell.py", SHELL);
    file("program.py", PROGRAM);
    let mut shell = Command::new(&python);
    shell.args(["shell.py", how, env!("CARGO_BIN_EXE_twinpage")]);
    shell.args(["run", "--every", "10ms", "--state", "state", "--keep-state", "--"]);
    shell.args([&python, "program.py", how]);
    let out = shell.current_dir(scratch.path()).output().expect("python starts");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn a_stopped_job_goes_on_in_the_background_and_in_the_foreground() {
    under_a_shell("go on");
}

#[test]
fn a_job_killed_while_it_is_stopped_is_resumed() {
    under_a_shell("kill");
}

#[test]
fn a_stopped_job_can_be_suspended() {
    under_a_shell("stop");
}

#[test]
fn a_program_that_handles_the_key_is_not_stopped() {
    under_a_shell("own");
}
