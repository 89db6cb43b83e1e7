//! A program's files come back to the checkpoint: every operation, random runs, killed rollbacks,
//! torn and damaged logs, kept files on another file system, files that are gone, and real kills.

mod damage;
mod gone;
mod kills;
mod limits;
mod operations;
mod program;
mod random;
mod tree;

use std::path::{Path, PathBuf};
use tempfile::TempDir;
use twinpage_process::files::Error;

/// What a test stops a rollback with, as a kill would.
pub(crate) fn killed_here(what: &str) -> Error {
    let killed = twinpage_core::Error::Invalid(format!("killed before: {what}"));
    Error::Poisoned(std::sync::Arc::new(killed))
}

/// A tree for a program and a state directory, on the same file system or not.
pub(crate) struct Stage {
    _dirs: [TempDir; 2],
    pub root: PathBuf,
    pub state: PathBuf,
}

/// How to make a stage.
pub(crate) type MakeStage = fn() -> Stage;

impl Stage {
    /// Both on the file system of the temporary directory.
    pub(crate) fn new() -> Stage {
        Stage::in_both(&std::env::temp_dir(), &std::env::temp_dir())
    }

    /// Both in memory, where inode numbers are not used again.
    pub(crate) fn in_memory() -> Stage {
        Stage::in_both(Path::new("/dev/shm"), Path::new("/dev/shm"))
    }

    /// The state directory in `/dev/shm`, when that is another file system.
    pub(crate) fn apart() -> Stage {
        let stage = Stage::in_both(&std::env::temp_dir(), Path::new("/dev/shm"));
        if !stage.is_apart() {
            println!("NOTE: the temporary directory is on /dev/shm: kept copies are not tested");
        }
        stage
    }

    /// Whether a removed file must be kept as a copy.
    pub(crate) fn is_apart(&self) -> bool {
        let dev = |path: &Path| rustix::fs::stat(path).unwrap().st_dev;
        dev(&self.root) != dev(&self.state)
    }

    fn in_both(for_root: &Path, for_state: &Path) -> Stage {
        let dirs = [for_root, for_state].map(|parent| TempDir::new_in(parent).unwrap());
        let [root, state] = [0, 1].map(|index: usize| dirs[index].path().canonicalize().unwrap());
        Stage {
            _dirs: dirs,
            root,
            state,
        }
    }
}
