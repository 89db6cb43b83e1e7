//! The array in memory alone, under locks.

use super::grid::{COLUMNS, ROWS, expected, row_of};
use super::{Done, ObjectArguments, Workload, team};
use crate::engine::Result;
use std::sync::{Mutex, PoisonError};

type Row = [u64; COLUMNS];

/// One lock for all of it where calls touch all of it, else one for each row.
pub(super) fn run(arguments: &ObjectArguments) -> Result<Done> {
    let all = Mutex::new([[0; COLUMNS]; ROWS]);
    let rows: [Mutex<Row>; ROWS] = std::array::from_fn(|_| Mutex::new([0; COLUMNS]));
    let inc = |row: &mut Row| row.iter_mut().for_each(|value| *value += 1);
    let is_all = arguments.workload == Workload::AllInc;
    let (all_of, rows_of) = (&all, &rows);
    let member = |thread| {
        move || {
            match is_all {
                true => lock(all_of).iter_mut().for_each(inc),
                false => inc(&mut lock(&rows_of[row_of(thread)])),
            }
            Ok(())
        }
    };
    let members = (0..arguments.threads).map(member).collect();
    let (done, counts) = team::call(arguments, members, || Ok(()))?;
    let found: Vec<u64> = match is_all {
        true => lock(&all).as_flattened().to_vec(),
        false => rows.iter().flat_map(|row| *lock(row)).collect(),
    };
    team::compared(&found, &expected(arguments.workload, &counts))?;
    Ok(done)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
