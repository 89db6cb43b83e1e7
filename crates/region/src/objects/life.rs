//! An object as its handles know it, from its opening until it is freed.
//!
//! * A handle looks before each call, which is one load of a line that is not written until then. A call that was made while
//!   another thread frees the object is appended too late and not run: an instant one fails, `sync` tells of another.

use crate::error::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Debug)]
pub(super) struct Life {
    name: String,
    is_freed: AtomicBool,
    /// When it was called last, by the clock of the objects.
    called: AtomicU64,
}

impl Life {
    pub(super) fn new(name: &str) -> Life {
        Life {
            name: name.to_owned(),
            is_freed: AtomicBool::new(false),
            called: AtomicU64::new(0),
        }
    }

    /// The name of the object.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn called(&self) -> u64 {
        self.called.load(Ordering::Relaxed)
    }

    pub(super) fn set_called(&self, now: u64) {
        self.called.store(now, Ordering::Relaxed);
    }

    /// Refuses a call of an object that was freed.
    #[inline]
    pub(super) fn check(&self) -> Result<()> {
        match self.is_freed.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(freed(&self.name)),
        }
    }

    /// No more calls are taken; or they are again, as the freeing failed.
    pub(super) fn set_freed(&self, is_freed: bool) {
        self.is_freed.store(is_freed, Ordering::Relaxed);
    }
}

#[cold]
pub(super) fn freed(object: &str) -> Error {
    Error::Freed {
        object: object.to_owned(),
    }
}
