//! An array that is open for writing: what elements and planes have in common.
//!
//! * Updates are counted here, and a step of planes is an update.
//! * After a failed flush nothing is called durable: the engine is poisoned, and every promise here says so.

use crate::error::Result;
use crate::format::{Header, Kind};
use crate::handover::Collecting;
use crate::options::write_header;
use crate::pace::{Owed, Pace};
use crate::persistence::{Engine, Shared};
use crate::seal;
use crate::statistics::Statistics;
use crate::ticket::Ticket;
use std::path::Path;
use std::sync::Arc;
use twinpage_os::{Direct, Lock};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Opened {
    /// Dropped first: it ends the thread.
    pub(crate) engine: Engine,
    pub(crate) header: Header,
    pub(crate) collecting: Collecting,
    pub(crate) owed: Owed,
    /// The last update done, durable or not.
    pub(crate) last: u64,
    pub(crate) counts: Statistics,
    run_to_end: bool,
    lock: Option<Lock>,
}

impl Opened {
    /// All is durable up to where `shared` says.
    pub(crate) fn begin(shared: Shared, header: Header, lock: Option<Lock>, pace: Pace) -> Result<Opened> {
        Ok(Opened {
            last: shared.durable(),
            engine: Engine::start(shared)?,
            header,
            collecting: Collecting::default(),
            owed: Owed::new(pace),
            counts: Statistics::default(),
            run_to_end: pace != Pace::Manual,
            lock,
        })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.engine.shared
    }

    /// Elements, or values of a plane.
    pub(crate) fn len(&self) -> usize {
        self.header.count as usize
    }

    /// A claim on the durability of all updates so far.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket {
            shared: Arc::clone(self.shared()),
            number: self.last,
        }
    }

    /// Makes all updates so far durable, and returns when they are.
    pub(crate) fn durable(&self) -> Result<()> {
        self.shared().sound()?;
        self.shared().wait(self.last)
    }

    /// Makes the file as long as `larger` says, has `fill` store what is new in it, makes that durable, and then the header.
    /// All updates are durable.
    pub(crate) fn grow(&mut self, larger: Header, fill: impl FnOnce(&dyn Direct)) -> Result<()> {
        let shared = Arc::clone(self.shared());
        let direct = shared.direct();
        direct.grow(larger.file_bytes())?;
        fill(direct);
        let written = direct.fence().and_then(|()| {
            if larger.kind == Kind::Planes {
                // Their sums are of shorter planes. The durable word has arrived with the fence.
                seal::erase(direct);
            }
            write_header(direct, &larger)
        });
        if let Err(error) = written {
            shared.poison(&error);
            return Err(error.into());
        }
        self.header = larger;
        Ok(())
    }

    /// Copies the array, as of the last update, to the new file `to`. Says of which update it is.
    pub(crate) fn backup(&self, to: &Path) -> Result<u64> {
        self.durable()?;
        crate::copy::copy(self.shared().path(), self.lock.as_ref(), to)?;
        Ok(self.shared().durable())
    }

    /// What was done since the array was opened.
    pub(crate) fn statistics(&self) -> Statistics {
        let shared = self.shared();
        let persists = shared.persists();
        Statistics {
            persists,
            threshold: persists as f64 / self.counts.updates.max(1) as f64,
            durable: shared.durable(),
            medium: shared.direct().counts(),
            ..self.counts
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.run_to_end && self.engine.is_ours() && self.shared().sound().is_ok() {
            // `durable` tells of errors.
            let _ = self.durable();
        }
    }
}
