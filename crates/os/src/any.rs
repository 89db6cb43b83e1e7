//! A medium chosen at run time.

use crate::{Access, FileMedium, MemoryMedium};
use std::ops::Range;
use std::path::Path;
use twinpage_core::{Geometry, Medium, Offset, Result};

/// What a checkpoint must outlive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// The death of the program and of the machine: a file on a disk.
    Disk,
    /// The death of the program: a file in memory.
    Memory,
}

impl Durability {
    /// How such a medium is best cut.
    #[must_use]
    pub fn geometry(self) -> Geometry {
        match self {
            Durability::Disk => Geometry::DISK,
            Durability::Memory => Geometry::MEMORY,
        }
    }
}

/// A file on a disk or in memory.
#[derive(Debug)]
pub enum AnyMedium {
    /// On a disk.
    File(FileMedium),
    /// In memory.
    Memory(MemoryMedium),
}

impl AnyMedium {
    /// Makes a new, empty file that only its owner can read.
    ///
    /// # Errors
    /// As [`FileMedium::create`] and [`MemoryMedium::create`].
    pub fn create(path: impl AsRef<Path>, durability: Durability) -> Result<AnyMedium> {
        Ok(match durability {
            Durability::Disk => AnyMedium::File(FileMedium::create(path)?),
            Durability::Memory => AnyMedium::Memory(MemoryMedium::create(path)?),
        })
    }

    /// Opens a file that is there. For looking only, either kind is read as a file.
    ///
    /// # Errors
    /// As [`FileMedium::open`] and [`MemoryMedium::open`].
    pub fn open(path: impl AsRef<Path>, durability: Durability, access: Access) -> Result<AnyMedium> {
        Ok(match (durability, access) {
            (Durability::Memory, Access::ReadWrite) => AnyMedium::Memory(MemoryMedium::open(path)?),
            _ => AnyMedium::File(FileMedium::open(path, access)?),
        })
    }

    /// Bytes written to the system since the file was opened.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        match self {
            AnyMedium::File(medium) => medium.written_bytes(),
            AnyMedium::Memory(medium) => medium.written_bytes(),
        }
    }
}

/// The same call on whichever it is.
macro_rules! on {
    ($self:expr, $medium:ident => $call:expr) => {
        match $self {
            AnyMedium::File($medium) => $call,
            AnyMedium::Memory($medium) => $call,
        }
    };
}

impl Medium for AnyMedium {
    fn len(&self) -> u64 {
        on!(self, medium => medium.len())
    }

    fn grow(&mut self, len: u64) -> Result<()> {
        on!(self, medium => medium.grow(len))
    }

    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        on!(self, medium => medium.read(at, into))
    }

    fn view(&self, at: Offset, len: usize) -> Option<&[u8]> {
        on!(self, medium => medium.view(at, len))
    }

    fn write(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        on!(self, medium => medium.write(at, bytes))
    }

    fn discard(&mut self, range: Range<Offset>) -> Result<()> {
        on!(self, medium => medium.discard(range))
    }

    fn fence(&mut self) -> Result<()> {
        on!(self, medium => medium.fence())
    }

    fn atom(&self) -> usize {
        on!(self, medium => medium.atom())
    }
}
