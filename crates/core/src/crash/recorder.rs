//! A medium that remembers everything it was asked to do.
//!
//! The fault model it stands for: writes, growth and discards since the last fence reach the medium
//! in any subset, each write torn at most at the atom. A discard not fenced may or may not have
//! zeroed its bytes; a discard that is fenced has done what a read then showed.

use super::image::Image;
use super::random::Random;
use crate::error::Result;
use crate::medium::{Medium, Offset};
use crate::scheme::Epoch;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// A request to a medium, or a note of its origin.
#[derive(Clone, Debug)]
pub enum Op {
    /// [`Medium::write`].
    Write {
        /// Where.
        at: Offset,
        /// What.
        bytes: Vec<u8>,
    },
    /// [`Medium::grow`], to this length.
    Grow(u64),
    /// [`Medium::discard`], and whether reads show zeros since.
    Discard(Range<Offset>, bool),
    /// [`Medium::fence`].
    Fence,
    /// A commit of this epoch begins: from now on recovery may find it.
    Committing(Epoch),
    /// The commit was reported durable: from now on recovery must find it.
    Durable(Epoch),
}

/// What a [`Recorder`] recorded.
pub type Log = Rc<RefCell<Vec<Op>>>;

/// A medium in memory, with a log of all that was done to it.
#[derive(Debug)]
pub struct Recorder {
    image: Image,
    log: Log,
    coin: Random,
}

impl Recorder {
    /// On top of `image`.
    #[must_use]
    pub fn new(image: Image) -> Recorder {
        Recorder {
            image,
            log: Log::default(),
            coin: Random::new(0),
        }
    }

    /// The log, also when the recorder has gone into a scheme.
    #[must_use]
    pub fn log(&self) -> Log {
        Rc::clone(&self.log)
    }

    /// The content of the medium.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }

    fn record(&self, op: Op) {
        self.log.borrow_mut().push(op);
    }
}

impl Medium for Recorder {
    fn len(&self) -> u64 {
        self.image.len()
    }

    fn grow(&mut self, len: u64) -> Result<()> {
        let had = self.image.len();
        self.image.grow(len)?;
        if len > had {
            self.record(Op::Grow(len));
        }
        Ok(())
    }

    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        self.image.read(at, into)
    }

    fn view(&self, at: Offset, len: usize) -> Option<&[u8]> {
        self.image.view(at, len)
    }

    fn write(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        self.image.write(at, bytes)?;
        self.record(Op::Write {
            at,
            bytes: bytes.to_vec(),
        });
        Ok(())
    }

    fn discard(&mut self, range: Range<Offset>) -> Result<()> {
        let zeroed = self.coin.once_in(2);
        if zeroed {
            self.image.discard(range.clone())?;
        }
        self.record(Op::Discard(range, zeroed));
        Ok(())
    }

    fn fence(&mut self) -> Result<()> {
        self.record(Op::Fence);
        Ok(())
    }

    fn atom(&self) -> usize {
        self.image.atom()
    }
}
