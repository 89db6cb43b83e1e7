//! inotify(7): which files are watched, and how they are watched again.
//!
//! * The kernel tells inodes (proc_pid_fdinfo(5)); under which name each was watched is known from the calls.
//! * Watches are numbered one after the other. A resume makes those that are gone, too, and removes them.
//! * What happened and was not read cannot be looked at without being taken: the checkpoint waits until it is read.
//! * A watched file that lost its last name is there as long as the checkpoint before the removal needs it, which the kernel
//!   ends. So it is captured without a name, and gone after a resume: that is told then.

use super::tables::split;
use super::{Descriptor, Descriptors, Held, fdinfo};
use crate::command_line::command_of;
use crate::error::{Error, Result};
use crate::files::Ident;
use rustix::fs::MemfdFlags;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use twinpage_os::name;
use twinpage_os::remote::{self, Process};

/// A file that is watched.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Watch {
    /// The watch's number.
    pub number: i32,
    /// Where the file is; empty when it lost its last name.
    #[serde(with = "crate::path_bytes")]
    pub path: PathBuf,
    /// What of it is told, `IN_*`.
    pub mask: u32,
}

/// What calls said of watches.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Where watched files were, when a call named them.
    names: HashMap<Ident, PathBuf>,
    /// Those that lost their last name.
    nameless: HashSet<Ident>,
    /// The highest number that a call gave, by process and descriptor.
    highest: HashMap<(i32, i32), i32>,
}

impl Descriptors {
    /// A file is watched: its name, and the number that the watch has in this descriptor of this process. Descriptors that
    /// share it know the number, too: the process may end before the next stop.
    pub fn watches(&mut self, file: Ident, name: PathBuf, descriptor: (i32, i32), number: i32) {
        self.watched.names.insert(file, name);
        self.watched.nameless.remove(&file);
        self.watched.highest.entry(descriptor).or_default();
        for (place, highest) in &mut self.watched.highest {
            let shares = || remote::order_of_open_files(*place, descriptor);
            if *place == descriptor || shares().is_ok_and(|order| order == Ordering::Equal) {
                *highest = number.max(*highest);
            }
        }
    }

    /// Takes note of what a resume watched again; `process_of` says which process has a table.
    pub(super) fn watch_again(
        &mut self,
        list: &[Descriptor],
        held: &[Held],
        process_of: impl Fn(usize) -> i32,
    ) {
        self.watched.highest = highest_numbers(list.iter(), held, |number| {
            let (table, fd) = split(number);
            (process_of(table), fd)
        });
        for held in held {
            let Held::Watches { watches, .. } = held else {
                continue;
            };
            for watch in watches {
                if let Ok(stat) = rustix::fs::stat(&watch.path) {
                    self.watched.names.insert(Ident::from(&stat), watch.path.clone());
                }
            }
        }
    }

    /// Takes note of watched files that are `nameless` now.
    pub(crate) fn note_nameless(&mut self, nameless: impl Fn(Ident) -> bool) {
        let watched = self.watched.names.keys().copied();
        self.watched
            .nameless
            .extend(watched.filter(|file| nameless(*file)));
    }

    /// What a descriptor watches.
    pub(super) fn watched_by(&self, first: &Process, descriptor: &Descriptor) -> Result<Held> {
        let (owner, fd) = self.tables.at(first, descriptor.fd);
        let looked = look(owner, fd, &self.watched).map_err(|error| match error {
            Error::NotYet(why) if owner.pid() != first.pid() => {
                let (pid, command) = (owner.pid(), command_of(owner.pid()));
                Error::NotYet(format!("process {pid} ({command}): {why}"))
            }
            error => error,
        })?;
        let same = self.list.values().filter(|other| other.shares == descriptor.fd);
        let given = same.filter_map(|other| self.watched.highest.get(&self.holder(first, other.fd)).copied());
        let there = looked.last().map(|watch| watch.number);
        let highest = given.chain(there).max().unwrap_or(0);
        Ok(Held::Watches {
            watches: looked,
            highest,
        })
    }

    /// Takes note of the highest numbers that a stop found; those of descriptors that are closed are forgotten.
    pub(super) fn note_highest(&mut self, first: &Process, held: &[Held]) {
        self.watched.highest = highest_numbers(self.list.values(), held, |number| self.holder(first, number));
    }

    /// A process that has a descriptor, and the descriptor's number there.
    fn holder(&self, first: &Process, number: i32) -> (i32, i32) {
        let (owner, fd) = self.tables.at(first, number);
        (owner.pid(), fd)
    }
}

/// The highest number given at each descriptor that watches. Those that share one have the same, so that any of them may
/// be closed.
fn highest_numbers<'a>(
    list: impl Iterator<Item = &'a Descriptor> + Clone,
    held: &[Held],
    holder: impl Fn(i32) -> (i32, i32),
) -> HashMap<(i32, i32), i32> {
    let watching = list
        .clone()
        .zip(held)
        .filter_map(|(descriptor, held)| match held {
            Held::Watches { highest, .. } => Some((descriptor.shares, *highest)),
            _ => None,
        });
    let given: HashMap<i32, i32> = watching.collect();
    if given.is_empty() {
        return HashMap::new();
    }
    list.filter_map(|one| Some((holder(one.fd), *given.get(&one.shares)?)))
        .collect()
}

/// The watches of a descriptor, by number.
fn look(process: &Process, fd: i32, known: &Known) -> Result<Vec<Watch>> {
    let ours = process
        .duplicate_fd(fd)
        .map_err(|source| Error::target("cannot look at a descriptor of inotify", source))?;
    let unread = rustix::io::ioctl_fionread(&ours);
    if unread.is_ok_and(|bytes| bytes > 0) {
        return Err(Error::NotYet(format!(
            "descriptor {fd} has news of watched files (inotify), which are captured once they are read"
        )));
    }
    let info = fdinfo(process.thread(), fd)?;
    let mut watches = Vec::new();
    for line in info.lines().filter(|line| line.starts_with("inotify ")) {
        let (number, file, mask) = parse(line).ok_or_else(|| {
            Error::Internal(format!("a watch of descriptor {fd} is not understood: {line}"))
        })?;
        // Some file systems show another device here than stat(2).
        let is_nameless = || known.nameless.iter().any(|nameless| nameless.ino == file.ino);
        let path = match name_of(file, &known.names) {
            Some(path) => path,
            None if is_nameless() => PathBuf::new(),
            None => {
                return Err(Error::NotYet(format!(
                    "descriptor {fd} watches a file (inode {}) that has another name now, or none",
                    file.ino
                )));
            }
        };
        watches.push(Watch { number, path, mask });
    }
    watches.sort_unstable_by_key(|watch| watch.number);
    Ok(watches)
}

/// The name that still leads to a file.
fn name_of(file: Ident, names: &HashMap<Ident, PathBuf>) -> Option<PathBuf> {
    let leads_there = |path: &PathBuf| rustix::fs::stat(path).is_ok_and(|stat| stat.st_ino == file.ino);
    let by_inode = || {
        names
            .iter()
            .find(|(known, path)| known.ino == file.ino && leads_there(path))
    };
    let known = names.get(&file).filter(|path| leads_there(path));
    known.or_else(|| by_inode().map(|(_, path)| path)).cloned()
}

/// `inotify wd:3 ino:9e7e sdev:800013 mask:800afce ignored_mask:0 ...`: all are hexadecimal, and the device is major and
/// minor in 12 and 20 bits.
fn parse(line: &str) -> Option<(i32, Ident, u32)> {
    let field = |name: &str| {
        let mut words = line.split_whitespace();
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix(':'))
    };
    let number = |name: &str| u32::from_str_radix(field(name)?, 16).ok();
    let device = number("sdev")?;
    let file = Ident {
        dev: rustix::fs::makedev(device >> 20, device & 0xf_ffff),
        ino: u64::from_str_radix(field("ino")?, 16).ok()?,
    };
    Some((number("wd")?.try_into().ok()?, file, number("mask")?))
}

/// A descriptor that watches the same, under the same numbers, and tells nothing but the end of files without a name.
///
/// # Errors
/// Names a file that is not there any more.
pub(crate) fn make(watches: &[Watch], highest: i32) -> Result<OwnedFd> {
    const MOST: i32 = 1 << 24;
    let failed = |error: Errno| Error::target("cannot make a descriptor of inotify", error.into());
    if highest > MOST || watches.iter().any(|watch| watch.number > MOST) {
        return Err(Error::Damaged(format!(
            "context: a watch of a number beyond {MOST}"
        )));
    }
    let made = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(failed)?;
    let other = rustix::fs::memfd_create("unwatched", MemfdFlags::CLOEXEC).map_err(failed)?;
    let other = name::of_open(&other);
    let watch = |path: &Path, mask| inotify::add_watch(&made, path, WatchFlags::from_bits_retain(mask));
    // Gives the numbers between, and takes them back.
    let pass_over = |numbers: Range<i32>| {
        numbers.into_iter().try_for_each(|_| {
            let number = watch(&other, libc::IN_ATTRIB)?;
            inotify::remove_watch(&made, number)
        })
    };
    let mut next = 1;
    let mut nameless = Vec::new();
    for Watch { number, path, mask } in watches {
        pass_over(next..*number).map_err(failed)?;
        let wanted = if path.as_os_str().is_empty() {
            let ends = rustix::fs::memfd_create("nameless", MemfdFlags::CLOEXEC).map_err(failed)?;
            // The end of a watch is told in any case, and that of a file to those that asked.
            let of_its_end = *mask & libc::IN_DELETE_SELF | libc::IN_MOVE_SELF;
            let wanted = watch(&name::of_open(&ends), of_its_end);
            nameless.push(ends);
            wanted
        } else {
            watch(path, *mask)
        };
        let wanted = wanted.map_err(|error| {
            let path = path.display();
            Error::State(format!(
                "{path}: the program watched it (inotify), and it cannot be watched now ({error}): put it back to resume"
            ))
        })?;
        if wanted != *number {
            let why = format!("context: a file has watch {wanted}, and watch {number} as well");
            return Err(Error::Damaged(why));
        }
        next = number + 1;
    }
    pass_over(next..highest.saturating_add(1)).map_err(failed)?;
    take_all(&made).map_err(failed)?;
    drop(nameless); // that is told
    Ok(made)
}

/// Takes out what is told of the watches that were removed.
fn take_all(made: &OwnedFd) -> rustix::io::Result<()> {
    let mut told = [0; 4096];
    loop {
        match rustix::io::read(made, &mut told) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn watches_are_made_again_under_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let watch = |number, path: &Path| Watch {
            number,
            path: path.to_owned(),
            mask: libc::IN_CREATE | libc::IN_ONLYDIR,
        };
        let inside = folder.path().join("inside");
        std::fs::create_dir(&inside).unwrap();
        let watches = [watch(3, folder.path()), watch(700, &inside)];
        let made = make(&watches, 702).unwrap();
        let process = Process::open(std::process::id() as i32).unwrap();
        let ident = |path| Ident::from(&rustix::fs::stat(path).unwrap());
        let names = watches
            .iter()
            .map(|watch| (ident(&watch.path), watch.path.clone()));
        let known = Known {
            names: names.collect(),
            ..Known::default()
        };
        let found = look(&process, made.as_raw_fd(), &known).unwrap();
        let numbers: Vec<_> = found.iter().map(|one| (one.number, &one.path)).collect();
        assert_eq!(numbers, [(3, &folder.path().to_owned()), (700, &inside)]);
        assert!(found.iter().all(|one| one.mask & libc::IN_CREATE != 0));
        std::fs::write(inside.join("new"), "").unwrap();
        let unread = look(&process, made.as_raw_fd(), &known).unwrap_err();
        assert!(matches!(unread, Error::NotYet(_)), "{unread}");
        let next = inotify::add_watch(&made, "/", WatchFlags::ATTRIB).unwrap();
        assert_eq!(next, 703);
        assert!(make(&[watch(1, &folder.path().join("none"))], 1).is_err());
    }

    #[test]
    fn the_end_of_a_file_without_a_name_is_told_where_it_is_watched_again() {
        let watch = |number, mask| Watch {
            number,
            path: PathBuf::new(),
            mask,
        };
        let watches = [
            watch(2, libc::IN_DELETE_SELF | libc::IN_MODIFY),
            watch(4, libc::IN_MODIFY),
        ];
        let made = make(&watches, 4).unwrap();
        let mut told = [0; 4096];
        let len = rustix::io::read(&made, &mut told).unwrap();
        let word = |event: &[u8], at| u32::from_ne_bytes(event[at..at + 4].try_into().unwrap());
        let events: Vec<_> = told[..len]
            .chunks(16)
            .map(|event| (word(event, 0), word(event, 4)))
            .collect();
        assert_eq!(
            events,
            [
                (2, libc::IN_DELETE_SELF),
                (2, libc::IN_IGNORED),
                (4, libc::IN_IGNORED)
            ]
        );
    }
}
