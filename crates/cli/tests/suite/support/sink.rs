//! Where a program's output goes: a file, a pipe or a terminal, over several lives of the program.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

/// A kind of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file, as by `> out` and then `>> out`.
    File,
    /// A pipe to a reader that stays.
    Pipe,
    /// A terminal.
    Terminal,
}

/// Collects the output of one program, through all its lives.
pub(crate) struct Sink {
    kind: Kind,
    file: PathBuf,
    collected: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Sink {
    /// An empty one; `file` is used by [`Kind::File`].
    pub(crate) fn new(kind: Kind, file: PathBuf) -> Self {
        Self {
            kind,
            file,
            collected: Arc::default(),
            reader: None,
        }
    }

    /// The stdout of the next life.
    pub(crate) fn open(&mut self, first: bool) -> Stdio {
        match self.kind {
            Kind::File if first => File::create(&self.file).expect("create the output file").into(),
            Kind::File => OpenOptions::new()
                .append(true)
                .open(&self.file)
                .expect("open the output file")
                .into(),
            Kind::Pipe => {
                let (from, to) = std::io::pipe().expect("a pipe");
                self.read_in_background(OwnedFd::from(from));
                to.into()
            }
            Kind::Terminal => {
                let (master, slave) = terminal();
                self.read_in_background(master);
                slave.into()
            }
        }
    }

    fn read_in_background(&mut self, from: OwnedFd) {
        let collected = self.collected.clone();
        self.reader = Some(std::thread::spawn(move || {
            let (mut from, mut some) = (File::from(from), [0u8; 65536]);
            // A terminal whose other end is closed gives an error, a pipe gives nothing: both are the end. The error may
            // come before the last is read; the next read gets it (Linux 6.18, n_tty_read).
            while let Ok(n @ 1..) = from.read(&mut some).or_else(|_| from.read(&mut some)) {
                collected
                    .lock()
                    .expect("the output")
                    .extend_from_slice(&some[..n]);
            }
        }));
    }

    /// Waits for what the life that just ended has put out.
    pub(crate) fn life_ended(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader of the output");
        }
    }

    /// All that came out so far.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self.kind {
            Kind::File => std::fs::read(&self.file).unwrap_or_default(),
            Kind::Pipe | Kind::Terminal => self.collected.lock().expect("the output").clone(),
        }
    }

    /// How much came out so far, in bytes.
    pub(crate) fn len(&self) -> usize {
        match self.kind {
            Kind::File => std::fs::metadata(&self.file).map_or(0, |meta| meta.len() as usize),
            Kind::Pipe | Kind::Terminal => self.collected.lock().expect("the output").len(),
        }
    }
}

/// Both ends of a terminal that changes nothing on the way.
pub(crate) fn terminal() -> (OwnedFd, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("openpt");
    grantpt(&master).expect("grantpt");
    unlockpt(&master).expect("unlockpt");
    let name = ptsname(&master, Vec::new())
        .expect("ptsname")
        .into_string()
        .expect("a terminal's name");
    let slave = OpenOptions::new()
        .read(true)
        .write(true)
        .open(name)
        .expect("open the terminal");
    let mut attributes = tcgetattr(slave.as_fd()).expect("tcgetattr");
    attributes.make_raw();
    tcsetattr(slave.as_fd(), OptionalActions::Now, &attributes).expect("tcsetattr");
    (master, slave.into())
}
