//! Records a real program: qemu's user mode runs it, and a plugin of ours in it (`accesses.c`) tells every
//! access through a pipe.
//!
//! * One core: of a program with threads, up to 256 accesses of one, then of another.
//! * Processes that the program starts, and a program that it becomes, are not followed.
//! * Addresses are those of the program; instruction fetches are counted, their addresses not kept.
//! * The processor is qemu's, the same on every machine: x86-64 with SSE3, for one.

use super::accesses::{Accesses, Told};
use super::{Clock, Header, NativeWriter, Record, error};
use rustix::fs::{MemfdFlags, memfd_create};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

/// Bytes that the program may be ahead: what a pipe may hold without privileges.
const PIPE_BYTES: usize = 1 << 20;
/// The plugin, as a library that qemu loads.
const PLUGIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/accesses.so"));

/// What is recorded of a program.
#[derive(Clone, Debug)]
pub struct Window {
    /// Instructions that run before the first that is recorded; of a program with threads about so many.
    pub skip: u64,
    /// Instructions recorded at most; the program is ended then.
    pub limit: u64,
}

/// What was recorded.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// Instructions in the trace.
    pub instructions: u64,
    /// Records in the trace.
    pub records: u64,
    /// How the program ended, where it was not ended at the limit.
    pub status: Option<ExitStatus>,
}

/// Why recording failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// There is no qemu.
    #[error("{0} is not installed; it runs the programs that are recorded: apt install qemu-user")]
    NoQemu(String),
    /// The program is not there, or is no program.
    #[error("{0}")]
    Program(String),
    /// A system call failed.
    #[error("{what}: {why}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        why: io::Error,
    },
    /// The plugin told what it should not.
    #[error("what qemu says is not understood: {0}")]
    Stream(#[from] error::Error),
    /// The program did not run, or not as far as it should.
    #[error("nothing was recorded: {0}")]
    Nothing(String),
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> RecordError {
    move |why| RecordError::System { what, why }
}

/// Qemu's user mode for this processor.
fn qemu() -> String {
    format!("qemu-{}", env::consts::ARCH)
}

/// Whether programs can be recorded here.
#[must_use]
pub fn can_record() -> bool {
    let asked = Command::new(qemu())
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    asked.is_ok_and(|status| status.success())
}

/// Runs a program and writes what it does to `output`, in our form. `step` hears now and then how
/// many instructions went by, the skipped ones included.
///
/// `command` names the program, its arguments, its environment, and its directory.
pub fn record(
    command: &Command,
    stdio: [Stdio; 2],
    window: &Window,
    output: impl Write,
    mut step: impl FnMut(u64),
) -> Result<Recorded, RecordError> {
    let (reader, writer) = io::pipe().map_err(system("a pipe"))?;
    // As large as the system lets it be; what it is by default works too, only slower.
    let _ = rustix::pipe::fcntl_setpipe_size(&writer, PIPE_BYTES);
    let plugin = plugin().map_err(system("a place for the plugin"))?;
    // Qemu opens one and writes to the other: they must survive exec.
    for kept in [writer.as_fd(), plugin.as_fd()] {
        rustix::io::fcntl_setfd(kept, rustix::io::FdFlags::empty())
            .map_err(|why| system("a file for qemu")(why.into()))?;
    }
    let mut qemu = under_qemu(command, plugin.as_raw_fd(), writer.as_raw_fd(), window)?;
    let [stdin, stdout] = stdio;
    let mut child = match qemu.stdin(stdin).stdout(stdout).spawn() {
        Ok(child) => child,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Err(RecordError::NoQemu(self::qemu())),
        Err(why) => return Err(system("starting qemu")(why)),
    };
    drop((writer, plugin));

    let origin = origin(command);
    let mut accesses = Accesses::new(&origin, BufReader::with_capacity(PIPE_BYTES, reader));
    let poured = pour(&mut accesses, &origin, window, output, &mut step);
    if !matches!(poured, Ok((_, true))) {
        let _ = child.kill(); // at the limit, or after an error: what it would still say is not wanted
    }
    let status = child.wait().map_err(system("waiting for qemu"))?;
    let (recorded, ended) = poured?;
    if accesses.seen() == 0 {
        return Err(RecordError::Nothing(format!("{origin} did not run ({status})")));
    }
    if recorded.records == 0 {
        let what = format!("{origin} ended after {} instructions", accesses.seen());
        return Err(RecordError::Nothing(what));
    }
    let status = ended.then_some(status);
    Ok(Recorded { status, ..recorded })
}

/// The plugin as a file in memory.
fn plugin() -> io::Result<File> {
    let mut file = File::from(memfd_create("accesses.so", MemfdFlags::CLOEXEC)?);
    file.write_all(PLUGIN)?;
    Ok(file)
}

/// The same program, as qemu runs it.
fn under_qemu(command: &Command, plugin: i32, pipe: i32, window: &Window) -> Result<Command, RecordError> {
    let mut qemu = Command::new(qemu());
    qemu.arg("-plugin")
        .arg(format!("/proc/self/fd/{plugin},pipe={pipe},skip={}", window.skip))
        // What the system gives a program as random: the same each time.
        .args(["-seed", "1"])
        .args(interpreted(command)?)
        .args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        qemu.current_dir(directory);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => qemu.env(name, value),
            None => qemu.env_remove(name),
        };
    }
    Ok(qemu)
}

/// The program's file, as a shell finds it; before that of a script its interpreter, as the system does.
fn interpreted(command: &Command) -> Result<Vec<OsString>, RecordError> {
    let program = command.get_program();
    let file = find(program)
        .ok_or_else(|| RecordError::Program(format!("there is no program {}", program.display())))?;
    let from = command
        .get_current_dir()
        .map_or(file.clone(), |from| from.join(&file));
    let mut begin = [0; 256];
    let read = File::open(from).and_then(|mut open| open.read(&mut begin));
    let read = read.map_err(|why| RecordError::Program(format!("{}: {why}", file.display())))?;
    let Some(line) = begin[..read].strip_prefix(b"#!") else {
        return Ok(vec![file.into()]);
    };
    let line = line
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    let words = line
        .splitn(2, |byte| byte.is_ascii_whitespace())
        .map(<[u8]>::trim_ascii);
    let words = words
        .filter(|word| !word.is_empty())
        .map(|word| OsStr::from_bytes(word).to_owned());
    Ok(words.chain([file.into()]).collect())
}

fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// The command line, for the header.
fn origin(command: &Command) -> String {
    let words: Vec<OsString> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsString::from)
        .collect();
    let mut line = words.join(" ".as_ref()).to_string_lossy().into_owned();
    line.truncate(
        (0..=1024.min(line.len()))
            .rev()
            .find(|&at| line.is_char_boundary(at))
            .unwrap_or(0),
    );
    line
}

/// Reads until the limit or the end; whether it was the end.
fn pour<R: Read>(
    accesses: &mut Accesses<R>,
    origin: &str,
    window: &Window,
    output: impl Write,
    step: &mut impl FnMut(u64),
) -> Result<(Recorded, bool), RecordError> {
    let header = Header {
        cores: 1,
        clock: Clock::Instructions,
        addresses: super::Addresses::Virtual,
        origin: origin.to_owned(),
    };
    let mut writer = NativeWriter::new(output, &header).map_err(system("writing the trace"))?;
    let mut recorded = Recorded::default();
    let until = window.skip.saturating_add(window.limit);
    let (mut ended, mut told) = (false, 0);
    loop {
        let next = accesses.next()?;
        if accesses.seen() >= told + (1 << 20) {
            told = accesses.seen();
            step(told);
        }
        let record = match next {
            Some(Told::Access(record)) => record,
            Some(Told::Passed) if accesses.seen() > until => break,
            Some(Told::Passed) => continue,
            None => {
                ended = true;
                break;
            }
        };
        let now = accesses.instructions();
        if now <= window.skip {
            continue;
        }
        if now > until {
            break;
        }
        // Of the first record's instructions, those that were skipped do not count.
        let after = u64::from(record.after).min(now - window.skip) as u32;
        writer
            .write(&Record { after, ..record })
            .map_err(system("writing the trace"))?;
        recorded.records += 1;
        recorded.instructions += u64::from(after);
    }
    writer.finish().map_err(system("writing the trace"))?;
    step(accesses.seen());
    Ok((recorded, ended))
}
