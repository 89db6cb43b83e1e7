//! Pages of this process that are brought when they are first touched: userfaultfd(2).
//!
//! * A thread that touches a missing page of a registered range sleeps until the page is brought.
//! * A page can be protected for a moment, so that it is taken away only if it was not written: a thread that
//!   writes in that moment sleeps too.
//! * Without privileges (`vm.unprivileged_userfaultfd` is 0 and no `CAP_SYS_PTRACE`) the kernel itself
//!   cannot wait for pages: a system call that is given missing memory fails with `EFAULT`
//!   ([`Missing::kernel_waits`]).

#![allow(unsafe_code)]

use crate::space::again;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

const UFFD_API: u64 = 0xaa;
const UFFD_USER_MODE_ONLY: i32 = 1;
const FEATURE_WP: u64 = 1 << 0;
const FEATURE_POISON: u64 = 1 << 14;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_WAKE: libc::c_ulong = 0x8010_aa02;
const UFFDIO_COPY: libc::c_ulong = 0xc028_aa03;
const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;
const UFFDIO_WRITEPROTECT: libc::c_ulong = 0xc018_aa06;
const UFFDIO_POISON: libc::c_ulong = 0xc020_aa08;
const MODE_MISSING: u64 = 1 << 0;
const MODE_WP: u64 = 1 << 1;
const EVENT_PAGEFAULT: u8 = 0x12;
const FLAG_WP: u64 = 1 << 1;

/// Why a thread sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It touched a missing page at this address.
    Missing(usize),
    /// It wrote a page at this address while that was protected.
    Protected(usize),
}

/// Ranges whose pages this process brings itself. See the module.
#[derive(Debug)]
pub struct Missing {
    uffd: OwnedFd,
    /// Told when waiting for faults ends.
    end: OwnedFd,
    kernel_waits: bool,
    features: u64,
}

impl Missing {
    /// Asks the kernel for it: for the kernel's own faults too if that is allowed.
    ///
    /// # Errors
    /// The system's error: `ENOSYS` where it cannot, `EPERM` under a filter.
    pub fn new() -> io::Result<Missing> {
        let (supported, _) = with_api(0)?;
        let features = supported & (FEATURE_WP | FEATURE_POISON);
        let (_, (uffd, kernel_waits)) = with_api(features)?;
        Ok(Missing {
            uffd,
            end: eventfd(0, EventfdFlags::CLOEXEC)?,
            kernel_waits,
            features,
        })
    }

    /// Whether system calls wait for missing pages too, or fail with `EFAULT`.
    #[must_use]
    pub fn kernel_waits(&self) -> bool {
        self.kernel_waits
    }

    /// Whether pages can be taken away safely ([`Missing::protect`]; Linux 5.7).
    #[must_use]
    pub fn can_protect(&self) -> bool {
        self.features & FEATURE_WP != 0
    }

    /// From now on a thread that touches a missing page of `range` (mapped, anonymous, private) sleeps.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn register(&self, range: Range<usize>) -> io::Result<()> {
        let mode = match self.can_protect() {
            true => MODE_MISSING | MODE_WP,
            false => MODE_MISSING,
        };
        self.call(
            UFFDIO_REGISTER,
            &mut [range.start as u64, range.len() as u64, mode, 0],
        )
    }

    /// Waits for faults; `None` after [`Missing::end`].
    ///
    /// # Errors
    /// The kernel's error.
    pub fn wait(&self) -> io::Result<Option<Fault>> {
        loop {
            let mut fds = [
                PollFd::new(&self.uffd, PollFlags::IN),
                PollFd::new(&self.end, PollFlags::IN),
            ];
            again(|| poll(&mut fds, None))?;
            if !fds[1].revents().is_empty() {
                return Ok(None);
            }
            if let Some(fault) = self.next()? {
                return Ok(Some(fault));
            }
        }
    }

    /// The next fault, if one is waiting.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn next(&self) -> io::Result<Option<Fault>> {
        let mut message = [0_u8; 32];
        match rustix::io::read(&self.uffd, &mut message) {
            Ok(32) if message[0] == EVENT_PAGEFAULT => {
                let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|k| message[at + k]));
                let address = long(16) as usize;
                Ok(Some(match long(8) & FLAG_WP {
                    0 => Fault::Missing(address),
                    _ => Fault::Protected(address),
                }))
            }
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Ends the waiting for faults.
    pub fn end(&self) {
        // Adding 1 to a counter of 64 bits cannot fail.
        let _ = rustix::io::write(&self.end, &1_u64.to_ne_bytes());
    }

    /// Brings whole pages with this content to `at`, and wakes the threads that wait for them.
    ///
    /// # Errors
    /// `EEXIST` where one is there already; the kernel's error.
    pub fn fill(&self, at: usize, bytes: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let left = (bytes.len() - done) as u64;
            let mut copy = [(at + done) as u64, bytes[done..].as_ptr() as u64, left, 0, 0];
            match self.call(UFFDIO_COPY, &mut copy) {
                Ok(()) => done += copy[4] as usize,
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => done += (copy[4] as i64).max(0) as usize,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Brings pages of zeros.
    ///
    /// # Errors
    /// As [`Missing::fill`].
    pub fn zero(&self, range: Range<usize>) -> io::Result<()> {
        let mut done = 0;
        while done < range.len() {
            let mut zero = [(range.start + done) as u64, (range.len() - done) as u64, 0, 0];
            match self.call(UFFDIO_ZEROPAGE, &mut zero) {
                Ok(()) => done += zero[3] as usize,
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => done += (zero[3] as i64).max(0) as usize,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// A thread that touches `range` gets SIGBUS: its content cannot be brought (Linux 6.6).
    ///
    /// # Errors
    /// `EINVAL` where the kernel cannot.
    pub fn poison(&self, range: Range<usize>) -> io::Result<()> {
        if self.features & FEATURE_POISON == 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        self.call(UFFDIO_POISON, &mut [range.start as u64, range.len() as u64, 0, 0])
    }

    /// A thread that writes to `range` sleeps until [`Missing::release`] or [`Missing::wake`]. All writes
    /// that did not sleep have happened when this returns.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn protect(&self, range: Range<usize>) -> io::Result<()> {
        self.call(
            UFFDIO_WRITEPROTECT,
            &mut [range.start as u64, range.len() as u64, 1],
        )
    }

    /// Ends the protection of `range` and wakes the threads that waited.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn release(&self, range: Range<usize>) -> io::Result<()> {
        self.call(
            UFFDIO_WRITEPROTECT,
            &mut [range.start as u64, range.len() as u64, 0],
        )
    }

    /// Wakes the threads that sleep on `range`, to try again.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn wake(&self, range: Range<usize>) -> io::Result<()> {
        self.call(UFFDIO_WAKE, &mut [range.start as u64, range.len() as u64])
    }

    fn call<const N: usize>(&self, request: libc::c_ulong, argument: &mut [u64; N]) -> io::Result<()> {
        // SAFETY: every request here has a structure of N words, which the kernel reads and writes;
        // what the words point to is borrowed by the caller and only read.
        match unsafe { libc::ioctl(self.uffd.as_fd().as_raw_fd(), request, argument.as_mut_ptr()) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

/// A descriptor with these features enabled: what the kernel supports, the descriptor, and whether it
/// gets the kernel's own faults.
fn with_api(features: u64) -> io::Result<(u64, (OwnedFd, bool))> {
    let (uffd, kernel_waits) = open()?;
    let mut api = [UFFD_API, features, 0];
    // SAFETY: UFFDIO_API reads and writes a uffdio_api of three words.
    match unsafe { libc::ioctl(uffd.as_raw_fd(), UFFDIO_API, api.as_mut_ptr()) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok((api[1], (uffd, kernel_waits))),
    }
}

fn open() -> io::Result<(OwnedFd, bool)> {
    const NEW: libc::c_ulong = 0xaa00;
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    let own = |fd: i64| {
        // SAFETY: a descriptor that the kernel just made for us.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
    };
    // SAFETY: userfaultfd(2) takes flags and touches no memory.
    if let Some(fd) = own(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) }) {
        return Ok((fd, true));
    }
    // The permissions of the device decide: Documentation/admin-guide/mm/userfaultfd.rst.
    if let Ok(device) = File::open("/dev/userfaultfd") {
        // SAFETY: USERFAULTFD_IOC_NEW takes flags and touches no memory.
        if let Some(fd) = own(unsafe { libc::ioctl(device.as_raw_fd(), NEW, flags) }.into()) {
            return Ok((fd, true));
        }
    }
    // SAFETY: userfaultfd(2) takes flags and touches no memory.
    let fd = own(unsafe { libc::syscall(libc::SYS_userfaultfd, flags | UFFD_USER_MODE_ONLY) });
    fd.map(|fd| (fd, false)).ok_or_else(io::Error::last_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reserved;

    const BASE: usize = 0x4fff_8000_0000;
    const PAGE: usize = 4096;

    #[test]
    fn pages_are_brought_when_touched_and_taken_away() {
        let missing = Missing::new().unwrap();
        let memory = Reserved::at(BASE, 1 << 20).unwrap();
        let pages = BASE..BASE + 8 * PAGE;
        memory.open(pages.clone()).unwrap();
        missing.register(pages.clone()).unwrap();
        let byte = |page: usize| {
            // SAFETY: the pages are open until the test ends.
            unsafe { ((BASE + page * PAGE) as *const u8).read_volatile() }
        };
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let mut served = 0;
                while let Some(fault) = missing.wait().unwrap() {
                    served += 1;
                    match fault {
                        Fault::Missing(at) if at >= BASE + 4 * PAGE => {
                            missing.zero(at / PAGE * PAGE..at / PAGE * PAGE + PAGE).unwrap();
                        }
                        Fault::Missing(at) => missing.fill(at / PAGE * PAGE, &[7; PAGE]).unwrap(),
                        Fault::Protected(at) => missing
                            .release(at / PAGE * PAGE..at / PAGE * PAGE + PAGE)
                            .unwrap(),
                    }
                }
                served
            });
            assert_eq!([0, 1, 5, 0].map(byte), [7, 7, 0, 7]);
            if missing.can_protect() {
                missing.protect(BASE..BASE + PAGE).unwrap();
                // SAFETY: the page is reserved for this test, and the server above answers its faults.
                unsafe { (BASE as *mut u8).write_volatile(9) };
                assert_eq!(byte(0), 9);
            }
            // SAFETY: the page has no users.
            unsafe { memory.forget(BASE..BASE + PAGE) }.unwrap();
            assert_eq!(byte(0), 7);
            missing.end();
            assert_eq!(server.join().unwrap(), if missing.can_protect() { 5 } else { 4 });
        });
    }
}
