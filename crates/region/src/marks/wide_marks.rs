//! The marks of a few lines that follow one another, set or looked at by two accesses whatever their number:
//! one from the first mark on, one up to the last, as wide as it takes for them to meet.
//!
//! ```text
//! 5 lines of 200 to 256 bytes, 4 marks at once:   | 1 1 1 1 | 1 |
//!                                                 | 1 | 1 1 1 1 |
//! ```
//!
//! Every mark is a byte for all other code: on x86-64 accesses of different sizes to the same bytes are each
//! as good as accesses of the bytes, in the order of the program, wherever the wide ones lie. The language has no
//! such access, so it is the processor's own.

use super::{LINE, MARKED, mark, noted};
use std::sync::atomic::Ordering;

/// Lines of a map. At most 16.
#[derive(Clone, Copy)]
pub(super) struct Few {
    first: usize,
    last: usize,
    /// Marks in an access: no more than there are lines, and at least half of them.
    width: usize,
    /// Known to be one line.
    is_one: bool,
}

impl Few {
    /// The lines of `bytes` bytes from an offset on, 15 lines' worth at most; on one line, if it `is_one`.
    #[inline(always)]
    pub(super) fn of(offset: usize, bytes: usize, is_one: bool) -> Few {
        let first = offset / LINE;
        let last = if is_one {
            first
        } else {
            (offset + bytes - 1) / LINE
        };
        // They lie on that many lines at least, and on one more at most.
        let width = match bytes.div_ceil(LINE) {
            0..2 => 1,
            2..4 => 2,
            4..8 => 4,
            _ => 8,
        };
        debug_assert!((width..=2 * width).contains(&(last - first + 1)));
        Few {
            first,
            last,
            width,
            is_one,
        }
    }

    /// What the summary of the map has of their groups: [`MARKED`] if it has all.
    ///
    /// # Safety
    /// They are lines of the map, and its window is in use.
    #[inline(always)]
    pub(super) unsafe fn noted(self, map: usize) -> u8 {
        // SAFETY: `map` is a map of a window in use, by the caller's word.
        unsafe {
            match self.is_one {
                true => noted(map, self.first),
                false => noted(map, self.first) & noted(map, self.last),
            }
        }
    }

    /// Marks them.
    ///
    /// # Safety
    /// They have marks in the map.
    #[inline(always)]
    pub(super) unsafe fn set(self, map: usize) {
        // SAFETY: by the caller's word, and the accesses stay within the lines.
        unsafe {
            store(map, self.first, self.width);
            if !self.is_one {
                store(map, self.last + 1 - self.width, self.width);
            }
        }
    }

    /// Whether any is marked.
    ///
    /// # Safety
    /// They have marks in the map.
    #[inline(always)]
    pub(super) unsafe fn any(self, map: usize) -> bool {
        // SAFETY: as in `set`.
        unsafe {
            load(map, self.first, self.width) != 0
                || !self.is_one && load(map, self.last + 1 - self.width, self.width) != 0
        }
    }
}

/// Accesses of several marks are taken apart for tools that know no other.
const APART: bool = cfg!(any(miri, twinpage_plain));

/// Marks `width` lines.
#[inline(always)]
unsafe fn store(map: usize, first: usize, width: usize) {
    if width > 1 && !APART {
        // SAFETY: by the caller's word the marks are there.
        return unsafe { wide::store(map + first, width) };
    }
    for line in first..first + width {
        // SAFETY: by the caller's word.
        unsafe { mark(map, line) }.store(MARKED, Ordering::Release);
    }
}

/// The marks of `width` lines: 0 if there is none.
#[inline(always)]
unsafe fn load(map: usize, first: usize, width: usize) -> u64 {
    if width > 1 && !APART {
        // SAFETY: by the caller's word the marks are there.
        return unsafe { wide::load(map + first, width) };
    }
    // SAFETY: by the caller's word.
    let marks = (first..first + width).map(|line| unsafe { mark(map, line) }.load(Ordering::Acquire));
    marks.fold(0, |any, mark| any | u64::from(mark))
}

/// 2, 4 or 8 marks in one access.
#[cfg(not(miri))]
mod wide {
    use std::arch::asm;

    #[inline(always)]
    pub(super) unsafe fn store(at: usize, width: usize) {
        let marked = u64::from_ne_bytes([super::MARKED; 8]);
        // SAFETY: by the caller's word there are that many marks.
        unsafe {
            match width {
                2 => asm!("mov word ptr [{}], 0x0101", in(reg) at, options(nostack, preserves_flags)),
                4 => asm!("mov dword ptr [{}], 0x01010101", in(reg) at, options(nostack, preserves_flags)),
                _ => {
                    asm!("mov qword ptr [{}], {}", in(reg) at, in(reg) marked, options(nostack, preserves_flags))
                }
            }
        }
    }

    #[inline(always)]
    pub(super) unsafe fn load(at: usize, width: usize) -> u64 {
        let marks: u64;
        // SAFETY: as above. The upper bits become zero.
        unsafe {
            match width {
                2 => {
                    asm!("movzx {:e}, word ptr [{}]", out(reg) marks, in(reg) at, options(nostack, preserves_flags))
                }
                4 => {
                    asm!("mov {:e}, dword ptr [{}]", out(reg) marks, in(reg) at, options(nostack, preserves_flags))
                }
                _ => {
                    asm!("mov {}, qword ptr [{}]", out(reg) marks, in(reg) at, options(nostack, preserves_flags))
                }
            }
        }
        marks
    }
}

/// Not reached: accesses are taken apart.
#[cfg(miri)]
mod wide {
    pub(super) unsafe fn store(_: usize, _: usize) {
        unreachable!("accesses are taken apart");
    }

    pub(super) unsafe fn load(_: usize, _: usize) -> u64 {
        unreachable!("accesses are taken apart");
    }
}
