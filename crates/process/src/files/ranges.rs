//! A set of ranges: of bytes of a file that are already saved in this epoch, or of addresses.
//!
//! * The ranges are sorted, none is empty, no two touch.

use std::ops::Range;

/// Ranges of bytes or addresses.
#[derive(Default, Debug)]
pub(crate) struct Ranges(Vec<Range<u64>>);

impl FromIterator<Range<u64>> for Ranges {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Ranges {
        let mut all = Ranges::default();
        ranges.into_iter().for_each(|range| all.add(range));
        all
    }
}

impl Ranges {
    /// Empties the set and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The first part of `range` that is not in the set, if any.
    pub(crate) fn gap(&self, range: Range<u64>) -> Option<Range<u64>> {
        let mut start = range.start;
        let first = self.0.partition_point(|r| r.end <= start);
        let mut rest = self.0[first..].iter();
        let mut next = rest.next();
        if let Some(inside) = next.filter(|r| r.start <= start) {
            start = inside.end;
            next = rest.next();
        }
        let end = next.map_or(range.end, |r| r.start.min(range.end));
        (start < end).then_some(start..end)
    }

    /// The parts of the set that lie in `range`.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.0.partition_point(|r| r.end <= range.start);
        self.0[first..]
            .iter()
            .map(move |r| r.start.max(range.start)..r.end.min(range.end))
            .take_while(|r| !r.is_empty())
    }

    /// Adds a range.
    pub(crate) fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|r| r.end < range.start);
        let last = self.0.partition_point(|r| r.start <= range.end);
        let mut joined = range;
        if first < last {
            joined.start = joined.start.min(self.0[first].start);
            joined.end = joined.end.max(self.0[last - 1].end);
        }
        self.0.splice(first..last, [joined]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_bitmap() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 33
        };
        for _ in 0..200 {
            let (mut ranges, mut model) = (Ranges::default(), [false; 64]);
            for _ in 0..30 {
                let start = next() % 64;
                let end = start + next() % (65 - start);
                let first = (start..end).find(|&at| !model[at as usize]);
                let gap = first.map(|first| {
                    let end = (first..end).find(|&at| model[at as usize]).unwrap_or(end);
                    first..end
                });
                assert_eq!(ranges.gap(start..end), gap, "{ranges:?}");
                let within: Vec<u64> = ranges.within(start..end).flatten().collect();
                let inside: Vec<u64> = (start..end).filter(|&at| model[at as usize]).collect();
                assert_eq!(within, inside, "{ranges:?}");
                if next() % 2 == 0 {
                    ranges.add(start..end);
                    model[start as usize..end as usize].fill(true);
                }
            }
            let apart = ranges.0.windows(2).all(|pair| pair[0].end < pair[1].start);
            assert!(apart && ranges.0.iter().all(|r| !r.is_empty()), "{ranges:?}");
        }
    }
}
