//! `open`: from the start of a program to its first read of a region that another was killed over.
//!
//! A filler puts numbers into a region and goes on changing them until it is killed; a reader opens the region,
//! reads one number, says how long that took since its `main` began, and is killed as well, so that the
//! next finds it no cleaner.

use crate::args::{Common, Contestant, Form, OpenArguments};
use crate::engine::Result;
use crate::engines::{failed, open as open_with};
use crate::medium;
use crate::spread::Spread;
use crate::subject::{Subject, own};
use indicatif::ProgressBar;
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};
use twinpage::collections::Vec as Numbers;
use twinpage::{Region, Root};

const ROOT: &str = "numbers";
const EVERY: Duration = Duration::from_millis(16);
/// A number is its place, and how often it was changed above.
const CHANGE: u64 = 1 << 32;
/// Numbers put in by one update.
const TOGETHER: u64 = 1 << 16;

/// How long it took.
#[derive(Serialize, Clone, Debug)]
pub(crate) struct Row {
    workload: &'static str,
    #[serde(flatten)]
    pub(crate) who: Contestant,
    pub(crate) medium: &'static str,
    durability: &'static str,
    threads: u32,
    pub(crate) region_mib: u64,
    pub(crate) open_ms: f64,
    pub(crate) open_ms_min: f64,
    pub(crate) open_ms_max: f64,
    /// The number read was what it must be.
    checked: bool,
}

fn open(place: &Path, form: Form) -> Result<Region> {
    open_with(Region::options().every(EVERY), &place.join("region"), form)
}

fn numbers(region: &Region) -> Result<Root<Numbers<'static, u64>>> {
    region.root(ROOT).map_err(failed)
}

/// Fills the region, says so, and changes it until it is killed.
pub(crate) fn fill(arguments: &OpenArguments) -> Result<()> {
    let count = arguments.mib << 17;
    let region = open(&arguments.place, arguments.form)?;
    let mut numbers = numbers(&region)?;
    region.update(|u| numbers.get_mut(u).reserve_exact(count as usize));
    for begin in (0..count).step_by(TOGETHER as usize) {
        region.update(|u| numbers.get_mut(u).extend(begin..count.min(begin + TOGETHER)));
    }
    region.durable().map_err(failed)?;
    println!("filled");
    let mut random = fastrand::Rng::with_seed(1);
    loop {
        let at = random.usize(..count as usize);
        region.update(|u| {
            let number = &mut numbers.get_mut(u)[at];
            *number = number.wrapping_add(CHANGE);
        });
    }
}

/// Opens the region, reads, says how long it took, and waits to be killed.
pub(crate) fn look(arguments: &OpenArguments, begun: Instant) -> Result<()> {
    let region = open(&arguments.place, arguments.form)?;
    let numbers = numbers(&region)?;
    let at = arguments.mib << 16;
    let found = region.read(|v| numbers.get(v).get(at as usize).copied());
    let ms = begun.elapsed().as_secs_f64() * 1e3;
    match found {
        Some(number) if number % CHANGE == at => println!("{ms}"),
        other => return Err(format!("wrong result: number {at} is {other:?}")),
    }
    loop {
        std::thread::park();
    }
}

fn start(command: &str, place: &Path, form: Form, mib: u64) -> Result<(Subject, String)> {
    let mut words = own(&[command, "--mib", &mib.to_string(), "--place"])?;
    Subject::start(words.arg(place).args(form.words()))
}

pub(crate) fn measure(arguments: &Common, who: Contestant, at: &Path, progress: &ProgressBar) -> Result<Row> {
    let place = tempfile::tempdir_in(at)
        .map_err(|error| format!("cannot make a directory in {}: {error}", at.display()))?;
    let mib = ((1024.0 * arguments.scale) as u64).max(1);
    progress.set_message(format!("open: filling {mib} MiB"));
    let (filler, _) = start("fill", place.path(), who.form, mib)?;
    std::thread::sleep(EVERY * 10);
    drop(filler);
    progress.set_message("open");
    let mut times = Vec::new();
    for _ in 0..arguments.repeat {
        let (reader, line) = start("look", place.path(), who.form, mib)?;
        drop(reader);
        times.push(line.parse().map_err(|_| format!("the reader said {line:?}"))?);
    }
    let times = Spread::of(times.into_iter());
    Ok(Row {
        workload: "open",
        who,
        medium: medium::name(medium::is_memory(at)?),
        durability: "16ms",
        threads: 1,
        region_mib: mib,
        open_ms: times.median,
        open_ms_min: times.min,
        open_ms_max: times.max,
        checked: true,
    })
}
