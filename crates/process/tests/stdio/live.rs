//! Streams of a program that goes on living: when things go outside, what a program sees of its
//! terminal, and what happens when the outside goes away.

use crate::support::{Rng, collect, null, pipe, same};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::{OptionalActions, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;
use twinpage_process::stdio::{Error, Options, RealStreams, Stdio, StdioContext, Stream};

/// A terminal: the side a person sits at, and the side programs have.
pub(crate) fn terminal() -> (OwnedFd, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags).unwrap();
    tcsetwinsize(
        &slave,
        Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        },
    )
    .unwrap();
    (master, slave)
}

fn options(dir: &Path) -> Options {
    Options::new(dir, false)
}

fn on_terminal(slave: &OwnedFd) -> RealStreams {
    RealStreams::new([0, 1, 2].map(|_| Some(slave.try_clone().unwrap())))
}

/// Reads exactly `n` bytes.
fn exactly(fd: impl AsFd, n: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < n {
        let mut bytes = vec![0; n - all.len()];
        let got = rustix::io::read(&fd, &mut bytes[..]).unwrap();
        assert!(got > 0, "ended after {} of {n} bytes", all.len());
        all.extend(&bytes[..got]);
    }
    all
}

/// What is there to read, without waiting.
fn at_hand(fd: &OwnedFd) -> Vec<u8> {
    let flags = rustix::fs::fcntl_getfl(fd).unwrap();
    rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK).unwrap();
    let mut bytes = vec![0; 65536];
    let n = rustix::io::read(fd, &mut bytes[..]).unwrap_or(0);
    rustix::fs::fcntl_setfl(fd, flags).unwrap();
    bytes.truncate(n);
    bytes
}

/// A context as it comes back from a checkpoint.
fn stored(context: &StdioContext) -> StdioContext {
    serde_json::from_str(&serde_json::to_string(context).unwrap()).unwrap()
}

fn write(fd: &OwnedFd, bytes: &[u8]) {
    assert_eq!(rustix::io::write(fd, bytes).unwrap(), bytes.len());
}

/// Waits until the relay has done something; it always comes to pass.
fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        std::thread::yield_now();
    }
}

#[test]
fn nothing_goes_outside_before_its_epoch_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let (read, out) = pipe();
    let stdio = Stdio::run(
        RealStreams::new([None, Some(out), Some(null())]),
        options(dir.path()),
    )
    .unwrap();
    let [None, Some(end), None] = stdio.program_ends() else {
        panic!("only stdout is relayed")
    };
    stdio.begin();
    write(&end, b"one\n");
    stdio.stop_point(1).unwrap();
    write(&end, b"two\n");
    stdio.stop_point(2).unwrap();
    stdio.before_commit(1).unwrap();
    assert_eq!(at_hand(&read), b"");
    stdio.durable(1).unwrap();
    assert_eq!(exactly(&read, 4), b"one\n");
    assert_eq!(stdio.stats().held_bytes, 4);
    assert_eq!(at_hand(&read), b"");
    stdio.durable(2).unwrap();
    assert_eq!(exactly(&read, 4), b"two\n");
    // An epoch that failed is covered by the next.
    write(&end, b"three\n");
    stdio.stop_point(3).unwrap();
    stdio.stop_point(4).unwrap();
    stdio.durable(4).unwrap();
    assert_eq!(exactly(&read, 6), b"three\n");
    let stats = stdio.finish().unwrap();
    assert_eq!((stats.held_bytes, stats.released_bytes), (0, 14));
}

#[test]
fn what_a_program_closed_is_closed_outside_once_durable() {
    let dir = tempfile::tempdir().unwrap();
    let (read, out) = pipe();
    let stdio = Stdio::run(RealStreams::new([None, Some(out), None]), options(dir.path())).unwrap();
    let [_, Some(end), _] = stdio.program_ends() else {
        panic!("stdout is relayed")
    };
    write(&end, b"last words");
    drop(end);
    let context = stdio.stop_point(1).unwrap();
    assert_eq!(at_hand(&read), b"");
    stdio.durable(1).unwrap();
    let mut all = Vec::new();
    File::from(read).read_to_end(&mut all).unwrap();
    assert_eq!(all, b"last words");
    drop(stdio);
    // And so it stays.
    let (read, out) = pipe();
    let outside = RealStreams::new([None, Some(out), None]);
    let _stdio = Stdio::resume(outside, options(dir.path()), &stored(&context)).unwrap();
    let mut all = Vec::new();
    File::from(read).read_to_end(&mut all).unwrap();
    assert_eq!(all, b"");
}

#[test]
fn a_reader_that_went_away_is_the_programs_broken_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let (read, out) = pipe();
    let mut options = options(dir.path());
    options.limit_bytes = 1 << 20;
    let stdio = Stdio::run(RealStreams::new([None, Some(out), None]), options).unwrap();
    let [_, end, _] = stdio.program_ends();
    let mut child = Command::new("yes").stdout(end.unwrap()).spawn().unwrap();
    stdio.begin();
    // It prints until the limit, and then asks for a checkpoint.
    until(|| stdio.wants_checkpoint() && stdio.stats().limit_reached > 0);
    stdio.stop_point(1).unwrap();
    stdio.durable(1).unwrap();
    assert_eq!(exactly(&read, 6), b"y\ny\ny\n");
    drop(read);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGPIPE));
    let stats = stdio.finish().unwrap();
    assert_eq!(stats.held_bytes, 0);
    // Held in files, and not much more than the limit.
    assert!(
        stats.held_bytes_max >= 1 << 20 && stats.held_bytes_max < 3 << 20,
        "{stats:?}"
    );
}

#[test]
fn an_outside_that_refuses_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // A file that may not grow, as on a full disk.
    let name = c"full";
    // SAFETY: a name and flags.
    let raw = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_ALLOW_SEALING | libc::MFD_CLOEXEC) };
    // SAFETY: just made, and owned here alone.
    let full = unsafe { <OwnedFd as rustix::fd::FromRawFd>::from_raw_fd(raw) };
    rustix::fs::fcntl_add_seals(&full, rustix::fs::SealFlags::GROW).unwrap();
    let stdio = Stdio::run(RealStreams::new([None, Some(full), None]), options(dir.path())).unwrap();
    let [_, Some(end), _] = stdio.program_ends() else {
        panic!("stdout is relayed")
    };
    write(&end, b"important\n");
    drop(end);
    let context = stdio.stop_point(1).unwrap();
    stdio.durable(1).unwrap();
    let error = stdio.finish().unwrap_err();
    assert!(
        matches!(error, Error::RealStreams { stream: "stdout", .. }),
        "{error}"
    );
    assert!(error.to_string().contains("resume"), "{error}");
    drop(stdio);
    let (read, out) = pipe();
    let outside = RealStreams::new([None, Some(out), None]);
    let stdio = Stdio::resume(outside, options(dir.path()), &stored(&context)).unwrap();
    stdio.finish().unwrap();
    assert_eq!(exactly(&read, 10), b"important\n");
}

#[test]
fn input_ends_for_the_program_where_it_ended_outside() {
    let dir = tempfile::tempdir().unwrap();
    let (input, keys) = pipe();
    write(&keys, b"all there is");
    drop(keys);
    let stdio = Stdio::run(RealStreams::new([Some(input), None, None]), options(dir.path())).unwrap();
    let [Some(end), None, None] = stdio.program_ends() else {
        panic!("stdin is relayed")
    };
    let first = stdio.stop_point(1).unwrap();
    stdio.begin();
    assert_eq!(exactly(&end, 4), b"all ");
    until(|| stdio.stats().input_bytes == 12);
    let second = stdio.stop_point(2).unwrap();
    let mut rest = Vec::new();
    File::from(end).read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"there is");
    let third = stdio.stop_point(3).unwrap();
    drop(stdio);
    for (context, wanted) in [(first, "all there is"), (second, "there is"), (third, "")] {
        let outside = RealStreams::new([Some(null()), None, None]);
        let stdio = Stdio::resume(outside, options(dir.path()), &stored(&context)).unwrap();
        let [Some(end), None, None] = stdio.program_ends() else {
            panic!("stdin is relayed")
        };
        stdio.begin();
        let mut rest = String::new();
        File::from(end).read_to_string(&mut rest).unwrap();
        assert_eq!(rest, wanted);
    }
}

#[test]
fn a_program_on_a_terminal_sees_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let (master, slave) = terminal();
    let before = tcgetattr(&slave).unwrap();
    let stdio = Stdio::run(on_terminal(&slave), options(dir.path())).unwrap();
    assert_eq!(stdio.terminal(), Some(Stream::Stdin));
    let [Some(stdin), Some(stdout), Some(_)] = stdio.program_ends() else {
        panic!("all are relayed")
    };
    let id = rustix::fs::fstat(&stdout).unwrap();
    assert_eq!(stdio.identify(id.st_dev, id.st_ino), Some(Stream::Stdin));
    let seen = tcgetattr(&stdin).unwrap();
    assert_eq!(
        (seen.local_modes, seen.output_modes),
        (before.local_modes, before.output_modes)
    );
    assert_eq!(tcgetwinsize(&stdin).unwrap().ws_col, 80);
    stdio.begin();
    // What is typed is echoed, held, and read as a line.
    write(&master, b"hellp\x7fo\r");
    assert_eq!(exactly(&stdin, 6), b"hello\n");
    write(&stdout, b"hi\n");
    assert_eq!(at_hand(&master), b"");
    stdio.stop_point(1).unwrap();
    stdio.durable(1).unwrap();
    let shown = b"hellp\x08 \x08o\r\nhi\r\n";
    same(&exactly(&master, shown.len()), shown, "the screen");
    // A change of size is passed on.
    tcsetwinsize(
        &slave,
        Winsize {
            ws_row: 50,
            ws_col: 132,
            ws_xpixel: 0,
            ws_ypixel: 0,
        },
    )
    .unwrap();
    // SAFETY: a signal that is handled.
    unsafe { libc::kill(libc::getpid(), libc::SIGWINCH) };
    until(|| tcgetwinsize(&stdin).unwrap().ws_col == 132);
    // In use, the real terminal passes bytes as they are; afterwards it is as it was.
    assert!(
        !tcgetattr(&slave)
            .unwrap()
            .local_modes
            .contains(rustix::termios::LocalModes::ECHO)
    );
    stdio.finish().unwrap();
    let after = tcgetattr(&slave).unwrap();
    assert_eq!(
        (after.local_modes, after.input_modes),
        (before.local_modes, before.input_modes)
    );
}

/// Types `keys` into a fresh terminal program's end, stops it there, resumes it on another terminal.
/// Returns the resumed streams, the person's side, the program's end.
fn typed_then_resumed(
    dir: &Path,
    keys: &[u8],
    change: impl FnOnce(&mut Termios),
    read_first: usize,
) -> (Stdio, OwnedFd, OwnedFd) {
    let (master, slave) = terminal();
    let stdio = Stdio::run(on_terminal(&slave), options(dir)).unwrap();
    let [Some(end), _, _] = stdio.program_ends() else {
        panic!("a terminal")
    };
    let mut modes = tcgetattr(&end).unwrap();
    change(&mut modes);
    tcsetattr(&end, OptionalActions::Now, &modes).unwrap();
    stdio.begin();
    write(&master, keys);
    until(|| stdio.stats().input_bytes == keys.len() as u64);
    exactly(&end, read_first);
    // Twice: looking at what was typed leaves it as it was.
    stdio.stop_point(1).unwrap();
    let context = stdio.stop_point(2).unwrap();
    stdio.durable(2).unwrap();
    until(|| stdio.stats().held_bytes == 0);
    drop(stdio);
    let (master, slave) = terminal();
    let stdio = Stdio::resume(on_terminal(&slave), options(dir), &stored(&context)).unwrap();
    let [Some(end), _, _] = stdio.program_ends() else {
        panic!("a terminal")
    };
    assert_eq!(tcgetattr(&end).unwrap().local_modes, modes.local_modes);
    stdio.begin();
    (stdio, master, end)
}

/// Everything that was shown, once it is durable.
fn screen(stdio: &Stdio, master: &OwnedFd) -> Vec<u8> {
    stdio.stop_point(9).unwrap();
    stdio.durable(9).unwrap();
    until(|| stdio.stats().held_bytes == 0);
    at_hand(master)
}

#[test]
fn half_a_line_typed_before_a_kill_can_be_finished_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let (stdio, master, end) = typed_then_resumed(dir.path(), b"one\rtwo\rpar", |_| (), 0);
    assert_eq!(exactly(&end, 4), b"one\n");
    write(&master, b"x\x7ftial\r");
    assert_eq!(exactly(&end, 4), b"two\n");
    assert_eq!(exactly(&end, 8), b"partial\n");
    // The first half was echoed before, and is not again.
    same(&screen(&stdio, &master), b"x\x08 \x08tial\r\n", "the screen");
}

#[test]
fn much_that_was_typed_ahead_arrives_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (master, slave) = terminal();
    let stdio = Stdio::run(on_terminal(&slave), options(dir.path())).unwrap();
    let [Some(end), _, _] = stdio.program_ends() else {
        panic!("a terminal")
    };
    stdio.begin();
    // More than the kernel's queue holds, and one line that fills it alone.
    let line = |i: usize| {
        if i == 700 {
            "w".repeat(4095)
        } else {
            format!("line {i} {}", "v".repeat(i % 30))
        }
    };
    let types = std::thread::spawn(move || {
        for i in 0..1500 {
            let keys = format!("{}\r", line(i));
            let mut keys = keys.as_bytes();
            while !keys.is_empty() {
                keys = &keys[rustix::io::write(&master, keys).unwrap()..];
            }
        }
        master
    });
    let mut streams = (stdio, end, None);
    let mut epoch = 1;
    for i in 0..1500 {
        let (stdio, end, _) = &streams;
        // The program reads when it likes; it is stopped at times, and killed at others.
        let mut read = Vec::new();
        while !read.ends_with(b"\n") {
            if i % 10 == 0 || rustix::io::ioctl_fionread(end).unwrap() == 0 {
                epoch += 1;
                stdio.stop_point(epoch).unwrap();
                stdio.durable(epoch).unwrap();
            }
            read.extend(at_hand(end));
        }
        same(&read, format!("{}\n", line(i)).as_bytes(), &format!("line {i}"));
        if i % 100 == 50 && i < 1400 {
            epoch += 1;
            let context = stored(&stdio.stop_point(epoch).unwrap());
            stdio.durable(epoch).unwrap();
            drop(streams);
            let stdio = Stdio::resume(on_terminal(&slave), options(dir.path()), &context).unwrap();
            let [Some(end), _, rest] = stdio.program_ends() else {
                panic!("a terminal")
            };
            stdio.begin();
            streams = (stdio, end, rest);
        }
    }
    drop(types.join().unwrap());
}

#[test]
fn lines_and_ends_of_file_typed_before_a_kill_are_read_after_it() {
    let dir = tempfile::tempdir().unwrap();
    // A line read in part, an end of file behind some bytes, a bare one, and a line.
    let (_stdio, _master, end) = typed_then_resumed(dir.path(), b"abcdef\rxy\x04\x04last\r", |_| (), 2);
    let mut bytes = [0; 100];
    let mut next = || {
        let n = rustix::io::read(&end, &mut bytes).unwrap();
        String::from_utf8(bytes[..n].to_vec()).unwrap()
    };
    assert_eq!([next(), next(), next(), next()], ["cdef\n", "xy", "", "last\n"]);
}

#[test]
fn keys_typed_to_a_full_screen_program_survive() {
    use rustix::termios::{InputModes, LocalModes};
    let dir = tempfile::tempdir().unwrap();
    let raw = |modes: &mut Termios| {
        modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        modes.input_modes -= InputModes::ICRNL;
    };
    let keys = b"\x1b[A\x03\x04\r\x00\x7f\xff";
    let (stdio, master, end) = typed_then_resumed(dir.path(), keys, raw, 3);
    assert_eq!(exactly(&end, keys.len() - 3), &keys[3..]);
    assert_eq!(screen(&stdio, &master), b"");
}

#[test]
fn keys_that_are_signals_reach_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let (master, slave) = terminal();
    let stdio = Stdio::run(on_terminal(&slave), options(dir.path())).unwrap();
    let [stdin, stdout, stderr] = stdio.program_ends();
    let mut sh = Command::new("sh");
    sh.args([
        "-c",
        "trap 'echo interrupted; read -r x; exit 7' INT; echo ready; while :; do read -r x; done",
    ]);
    sh.stdin(stdin.unwrap())
        .stdout(stdout.unwrap())
        .stderr(stderr.unwrap());
    // SAFETY: two system calls.
    unsafe {
        sh.pre_exec(|| {
            libc::setsid();
            if libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let mut child = sh.spawn().unwrap();
    drop(sh);
    stdio.begin();
    let mut epoch = 0;
    let mut shown = Vec::new();
    let mut wait_for = |what: &str| {
        while !String::from_utf8_lossy(&shown).contains(what) {
            epoch += 1;
            stdio.stop_point(epoch).unwrap();
            stdio.durable(epoch).unwrap();
            shown.extend(at_hand(&master));
        }
    };
    wait_for("ready\r\n");
    write(&master, b"\x03");
    // Its echo is not waited for: the shell is not stopped, as a program would be, and where it reads meanwhile the
    // kernel may lose the echo while the terminal's queue is looked at.
    wait_for("interrupted\r\n");
    write(&master, b"\n");
    assert_eq!(child.wait().unwrap().code(), Some(7));
    // A last stop after the program is gone.
    stdio.stop_point(1 << 20).unwrap();
    stdio.durable(1 << 20).unwrap();
    stdio.finish().unwrap();
}

#[test]
fn a_terminal_that_only_shows_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (master, slave) = terminal();
    let outside = RealStreams::new([Some(null()), Some(slave.try_clone().unwrap()), None]);
    let stdio = Stdio::run(outside, options(dir.path())).unwrap();
    let [None, Some(end), None] = stdio.program_ends() else {
        panic!("stdout is relayed")
    };
    assert!(rustix::termios::isatty(&end));
    write(&end, b"a\nb\n");
    stdio.stop_point(1).unwrap();
    stdio.durable(1).unwrap();
    assert_eq!(exactly(&master, 6), b"a\r\nb\r\n");
    assert!(
        tcgetattr(&slave)
            .unwrap()
            .local_modes
            .contains(rustix::termios::LocalModes::ECHO)
    );
}

#[test]
fn a_resume_goes_on_in_another_kind_of_outside() {
    let dir = tempfile::tempdir().unwrap();
    let (_master, slave) = terminal();
    let stdio = Stdio::run(on_terminal(&slave), options(dir.path())).unwrap();
    let [_, Some(end), _] = stdio.program_ends() else {
        panic!("a terminal")
    };
    write(&end, b"held\n");
    let context = stdio.stop_point(1).unwrap();
    drop(stdio);
    let path = dir.path().join("log");
    let file = File::create(&path).unwrap();
    let (input, keys) = pipe();
    let outside = RealStreams::new([Some(input), Some(file.into()), None]);
    let stdio = Stdio::resume(outside, options(dir.path()), &stored(&context)).unwrap();
    let [Some(end), _, _] = stdio.program_ends() else {
        panic!("still a terminal for the program")
    };
    stdio.begin();
    write(&keys, b"typed by a pipe\n");
    drop(keys);
    assert_eq!(exactly(&end, 16), b"typed by a pipe\n");
    assert_eq!(
        rustix::io::read(&end, &mut [0; 9]).unwrap(),
        0,
        "its end is an end of file"
    );
    stdio.stop_point(2).unwrap();
    stdio.durable(2).unwrap();
    stdio.finish().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"held\r\ntyped by a pipe\r\n");
}

#[test]
fn a_context_that_makes_no_sense_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (_read, out) = pipe();
    let stdio = Stdio::run(RealStreams::new([None, Some(out), None]), options(dir.path())).unwrap();
    let [_, Some(end), _] = stdio.program_ends() else {
        panic!("stdout is relayed")
    };
    write(&end, b"0123456789");
    let json = serde_json::to_string(&stdio.stop_point(1).unwrap()).unwrap();
    stdio.before_commit(1).unwrap();
    drop(stdio);
    for (from, to) in [
        ("[null,0,null]", "[null,1,null]"),
        ("[null,0,null]", "[0,0,null]"),
        ("\"safe\":0", "\"safe\":11"),
        ("\"end\":10", "\"end\":11"),
        (
            "\"input\":null",
            "\"input\":{\"fed\":3,\"end\":2,\"eof\":false,\"told\":false}",
        ),
    ] {
        let bad = json.replace(from, to);
        assert_ne!(bad, json, "{from}");
        let context = serde_json::from_str(&bad).unwrap();
        let error = Stdio::resume(
            RealStreams::new([None, None, None]),
            options(dir.path()),
            &context,
        )
        .unwrap_err();
        assert!(
            matches!(error, Error::Context(_) | Error::Damaged { .. }),
            "{to}: {error}"
        );
    }
}

#[test]
fn a_context_stays_small_where_durability_is_on_a_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let options = Options::new(dir.path(), true);
    let stdio = Stdio::run(
        RealStreams::new([None, Some(File::create(&path).unwrap().into()), None]),
        options,
    )
    .unwrap();
    let [_, Some(end), _] = stdio.program_ends() else {
        panic!("stdout is relayed")
    };
    let mut rng = Rng::new(7);
    for epoch in 1..200 {
        let silent = epoch > 190;
        if !silent {
            let len = [10, 1000, 60_000][rng.below(3) as usize];
            write(&end, &vec![b'x'; len]);
        }
        let context = stdio.stop_point(epoch).unwrap();
        let len = serde_json::to_vec(&context).unwrap().len();
        assert!(len < 17_000, "{len}");
        assert!(epoch < 198 || len < 200, "{len} bytes when silent");
        stdio.before_commit(epoch).unwrap();
        stdio.durable(epoch).unwrap();
        until(|| stdio.stats().held_bytes == 0);
    }
}

#[test]
fn what_is_released_can_be_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let (read, out) = pipe();
    let all = collect(read);
    let stdio = Stdio::run(RealStreams::new([None, Some(out), None]), options(dir.path())).unwrap();
    let [_, Some(end), _] = stdio.program_ends() else {
        panic!("stdout is relayed")
    };
    let prints = std::thread::spawn(move || {
        let line = [b'z'; 65536];
        let mut end = File::from(end);
        for _ in 0..1600 {
            end.write_all(&line).unwrap();
        }
    });
    let mut epoch = 0;
    let mut most = 0;
    while !prints.is_finished() || stdio.stats().held_bytes > 0 {
        epoch += 1;
        stdio.stop_point(epoch).unwrap();
        stdio.durable(epoch).unwrap();
        let logs = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect::<Vec<_>>();
        most = most.max(logs.len());
    }
    let stats = stdio.finish().unwrap();
    drop(stdio);
    assert_eq!(stats.released_bytes, 1600 << 16);
    assert_eq!(all.join().unwrap().len(), 1600 << 16);
    assert!(most < 16, "{most} files for 100 MiB");
}
