//! Which pages of a process were written: userfaultfd(2) in asynchronous write-protect mode, read
//! through the `PAGEMAP_SCAN` ioctl of /proc/PID/pagemap (Linux 6.7 and later).
//!
//! * The kernel marks a page at its first write and goes on by itself: no signal, no handler.
//! * [`Tracker::take_written`] reads the marks and protects the pages again in one call.
//! * mremap(2), and munmap(2) followed by mmap(2) at the same place, drop a registration without
//!   a trace in /proc/PID/maps: [`Tracker::unregistered`] finds such ranges. The marks in their page
//!   tables may stay, and are wrong: a write where nothing is registered does not lift one. So such a
//!   range is tracked again with [`Tracker::register_as_written`].
//! * A look tells of each page once, in order. The kernel itself may tell of pages again where there are more than
//!   512 runs of them.
//! * While a process is loaded, threads that touch an empty page wait until it is filled
//!   ([`Tracker::register_empty`]), in user mode only: a system call cannot wait without privileges.
//! * madvise(`MADV_DONTNEED`), mremap(2) in place and the truncation of a mapped file empty pages
//!   without marking them: the tracer watches the calls and then looks with [`Tracker::present`].

#![allow(unsafe_code)]

use crate::space::again;
use rustix::event::{PollFd, PollFlags, poll};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

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
const UFFDIO_WAKE: libc::c_ulong = 0x8010_aa02;
const UFFDIO_COPY: libc::c_ulong = 0xc028_aa03;
const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;
const UFFDIO_WRITEPROTECT: libc::c_ulong = 0xc018_aa06;
const UFFDIO_WRITEPROTECT_MODE_WP: u64 = 1;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1 << 0;
const UFFDIO_REGISTER_MODE_WP: u64 = 1 << 1;
const UFFDIO_COPY_MODE_WP: u64 = 1 << 1;
const UFFD_EVENT_PAGEFAULT: u8 = 0x12;

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
        self.register_as(range, UFFDIO_REGISTER_MODE_WP)
    }

    fn register_as(&self, range: Range<u64>, mode: u64) -> io::Result<()> {
        let mut register = [range.start, range.end - range.start, mode, 0];
        // SAFETY: UFFDIO_REGISTER reads and writes a uffdio_register of four u64.
        checked(unsafe { libc::ioctl(self.uffd.as_raw_fd(), UFFDIO_REGISTER, register.as_mut_ptr()) })
    }

    /// Begins to track `range`, which is anonymous and empty. Until [`Tracker::loaded`], a thread that touches an empty
    /// page of it waits for [`Tracker::fill`] or [`Tracker::zero`]. The kernel does not: a system call that is given
    /// such a page fails with `EFAULT`, and so does a look from another process.
    ///
    /// # Errors
    /// `EINVAL` where a mapping cannot be tracked so.
    pub fn register_empty(&self, range: Range<u64>) -> io::Result<()> {
        self.register_as(range, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP)
    }

    /// Waits until a thread touches an empty page, and gives its address; `None` when `end` was closed at its other
    /// side.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn next_touched(&self, end: &impl AsFd) -> io::Result<Option<u64>> {
        loop {
            let mut fds = [
                PollFd::new(&self.uffd, PollFlags::IN),
                PollFd::new(end, PollFlags::IN),
            ];
            again(|| poll(&mut fds, None))?;
            if !fds[1].revents().is_empty() {
                return Ok(None);
            }
            // struct uffd_msg: what happened, and after two words the address of a fault.
            let mut message = [0_u8; 32];
            match rustix::io::read(&self.uffd, &mut message) {
                Ok(32) if message[0] == UFFD_EVENT_PAGEFAULT => {
                    let address = std::array::from_fn(|index| message[16 + index]);
                    return Ok(Some(u64::from_ne_bytes(address)));
                }
                // The thread was woken meanwhile.
                Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The empty page at `address` is one of zeros, and threads that wait for it go on.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn zero(&self, address: u64) -> io::Result<()> {
        let mut zero = [address, PAGE, 0, 0];
        // SAFETY: UFFDIO_ZEROPAGE reads and writes a uffdio_zeropage of four u64.
        let zeroed =
            checked(unsafe { libc::ioctl(self.uffd.as_raw_fd(), UFFDIO_ZEROPAGE, zero.as_mut_ptr()) });
        match zeroed {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EEXIST | libc::EAGAIN)) => {
                // SAFETY: UFFDIO_WAKE reads a uffdio_range of two u64.
                checked(unsafe { libc::ioctl(self.uffd.as_raw_fd(), UFFDIO_WAKE, zero.as_mut_ptr()) })
            }
            zeroed => zeroed,
        }
    }

    /// No thread waits for pages of `range` any more. Those of `filled`, in order, count as written only if they were
    /// since; what was empty counts as written once it is touched. No thread of the process runs.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn loaded(&self, range: Range<u64>, filled: &[Range<u64>]) -> io::Result<()> {
        // The kernel drops the marks with the registration, and leaves no other way out of it.
        let mut written = Vec::new();
        self.see_written(range.clone(), &mut written)?;
        let mut whole = [range.start, range.end - range.start];
        // SAFETY: UFFDIO_UNREGISTER reads a uffdio_range of two u64.
        checked(unsafe { libc::ioctl(self.uffd.as_raw_fd(), UFFDIO_UNREGISTER, whole.as_mut_ptr()) })?;
        self.register(range)?;
        let clean = unwritten(filled, &written);
        clean.into_iter().try_for_each(|clean| self.protect(clean))
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

    /// The same, without pages of zeros that were only read: those are left as they are.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn take_content(&self, range: Range<u64>, into: &mut Vec<Region>) -> io::Result<()> {
        let query = Query {
            flags: PM_SCAN_WP_MATCHING,
            inverted: ZERO,
            mask: WP_ALLOWED | WRITTEN | ZERO,
            ..WRITTEN_NOW
        };
        self.scan(range, into, query)
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

    /// Appends the regions that match, each page once, in order. The kernel fills as many as there is room for; if room is
    /// left, it reached the end. Its `walk_end` may lie before the last region: it is the start of the kernel's last pass,
    /// and a pass tells of 512 regions.
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
            let (found, is_full) = (found as usize, found as usize == room.len());
            // SAFETY: the kernel initialised `found` regions right after the vector's length.
            unsafe { into.set_len(into.len() + found) };
            if !is_full {
                return Ok(());
            }
            start = into
                .last()
                .map_or(arguments.walk_end, |last| last.end.max(arguments.walk_end));
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

/// What of `filled` was not written; both in order.
fn unwritten(filled: &[Range<u64>], written: &[Region]) -> Vec<Range<u64>> {
    let mut clean = Vec::new();
    for range in filled {
        let mut from = range.start;
        let first = written.partition_point(|region| region.end <= from);
        for region in written[first..]
            .iter()
            .take_while(|region| region.start < range.end)
        {
            clean.push(from..region.start.max(from));
            from = region.end.min(range.end);
        }
        clean.push(from..range.end);
    }
    clean.retain(|range| !range.is_empty());
    clean
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reserved;
    use std::os::fd::FromRawFd;

    #[test]
    fn what_was_not_written_is_the_rest() {
        let region = |start, end| Region {
            start,
            end,
            categories: 0,
        };
        let written = [region(2, 4), region(6, 7), region(9, 12), region(20, 30)];
        let of = |filled: &[Range<u64>]| unwritten(filled, &written);
        assert_eq!(of(&[0..5, 5..6, 6..10, 11..21]), [0..2, 4..5, 5..6, 7..9, 12..20]);
        assert_eq!(of(&[2..4, 22..25, 30..31, 40..41]), [30..31, 40..41]);
        assert_eq!(of(&[]), []);
    }

    #[test]
    fn a_look_tells_of_each_page_once() {
        const BASE: u64 = 0x4fff_a000_0000;
        let page = |number: u64| BASE + number * PAGE;
        // Two buffers of the kernel's and a part; and what there is room for here, exactly and twice.
        for runs in [1200, 4096, 4097, 8192, 9000] {
            let end = page(2 * runs);
            let memory = Reserved::at(BASE as usize, (end - BASE) as usize).unwrap();
            memory.open(BASE as usize..end as usize).unwrap();
            // SAFETY: userfaultfd(2) takes flags and gives a descriptor that is ours.
            let uffd = unsafe {
                OwnedFd::from_raw_fd(libc::syscall(libc::SYS_userfaultfd, USERFAULTFD_FLAGS) as i32)
            };
            let tracker = Tracker::new(uffd, std::process::id() as i32).unwrap();
            tracker.register(BASE..end).unwrap();
            for run in 0..runs {
                // SAFETY: the pages are open until the end of this turn.
                unsafe { (page(2 * run) as *mut u8).write_volatile(1) };
            }
            let all: Vec<u64> = (0..runs).map(|run| page(2 * run)).collect();
            type Look = fn(&Tracker, Range<u64>, &mut Vec<Region>) -> io::Result<()>;
            let looks: [Look; 4] = [
                Tracker::see_written,
                Tracker::present,
                Tracker::private_copies,
                Tracker::take_written,
            ];
            for (number, look) in looks.into_iter().enumerate() {
                let mut regions = Vec::new();
                look(&tracker, BASE..end, &mut regions).unwrap();
                let told: Vec<u64> = regions
                    .iter()
                    .flat_map(|region| (region.start..region.end).step_by(PAGE as usize))
                    .collect();
                assert!(
                    told == all,
                    "look {number} at {runs} runs tells of {}",
                    told.len()
                );
            }
        }
    }

    #[test]
    fn threads_wait_for_empty_pages_until_all_is_loaded() {
        const BASE: u64 = 0x4fff_9000_0000;
        let page = |number: u64| BASE + number * PAGE;
        let memory = Reserved::at(BASE as usize, 1 << 20).unwrap();
        memory.open(BASE as usize..page(8) as usize).unwrap();
        // SAFETY: userfaultfd(2) takes flags and gives a descriptor that is ours.
        let uffd =
            unsafe { OwnedFd::from_raw_fd(libc::syscall(libc::SYS_userfaultfd, USERFAULTFD_FLAGS) as i32) };
        let tracker = Tracker::new(uffd, std::process::id() as i32).unwrap();
        tracker.register_empty(BASE..page(8)).unwrap();
        let zeros = File::open("/dev/zero").unwrap();
        let kernel_reads_into = |number: u64| {
            // SAFETY: the page is open until the test ends.
            let read = unsafe { libc::read(zeros.as_raw_fd(), page(number) as *mut _, 8) };
            (read == 8).then_some(()).ok_or_else(io::Error::last_os_error)
        };
        // SAFETY: the pages are open until the test ends.
        let byte = |number: u64| unsafe { (page(number) as *const u8).read_volatile() };
        let (end, other_end) = io::pipe().unwrap();
        std::thread::scope(|scope| {
            let served = scope.spawn(|| {
                let mut served = Vec::new();
                while let Some(address) = tracker.next_touched(&end).unwrap() {
                    let number = (address - BASE) / PAGE;
                    served.push(number);
                    match number < 4 {
                        true => tracker.fill(page(number), [&[7; PAGE as usize][..]]).unwrap(),
                        false => tracker.zero(page(number)).unwrap(),
                    }
                }
                served
            });
            assert_eq!([0, 1, 5].map(byte), [7, 7, 0]);
            // SAFETY: the pages are open, and no other thread touches them.
            let write = |number: u64| unsafe { (page(number) as *mut u8).write_volatile(9) };
            write(2);
            write(6);
            tracker.fill(page(3), [&[7; PAGE as usize][..]]).unwrap();
            assert_eq!([2, 3, 6].map(byte), [9, 7, 9]);
            let refused = kernel_reads_into(7).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EFAULT));
            drop(other_end);
            assert_eq!(served.join().unwrap(), [0, 1, 5, 2, 6]);
        });
        tracker
            .loaded(BASE..page(8), &[BASE..page(2), page(2)..page(4)])
            .unwrap();
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(byte), [7, 7, 9, 7, 0, 0, 9]);
        let mut written = Vec::new();
        tracker.take_written(BASE..page(8), &mut written).unwrap();
        written.retain(|region| !region.is_zero());
        let told: Vec<_> = written.iter().map(|region| (region.start, region.end)).collect();
        assert_eq!(told, [(page(2), page(3)), (page(6), page(7))]);
        kernel_reads_into(7).unwrap();
        kernel_reads_into(1).unwrap();
        written.clear();
        tracker.take_written(BASE..page(8), &mut written).unwrap();
        written.retain(|region| !region.is_zero());
        let told: Vec<_> = written.iter().map(|region| (region.start, region.end)).collect();
        assert_eq!(told, [(page(1), page(2)), (page(7), page(8))]);
    }
}
