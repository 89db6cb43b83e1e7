//! Copies a stopped program's pages from inside it, on every processor.
//!
//! Reading another process's scattered pages costs a look-up and a pin for each. A helper that shares the
//! program's memory reads them as any memory, and writes with stores that do not read their target
//! first. So helpers are cloned from the stopped program, with its memory and nothing else of it, and
//! sleep between two copies:
//!
//! ```text
//! WINDOW ┌─────────────────────┐  shared by the program and us
//!        │ go, done, next, ... │  one page: what the helpers wait for and count
//!        ├─────────────────────┤
//!        │ pieces to copy      │  {from, to, length}, 32 bytes each
//!        ├─────────────────────┤
//!        │ the slot            │  where the copies go: the memory of a capture's buffer
//!    END └─────────────────────┘
//! ```
//!
//! * Helpers run only between [`Copier::copy`]'s call and its return, while the program is stopped.
//! * They are children of ours that hold no file of the program, share none of its signals, and die
//!   with us. The program cannot wait for one; should it kill one, copying goes on without.
//! * The slot is one buffer's at a time.

#![allow(unsafe_code)]

use crate::inject::{self, Call};
use crate::remote::{Process, Remote};
use crate::trace::{self, Tid};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, waitid, waitpid};
use rustix::thread::futex;
use rustix::time::Timespec;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use twinpage_core::Buffer;
use twinpage_core::buffer::Storage;

/// Where the window is in the program.
pub const WINDOW: u64 = 0x6000_0000_0000;
/// Past its last byte.
pub const END: u64 = WINDOW + WINDOW_BYTES as u64;

/// Where the helpers' code is, in the page of injected code, behind the loop that is there.
const CODE: u64 = inject::HOME + 0x800;
const PIECES_AT: usize = 4096;
const MOST_PIECES: usize = 32 << 10;
const SLOT_AT: usize = PIECES_AT + MOST_PIECES * size_of::<Piece>();
/// Bytes that can be copied at once.
pub const SLOT_BYTES: usize = 96 << 20;
const WINDOW_BYTES: usize = SLOT_AT + SLOT_BYTES;
/// A helper takes that many bytes at a time.
const PIECE_BYTES: usize = 32 << 10;
/// A copy of all there may be takes a tenth of it.
const PATIENCE: Duration = Duration::from_secs(1);
/// So often a copy that is not done is looked after.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

std::arch::global_asm!(
    ".pushsection .rodata",
    ".globl twinpage_copier",
    ".globl twinpage_copier_end",
    // r15: the window; r14: the round that is done.
    "twinpage_copier:",
    "   mov eax, 202", // futex(&go, FUTEX_WAIT, round, no limit)
    "   mov rdi, r15",
    "   xor esi, esi",
    "   mov edx, r14d",
    "   xor r10d, r10d",
    "   syscall",
    "   mov eax, [r15]",
    "   cmp eax, r14d",
    "   je twinpage_copier",
    "   mov r14d, eax",
    "   mov eax, 1", // the first piece
    "   lock xadd [r15 + 8], rax",
    "2: cmp rax, [r15 + 16]",
    "   jae 4f",
    "   shl rax, 5",
    "   lea rbx, [r15 + rax + 4096]",
    "   mov rsi, [rbx]",
    "   mov rdi, [rbx + 8]",
    "   mov rcx, [rbx + 16]",
    "   mov eax, 1", // the piece after it, fetched while this one is copied
    "   lock xadd [r15 + 8], rax",
    "   mov r8, rax",
    "   shl r8, 5",
    "   mov r8, [r15 + r8 + 4096]",
    "   sub r8, rsi",
    "3: prefetcht0 [rsi + r8]",
    "   prefetcht0 [rsi + r8 + 64]",
    "   movdqa xmm0, [rsi]", // 128 bytes, past the caches
    "   movdqa xmm1, [rsi + 16]",
    "   movdqa xmm2, [rsi + 32]",
    "   movdqa xmm3, [rsi + 48]",
    "   movdqa xmm4, [rsi + 64]",
    "   movdqa xmm5, [rsi + 80]",
    "   movdqa xmm6, [rsi + 96]",
    "   movdqa xmm7, [rsi + 112]",
    "   movntdq [rdi], xmm0",
    "   movntdq [rdi + 16], xmm1",
    "   movntdq [rdi + 32], xmm2",
    "   movntdq [rdi + 48], xmm3",
    "   movntdq [rdi + 64], xmm4",
    "   movntdq [rdi + 80], xmm5",
    "   movntdq [rdi + 96], xmm6",
    "   movntdq [rdi + 112], xmm7",
    "   add rsi, 128",
    "   add rdi, 128",
    "   sub rcx, 128",
    "   jnz 3b",
    "   jmp 2b",
    "4: sfence",
    "   lock inc dword ptr [r15 + 4]", // done
    "   mov eax, 202",                 // futex(&done, FUTEX_WAKE, 1)
    "   lea rdi, [r15 + 4]",
    "   mov esi, 1",
    "   mov edx, 1",
    "   syscall",
    "   jmp twinpage_copier",
    "twinpage_copier_end:",
    ".popsection",
);

/// The helpers' code.
fn code() -> &'static [u8] {
    unsafe extern "C" {
        static twinpage_copier: u8;
        static twinpage_copier_end: u8;
    }
    // SAFETY: both symbols lie in the same read-only section, the second after the first.
    unsafe {
        let start = &raw const twinpage_copier;
        let end = &raw const twinpage_copier_end;
        std::slice::from_raw_parts(start, end.offset_from(start) as usize)
    }
}

/// The first bytes of the window.
#[repr(C)]
struct Control {
    /// The round; the helpers wait for it to change.
    go: AtomicU32,
    /// Helpers that are done with it.
    done: AtomicU32,
    /// The next piece that no helper has taken.
    next: AtomicU64,
    /// How many there are.
    count: AtomicU64,
}

/// One run of bytes to copy; addresses are the program's. A multiple of 128 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Piece {
    from: u64,
    to: u64,
    bytes: u64,
    unused: u64,
}

const _: () = assert!(size_of::<Piece>() == 32 && std::mem::offset_of!(Control, count) == 16);
const _: () = assert!(SLOT_AT.is_multiple_of(4096) && PIECE_BYTES.is_multiple_of(128));

/// The window as we see it.
#[derive(Debug)]
struct Window {
    base: NonNull<u8>,
    /// The slot is a buffer's.
    lent: AtomicBool,
}

// SAFETY: the control words are atomics; pieces are written by the one copier, the slot by its one
// borrower.
unsafe impl Send for Window {}
// SAFETY: shared references reach atomics only; pieces have one writer, the slot one borrower.
unsafe impl Sync for Window {}

impl Window {
    fn new() -> io::Result<(Window, OwnedFd)> {
        let file = memfd_create("twinpage-copies", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, WINDOW_BYTES as u64)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the system's choice replaces nothing.
        let base = unsafe { mmap(std::ptr::null_mut(), WINDOW_BYTES, protection, flags, &file, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let lent = AtomicBool::new(false);
        Ok((Window { base, lent }, file))
    }

    fn control(&self) -> &Control {
        // SAFETY: the window begins with it, zeroed at first, and all its fields are atomics.
        unsafe { self.base.cast().as_ref() }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, without a borrower left. Failing would only leave
        // addresses in use.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), WINDOW_BYTES) };
    }
}

/// The slot, lent to a buffer.
struct Slot(Arc<Window>);

impl Storage for Slot {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the slot lies in the window, is this borrower's alone, and the helpers write to it
        // only while `copy` holds the buffer mutably.
        unsafe { std::slice::from_raw_parts(self.0.base.as_ptr().add(SLOT_AT), SLOT_BYTES) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the slot lies in the window and is this borrower's alone; `&mut self` keeps other views away.
        unsafe { std::slice::from_raw_parts_mut(self.0.base.as_ptr().add(SLOT_AT), SLOT_BYTES) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.lent.store(false, Ordering::Release);
    }
}

/// Helpers inside a program. See the [module](self).
#[derive(Debug)]
pub struct Copier {
    window: Arc<Window>,
    helpers: Vec<Tid>,
}

impl Copier {
    /// Clones a helper for each processor from the stopped thread `tid`.
    ///
    /// # Errors
    /// What the program may not do: map more memory, open our descriptor, make another process.
    pub fn new(process: &Process, tid: Tid) -> io::Result<Copier> {
        let (window, file) = Window::new()?;
        share(process, tid, &file)?;
        process.write(CODE, code())?;
        let mut copier = Copier {
            window: Arc::new(window),
            helpers: Vec::new(),
        };
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from).min(4) {
            let helper = clone_helper(process, tid)?;
            copier.helpers.push(helper);
            set_off(process, helper)?;
        }
        Ok(copier)
    }

    /// Lets `buffer`, which holds nothing, lie in the slot, if it does not yet.
    pub fn lend(&self, buffer: &mut Buffer) {
        if !self.window.lent.swap(true, Ordering::Acquire) {
            *buffer = Buffer::within(Box::new(Slot(self.window.clone())));
        }
    }

    /// Whether `bytes` lie in the slot.
    fn place(&self, bytes: &[u8]) -> Option<usize> {
        let slot = self.window.base.as_ptr().addr() + SLOT_AT;
        let at = bytes.as_ptr().addr().checked_sub(slot)?;
        (at + bytes.len() <= SLOT_BYTES).then_some(at)
    }

    /// Copies the content of `ranges` (whole pages, readable by the program) to `into`, back to back.
    /// False when `into` is not in the slot or the ranges are too many: nothing was copied.
    ///
    /// # Errors
    /// When a helper died or does not answer: the copier is of no use any more.
    pub fn copy(&self, ranges: &[Remote], into: &mut [u8]) -> io::Result<bool> {
        let Some(at) = self.place(into) else {
            return Ok(false);
        };
        let Some(pieces) = self.cut(ranges, at) else {
            return Ok(false);
        };
        let control = self.window.control();
        control.next.store(0, Ordering::Relaxed);
        control.count.store(pieces as u64, Ordering::Relaxed);
        control.done.store(0, Ordering::Relaxed);
        control.go.fetch_add(1, Ordering::Release);
        futex::wake(&control.go, futex::Flags::empty(), self.helpers.len() as u32)?;
        self.wait()?;
        Ok(true)
    }

    /// Lists the pieces. None when there is no room for that many.
    fn cut(&self, ranges: &[Remote], slot_at: usize) -> Option<usize> {
        // SAFETY: the list lies in the window behind the control page; only this copier writes to it,
        // and no helper reads it between two rounds.
        let list = unsafe {
            let first = self.window.base.as_ptr().add(PIECES_AT).cast::<Piece>();
            std::slice::from_raw_parts_mut(first, MOST_PIECES)
        };
        let (mut count, mut to) = (0, WINDOW + (SLOT_AT + slot_at) as u64);
        for range in ranges {
            let (mut from, mut left) = (range.start, range.len);
            while left > 0 {
                let bytes = left.min(PIECE_BYTES) as u64;
                *list.get_mut(count)? = Piece {
                    from,
                    to,
                    bytes,
                    unused: 0,
                };
                (from, to, left, count) = (from + bytes, to + bytes, left - bytes as usize, count + 1);
            }
        }
        Some(count)
    }

    /// Until every helper is done. Signals of ours may end a single wait at any time.
    fn wait(&self) -> io::Result<()> {
        let control = self.window.control();
        let all = self.helpers.len() as u32;
        let (mut seen, mut since) = (0, Instant::now());
        loop {
            let done = control.done.load(Ordering::Acquire);
            if done == all {
                return Ok(());
            }
            if done != seen {
                (seen, since) = (done, Instant::now());
            }
            // A change, a signal, the end of the time: all are reasons to look again.
            let _ = futex::wait(&control.done, futex::Flags::empty(), done, Some(&LOOK));
            let is_stuck =
                || since.elapsed() > PATIENCE || self.helpers.iter().any(|helper| is_dead(*helper));
            if control.done.load(Ordering::Acquire) == done && is_stuck() {
                return Err(io::Error::other(
                    "a helper that copies the program's pages is gone",
                ));
            }
        }
    }
}

/// Whether a child of ours ended; it stays to be waited for.
fn is_dead(helper: Tid) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let helper = Pid::from_raw(helper).expect("clone gave it");
    !matches!(waitid(WaitId::Pid(helper), look), Ok(None))
}

impl Drop for Copier {
    fn drop(&mut self) {
        for helper in self.helpers.iter().filter_map(|tid| Pid::from_raw(*tid)) {
            let _ = kill_process(helper, Signal::KILL);
            let _ = waitpid(Some(helper), WaitOptions::empty()); // or it was waited for already
        }
    }
}

/// Maps the window in the program. Its own descriptor table is as before afterwards.
fn share(process: &Process, tid: Tid, file: &OwnedFd) -> io::Result<()> {
    let path = format!("/proc/{}/fd/{}\0", std::process::id(), file.as_raw_fd());
    process.write(inject::ROOM, path.as_bytes())?;
    let flags = (libc::O_RDWR | libc::O_CLOEXEC) as u64;
    let fd = inject::call(process, tid, libc::SYS_open, &[inject::ROOM, flags, 0])?;
    let arguments = [
        WINDOW,
        WINDOW_BYTES as u64,
        (libc::PROT_READ | libc::PROT_WRITE) as u64,
        (libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE) as u64,
        fd,
        0,
    ];
    let mapped = inject::call(process, tid, libc::SYS_mmap, &arguments);
    inject::call(process, tid, libc::SYS_close, &[fd])?;
    mapped.map(drop)
}

/// A stopped process that has the program's memory, is our child, and is traced.
fn clone_helper(process: &Process, tid: Tid) -> io::Result<Tid> {
    let flags = (libc::CLONE_VM | libc::CLONE_PARENT) as u64;
    let helper = inject::call(process, tid, libc::SYS_clone, &[flags])? as Tid;
    trace::await_first_stop(helper)?;
    Ok(helper)
}

/// Takes the program's descriptors and session from a helper, and lets it wait for work, untraced.
fn set_off(process: &Process, helper: Tid) -> io::Result<()> {
    let mut calls = [
        Call::new(libc::SYS_close_range, &[0, u64::from(u32::MAX), 0]),
        Call::new(libc::SYS_setsid, &[]),
    ];
    inject::run(process, helper, &mut calls)?;
    calls.iter().try_for_each(|call| call.result().map(drop))?;
    trace::set_signal_mask(helper, u64::MAX)?;
    let mut registers = trace::registers(helper)?;
    registers.rip = CODE;
    registers.r15 = WINDOW;
    registers.r14 = 0;
    registers.orig_rax = trace::NO_CALL;
    trace::set_registers(helper, &registers)?;
    trace::detach(helper)
}
