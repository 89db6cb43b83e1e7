//! Calls that empty pages which stay mapped, and leave no trace of it: the next stop looks.

use super::{Decision, Stopped};
use crate::error::Result;
use crate::files::Ident;
use crate::program::Program;
use rustix::fs::AtFlags;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use twinpage_os::tracker::{END_OF_MEMORY, PAGE};

impl Program {
    /// mremap(2) leaves an empty range behind where `MREMAP_DONTUNMAP` asks for it. A mapping that grows
    /// in place stays tracked, also over addresses that held other pages until the program unmapped them.
    pub(super) fn before_remap(&mut self, call: &Stopped) -> Result<Decision> {
        let [address, old_length, new_length, ..] = call.arguments;
        let end = |length: u64| {
            let end = address.saturating_add(length).min(END_OF_MEMORY);
            end.next_multiple_of(PAGE)
        };
        if !address.is_multiple_of(PAGE) || address >= END_OF_MEMORY {
            return Ok(Decision::Run); // the kernel will refuse it
        }
        // Only this kind moves several mappings at once (Linux 6.17).
        let moves_only = call.int(3) & libc::MREMAP_FIXED != 0 && old_length == new_length;
        let moved = address..end(old_length);
        self.memory.may_move(moved, moves_only)?;
        self.memory.may_drop(address..end(old_length.max(new_length)));
        Ok(Decision::Run)
    }

    /// Calls that may set the length of a file by its descriptor or name.
    pub(super) fn before_change_of_length(&mut self, call: &Stopped) {
        const SHIFTS: i32 = libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE;
        match call.name {
            "truncate" => {
                if let Some((start, path)) = self.named((libc::AT_FDCWD, call.arguments[0])) {
                    self.before_truncate(start.as_fd(), &path);
                }
            }
            "ftruncate" => self.before_truncate_of(call.int(0)),
            "fallocate" if call.int(1) & SHIFTS != 0 => self.before_truncate_of(call.int(0)),
            _ => {}
        }
    }

    /// The named file, if it is there, is about to be truncated.
    pub(super) fn before_truncate(&mut self, start: BorrowedFd<'_>, path: &Path) {
        if let Ok(stat) = rustix::fs::statat(start, path, AtFlags::empty()) {
            self.memory.may_truncate(Ident::from(&stat));
        }
    }

    fn before_truncate_of(&mut self, fd: i32) {
        let file = self.process.duplicate_fd(fd);
        if let Some(stat) = file.ok().and_then(|file| rustix::fs::fstat(file).ok()) {
            self.memory.may_truncate(Ident::from(&stat));
        }
    }
}
