//! inotify_add_watch(2), made here: the name of the file and the number of the watch are kept, which the kernel does not
//! tell afterwards.

use super::shared::answered;
use super::{Decision, Stopped, not_there};
use crate::error::{Error, Result};
use crate::files::Ident;
use crate::program::{Program, plant};
use rustix::fs::{Mode, OFlags};
use std::path::PathBuf;
use twinpage_os::inject;
use twinpage_os::name;

impl Program {
    pub(super) fn before_inotify(&mut self, call: &Stopped) -> Result<Decision> {
        let Some((file, name)) = self.about_to_be_watched(call) else {
            return Ok(Decision::Run); // the kernel will refuse it
        };
        let answer = self.have_watched(call, file, name);
        self.or_no_memory(answer)
    }

    fn have_watched(&mut self, call: &Stopped, file: Ident, name: PathBuf) -> Result<Decision> {
        plant(self.caller(), call.tid)?;
        let arguments = &call.arguments[..3];
        let given = inject::call(self.caller(), call.tid, libc::SYS_inotify_add_watch, arguments);
        match answered(given, |source| {
            Error::target("cannot have a file watched", source)
        })? {
            Ok(number) => {
                let descriptor = (self.caller().pid(), call.int(0));
                self.descriptors.watches(file, name, descriptor, number as i32);
                Ok(Decision::Done(number as i64))
            }
            Err(error) => Ok(not_there(error.raw_os_error().unwrap_or(libc::EIO))),
        }
    }

    /// The file that the call names, and where it is.
    fn about_to_be_watched(&self, call: &Stopped) -> Option<(Ident, PathBuf)> {
        let mut flags = OFlags::PATH | OFlags::CLOEXEC;
        flags.set(OFlags::NOFOLLOW, call.int(2) as u32 & libc::IN_DONT_FOLLOW != 0);
        let (start, path) = self.named((libc::AT_FDCWD, call.arguments[1]))?;
        let watched = rustix::fs::openat(start, &path, flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&watched).ok()?;
        let name = std::fs::read_link(name::of_open(&watched)).ok()?;
        Some((Ident::from(&stat), name))
    }
}
