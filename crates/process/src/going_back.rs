//! A state becomes one of its older checkpoints, and where that was cut short, the next opening finishes it.
//!
//! * `DIR/going-back` holds the checkpoint's number from before the first change until all is in place.
//! * Every step can be cut short and run again.

use crate::copy::{OLDER, copy_content, copy_directory, copy_file, entries, sync};
use crate::error::{Error, Result};
use crate::files::{Ident, OpenFile};
use rustix::fs::{Timespec, Timestamps};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use twinpage_core::Epoch;

pub(crate) const GOING_BACK: &str = "going-back";

/// What is known of a kept checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct About {
    /// What a person calls it.
    pub number: u64,
    /// Its epoch.
    pub epoch: Epoch,
    /// When it was made: nanoseconds since 1970.
    pub at_ns: u64,
    /// It was the newest when its program went back to another.
    pub left: bool,
    /// The files whose content is kept with it.
    pub files: Vec<OpenFile>,
}

impl About {
    /// When it was made.
    #[must_use]
    pub fn time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.at_ns)
    }
}

/// The directory of kept checkpoint `number`.
#[must_use]
pub fn path_of(state: &Path, number: u64) -> PathBuf {
    state.join(OLDER).join(number.to_string())
}

pub(crate) fn read_about(state: &Path, number: u64) -> Result<About> {
    let path = path_of(state, number).join("about");
    let bytes = fs::read(&path).map_err(Error::file("cannot read", &path))?;
    serde_json::from_slice(&bytes).map_err(|error| Error::Damaged(format!("{}: {error}", path.display())))
}

pub(crate) fn gone(number: u64, file: &OpenFile) -> Error {
    Error::State(format!(
        "cannot go back to {number}: the program had {} open, which is gone or another file now",
        file.path.display()
    ))
}

/// The file a checkpoint lists, if it is still where it was.
pub(crate) fn same_file(listed: &OpenFile, options: &OpenOptions) -> Result<Option<File>> {
    let file = match options.open(&listed.path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::file("cannot open", &listed.path)(error)),
    };
    let stat = rustix::fs::fstat(&file)
        .map_err(|error| Error::file("cannot look at", &listed.path)(error.into()))?;
    Ok((Ident::from(&stat) == listed.file).then_some(file))
}

/// That no going back was cut short: the state is no checkpoint then, until it is finished.
pub(crate) fn not_going_back(state: &Path) -> Result<()> {
    if state.join(GOING_BACK).exists() {
        return Err(Error::State(format!(
            "{} was cut short on the way to an older checkpoint: twinpage resume finishes it",
            state.display()
        )));
    }
    Ok(())
}

/// Finishes a going back that was cut short. The state is locked.
pub(crate) fn finish(state: &Path) -> Result<()> {
    let path = state.join(GOING_BACK);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::file("cannot read", &path)(error)),
    };
    let number = text
        .parse()
        .map_err(|_| Error::Damaged(format!("{}: {text:?} is no number", path.display())))?;
    put_in_place(state, number)
}

/// The state becomes kept checkpoint `number`, and the program's files too. May be killed anywhere and run again.
pub(crate) fn put_in_place(state: &Path, number: u64) -> Result<()> {
    let kept = path_of(state, number);
    for (index, file) in read_about(state, number)?.files.iter().enumerate() {
        put_back(file, &kept.join("files").join(index.to_string()), number)?;
    }
    let stays = |name: &std::ffi::OsStr| name == OLDER || name == GOING_BACK || name == "kind";
    for entry in entries(state)? {
        if !stays(&entry.file_name()) {
            remove_all(&entry.path())?;
        }
    }
    for entry in entries(&kept.join("state"))? {
        let (from, to) = (entry.path(), state.join(entry.file_name()));
        if stays(&entry.file_name()) {
            continue;
        } else if from.is_dir() {
            copy_directory(&from, &to, true)?;
        } else {
            copy_file(&from, &to).map_err(Error::file("cannot copy", &from))?;
            sync(&to)?;
        }
    }
    sync(state)?;
    let going_back = state.join(GOING_BACK);
    fs::remove_file(&going_back).map_err(Error::file("cannot remove", &going_back))?;
    sync(state)
}

/// A file of the program gets back what it held.
fn put_back(listed: &OpenFile, kept: &Path, number: u64) -> Result<()> {
    let Some(file) = same_file(listed, OpenOptions::new().read(true).write(true))? else {
        return Err(gone(number, listed));
    };
    let failed = Error::file("cannot write back", &listed.path);
    let done = File::open(kept).and_then(|from| {
        file.set_len(0)?;
        copy_content(&from, &file)?;
        let (tv_sec, nanos) = listed.mtime;
        let time = Timespec {
            tv_sec,
            tv_nsec: nanos.into(),
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::futimens(&file, &times)?;
        file.sync_all()
    });
    done.map_err(failed)
}

pub(crate) fn remove_all(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::file("cannot remove", path)(error)),
        _ => Ok(()),
    }
}
