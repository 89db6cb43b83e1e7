//! Signals that an open file sends when it becomes ready, or when urgent data comes: fcntl(2), `F_SETOWN`, `O_ASYNC`.
//! Of pipes and sockets they are captured.

use crate::error::{Error, Result};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::os::fd::BorrowedFd;
use std::path::Path;
use twinpage_os::inject::{Call, ROOM};
use twinpage_os::notice;

/// The owner of an open file, and the signal that it gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Notice {
    /// Kind of the id: a thread (0), a process (1), a process group (2).
    kind: i32,
    /// The id of the owner; 0: there is none.
    id: i32,
    /// The signal; 0: SIGIO, without a word about the descriptor.
    signal: i32,
    /// Whether it is sent (`O_ASYNC`); else only that of urgent data is.
    is_on: bool,
}

impl Notice {
    /// Bit of `O_ASYNC` among the flags of an open file.
    pub const FLAG: OFlags = OFlags::from_bits_retain(libc::O_ASYNC as u32);

    /// That of a pipe or socket of process `pid`, if it is to send any.
    ///
    /// # Errors
    /// When it is for a thread of another process.
    pub fn of(fd: BorrowedFd<'_>, flags: OFlags, pid: i32) -> Result<Option<Notice>> {
        let look = |source| Error::target("cannot ask for the owner of a descriptor's signals", source);
        let is_on = flags.contains(Notice::FLAG);
        let (kind, id) = notice::owner(fd).map_err(look)?;
        if !is_on && id == 0 {
            return Ok(None);
        }
        let is_own = || Path::new(&format!("/proc/{pid}/task/{id}")).exists();
        if kind == notice::F_OWNER_TID && id != 0 && !is_own() {
            let why = format!("it has a descriptor that sends signals to {id}, a thread of another process");
            return Err(Error::Unsupported(why));
        }
        Ok(Some(Notice {
            kind,
            id,
            signal: notice::signal(fd).map_err(look)?,
            is_on,
        }))
    }

    /// The calls that set it on descriptor `fd`, whose flags are `flags`, and what they read at [`ROOM`].
    #[must_use]
    pub fn calls(self, fd: i32, flags: u32) -> (Vec<Call>, [u8; 8]) {
        let set = |command: i32, to: u64| Call::new(libc::SYS_fcntl, &[fd as u64, command as u64, to]);
        let mut calls = vec![set(notice::F_SETSIG, self.signal as u64)];
        if self.id != 0 {
            calls.push(set(notice::F_SETOWN_EX, ROOM));
        }
        if self.is_on {
            calls.push(set(libc::F_SETFL, u64::from(flags | Notice::FLAG.bits())));
        }
        let owner = (self.id as u32 as u64) << 32 | self.kind as u32 as u64; // struct f_owner_ex
        (calls, owner.to_le_bytes())
    }
}
