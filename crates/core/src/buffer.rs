//! A large byte buffer a source can fill without zeroing it first.
//!
//! * It begins on a page boundary, so that whole pages land on whole pages. A system call that fills a page takes two to
//!   four times as long where that begins 16 bytes after a boundary, as the memory of a long `Vec` does (AMD EPYC).
//! * Clearing keeps the memory; [`Buffer::append`] hands out bytes that still hold what they held.
//! * Growing allocates zeroed memory lazily and copies only the used part.
//! * It may begin in memory that its maker chose ([`Buffer::within`]), which it leaves for
//!   memory of its own when it grows out of it.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// The alignment of the first byte.
const ALIGN: usize = 4096;

/// Memory that a buffer may lie in.
pub trait Storage: Send {
    /// The memory, always the same.
    fn bytes(&self) -> &[u8];
    /// The same, to be written.
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl Storage for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// Growable, page-aligned bytes.
pub struct Buffer {
    memory: Box<dyn Storage>,
    start: usize,
    end: usize,
    used: usize,
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer::within(Box::new(Vec::new()))
    }
}

impl Buffer {
    /// An empty buffer in `memory`.
    #[must_use]
    pub fn within(memory: Box<dyn Storage>) -> Buffer {
        let (bytes, len) = (memory.bytes(), memory.bytes().len());
        let start = bytes.as_ptr().align_offset(ALIGN).min(len);
        Buffer {
            memory,
            start,
            end: len,
            used: 0,
        }
    }

    /// Holds nothing, keeps the memory.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Keeps the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.used = self.used.min(len);
    }

    /// Room for `len` bytes in all without another allocation.
    pub fn reserve(&mut self, len: usize) {
        if len <= self.capacity() {
            return;
        }
        let wanted = len.max(2 * self.capacity()).next_multiple_of(ALIGN);
        let mut larger = Buffer::within(Box::new(vec![0; wanted + ALIGN]));
        larger.used = self.used;
        larger.copy_from_slice(self);
        *self = larger;
    }

    /// Bytes it can hold without another allocation.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.end - self.start
    }

    /// Appends `more` bytes and returns them to be filled. They hold whatever was there.
    pub fn append(&mut self, more: usize) -> &mut [u8] {
        let old = self.used;
        self.reserve(old + more);
        self.used += more;
        &mut self[old..]
    }

    /// Appends a copy of `bytes`.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.append(bytes.len()).copy_from_slice(bytes);
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory.bytes()[self.start..self.start + self.used]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory.bytes_mut()[self.start..self.start + self.used]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.used, self.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_it_holds_while_it_grows() {
        let mut buffer = Buffer::default();
        assert!(buffer.is_empty());
        for byte in 0..200 {
            buffer.append(100).fill(byte);
            assert_eq!(buffer.as_ptr().align_offset(ALIGN), 0);
        }
        assert_eq!(buffer.len(), 20_000);
        assert!(
            buffer
                .chunks(100)
                .zip(0..)
                .all(|(chunk, byte)| chunk.iter().all(|&b| b == byte))
        );
    }

    #[test]
    fn clearing_keeps_the_memory() {
        let mut buffer = Buffer::default();
        buffer.extend_from_slice(&[7; 5000]);
        let (place, capacity) = (buffer.as_ptr(), buffer.capacity());
        buffer.clear();
        assert_eq!(buffer.append(5000), [7; 5000], "not zeroed in between");
        assert_eq!((buffer.as_ptr(), buffer.capacity()), (place, capacity));
        buffer.truncate(3);
        assert_eq!(*buffer, [7; 3]);
    }
}
