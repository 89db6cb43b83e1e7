//! Size classes: four between a power of two and the next, from 16 bytes to 56 KiB.
//!
//! A block of a class is aligned to whatever power of two divides the class.

use super::format::{CLASSES, SLAB_HEADER, UNIT};
use std::alloc::Layout;

/// How many classes there are.
pub(crate) const COUNT: usize = 43;
const _: () = assert!(COUNT <= CLASSES);
/// The largest block of a slab.
pub(crate) const LARGEST: usize = 56 << 10;
/// Blocks up to this size live in slabs of one unit.
const SMALL: usize = 8 << 10;
/// Units in the slabs of larger blocks.
const MEDIUM_UNITS: usize = 4;

/// Bytes of a block, by class.
pub(crate) const BYTES: [u32; COUNT] = bytes();
/// Blocks of a slab, by class.
pub(crate) const BLOCKS: [u32; COUNT] = blocks();
/// `ceil(2^40 / bytes)`: a division of an offset in a slab by the class is a multiplication.
const INVERSE: [u64; COUNT] = inverse();
/// The class of `16 * k` bytes, for those up to 1 KiB.
const SHORT: [u8; 65] = short();

const fn bytes() -> [u32; COUNT] {
    let mut table = [0; COUNT];
    let mut class = 0;
    while class < COUNT {
        table[class] = if class < 4 {
            16 * (class as u32 + 1)
        } else {
            let (power, quarter) = (class as u32 / 4 + 5, class as u32 % 4 + 1);
            (1 << power) + (quarter << (power - 2))
        };
        class += 1;
    }
    table
}

const fn blocks() -> [u32; COUNT] {
    let mut table = [0; COUNT];
    let mut class = 0;
    while class < COUNT {
        let (room, bytes) = (units(class) * UNIT - SLAB_HEADER, BYTES[class] as usize);
        let mut count = room / bytes;
        while count.div_ceil(64) * 8 + count * bytes > room {
            count -= 1;
        }
        table[class] = count as u32;
        class += 1;
    }
    table
}

const fn inverse() -> [u64; COUNT] {
    let mut table = [0; COUNT];
    let mut class = 0;
    while class < COUNT {
        table[class] = (1_u64 << 40).div_ceil(BYTES[class] as u64);
        class += 1;
    }
    table
}

const fn short() -> [u8; 65] {
    let mut table = [0; 65];
    let (mut step, mut class) = (1, 0);
    while step < 65 {
        if BYTES[class] < 16 * step as u32 {
            class += 1;
        }
        table[step] = class as u8;
        step += 1;
    }
    table
}

/// Units in a slab of the class.
pub(crate) const fn units(class: usize) -> usize {
    if BYTES[class] as usize <= SMALL {
        1
    } else {
        MEDIUM_UNITS
    }
}

/// The class whose blocks fit `layout`, if one does. Its size is not zero.
#[inline]
pub(crate) const fn of(layout: Layout) -> Option<usize> {
    let Some(mut class) = of_bytes(layout.size()) else {
        return None;
    };
    if layout.align() > 16 {
        // Blocks lie from the end of a slab, which is aligned to a unit.
        while (BYTES[class] as usize) & (layout.align() - 1) != 0 {
            class += 1;
            if class == COUNT {
                return None;
            }
        }
    }
    Some(class)
}

#[inline]
const fn of_bytes(bytes: usize) -> Option<usize> {
    if bytes <= 1024 {
        return Some(SHORT[bytes.div_ceil(16)] as usize);
    }
    if bytes > LARGEST {
        return None;
    }
    let power = (bytes - 1).ilog2();
    let quarter = ((bytes - 1) >> (power - 2)) & 3;
    Some((power as usize - 5) * 4 + quarter)
}

/// `offset / BYTES[class]`, for an offset in a slab.
#[inline]
pub(crate) fn divide(offset: usize, class: usize) -> usize {
    ((offset as u64 * INVERSE[class]) >> 40) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_the_smallest_class_that_fits() {
        assert_eq!(BYTES[COUNT - 1] as usize, LARGEST);
        assert!(BYTES.is_sorted());
        for bytes in 1..=LARGEST {
            let class = of_bytes(bytes).unwrap();
            assert!(BYTES[class] as usize >= bytes);
            assert!(class == 0 || (BYTES[class - 1] as usize) < bytes, "{bytes}");
        }
        assert_eq!(of_bytes(LARGEST + 1), None);
    }

    #[test]
    fn alignment_divides_the_class() {
        for align in (0..=14).map(|power| 1 << power) {
            for size in [1, 16, 17, 100, 999, 5000, 30000] {
                let layout = Layout::from_size_align(size, align).unwrap();
                if let Some(class) = of(layout) {
                    assert_eq!(BYTES[class] as usize % align.max(16).min(align), 0);
                    assert!(BYTES[class] as usize >= size);
                }
            }
        }
    }

    #[test]
    fn division_is_exact_and_bits_fit() {
        for class in 0..COUNT {
            let (bytes, blocks) = (BYTES[class] as usize, BLOCKS[class] as usize);
            assert!((4..=64 * 64).contains(&blocks));
            for k in 0..blocks {
                for offset in [k * bytes, k * bytes + bytes - 1] {
                    assert_eq!(divide(offset, class), k);
                }
            }
        }
    }
}
