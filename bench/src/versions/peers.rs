//! The peers: mappings that are synced, and the stores of `twinpage bench region`.

use super::Done;
use super::arguments::SpsArguments;
use super::strings::{Strings, Text, check, failed, first, swaps};
use crate::args::Form;
use crate::engine::{Engine, Name, Pace, Result, StoreOptions};
use std::time::Instant;
use twinpage::collections::Vec as Values;
use twinpage::{Handle, Region};
use twinpage_os::direct::Instructions;

/// Strings in a mapped file, swapped in place and synced each time: not atomic, as a file is.
pub(super) fn msync(arguments: &SpsArguments) -> Result<Done> {
    let strings = Strings::new(arguments, Instructions::NONE, 0)?;
    let page = rustix::param::page_size();
    let begun = Instant::now();
    for (a, b) in swaps(arguments) {
        // SAFETY: two different strings of the array; whole pages around them are mapped.
        unsafe {
            std::ptr::swap_nonoverlapping(strings.at(a), strings.at(b), 1);
            for at in [strings.at(a), strings.at(b)] {
                let into = at.addr() % page;
                let first = at.cast::<u8>().sub(into).cast();
                let bytes = (into + size_of::<Text>()).next_multiple_of(page);
                rustix::mm::msync(first, bytes, rustix::mm::MsyncFlags::SYNC).map_err(failed)?;
            }
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    strings.check(arguments)?;
    Ok(Done {
        seconds,
        swaps: arguments.swaps,
        fences: 2 * arguments.swaps,
        stored_bytes: arguments.swaps * 2 * size_of::<Text>() as u64,
        ..Done::default()
    })
}

/// A store of `twinpage bench region`.
pub(super) fn engine<E: Engine>(arguments: &SpsArguments, pace: Pace) -> Result<Done> {
    let place = StoreOptions {
        directory: arguments.place.clone(),
        pace,
        form: Form::default(),
        in_memory: true,
        scale: 1.0,
    };
    let store = E::open(&place)?;
    let name = Name { table: 0, thread: 0 };
    let mut strings = store.array(name, arguments.strings as u64, first)?;
    let begun = Instant::now();
    let mut all = swaps(arguments).peekable();
    while all.peek().is_some() {
        store.group(&mut |tx| {
            for (a, b) in all.by_ref().take(if pace == Pace::Each { 1 } else { 1024 }) {
                E::operate(tx, |tx| E::swap(tx, &mut strings, a as u64, b as u64))?;
            }
            Ok(())
        })?;
    }
    store.flush_behind()?;
    let seconds = begun.elapsed().as_secs_f64();
    store.group(&mut |tx| check(arguments, |index| E::at(tx, &strings, index as u64)))?;
    drop(strings);
    store.close()?;
    Ok(Done {
        seconds,
        swaps: arguments.swaps,
        stored_bytes: arguments.swaps * 2 * size_of::<Text>() as u64,
        ..Done::default()
    })
}

/// A region of sections: each swap is one, durable when its call returns.
pub(super) fn sections(arguments: &SpsArguments) -> Result<Done> {
    let region = Region::options()
        .sections()
        .open(arguments.place.join("region"))
        .map_err(failed)?;
    let strings: Handle<Values<Text>> = region
        .shared_with("strings", |update| {
            let mut values = Values::with_capacity_in(arguments.strings, update.heap());
            values.extend((0..arguments.strings as u64).map(first));
            values
        })
        .map_err(failed)?;
    let begun = Instant::now();
    for (a, b) in swaps(arguments) {
        let swapped = region.atomic(|section| -> twinpage::Result<()> {
            strings.write(section).swap(a, b);
            Ok(())
        });
        swapped.map_err(failed)?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    region.read(|view| check(arguments, |index| Ok(strings.read(view)[index])))?;
    Ok(Done {
        seconds,
        swaps: arguments.swaps,
        stored_bytes: arguments.swaps * 2 * size_of::<Text>() as u64,
        ..Done::default()
    })
}
