//! Which pages of a process were written: userfaultfd(2) in asynchronous write-protect mode, read
//! through the `PAGEMAP_SCAN` ioctl of /proc/PID/pagemap (Linux 6.7 and later).
//!
//! * The kernel marks a page at its first write and goes on by itself: no signal, no handler.
//! * [`Tracker::take_written`] reads the marks and protects the pages again in one call.
//! * mremap(2), and munmap(2) followed by mmap(2) at the same place, drop a registration without
//!   a trace in /proc/PID/maps: [`Tracker::unregistered`] finds such ranges. The marks in their page
//!   tables may stay, and are wrong: a write where nothing is registered does not lift one. So such a
//!   range is tracked again with [`Tracker::register_as_written`].
//! * madvise(`MADV_DONTNEED`), mremap(2) in place and the truncation of a mapped file empty pages
//!   without marking them: the tracer watches the calls and then looks with [`Tracker::present`].

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

/// Bytes in a page of the system.
pub const PAGE: u64 = 4096;

/// Past the last address of a process.
pub const END_OF_MEMORY: u64 = 0x7fff_ffff_f000;

const UFFD_API: u64 = 0xaa;
const UFFD_FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const UFFD_FEATURE_WP_ASYNC: u64 = 1 << 15;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_UNREGISTER: libc::c_ulong = 0x8010_aa01;
const UFFDIO_COPY: libc::c_ulong = 0xc028_aa03;
const UFFDIO_WRITEPROTECT: libc::c_ulong = 0xc018_aa06;
const UFFDIO_WRITEPROTECT_MODE_WP: u64 = 1;
const UFFDIO_REGISTER_MODE_WP: u64 = 1 << 1;
const UFFDIO_COPY_MODE_WP: u64 = 1 << 1;

const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const PM_SCAN_WP_MATCHING: u64 = 1;

const WP_ALLOWED: u64 = 1 << 0;
const WRITTEN: u64 = 1 << 1;
const FILE: u64 = 1 << 2;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const ZERO: u64 = 1 << 5;
/// Linux 6.16 and later.
const GUARD: u64 = 1 << 8;

/// Flags for the userfaultfd(2) call that the target itself makes: `O_CLOEXEC | O_NONBLOCK |
/// UFFD_USER_MODE_ONLY`, so that no privilege is needed.
pub const USERFAULTFD_FLAGS: u64 = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64 | 1;

/// Pages next to one another in the same state, as the kernel reports them.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// Address past the last.
    pub end: u64,
    categories: u64,
}

impl Region {
    /// The pages are the kernel's shared page of zeros: read, never written.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.categories & ZERO != 0
    }

    /// Pages in the region.
    #[must_use]
    pub fn pages(&self) -> u64 {
        (self.end - self.start) / PAGE
    }
}

#[repr(C)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_len: u64,
    max_pages: u64,
    inverted: u64,
    mask: u64,
    any_of: u64,
    returned: u64,
}

const _: () = assert!(size_of::<ScanArguments>() == 96 && size_of::<Region>() == 24);

#[derive(Clone, Copy, Default)]
struct Query {
    flags: u64,
    /// Guard pages, which look like swapped ones and hold nothing, do not match.
    but_guards: bool,
    inverted: u64,
    mask: u64,
    any_of: u64,
    returned: u64,
}

/// Tracks the writes of one process.
#[derive(Debug)]
pub struct Tracker {
    uffd: OwnedFd,
    pagemap: File,
    /// The category of guard pages; 0 where the kernel does not know it.
    guard: u64,
}

impl Tracker {
    /// `uffd` was made by the process `pid` (with [`USERFAULTFD_FLAGS`]) and handed to this one.
    ///
    /// # Errors
    /// `EINVAL` where the kernel is older than 6.7.
    pub fn new(uffd: OwnedFd, pid: i32) -> io::Result<Tracker> {
        let mut api = [UFFD_API, UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED, 0];
        // SAFETY: UFFDIO_API reads and writes a uffdio_api of three u64.
        checked(unsafe { libc::ioctl(uffd.as_raw_fd(), UFFDIO_API, api.as_mut_ptr()) })?;
        let mut tracker = Tracker {
            uffd,
            pagemap: File::open(format!("/proc/{pid}/pagemap"))?,
            guard: GUARD,
        };
        let somewhere = crate::inject::HOME..crate::inject::END;
        if tracker.guards(somewhere, &mut Vec::new()).is_err() {
            tracker.guard = 0;
        }
        Ok(tracker)
    }

    /// Whether the kernel says which pages are guards.
    #[must_use]
    pub fn knows_guards(&self) -> bool {
        self.guard != 0
    }

    /// Guard pages of `range`: madvise(2), `MADV_GUARD_INSTALL`.
    ///
    /// # Errors
    /// `EINVAL` where the kernel is older than 6.16.
    pub fn guards(&self, range: Range<u64>, into: &mut Vec<Region>) -> io::Result<()> {
        let query = Query {
            any_of: GUARD,
            returned: GUARD,
            ..Query::default()
        };
        self.scan(range, into, query)
    }

    /// Begins to track `range`. Its pages count as written, except where
    /// an earlier registration left its marks.
    ///
    /// # Errors
    /// `EINVAL` where a mapping cannot be tracked.
    pub fn register(&self, range: Range<u64>) -> io::Result<()> {
        let mut register = [range.start, range.end - range.start, UFFDIO_REGISTER_MODE_WP, 0];
        // SAFETY: UFFDIO_REGISTER reads and writes a uffdio_register of four u64.
        checked(unsafe { libc::ioctl(self.uffd.as_raw_fd(), UFFDIO_REGISTER, register.as_mut_ptr()) })
    }

    /// Begins to track `range` and lifts every protection that an earlier registration left there: all
    /// its pages count as written.
    ///
    /// # Errors
    /// `EINVAL` where a mapping cannot be tracked.
    pub fn register_as_written(&self, range: Range<u64>) -> io::Result<()> {
        self.register(range.clone())?;
        self.unprotect(range)
    }

    /// Stops tracking `range`: its mappings are as the kernel would have them without a tracker. Those
    /// that are not tracked stay as they are.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn unregister(&self, range: Range<u64>) -> io::Result<()> {
        let mut registered = Vec::new();
        let query = Query {
            mask: WP_ALLOWED,
            ..Query::default()
        };
        self.scan(range, &mut registered, query)?;
        registered.iter().try_for_each(|region| {
            let mut range = [region.start, region.end - region.start];
            // SAFETY: UFFDIO_UNREGISTER reads a uffdio_range of two u64.
            checked(unsafe { libc::ioctl(self.uffd.as_raw_fd(), UFFDIO_UNREGISTER, range.as_mut_ptr()) })
        })
    }

    /// Pages of `range` written since they were last taken; they are protected again.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn take_written(&self, range: Range<u64>, into: &mut Vec<Region>) -> io::Result<()> {
        self.scan(
            range,
            into,
            Query {
                flags: PM_SCAN_WP_MATCHING,
                ..WRITTEN_NOW
            },
        )
    }

    /// Protects `range` again without a look: its next write is told.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn protect(&self, range: Range<u64>) -> io::Result<()> {
        let mut protect = [range.start, range.end - range.start, UFFDIO_WRITEPROTECT_MODE_WP];
        // SAFETY: UFFDIO_WRITEPROTECT reads a uffdio_writeprotect of three u64.
        checked(unsafe { libc::ioctl(self.uffd.as_raw_fd(), UFFDIO_WRITEPROTECT, protect.as_mut_ptr()) })
    }

    /// Lifts the protection of `range`: its pages count as written. In a private mapping of a file this
    /// also removes the marks that dropped pages leave behind, which look like swapped pages.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn unprotect(&self, range: Range<u64>) -> io::Result<()> {
        let mut protect = [range.start, range.end - range.start, 0];
        // SAFETY: UFFDIO_WRITEPROTECT reads a uffdio_writeprotect of three u64.
        checked(unsafe { libc::ioctl(self.uffd.as_raw_fd(), UFFDIO_WRITEPROTECT, protect.as_mut_ptr()) })
    }

    /// Pages of `range` written since they were last taken; they stay writable and will be told again.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn see_written(&self, range: Range<u64>, into: &mut Vec<Region>) -> io::Result<()> {
        self.scan(range, into, WRITTEN_NOW)
    }

    /// Mapped ranges that are not tracked, whether or not they hold pages. Ranges that never can be
    /// (the vDSO) are among them.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn unregistered(&self, range: Range<u64>, into: &mut Vec<Region>) -> io::Result<()> {
        self.scan(
            range,
            into,
            Query {
                inverted: WP_ALLOWED,
                mask: WP_ALLOWED,
                ..Query::default()
            },
        )
    }

    /// Pages of `range` that hold something of the process's own.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn present(&self, range: Range<u64>, into: &mut Vec<Region>) -> io::Result<()> {
        self.scan(
            range,
            into,
            Query {
                but_guards: true,
                any_of: PRESENT | SWAPPED,
                returned: ZERO,
                ..Query::default()
            },
        )
    }

    /// Pages of `range`, in a shared mapping, that were not written since they were last protected. What is
    /// not among them may have been.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn protected(&self, range: Range<u64>, into: &mut Vec<Region>) -> io::Result<()> {
        let query = Query {
            inverted: WRITTEN,
            mask: WP_ALLOWED | WRITTEN,
            any_of: PRESENT | SWAPPED,
            ..Query::default()
        };
        self.scan(range, into, query)
    }

    /// Of `range`, in a private mapping of a file, the pages that are the process's own and no
    /// longer the file's.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn private_copies(&self, range: Range<u64>, into: &mut Vec<Region>) -> io::Result<()> {
        let query = Query {
            but_guards: true,
            inverted: FILE,
            mask: FILE,
            any_of: PRESENT | SWAPPED,
            returned: ZERO,
            ..Query::default()
        };
        self.scan(range, into, query)
    }

    /// Appends what matches. The kernel fills as many regions as there is room for and says where it stopped.
    fn scan(&self, range: Range<u64>, into: &mut Vec<Region>, query: Query) -> io::Result<()> {
        let mut start = range.start;
        let but = if query.but_guards { self.guard } else { 0 };
        while start < range.end {
            if into.capacity() - into.len() < 512 {
                into.reserve(4096);
            }
            let room = into.spare_capacity_mut();
            let mut arguments = ScanArguments {
                size: size_of::<ScanArguments>() as u64,
                flags: query.flags,
                start,
                end: range.end,
                walk_end: 0,
                regions: room.as_mut_ptr() as u64,
                regions_len: room.len() as u64,
                max_pages: 0,
                inverted: query.inverted | but,
                mask: query.mask | but,
                any_of: query.any_of,
                returned: query.returned,
            };
            // SAFETY: the kernel writes at most `regions_len` regions into the spare capacity.
            let found = unsafe { libc::ioctl(self.pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut arguments) };
            checked(found)?;
            // SAFETY: the kernel initialised `found` regions right after the vector's length.
            unsafe { into.set_len(into.len() + found as usize) };
            start = arguments.walk_end;
        }
        Ok(())
    }

    /// Fills empty pages from `address` on with `pieces`, one after the other (whole pages, in a
    /// tracked anonymous mapping); they count as not written. Cheaper than writing through the page
    /// tables: nothing is zeroed first. Pieces that lie side by side here are given together. See
    /// ioctl_userfaultfd(2), `UFFDIO_COPY`.
    ///
    /// # Errors
    /// `EEXIST` where a page is there already.
    pub fn fill<'a>(&self, address: u64, pieces: impl IntoIterator<Item = &'a [u8]>) -> io::Result<()> {
        let mut pieces = pieces.into_iter().peekable();
        let mut address = address;
        while let Some(piece) = pieces.next() {
            let mut range = piece.as_ptr_range();
            while let Some(next) = pieces.next_if(|next| next.as_ptr() == range.end) {
                range.end = next.as_ptr_range().end;
            }
            let len = range.end as u64 - range.start as u64;
            self.copy_in(address, range.start as u64, len)?;
            address += len;
        }
        Ok(())
    }

    /// Copies `len` bytes of ours, which are borrowed by the caller, to `address`.
    fn copy_in(&self, address: u64, from: u64, len: u64) -> io::Result<()> {
        let mut done = 0;
        while done < len {
            let mut copy = [address + done, from + done, len - done, UFFDIO_COPY_MODE_WP, 0];
            // SAFETY: UFFDIO_COPY reads a uffdio_copy of five u64 and, checking each access, the
            // bytes it points to; it writes only its last field.
            let result =
                checked(unsafe { libc::ioctl(self.uffd.as_raw_fd(), UFFDIO_COPY, copy.as_mut_ptr()) });
            match result {
                Ok(()) => done += copy[4],
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                    done += (copy[4] as i64).max(0) as u64
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Written, and still there; the zero page is told apart.
const WRITTEN_NOW: Query = Query {
    flags: 0,
    but_guards: true,
    inverted: 0,
    mask: WP_ALLOWED | WRITTEN,
    any_of: PRESENT | SWAPPED,
    returned: ZERO,
};

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
