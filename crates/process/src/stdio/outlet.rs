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
    /// The outside has no reader any more.
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
                let held = found_in_file(self.fd.as_fd(), place.base, log, safe)?;
                // In a file that other programs wrote to, the counter is right, except after a power cut.
                if held.rest == Rest::Nothing || !released.trusted() {
                    count = held.whole;
                }
                if held.rest == Rest::Holes && !released.trusted() && appends(self.fd.as_fd())? {
                    self.cut(place.base.wrapping_add(count))?;
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

    /// Ends the file where a power cut left the first hole: what follows is written again, and goes to the end.
    fn cut(&self, len: u64) -> Result<()> {
        rustix::fs::ftruncate(&*self.fd, len)
            .map_err(|e| Error::io("cut what a power cut left of the file of standard output", e))
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

    /// Whether the other end waits for it to be closed.
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

/// What a regular file holds of a stream from position `safe` on.
struct Held {
    /// Up to where it has all bytes.
    whole: u64,
    /// What follows that.
    rest: Rest,
}

/// What a file holds behind the bytes of a stream.
#[derive(PartialEq)]
enum Rest {
    Nothing,
    /// Zeros, and bytes of the stream at their places: a power cut took some, and left the length.
    Holes,
    /// Bytes of another program, or the file was truncated or cannot be read.
    Others,
}

/// How much of the stream a regular file already holds after `base`.
fn found_in_file(fd: BorrowedFd<'_>, base: u64, log: &Log, safe: u64) -> Result<Held> {
    let others = |whole| Held {
        whole,
        rest: Rest::Others,
    };
    let Ok(own) = reopen(fd, OFlags::RDONLY) else {
        return Ok(others(safe));
    };
    let file = File::from(own);
    let size = file
        .metadata()
        .map_err(|e| Error::io("look at the file of standard output", e))?
        .len();
    let holds = size.wrapping_sub(base);
    if !(safe..=log.end()).contains(&holds) {
        return Ok(others(safe));
    }
    let (mut at, mut whole) = (safe, None);
    let (mut theirs, mut ours) = (vec![0; 65536], vec![0; 65536]);
    while at < holds {
        let len = (holds - at).min(65536) as usize;
        let read = file.read_exact_at(&mut theirs[..len], base.wrapping_add(at));
        if read.is_err() || log.read(at, &mut ours[..len])? != len {
            return Ok(others(whole.unwrap_or(at)));
        }
        let mut pairs = theirs[..len].iter().zip(&ours[..len]);
        let first = pairs.clone().position(|(their, our)| their != our);
        whole = whole.or(first.map(|first| at + first as u64));
        if let Some(whole) = whole
            && pairs.any(|(their, our)| *their != 0 && their != our)
        {
            return Ok(others(whole));
        }
        at += len as u64;
    }
    Ok(Held {
        whole: whole.unwrap_or(holds),
        rest: if whole.is_some() {
            Rest::Holes
        } else {
            Rest::Nothing
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::os::fd::AsFd;

    /// A stream of which `safe` bytes are on the disk and a file was to hold all, after a power cut or a kill.
    struct Stage {
        _dir: tempfile::TempDir,
        log: Log,
        path: std::path::PathBuf,
        released: Released,
    }

    const SAFE: u64 = 100;

    fn stream() -> Vec<u8> {
        (0..200_000_u32).map(|i| (i % 251) as u8 + 1).collect()
    }

    impl Stage {
        fn new(file: &[u8], was_power_cut: bool) -> Stage {
            let dir = tempfile::tempdir().unwrap();
            let mut log = Log::create(dir.path(), "output-0").unwrap();
            log.append(&stream()).unwrap();
            let path = dir.path().join("printed");
            std::fs::write(&path, file).unwrap();
            let stat = rustix::fs::stat(&path).unwrap();
            let released = Released::open(dir.path(), true).unwrap();
            released.set(0, 150_000);
            released.set_place(
                0,
                Some(Destination {
                    dev: stat.st_dev,
                    ino: stat.st_ino,
                    base: 0,
                }),
            );
            if !was_power_cut {
                released.vouch(false).unwrap();
            }
            drop(released);
            let released = Released::open(dir.path(), false).unwrap();
            assert_eq!(released.trusted(), !was_power_cut);
            Stage {
                _dir: dir,
                log,
                path,
                released,
            }
        }

        /// Where the stream goes on, and what the file then holds.
        fn resume(&self) -> (u64, Vec<u8>) {
            let file = OpenOptions::new().append(true).open(&self.path).unwrap();
            Outlet::new(file.as_fd(), 0, &self.released, Some((&self.log, SAFE))).unwrap();
            (self.released.get(0), std::fs::read(&self.path).unwrap())
        }
    }

    #[test]
    fn what_a_power_cut_left_is_cut_at_the_first_hole() {
        let all = stream();
        let mut holes = all[..150_000].to_vec();
        holes[4096..8192].fill(0);
        holes[140_000..].fill(0);
        assert_eq!(Stage::new(&holes, true).resume(), (4096, all[..4096].to_vec()));
        let mut end = all[..150_000].to_vec();
        end[SAFE as usize..].fill(0);
        assert_eq!(
            Stage::new(&end, true).resume(),
            (SAFE, all[..SAFE as usize].to_vec())
        );
        let short = &all[..70_000];
        assert_eq!(Stage::new(short, true).resume(), (70_000, short.to_vec()));
    }

    /// A kill leaves no holes, so zeros are another program's. After a power cut, other bytes than zeros are.
    #[test]
    fn bytes_of_another_program_stay() {
        let all = stream();
        let mut zeros = all[..150_000].to_vec();
        zeros[140_000..].fill(0);
        assert_eq!(Stage::new(&zeros, false).resume(), (150_000, zeros));
        let mut others = all[..150_000].to_vec();
        others[4096..8192].fill(0);
        others[149_999] = 0xff;
        assert_eq!(Stage::new(&others, true).resume(), (4096, others));
    }
}
