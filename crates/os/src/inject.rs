//! System calls made in another process, in batches: what ptrace(2) cannot ask from outside.
//!
//! A page of code and some of data are mapped in the target at a fixed low address. A batch is
//! written there, one stopped thread runs it and traps, and its registers are put back.
//!
//! ```text
//! HOME ┌──────────────┐  the loop below
//!      │ code, 1 page │
//! DATA ├──────────────┤  array of {number, six arguments, result}, 64 bytes each
//!      │ batch        │
//! ROOM ├──────────────┤  what arguments point to
//!      │ 16 pages     │
//! SLOTS├──────────────┤  what arguments of the program's own calls point to while they are taken up again,
//!      │ 128 pages    │  256 bytes each
//!  END └──────────────┘
//! ```
//!
//! * The thread is stopped and no other injection runs in the process.
//! * Signals other than the trap are blocked meanwhile, so no handler sees the borrowed registers.
//! * The signal that a thread had stopped for still goes on with its origin afterwards.

#![allow(unsafe_code)]

use crate::remote::{self, Process};
use crate::trace::{self, Status, Tid};
use std::io;
use std::os::unix::fs::MetadataExt;

/// Where the code page is mapped in the target.
pub const HOME: u64 = 0x2_0000;
/// Where batches are written.
const DATA: u64 = HOME + 0x1000;
/// Where arguments may point.
pub const ROOM: u64 = DATA + 0x4000;
/// Bytes of room for arguments.
pub const ROOM_BYTES: u64 = 0x1_0000;
/// Slots that stay as they are between batches.
pub const SLOTS: u64 = ROOM + ROOM_BYTES;
/// Bytes of a slot.
pub const SLOT_BYTES: usize = 256;
/// Past the last slot.
pub const SLOTS_END: u64 = SLOTS + 0x8_0000;
/// Past the last byte.
pub const END: u64 = SLOTS_END;

const MOST_CALLS: usize = 0x4000 / size_of::<Call>();

std::arch::global_asm!(
    ".pushsection .rodata",
    ".globl twinpage_batch",
    ".globl twinpage_batch_end",
    "twinpage_batch:",
    "   test r13, r13", // calls left
    "   jz 2f",
    "   mov rax, [r12]", // r12: this call
    "   mov rdi, [r12 + 8]",
    "   mov rsi, [r12 + 16]",
    "   mov rdx, [r12 + 24]",
    "   mov r10, [r12 + 32]",
    "   mov r8, [r12 + 40]",
    "   mov r9, [r12 + 48]",
    "   syscall",
    "   mov [r12 + 56], rax",
    "   add r12, 64",
    "   dec r13",
    "   jmp twinpage_batch",
    "2: int3",
    "twinpage_batch_end:",
    ".popsection",
);

/// The loop that makes the calls of a batch.
#[must_use]
pub fn code() -> &'static [u8] {
    unsafe extern "C" {
        static twinpage_batch: u8;
        static twinpage_batch_end: u8;
    }
    // SAFETY: both symbols lie in the same read-only section, the second after the first.
    unsafe {
        let start = &raw const twinpage_batch;
        let end = &raw const twinpage_batch_end;
        std::slice::from_raw_parts(start, end.offset_from(start) as usize)
    }
}

/// One system call to make.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Call {
    number: u64,
    arguments: [u64; 6],
    result: i64,
}

impl Call {
    /// The call `number` with `arguments`, the rest 0.
    #[must_use]
    pub fn new(number: i64, arguments: &[u64]) -> Call {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        Call {
            number: number as u64,
            arguments: all,
            result: 0,
        }
    }

    /// Its result.
    ///
    /// # Errors
    /// The error it returned.
    pub fn result(&self) -> io::Result<u64> {
        if (-4095..0).contains(&self.result) {
            return Err(io::Error::from_raw_os_error(-self.result as i32));
        }
        Ok(self.result as u64)
    }

    /// The number of the call.
    #[must_use]
    pub fn number(&self) -> i64 {
        self.number as i64
    }

    fn to_bytes(self) -> [u8; 64] {
        let mut bytes = [0; 64];
        let words = std::iter::once(self.number)
            .chain(self.arguments)
            .chain([self.result as u64]);
        for (slot, word) in bytes.chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

const _: () = assert!(size_of::<Call>() == 64);

/// Makes `calls` in the stopped thread `tid`, in order, whether or not some fail. Returns how they
/// went in the calls themselves.
///
/// # Errors
/// `ESRCH` when the thread died, `Other` when it stopped in a way it should not have.
pub fn run(process: &Process, tid: Tid, calls: &mut [Call]) -> io::Result<()> {
    undisturbed(tid, || run_batches(process, tid, calls))
}

/// Does something that ends with a trap while no other signal can come. The signal that the thread had stopped for, if it
/// had for one, is that of its stop again: ptrace(2), `PTRACE_SETSIGINFO`.
fn undisturbed(tid: Tid, act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let stopped_for = trace::signal_info(tid).ok().filter(|info| !info.is_event());
    let mask = trace::signal_mask(tid)?;
    trace::set_signal_mask(tid, !(1 << (libc::SIGTRAP - 1)))?;
    let done = act();
    trace::set_signal_mask(tid, mask)?;
    if let Some(info) = stopped_for {
        trace::set_signal_info(tid, &info)?;
    }
    done
}

fn run_batches(process: &Process, tid: Tid, calls: &mut [Call]) -> io::Result<()> {
    let saved = trace::registers(tid)?;
    for batch in calls.chunks_mut(MOST_CALLS) {
        let mut bytes: Vec<u8> = batch.iter().flat_map(|call| call.to_bytes()).collect();
        process.write(DATA, &bytes)?;
        let mut registers = saved;
        registers.rip = HOME;
        registers.r12 = DATA;
        registers.r13 = batch.len() as u64;
        registers.rax = 0;
        registers.orig_rax = trace::NO_CALL;
        trace::set_registers(tid, &registers)?;
        run_to_trap(tid)?;
        process.read(DATA, &mut bytes)?;
        for (call, bytes) in batch.iter_mut().zip(bytes.chunks_exact(64)) {
            call.result = i64::from_le_bytes(bytes[56..].try_into().expect("eight bytes"));
        }
    }
    trace::set_registers(tid, &saved)
}

/// One call; its result.
///
/// # Errors
/// As [`run`], or what the call itself returned.
pub fn call(process: &Process, tid: Tid, number: i64, arguments: &[u64]) -> io::Result<u64> {
    let mut calls = [Call::new(number, arguments)];
    run(process, tid, &mut calls)?;
    calls[0].result()
}

/// Has the stopped thread end, with this exit code, while others of its process live: _exit(2). Returns
/// when it was let go; it dies soon after.
///
/// # Errors
/// `ESRCH` when it died before.
pub fn end_thread(process: &Process, tid: Tid, code: i32) -> io::Result<()> {
    process.write(DATA, &Call::new(libc::SYS_exit, &[code as u64]).to_bytes())?;
    let mut registers = trace::registers(tid)?;
    registers.rip = HOME;
    registers.r12 = DATA;
    registers.r13 = 1;
    registers.orig_rax = trace::NO_CALL;
    trace::set_signal_mask(tid, u64::MAX)?;
    trace::end_freely(tid)?;
    trace::set_registers(tid, &registers)?;
    trace::go_on(tid, 0)
}

/// Lets the thread run until it traps. Filtered calls and stop requests on the way are let through.
fn run_to_trap(tid: Tid) -> io::Result<()> {
    let mut stop_after = false;
    loop {
        trace::go_on(tid, 0)?;
        let stop = loop {
            if let Some((_, status)) = trace::wait(tid, true)? {
                break status;
            }
        };
        match stop {
            Status::Signal(libc::SIGTRAP) => break,
            // A clone made by the batch is told to the caller by the clone's own result.
            Status::Interrupted
            | Status::Event(trace::EVENT_SECCOMP | trace::EVENT_CLONE | trace::EVENT_FORK) => {}
            // The others stay stopped; the caller brings this one back to them.
            Status::GroupStop(_) => {}
            // Not to be blocked like other signals: it waits until the batch is done.
            Status::Signal(libc::SIGSTOP) => stop_after = true,
            status if status.is_end() => return Err(trace::let_end(tid, status)),
            other => {
                return Err(io::Error::other(format!(
                    "an injected call stopped with {other:?}"
                )));
            }
        }
    }
    if stop_after {
        trace::send_stop(tid)?;
    }
    Ok(())
}

/// Whether a process has the code: planted before, or inherited from the one that made it.
#[must_use]
pub fn is_planted(process: &Process) -> bool {
    let mut found = vec![0; code().len()];
    process.read(HOME, &mut found).is_ok() && found == code()
}

/// Maps the code in a stopped thread's process that does not have it yet, by borrowing the bytes at
/// its instruction pointer for one mmap(2); in a process of several threads, those at its entry point. Memory that is only
/// kept from use, as V8 does with the lowest 4 GiB, makes room for it.
///
/// # Errors
/// `EEXIST` when the program itself uses the addresses, `ENOMEM` when its address space is at its limit (`RLIMIT_AS`).
pub fn plant(process: &Process, tid: Tid) -> io::Result<()> {
    undisturbed(tid, || plant_code(process, tid))
}

fn plant_code(process: &Process, tid: Tid) -> io::Result<()> {
    match map_home(process, tid, MAP_HERE) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_kept_from_use(process, tid)? => {
            map_home(process, tid, MAP_OVER)?;
        }
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
            let mapped = without_limit(process, || map_home(process, tid, MAP_HERE));
            mapped.unwrap_or(Err(error))?;
        }
        mapped => mapped?,
    }
    process.write(HOME, code())
}

/// Does something while the limit of a process's address space is lifted, or raised to the hard limit; `None` where neither
/// is allowed.
fn without_limit<T>(process: &Process, act: impl FnOnce() -> T) -> Option<T> {
    const ANY: u64 = libc::RLIM_INFINITY;
    let pid = process.pid();
    let set = |soft, hard| remote::set_limit(pid, libc::RLIMIT_AS, soft, hard);
    let (soft, hard) = remote::limit(pid, libc::RLIMIT_AS).ok()?;
    match set(ANY, ANY) {
        Ok(()) => {}
        Err(_) if soft < hard => set(hard, hard).ok()?,
        Err(_) => return None,
    }
    let done = act();
    set(soft, hard).ok()?;
    Some(done)
}

/// Whether the addresses lie in one mapping that allows no access, `start-end ---p offset device 0`, and hold nothing.
fn is_kept_from_use(process: &Process, tid: Tid) -> io::Result<bool> {
    let is_around = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        let is_plain = fields.next()? == "---p" && fields.nth(2)? == "0";
        Some(is_plain && address(start)? <= HOME && address(end)? >= END)
    };
    let maps = std::fs::read(format!("/proc/{tid}/maps"))?;
    let maps = String::from_utf8_lossy(&maps);
    if !maps.lines().any(|line| is_around(line) == Some(true)) {
        return Ok(false);
    }
    let mut content = vec![0; (END - HOME) as usize];
    process.read(HOME, &mut content)?;
    Ok(content.iter().all(|byte| *byte == 0))
}

/// The one mmap(2).
fn map_home(process: &Process, tid: Tid, flags: u64) -> io::Result<()> {
    const SYSCALL_INT3: [u8; 8] = [0x0f, 0x05, 0xcc, 0x90, 0x90, 0x90, 0x90, 0x90];
    let saved = trace::registers(tid)?;
    let borrowed = bytes_to_borrow(process, tid, saved.rip)?;
    let original = process.read_u64(borrowed)?;
    process.write(borrowed, &SYSCALL_INT3)?;
    let mut registers = saved;
    registers.rip = borrowed;
    registers.rax = libc::SYS_mmap as u64;
    registers.orig_rax = trace::NO_CALL;
    registers.rdi = HOME;
    registers.rsi = END - HOME;
    registers.rdx = (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) as u64;
    registers.r10 = flags;
    registers.r8 = u64::MAX;
    registers.r9 = 0;
    trace::set_registers(tid, &registers)?;
    run_to_trap(tid)?;
    let mapped = trace::registers(tid)?.rax;
    process.write(borrowed, &original.to_le_bytes())?;
    trace::set_registers(tid, &saved)?;
    match mapped {
        HOME => Ok(()),
        refused => Err(io::Error::from_raw_os_error(-(refused as i64) as i32)),
    }
}

/// An address whose bytes no other thread executes. In a process of one thread that is its instruction pointer, `at`. In
/// others several threads may return from the same system call, so the program's entry point is taken, which ran before
/// there were threads (getauxval(3), `AT_ENTRY`). If it is unmapped, or no file can be opened to find it, `at` is used
/// with that risk.
fn bytes_to_borrow(process: &Process, tid: Tid, at: u64) -> io::Result<u64> {
    let links = std::fs::metadata(format!("/proc/{tid}/task"))?.nlink();
    if links == 3 {
        return Ok(at); // two links of any directory, and one thread
    }
    let vector = std::fs::read(format!("/proc/{tid}/auxv")).unwrap_or_default();
    let words: Vec<u64> = vector
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        .collect();
    let mut entries = words.chunks_exact(2).filter(|pair| pair[0] == libc::AT_ENTRY);
    let entry = entries.next().map(|pair| pair[1]);
    let is_mapped = |entry: &u64| process.read_u64(*entry).is_ok();
    Ok(entry.filter(is_mapped).unwrap_or(at))
}

const MAP_HERE: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
const MAP_OVER: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;

/// Maps the code in the calling process. Safe after a fork.
///
/// # Errors
/// `EEXIST` when the addresses are in use.
pub fn plant_here() -> io::Result<()> {
    // SAFETY: a new mapping at an address where none is (NOREPLACE), then a copy into it.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let mapped = libc::mmap(
            HOME as *mut _,
            (END - HOME) as usize,
            protection,
            MAP_HERE as i32,
            -1,
            0,
        );
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        std::ptr::copy_nonoverlapping(code().as_ptr(), HOME as *mut u8, code().len());
    }
    Ok(())
}
