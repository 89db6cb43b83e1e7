//! An object that another process has: its calls go there ([`super::sharing`]).
//!
//! * Calls of one connection are made there in the order they are made here. A deferrable one is sent and not waited for.
//! * When the other process ends, or closes the region, calls fail from then on, deferrable ones in silence: the next call
//!   that answers says so.

use super::calls::Calls;
use super::host::{Object, Returned};
use super::thread::Next;
use super::wire::{Answer, Asked, Made, decode, receive, send};
use crate::control_socket;
use crate::error::{Error, Result};
use serde_json::json;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The persistent object `name` of the region in the file `path`, which another process has open, and the object with it:
/// that process makes the calls of the handle. They are logged and durable as its own. The type is the same there, of the
/// same build: only a process with the same methods is let in.
///
/// Clones of a handle share a connection, on which one call is made after the other; share the object once more for calls
/// beside one another. A deferrable call is sent and returns; one that cannot be made is told by the next call that answers,
/// which is not made then. Whoever has a handle holds the object: it is not freed meanwhile. A method of an object calls no
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
/// [`Error::Invalid`] when no process has the region open, or that has not opened the object, or has it with other methods.
/// Calls fail with the errors that they have there, and with [`Error::Invalid`] when that process has ended, and in a
/// thread with a name, whose calls could not be known again.
pub fn share<T: Object>(path: impl AsRef<Path>, name: &str) -> Result<T::Handle> {
    let path = path.as_ref();
    let functions: Vec<_> = T::FUNCTIONS.iter().map(|function| function.signature).collect();
    let request = json!({ "ask": "share", "object": name, "functions": functions });
    let (_, stream) = control_socket::connect(path, &request)?;
    let remote = Remote {
        path: path.to_owned(),
        connection: Mutex::new(Some(stream)),
    };
    Ok(T::handle(Calls::there(remote)))
}

/// A connection to the process that has the region open; none when that has ended.
#[derive(Debug)]
pub(super) struct Remote {
    path: PathBuf,
    connection: Mutex<Option<UnixStream>>,
}

impl Remote {
    fn talk<R>(&self, talk: impl FnOnce(&UnixStream) -> io::Result<R>) -> Result<R> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let talked = connection.as_ref().and_then(|stream| talk(stream).ok());
        if talked.is_none() {
            // What is underway on it belongs to no call any more.
            *connection = None;
        }
        talked.ok_or_else(|| {
            Error::Invalid(format!(
                "the process that had {} open has ended or closed it; whether it still ran the last call, the object says: \
                 share it again when a process has it open",
                self.path.display()
            ))
        })
    }

    pub(super) fn defer(&self, function: u16, lane: Option<u64>, arguments: &[u8]) -> Result<()> {
        refuse_named()?;
        let made = Made {
            function,
            lane,
            arguments,
        };
        // That it did not get there the next call that answers says.
        let _ = self.talk(|stream| send(stream, &Asked::Defer(made)));
        Ok(())
    }

    pub(super) fn instant<R: Returned>(
        &self,
        function: u16,
        lane: Option<u64>,
        arguments: &[u8],
    ) -> Result<R> {
        let made = Made {
            function,
            lane,
            arguments,
        };
        returned(&self.answer(&Asked::Instant(made))?)
    }

    pub(super) fn read<R: Returned>(&self, function: u16, arguments: &[u8]) -> Result<R> {
        let made = Made {
            function,
            lane: None,
            arguments,
        };
        returned(&self.answer(&Asked::Read(made))?)
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.answer(&Asked::Sync).map(drop)
    }

    fn answer(&self, asked: &Asked<'_>) -> Result<Vec<u8>> {
        refuse_named()?;
        let answer: Answer = self.talk(|stream| {
            send(stream, asked)?;
            let mut frame = Vec::new();
            match receive(stream, &mut frame)? {
                true => decode(&frame),
                false => Err(io::ErrorKind::UnexpectedEof.into()),
            }
        })?;
        answer.result()
    }
}

fn returned<R: Returned>(bytes: &[u8]) -> Result<R> {
    let invalid = |why: String| Error::Invalid(format!("what the call returned cannot be read: {why}"));
    let returned: Result<R, String> =
        postcard::from_bytes(bytes).map_err(|error| invalid(error.to_string()))?;
    returned.map_err(invalid)
}

/// What a thread with a name called is found again in the region of its own process only.
fn refuse_named() -> Result<()> {
    match Next::is_of_named() {
        false => Ok(()),
        true => Err(Error::Invalid(
            "a thread with a name makes calls of its own process's objects only: call a shared object from another thread"
                .into(),
        )),
    }
}
