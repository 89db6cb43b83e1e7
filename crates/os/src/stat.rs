//! `/proc/ID/stat` of a process or a thread: proc_pid_stat(5).
//!
//! * The name is in brackets and may hold any byte, a bracket too: the fields behind it begin at the last one.

use crate::proc_file;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::str::FromStr;

/// More than any has.
const ROOM: usize = 1024;
/// Fields are numbered from 1; this is the first behind the name.
const STATE: usize = 3;

/// The fields behind the name.
#[derive(Default)]
pub struct Stat(String);

impl Stat {
    /// That of a process or a thread.
    ///
    /// # Errors
    /// When it is gone.
    pub fn of(id: i32) -> io::Result<Stat> {
        proc_file::read(format!("/proc/{id}/stat")).map(|bytes| Stat::parse(&bytes))
    }

    /// That of the process which an open file belongs to, as it is now.
    ///
    /// # Errors
    /// `ESRCH` when it is gone.
    pub fn of_open(file: &File) -> io::Result<Stat> {
        let mut bytes = [0; ROOM];
        let length = file.read_at(&mut bytes, 0)?;
        Ok(Stat::parse(&bytes[..length]))
    }

    /// What such a file holds.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Stat {
        let name_end = bytes.iter().rposition(|byte| *byte == b')');
        let fields = name_end.map_or(&[][..], |end| &bytes[end + 1..]);
        Stat(String::from_utf8_lossy(fields).into_owned())
    }

    /// A field by its number in the manual, from the state's (3) on.
    ///
    /// # Panics
    /// When the number is that of a field before the state.
    #[must_use]
    pub fn field<T: FromStr>(&self, number: usize) -> Option<T> {
        self.0.split_ascii_whitespace().nth(number - STATE)?.parse().ok()
    }

    /// Its state: `R` runs, `S` sleeps, `T` is stopped, `Z` has ended.
    #[must_use]
    pub fn state(&self) -> Option<char> {
        self.field(STATE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let stat = Stat::parse(b"7 (a) Z 9\xff) T 1 70 5\n");
        assert_eq!(stat.state(), Some('T'));
        assert_eq!((stat.field(4), stat.field(5)), (Some(1), Some(70)));
        assert_eq!((stat.field::<i32>(7), Stat::parse(b"").state()), (None, None));
        let own = Stat::of(std::process::id() as i32).unwrap();
        assert_eq!(own.field(4), Some(std::os::unix::process::parent_id()));
    }
}
