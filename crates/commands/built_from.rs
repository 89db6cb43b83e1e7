//! The commit that sources are of. The build script asks when it builds, since they may be others when the program runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The commit of a repository, with `-dirty` where some of the `sources` are not as it has them; nothing without a
/// repository.
pub(crate) fn commit(repository: &Path, sources: &[&str]) -> Option<String> {
    let commit = git(repository, &["rev-parse", "HEAD"])?;
    let status = [&["status", "--porcelain", "--"], sources].concat();
    let changed = git(repository, &status)?;
    let mark = if changed.is_empty() { "" } else { "-dirty" };
    Some(format!("{commit}{mark}"))
}

/// The file that changes when the repository goes to another commit, if there is one.
pub(crate) fn moves(repository: &Path) -> Option<PathBuf> {
    let path = repository.join(git(repository, &["rev-parse", "--git-path", "logs/HEAD"])?);
    path.is_file().then_some(path)
}

fn git(repository: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(repository)
        .args(arguments)
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}
