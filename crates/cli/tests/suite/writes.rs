//! A program writes without a stop until it has a descriptor whose writes are looked at. Files that only grow are not.

use crate::support::process::twinpage;
use crate::support::program::python_with;
use crate::support::skip;

/// What a program is under after each step is told by the number of its filters: seccomp(2).
const STEPS: &str = "
import fcntl, mmap, os, signal, socket, sys, threading
kept = []
def new():
    kept.append(open('made', 'w'))
    return kept[-1]
def thread_that_stays():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
def filters():
    status = open('/proc/self/status').read()
    return int(status.split('Seccomp_filters:')[1].split()[0])
def thread():
    one = threading.Thread(target=print); one.start(); one.join()
def try_to_connect(name):
    try: socket.socket(socket.AF_UNIX).connect(name)
    except OSError: pass
def child():
    pid = os.fork()
    if not pid: os._exit(0)
    os.waitpid(pid, 0)
def sender():
    server = socket.create_server(('127.0.0.1', 0))
    ends = socket.create_connection(server.getsockname()), server.accept()[0]
    ends[0].sendmsg([b'some', b'thing']); os.write(ends[0].fileno(), b'!'); assert ends[1].recv(10) == b'something!'
    ends[1].sendall(b'an answer'); assert ends[0].recv(10) == b'an answer'
steps = dict(
    nothing=lambda: None,
    reading=lambda: open('/proc/self/maps').read(),
    devices=lambda: [open('/dev/' + name, 'wb') for name in ('null', 'zero')],
    pipe=lambda: os.write(os.pipe()[1], b'x'),
    counter=lambda: os.write(os.eventfd(0), bytes(8)),
    thread=thread,
    connection=sender,
    name_of_a_thread=lambda: open('/proc/self/task/' + str(threading.get_native_id()) + '/comm', 'w').write('other'),
    nowhere=lambda: try_to_connect('nowhere'),
    new=lambda: open('made', 'w').write('x'),
    appends=lambda: open('there', 'a').write('x'),
    appends_and_reads=lambda: open('there', 'a+').write('x'),
    emptied=lambda: open('there', 'w'),
    queries=lambda: open('made', 'w').tell(),
    closes=lambda: [open('made', 'w').close() for _ in range(9)],
    makes_names=lambda: (open('made', 'w').write('x'), os.mkdir('d'), os.rmdir('d'), os.rename('there', 'here')),
    end=lambda: os.open('there', os.O_WRONLY),
    both=lambda: os.open('there', os.O_RDWR),
    twice=lambda: [open('there', 'a') for _ in range(2)],
    seeks=lambda: new().seek(1),
    copied=lambda: os.dup(new().fileno()),
    placed=lambda: os.dup2(new().fileno(), 40),
    overwritten=lambda: os.pwrite(new().fileno(), b'x', 0),
    cut=lambda: os.truncate(new().fileno(), 0),
    extended=lambda: (new(), os.truncate('made', 9)),
    sent_to=lambda: os.sendfile(new().fileno(), os.open('there', os.O_RDONLY), 0, 3),
    moved=lambda: (new(), os.rename('made', 'moved')),
    replaced=lambda: (new(), os.rename('there', 'made')),
    removed=lambda: (new(), os.unlink('made')),
    linked=lambda: (new(), os.link('made', 'linked')),
    raised=lambda: os.chmod(new().fileno(), 0o4755),
    anywhere=lambda: fcntl.fcntl(open('there', 'a'), fcntl.F_SETFL, 0),
    mapped=lambda: (new(), mmap.mmap(os.open('there', os.O_RDONLY), 0, mmap.MAP_SHARED, mmap.PROT_READ)),
    with_threads=lambda: (thread_that_stays(), new()),
    parent=lambda: (signal.signal(signal.SIGCHLD, lambda *_: None), new()),
    again=lambda: open('/proc/self/fd/' + str(os.open('there', os.O_RDONLY)), 'r+'),
    called_comm=lambda: open('/proc/self/cwd/comm', 'w').write('x'),
    memory=lambda: os.memfd_create('memory'),
    pair=lambda: socket.socketpair(),
    datagrams=lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
    netlink=lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    name=lambda: socket.socket(socket.AF_UNIX).bind('name'),
    setting=lambda: open('/proc/self/oom_score_adj', 'w').write('0'),
    master=lambda: os.openpty(),
    child=child)
before = filters()
kept.append(steps[sys.argv[1]]())
between = filters()
os.open('last', os.O_RDWR | os.O_CREAT)
print(between - before, filters() - before)
sys.stdout.flush()
os._exit(0)
";

/// What each adds of filters, and with it a file that needs the full one.
const FREE: [&str; 11] = [
    "nothing",
    "reading",
    "devices",
    "pipe",
    "counter",
    "thread",
    "connection",
    "nowhere",
    "name_of_a_thread",
    "appends",
    "appends_and_reads",
];
/// Under a filter that has seeks stop.
const GROWS: [&str; 5] = ["new", "emptied", "queries", "closes", "makes_names"];
/// The full one, behind that.
const GREW: [&str; 13] = [
    "seeks",
    "copied",
    "placed",
    "overwritten",
    "cut",
    "extended",
    "sent_to",
    "moved",
    "replaced",
    "removed",
    "linked",
    "raised",
    "mapped",
];
const WATCHED: [&str; 16] = [
    "end",
    "both",
    "twice",
    "anywhere",
    "with_threads",
    "parent",
    "again",
    "called_comm",
    "memory",
    "pair",
    "datagrams",
    "name",
    "setting",
    "master",
    "child",
    "netlink",
];

#[test]
fn a_program_writes_freely_until_it_has_a_file() {
    let Some(python) = python_with("socket") else {
        return skip("writes without a stop", "python3", "python3");
    };
    let steps = FREE.map(|step| (step, "0 1")).into_iter();
    let steps = steps.chain(GROWS.map(|step| (step, "1 2")));
    let steps = steps.chain(GREW.map(|step| (step, "2 2")));
    for (step, expected) in steps.chain(WATCHED.map(|step| (step, "1 1"))) {
        let filters = |replies: &str| {
            let scratch = tempfile::tempdir().expect("a scratch directory");
            std::fs::write(scratch.path().join("there"), "before").expect("a file");
            let run = twinpage()
                .args([
                    "run",
                    "--replies",
                    replies,
                    "--every",
                    "5ms",
                    "--",
                    &python,
                    "-c",
                    STEPS,
                    step,
                ])
                .current_dir(scratch.path())
                .output()
                .expect("twinpage runs");
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
            assert!(run.status.success(), "{step}: {}", text(&run.stderr));
            text(&run.stdout)
        };
        assert_eq!(filters("loose"), expected, "{step}");
        match step {
            "connection" => assert_eq!(filters("held"), "1 1", "what it sends is held"),
            "nothing" | "new" => assert_eq!(filters("held"), expected, "{step}"),
            _ => {}
        }
    }
}

/// One that begins with a file has all of its writes looked at.
#[test]
fn a_program_whose_output_is_a_file_writes_none_unseen() {
    let Some(python) = python_with("socket") else {
        return skip("writes into an inherited file", "python3", "python3");
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let inherited = scratch.path().join("inherited");
    let ask = "\"$TWINPAGE\" run --every 5ms -- \"$0\" -c \"$1\" nothing 3>>inherited && cat inherited";
    let program = STEPS.replace("print(between", "os.write(3, b'seen'); print(before - 1, between");
    let run = std::process::Command::new("bash")
        .args(["-c", ask, &python, &program])
        .env("TWINPAGE", env!("CARGO_BIN_EXE_twinpage"))
        .current_dir(scratch.path())
        .output()
        .expect("bash runs");
    let (out, err) = [&run.stdout, &run.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .into();
    assert!(run.status.success() && inherited.exists(), "{err}");
    assert!(out.ends_with("0 0\nseen"), "{out}: {err}");
}
