//! Standard output. One that takes nothing, as on a full disk, is an error of the command, which std answers with a panic:
//! so std's macros have these in their place.

use crate::FAILED;
use serde::Serialize;
use std::fmt::Arguments;
use std::io::Write;
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

/// Prints one JSON document.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn print_json(document: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string(document).map_err(|why| why.to_string())?;
    println!("{text}");
    Ok(())
}
