//! Calls that answer with fewer bytes than they were asked for because a stop was asked for meanwhile: which
//! they are, and how each is begun for the rest.
//!
//! A count may be short for other reasons: then the rest of the call answers nothing, or an error, and the
//! count stands. Where it would wait instead (reads of pipes, sockets and terminals, writes that must not
//! wait, sendfile(2) to a pipe) nothing is begun.

use super::terminals::{self, Reading};
use super::{Unfinished, begun, limits};
use crate::error::{Error, Result};
use crate::message::{self, Head, VECTOR_BYTES};
use rustix::fs::{FileType, OFlags, Stat, fcntl_getfl, fstat, major, minor};
use std::io;
use std::os::fd::OwnedFd;
use twinpage_os::inject::SLOT_BYTES;
use twinpage_os::remote::{Process, Remote};
use twinpage_os::trace::Registers;

/// The most bytes the kernel moves in one call.
const MOST_BYTES: u64 = 0x7fff_f000;

/// Bytes of a struct msghdr, and of the struct mmsghdr around it.
const MESSAGE_BYTES: u64 = 56;
const COUNTED_MESSAGE_BYTES: u64 = 64;

/// What a call was to move.
enum Asked {
    /// This number of bytes, of any file.
    Always(u64),
    /// This number of bytes, where the kind of the file says that a stop can have cut it.
    Bytes(u64),
    /// The buffers of the struct msghdr at an address.
    Message(u64),
    /// The buffers of a list: its address and its length.
    Vectors(u64, u64),
    /// This number of messages.
    Messages(u64),
}

/// What the call in `orig_rax` was to move, if it is one that may have answered with less because of a stop.
fn asked(r: &Registers) -> Option<Asked> {
    Some(match r.orig_rax as i64 {
        libc::SYS_getrandom => Asked::Always(r.rsi.min(MOST_BYTES)),
        libc::SYS_getdents | libc::SYS_getdents64 => Asked::Always(r.rdx),
        libc::SYS_read | libc::SYS_pread64 | libc::SYS_write => Asked::Bytes(r.rdx),
        libc::SYS_sendto if waits(r.r10) => Asked::Bytes(r.rdx),
        libc::SYS_recvfrom if waits_for_all(r.r10) => Asked::Bytes(r.rdx),
        libc::SYS_sendmsg if waits(r.rdx) => Asked::Message(r.rsi),
        libc::SYS_recvmsg if waits_for_all(r.rdx) => Asked::Message(r.rsi),
        libc::SYS_sendmmsg if waits(r.r10) => Asked::Messages(r.rdx & 0xffff_ffff),
        libc::SYS_recvmmsg if waits(r.r10) => Asked::Messages(r.rdx & 0xffff_ffff),
        libc::SYS_readv | libc::SYS_preadv | libc::SYS_writev => Asked::Vectors(r.rsi, r.rdx),
        // With flags they may be asked not to wait.
        libc::SYS_preadv2 | libc::SYS_pwritev2 if r.r9 == 0 => Asked::Vectors(r.rsi, r.rdx),
        libc::SYS_sendfile => Asked::Bytes(r.r10),
        libc::SYS_copy_file_range => Asked::Bytes(r.r8),
        _ => return None,
    })
}

/// Whether the call in `orig_rax` may have answered with less than it was to move.
pub(super) fn may_be_short(registers: &Registers) -> bool {
    asked(registers).is_some()
}

/// What a call is to move that answered with less.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    /// Bytes; messages, of sendmmsg(2) and recvmmsg(2).
    pub(super) count: u64,
    /// The longest that it waits for the next one, if there is a limit.
    pub(super) within_ns: Option<u64>,
}

impl Wanted {
    fn all(count: u64) -> Wanted {
        Wanted {
            count,
            within_ns: None,
        }
    }
}

/// What the call in `orig_rax` was to move, if a stop can have made it answer with less.
pub(super) fn wanted(registers: &Registers, process: &Process) -> Result<Option<Wanted>> {
    let r = registers;
    let asked = match asked(r) {
        None => return Ok(None),
        Some(Asked::Always(bytes)) => return Ok(Some(Wanted::all(bytes))),
        Some(Asked::Bytes(count) | Asked::Messages(count)) => count,
        Some(Asked::Message(at)) => message::len(&rest_of_message(at, 0, process)?) as u64,
        Some(Asked::Vectors(at, count)) => message::len(&rest_of(at, count, 0, process)?) as u64,
    };
    let asked = asked.min(MOST_BYTES);
    if asked <= r.rax {
        return Ok(None);
    }
    let fd = match r.orig_rax as i64 {
        libc::SYS_copy_file_range => r.rdx,
        _ => r.rdi,
    };
    let look = |source: rustix::io::Errno| Error::target("cannot look at a descriptor", source.into());
    let fd = match process.duplicate_fd(fd as i32) {
        Err(error) if error.raw_os_error() == Some(libc::EBADF) => return Ok(None), // another thread closed it
        fd => fd.map_err(|source| Error::target("cannot look at a descriptor", source))?,
    };
    let stat = fstat(&fd).map_err(look)?;
    let waits = !fcntl_getfl(&fd).map_err(look)?.contains(OFlags::NONBLOCK);
    let all = match r.orig_rax as i64 {
        libc::SYS_read | libc::SYS_pread64 | libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2 => {
            return Ok(reads(&fd, &stat, waits, asked));
        }
        libc::SYS_sendfile | libc::SYS_copy_file_range => is_a(&stat, FileType::RegularFile),
        libc::SYS_recvfrom | libc::SYS_recvmsg => waits && is_stream(&fd),
        libc::SYS_recvmmsg => waits && !is_time_up(r, process)?,
        libc::SYS_sendmmsg => {
            let last = r.rsi + (r.rax - 1) * COUNTED_MESSAGE_BYTES;
            waits && whole(last, process)?
        }
        _ => waits && takes_all(&fd, &stat),
    };
    Ok(all.then_some(Wanted::all(asked)))
}

/// Whether the time limit is over of a recvmmsg(2) that answered: the kernel writes what is left of it.
pub(super) fn is_time_up(r: &Registers, process: &Process) -> Result<bool> {
    if r.orig_rax as i64 != libc::SYS_recvmmsg {
        return Ok(false);
    }
    let left = limits::time_at(r.r8, 1, process);
    Ok(left.map_err(|source| Error::target("cannot read what is left of a wait", source))? == Some(0))
}

fn waits(flags: u64) -> bool {
    flags as i32 & (libc::MSG_DONTWAIT | libc::MSG_WAITFORONE) == 0
}

fn waits_for_all(flags: u64) -> bool {
    let flags = flags as i32;
    flags & libc::MSG_WAITALL != 0 && flags & (libc::MSG_DONTWAIT | libc::MSG_PEEK) == 0
}

fn is_stream(fd: &OwnedFd) -> bool {
    rustix::net::sockopt::socket_type(fd).ok() == Some(rustix::net::SocketType::STREAM)
}

/// Whether a message of sendmmsg(2) was sent whole.
fn whole(message_at: u64, process: &Process) -> Result<bool> {
    let sent = process.read_u64(message_at + MESSAGE_BYTES);
    let sent = sent.map_err(|source| Error::target("cannot read a message", source))?;
    let asked = message::len(&rest_of_message(message_at, 0, process)?);
    Ok(sent & 0xffff_ffff == asked as u64)
}

fn is_a(stat: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
}

/// null(4) and random(4): zero, full, random, urandom.
fn is_endless(stat: &Stat) -> bool {
    let device = (major(stat.st_rdev), minor(stat.st_rdev));
    is_a(stat, FileType::CharacterDevice) && matches!(device, (1, 5 | 7 | 8 | 9))
}

/// What a read moves unless it is cut: all of an endless device; of a terminal as many bytes as it waits for.
fn reads(fd: &OwnedFd, stat: &Stat, waits: bool, asked: u64) -> Option<Wanted> {
    if is_endless(stat) {
        return Some(Wanted::all(asked));
    }
    let reading = waits.then(|| terminals::reading(fd, stat)).flatten()?;
    Some(Wanted {
        count: asked.min(reading.at_least),
        within_ns: reading.within_ns,
    })
}

/// How the read in `orig_rax` ends, if it is one of a terminal that does not give lines.
pub(super) fn reading(registers: &Registers, process: &Process) -> Option<Reading> {
    let is_read = [libc::SYS_read, libc::SYS_readv].contains(&(registers.orig_rax as i64));
    let fd = is_read.then(|| process.duplicate_fd(registers.rdi as i32).ok())??;
    terminals::reading(&fd, &fstat(&fd).ok()?)
}

/// The registers that read a single byte, behind those that a read whose own registers are `own` has.
pub(super) fn next_byte(own: &Registers, done: u64, process: &Process) -> Result<Registers> {
    let at = match own.orig_rax as i64 {
        libc::SYS_readv => rest_of(own.rsi, own.rdx, done, process)?
            .first()
            .map_or(0, |buffer| buffer.start),
        _ => own.rsi + done,
    };
    Ok(Registers {
        rax: libc::SYS_read as u64,
        rsi: at,
        rdx: 1,
        ..begun(own)
    })
}

/// Whether a write that may wait takes all it is given.
fn takes_all(fd: &OwnedFd, stat: &Stat) -> bool {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo => true,
        FileType::CharacterDevice => is_endless(stat) || rustix::termios::isatty(fd),
        FileType::Socket => is_stream(fd),
        _ => false,
    }
}

/// `registers` begin what is left of a call whose own registers are `own`.
pub(super) fn set(
    registers: &mut Registers,
    own: &Registers,
    call: &Unfinished,
    slot: u64,
    process: &Process,
) -> io::Result<()> {
    let (done, left) = (call.done, call.wanted - call.done);
    match call.number {
        libc::SYS_getrandom => {
            registers.rdi = own.rdi + done;
            registers.rsi = left;
        }
        libc::SYS_sendfile => registers.r10 = left, // the kernel moved the offsets
        libc::SYS_copy_file_range => registers.r8 = left,
        libc::SYS_read
        | libc::SYS_pread64
        | libc::SYS_write
        | libc::SYS_sendto
        | libc::SYS_recvfrom
        | libc::SYS_getdents
        | libc::SYS_getdents64 => {
            registers.rsi = own.rsi + done;
            registers.rdx = left;
        }
        libc::SYS_sendmmsg | libc::SYS_recvmmsg => {
            registers.rsi = own.rsi + done * COUNTED_MESSAGE_BYTES;
            registers.rdx = left;
        }
        libc::SYS_sendmsg | libc::SYS_recvmsg => {
            let list = rest_of_message(own.rsi, done, process).map_err(io::Error::other)?;
            let vectors = slot + MESSAGE_BYTES;
            let count = write_vectors(vectors, SLOT_BYTES as u64 - MESSAGE_BYTES, &list, process)?;
            // No name; the buffers; nothing beside them; no flags.
            let words = [0, 0, vectors, count, 0, 0, 0].map(u64::to_le_bytes);
            process.write(slot, words.as_flattened())?;
            registers.rsi = slot;
        }
        _ => {
            let list = rest_of(own.rsi, own.rdx, done, process).map_err(io::Error::other)?;
            registers.rsi = slot;
            registers.rdx = write_vectors(slot, SLOT_BYTES as u64, &list, process)?;
        }
    }
    Ok(())
}

/// As many of the buffers as there is room for, listed at an address; says how many.
fn write_vectors(at: u64, room: u64, list: &[Remote], process: &Process) -> io::Result<u64> {
    let count = list.len().min((room / VECTOR_BYTES) as usize);
    let words = list[..count].iter();
    let words = words.flat_map(|buffer| [buffer.start, buffer.len as u64].map(u64::to_le_bytes));
    process.write(at, &words.flatten().collect::<Vec<u8>>())?;
    Ok(count as u64)
}

/// The buffers of a struct msghdr, from byte `done` of them on.
fn rest_of_message(at: u64, done: u64, process: &Process) -> Result<Vec<Remote>> {
    let head = Head::read(process, at).map_err(|source| Error::target("cannot read a message", source))?;
    rest_of(head.buffers, head.count, done, process)
}

/// The buffers in a list, from byte `done` of them on.
fn rest_of(at: u64, count: u64, done: u64, process: &Process) -> Result<Vec<Remote>> {
    let look = |source| Error::target("cannot read a list of buffers", source);
    let mut list = message::buffers(process, at, count).map_err(look)?;
    let mut skip = done as usize;
    for buffer in &mut list {
        let skipped = skip.min(buffer.len);
        skip -= skipped;
        buffer.start += skipped as u64;
        buffer.len -= skipped;
    }
    list.retain(|buffer| buffer.len > 0);
    Ok(list)
}
