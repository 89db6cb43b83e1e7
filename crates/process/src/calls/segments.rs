//! The calls of System V shared memory, answered here: see [`crate::segments`].

use super::shared::answered;
use super::{Decision, Stopped, do_without, not_there};
use crate::credentials::Credentials;
use crate::error::{Error, Result};
use crate::files::Ident;
use crate::layout::{self, Mapping};
use crate::program::{Program, plant};
use crate::segments::{self, STATUS_BYTES, Segment, Wanted};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use twinpage_os::inject::{self, ROOM};
use twinpage_os::name;
use twinpage_os::remote::Process;
use twinpage_os::socket;
use twinpage_os::tracker::PAGE;

/// Commands of shmctl(2) by which ipcs(1) lists all segments.
const SHM_STAT: i32 = 13;
const SHM_INFO: i32 = 14;
const SHM_STAT_ANY: i32 = 15;

fn no(errno: Errno) -> Decision {
    not_there(errno.raw_os_error())
}

fn gone(source: io::Error) -> Error {
    Error::target("cannot share memory among the processes of the program", source)
}

impl Program {
    pub(super) fn before_segments(&mut self, call: &Stopped) -> Result<Decision> {
        let Some(user) = Credentials::of(call.tid) else {
            return Ok(Decision::Run); // it is gone
        };
        self.forget_removed_segments();
        let answer = match call.name {
            "shmget" => self.find_or_make_segment(call, &user),
            "shmat" => self.attach_segment(call, &user),
            "shmdt" => self.detach_segment(call),
            _ => self.control_segment(call, &user),
        };
        self.or_no_memory(answer)
    }

    fn find_or_make_segment(&mut self, call: &Stopped, user: &Credentials) -> Result<Decision> {
        let wanted = Wanted {
            key: call.int(0),
            bytes: call.arguments[1],
            flags: call.int(2),
        };
        if wanted.flags & libc::SHM_HUGETLB != 0 {
            let why = "huge pages are not captured; the program can use ordinary ones";
            return Ok(do_without(libc::ENOMEM, why));
        }
        match self.segments.find(&wanted, user) {
            Err(errno) => return Ok(no(errno)),
            Ok(Some(number)) => return Ok(Decision::Done(number.into())),
            Ok(None) => {}
        }
        let Some(length) = wanted.bytes.checked_next_multiple_of(PAGE) else {
            return Ok(no(Errno::INVAL));
        };
        let name = format!("SYSV{:08x}", wanted.key);
        let made = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)
            .and_then(|file| rustix::fs::ftruncate(&file, length).map(|()| file));
        let Ok(file) = made else {
            return Ok(no(Errno::NOMEM));
        };
        let look = |error: Errno| gone(error.into());
        let ident = Ident::from(&rustix::fs::fstat(&file).map_err(look)?);
        let object = self.objects.map(file.as_fd(), 0..length, &self.files)?;
        let pid = self.caller().pid();
        let number = self.segments.add(&wanted, user, pid, (object, ident, file));
        Ok(Decision::Done(number.into()))
    }

    fn attach_segment(&mut self, call: &Stopped, user: &Credentials) -> Result<Decision> {
        let (number, flags) = (call.int(0), call.int(2));
        let Some((segment, file)) = self.segments.get(number) else {
            return Ok(no(Errno::INVAL));
        };
        let only_read = flags & libc::SHM_RDONLY != 0;
        let executes = flags & libc::SHM_EXEC != 0;
        let rights = if only_read { 0o4 } else { 0o6 } | u32::from(executes);
        if !segment.allows(user, rights) {
            return Ok(no(Errno::ACCESS));
        }
        let place = match place(call.arguments[1], flags) {
            Ok(place) => place,
            Err(errno) => return Ok(no(errno)),
        };
        let protection = libc::PROT_READ
            | if only_read { 0 } else { libc::PROT_WRITE }
            | if executes { libc::PROT_EXEC } else { 0 };
        let access = if only_read { OFlags::RDONLY } else { OFlags::RDWR };
        let length = segment.bytes.next_multiple_of(PAGE);
        let opened = rustix::fs::open(name::of_open(file), access | OFlags::CLOEXEC, Mode::empty());
        let opened = opened.map_err(|error| gone(error.into()))?;
        if self.caller.is_none() {
            self.descriptors.give(0); // another thread's call may get the number behind those that are used here
        }
        let flags = place.flags | libc::MAP_SHARED;
        let arguments = [place.address, length, protection as u64, flags as u64];
        let at = match map(self.caller(), call, &opened, arguments)? {
            Ok(at) => at,
            Err(Errno::EXIST) => return Ok(no(Errno::INVAL)),
            Err(errno) => return Ok(no(errno)),
        };
        self.objects.map(opened.as_fd(), 0..length, &self.files)?;
        let pid = self.caller().pid();
        self.segments.change(number, |segment| segment.attached(pid));
        Ok(Decision::Done(at as i64))
    }

    fn detach_segment(&mut self, call: &Stopped) -> Result<Decision> {
        let (at, pid) = (call.arguments[0], self.caller().pid());
        let mappings = layout::mappings(pid);
        let first = mappings.iter().find(|one| one.start == at && one.offset == 0);
        let Some(segment) = first.and_then(|first| self.segments.of_file(file_of(first))) else {
            return Ok(no(Errno::INVAL));
        };
        let (number, file) = (segment.number, segment.file);
        let end = at + segment.bytes.next_multiple_of(PAGE);
        let is_part = |one: &&Mapping| {
            file_of(one) == file && (at..end).contains(&one.start) && one.offset == one.start - at
        };
        for part in mappings.iter().filter(is_part) {
            let arguments = [part.start, part.end - part.start];
            inject::call(self.caller(), call.tid, libc::SYS_munmap, &arguments).map_err(gone)?;
        }
        self.segments.change(number, |segment| segment.detached(pid));
        Ok(Decision::Done(0))
    }

    fn control_segment(&mut self, call: &Stopped, user: &Credentials) -> Result<Decision> {
        let command = call.int(1);
        let found = match command {
            libc::IPC_INFO => return Ok(self.tell_of_all(call, &segments::limits())),
            SHM_INFO => return Ok(self.tell_of_all(call, &self.segments.in_use())),
            SHM_STAT | SHM_STAT_ANY => self.segments.at(call.int(0)),
            _ => self.segments.get(call.int(0)),
        };
        let Some((segment, _)) = found else {
            return Ok(no(Errno::INVAL));
        };
        let number = segment.number;
        let refused = match command {
            SHM_STAT_ANY => None,
            libc::IPC_STAT | SHM_STAT if segment.allows(user, 0o4) => None,
            libc::IPC_STAT | SHM_STAT => Some(Errno::ACCESS),
            libc::IPC_SET | libc::IPC_RMID | libc::SHM_LOCK | libc::SHM_UNLOCK if segment.is_of(user) => None,
            libc::IPC_SET | libc::IPC_RMID | libc::SHM_LOCK | libc::SHM_UNLOCK => Some(Errno::PERM),
            _ => Some(Errno::INVAL),
        };
        if let Some(errno) = refused {
            return Ok(no(errno));
        }
        match command {
            libc::IPC_STAT | SHM_STAT | SHM_STAT_ANY => {
                let status = segment.to_bytes(self.attachments(segment));
                if self.caller().write(call.arguments[2], &status).is_err() {
                    return Ok(no(Errno::FAULT));
                }
                let is_by_index = command != libc::IPC_STAT;
                return Ok(Decision::Done(if is_by_index { number.into() } else { 0 }));
            }
            libc::IPC_SET => {
                let mut status = [0; STATUS_BYTES];
                if self.caller().read(call.arguments[2], &mut status).is_err() {
                    return Ok(no(Errno::FAULT));
                }
                let word = |index: usize| {
                    u32::from_le_bytes(status[index * 4..][..4].try_into().expect("four bytes"))
                };
                let (owner, mode) = ((word(1), word(2)), word(5));
                self.segments.change(number, |segment| segment.set(owner, mode));
            }
            libc::IPC_RMID => {
                self.segments.change(number, Segment::remove);
                self.forget_removed_segments();
            }
            _ => {} // twinpage keeps no memory from being swapped: as mlock(2)
        }
        Ok(Decision::Done(0))
    }

    /// Answers with a struct, and the highest index for `SHM_STAT`.
    fn tell_of_all(&self, call: &Stopped, told: &[u64]) -> Decision {
        let bytes: Vec<u8> = told.iter().flat_map(|word| word.to_le_bytes()).collect();
        match self.caller().write(call.arguments[2], &bytes) {
            Ok(()) => Decision::Done(self.segments.highest().into()),
            Err(_) => no(Errno::FAULT),
        }
    }

    /// How many processes have it attached, each as often as it has.
    fn attachments(&self, segment: &Segment) -> u64 {
        let processes = std::iter::once(self.pid()).chain(self.descendants.living());
        let mappings = processes.flat_map(layout::mappings);
        let begins_it = |one: &Mapping| one.offset == 0 && file_of(one) == segment.file;
        mappings.filter(begins_it).count() as u64
    }

    fn forget_removed_segments(&mut self) {
        let mut segments = std::mem::take(&mut self.segments);
        segments.forget_removed(|segment| self.attachments(segment) > 0);
        self.segments = segments;
    }
}

fn file_of(mapping: &Mapping) -> Ident {
    Ident {
        dev: mapping.device,
        ino: mapping.inode,
    }
}

/// Where shmat(2) is to attach: an address and flags of mmap(2).
#[derive(PartialEq, Eq, Debug)]
struct Place {
    address: u64,
    flags: i32,
}

fn place(address: u64, flags: i32) -> std::result::Result<Place, Errno> {
    let replaces = flags & libc::SHM_REMAP != 0;
    let address = match flags & libc::SHM_RND {
        0 => address,
        _ => address - address % PAGE,
    };
    match address {
        0 if replaces => Err(Errno::INVAL),
        0 => Ok(Place { address, flags: 0 }),
        address if !address.is_multiple_of(PAGE) => Err(Errno::INVAL),
        address if replaces => Ok(Place {
            address,
            flags: libc::MAP_FIXED,
        }),
        address => Ok(Place {
            address,
            flags: libc::MAP_FIXED_NOREPLACE,
        }),
    }
}

/// Has the caller map a file of ours: address, length, protection and flags. Where it is; or what the kernel says.
fn map(
    process: &Process,
    call: &Stopped,
    file: &OwnedFd,
    [address, length, protection, flags]: [u64; 4],
) -> Result<std::result::Result<u64, Errno>> {
    let Some(fd) = hand_over(process, call, file.as_fd())? else {
        return Ok(Err(Errno::NOMEM));
    };
    let mapped = inject::call(
        process,
        call.tid,
        libc::SYS_mmap,
        &[address, length, protection, flags, fd, 0],
    );
    inject::call(process, call.tid, libc::SYS_close, &[fd]).map_err(gone)?;
    Ok(answered(mapped, gone)?.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)))
}

/// Duplicates a descriptor of ours into the calling process. Its number there, or `None` when that process has reached its
/// limit of open files. No call gives another process a descriptor, so it goes through a pair of sockets that the caller makes.
fn hand_over(process: &Process, call: &Stopped, file: BorrowedFd<'_>) -> Result<Option<u64>> {
    const STREAM: u64 = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as u64;
    plant(process, call.tid)?;
    let inside = |number, arguments: &[u64]| inject::call(process, call.tid, number, arguments);
    let made = inside(libc::SYS_socketpair, &[libc::AF_UNIX as u64, STREAM, 0, ROOM]);
    if answered(made, gone)?.is_err() {
        return Ok(None);
    }
    let pair = process.read_u64(ROOM).map_err(gone)?;
    let (theirs, ours) = (pair & 0xffff_ffff, pair >> 32);
    let sent = process
        .duplicate_fd(ours as i32)
        .and_then(|ours| socket::send_descriptor(ours.as_fd(), file));
    // struct msghdr of recvmsg(2): no name, one vector, room for one control message; then the vector and its byte.
    let (vector, byte, control) = (ROOM + 64, ROOM + 128, ROOM + 192);
    let head = [0, 0, vector, 1, control, CONTROL_BYTES, 0];
    let words = head.into_iter().chain([0, byte, 1]);
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    process.write(ROOM, &bytes).map_err(gone)?;
    let received = sent.and_then(|()| {
        let flags = (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) as u64;
        inside(libc::SYS_recvmsg, &[theirs, ROOM, flags])
    });
    for end in [theirs, ours] {
        inside(libc::SYS_close, &[end]).map_err(gone)?;
    }
    received.map_err(gone)?;
    let taken = process.read_u64(ROOM + 40).map_err(gone)?;
    if taken < CONTROL_BYTES - 4 {
        return Ok(None); // it has as many as it may
    }
    let fd = process.read_u64(control + CONTROL_HEAD_BYTES).map_err(gone)?;
    Ok(Some(fd & 0xffff_ffff))
}

/// A control message with one descriptor, cmsg(3): a head, the number, and what fills the last word.
const CONTROL_HEAD_BYTES: u64 = 16;
const CONTROL_BYTES: u64 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_what_the_manual_says() {
        let fixed = libc::MAP_FIXED_NOREPLACE;
        assert_eq!(place(0, 0), Ok(Place { address: 0, flags: 0 }));
        assert_eq!(
            place(0x5000, 0),
            Ok(Place {
                address: 0x5000,
                flags: fixed
            })
        );
        assert_eq!(place(0x5001, 0), Err(Errno::INVAL));
        assert_eq!(
            place(0x5001, libc::SHM_RND),
            Ok(Place {
                address: 0x5000,
                flags: fixed
            })
        );
        assert_eq!(place(0, libc::SHM_REMAP), Err(Errno::INVAL));
        let replaced = place(0x5000, libc::SHM_REMAP);
        assert_eq!(
            replaced,
            Ok(Place {
                address: 0x5000,
                flags: libc::MAP_FIXED
            })
        );
    }
}
