//! Changes of identity: a program of root may make them, they are captured. To what a program is already they change
//! nothing, and run; so do those that the kernel refuses for want of privilege. All others are refused.

use super::{Decision, Stopped, fail};
use crate::credentials::{self, CAPABILITIES_VERSION_3, Credentials, UNCHANGED};
use crate::program::Program;
use crate::syscalls::IDENTITY;

/// capabilities(7)
const CAP_SETGID: u64 = 1 << 6;
const CAP_SETUID: u64 = 1 << 7;
const CAP_SETPCAP: u64 = 1 << 8;

impl Credentials {
    /// Whether the call leaves `ids` as they are. `None`: it is about something else.
    fn keeps(&self, call: &Stopped) -> Option<bool> {
        let ids = match call.name {
            "setuid" | "setreuid" | "setresuid" | "setfsuid" => self.users,
            "setgid" | "setregid" | "setresgid" | "setfsgid" => self.groups,
            _ => return None,
        };
        let [real, effective, saved, files] = ids;
        let wanted = |index: usize| call.arguments[index] as u32;
        let is = |index: usize, id: u32| [UNCHANGED, id].contains(&wanted(index));
        Some(match call.name {
            "setuid" | "setgid" => ids == [wanted(0); 4],
            "setreuid" | "setregid" => {
                // The saved one follows the effective one when the real one is set.
                let follows = wanted(0) == UNCHANGED && wanted(1) == UNCHANGED || saved == effective;
                is(0, real) && is(1, effective) && follows && files == effective
            }
            "setresuid" | "setresgid" => {
                is(0, real) && is(1, effective) && is(2, saved) && files == effective
            }
            _ => is(0, files),
        })
    }

    /// Whether the kernel refuses every change by itself: no privilege, and no other identity in store.
    fn is_fixed(&self, call: &Stopped) -> bool {
        let all_one = |ids: &[u32; 4]| ids.iter().all(|id| *id == ids[0]);
        match call.name {
            "setgroups" => self.effective & CAP_SETGID == 0,
            "capset" => self.permitted == 0 && self.effective & CAP_SETPCAP == 0 && self.inheritable == 0,
            name if name.ends_with("uid") => self.effective & CAP_SETUID == 0 && all_one(&self.users),
            _ => self.effective & CAP_SETGID == 0 && all_one(&self.groups),
        }
    }
}

impl Program {
    pub(super) fn before_identity(&mut self, call: &Stopped) -> Decision {
        if credentials::may_change() && call.name != "setfsuid" && call.name != "setfsgid" {
            self.renew_thread(call.tid);
            self.stale.options = true; // it may not be dumped any more
            return Decision::Run;
        }
        let allowed = Credentials::of(call.tid).is_some_and(|now| {
            now.is_fixed(call)
                || match call.name {
                    "setgroups" => self.keeps_groups(call, &now),
                    "capset" => self.keeps_capabilities(call, &now),
                    _ => now.keeps(call) == Some(true),
                }
        });
        if allowed {
            return Decision::Run;
        }
        fail(IDENTITY.errno, IDENTITY.why)
    }

    fn keeps_groups(&self, call: &Stopped, now: &Credentials) -> bool {
        const MOST_GROUPS: usize = 65536;
        let count = call.arguments[0] as usize;
        let mut bytes = vec![0; count.min(MOST_GROUPS) * 4];
        if count > MOST_GROUPS || self.process.read(call.arguments[1], &mut bytes).is_err() && count > 0 {
            return true; // the kernel will refuse it
        }
        let words = bytes.chunks_exact(4);
        let mut wanted: Vec<u32> = words
            .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
            .collect();
        let mut groups = now.supplementary.clone();
        wanted.sort_unstable();
        groups.sort_unstable();
        wanted == groups
    }

    fn keeps_capabilities(&self, call: &Stopped, now: &Credentials) -> bool {
        let Ok(head) = self.process.read_u64(call.arguments[0]) else {
            return true; // the kernel will refuse it
        };
        if head as u32 != CAPABILITIES_VERSION_3 {
            return false;
        }
        let mut bytes = [0; 24];
        if self.process.read(call.arguments[1], &mut bytes).is_err() {
            return true;
        }
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        // effective, permitted, inheritable: first their low halves, then the high ones.
        let sets = [0, 4, 8].map(|at| u64::from(word(at)) | u64::from(word(at + 12)) << 32);
        sets == [now.effective, now.permitted, now.inheritable]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinpage_os::trace::WatchedCall;

    fn call(name: &'static str, arguments: [i32; 3]) -> Stopped {
        let [a, b, c] = arguments.map(|argument| argument as u32 as u64);
        let arguments = [a, b, c, 0, 0, 0];
        let made = WatchedCall {
            number: 0,
            arguments,
            stack: 0,
            after: 0,
            message: 0,
        };
        Stopped {
            tid: 1,
            by: crate::calls::Caller::First,
            name,
            arguments,
            made,
        }
    }

    #[test]
    fn what_changes_nothing() {
        let status =
            "Uid:\t7\t7\t7\t7\nGid:\t8\t9\t9\t9\nGroups:\t3 4 \nCapInh:\t0\nCapPrm:\tff\nCapEff:\tc0\n";
        let now = Credentials::parse(status).unwrap();
        for (name, arguments, keeps) in [
            ("setuid", [7, 0, 0], true),
            ("setuid", [8, 0, 0], false),
            ("setgid", [9, 0, 0], false), // the real one would change
            ("setreuid", [-1, 7, 0], true),
            ("setregid", [8, 9, 0], true),
            ("setregid", [9, -1, 0], false),
            ("setresuid", [-1, -1, -1], true),
            ("setresgid", [8, 9, 9], true),
            ("setresgid", [9, 9, 9], false),
            ("setfsgid", [9, 0, 0], true),
            ("setfsgid", [-1, 0, 0], true),
        ] {
            let call = call(name, arguments);
            assert_eq!(now.keeps(&call), Some(keeps), "{name} {arguments:?}");
            assert!(!now.is_fixed(&call), "{name} {arguments:?}");
        }
        let plain = status.replace("CapEff:\tc0", "CapEff:\t0");
        let plain = Credentials::parse(&plain).unwrap();
        assert!(plain.is_fixed(&call("setuid", [0, 0, 0])));
        assert!(
            !plain.is_fixed(&call("setgid", [8, 0, 0])),
            "it may swap real and effective"
        );
        assert!(plain.is_fixed(&call("setgroups", [0, 0, 0])));
    }
}
