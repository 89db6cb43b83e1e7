//! What the tests share.

use std::path::Path;
use tempfile::TempDir;

/// A folder in memory, and one where temporary files go.
#[allow(dead_code)] // not every test uses both
pub(crate) fn folders() -> Vec<TempDir> {
    let shm = Path::new("/dev/shm");
    let mut folders = vec![tempfile::tempdir().unwrap()];
    if shm.is_dir() {
        folders.push(tempfile::tempdir_in(shm).unwrap());
    } else {
        eprintln!("SKIPPED on memory files: there is no /dev/shm");
    }
    folders
}
