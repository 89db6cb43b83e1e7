//! The real end of an output: writes what may go outside, and counts it in the same system call.
//!
//! Invariants:
//! * Only bytes covered by a durable epoch are handed to an outlet.
//! * With sendfile(2) the kernel moves the counter (its `offset` argument) before it returns to this
//!   process, so that a kill leaves no byte outside uncounted. Where a file cannot be sent to, the
//!   bytes are written and then counted: a kill between the two repeats that one write.
//! * No call blocks, or where that cannot be had, the outside was ready for that many bytes.

use super::error::{Error, Result};
use super::log::Log;
use super::outside::{Kind, appends, kind, reopen, stat};
use super::released::{Destination, Released};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// What an outside that is ready surely takes without blocking, PIPE_BUF in pipe(7).
const READY_BYTES: u64 = 4096;
/// The most one system call writes.
const CALL_BYTES: u64 = 1 << 20;

/// How a release ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Everything was written.
    Done,
    /// The outside takes no more now.
    Full,
    /// Nobody reads the outside any more.
    Broken,
    /// The outside refuses: a full disk, a terminal that went away. Nothing is lost.
    Stuck(io::Error),
}

/// The real end of an output.
#[derive(Debug)]
pub(super) struct Outlet {
    fd: Arc<OwnedFd>,
    kind: Kind,
    slot: usize,
    /// Bytes can be sent from the log by the kernel itself.
    sends: bool,
    /// The descriptor may block: it is asked before each write, and written little at a time.
    gated: bool,
}

impl Outlet {
    /// The outlet of `slot` to `real`. `resumed` holds the log and the position below which
    /// everything is known to be outside; what else is outside is found out here.
    pub(super) fn new(
        real: BorrowedFd<'_>,
        slot: usize,
        released: &Released,
        resumed: Option<(&Log, u64)>,
    ) -> Result<Outlet> {
        let kind = kind(real)?;
        let own = match kind {
            Kind::Pipe | Kind::Terminal => reopen(real, OFlags::WRONLY | OFlags::NONBLOCK).ok(),
            _ => None,
        };
        let gated = own.is_none() && matches!(kind, Kind::Pipe | Kind::Terminal | Kind::Other);
        let fd = match own {
            Some(fd) => fd,
            // A regular file keeps the offset it shares with those who gave it to us.
            None => rustix::io::fcntl_dupfd_cloexec(real, 0)
                .map_err(|e| Error::io("duplicate a standard stream", e))?,
        };
        // The kernel sends to no file that appends, sendfile(2).
        let sends = !(kind == Kind::Regular && appends(fd.as_fd())?);
        let outlet = Outlet {
            fd: Arc::new(fd),
            kind,
            slot,
            sends,
            gated,
        };
        outlet.set_counter(released, resumed)?;
        Ok(outlet)
    }

    /// Sets the counter to what really is outside, and notes which file it speaks of.
    fn set_counter(&self, released: &Released, resumed: Option<(&Log, u64)>) -> Result<()> {
        let regular = self.kind == Kind::Regular;
        let now = if regular {
            Some(stat(self.fd.as_fd())?)
        } else {
            None
        };
        let before = released.place(self.slot);
        let mut count = 0;
        let mut base = None;
        if let Some((log, safe)) = resumed {
            count = if released.trusted() {
                released.get(self.slot).clamp(safe, log.end())
            } else {
                safe
            };
            if let (Some(now), Some(place)) = (&now, before)
                && (now.st_dev, now.st_ino) == (place.dev, place.ino)
            {
                base = Some(place.base);
                match found_in_file(self.fd.as_fd(), place.base, log, safe)? {
                    (found, true) => count = found,
                    // Somebody else wrote there too: the counter knows, unless the power was cut.
                    (found, false) if !released.trusted() => count = found,
                    _ => {}
                }
            }
        }
        released.set(self.slot, count);
        let place = match now {
            None => None,
            Some(now) => {
                let at = if appends(self.fd.as_fd())? {
                    now.st_size as u64
                } else {
                    rustix::fs::tell(&*self.fd).unwrap_or(now.st_size as u64)
                };
                let base = base.unwrap_or_else(|| at.wrapping_sub(count));
                Some(Destination {
                    dev: now.st_dev,
                    ino: now.st_ino,
                    base,
                })
            }
        };
        released.set_place(self.slot, place);
        Ok(())
    }

    /// What to wait on before more can be written.
    pub(super) fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Whether it must be waited on before every write.
    pub(super) fn gated(&self) -> bool {
        self.gated
    }

    /// The file whose content only fdatasync(2) keeps over a power cut, if it is one.
    pub(super) fn file(&self) -> Option<Arc<OwnedFd>> {
        (self.kind == Kind::Regular).then(|| Arc::clone(&self.fd))
    }

    /// Whether somebody at the other end waits for it to be closed.
    pub(super) fn has_reader(&self) -> bool {
        matches!(self.kind, Kind::Pipe | Kind::Other)
    }

    /// Writes the bytes of `file` from the counter on, up to position `to`, and counts them.
    pub(super) fn release(&mut self, file: &File, to: u64, released: &Released) -> Outcome {
        loop {
            let at = released.get(self.slot);
            if at >= to {
                return Outcome::Done;
            }
            let most = if self.gated { READY_BYTES } else { CALL_BYTES };
            let len = (to - at).min(most) as usize;
            let wrote = if self.sends {
                released.send(self.slot, &*self.fd, file, len)
            } else {
                self.copy(file, at, len, released)
            };
            match wrote {
                Ok(0) => return Outcome::Stuck(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) if self.gated => return Outcome::Full,
                Ok(_) => {}
                Err(e) => match e.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN) => return Outcome::Full,
                    Some(libc::EPIPE | libc::ECONNRESET) => return Outcome::Broken,
                    Some(libc::EINVAL | libc::ENOSYS) if self.sends => self.sends = false,
                    _ => return Outcome::Stuck(e),
                },
            }
        }
    }

    /// Writes, then counts.
    fn copy(&self, file: &File, at: u64, len: usize, released: &Released) -> io::Result<usize> {
        // A regular file tells by itself how much of it was written; elsewhere little is at stake.
        let most = if self.kind == Kind::Regular {
            CALL_BYTES
        } else {
            READY_BYTES
        };
        let mut bytes = vec![0; len.min(most as usize)];
        let n = file.read_at(&mut bytes, at)?;
        let wrote = rustix::io::write(&*self.fd, &bytes[..n])?;
        released.set(self.slot, at + wrote as u64);
        Ok(wrote)
    }
}

/// Makes what was written to a file durable, fdatasync(2). One that cannot be synced (EINVAL) is none
/// that would keep anything.
pub(super) fn sync(file: &OwnedFd) -> Result<()> {
    match rustix::fs::fdatasync(file) {
        Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(()),
        Err(e) => Err(Error::io("sync the file that standard output goes to", e)),
    }
}

/// How much of the stream a regular file already holds, and whether it holds nothing else after
/// `base`: it does not when somebody else wrote there too, or cut it, or when it cannot be read.
fn found_in_file(fd: BorrowedFd<'_>, base: u64, log: &Log, safe: u64) -> Result<(u64, bool)> {
    let Ok(own) = reopen(fd, OFlags::RDONLY) else {
        return Ok((safe, false));
    };
    let file = File::from(own);
    let size = file
        .metadata()
        .map_err(|e| Error::io("look at the file of standard output", e))?
        .len();
    let holds = size.wrapping_sub(base);
    if !(safe..=log.end()).contains(&holds) {
        return Ok((safe, false));
    }
    let mut at = safe;
    let (mut theirs, mut ours) = (vec![0; 65536], vec![0; 65536]);
    while at < holds {
        let len = (holds - at).min(65536) as usize;
        let same = if file
            .read_exact_at(&mut theirs[..len], base.wrapping_add(at))
            .is_ok()
            && log.read(at, &mut ours[..len])? == len
        {
            theirs[..len]
                .iter()
                .zip(&ours[..len])
                .take_while(|(a, b)| a == b)
                .count()
        } else {
            0
        };
        at += same as u64;
        if same < len {
            return Ok((at, false));
        }
    }
    Ok((holds, true))
}
