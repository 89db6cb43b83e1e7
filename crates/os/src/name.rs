//! Names of files: given to what is whole, and what they say of the medium behind them.

use crate::any::Durability;
use rustix::fs::{CWD, RenameFlags, StatFs, renameat_with, statfs};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::Path;

/// File systems in memory: statfs(2).
const TMPFS: u32 = 0x0102_1994;
const RAMFS: u32 = 0x8584_58f6;

/// What a file at `path`, which is there, will outlive by itself.
///
/// # Errors
/// What the system says of the path.
pub fn durability_of(path: &Path) -> io::Result<Durability> {
    let StatFs { f_type, .. } = statfs(path)?;
    Ok(match f_type as u32 {
        TMPFS | RAMFS => Durability::Memory,
        _ => Durability::Disk,
    })
}

/// Gives the file `draft` the name `name` in the same directory, durably; false when there is such a
/// file already. See rename(2), `RENAME_NOREPLACE`.
///
/// # Errors
/// What the system says.
pub fn give(draft: &Path, name: &Path) -> io::Result<bool> {
    match renameat_with(CWD, draft, CWD, name, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(false),
        // A file system that cannot: a link is refused as well where the name is taken.
        Err(Errno::INVAL | Errno::NOSYS) => match std::fs::hard_link(draft, name) {
            Ok(()) => std::fs::remove_file(draft)?,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(e) => return Err(e),
        },
        Err(e) => return Err(e.into()),
    }
    let folder = name.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_given_once() {
        let folder = tempfile::tempdir().unwrap();
        let [draft, name] = ["draft", "name"].map(|name| folder.path().join(name));
        std::fs::write(&draft, "1").unwrap();
        assert!(give(&draft, &name).unwrap());
        std::fs::write(&draft, "2").unwrap();
        assert!(!give(&draft, &name).unwrap());
        assert_eq!(std::fs::read_to_string(name).unwrap(), "1");
    }

    #[test]
    fn file_systems_in_memory_are_known() {
        assert_eq!(durability_of(Path::new("/dev/shm")).unwrap(), Durability::Memory);
        assert!(durability_of(Path::new("/nowhere")).is_err());
    }
}
