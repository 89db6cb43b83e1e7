//! Where a program's output goes: a file, a pipe or a terminal, over several lives of the program.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;
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
    collected: Vec<u8>,
    reader: Option<JoinHandle<Vec<u8>>>,
}

impl Sink {
    /// An empty one; `file` is used by [`Kind::File`].
    pub(crate) fn new(kind: Kind, file: PathBuf) -> Self {
        Self {
            kind,
            file,
            collected: Vec::new(),
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
        self.reader = Some(std::thread::spawn(move || {
            let (mut from, mut bytes, mut some) = (File::from(from), Vec::new(), [0u8; 65536]);
            // A terminal whose other end is closed gives an error, a pipe gives nothing: both are the end.
            while let Ok(n @ 1..) = from.read(&mut some) {
                bytes.extend_from_slice(&some[..n]);
            }
            bytes
        }));
    }

    /// Takes in what the life that just ended has put out.
    pub(crate) fn life_ended(&mut self) {
        if let Some(reader) = self.reader.take() {
            self.collected
                .extend(reader.join().expect("the reader of the output"));
        }
    }

    /// All that came out so far.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self.kind {
            Kind::File => std::fs::read(&self.file).expect("read the output file"),
            Kind::Pipe | Kind::Terminal => self.collected.clone(),
        }
    }
}

/// Both ends of a terminal that changes nothing on the way.
fn terminal() -> (OwnedFd, OwnedFd) {
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
