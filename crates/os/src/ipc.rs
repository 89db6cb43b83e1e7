//! System V semaphores and message queues of this process's IPC namespace: sysvipc(7), ipc_namespaces(7), semctl(2),
//! msgctl(2).
//!
//! * A set or queue is made again with its number: the kernel gives to the next one what stands in `sem_next_id` or
//!   `msg_next_id` of `/proc/sys/kernel`, which a process may write that may restore others.
//! * Messages are read without being taken (`MSG_COPY` of msgrcv(2)).

#![allow(unsafe_code)]

use serde::{Deserialize, Serialize};
use std::ffi::{c_int, c_long};
use std::{fs, io};

const MSG_STAT_ANY: c_int = 13;
const MSG_COPY: c_int = 0o40000;
const RIGHTS: u32 = 0o777;
/// Bytes of a struct semid64_ds and of a struct msqid64_ds, at most.
const STATUS_BYTES: usize = 128;
/// Where the number of semaphores of a set stands.
const SEMAPHORES_AT: usize = 80;
/// Where of a queue stand the bytes in it, its messages, and the most bytes.
const BYTES_AT: usize = 72;
const MESSAGES_AT: usize = 80;
const MOST_BYTES_AT: usize = 88;

/// What sets and queues have alike.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// What semget(2) or msgget(2) returned.
    pub number: i32,
    /// Its key; `IPC_PRIVATE` when it has none.
    pub key: i32,
    /// User and group that own it.
    pub owner: (u32, u32),
    /// Rights.
    pub mode: u32,
}

/// A set of semaphores.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Set {
    /// Number, key, owner, rights.
    pub identity: Identity,
    /// The value of each.
    pub values: Vec<u16>,
}

/// A message queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Queue {
    /// Number, key, owner, rights.
    pub identity: Identity,
    /// The most bytes that its messages may have together.
    pub most_bytes: u64,
    /// Type and bytes of each message, in the order they were sent.
    pub messages: Vec<(i64, Vec<u8>)>,
}

/// Sets or queues.
struct Kind {
    control: fn(c_int, c_int, *mut u8) -> c_long,
    info: c_int,
    status: c_int,
    next: &'static str,
}

const SETS: Kind = Kind {
    control: |id, command, status| {
        // SAFETY: the callers hand over `STATUS_BYTES` bytes, which is as much as any of their commands reads or writes.
        unsafe { libc::syscall(libc::SYS_semctl, id, 0, command, status) }
    },
    info: libc::SEM_INFO,
    status: libc::SEM_STAT_ANY,
    next: "/proc/sys/kernel/sem_next_id",
};

const QUEUES: Kind = Kind {
    control: |id, command, status| {
        // SAFETY: as with sets.
        unsafe { libc::syscall(libc::SYS_msgctl, id, command, status) }
    },
    info: libc::MSG_INFO,
    status: MSG_STAT_ANY,
    next: "/proc/sys/kernel/msg_next_id",
};

/// The kernel's description of a set or queue.
struct Status([u8; STATUS_BYTES]);

impl Status {
    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    fn half(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }

    fn identity(&self, number: i32) -> Identity {
        Identity {
            number,
            key: self.half(0) as i32,
            owner: (self.half(4), self.half(8)),
            mode: self.half(20) & RIGHTS,
        }
    }

    /// What `IPC_SET` takes.
    fn of(identity: &Identity, most_bytes: u64) -> Status {
        let mut bytes = [0; STATUS_BYTES];
        bytes[4..8].copy_from_slice(&identity.owner.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&identity.owner.1.to_le_bytes());
        bytes[20..24].copy_from_slice(&identity.mode.to_le_bytes());
        bytes[MOST_BYTES_AT..][..8].copy_from_slice(&most_bytes.to_le_bytes());
        Status(bytes)
    }
}

fn told(result: c_long) -> io::Result<c_long> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

impl Kind {
    /// All there are.
    fn all(&self) -> io::Result<Vec<(i32, Status)>> {
        let mut status = Status([0; STATUS_BYTES]);
        let last = told((self.control)(0, self.info, status.0.as_mut_ptr()))?;
        let mut all = Vec::new();
        for index in 0..=last as c_int {
            let mut status = Status([0; STATUS_BYTES]);
            match told((self.control)(index, self.status, status.0.as_mut_ptr())) {
                Ok(number) => all.push((number as i32, status)),
                // There is none with this index.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EIDRM)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Makes one that gets this number.
    fn make(&self, identity: &Identity, make: impl Fn(c_int) -> c_long) -> io::Result<()> {
        fs::write(self.next, identity.number.to_string())?;
        let made = told(make(libc::IPC_CREAT | libc::IPC_EXCL | 0o600))?;
        if made == c_long::from(identity.number) {
            return Ok(());
        }
        let why = format!("the kernel gave number {made} for {}", identity.number);
        Err(io::Error::other(why))
    }

    fn set(&self, identity: &Identity, most_bytes: u64) -> io::Result<()> {
        let mut status = Status::of(identity, most_bytes);
        told((self.control)(
            identity.number,
            libc::IPC_SET,
            status.0.as_mut_ptr(),
        ))
        .map(drop)
    }
}

/// Whether this process may choose the numbers of sets and queues that it makes.
#[must_use]
pub fn may_choose_numbers() -> bool {
    let opens = |name| fs::OpenOptions::new().write(true).open(name).is_ok();
    [SETS.next, QUEUES.next].into_iter().all(opens)
}

/// All sets of semaphores.
///
/// # Errors
/// The system's.
pub fn sets() -> io::Result<Vec<Set>> {
    let found = SETS.all()?.into_iter();
    let sets = found.map(|(number, status)| {
        let mut values = vec![0_u16; status.word(SEMAPHORES_AT) as usize];
        let (at, command) = (values.as_mut_ptr(), libc::GETALL);
        // SAFETY: GETALL writes a number of two bytes for each semaphore of the set, and the set's size never changes.
        told(unsafe { libc::syscall(libc::SYS_semctl, number, 0, command, at) })?;
        Ok(Set {
            identity: status.identity(number),
            values,
        })
    });
    sets.collect()
}

/// All message queues, with their messages, which stay there.
///
/// # Errors
/// The system's.
pub fn queues() -> io::Result<Vec<Queue>> {
    let found = QUEUES.all()?.into_iter();
    let queues = found.map(|(number, status)| {
        let most = status.word(BYTES_AT) as usize;
        let messages = (0..status.word(MESSAGES_AT)).map(|index| message(number, index, most));
        Ok(Queue {
            identity: status.identity(number),
            most_bytes: status.word(MOST_BYTES_AT),
            messages: messages.collect::<io::Result<_>>()?,
        })
    });
    queues.collect()
}

/// The message at `index` of a queue, which has at most `most` bytes.
fn message(queue: i32, index: u64, most: usize) -> io::Result<(i64, Vec<u8>)> {
    // struct msgbuf of msgop(2): the type, then the bytes.
    let mut buffer = vec![0_u64; 1 + most.div_ceil(8)];
    let flags = libc::IPC_NOWAIT | MSG_COPY;
    let at = buffer.as_mut_ptr();
    // SAFETY: msgrcv writes a word and at most `most` bytes behind it, for which `buffer` has room.
    let length = told(unsafe { libc::syscall(libc::SYS_msgrcv, queue, at, most, index, flags) })? as usize;
    let bytes = buffer[1..].iter().flat_map(|word| word.to_le_bytes());
    Ok((buffer[0] as i64, bytes.take(length).collect()))
}

/// Makes a set again.
///
/// # Errors
/// The system's: also where the number is taken.
pub fn make_set(set: &Set) -> io::Result<()> {
    let (identity, count) = (&set.identity, set.values.len());
    // SAFETY: semget takes integers.
    SETS.make(identity, |flags| unsafe {
        libc::syscall(libc::SYS_semget, identity.key, count, flags)
    })?;
    let (at, command) = (set.values.as_ptr(), libc::SETALL);
    // SAFETY: SETALL reads a number of two bytes for each semaphore of the set, which was made for as many as there are.
    told(unsafe { libc::syscall(libc::SYS_semctl, identity.number, 0, command, at) })?;
    SETS.set(identity, 0)
}

/// Makes a queue again.
///
/// # Errors
/// The system's: also where the number is taken.
pub fn make_queue(queue: &Queue) -> io::Result<()> {
    let identity = &queue.identity;
    // SAFETY: msgget takes integers.
    QUEUES.make(identity, |flags| unsafe {
        libc::syscall(libc::SYS_msgget, identity.key, flags)
    })?;
    // There may be more in it than its limit allows now.
    let all: usize = queue.messages.iter().map(|(_, bytes)| bytes.len()).sum();
    QUEUES.set(identity, queue.most_bytes.max(all as u64))?;
    for (kind, bytes) in &queue.messages {
        let message: Vec<u8> = kind.to_le_bytes().iter().chain(bytes).copied().collect();
        let (number, at) = (identity.number, message.as_ptr());
        // SAFETY: msgsnd reads a word and as many bytes behind it.
        told(unsafe { libc::syscall(libc::SYS_msgsnd, number, at, bytes.len(), libc::IPC_NOWAIT) })?;
    }
    QUEUES.set(identity, queue.most_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(number: i32, key: i32) -> Identity {
        Identity {
            number,
            key,
            owner: (
                rustix::process::getuid().as_raw(),
                rustix::process::getgid().as_raw(),
            ),
            mode: 0o640,
        }
    }

    /// Run once more in a namespace of its own.
    #[test]
    fn sets_and_queues_are_made_as_they_were_found() {
        if std::env::var_os("TWINPAGE_IN_NAMESPACE").is_some() {
            return made_as_they_were_found();
        }
        let mut again = std::process::Command::new("unshare");
        again
            .args(["--map-root-user", "--ipc"])
            .arg(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "ipc::tests::sets_and_queues_are_made_as_they_were_found",
            ])
            .env("TWINPAGE_IN_NAMESPACE", "1");
        let ended = again.output().expect("unshare(1) begins");
        let said = String::from_utf8_lossy(&ended.stderr);
        if said.starts_with("unshare:") {
            eprintln!("SKIPPED: there are no namespaces here: {said}");
            return;
        }
        assert!(
            ended.status.success(),
            "{}{said}",
            String::from_utf8_lossy(&ended.stdout)
        );
    }

    fn made_as_they_were_found() {
        assert!(may_choose_numbers());
        let set = Set {
            identity: identity(7, 99),
            values: vec![3, 0, 32767],
        };
        let queue = Queue {
            identity: identity(0x8001, libc::IPC_PRIVATE),
            most_bytes: 16384,
            messages: vec![(5, b"first".to_vec()), (1, Vec::new()), (5, vec![7; 4000])],
        };
        make_set(&set).unwrap();
        make_queue(&queue).unwrap();
        for _ in 0..2 {
            assert_eq!(sets().unwrap(), std::slice::from_ref(&set));
            assert_eq!(queues().unwrap(), std::slice::from_ref(&queue));
        }
        let again = make_set(&set).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    }
}
