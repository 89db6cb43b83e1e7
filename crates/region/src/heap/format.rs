//! What the heap writes into its region, as `docs/format.md` draws it.
//!
//! * A unit is 64 KiB. Unit 0 holds the [`Header`] and the first table; unit `n` begins at byte
//!   `n * UNIT` of the region. 0 in a link means none.
//! * The units below `top` are cut into runs. The [`Entry`] of a run's first unit says what it is and
//!   how long; the entry of its last unit is `REST` or, in a free run, `FREE_END` (with the length).
//! * A slab is a run of blocks of one size. Blocks lie at its end, so each is aligned to whatever
//!   power of two divides its size.

/// Bytes in a unit.
pub(crate) const UNIT: usize = 64 << 10;
/// `TpHeap`, and two zero bytes.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"TpHeap\0\0");
/// The version of the format.
pub(crate) const VERSION: u32 = 1;
/// `TpSl`.
pub(crate) const SLAB_MAGIC: u32 = u32::from_le_bytes(*b"TpSl");
/// Shards, each with slabs of its own.
pub(crate) const SHARDS: usize = 16;
/// Size classes a shard has a place for.
pub(crate) const CLASSES: usize = 48;
/// Lists of free runs, by length.
pub(crate) const BINS: usize = 96;
/// Where the first table lies.
pub(crate) const FIRST_TABLE: usize = 16 << 10;
/// Entries of the first table.
pub(crate) const FIRST_ENTRIES: u32 = ((UNIT - FIRST_TABLE) / size_of::<Entry>()) as u32;

/// The start of the heap, at the start of the region.
#[repr(C)]
pub(crate) struct Header {
    pub(crate) state: State,
    /// What hash tables are seeded from.
    pub(crate) seed: u64,
    /// The address of the block of the root table; 0: no root yet.
    pub(crate) roots: u64,
    pub(crate) reserved: u64,
    pub(crate) bins: Bins,
    pub(crate) reserved2: [u8; 560],
    /// At byte 1024.
    pub(crate) shards: [Shard; SHARDS],
}

/// What changes under the lock of the units, but for the bins.
#[repr(C)]
pub(crate) struct State {
    pub(crate) magic: u64,
    pub(crate) version: u32,
    pub(crate) unit_bytes: u32,
    /// Units from here on were never used.
    pub(crate) top: u32,
    /// The unit the table begins in; 0: at byte [`FIRST_TABLE`] of unit 0.
    pub(crate) table: u32,
    /// Entries the table has room for.
    pub(crate) entries: u32,
    /// Free units below `top`.
    pub(crate) free: u32,
    /// Free units whose bytes were not given back.
    pub(crate) held: u32,
    pub(crate) reserved: u32,
}

/// The lists of free runs.
#[repr(C)]
pub(crate) struct Bins {
    /// Bit `k`: bin `k` is not empty.
    pub(crate) used: [u64; 2],
    /// The first free run of each bin.
    pub(crate) first: [u32; BINS],
}

/// The slabs of a shard that have room, by size class.
#[repr(C)]
pub(crate) struct Shard {
    pub(crate) partial: [u32; CLASSES],
}

/// What a unit is.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) kind: u8,
    /// The bytes of this free run were not given back.
    pub(crate) held: u8,
    /// How many units before this one its run begins; only in runs of less than 65536 units.
    pub(crate) back: u16,
    /// Units in the run, in its first entry and in [`FREE_END`].
    pub(crate) length: u32,
    /// The next and the previous free run of the bin.
    pub(crate) next: u32,
    pub(crate) prev: u32,
}

/// A unit after the first of its run.
pub(crate) const REST: u8 = 0;
/// The first unit of a free run.
pub(crate) const FREE: u8 = 1;
/// The last unit of a free run of more than one.
pub(crate) const FREE_END: u8 = 2;
/// The first unit of a slab.
pub(crate) const SLAB: u8 = 3;
/// The first unit of a block of whole units.
pub(crate) const LARGE: u8 = 4;
/// The first unit of the table, or unit 0.
pub(crate) const OWN: u8 = 5;

/// The start of a slab; the words of its free blocks follow.
#[repr(C)]
pub(crate) struct Slab {
    /// Bit `k`: word `k` of the free bits is not zero.
    pub(crate) summary: u64,
    pub(crate) free: u32,
    pub(crate) blocks: u32,
    /// The next and the previous slab of the shard and class that have room.
    pub(crate) next: u32,
    pub(crate) prev: u32,
    pub(crate) magic: u32,
    pub(crate) class: u8,
    pub(crate) shard: u8,
    /// Whether it is in the list of those that have room.
    pub(crate) linked: u8,
    pub(crate) reserved: u8,
}

/// Bytes before the free bits.
pub(crate) const SLAB_HEADER: usize = size_of::<Slab>();

const _: () = {
    assert!(size_of::<Entry>() == 16);
    assert!(size_of::<Slab>() == 32);
    assert!(size_of::<Shard>() == 192);
    assert!(std::mem::offset_of!(Header, seed) == 40);
    assert!(std::mem::offset_of!(Header, roots) == 48);
    assert!(std::mem::offset_of!(Header, bins) == 64);
    assert!(std::mem::offset_of!(Header, shards) == 1024);
    assert!(size_of::<Header>() <= FIRST_TABLE);
};
