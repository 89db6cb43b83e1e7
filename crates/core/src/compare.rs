//! Finding the lines that changed, at the speed of memory.

use crate::buffer::Buffer;
use crate::error::Result;
use crate::geometry::{LineMask, PageId};
use crate::shell::Mechanism;
use std::ops::DerefMut;

/// Which of consecutive lines of a page, from line `first` on, differ from the newest version in `store`. What
/// cannot be looked at in place is read into `scratch`.
pub fn differing_from_newest<S: Mechanism, B: DerefMut<Target = Buffer>>(
    store: &S,
    page: PageId,
    first: usize,
    bytes: &[u8],
    scratch: impl FnOnce() -> B,
) -> Result<LineMask> {
    let line = store.shell().geometry().line_bytes();
    if bytes.is_empty() {
        return Ok(LineMask::NONE);
    }
    let differ = if !store.has_page(page) {
        nonzero_lines(bytes, line)
    } else if let Some(old) = store.view_newest(page, first, bytes.len()) {
        differing_lines(old, bytes, line)
    } else {
        let mut scratch = scratch();
        scratch.clear();
        let old = scratch.append(bytes.len());
        store.read_newest(page, first, old)?;
        differing_lines(old, bytes, line)
    };
    Ok(LineMask(differ << first))
}

/// Lines compared at once before looking which of them differ.
const BLOCK: usize = 8;

/// Bit `k` is set where line `k` of the two differs. At most 64 lines.
pub(crate) fn differing_lines(old: &[u8], new: &[u8], line_bytes: usize) -> u64 {
    if old == new {
        return 0;
    }
    let blocks = old.chunks(BLOCK * line_bytes).zip(new.chunks(BLOCK * line_bytes));
    blocks
        .enumerate()
        .filter(|(_, (old, new))| old != new)
        .fold(0, |mask, (block, (old, new))| {
            let lines = old
                .chunks_exact(line_bytes)
                .zip(new.chunks_exact(line_bytes))
                .enumerate();
            lines.fold(mask, |mask, (k, (a, b))| {
                mask | u64::from(a != b) << (block * BLOCK + k)
            })
        })
}

/// As [`differing_lines`], of a page in two homes: line `k` in `derivative` where bit `k` of `there` is set.
pub(crate) fn differing_in_homes(
    base: &[u8],
    derivative: &[u8],
    there: u64,
    new: &[u8],
    line_bytes: usize,
) -> u64 {
    if line_bytes != 64 {
        let in_base = differing_lines(base, new, line_bytes) & !there;
        return in_base | differing_lines(derivative, new, line_bytes) & there;
    }
    // Bits at random: an index costs less than a branch guessed wrong.
    let homes = [base.as_chunks::<64>().0, derivative.as_chunks::<64>().0];
    new.as_chunks::<64>()
        .0
        .iter()
        .enumerate()
        .fold(0, |mask, (k, new)| {
            let old = &homes[(there >> k & 1) as usize][k];
            mask | u64::from(old != new) << k
        })
}

/// Bit `k` is set where line `k` holds anything but zeros. At most 64 lines.
pub fn nonzero_lines(bytes: &[u8], line_bytes: usize) -> u64 {
    let zero = |line: &[u8]| line.as_chunks::<64>().0.iter().all(|chunk| *chunk == [0; 64]);
    let lines = bytes.chunks_exact(line_bytes).enumerate();
    lines.fold(0, |mask, (k, line)| mask | u64::from(!zero(line)) << k)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_differ_are_found() {
        for line in [64, 4096] {
            let old = vec![7; 64 * line];
            let mut new = old.clone();
            assert_eq!(differing_lines(&old, &new, line), 0);
            for k in [0, 5, 63] {
                new[k * line + k] = 8;
            }
            assert_eq!(differing_lines(&old, &new, line), 1 << 63 | 1 << 5 | 1);
            assert_eq!(differing_in_homes(&old, &new, 1 << 5 | 1, &new, line), 1 << 63);
            assert_eq!(differing_in_homes(&new, &old, 1 << 5 | 1, &new, line), 1 << 5 | 1);
            new.fill(0);
            new[9 * line + line - 1] = 1;
            assert_eq!(nonzero_lines(&new, line), 1 << 9);
        }
    }
}
