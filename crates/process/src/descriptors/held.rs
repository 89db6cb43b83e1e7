//! What descriptors hold at a stop: offsets, counters, what is in pipes and sockets.

use super::{Descriptor, Descriptors, Held, What, fdinfo, field};
use crate::error::{Error, Result};
use crate::files::Ident;
use crate::{pairs, polls};
use rustix::fs::{OFlags, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use twinpage_os::remote::Process;
use twinpage_os::trace::Tid;

impl Descriptors {
    /// What each descriptor holds now, in the order of [`Descriptors::list`].
    ///
    /// # Errors
    /// When the system refuses a look.
    pub fn held(&self, process: &Process, tid: Tid) -> Result<Vec<Held>> {
        self.list
            .values()
            .map(|descriptor| self.held_by(process, tid, descriptor))
            .collect()
    }

    /// Whether an end of this pipe writes packets.
    fn has_packets(&self, pipe: &Descriptor) -> bool {
        let ends = self
            .open_files
            .file(pipe.fd)
            .map_or(&[][..], |file: Ident| self.open_files.of(file));
        let mut ends = ends.iter().filter_map(|fd| self.list.get(fd));
        ends.any(|end| end.flags & libc::O_DIRECT as u32 != 0)
    }

    fn held_by(&self, process: &Process, tid: Tid, descriptor: &Descriptor) -> Result<Held> {
        if descriptor.shares != descriptor.fd {
            return Ok(Held::Nothing);
        }
        let fd = descriptor.fd;
        let look =
            |error: rustix::io::Errno| Error::target(format!("cannot look at descriptor {fd}"), error.into());
        match &descriptor.what {
            What::File { .. } | What::Object { .. } => {
                let ours = &self.ours[&fd];
                let at = rustix::fs::seek(ours, SeekFrom::Current(0)).map_err(look)?;
                let stat = rustix::fs::fstat(ours).map_err(look)?;
                Ok(Held::Offset {
                    at,
                    size: stat.st_size as u64,
                })
            }
            What::Pseudo { .. } => {
                // Some of them cannot seek: they have no place to go on from.
                let at = match rustix::fs::seek(&self.ours[&fd], SeekFrom::Current(0)) {
                    Err(rustix::io::Errno::SPIPE) => 0,
                    at => at.map_err(look)?,
                };
                Ok(Held::Offset { at, size: 0 })
            }
            What::Directory { .. } => {
                let at = rustix::fs::seek(&self.ours[&fd], SeekFrom::Current(0)).map_err(look)?;
                Ok(Held::Offset { at, size: 0 })
            }
            What::Pipe { .. } if descriptor.flags & libc::O_ACCMODE as u32 == libc::O_RDONLY as u32 => {
                let end = process
                    .duplicate_fd(fd)
                    .map_err(|source| Error::target("cannot look into a pipe", source))?;
                let packets = peek(end).map_err(look)?;
                Ok(if self.has_packets(descriptor) || packets.len() > 1 {
                    Held::Packets(packets)
                } else {
                    Held::Bytes(packets.concat())
                })
            }
            What::Pair(end) => pairs::held(process, fd, end).map(Held::Queue),
            What::Fifo { .. } => {
                let ours = process
                    .duplicate_fd(fd)
                    .map_err(|source| Error::target("cannot look into a named pipe", source))?;
                look_into_fifo(ours).map_err(look)
            }
            What::Poll => {
                let info = fdinfo(process.thread(), fd)?;
                polls::held(process, tid, fd, &info, &self.list).map(Held::Watched)
            }
            What::Event | What::Timer { .. } => {
                if let What::Timer { .. } = descriptor.what {
                    // The kernel counts the expirations of a periodic timer only when it is asked.
                    let ours = process
                        .duplicate_fd(fd)
                        .map_err(|source| Error::target("cannot look at a timer", source))?;
                    rustix::time::timerfd_gettime(ours).map_err(look)?;
                }
                held_by_special(process.thread(), fd, &descriptor.what)
            }
            _ => Ok(Held::Nothing),
        }
    }
}

/// A copy of what is in a pipe, in the pieces that reads give: one, or a packet each (pipe(2), `O_DIRECT`).
/// It stays there. See tee(2).
fn peek(end: OwnedFd) -> rustix::io::Result<Vec<Vec<u8>>> {
    let waiting = rustix::io::ioctl_fionread(&end)? as usize;
    let mut packets = Vec::new();
    if waiting == 0 {
        return Ok(packets);
    }
    let (read, write) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK | rustix::pipe::PipeFlags::CLOEXEC)?;
    let capacity = rustix::pipe::fcntl_getpipe_size(&end)?;
    rustix::pipe::fcntl_setpipe_size(&write, capacity)?;
    let copied = rustix::pipe::tee(&end, &write, waiting, rustix::pipe::SpliceFlags::NONBLOCK)?;
    if copied != waiting {
        return Err(rustix::io::Errno::IO);
    }
    let mut left = waiting;
    while left > 0 {
        let mut bytes = vec![0; left];
        let length = rustix::io::read(&read, &mut bytes)?;
        bytes.truncate(length);
        left -= length;
        packets.push(bytes);
    }
    Ok(packets)
}

/// What is in a named pipe, whichever way it is open. One that is open for writing only is looked into
/// through another open of it, which changes nothing: the program stands still.
fn look_into_fifo(end: OwnedFd) -> rustix::io::Result<Held> {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut asked = [PollFd::new(&end, PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(&mut asked, Some(&rustix::time::Timespec::default())))?;
    let hung_up = asked[0].revents().contains(PollFlags::HUP);
    let writes_only = rustix::fs::fcntl_getfl(&end)? & OFlags::ACCMODE == OFlags::WRONLY;
    if rustix::io::ioctl_fionread(&end)? == 0 {
        return Ok(Held::Fifo {
            bytes: Vec::new(),
            hung_up,
        });
    }
    let readable = if writes_only {
        let path = format!("/proc/self/fd/{}", end.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, rustix::fs::Mode::empty())?
    } else {
        end
    };
    Ok(Held::Fifo {
        bytes: peek(readable)?.concat(),
        hung_up,
    })
}

fn held_by_special(pid: i32, fd: i32, what: &What) -> Result<Held> {
    let info = fdinfo(pid, fd)?;
    let number =
        |name: &str, radix: u32| field(&info, name).and_then(|text| u64::from_str_radix(text, radix).ok());
    let held = match what {
        What::Event => number("eventfd-count", 16).map(|count| Held::Count {
            count,
            semaphore: number("eventfd-semaphore", 10) == Some(1),
        }),
        _ => field(&info, "it_value")
            .and_then(pair_ns)
            .zip(field(&info, "it_interval").and_then(pair_ns))
            .map(|(left_ns, every_ns)| Held::Countdown {
                left_ns,
                every_ns,
                ticks: number("ticks", 10).unwrap_or(0),
            }),
    };
    held.ok_or_else(|| Error::Internal(format!("/proc/{pid}/fdinfo/{fd} is not understood: {info}")))
}

/// `(seconds, nanoseconds)`
fn pair_ns(text: &str) -> Option<u64> {
    let (seconds, nanoseconds) = text.trim_matches(['(', ')']).split_once(", ")?;
    Some(seconds.parse::<u64>().ok()? * 1_000_000_000 + nanoseconds.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_understood() {
        assert_eq!(pair_ns("(1, 5)"), Some(1_000_000_005));
    }

    #[test]
    fn peeking_leaves_a_pipe_as_it_was() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&write, b"stay").unwrap();
        assert_eq!(peek(read.try_clone().unwrap()).unwrap(), [b"stay"]);
        let mut bytes = [0; 8];
        assert_eq!(rustix::io::read(&read, &mut bytes).unwrap(), 4);
    }
}
