//! The keeper: holds the terminal of a detached program, and relays it to those that are attached.

use super::frames::{self, Frame};
use super::history::History;
use super::{SOCKET, socket_in};
use crate::stdio::terminal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};
use twinpage_os::spawn;

/// An attached terminal with more bytes waiting for it is let go.
const BEHIND: usize = 4 << 20;
/// The most keys, in bytes, that may wait for the program; then no attached terminal is read.
const TYPED: usize = 64 << 10;
/// How often to look whether the program runs, until it does.
const BEGINNING: Duration = Duration::from_millis(5);
/// How long those that are attached have for the last bytes.
const FAREWELL: Duration = Duration::from_secs(2);
const USUAL_SIZE: [u16; 4] = [24, 80, 0, 0];

/// Which process returns from [`detach`].
#[derive(Debug)]
pub enum Side {
    /// The one that called, once the program runs or has ended.
    Caller(Begun),
    /// A new one with a terminal that the keeper holds: the program is to be run here.
    Program,
}

/// How a detached program began.
#[derive(Debug)]
pub enum Begun {
    /// It runs, and can be attached to.
    Runs,
    /// It ended at once, with this exit code; this is what was printed.
    Ended(u8, Vec<u8>),
}

/// The first byte of the keeper's answer to the caller; after `ENDED` come the exit code and what was printed.
const RUNS: u8 = b'R';
const ENDED: u8 = b'E';

/// Makes a keeper, and in a session of its own a process for a program whose state will be in `state`.
/// Must be called while single-threaded. The keeper itself never returns from here.
///
/// # Errors
/// When no process or terminal can be had.
pub fn detach(state: &Path) -> io::Result<Side> {
    let (heard, tell) = io::pipe()?;
    let (master, slave) = pseudo_terminal()?;
    if spawn::fork()? != 0 {
        drop(tell);
        drop((master, slave));
        return Ok(Side::Caller(hear(heard)?));
    }
    drop(heard);
    spawn::leave_session();
    let program = spawn::fork();
    if let Ok(0) = program {
        drop((master, tell));
        spawn::leave_session();
        let end = slave.as_raw_fd();
        spawn::place_streams(&[end; 3], Some(end));
        return Ok(Side::Program);
    }
    drop(slave);
    let kept = program.and_then(|program| {
        let null = File::options().read(true).write(true).open("/dev/null")?;
        spawn::place_streams(&[null.as_raw_fd(); 3], None);
        Keeper {
            program,
            terminal: master,
            tell: Some(tell),
            listener: None,
            attached: Vec::new(),
            typed: Vec::new(),
            history: History::default(),
            size_later: None,
        }
        .keep(state)
    });
    spawn::exit_now(i32::from(kept.is_err()));
}

/// A pseudo-terminal with the modes and size of ours, where we have one.
fn pseudo_terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    let master = terminal::master()?;
    let slave = terminal::other_end(&master)?;
    let here = io::stdin();
    if let Ok(modes) = terminal::modes(here.as_fd()) {
        terminal::set_modes(slave.as_fd(), &modes)?;
    }
    let size = terminal::size(here.as_fd()).unwrap_or(USUAL_SIZE);
    terminal::set_size(slave.as_fd(), size)?;
    Ok((master, slave))
}

/// What the keeper says of the program's beginning.
fn hear(mut heard: PipeReader) -> io::Result<Begun> {
    let mut said = Vec::new();
    heard.read_to_end(&mut said)?;
    match said.as_slice() {
        [RUNS] => Ok(Begun::Runs),
        [ENDED, code, text @ ..] => Ok(Begun::Ended(*code, text.to_vec())),
        _ => Err(io::Error::other("the process that holds the terminal is gone")),
    }
}

/// A terminal that is attached.
struct Attached {
    stream: UnixStream,
    heard: Vec<u8>,
    /// What it has not taken yet.
    waiting: Vec<u8>,
    /// Too much waited for it: a last message says so, and nothing more is sent.
    is_too_slow: bool,
    is_gone: bool,
}

struct Keeper {
    program: i32,
    terminal: OwnedFd,
    /// To the caller, until it knows how the program began.
    tell: Option<io::PipeWriter>,
    listener: Option<UnixListener>,
    attached: Vec<Attached>,
    /// Keys that the program's terminal has not taken yet.
    typed: Vec<u8>,
    history: History,
    /// The size to set in a moment.
    size_later: Option<(Instant, [u16; 4])>,
}

impl Keeper {
    /// Runs until twinpage has ended. Without a socket no terminal can attach: then it ends at once, and twinpage with it.
    fn keep(mut self, state: &Path) -> io::Result<()> {
        while !self.is_over()? {
            if self.tell.is_some() && self.runs() {
                self.listener = Some(listen(state)?);
                self.tell_caller(&[RUNS])?;
            }
            self.look_at_size()?;
            self.turn()?;
        }
        let code = match spawn::wait_for(self.program)? {
            Ok(code) => code,
            Err(signal) => 128 + signal,
        } as u8;
        self.welcome(); // a terminal that waits to attach is told the end too
        // Before the end is told: a person who hears of it may resume, with a keeper that makes a socket of its own.
        if self.listener.take().is_some() {
            let _ = std::fs::remove_file(state.join(SOCKET)); // the state may be gone
        }
        let mut said = vec![ENDED, code];
        said.extend_from_slice(self.history.text());
        self.tell_caller(&said)?;
        self.farewell(code);
        Ok(())
    }

    fn tell_caller(&mut self, said: &[u8]) -> io::Result<()> {
        match self.tell.take().map(|mut tell| tell.write_all(said)) {
            Some(Err(error)) if error.kind() != ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()), // it waits no longer
        }
    }

    /// Whether twinpage runs the program: it takes keys as they are from then on.
    fn runs(&self) -> bool {
        terminal::modes(self.terminal.as_fd()).is_ok_and(|modes| !modes.lines())
    }

    /// Takes some of what was printed: keys are passed on between, however much there is. Whether all ends of the
    /// terminal are closed.
    fn is_over(&mut self) -> io::Result<bool> {
        let mut printed = [0; frames::MOST];
        match terminal::printed(&self.terminal, &mut printed) {
            Ok(0) => return Ok(true),
            Ok(count) => {
                let printed = &printed[..count];
                self.history.add(printed);
                let frame = Frame::Bytes(printed.to_vec());
                self.attached
                    .iter_mut()
                    .for_each(|terminal| terminal.send(&frame));
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        Ok(false)
    }

    fn look_at_size(&mut self) -> io::Result<()> {
        if let Some((_, size)) = self.size_later.take_if(|(when, _)| *when <= Instant::now()) {
            terminal::set_size(self.terminal.as_fd(), size)?;
        }
        Ok(())
    }

    /// Waits for something to do, and does it.
    fn turn(&mut self) -> io::Result<()> {
        let wants = |waits: bool| if waits { PollFlags::OUT } else { PollFlags::empty() };
        let mut fds = vec![PollFd::new(
            &self.terminal,
            PollFlags::IN | wants(!self.typed.is_empty()),
        )];
        let hears = self.typed.len() < TYPED;
        for terminal in &self.attached {
            let input = if hears { PollFlags::IN } else { PollFlags::empty() };
            fds.push(PollFd::new(
                &terminal.stream,
                input | wants(!terminal.waiting.is_empty()),
            ));
        }
        fds.extend(
            self.listener
                .as_ref()
                .map(|listener| PollFd::new(listener, PollFlags::IN)),
        );
        let until = match (&self.tell, self.size_later) {
            (Some(_), _) => Some(BEGINNING),
            (None, later) => later.map(|(when, _)| when.saturating_duration_since(Instant::now())),
        };
        let until = until.map(|until| Timespec {
            tv_sec: 0,
            tv_nsec: until.as_nanos() as i64,
        });
        match poll(&mut fds, until.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let ready: Vec<bool> = fds[1..].iter().map(is_ready).collect();
        self.type_keys();
        for index in (0..self.attached.len()).filter(|index| ready[*index]) {
            self.hear(index)?;
        }
        self.attached.retain(|terminal| !terminal.is_gone);
        self.welcome();
        Ok(())
    }

    /// Gives the program's terminal what was typed, as far as it takes it.
    fn type_keys(&mut self) {
        while !self.typed.is_empty() {
            match rustix::io::write(&self.terminal, &self.typed) {
                Ok(count) => drop(self.typed.drain(..count)),
                Err(_) => return, // full; or gone, which the next look at it tells
            }
        }
    }

    /// What one that is attached sends.
    fn hear(&mut self, index: usize) -> io::Result<()> {
        let terminal = &mut self.attached[index];
        terminal.flush();
        for frame in terminal.take_frames() {
            match frame {
                Frame::Bytes(keys) => self.typed.extend_from_slice(&keys),
                Frame::Size(size) => self.resize(size)?,
                Frame::Ended(_) | Frame::TooSlow => self.attached[index].is_gone = true,
            }
        }
        self.type_keys();
        Ok(())
    }

    /// The program's terminal gets the size that an attached one sent last. Programs draw their screen again only when it
    /// changes.
    fn resize(&mut self, size: [u16; 4]) -> io::Result<()> {
        let terminal = self.terminal.as_fd();
        if terminal::size(terminal)? != size || self.size_later.is_some() {
            self.size_later = None;
            return terminal::set_size(terminal, size);
        }
        self.size_later = Some((Instant::now() + terminal::OTHER_SIZE, size));
        terminal::set_size(terminal, terminal::narrower(size))
    }

    /// Attaches those that ask for it, and shows them what was printed last.
    fn welcome(&mut self) {
        let Some(listener) = &self.listener else { return };
        while let Ok((stream, _)) = listener.accept() {
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let mut terminal = Attached {
                stream,
                heard: Vec::new(),
                waiting: Vec::new(),
                is_too_slow: false,
                is_gone: false,
            };
            terminal.send(&Frame::Bytes(self.history.shown()));
            self.attached.push(terminal);
        }
    }

    /// Tells those that are attached how twinpage ended.
    fn farewell(&mut self, code: u8) {
        for terminal in &mut self.attached {
            terminal.put(&Frame::Ended(code));
            let stream = &terminal.stream;
            // One that takes nothing hears nothing.
            let _ = stream
                .set_nonblocking(false)
                .and_then(|()| stream.set_write_timeout(Some(FAREWELL)))
                .and_then(|()| (&terminal.stream).write_all(&terminal.waiting));
        }
    }
}

/// The socket, in place of that of a keeper which was killed: the state is in use by ours now.
fn listen(state: &Path) -> io::Result<UnixListener> {
    let name = state.join(SOCKET);
    match std::fs::remove_file(&name) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket_in(&File::open(state)?))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl Attached {
    /// Sends what is printed; one that is too far behind is let go.
    fn send(&mut self, frame: &Frame) {
        if self.is_too_slow || self.is_gone {
            return;
        }
        self.is_too_slow = self.waiting.len() > BEHIND;
        self.put(if self.is_too_slow { &Frame::TooSlow } else { frame });
        self.flush();
    }

    fn put(&mut self, frame: &Frame) {
        frame.put(&mut self.waiting).expect("memory takes all");
    }

    fn flush(&mut self) {
        while !self.waiting.is_empty() && !self.is_gone {
            match (&self.stream).write(&self.waiting) {
                Ok(count) => drop(self.waiting.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.is_gone = true,
            }
        }
        self.is_gone |= self.is_too_slow;
    }

    /// All that it sent; one that ended or speaks another language is gone.
    fn take_frames(&mut self) -> Vec<Frame> {
        let mut bytes = [0; 4096];
        match (&self.stream).read(&mut bytes) {
            Ok(0) => self.is_gone = true,
            Ok(count) => self.heard.extend_from_slice(&bytes[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.is_gone = true,
        }
        let mut all = Vec::new();
        loop {
            match frames::take(&mut self.heard) {
                Ok(Some(frame)) => all.push(frame),
                Ok(None) => return all,
                Err(_) => {
                    self.is_gone = true;
                    return all;
                }
            }
        }
    }
}
