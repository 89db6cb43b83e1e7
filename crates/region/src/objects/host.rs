//! An object in its region, and what the macro makes of its methods.

use super::function::{Arguments, Function, Outcome, Undecodable, logged_panic};
use super::lanes::{LaneRun, LaneThreads, Pace};
use super::life::Life;
use super::run::{Outcomes, Ran, in_order, said};
use super::table::{ObjectTable, position_of, threads_of};
use super::thread::{Known, Record, sum_with};
use crate::collections::{self, HashMap};
use crate::error::{Error, Result};
use crate::heap::Heap;
use crate::persist::Persist;
use crate::region::{Inner, Region, Update, View};
use crate::root::Root;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;
use twinpage_core::operation_log::Logged;

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
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no persistent object",
    label = "a type without operations",
    note = "write `#[twinpage::object]` on the `impl` with its methods"
)]
pub trait Object: Persist + Send + Sync {
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

    /// Runs an operation that changes nothing.
    ///
    /// # Errors
    /// [`Undecodable`]; nothing was run then.
    fn look<'r>(
        object: &Self::In<'r>,
        heap: Heap<'r>,
        function: usize,
        arguments: &Arguments<'_>,
    ) -> Result<Outcome, Undecodable>;

    /// Whether an operation's arguments can be read.
    ///
    /// # Errors
    /// [`Undecodable`].
    fn check(function: usize, arguments: &Arguments<'_>) -> Result<(), Undecodable>;

    /// What an instant operation returned, as in the log of a thread.
    fn logged(function: usize, outcome: &(dyn Any + Send)) -> Vec<u8>;

    /// Runs calls that are on lanes, by several threads.
    fn in_lanes<'r>(object: &mut Self::In<'r>, heap: Heap<'r>, run: LaneRun<'_>);

    /// A handle that makes these calls.
    fn handle(calls: super::Calls<Self>) -> Self::Handle;
}

/// What is known of an object without its type: enough to take calls of it from outside.
pub(super) struct Shape {
    /// The number of its definition in the log.
    pub(super) number: u16,
    pub(super) id: u64,
    pub(super) life: Arc<Life>,
    pub(super) functions: &'static [Function],
    pub(super) check: fn(usize, &Arguments<'_>) -> Result<(), Undecodable>,
    pub(super) logged: fn(usize, &(dyn Any + Send)) -> Vec<u8>,
}

/// An object, whatever its type.
pub(super) trait Hosted: Send + Sync {
    fn name(&self) -> &str;
    fn functions(&self) -> &'static [Function];
    fn inner(&self) -> &Inner;
    /// Runs calls from the first one on, as many as come before a cut that waits, in one update that also notes the
    /// position. With `threads`, those that are on lanes may be run beside one another.
    fn run(&mut self, calls: &[Logged<'_>], threads: Option<&LaneThreads>) -> Ran;
    /// Runs a call that changes nothing.
    fn look(&self, function: u16, arguments: &[u8]) -> Result<Outcome>;
    /// Calls before this position are part of the object.
    fn position(&self) -> u64;
    /// The number in the table of objects.
    fn id(&self) -> u64;
    fn life(&self) -> &Arc<Life>;
    /// As the object of that number.
    fn shape(&self, number: u16) -> Shape;
    /// Drops the object and all that is kept of it.
    fn free(self: Box<Self>, update: &Update<'_>) -> Result<()>;
    /// What it knows of the calls of a thread, which has this number in the log.
    fn know(&mut self, thread: &str, number: u32) -> Known;
    /// The run of the program is over.
    fn forget_threads(&mut self);
}

/// An object and the position up to which its calls were run.
pub(super) struct Host<T: Object> {
    name: String,
    id: u64,
    life: Arc<Life>,
    root: Root<T>,
    position: Root<u64>,
    /// What is known of threads with names.
    threads: Root<HashMap<'static, collections::String<'static>, Record<'static>>>,
    /// Their names, by their numbers in the log.
    names: std::collections::HashMap<u32, String>,
    pace: Pace,
}

/// What a call that panicked is told of.
fn panicked<T: Object>(name: &str, function: u16, panic: &(dyn Any + Send)) -> Error {
    Error::Panicked {
        object: name.to_owned(),
        method: T::FUNCTIONS[usize::from(function)].signature.to_owned(),
        why: said(panic),
    }
}

impl<T: Object> Host<T> {
    /// The object of that name, made if there is none: all that is kept of it, in the update that is under way. Calls from
    /// the position `end` on are those of a new one.
    pub(super) fn open(
        region: &Region,
        update: &Update<'_>,
        table: &mut ObjectTable,
        (name, end): (&str, u64),
        make: impl for<'r> FnOnce(&Update<'r>) -> T::In<'r>,
    ) -> Result<Host<T>> {
        let is_new = table.find(update, name).is_none();
        let mut position = region.root::<u64>(&position_of(name))?;
        let threads = region.root(&threads_of(name))?;
        let root = region.root_with::<T>(name, make)?;
        let id = table.give(update, name)?;
        // A build without a table was killed while it made the object where there is none yet.
        if is_new || *position.get(update) == 0 {
            *position.get_mut(update) = end;
        }
        Ok(Host {
            name: name.to_owned(),
            id,
            life: Arc::new(Life::new(name)),
            root,
            position,
            threads,
            names: std::collections::HashMap::new(),
            pace: Pace::default(),
        })
    }

    /// With the names of threads, by their numbers in the log.
    pub(super) fn with_threads(self, names: std::collections::HashMap<u32, String>) -> Host<T> {
        Host { names, ..self }
    }

    /// Runs the first of these calls, at least one: in order, or on lanes.
    fn run_some(&mut self, update: &Update<'_>, calls: &[Logged<'_>], threads: Option<&LaneThreads>) -> Ran {
        let Host { name, root, pace, .. } = self;
        let panicked = |function: u16, panic: &(dyn Any + Send)| panicked::<T>(name, function, panic);
        let (object, heap) = (root.get_mut(update), update.heap());
        // Nearly always they take too little time for more than one thread.
        let shared_out = threads.filter(|threads| threads.worth(*pace, calls.len()).is_some());
        let is_first_lane = calls[0].lane.is_some();
        let alike = match shared_out {
            Some(_) => calls
                .iter()
                .take_while(|call| call.lane.is_some() == is_first_lane)
                .count(),
            None => calls.len(),
        };
        let begun = (alike > 1 && threads.is_some()).then(Instant::now);
        let several = shared_out.filter(|_| is_first_lane);
        let (ran, count) = match several.and_then(|threads| Some((threads, threads.worth(*pace, alike)?))) {
            Some((threads, count)) => {
                let mut ran = Ran {
                    calls: alike.min(pace.most(count)),
                    ..Ran::default()
                };
                let run = LaneRun {
                    calls: &calls[..ran.calls],
                    threads,
                    count,
                    place: update.place(),
                    panicked: &panicked,
                    object: (name, T::FUNCTIONS),
                    outcomes: &mut ran.outcomes,
                };
                T::in_lanes(object, heap, run);
                (ran, count)
            }
            None => {
                let apply =
                    |call: &Logged<'_>| T::apply(object, heap, call.function.into(), &Arguments::of(call));
                let is_enough = || update.place().is_cut_wanted();
                (in_order(&calls[..alike], is_enough, apply, &panicked), 1)
            }
        };
        if let Some(begun) = begun {
            pace.note(ran.calls, begun.elapsed(), count);
        }
        ran
    }
}

impl<T: Object> Host<T> {
    /// Counts the calls of threads with names, and notes what instant ones returned.
    fn note_threads(&mut self, update: &Update<'_>, calls: &[Logged<'_>], outcomes: &Outcomes) {
        let mut outcomes = outcomes.iter().peekable();
        for (place, call) in calls.iter().enumerate() {
            let outcome = outcomes
                .next_if(|(at, _)| *at == place)
                .map(|(_, outcome)| outcome);
            let Some(name) = self.names.get(&call.thread) else {
                continue;
            };
            let heap = update.heap();
            let record = self.threads.get_mut(update);
            let record = record
                .entry(collections::String::from_in(name, heap))
                .or_insert_with(|| Record {
                    calls: 0,
                    sum: 0,
                    results: collections::Vec::new_in(heap),
                });
            record.calls += 1;
            record.sum = sum_with(record.sum, call.function, call.lane, call.arguments);
            if T::FUNCTIONS[usize::from(call.function)].is_instant {
                let result = match outcome {
                    Some(Ok(Some(value))) => T::logged(call.function.into(), &**value),
                    Some(Err(error)) => logged_panic(error),
                    _ => continue,
                };
                record.results.extend_from_slice(&result);
            }
        }
    }
}

impl<T: Object> Hosted for Host<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn functions(&self) -> &'static [Function] {
        T::FUNCTIONS
    }

    fn inner(&self) -> &Inner {
        self.root.inner()
    }

    fn run(&mut self, calls: &[Logged<'_>], threads: Option<&LaneThreads>) -> Ran {
        let place = self.inner().place();
        let _inside = place.enter();
        let update = &Update::new(View::new(place, self.inner()));
        let mut all = Ran::default();
        while all.calls < calls.len() && all.undecodable.is_none() {
            all.add(self.run_some(update, &calls[all.calls..], threads));
            if place.is_cut_wanted() {
                break;
            }
        }
        if !self.names.is_empty() {
            self.note_threads(update, &calls[..all.calls], &all.outcomes);
        }
        if let Some(last) = all.calls.checked_sub(1) {
            *self.position.get_mut(update) = calls[last].next;
        }
        all
    }

    fn look(&self, function: u16, arguments: &[u8]) -> Result<Outcome> {
        let arguments = Arguments {
            bytes: arguments,
            lane: None,
        };
        self.inner().in_update(|update| {
            let object = self.root.get(update);
            let look = || T::look(object, update.heap(), function.into(), &arguments);
            match catch_unwind(AssertUnwindSafe(look)) {
                Ok(outcome) => outcome.map_err(|undecodable| {
                    let signature = T::FUNCTIONS[usize::from(function)].signature;
                    undecodable.error(self.name(), signature)
                }),
                Err(panic) => Err(panicked::<T>(self.name(), function, &*panic)),
            }
        })
    }

    fn know(&mut self, thread: &str, number: u32) -> Known {
        self.names.insert(number, thread.to_owned());
        self.root.inner().in_update(|update| {
            let record = self.threads.get(update).get(thread);
            record.map_or_else(Known::default, |record| Known {
                calls: record.calls,
                sum: record.sum,
                results: record.results.to_vec(),
            })
        })
    }

    fn forget_threads(&mut self) {
        self.root.inner().in_update(|update| {
            if !self.threads.get(update).is_empty() {
                self.threads.get_mut(update).clear();
            }
        });
    }

    fn position(&self) -> u64 {
        self.inner().in_update(|update| *self.position.get(update))
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn life(&self) -> &Arc<Life> {
        &self.life
    }

    fn shape(&self, number: u16) -> Shape {
        Shape {
            number,
            id: self.id,
            life: self.life.clone(),
            functions: T::FUNCTIONS,
            check: T::check,
            logged: T::logged,
        }
    }

    fn free(self: Box<Self>, update: &Update<'_>) -> Result<()> {
        let Host {
            root,
            position,
            threads,
            ..
        } = *self;
        position.remove(update)?;
        threads.remove(update)?;
        root.remove(update) // last: it may panic
    }
}
