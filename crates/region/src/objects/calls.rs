//! What a handle does.

use super::host::{Object, Returned, encode};
use super::life::Life;
use super::server::Objects;
use super::thread::{Next, next, returned};
use crate::error::{Error, Result};
use serde::Serialize;
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// Makes calls of an object's methods: what is in its handle.
#[doc(hidden)]
pub struct Calls<T> {
    objects: Arc<Objects>,
    /// The number of the object's definition.
    object: u16,
    life: Arc<Life>,
    of: PhantomData<fn(T)>,
}

impl<T> Clone for Calls<T> {
    fn clone(&self) -> Calls<T> {
        Calls {
            objects: self.objects.clone(),
            life: self.life.clone(),
            ..*self
        }
    }
}

impl<T> fmt::Debug for Calls<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, object {}", self.objects, self.object)
    }
}

impl<T: Object> Calls<T> {
    pub(super) fn new(objects: Arc<Objects>, object: u16, life: Arc<Life>) -> Calls<T> {
        Calls {
            objects,
            object,
            life,
            of: PhantomData,
        }
    }

    /// Logs a call of a deferrable method.
    ///
    /// # Panics
    /// When the region is closed or the object was freed, when the arguments are too long or cannot be serialized, and when
    /// the log and the medium are full: nothing was logged then.
    #[track_caller]
    pub fn defer(&self, function: u16, lane: Option<usize>, arguments: &impl Serialize) {
        let lane = lane.map(|lane| lane as u64);
        let logged = encode(arguments, |bytes| {
            self.life.check()?;
            match next(&self.objects, self.object, function, lane, bytes)? {
                Next::Made(thread) => self.objects.defer(thread, self.object, function, lane, bytes),
                Next::Known(_) => Ok(()),
            }
        });
        match logged {
            // A medium that failed: all later instant calls say so.
            Ok(_) | Err(Error::Poisoned(_)) => {}
            Err(error) => panic!("{}: {error}", T::FUNCTIONS[usize::from(function)].signature),
        }
    }

    /// Logs a call of an instant method, runs all that waits, then it.
    ///
    /// # Errors
    /// [`Error::Panicked`] when the method panics; [`Error::Poisoned`] when the medium has failed; [`Error::Full`] when it
    /// has no room, and the call will not run; [`Error::Freed`] when the object was freed; [`Error::Invalid`] inside an
    /// update, when the region is closed, and for arguments that are too long or cannot be serialized.
    pub fn instant<R: Returned>(
        &self,
        function: u16,
        lane: Option<usize>,
        arguments: &impl Serialize,
    ) -> Result<R> {
        let lane = lane.map(|lane| lane as u64);
        encode(arguments, |bytes| {
            self.life.check()?;
            match next(&self.objects, self.object, function, lane, bytes)? {
                Next::Made(thread) => {
                    let outcome = self.objects.instant(thread, self.object, function, lane, bytes)?;
                    Ok(answer(outcome))
                }
                Next::Known(progress) => match returned(&progress)? {
                    Ok(value) => Ok(value),
                    Err(why) => Err(self.objects.panicked_before(self.object, function, why)),
                },
            }
        })
    }

    /// Runs all that waits, then a method that changes nothing, and so is not logged, but for a thread with a name.
    ///
    /// # Errors
    /// As [`Calls::instant`].
    pub fn read<R: Returned>(&self, function: u16, arguments: &impl Serialize) -> Result<R> {
        if Next::is_of_named() {
            return self.instant(function, None, arguments);
        }
        self.life.check()?;
        let call = |bytes: &[u8]| self.objects.read(self.object, function, bytes);
        Ok(answer(encode(arguments, call)?))
    }

    /// Makes all calls so far durable and runs them.
    ///
    /// # Errors
    /// As [`Calls::instant`]; [`Error::Panicked`] tells of the first deferrable method that panicked since the last
    /// time.
    pub fn sync(&self) -> Result<()> {
        self.objects.sync_and_tell()
    }
}

/// What the macro put into the box.
fn answer<R: Any>(outcome: super::Outcome) -> R {
    let value = outcome.and_then(|value| value.downcast::<R>().ok());
    *value.expect("an instant operation returns what its handle promises")
}
