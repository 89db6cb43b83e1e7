//! `twinpage attach`: a person's terminal beside a detached program.

use super::frames::{self, Frame};
use super::{SOCKET, socket_in};
use crate::error::{Error, Result};
use crate::stdio::terminal;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::AsFd;
use rustix::termios::isatty;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use twinpage_os::terminal::{GiveBack, forget_size, watch_size};

/// What a program that has the whole screen may have set, set back: the alternate screen, a hidden cursor, the mouse,
/// bracketed paste, colours.
const USUAL: &[u8] =
    b"\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[0m\r\n";

/// How a terminal came to be attached no longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// A person asked for it, by the key.
    ByKey,
    /// twinpage ended, with this exit code.
    Ended(u8),
    /// This terminal took too little of what the program prints.
    TooSlow,
    /// The keeper was killed; the program is suspended then.
    KeeperGone,
}

/// Relays this terminal to the program whose state is in `state`, until one of [`Left`]. `key` leaves.
///
/// # Errors
/// When the standard input is no terminal, or the program is not detached.
pub fn attach(state: &Path, key: Option<u8>) -> Result<Left> {
    let stdin = io::stdin();
    if !isatty(&stdin) {
        return Err(Error::State(
            "standard input is no terminal: attach from one".into(),
        ));
    }
    let mut stream = connect(state)?;
    let failed = |error: io::Error| Error::State(format!("cannot relay this terminal: {error}"));
    let resized =
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| failed(error.into()))?;
    watch_size(resized.as_fd());
    let found = terminal::modes(stdin.as_fd()).map_err(failed)?;
    let taken = GiveBack::promise(stdin.as_fd(), found.into());
    let raw = terminal::set_modes(stdin.as_fd(), &found.raw());
    let left = raw.and_then(|()| relay(&mut stream, key, &resized));
    let _ = io::stdout().write_all(USUAL).and_then(|()| io::stdout().flush());
    drop(taken);
    forget_size(resized.as_fd());
    left.map_err(failed)
}

fn connect(state: &Path) -> Result<UnixStream> {
    let directory = File::open(state).map_err(Error::file("cannot open", state))?;
    UnixStream::connect(socket_in(&directory)).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => Error::State(format!(
            "{} is no state of a detached program that runs: go on with one that was killed with twinpage resume --detach, \
             or move one here from its terminal with twinpage stop and twinpage resume",
            state.display()
        )),
        _ => Error::file("cannot connect to", state.join(SOCKET))(error),
    })
}

fn relay(stream: &mut UnixStream, key: Option<u8>, resized: &impl AsFd) -> io::Result<Left> {
    let stdin = io::stdin();
    let mut heard = Vec::new();
    send_size(stream)?;
    loop {
        let mut fds = [
            PollFd::new(&stdin, PollFlags::IN),
            PollFd::new(stream, PollFlags::IN),
            PollFd::new(resized, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [keys, printed, size] = fds.map(|fd| !fd.revents().is_empty());
        if size {
            let _ = rustix::io::read(resized, &mut [0; 8]);
            send_size(stream)?;
        }
        if printed && let Some(left) = show(stream, &mut heard)? {
            return Ok(left);
        }
        if keys && let Some(left) = pass_keys(stream, key)? {
            return Ok(left);
        }
    }
}

fn send_size(stream: &mut UnixStream) -> io::Result<()> {
    let size = terminal::size(io::stdin().as_fd())?;
    sent(Frame::Size(size).put(stream))
}

/// A keeper that is gone is seen where it is read.
fn sent(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => Ok(()),
        other => other,
    }
}

/// Shows what the program printed.
fn show(stream: &mut UnixStream, heard: &mut Vec<u8>) -> io::Result<Option<Left>> {
    let mut bytes = [0; 4 * frames::MOST];
    match stream.read(&mut bytes) {
        Ok(0) => return Ok(Some(Left::KeeperGone)),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(Some(Left::KeeperGone)),
        Ok(count) => heard.extend_from_slice(&bytes[..count]),
        Err(error) => return Err(error),
    }
    let mut stdout = io::stdout().lock();
    while let Some(frame) = frames::take(heard)? {
        match frame {
            Frame::Bytes(printed) => stdout.write_all(&printed)?,
            Frame::Ended(code) => return Ok(Some(Left::Ended(code))),
            Frame::TooSlow => return Ok(Some(Left::TooSlow)),
            Frame::Size(_) => {}
        }
    }
    stdout.flush()?;
    Ok(None)
}

/// Passes keys on, up to the one that leaves.
fn pass_keys(stream: &mut UnixStream, key: Option<u8>) -> io::Result<Option<Left>> {
    let mut keys = [0; 4096];
    let count = rustix::io::read(io::stdin(), &mut keys)?;
    let keys = &keys[..count];
    let leaves = key.and_then(|key| keys.iter().position(|typed| *typed == key));
    let passed = &keys[..leaves.unwrap_or(count)];
    sent(Frame::Bytes(passed.to_vec()).put(stream))?;
    // A terminal that is gone, or at its end, leaves too.
    Ok((leaves.is_some() || count == 0).then_some(Left::ByKey))
}
