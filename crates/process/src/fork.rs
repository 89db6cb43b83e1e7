//! `twinpage fork`: a second state from one at rest. Both go on from the same checkpoint, each by itself.
//!
//! * The state is locked while it is copied. The files that its program changed after the checkpoint are rolled back
//!   first, as a resume would do: then no record of the one undoes what the other did.
//! * Older checkpoints that are kept with the one are not copied.
//! * The new state is there whole or not at all: it is copied beside its place, made durable, and renamed.

use crate::context;
use crate::copy::{copy_directory, sync};
use crate::error::{Error, Result};
use crate::state::StateDir;
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use std::fs;
use std::path::{Path, PathBuf};
use twinpage_core::Epoch;
use twinpage_os::folder::folder_of;

/// Makes `new` from `state`. Returns the epoch that both go on from.
///
/// # Errors
/// When `new` is there already; when `state` is in use, damaged, finished or has no checkpoint; when files cannot be
/// rolled back or copied. Nothing is left of `new` then.
pub fn fork(state: &Path, new: &Path) -> Result<Epoch> {
    if new.symlink_metadata().is_ok() {
        return Err(exists(new));
    }
    let (directory, store, recovered) = StateDir::open(state)?;
    drop(store);
    let parent = folder_of(new).canonicalize();
    if (parent.map_err(Error::file("cannot find", folder_of(new)))?).starts_with(directory.path()) {
        return Err(Error::State(format!(
            "{} lies in the state that it would be a copy of: name a directory beside it",
            new.display()
        )));
    }
    let told = |why: &str| Err(Error::State(format!("{}: {why}", state.display())));
    if recovered.epoch == 0 {
        return told("the program was killed before its first checkpoint: there is nothing to fork");
    }
    let context = context::read(&recovered.context)?;
    if context.ending().is_some() {
        return told("the program has finished: there is nothing to go on with");
    }
    (context.live.roll_back_files(directory.path(), recovered.epoch)?).tell();
    let unfinished = beside(new)?;
    let made = copy_directory(
        directory.path(),
        &unfinished,
        directory.durability().outlives_machine(),
    )
    .and_then(|()| put_in_place(&unfinished, new));
    if made.is_err() {
        let _ = fs::remove_dir_all(&unfinished); // the first error is told
    }
    made.map(|()| recovered.epoch)
}

fn exists(new: &Path) -> Error {
    Error::State(format!(
        "{} exists already: name a directory that does not",
        new.display()
    ))
}

/// Where the copy is made.
fn beside(new: &Path) -> Result<PathBuf> {
    let Some(name) = new.file_name() else {
        return Err(exists(new));
    };
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}", std::process::id()));
    Ok(new.with_file_name(hidden))
}

fn put_in_place(unfinished: &Path, new: &Path) -> Result<()> {
    match rustix::fs::renameat_with(CWD, unfinished, CWD, new, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Err(exists(new)),
        Err(error) => return Err(Error::file("cannot make", new)(error.into())),
    }
    sync(folder_of(new))
}
