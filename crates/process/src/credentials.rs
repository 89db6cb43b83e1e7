//! The user, the groups and the capabilities of a thread: credentials(7), capabilities(7).
//!
//! * A program has those of the user who runs twinpage, and after a resume those of the user who resumes it: they are in
//!   no checkpoint.
//! * One that root runs may change them. What it became is captured, thread by thread, and root can bring it back.
//! * Bounding and ambient capabilities, and the bits that change what a user id means, stay what they are: calls that
//!   would change them are refused, or keep a process from being captured.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::ops::Range;
use std::sync::OnceLock;
use twinpage_os::inject::{self, Call, ROOM, ROOM_BYTES};
use twinpage_os::proc_file::{self, field, mask};
use twinpage_os::remote::Process;
use twinpage_os::trace::Tid;

/// capset(2): the header that says that sets of 64 bits follow, for the calling thread.
pub const CAPABILITIES_VERSION_3: u32 = 0x2008_0522;

/// What proc_pid_status(5) says of a thread's credentials.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Credentials {
    /// User ids: real, effective, saved, file system.
    pub users: [u32; 4],
    /// Group ids, the same four.
    pub groups: [u32; 4],
    /// Supplementary groups.
    pub supplementary: Vec<u32>,
    /// Capabilities that are in force, one bit each.
    pub effective: u64,
    /// Capabilities that may be put in force.
    pub permitted: u64,
    /// Capabilities that an exec may keep.
    pub inheritable: u64,
}

impl Credentials {
    /// Those of a thread; `None` when it is gone.
    #[must_use]
    pub fn of(tid: Tid) -> Option<Credentials> {
        Credentials::parse(&proc_file::text(format!("/proc/{tid}/status")).ok()?)
    }

    /// The credentials of a thread, if they differ from those of the user who runs twinpage; only such are captured.
    ///
    /// # Errors
    /// When they cannot be given again.
    pub fn to_keep(tid: Tid) -> Result<Option<Credentials>> {
        static OWN: OnceLock<Option<Credentials>> = OnceLock::new();
        if !may_change() {
            return Ok(None);
        }
        let own = OWN.get_or_init(|| Credentials::of(std::process::id() as Tid));
        let kept = Credentials::of(tid).filter(|its| own.as_ref() != Some(its));
        let for_files = |ids: &[u32; 4]| ids[3] != ids[1];
        if kept
            .as_ref()
            .is_some_and(|kept| for_files(&kept.users) || for_files(&kept.groups))
        {
            let why = "has a user or group for files alone (setfsuid, setfsgid), which is not captured";
            return Err(Error::Unsupported(format!("thread {tid} {why}")));
        }
        Ok(kept)
    }

    pub(crate) fn parse(status: &str) -> Option<Credentials> {
        let numbers = |name| -> Option<Vec<u32>> {
            let words = field(status, name)?.split_whitespace().map(str::parse);
            words.collect::<std::result::Result<_, _>>().ok()
        };
        Some(Credentials {
            users: numbers("Uid")?.try_into().ok()?,
            groups: numbers("Gid")?.try_into().ok()?,
            supplementary: numbers("Groups")?,
            effective: mask(status, "CapEff")?,
            permitted: mask(status, "CapPrm")?,
            inheritable: mask(status, "CapInh")?,
        })
    }

    /// Gives them to thread `tid` of a process that is root's.
    ///
    /// # Errors
    /// When this user may not give them.
    pub fn give(&self, process: &Process, tid: Tid) -> Result<()> {
        let user = self.users[0];
        let failed = |source| {
            let what =
                format!("cannot make thread {tid} one of user {user} again; resume the program as root");
            Error::target(what, source)
        };
        if self.supplementary.len() as u64 * 4 > ROOM_BYTES - GROUPS {
            let why = format!("thread {tid} has {} groups", self.supplementary.len());
            return Err(Error::Damaged(format!("context: {why}")));
        }
        let sets = [self.effective, self.permitted, self.inheritable];
        // First the low halves of the three, then the high ones.
        let halves = (sets.iter().map(|set| *set as u32)).chain(sets.iter().map(|set| (set >> 32) as u32));
        let head = [CAPABILITIES_VERSION_3, 0];
        let words = head
            .into_iter()
            .chain(halves)
            .chain(self.supplementary.iter().copied());
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        process.write(ROOM, &bytes).map_err(failed)?;
        let keep = |on: u64| Call::new(libc::SYS_prctl, &[libc::PR_SET_KEEPCAPS as u64, on]);
        let ids = |[real, effective, saved, _]: [u32; 4]| [real, effective, saved].map(u64::from);
        let mut calls = [
            Call::new(
                libc::SYS_setgroups,
                &[self.supplementary.len() as u64, ROOM + GROUPS],
            ),
            Call::new(libc::SYS_setresgid, &ids(self.groups)),
            keep(1), // else they are gone with the user
            Call::new(libc::SYS_setresuid, &ids(self.users)),
            keep(0),
            Call::new(libc::SYS_capset, &[ROOM, ROOM + SETS]),
        ];
        inject::run(process, tid, &mut calls).map_err(failed)?;
        calls
            .iter()
            .try_for_each(|call| call.result().map(drop).map_err(failed))?;
        match Credentials::of(tid) {
            Some(now) if now == *self => Ok(()),
            now => Err(Error::Internal(format!(
                "thread {tid} should have {self:?} again, and has {now:?}"
            ))),
        }
    }
}

/// Where the capability sets are written, behind the header of 8 bytes, and where the groups are, behind them.
const SETS: u64 = 8;
const GROUPS: u64 = SETS + 24;

/// Whether programs of this user may become others: root's, where no user namespace of our own maps root alone.
#[must_use]
pub fn may_change() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| {
        let counts = mapped("uid_map").into_iter().map(|ids| ids.end - ids.start);
        rustix::process::geteuid().is_root() && counts.sum::<u64>() > 1
    })
}

/// Whether a file can be given to a user and a group, chown(2): they must be in our user namespace.
#[must_use]
pub fn can_own(user: u32, group: u32) -> bool {
    static IDS: OnceLock<[Vec<Range<u64>>; 2]> = OnceLock::new();
    let ids = IDS.get_or_init(|| ["uid_map", "gid_map"].map(mapped));
    let mut asked = ids.iter().zip([user, group]);
    asked.all(|(ids, id)| id == UNCHANGED || ids.iter().any(|range| range.contains(&id.into())))
}

/// No change of a user or group: chown(2), setresuid(2).
pub const UNCHANGED: u32 = u32::MAX;

/// The ids in our user namespace: user_namespaces(7).
fn mapped(map: &str) -> Vec<Range<u64>> {
    let map = fs::read_to_string(format!("/proc/self/{map}")).unwrap_or_default();
    let lines = map.lines().filter_map(|line| {
        let mut words = line.split_whitespace().map(|word| word.parse::<u64>().ok());
        let (first, count) = (words.next()??, words.nth(1)??);
        Some(first..first + count)
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_understood() {
        let status =
            "Uid:\t7\t8\t9\t8\nGid:\t1\t2\t3\t2\nGroups:\t3 4 \nCapInh:\t01\nCapPrm:\tff\nCapEff:\tc0\n";
        let expected = Credentials {
            users: [7, 8, 9, 8],
            groups: [1, 2, 3, 2],
            supplementary: vec![3, 4],
            effective: 0xc0,
            permitted: 0xff,
            inheritable: 1,
        };
        assert_eq!(Credentials::parse(status), Some(expected));
        assert_eq!(Credentials::parse("Uid:\t7\n"), None);
    }
}
