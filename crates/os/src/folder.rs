//! The folder that a file is in.

use std::fs::File;
use std::io;
use std::path::Path;

/// The folder that the file of a name is in: of a bare name, the one that this process works in.
#[must_use]
pub fn folder_of(name: &Path) -> &Path {
    let folder = name.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Makes the names in the folder of a file durable: fsync(2).
///
/// # Errors
/// What the system says.
pub fn sync_folder_of(name: &Path) -> io::Result<()> {
    File::open(folder_of(name))?.sync_all()
}
