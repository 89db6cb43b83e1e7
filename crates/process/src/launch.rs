//! Starting: from the user's shell to a program stopped at its first instruction.
//!
//! ```text
//! twinpage (outer)      in the user's session; passes signals on, waits
//!   └─ twinpage (inner) first process of new namespaces; traces, keeps the checkpoints
//!        └─ program     process 300 in there, in a session of its own
//! ```
//!
//! * The inner process dies with the outer one, and the program with the inner one: nothing runs
//!   on unwatched after a kill.
//! * The program's ids are the same at every resume; the inner process and its threads have ids
//!   below the program's.

use crate::descriptors::is_stateless_device;
use crate::error::{Error, Result};
use crate::shim::{self, Shim};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, access};
use rustix::io::{read, retry_on_intr, write};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use twinpage_os::messages;
use twinpage_os::namespaces::{self, Place};
use twinpage_os::seccomp::Filter;
use twinpage_os::spawn::{self, CStrings};
use twinpage_os::terminal;
use twinpage_os::trace::{self, Status};
use twinpage_os::{signals, user_signals};

/// The id of a new program in its namespace: made of this process's, so that programs that run at once have different
/// ones. Some name files by it. Threads of the inner process are below, and there is room above on every machine.
fn choose_pid() -> i32 {
    const FIRST: u32 = 300;
    const DIFFERENT: u32 = 30_000;
    (FIRST + std::process::id() % DIFFERENT) as i32
}

/// Whether the other end of a pair of sockets is open anywhere: poll(2), `POLLHUP`.
fn has_peer(end: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(end, PollFlags::empty())];
    !poll(&mut polled, Some(&Timespec::default())).is_ok_and(|_| polled[0].revents().contains(PollFlags::HUP))
}

/// Runs `inside` as the first process of new namespaces, and returns what it returned. Must be called while
/// single-threaded.
///
/// # Errors
/// What `inside` failed with, or why it could not be started.
pub fn contained<T: Serialize + DeserializeOwned>(
    place: Place,
    inside: impl FnOnce() -> Result<T>,
) -> Result<T, String> {
    let told = |error: std::io::Error| format!("cannot start: {error}");
    let (mut answer, answer_end) = UnixStream::pair().map_err(told)?;
    let stat = std::fs::File::open("/proc/self/stat").ok();
    namespaces::enter(place).map_err(|error| error.to_string())?;
    let inner = spawn::fork().map_err(told)?;
    if inner == 0 {
        drop(answer);
        OUTER.store(answer_end.as_raw_fd(), Ordering::Relaxed);
        signals::die_with_parent();
        if !has_peer(&answer_end) {
            spawn::exit_now(1); // the parent died before that
        }
        spawn::leave_session();
        if let Some(stat) = stat {
            terminal::share_foreground(stat);
        }
        let result = namespaces::mount_proc()
            .map_err(|error| Error::Machine(error.to_string()))
            .and_then(|()| inside())
            .map_err(|error| error.to_string());
        let written = serde_json::to_writer(answer_end, &result);
        spawn::exit_now(i32::from(written.is_err()));
    }
    drop(answer_end);
    let text = read_answer(&mut answer, inner).map_err(told)?;
    let ended = spawn::wait_for(inner).map_err(told)?;
    if text.is_empty() {
        return Err(match ended {
            Err(signal) => format!(
                "the tracer was killed by signal {signal}; twinpage resume goes on from the last checkpoint"
            ),
            Ok(code) => format!("the tracer ended with code {code} and no result; please report it"),
        });
    }
    serde_json::from_slice::<Result<T, String>>(&text)
        .map_err(|error| format!("cannot read the result: {error}"))?
}

/// The inner process's end of the sockets between it and the outer one; -1 where there are none.
static OUTER: AtomicI32 = AtomicI32::new(-1);
/// What the inner process writes there when the program was stopped; what it returned begins with a brace.
const JOB_STOPS: u8 = b'Z';
/// The same when it takes signals. The outer process answers with it when it passes them on: before that the program
/// does not begin.
const TAKES_SIGNALS: u8 = b'S';

/// The program was stopped: the outer process stops with its job, and passes SIGCONT on when it is continued.
pub(crate) fn tell_job_stops() {
    tell_outer(JOB_STOPS);
}

/// Returns the outer process, if there is one; an outer process that is gone takes this one along.
fn tell_outer(what: u8) -> Option<BorrowedFd<'static>> {
    let outer = spawn::borrow(OUTER.load(Ordering::Relaxed)).ok()?;
    let _ = write(outer, &[what]);
    Some(outer)
}

/// Until the inner process is gone. Stops with the program meanwhile. Signals are passed on once the inner process takes
/// them: the first process of a namespace never sees those that it has no handler for, and until then they end this one,
/// which takes it along.
fn read_answer(answer: &mut UnixStream, inner: i32) -> std::io::Result<Vec<u8>> {
    let (mut text, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        match answer.read(&mut chunk) {
            Ok(0) => return Ok(text),
            Ok(read) => {
                let is_news = |byte: &&u8| text.is_empty() && [JOB_STOPS, TAKES_SIGNALS].contains(*byte);
                let news = chunk[..read].iter().take_while(is_news).count();
                if chunk[..news].contains(&TAKES_SIGNALS) {
                    user_signals::forward_signals(inner)?;
                    let _ = answer.write(&[TAKES_SIGNALS]); // that of an inner process that is gone ends here next
                }
                if chunk[..news].contains(&JOB_STOPS) {
                    user_signals::stop_job(inner);
                }
                text.extend_from_slice(&chunk[news..read]);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// What to run, prepared so that starting it allocates nothing.
pub struct Command {
    program: CString,
    arguments: CStrings,
    environment: CStrings,
    /// As given, for people.
    pub words: Vec<String>,
    /// The id that its process gets.
    pub(crate) pid: i32,
}

impl Command {
    /// Finds the program and checks that it can be checkpointed.
    ///
    /// # Errors
    /// When it does not exist, is not executable, is not 64-bit, or changes its identity.
    pub fn find(words: &[OsString]) -> Result<Command> {
        let words = &resolve(words)?;
        let path = words
            .first()
            .ok_or_else(|| Error::Unsupported("no program was named".into()))
            .and_then(|name| find(name))?;
        check_program(&path)?;
        let text = |bytes: &OsStr| {
            CString::new(bytes.as_bytes())
                .map_err(|_| Error::Unsupported(format!("a zero byte in {}", bytes.to_string_lossy())))
        };
        let environment = std::env::vars_os().map(|(name, value)| {
            let mut pair = name;
            pair.push("=");
            pair.push(value);
            text(&pair)
        });
        Ok(Command {
            program: text(path.as_os_str())?,
            arguments: CStrings::new(words.iter().map(|word| text(word)).collect::<Result<_>>()?),
            environment: CStrings::new(environment.collect::<Result<_>>()?),
            words: words
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            pid: choose_pid(),
        })
    }
}

/// The command with version managers' shims replaced by the programs they stand for, which is said.
///
/// # Errors
/// When the program does not exist, or its manager does not know it.
pub fn resolve(words: &[OsString]) -> Result<Vec<OsString>> {
    let Some(name) = words.first() else {
        return Ok(Vec::new());
    };
    let path = find(name)?;
    if let Some(shim) = Shim::at(&path) {
        let target = instead(&shim, name)?;
        return Ok([&[target], &words[1..]].concat());
    }
    // A script that has its interpreter looked up in the same way.
    let interpreter = shim::looked_up_interpreter(&path);
    let shim = interpreter.and_then(|name| Some((Shim::at(&find(&name).ok()?)?, name)));
    if let Some((shim, name)) = shim {
        let target = instead(&shim, &name)?;
        return Ok([&[target, path.into()], &words[1..]].concat());
    }
    Ok(words.to_vec())
}

fn instead(shim: &Shim, name: &OsStr) -> Result<OsString> {
    let target = shim.target()?;
    messages::tell(&format!(
        "{} is a script of {}: running {} itself",
        name.to_string_lossy(),
        shim.manager(),
        target.display()
    ));
    Ok(target.into())
}

/// The file of a program, found as a shell would: by path, or along `PATH`.
///
/// # Errors
/// There is none that may be executed.
pub fn find(name: &OsStr) -> Result<PathBuf> {
    let missing = || {
        Error::Unsupported(format!(
            "{}: no such program; check the spelling and PATH",
            name.to_string_lossy()
        ))
    };
    if name.as_bytes().contains(&b'/') {
        return if Path::new(name).exists() {
            Ok(PathBuf::from(name))
        } else {
            Err(missing())
        };
    }
    let directories = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&directories)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file() && access(path, Access::EXEC_OK).is_ok())
        .ok_or_else(missing)
}

/// Whether a program file can be checkpointed: executable, 64-bit x86, not changing its identity.
/// Scripts are judged by their interpreter.
///
/// # Errors
/// Says why not.
pub fn check_program(path: &Path) -> Result<()> {
    check_interpreted(path, 4)
}

/// Whether a descendant may execute a program file. One that changes its identity runs without doing so, as the
/// kernel has it under a tracer, and what is no program the kernel refuses.
///
/// # Errors
/// Says why not.
pub(crate) fn check_descendant(path: &Path) -> Result<()> {
    const CLASS_32: &[u8] = b"\x7fELF\x01";
    let mut head = [0; 5];
    let read = File::open(path).and_then(|mut file| file.read(&mut head));
    if read.is_ok_and(|length| &head[..length] == CLASS_32) {
        return Err(Error::Unsupported(format!(
            "{}: a 32-bit program, which is not watched; use its 64-bit build",
            path.display()
        )));
    }
    Ok(())
}

fn check_interpreted(path: &Path, deeper: u32) -> Result<()> {
    const SETUID: u32 = 0o4000;
    const SETGID: u32 = 0o2000;
    let unusable = |why: &str| Error::Unsupported(format!("{}: {why}", path.display()));
    let meta = fs::metadata(path).map_err(|_| unusable("no such program; check the spelling"))?;
    if !meta.is_file() || access(path, Access::EXEC_OK).is_err() {
        return Err(unusable("not an executable file; make it one with chmod +x"));
    }
    let identity = meta.permissions().mode() & SETUID != 0
        && meta.uid() != rustix::process::getuid().as_raw()
        || meta.permissions().mode() & SETGID != 0 && meta.gid() != rustix::process::getgid().as_raw();
    if identity {
        return Err(unusable(
            "a setuid or setgid program changes its identity, which is not captured; run twinpage as that user, on a copy without the bit",
        ));
    }
    let mut head = [0; 256];
    let length = File::open(path)
        .and_then(|mut file| file.read(&mut head))
        .map_err(Error::file("cannot read", path))?;
    let head = &head[..length];
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut words = line
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        let interpreter = words
            .next()
            .ok_or_else(|| unusable("its first line names no interpreter"))?;
        if deeper == 0 {
            return Err(unusable("its interpreters go round in a circle"));
        }
        return check_interpreted(Path::new(OsStr::from_bytes(interpreter)), deeper - 1);
    }
    check_elf(head).map_err(unusable)
}

/// elf(5): class and machine.
fn check_elf(head: &[u8]) -> Result<(), &'static str> {
    const CLASS_64: u8 = 2;
    const X86_64: u16 = 62;
    if !head.starts_with(b"\x7fELF") {
        return Err("neither a program nor a script with an interpreter in its first line");
    }
    if head.get(4) != Some(&CLASS_64) {
        return Err("a 32-bit program, which is not captured; use its 64-bit build");
    }
    let machine = head
        .get(18..20)
        .map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    if machine != X86_64 {
        return Err("not a program for x86-64");
    }
    Ok(())
}

/// Starts the command, traced, and brings it to its first instruction. `ends` are
/// its standard streams where twinpage relays them.
///
/// # Errors
/// When it cannot be traced or executed.
pub fn start(
    command: &Command,
    ends: &[Option<OwnedFd>; 3],
    terminal: Option<i32>,
    filter: &Filter,
) -> Result<()> {
    hide_strangers(&command.words)?;
    let (gate, open_gate) = std::io::pipe().map_err(|source| Error::target("cannot make a pipe", source))?;
    let ends: [i32; 3] = std::array::from_fn(|index| ends[index].as_ref().map_or(-1, AsRawFd::as_raw_fd));
    let (gate, gate_writer) = (gate.as_raw_fd(), open_gate.as_raw_fd());
    let pid = command.pid;
    namespaces::set_last_pid(pid - 1)
        .map_err(|source| Error::target("cannot choose the program's id", source))?;
    spawn::clone_with_pid(pid, || {
        spawn::close(gate_writer);
        signals::reset_actions();
        spawn::leave_session();
        spawn::place_streams(&ends, terminal);
        spawn::wait_for_gate(gate);
        if filter.install().is_err() {
            spawn::exit_now(CANNOT_FILTER);
        }
        let _error = spawn::exec(&command.program, &command.arguments, &command.environment);
        spawn::exit_now(CANNOT_EXEC)
    })
    .map_err(|source| Error::target("cannot start a process with an id of its own choosing", source))?;
    if let Err(error) = seize(pid) {
        // One that was killed cannot be traced either.
        return Err(match trace::wait(pid, false) {
            Ok(Some((_, Status::Killed(signal)))) => killed_before_it_began(signal),
            _ => error,
        });
    }
    drop(open_gate);
    reach_exec(pid, command)
}

pub(crate) fn killed_before_it_began(signal: i32) -> Error {
    Error::State(format!(
        "the program was killed by signal {signal} before it began; start it again"
    ))
}

const CANNOT_FILTER: i32 = 125;
const CANNOT_EXEC: i32 = 126;

/// Becomes the tracer of the new process.
pub(crate) fn seize(pid: i32) -> Result<()> {
    trace::seize(pid).map_err(|error| {
        Error::Machine(format!(
            "the program cannot be traced ({error}): allow ptrace (sysctl kernel.yama.ptrace_scope=1; in a container, --cap-add SYS_PTRACE) or run as root"
        ))
    })?;
    user_signals::forward_signals(pid).map_err(|source| Error::target("cannot pass signals on", source))?;
    if let Some(outer) = tell_outer(TAKES_SIGNALS) {
        let _ = retry_on_intr(|| read(outer, &mut [0]));
    }
    Ok(())
}

fn reach_exec(pid: i32, command: &Command) -> Result<()> {
    loop {
        let event =
            trace::wait(pid, true).map_err(|source| Error::target("cannot wait for the program", source))?;
        match event.map(|(_, status)| status) {
            Some(Status::Event(trace::EVENT_EXEC)) => return Ok(()),
            Some(Status::Exited(CANNOT_FILTER)) => {
                return Err(Error::Machine(
                    "the kernel has no system call filters (CONFIG_SECCOMP_FILTER)".into(),
                ));
            }
            Some(Status::Killed(signal)) => return Err(killed_before_it_began(signal)),
            Some(Status::Exited(_)) => {
                return Err(Error::Unsupported(format!(
                    "{}: cannot be executed",
                    command.words[0]
                )));
            }
            Some(Status::Signal(signal)) => go_on(pid, signal)?,
            Some(_) => go_on(pid, 0)?,
            None => {}
        }
    }
}

fn go_on(pid: i32, signal: i32) -> Result<()> {
    trace::go_on(pid, signal).map_err(|source| Error::target("cannot let the program go on", source))
}

/// Descriptors above 2 that lead to other programs are not handed to this one: they could not be
/// captured. A shell or make may have left them open; of those that the command names, the user is told.
fn hide_strangers(words: &[String]) -> Result<()> {
    let mut hidden = close_strangers_on_exec()?;
    hidden.retain(|(number, _)| words.iter().any(|word| names(word, *number)));
    for (number, link) in hidden {
        messages::tell(&format!(
            "descriptor {number} ({}) is not handed to the program: above 2 only regular files are; use standard input or a file instead",
            link.display()
        ));
    }
    Ok(())
}

/// Whether a word names a descriptor, as `/dev/fd/63` and `/proc/self/fd/63` do.
fn names(word: &str, number: i32) -> bool {
    let mut behind = word.split("/fd/").skip(1);
    behind.any(|rest| {
        let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next();
        digits.and_then(|digits| digits.parse().ok()) == Some(number)
    })
}

/// Which they are, and where they lead; without devices that lead nowhere.
fn close_strangers_on_exec() -> Result<Vec<(i32, PathBuf)>> {
    use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
    let mut hidden = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")
        .map_err(Error::file("cannot list", "/proc/self/fd"))?
        .flatten()
    {
        let Some(fd) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        let Ok(fd) = spawn::borrow(fd) else { continue };
        let inherited =
            fd.as_raw_fd() > 2 && fcntl_getfd(fd).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC));
        if inherited && !crate::descriptors::is_regular(fd) {
            let number = fd.as_raw_fd();
            fcntl_setfd(fd, FdFlags::CLOEXEC)
                .map_err(|error| Error::target(format!("cannot set descriptor {number}"), error.into()))?;
            let leads_nowhere = rustix::fs::fstat(fd).is_ok_and(|stat| is_stateless_device(stat.st_rdev));
            if !leads_nowhere {
                hidden.push((number, fs::read_link(entry.path()).unwrap_or_default()));
            }
        }
    }
    Ok(hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_found_in_words() {
        assert!(names("/dev/fd/63", 63) && names("--in=/proc/self/fd/7,/dev/fd/8", 8));
        assert!(
            !names("/dev/fd/63", 3)
                && !names("3", 3)
                && !names("/dev/fd/99999999999", 9)
                && !names("/fd/", 0)
        );
    }

    #[test]
    fn programs_are_judged_before_they_run() {
        assert!(check_program(Path::new("/bin/true")).is_ok());
        let why = |path: &Path| check_program(path).unwrap_err().to_string();
        assert!(why(Path::new("/nonexistent")).contains("no such program"));
        assert!(why(Path::new("/etc/passwd")).contains("chmod +x"));
        assert!(check_elf(b"\x7fELF\x01").unwrap_err().contains("32-bit"));
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        fs::write(&script, "#! /bin/sh -e\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(check_program(&script).is_ok());
        fs::write(&script, format!("#!{}\n", script.display())).unwrap();
        assert!(why(&script).contains("circle"));
    }
}
