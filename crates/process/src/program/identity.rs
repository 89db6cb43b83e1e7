//! What a resume gives to all processes of a tree alike: limits of capabilities, and call filters.

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
