//! Which descriptors are one open file: open(2), dup(2).
//!
//! * An open file is named by its lowest descriptor.
//! * The open files of one file are ordered by kcmp(2), so that one of thousands is found in a few steps.

use crate::error::{Error, Result};
use crate::files::Ident;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};

/// Open files and their descriptors.
#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    /// The file of each descriptor.
    files: HashMap<i32, Ident>,
    /// The open files of each file, in the order of kcmp(2).
    by_file: HashMap<Ident, Vec<i32>>,
    /// The descriptors of an open file that has several, but the lowest.
    others: HashMap<i32, BTreeSet<i32>>,
}

impl OpenFiles {
    /// Adds a descriptor, and gives the lowest of its open file. `place` has a thread and the number there.
    pub(super) fn add(&mut self, place: impl Fn(i32) -> (i32, i32), fd: i32, file: Ident) -> Result<i32> {
        let known = self.by_file.entry(file).or_default();
        let (mut low, mut high) = (0, known.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let lowest = known[middle];
            let order =
                twinpage_os::remote::order_of_open_files(place(lowest), place(fd)).map_err(|source| {
                    Error::target(
                        "cannot compare descriptors (the kernel needs CONFIG_KCMP)",
                        source,
                    )
                })?;
            match order {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => {
                    let (lowest, other) = (lowest.min(fd), lowest.max(fd));
                    let mut others = self.others.remove(&known[middle]).unwrap_or_default();
                    others.insert(other);
                    self.others.insert(lowest, others);
                    known[middle] = lowest;
                    self.files.insert(fd, file);
                    return Ok(lowest);
                }
            }
        }
        known.insert(low, fd);
        self.files.insert(fd, file);
        Ok(fd)
    }

    /// Adds a descriptor that is known to be of the open file `lowest`, which has a lower number.
    pub(super) fn join(&mut self, fd: i32, lowest: i32, file: Ident) {
        self.others.entry(lowest).or_default().insert(fd);
        self.files.insert(fd, file);
    }

    /// Adds the lowest descriptor of an open file that only untouched processes have, so that no other will be found to be one.
    pub(super) fn keep(&mut self, fd: i32, file: Ident) {
        self.files.insert(fd, file);
    }

    /// Removes a descriptor of the open file `lowest`. When it was the lowest, and others are left, the new
    /// lowest is given.
    pub(super) fn remove(&mut self, fd: i32, lowest: i32) -> Option<i32> {
        let file = self.files.remove(&fd)?;
        if fd != lowest {
            let others = self.others.get_mut(&lowest)?;
            others.remove(&fd);
            if others.is_empty() {
                self.others.remove(&lowest);
            }
            return None;
        }
        let mut others = self.others.remove(&fd).unwrap_or_default();
        let next = others.pop_first();
        if let Some(next) = next
            && !others.is_empty()
        {
            self.others.insert(next, others);
        }
        let known = self.by_file.get_mut(&file)?;
        let at = known.iter().position(|known| *known == fd)?;
        match next {
            Some(next) => known[at] = next,
            None => {
                known.remove(at);
                if known.is_empty() {
                    self.by_file.remove(&file);
                }
            }
        }
        next
    }

    /// The descriptors of the open file `lowest`, but itself.
    pub(super) fn others(&self, lowest: i32) -> impl Iterator<Item = i32> {
        self.others.get(&lowest).into_iter().flatten().copied()
    }

    /// The lowest descriptors of the open files of a file.
    pub(super) fn of(&self, file: Ident) -> &[i32] {
        self.by_file.get(&file).map_or(&[], Vec::as_slice)
    }

    /// The file of a descriptor.
    pub(super) fn file(&self, fd: i32) -> Option<Ident> {
        self.files.get(&fd).copied()
    }

    /// All descriptors of a file.
    pub(super) fn descriptors(&self, file: Ident) -> impl Iterator<Item = i32> {
        let lowest = self.of(file).iter().copied();
        lowest.flat_map(|lowest| std::iter::once(lowest).chain(self.others(lowest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn the_lowest_names_an_open_file_whatever_comes_and_goes() {
        let own = |fd| (std::process::id() as i32, fd);
        let [one, other] = [(); 2].map(|()| File::open("/proc/self/exe").unwrap());
        let file = Ident::from(&rustix::fs::fstat(&one).unwrap());
        let copies: Vec<File> = (0..3).map(|_| one.try_clone().unwrap()).collect();
        let [first, second, third] = [0, 1, 2].map(|index: usize| copies[index].as_raw_fd());
        let mut numbers = [one.as_raw_fd(), first, second, third];
        numbers.sort_unstable();
        let [lowest, next, ..] = numbers;
        let mut open = OpenFiles::default();
        assert_eq!(open.add(own, other.as_raw_fd(), file).unwrap(), other.as_raw_fd());
        for (count, fd) in numbers.iter().rev().enumerate() {
            let expected = numbers[3 - count];
            assert_eq!(open.add(own, *fd, file).unwrap(), expected);
            assert_eq!(open.others(expected).count(), count);
        }
        assert_eq!((open.of(file).len(), open.descriptors(file).count()), (2, 5));
        assert_eq!(open.remove(numbers[3], lowest), None);
        assert_eq!(open.remove(lowest, lowest), Some(next));
        assert_eq!(open.others(next).collect::<Vec<_>>(), [numbers[2]]);
        assert_eq!(open.remove(next, next), Some(numbers[2]));
        assert_eq!(open.remove(numbers[2], numbers[2]), None);
        assert_eq!(open.of(file), [other.as_raw_fd()]);
        assert_eq!(open.file(lowest), None);
        assert_eq!(open.remove(other.as_raw_fd(), other.as_raw_fd()), None);
        assert!(open.by_file.is_empty() && open.files.is_empty() && open.others.is_empty());
    }
}
