//! A user without rights. Where root runs the tests it is another one, which may not reach the built files: it runs copies.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::process::twinpage;
use super::{may_change_users, say};

/// The number of the user and the group without rights of their own.
const WITHOUT_RIGHTS: u32 = 65534;

/// Runs twinpage as a user without rights.
pub(crate) struct OrdinaryUser {
    /// Has the copies; `None` where the tests have no rights themselves.
    copies: Option<tempfile::TempDir>,
    number: u32,
}

impl OrdinaryUser {
    /// `None`, and it is said, where root may become no other user.
    pub(crate) fn of(test: &str) -> Option<OrdinaryUser> {
        OrdinaryUser::numbered(test, WITHOUT_RIGHTS)
    }

    /// The same, where root runs the tests as the user of that number. Files of users who are not in a user namespace look
    /// in it as if they were those of `WITHOUT_RIGHTS`.
    pub(crate) fn numbered(test: &str, number: u32) -> Option<OrdinaryUser> {
        if !rustix::process::geteuid().is_root() {
            return Some(OrdinaryUser { copies: None, number });
        }
        if !may_change_users() {
            say(&format!("SKIPPED: {test}: root is the only user here"));
            return None;
        }
        let copies = tempfile::tempdir().expect("a scratch directory");
        fs::set_permissions(copies.path(), Permissions::from_mode(0o755)).expect("chmod");
        let copies = Some(copies);
        let user = OrdinaryUser { copies, number };
        user.copy(Path::new(env!("CARGO_BIN_EXE_twinpage")));
        Some(user)
    }

    /// A copy of the file that the user may read and run.
    pub(crate) fn copy(&self, file: &Path) -> PathBuf {
        let Some(copies) = &self.copies else {
            return file.to_owned();
        };
        let copy = copies.path().join(file.file_name().expect("a file"));
        // By a process of its own: a child of another test would hold what this one writes, and a process that holds
        // a program open for writing keeps it from being run.
        let copied = Command::new("cp").args([file, &copy]).status();
        assert!(copied.is_ok_and(|status| status.success()), "a copy of a program");
        copy
    }

    /// Twinpage, run by the user.
    pub(crate) fn twinpage(&self) -> Command {
        match &self.copies {
            Some(copies) => self.command(&copies.path().join("twinpage")),
            None => twinpage(),
        }
    }

    /// A program that the user may reach, run by the user.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("env");
        command.arg("--default-signal").stdin(Stdio::null());
        if self.copies.is_some() {
            let ids = [
                format!("--reuid={}", self.number),
                format!("--regid={}", self.number),
            ];
            command
                .args(["setpriv", "--clear-groups", "--inh-caps=-all"])
                .args(ids);
        }
        command.arg(program);
        command
    }

    /// Gives the user a directory.
    pub(crate) fn give(&self, directory: &Path) {
        if self.copies.is_some() {
            chown(directory, Some(self.number), Some(self.number)).expect("chown");
        }
    }
}
