//! Which system calls of a program run freely and which stop for its tracer: seccomp(2).
//!
//! * A call that is not listed as free stops: what is not understood cannot pass unseen.
//! * A call of another architecture (`int 0x80`) stops too, with [`FOREIGN`] as its message.

#![allow(unsafe_code)]

use crate::inject::{self, Call, ROOM, ROOM_BYTES};
use crate::remote::Process;
use crate::trace::Tid;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use std::collections::BTreeMap;
use std::io;

/// Something an argument of a call must be for the call to be free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Argument {
    /// Argument `index` is exactly `value`.
    Is {
        /// Which argument, from 0.
        index: u8,
        /// What it must be.
        value: u64,
    },
    /// Argument `index` is anything but `value`.
    IsNot {
        /// Which argument, from 0.
        index: u8,
        /// What it must not be.
        value: u64,
    },
    /// Of argument `index`, the bits in `mask` are exactly `value`.
    Bits {
        /// Which argument, from 0.
        index: u8,
        /// Which bits are looked at.
        mask: u64,
        /// What they must be.
        value: u64,
    },
}

/// A call, when every listed argument is so. Several rules for one call: any of them.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The number of the call.
    pub number: i64,
    /// What must hold of its arguments; empty: of all.
    pub when: Vec<Argument>,
}

/// The event message of a call of another architecture: its number means something else.
pub const FOREIGN: u64 = 1;

/// A compiled filter.
#[derive(Clone, Debug)]
pub struct Filter(BpfProgram);

impl Filter {
    /// `free` calls run; all others raise [`crate::trace::EVENT_SECCOMP`].
    ///
    /// # Errors
    /// `InvalidInput` when the list does not fit in a BPF program.
    pub fn new(free: &[Rule]) -> io::Result<Filter> {
        Filter::of(free, SeccompAction::Allow, SeccompAction::Trace(0))
    }

    /// `watched` calls raise [`crate::trace::EVENT_SECCOMP`], also where a filter before this one lets them run; of the
    /// others nothing is said.
    ///
    /// # Errors
    /// As [`Filter::new`].
    pub fn watching(watched: &[Rule]) -> io::Result<Filter> {
        Filter::of(watched, SeccompAction::Trace(0), SeccompAction::Allow)
    }

    fn of(listed: &[Rule], then: SeccompAction, otherwise: SeccompAction) -> io::Result<Filter> {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
        for rule in listed {
            let slot = rules.entry(rule.number).or_default();
            if !rule.when.is_empty() {
                let conditions = rule.when.iter().map(condition).collect::<Result<_, _>>();
                slot.push(SeccompRule::new(conditions.map_err(invalid)?).map_err(invalid)?);
            }
        }
        let filter = SeccompFilter::new(rules, otherwise, then, TargetArch::x86_64).map_err(invalid)?;
        let mut program: BpfProgram = filter.try_into().map_err(invalid)?;
        // The library would kill a caller by another architecture; here it is refused by name, as any other call.
        let foreign = program.iter_mut().find(|i| i.k == libc::SECCOMP_RET_KILL_PROCESS);
        let foreign =
            foreign.ok_or_else(|| io::Error::other("a filter that does not look at the architecture"))?;
        foreign.k = libc::SECCOMP_RET_TRACE | FOREIGN as u32;
        Ok(Filter(program))
    }

    /// The program as bytes, eight an instruction, to be placed in another process.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.len() * 8);
        for instruction in &self.0 {
            bytes.extend_from_slice(&instruction.code.to_le_bytes());
            bytes.extend_from_slice(&[instruction.jt, instruction.jf]);
            bytes.extend_from_slice(&instruction.k.to_le_bytes());
        }
        bytes
    }

    /// How many instructions the program has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never true: a filter always has its default.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts a process under the filter, by its stopped thread `tid` and all of them at once: `SECCOMP_FILTER_FLAG_TSYNC`. The
    /// process has the code of [`inject`].
    ///
    /// # Errors
    /// As [`inject::run`]; what the kernel says of the filter.
    pub fn install_in(&self, process: &Process, tid: Tid) -> io::Result<()> {
        const PROGRAM: u64 = ROOM + 64;
        let bytes = self.bytes();
        assert!(
            bytes.len() as u64 <= ROOM + ROOM_BYTES - PROGRAM,
            "a filter of {} bytes",
            bytes.len()
        );
        process.write(PROGRAM, &bytes)?;
        process.write(
            ROOM,
            [self.len() as u64, PROGRAM].map(u64::to_le_bytes).as_flattened(),
        )?;
        let (mode, all) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
        let mut calls = [
            Call::new(libc::SYS_prctl, &[libc::PR_SET_NO_NEW_PRIVS as u64, 1]),
            Call::new(libc::SYS_seccomp, &[mode.into(), all, ROOM]),
        ];
        inject::run(process, tid, &mut calls)?;
        calls[0].result()?;
        match calls[1].result()? {
            0 => Ok(()),
            thread => Err(io::Error::other(format!(
                "thread {thread} has a filter of its own"
            ))),
        }
    }

    /// Puts the calling process under the filter, for good, and gives up gaining privileges by
    /// exec. Safe after a fork.
    ///
    /// # Errors
    /// `EINVAL` where the kernel has no seccomp filters.
    pub fn install(&self) -> io::Result<()> {
        let program = libc::sock_fprog {
            len: self.0.len() as u16,
            filter: self.0.as_ptr().cast_mut().cast(),
        };
        // SAFETY: `program` points at instructions of the kernel's layout that outlive the call.
        unsafe {
            if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1
                || libc::syscall(
                    libc::SYS_seccomp,
                    libc::SECCOMP_SET_MODE_FILTER,
                    0,
                    &raw const program,
                ) == -1
            {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}

fn condition(argument: &Argument) -> Result<SeccompCondition, seccompiler::BackendError> {
    let (index, operator, value) = match *argument {
        Argument::Is { index, value } => (index, SeccompCmpOp::Eq, value),
        Argument::IsNot { index, value } => (index, SeccompCmpOp::Ne, value),
        Argument::Bits { index, mask, value } => (index, SeccompCmpOp::MaskedEq(mask), value),
    };
    SeccompCondition::new(index, SeccompCmpArgLen::Qword, operator, value)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}
