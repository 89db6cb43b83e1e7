//! The owner of an open file, which gets a signal when the file becomes ready: fcntl(2), "Managing signals". The commands
//! are not in the C library's headers for Rust.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets the signal; 0: SIGIO.
pub const F_SETSIG: i32 = 10;
/// Asks for the signal.
pub const F_GETSIG: i32 = 11;
/// Sets the owner by kind and id.
pub const F_SETOWN_EX: i32 = 15;
/// Asks for the owner by kind and id.
pub const F_GETOWN_EX: i32 = 16;
/// The kind of an owner that is one thread.
pub const F_OWNER_TID: i32 = 0;

/// The commands that set the owner or the signal.
pub const SETTERS: [i32; 3] = [libc::F_SETOWN, F_SETSIG, F_SETOWN_EX];

/// The owner: the kind of its id (thread, process, process group), and the id; 0: none, or one that ended.
///
/// # Errors
/// The system's.
pub fn owner(fd: BorrowedFd<'_>) -> io::Result<(i32, i32)> {
    let mut owner = [0_i32; 2]; // struct f_owner_ex
    // SAFETY: F_GETOWN_EX writes the eight bytes of a struct f_owner_ex, which `owner` has room for.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), F_GETOWN_EX, owner.as_mut_ptr()) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok((owner[0], owner[1]))
}

/// The signal that the owner gets; 0: SIGIO.
///
/// # Errors
/// The system's.
pub fn signal(fd: BorrowedFd<'_>) -> io::Result<i32> {
    // SAFETY: F_GETSIG takes and gives integers.
    match unsafe { libc::fcntl(fd.as_raw_fd(), F_GETSIG) } {
        -1 => Err(io::Error::last_os_error()),
        signal => Ok(signal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn an_owner_is_read_as_it_was_set() {
        const PROCESS: i32 = 1;
        let (end, _other) = io::pipe().unwrap();
        assert_eq!(owner(end.as_fd()).unwrap().1, 0);
        let wanted = [PROCESS, std::process::id() as i32];
        // SAFETY: F_SETOWN_EX reads the eight bytes of `wanted`; F_SETSIG takes an integer.
        let set = unsafe {
            let fd = end.as_raw_fd();
            [
                libc::fcntl(fd, F_SETOWN_EX, wanted.as_ptr()),
                libc::fcntl(fd, F_SETSIG, libc::SIGUSR1),
            ]
        };
        assert_eq!(set, [0, 0]);
        assert_eq!(owner(end.as_fd()).unwrap(), (PROCESS, wanted[1]));
        assert_eq!(signal(end.as_fd()).unwrap(), libc::SIGUSR1);
    }
}
