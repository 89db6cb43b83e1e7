//! Where a process is in the tree: proc_pid_stat(5).

use twinpage_os::proc_file;

/// Whether a process, or its main thread alone, ended and was not waited for.
pub(super) fn has_ended(pid: i32) -> bool {
    Place::of(pid).is_some_and(|place| place.state == b'Z')
}

/// Whether a process ended, and may have been waited for.
pub(super) fn is_over(pid: i32) -> bool {
    Place::of(pid).is_none_or(|place| place.state == b'Z')
}

/// Where a process is in the tree: proc_pid_stat(5).
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) state: u8,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    pub(super) foreground: i32,
    pub(super) exit_signal: i32,
    /// It ended, and left a core dump.
    pub(super) dumped: bool,
}

impl Place {
    /// `None` when it is gone.
    pub(super) fn of(pid: i32) -> Option<Place> {
        let stat = proc_file::read(format!("/proc/{pid}/stat")).ok()?;
        // The name is in brackets and may hold any byte.
        let after_name = stat.iter().rposition(|byte| *byte == b')')?;
        Place::parse(std::str::from_utf8(&stat[after_name + 1..]).ok()?)
    }

    fn parse(text: &str) -> Option<Place> {
        const CORE: i32 = 0x80;
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        // Fields are numbered from 1; the first word is the third.
        let number = |field: usize| words.get(field - 3)?.parse::<i32>().ok();
        Some(Place {
            state: *words.first()?.as_bytes().first()?,
            parent: number(4)?,
            group: number(5)?,
            session: number(6)?,
            foreground: number(8)?,
            exit_signal: number(38)?,
            dumped: number(52)? & CORE != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_understood() {
        let own = Place::of(std::process::id() as i32).unwrap();
        assert_eq!((own.exit_signal, own.dumped), (libc::SIGCHLD, false));
        let line = " Z 7 8 9 0 10 4228100 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 139";
        let place = Place::parse(line).unwrap();
        assert_eq!((place.state, place.parent, place.group), (b'Z', 7, 8));
        assert_eq!((place.session, place.foreground, place.exit_signal), (9, 10, 17));
        assert!(place.dumped && Place::parse(" Z 7").is_none());
    }
}
