//! Runs calls: one after the other, each as far as it comes.

use super::function::{Outcome, Undecodable};
use crate::error::{Error, Result};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use twinpage_core::operation_log::Logged;

/// What calls returned: those that are instant, and those that failed, by their places among the calls.
pub(super) type Outcomes = Vec<(usize, Result<Outcome>)>;

/// How far calls were run.
#[derive(Default)]
pub(super) struct Ran {
    /// Calls that were run.
    pub(super) calls: usize,
    pub(super) outcomes: Outcomes,
    /// The arguments of the next one cannot be read: it was not run.
    pub(super) undecodable: Option<Undecodable>,
}

impl Ran {
    /// More was run after this.
    pub(super) fn add(&mut self, more: Ran) {
        let before = self.calls;
        let outcomes = more.outcomes.into_iter();
        self.outcomes
            .extend(outcomes.map(|(place, outcome)| (before + place, outcome)));
        self.calls += more.calls;
        self.undecodable = more.undecodable;
    }
}

/// Runs calls in order until `is_enough` says so after one of them. A panic ends the call it is in, and nothing else.
#[inline]
pub(super) fn in_order(
    calls: &[Logged<'_>],
    is_enough: impl Fn() -> bool,
    mut apply: impl FnMut(&Logged<'_>) -> Result<Outcome, Undecodable>,
    panicked: &(dyn Fn(u16, &(dyn Any + Send)) -> Error + Sync),
) -> Ran {
    let mut ran = Ran::default();
    while ran.calls < calls.len() {
        // Around as many calls as come to an end.
        let ended = catch_unwind(AssertUnwindSafe(|| {
            for call in &calls[ran.calls..] {
                match apply(call) {
                    Ok(None) => {}
                    Ok(outcome) => ran.outcomes.push((ran.calls, Ok(outcome))),
                    Err(undecodable) => {
                        ran.undecodable = Some(undecodable);
                        return;
                    }
                }
                ran.calls += 1;
                if is_enough() {
                    return;
                }
            }
        }));
        let Err(panic) = ended else { break };
        let error = panicked(calls[ran.calls].function, &*panic);
        ran.outcomes.push((ran.calls, Err(error)));
        ran.calls += 1;
    }
    ran
}

/// What a panic said.
pub(super) fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "something that is not text".to_owned())
}
