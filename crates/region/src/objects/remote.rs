//! An object that another process has: its calls go there ([`super::sharing`]).
//!
//! * Calls of one connection are made there in the order they are made here. A deferrable one is sent and not waited for.
//! * When the other process ends, or closes the region, calls fail from then on, deferrable ones in silence: the next call
//!   that answers says so.

use super::function::{Function, Returned};
use super::thread::Next;
use super::wire::{Answer, Asked, Made, decode, receive, send};
use crate::control_socket;
use crate::error::{Error, Result};
use crate::lock::lock;
use serde_json::json;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A connection to the process that has the region open; none when that has ended.
#[derive(Debug)]
pub(super) struct Remote {
    path: PathBuf,
    connection: Mutex<Option<UnixStream>>,
}

impl Remote {
    /// A connection for calls of the object `name`, which has these functions.
    pub(super) fn connect(path: &Path, name: &str, functions: &[Function]) -> Result<Remote> {
        let functions: Vec<_> = functions.iter().map(|function| function.signature).collect();
        let request = json!({ "ask": "share", "object": name, "functions": functions });
        let (_, stream) = control_socket::connect(path, &request)?;
        Ok(Remote {
            path: path.to_owned(),
            connection: Mutex::new(Some(stream)),
        })
    }

    fn talk<R>(&self, talk: impl FnOnce(&UnixStream) -> io::Result<R>) -> Result<R> {
        let mut connection = lock(&self.connection);
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
