//! Is the heap what it should be? A look at all of it, on bytes that may be anything.
//!
//! * Works on an image: the bytes of a region and the address they belong at. No typed access, no code
//!   of the types that live there, no index that is not looked at: whatever the bytes are, the answer is
//!   a [`Report`].
//! * First the heap itself: every run, every slab, every list. That gives the blocks in use.
//! * Then what the roots reach, by their descriptions: each block must be in use, fit, and be owned
//!   once. Blocks in use that no root reaches are leaks.

mod structure;
mod walk;

use crate::description::Description;
use crate::heap::{Heap, HeapStats, RawHeap};
use crate::root_entry::RootEntry;
use std::mem::offset_of;
use structure::Blocks;

/// How many findings and leaks are told one by one.
const TOLD: usize = 100;

/// What a check found.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::Region;
/// use twinpage::collections::Vec;
///
/// let region = Region::open("numbers.twin")?;
/// let mut numbers = region.root::<Vec<u64>>("numbers")?;
/// region.update(|u| numbers.get_mut(u).extend(0..9));
/// let report = region.check()?;
/// assert!(report.is_sound());
/// assert_eq!((report.roots.len(), report.leaked_blocks), (1, 0));
/// # drop(numbers);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct Report {
    /// What is in the heap. Missing parts are not counted.
    pub stats: HeapStats,
    /// The roots, in the order they were made.
    pub roots: Vec<RootReport>,
    /// Blocks in use that no root reaches.
    pub leaked_blocks: u64,
    /// Their bytes.
    pub leaked_bytes: u64,
    /// The first of them: address and bytes.
    pub leaks: Vec<(u64, u64)>,
    /// What is not as it should be; the first hundred.
    pub damage: Vec<Finding>,
}

/// What a root holds.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::Region;
/// use twinpage::collections::Vec;
///
/// let region = Region::open("numbers.twin")?;
/// let mut numbers = region.root::<Vec<u64>>("numbers")?;
/// region.update(|u| numbers.get_mut(u).extend(0..9));
/// let report = region.check()?;
/// let root = &report.roots[0];
/// // The vector itself has a block, and its numbers have one.
/// assert_eq!((&root.name[..], &root.type_name[..], root.blocks), ("numbers", "Vec<u64>", 2));
/// # drop(numbers);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct RootReport {
    /// Its name.
    pub name: String,
    /// The name of its type.
    pub type_name: String,
    /// Blocks it owns.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Something that is not as it should be.
///
/// ```
/// use twinpage::check::check_image;
///
/// let report = check_image(&[7; 1 << 17], 0x1000_0000_0000); // no heap looks like that
/// assert!(!report.damage.is_empty());
/// for finding in &report.damage {
///     println!("{finding}"); // at byte 0x0: ...
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Finding {
    /// Where, in bytes from the start of the region.
    pub at: u64,
    /// What.
    pub what: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at byte {:#x}: {}", self.at, self.what)
    }
}

impl Report {
    /// Whether nothing is damaged and nothing leaked.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty() && self.leaked_blocks == 0
    }

    pub(super) fn damaged(&mut self, at: u64, what: impl Into<String>) {
        if self.damage.len() < TOLD {
            self.damage.push(Finding {
                at,
                what: what.into(),
            });
        }
    }
}

/// More than the addresses of any process: sums of what is below and of the heap's numbers are numbers, too.
const ADDRESSES: u64 = 1 << 57;

/// Checks the bytes of a region whose first byte belongs at address `base`.
#[must_use]
pub fn check_image(bytes: &[u8], base: u64) -> Report {
    let image = Image { bytes, base };
    let mut report = Report::default();
    if base.saturating_add(bytes.len() as u64) > ADDRESSES {
        report.damaged(
            0,
            format!("it belongs at {base:#x}: no process has such addresses"),
        );
        return report;
    }
    let mut blocks = structure::blocks(image, &mut report);
    walk::roots(image, &mut blocks, &mut report);
    for block in blocks.iter().filter(|block| !block.reached) {
        report.leaked_blocks += 1;
        report.leaked_bytes += block.bytes;
        if report.leaks.len() < TOLD {
            report.leaks.push((block.at, block.bytes));
        }
    }
    report
}

impl Heap<'_> {
    /// Looks at all of the heap and at every root: what is in use, leaked or damaged.
    #[must_use]
    pub fn check(self) -> Report {
        self.raw().check()
    }
}

impl RawHeap {
    /// Checks all of the heap and what its roots hold. All of the region is read.
    ///
    /// No update may be in progress: what another thread is changing looks like damage.
    #[must_use]
    pub(crate) fn check(self) -> Report {
        let image = self.image();
        check_image(image.bytes, image.base)
    }

    /// The blocks a value in a block of its own owns, that one included: address and bytes. Other
    /// threads may take and free other blocks meanwhile.
    ///
    /// # Errors
    /// The first thing about the value that is damaged.
    pub(crate) fn blocks_of(self, description: &Description, at: u64) -> Result<Vec<(u64, u64)>, Finding> {
        let mut report = Report::default();
        let (image, mut blocks): (_, Blocks) = {
            let _locks = self.lock_all();
            let image = self.image(); // as large as the heap while it does not grow
            (image, structure::blocks(image, &mut Report::default()))
        };
        walk::value(image, description, at, &mut blocks, &mut report);
        match report.damage.into_iter().next() {
            Some(finding) => Err(finding),
            None => Ok(blocks
                .iter()
                .filter(|block| block.reached)
                .map(|block| (block.at, block.bytes))
                .collect()),
        }
    }

    /// Looks at a value in a block of its own, and at the blocks it owns itself, but not into them: in a
    /// time that does not depend on how much there is. Other threads may take and free blocks meanwhile.
    ///
    /// # Errors
    /// The first thing about it that is damaged.
    pub(crate) fn check_head(self, description: &Description, at: u64) -> Result<(), Finding> {
        let mut report = Report::default();
        let _locks = self.lock_all();
        walk::head(self.image(), description, at, &mut report);
        report.damage.into_iter().next().map_or(Ok(()), Err)
    }

    /// Whether the text a string has at `at` is there and is text.
    fn has_text(self, at: u64) -> bool {
        let image = self.image();
        let [first, length, room, heap] = [0, 8, 16, 24].map(|offset| image.u64(at + offset));
        let text = if room == 0 {
            Some(&[][..])
        } else {
            image.at(first, room)
        };
        let text = text.and_then(|bytes| bytes.get(..usize::try_from(length).ok()?));
        heap == image.base && text.is_some_and(|bytes| std::str::from_utf8(bytes).is_ok())
    }

    /// Whether the table of roots at `at` can be used as what it is: all it refers to lies in the region.
    /// It looks at the table only.
    pub(crate) fn has_root_table(self, at: u64) -> bool {
        let (image, entry) = (self.image(), size_of::<RootEntry>() as u64);
        let [first, length, room, heap] = [0, 8, 16, 24].map(|offset| image.u64(at.wrapping_add(offset)));
        let Some(bytes) = room.checked_mul(entry) else {
            return false;
        };
        let there = image.at(at, 32).is_some() && (room == 0 || image.at(first, bytes).is_some());
        there
            && at.is_multiple_of(8)
            && first.is_multiple_of(8)
            && heap == image.base
            && length <= room
            && (0..length).all(|index| {
                let entry = first + index * entry;
                self.has_text(entry + offset_of!(RootEntry, name) as u64)
                    && self.has_text(entry + offset_of!(RootEntry, layout) as u64)
            })
    }

    fn image(self) -> Image<'static> {
        let place = self.place();
        // SAFETY: these bytes are usable for as long as the heap is; they are only looked at.
        let bytes = unsafe { std::slice::from_raw_parts(place.base(), place.bytes()) };
        Image {
            bytes,
            base: place.base().addr() as u64,
        }
    }
}

/// The bytes of a region, and where they belong.
#[derive(Clone, Copy)]
pub(super) struct Image<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) base: u64,
}

impl<'a> Image<'a> {
    /// The bytes at an address, if they are there.
    pub(super) fn at(self, at: u64, count: u64) -> Option<&'a [u8]> {
        let start = usize::try_from(at.checked_sub(self.base)?).ok()?;
        let end = start.checked_add(usize::try_from(count).ok()?)?;
        self.bytes.get(start..end)
    }

    /// The number of that many bytes at an address; 0 where nothing is.
    pub(super) fn number(self, at: u64, bytes: u64) -> u64 {
        let mut number = [0; 8];
        if let (Some(found), Some(into)) = (self.at(at, bytes), number.get_mut(..bytes as usize)) {
            into.copy_from_slice(found);
        }
        u64::from_le_bytes(number)
    }

    pub(super) fn u64(self, at: u64) -> u64 {
        self.number(at, 8)
    }

    pub(super) fn u32(self, at: u64) -> u32 {
        self.number(at, 4) as u32
    }

    pub(super) fn u8(self, at: u64) -> u8 {
        self.number(at, 1) as u8
    }
}
