//! Runs one call: in an update of the region, which also notes its position beside the object.

use super::host::{Arguments, Hosted, Outcome, Undecodable};
use crate::error::{Error, Result};
use crate::region::{Inner, Update, View};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use twinpage_core::operation_log::Entry;

/// Why a call has no outcome.
pub(super) enum RunError {
    Undecodable(Undecodable),
    Panicked(Error),
}

impl RunError {
    pub(super) fn into_error(self) -> Error {
        match self {
            RunError::Undecodable(Undecodable(why)) => Error::Invalid(format!(
                "the arguments of the call cannot be read again as they were written: {why}"
            )),
            RunError::Panicked(error) => error,
        }
    }
}

pub(super) fn in_update<R>(inner: &Inner, change: impl FnOnce(&Update<'_>) -> R) -> R {
    let _inside = inner.place().enter();
    change(&Update::new(View::new(inner.place(), inner)))
}

/// Runs a method. A panic ends it, and nothing else.
pub(super) fn apply(
    host: &mut dyn Hosted,
    update: &Update<'_>,
    function: usize,
    arguments: &Arguments<'_>,
) -> Result<Outcome, RunError> {
    let applied = catch_unwind(AssertUnwindSafe(|| host.apply(update, function, arguments)));
    match applied {
        Ok(outcome) => outcome.map_err(RunError::Undecodable),
        Err(panic) => Err(RunError::Panicked(Error::Panicked {
            object: host.name().to_owned(),
            method: host.functions()[function].signature.to_owned(),
            why: said(&*panic),
        })),
    }
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "something that is not text".to_owned())
}

/// Runs a call and notes its position, in one update.
pub(super) fn run(
    inner: &Inner,
    host: &mut dyn Hosted,
    function: usize,
    entry: &Entry,
) -> Result<Outcome, RunError> {
    let arguments = Arguments {
        bytes: &entry.arguments,
        lane: entry.lane,
    };
    in_update(inner, |update| {
        let outcome = apply(host, update, function, &arguments);
        // Arguments that cannot be read stay in the log.
        if !matches!(outcome, Err(RunError::Undecodable(_))) {
            host.advance(update, entry.next);
        }
        outcome
    })
}
