//! A medium chosen at run time.

use crate::dax::DaxMedium;
use crate::dax::is_dax;
use crate::file::FileMedium;
use crate::file::{create_private, open_regular, sync_name};
use crate::health::Access;
use crate::health::refused;
use crate::memory::MemoryMedium;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use twinpage_core::{Flush, Geometry, LineMask, Medium, Offset, PageLines, Result};

/// What a checkpoint must outlive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// The death of the program and of the machine: a file on a disk, or on persistent memory where the
    /// file lies on some.
    Disk,
    /// The death of the program: a file in memory.
    Memory,
    /// As [`Durability::Disk`], on persistent memory and nothing else.
    Dax,
}

impl Durability {
    /// Whether a checkpoint must outlive the machine.
    #[must_use]
    pub fn outlives_machine(self) -> bool {
        self != Durability::Memory
    }
}

/// A file on a disk, in memory or on persistent memory.
#[derive(Debug)]
pub enum AnyMedium {
    /// On a disk.
    File(FileMedium),
    /// In memory.
    Memory(MemoryMedium),
    /// On persistent memory.
    Dax(DaxMedium),
}

impl AnyMedium {
    /// Makes a new, empty file that only its owner can read. Whether it lies on persistent memory is
    /// found by looking.
    ///
    /// # Errors
    /// As [`FileMedium::create`], [`MemoryMedium::create`] and [`DaxMedium::create`].
    pub fn create(path: impl AsRef<Path>, durability: Durability) -> Result<AnyMedium> {
        let path = path.as_ref();
        Ok(match durability {
            Durability::Disk => {
                let file = create_private(path)?;
                sync_name(path)?;
                AnyMedium::outliving(file, path)?
            }
            Durability::Memory => AnyMedium::Memory(MemoryMedium::create(path)?),
            Durability::Dax => AnyMedium::Dax(DaxMedium::create(path)?),
        })
    }

    /// Opens a file that is there. For looking only, every kind is read as a file.
    ///
    /// # Errors
    /// As [`FileMedium::open`], [`MemoryMedium::open`] and [`DaxMedium::open`].
    pub fn open(path: impl AsRef<Path>, durability: Durability, access: Access) -> Result<AnyMedium> {
        let path = path.as_ref();
        Ok(match (durability, access) {
            (_, Access::ReadOnly) => AnyMedium::File(FileMedium::open(path, access)?),
            (Durability::Disk, _) => AnyMedium::outliving(open_regular(path, access)?, path)?,
            (Durability::Memory, _) => AnyMedium::Memory(MemoryMedium::open(path)?),
            (Durability::Dax, _) => AnyMedium::Dax(DaxMedium::open(path)?),
        })
    }

    /// What outlives the machine where this file lies.
    fn outliving(file: File, path: &Path) -> Result<AnyMedium> {
        let on_dax = is_dax(&file).map_err(|e| refused("looking at the file system of", path, 0, e))?;
        Ok(if on_dax {
            AnyMedium::Dax(DaxMedium::over(file, path)?)
        } else {
            AnyMedium::File(FileMedium::over(file, path, Access::ReadWrite)?)
        })
    }

    /// As [`FileMedium::rename`].
    pub fn rename(&mut self, path: &Path) {
        match self {
            AnyMedium::File(medium) => medium.rename(path),
            AnyMedium::Memory(medium) => medium.rename(path),
            AnyMedium::Dax(medium) => medium.rename(path),
        }
    }

    /// How such a medium is best cut.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        match self {
            AnyMedium::File(_) => Geometry::DISK,
            AnyMedium::Memory(_) | AnyMedium::Dax(_) => Geometry::MEMORY,
        }
    }

    /// Bytes written to the system since the file was opened.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        match self {
            AnyMedium::File(medium) => medium.written_bytes(),
            AnyMedium::Memory(medium) => medium.written_bytes(),
            AnyMedium::Dax(medium) => medium.written_bytes(),
        }
    }
}

/// The same call on whichever it is.
macro_rules! on {
    ($self:expr, $medium:ident => $call:expr) => {
        match $self {
            AnyMedium::File($medium) => $call,
            AnyMedium::Memory($medium) => $call,
            AnyMedium::Dax($medium) => $call,
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

    fn write_lines(&mut self, page_at: Offset, chosen: LineMask, from: &PageLines<'_>) -> Result<()> {
        on!(self, medium => medium.write_lines(page_at, chosen, from))
    }

    fn discard(&mut self, range: Range<Offset>) -> Result<()> {
        on!(self, medium => medium.discard(range))
    }

    fn hand_over(&mut self) -> Result<()> {
        on!(self, medium => medium.hand_over())
    }

    fn fence(&mut self) -> Result<()> {
        on!(self, medium => medium.fence())
    }

    fn begin_fence(&mut self) -> Result<Option<Arc<dyn Flush>>> {
        on!(self, medium => medium.begin_fence())
    }

    fn end_fence(&mut self, flushed: io::Result<()>) -> Result<()> {
        on!(self, medium => medium.end_fence(flushed))
    }

    fn atom(&self) -> usize {
        on!(self, medium => medium.atom())
    }
}
