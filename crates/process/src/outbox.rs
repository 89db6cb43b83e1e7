//! What a program sent to the outside and what is not there yet (`--replies held`): output commit for sockets.
//!
//! * A message goes out once an epoch is durable that was cut after the program sent it: no peer sees what a resume
//!   may forget.
//! * Each socket keeps its order, also between messages and a half-close.
//! * What a peer does not take stays here up to a limit, at which the program waits as it would alone.
//! * A connection that is over takes along what is held for it; the program hears of it by its next call.
//! * A socket that the program closed stays open until what it sent is outside.

use crate::pairs;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use twinpage_core::Epoch;
use twinpage_os::{socket, ticker};

/// Bytes that are held for one socket before the program waits. The last call may bring more.
pub(crate) const SOCKET_BYTES: usize = 1 << 20;

/// What a call puts into a socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// Bytes of a stream.
    Bytes(Vec<u8>),
    /// A message of its own, and the address it is for if it names one.
    Message {
        /// The message.
        bytes: Vec<u8>,
        /// As the kernel takes it; empty: to the socket's peer.
        to: Vec<u8>,
    },
    /// Nothing more is sent: shutdown(2), `SHUT_WR` or `SHUT_RDWR`.
    HalfClose(i32),
}

impl Content {
    fn len(&self) -> usize {
        match self {
            Content::Bytes(bytes) | Content::Message { bytes, .. } => bytes.len(),
            Content::HalfClose(_) => 0,
        }
    }
}

/// What is sent, and when it may go out.
#[derive(Debug)]
struct Held {
    content: Content,
    /// The epoch that covers it; none before the next cut.
    epoch: Option<Epoch>,
    /// Bytes that are outside.
    sent: usize,
}

/// What waits for one socket.
#[derive(Debug)]
struct Waiting {
    socket: OwnedFd,
    held: VecDeque<Held>,
    bytes: usize,
    /// The peer takes nothing now, though it may.
    full: bool,
    half_closed: bool,
}

/// How far a socket got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flushed {
    /// All that may go is outside.
    Done,
    /// The peer takes nothing now.
    Full,
    /// The connection is over.
    Over,
}

#[derive(Debug, Default)]
struct State {
    /// By the inode of the socket.
    sockets: HashMap<u64, Waiting>,
    /// How often something was sent since the last cut.
    uncut: usize,
    durable: Epoch,
    /// The tracer is to be woken when an epoch is durable.
    awaited: bool,
    /// Sockets that may take their time to close.
    closing: Vec<OwnedFd>,
    over: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Something went out.
    moved: Condvar,
    wake: OwnedFd,
}

/// What may be held for a socket now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// At least a byte, and then the rest of a call too.
    Some,
    /// None until an epoch is durable.
    None,
    /// None until the peer takes some.
    PeerFull,
    /// The program said that it sends nothing more.
    HalfClosed,
}

/// All that waits to go out. See the [module](self).
#[derive(Debug)]
pub struct Outbox {
    shared: Arc<Shared>,
    sender: Mutex<Option<JoinHandle<()>>>,
}

impl Outbox {
    /// An empty one, and the thread that passes on what peers did not take at once.
    ///
    /// # Errors
    /// When the system refuses a thread or a descriptor.
    pub fn new(durable: Epoch) -> io::Result<Outbox> {
        let state = State {
            durable,
            ..State::default()
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            moved: Condvar::new(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let sender = {
            let shared = Arc::clone(&shared);
            Builder::new()
                .name("twinpage-outbox".into())
                .spawn(move || send_on(&shared))?
        };
        Ok(Outbox {
            shared,
            sender: Mutex::new(Some(sender)),
        })
    }

    /// What may be held for a socket, by its inode. A peer is called full only if the kernel just said so: it tells the
    /// program, too, when that changes.
    #[must_use]
    pub fn room(&self, inode: u64) -> Room {
        let mut state = self.shared.lock();
        if let Some(waiting) = state.sockets.get_mut(&inode)
            && waiting.bytes >= SOCKET_BYTES
            && std::mem::take(&mut waiting.full)
        {
            state.flush(inode);
            self.shared.wake(); // to wait for the peer
        }
        let (bytes, full) = match state.sockets.get(&inode) {
            Some(waiting) if waiting.half_closed => return Room::HalfClosed,
            Some(waiting) => (waiting.bytes, waiting.full),
            None => (0, false),
        };
        match (bytes < SOCKET_BYTES, full) {
            (true, _) => Room::Some,
            (false, true) => Room::PeerFull,
            (false, false) => Room::None,
        }
    }

    /// Whether something waits for a stream socket that may be sent more, so that it needs no look.
    #[must_use]
    pub fn takes_more(&self, inode: u64) -> bool {
        let state = self.shared.lock();
        (state.sockets.get(&inode))
            .is_some_and(|waiting| waiting.bytes < SOCKET_BYTES && !waiting.half_closed)
    }

    /// Takes over what is sent behind what waits for a stream socket; whether something waits still.
    #[must_use]
    pub fn hold_more(&self, inode: u64, bytes: Vec<u8>) -> bool {
        let mut state = self.shared.lock();
        let Some(waiting) = state.sockets.get_mut(&inode) else {
            return false;
        };
        waiting.hold(Content::Bytes(bytes));
        state.uncut += 1;
        true
    }

    /// Takes over what the program sends on a socket.
    pub fn hold(&self, inode: u64, socket: OwnedFd, content: Content) {
        let mut state = self.shared.lock();
        state.uncut += 1;
        let waiting = state.sockets.entry(inode).or_insert_with(|| Waiting {
            socket,
            held: VecDeque::new(),
            bytes: 0,
            full: false,
            half_closed: false,
        });
        waiting.hold(content);
    }

    /// Whether something is held for a socket.
    #[must_use]
    pub fn has(&self, inode: u64) -> bool {
        self.shared.lock().sockets.contains_key(&inode)
    }

    /// The program stands still: what it sent so far is covered by this epoch.
    pub fn cut(&self, epoch: Epoch) {
        let mut state = self.shared.lock();
        if std::mem::take(&mut state.uncut) == 0 {
            return;
        }
        let all = state.sockets.values_mut().flat_map(|waiting| &mut waiting.held);
        all.filter(|held| held.epoch.is_none())
            .for_each(|held| held.epoch = Some(epoch));
    }

    /// The epoch is durable: what it covers goes out now.
    pub fn durable(&self, epoch: Epoch) {
        let mut state = self.shared.lock();
        state.durable = epoch;
        flush_all(&mut state);
        let more = !state.closing.is_empty() || state.sockets.values().any(|waiting| waiting.full);
        let awaited = std::mem::take(&mut state.awaited);
        drop(state);
        self.shared.moved.notify_all();
        if more {
            self.shared.wake();
        }
        if awaited {
            ticker::ring();
        }
    }

    /// The last durable epoch.
    #[must_use]
    pub fn last_durable(&self) -> Epoch {
        self.shared.lock().durable
    }

    /// The tracer's alarm rings when the next epoch is durable.
    pub fn await_durable(&self) {
        self.shared.lock().awaited = true;
    }

    /// How often something was sent that waits for a cut.
    #[must_use]
    pub fn uncut(&self) -> usize {
        self.shared.lock().uncut
    }

    /// The program ended or is suspended: returns when all that may go out is outside, or when no peer took anything
    /// for `patience`. How many bytes are left.
    pub fn finish(&self, patience: Duration) -> usize {
        let mut state = self.shared.lock();
        let (mut left, mut since) = (state.allowed(), Instant::now());
        while left > 0 && since.elapsed() < patience {
            self.shared.moved.wait_for(&mut state, patience / 8);
            let now = state.allowed();
            if now < left {
                since = Instant::now();
            }
            left = now;
        }
        left
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.wake();
        let sender = self.sender.lock().take();
        if let Some(sender) = sender {
            // One that panicked has nothing more to send.
            let _ = sender.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn wake(&self) {
        // A full eventfd wakes as well.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// Sends what may go out, of all sockets whose peers take something. The program's next replies are taken over in between:
/// its first receivers answer while the last ones are sent to.
fn flush_all(state: &mut MutexGuard<'_, State>) {
    let inodes: Vec<u64> = state.sockets.keys().copied().collect();
    for inode in inodes {
        state.flush(inode);
        MutexGuard::bump(state);
    }
}

impl State {
    fn flush(&mut self, inode: u64) {
        let Some(waiting) = self.sockets.get_mut(&inode).filter(|waiting| !waiting.full) else {
            return;
        };
        if waiting.flush(self.durable) != Flushed::Over && !waiting.held.is_empty() {
            return;
        }
        if let Some(waiting) = self.sockets.remove(&inode)
            && lingers(waiting.socket.as_fd())
        {
            self.closing.push(waiting.socket);
        }
    }

    /// Bytes that may go out.
    fn allowed(&self) -> usize {
        let all = self.sockets.values().flat_map(|waiting| &waiting.held);
        let allowed = all.filter(|held| held.epoch.is_some_and(|epoch| epoch <= self.durable));
        allowed.map(|held| held.content.len() - held.sent).sum()
    }
}

impl Waiting {
    fn hold(&mut self, content: Content) {
        self.half_closed |= matches!(content, Content::HalfClose(_));
        self.bytes += content.len();
        match (self.held.back_mut(), content) {
            (
                Some(Held {
                    content: Content::Bytes(before),
                    epoch: None,
                    ..
                }),
                Content::Bytes(more),
            ) => before.extend_from_slice(&more),
            (_, content) => self.held.push_back(Held {
                content,
                epoch: None,
                sent: 0,
            }),
        }
    }

    fn flush(&mut self, durable: Epoch) -> Flushed {
        // An error that waits is the program's to hear.
        let ended = PollFlags::ERR | PollFlags::HUP;
        let is_stream = !matches!(
            self.held.front(),
            Some(Held {
                content: Content::Message { .. },
                ..
            })
        );
        if is_stream && pairs::state(&self.socket).is_ok_and(|state| state.intersects(ended)) {
            return Flushed::Over;
        }
        while let Some(held) = self.held.front_mut() {
            if held.epoch.is_none_or(|epoch| epoch > durable) {
                return Flushed::Done;
            }
            match held.send(self.socket.as_fd()) {
                Ok(sent) => {
                    held.sent += sent;
                    self.bytes -= sent;
                    if held.sent == held.content.len() {
                        self.held.pop_front();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.full = true;
                    return Flushed::Full;
                }
                // A message that is not delivered is lost, as alone.
                Err(_) if matches!(held.content, Content::Message { .. }) => {
                    self.bytes -= held.content.len();
                    self.held.pop_front();
                }
                Err(_) => return Flushed::Over,
            }
        }
        Flushed::Done
    }
}

impl Held {
    fn send(&self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        match &self.content {
            Content::Bytes(bytes) => socket::send(fd, &bytes[self.sent..]),
            Content::Message { bytes, to } if to.is_empty() => socket::send(fd, bytes),
            Content::Message { bytes, to } => socket::send_to(fd, bytes, to),
            Content::HalfClose(how) => socket::shut(fd, *how).map(|()| 0),
        }
    }
}

/// Whether its last close may wait for its peer: `SO_LINGER`.
fn lingers(fd: BorrowedFd<'_>) -> bool {
    socket::option(fd, libc::SO_LINGER).is_ok_and(|value| value.iter().any(|byte| *byte != 0))
}

/// Sends when peers take something again, until the outbox is dropped.
fn send_on(shared: &Shared) {
    loop {
        let mut state = shared.lock();
        if state.over {
            return;
        }
        let full = state.sockets.iter().filter(|(_, waiting)| waiting.full);
        let full = full.filter_map(|(inode, waiting)| Some((*inode, waiting.socket.try_clone().ok()?)));
        let full: Vec<(u64, OwnedFd)> = full.collect();
        let closing = std::mem::take(&mut state.closing);
        drop(state);
        drop(closing);
        let mut asked = vec![PollFd::new(&shared.wake, PollFlags::IN)];
        asked.extend(full.iter().map(|(_, socket)| PollFd::new(socket, PollFlags::OUT)));
        if poll(&mut asked, None).is_err() {
            continue; // a signal
        }
        let ready: Vec<bool> = asked.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            let _ = rustix::io::read(&shared.wake, &mut [0; 8]);
        }
        let mut state = shared.lock();
        for ((inode, _), _) in full.iter().zip(&ready[1..]).filter(|(_, ready)| **ready) {
            if let Some(waiting) = state.sockets.get_mut(inode) {
                waiting.full = false;
            }
            state.flush(*inode);
        }
        drop(state);
        drop(full);
        shared.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    const SOON: Duration = Duration::from_secs(600);

    fn hold(outbox: &Outbox, socket: &impl AsFd, content: Content) {
        let socket = socket.as_fd().try_clone_to_owned().unwrap();
        let inode = rustix::fs::fstat(&socket).unwrap().st_ino;
        outbox.hold(inode, socket, content);
    }

    fn bytes(text: &str) -> Content {
        Content::Bytes(text.into())
    }

    fn read_now(from: &mut UnixStream) -> String {
        from.set_nonblocking(true).unwrap();
        let mut read = [0; 64];
        let length = from.read(&mut read).unwrap_or(0);
        String::from_utf8_lossy(&read[..length]).into_owned()
    }

    #[test]
    fn what_an_epoch_covers_goes_out_when_it_is_durable() {
        let outbox = Outbox::new(4).unwrap();
        let (one, mut other) = UnixStream::pair().unwrap();
        hold(&outbox, &one, bytes("a"));
        hold(&outbox, &one, bytes("b"));
        assert!(outbox.uncut() > 0);
        outbox.durable(5); // it was cut before
        assert_eq!(read_now(&mut other), "");
        outbox.cut(6);
        assert_eq!(outbox.uncut(), 0);
        hold(&outbox, &one, bytes("c"));
        outbox.durable(6);
        assert_eq!(read_now(&mut other), "ab");
        outbox.cut(7);
        outbox.cut(7); // epoch 7 was lost, and another has its number
        outbox.durable(7);
        assert_eq!(read_now(&mut other), "c");
        assert!(outbox.shared.lock().sockets.is_empty());
    }

    #[test]
    fn more_is_taken_behind_what_waits() {
        let outbox = Outbox::new(0).unwrap();
        let (one, mut other) = UnixStream::pair().unwrap();
        let inode = rustix::fs::fstat(&one).unwrap().st_ino;
        assert!(!outbox.takes_more(inode) && !outbox.hold_more(inode, b"lost".into()));
        hold(&outbox, &one, bytes("a"));
        assert!(outbox.takes_more(inode) && outbox.hold_more(inode, b"b".into()));
        outbox.cut(1);
        assert!(outbox.hold_more(inode, b"c".into()));
        assert!(outbox.uncut() > 0);
        outbox.durable(1);
        assert_eq!(read_now(&mut other), "ab");
        hold(&outbox, &one, Content::HalfClose(libc::SHUT_WR));
        assert!(!outbox.takes_more(inode), "it was half-closed");
        outbox.cut(2);
        outbox.durable(2);
        assert_eq!(read_now(&mut other), "c");
        hold(&outbox, &one, Content::Bytes(vec![7; SOCKET_BYTES]));
        assert!(!outbox.takes_more(inode), "it is full");
    }

    #[test]
    fn a_closed_socket_and_a_half_close_come_behind_the_bytes() {
        let outbox = Outbox::new(0).unwrap();
        let (one, mut other) = UnixStream::pair().unwrap();
        hold(&outbox, &one, bytes("all"));
        hold(&outbox, &one, Content::HalfClose(libc::SHUT_WR));
        let inode = rustix::fs::fstat(&one).unwrap().st_ino;
        assert_eq!(outbox.room(inode), Room::HalfClosed);
        drop(one);
        outbox.cut(1);
        outbox.durable(1);
        let mut all = String::new();
        other.read_to_string(&mut all).unwrap();
        assert_eq!(all, "all");
    }

    #[test]
    fn a_peer_that_takes_nothing_is_waited_for() {
        let outbox = Outbox::new(0).unwrap();
        let (one, mut other) = UnixStream::pair().unwrap();
        let inode = rustix::fs::fstat(&one).unwrap().st_ino;
        let much = vec![7; SOCKET_BYTES];
        hold(&outbox, &one, Content::Bytes(much.clone()));
        assert_eq!(outbox.room(inode), Room::None);
        outbox.cut(1);
        outbox.durable(1);
        hold(&outbox, &one, Content::Bytes(much));
        assert_eq!(outbox.room(inode), Room::PeerFull);
        assert!(outbox.finish(Duration::from_millis(40)) > 0);
        outbox.cut(2);
        outbox.durable(2);
        drop(one);
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            other.read_to_end(&mut all).map(|_| all.len())
        });
        assert_eq!(outbox.finish(SOON), 0);
        assert_eq!(reader.join().unwrap().unwrap(), 2 * SOCKET_BYTES);
    }

    #[test]
    fn a_connection_that_is_over_takes_what_is_held_along() {
        let outbox = Outbox::new(0).unwrap();
        let (one, other) = UnixStream::pair().unwrap();
        hold(&outbox, &one, bytes("lost"));
        drop(other);
        outbox.cut(1);
        outbox.durable(1);
        assert_eq!(outbox.finish(SOON), 0);
        assert!(outbox.shared.lock().sockets.is_empty());
        assert!((&one).write(b"and").is_err(), "the program hears of it");
    }

    #[test]
    fn messages_stay_apart() {
        let outbox = Outbox::new(0).unwrap();
        let (one, other) = UnixDatagram::pair().unwrap();
        for text in ["one", "", "three"] {
            let message = Content::Message {
                bytes: text.into(),
                to: Vec::new(),
            };
            hold(&outbox, &one, message);
        }
        outbox.cut(1);
        outbox.durable(1);
        for text in ["one", "", "three"] {
            let mut read = [0; 16];
            let length = other.recv(&mut read).unwrap();
            assert_eq!(&read[..length], text.as_bytes());
        }
    }
}
