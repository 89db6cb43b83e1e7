//! The crash explorer at work, with its counts: `cargo test -p twinpage-core --test explorer`.
//!
//! `TWINPAGE_SEED` fixes the seed, `TWINPAGE_EXPLORE=N` does N times as many random runs, as a campaign
//! (`TWINPAGE_LONG=1`) does eight times. A run that breaks a promise is printed with its seed. `TWINPAGE_SCHEME=undo-log,dual-page` explores those alone.

mod baselines;
mod packed;
mod scripts;

use scripts::scripts;
use std::collections::BTreeMap;
use std::panic::{set_hook, take_hook};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use twinpage_baselines::InPlace;
use twinpage_core::crash::*;
use twinpage_core::dual_page::{DualPage, Fault, Options, PoolLimit};
use twinpage_core::*;

/// A kind of store, and of random run.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    name: &'static str,
    atom: usize,
    extent_pages: u32,
    pool: PoolLimit,
    /// Extents the medium may grow to.
    limit: u64,
    /// Bytes of a journal; with 0 every commit is a snapshot.
    journal: u64,
    /// Whether lines have checksums.
    checksums: bool,
    profile: Profile,
}

impl Default for Setting {
    fn default() -> Setting {
        Setting {
            name: "growing pool",
            atom: 8,
            extent_pages: 1,
            pool: PoolLimit::Grow,
            limit: u64::MAX,
            journal: 512,
            checksums: true,
            profile: Profile {
                epochs: 12,
                pages: 12,
                writes: 5,
                context: 300,
            },
        }
    }
}

fn settings() -> [Setting; 9] {
    let profile = |pages, writes| Profile {
        pages,
        writes,
        ..Setting::default().profile
    };
    let sectors = Setting {
        atom: 512,
        ..Setting::default()
    };
    let memory = Setting::default();
    [
        memory,
        Setting {
            name: "no checksums",
            checksums: false,
            ..memory
        },
        Setting {
            name: "no checksums, tiny pool",
            checksums: false,
            pool: PoolLimit::Pages(2),
            profile: profile(10, 6),
            ..memory
        },
        Setting {
            name: "larger extents",
            extent_pages: 2,
            profile: profile(16, 6),
            ..sectors
        },
        Setting {
            name: "small pool",
            pool: PoolLimit::Pages(6),
            profile: profile(14, 4),
            ..memory
        },
        Setting {
            name: "tiny pool",
            pool: PoolLimit::Pages(2),
            profile: profile(10, 6),
            ..memory
        },
        Setting {
            name: "fixed medium",
            pool: PoolLimit::Pages(3),
            limit: 22,
            profile: profile(16, 6),
            ..sectors
        },
        Setting {
            name: "medium that fills up",
            limit: 26,
            profile: profile(16, 7),
            ..memory
        },
        Setting {
            name: "snapshots only",
            journal: 0,
            profile: profile(8, 3),
            ..memory
        },
    ]
}

const EFFORT: Effort = Effort {
    samples: 10,
    lives: 30,
    deep: 30,
    short_recovery: 4,
    only_crashes: false,
};

/// Runs a planted fault may survive.
const TRIES: u64 = 60;

const FAULTS: [Fault; 19] = [
    Fault::SkipDataFence,
    Fault::SkipRecordFence,
    Fault::SwitchEarly,
    Fault::ReuseEarly,
    Fault::GiveBackEarly,
    Fault::ForgetEntry,
    Fault::WriteBothHomes,
    Fault::NoZeroFill,
    Fault::FreeAtDiscard,
    Fault::ForgetRedo,
    Fault::FreeBufferEarly,
    Fault::LeaveTorn,
    Fault::LeaveSwitch,
    Fault::MarkEarly,
    Fault::ForgetSum,
    Fault::OldSum,
    Fault::LeaveSum,
    Fault::TrustUnfenced,
    Fault::UnfencedCopies,
];

fn options(setting: &Setting) -> Options {
    let geometry = Geometry::new(64, 4096 * setting.extent_pages).expect("a page is 4096 bytes");
    Options::new(geometry)
        .pool(setting.pool)
        .journal_bytes(setting.journal)
        .checksums(setting.checksums)
        .id(0x1d)
}

fn medium(setting: &Setting) -> Image {
    let bytes = setting
        .limit
        .saturating_mul(4096 * u64::from(setting.extent_pages));
    Image::new(setting.atom).limited(bytes)
}

/// The dual-page scheme, with a mistake if there is one.
fn subject(setting: &Setting, fault: Option<Fault>) -> Subject<DualPage<Recorder>> {
    let options = options(setting);
    Subject {
        create: Box::new(move |medium| {
            let mut store = DualPage::create(medium, &options)?;
            fault.into_iter().for_each(|fault| store.plant(fault));
            Ok(store)
        }),
        recover: Box::new(move |medium| DualPage::recover_with(medium, fault)),
    }
}

/// A line of the table: what was explored, and what it went through.
#[derive(Default)]
struct Row {
    runs: u64,
    counts: Counts,
    seen: Seen,
}

impl Row {
    fn add<S>(&mut self, explorer: &Explorer<S>) {
        self.runs += 1;
        self.counts += explorer.counts;
        self.seen += explorer.seen;
    }

    fn heading() {
        println!(
            "{:<36}{:>5}{:>7}{:>9}{:>10}{:>12}{:>7}{:>11}{:>10}{:>11}{:>6}{:>7}",
            "explored",
            "runs",
            "epochs",
            "points",
            "images",
            "recoveries",
            "lives",
            "snapshot B",
            "reclaimed",
            "fallback B",
            "lost",
            "s"
        );
    }

    fn print(&self, name: &str, begun: Instant) {
        let Row { runs, counts, seen } = self;
        println!(
            "{name:<36}{runs:>5}{:>7}{:>9}{:>10}{:>12}{:>7}{:>11}{:>10}{:>11}{:>6}{:>7.1}",
            seen.epochs,
            counts.points,
            counts.images,
            counts.recoveries,
            counts.second_lives,
            seen.snapshot_bytes,
            seen.reclaimed,
            seen.fallback_bytes,
            seen.lost,
            begun.elapsed().as_secs_f64()
        );
    }
}

/// Runs written by hand, on media of both kinds, each crashed everywhere.
fn scripted(seed: u64) -> Result<(), String> {
    for script in scripts(8).into_iter().zip(scripts(512)).flat_map(|(a, b)| [a, b]) {
        let (begun, mut row) = (Instant::now(), Row::default());
        let mut explorer = Explorer::new(subject(&script.setting, None), EFFORT, seed);
        let explored = explorer.explore(medium(&script.setting), &script.steps);
        row.add(&explorer);
        let name = format!("{}, {}", script.setting.name, script.setting.atom);
        row.print(&name, begun);
        explored.map_err(|broken| format!("{name}: {broken}"))?;
        if !(script.went_there)(&row.seen) {
            return Err(format!(
                "{name}: the script did not go where it is meant to: {:?}",
                row.seen
            ));
        }
    }
    Ok(())
}

/// Random runs of every setting.
fn random(seed: u64, runs: u64) -> Result<(), String> {
    for setting in settings() {
        let (begun, mut row) = (Instant::now(), Row::default());
        for seed in (0..runs).map(|run| seed.wrapping_add(run)) {
            let explored = explore(subject(&setting, None), &setting, seed, EFFORT, &mut row);
            explored.map_err(|broken| format!("{}, TWINPAGE_SEED={seed}: {broken}", setting.name))?;
        }
        row.print(&format!("random: {}, {}", setting.name, setting.atom), begun);
    }
    Ok(())
}

/// One random run of a setting.
fn explore<S: Simulated>(
    subject: Subject<S>,
    setting: &Setting,
    seed: u64,
    effort: Effort,
    row: &mut Row,
) -> Result<(), Broken> {
    let mut random = Random::new(seed);
    let steps = random_steps(&setting.profile, &mut random);
    let mut explorer = Explorer::new(subject, effort, random.number());
    let explored = explorer.explore(medium(setting), &steps);
    row.add(&explorer);
    explored
}

fn faults_heading() {
    println!(
        "\n{:<20}{:>5}{:>10}{:>12}  found by",
        "planted fault", "runs", "images", "recoveries"
    );
}

/// Every mistake must be found, by crashes alone.
fn planted(seed: u64) -> Result<(), String> {
    // Two crashes in a row, each at just the right atom: small runs, and nearly every second life of them.
    let twice = Setting {
        profile: Profile {
            epochs: 3,
            pages: 2,
            writes: 2,
            context: 30,
        },
        ..Setting::default()
    };
    for fault in FAULTS {
        let mut row = Row::default();
        let (settings, lives) = match fault {
            Fault::LeaveTorn => (vec![twice], 3),
            Fault::LeaveSwitch => (vec![Setting { journal: 0, ..twice }], 3),
            // Copies are in records where derivative pages are few.
            Fault::UnfencedCopies => {
                let few = |setting: &Setting| setting.checksums && setting.pool != PoolLimit::Grow;
                (settings().into_iter().filter(few).collect(), EFFORT.lives)
            }
            _ => (settings().to_vec(), EFFORT.lives),
        };
        let effort = Effort {
            only_crashes: true,
            lives,
            deep: lives,
            ..EFFORT
        };
        let found = match fault {
            // No random run gives space back.
            Fault::GiveBackEarly => scripts(8).into_iter().find_map(|script| {
                if !script.steps.contains(&Step::GiveBack) {
                    return None;
                }
                let subject = subject(&script.setting, Some(fault));
                let mut explorer = Explorer::new(subject, effort, seed);
                let explored = explorer.explore(medium(&script.setting), &script.steps);
                row.add(&explorer);
                explored.err()
            }),
            _ => (0..TRIES).find_map(|run| {
                let setting = &settings[run as usize % settings.len()];
                let seed = seed.wrapping_add(run);
                explore(subject(setting, Some(fault)), setting, seed, effort, &mut row).err()
            }),
        };
        let Row { runs, counts, .. } = row;
        let broken = found.ok_or(format!("{fault:?} was not found in {runs} runs"))?;
        println!(
            "{:<20}{runs:>5}{:>10}{:>12}  {broken}",
            format!("{fault:?}"),
            counts.images,
            counts.recoveries
        );
    }
    Ok(())
}

/// The in-place scheme is not atomic; an explorer that does not see that sees nothing.
fn in_place(seed: u64) -> Result<(), String> {
    let geometry = options(&Setting::default()).geometry;
    let subject = Subject {
        create: Box::new(move |medium| InPlace::create(medium, geometry, 4096)),
        recover: Box::new(InPlace::recover),
    };
    let mut steps = random_steps(&Setting::default().profile, &mut Random::new(seed));
    steps.retain(|step| !matches!(step, Step::Abandon));
    let mut explorer = Explorer::new(subject, EFFORT, seed);
    let explored = explorer.explore(medium(&Setting::default()), &steps);
    let Counts {
        images, recoveries, ..
    } = explorer.counts;
    match explored {
        Ok(()) => Err("the in-place scheme cannot be atomic, and nothing was found".into()),
        Err(broken) => {
            println!(
                "{:<20}{:>5}{images:>10}{recoveries:>12}  {broken}",
                "(in place)", 1
            );
            Ok(())
        }
    }
}

/// Whether a scheme is explored.
pub(crate) type Wanted<'a> = &'a (dyn Fn(&str) -> bool + Sync);

/// Does all parts, as many at a time as there are processors. What the first of them found that found anything.
fn side_by_side(parts: &[&(dyn Fn() -> Result<(), String> + Sync)]) -> Result<(), String> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(part) = parts.get(at) else { return };
            if let Err(what) = part() {
                found.lock().unwrap().insert(at, what);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    found
        .into_inner()
        .unwrap()
        .into_values()
        .next()
        .map_or(Ok(()), Err)
}

fn main() -> ExitCode {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let seed = twinpage_campaign::given_seed().unwrap_or(1);
    let runs = 2 * number("TWINPAGE_EXPLORE").unwrap_or(twinpage_campaign::either(1, 8));
    let only = std::env::var("TWINPAGE_SCHEME").unwrap_or_default();
    let wanted = |what: &str| only.is_empty() || only.split(',').any(|name| name == what);
    let if_wanted = |scheme: &str, part: &dyn Fn() -> Result<(), String>| match wanted(scheme) {
        true => part(),
        false => Ok(()),
    };
    println!("\ncrash explorer, seed {seed}");
    Row::heading();
    let sound = side_by_side(&[
        &|| if_wanted("dual-page", &|| scripted(seed)),
        &|| if_wanted("dual-page", &|| random(seed, runs)),
        &|| if_wanted("packed", &|| packed::sound(seed, runs.div_ceil(4))),
        &|| baselines::sound(seed, runs, &wanted),
    ]);
    // Mistakes may well end in a panic; it is caught and counts as found.
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let found = sound.and_then(|()| {
        faults_heading();
        side_by_side(&[
            &|| if_wanted("dual-page", &|| planted(seed).and_then(|()| in_place(seed))),
            &|| if_wanted("packed", &|| packed::planted(seed)),
            &|| baselines::planted(seed, &wanted),
        ])
    });
    set_hook(hook);
    match found {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            println!("BROKEN, TWINPAGE_SEED={seed}: {what}");
            ExitCode::FAILURE
        }
    }
}
