//! Descendants, and threads with descriptors of their own, get them again.
//!
//! 1. The descriptors of all tables are made in one, side by side: those of other tables at numbers that no table has.
//!    Descendants inherit them.
//! 2. A thread of each other table leaves with a copy, puts its own in place, and makes the other threads of its table.
//! 3. The first table loses what is not its own. Only then are files locked: closing any descriptor of a file drops
//!    the locks that its table holds on it.

use super::apart::Table;
use super::files::gaps;
use super::in_process::run_in;
use super::threads::make_thread;
use crate::error::Result;
use twinpage_os::inject::Call;
use twinpage_os::remote::Process;
use twinpage_os::trace::Tid;

/// Gives each table of a process its threads and descriptors. Returns the threads that were made.
pub(super) fn part(process: &Process, tables: &[Table]) -> Result<Vec<Tid>> {
    let mut made = Vec::new();
    for table in tables.iter().filter(|table| table.is_of(process)) {
        let first = table.first()?;
        let mut calls = vec![Call::new(
            libc::SYS_close_range,
            &[
                u64::from(u32::MAX),
                u64::from(u32::MAX),
                u64::from(libc::CLOSE_RANGE_UNSHARE),
            ],
        )];
        let places = table.places();
        calls.extend(places.iter().map(|&(made_at, fd, cloexec)| {
            let flags = if cloexec { libc::O_CLOEXEC } else { 0 };
            Call::new(libc::SYS_dup3, &[made_at as u64, fd as u64, flags as u64])
        }));
        let gaps = gaps(&places, i32::MAX).into_iter();
        calls.extend(
            gaps.map(|(from, to)| Call::new(libc::SYS_close_range, &[u64::from(from), u64::from(to), 0])),
        );
        run_in(process, first, &mut calls)?;
        for tid in table.others() {
            make_thread(process, first, *tid)?;
            made.push(*tid);
        }
    }
    Ok(made)
}

/// Closes in the first table what is not its own.
pub(super) fn close_others(process: &Process, tables: &[Table]) -> Result<()> {
    let beside = tables.iter().flat_map(Table::made_at);
    let mut close: Vec<Call> = beside
        .map(|made_at| Call::new(libc::SYS_close, &[made_at as u64]))
        .collect();
    run_in(process, process.pid(), &mut close)
}
