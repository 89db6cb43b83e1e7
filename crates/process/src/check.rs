//! Whether a state is as it was written, with the older checkpoints that it keeps.

use crate::error::Result;
use crate::going_back;
use crate::inspect::{Checked, check_locked, check_older, damage_of};
use crate::older;
use crate::state::{Kind, lock_to_read};
use std::path::Path;

/// Reads everything there is in a state, also in its older checkpoints, and verifies every checksum, also those of the
/// lines of pages, which a state on a disk has and one in a memory file has not.
///
/// # Errors
/// When there is no state, it is in use or of another version, or the system refuses to read it.
pub fn check(path: &Path) -> Result<Checked> {
    let mut checked = Checked::default();
    match Kind::read(path) {
        Ok(kind) => {
            checked.version = Some(kind.version);
            checked.durability = Some(kind.durability);
        }
        Err(error) => {
            checked.damage.push(damage_of(error)?);
            return Ok(checked);
        }
    }
    let _lock = lock_to_read(path)?;
    going_back::not_going_back(path)?;
    if let Err(error) = check_locked(path, &mut checked) {
        checked.damage.push(damage_of(error)?);
    }
    match older::list(path) {
        Ok(kept) => {
            for about in kept {
                checked.damage.extend(check_older(path, about.number)?);
            }
        }
        Err(error) => checked.damage.push(damage_of(error)?),
    }
    Ok(checked)
}
