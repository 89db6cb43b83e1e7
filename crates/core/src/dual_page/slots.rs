//! Two slots, each a snapshot of the mapping and the journal since; one is valid (DPC 3.4).
//!
//! ```text
//! slot   | snapshot | record | record | record | (torn, or of an earlier use) ...        end |
//!                                              ^ tail
//! ```
//!
//! * A record is durable when the fence after it returns, and the next one is written after that. So of all records
//!   only the last can be torn by a crash.
//! * A record is written after a fence that covers the lines it speaks of. One that says it is *unfenced* is posted
//!   with its lines, and one fence makes all of it durable: the last record, if it is unfenced and the mark does not
//!   say that it is durable, is torn unless its lines have the checksums in it (`recover.rs`).
//! * The mark is at most one record behind the one that was durable last, of those without a payload.
//! * A record with a *payload* is valid by itself: nothing else is written for its commit. The mark follows with the
//!   next other work: a larger commit, or the giving back of space at the end. Its payload is a part of the checkpoint until the next commit without one; a snapshot is followed by those that still are.
//! * A full journal is answered by a snapshot in the other slot and a write of the switch record
//!   that has the lower generation. The valid slot is not touched meanwhile.
//! * Such a record that misses lines is durably erased before the next line is written: it could be made valid by lines
//!   of an epoch that is itself torn.
//! * A torn record or switch record left by a crash is erased before anything that could complete
//!   it by chance is written: the next one at the same place may share most of its bytes.
//! * No generation is used twice, so that no record left in a slot can pass for one of its journal. Where
//!   the other switch record is not that of the generation before, a later one may have been lost with it.

use super::superblock::{Slot, Superblock, Switch, mark};
use crate::geometry::Geometry;
use crate::medium::Offset;
use std::ops::Range;

/// A journal is as long as the store's options say, or a multiple of its snapshot if that is more. A
/// slot that is used again for a larger snapshot may have half of it.
const JOURNAL_SHARE: u64 = 4;

/// Where the mapping is kept, and how far its journal goes.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) superblock: Superblock,
    /// What every checksum begins with.
    pub(super) seed: u32,
    /// The valid slot.
    pub(super) switch: Switch,
    /// The generation of the next.
    pub(super) next: u32,
    /// The other one, if it is laid out.
    pub(super) spare: Option<Slot>,
    /// Where the next record goes.
    pub(super) tail: Offset,
    /// The last durable record.
    pub(super) sequence: u64,
    /// A crash, or a write that found no room, may have left part of a record at the tail.
    pub(super) torn: bool,
    /// A whole unfenced record at the tail misses some of its lines, which later lines could be: it is erased, and the
    /// erasing fenced, before any of them.
    pub(super) incomplete: bool,
    /// The mark is behind.
    pub(super) unmarked: bool,
    /// It is behind by records with a payload, which is made up for when there is other work.
    pub(super) lags: bool,
    /// The first record whose payload is a part of the checkpoint.
    pub(super) payload_at: Option<Offset>,
    /// Bytes the medium had at the last fence: what lies behind them may not be there after a crash. 0 where something
    /// that the next record must come after was posted before any fence.
    pub(super) fenced: u64,
}

/// Bytes to take from the start of something to make it invalid: a magic and a checksum.
pub(super) const ERASED: [u8; 8] = [0; 8];

impl Slots {
    fn geometry(&self) -> Geometry {
        self.superblock.geometry
    }

    /// The bytes of a slot.
    pub(super) fn slot_bytes(superblock: &Superblock, slot: Slot) -> Range<Offset> {
        let extent = superblock.geometry.extent_bytes() as u64;
        u64::from(slot.first) * extent..u64::from(slot.extents().end) * extent
    }

    /// The bytes of a slot.
    pub(super) fn bytes(&self, slot: Slot) -> Range<Offset> {
        Slots::slot_bytes(&self.superblock, slot)
    }

    /// Whether a record of `len` bytes fits the journal.
    pub(super) fn fits(&self, len: usize) -> bool {
        len as u64 <= self.room()
    }

    /// Bytes left of the journal: of the slot, and of the length that was chosen.
    pub(super) fn room(&self) -> u64 {
        let Range { start, end } = self.bytes(self.switch.slot);
        let journal = self
            .superblock
            .journal_bytes
            .max(JOURNAL_SHARE * self.switch.snapshot_len);
        end.min(start + self.switch.snapshot_len + journal)
            .saturating_sub(self.tail)
    }

    /// Extents for a slot with a snapshot of `len` bytes.
    pub(super) fn extents_for(superblock: &Superblock, len: u64) -> u32 {
        let journal = superblock.journal_bytes.max(JOURNAL_SHARE * len);
        (len + journal).div_ceil(superblock.geometry.extent_bytes() as u64) as u32
    }

    /// Whether the spare slot is right for a snapshot of `len` bytes: neither too small nor so large
    /// that space is wasted.
    pub(super) fn spare_suits(&self, len: u64) -> Option<Slot> {
        let least = len + self.superblock.journal_bytes.max(JOURNAL_SHARE / 2 * len);
        let most = 4 * u64::from(Slots::extents_for(&self.superblock, len));
        self.spare_holds(least)
            .filter(|slot| u64::from(slot.count) <= most)
    }

    /// The spare slot, if it has room for `len` bytes.
    pub(super) fn spare_holds(&self, len: u64) -> Option<Slot> {
        let holds = |slot: &Slot| u64::from(slot.count) * self.geometry().extent_bytes() as u64 >= len;
        self.spare.filter(holds)
    }

    /// The mark of the last durable record, and where it goes.
    pub(super) fn mark(&self) -> (Offset, [u8; 8]) {
        (self.superblock.mark_at(), mark(self.sequence, self.seed))
    }

    /// The generation after that of `switch`, and of record `sequence`, of which the other switch record says
    /// that it is `other`. One that may have been lost is left out, if a store can come to the number so soon
    /// ([`Switch::is_possible`]).
    pub(super) fn generation_after(switch: &Switch, other: Option<u32>, sequence: u64) -> u32 {
        let next = switch.generation + 1;
        let may_be_lost = other.is_none_or(|other| other + 1 != switch.generation);
        match may_be_lost && u64::from(next) + 2 <= sequence.saturating_add(1) {
            true => next + 2,
            false => next,
        }
    }

    /// Where the next switch record goes.
    pub(super) fn next_switch_at(&self) -> Offset {
        self.superblock.switch_at(self.next)
    }

    /// The snapshot of `switch` is durable, and so is `switch`.
    pub(super) fn switched(&mut self, switch: Switch) {
        let first = self.bytes(switch.slot).start;
        self.spare = Some(self.switch.slot);
        self.switch = switch;
        self.next = switch.generation + 1;
        self.tail = (first + switch.snapshot_len).next_multiple_of(super::journal::ALIGN as u64);
        self.torn = false;
    }
}
