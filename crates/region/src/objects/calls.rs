//! What a handle does.

use super::Objects;
use super::function::{Arguments, Returned, encode};
use super::host::Object;
use super::life::Life;
use super::remote::Remote;
use super::thread::{Next, next, returned};
use crate::error::{Error, Result};
use serde::Serialize;
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

/// Makes calls of an object's methods: what is in its handle.
#[doc(hidden)]
pub struct Calls<T> {
    way: Way,
    of: PhantomData<fn(T)>,
}

/// Where calls are made.
#[derive(Clone)]
enum Way {
    /// In the region, which this process has open.
    Here(Here),
    /// In the process that has the region open.
    There(Arc<Remote>),
}

#[derive(Clone)]
struct Here {
    objects: Arc<Objects>,
    /// The number of the object's definition.
    object: u16,
    life: Arc<Life>,
}

impl<T> Clone for Calls<T> {
    fn clone(&self) -> Calls<T> {
        Calls {
            way: self.way.clone(),
            of: PhantomData,
        }
    }
}

impl<T> fmt::Debug for Calls<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.way {
            Way::Here(here) => write!(f, "{:?}, object {}", here.objects, here.object),
            Way::There(remote) => write!(f, "{remote:?}"),
        }
    }
}

impl<T: Object> Calls<T> {
    pub(super) fn new(objects: Arc<Objects>, object: u16, life: Arc<Life>) -> Calls<T> {
        Calls {
            way: Way::Here(Here {
                objects,
                object,
                life,
            }),
            of: PhantomData,
        }
    }

    pub(super) fn there(remote: Remote) -> Calls<T> {
        Calls {
            way: Way::There(Arc::new(remote)),
            of: PhantomData,
        }
    }

    /// Logs a call of a deferrable method.
    ///
    /// # Panics
    /// When the region is closed or the object was freed, when the arguments are too long or cannot be serialized and read
    /// again, when the log and the medium are full, and inside an update where so much waits that some must be run first:
    /// nothing was logged then.
    #[track_caller]
    pub fn defer(&self, function: u16, lane: Option<usize>, arguments: &impl Serialize) {
        let lane = lane.map(|lane| lane as u64);
        let logged = encode(arguments, |bytes| match &self.way {
            Way::Here(here) => {
                here.check::<T>(function, lane, bytes)?;
                here.defer(function, lane, bytes)
            }
            Way::There(remote) => remote.defer(function, lane, bytes),
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
    /// update, when the region is closed, and for arguments that are too long or cannot be serialized and read again.
    pub fn instant<R: Returned>(
        &self,
        function: u16,
        lane: Option<usize>,
        arguments: &impl Serialize,
    ) -> Result<R> {
        let lane = lane.map(|lane| lane as u64);
        encode(arguments, |bytes| match &self.way {
            Way::Here(here) => {
                here.check::<T>(function, lane, bytes)?;
                here.instant(function, lane, bytes)
            }
            Way::There(remote) => remote.instant(function, lane, bytes),
        })
    }

    /// Runs all that waits, then a method that changes nothing, and so is not logged, but for a thread with a name.
    ///
    /// # Errors
    /// As [`Calls::instant`].
    pub fn read<R: Returned>(&self, function: u16, arguments: &impl Serialize) -> Result<R> {
        encode(arguments, |bytes| match &self.way {
            Way::Here(here) if Next::is_of_named() => {
                here.check::<T>(function, None, bytes)?;
                here.instant(function, None, bytes)
            }
            Way::Here(here) => here.read(function, bytes),
            Way::There(remote) => remote.read(function, bytes),
        })
    }

    /// Makes all calls so far durable and runs them.
    ///
    /// # Errors
    /// As [`Calls::instant`]; [`Error::Panicked`] tells of the first deferrable method that panicked since the last
    /// time.
    pub fn sync(&self) -> Result<()> {
        match &self.way {
            Way::Here(here) => here.objects.sync_and_tell(),
            Way::There(remote) => remote.sync(),
        }
    }
}

impl Here {
    /// Refuses a call that could not be run: once it was logged it would be in the way after a crash.
    #[inline]
    fn check<T: Object>(&self, function: u16, lane: Option<u64>, bytes: &[u8]) -> Result<()> {
        let checked = T::check(function.into(), &Arguments { bytes, lane });
        checked.map_err(|undecodable| {
            let signature = T::FUNCTIONS[usize::from(function)].signature;
            undecodable.error(self.life.name(), signature)
        })
    }

    #[inline]
    fn defer(&self, function: u16, lane: Option<u64>, arguments: &[u8]) -> Result<()> {
        self.life.check()?;
        match next(&self.objects, self.object, function, lane, arguments)? {
            Next::Made(thread) => self.objects.defer(thread, self.object, function, lane, arguments),
            Next::Known(_) => Ok(()),
        }
    }

    fn instant<R: Returned>(&self, function: u16, lane: Option<u64>, arguments: &[u8]) -> Result<R> {
        self.life.check()?;
        match next(&self.objects, self.object, function, lane, arguments)? {
            Next::Made(thread) => {
                let outcome = self
                    .objects
                    .instant(thread, self.object, function, lane, arguments)?;
                Ok(answer(outcome))
            }
            Next::Known(progress) => match returned(&progress)? {
                Ok(value) => Ok(value),
                Err(why) => Err(self.objects.panicked_before(self.object, function, why)),
            },
        }
    }

    fn read<R: Returned>(&self, function: u16, arguments: &[u8]) -> Result<R> {
        self.life.check()?;
        Ok(answer(self.objects.read(self.object, function, arguments)?))
    }
}

/// What the macro put into the box.
fn answer<R: Any>(outcome: super::Outcome) -> R {
    let value = outcome.and_then(|value| value.downcast::<R>().ok());
    *value.expect("an instant operation returns what its handle promises")
}

/// The persistent object `name` of the region in the file `path`, which another process has open, and the object with it:
/// that process makes the calls of the handle. They are logged and durable as its own. The type is the same there, of the
/// same build: only a process with the same methods is let in.
///
/// Clones of a handle share a connection, on which one call is made after the other; share the object once more for calls
/// beside one another. A deferrable call is sent and returns; one that cannot be made is told by the next call that answers,
/// which is not made then. A handle keeps its object from being freed. A method of an object calls no
/// shared one: the two could wait for each other.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::objects::share;
/// use twinpage::{Persist, Region};
///
/// #[derive(Persist)]
/// struct Counter {
///     value: u64,
/// }
///
/// #[twinpage::object]
/// impl Counter {
///     pub fn add(&mut self, by: u64) {
///         self.value += by;
///     }
///     pub fn value(&self) -> u64 {
///         self.value
///     }
/// }
///
/// let region = Region::open("counter.twin")?;
/// let counter = region.object::<Counter>("counter", |_| Counter { value: 0 })?;
/// let shared = share::<Counter>("counter.twin", "counter")?; // most often in another process
/// shared.add(7);
/// assert_eq!(shared.value()?, 7);
/// assert_eq!(counter.value()?, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Invalid`] when no process has the region open, or the one that has did not open the object or knows other methods.
/// Calls fail with the errors that they have there, and with [`Error::Invalid`] when that process has ended, and in a
/// thread with a name, whose calls could not be known again.
pub fn share<T: Object>(path: impl AsRef<Path>, name: &str) -> Result<T::Handle> {
    let remote = Remote::connect(path.as_ref(), name, T::FUNCTIONS)?;
    Ok(T::handle(Calls::there(remote)))
}
