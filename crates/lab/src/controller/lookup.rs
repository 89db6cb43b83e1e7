//! Where the scheme's table lies, and what finding a page's entry costs (DPC 4.3, Table 2 and 5.5.2).
//!
//! * The index of base pages and the valid flag are needed by every access to NVM; bit vectors only
//!   by those that match.
//! * What is not in the controller is in DRAM: reading it is a DRAM access before the NVM's.
//! * Pages move whole, so one cached entry serves all lines of a page.

use std::collections::VecDeque;

/// Where entries are (the variants of DPC 5.5.2, and Twins' III-C2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// All of every entry in the controller.
    Controller,
    /// Index and flag in the controller, vectors in DRAM with some cached (DPC's default).
    Split,
    /// Index, flag and the first lines' positions in the controller: reading a page begins without
    /// its vectors (Twins).
    Partial,
    /// All in DRAM, with some whole entries cached.
    Dram,
}

/// How a commit makes the table durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backup {
    /// All of it is written beside its last version, the change to it in a journal as well, which recovery
    /// reads here (DPC 4.3, 4.5.2).
    Whole,
    /// Only the journal of what changed.
    Journal,
}

/// Bits an entry takes in NVM: index of the base page, valid flag, checkpoint positions (DPC Table 2).
pub const BACKUP_BITS: u64 = 36 + 1 + 64;
/// Bits of an entry that lie in DRAM: checkpoint positions and dirty bits.
pub const VECTOR_BITS: u64 = 64 + 64;

/// What an access must do before NVM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Read DRAM for the entry.
    pub dram_read: bool,
    /// Wait for that before the first line.
    pub wait: bool,
}

/// The table's place, and the entries cached in the controller.
#[derive(Clone, Debug)]
pub struct Lookup {
    placement: Placement,
    room: usize,
    /// For each page the last turn it was used in, 0 if it is not cached.
    turns: Vec<u64>,
    cached: usize,
    order: VecDeque<(u64, u64)>,
    turn: u64,
    /// DRAM reads for entries.
    pub dram_reads: u64,
    /// DRAM writes of entries.
    pub dram_writes: u64,
}

impl Lookup {
    /// With so many entries cached.
    #[must_use]
    pub fn new(placement: Placement, cached: usize) -> Lookup {
        Lookup {
            placement,
            room: cached,
            turns: Vec::new(),
            cached: 0,
            order: VecDeque::new(),
            turn: 0,
            dram_reads: 0,
            dram_writes: 0,
        }
    }

    /// An access to NVM for a page that has an entry (`mapped`), or has none.
    pub fn access(&mut self, page: u64, mapped: bool, reading: bool) -> Cost {
        let needed = match self.placement {
            Placement::Controller => false,
            Placement::Split | Placement::Partial => mapped,
            Placement::Dram => true,
        };
        let dram_read = needed && !self.hit(page);
        self.dram_reads += u64::from(dram_read);
        Cost {
            dram_read,
            wait: dram_read && !(reading && self.placement == Placement::Partial),
        }
    }

    /// The entry's dirty bits or positions change: whether that is a DRAM write. Cached entries are written
    /// through.
    pub fn update(&mut self) -> bool {
        let in_dram = self.placement != Placement::Controller;
        self.dram_writes += u64::from(in_dram);
        in_dram
    }

    /// Whether the entry is cached; it is from now on.
    fn hit(&mut self, page: u64) -> bool {
        if self.room == 0 {
            return false;
        }
        self.turn += 1;
        if self.turns.len() <= page as usize {
            self.turns.resize(page as usize + 1, 0);
        }
        let known = std::mem::replace(&mut self.turns[page as usize], self.turn) != 0;
        self.cached += usize::from(!known);
        self.order.push_back((page, self.turn));
        while self.cached > self.room || self.order.len() > 4 * self.room + 16 {
            let Some((old, turn)) = self.order.pop_front() else {
                break;
            };
            if self.turns[old as usize] == turn {
                match self.cached > self.room {
                    true => {
                        self.turns[old as usize] = 0;
                        self.cached -= 1;
                    }
                    false => self.order.push_back((old, turn)),
                }
            }
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variants_differ_in_what_waits() {
        let cost = |placement, mapped, reading| Lookup::new(placement, 1).access(1, mapped, reading);
        let none = Cost {
            dram_read: false,
            wait: false,
        };
        let waits = Cost {
            dram_read: true,
            wait: true,
        };
        assert_eq!(cost(Placement::Controller, true, true), none);
        assert_eq!(cost(Placement::Split, false, true), none);
        assert_eq!(cost(Placement::Split, true, true), waits);
        assert_eq!(
            cost(Placement::Partial, true, true),
            Cost {
                dram_read: true,
                wait: false
            }
        );
        assert_eq!(cost(Placement::Partial, true, false), waits);
        assert_eq!(cost(Placement::Dram, false, true), waits);
    }

    #[test]
    fn the_least_recently_used_entry_goes() {
        let mut lookup = Lookup::new(Placement::Split, 2);
        let mut miss = |page| lookup.access(page, true, true).dram_read;
        let found: Vec<bool> = [1, 2, 1, 3, 1, 2, 1, 1].map(&mut miss).into();
        assert_eq!(found, [true, true, false, true, false, true, false, false]);
        for page in 0..1000 {
            miss(page % 2);
        }
        assert!(lookup.order.len() <= 32, "{}", lookup.order.len());
    }
}
