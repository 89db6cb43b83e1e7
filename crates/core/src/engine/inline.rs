//! The engine without a thread of its own, for who would only wait for it.

use super::{EngineError, Job, Report, Witness, commit, settle};
use crate::error::Error;
use crate::scheme::Scheme;
use crate::source::Source;

/// Joins a source, a scheme and those who must know, on the caller's thread: when a checkpoint returns, it is
/// durable. Nothing is handed from thread to thread, which costs more than a small epoch does.
pub struct Inline<S: Scheme, W: Witness> {
    scheme: S,
    witness: W,
    job: Job,
    poisoned: Option<String>,
}

impl<S: Scheme, W: Witness> Inline<S, W> {
    /// Over a scheme, at whatever its last commit left.
    pub fn new(scheme: S, witness: W) -> Inline<S, W> {
        Inline {
            scheme,
            witness,
            job: Job::default(),
            poisoned: None,
        }
    }

    /// Captures an epoch and makes it durable. The stop is over when the source's capture is.
    ///
    /// # Errors
    /// [`EngineError::Lost`]: there was no room, and the source owes the epoch to the next one.
    /// [`EngineError::Store`] is for good. [`EngineError::Source`] is the source's.
    pub fn checkpoint<Src>(&mut self, source: &mut Src) -> Result<Report, EngineError<Src::Error>>
    where
        Src: Source,
        Src::Error: std::error::Error + 'static,
    {
        if let Some(why) = &self.poisoned {
            return Err(EngineError::Store(Error::Poisoned(why.clone())));
        }
        let captured = self.job.capture(self.scheme.epoch() + 1, source);
        captured.map_err(EngineError::Source)?;
        let outcome = commit(&mut self.scheme, &mut self.witness, &mut self.job);
        if outcome.is_err() {
            self.scheme.abandon();
        }
        let settled = settle(source, &self.job, outcome);
        if let Err(EngineError::Store(error)) = &settled {
            self.poisoned = Some(error.to_string());
        }
        settled
    }
}
