//! Beside the SPS programs: a step of `Planes` beside the same step on plain memory, and beside the disk's own
//! bandwidth; and the opening of an array that another process was killed over.
//!
//! Each part is a process of its own, as a run of SPS is.

use super::arguments::{ArrayArguments, Task, VersionsArguments};
use super::ratios::Ratio;
use crate::engine::Result;
use crate::spread::Spread;
use crate::subject::{Subject, answer, own};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;
use twinpage::versions::{Options, Planes, Versions};
use twinpage_os::direct::Instructions;

/// Steps that are timed together.
const STEPS: u32 = 4;
const CHUNK: usize = 1 << 20;

/// Planes beside what they are compared to.
#[derive(Serialize, Debug)]
pub(crate) struct PlanesRow {
    workload: &'static str,
    pub(crate) engine: &'static str,
    medium: &'static str,
    pub(crate) plane_mib: u64,
    runs: usize,
    /// Medians, with durable steps.
    pub(crate) step_ms: f64,
    /// The same step on plain memory; on a disk, writing as many bytes one after the other with one flush.
    pub(crate) base_ms: f64,
    /// Computing on plain memory, where the base is writing.
    compute_ms: f64,
    #[serde(flatten)]
    pub(crate) ratio: Ratio,
    /// Each run compared its planes with the same steps on plain memory.
    checked: bool,
}

/// The opening of an array that another process was killed over, to the first value read.
#[derive(Serialize, Debug)]
pub(crate) struct OpenRow {
    workload: &'static str,
    pub(crate) engine: &'static str,
    medium: &'static str,
    pub(crate) array_mib: u64,
    runs: usize,
    pub(crate) open_ms: f64,
    pub(crate) open_ms_min: f64,
    pub(crate) open_ms_max: f64,
    pub(crate) reach_ms: f64,
    /// The value read was what it must be.
    checked: bool,
}

/// What one run of planes took, a step.
#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
struct Stepped {
    step_ms: f64,
    base_ms: f64,
    compute_ms: f64,
}

pub(crate) fn planes(arguments: &VersionsArguments) -> Result<Vec<PlanesRow>> {
    let all = [
        (Task::PlanesMemory, "planes-memory", 1.1),
        (Task::PlanesClwb, "planes-clwb", 1.1),
        (Task::PlanesDisk, "planes-disk", 1.2),
    ];
    all.into_iter()
        .map(|(task, engine, reach)| {
            let is_disk = task == Task::PlanesDisk;
            let at = match is_disk {
                true => arguments.disk(),
                false => arguments.memory.clone(),
            };
            let runs: Vec<Stepped> = (0..arguments.repeat_arrays)
                .map(|_| {
                    let place = tempfile::tempdir_in(&at)
                        .map_err(|error| format!("cannot make a directory in {}: {error}", at.display()))?;
                    answer(&mut own(&words(task, place.path(), arguments.planes_mib))?)
                })
                .collect::<Result<_>>()?;
            let median = |of: fn(&Stepped) -> f64| Spread::of(runs.iter().map(of)).median;
            Ok(PlanesRow {
                workload: "step",
                engine,
                medium: if is_disk { "disk file" } else { "memory file" },
                plane_mib: arguments.planes_mib,
                runs: runs.len(),
                step_ms: median(|run| run.step_ms),
                base_ms: median(|run| run.base_ms),
                compute_ms: median(|run| run.compute_ms),
                ratio: Ratio {
                    paper: None,
                    reach: Some(reach),
                    ..Ratio::of(runs.iter().map(|run| run.step_ms / run.base_ms))
                },
                checked: true,
            })
        })
        .collect()
}

pub(crate) fn opens(arguments: &VersionsArguments) -> Result<Vec<OpenRow>> {
    let all = [
        ("planes", Task::FillPlanes, Task::OpenPlanes, 20.0),
        ("versions", Task::FillVersions, Task::OpenVersions, 300.0),
    ];
    all.into_iter()
        .map(|(engine, fill, open, reach_ms)| {
            let place = tempfile::tempdir_in(&arguments.memory)
                .map_err(|error| format!("cannot make a directory: {error}"))?;
            let start = |task| Subject::start(&mut own(&words(task, place.path(), arguments.open_mib))?);
            let (filler, _) = start(fill)?;
            drop(filler);
            let mut times = Vec::new();
            for _ in 0..arguments.repeat_arrays {
                let (opener, line) = start(open)?;
                drop(opener);
                times.push(
                    line.parse::<f64>()
                        .map_err(|_| format!("the opener said {line:?}"))?,
                );
            }
            let (runs, times) = (times.len(), Spread::of(times.into_iter()));
            Ok(OpenRow {
                workload: "open",
                engine,
                medium: "memory file",
                array_mib: arguments.open_mib,
                runs,
                open_ms: times.median,
                open_ms_min: times.min,
                open_ms_max: times.max,
                reach_ms,
                checked: true,
            })
        })
        .collect()
}

/// The command line of one part.
fn words(task: Task, place: &Path, mib: u64) -> Vec<std::ffi::OsString> {
    let name = task.to_possible_value().expect("no task is hidden");
    let mib = mib.to_string();
    ["array", "--task", name.get_name(), "--mib", &mib, "--place"]
        .into_iter()
        .map(Into::into)
        .chain([place.into()])
        .collect()
}

/// Does the one part that `arguments` ask for.
pub(crate) fn array(arguments: &ArrayArguments, begun: Instant) -> Result<()> {
    let path = arguments.place.join("array");
    match arguments.task {
        Task::PlanesMemory => told(&in_memory(&path, arguments.mib, Instructions::NONE)?),
        Task::PlanesClwb => told(&in_memory(&path, arguments.mib, Instructions::best())?),
        Task::PlanesDisk => told(&on_disk(&path, arguments.mib)?),
        Task::FillPlanes => fill_planes(&path, arguments.mib),
        Task::FillVersions => fill_versions(&path, arguments.mib),
        Task::OpenPlanes => opened(begun, planes_of(&path, arguments.mib)?.newest()[7]),
        Task::OpenVersions => opened(begun, versions_of(&path, arguments.mib)?.get(7)[0]),
    }
}

fn told(stepped: &Stepped) -> Result<()> {
    println!("{}", serde_json::json!(stepped));
    Ok(())
}

fn failed(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Each value becomes the mean of it and its neighbours, as of the step before.
fn smooth(old: &[f64], new: &mut [f64]) {
    let last = old.len() - 1;
    new[0] = 1.0 + old[0] / 2.0;
    new[last] = old[last] / 2.0 + old[last - 1] / 2.0;
    for (new, old) in new[1..last].iter_mut().zip(old.windows(3)) {
        *new = (old[0] + old[1] + old[2]) / 3.0;
    }
}

/// Two arrays of plain memory, stepped from one to the other.
struct Plain {
    old: Vec<f64>,
    new: Vec<f64>,
}

impl Plain {
    fn new(values: usize) -> Plain {
        let [old, mut new] = [vec![0.0; values], vec![0.0; values]];
        // Its pages are there before anything is timed.
        new.fill(1.0);
        Plain { old, new }
    }

    fn step(&mut self) {
        smooth(black_box(&self.old), &mut self.new);
        std::mem::swap(&mut self.old, &mut self.new);
    }
}

/// The time of a step, in ms, of [`STEPS`] of them.
fn timed(mut steps: impl FnMut() -> Result<()>) -> Result<f64> {
    let begun = Instant::now();
    steps()?;
    Ok(begun.elapsed().as_secs_f64() * 1e3 / f64::from(STEPS))
}

fn planes_step(field: &mut Planes<f64, 3>) -> Result<f64> {
    timed(|| {
        for _ in 0..STEPS {
            field.step(smooth).map_err(failed)?;
        }
        field.durable().map_err(failed)
    })
}

fn plain_step(plain: &mut Plain) -> Result<f64> {
    timed(|| {
        (0..STEPS).for_each(|_| plain.step());
        Ok(())
    })
}

fn compared(field: &Planes<f64, 3>, plain: &Plain) -> Result<()> {
    match field.newest() == plain.old {
        true => Ok(()),
        false => Err("wrong result: the planes are not what the same steps make of plain memory".into()),
    }
}

fn in_memory(path: &Path, mib: u64, instructions: Instructions) -> Result<Stepped> {
    let values = (mib << 17) as usize;
    let options = Options::new().instructions(instructions);
    let mut field = Planes::<f64, 3>::open_with(&options, path, values).map_err(failed)?;
    let mut plain = Plain::new(values);
    // Every plane is written once before anything is timed.
    planes_step(&mut field)?;
    plain_step(&mut plain)?;
    let (step_ms, base_ms) = (planes_step(&mut field)?, plain_step(&mut plain)?);
    compared(&field, &plain)?;
    Ok(Stepped {
        step_ms,
        base_ms,
        compute_ms: base_ms,
    })
}

fn on_disk(path: &Path, mib: u64) -> Result<Stepped> {
    let (values, bytes) = ((mib << 17) as usize, mib << 20);
    let mut field = Planes::<f64, 3>::open(path, values).map_err(failed)?;
    let mut plain = Plain::new(values);
    let file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .open(path.with_extension("sequential"))
        .map_err(failed)?;
    let chunk = vec![7; CHUNK];
    // As the planes are: three pieces, one after the other, each flushed.
    let mut piece = 0;
    let mut write = || {
        for at in (0..bytes).step_by(CHUNK) {
            file.write_all_at(&chunk, piece * bytes + at).map_err(failed)?;
        }
        piece = (piece + 1) % 3;
        file.sync_data().map_err(failed)
    };
    (0..3).try_for_each(|_| write())?;
    planes_step(&mut field)?;
    plain_step(&mut plain)?;
    let base_ms = timed(|| (0..STEPS).try_for_each(|_| write()))?;
    let step_ms = planes_step(&mut field)?;
    let compute_ms = plain_step(&mut plain)?;
    compared(&field, &plain)?;
    Ok(Stepped {
        step_ms,
        base_ms,
        compute_ms,
    })
}

fn planes_of(path: &Path, mib: u64) -> Result<Planes<u64, 2>> {
    Planes::open(path, (mib << 17) as usize).map_err(failed)
}

fn versions_of(path: &Path, mib: u64) -> Result<Versions<[u64; 32], 2>> {
    Versions::open(path, (mib << 12) as usize, |index| [index as u64; 32]).map_err(failed)
}

/// Steps until it is killed.
fn fill_planes(path: &Path, mib: u64) -> Result<()> {
    let mut field = planes_of(path, mib)?;
    loop {
        field.step(|_, new| new.fill(7)).map_err(failed)?;
        if field.steps_done() == 2 {
            field.durable().map_err(failed)?;
            println!("filled");
        }
    }
}

/// Swaps elements other than the one that is read later, until it is killed.
fn fill_versions(path: &Path, mib: u64) -> Result<()> {
    let mut all = versions_of(path, mib)?;
    let mut random = fastrand::Rng::with_seed(1);
    let mut swap = || {
        let (a, b) = (random.usize(8..all.len()), random.usize(8..all.len()));
        all.update(|update| update.swap(a, b));
    };
    (0..1000).for_each(|_| swap());
    println!("filled");
    loop {
        swap();
    }
}

/// Says how long it took to `found`, which must be 7, and waits to be killed.
fn opened(begun: Instant, found: u64) -> Result<()> {
    let ms = begun.elapsed().as_secs_f64() * 1e3;
    if found != 7 {
        return Err(format!("wrong result: value 7 is {found}"));
    }
    println!("{ms}");
    loop {
        std::thread::park();
    }
}
