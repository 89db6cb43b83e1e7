//! Shared mappings: the file becomes an object of the checkpoint before the first write through one.
//!
//! * What a named file holds where it is mapped is recorded as a write would be: until the next checkpoint holds
//!   it, a rollback takes it from there.
//! * A mapping of a file that is open for writing may be made writable later (mprotect(2)), and counts as
//!   writable, unless the file is large: then that is refused at the next checkpoint.
//! * Anonymous shared memory is made as a mapping of a memfd, so that there is a descriptor to it.

use super::{Decision, Stopped, fail, not_there};
use crate::error::{Error, Result};
use crate::files::{Change, Ident};
use crate::program::Program;
use rustix::fs::{FileType, OFlags};
use std::os::fd::{AsFd, OwnedFd};
use twinpage_os::inject::{self, ROOM};
use twinpage_os::tracker::PAGE;

/// A larger file is not held for a mapping that can only be read so far.
const PERHAPS_WRITTEN_BYTES: i64 = 64 << 20;

impl Program {
    pub(super) fn before_shared_map(
        &mut self,
        call: &Stopped,
        protection: i32,
        flags: i32,
    ) -> Result<Decision> {
        let kind = flags & libc::MAP_TYPE;
        if kind == libc::MAP_SHARED_VALIDATE && flags & libc::MAP_SYNC != 0 {
            return Ok(not_there(libc::EOPNOTSUPP));
        }
        if kind != libc::MAP_SHARED && kind != libc::MAP_SHARED_VALIDATE {
            return Ok(Decision::Run); // the kernel will refuse it
        }
        if flags & libc::MAP_ANONYMOUS != 0 {
            return self.map_anonymous(call, flags);
        }
        let Ok(fd) = self.process.duplicate_fd(call.int(4)) else {
            return Ok(Decision::Run);
        };
        let Ok(stat) = rustix::fs::fstat(&fd) else {
            return Ok(Decision::Run);
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::CharacterDevice if stat.st_rdev == rustix::fs::makedev(1, 5) => {
                return self.map_anonymous(call, flags); // /dev/zero
            }
            _ => return Ok(fail(libc::ENODEV, "device memory cannot be captured")),
        }
        let (offset, len) = (call.arguments[5], call.arguments[1]);
        let range = offset..offset.saturating_add(len);
        let writable = rustix::fs::fcntl_getfl(&fd).is_ok_and(|flags| flags.contains(OFlags::RDWR));
        let is_object = self.memory.objects().find(Ident::from(&stat)).is_some();
        if is_object || stat.st_nlink == 0 {
            self.memory.objects().map(fd.as_fd(), range, &self.files)?;
            return Ok(Decision::Run);
        }
        let perhaps = stat.st_size <= PERHAPS_WRITTEN_BYTES || protection & libc::PROT_WRITE != 0;
        if !writable || !perhaps {
            return Ok(Decision::Run);
        }
        self.map_named(&fd, range)
    }

    fn map_named(&mut self, fd: &OwnedFd, range: std::ops::Range<u64>) -> Result<Decision> {
        let decision = self.record(&Change::Write {
            fd: fd.as_fd(),
            at: Some(range.start),
            len: range.end - range.start,
        })?;
        if decision == Decision::Run {
            self.memory.objects().map(fd.as_fd(), range, &self.files)?;
        }
        Ok(decision)
    }

    /// Maps a memfd in its place.
    fn map_anonymous(&mut self, call: &Stopped, flags: i32) -> Result<Decision> {
        let [address, len, protection, ..] = call.arguments;
        let Some(len) = len.checked_next_multiple_of(PAGE).filter(|len| *len > 0) else {
            return Ok(Decision::Run); // the kernel will refuse it
        };
        let process = &self.process;
        let place = |source| Error::target("cannot make shared memory for the program", source);
        let inside = |number, arguments: &[u64]| inject::call(process, call.tid, number, arguments);
        self.descriptors.give(0); // another thread's call may get the number behind it
        process.write(ROOM, b"dev/zero\0").map_err(place)?;
        let Ok(fd) = inside(libc::SYS_memfd_create, &[ROOM, u64::from(libc::MFD_CLOEXEC)]) else {
            return Ok(not_there(libc::ENOMEM));
        };
        let mapped = inside(libc::SYS_ftruncate, &[fd, len]).and_then(|_| {
            let flags = (flags & !libc::MAP_ANONYMOUS) as u64;
            inside(libc::SYS_mmap, &[address, len, protection, flags, fd, 0])
        });
        let ours = process.duplicate_fd(fd as i32);
        inside(libc::SYS_close, &[fd]).map_err(place)?;
        match mapped {
            Ok(at) => {
                let ours = ours.map_err(place)?;
                self.memory.objects().map(ours.as_fd(), 0..len, &self.files)?;
                Ok(Decision::Done(at as i64))
            }
            Err(error) => Ok(not_there(error.raw_os_error().unwrap_or(libc::ENOMEM))),
        }
    }
}
