//! The thread that makes a region's checkpoints in time, and gives space back where nothing is written.

use crate::error::{Error, Result};
use crate::lock::{lock, wait, wait_timeout};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use twinpage_core::Epoch;

/// Makes a checkpoint every so often, and when asked to.
#[derive(Debug)]
pub(crate) struct Timer {
    wish: Arc<TimerRequest>,
    thread: Option<JoinHandle<()>>,
}

/// What is wanted of a timer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) enum Want {
    #[default]
    Nothing,
    Checkpoint,
    Stop,
}

#[derive(Debug, Default)]
pub(crate) struct TimerRequest {
    want: Mutex<Want>,
    changed: Condvar,
}

impl Timer {
    /// Starts the thread. `tick` is called when a period is over or a checkpoint is wanted, and says whether it
    /// is to be called again.
    pub(crate) fn start(
        period: Option<Duration>,
        wish: Arc<TimerRequest>,
        mut tick: impl FnMut() -> bool + Send + 'static,
    ) -> Result<Timer> {
        let watched = wish.clone();
        let thread = Builder::new()
            .name("twinpage-timer".into())
            .spawn(move || {
                // One too far away to be told is none.
                let due = || period.and_then(|period| Instant::now().checked_add(period));
                let mut next = due();
                while watched.wait(next) != Want::Stop {
                    next = due();
                    if !tick() {
                        break;
                    }
                }
            })
            .map_err(|e| Error::system("starting the thread that makes checkpoints", e))?;
        Ok(Timer {
            wish,
            thread: Some(thread),
        })
    }
}

/// How long nothing was written.
pub(crate) struct Rest {
    epoch: Epoch,
    since: Instant,
}

impl Rest {
    /// A region that rests so long has time to give space back.
    pub(crate) const LEAST: Duration = Duration::from_millis(500);

    pub(crate) fn new(epoch: Epoch) -> Rest {
        let since = Instant::now();
        Rest { epoch, since }
    }

    /// A tick found the region in this epoch: whether it has been in it for long.
    pub(crate) fn lasts(&mut self, epoch: Epoch) -> bool {
        if self.epoch != epoch {
            *self = Rest::new(epoch);
        }
        self.since.elapsed() >= Rest::LEAST
    }
}

impl TimerRequest {
    pub(crate) fn set(&self, want: Want) {
        let mut now = lock(&self.want);
        *now = want.max(*now);
        self.changed.notify_all();
    }

    /// Sleeps until something is wanted, or until `due`; takes the wish, but for [`Want::Stop`].
    fn wait(&self, due: Option<Instant>) -> Want {
        let mut now = lock(&self.want);
        while *now == Want::Nothing {
            now = match due.map(|due| due.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return Want::Checkpoint,
                Some(left) => wait_timeout(&self.changed, now, left),
                None => wait(&self.changed, now),
            };
        }
        if *now == Want::Checkpoint {
            *now = Want::Nothing;
            return Want::Checkpoint;
        }
        *now
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.wish.set(Want::Stop);
        if let Some(thread) = self.thread.take() {
            // It panics only where the engine did, and that was told already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_period_without_end_is_none() {
        let (tell, told) = channel();
        let wish = Arc::new(TimerRequest::default());
        let timer = Timer::start(Some(Duration::MAX), wish.clone(), move || tell.send(()).is_ok());
        wish.set(Want::Checkpoint);
        assert!(told.recv().is_ok(), "the thread is gone");
        drop(timer);
    }
}
