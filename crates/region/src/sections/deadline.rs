//! Sections without a waiter are made durable in time, by a thread of their own.

use crate::error::{Error, Result};
use crate::lock::{lock, wait, wait_timeout};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// When the next commit must begin.
#[derive(Debug, Default)]
struct Deadline {
    due: Mutex<Due>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Due {
    at: Option<Instant>,
    is_over: bool,
}

impl Deadline {
    /// Waits until a commit is due; false at the end.
    fn wait(&self) -> bool {
        let mut due = lock(&self.due);
        while !due.is_over {
            let left = due.at.map(|at| at.saturating_duration_since(Instant::now()));
            due = match left {
                None => wait(&self.changed, due),
                Some(Duration::ZERO) => {
                    due.at = None;
                    return true;
                }
                Some(left) => wait_timeout(&self.changed, due, left),
            };
        }
        false
    }
}

/// The thread, until dropped.
#[derive(Debug)]
pub(crate) struct Behind {
    deadline: Arc<Deadline>,
    thread: Option<JoinHandle<()>>,
}

impl Behind {
    /// Starts the thread, which commits with `commit`.
    pub(crate) fn start(commit: impl Fn() -> Result<()> + Send + 'static) -> Result<Behind> {
        let deadline = Arc::new(Deadline::default());
        let waits = deadline.clone();
        let thread = Builder::new()
            .name("twinpage-sections".into())
            .spawn(move || {
                while waits.wait() {
                    // The waiters of a section are told; a store without room may have some later.
                    if let Err(Error::Poisoned(_)) = commit() {
                        break;
                    }
                }
            })
            .map_err(|e| Error::system("starting the thread that makes sections durable", e))?;
        Ok(Behind {
            deadline,
            thread: Some(thread),
        })
    }

    /// What was done so far is to be durable that much later.
    pub(crate) fn within(&self, bound: Duration) {
        // One too far away to be told is none.
        let Some(at) = Instant::now().checked_add(bound) else {
            return;
        };
        let mut due = lock(&self.deadline.due);
        if due.at.is_none_or(|due| at < due) {
            due.at = Some(at);
            self.deadline.changed.notify_all();
        }
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        lock(&self.deadline.due).is_over = true;
        self.deadline.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It panics only where a commit did, and that was told.
            let _ = thread.join();
        }
    }
}
