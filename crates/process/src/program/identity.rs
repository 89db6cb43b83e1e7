//! What a resume gives to all processes of a tree alike: limits of capabilities, and call filters.

use super::Program;
use crate::error::{Error, Result};
use twinpage_os::proc_file;
use twinpage_os::trace::Tid;

/// Their lines of proc_pid_status(5).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Identity(Vec<String>);

impl Identity {
    pub(super) fn of(tid: Tid) -> Result<Identity> {
        const NAMES: [&str; 4] = ["CapBnd:", "CapAmb:", "NoNewPrivs:", "Seccomp_filters:"];
        let path = format!("/proc/{tid}/status");
        let status = proc_file::text(&path).map_err(Error::file("cannot read", path))?;
        let mut lines: Vec<String> = (status.lines())
            .filter(|line| NAMES.iter().any(|name| line.starts_with(name)))
            .map(str::to_owned)
            .collect();
        lines.sort_unstable();
        Ok(Identity(lines))
    }
}

impl Program {
    /// The first process's. Of one that has ended, as it had it last; where that is not known, a descendant's.
    pub(super) fn identity(&mut self) -> Result<Identity> {
        let by = match (self.ending, &self.identity) {
            (None, _) => self.process.thread(),
            (Some(_), Some(identity)) => return Ok(identity.clone()),
            (Some(_), None) => {
                let living = self.descendants.living().first().copied();
                living.ok_or_else(|| Error::NotYet("the last process ends".into()))?
            }
        };
        let identity = Identity::of(by)?;
        self.identity = Some(identity.clone());
        Ok(identity)
    }
}
