//! Small numbers and line masks in few bytes, and reading them back from untrusted bytes.
//!
//! * A decoder never reads past its bytes and never allocates: it returns `None`.
//! * An encoded value decodes to the same value, and takes no more than ten bytes a number and nine
//!   a mask. A mask of one line, by far the most common, takes one.
//!
//! ```text
//! number   LEB128: seven bits a byte, low bits first, the top bit says that more follow
//! signed   zigzag: 0, -1, 1, -2, ... as 0, 1, 2, 3, ...
//! mask     00..3f          the one line with that number
//!          40..7f, n       n lines (2 to 64) from line (byte - 40)
//!          80              no line
//!          81, b, bytes    the bytes of the mask that are not zero; bit k of b stands for byte k
//!          82, 8 bytes     the mask itself
//! ```

use crate::geometry::LineMask;

const RUN: u8 = 0x40;
const EMPTY: u8 = 0x80;
const SPARSE: u8 = 0x81;
const RAW: u8 = 0x82;

/// Appends a number.
pub(crate) fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends how far `to` is from `from`.
pub(crate) fn put_step(out: &mut Vec<u8>, from: u64, to: u64) {
    let step = to.wrapping_sub(from) as i64;
    put_number(out, (step << 1 ^ step >> 63) as u64);
}

/// Appends a mask.
pub(crate) fn put_mask(out: &mut Vec<u8>, mask: LineMask) {
    let (bits, first) = (mask.0, mask.0.trailing_zeros());
    let count = bits.count_ones();
    if count == 0 {
        out.push(EMPTY);
    } else if count == 1 {
        out.push(first as u8);
    } else if (bits >> first).trailing_ones() == count {
        out.extend([RUN | first as u8, count as u8]);
    } else {
        let bytes = bits.to_le_bytes();
        let used = bytes
            .iter()
            .rev()
            .fold(0, |used, &byte| used << 1 | u8::from(byte != 0));
        if used.count_ones() > 6 {
            out.push(RAW);
            out.extend(bytes);
        } else {
            out.extend([SPARSE, used]);
            out.extend(bytes.iter().filter(|&&byte| byte != 0));
        }
    }
}

/// Reads from untrusted bytes.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    /// Of how many it is the rest.
    len: usize,
    field: &'static str,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        let len = bytes.len();
        Cursor {
            bytes,
            len,
            field: "first field",
        }
    }

    /// The field that is read next.
    pub(crate) fn named(&mut self, field: &'static str) -> &mut Cursor<'a> {
        self.field = field;
        self
    }

    /// That the field last named is cut, or holds a value that it cannot have.
    #[cold]
    pub(crate) fn refuse(&self) -> String {
        let (field, before, len) = (self.field, self.len - self.left(), self.len);
        format!(
            "its checksum is right, but its {field}, before byte {before} of {len}, is cut or out of range"
        )
    }

    /// Bytes not read yet.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(byte)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*array)
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: u64) -> Option<&'a [u8]> {
        let (bytes, rest) = self.bytes.split_at_checked(usize::try_from(len).ok()?)?;
        self.bytes = rest;
        Some(bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// What [`put_step`] wrote, from the same `from`.
    pub(crate) fn step(&mut self, from: u64) -> Option<u64> {
        let zigzag = self.number()?;
        Some(from.wrapping_add(zigzag >> 1 ^ (zigzag & 1).wrapping_neg()))
    }

    pub(crate) fn mask(&mut self) -> Option<LineMask> {
        match self.byte()? {
            line @ 0..RUN => Some(LineMask(1 << line)),
            run @ RUN..EMPTY => {
                let (first, count) = (usize::from(run - RUN), usize::from(self.byte()?));
                (first + count <= 64).then(|| LineMask::run(first, count))
            }
            EMPTY => Some(LineMask::NONE),
            SPARSE => {
                let used = self.byte()?;
                let mut bytes = [0; 8];
                for k in (0..8).filter(|k| used >> k & 1 == 1) {
                    bytes[k] = self.byte()?;
                }
                Some(LineMask(u64::from_le_bytes(bytes)))
            }
            RAW => self.array().map(u64::from_le_bytes).map(LineMask),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_line_takes_one_byte() {
        for (mask, len) in [
            (1 << 5, 1),
            (0b110, 2),
            (!0, 2),
            (0, 1),
            (1 << 63 | 1, 4),
            (u64::MAX / 3, 9),
        ] {
            let mut out = vec![];
            put_mask(&mut out, LineMask(mask));
            assert_eq!(out.len(), len, "{mask:x}");
            assert_eq!(Cursor::new(&out).mask(), Some(LineMask(mask)));
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(number: u64, from: u64, to: u64, bits: u64, spare: u64) {
            let mut out = vec![];
            put_number(&mut out, number);
            put_step(&mut out, from, to);
            put_mask(&mut out, LineMask(bits));
            put_mask(&mut out, LineMask(bits & spare & spare << 3));
            let mut cursor = Cursor::new(&out);
            prop_assert_eq!(cursor.number(), Some(number));
            prop_assert_eq!(cursor.step(from), Some(to));
            prop_assert_eq!(cursor.mask(), Some(LineMask(bits)));
            prop_assert_eq!(cursor.mask(), Some(LineMask(bits & spare & spare << 3)));
            prop_assert_eq!(cursor.left(), 0);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let mut cursor = Cursor::new(&bytes);
            while cursor.left() > 0 && cursor.mask().is_some() && cursor.number().is_some() {}
        }
    }
}
