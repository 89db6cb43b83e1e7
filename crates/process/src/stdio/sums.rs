//! The running checksum of a stream: at each position, the CRC-32C of all bytes before it.
//!
//! A checkpoint keeps the sums at the two ends of what it needs of a log. Going on from the first one over the
//! bytes between them must lead to the second one.
//!
//! Invariants:
//! * A point is a position whose sum is known. There is one at or below every position that may still be asked for.
//! * Points are at most [`STEP_BYTES`] apart, or one append: a sum between them costs reading as much.

use super::error::{Error, Result};
use std::collections::VecDeque;

/// Bytes between two points, and what is read at once.
const STEP_BYTES: usize = 64 << 10;

/// A position and the sum there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Point {
    at: u64,
    sum: u32,
}

impl Point {
    fn after(self, bytes: &[u8]) -> Point {
        Point {
            at: self.at + bytes.len() as u64,
            sum: crc32c::crc32c_append(self.sum, bytes),
        }
    }
}

/// The sums of one stream.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// In order.
    points: VecDeque<Point>,
    /// The newest.
    last: Point,
}

/// Reads a stream from a position on; returns how many bytes there were.
pub(super) type Reader<'a> = &'a dyn Fn(u64, &mut [u8]) -> Result<usize>;

impl Sums {
    /// From position `at` on, where the sum is `sum`.
    pub(super) fn new(at: u64, sum: u32) -> Sums {
        let last = Point { at, sum };
        Sums {
            points: [last].into(),
            last,
        }
    }

    /// The bytes that follow the last point are `bytes`.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.last = self.last.after(bytes);
        let apart = |first: &Point| self.last.at - first.at >= STEP_BYTES as u64;
        if self.points.back().is_none_or(apart) {
            self.points.push_back(self.last);
        }
    }

    /// The last position whose sum is known.
    pub(super) fn end(&self) -> u64 {
        self.last.at
    }

    /// Goes on to position `to`.
    pub(super) fn extend_to(&mut self, to: u64, read: Reader<'_>) -> Result<()> {
        each_piece(self.last.at, to, read, |bytes| self.extend(bytes))
    }

    /// The sum at position `at`.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Io`] of reading; [`Error::Context`] below the first point.
    pub(super) fn at(&self, at: u64, read: Reader<'_>) -> Result<u32> {
        let n = self.points.partition_point(|point| point.at <= at);
        let known = self.points.iter().take(n).next_back();
        let known = if self.last.at <= at {
            Some(&self.last)
        } else {
            known
        };
        let mut point = *known.ok_or_else(|| Error::Context(format!("byte {at} was needed no more")))?;
        each_piece(point.at, at, read, |bytes| point = point.after(bytes))?;
        Ok(point.sum)
    }

    /// No sum below `floor` is asked for any more; the one there is `sum`.
    pub(super) fn forget_below(&mut self, floor: u64, sum: u32) {
        self.points.retain(|point| point.at > floor);
        self.points.push_front(Point { at: floor, sum });
    }
}

/// Gives the bytes of `from..to`, some at a time.
fn each_piece(from: u64, to: u64, read: Reader<'_>, mut give: impl FnMut(&[u8])) -> Result<()> {
    let mut bytes = vec![0; STEP_BYTES.min(to.saturating_sub(from) as usize)];
    let mut at = from;
    while at < to {
        let want = (to - at).min(STEP_BYTES as u64) as usize;
        let got = read(at, &mut bytes[..want])?;
        if got == 0 {
            return Err(Error::Context(format!("byte {at} was not there yet")));
        }
        give(&bytes[..got]);
        at += got as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_at_any_position_is_that_of_all_bytes_before() {
        let stream: Vec<u8> = (0..1_000_000_u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let read = |at: u64, into: &mut [u8]| {
            let n = into.len().min(stream.len() - at as usize).min(50_000);
            into[..n].copy_from_slice(&stream[at as usize..at as usize + n]);
            Ok(n)
        };
        let mut sums = Sums::new(0, 0);
        let mut floor = 0;
        for end in [0, 1, 70_000, 70_001, 300_000, 900_000, 1_000_000] {
            sums.extend_to(end, &read).unwrap();
            for at in [floor, floor + 1, (floor + end) / 2, end] {
                let wanted = crc32c::crc32c(&stream[..at as usize]);
                assert_eq!(sums.at(at, &read).unwrap(), wanted, "at {at} of {end}");
            }
            floor = end / 2;
            let sum = sums.at(floor, &read).unwrap();
            sums.forget_below(floor, sum);
        }
        assert!(sums.at(floor - 1, &read).is_err());
        assert!(sums.points.len() < 12);
    }
}
