//! The process that one engine is measured in. It does what it is told on standard input, line by line, and
//! answers each line with one JSON object:
//!
//! ```text
//! (started)   -> {"Ready": ...}     the structures are there, or why they cannot be
//! slice 0.5   -> {"Slice": ...}     half a second of operations
//! check       -> {"Checked": ...}   closed, opened again, compared; then the process ends
//! ```

use crate::args::{EngineName, WorkerArguments, WorkloadName};
use crate::engine::{Engine, Pace, Result, Stops, StoreOptions};
use crate::engines::{Lmdb, Native, Pmemobj, Redb, RocksDb, Sections, Sqlite, Stored, Twinpage};
use crate::medium;
use crate::workloads::{Pairs, Setting, Sps, Sweep, Tatp, Tpcc, Workload};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write, stdin, stdout};
use std::thread;
use std::time::{Duration, Instant};
use twinpage_measure::Histogram;

/// What a worker says.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) enum Answer {
    Ready,
    Slice(Slice),
    /// How long was waited, over all slices.
    Checked(Waits),
    /// Why the engine cannot be used.
    Absent(String),
    /// What went wrong.
    Failed(String),
}

/// What was waited for.
#[derive(Serialize, Deserialize, Clone, Copy, Default, Debug)]
pub(crate) struct Waits {
    /// How long writers stood still, where anything is waited for.
    pub(crate) stops: Option<Stops>,
    /// How long operations took until they were durable, where each is before the next.
    pub(crate) latency: Option<Stops>,
}

/// One repetition.
#[derive(Serialize, Deserialize, Clone, Copy, Default, Debug)]
pub(crate) struct Slice {
    pub(crate) operations: u64,
    pub(crate) seconds: f64,
    /// As the program that calls for the operations counts.
    pub(crate) changed_bytes: u64,
    /// Written to the medium, where it can be told.
    pub(crate) written_bytes: Option<u64>,
    /// Bytes of the lines that changed, where there are lines.
    pub(crate) changed_line_bytes: Option<u64>,
    /// Times that something became durable.
    pub(crate) commits: u64,
    /// Fences of the medium, where they are counted.
    pub(crate) fences: Option<u64>,
}

pub(crate) fn work(arguments: &WorkerArguments) -> Result<()> {
    let served = match arguments.engine {
        EngineName::Native => on::<Native>(arguments),
        EngineName::Lmdb => on::<Stored<Lmdb>>(arguments),
        EngineName::Rocksdb => on::<Stored<RocksDb>>(arguments),
        EngineName::Sqlite => on::<Stored<Sqlite>>(arguments),
        EngineName::Redb => on::<Stored<Redb>>(arguments),
        EngineName::Pmemobj => on::<Pmemobj>(arguments),
        EngineName::Twinpage if arguments.sections => on::<Sections>(arguments),
        EngineName::Twinpage => on::<Twinpage>(arguments),
    };
    served.inspect_err(|why| answer(&Answer::Failed(why.clone())))
}

fn on<E: Engine>(arguments: &WorkerArguments) -> Result<()> {
    match arguments.workload {
        WorkloadName::Sps => serve::<E, Sps<E>>(arguments),
        WorkloadName::HashRand
        | WorkloadName::HashZipf
        | WorkloadName::BtreeRand
        | WorkloadName::BtreeZipf => serve::<E, Pairs<E>>(arguments),
        WorkloadName::Tatp => serve::<E, Tatp<E>>(arguments),
        WorkloadName::Tpcc => serve::<E, Tpcc<E>>(arguments),
        WorkloadName::Sweep => serve::<E, Sweep<E>>(arguments),
        WorkloadName::Open => Err("open is not measured in a worker".into()),
    }
}

fn answer(answer: &Answer) {
    let text = serde_json::to_string(answer).expect("numbers and strings");
    // The parent is gone when this fails, and the next line read says so.
    let _ = writeln!(stdout(), "{text}").and_then(|()| stdout().flush());
}

/// One engine at work.
struct Worker<E, W> {
    engine: E,
    shares: Vec<W>,
    settings: Vec<Setting>,
    place: StoreOptions,
    /// Operations each thread has done.
    done: Vec<u64>,
    stops: Histogram,
    latency: Histogram,
}

fn serve<E: Engine, W: Workload<E>>(arguments: &WorkerArguments) -> Result<()> {
    let place = StoreOptions {
        directory: arguments.place.clone(),
        pace: arguments.every.map_or(Pace::Each, Pace::Every),
        form: arguments.form,
        in_memory: medium::is_memory(&arguments.place)?,
        scale: arguments.scale * f64::from(arguments.threads),
    };
    let engine = match E::open(&place) {
        Ok(engine) => engine,
        Err(why) => {
            answer(&Answer::Absent(why));
            return Ok(());
        }
    };
    let settings: Vec<Setting> = (0..arguments.threads)
        .map(|thread| Setting {
            workload: arguments.workload,
            thread,
            scale: arguments.scale,
            seed: arguments.seed,
        })
        .collect();
    let shares: Result<Vec<W>> = settings
        .iter()
        .map(|&setting| W::open(&engine, setting, true))
        .collect();
    let mut worker = Worker {
        engine,
        shares: shares?,
        done: vec![0; settings.len()],
        settings,
        place,
        stops: Histogram::default(),
        latency: Histogram::default(),
    };
    worker.engine.flush_behind()?;
    worker.engine.filled();
    medium::sync(&worker.place.directory)?;
    answer(&Answer::Ready);
    for line in stdin().lock().lines() {
        let line = line.map_err(|error| format!("cannot read what to do: {error}"))?;
        match line.split_once(' ') {
            Some(("slice", seconds)) => {
                let seconds = seconds.parse().map_err(|_| format!("not a time: {line}"))?;
                answer(&Answer::Slice(worker.slice(Duration::from_secs_f64(seconds))?));
            }
            _ if line == "check" => {
                let waits = worker.check()?;
                answer(&Answer::Checked(waits));
                return Ok(());
            }
            _ => return Err(format!("not something to do: {line}")),
        }
    }
    Ok(())
}

/// What one thread did in a slice.
#[derive(Default)]
struct Tally {
    operations: u64,
    changed_bytes: u64,
    commits: u64,
    stops: Histogram,
    latency: Histogram,
}

impl<E: Engine, W: Workload<E>> Worker<E, W> {
    fn slice(&mut self, length: Duration) -> Result<Slice> {
        let (pace, engine) = (self.place.pace, &self.engine);
        let (account, counted) = (engine.account()?, medium::written(self.place.in_memory)?);
        let begun = Instant::now();
        let until = begun + length;
        let mut shares = self.shares.iter_mut();
        let first = shares.next().ok_or("no thread to work with")?;
        let tallies: Result<Vec<Tally>> = thread::scope(|scope| {
            let others: Vec<_> = shares
                .map(|share| scope.spawn(move || run(engine, share, pace, until)))
                .collect();
            let first = run(engine, first, pace, until);
            let others = others
                .into_iter()
                .map(|other| other.join().expect("no worker panics"));
            std::iter::once(first).chain(others).collect()
        });
        engine.flush_behind()?;
        let seconds = begun.elapsed().as_secs_f64();
        let tallies = tallies?;
        let after = engine.account()?;
        let counted = medium::written(self.place.in_memory)? - counted;
        let mut slice = Slice {
            seconds,
            written_bytes: E::WRITES_BY_CALLS.then_some(counted),
            ..Slice::default()
        };
        for (tally, done) in tallies.iter().zip(&mut self.done) {
            *done += tally.operations;
            slice.operations += tally.operations;
            slice.changed_bytes += tally.changed_bytes;
            slice.commits += tally.commits;
            self.stops.merge(&tally.stops);
            self.latency.merge(&tally.latency);
        }
        if let (Some(before), Some(after)) = (account, after) {
            slice.written_bytes = Some(after.written_bytes - before.written_bytes);
            slice.changed_line_bytes = Some(after.changed_line_bytes - before.changed_line_bytes);
            slice.commits = after.commits - before.commits;
            slice.fences = after
                .fences
                .zip(before.fences)
                .map(|(after, before)| after - before);
        }
        Ok(slice)
    }

    /// Whether what is there is what must be there, opened again where that lasts.
    fn check(self) -> Result<Waits> {
        let own = || E::LASTS.then(|| self.stops.percentiles().into());
        let waits = Waits {
            stops: self
                .engine
                .account()?
                .map_or_else(own, |account| account.stops.or_else(own)),
            latency: (E::LASTS && self.place.pace == Pace::Each).then(|| self.latency.percentiles().into()),
        };
        let (engine, shares) = if E::LASTS {
            drop(self.shares);
            self.engine.close()?;
            let engine = E::open(&self.place)?;
            let again = self
                .settings
                .iter()
                .map(|&setting| W::open(&engine, setting, false));
            let again: Result<Vec<W>> = again.collect();
            (engine, again?)
        } else {
            (self.engine, self.shares)
        };
        for (share, &operations) in shares.iter().zip(&self.done) {
            share.check(&engine, operations)?;
        }
        Ok(waits)
    }
}

/// One thread's operations until `until`, and one at least, however late the thread begins.
fn run<E: Engine, W: Workload<E>>(engine: &E, share: &mut W, pace: Pace, until: Instant) -> Result<Tally> {
    let mut tally = Tally::default();
    loop {
        let begun = Instant::now();
        if begun >= until && tally.operations > 0 {
            return Ok(tally);
        }
        let end = match pace {
            Pace::Every(every) => until.min(begun + every),
            Pace::Each => begun,
        };
        let mut asked = begun;
        engine.group(&mut |tx| {
            asked = operate::<E, W>(share, tx, pace, end, &mut tally)?;
            Ok(())
        })?;
        tally.commits += 1;
        let durable = Instant::now();
        tally.stops.add((durable - asked).as_secs_f64() * 1e6);
        tally.latency.add((durable - begun).as_secs_f64() * 1e6);
    }
}

/// The operations of one group; when the last was done.
#[inline(never)]
fn operate<E: Engine, W: Workload<E>>(
    share: &mut W,
    tx: &mut E::Tx<'_, '_>,
    pace: Pace,
    end: Instant,
    tally: &mut Tally,
) -> Result<Instant> {
    let together = if pace == Pace::Each { 1 } else { W::BETWEEN };
    loop {
        for _ in 0..together {
            tally.changed_bytes += E::operate(tx, |tx| share.operate(tx))?;
        }
        tally.operations += together;
        let now = Instant::now();
        if now >= end {
            return Ok(now);
        }
    }
}
