//! An object in its region, and what the macro makes of its methods.

use crate::error::Result;
use crate::heap::Heap;
use crate::persist::Persist;
use crate::region::Update;
use crate::root::Root;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::Any;

/// A type whose methods are operations. [`#[twinpage::object]`](crate::object) implements it.
///
/// ```
/// use twinpage::Persist;
/// use twinpage::objects::Object;
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
/// }
///
/// let add = Counter::FUNCTIONS[0];
/// assert_eq!((add.signature, add.is_instant), ("add(by: u64)", false));
/// ```
pub trait Object: Persist + Send {
    /// What callers have.
    type Handle;
    /// The operations, in the order of their numbers.
    const FUNCTIONS: &'static [Function];

    /// Runs an operation.
    ///
    /// # Errors
    /// [`Undecodable`]; nothing was run then.
    fn apply<'r>(
        object: &mut Self::In<'r>,
        heap: Heap<'r>,
        function: usize,
        arguments: &Arguments<'_>,
    ) -> Result<Outcome, Undecodable>;

    /// A handle that makes these calls.
    fn handle(calls: super::Calls<Self>) -> Self::Handle;
}

/// An operation of an object: an element of [`Object::FUNCTIONS`].
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
}

impl Arguments<'_> {
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
}

/// The arguments of a call as they go into the log.
pub(super) fn encode<R>(arguments: &impl Serialize, then: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
    // Few calls have more; those are encoded twice.
    let mut small = [0; 64];
    if let Ok(bytes) = postcard::to_slice(arguments, &mut small) {
        return then(bytes);
    }
    let long = postcard::to_stdvec(arguments);
    let unfit = |error| crate::Error::Invalid(format!("the arguments of the call cannot be copied: {error}"));
    then(&long.map_err(unfit)?)
}

/// An object, whatever its type.
pub(super) trait Hosted: Send {
    fn name(&self) -> &str;
    fn functions(&self) -> &'static [Function];
    fn apply(
        &mut self,
        update: &Update<'_>,
        function: usize,
        arguments: &Arguments<'_>,
    ) -> Result<Outcome, Undecodable>;
    /// Calls before this position are part of the object.
    fn position(&self, update: &Update<'_>) -> u64;
    /// Calls before `position` are part of the object.
    fn advance(&mut self, update: &Update<'_>, position: u64);
}

/// An object and the position up to which its calls were run.
pub(super) struct Host<T: Object> {
    pub(super) root: Root<T>,
    pub(super) position: Root<u64>,
}

impl<T: Object> Hosted for Host<T> {
    fn name(&self) -> &str {
        self.root.name()
    }

    fn functions(&self) -> &'static [Function] {
        T::FUNCTIONS
    }

    fn apply(
        &mut self,
        update: &Update<'_>,
        function: usize,
        arguments: &Arguments<'_>,
    ) -> Result<Outcome, Undecodable> {
        T::apply(self.root.get_mut(update), update.heap(), function, arguments)
    }

    fn position(&self, update: &Update<'_>) -> u64 {
        *self.position.get(update)
    }

    fn advance(&mut self, update: &Update<'_>, position: u64) {
        *self.position.get_mut(update) = position;
    }
}
