//! Copies of a stopped program's pages, by the fastest way there is for that many.
//!
//! * A few are read by one thread, more by one on each processor: the program is stopped, so they are
//!   free.
//! * Where it allows that, many are copied from inside the program ([`Copier`]), which takes half the time. To prepare
//!   that takes 10 to 18 ms of a stop, so it begins when as much has been copied from outside.

use crate::layout::Mapping;
use std::io;
use twinpage_core::Buffer;
use twinpage_os::copier::{self, Copier};
use twinpage_os::remote::{Process, Remote};
use twinpage_os::tracker::PAGE;

/// Bytes from which on a copy is shared between processors: below, waking one costs more.
const SHARED_BYTES: usize = 384 * PAGE as usize;

/// Bytes copied from outside before helpers are prepared: that took as long as the preparation.
const OUTSIDE_BYTES: usize = 128 << 20;

/// How the pages of one program are copied.
#[derive(Default)]
pub struct Copies {
    inside: Inside,
    /// Bytes copied from outside, on all processors.
    outside: usize,
}

/// Whether they can be copied from inside the program.
#[derive(Default)]
enum Inside {
    /// Not tried yet.
    #[default]
    Unknown,
    /// Yes.
    Yes(Copier),
    /// This program does not allow it.
    No,
}

impl Copies {
    /// Those of a program whose pages are never copied from inside it: a capture's buffer lies in one program at most.
    #[must_use]
    pub fn from_outside() -> Copies {
        Copies {
            inside: Inside::No,
            ..Copies::default()
        }
    }

    /// Appends the content of `ranges`, which are `bytes` together and may be cut, to `into`.
    ///
    /// # Errors
    /// When the program is gone.
    pub fn run(
        &mut self,
        process: &Process,
        mappings: &[Mapping],
        ranges: &mut Vec<Remote>,
        bytes: usize,
        into: &mut Buffer,
    ) -> io::Result<()> {
        if bytes < SHARED_BYTES {
            return process.gather(ranges, into.append(bytes));
        }
        let worthwhile = self.outside >= OUTSIDE_BYTES;
        let inside = worthwhile && bytes <= copier::SLOT_BYTES && readable(mappings, ranges);
        match if inside { self.copier(process) } else { None } {
            None => {
                self.outside = self.outside.saturating_add(bytes);
                gather_shared(process, ranges, into.append(bytes))
            }
            Some(copier) => {
                copier.lend(into);
                let place = into.append(bytes);
                match copier.copy(ranges, place) {
                    Ok(true) => return Ok(()),
                    Ok(false) => {}
                    Err(_) => self.inside = Inside::No, // a helper was killed; what is undone is done from here
                }
                gather_shared(process, ranges, place)
            }
        }
    }

    fn copier(&mut self, process: &Process) -> Option<&Copier> {
        if matches!(self.inside, Inside::Unknown) {
            self.inside = Copier::new(process, process.pid()).map_or(Inside::No, Inside::Yes);
        }
        match &self.inside {
            Inside::Yes(copier) => Some(copier),
            _ => None,
        }
    }
}

/// Whether the program may read all that is to be copied.
fn readable(mappings: &[Mapping], ranges: &[Remote]) -> bool {
    ranges.iter().all(|range| {
        let end = range.start + range.len as u64;
        let first = mappings.partition_point(|mapping| mapping.end <= range.start);
        mappings[first..]
            .iter()
            .take_while(|mapping| mapping.start < end)
            .all(|mapping| mapping.protection & libc::PROT_READ as u32 != 0)
    })
}

/// Copies in equal shares, one for each helper. Ranges that straddle a share are cut.
fn gather_shared(process: &Process, ranges: &mut Vec<Remote>, mut bytes: &mut [u8]) -> io::Result<()> {
    let shares = rayon::current_num_threads();
    let share = (bytes.len() / shares).next_multiple_of(PAGE as usize);
    let results: Vec<std::sync::Mutex<io::Result<()>>> =
        (0..shares).map(|_| std::sync::Mutex::new(Ok(()))).collect();
    let mut work = Vec::with_capacity(shares);
    let mut from = 0;
    for result in &results {
        let size = share.min(bytes.len());
        let to = cut(ranges, from, size);
        let (mine, rest) = bytes.split_at_mut(size);
        bytes = rest;
        work.push((from..to, mine, result));
        from = to;
    }
    let ranges = &*ranges;
    rayon::in_place_scope(|scope| {
        let mut work = work.into_iter();
        let own = work.next();
        for (slice, mine, result) in work {
            scope.spawn(move |_| {
                *result.lock().expect("no panic holds it") = process.gather(&ranges[slice], mine)
            });
        }
        if let Some((slice, mine, result)) = own {
            *result.lock().expect("no panic holds it") = process.gather(&ranges[slice], mine);
        }
    });
    results
        .into_iter()
        .try_for_each(|result| result.into_inner().expect("no panic holds it"))
}

/// The index past the ranges, from `from` on, that hold `size` bytes together; the last is cut in
/// two where it is longer.
fn cut(ranges: &mut Vec<Remote>, from: usize, mut size: usize) -> usize {
    let mut index = from;
    while size > 0 {
        let range = ranges[index];
        if range.len > size {
            ranges[index].len = size;
            ranges.insert(
                index + 1,
                Remote {
                    start: range.start + size as u64,
                    len: range.len - size,
                },
            );
        }
        size -= ranges[index].len;
        index += 1;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_into_shares() {
        let mut ranges = vec![
            Remote { start: 0, len: 3 },
            Remote { start: 10, len: 5 },
            Remote { start: 20, len: 1 },
        ];
        let first = cut(&mut ranges, 0, 5);
        let second = cut(&mut ranges, first, 4);
        assert_eq!((first, second), (2, 4));
        assert_eq!(
            ranges[1..3],
            [Remote { start: 10, len: 2 }, Remote { start: 12, len: 3 }]
        );
    }
}
