//! A medium that counts what is written to it by cause.

use crate::error::{Error, Result};
use crate::medium::{Cause, Medium, Offset, Path};
use crate::scheme::Traffic;
use std::cell::Cell;

/// A medium and the bytes written to it since it was opened, by the cause that was last named.
#[derive(Debug)]
pub struct Metered<M> {
    medium: M,
    cause: Cell<Cause>,
    path: Cell<Path>,
    traffic: Traffic,
}

impl<M: Medium> Metered<M> {
    pub(super) fn new(medium: M) -> Metered<M> {
        Metered {
            medium,
            cause: Cell::new(Cause::Journal),
            path: Cell::new(Path::Critical),
            traffic: Traffic::default(),
        }
    }

    pub(super) fn inner(&self) -> &M {
        &self.medium
    }

    pub(super) fn into_inner(self) -> M {
        self.medium
    }

    pub(super) fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// What follows is for `cause`.
    pub(super) fn on(&self, cause: Cause) {
        self.cause.set(cause);
        self.medium.hint(cause, self.path.get());
    }

    /// Who waits for what follows.
    pub(super) fn waits(&self, path: Path) {
        self.path.set(path);
        self.medium.hint(self.cause.get(), path);
    }

    /// So many bytes of volatile memory were read or written.
    pub(super) fn touch(&self, bytes: usize) {
        self.medium.touch(bytes);
    }

    pub(super) fn len(&self) -> u64 {
        self.medium.len()
    }

    pub(super) fn grow(&mut self, len: u64) -> Result<()> {
        self.medium.grow(len)
    }

    pub(super) fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        self.medium.read(at, into)
    }

    pub(super) fn view(&self, at: Offset, len: usize) -> Option<&[u8]> {
        self.medium.view(at, len)
    }

    pub(super) fn write(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        self.medium.write(at, bytes)?;
        self.traffic.add(self.cause.get(), bytes.len());
        Ok(())
    }

    /// Posts a write for another cause than what goes on.
    pub(super) fn write_aside(&mut self, cause: Cause, at: Offset, bytes: &[u8]) -> Result<()> {
        let before = self.cause.get();
        self.on(cause);
        let written = self.write(at, bytes);
        self.on(before);
        written
    }

    /// Everything posted is durable. A failure is for good, even one that says there is no room:
    /// nobody knows what is on the medium now.
    pub(super) fn fence(&mut self) -> Result<()> {
        self.medium
            .fence()
            .map_err(|error| Error::Poisoned(error.to_string()))
    }
}
