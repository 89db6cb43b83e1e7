//! A call of an object's method: the function, its arguments as they are in the log, and what it returns.

use crate::error::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::Any;
use twinpage_core::operation_log::Logged;

/// An operation of an object: an element of [`Object::FUNCTIONS`](super::Object::FUNCTIONS).
///
/// ```
/// use twinpage::objects::Function;
///
/// let add = Function { signature: "add(by: u64)", is_instant: false };
/// assert!(!add.is_instant);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its name and types, `add(rows[lane], by: i64)`.
    pub signature: &'static str,
    /// Whether its caller waits for it.
    pub is_instant: bool,
}

/// What an operation returns, for a caller that waits for it.
#[doc(hidden)]
pub type Outcome = Option<Box<dyn Any + Send>>;

/// The arguments of a call, as they are in the log.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) lane: Option<u64>,
}

/// Arguments that are not of the types that the function has now.
#[doc(hidden)]
#[derive(Debug)]
pub struct Undecodable(pub(super) String);

impl Undecodable {
    /// There is no operation of that number.
    #[must_use]
    pub fn unknown(function: usize) -> Undecodable {
        Undecodable(format!("there is no operation {function}"))
    }

    /// That a call of an object to a method of that signature has them.
    #[cold]
    pub(super) fn error(self, object: &str, signature: &str) -> Error {
        let Undecodable(why) = self;
        Error::Invalid(format!(
            "the call of the object {object:?} to `{signature}` cannot be made: its arguments cannot be read again as they \
             are written ({why}); types that do not say which bytes follow, as `serde_json::Value` and those with serde's \
             `untagged`, `flatten` and `skip_serializing_if`, are passed as text"
        ))
    }
}

impl Arguments<'_> {
    /// Those of a call.
    #[inline]
    pub(super) fn of<'a>(call: &Logged<'a>) -> Arguments<'a> {
        Arguments {
            bytes: call.arguments,
            lane: call.lane,
        }
    }

    /// The arguments, as a tuple.
    ///
    /// # Errors
    /// [`Undecodable`].
    pub fn decode<A: DeserializeOwned>(&self) -> Result<A, Undecodable> {
        match postcard::take_from_bytes(self.bytes) {
            Ok((arguments, [])) => Ok(arguments),
            Ok((_, rest)) => Err(Undecodable(format!("{} bytes are left over", rest.len()))),
            Err(error) => Err(Undecodable(error.to_string())),
        }
    }

    /// The number of the lane.
    ///
    /// # Errors
    /// [`Undecodable`] for a call that has none.
    pub fn lane(&self) -> Result<usize, Undecodable> {
        let lane = self.lane.and_then(|lane| usize::try_from(lane).ok());
        lane.ok_or_else(|| Undecodable("the call has no lane".into()))
    }

    /// That there is none.
    ///
    /// # Errors
    /// [`Undecodable`] for a call that has one.
    pub fn no_lane(&self) -> Result<(), Undecodable> {
        match self.lane {
            None => Ok(()),
            Some(lane) => Err(Undecodable(format!("the call has a lane, {lane}"))),
        }
    }
}

/// A value that a method may return: the log of a thread with a name keeps it.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be logged, so no method of an object returns it",
    label = "a type that cannot be logged",
    note = "returned values are kept in the log of a named thread: derive `serde::Serialize` and `serde::Deserialize`"
)]
pub trait Returned: Any + Serialize + DeserializeOwned {}

#[diagnostic::do_not_recommend]
impl<R: Any + Serialize + DeserializeOwned> Returned for R {}

/// What a value of this type is in the log of a thread.
#[doc(hidden)]
#[must_use]
pub fn logged<R: Returned>(outcome: &(dyn Any + Send)) -> Vec<u8> {
    let value = outcome
        .downcast_ref::<R>()
        .expect("an operation returns what its handle promises");
    let result = postcard::to_stdvec(&Ok::<&R, &str>(value));
    result.unwrap_or_else(|error| refused(&format!("what it returned cannot be logged: {error}")))
}

/// What a call that failed is there.
fn refused(why: &str) -> Vec<u8> {
    postcard::to_stdvec(&Err::<(), &str>(why)).expect("text can be logged")
}

pub(super) fn logged_panic(error: &Error) -> Vec<u8> {
    match error {
        Error::Panicked { why, .. } => refused(why),
        other => refused(&other.to_string()),
    }
}

/// The arguments of a call as they go into the log.
pub(super) fn encode<R>(arguments: &impl Serialize, then: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
    // Few calls have more; those are encoded twice.
    let mut small = [0; 64];
    if let Ok(bytes) = postcard::to_slice(arguments, &mut small) {
        return then(bytes);
    }
    let long = postcard::to_stdvec(arguments);
    let unfit = |error| Error::Invalid(format!("the arguments of the call cannot be copied: {error}"));
    then(&long.map_err(unfit)?)
}
