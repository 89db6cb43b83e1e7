//! Killed exactly between two system calls: at the entry or the exit of the n-th one, under ptrace(2).
//!
//! At the exit of a system call the kernel has done all of it, and the process has seen nothing of
//! it: the narrowest place between a write and the note that it was made.

use crate::runner::{Job, expected, start};
use crate::support::{collect, null, pipe, same};
use rustix::fd::{AsFd, OwnedFd};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Where a traced run is to be killed.
#[derive(Clone, Copy, Debug)]
enum Until {
    /// At the n-th entry or exit of a system call that moves bytes.
    Point(u64),
    /// At the first exit of this system call by the relay thread that moved something outside.
    ExitOf(i64),
    /// Not at all.
    End,
}

/// How a traced run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    Killed,
    Done,
}

/// Everything that moves bytes between the program, the state directory and the outside.
const MOVES: [i64; 6] = [
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_read,
    libc::SYS_rename,
];

/// Runs a runner under trace up to `until`. `refuse` makes every sendfile(2) fail with ENOSYS, as a
/// file does that cannot be sent to.
fn run(job: &Job, fds: [&OwnedFd; 3], until: Until, refuse: bool) -> Ended {
    // Waited for below, thread by thread.
    #[expect(clippy::zombie_processes)]
    let child = start(job, fds.map(AsFd::as_fd), true);
    let pid = child.id() as i32;
    let (mut calls, mut points): (HashMap<i32, i64>, u64) = (HashMap::new(), 0);
    let mut first = true;
    loop {
        let mut status = 0;
        // SAFETY: fills the status. This thread's children and tracees only.
        let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        assert!(tid > 0, "waitpid: {}", std::io::Error::last_os_error());
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            if tid == pid {
                assert!(
                    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
                    "status {status:#x}"
                );
                return Ended::Done;
            }
            continue;
        }
        if first {
            let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
            ptrace(libc::PTRACE_SETOPTIONS, tid, 0, options as usize);
            first = false;
        }
        let mut signal = 0;
        match libc::WSTOPSIG(status) {
            stop if stop == libc::SIGTRAP | 0x80 => {
                let info = syscall_info(tid);
                let entry = info.op == libc::PTRACE_SYSCALL_INFO_ENTRY;
                // SAFETY: the kernel says which of the two it filled.
                let (nr, result) = unsafe {
                    if entry {
                        (info.u.entry.nr as i64, 0)
                    } else {
                        (calls[&tid], info.u.exit.sval)
                    }
                };
                calls.insert(tid, nr);
                if entry && refuse && nr == libc::SYS_sendfile {
                    // SAFETY: the offset of orig_rax in struct user, where user_regs_struct is first.
                    let at = std::mem::offset_of!(libc::user_regs_struct, orig_rax);
                    ptrace(libc::PTRACE_POKEUSER, tid, at, usize::MAX);
                }
                points += u64::from(MOVES.contains(&nr));
                let here = match until {
                    Until::Point(n) => points == n && MOVES.contains(&nr),
                    Until::ExitOf(n) => !entry && nr == n && result > 8 && is_relay(tid),
                    Until::End => false,
                };
                if here {
                    kill(pid);
                    return Ended::Killed;
                }
            }
            // A new thread's first stop, exec, clone.
            libc::SIGTRAP | libc::SIGSTOP => {}
            other => signal = other,
        }
        ptrace(libc::PTRACE_SYSCALL, tid, 0, signal as usize);
    }
}

/// Kills a tracee and waits for each of its threads.
fn kill(pid: i32) {
    // SAFETY: a child of this thread, not waited for yet.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    loop {
        let mut status = 0;
        // SAFETY: fills the status.
        let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        if tid < 0 || (tid == pid && libc::WIFSIGNALED(status)) {
            return;
        }
    }
}

fn ptrace(request: u32, tid: i32, at: usize, data: usize) {
    // SAFETY: none of the requests used here reads or writes memory of this process. A thread that
    // is being killed may be gone (ESRCH).
    unsafe { libc::ptrace(request, tid, at, data) };
}

fn syscall_info(tid: i32) -> libc::ptrace_syscall_info {
    let mut info = std::mem::MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
    let len = std::mem::size_of::<libc::ptrace_syscall_info>();
    // SAFETY: the kernel writes up to `len` bytes; zeros are a valid value of it.
    unsafe {
        libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, tid, len, info.as_mut_ptr());
        info.assume_init()
    }
}

fn is_relay(tid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{tid}/comm")).is_ok_and(|name| name.trim() == "stdio")
}

fn job(dir: &Path, disk: bool) -> Job {
    Job {
        dir: dir.into(),
        lines: 400,
        stderr_every: 0,
        read_every: 3,
        longest: 400,
        disk,
        limit_bytes: 64 << 20,
        epoch_us: 2000,
        think_us: 300,
    }
}

/// An input with one line for each that is read, ready in a pipe.
fn input() -> (OwnedFd, Vec<u8>) {
    let (read, write) = pipe();
    let said: Vec<u8> = (0..134).flat_map(|i| crate::runner::line(i + 9, 100)).collect();
    assert_eq!(rustix::io::write(&write, &said).unwrap(), said.len());
    (read, said)
}

/// The same through a socket, which cannot be spliced into a file.
fn socket_input() -> (OwnedFd, Vec<u8>) {
    let (mut write, read) = UnixStream::pair().unwrap();
    let said: Vec<u8> = (0..134).flat_map(|i| crate::runner::line(i + 9, 100)).collect();
    write.write_all(&said).unwrap();
    (read.into(), said)
}

/// One life after another, each killed one point later than the one before it, until one ends.
///
/// All on one processor: a stop that wakes another one takes four times as long.
fn lives(job: &Job, fds: [&OwnedFd; 3]) -> u64 {
    let one_after_another = || {
        let mut here = CpuSet::new();
        here.set(sched_getcpu());
        sched_setaffinity(None, &here).unwrap();
        (1..)
            .find(|&point| run(job, fds, Until::Point(point), false) == Ended::Done)
            .unwrap()
    };
    std::thread::scope(|scope| scope.spawn(one_after_another).join().unwrap())
}

#[test]
fn killed_at_every_point_through_a_pipe() {
    for disk in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let job = job(dir.path(), disk);
        let (input, said) = input();
        let (read, out) = pipe();
        let all = collect(read);
        let lives = lives(&job, [&input, &out, &out]);
        drop(out);
        same(&all.join().unwrap(), &expected(&job, &said).0, "stdout");
        println!("killed_at_every_point_through_a_pipe: {lives} lives, disk {disk}");
    }
}

#[test]
fn killed_at_every_point_from_a_socket_into_a_file() {
    for append in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let job = job(dir.path(), append);
        let (input, said) = socket_input();
        let path = dir.path().join("out");
        let mut options = OpenOptions::new();
        let out: OwnedFd = options
            .create(true)
            .write(true)
            .append(append)
            .open(&path)
            .unwrap()
            .into();
        let lives = lives(&job, [&input, &out, &out]);
        same(&std::fs::read(&path).unwrap(), &expected(&job, &said).0, "stdout");
        println!("killed_at_every_point_from_a_socket_into_a_file: {lives} lives, append {append}");
    }
}

/// The narrowest place: the bytes are outside, and this process never knew. Returns what came out
/// and what should have, with how many kills there were.
fn at_the_window(call: i64, refuse: bool) -> (Vec<u8>, Vec<u8>, usize) {
    let dir = tempfile::tempdir().unwrap();
    let job = Job {
        lines: 150,
        read_every: 0,
        ..job(dir.path(), false)
    };
    let (read, out) = pipe();
    let all = collect(read);
    let mut kills = 0;
    while kills < 5 && run(&job, [&null(), &out, &out], Until::ExitOf(call), refuse) == Ended::Killed {
        kills += 1;
    }
    assert_eq!(run(&job, [&null(), &out, &out], Until::End, refuse), Ended::Done);
    drop(out);
    (all.join().unwrap(), expected(&job, b"").0, kills)
}

#[test]
fn what_the_kernel_counts_is_never_repeated() {
    let (found, wanted, kills) = at_the_window(libc::SYS_sendfile, false);
    assert_eq!(kills, 5);
    same(&found, &wanted, "stdout");
    println!(
        "what_the_kernel_counts_is_never_repeated: {kills} kills right after sendfile, 0 bytes repeated"
    );
}

#[test]
fn what_was_read_from_a_socket_is_never_lost() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path(), false);
    let (input, said) = socket_input();
    let (read, out) = pipe();
    let all = collect(read);
    let fds = [&input, &out, &out];
    let mut kills = 0;
    while run(&job, fds, Until::ExitOf(libc::SYS_read), false) == Ended::Killed {
        kills += 1;
    }
    assert!(kills > 0);
    drop(out);
    same(&all.join().unwrap(), &expected(&job, &said).0, "stdout");
    println!("what_was_read_from_a_socket_is_never_lost: {kills} kills right after read");
}

#[test]
fn what_must_be_counted_afterwards_is_repeated_by_that_write_only() {
    let (found, wanted, kills) = at_the_window(libc::SYS_write, true);
    assert_eq!(kills, 5);
    let repeated = found.len() - wanted.len();
    assert!(repeated > 0 && repeated <= kills * 4096, "{repeated}");
    // Nothing is lost, and nothing is out of order but what is repeated.
    let mut left = &found[..];
    let mut at = 0;
    while !left.is_empty() {
        let n = left.iter().zip(&wanted[at..]).take_while(|(a, b)| a == b).count();
        left = &left[n..];
        at += n;
        if !left.is_empty() {
            let back = (1..=at.min(4096)).find(|back| {
                let again = &wanted[at - back..];
                left.iter().zip(again).take_while(|(a, b)| a == b).count() >= left.len().min(*back)
            });
            at -= back.expect("a repetition of the last write");
        }
    }
    assert_eq!(at, wanted.len());
    println!("{kills} kills between a write and its count: {repeated} bytes repeated");
}
