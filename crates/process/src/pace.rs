//! When the next checkpoint comes: at a fixed interval, or as often as the user's limits allow.
//!
//! * A controller is a function of what it is told: the time, and what checkpoints cost. It asks no clock and
//!   writes nothing, so it is tested with simulated programs and disks.
//! * What checkpoints cost is a limit that holds: the share of the program's time, and the bytes written.
//!   How much a kill may lose gives way where both cannot be kept, which is told.
//! * Regular checkpoints use half of what may be spent, as long as that keeps within what may be lost. The other
//!   half is for checkpoints that come early, because output waits for them.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// How the next checkpoint is chosen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Every {
    /// This long after the one before.
    Fixed(Duration),
    /// As often as these allow.
    Auto(Limits),
}

impl Default for Every {
    fn default() -> Every {
        Every::Auto(Limits::default())
    }
}

/// What checkpoints may cost, and what a kill may.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// The share of the program's time, from 0 to 1.
    pub slowdown: f64,
    /// Bytes written in a second, averaged over a few minutes; infinite where writing costs nothing.
    pub bytes_per_s: f64,
    /// Work since the last checkpoint.
    pub lose_at_most: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            slowdown: 0.03,
            bytes_per_s: 4e6,
            lose_at_most: Duration::from_secs(10),
        }
    }
}

/// No checkpoint comes sooner after another, where the limits choose.
pub const SHORTEST: Duration = Duration::from_millis(16);
/// How soon one comes that output waits for.
pub const NEAR: Duration = Duration::from_millis(20);
/// What so long a run allows may be used at once: of the program's time, and of bytes.
const SPARE_TIME: Duration = Duration::from_secs(5);
const SPARE_BYTES: Duration = Duration::from_secs(20);

/// What one checkpoint cost.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Cost {
    /// Time that the program lost.
    pub program: Duration,
    /// Bytes written.
    pub bytes: u64,
    /// From its beginning until it was durable.
    pub took: Duration,
}

/// The reason for an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The user fixed it.
    #[default]
    #[serde(alias = "stable-state")]
    Fixed,
    /// More often would be of no use.
    Shortest,
    /// `--slowdown`.
    Slowdown,
    /// `--write-rate`.
    WriteRate,
    /// A checkpoint takes as long to become durable.
    Medium,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Fixed => "fixed",
            Reason::Shortest => "the shortest there is",
            Reason::Slowdown => "as the slowdown allows",
            Reason::WriteRate => "as the write rate allows",
            Reason::Medium => "as fast as the disk",
        })
    }
}

/// Chooses when the next checkpoint comes.
#[derive(Debug)]
pub struct Controller {
    every: Every,
    /// What the next checkpoint is expected to cost; none before the second, as the first writes everything.
    expected: Option<Cost>,
    checkpoints: u64,
    began: Duration,
    /// What may be used at once, as of `spare_at`: seconds of the program's time, and bytes. Below zero
    /// after a checkpoint that cost more.
    spare_s: f64,
    spare_bytes: f64,
    spare_at: Duration,
    /// Seconds of the program's time that checkpoints took.
    spent_s: f64,
    /// What was told: about losses, about time.
    told: [bool; 2],
}

impl Controller {
    /// The program begins, or goes on, `now`. All times are since one and the same moment.
    #[must_use]
    pub fn new(every: Every, now: Duration) -> Controller {
        Controller {
            every,
            expected: None,
            checkpoints: 0,
            began: now,
            spare_s: 0.0,
            spare_bytes: 0.0,
            spare_at: now,
            spent_s: 0.0,
            told: [false; 2],
        }
    }

    /// The time from one regular checkpoint to the next, and the reason for it.
    #[must_use]
    pub fn interval(&self) -> (Duration, Reason) {
        let limits = match self.every {
            Every::Fixed(every) => return self.not_before_durable(every, Reason::Fixed),
            Every::Auto(limits) => limits,
        };
        let (least, why) = self.least(limits);
        let wanted = (least * 2).min(limits.lose_at_most).max(least);
        if wanted <= SHORTEST {
            return self.not_before_durable(SHORTEST, Reason::Shortest);
        }
        self.not_before_durable(wanted, why)
    }

    /// The interval that the costs allow if nothing is kept for early checkpoints.
    fn least(&self, limits: Limits) -> (Duration, Reason) {
        let Some(cost) = self.expected else {
            return (Duration::ZERO, Reason::Shortest);
        };
        let by_time = cost.program.as_secs_f64() / limits.slowdown;
        let by_bytes = cost.bytes as f64 / limits.bytes_per_s;
        let (seconds, why) = if by_time >= by_bytes {
            (by_time, Reason::Slowdown)
        } else {
            (by_bytes, Reason::WriteRate)
        };
        (Duration::from_secs_f64(seconds.min(1e6)), why)
    }

    fn not_before_durable(&self, interval: Duration, why: Reason) -> (Duration, Reason) {
        let took = self.expected.map_or(Duration::ZERO, |cost| cost.took);
        if took > interval {
            (took, Reason::Medium)
        } else {
            (interval, why)
        }
    }

    /// When the next regular checkpoint is due.
    #[must_use]
    pub fn due(&self) -> Duration {
        self.began + self.interval().0
    }

    /// Whether a checkpoint is to begin `now`; `early` when something waits for it.
    #[must_use]
    pub fn is_due(&self, now: Duration, early: bool) -> bool {
        let Every::Auto(limits) = self.every else {
            return now >= self.due();
        };
        let cost = self.expected.unwrap_or_default();
        let (spare_s, spare_bytes) = self.spare(now, limits);
        if now >= self.due() {
            return spare_bytes >= 0.0;
        }
        let enough = spare_s >= cost.program.as_secs_f64() && spare_bytes >= cost.bytes as f64;
        early && enough && now >= self.began + NEAR
    }

    /// Whether one may begin `now` that something waits for while the program does nothing. It takes no time of the
    /// program, so only what it writes counts.
    #[must_use]
    pub fn is_free(&self, now: Duration) -> bool {
        let Every::Auto(limits) = self.every else {
            return true;
        };
        let bytes = self.expected.unwrap_or_default().bytes;
        self.spare(now, limits).1 >= bytes as f64
    }

    /// What may be used at once.
    fn spare(&self, now: Duration, limits: Limits) -> (f64, f64) {
        let since_s = now.saturating_sub(self.spare_at).as_secs_f64();
        let most_s = SPARE_TIME.as_secs_f64() * limits.slowdown;
        let seconds = (self.spare_s + since_s * limits.slowdown).min(most_s);
        if limits.bytes_per_s.is_infinite() {
            return (seconds, f64::INFINITY);
        }
        let most_bytes = SPARE_BYTES.as_secs_f64() * limits.bytes_per_s;
        let bytes = (self.spare_bytes + since_s * limits.bytes_per_s).min(most_bytes);
        (seconds, bytes)
    }

    /// A checkpoint begins.
    pub fn begins(&mut self, now: Duration) {
        self.began = now;
    }

    /// It is durable, and cost this.
    pub fn learn(&mut self, now: Duration, cost: Cost) {
        if let Every::Auto(limits) = self.every {
            let (spare_s, spare_bytes) = self.spare(now, limits);
            let is_first = self.checkpoints == 0; // it has to be made, whatever it costs
            let least_s = -SPARE_TIME.as_secs_f64() * limits.slowdown;
            self.spare_s = (spare_s - cost.program.as_secs_f64()).max(least_s);
            self.spare_bytes = spare_bytes - if is_first { 0.0 } else { cost.bytes as f64 };
            self.spare_at = now;
        }
        self.checkpoints += 1;
        self.spent_s += cost.program.as_secs_f64();
        if self.checkpoints == 1 {
            return;
        }
        self.expected = Some(match self.expected {
            None => cost,
            Some(before) => Cost {
                program: (before.program + cost.program) / 2,
                bytes: u64::midpoint(before.bytes, cost.bytes),
                took: (before.took + cost.took) / 2,
            },
        });
    }

    /// A limit that cannot be kept, or a disk that cannot follow; each is told once. `spent` is what this session came to.
    pub fn complaint(&mut self, spent: &Chosen) -> Option<String> {
        let found = [self.about_losses(), self.about_time(spent)];
        let mut news = found.into_iter().zip(&mut self.told).filter(|(_, told)| !**told);
        news.find_map(|(why, told)| {
            *told = why.is_some();
            why
        })
    }

    /// Why more can be lost than the user wants.
    fn about_losses(&self) -> Option<String> {
        const SLOW: Duration = Duration::from_millis(500);
        const ENOUGH: u64 = 6;
        let cost = self.expected.filter(|_| self.checkpoints >= ENOUGH)?;
        let disk = format!(
            "the disk cannot follow: a checkpoint takes {} to be written; so much can be lost",
            shown(cost.took)
        );
        let limits = match self.every {
            Every::Fixed(every) => return (cost.took > every.max(SLOW)).then_some(disk),
            Every::Auto(limits) => limits,
        };
        let (interval, why) = self.interval();
        if interval <= limits.lose_at_most {
            return None;
        }
        let (most, interval) = (shown(limits.lose_at_most), shown(interval));
        let because = |option: &str| {
            format!(
                "checkpoints come every {interval} only, because of {option}: so much can be lost, more than --lose-at-most {most}"
            )
        };
        Some(match why {
            Reason::Medium => format!("{disk}, more than --lose-at-most {most}"),
            Reason::Shortest => format!(
                "checkpoints come every {interval}, and no sooner while limits choose: so much can be lost, more than --lose-at-most {most}; --every {most} is as often as that"
            ),
            Reason::WriteRate => because("--write-rate"),
            Reason::Slowdown | Reason::Fixed => because("--slowdown"),
        })
    }

    /// Why the program is slower than the user wants: the calls that are watched take their time whatever the pace.
    fn about_time(&self, spent: &Chosen) -> Option<String> {
        const ENOUGH_S: f64 = 10.0;
        const CLEARLY: f64 = 1.25;
        let Every::Auto(limits) = self.every else {
            return None;
        };
        let is_more = spent.run_s >= ENOUGH_S && spent.slowdown() > limits.slowdown * CLEARLY;
        let calls = (spent.ours_s - self.spent_s).max(0.0) / spent.run_s;
        is_more.then(|| {
            format!(
                "twinpage takes {} of the program's time, more than --slowdown {}: {} for checkpoints, and {} for its calls that change files and the like, which no pace makes fewer",
                percent(spent.slowdown()),
                percent(limits.slowdown),
                percent((spent.slowdown() - calls).max(0.0)),
                percent(calls)
            )
        })
    }
}

/// As people say it, and as options are given: `16ms`, `0.3ms`, `12.5s`.
fn shown(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    match ms {
        ..1.0 => format!("{ms:.1}ms"),
        ..1000.0 => format!("{ms:.0}ms"),
        _ => format!("{:.1}s", ms / 1e3),
    }
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 10.0 {
        format!("{}%", (percent * 100.0).round() / 100.0)
    } else {
        format!("{percent:.0}%")
    }
}

/// The pace of a program, for people and scripts.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Chosen {
    /// Microseconds from one regular checkpoint to the next.
    pub every_us: u64,
    /// The reason for that interval.
    pub why: Reason,
    /// How long the program has run, in all its lives, in seconds.
    pub run_s: f64,
    /// How much of that checkpoints and watched calls took, in seconds.
    pub ours_s: f64,
}

impl Chosen {
    /// The share of the program's time that checkpoints and watched calls took.
    #[must_use]
    pub fn slowdown(&self) -> f64 {
        if self.run_s > 0.0 {
            self.ours_s / self.run_s
        } else {
            0.0
        }
    }

    /// The rate of `bytes` in the whole run, an hour.
    #[must_use]
    pub fn bytes_per_hour(&self, bytes: u64) -> u64 {
        if self.run_s > 0.0 {
            (bytes as f64 / self.run_s * 3600.0) as u64
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program as its checkpoints see it.
    #[derive(Clone, Copy)]
    struct Program {
        /// Bytes it writes to for the first time, at most, and how many in a second.
        heap: f64,
        bytes_per_s: f64,
        /// It prints this often.
        prints: Option<Duration>,
        /// The share of its time in calls that are watched.
        watched: f64,
    }

    #[derive(Debug, Default)]
    struct Outcome {
        slowdown: f64,
        checkpoints: u64,
        bytes: u64,
        worst_minute: u64,
        /// The longest time from one checkpoint to the next, once it has begun well.
        longest: Duration,
        /// The longest that output waited.
        waited: Duration,
        complaint: Option<String>,
    }

    const STEP: Duration = Duration::from_millis(4);

    fn simulate(every: Every, program: Program, disk_bytes_per_s: f64, run: Duration) -> Outcome {
        let mut controller = Controller::new(every, Duration::ZERO);
        let mut outcome = Outcome::default();
        let minute = Duration::from_secs(60);
        let (mut now, mut began, mut ours) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let mut writes: Vec<(Duration, u64)> = Vec::new();
        let mut in_flight: Option<(Duration, Cost)> = None;
        let (mut printed, mut held_since) = (Duration::ZERO, None);
        while now < run {
            now += STEP;
            if program.prints.is_some_and(|often| now >= printed + often) {
                printed = now;
                held_since.get_or_insert(now);
            }
            if in_flight.is_some_and(|(until, _)| now >= until)
                && let Some((_, cost)) = in_flight.take()
            {
                controller.learn(now, cost);
                writes.push((now, cost.bytes));
            }
            if in_flight.is_some() || !controller.is_due(now, held_since.is_some()) {
                continue;
            }
            let since = now - began;
            let bytes = (program.bytes_per_s * since.as_secs_f64()).min(program.heap) as u64 + 8192;
            let stop = Duration::from_secs_f64(0.0003 + bytes as f64 / 4e9);
            let took = stop + Duration::from_secs_f64(0.001 + bytes as f64 / disk_bytes_per_s);
            if now > run / 4 {
                outcome.longest = outcome.longest.max(since);
            }
            if let Some(held) = held_since.take() {
                outcome.waited = outcome.waited.max(now - held);
            }
            controller.begins(now);
            (began, ours) = (now, ours + stop);
            outcome.checkpoints += 1;
            outcome.bytes += bytes;
            in_flight = Some((
                now + took,
                Cost {
                    program: stop,
                    bytes,
                    took,
                },
            ));
            now += stop;
        }
        for (n, (from, _)) in writes.iter().enumerate() {
            let minute = writes[n..].iter().take_while(|(at, _)| *at < *from + minute);
            outcome.worst_minute = outcome.worst_minute.max(minute.map(|(_, bytes)| bytes).sum());
        }
        outcome.slowdown = ours.as_secs_f64() / run.as_secs_f64();
        let run_s = run.as_secs_f64();
        let spent = Chosen {
            run_s,
            ours_s: ours.as_secs_f64() + program.watched * run_s,
            ..Chosen::default()
        };
        outcome.complaint = controller.complaint(&spent);
        assert_eq!(controller.complaint(&spent), None, "it is told once");
        outcome
    }

    const FAST: f64 = 1e9;
    const SMALL: Program = Program {
        heap: 40e3,
        bytes_per_s: 1e6,
        prints: None,
        watched: 0.0,
    };
    const LARGE: Program = Program {
        heap: 200e6,
        bytes_per_s: 2e9,
        prints: None,
        watched: 0.0,
    };

    fn minutes(n: u64) -> Duration {
        Duration::from_secs(60 * n)
    }

    #[test]
    fn a_small_program_is_checkpointed_often_within_its_limits() {
        let found = simulate(Every::default(), SMALL, FAST, minutes(3));
        assert!(found.slowdown < 0.03, "{found:?}");
        assert!(found.worst_minute < 240_000_000, "{found:?}");
        assert!(found.longest < Duration::from_millis(200), "{found:?}");
        assert_eq!(found.complaint, None);
    }

    #[test]
    fn a_large_program_keeps_the_write_rate_and_says_what_may_be_lost() {
        let found = simulate(Every::default(), LARGE, FAST, minutes(20));
        assert!(found.bytes as f64 / 1200.0 < 4.3e6, "{found:?}");
        assert!(
            found.worst_minute < 450_000_000,
            "two checkpoints of 200 MB: {found:?}"
        );
        assert!(found.slowdown < 0.03, "{found:?}");
        let complaint = found.complaint.unwrap_or_default();
        assert!(
            complaint.contains("--write-rate") && complaint.contains("10.0s"),
            "{complaint}"
        );
        // Where the memory outlives nothing but the program, bytes cost nothing.
        let limits = Limits {
            bytes_per_s: f64::INFINITY,
            ..Limits::default()
        };
        let found = simulate(Every::Auto(limits), LARGE, FAST, minutes(3));
        assert!(
            found.slowdown < 0.031 && found.longest < Duration::from_secs(5),
            "{found:?}"
        );
        assert_eq!(found.complaint, None);
    }

    #[test]
    fn every_limit_is_kept_whatever_the_program() {
        for heap in [1e4, 1e6, 1e8, 1e9] {
            for bytes_per_s in [1e5, 1e7, 1e9] {
                for prints in [None, Some(Duration::from_millis(7)), Some(Duration::from_secs(3))] {
                    let program = Program {
                        heap,
                        bytes_per_s,
                        prints,
                        ..SMALL
                    };
                    let found = simulate(Every::default(), program, FAST, minutes(10));
                    let share = 0.0315; // a checkpoint more than the run pays for
                    assert!(
                        found.slowdown < share,
                        "{heap} {bytes_per_s} {prints:?}: {found:?}"
                    );
                    let most = 4e6 * 600.0 + heap + bytes_per_s.min(heap);
                    assert!(
                        (found.bytes as f64) < most,
                        "{heap} {bytes_per_s} {prints:?}: {found:?}"
                    );
                    assert!(
                        found.checkpoints > 2,
                        "{heap} {bytes_per_s} {prints:?}: {found:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn output_now_and_then_does_not_wait() {
        let quiet = Limits {
            slowdown: 0.0005,
            ..Limits::default()
        };
        for limits in [Limits::default(), quiet] {
            let talks = Program {
                prints: Some(Duration::from_secs(4)),
                ..SMALL
            };
            let found = simulate(Every::Auto(limits), talks, FAST, minutes(3));
            assert!(found.waited <= NEAR + 2 * STEP, "{found:?}");
        }
        // Without anything that waits, the same limits give a longer interval.
        let found = simulate(Every::Auto(quiet), SMALL, FAST, minutes(3));
        assert!(found.longest > Duration::from_secs(1), "{found:?}");
    }

    #[test]
    fn what_waits_while_nothing_runs_is_limited_by_what_is_written() {
        let mut controller = Controller::new(Every::default(), Duration::ZERO);
        let mut now = Duration::from_secs(1);
        let mut feed = |now, program, bytes| {
            controller.begins(now);
            let took = Duration::from_millis(1);
            controller.learn(now, Cost { program, bytes, took });
            controller.is_free(now)
        };
        for _ in 0..1000 {
            now += Duration::from_millis(2);
            let free = feed(now, Duration::from_millis(1), 4096);
            assert!(free, "half of its time, which it does not use, and 2 MB/s");
        }
        let free = feed(now, Duration::ZERO, 100_000_000);
        assert!(!free);
        assert!(controller.is_free(now + minutes(1)));
        let fixed = Controller::new(Every::Fixed(minutes(1)), Duration::ZERO);
        assert!(fixed.is_free(now), "an interval is the longest, not the shortest");
    }

    #[test]
    fn a_disk_that_cannot_follow_is_told_of() {
        let slow = 20e6;
        let fixed = Every::Fixed(SHORTEST);
        let found = simulate(fixed, LARGE, slow, minutes(5));
        assert!(
            found
                .complaint
                .is_some_and(|why| why.contains("disk cannot follow"))
        );
        assert_eq!(simulate(fixed, SMALL, slow, minutes(1)).complaint, None);
        let found = simulate(Every::Fixed(SHORTEST), SMALL, FAST, minutes(1));
        assert!(found.checkpoints > 2900, "{found:?}");
    }

    fn lose_at_most(lose_at_most: Duration) -> Every {
        Every::Auto(Limits {
            lose_at_most,
            ..Limits::default()
        })
    }

    /// A limit below what there is, and a medium that is slower than the limit: each is named, with figures.
    #[test]
    fn a_limit_that_cannot_be_kept_is_told_with_its_cause() {
        let complaint = |ms, program, disk| {
            let every = lose_at_most(Duration::from_millis(ms));
            simulate(every, program, disk, minutes(1))
                .complaint
                .unwrap_or_default()
        };
        let told = complaint(10, SMALL, FAST);
        assert!(
            told.contains("every 16ms")
                && told.contains("--lose-at-most 10ms")
                && !told.contains("--slowdown"),
            "{told}"
        );
        let slow = 160e3;
        let told = complaint(100, SMALL, slow);
        assert!(told.contains("disk cannot follow"), "{told}");
        assert!(
            told.contains("--lose-at-most 100ms") && !told.contains("--slowdown"),
            "{told}"
        );
        assert_eq!(complaint(10_000, SMALL, slow), "", "ten seconds are enough");
        // A checkpoint of a large program costs more of its time.
        let often = Every::Auto(Limits {
            bytes_per_s: f64::INFINITY,
            lose_at_most: Duration::from_millis(500),
            ..Limits::default()
        });
        let told = simulate(often, LARGE, FAST, minutes(1))
            .complaint
            .unwrap_or_default();
        assert!(
            told.contains("because of --slowdown") && told.contains("--lose-at-most 500ms"),
            "{told}"
        );
    }

    /// What watched calls take counts, too.
    #[test]
    fn a_program_that_is_slower_than_allowed_is_told_of() {
        let calls = Program {
            watched: 0.6,
            ..SMALL
        };
        let told = simulate(Every::default(), calls, FAST, minutes(1)).complaint;
        let told = told.unwrap_or_default();
        assert!(
            told.contains("--slowdown 3%") && told.contains("60% for its calls"),
            "{told}"
        );
        let few = Program {
            watched: 0.001,
            ..SMALL
        };
        assert_eq!(simulate(Every::default(), few, FAST, minutes(1)).complaint, None);
        let fixed = Every::Fixed(SHORTEST);
        assert_eq!(
            simulate(fixed, calls, FAST, minutes(1)).complaint,
            None,
            "no limit was given"
        );
        assert_eq!(
            simulate(Every::default(), calls, FAST, SHORTEST * 100).complaint,
            None,
            "too short to tell"
        );
    }

    #[test]
    fn a_program_that_changes_is_followed() {
        let mut controller = Controller::new(Every::default(), Duration::ZERO);
        let cost = |bytes| Cost {
            program: Duration::from_micros(300),
            bytes,
            took: Duration::from_millis(2),
        };
        let mut now = Duration::ZERO;
        let mut feed = |bytes: u64, times: usize| {
            for _ in 0..times {
                now = controller.due().max(now);
                controller.begins(now);
                controller.learn(now, cost(bytes));
            }
            controller.interval()
        };
        feed(30_000_000, 1);
        let (often, _) = feed(8192, 3);
        assert!(
            often < Duration::from_millis(50),
            "the first, which writes all, says nothing: {often:?}"
        );
        let (seldom, why) = feed(8_000_000, 10);
        assert!(
            seldom >= Duration::from_secs(3) && why == Reason::WriteRate,
            "{seldom:?} {why:?}"
        );
        let (often, _) = feed(8192, 15);
        assert!(often < Duration::from_millis(50), "{often:?}");
    }
}
