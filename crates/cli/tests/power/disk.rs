//! A disk with a volatile write cache, which may lose power and may fail: a server of the NBD protocol
//! (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>), for QEMU on a Unix socket.
//!
//! * A write is in the cache until a flush. Reads see it.
//! * When the power goes, what was flushed stays, and of the sectors written since any subset.
//! * A write or a flush that fails says so. What it was for stays in the cache, and may or may not reach
//!   the disk, as with real ones.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use twinpage_core::crash::Random;

/// The piece that does not tear.
const SECTOR: usize = 512;

/// How a disk fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// The next flush fails, and all after it work again.
    OneFlush,
    /// The next write fails, and all after it work again.
    OneWrite,
    /// No flush works from now on.
    Flushes,
    /// No write works from now on.
    Writes,
    /// Flushes are called done and are not. No store can help that; it shows that these tests can fail.
    Lies,
}

/// A disk, and the socket it is reached at.
#[derive(Clone)]
pub(crate) struct Disk {
    socket: PathBuf,
    state: Arc<Mutex<State>>,
}

struct State {
    /// What survives a power cut for certain.
    durable: Vec<u8>,
    /// What reads see.
    seen: Vec<u8>,
    /// Writes since the last flush, in their order.
    cache: Vec<(usize, Vec<u8>)>,
    failure: Option<Failure>,
}

impl Disk {
    /// An empty disk of `bytes`, served until the program ends.
    pub(crate) fn start(socket: PathBuf, bytes: u64) -> io::Result<Disk> {
        let listener = UnixListener::bind(&socket)?;
        let state = State {
            durable: vec![0; bytes as usize],
            seen: vec![0; bytes as usize],
            cache: Vec::new(),
            failure: None,
        };
        let disk = Disk {
            socket,
            state: Arc::new(Mutex::new(state)),
        };
        let server = disk.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // A client that is killed in the middle is what this disk is for.
                let _ = server.serve(client);
            }
        });
        Ok(disk)
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// From now on it fails.
    pub(crate) fn fail(&self, failure: Failure) {
        self.state().failure = Some(failure);
    }

    /// The power goes and comes back, and the disk is sound again. Of the cache all, nothing, half or nearly
    /// all stays; where the disk lied, nothing.
    pub(crate) fn cut(&self, random: &mut Random) {
        let mut state = self.state();
        let state = &mut *state;
        let lied = state.failure == Some(Failure::Lies);
        let kind = if lied { 0 } else { random.below(4) };
        let mut stays = || match kind {
            0 => false,
            1 => true,
            2 => random.once_in(2),
            _ => !random.once_in(8),
        };
        for (at, bytes) in state.cache.drain(..) {
            for (k, sector) in bytes.chunks(SECTOR).enumerate() {
                if stays() {
                    state.durable[at + k * SECTOR..][..sector.len()].copy_from_slice(sector);
                }
            }
        }
        state.seen.copy_from_slice(&state.durable);
        state.failure = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, mut client: UnixStream) -> io::Result<()> {
        let bytes = self.state().seen.len() as u64;
        if !agree(&mut client, bytes)? {
            return Ok(());
        }
        loop {
            const REQUEST: u32 = 0x2560_9513;
            const REPLY: u32 = 0x6744_6698;
            if number::<4>(&mut client)? != u64::from(REQUEST) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let _flags = number::<2>(&mut client)?;
            let command = number::<2>(&mut client)?;
            let cookie = number::<8>(&mut client)?;
            let at = number::<8>(&mut client)? as usize;
            let len = number::<4>(&mut client)? as usize;
            let mut data = Vec::new();
            let done = match command {
                0 => {
                    data.extend_from_slice(&self.state().seen[at..at + len]);
                    true
                }
                1 => {
                    let mut written = vec![0; len];
                    client.read_exact(&mut written)?;
                    self.state().write(at, written)
                }
                2 => return Ok(()),
                3 => self.state().flush(),
                _ => return Err(io::ErrorKind::Unsupported.into()),
            };
            let error: u32 = if done { 0 } else { 5 }; // EIO
            let mut reply = [
                &REPLY.to_be_bytes()[..],
                &error.to_be_bytes(),
                &cookie.to_be_bytes(),
            ]
            .concat();
            reply.append(&mut data);
            client.write_all(&reply)?;
        }
    }
}

impl State {
    fn write(&mut self, at: usize, bytes: Vec<u8>) -> bool {
        let fails = self.fails(Failure::OneWrite, Failure::Writes);
        if !fails {
            self.seen[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        self.cache.push((at, bytes));
        !fails
    }

    fn flush(&mut self) -> bool {
        if self.fails(Failure::OneFlush, Failure::Flushes) {
            return false;
        }
        if self.failure == Some(Failure::Lies) {
            return true;
        }
        for (at, bytes) in self.cache.drain(..) {
            self.durable[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        true
    }

    fn fails(&mut self, once: Failure, always: Failure) -> bool {
        if self.failure == Some(once) {
            self.failure = None;
            return true;
        }
        self.failure == Some(always)
    }
}

/// Haggles over options until the client wants the one disk there is; false when it leaves.
fn agree(client: &mut UnixStream, bytes: u64) -> io::Result<bool> {
    const HAVE_OPTION: [u8; 8] = *b"IHAVEOPT";
    const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
    const FIXED_NEWSTYLE_NO_ZEROES: u16 = 0b11;
    const HAS_FLAGS_SEND_FLUSH: u16 = 0b101;
    const ACKNOWLEDGED: u32 = 1;
    const INFORMATION: u32 = 3;
    const UNSUPPORTED: u32 = 1 << 31 | 1;
    client.write_all(b"NBDMAGIC")?;
    client.write_all(&HAVE_OPTION)?;
    client.write_all(&FIXED_NEWSTYLE_NO_ZEROES.to_be_bytes())?;
    number::<4>(client)?;
    loop {
        let mut magic = [0; 8];
        client.read_exact(&mut magic)?;
        if magic != HAVE_OPTION {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let option = number::<4>(client)? as u32;
        let len = number::<4>(client)? as usize;
        client.read_exact(&mut vec![0; len])?;
        let mut reply = |kind: u32, data: &[u8]| -> io::Result<()> {
            client.write_all(&OPTION_REPLY.to_be_bytes())?;
            client.write_all(&option.to_be_bytes())?;
            client.write_all(&kind.to_be_bytes())?;
            client.write_all(&(data.len() as u32).to_be_bytes())?;
            client.write_all(data)
        };
        match option {
            // Abort.
            2 => {
                reply(ACKNOWLEDGED, &[])?;
                return Ok(false);
            }
            // Information, and the same with "go".
            6 | 7 => {
                let export = [
                    &[0; 2][..],
                    &bytes.to_be_bytes(),
                    &HAS_FLAGS_SEND_FLUSH.to_be_bytes(),
                ]
                .concat();
                reply(INFORMATION, &export)?;
                reply(ACKNOWLEDGED, &[])?;
                if option == 7 {
                    return Ok(true);
                }
            }
            _ => reply(UNSUPPORTED, &[])?,
        }
    }
}

/// A big-endian number of `N` bytes.
fn number<const N: usize>(client: &mut UnixStream) -> io::Result<u64> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes)?;
    Ok(bytes
        .iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte)))
}
