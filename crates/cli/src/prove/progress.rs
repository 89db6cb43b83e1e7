//! How far a proof is: a bar on a terminal, lines of text otherwise.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::Cell;
use std::time::{Duration, Instant};
use twinpage_os::messages;

/// How often the bar is drawn while nothing happens, so that its clock goes on.
const TICK: Duration = Duration::from_millis(200);
/// The shortest time between two lines about kills.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

pub(super) struct Progress {
    bar: ProgressBar,
    said_at: Cell<Instant>,
}

impl Progress {
    pub(super) fn new(kills: u32) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(kills.into()), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos} of {len} kills, {elapsed}: {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        Progress {
            bar,
            said_at: Cell::new(Instant::now()),
        }
    }

    /// What is being done now.
    pub(super) fn now(&self, what: String) {
        self.bar.set_message(what);
    }

    /// A line that stays.
    pub(super) fn say(&self, what: &str) {
        self.bar.suspend(|| messages::tell(what));
        self.said_at.set(Instant::now());
    }

    /// One more of the kills that were asked for.
    pub(super) fn killed(&self) {
        self.bar.inc(1);
        if self.bar.is_hidden() && self.said_at.get().elapsed() >= BETWEEN_LINES {
            let (done, all) = (self.bar.position(), self.bar.length().unwrap_or_default());
            self.say(&format!("{done} of {all} kills"));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
