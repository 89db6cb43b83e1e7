//! Older checkpoints of a program: `twinpage run --keep`, `twinpage resume --at`.
//!
//! ```text
//! DIR/older/NUMBER/state/   a whole state, copied while the program stood still at its checkpoint
//! DIR/older/NUMBER/files/I  what the I-th file held that the program had open for writing then
//! DIR/older/NUMBER/about    one JSON document: which checkpoint, which files; written last
//! DIR/going-back            a number, while DIR is made from older/NUMBER
//! ```
//!
//! * A kept checkpoint is there whole or not at all: it is made and dropped under a name that is no number.
//! * Numbers grow and are never used twice while a later one is there.
//! * Before a state goes back, its newest checkpoint is kept too, and dropped by no `--keep`.
//! * Going back is cut short by nothing: once `going-back` is there, the next opening of the state finishes it.

use crate::context;
use crate::copy::{OLDER, copy_directory, copy_file, sync};
use crate::error::{Error, Result};
use crate::files::{self, OpenFile};
pub use crate::going_back::{About, path_of};
use crate::going_back::{GOING_BACK, gone, put_in_place, read_about, remove_all, same_file};
use crate::inspect;
use crate::state::{StateDir, write_synced};
use rustix::fs::{CWD, RenameFlags};
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, SystemTime};
use twinpage_core::Damage;
use twinpage_os::Durability;

const UNFINISHED: &str = ".new";
const DROPPED: &str = ".dropped";

/// How many older checkpoints to keep, and how often one is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keep {
    /// The oldest beyond that many is dropped.
    pub most: usize,
    /// At most one in this time.
    pub every: Duration,
}

/// Which older checkpoint to go back to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// The one of this number.
    Number(u64),
    /// The newest that is at least so old.
    Ago(Duration),
}

/// The kept checkpoints of a state, oldest first.
///
/// # Errors
/// When they cannot be read.
pub fn list(state: &Path) -> Result<Vec<About>> {
    let older = state.join(OLDER);
    let entries = match fs::read_dir(&older) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(Error::file("cannot list", &older)(error)),
    };
    let mut all = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::file("cannot list", &older))?;
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(number) = number {
            match read_about(state, number) {
                Err(Error::File { source, .. }) if source.kind() == ErrorKind::NotFound => {} // just dropped
                about => all.push(about?),
            }
        }
    }
    all.sort_by_key(|about| about.number);
    Ok(all)
}

fn write_about(kept: &Path, about: &About) -> Result<()> {
    let text = serde_json::to_vec(about).map_err(|error| Error::Internal(error.to_string()))?;
    write_synced(&kept.join("about"), &text)?;
    sync(kept)
}

/// Keeps the newest checkpoint of a state whose program stands still at it. With it goes what its open files
/// hold, and what `also` hold now.
///
/// # Errors
/// When something cannot be copied; nothing is left of it then.
pub(crate) fn keep(state: &Path, durability: Durability, left: bool, also: &[OpenFile]) -> Result<About> {
    let older = state.join(OLDER);
    make_directory(&older)?;
    let unfinished = older.join(UNFINISHED);
    remove_all(&unfinished)?;
    let number = list(state)?.last().map_or(1, |last| last.number + 1);
    let made = make(state, &unfinished, durability, also, |about| {
        (about.number, about.left) = (number, left);
    });
    let made = made.and_then(|about| {
        let path = path_of(state, number);
        rustix::fs::renameat_with(CWD, &unfinished, CWD, &path, RenameFlags::NOREPLACE)
            .map_err(|error| Error::file("cannot make", &path)(error.into()))?;
        sync(&older)?;
        sync(state)?;
        Ok(about)
    });
    if made.is_err() {
        let _ = remove_all(&unfinished); // the first error is told
    }
    made
}

fn make(
    state: &Path,
    to: &Path,
    durability: Durability,
    also: &[OpenFile],
    finish: impl FnOnce(&mut About),
) -> Result<About> {
    let durable = durability.outlives_machine();
    make_directory(to)?;
    let (copy, kept_files) = (to.join("state"), to.join("files"));
    copy_directory(state, &copy, durable)?;
    // The program stands at the checkpoint: no change of its files came after it.
    files::forget(&copy, durable)?;
    let (_, epoch, bytes) = inspect::open(&copy, durability)?;
    let context = context::read(&bytes)?;
    make_directory(&kept_files)?;
    let mut about = About {
        number: 0,
        epoch,
        at_ns: context.clocks.realtime_ns,
        left: false,
        files: Vec::new(),
    };
    for open in context.live.files.iter().chain(also) {
        let known = about.files.iter().any(|kept| kept.file == open.file);
        if known || open.path.starts_with(state) {
            continue;
        }
        let Some(file) = same_file(open, OpenOptions::new().read(true))? else {
            continue; // going back to this one is refused: see `check_files`
        };
        let now = OpenFile::of(std::os::fd::AsFd::as_fd(&file))?;
        let kept = kept_files.join(about.files.len().to_string());
        copy_file(&open.path, &kept).map_err(Error::file("cannot copy", &open.path))?;
        if durable {
            sync(&kept)?;
        }
        about.files.push(now.unwrap_or_else(|| open.clone()));
    }
    finish(&mut about);
    sync(&kept_files)?;
    write_about(to, &about)?;
    Ok(about)
}

/// Drops the oldest kept checkpoints beyond `most`; those that a program was left at stay.
///
/// # Errors
/// When one cannot be removed.
pub(crate) fn drop_beyond(state: &Path, most: usize) -> Result<()> {
    let dropped = state.join(OLDER).join(DROPPED);
    remove_all(&dropped)?;
    let regular: Vec<About> = list(state)?.into_iter().filter(|about| !about.left).collect();
    let too_many = regular.len().saturating_sub(most);
    for about in &regular[..too_many] {
        let path = path_of(state, about.number);
        fs::rename(&path, &dropped).map_err(Error::file("cannot drop", &path))?;
        remove_all(&dropped)?;
    }
    Ok(())
}

/// A state at rest goes back to an older checkpoint: memory, and the files that the program had open for writing.
/// Its newest checkpoint is kept first. Returns the one it went to, and the number of the one it left.
///
/// # Errors
/// When there is no such checkpoint, the state is in use or damaged, or a file is no longer the one it was. Nothing
/// has changed then.
pub fn go_back(state: &Path, at: At) -> Result<(About, u64)> {
    let (directory, store, recovered) = StateDir::open(state)?;
    drop(store);
    let (path, durability) = (directory.path(), directory.durability());
    let kept = list(path)?;
    let wanted = choose(path, &kept, at)?;
    if let Some(Damage { what, at, why }) = inspect::check_older(path, wanted.number)?.into_iter().next() {
        return Err(Error::Damaged(format!("{what} at byte {at}: {why}")));
    }
    let (_, epoch, bytes) = inspect::open(&path_of(path, wanted.number).join("state"), durability)?;
    let context = context::read(&bytes)?;
    if epoch != wanted.epoch {
        return Err(Error::Damaged(format!(
            "{}: it holds epoch {epoch}, not {}",
            path_of(path, wanted.number).display(),
            wanted.epoch
        )));
    }
    check_files(wanted.number, &context.live.files, wanted, path)?;
    if recovered.epoch == 0 {
        return Err(Error::State(format!(
            "{}: no checkpoint to leave",
            path.display()
        )));
    }
    let newest = context::read(&recovered.context)?;
    newest.live.roll_back_files(path, recovered.epoch)?.tell();
    let same = |about: &&About| about.epoch == recovered.epoch && about.at_ns == newest.clocks.realtime_ns;
    let left = match kept.iter().rfind(same) {
        Some(about) => {
            write_about(
                &path_of(path, about.number),
                &About {
                    left: true,
                    ..about.clone()
                },
            )?;
            about.number
        }
        None => keep(path, durability, true, &wanted.files)?.number,
    };
    write_synced(&path.join(GOING_BACK), wanted.number.to_string().as_bytes())?;
    sync(path)?;
    put_in_place(path, wanted.number)?;
    Ok((wanted.clone(), left))
}

fn choose<'a>(state: &Path, kept: &'a [About], at: At) -> Result<&'a About> {
    let now = SystemTime::now();
    let found = match at {
        At::Number(number) => kept.iter().find(|about| about.number == number),
        At::Ago(age) => (kept.iter())
            .filter(|about| now.duration_since(about.time()).unwrap_or_default() >= age)
            .max_by_key(|about| about.at_ns),
    };
    found.ok_or_else(|| {
        let numbers: Vec<String> = kept.iter().map(|about| about.number.to_string()).collect();
        let there = match numbers.as_slice() {
            [] => "none is kept; twinpage run --keep N keeps some".into(),
            numbers => format!("kept are {}; twinpage info shows them", numbers.join(", ")),
        };
        Error::State(format!(
            "{} has no such older checkpoint: {there}",
            state.display()
        ))
    })
}

/// All files that the program had open for writing are still there, and their content is kept.
fn check_files(number: u64, open: &[OpenFile], about: &About, state: &Path) -> Result<()> {
    let outside = open.iter().filter(|open| !open.path.starts_with(state));
    for file in outside.chain(&about.files) {
        let is_kept = about.files.iter().any(|kept| kept.file == file.file);
        if !is_kept || same_file(file, OpenOptions::new().read(true).write(true))?.is_none() {
            return Err(gone(number, file));
        }
    }
    Ok(())
}

fn make_directory(path: &Path) -> Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(Error::file("cannot make the directory", path))
}
