//! The keeper: holds the terminal of a detached program, and relays it to those that are attached.

use super::frames::{self, Frame};
use super::history::History;
use super::{SOCKET, socket_in};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::pty::OpenptFlags;
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetwinsize};
use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};
use twinpage_os::spawn;

/// A terminal that has not taken so much yet is let go.
const BEHIND: usize = 4 << 20;
/// Keys that the program has not taken yet; more are not read from who typed them.
const TYPED: usize = 64 << 10;
/// How often to look whether the program runs, until it does.
const BEGINNING: Duration = Duration::from_millis(5);
/// A screen is drawn anew for a new size: so long it has another one first.
const OTHER_SIZE: Duration = Duration::from_millis(50);
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

/// What the keeper says to the caller, before text or nothing.
const RUNS: u8 = b'R';
const ENDED: u8 = b'E';

/// Makes a keeper, and in a session of its own a process for a program whose state will be in `state`.
/// Must be called while single-threaded. The keeper itself never returns from here.
///
/// # Errors
/// When no process or terminal can be had.
pub fn detach(state: &Path) -> io::Result<Side> {
    let (heard, tell) = io::pipe()?;
    let (master, slave) = terminal()?;
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
        rustix::io::ioctl_fionbio(&master, true)?;
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
fn terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
    let here = io::stdin();
    if let Ok(modes) = tcgetattr(&here) {
        rustix::termios::tcsetattr(&slave, rustix::termios::OptionalActions::Now, &modes)?;
    }
    set_size(
        &slave,
        tcgetwinsize(&here).map_or(USUAL_SIZE, |size| of_winsize(&size)),
    )?;
    Ok((master, slave))
}

pub(super) fn of_winsize(size: &Winsize) -> [u16; 4] {
    [size.ws_row, size.ws_col, size.ws_xpixel, size.ws_ypixel]
}

fn set_size(terminal: &OwnedFd, [ws_row, ws_col, ws_xpixel, ws_ypixel]: [u16; 4]) -> rustix::io::Result<()> {
    let size = Winsize {
        ws_row,
        ws_col,
        ws_xpixel,
        ws_ypixel,
    };
    tcsetwinsize(terminal, size)
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
    /// It is told so behind that, and no more.
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
    /// Until twinpage has ended. A socket that cannot be made ends both: nobody could attach.
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
        let mut said = vec![ENDED, code];
        said.extend_from_slice(self.history.text());
        self.tell_caller(&said)?;
        self.farewell(code);
        if self.listener.is_some() {
            let _ = std::fs::remove_file(state.join(SOCKET)); // the state may be gone
        }
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
        let is_raw = |modes: Termios| !modes.local_modes.contains(LocalModes::ICANON);
        tcgetattr(&self.terminal).is_ok_and(is_raw)
    }

    /// Takes what was printed. Whether all ends of the terminal are closed.
    fn is_over(&mut self) -> io::Result<bool> {
        let mut printed = [0; frames::MOST];
        loop {
            match rustix::io::read(&self.terminal, &mut printed) {
                Ok(0) | Err(rustix::io::Errno::IO) => return Ok(true),
                Ok(count) => {
                    let printed = &printed[..count];
                    self.history.add(printed);
                    let frame = Frame::Bytes(printed.to_vec());
                    self.attached
                        .iter_mut()
                        .for_each(|terminal| terminal.send(&frame));
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(false),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn look_at_size(&mut self) -> io::Result<()> {
        if let Some((_, size)) = self.size_later.take_if(|(when, _)| *when <= Instant::now()) {
            set_size(&self.terminal, size)?;
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

    /// The program has the size of who said it last. To be drawn anew it needs a change.
    fn resize(&mut self, size: [u16; 4]) -> io::Result<()> {
        let now = of_winsize(&tcgetwinsize(&self.terminal)?);
        if now == size && self.size_later.is_none() {
            let [rows, columns, ..] = size;
            set_size(&self.terminal, [rows, columns.saturating_sub(1).max(1), 0, 0])?;
            self.size_later = Some((Instant::now() + OTHER_SIZE, size));
        } else {
            self.size_later = None;
            set_size(&self.terminal, size)?;
        }
        Ok(())
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
