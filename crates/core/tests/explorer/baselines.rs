//! The baselines under the explorer: the same scripts and random runs as the dual page, and mistakes
//! of their own.

use crate::scripts::scripts;
use crate::{Row, Setting, TRIES, Wanted, medium, options};
use std::time::Instant;
use twinpage_baselines::*;
use twinpage_core::crash::*;
use twinpage_core::*;

/// They recover by writing, so a crashed recovery is a sample of the images too.
const EFFORT: Effort = Effort {
    samples: 4,
    lives: 60,
    deep: 60,
    short_recovery: 0,
    only_crashes: false,
};

/// The kinds of random run: media of both kinds, one that fills up.
fn settings() -> [Setting; 3] {
    let small = Setting {
        profile: Profile {
            epochs: 8,
            pages: 10,
            ..Setting::default().profile
        },
        ..Setting::default()
    };
    [
        small,
        Setting {
            atom: 512,
            extent_pages: 2,
            limit: 26,
            ..small
        },
        Setting { limit: 20, ..small },
    ]
}

/// Makes a store for a setting.
type Create<P> = fn(Recorder, &Setting) -> Result<Store<Recorder, P>>;

fn subject<P: LineStore + 'static>(
    create: Create<P>,
    setting: &Setting,
    fault: Option<Fault>,
) -> Subject<Store<Recorder, P>> {
    let setting = *setting;
    Subject {
        create: Box::new(move |medium| {
            let mut store = create(medium, &setting)?;
            fault.into_iter().for_each(|fault| store.plant(fault));
            Ok(store)
        }),
        recover: Box::new(move |medium| match fault {
            Some(fault) => Store::recover_with(medium, fault),
            None => Store::recover(medium),
        }),
    }
}

/// One baseline.
struct Baseline<P> {
    create: Create<P>,
    /// One image in that many gets a second life and a crashed recovery: the more its recoveries write, the fewer.
    lives: u64,
    faults: &'static [Fault],
}

/// A baseline, whichever it is.
trait Explored {
    fn name(&self) -> &'static str;
    /// Scripts and random runs, none of which may go wrong.
    fn sound(&self, seed: u64, runs: u64) -> Result<(), String>;
    /// Every mistake must be found, by crashes alone.
    fn planted(&self, seed: u64) -> Result<(), String>;
}

impl<P: LineStore> Baseline<P> {
    /// A scheme whose checkpoints overlap with execution does that in its runs.
    fn steps(&self, steps: Vec<Step>, random: &mut Random) -> Vec<Step> {
        match P::KIND {
            SchemeKind::ThyNvm => overlapped(&steps, random),
            _ => steps,
        }
    }

    fn effort(&self) -> Effort {
        Effort {
            lives: self.lives,
            deep: self.lives,
            ..EFFORT
        }
    }
}

impl<P: LineStore + 'static> Explored for Baseline<P> {
    fn name(&self) -> &'static str {
        P::KIND.name()
    }

    fn sound(&self, seed: u64, runs: u64) -> Result<(), String> {
        let name = P::KIND.name();
        let (begun, mut row) = (Instant::now(), Row::default());
        for script in scripts(8) {
            let subject = subject(self.create, &script.setting, None);
            let mut explorer = Explorer::new(subject, self.effort(), seed);
            let explored = explorer.explore(medium(&script.setting), &script.steps);
            row.add(&explorer);
            explored.map_err(|broken| format!("{name}, {}: {broken}", script.setting.name))?;
        }
        row.print(&format!("{name}: scripts"), begun);
        let (begun, mut row) = (Instant::now(), Row::default());
        for setting in settings() {
            for seed in (0..runs).map(|run| seed.wrapping_add(run)) {
                let subject = subject(self.create, &setting, None);
                let mut random = Random::new(seed);
                let steps = random_steps(&setting.profile, &mut random);
                let steps = self.steps(steps, &mut random);
                let mut explorer = Explorer::new(subject, self.effort(), random.number());
                let explored = explorer.explore(medium(&setting), &steps);
                row.add(&explorer);
                explored
                    .map_err(|broken| format!("{name}, {}, TWINPAGE_SEED={seed}: {broken}", setting.name))?;
            }
        }
        row.print(&format!("{name}: random"), begun);
        Ok(())
    }

    fn planted(&self, seed: u64) -> Result<(), String> {
        let twice = Setting {
            profile: Profile {
                epochs: 3,
                pages: 2,
                writes: 2,
                context: 30,
            },
            ..Setting::default()
        };
        for &fault in self.faults {
            let (settings, lives) = match fault {
                Fault::LeaveTorn => (vec![twice], 3),
                _ => (settings().to_vec(), self.lives),
            };
            let effort = Effort {
                only_crashes: true,
                lives,
                deep: lives,
                ..EFFORT
            };
            let mut row = Row::default();
            let found = (0..TRIES).find_map(|run| {
                let setting = &settings[run as usize % settings.len()];
                let subject = subject(self.create, setting, Some(fault));
                // An abandoned epoch recovers too, and a mistake is to be found by a crash.
                let mut random = Random::new(seed.wrapping_add(run));
                let mut steps = random_steps(&setting.profile, &mut random);
                steps.retain(|step| !matches!(step, Step::Abandon));
                let steps = self.steps(steps, &mut random);
                let mut explorer = Explorer::new(subject, effort, random.number());
                let explored = explorer.explore(medium(setting), &steps);
                row.add(&explorer);
                explored.err()
            });
            let name = format!("{}: {fault:?}", P::KIND.name());
            let Row { runs, counts, .. } = row;
            let broken = found.ok_or(format!("{name} was not found in {runs} runs"))?;
            println!(
                "{name:<36}{runs:>5}{:>10}{:>12}  {broken}",
                counts.images, counts.recoveries
            );
        }
        Ok(())
    }
}

fn undo_log() -> Baseline<impl LineStore> {
    Baseline {
        create: |medium, setting| UndoLog::create(medium, options(setting).geometry, Some(0x1d)),
        lives: 200,
        faults: &[
            Fault::SkipLogFence,
            Fault::ForgetLine,
            Fault::LogTwice,
            Fault::NoZeroFill,
        ],
    }
}

fn nvml() -> Baseline<impl LineStore> {
    Baseline {
        create: |medium, setting| Nvml::create(medium, options(setting).geometry, Some(0x1d)),
        lives: 200,
        faults: &[Fault::SkipLogFence, Fault::ForgetLine],
    }
}

fn dude_tm() -> Baseline<impl LineStore> {
    Baseline {
        create: |medium, setting| DudeTm::create(medium, options(setting).geometry, 3, Some(0x1d)),
        lives: 60,
        faults: &[Fault::LeaveInLog, Fault::OneLog, Fault::NoZeroFill],
    }
}

fn redo_log() -> Baseline<impl LineStore> {
    Baseline {
        create: |medium, setting| RedoLog::create(medium, options(setting).geometry, Some(0x1d)),
        lives: 60,
        faults: &[Fault::LeaveInLog, Fault::OneLog],
    }
}

fn copy_on_write() -> Baseline<impl LineStore> {
    Baseline {
        create: |medium, setting| CopyOnWrite::create(medium, options(setting).geometry, Some(0x1d)),
        lives: 60,
        // All but the first two are mistakes in what all of them share.
        faults: &[
            Fault::SkipCopy,
            Fault::FreeEarly,
            Fault::ReadFromFirst,
            Fault::ViewFirst,
            Fault::Overlook,
            Fault::SkipDataFence,
            Fault::SkipRecordFence,
            Fault::MarkEarly,
            Fault::LeaveTorn,
        ],
    }
}

fn page_overlay() -> Baseline<impl LineStore> {
    Baseline {
        create: |medium, setting| PageOverlay::create(medium, options(setting).geometry, Some(0x1d)),
        lives: 60,
        faults: &[Fault::ForgetMove, Fault::ForgetMetadata, Fault::LeaveInOverlay],
    }
}

fn thynvm() -> Baseline<impl LineStore> {
    Baseline {
        create: |medium, setting| {
            let tables = Tables {
                blocks: 40,
                pages: 3,
                switching: Switching::Paper,
            };
            ThyNvm::create(medium, options(setting).geometry, &tables, Some(0x1d))
        },
        lives: 60,
        faults: &[
            Fault::HideEarly,
            Fault::ReleaseEarly,
            Fault::PageInPlace,
            Fault::EvictWithoutCopy,
        ],
    }
}

/// Each of them, by scripts and random runs.
pub(crate) fn sound(seed: u64, runs: u64, wanted: Wanted<'_>) -> Result<(), String> {
    each(wanted, &|baseline| baseline.sound(seed, runs.div_ceil(4)))
}

/// Their mistakes.
pub(crate) fn planted(seed: u64, wanted: Wanted<'_>) -> Result<(), String> {
    each(wanted, &|baseline| baseline.planted(seed))
}

fn each(wanted: Wanted<'_>, visit: &dyn Fn(&dyn Explored) -> Result<(), String>) -> Result<(), String> {
    let all: [&dyn Explored; 7] = [
        &undo_log(),
        &nvml(),
        &redo_log(),
        &dude_tm(),
        &copy_on_write(),
        &page_overlay(),
        &thynvm(),
    ];
    all.into_iter()
        .filter(|baseline| wanted(baseline.name()))
        .try_for_each(visit)
}
