//! A medium that is plain memory: what a crash left, to recover from, or a quick store for tests.

use crate::error::{Error, Result};
use crate::medium::{Medium, Offset};
use std::io::ErrorKind::UnexpectedEof;
use std::ops::Range;

/// Bytes in memory. Every write is durable at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    bytes: Vec<u8>,
    atom: usize,
    limit: u64,
}

impl Image {
    /// Nothing yet, on a medium that tears at `atom` bytes.
    #[must_use]
    pub fn new(atom: usize) -> Image {
        Image::from_bytes(Vec::new(), atom)
    }

    /// These bytes.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>, atom: usize) -> Image {
        Image {
            bytes,
            atom,
            limit: u64::MAX,
        }
    }

    /// Refuses to grow past `limit` bytes: a fixed medium, or a full disk.
    #[must_use]
    pub fn limited(mut self, limit: u64) -> Image {
        self.set_limit(limit);
        self
    }

    /// Changes what [`Image::limited`] set.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Its content.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its content, to damage it.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Where `len` bytes at `at` lie, if they do.
    fn range(&self, at: Offset, len: usize) -> Result<Range<usize>> {
        match usize::try_from(at)
            .ok()
            .and_then(|start| Some(start..start.checked_add(len)?))
        {
            Some(range) if range.end <= self.bytes.len() => Ok(range),
            _ => Err(Error::Io {
                what: format!("reach {len} bytes of an image of {}", self.bytes.len()),
                at,
                source: UnexpectedEof.into(),
            }),
        }
    }
}

impl Medium for Image {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn grow(&mut self, len: u64) -> Result<()> {
        if len > self.limit {
            return Err(Error::Full {
                what: "the image".into(),
                needed: len - self.len(),
            });
        }
        if len > self.len() {
            self.bytes.resize(len as usize, 0);
        }
        Ok(())
    }

    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        into.copy_from_slice(&self.bytes[self.range(at, into.len())?]);
        Ok(())
    }

    fn view(&self, at: Offset, len: usize) -> Option<&[u8]> {
        self.range(at, len).ok().map(|range| &self.bytes[range])
    }

    fn write(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        let range = self.range(at, bytes.len())?;
        self.bytes[range].copy_from_slice(bytes);
        Ok(())
    }

    fn discard(&mut self, range: Range<Offset>) -> Result<()> {
        let range = self.range(range.start, (range.end - range.start) as usize)?;
        self.bytes[range].fill(0);
        Ok(())
    }

    fn fence(&mut self) -> Result<()> {
        Ok(())
    }

    fn atom(&self) -> usize {
        self.atom
    }
}
