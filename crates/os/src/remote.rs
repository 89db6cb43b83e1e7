//! Another process's memory and descriptors: process_vm_readv(2), /proc/PID/mem, pidfd_getfd(2).
//!
//! * The caller may trace the target (the kernel checks it on each call).
//! * Content is consistent only while the target's threads are stopped.

#![allow(unsafe_code)]

use crate::proc_file;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// A range of a target's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub len: usize,
}

/// `process_vm_readv` takes at most this many ranges.
const MOST_RANGES: usize = 1024;

/// A process whose memory can be read and written.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    thread: i32,
    memory: File,
    pidfd: OwnedFd,
    /// proc_pid_status(5), opened when it is read first.
    status: OnceLock<File>,
}

/// `PIDFD_THREAD`, pidfd_open(2): a descriptor of one thread, since Linux 6.9.
const PIDFD_THREAD: i32 = libc::O_EXCL;

impl Process {
    /// Opens the process `pid`.
    ///
    /// # Errors
    /// `EACCES` when it may not be traced, `ENOENT` when it is gone.
    pub fn open(pid: i32) -> io::Result<Process> {
        Process::open_by(pid, pid)
    }

    /// Opens the process `pid` by one of its threads: a main thread that ended has neither memory nor
    /// descriptors any more, also while others go on.
    ///
    /// # Errors
    /// As [`Process::open`]; `EINVAL` on kernels older than 6.9, for any but the main thread.
    pub fn open_by(pid: i32, thread: i32) -> io::Result<Process> {
        let memory = OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{thread}/mem"))?;
        let flags = if thread == pid { 0 } else { PIDFD_THREAD };
        // SAFETY: pidfd_open takes two integers and returns a descriptor that is ours.
        let pidfd = unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, thread, flags);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd as RawFd)
        };
        Ok(Process {
            pid,
            thread,
            memory,
            pidfd,
            status: OnceLock::new(),
        })
    }

    /// The process's id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Which signals are ignored or have a handler, a bit each.
    ///
    /// # Errors
    /// `ESRCH` when it is gone.
    pub fn handled_signals(&self) -> io::Result<u64> {
        let status = match self.status.get() {
            Some(status) => status,
            None => {
                let opened = File::open(format!("/proc/{}/status", self.thread))?;
                self.status.get_or_init(|| opened)
            }
        };
        let status = proc_file::text_of(status)?;
        let masks = ["SigIgn", "SigCgt"].map(|name| proc_file::mask(&status, name).unwrap_or(0));
        Ok(masks[0] | masks[1])
    }

    /// The thread it is looked at by: `/proc/THREAD` says what belongs to the process.
    #[must_use]
    pub fn thread(&self) -> i32 {
        self.thread
    }

    /// Reads at `address`, whatever the protection there.
    ///
    /// # Errors
    /// `EIO` where nothing is mapped.
    pub fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        self.memory.read_exact_at(into, address)
    }

    /// Writes at `address`, whatever the protection there (private copies are made of file pages).
    ///
    /// # Errors
    /// `EIO` where nothing is mapped.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, address)
    }

    /// Reads one value.
    ///
    /// # Errors
    /// As [`Process::read`].
    pub fn read_u64(&self, address: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Fills `into` with the content of `ranges`, back to back; they are `into.len()` bytes together.
    /// Ranges the fast way refuses (no read permission) are read one by one through /proc/PID/mem.
    ///
    /// # Errors
    /// As [`Process::read`].
    pub fn gather(&self, ranges: &[Remote], into: &mut [u8]) -> io::Result<()> {
        debug_assert_eq!(ranges.iter().map(|range| range.len).sum::<usize>(), into.len());
        let mut filled = 0;
        for batch in ranges.chunks(MOST_RANGES) {
            let bytes: usize = batch.iter().map(|range| range.len).sum();
            let target = &mut into[filled..filled + bytes];
            if self.gather_batch(batch, target)? != bytes {
                self.gather_slowly(batch, target)?;
            }
            filled += bytes;
        }
        Ok(())
    }

    fn gather_batch(&self, batch: &[Remote], into: &mut [u8]) -> io::Result<usize> {
        let mut remote = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; MOST_RANGES];
        for (slot, range) in remote.iter_mut().zip(batch) {
            *slot = libc::iovec {
                iov_base: range.start as *mut _,
                iov_len: range.len,
            };
        }
        let local = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        // SAFETY: `local` is exactly `into`; the remote addresses are only looked up by the kernel
        // in the other process.
        let read = unsafe {
            libc::process_vm_readv(
                self.thread,
                &raw const local,
                1,
                remote.as_ptr(),
                batch.len() as u64,
                0,
            )
        };
        if read >= 0 {
            return Ok(read as usize);
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EFAULT) => Ok(0),
            error => Err(error),
        }
    }

    fn gather_slowly(&self, batch: &[Remote], into: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        for range in batch {
            let target = &mut into[filled..filled + range.len];
            self.read(range.start, target)?;
            filled += range.len;
        }
        Ok(())
    }

    /// Whether it still exists: another that has its id since does not count.
    #[must_use]
    pub fn is_there(&self) -> bool {
        // SAFETY: pidfd_send_signal takes integers and, here, no signal information; signal 0 is never sent.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.pidfd.as_raw_fd(), 0, 0, 0) == 0 }
    }

    /// A duplicate, in this process, of the target's descriptor `fd`: the same open file, so the
    /// same offset and flags. See pidfd_getfd(2).
    ///
    /// # Errors
    /// `EBADF` when the target has no such descriptor.
    pub fn duplicate_fd(&self, fd: i32) -> io::Result<OwnedFd> {
        // SAFETY: pidfd_getfd takes integers and returns a descriptor that is ours.
        unsafe {
            let copy = libc::syscall(libc::SYS_pidfd_getfd, self.pidfd.as_raw_fd(), fd, 0);
            if copy < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(OwnedFd::from_raw_fd(copy as RawFd))
        }
    }
}

/// Whether two descriptors of one process are the same open file (and so share an offset): kcmp(2).
///
/// # Errors
/// `ENOSYS` where the kernel lacks kcmp.
pub fn same_open_file(pid: i32, one: i32, other: i32) -> io::Result<bool> {
    const KCMP_FILE: i32 = 0;
    // SAFETY: kcmp takes five integers.
    match unsafe { libc::syscall(libc::SYS_kcmp, pid, pid, KCMP_FILE, one, other) } {
        -1 => Err(io::Error::last_os_error()),
        order => Ok(order == 0),
    }
}

/// Whether two threads share a table of descriptors: kcmp(2).
///
/// # Errors
/// `ENOSYS` where the kernel lacks kcmp.
pub fn share_descriptors(one: i32, other: i32) -> io::Result<bool> {
    const KCMP_FILES: i32 = 2;
    // SAFETY: kcmp takes five integers.
    match unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_FILES, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        order => Ok(order == 0),
    }
}

/// How the open files of two descriptors, each of a thread and its number there, are ordered, in an order that lasts
/// as long as they: kcmp(2).
///
/// # Errors
/// `ENOSYS` where the kernel lacks kcmp.
pub fn order_of_open_files(one: (i32, i32), other: (i32, i32)) -> io::Result<std::cmp::Ordering> {
    use std::cmp::Ordering;
    const KCMP_FILE: i32 = 0;
    // SAFETY: kcmp takes five integers.
    match unsafe { libc::syscall(libc::SYS_kcmp, one.0, other.0, KCMP_FILE, one.1, other.1) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Ordering::Equal),
        1 => Ok(Ordering::Less),
        _ => Ok(Ordering::Greater),
    }
}

/// Whether a descriptor, of a thread and its number there, is what the `nth` entry that was made with `number` in
/// the poll descriptor `poll` of thread `tid` belongs to: kcmp(2), `KCMP_EPOLL_TFD`.
///
/// # Errors
/// `ENOENT` when there is no such entry.
pub fn is_poll_target(
    (owner, fd): (i32, i32),
    tid: i32,
    poll: i32,
    number: i32,
    nth: u32,
) -> io::Result<bool> {
    const KCMP_EPOLL_TFD: i32 = 7;
    // struct kcmp_epoll_slot: efd, tfd, toff.
    let slot = [poll as u32, number as u32, nth];
    // SAFETY: kcmp takes integers and reads the slot, which outlives the call.
    match unsafe { libc::syscall(libc::SYS_kcmp, owner, tid, KCMP_EPOLL_TFD, fd, slot.as_ptr()) } {
        -1 => Err(io::Error::last_os_error()),
        order => Ok(order == 0),
    }
}

/// Says how many expirations of a timer descriptor were not read yet: ioctl_timerfd(2), `TFD_IOC_SET_TICKS`.
///
/// # Errors
/// `ENOTTY` where the kernel lacks CONFIG_CHECKPOINT_RESTORE.
pub fn set_timer_ticks(timer: impl std::os::fd::AsFd, ticks: u64) -> io::Result<()> {
    const TFD_IOC_SET_TICKS: libc::c_ulong = 0x4008_5400;
    let fd = timer.as_fd().as_raw_fd();
    // SAFETY: the request reads eight bytes, which outlive the call.
    match unsafe { libc::ioctl(fd, TFD_IOC_SET_TICKS, &raw const ticks) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The soft and hard limit of `resource` in process `pid`: prlimit(2).
///
/// # Errors
/// `EPERM` when the process is another user's.
pub fn limit(pid: i32, resource: u32) -> io::Result<(u64, u64)> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: prlimit reads nothing and writes one rlimit.
    let result = unsafe { libc::prlimit(pid, resource, std::ptr::null(), &raw mut limit) };
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok((limit.rlim_cur, limit.rlim_max))
    }
}

/// Sets a limit of process `pid`: prlimit(2).
///
/// # Errors
/// `EPERM` when a hard limit is raised without privilege.
pub fn set_limit(pid: i32, resource: u32, soft: u64, hard: u64) -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    // SAFETY: prlimit reads one rlimit and writes nothing.
    let result = unsafe { libc::prlimit(pid, resource, &raw const limit, std::ptr::null_mut()) };
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// How a thread is scheduled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scheduling {
    /// `SCHED_*`.
    pub policy: i32,
    /// Priority, for the real-time policies.
    pub priority: i32,
    /// Niceness, -20 to 19.
    pub nice: i32,
    /// The processors it may run on, bit by bit; 1024 processors.
    pub affinity: [u64; 16],
}

/// How thread `tid` is scheduled: sched_getscheduler(2), getpriority(2), sched_getaffinity(2).
///
/// # Errors
/// `ESRCH` when it is gone.
pub fn scheduling(tid: i32) -> io::Result<Scheduling> {
    let mut scheduling = Scheduling::default();
    let mut parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: each call writes at most what its pointer holds; the raw affinity call is told the size.
    unsafe {
        scheduling.policy = libc::sched_getscheduler(tid);
        if scheduling.policy == -1 || libc::sched_getparam(tid, &raw mut parameter) == -1 {
            return Err(io::Error::last_os_error());
        }
        // The system call returns 20 - nice, so that it is never negative.
        scheduling.nice = 20 - libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, tid) as i32;
        let size = size_of_val(&scheduling.affinity);
        if libc::syscall(
            libc::SYS_sched_getaffinity,
            tid,
            size,
            scheduling.affinity.as_mut_ptr(),
        ) == -1
        {
            return Err(io::Error::last_os_error());
        }
    }
    scheduling.priority = parameter.sched_priority;
    Ok(scheduling)
}

/// Schedules thread `tid` so, as far as it is not so already.
///
/// # Errors
/// `EPERM` without the privilege for it; `EINVAL` when none of the processors exist here.
pub fn set_scheduling(tid: i32, wanted: &Scheduling) -> io::Result<()> {
    let now = scheduling(tid)?;
    let checked = |result: libc::c_long| {
        if result == -1 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    };
    // SAFETY: each call reads at most what its pointer holds.
    unsafe {
        if now.affinity != wanted.affinity {
            let size = size_of_val(&wanted.affinity);
            checked(libc::syscall(
                libc::SYS_sched_setaffinity,
                tid,
                size,
                wanted.affinity.as_ptr(),
            ))?;
        }
        if (now.policy, now.priority) != (wanted.policy, wanted.priority) {
            let parameter = libc::sched_param {
                sched_priority: wanted.priority,
            };
            checked(libc::sched_setscheduler(tid, wanted.policy, &raw const parameter).into())?;
        }
        if now.nice != wanted.nice {
            checked(libc::setpriority(libc::PRIO_PROCESS, tid as u32, wanted.nice).into())?;
        }
    }
    Ok(())
}
