//! SIMPO's TwoDimIntArray of 500 elements: as a persistent object, and in a region of its own checkpoints.

use super::variant::{Variant, Workload};
use super::{Done, ObjectArguments, place, team};
use crate::args::Form;
use crate::engine::Result;
use crate::engines::{failed, open};
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use twinpage::collections::Vec as List;
use twinpage::objects::operations;
use twinpage::{Persist, Region, Root, Update};
use twinpage_commands::report::median;
use twinpage_core::operation_log::{Appender, Call, Group, Log, Taker};
use twinpage_core::{Poison, SchemeKind};
use twinpage_os::{AnyMedium, Durability};

pub(super) const ROWS: usize = 10;
pub(super) const COLUMNS: usize = 50;
/// Calls after which the variants of that name flush, or make a checkpoint (SIMPO 4.1).
const GROUP: u64 = 1000;
/// Deferrable calls that are timed together, and how often.
const BATCH: u32 = 1000;
const BATCHES: usize = 101;

#[derive(Persist)]
pub(super) struct Row {
    values: [u64; COLUMNS],
}

impl Row {
    fn inc(&mut self) {
        self.values.iter_mut().for_each(|value| *value += 1);
    }
}

#[derive(Persist)]
pub(super) struct Grid<'r> {
    rows: List<'r, Row>,
    /// A number for each thread.
    numbers: List<'r, u64>,
}

/// Its methods are the handle's.
#[allow(unreachable_pub)]
#[twinpage::object]
impl<'r> Grid<'r> {
    fn new_in(u: &Update<'r>, threads: usize) -> Grid<'r> {
        let row = |_| Row { values: [0; COLUMNS] };
        Grid {
            rows: u.collect((0..ROWS).map(row)),
            numbers: u.collect((0..threads).map(|_| 0)),
        }
    }

    pub fn all_inc(&mut self) {
        self.rows.iter_mut().for_each(Row::inc);
    }

    #[lane(rows)]
    pub fn row_inc(row: &mut Row) {
        row.inc();
    }

    #[lane(rows)]
    pub fn add(row: &mut Row, by: u64) {
        row.values[0] += by;
    }

    #[instant]
    pub fn all_inc_now(&mut self) {
        self.rows.iter_mut().for_each(Row::inc);
    }

    #[instant]
    #[lane(rows)]
    pub fn row_inc_now(row: &mut Row) {
        row.inc();
    }

    pub fn bump(&mut self, thread: usize) -> u64 {
        self.numbers[thread] += 1;
        self.numbers[thread]
    }

    pub fn values(&self) -> Vec<u64> {
        self.rows.iter().flat_map(|row| row.values).collect()
    }

    pub fn numbers(&self) -> Vec<u64> {
        self.numbers.iter().copied().collect()
    }
}

/// The row of a thread's calls: of two, half of the threads each.
pub(super) fn row_of(thread: u32) -> usize {
    (thread % 2) as usize
}

/// The elements, after that many calls of each thread.
pub(super) fn expected(workload: Workload, counts: &[u64]) -> Vec<u64> {
    let of_row = |row: usize| -> u64 {
        let is_its = |thread: u32| workload == Workload::AllInc || row_of(thread) == row;
        (0..)
            .zip(counts)
            .filter(|(thread, _)| is_its(*thread))
            .map(|(_, count)| count)
            .sum()
    };
    (0..ROWS).flat_map(|row| [of_row(row); COLUMNS]).collect()
}

pub(super) fn opened(path: &Path, threads: u32, servers: Option<usize>) -> Result<(Region, GridHandle)> {
    let options = match servers {
        Some(servers) => Region::options().server_threads(servers),
        None => Region::options(),
    };
    let region = options.open(path).map_err(failed)?;
    let make = region.object::<Grid>("grid", |u| Grid::new_in(u, threads as usize));
    let grid = make.map_err(failed)?;
    Ok((region, grid))
}

/// A persistent object: fc, m-server, simpo-all and simpo.
pub(super) fn object(arguments: &ObjectArguments) -> Result<Done> {
    let path = arguments.place.join("grid.twin");
    let servers = (arguments.variant == Variant::Fc).then_some(1);
    let (region, grid) = opened(&path, arguments.threads, servers)?;
    let (workload, variant, all) = (arguments.workload, arguments.variant, AtomicU64::new(0));
    let (all, waiting) = (&all, grid.clone());
    let member = |thread| {
        let (grid, mut calls) = (grid.clone(), 0);
        move || {
            calls += 1;
            let row = row_of(thread);
            let answered = match (workload, variant) {
                (Workload::Instant, _) => grid.bump(thread as usize).map(|number| number == calls),
                (Workload::AllInc, Variant::SimpoAll) => grid.all_inc_now().map(|()| true),
                (_, Variant::SimpoAll) => grid.row_inc_now(row).map(|()| true),
                _ => {
                    match workload {
                        Workload::AllInc => grid.all_inc(),
                        _ => grid.row_inc(row),
                    }
                    let is_grouped = matches!(variant, Variant::Fc | Variant::MServer);
                    let is_group = is_grouped && all.fetch_add(1, Relaxed) % GROUP == GROUP - 1;
                    if is_group {
                        grid.sync().map(|()| true)
                    } else {
                        Ok(true)
                    }
                }
            };
            match answered {
                Ok(true) => Ok(()),
                Ok(false) => Err("wrong result: a call returned another number".into()),
                Err(error) => Err(failed(error)),
            }
        }
    };
    let members = (0..arguments.threads).map(member).collect();
    let (done, counts) = team::call(arguments, members, || waiting.sync().map_err(failed))?;
    drop((grid, waiting));
    region.close().map_err(failed)?;
    let (_region, grid) = opened(&path, arguments.threads, None)?;
    match workload {
        Workload::Instant => team::compared(&grid.numbers().map_err(failed)?, &counts)?,
        _ => team::compared(&grid.values().map_err(failed)?, &expected(workload, &counts))?,
    }
    Ok(done)
}

/// The log of hybrid and cow: calls as the library logs them.
struct Calls {
    log: Log<AnyMedium>,
    appender: Appender,
    taker: Taker,
    used: Group,
}

impl Calls {
    fn create(place: &Path, in_memory: bool) -> Result<Calls> {
        let durability = if in_memory {
            Durability::Memory
        } else {
            Durability::Disk
        };
        let medium = AnyMedium::create(place.join("calls.log"), durability).map_err(logging)?;
        let mut log = Log::create(medium, 1, 8 << 20, 0, Poison::default()).map_err(logging)?;
        log.define("grid\nall_inc()\nrow_inc(rows[lane])")
            .map_err(logging)?;
        let (appender, taker) = log.queue(1, 1 << 20);
        Ok(Calls {
            log,
            appender,
            taker,
            used: Group::default(),
        })
    }

    fn append(&self, thread: u32, workload: Workload) -> Result<()> {
        let lane = (workload != Workload::AllInc).then(|| row_of(thread) as u64);
        let call = Call {
            object: 0,
            function: u16::from(lane.is_some()),
            thread: thread + 1,
            lane,
            arguments: &[],
        };
        self.appender.append(&call).map(drop).map_err(logging)
    }

    /// Makes the calls so far durable.
    fn flush(&mut self) -> Result<()> {
        let group = self.taker.take(std::mem::take(&mut self.used), 0);
        if !group.is_empty() {
            self.log.flush(&group).map_err(logging)?;
        }
        self.used = group;
        Ok(())
    }
}

fn logging(error: twinpage_core::Error) -> String {
    format!("the log: {error}")
}

/// A region whose calls are run by their callers, and checkpoints: each, grouped and grouped-cow, and with a log hybrid
/// and cow.
pub(super) fn region(arguments: &ObjectArguments) -> Result<Done> {
    let path = arguments.place.join("grid.twin");
    let form = Form {
        scheme: matches!(arguments.variant, Variant::GroupedCow | Variant::Cow)
            .then_some(SchemeKind::CopyOnWrite),
        ..place(&arguments.place)?.form
    };
    let rows = |region: &Region| -> Result<Root<Grid<'static>>> {
        let made = region.root_with::<Grid>("grid", |u| Grid::new_in(u, 0));
        made.map_err(failed)
    };
    let region = open(Region::options(), &path, form)?;
    let is_logged = matches!(arguments.variant, Variant::Hybrid | Variant::Cow);
    let in_memory = place(&arguments.place)?.in_memory;
    let calls = is_logged.then(|| Calls::create(&arguments.place, in_memory));
    let grid = Mutex::new((rows(&region)?, calls.transpose()?, 0_u64));
    let group = if arguments.variant == Variant::Each {
        1
    } else {
        GROUP
    };
    let workload = arguments.workload;
    let (region_of, grid_of) = (&region, &grid);
    let member = |thread| {
        move || {
            let mut grid = grid_of.lock().unwrap_or_else(PoisonError::into_inner);
            let (root, log, calls) = &mut *grid;
            if let Some(log) = log {
                log.append(thread, workload)?;
            }
            region_of.update(|u| {
                let rows = &mut root.get_mut(u).rows;
                match workload {
                    Workload::AllInc => rows.iter_mut().for_each(Row::inc),
                    _ => rows[row_of(thread)].inc(),
                }
            });
            *calls += 1;
            if *calls % group != 0 {
                return Ok(());
            }
            if let Some(log) = log {
                log.flush()?;
            }
            region_of.durable().map_err(failed)?;
            if let Some(log) = log {
                log.log.release(log.log.end());
            }
            Ok(())
        }
    };
    let members = (0..arguments.threads).map(member).collect();
    let (done, counts) = team::call(arguments, members, || region_of.durable().map_err(failed))?;
    drop(grid);
    region.close().map_err(failed)?;
    let region = open(Region::options(), &path, form)?;
    let root = rows(&region)?;
    let found: Vec<u64> = region.read(|view| root.get(view).rows.iter().flat_map(|row| row.values).collect());
    team::compared(&found, &expected(workload, &counts))?;
    Ok(done)
}

/// What `add(7, 1)` costs its caller, and the log.
pub(super) fn append(arguments: &ObjectArguments) -> Result<Done> {
    let path = arguments.place.join("grid.twin");
    let (region, grid) = opened(&path, 0, None)?;
    let bytes_of = |calls: u64| -> Result<f64> {
        let before = operations(&path).map_err(failed)?.end;
        (0..calls).for_each(|_| grid.add(7, 1));
        grid.sync().map_err(failed)?;
        let after = operations(&path).map_err(failed)?.end;
        Ok((after - before) as f64 / calls as f64)
    };
    let logged = [bytes_of(100)?, bytes_of(1)?];
    let mut times = Vec::new();
    let begun = Instant::now();
    for _ in 0..BATCHES {
        let begun = Instant::now();
        (0..BATCH).for_each(|_| grid.add(black_box(7), black_box(1)));
        times.push(begun.elapsed().as_nanos() as f64 / f64::from(BATCH));
        grid.sync().map_err(failed)?;
    }
    let (seconds, calls) = (begun.elapsed().as_secs_f64(), BATCHES as u64 * u64::from(BATCH));
    drop(grid);
    region.close().map_err(failed)?;
    let (_region, grid) = opened(&path, 0, None)?;
    let mut expected = vec![0; ROWS * COLUMNS];
    expected[7 * COLUMNS] = calls + 101;
    team::compared(&grid.values().map_err(failed)?, &expected)?;
    Ok(Done {
        seconds,
        calls,
        append_ns: Some(median(&mut times)),
        logged: Some(logged),
        ..Done::default()
    })
}
