//! Files of proc(5): read in as few calls as there may be, and their lines of a name and a value.
//!
//! Their length is not known before they are read, so the standard library begins with small pieces, each of which the
//! kernel makes all of the file for.
//!
//! * A process that cannot be looked at would be taken for one that is gone: a descriptor is held in reserve for when all
//!   others are taken.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

/// More than most have.
const ROOM: usize = 4 << 10;

/// All of a file.
///
/// # Errors
/// When it is not there, as that of a process that is gone.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let reserve = &*RESERVE; // made before the others are taken
    match read_now(path.as_ref()) {
        Err(Errno::MFILE) => {
            let mut reserve = reserve.lock().unwrap_or_else(PoisonError::into_inner);
            drop(reserve.take());
            let bytes = read_now(path.as_ref());
            *reserve = spare();
            bytes
        }
        bytes => bytes,
    }
    .map_err(io::Error::from)
}

/// The descriptor in reserve, which stands for no file.
static RESERVE: LazyLock<Mutex<Option<OwnedFd>>> = LazyLock::new(|| Mutex::new(spare()));

fn spare() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).ok()
}

fn read_now(path: &Path) -> Result<Vec<u8>, Errno> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = Vec::with_capacity(ROOM);
    loop {
        match rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes)) {
            Ok(0) => return Ok(bytes),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
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
    read(path).map(into_text)
}

/// The text of a file that stays open, as it is now.
///
/// # Errors
/// The same.
pub fn text_of(file: &File) -> io::Result<String> {
    let mut bytes = Vec::with_capacity(ROOM);
    loop {
        let at = bytes.len() as u64;
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut bytes), at)? {
            0 => return Ok(into_text(bytes)),
            _ => bytes.reserve(1),
        }
    }
}

fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
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

    /// In a process of its own: the limit is one of a process.
    #[test]
    fn they_are_read_when_all_descriptors_are_taken() {
        const CHILD: &str = "TWINPAGE_TAKES_ALL_DESCRIPTORS";
        let name = "proc_file::tests::they_are_read_when_all_descriptors_are_taken";
        if std::env::var_os(CHILD).is_none() {
            let test = std::env::current_exe().unwrap();
            let mut child = std::process::Command::new(test);
            child.args(["--exact", name]).env(CHILD, "");
            assert!(child.status().unwrap().success());
            return;
        }
        read("/proc/self/stat").unwrap();
        let limit = rustix::process::Resource::Nofile;
        let mut few = rustix::process::getrlimit(limit);
        few.current = Some(40);
        rustix::process::setrlimit(limit, few).unwrap();
        let taken: Vec<OwnedFd> = std::iter::from_fn(spare).collect();
        assert!(std::fs::File::open("/proc/self/stat").is_err());
        for _ in 0..3 {
            read("/proc/self/stat").unwrap();
        }
        drop(taken);
    }
}
