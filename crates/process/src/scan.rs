//! Asking the kernel which pages were written, on all processors: the program is stopped, so they are
//! free, and most of the time goes into walking page tables.

use crate::layout::Mapping;
use std::io;
use std::ops::Range;
use twinpage_os::tracker::{END_OF_MEMORY, Region, Tracker};

/// Mapped bytes from which on a walk is shared: below, waking another processor costs more.
const SHARED_WALK_BYTES: u64 = 64 << 20;

/// A range to ask about, and whether its written pages stay writable.
pub type Cut = (Range<u64>, bool);

/// Walks, one for each processor. Their buffers are kept.
#[derive(Default)]
pub struct Walks(Vec<Walk>);

#[derive(Default)]
struct Walk {
    cuts: Vec<Cut>,
    regions: Vec<Region>,
    /// Where the regions of each cut end.
    ends: Vec<usize>,
    failed: Option<io::Error>,
}

impl Walk {
    fn run(&mut self, tracker: &Tracker) {
        self.regions.clear();
        self.ends.clear();
        for (range, stays_writable) in &self.cuts {
            let walked = if *stays_writable {
                tracker.see_written(range.clone(), &mut self.regions)
            } else {
                tracker.take_written(range.clone(), &mut self.regions)
            };
            self.failed = self.failed.take().or(walked.err());
            self.ends.push(self.regions.len());
        }
    }
}

impl Walks {
    /// Asks about all `cuts`, which are in order and cover the mapped memory.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn run(&mut self, tracker: &Tracker, cuts: Vec<Cut>, mappings: &[Mapping]) -> io::Result<()> {
        self.share(cuts, mappings);
        let Some((own, others)) = self.0.split_first_mut() else {
            return Ok(());
        };
        rayon::in_place_scope(|scope| {
            for walk in others {
                scope.spawn(|_| walk.run(tracker));
            }
            own.run(tracker);
        });
        self.0
            .iter_mut()
            .try_for_each(|walk| walk.failed.take().map_or(Ok(()), Err))
    }

    /// What was found, by address: whether its pages were left writable, and where they are.
    pub fn found(&self) -> impl Iterator<Item = (bool, Region)> {
        self.0.iter().flat_map(|walk| {
            let starts = std::iter::once(0).chain(walk.ends.iter().copied());
            starts
                .zip(&walk.ends)
                .zip(&walk.cuts)
                .flat_map(|((start, end), (_, stays_writable))| {
                    walk.regions[start..*end]
                        .iter()
                        .map(|region| (*stays_writable, *region))
                })
        })
    }

    /// Gives each walk about as many mapped bytes as the others.
    fn share(&mut self, cuts: Vec<Cut>, mappings: &[Mapping]) {
        let bytes = |mapping: &Mapping| {
            if mapping.kind.is_captured() && mapping.protection != 0 {
                mapping.end - mapping.start
            } else {
                0
            }
        };
        let total: u64 = mappings.iter().map(bytes).sum();
        let walks = if total < SHARED_WALK_BYTES {
            1
        } else {
            rayon::current_num_threads()
        };
        self.0.resize_with(walks, Walk::default);
        let mut bounds = Vec::with_capacity(walks);
        let mut before = 0;
        for mapping in mappings {
            let size = bytes(mapping);
            while size > 0 && bounds.len() + 1 < walks {
                let due = total / walks as u64 * (bounds.len() as u64 + 1);
                if due > before + size {
                    break;
                }
                bounds.push((mapping.start + (due - before)) & !0xfff);
            }
            before += size;
        }
        bounds.resize(walks, END_OF_MEMORY);
        let mut from = 0;
        for (walk, to) in self.0.iter_mut().zip(bounds) {
            let part =
                |(range, stays_writable): &Cut| (range.start.max(from)..range.end.min(to), *stays_writable);
            walk.cuts.clear();
            walk.cuts
                .extend(cuts.iter().map(part).filter(|(range, _)| !range.is_empty()));
            from = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::parse;

    #[test]
    fn walks_cover_everything_once() {
        let text = "10000000-20000000 rw-p 00000000 00:00 0 \n30000000-40000000 rw-p 00000000 00:00 0 \n";
        let cuts: Vec<Cut> = vec![
            (0..0x1800_0000, false),
            (0x1800_0000..0x1900_0000, true),
            (0x1900_0000..END_OF_MEMORY, false),
        ];
        let mut walks = Walks::default();
        walks.share(cuts, &parse(text.as_bytes(), |_| None).unwrap());
        let all: Vec<Cut> = walks.0.iter().flat_map(|walk| walk.cuts.clone()).collect();
        assert_eq!((all[0].0.start, all[all.len() - 1].0.end), (0, END_OF_MEMORY));
        assert!(all.windows(2).all(|pair| pair[0].0.end == pair[1].0.start));
        let stays: u64 = all
            .iter()
            .filter(|cut| cut.1)
            .map(|cut| cut.0.end - cut.0.start)
            .sum();
        assert_eq!(stays, 0x100_0000);
    }
}
