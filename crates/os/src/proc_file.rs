//! Files of proc(5): read in as few calls as there may be, and their lines of a name and a value.
//!
//! Their length is not known before they are read, so the standard library begins with small pieces, each of which the
//! kernel makes all of the file for.

use rustix::fs::{Mode, OFlags};
use std::io;
use std::path::Path;

/// More than most have.
const ROOM: usize = 4 << 10;

/// All of a file.
///
/// # Errors
/// When it is not there, as that of a process that is gone.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let file = rustix::fs::open(path.as_ref(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = Vec::with_capacity(ROOM);
    loop {
        match rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes)) {
            Ok(0) => return Ok(bytes),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if bytes.len() == bytes.capacity() {
            bytes.reserve(bytes.len());
        }
    }
}

/// The same, as text. The name of a thread may be cut inside a letter, which is replaced then.
///
/// # Errors
/// The same.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    let bytes = read(path)?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// What follows a name and a colon on the first line that begins so, without space around it.
#[must_use]
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

/// The same of a set of bits in hexadecimal.
#[must_use]
pub fn mask(text: &str, name: &str) -> Option<u64> {
    u64::from_str_radix(field(text, name)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_any_length_are_read_whole() {
        let maps = std::fs::read("/proc/self/smaps").unwrap();
        assert!(maps.len() > ROOM && read("/proc/self/smaps").unwrap().len() > ROOM);
        let own = text("/proc/self/status").unwrap();
        assert_eq!(field(&own, "Pid"), Some(&*std::process::id().to_string()));
        assert!(mask(&own, "SigCgt").is_some() && field(&own, "Nothing").is_none());
        let gone = read("/proc/0/status").unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
