//! What is in a heap, counted by looking at it.

use super::format::{FREE, LARGE, OWN, SLAB, UNIT};
use super::units::Units;
use super::{HeapError, RawHeap, classes};

/// What is in a heap. Bytes are those of whole blocks, which may be larger than what was asked for.
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::Box;
///
/// let number = Box::new_in(7_u64, heap);
/// let stats = heap.stats();
/// assert_eq!(stats.used_blocks, 1);
/// assert!(stats.used_bytes >= 8);
/// drop(number);
/// assert_eq!(heap.stats().used_blocks, 0);
/// # })?;
/// # Ok::<(), std::boxed::Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct HeapStats {
    /// Bytes the heap spans, from the start of the region.
    pub span_bytes: u64,
    /// Blocks in use.
    pub used_blocks: u64,
    /// Bytes of the blocks in use.
    pub used_bytes: u64,
    /// Bytes of free units: they go to any size.
    pub free_bytes: u64,
    /// Of those, bytes that were not given back yet.
    pub held_bytes: u64,
    /// Bytes of free blocks in slabs: they go to their size only. The fragmentation.
    pub scattered_bytes: u64,
    /// Bytes of the heap's own: headers and tables.
    pub own_bytes: u64,
    /// Bytes of the largest run of free units.
    pub largest_free_bytes: u64,
    /// By size, those in use.
    pub classes: Vec<ClassStats>,
}

/// The blocks of one size.
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::Vec;
///
/// let numbers = Vec::from_iter_in(0..100_u64, heap);
/// let class = &heap.stats().classes[0];
/// assert_eq!((class.used, class.slabs), (1, 1));
/// assert!(class.block_bytes >= 800);
/// # drop(numbers);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct ClassStats {
    /// Bytes of a block; 0 stands for blocks of whole units.
    pub block_bytes: u64,
    /// Slabs.
    pub slabs: u64,
    /// Blocks in use.
    pub used: u64,
    /// Free blocks.
    pub free: u64,
}

impl RawHeap {
    /// Counts what is in the heap. It takes a look at each slab; other threads wait meanwhile.
    ///
    /// # Panics
    /// When the heap is damaged.
    #[must_use]
    pub(crate) fn stats(self) -> HeapStats {
        match self.try_stats() {
            Ok(stats) => stats,
            Err(error) => super::no_memory(&error),
        }
    }

    /// As [`Heap::stats`].
    ///
    /// # Errors
    /// [`HeapError::Damaged`].
    pub(crate) fn try_stats(self) -> Result<HeapStats, HeapError> {
        let _locks = self.lock_all();
        // SAFETY: the heap is in a usable window, and the lock of its units is held.
        let units = unsafe { Units::new(self.header()) };
        let state = units.state();
        let mut stats = HeapStats {
            span_bytes: bytes(state.top),
            free_bytes: bytes(state.free),
            held_bytes: bytes(state.held),
            ..HeapStats::default()
        };
        let mut classes = vec![ClassStats::default(); classes::COUNT + 1];
        let (mut unit, top) = (0, state.top);
        while unit < top {
            let entry = units.get(unit)?;
            let length = entry.length;
            match entry.kind {
                OWN => stats.own_bytes += bytes(length),
                FREE => stats.largest_free_bytes = stats.largest_free_bytes.max(bytes(length)),
                LARGE => {
                    stats.used_blocks += 1;
                    stats.used_bytes += bytes(length);
                    classes[classes::COUNT].used += 1;
                }
                SLAB => self.count_slab(unit, length, &mut stats, &mut classes)?,
                kind => return Err(HeapError::damaged(format!("unit {unit} is of kind {kind}"))),
            }
            if length == 0 {
                return Err(HeapError::damaged(format!("a run of no units at unit {unit}")));
            }
            unit += length;
        }
        for (class, bytes) in classes.iter_mut().zip(classes::BYTES) {
            class.block_bytes = bytes.into();
        }
        classes.retain(|class| class.slabs + class.used > 0);
        stats.classes = classes;
        Ok(stats)
    }

    fn count_slab(
        self,
        unit: u32,
        length: u32,
        stats: &mut HeapStats,
        classes: &mut [ClassStats],
    ) -> Result<(), HeapError> {
        // SAFETY: the unit is below the top, so its bytes are usable; the locks are held.
        let (class, free) = unsafe {
            let slab = self.slab_at(unit);
            (usize::from((*slab).class), (*slab).free)
        };
        if class >= classes::COUNT
            || free > classes::BLOCKS[class]
            || classes::units(class) != length as usize
        {
            return Err(HeapError::damaged(format!("the slab at unit {unit}")));
        }
        let (block, blocks) = (u64::from(classes::BYTES[class]), classes::BLOCKS[class]);
        let used = blocks - free;
        stats.used_blocks += u64::from(used);
        stats.used_bytes += u64::from(used) * block;
        stats.scattered_bytes += u64::from(free) * block;
        stats.own_bytes += bytes(length) - u64::from(blocks) * block;
        classes[class].slabs += 1;
        classes[class].used += u64::from(used);
        classes[class].free += u64::from(free);
        Ok(())
    }
}

fn bytes(units: u32) -> u64 {
    u64::from(units) * UNIT as u64
}
