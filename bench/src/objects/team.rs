//! Threads that call for some time.

use super::{Done, ObjectArguments};
use crate::engine::Result;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Lets each member call again and again, then `finish`es; counts the calls of each.
pub(super) fn call<F: FnMut() -> Result<()> + Send>(
    arguments: &ObjectArguments,
    members: Vec<F>,
    finish: impl FnOnce() -> Result<()>,
) -> Result<(Done, Vec<u64>)> {
    let (stop, begin) = (AtomicBool::new(false), Barrier::new(members.len() + 1));
    let (stop, begin) = (&stop, &begin);
    let (counts, begun) = std::thread::scope(|scope| {
        let threads: Vec<_> = members
            .into_iter()
            .map(|mut member| {
                scope.spawn(move || {
                    begin.wait();
                    let mut calls = 0;
                    while !stop.load(Relaxed) {
                        member()?;
                        calls += 1;
                    }
                    Ok(calls)
                })
            })
            .collect();
        begin.wait();
        let begun = Instant::now();
        std::thread::sleep(Duration::from_secs_f64(arguments.seconds));
        stop.store(true, Relaxed);
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<u64>>| {
            thread.join().map_err(|_| "a thread panicked".to_owned())?
        };
        let counts: Result<Vec<u64>> = threads.into_iter().map(join).collect();
        (counts, begun)
    });
    let counts = counts?;
    finish()?;
    let done = Done {
        seconds: begun.elapsed().as_secs_f64(),
        calls: counts.iter().sum(),
        ..Done::default()
    };
    Ok((done, counts))
}

/// What was found and what the counted calls must have made.
pub(super) fn compared<T: PartialEq>(found: &[T], expected: &[T]) -> Result<()> {
    match found == expected {
        true => Ok(()),
        false => Err("wrong result: the store is not what its calls must have made of it".into()),
    }
}
