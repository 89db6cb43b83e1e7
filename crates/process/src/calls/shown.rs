//! `/proc/self/autogroup` of a resumed program, as its first run showed it.
//!
//! * The kernel numbers a scheduling group anew for each session, and a resume makes a session.
//! * A program that wrote to the file reads the number it knows, from a file in memory made in place of the open.
//! * The niceness there is the kernel's, as of the open.

use super::{Decision, not_there};
use crate::error::{Error, Result};
use crate::kernel::{Settings, group_of};
use crate::program::Program;
use rustix::fs::OFlags;
use std::path::Path;
use twinpage_os::inject::{self, ROOM};
use twinpage_os::trace::Tid;

impl Program {
    /// Whether opening `path` would show the program another number than it has seen.
    pub(super) fn shows_another_group(&self, path: &Path, flags: OFlags) -> bool {
        let Some(known) = self.kernel.settings.group.filter(|_| self.caller.is_none()) else {
            return false;
        };
        let own = path.strip_prefix("/proc/self");
        let own = own.or_else(|_| path.strip_prefix(format!("/proc/{}", self.pid())));
        own.is_ok_and(|name| name == Path::new(Settings::AUTOGROUP))
            && flags & OFlags::RWMODE == OFlags::RDONLY
            && group_of(self.pid()).is_some_and(|(number, _)| number != known)
    }

    /// Opens a file in memory with the number that the program knows.
    pub(super) fn show_group(&mut self, tid: Tid, flags: OFlags) -> Result<Decision> {
        let (Some(known), Some((_, rest))) = (self.kernel.settings.group, group_of(self.pid())) else {
            return Ok(Decision::Run);
        };
        let failed = |source| Error::target("cannot show the program its scheduling group", source);
        let close_on_exec = u64::from(if flags.contains(OFlags::CLOEXEC) {
            libc::MFD_CLOEXEC
        } else {
            0
        });
        self.process.write(ROOM, b"autogroup\0").map_err(failed)?;
        self.descriptors.give(0);
        match inject::call(&self.process, tid, libc::SYS_memfd_create, &[ROOM, close_on_exec]) {
            Ok(fd) => {
                let file = self.process.duplicate_fd(fd as i32).map_err(failed)?;
                let text = format!("/autogroup-{known} {rest}");
                rustix::io::pwrite(&file, text.as_bytes(), 0).map_err(|error| failed(error.into()))?;
                Ok(Decision::Done(fd as i64))
            }
            Err(error) => Ok(not_there(error.raw_os_error().unwrap_or(libc::EMFILE))),
        }
    }
}
