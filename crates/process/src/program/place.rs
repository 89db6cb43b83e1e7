//! Where a process is in the tree.

use twinpage_os::stat::Stat;

/// Whether a process, or its main thread alone, ended and was not waited for.
pub(super) fn has_ended(pid: i32) -> bool {
    Stat::of(pid).is_ok_and(|stat| stat.state() == Some('Z'))
}

/// Whether a process ended, and may have been waited for.
pub(super) fn is_over(pid: i32) -> bool {
    Stat::of(pid).map_or(true, |stat| stat.state() == Some('Z'))
}

/// Where a process is in the tree, and whether it lives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) state: char,
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
        Place::told_by(&Stat::of(pid).ok()?)
    }

    fn told_by(stat: &Stat) -> Option<Place> {
        const CORE: i32 = 0x80;
        Some(Place {
            state: stat.state()?,
            parent: stat.field(4)?,
            group: stat.field(5)?,
            session: stat.field(6)?,
            foreground: stat.field(8)?,
            exit_signal: stat.field(38)?,
            dumped: stat.field::<i32>(52)? & CORE != 0,
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
        let line = b"5 (it) Z 7 8 9 0 10 4228100 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 139";
        let place = Place::told_by(&Stat::parse(line)).unwrap();
        assert_eq!((place.state, place.parent, place.group), ('Z', 7, 8));
        assert_eq!((place.session, place.foreground, place.exit_signal), (9, 10, 17));
        assert!(place.dumped && Place::told_by(&Stat::parse(b"5 (it) Z 7")).is_none());
    }
}
