//! System V shared memory: sysvipc(7), shmget(2), shmop(2), shmctl(2).
//!
//! * A segment is a memory file, and so an object of the checkpoint ([`crate::objects`]), which a process that attaches
//!   it maps. Its number, key, rights and times are kept here: they outlive the processes.
//! * Keys and numbers are the tree's own: it sees no segment of the machine, and the machine none of its.
//! * No number is given twice.
//! * Which segments are attached is looked up in the mappings of all processes: forks, execs and ends need no account.

use crate::credentials::Credentials;
use crate::files::Ident;
use crate::objects::Id;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::time::SystemTime;
use twinpage_os::tracker::PAGE;

/// `SHM_DEST` of shmctl(2): the segment is removed with its last attachment.
const TO_BE_REMOVED: u32 = 0o1000;
const RIGHTS: u32 = 0o777;
/// The most segments, `SHMMNI` of shmget(2): the default of Linux.
const MOST: usize = 4096;
const CAP_IPC_OWNER: u64 = 1 << 15;
const CAP_SYS_ADMIN: u64 = 1 << 21;

/// One segment, as a checkpoint lists it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Segment {
    /// What shmget(2) returned.
    pub number: i32,
    /// Its key; `IPC_PRIVATE` when it has none, or none any more.
    pub key: i32,
    /// The object that has its bytes.
    pub object: Id,
    /// Which memory file that is; another one after a resume.
    pub file: Ident,
    /// Its length, as it was asked for.
    pub bytes: u64,
    /// Rights, and whether it goes with its last attachment.
    pub mode: u32,
    /// User and group that own it.
    pub owner: (u32, u32),
    /// User and group that made it.
    pub creator: (u32, u32),
    /// The process that made it, and the last that attached or detached it.
    pub processes: (i32, i32),
    /// Seconds since 1970: last attached, last detached, last changed.
    pub times: [i64; 3],
}

/// All segments of a tree, as a checkpoint lists them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Saved {
    /// The number that the next one gets.
    pub next: i32,
    /// Those that there are.
    pub list: Vec<Segment>,
}

/// All segments of a tree.
#[derive(Default)]
pub struct Segments {
    next: i32,
    list: Vec<(Segment, OwnedFd)>,
    changed: bool,
}

/// What shmget(2) is asked for.
pub struct Wanted {
    /// The key.
    pub key: i32,
    /// The length in bytes.
    pub bytes: u64,
    /// `IPC_*` bits and rights.
    pub flags: i32,
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

impl Segment {
    /// Whether a user may do all that these rights (`0o4`: read, `0o2`: write, `0o1`: execute) say.
    #[must_use]
    pub fn allows(&self, user: &Credentials, rights: u32) -> bool {
        let is = |id: u32, (owner, creator): (u32, u32)| id == owner || id == creator;
        let users = (self.owner.0, self.creator.0);
        let groups = (self.owner.1, self.creator.1);
        let granted = if is(user.users[1], users) {
            self.mode >> 6
        } else if is(user.groups[1], groups) || user.supplementary.iter().any(|id| is(*id, groups)) {
            self.mode >> 3
        } else {
            self.mode
        };
        rights & !granted & 7 == 0 || user.effective & CAP_IPC_OWNER != 0
    }

    /// Whether a user may change or remove it.
    #[must_use]
    pub fn is_of(&self, user: &Credentials) -> bool {
        user.users[1] == self.owner.0
            || user.users[1] == self.creator.0
            || user.effective & CAP_SYS_ADMIN != 0
    }

    /// Whether it goes with its last attachment.
    #[must_use]
    pub fn is_to_be_removed(&self) -> bool {
        self.mode & TO_BE_REMOVED != 0
    }

    /// Changes owner and rights, shmctl(2) `IPC_SET`.
    pub fn set(&mut self, owner: (u32, u32), mode: u32) {
        self.owner = owner;
        self.mode = self.mode & !RIGHTS | mode & RIGHTS;
        self.times[2] = now();
    }

    /// Takes away its key; it goes with its last attachment, shmctl(2) `IPC_RMID`.
    pub fn remove(&mut self) {
        self.key = libc::IPC_PRIVATE;
        self.mode |= TO_BE_REMOVED;
    }

    /// A process attached it.
    pub fn attached(&mut self, pid: i32) {
        (self.times[0], self.processes.1) = (now(), pid);
    }

    /// A process detached it.
    pub fn detached(&mut self, pid: i32) {
        (self.times[1], self.processes.1) = (now(), pid);
    }

    /// A struct shmid_ds of shmctl(2), for 64-bit programs.
    #[must_use]
    pub fn to_bytes(&self, attachments: u64) -> [u8; STATUS_BYTES] {
        let sequence = (self.number >> 15) as u32;
        let ids = [
            self.key as u32,
            self.owner.0,
            self.owner.1,
            self.creator.0,
            self.creator.1,
            self.mode,
            sequence,
            0,
        ];
        let [attached, detached, changed] = self.times.map(|time| time as u64);
        let pids = u64::from(self.processes.0 as u32) | u64::from(self.processes.1 as u32) << 32;
        let words = [
            0,
            0,
            self.bytes,
            attached,
            detached,
            changed,
            pids,
            attachments,
            0,
            0,
        ];
        let mut bytes = [0; STATUS_BYTES];
        let all = (ids.iter().flat_map(|id| id.to_le_bytes()))
            .chain(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.iter_mut().zip(all).for_each(|(to, from)| *to = from);
        bytes
    }
}

/// A struct shminfo, shmctl(2) `IPC_INFO`: the most and least bytes of a segment, the most segments of all and of a process,
/// the most pages of all, as Linux has them where nothing else is set.
#[must_use]
pub fn limits() -> [u64; 9] {
    const MOST_BYTES: u64 = u64::MAX - (1 << 24);
    [MOST_BYTES, 1, MOST as u64, MOST as u64, MOST_BYTES, 0, 0, 0, 0]
}

/// Bytes of a struct shmid_ds: ids and mode, then from byte 48 on sizes and times.
pub const STATUS_BYTES: usize = 112;

impl Segments {
    /// Those of a checkpoint, each with its memory file, open for reading and writing.
    #[must_use]
    pub fn restored(next: i32, list: Vec<(Segment, OwnedFd)>) -> Segments {
        Segments {
            next,
            list,
            changed: true, // files have other inodes
        }
    }

    /// As a checkpoint lists them.
    #[must_use]
    pub fn saved(&self) -> Saved {
        Saved {
            next: self.next,
            list: self.list.iter().map(|(segment, _)| segment.clone()).collect(),
        }
    }

    /// Whether they changed since the last question.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// The objects that have their bytes.
    pub fn objects(&self) -> impl Iterator<Item = Id> {
        self.list.iter().map(|(segment, _)| segment.object)
    }

    /// A segment by its number, and its memory file.
    #[must_use]
    pub fn get(&self, number: i32) -> Option<&(Segment, OwnedFd)> {
        self.list.iter().find(|(segment, _)| segment.number == number)
    }

    /// A segment by its place among all.
    #[must_use]
    pub fn at(&self, index: i32) -> Option<&(Segment, OwnedFd)> {
        self.list.get(usize::try_from(index).ok()?)
    }

    /// The last place that is taken; 0 when none is.
    #[must_use]
    pub fn highest(&self) -> i32 {
        self.list.len().saturating_sub(1) as i32
    }

    /// A struct shm_info, shmctl(2) `SHM_INFO`: how many there are, their pages, and how many of these there are. Nothing is
    /// told of what is swapped out.
    #[must_use]
    pub fn in_use(&self) -> [u64; 6] {
        let pages = |bytes: u64| bytes.div_ceil(PAGE);
        let all = self.list.iter().map(|(segment, _)| pages(segment.bytes)).sum();
        let stats = self
            .list
            .iter()
            .filter_map(|(_, file)| rustix::fs::fstat(file).ok());
        let there = stats.map(|stat| pages(stat.st_blocks as u64 * 512)).sum();
        [self.list.len() as u64, all, there, 0, 0, 0]
    }

    /// The segment that a memory file is.
    #[must_use]
    pub fn of_file(&self, file: Ident) -> Option<&Segment> {
        let mut list = self.list.iter().map(|(segment, _)| segment);
        list.find(|segment| segment.file == file)
    }

    /// Changes a segment.
    pub fn change(&mut self, number: i32, change: impl FnOnce(&mut Segment)) {
        let found = self.list.iter_mut().find(|(segment, _)| segment.number == number);
        if let Some((segment, _)) = found {
            change(segment);
            self.changed = true;
        }
    }

    /// The segment that a user asks for, if it is there; `None`: it is to be made.
    ///
    /// # Errors
    /// As shmget(2).
    pub fn find(&self, wanted: &Wanted, user: &Credentials) -> Result<Option<i32>, Errno> {
        let has_key = |segment: &Segment| wanted.key != libc::IPC_PRIVATE && segment.key == wanted.key;
        let found = self.list.iter().find(|(segment, _)| has_key(segment));
        let Some((segment, _)) = found else {
            let makes = wanted.key == libc::IPC_PRIVATE || wanted.flags & libc::IPC_CREAT != 0;
            return match () {
                () if !makes => Err(Errno::NOENT),
                () if wanted.bytes == 0 => Err(Errno::INVAL),
                () if self.list.len() >= MOST => Err(Errno::NOSPC),
                () => Ok(None),
            };
        };
        let only_new = libc::IPC_CREAT | libc::IPC_EXCL;
        let rights = wanted.flags as u32;
        match () {
            () if wanted.flags & only_new == only_new => Err(Errno::EXIST),
            () if wanted.bytes > segment.bytes => Err(Errno::INVAL),
            () if !segment.allows(user, rights >> 6 | rights >> 3 | rights) => Err(Errno::ACCESS),
            () => Ok(Some(segment.number)),
        }
    }

    /// Adds one that `pid` made, whose bytes are in an object. Its number.
    pub fn add(&mut self, wanted: &Wanted, user: &Credentials, pid: i32, made: (Id, Ident, OwnedFd)) -> i32 {
        let (object, ident, file) = made;
        let (number, owner) = (self.next, (user.users[1], user.groups[1]));
        let segment = Segment {
            number,
            key: wanted.key,
            object,
            file: ident,
            bytes: wanted.bytes,
            mode: wanted.flags as u32 & RIGHTS,
            owner,
            creator: owner,
            processes: (pid, 0),
            times: [0, 0, now()],
        };
        self.list.push((segment, file));
        self.next = self.next.wrapping_add(1) & i32::MAX;
        self.changed = true;
        number
    }

    /// Forgets those that are to be removed and that nothing has attached.
    pub fn forget_removed(&mut self, is_attached: impl Fn(&Segment) -> bool) {
        let before = self.list.len();
        self.list
            .retain(|(segment, _)| !segment.is_to_be_removed() || is_attached(segment));
        self.changed |= self.list.len() != before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: u32) -> Credentials {
        Credentials {
            users: [id; 4],
            groups: [id; 4],
            supplementary: vec![7],
            effective: 0,
            permitted: 0,
            inheritable: 0,
        }
    }

    fn wanted(key: i32, bytes: u64, flags: i32) -> Wanted {
        Wanted { key, bytes, flags }
    }

    fn add(segments: &mut Segments, wanted: &Wanted, by: u32) -> i32 {
        let file = std::fs::File::open("/dev/null").expect("it is there").into();
        let inode = segments.next as u64;
        let ident = Ident { dev: 1, ino: inode };
        segments.add(wanted, &user(by), 300, (inode as Id, ident, file))
    }

    #[test]
    fn keys_find_segments_and_rights_are_asked() {
        const MAKE: i32 = libc::IPC_CREAT | 0o640;
        let mut all = Segments::default();
        assert_eq!(all.find(&wanted(5, 10, 0), &user(1)), Err(Errno::NOENT));
        assert_eq!(all.find(&wanted(5, 0, MAKE), &user(1)), Err(Errno::INVAL));
        assert_eq!(all.find(&wanted(5, 10, MAKE), &user(1)), Ok(None));
        let number = add(&mut all, &wanted(5, 10, MAKE), 1);
        assert_eq!(all.find(&wanted(5, 10, MAKE), &user(1)), Ok(Some(number)));
        assert_eq!(all.find(&wanted(5, 11, 0), &user(1)), Err(Errno::INVAL));
        let again = wanted(5, 10, MAKE | libc::IPC_EXCL);
        assert_eq!(all.find(&again, &user(1)), Err(Errno::EXIST));
        assert_eq!(all.find(&wanted(5, 1, 0o400), &user(2)), Err(Errno::ACCESS));
        assert_eq!(all.find(&wanted(5, 1, 0), &user(2)), Ok(Some(number)));
        all.change(number, |segment| segment.set((1, 7), 0o640));
        assert_eq!(
            all.find(&wanted(5, 1, 0o400), &user(2)),
            Ok(Some(number)),
            "by its group"
        );
        assert_eq!(all.find(&wanted(5, 1, 0o600), &user(2)), Err(Errno::ACCESS));
    }

    #[test]
    fn a_removed_one_has_no_key_and_goes_with_its_last_attachment() {
        const MAKE: i32 = libc::IPC_CREAT | 0o600;
        let mut all = Segments::default();
        let first = add(&mut all, &wanted(5, 10, MAKE), 1);
        all.change(first, Segment::remove);
        all.forget_removed(|_| true);
        assert!(all.get(first).is_some());
        assert_eq!(all.find(&wanted(5, 10, MAKE), &user(1)), Ok(None));
        let second = add(&mut all, &wanted(5, 10, MAKE), 1);
        assert_ne!(first, second);
        all.forget_removed(|_| false);
        assert!(all.get(first).is_none() && all.get(second).is_some());
    }

    #[test]
    fn a_status_has_each_field_in_its_place() {
        let mut all = Segments::default();
        let number = add(&mut all, &wanted(0x0102_0304, 99, libc::IPC_CREAT | 0o640), 8);
        all.change(number, |segment| segment.attached(301));
        let (segment, _) = all.get(number).expect("it was made");
        let status = segment.to_bytes(3);
        let field = |at: usize, bytes: usize| {
            let mut word = [0; 8];
            word[..bytes].copy_from_slice(&status[at..at + bytes]);
            u64::from_le_bytes(word)
        };
        macro_rules! field {
            ($of:ty, $name:ident, $bytes:expr) => {
                field(std::mem::offset_of!($of, $name), $bytes)
            };
        }
        assert_eq!(size_of::<libc::shmid_ds>(), STATUS_BYTES);
        assert_eq!(field!(libc::ipc_perm, __key, 4), 0x0102_0304);
        assert_eq!(field!(libc::ipc_perm, mode, 2), 0o640);
        assert_eq!(
            (field!(libc::ipc_perm, uid, 4), field!(libc::ipc_perm, cgid, 4)),
            (8, 8)
        );
        assert_eq!(
            (
                field!(libc::shmid_ds, shm_segsz, 8),
                field!(libc::shmid_ds, shm_nattch, 8)
            ),
            (99, 3)
        );
        assert_eq!(
            (
                field!(libc::shmid_ds, shm_cpid, 4),
                field!(libc::shmid_ds, shm_lpid, 4)
            ),
            (300, 301)
        );
        let [attached, _, changed] = segment.times.map(|time| time as u64);
        assert_eq!(field!(libc::shmid_ds, shm_atime, 8), attached);
        assert_eq!(field!(libc::shmid_ds, shm_ctime, 8), changed);
    }
}
