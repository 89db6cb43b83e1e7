//! Pipes and named pipes made again, with what is in them: pipe(7), fifo(7).

use super::files::{Opener, reopen};
use crate::descriptors::{Descriptor, Held};
use crate::error::{Error, Result};
use crate::layout::is_marked_gone;
use crate::state::GONE_FIFO;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use std::os::fd::OwnedFd;
use std::path::Path;
use twinpage_os::spawn;

impl Opener<'_> {
    /// A named pipe is held open both ways while its ends are opened, so that no open waits for another; but
    /// not for one whose reader has seen no writer yet.
    pub(super) fn fifo(
        &mut self,
        path: &Path,
        flags: OFlags,
        (inode, capacity): (u64, u32),
        (bytes, hung_up): (&[u8], bool),
    ) -> Result<i32> {
        let failed = |error: Errno| Error::target(format!("cannot fill {}", path.display()), error.into());
        let reads_only = flags & OFlags::ACCMODE == OFlags::RDONLY;
        let saw_writer = hung_up || !bytes.is_empty() || !reads_only;
        if is_marked_gone(path) && !path.exists() {
            return self.removed_fifo(flags, (inode, capacity), bytes, saw_writer);
        }
        if !self.fifos.contains(&inode) && saw_writer {
            let holder = reopen(path, OFlags::RDWR | OFlags::NONBLOCK)?;
            self.same_file(&holder, path, inode)?;
            fill_fifo(&holder, capacity, bytes).map_err(failed)?;
            self.keep(holder)?;
            self.fifos.insert(inode);
        }
        let end = reopen(path, flags | OFlags::NONBLOCK)?;
        self.same_file(&end, path, inode)?;
        self.keep_with_flags(end, flags)
    }

    /// An end of a named pipe that was removed: one without a name.
    fn removed_fifo(
        &mut self,
        flags: OFlags,
        (inode, capacity): (u64, u32),
        bytes: &[u8],
        saw_writer: bool,
    ) -> Result<i32> {
        let failed = |error: Errno| Error::target("cannot make a removed named pipe again", error.into());
        let holder = match self.removed_fifos.get(&inode) {
            Some(holder) => *holder,
            None => {
                let holder = self.nameless_fifo(saw_writer).map_err(failed)?;
                fill_fifo(&holder, capacity, bytes).map_err(failed)?;
                let holder = self.keep(holder)?;
                self.removed_fifos.insert(inode, holder);
                holder
            }
        };
        let end = reopen(
            Path::new(&format!("/proc/self/fd/{holder}")),
            flags | OFlags::NONBLOCK,
        )?;
        self.keep_with_flags(end, flags)
    }

    /// A named pipe whose name is gone, open both ways, or for reading.
    fn nameless_fifo(&self, saw_writer: bool) -> rustix::io::Result<OwnedFd> {
        let mode = Mode::RUSR | Mode::WUSR;
        let make = |path: &Path| rustix::fs::mknodat(CWD, path, rustix::fs::FileType::Fifo, mode, 0);
        let ways = if saw_writer { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = ways | OFlags::NONBLOCK;
        self.open_nameless(GONE_FIFO, make, flags, AtFlags::empty())
    }

    pub(super) fn pipe(
        &mut self,
        descriptor: &Descriptor,
        inode: u64,
        capacity: u32,
        held: &Held,
    ) -> Result<i32> {
        let failed = |error: Errno| Error::target("cannot make a pipe again", error.into());
        let (read, write) = match self.pipes.get(&inode) {
            Some(ends) => *ends,
            None => {
                let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
                if !descriptor.is_place_of_pipe() {
                    rustix::pipe::fcntl_setpipe_size(&write, capacity as usize).map_err(failed)?;
                }
                let ends = (self.keep(read)?, self.keep(write)?);
                self.pipes.insert(inode, ends);
                ends
            }
        };
        let borrow =
            |fd| spawn::borrow(fd).map_err(|source| Error::target("cannot make a pipe again", source));
        let is_empty = rustix::io::ioctl_fionread(borrow(read)?).map_err(failed)? == 0;
        match held {
            Held::Bytes(bytes) if is_empty => {
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let written = rustix::io::write(borrow(write)?, rest).map_err(failed)?;
                    rest = &rest[written..];
                }
            }
            Held::Packets(packets) if is_empty => {
                let before = rustix::fs::fcntl_getfl(borrow(write)?).map_err(failed)?;
                rustix::fs::fcntl_setfl(borrow(write)?, OFlags::DIRECT).map_err(failed)?;
                for packet in packets {
                    rustix::io::write(borrow(write)?, packet).map_err(failed)?;
                }
                rustix::fs::fcntl_setfl(borrow(write)?, before).map_err(failed)?;
            }
            _ => {}
        }
        let flags = OFlags::from_bits_retain(descriptor.flags);
        if descriptor.is_place_of_pipe() {
            return self.place_of(read, flags);
        }
        let end = match flags & OFlags::ACCMODE {
            OFlags::RDONLY => read,
            OFlags::WRONLY => write,
            _ => return self.open_once_more(write, flags),
        };
        if !self.ends_given.insert(end) {
            return self.open_once_more(end, flags);
        }
        let settable = flags & (OFlags::NONBLOCK | OFlags::DIRECT);
        rustix::fs::fcntl_setfl(borrow(end)?, settable).map_err(failed)?;
        Ok(end)
    }
}

/// Gives a named pipe that is open both ways its size and its bytes.
fn fill_fifo(holder: &OwnedFd, capacity: u32, mut bytes: &[u8]) -> rustix::io::Result<()> {
    rustix::pipe::fcntl_setpipe_size(holder, capacity as usize)?;
    while !bytes.is_empty() {
        bytes = &bytes[rustix::io::write(holder, bytes)?..];
    }
    Ok(())
}
