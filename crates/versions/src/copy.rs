//! A copy of an array's file.

use crate::error::Result;
use std::fs::File;
use std::path::Path;
use twinpage_core::Error;
use twinpage_os::{Draft, Lock};

/// Copies the locked file `from`, which stands still, to a new one, durably. Its name may lead to another by now, or to none.
pub(crate) fn copy(from: &Path, lock: Option<&Lock>, to: &Path) -> Result<()> {
    let none = || Error::Invalid(format!("{} is in no file of its own", from.display()));
    let locked = lock.ok_or_else(none)?.path();
    let exists = || {
        let why = format!("{} exists: an array is copied to a new file only", to.display());
        crate::error::Error::from(Error::Invalid(why))
    };
    if to.exists() {
        return Err(exists());
    }
    let failed = |source| Error::Io {
        what: format!("copying {} to {}", from.display(), to.display()),
        at: 0,
        source,
    };
    let make = |at: &Path| Ok::<_, crate::error::Error>(File::create_new(at).map_err(failed)?);
    let (draft, _) = Draft::make(to, make)?;
    std::fs::copy(locked, draft.path()).map_err(failed)?;
    File::open(draft.path())
        .and_then(|file| file.sync_all())
        .map_err(failed)?;
    match draft.name(to)? {
        true => Ok(()),
        false => Err(exists()),
    }
}
