//! Objects that other processes call, through the one that has the region open.
//!
//! * Each process that shares an object has a connection and a thread here, which makes its calls one after the other: they
//!   are logged and run as those of a thread of this process.
//! * Nothing that came from outside is logged before it was looked at: that the function is there and of that kind, and
//!   that its arguments can be read. So no process can leave a call that cannot be run again.
//! * After a deferrable call that cannot be made, no call is made until the other end was told.
//! * Who shares an object holds it, until its connection ends: a process that is killed holds nothing.

use super::Objects;
use super::function::{Arguments, Outcome};
use super::host::Shape;
use super::thread::thread_number;
use super::wire::{Answer, Asked, Made, decode, receive, send};
use crate::control_socket::Sharing;
use crate::error::{Error, Result};
use crate::lock::{lock, read};
use serde_json::{Value, json};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

/// The processes that share objects: of each connection the process and the object.
#[derive(Default)]
pub(super) struct Sharers {
    all: Mutex<Vec<Sharer>>,
}

#[derive(Clone, PartialEq, Eq)]
struct Sharer {
    process: i32,
    object: String,
}

/// One of them, until it is dropped.
struct Holding<'a> {
    sharers: &'a Sharers,
    sharer: Sharer,
}

impl Sharers {
    fn hold(&self, process: i32, object: &str) -> Holding<'_> {
        let sharer = Sharer {
            process,
            object: object.to_owned(),
        };
        lock(&self.all).push(sharer.clone());
        let sharers = self;
        Holding { sharers, sharer }
    }

    /// The processes that share an object.
    pub(super) fn of(&self, object: &str) -> Vec<i32> {
        let all = lock(&self.all);
        let of_it = all.iter().filter(|sharer| sharer.object == object);
        of_it.map(|sharer| sharer.process).collect()
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        let mut all = lock(&self.sharers.all);
        if let Some(at) = all.iter().position(|sharer| *sharer == self.sharer) {
            all.swap_remove(at);
        }
    }
}

impl Sharing for Objects {
    fn holders(&self) -> Value {
        let all = lock(&self.sharers.all);
        let all = all
            .iter()
            .map(|sharer| json!({ "process": sharer.process, "object": sharer.object }));
        all.collect()
    }

    fn share(&self, request: &Value, process: i32, stream: &UnixStream) -> io::Result<()> {
        let begun = self.begin(request);
        // Before the other end knows: the object stays from then on.
        let _holding = begun
            .as_ref()
            .ok()
            .map(|(_, name)| self.sharers.hold(process, name));
        let answer = match &begun {
            Ok((shape, _)) => json!({ "id": shape.id }),
            Err(error) => json!({ "error": error.to_string() }),
        };
        let mut line = answer.to_string();
        line.push('\n');
        io::Write::write_all(&mut &*stream, line.as_bytes())?;
        match &begun {
            Ok((shape, _)) => self.serve_calls(shape, stream),
            Err(_) => Ok(()),
        }
    }
}

impl Objects {
    /// Finds the object that is to be shared, and refuses a process whose functions are others.
    fn begin(&self, request: &Value) -> Result<(Shape, String)> {
        let name = request["object"].as_str().unwrap_or_default();
        let hosts = self.hosts();
        let (number, host) = hosts.numbered(name).ok_or_else(|| {
            Error::Invalid(format!(
                "the process that has the region open has no object {name:?} open: it must open the object, whose type it \
                 knows"
            ))
        })?;
        let shape = read(host).shape(number);
        let asked = request["functions"].as_array().into_iter().flatten();
        let asked: Vec<_> = asked.filter_map(Value::as_str).collect();
        let here: Vec<_> = shape
            .functions
            .iter()
            .map(|function| function.signature)
            .collect();
        match asked == here {
            true => Ok((shape, name.to_owned())),
            false => Err(Error::Invalid(format!(
                "the object {name:?} has the methods {here:?} where the region is open, and {asked:?} here: share it with the \
                 same build"
            ))),
        }
    }

    fn serve_calls(&self, shape: &Shape, stream: &UnixStream) -> io::Result<()> {
        let (mut frame, mut failed) = (Vec::new(), None);
        while receive(stream, &mut frame)? {
            let asked = decode(&frame)?;
            if let Asked::Defer(made) = &asked {
                failed = failed.or_else(|| self.defer_made(shape, made).err());
                continue;
            }
            let result = match failed.take() {
                Some(error) => Err(error),
                None => self.answer_to(shape, &asked),
            };
            send(stream, &Answer::from(result))?;
        }
        Ok(())
    }

    fn defer_made(&self, shape: &Shape, made: &Made<'_>) -> Result<()> {
        shape.check(made.function, made.lane, made.arguments, false)?;
        self.defer(
            thread_number(),
            shape.number,
            made.function,
            made.lane,
            made.arguments,
        )
    }

    fn answer_to(&self, shape: &Shape, asked: &Asked<'_>) -> Result<Vec<u8>> {
        let (function, outcome): (u16, Outcome) = match asked {
            Asked::Sync | Asked::Defer(_) => {
                self.sync_and_tell()?;
                return Ok(Vec::new());
            }
            Asked::Instant(made) => {
                shape.check(made.function, made.lane, made.arguments, true)?;
                let thread = thread_number();
                let outcome = self.instant(thread, shape.number, made.function, made.lane, made.arguments)?;
                (made.function, outcome)
            }
            Asked::Read(made) => {
                shape.check(made.function, made.lane, made.arguments, true)?;
                (
                    made.function,
                    self.read(shape.number, made.function, made.arguments)?,
                )
            }
        };
        let returned = outcome.ok_or_else(|| Error::Invalid("the method returned nothing".into()))?;
        Ok((shape.logged)(function.into(), &*returned))
    }
}

impl Shape {
    /// Refuses a call from outside that could not be run.
    fn check(&self, function: u16, lane: Option<u64>, arguments: &[u8], is_instant: bool) -> Result<()> {
        self.life.check()?;
        let (object, known) = (self.life.name(), self.functions.get(usize::from(function)));
        let Some(known) = known.filter(|known| known.is_instant == is_instant) else {
            let kind = if is_instant { "an instant" } else { "a deferrable" };
            return Err(Error::Invalid(format!(
                "the object {object:?} has no method {function} for {kind} call: share it with the same build"
            )));
        };
        let arguments = Arguments {
            bytes: arguments,
            lane,
        };
        let checked = (self.check)(function.into(), &arguments);
        checked.map_err(|undecodable| undecodable.error(object, known.signature))
    }
}
