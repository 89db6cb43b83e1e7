//! Files of results: written whole or not at all.

use std::path::{Path, PathBuf};

/// Puts a text into a file, whole or not at all: what the file held stays where the disk is full. A pipe or a device takes
/// the text as it is.
///
/// # Errors
/// The file that cannot be written, and why.
pub fn write(path: &Path, text: &str) -> Result<(), String> {
    // A link is followed: it stays one.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let written = match unfinished(path) {
        None => std::fs::write(path, text),
        Some(unfinished) => std::fs::write(&unfinished, text)
            .and_then(|()| std::fs::rename(&unfinished, path))
            .inspect_err(|_| {
                let _ = std::fs::remove_file(&unfinished); // half a text is none
            }),
    };
    written.map_err(|why| format!("{}: {why}", path.display()))
}

/// Whether a text can be put there, asked before a long run; what is there stays as it is.
///
/// # Errors
/// As [`write`].
pub fn check(path: &Path) -> Result<(), String> {
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if path.is_dir() {
        return Err(format!("{}: is a folder", path.display()));
    }
    let Some(unfinished) = unfinished(path) else {
        return Ok(());
    };
    std::fs::write(&unfinished, "")
        .and_then(|()| std::fs::remove_file(&unfinished))
        .map_err(|why| format!("{}: {why}", path.display()))
}

/// Where a text is until it is whole; `None` of a pipe or a device, which takes it as it comes.
fn unfinished(path: &Path) -> Option<PathBuf> {
    if path
        .metadata()
        .is_ok_and(|there| !there.is_file() && !there.is_dir())
    {
        return None;
    }
    Some(part_of(path))
}

/// The name of a file that this process has not finished, beside the one it will have.
#[must_use]
pub fn part_of(path: &Path) -> PathBuf {
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    part.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_whole_or_stays_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dpc.json");
        let link = folder.path().join("link.json");
        let read = || std::fs::read_to_string(&path).unwrap();
        write(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write(&link, "new").unwrap();
        assert_eq!(read(), "new");
        assert!(link.is_symlink());
        // The place for the unfinished file is taken, so that nothing can be written.
        let part = folder
            .path()
            .join(format!("dpc.json.{}.part", std::process::id()));
        std::fs::create_dir(&part).unwrap();
        let why = write(&path, "newer").unwrap_err();
        assert!(why.contains("dpc.json: "), "{why}");
        assert_eq!(check(&path).unwrap_err(), why);
        assert_eq!(read(), "new");
        std::fs::remove_dir(&part).unwrap();
        check(&path).unwrap();
        assert_eq!(read(), "new");
        assert!(
            write(folder.path(), "text").is_err() && check(folder.path()).is_err(),
            "a folder"
        );
        assert!(write(Path::new("/dev/full"), "text").is_err());
        write(Path::new("/dev/null"), "text").unwrap();
    }
}
