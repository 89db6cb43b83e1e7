//! Runs written by hand: each goes through one thing on purpose, and says how to see that it did.

use crate::Setting;
use twinpage_core::LineMask;
use twinpage_core::crash::{Seen, Step};
use twinpage_core::dual_page::PoolLimit;

/// A run, where it runs, and what it must have gone through.
pub(crate) struct Script {
    pub(crate) setting: Setting,
    pub(crate) steps: Vec<Step>,
    pub(crate) went_there: fn(&Seen) -> bool,
}

/// Steps of a run, put together.
#[derive(Default)]
struct Steps {
    steps: Vec<Step>,
    value: u64,
}

impl Steps {
    /// One line of every page.
    fn touch(mut self, pages: impl IntoIterator<Item = u64>, line: usize) -> Steps {
        for page in pages {
            self.value += 1;
            let lines = LineMask::run(line, 1);
            self.steps.push(Step::Write {
                page,
                lines,
                value: self.value,
            });
        }
        self
    }

    /// All lines of every page.
    fn fill(mut self, pages: impl IntoIterator<Item = u64>) -> Steps {
        for page in pages {
            self.value += 1;
            self.steps.push(Step::Write {
                page,
                lines: LineMask::ALL,
                value: self.value,
            });
        }
        self
    }

    fn then(mut self, step: Step) -> Steps {
        self.steps.push(step);
        self
    }

    fn commit(mut self, context: usize) -> Steps {
        self.value += 1;
        let value = self.value;
        self.then(Step::Commit(context, value))
    }
}

fn script(
    name: &'static str,
    pool: PoolLimit,
    limit: u64,
    steps: Steps,
    went_there: fn(&Seen) -> bool,
) -> Script {
    Script {
        setting: Setting {
            name,
            pool,
            limit,
            ..Setting::default()
        },
        steps: steps.steps,
        went_there,
    }
}

/// All of them, for a medium that tears at `atom` bytes.
pub(crate) fn scripts(atom: usize) -> Vec<Script> {
    let new = Steps::default;
    let all = [
        script(
            "first writes, overwrites",
            PoolLimit::Grow,
            u64::MAX,
            new()
                .touch(0..3, 0)
                .commit(9)
                .touch(0..3, 0)
                .commit(9)
                .touch(0..3, 0)
                .commit(200)
                .touch(0..3, 1)
                .commit(0),
            |seen| seen.epochs == 4,
        ),
        script(
            "growth of the page space",
            PoolLimit::Grow,
            u64::MAX,
            (1..5).fold(new(), |steps, n| {
                steps.touch(n * 5..n * 5 + 4, n as usize).commit(0)
            }),
            |seen| seen.epochs == 4,
        ),
        script(
            "discards",
            PoolLimit::Grow,
            u64::MAX,
            new()
                .fill(0..4)
                .commit(0)
                .touch(0..4, 5)
                .commit(70)
                .then(Step::Discard(1..3))
                .touch([2], 7)
                .commit(70)
                .then(Step::Discard(0..9))
                .commit(0)
                .touch([1, 3], 9)
                .commit(0),
            |seen| seen.epochs == 5,
        ),
        script(
            "pool exhausted: reclaim",
            PoolLimit::Pages(2),
            u64::MAX,
            (0..3).fold(new().fill(0..5).commit(0), |steps, n| {
                let one = |steps: Steps, page: u64| steps.touch([page], n).commit(0);
                (0..5).fold(steps, one)
            }),
            |seen| seen.reclaimed > 4,
        ),
        script(
            "fall-back",
            PoolLimit::Pages(1),
            u64::MAX,
            new()
                .touch(0..4, 0)
                .commit(0)
                .touch(0..4, 1)
                .commit(90)
                .touch(0..4, 0)
                .touch([2], 3)
                .commit(90)
                .commit(0),
            |seen| seen.fallback_bytes > 0,
        ),
        script(
            "snapshots and switches",
            PoolLimit::Grow,
            u64::MAX,
            (0..22).fold(new(), |steps, n| {
                steps.touch([n % 3, 4], n as usize).commit(n as usize)
            }),
            |seen| seen.snapshot_bytes > 200,
        ),
        script(
            "no room: abandoned, goes on",
            PoolLimit::Grow,
            8,
            new()
                .touch(0..3, 0)
                .commit(0)
                .touch(0..9, 1)
                .commit(0)
                .touch(0..2, 2)
                .commit(0)
                .touch(0..9, 3)
                .commit(9),
            |seen| seen.lost >= 2 && seen.epochs >= 3,
        ),
        script(
            "consolidation",
            PoolLimit::Grow,
            u64::MAX,
            new()
                .touch(0..4, 0)
                .commit(0)
                .touch(0..4, 0)
                .commit(0)
                .then(Step::Reclaim(3))
                .touch(0..4, 0)
                .then(Step::Reclaim(9))
                .commit(0),
            |seen| seen.reclaimed > 0,
        ),
        script(
            "given back",
            PoolLimit::Grow,
            u64::MAX,
            new()
                .touch(0..20, 0)
                .commit(0)
                .touch(0..20, 0)
                .commit(0)
                .then(Step::GiveBack)
                .touch(0..20, 1)
                .then(Step::GiveBack)
                .commit(0)
                .touch(3..5, 0)
                .then(Step::GiveBack)
                .touch(0..9, 2)
                .commit(0)
                .then(Step::GiveBack),
            |seen| seen.reclaimed > 30,
        ),
        script(
            "commits larger than a journal",
            PoolLimit::Grow,
            u64::MAX,
            (0..3).fold(new(), |steps, n| {
                steps.touch((0..40).map(|page| page * 3), n).commit(500)
            }),
            |seen| seen.snapshot_bytes > 200,
        ),
        script(
            "expected, abandoned",
            PoolLimit::Pages(3),
            u64::MAX,
            new()
                .touch(0..4, 0)
                .commit(0)
                .then(Step::Expect(1))
                .then(Step::Expect(2))
                .touch([2], 1)
                .then(Step::Abandon)
                .touch([1, 3], 1)
                .commit(9)
                .touch([1, 2, 3], 1)
                .commit(9),
            |seen| seen.epochs == 3,
        ),
    ];
    let at = |mut script: Script| {
        script.setting.atom = atom;
        script
    };
    all.into_iter().map(at).collect()
}
