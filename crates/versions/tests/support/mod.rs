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

/// A seed that repeats the run, printed.
#[allow(dead_code)]
pub(crate) fn seed() -> u64 {
    let given = std::env::var("TWINPAGE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("TWINPAGE_SEED={seed}");
    seed
}
