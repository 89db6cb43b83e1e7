//! Calls that empty pages which stay mapped, and leave no trace of it: the next stop looks.

use super::{Decision, Stopped, not_there};
use crate::error::Result;
use crate::files::Ident;
use crate::memory::Memory;
use crate::program::Program;
use rustix::fs::AtFlags;
use std::ops::Range;
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
        if end(new_length) > end(old_length) {
            let decision = self.before_growth(address, new_length)?;
            if decision != Decision::Run {
                return Ok(decision);
            }
        }
        if let Some(memory) = self.callers_memory() {
            memory.may_move(moved, moves_only)?;
            memory.may_drop(address..end(old_length.max(new_length)));
        }
        Ok(Decision::Run)
    }

    /// The memory that the call is about; none where no checkpoint has looked at it yet.
    pub(super) fn callers_memory(&mut self) -> Option<&mut Memory> {
        let Some(caller) = &self.caller else {
            return Some(&mut self.memory);
        };
        let pid = caller.pid();
        match self.descendants.get_mut(pid) {
            Some(descendant) if descendant.shares_memory => self.lent_memory(pid),
            _ => self.members.memory(pid),
        }
    }

    /// The memory that a descendant uses, which is that of the process that made it.
    fn lent_memory(&mut self, mut pid: i32) -> Option<&mut Memory> {
        while let Some(one) = self.descendants.get_mut(pid) {
            if !one.shares_memory {
                return self.members.memory(pid);
            }
            pid = one.parent();
        }
        Some(&mut self.memory)
    }

    /// Advice on memory that no checkpoint has looked at yet: what stays of it is kept.
    pub(super) fn before_first_look(&mut self, call: &Stopped, range: Range<u64>) -> Decision {
        const GUARDS: [i32; 2] = [102, 103];
        let advice = call.int(2);
        let pid = self.caller().pid();
        if GUARDS.contains(&advice) && !self.memory.may_guard(0..0) {
            return not_there(libc::EINVAL);
        }
        let Some(descendant) = self.descendants.get_mut(pid) else {
            return Decision::Run;
        };
        let is_known = [libc::MADV_DONTNEED, libc::MADV_DONTNEED_LOCKED]
            .iter()
            .chain(&GUARDS)
            .any(|known| *known == advice);
        if !is_known && !descendant.advice.advise(range, advice) {
            self.descendants.is_unfit(pid, call.name);
        }
        Decision::Run
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
            self.truncates(Ident::from(&stat));
        }
    }

    pub(super) fn before_truncate_of(&mut self, fd: i32) {
        let file = self.caller().duplicate_fd(fd);
        if let Some(stat) = file.ok().and_then(|file| rustix::fs::fstat(file).ok()) {
            self.truncates(Ident::from(&stat));
        }
    }

    fn truncates(&mut self, file: Ident) {
        self.memory.may_truncate(file);
        self.members.may_truncate(file);
    }
}
