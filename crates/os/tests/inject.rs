//! Calls made in a stopped process.

use std::io::Read;
use std::process::{Command, Stdio};
use twinpage_os::inject;
use twinpage_os::remote::Process;
use twinpage_os::trace::{self, Status};

/// It tells its end where the signal came from: sigaction(2), `SA_SIGINFO`.
const PROGRAM: &str = "use POSIX;
    my $handler = POSIX::SigAction->new(sub { print $_[1]{pid}; exit }, POSIX::SigSet->new, SA_SIGINFO);
    sigaction(SIGUSR1, $handler);
    pause while 1";

/// The code is not there yet, so one is made to map it, too.
#[test]
fn a_signal_keeps_its_origin_when_calls_are_made_where_it_stopped() {
    let mut program = Command::new("perl");
    program.args(["-e", PROGRAM]).stdout(Stdio::piped());
    let mut child = program.spawn().expect("perl starts");
    let pid = child.id() as i32;
    let pauses = format!("{} ", libc::SYS_pause);
    let call = || std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    while !call().starts_with(&pauses) {
        std::thread::yield_now();
    }
    trace::seize(pid).expect("a child may be traced");
    let mut kill = Command::new("sh");
    let sender = kill.args(["-c", &format!("kill -USR1 {pid}")]).spawn();
    let mut sender = sender.expect("sh starts");
    assert!(sender.wait().expect("sh ends").success());
    let stop = trace::wait(pid, true).expect("it is a tracee");
    assert_eq!(stop, Some((pid, Status::Signal(libc::SIGUSR1))));
    let process = Process::open(pid).expect("a tracee can be opened");
    inject::plant(&process, pid).expect("the code is mapped");
    let told = inject::call(&process, pid, libc::SYS_getpid, &[]).expect("a call");
    assert_eq!(told, pid as u64);
    trace::go_on(pid, libc::SIGUSR1).expect("it is stopped");
    let stop = trace::wait(pid, true).expect("it is a tracee");
    assert_eq!(stop, Some((pid, Status::Event(trace::EVENT_EXIT))));
    trace::go_on(pid, 0).expect("it ends");
    let mut origin = String::new();
    let mut out = child.stdout.take().expect("it is piped");
    out.read_to_string(&mut origin).expect("text");
    assert!(child.wait().expect("it ended").success());
    assert_eq!(origin, sender.id().to_string());
}
