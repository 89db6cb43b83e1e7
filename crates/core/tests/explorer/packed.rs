//! Packed lines under the explorer: scripts that go through every road of a commit, random runs, and
//! mistakes of their own. Below lies the dual page with lines of 4 KiB, which has its own runs.

use crate::{Row, TRIES};
use std::time::Instant;
use twinpage_core::crash::*;
use twinpage_core::dual_page::{self, DualPage, PoolLimit};
use twinpage_core::packed::{Fault, Options, Packed, Tuning};
use twinpage_core::*;

type Store = Packed<DualPage<Recorder>>;

/// Bytes of a sheet, and of an extent below.
const SHEET: u64 = 64 * 4096;

/// Images of several mebibytes: fewer of them.
const EFFORT: Effort = Effort {
    samples: 2,
    short_recovery: 0,
    lives: 100,
    deep: 60,
    only_crashes: false,
};

/// A kind of store, and of random run.
#[derive(Clone, Copy)]
struct Setting {
    name: &'static str,
    pool: PoolLimit,
    /// Extents the medium may grow to.
    limit: u64,
    tuning: Tuning,
    /// Sheets the log may grow to.
    log_sheets: u64,
    /// Bytes of the journal below.
    journal: u64,
    /// A mistake of the scheme below.
    below: Option<dual_page::Fault>,
    /// Whether what the store wishes for is given, after every other commit.
    given: bool,
    profile: Profile,
}

impl Default for Setting {
    fn default() -> Setting {
        Setting {
            name: "packed",
            pool: PoolLimit::Grow,
            limit: u64::MAX,
            tuning: USUAL,
            log_sheets: 3,
            journal: 2048,
            below: None,
            given: false,
            profile: Profile {
                epochs: 7,
                pages: 70,
                writes: 30,
                context: 300,
            },
        }
    }
}

const LAZY: Tuning = Tuning {
    whole_lines: 40,
    pressure_percent: 0,
    log_percent: 50,
    payload_bytes: 0,
};
const EAGER: Tuning = Tuning {
    whole_lines: 24,
    pressure_percent: 20_000,
    log_percent: 50,
    payload_bytes: 0,
};
/// A log longer than all the pages: a few of them are enough to make it grow and shrink.
const LONG: Tuning = Tuning {
    whole_lines: 40,
    pressure_percent: 100,
    log_percent: 2000,
    payload_bytes: 0,
};
/// No commit is a payload.
const USUAL: Tuning = Tuning {
    whole_lines: 40,
    pressure_percent: 100,
    log_percent: 100,
    payload_bytes: 0,
};
/// Most are.
const SMALL: Tuning = Tuning {
    payload_bytes: 8192,
    ..EAGER
};

fn settings() -> [Setting; 9] {
    let packed = Setting::default();
    let small = Profile {
        pages: 30,
        writes: 12,
        ..packed.profile
    };
    [
        packed,
        Setting {
            name: "packed, folding early",
            tuning: EAGER,
            ..packed
        },
        Setting {
            name: "packed, given what it wishes for",
            tuning: EAGER,
            given: true,
            ..packed
        },
        Setting {
            name: "packed, small pool",
            pool: PoolLimit::Pages(3),
            tuning: EAGER,
            profile: small,
            ..packed
        },
        Setting {
            name: "packed, a log that grows and shrinks",
            tuning: LONG,
            log_sheets: 16,
            ..packed
        },
        Setting {
            name: "packed, medium that fills up",
            limit: 11,
            profile: small,
            ..packed
        },
        payloads(),
        snapshots(),
        Setting {
            name: "packed, payloads, given what it wishes for",
            given: true,
            ..payloads()
        },
    ]
}

/// Many commits are payloads.
fn payloads() -> Setting {
    Setting {
        name: "packed, payloads",
        tuning: SMALL,
        profile: FEW,
        ..Setting::default()
    }
}

/// The same with a journal that is soon full, and reclaims between.
fn snapshots() -> Setting {
    Setting {
        name: "packed, payloads, small pool",
        pool: PoolLimit::Pages(3),
        journal: 700,
        ..payloads()
    }
}

/// Epochs of few lines, of pages that are there after some of them.
const FEW: Profile = Profile {
    epochs: 14,
    pages: 8,
    writes: 3,
    context: 40,
};

fn medium(setting: &Setting) -> Image {
    Image::new(512).limited(setting.limit.saturating_mul(SHEET))
}

/// Packed lines over the dual page, with a mistake if there is one.
fn subject(setting: &Setting, fault: Option<Fault>) -> Subject<Store> {
    let Setting {
        pool,
        tuning,
        below: mistake,
        ..
    } = *setting;
    let geometry = Geometry::new(4096, SHEET as u32).expect("a sheet is an extent");
    let below = dual_page::Options::new(geometry)
        .pool(pool)
        .journal_bytes(setting.journal)
        .id(0x1d);
    let options = Options::default().log_bytes(setting.log_sheets * SHEET).id(0x2d);
    Subject {
        create: Box::new(move |medium| {
            let mut below = DualPage::create(medium, &below)?;
            mistake.into_iter().for_each(|fault| below.plant(fault));
            let mut store = Packed::create(below, &options)?;
            store.set_tuning(tuning);
            fault.into_iter().for_each(|fault| store.plant(fault));
            Ok(store)
        }),
        recover: Box::new(move |medium| {
            let (below, found) = DualPage::recover_with(medium, mistake)?;
            let (mut store, found) = Packed::over_with(below, found, fault)?;
            store.set_tuning(tuning);
            Ok((store, found))
        }),
    }
}

/// A run, and what it must have gone through.
struct Script {
    setting: Setting,
    steps: Vec<Step>,
    went_there: fn(&Seen) -> bool,
}

/// Steps of a run, put together.
#[derive(Default)]
struct Steps {
    steps: Vec<Step>,
    value: u64,
}

impl Steps {
    /// The same lines of every page, told to be changed.
    fn lines(mut self, pages: impl IntoIterator<Item = u64>, lines: LineMask) -> Steps {
        for page in pages {
            self.value += 3;
            let value = self.value;
            self.steps.push(Step::Write { page, lines, value });
        }
        self
    }

    /// One line of every page.
    fn touch(self, pages: impl IntoIterator<Item = u64>, line: usize) -> Steps {
        self.lines(pages, LineMask::run(line, 1))
    }

    fn fill(self, pages: impl IntoIterator<Item = u64>) -> Steps {
        self.lines(pages, LineMask::ALL)
    }

    fn then(mut self, step: Step) -> Steps {
        self.steps.push(step);
        self
    }

    fn commit(mut self, context: usize) -> Steps {
        self.value += 3;
        let value = self.value;
        self.then(Step::Commit(context, value))
    }
}

/// Payloads with reclaims between: some of those find the journal full, and are a snapshot.
fn carried() -> Script {
    Script {
        setting: Setting {
            name: "packed: snapshots between payloads",
            pool: PoolLimit::Pages(4),
            journal: 300,
            ..payloads()
        },
        steps: (0..30)
            .fold(Steps::default().fill(0..6).commit(9), |steps, n| {
                let steps = steps.touch([n % 5], n as usize).then(Step::Commit(9, 5));
                steps.then(Step::Reclaim(1))
            })
            .steps,
        went_there: |seen| seen.epochs == 31 && seen.snapshot_bytes > 0 && seen.reclaimed > 3,
    }
}

/// Almost as many lines as may be packed.
const MANY: LineMask = LineMask(0x5555_7777_5555_5577);

fn scripts() -> Vec<Script> {
    let new = Steps::default;
    let script = |name, tuning, limit, steps: Steps, went_there| Script {
        setting: Setting {
            name,
            tuning,
            limit,
            ..Setting::default()
        },
        steps: steps.steps,
        went_there,
    };
    let usual = USUAL;
    let resized = Script {
        setting: Setting {
            name: "packed: the log grows and shrinks",
            tuning: LONG,
            log_sheets: 16,
            ..Setting::default()
        },
        steps: (0..3)
            .fold(
                (0..3)
                    .fold(new().fill(0..60).commit(0), |steps, n| {
                        steps.touch(0..60, n).commit(9)
                    })
                    .then(Step::Discard(4..60))
                    .commit(9),
                |steps, n| steps.touch(0..4, n).commit(9),
            )
            .touch(0..4, 9)
            .commit(9)
            .steps,
        went_there: |seen| seen.epochs == 9 && seen.log_bytes > 0,
    };
    let payloads = |name, steps: Steps| Script {
        setting: Setting { name, ..payloads() },
        steps: steps.steps,
        went_there: |seen| seen.epochs > 12 && (1..8 * 4096).contains(&seen.log_bytes),
    };
    vec![
        resized,
        payloads(
            "packed: payloads fill the journal",
            (0..12).fold(new().fill(0..6).commit(9), |steps, n| {
                let steps = steps.touch(n % 4..n % 4 + 3, n as usize);
                let steps = steps.then(Step::Commit(9, n / 3));
                match n % 5 {
                    4 => steps.touch(0..3, 1).then(Step::Abandon),
                    _ => steps,
                }
            }),
        ),
        carried(),
        script(
            "packed: given back",
            usual,
            u64::MAX,
            new()
                .fill(0..70)
                .commit(0)
                .fill(0..70)
                .commit(9)
                .then(Step::GiveBack)
                .touch(0..9, 5)
                .fill(60..70)
                .then(Step::GiveBack)
                .commit(9)
                .then(Step::GiveBack)
                .touch(0..9, 6)
                .commit(0),
            |seen| seen.reclaimed > 2,
        ),
        script(
            "packed: sparse, again and again",
            usual,
            u64::MAX,
            (1..5).fold(new().fill(0..6).commit(9), |steps, n| {
                steps.touch(0..6, n).touch(0..3, n + 1).commit(9)
            }),
            |seen| seen.epochs == 5 && seen.log_bytes == 4 * 4096,
        ),
        script(
            "packed: sparse, dense and new pages in one",
            usual,
            u64::MAX,
            (0..3).fold(new().fill(0..4).commit(0), |steps, n| {
                let more = 4 + n * 3;
                let steps = steps.touch(0..3, n as usize).fill([3]).touch(more..more + 2, 7);
                steps.lines([more + 2], MANY).touch([3], 9).commit(100)
            }),
            |seen| seen.epochs == 4 && seen.log_bytes > 0,
        ),
        script(
            "packed: pages with strips come and go",
            usual,
            u64::MAX,
            new()
                .fill(0..8)
                .commit(0)
                .touch(0..8, 5)
                .commit(70)
                .then(Step::Discard(1..5))
                .touch([2], 7)
                .fill([3])
                .touch([3], 5)
                .commit(70)
                .touch(0..8, 6)
                .then(Step::Discard(6..7))
                .commit(0)
                .then(Step::Discard(0..99))
                .commit(0)
                .touch([1, 3, 5, 7], 9)
                .commit(0)
                .touch([1, 3, 5, 7], 8)
                .commit(0),
            |seen| seen.epochs == 7,
        ),
        script(
            "packed: the ring comes round",
            LAZY,
            u64::MAX,
            (0..9).fold(
                new()
                    .fill(0..50)
                    .touch(30..50, 3)
                    .commit(0)
                    .touch(30..50, 1)
                    .commit(0),
                |steps, n| {
                    let lines = LineMask(MANY.0.rotate_left(n as u32));
                    steps.lines((0..40).skip(n % 3), lines).commit(n)
                },
            ),
            |seen| seen.write_back_bytes > 0 && seen.log_bytes > 3 * SHEET,
        ),
        script(
            "packed: folded a little at a time",
            EAGER,
            u64::MAX,
            (0..8).fold(new().fill(0..40).commit(0), |steps, n| {
                steps
                    .touch((n..40).step_by(2), n as usize)
                    .touch([n], 63)
                    .commit(0)
            }),
            |seen| seen.write_back_bytes > 0,
        ),
        script(
            "packed: folded as it is given",
            EAGER,
            u64::MAX,
            (0..8).fold(new().fill(0..40).commit(0), |steps, n| {
                let steps = steps.then(Step::Grant).touch((n..40).step_by(2), n as usize);
                steps.then(Step::Discard(n..n + 1)).commit(0)
            }),
            |seen| seen.write_back_bytes > 0,
        ),
        script(
            "packed: an epoch larger than the log",
            LAZY,
            u64::MAX,
            new()
                .fill(0..150)
                .commit(0)
                .touch(0..150, 1)
                .commit(0)
                .lines(0..150, MANY)
                .lines(0..150, LineMask(MANY.0.rotate_left(1)))
                .lines(0..150, LineMask(MANY.0.rotate_left(3)))
                .commit(0)
                .touch(0..9, 1)
                .commit(0),
            |seen| seen.epochs == 4 && seen.log_bytes > 3 * SHEET && seen.write_back_bytes > 0,
        ),
        script(
            "packed: abandoned, goes on",
            EAGER,
            u64::MAX,
            new()
                .fill(0..9)
                .commit(0)
                .touch(0..9, 1)
                .commit(0)
                .touch(0..9, 2)
                .then(Step::Discard(3..5))
                .fill([6])
                .then(Step::Abandon)
                .touch(2..7, 3)
                .commit(9)
                .touch(0..9, 1)
                .commit(9),
            |seen| seen.epochs == 4,
        ),
        script(
            "packed: no room, abandoned, goes on",
            usual,
            10,
            new()
                .fill(0..9)
                .commit(0)
                .touch(0..9, 1)
                .commit(0)
                .touch(0..9, 2)
                .fill((1..9).map(|sheet| sheet * 64))
                .commit(0)
                .touch(0..5, 3)
                .commit(9),
            |seen| seen.lost >= 1 && seen.epochs >= 3,
        ),
        script(
            "packed: growth of the page space",
            usual,
            u64::MAX,
            (1..4).fold(new().fill(0..3).commit(0), |steps, n| {
                steps
                    .touch(n * 500..n * 500 + 3, 1)
                    .touch(0..3, n as usize)
                    .commit(0)
            }),
            |seen| seen.epochs == 4,
        ),
    ]
}

/// Scripts and random runs of every setting.
pub(crate) fn sound(seed: u64, runs: u64) -> Result<(), String> {
    for script in scripts() {
        let (begun, mut row) = (Instant::now(), Row::default());
        let name = script.setting.name;
        let mut explorer = Explorer::new(subject(&script.setting, None), EFFORT, seed);
        let explored = explorer.explore(medium(&script.setting), &script.steps);
        row.add(&explorer);
        row.print(name, begun);
        explored.map_err(|broken| format!("{name}: {broken}"))?;
        if !(script.went_there)(&row.seen) {
            let seen = row.seen;
            return Err(format!(
                "{name}: the script did not go where it is meant to: {seen:?}"
            ));
        }
    }
    for setting in settings() {
        let (begun, mut row) = (Instant::now(), Row::default());
        for seed in (0..runs).map(|run| seed.wrapping_add(run)) {
            let explored = explore(&setting, None, seed, EFFORT, &mut row);
            explored.map_err(|broken| format!("{}, TWINPAGE_SEED={seed}: {broken}", setting.name))?;
        }
        row.print(&format!("random: {}", setting.name), begun);
    }
    Ok(())
}

/// One random run.
fn explore(
    setting: &Setting,
    fault: Option<Fault>,
    seed: u64,
    effort: Effort,
    row: &mut Row,
) -> Result<(), Broken> {
    let mut random = Random::new(seed);
    let mut steps = random_steps(&setting.profile, &mut random);
    if setting.given {
        let commits = steps
            .iter()
            .enumerate()
            .filter(|(_, step)| matches!(step, Step::Commit(..)));
        let every_other: Vec<usize> = commits.map(|(at, _)| at + 1).step_by(2).collect();
        every_other
            .into_iter()
            .rev()
            .for_each(|at| steps.insert(at, Step::Grant));
    }
    let mut explorer = Explorer::new(subject(setting, fault), effort, random.number());
    let explored = explorer.explore(medium(setting), &steps);
    row.add(&explorer);
    explored
}

const FAULTS: [Fault; 13] = [
    Fault::ForgetDrop,
    Fault::KeepDiscarded,
    Fault::ForgetFold,
    Fault::FoldOld,
    Fault::OldRoot,
    Fault::ForgetMap,
    Fault::DropLate,
    Fault::KeepIndex,
    Fault::NoZeroFill,
    Fault::OldestWins,
    Fault::ForgetLine,
    Fault::ForgetContext,
    Fault::ForgetWaiting,
];

/// Every mistake must be found, by what is recovered after crashes alone.
pub(crate) fn planted(seed: u64) -> Result<(), String> {
    let effort = Effort {
        samples: 1,
        short_recovery: 4,
        lives: 10,
        deep: 0,
        only_crashes: true,
    };
    for fault in FAULTS {
        let mut row = Row::default();
        let eager = Setting {
            tuning: EAGER,
            ..Setting::default()
        };
        let found = match fault {
            // Only where much is written does the ring come round: a script sees to that.
            Fault::ForgetFold => scripts().into_iter().find_map(|script| {
                let subject = subject(&script.setting, Some(fault));
                let mut explorer = Explorer::new(subject, effort, seed);
                let explored = explorer.explore(medium(&script.setting), &script.steps);
                row.add(&explorer);
                explored.err()
            }),
            Fault::ForgetLine | Fault::ForgetContext | Fault::ForgetWaiting => (0..TRIES).find_map(|run| {
                let seed = seed.wrapping_add(run);
                explore(&payloads(), Some(fault), seed, effort, &mut row).err()
            }),
            _ => (0..TRIES).find_map(|run| {
                let seed = seed.wrapping_add(run);
                explore(&eager, Some(fault), seed, effort, &mut row).err()
            }),
        };
        tell(&format!("{fault:?}"), found, &row)?;
    }
    let (mut row, below) = (Row::default(), dual_page::Fault::DropPayloads);
    let script = carried();
    let setting = Setting {
        below: Some(below),
        ..script.setting
    };
    let mut explorer = Explorer::new(subject(&setting, None), effort, seed);
    let explored = explorer.explore(medium(&setting), &script.steps);
    row.add(&explorer);
    tell(&format!("{below:?}"), explored.err(), &row)
}

/// What a mistake broke, or that it was not found.
fn tell(fault: &str, found: Option<Broken>, row: &Row) -> Result<(), String> {
    let Row { runs, counts, .. } = row;
    let broken = found.ok_or(format!("{fault} was not found in {runs} runs"))?;
    println!(
        "{fault:<20}{runs:>5}{:>10}{:>12}  {broken}",
        counts.images, counts.recoveries
    );
    Ok(())
}
