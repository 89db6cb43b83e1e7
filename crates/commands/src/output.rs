//! Standard output, and files that a command writes.
//!
//! * An output that takes nothing, as on a full disk, is an error of the command, where std answers with a panic: std's
//!   macros have these in their place.
//! * A file is written whole or not at all.

use crate::FAILED;
use serde::Serialize;
use std::fmt::Arguments;
use std::io::Write;
use std::path::Path;
use twinpage_os::messages;

/// As std's, but an output that takes nothing ends the command.
#[macro_export]
macro_rules! print {
    ($($text:tt)*) => { $crate::output::print(format_args!($($text)*)) };
}

/// As std's, but an output that takes nothing ends the command.
#[macro_export]
macro_rules! println {
    () => { $crate::output::print(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints, or says why that is not possible and ends the process.
pub fn print(text: Arguments<'_>) {
    if let Err(error) = std::io::stdout().write_fmt(text) {
        messages::tell(&format!("cannot write to standard output: {error}"));
        std::process::exit(FAILED.into());
    }
}

/// Puts a text into a file, whole or not at all: what the file held stays where the disk is full. A pipe or a device takes
/// the text as it is.
///
/// # Errors
/// The file that cannot be written, and why.
pub fn write_whole(path: &Path, text: &str) -> Result<(), String> {
    let told = |why: std::io::Error| format!("{}: {why}", path.display());
    // A link is followed: it stays one.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if path.metadata().is_ok_and(|there| !there.is_file()) {
        return std::fs::write(path, text).map_err(told);
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}.part", std::process::id()));
    let unfinished = Path::new(&unfinished);
    std::fs::write(unfinished, text)
        .and_then(|()| std::fs::rename(unfinished, path))
        .map_err(|why| {
            let _ = std::fs::remove_file(unfinished); // half a text is none
            told(why)
        })
}

/// The folder for what a command finds is there and takes files: told before it works for hours.
///
/// # Errors
/// The folder, and why it does not.
pub fn make_folder(folder: &Path) -> Result<(), String> {
    let told = |why: std::io::Error| format!("{}: {why}", folder.display());
    std::fs::create_dir_all(folder).map_err(told)?;
    let probe = folder.join(format!(".{}.part", std::process::id()));
    std::fs::write(&probe, "")
        .and_then(|()| std::fs::remove_file(&probe))
        .map_err(told)
}

/// Prints one JSON document.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn print_json(document: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string(document).map_err(|why| why.to_string())?;
    println!("{text}");
    Ok(())
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
        write_whole(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write_whole(&link, "new").unwrap();
        assert_eq!(read(), "new");
        assert!(link.is_symlink());
        // The place for the unfinished file is taken, so that nothing can be written.
        let part = folder
            .path()
            .join(format!("dpc.json.{}.part", std::process::id()));
        std::fs::create_dir(&part).unwrap();
        let why = write_whole(&path, "newer").unwrap_err();
        assert!(why.contains("dpc.json: "), "{why}");
        assert_eq!(read(), "new");
        std::fs::remove_dir(&part).unwrap();
        assert!(write_whole(Path::new("/dev/full"), "text").is_err());
        write_whole(Path::new("/dev/null"), "text").unwrap();
        let file = path.join("folder");
        assert!(make_folder(&file).is_err(), "a file is no folder");
        make_folder(&folder.path().join("a/b")).unwrap();
        assert_eq!(std::fs::read_dir(folder.path().join("a/b")).unwrap().count(), 0);
    }
}
