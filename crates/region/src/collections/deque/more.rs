//! Searching in a ring, keeping a part of it, and bytes that go in at one end and come out at the other.

use super::VecDeque;
use crate::heap::HeapError;
use std::cmp::Ordering;
use std::io;

impl<'r, T> VecDeque<'r, T> {
    /// Where a value is in a ring that is sorted, or else where it would be put.
    ///
    /// # Errors
    /// It is not there.
    pub fn binary_search(&self, value: &T) -> Result<usize, usize>
    where
        T: Ord,
    {
        self.binary_search_by(|other| other.cmp(value))
    }

    /// As [`VecDeque::binary_search`], by a function that compares a value with what is looked for.
    ///
    /// # Errors
    /// It is not there.
    pub fn binary_search_by(&self, mut compare: impl FnMut(&T) -> Ordering) -> Result<usize, usize> {
        let (front, back) = self.as_slices();
        match back.first().map(&mut compare) {
            Some(Ordering::Equal) => Ok(front.len()),
            Some(Ordering::Less) => {
                let found = back.binary_search_by(compare);
                found.map(|at| at + front.len()).map_err(|at| at + front.len())
            }
            _ => front.binary_search_by(compare),
        }
    }

    /// As [`VecDeque::binary_search`], in a ring that is sorted by a key.
    ///
    /// # Errors
    /// It is not there.
    pub fn binary_search_by_key<K: Ord>(
        &self,
        wanted: &K,
        mut key: impl FnMut(&T) -> K,
    ) -> Result<usize, usize> {
        self.binary_search_by(|value| key(value).cmp(wanted))
    }

    /// How many values `is_before` says yes to, in a ring that has those first.
    #[must_use]
    pub fn partition_point(&self, mut is_before: impl FnMut(&T) -> bool) -> usize {
        let (front, back) = self.as_slices();
        match back.first().is_some_and(&mut is_before) {
            true => back.partition_point(is_before) + front.len(),
            false => front.partition_point(is_before),
        }
    }

    /// The first value, taken out if `test` says so.
    pub fn pop_front_if(&mut self, test: impl FnOnce(&mut T) -> bool) -> Option<T> {
        if test(self.front_mut()?) {
            self.pop_front()
        } else {
            None
        }
    }

    /// The last value, taken out if `test` says so.
    pub fn pop_back_if(&mut self, test: impl FnOnce(&mut T) -> bool) -> Option<T> {
        if test(self.back_mut()?) {
            self.pop_back()
        } else {
            None
        }
    }

    /// As [`VecDeque::retain`], and `keep` may change the values; all are marked as written.
    pub fn retain_mut(&mut self, mut keep: impl FnMut(&mut T) -> bool) {
        let (length, mut kept) = (self.length, 0);
        for index in 0..length {
            if !keep(&mut self[index]) {
                continue;
            }
            if kept != index {
                self.swap(kept, index);
            }
            kept += 1;
        }
        self.truncate(kept);
    }

    /// Makes room for `additional` more values and no more.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn reserve_exact(&mut self, additional: usize) {
        if let Err(error) = self.try_reserve_exact(additional) {
            panic!("{error}");
        }
    }

    /// As [`VecDeque::reserve_exact`].
    ///
    /// # Errors
    /// [`HeapError`] when there is no memory; nothing has changed then.
    pub fn try_reserve_exact(&mut self, additional: usize) -> Result<(), HeapError> {
        if additional <= self.room - self.length {
            return Ok(());
        }
        match self.length.checked_add(additional) {
            Some(room) if Self::BYTES > 0 => self.move_to(room),
            _ => Err(HeapError::TooLarge {
                bytes: additional as u64,
            }),
        }
    }

    /// Gives back the room past `capacity` values, or past those there are.
    ///
    /// # Panics
    /// When there is no memory for a smaller block.
    #[track_caller]
    pub fn shrink_to(&mut self, capacity: usize) {
        let room = self.length.max(capacity);
        if Self::BYTES > 0
            && room < self.room
            && let Err(error) = self.move_to(room)
        {
            panic!("{error}");
        }
    }
}

impl io::Read for VecDeque<'_, u8> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.length.min(into.len());
        let (front, back) = self.slices(0..count);
        into[..front.len()].copy_from_slice(front);
        into[front.len()..count].copy_from_slice(back);
        (self.head, self.length) = (self.place(count), self.length - count);
        Ok(count)
    }
}

impl io::Write for VecDeque<'_, u8> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.try_reserve(bytes.len()) {
            Ok(()) => self.extend(bytes),
            Err(error) => return Err(io::Error::new(io::ErrorKind::OutOfMemory, error)),
        }
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
