//! Runs that were done, in a folder: a file each, so that runs of several processes and machines become one
//! evaluation.
//!
//! * A file's name follows from all that a run depends on: machine, scheme, workload with its traces' content,
//!   length, seed, and the program that ran it. A run of anything else has another name.
//! * A file is written whole or not at all, and ends with a check of its content and of all of the above: one that was
//!   cut short, changed, or is of another run under this name is not taken.

use super::Run;
use crate::{config, whole_file};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The folder.
#[derive(Clone, Debug)]
pub(super) struct Store {
    folder: PathBuf,
    origin: String,
}

impl Store {
    /// The folder, made if it is not there.
    pub(super) fn open(folder: &Path) -> Result<Store, String> {
        std::fs::create_dir_all(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        Ok(Store {
            folder: folder.to_owned(),
            origin: origin()?,
        })
    }

    fn path(&self, name: &str, what: &str) -> PathBuf {
        let hash = config::hash(&format!("{}\n{what}", self.origin));
        self.folder.join(format!("{name}-{hash}.json"))
    }

    /// The run that `what` describes, if it was done.
    pub(super) fn find(&self, name: &str, what: &str) -> Result<Option<Run>, String> {
        let path = self.path(name, what);
        match std::fs::read(&path) {
            Ok(bytes) => self
                .checked(&bytes, what)
                .and_then(read)
                .map(Some)
                .map_err(|why| format!("{}: {why}; remove it to have it run again", path.display())),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(format!("{}: {why}", path.display())),
        }
    }

    /// Keeps a run.
    pub(super) fn keep(&self, name: &str, what: &str, run: &Run) -> Result<(), String> {
        let path = self.path(name, what);
        let text = write(run)?;
        let check = self.check(&text, what);
        whole_file::write(&path, &format!("{text}\n{check}\n"))
    }

    /// What follows from a run's text and from all it depends on.
    fn check(&self, text: &str, what: &str) -> String {
        config::hash(&format!("{}\n{what}\n{text}", self.origin))
    }

    /// The run in a file, if the file is whole and of the run that `what` describes.
    fn checked<'a>(&self, bytes: &'a [u8], what: &str) -> Result<&'a str, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "not text, so no run".to_owned())?;
        match text.strip_suffix('\n').and_then(|text| text.rsplit_once('\n')) {
            Some((run, check)) if check == self.check(run, what) => Ok(run),
            _ => Err("cut short, changed, or another run's".into()),
        }
    }
}

/// A run as text. Numbers are those that are read back, so that it makes no difference where a run was done.
pub(super) fn write(run: &Run) -> Result<String, String> {
    serde_json::to_string(run).map_err(|why| why.to_string())
}

pub(super) fn read(text: &str) -> Result<Run, String> {
    serde_json::from_str(text).map_err(|why| why.to_string())
}

/// The content of a file, as 16 digits.
pub(super) fn content(path: &Path) -> Result<String, String> {
    use std::io::Read;
    let wrong = |why: std::io::Error| format!("{}: {why}", path.display());
    let mut file = std::fs::File::open(path).map_err(wrong)?;
    let mut hash = config::HASH_BEGIN;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(wrong)? {
            0 => return Ok(format!("{hash:016x}")),
            some => hash = config::hash_more(hash, &buffer[..some]),
        }
    }
}

/// The content of files, by their names.
pub(crate) fn contents<'a>(
    paths: impl IntoIterator<Item = &'a Path>,
) -> Result<BTreeMap<String, String>, String> {
    let paths: BTreeSet<&Path> = paths.into_iter().collect();
    let name = |path: &Path| path.file_name().unwrap_or_default().to_owned();
    let all = paths.iter().map(|path| {
        // Two of one name are told apart by their folders.
        let is_alone = paths.iter().filter(|other| name(other) == name(path)).count() == 1;
        let called = match is_alone {
            true => name(path).to_string_lossy().into_owned(),
            false => path.display().to_string(),
        };
        Ok((called, content(path)?))
    });
    all.collect()
}

/// The program that runs: the commit a build was given, else what the program consists of.
fn origin() -> Result<String, String> {
    match option_env!("TWINPAGE_COMMIT") {
        Some(commit) => Ok(commit.to_owned()),
        None => content(&std::env::current_exe().map_err(|why| why.to_string())?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_name_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, name).unwrap();
            path
        };
        let [one, two, other] = ["a/ls.trace", "b/ls.trace", "b/gcc.trace"].map(file);
        let found = contents([&*one, &*two, &*other, &*one]).unwrap();
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        let [one, two] = [one, two].map(|path| path.display().to_string());
        assert_eq!(names, [&one, &two, "gcc.trace"]);
        assert_ne!(found[&one], found[&two]);
    }
}
