//! The engine on the caller's thread: when a checkpoint returns, it is durable.

use super::{Committer, EngineError, Job, Lease, Report, Witness};
use crate::scheme::Scheme;
use crate::source::Source;

/// Joins a source, a scheme and observers, on the caller's thread. Nothing is handed from thread to
/// thread, which costs more than a small epoch does.
pub struct Inline<S: Lease, W: Witness> {
    committer: Committer<S, W>,
    job: Job,
}

impl<S: Lease, W: Witness> Inline<S, W> {
    /// Over a scheme, at whatever its last commit left.
    pub fn new(scheme: S, witness: W) -> Inline<S, W> {
        Inline {
            committer: Committer::new(scheme, witness),
            job: Job::default(),
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
        let Inline { committer, job } = self;
        committer.poison.check().map_err(EngineError::Store)?;
        let epoch = committer.scheme.with(|scheme| scheme.epoch()) + 1;
        job.capture(epoch, source).map_err(EngineError::Source)?;
        let outcome = committer.run(job);
        job.settle(source, outcome)
    }
}
