//! Records a real program: valgrind's lackey runs it, and what lackey prints is read as it comes.
//!
//! * One core: of a program with threads, their accesses in the order in which valgrind ran them.
//! * Processes that the program starts are not followed.
//! * Addresses are those of the program; instruction fetches are counted, their addresses not kept.

use super::{Clock, Header, Lackey, NativeWriter, Record, error};
use std::ffi::OsString;
use std::io::{self, BufReader, PipeReader, Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// Bytes that valgrind may be ahead: what a pipe may hold without privileges.
const PIPE_BYTES: usize = 1 << 20;
/// How long the reader lets them gather. Valgrind writes a hundred bytes at a time, and to be woken
/// for each would cost both sides more than the recording.
const GATHER: Duration = Duration::from_millis(2);

/// What is recorded of a program.
#[derive(Clone, Debug)]
pub struct Window {
    /// Instructions that run before the first that is recorded.
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
    /// There is no valgrind.
    #[error("valgrind is not installed; it records programs: apt install valgrind")]
    NoValgrind,
    /// A system call failed.
    #[error("{what}: {why}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        why: io::Error,
    },
    /// Lackey printed what it should not.
    #[error("what valgrind says is not understood: {0}")]
    Stream(#[from] error::Error),
    /// The program cannot be run.
    #[error("nothing was recorded: {0}")]
    Nothing(String),
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> RecordError {
    move |why| RecordError::System { what, why }
}

/// A pipe's end that reads seldom, and much.
struct Patient(PipeReader);

impl Read for Patient {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(into)?;
        if read > 0 && read < PIPE_BYTES / 4 {
            std::thread::sleep(GATHER);
        }
        Ok(read)
    }
}

/// Whether programs can be recorded here.
#[must_use]
pub fn can_record() -> bool {
    let asked = Command::new("valgrind")
        .args(["--tool=lackey", "--version"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    asked.is_ok_and(|status| status.success())
}

/// Runs a program and writes what it does to `output`, in our form. `step` hears now and then how
/// many instructions went by, the skipped ones included.
///
/// `command` names the program, its arguments, its standard input and output, and its directory.
pub fn record(
    command: &Command,
    stdio: [Stdio; 2],
    window: &Window,
    output: impl Write,
    mut step: impl FnMut(u64),
) -> Result<Recorded, RecordError> {
    let (reader, writer) = io::pipe().map_err(system("a pipe"))?;
    // The child writes to its copy of this end: it must survive exec.
    rustix::io::fcntl_setfd(&writer, rustix::io::FdFlags::empty())
        .map_err(|why| system("a pipe for valgrind")(why.into()))?;
    // As large as the system lets it be; what it is by default works too, only slower.
    let _ = rustix::pipe::fcntl_setpipe_size(&writer, PIPE_BYTES);
    let mut valgrind = under_valgrind(command, writer.as_raw_fd());
    let [stdin, stdout] = stdio;
    let mut child = match valgrind.stdin(stdin).stdout(stdout).spawn() {
        Ok(child) => child,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Err(RecordError::NoValgrind),
        Err(why) => return Err(system("starting valgrind")(why)),
    };
    drop(writer);

    let origin = origin(command);
    let mut lackey = Lackey::new(&origin, BufReader::with_capacity(PIPE_BYTES, Patient(reader)));
    let poured = pour(&mut lackey, &origin, window, output, &mut step);
    if !matches!(poured, Ok((_, true))) {
        let _ = child.kill(); // at the limit, or after an error: what it would still say is not wanted
    }
    let status = child.wait().map_err(system("waiting for valgrind"))?;
    let (recorded, ended) = poured?;
    if lackey.instructions() == 0 {
        return Err(RecordError::Nothing(format!("{origin} did not run ({status})")));
    }
    if recorded.records == 0 {
        let what = format!("{origin} ended after {} instructions", lackey.instructions());
        return Err(RecordError::Nothing(what));
    }
    let status = ended.then_some(status);
    Ok(Recorded { status, ..recorded })
}

/// The same program, as valgrind runs it.
fn under_valgrind(command: &Command, log: i32) -> Command {
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--quiet", "--tool=lackey", "--basic-counts=no", "--trace-mem=yes"])
        .arg(format!("--log-fd={log}"))
        .arg(command.get_program())
        .args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        valgrind.current_dir(directory);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => valgrind.env(name, value),
            None => valgrind.env_remove(name),
        };
    }
    valgrind
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
fn pour<R: io::BufRead>(
    lackey: &mut Lackey<R>,
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
        let Some(record) = lackey.next_record()? else {
            ended = true;
            break;
        };
        let now = lackey.instructions();
        if now >= told + (1 << 18) {
            told = now;
            step(now);
        }
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
    step(lackey.instructions());
    Ok((recorded, ended))
}
