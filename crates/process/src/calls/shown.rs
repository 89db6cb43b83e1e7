//! `/proc/self/autogroup` of a resumed program, as its first run showed it.
//!
//! * A resume makes a session, and the kernel gives each session a scheduling group with a new number.
//! * A program that wrote to the file reads the number it knows, from a memory file that is opened in its place.
//! * The niceness there is the kernel's, as of the open.

use super::shared::make_memory_file;
use super::{Decision, not_there};
use crate::error::{Error, Result};
use crate::kernel::{Group, Settings};
use crate::program::Program;
use rustix::fs::OFlags;
use std::path::Path;
use twinpage_os::trace::Tid;

impl Program {
    /// The group with the number that the program knows, if opening `path` would show it another.
    pub(super) fn group_as_known(&self, path: &Path, flags: OFlags) -> Option<Group> {
        let number = self.kernel.settings.group.filter(|_| self.caller.is_none())?;
        let own = path.strip_prefix(format!("/proc/{}", self.pid()));
        let reads = flags & OFlags::RWMODE == OFlags::RDONLY;
        if !reads || own.ok()? != Path::new(Settings::AUTOGROUP) {
            return None;
        }
        let now = Group::of(self.pid()).filter(|now| now.number != number)?;
        Some(Group { number, ..now })
    }

    /// Opens a memory file that shows the group.
    pub(super) fn show_group(&mut self, tid: Tid, group: Group, flags: OFlags) -> Result<Decision> {
        let failed = |source| Error::target("cannot show the program its scheduling group", source);
        self.descriptors.give(0);
        let close_on_exec = flags.contains(OFlags::CLOEXEC);
        let fd = match make_memory_file(&self.process, tid, c"autogroup", close_on_exec)? {
            Ok(fd) => fd,
            Err(refused) => return Ok(not_there(refused.raw_os_error().unwrap_or(libc::ENOMEM))),
        };
        let file = self.process.duplicate_fd(fd as i32).map_err(failed)?;
        let text = group.to_string();
        rustix::io::pwrite(&file, text.as_bytes(), 0).map_err(|error| failed(error.into()))?;
        Ok(Decision::Done(fd as i64))
    }
}
