//! A core's TLB: pages in sets of four, the latest used first in each.

/// Pages in a set.
const WAYS: usize = 4;

/// Its size, and what a miss costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct TlbShape {
    /// Pages: four times a power of two.
    pub entries: usize,
    /// A page walk, in femtoseconds.
    pub walk_fs: u64,
}

/// Which pages it has.
#[derive(Clone, Debug)]
pub struct Tlb {
    sets: Vec<[u64; WAYS]>,
    walk_fs: u64,
    latest: u64,
}

impl Tlb {
    /// An empty one.
    #[must_use]
    pub fn new(shape: &TlbShape) -> Tlb {
        Tlb {
            sets: vec![[u64::MAX; WAYS]; shape.entries / WAYS],
            walk_fs: shape.walk_fs,
            latest: u64::MAX,
        }
    }

    /// Uses a page. Says how long its walk takes: 0 if the page was there.
    #[inline]
    pub fn touch(&mut self, page: u64) -> u64 {
        if page == self.latest {
            return 0;
        }
        self.latest = page;
        let number = page as usize & (self.sets.len() - 1);
        let set = &mut self.sets[number];
        let place = set.iter().position(|&other| other == page);
        set.copy_within(..place.unwrap_or(WAYS - 1), 1);
        set[0] = page;
        if place.is_some() { 0 } else { self.walk_fs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_page_of_a_set_goes() {
        let mut tlb = Tlb::new(&TlbShape {
            entries: 8,
            walk_fs: 7,
        });
        // Pages 0, 2, 4 ... share a set.
        let walks = [0, 2, 4, 6, 0, 8, 2, 1, 0].map(|page| tlb.touch(page));
        assert_eq!(walks, [7, 7, 7, 7, 0, 7, 7, 7, 0]);
    }
}
