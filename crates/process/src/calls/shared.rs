//! Shared mappings: the file becomes an object of the checkpoint before the first write through one.
//!
//! * What a named file holds where it is mapped is recorded as a write would be: until the next checkpoint holds
//!   it, a rollback takes it from there.
//!   So is what a mapping that grows shows beyond that.
//! * A mapping of a file that is open for writing may be made writable later (mprotect(2)), and counts as
//!   writable, unless the file is large: then that is refused at the next checkpoint.
//! * Anonymous shared memory is made as a mapping of a memfd, so that there is a descriptor to it.
//! * Descendants map as the program does. What cannot be captured of one is not refused: its checkpoint waits.

use super::{Decision, Stopped, fail, not_there};
use crate::error::{Error, Result};
use crate::files::{Change, Ident};
use crate::layout;
use crate::program::{Program, plant};
use rustix::fs::{FileType, OFlags};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use twinpage_os::inject::{self, ROOM};
use twinpage_os::remote::Process;
use twinpage_os::trace::Tid;
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
        let Ok(fd) = self.caller().duplicate_fd(call.int(4)) else {
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
            _ if self.caller.is_some() => return Ok(Decision::Run),
            _ => return Ok(fail(libc::ENODEV, "device memory cannot be captured")),
        }
        let (offset, len) = (call.arguments[5], call.arguments[1]);
        let range = offset..offset.saturating_add(len);
        let writable = rustix::fs::fcntl_getfl(&fd).is_ok_and(|flags| flags.contains(OFlags::RDWR));
        let is_object = self.objects.find(Ident::from(&stat)).is_some();
        if is_object || stat.st_nlink == 0 {
            self.objects.map(fd.as_fd(), range, &self.files)?;
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
            self.objects.map(fd.as_fd(), range, &self.files)?;
        }
        Ok(decision)
    }

    /// A mapping is about to grow: of a named file that is mapped shared it shows more.
    pub(super) fn before_growth(&mut self, address: u64, length: u64) -> Result<Decision> {
        if !self.objects.have_parts() {
            return Ok(Decision::Run);
        }
        let mapping = layout::mapping_at(self.caller().pid(), address);
        let Some((mapping, file)) = mapping.and_then(|mapping| {
            let file = self.objects.partly_held(&mapping)?;
            Some((mapping, file))
        }) else {
            return Ok(Decision::Run);
        };
        let start = mapping.offset + (address - mapping.start);
        self.map_named(&file, start..start.saturating_add(length))
    }

    /// Maps a memfd in its place.
    fn map_anonymous(&mut self, call: &Stopped, flags: i32) -> Result<Decision> {
        let Some(len) = (call.arguments[1].checked_next_multiple_of(PAGE)).filter(|len| *len > 0) else {
            return Ok(Decision::Run); // the kernel will refuse it
        };
        if self.caller.is_none() {
            self.descriptors.give(0); // another thread's call may get the number behind it
        }
        let made = map_memfd(self.caller(), call, len, flags);
        let known = made.and_then(|made| match made {
            Ok((at, ours)) => {
                self.objects.map(ours.as_fd(), 0..len, &self.files)?;
                Ok(Decision::Done(at as i64))
            }
            Err(refused) => Ok(not_there(refused.raw_os_error().unwrap_or(libc::ENOMEM))),
        });
        self.or_no_memory(known)
    }

    /// For a descendant, a mapping that cannot be captured fails as out of memory (`ENOMEM`).
    pub(super) fn or_no_memory(&self, answer: Result<Decision>) -> Result<Decision> {
        match answer {
            Err(Error::Unsupported(_)) if self.caller.is_some() => Ok(not_there(libc::ENOMEM)),
            answer => answer,
        }
    }
}

/// Has a process map a new memory file. Where it is, with a descriptor of ours; or what the kernel says to its call.
///
/// # Errors
/// When it is gone, or cannot be made to.
fn map_memfd(process: &Process, call: &Stopped, len: u64, flags: i32) -> Result<io::Result<(u64, OwnedFd)>> {
    let [address, _, protection, ..] = call.arguments;
    let place = |source| Error::target("cannot make shared memory for the program", source);
    let inside = |number, arguments: &[u64]| inject::call(process, call.tid, number, arguments);
    let fd = match make_memory_file(process, call.tid, c"dev/zero", true)? {
        Ok(fd) => fd,
        Err(_) => return Ok(Err(io::Error::from_raw_os_error(libc::ENOMEM))),
    };
    let mapped = inside(libc::SYS_ftruncate, &[fd, len]).and_then(|_| {
        let flags = (flags & !libc::MAP_ANONYMOUS) as u64;
        inside(libc::SYS_mmap, &[address, len, protection, flags, fd, 0])
    });
    let ours = process.duplicate_fd(fd as i32);
    inside(libc::SYS_close, &[fd]).map_err(place)?;
    match mapped {
        Ok(at) => Ok(Ok((at, ours.map_err(place)?))),
        Err(error) => Ok(Err(error)),
    }
}

/// Has a process make a memory file, memfd_create(2). Its number there; or the kernel's error.
///
/// # Errors
/// When the process is gone.
pub(super) fn make_memory_file(
    process: &Process,
    tid: Tid,
    name: &CStr,
    close_on_exec: bool,
) -> Result<io::Result<u64>> {
    let make = |source| Error::target("cannot make a memory file for the program", source);
    let flags = if close_on_exec { libc::MFD_CLOEXEC } else { 0 };
    plant(process, tid)?;
    process.write(ROOM, name.to_bytes_with_nul()).map_err(make)?;
    answered(
        inject::call(process, tid, libc::SYS_memfd_create, &[ROOM, flags.into()]),
        make,
    )
}

/// What the kernel answered to a call that was made in a process, which is that process's to hear.
///
/// # Errors
/// When the process is gone.
pub(super) fn answered(
    made: io::Result<u64>,
    gone: impl FnOnce(io::Error) -> Error,
) -> Result<io::Result<u64>> {
    match made {
        Err(error) if matches!(error.raw_os_error(), None | Some(libc::ESRCH)) => Err(gone(error)),
        made => Ok(made),
    }
}
