//! Finding the lines that changed, at the speed of memory.

/// Bit `k` is set where line `k` of the two differs. At most 64 lines.
pub(crate) fn differing_lines(old: &[u8], new: &[u8], line_bytes: usize) -> u64 {
    if old == new {
        return 0;
    }
    if line_bytes == 64 {
        // A length the compiler knows: each line is compared in a few vector registers.
        let (old, new) = (old.as_chunks::<64>().0, new.as_chunks::<64>().0);
        return old
            .iter()
            .zip(new)
            .enumerate()
            .fold(0, |mask, (k, (a, b))| mask | u64::from(a != b) << k);
    }
    let lines = old.chunks_exact(line_bytes).zip(new.chunks_exact(line_bytes));
    lines
        .enumerate()
        .fold(0, |mask, (k, (a, b))| mask | u64::from(a != b) << k)
}

/// Bit `k` is set where line `k` holds anything but zeros. At most 64 lines.
pub(crate) fn nonzero_lines(bytes: &[u8], line_bytes: usize) -> u64 {
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
            new.fill(0);
            new[9 * line + line - 1] = 1;
            assert_eq!(nonzero_lines(&new, line), 1 << 9);
        }
    }
}
