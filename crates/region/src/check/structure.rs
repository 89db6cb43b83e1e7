//! The heap itself: runs, slabs and lists. Gives the blocks in use.

use super::{Image, Report};
use crate::heap::classes::{self, BLOCKS, BYTES};
use crate::heap::format::{
    BINS, FIRST_ENTRIES, FIRST_TABLE, FREE, FREE_END, Header, LARGE, MAGIC, OWN, REST, SHARDS, SLAB,
    SLAB_HEADER, SLAB_MAGIC, Slab, UNIT, VERSION,
};
use crate::heap::stats::ClassStats;
use crate::heap::units;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;

/// A block in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) at: u64,
    pub(super) bytes: u64,
    pub(super) reached: bool,
}

/// The blocks in use, by address.
pub(super) type Blocks = Vec<Block>;

struct Walk<'a> {
    image: Image<'a>,
    top: u64,
    table: u64,
    blocks: Blocks,
    free_runs: BTreeMap<u32, u64>,
    /// Slabs by number: shard and class, and whether they say they are in a list.
    slabs: BTreeMap<u32, (usize, usize, bool)>,
    classes: Vec<ClassStats>,
}

/// Looks at all of the heap, and returns the blocks in use.
pub(super) fn blocks(image: Image<'_>, report: &mut Report) -> Blocks {
    if image.bytes.is_empty() {
        return Vec::new(); // no heap was made yet
    }
    let Some((top, table)) = header(image, report) else {
        return Vec::new();
    };
    let mut walk = Walk {
        image,
        top,
        table,
        blocks: Vec::new(),
        free_runs: BTreeMap::new(),
        slabs: BTreeMap::new(),
        classes: vec![ClassStats::default(); classes::COUNT + 1],
    };
    walk.runs(report);
    walk.bins(report);
    walk.lists(report);
    report.stats.span_bytes = top * UNIT as u64;
    for (class, bytes) in walk.classes.iter_mut().zip(BYTES) {
        class.block_bytes = bytes.into();
    }
    walk.classes.retain(|class| class.slabs + class.used > 0);
    report.stats.classes = walk.classes;
    walk.blocks
}

/// The top, and the address of the table, if the heap has a header that can be.
fn header(image: Image<'_>, report: &mut Report) -> Option<(u64, u64)> {
    let field = |offset: usize| image.base + offset as u64;
    let (magic, version) = (image.u64(field(0)), image.u32(field(8)));
    if magic != MAGIC || version != VERSION || image.u32(field(12)) as usize != UNIT {
        report.damaged(
            0,
            format!("no heap of version {VERSION}: it begins with {magic:#x}, version {version}"),
        );
        return None;
    }
    let (top, table, entries) = (image.u32(field(16)), image.u32(field(20)), image.u32(field(24)));
    let start = if table == 0 {
        FIRST_TABLE as u64
    } else {
        u64::from(table) * UNIT as u64
    };
    let room = if table == 0 {
        u64::from(FIRST_ENTRIES)
    } else {
        u64::from(entries)
    };
    let fits = |end: u64| end <= image.bytes.len() as u64;
    if top == 0
        || u64::from(top) > room
        || !fits(u64::from(top) * UNIT as u64)
        || !fits(start + u64::from(top) * 16)
    {
        report.damaged(
            16,
            format!("{top} units, a table of {entries} entries at byte {start:#x}"),
        );
        return None;
    }
    Some((top.into(), image.base + start))
}

/// The block in use that begins at an address, looked up where the heap says it is.
pub(super) fn block_at(image: Image<'_>, at: u64) -> Option<Block> {
    let (top, table) = header(image, &mut Report::default())?;
    let mut unit = at.checked_sub(image.base)? / UNIT as u64;
    let entry = |unit: u64| table + unit * 16;
    if unit < top && image.u8(entry(unit)) == REST {
        unit = unit.checked_sub(image.number(entry(unit) + 2, 2))?;
    }
    let start = image.base + unit * UNIT as u64;
    let (kind, length) = (image.u8(entry(unit)), u64::from(image.u32(entry(unit) + 4)));
    let bytes = match kind {
        _ if unit >= top || length > top - unit => return None,
        LARGE if at == start => length * UNIT as u64,
        SLAB => {
            let class = usize::from(image.u8(start + offset_of!(Slab, class) as u64));
            let magic = image.u32(start + offset_of!(Slab, magic) as u64);
            if magic != SLAB_MAGIC || class >= classes::COUNT || classes::units(class) as u64 != length {
                return None;
            }
            let bytes = u64::from(BYTES[class]);
            let behind = (start + length * UNIT as u64).checked_sub(at)?;
            let index = (behind / bytes).checked_sub(1)?;
            let free = image.u64(start + SLAB_HEADER as u64 + index / 64 * 8) >> (index % 64) & 1;
            if !behind.is_multiple_of(bytes) || index >= u64::from(BLOCKS[class]) || free == 1 {
                return None;
            }
            bytes
        }
        _ => return None,
    };
    Some(Block {
        at,
        bytes,
        reached: false,
    })
}

impl Walk<'_> {
    fn entry(&self, unit: u64) -> u64 {
        self.table + unit * 16
    }

    fn offset(&self, at: u64) -> u64 {
        at - self.image.base
    }

    /// Every run below the top.
    fn runs(&mut self, report: &mut Report) {
        let (mut unit, mut free_before) = (0, false);
        let (mut free, mut held) = (0, 0);
        while unit < self.top {
            let at = self.entry(unit);
            let (kind, length) = (self.image.u8(at), u64::from(self.image.u32(at + 4)));
            if length == 0 || length > self.top - unit {
                report.damaged(
                    self.offset(at),
                    format!("a run of {length} units at unit {unit} of {}", self.top),
                );
                return;
            }
            let last = self.image.u8(self.entry(unit + length - 1));
            let bytes = length * UNIT as u64;
            if length > 1 && last != if kind == FREE { FREE_END } else { REST } {
                report.damaged(
                    self.offset(at),
                    format!("the run at unit {unit} ends in an entry of kind {last}"),
                );
            }
            match kind {
                FREE => {
                    if free_before {
                        report.damaged(
                            self.offset(at),
                            format!("unit {unit} begins a free run after another"),
                        );
                    }
                    self.free_runs.insert(unit as u32, length);
                    free += length;
                    held += if self.image.u8(at + 1) != 0 { length } else { 0 };
                    report.stats.largest_free_bytes = report.stats.largest_free_bytes.max(bytes);
                }
                OWN => report.stats.own_bytes += bytes,
                LARGE => {
                    let block = self.image.base + unit * UNIT as u64;
                    self.blocks.push(Block {
                        at: block,
                        bytes,
                        reached: false,
                    });
                    self.classes[classes::COUNT].used += 1;
                    report.stats.used_blocks += 1;
                    report.stats.used_bytes += bytes;
                }
                SLAB => self.slab(unit, length, report),
                _ => report.damaged(self.offset(at), format!("unit {unit} is of kind {kind}")),
            }
            free_before = kind == FREE;
            unit += length;
        }
        (report.stats.free_bytes, report.stats.held_bytes) = (free * UNIT as u64, held * UNIT as u64);
        let (said_free, said_held) = (
            self.image.u32(self.image.base + 28),
            self.image.u32(self.image.base + 32),
        );
        if (u64::from(said_free), u64::from(said_held)) != (free, held) {
            report.damaged(
                28,
                format!("{said_free} units are said to be free, {said_held} held; {free} and {held} are"),
            );
        }
    }

    fn slab(&mut self, unit: u64, length: u64, report: &mut Report) {
        let at = self.image.base + unit * UNIT as u64;
        let field = |offset: usize| at + offset as u64;
        let (magic, class) = (
            self.image.u32(field(offset_of!(Slab, magic))),
            self.image.u8(field(offset_of!(Slab, class))),
        );
        let (class, shard) = (
            usize::from(class),
            usize::from(self.image.u8(field(offset_of!(Slab, shard)))),
        );
        if magic != SLAB_MAGIC
            || class >= classes::COUNT
            || shard >= SHARDS
            || classes::units(class) as u64 != length
        {
            report.damaged(
                self.offset(at),
                format!("no slab: magic {magic:#x}, class {class}, shard {shard}, {length} units"),
            );
            return;
        }
        let (count, bytes) = (u64::from(BLOCKS[class]), u64::from(BYTES[class]));
        let (mut free, mut summary) = (0, 0);
        let words = count.div_ceil(64);
        for word in (0..words).rev() {
            let mut bits = self.image.u64(field(SLAB_HEADER) + word * 8);
            let own = (count - word * 64).min(64);
            if own < 64 && bits >> own != 0 {
                report.damaged(self.offset(at), "free bits of blocks that are not there");
                bits &= (1 << own) - 1;
            }
            free += u64::from(bits.count_ones());
            summary |= u64::from(bits != 0) << word;
            let end = at + length * UNIT as u64;
            for bit in (0..own).rev().filter(|bit| bits >> bit & 1 == 0) {
                let block = end - (word * 64 + bit + 1) * bytes;
                self.blocks.push(Block {
                    at: block,
                    bytes,
                    reached: false,
                });
            }
        }
        let said = u64::from(self.image.u32(field(offset_of!(Slab, free))));
        if said != free
            || self.image.u64(at) != summary
            || u64::from(self.image.u32(field(offset_of!(Slab, blocks)))) != count
        {
            report.damaged(
                self.offset(at),
                format!("{free} of {count} blocks are free; {said} are said to be, or the summary is wrong"),
            );
        }
        let linked = self.image.u8(field(offset_of!(Slab, linked))) != 0;
        if linked != (free > 0) {
            report.damaged(
                self.offset(at),
                format!(
                    "{free} blocks are free, and it is{} in a list",
                    if linked { "" } else { " not" }
                ),
            );
        }
        self.slabs.insert(unit as u32, (shard, class, linked));
        self.classes[class].slabs += 1;
        self.classes[class].used += count - free;
        self.classes[class].free += free;
        report.stats.used_blocks += count - free;
        report.stats.used_bytes += (count - free) * bytes;
        report.stats.scattered_bytes += free * bytes;
        report.stats.own_bytes += length * UNIT as u64 - count * bytes;
    }

    /// Every free run is in the list of its length, and nothing else is.
    fn bins(&self, report: &mut Report) {
        let start = self.image.base + offset_of!(Header, bins) as u64;
        let mut seen = BTreeSet::new();
        for bin in 0..BINS {
            let (first, at) = (
                self.image.u32(start + 16 + bin as u64 * 4),
                start + 16 + bin as u64 * 4,
            );
            let used = self.image.u64(start + bin as u64 / 64 * 8) >> (bin % 64) & 1 == 1;
            if used != (first != 0) {
                report.damaged(
                    self.offset(at),
                    format!("bin {bin} is said to be {}", if used { "used" } else { "empty" }),
                );
            }
            let (mut run, mut before) = (first, 0);
            while run != 0 {
                let good = self
                    .free_runs
                    .get(&run)
                    .is_some_and(|&length| units::bin(length as u32) == bin);
                let entry = self.entry(run.into());
                if !good || !seen.insert(run) || self.image.u32(entry + 12) != before {
                    report.damaged(
                        self.offset(at),
                        format!("the list of bin {bin} leads to unit {run}, which does not belong there"),
                    );
                    break;
                }
                (before, run) = (run, self.image.u32(entry + 8));
            }
        }
        for run in self.free_runs.keys().filter(|run| !seen.contains(run)) {
            report.damaged(
                self.offset(self.entry((*run).into())),
                format!("the free run at unit {run} is in no list"),
            );
        }
    }

    /// Every slab with room is in the list of its shard and class, and nothing else is.
    fn lists(&self, report: &mut Report) {
        let start = self.image.base + offset_of!(Header, shards) as u64;
        let mut seen = BTreeSet::new();
        for shard in 0..SHARDS {
            for class in 0..classes::COUNT {
                let at = start + (shard * 192 + class * 4) as u64;
                let (mut slab, mut before) = (self.image.u32(at), 0);
                while slab != 0 {
                    let good = self.slabs.get(&slab) == Some(&(shard, class, true));
                    let header = self.image.base + u64::from(slab) * UNIT as u64;
                    if !good
                        || !seen.insert(slab)
                        || self.image.u32(header + offset_of!(Slab, prev) as u64) != before
                    {
                        report.damaged(
                            self.offset(at),
                            format!("the slabs of shard {shard}, class {class} lead to unit {slab}, which does not belong there"),
                        );
                        break;
                    }
                    (before, slab) = (slab, self.image.u32(header + offset_of!(Slab, next) as u64));
                }
            }
        }
        for (slab, _) in self
            .slabs
            .iter()
            .filter(|(slab, (_, _, linked))| *linked && !seen.contains(slab))
        {
            report.damaged(u64::from(*slab) * UNIT as u64, "a slab with room is in no list");
        }
    }
}
