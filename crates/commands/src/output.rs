//! Standard output, and folders for results. An output that takes nothing, as on a full disk, is an error of the command,
//! where std answers with a panic: std's macros have these in their place.

use crate::FAILED;
use clap::Parser;
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
    std::io::stdout().write_fmt(text).unwrap_or_else(|why| fail(&why));
}

fn fail(why: &std::io::Error) -> ! {
    messages::tell(&format!("cannot write to standard output: {why}"));
    std::process::exit(FAILED.into())
}

/// What the command was asked for. Help is printed instead, or what is wrong with the request, and the process ends.
#[must_use]
pub fn parse<T: Parser>() -> T {
    T::try_parse().unwrap_or_else(|told| {
        twinpage_os::signals::end_when_nobody_reads();
        told.print().unwrap_or_else(|why| fail(&why));
        std::process::exit(told.exit_code())
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
    fn a_folder_is_made_and_takes_files() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(make_folder(&file.join("folder")).is_err(), "a file is no folder");
        let folder = scratch.path().join("a/b");
        make_folder(&folder).unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    }
}
