//! The persistent object table with the swap of its manager (3.4): which objects lie in NVM, and which in files.
//!
//! * What lies in NVM is never more than there is room for; every object lies in NVM or in a file, and never in both.
//! * An object that is used comes to NVM. Where there is no room, those used least recently leave it first, each as a file.
//! * An object in use never leaves.

use std::collections::BTreeMap;

/// What a use moved.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Swap {
    /// Objects that went out to files, in this order.
    pub out: Vec<usize>,
    /// Whether the object itself came in.
    pub is_in: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// When it was used last; none while it lies in a file.
    used: Option<u64>,
    users: u32,
}

/// The table. Objects are of one size.
#[derive(Clone, Debug)]
pub struct ObjectTable {
    entries: Vec<Entry>,
    /// Objects in NVM by when they were used.
    recent: BTreeMap<u64, usize>,
    /// Objects that NVM has room for.
    room: usize,
    clock: u64,
}

impl ObjectTable {
    /// That many objects, with room in NVM for some of them; the first ones lie there.
    ///
    /// # Panics
    /// Without room for one.
    #[must_use]
    pub fn new(objects: usize, room: usize) -> ObjectTable {
        assert!(room > 0, "NVM has room for an object");
        let mut table = ObjectTable {
            entries: vec![Entry { used: None, users: 0 }; objects],
            recent: BTreeMap::new(),
            room,
            clock: 0,
        };
        for poid in 0..objects.min(room) {
            table.touch(poid);
        }
        table
    }

    fn touch(&mut self, poid: usize) {
        self.clock += 1;
        let entry = &mut self.entries[poid];
        if let Some(before) = entry.used.replace(self.clock) {
            self.recent.remove(&before);
        }
        self.recent.insert(self.clock, poid);
    }

    /// Whether the object lies in NVM.
    #[must_use]
    pub fn is_in_nvm(&self, poid: usize) -> bool {
        self.entries[poid].used.is_some()
    }

    /// Objects in NVM.
    #[must_use]
    pub fn in_nvm(&self) -> usize {
        self.recent.len()
    }

    /// The object is used from here on, and in NVM. None if all that is there is in use.
    #[must_use]
    pub fn begin(&mut self, poid: usize) -> Option<Swap> {
        let mut swap = Swap::default();
        if !self.is_in_nvm(poid) {
            while self.in_nvm() >= self.room {
                swap.out.push(self.leave()?);
            }
            swap.is_in = true;
        }
        self.touch(poid);
        self.entries[poid].users += 1;
        Some(swap)
    }

    /// The object is not used any more by one of its users.
    pub fn end(&mut self, poid: usize) {
        self.entries[poid].users -= 1;
    }

    /// The object that was used least recently, of those not in use, leaves NVM.
    fn leave(&mut self) -> Option<usize> {
        let mut oldest = self.recent.iter();
        let (&used, &poid) = oldest.find(|(_, poid)| self.entries[**poid].users == 0)?;
        self.recent.remove(&used);
        self.entries[poid].used = None;
        Some(poid)
    }
}
