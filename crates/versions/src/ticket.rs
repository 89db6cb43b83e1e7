//! A claim on the durability of what was done.

use crate::error::Result;
use crate::persistence::Shared;
use std::sync::Arc;

/// Stands for the updates done when it was taken. It can be waited for on any thread.
#[derive(Clone, Debug)]
pub struct Ticket {
    pub(crate) shared: Arc<Shared>,
    pub(crate) number: u64,
}

impl Ticket {
    /// The number of the last of those updates.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether they are durable.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.shared.durable() >= self.number
    }

    /// Asks for them to be made durable, whatever the pace, and returns when they are.
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error::Poisoned) after a failed flush, [`Error::Closed`](crate::Error::Closed) when
    /// the array was closed before.
    pub fn wait(&self) -> Result<()> {
        self.shared.wait(self.number)
    }
}
