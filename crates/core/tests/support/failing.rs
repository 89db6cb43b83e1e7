//! A medium that fails once, at a chosen operation: with no room, or for good.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use twinpage_core::crash::Image;
use twinpage_core::{Error, Medium, Offset, Result};

/// How the medium fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// A write or growth finds no room; later ones do.
    Full,
    /// So does the handing over of writes, where a file system gives room no sooner.
    #[allow(dead_code, reason = "the baselines have no answer to it")]
    FullLate,
    /// A write, a discard or a fence fails.
    Io,
}

/// Fails at operation `left`, counted down.
#[derive(Debug)]
pub(crate) struct Failing {
    image: Image,
    failure: Failure,
    left: Rc<Cell<i64>>,
    failed: Cell<bool>,
    /// Writes since they were last handed over.
    waiting: u64,
}

impl Failing {
    /// An empty medium, and the number of operations until it fails, which begins far away.
    pub(crate) fn new(failure: Failure) -> (Failing, Rc<Cell<i64>>) {
        let left = Rc::new(Cell::new(i64::MAX));
        let medium = Failing {
            image: Image::new(8),
            failure,
            left: Rc::clone(&left),
            failed: Cell::new(false),
            waiting: 0,
        };
        (medium, left)
    }

    /// The same bytes on a medium that no longer fails.
    pub(crate) fn healed(self) -> Failing {
        Failing {
            image: self.image,
            ..Failing::new(self.failure).0
        }
    }

    /// An operation that can fail in `ways`.
    fn count(&self, ways: &[Failure]) -> Result<()> {
        if self.failed.get() && self.failure == Failure::Io {
            return Err(Error::poisoned(Error::Invalid("fail on purpose".into())));
        }
        if !ways.contains(&self.failure) {
            return Ok(());
        }
        self.left.set(self.left.get() - 1);
        if self.left.get() != -1 {
            return Ok(());
        }
        self.failed.set(true);
        Err(match self.failure {
            Failure::Full | Failure::FullLate => Error::Full {
                what: "the test".into(),
                needed: 1,
            },
            Failure::Io => Error::Io {
                what: "fail on purpose".into(),
                at: 0,
                source: std::io::Error::other("test"),
            },
        })
    }
}

impl Medium for Failing {
    fn len(&self) -> u64 {
        self.image.len()
    }
    fn grow(&mut self, len: u64) -> Result<()> {
        self.count(&[Failure::Full, Failure::Io])?;
        self.image.grow(len)
    }
    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        self.image.read(at, into)
    }
    fn write(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        self.waiting += 1;
        if let Err(error) = self.count(&[Failure::Full, Failure::Io]) {
            // Half of it went through, in whole atoms.
            self.image.write(at, &bytes[..bytes.len() / 16 * 8])?;
            return Err(error);
        }
        self.image.write(at, bytes)
    }
    fn discard(&mut self, range: Range<Offset>) -> Result<()> {
        self.count(&[Failure::Io])?;
        self.image.discard(range)
    }
    fn hand_over(&mut self) -> Result<()> {
        self.count(&[Failure::FullLate])?;
        self.waiting = 0;
        Ok(())
    }
    fn fence(&mut self) -> Result<()> {
        self.count(&[Failure::Io])?;
        // One write alone, that of a record, is where records were before: it has its room.
        match self.waiting {
            0..=1 => self.waiting = 0,
            _ => self.hand_over()?,
        }
        Ok(())
    }
    fn atom(&self) -> usize {
        8
    }
}
