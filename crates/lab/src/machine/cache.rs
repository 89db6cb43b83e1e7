//! One cache: sets of ways, the least recently used of a set goes first.
//!
//! * It holds tags and states, no bytes: the newest bytes of a cached line are the space's.
//! * The ways of a set lie in order of use, the latest first.

/// A line in a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// Which line of memory.
    pub number: u64,
    /// Newer than what is below.
    pub dirty: bool,
    /// May be written without asking (private caches).
    pub writable: bool,
    /// Cores whose private caches may hold it (the shared cache).
    pub sharers: u16,
}

const NOBODY: u64 = u64::MAX;

const EMPTY: Line = Line {
    number: NOBODY,
    dirty: false,
    writable: false,
    sharers: 0,
};

/// A cache.
#[derive(Clone, Debug)]
pub struct Cache {
    lines: Vec<Line>,
    ways: usize,
    mask: u64,
}

impl Cache {
    /// Of `bytes` bytes in all. Sets are a power of two.
    #[must_use]
    pub fn new(bytes: u64, ways: usize) -> Cache {
        let sets = bytes / 64 / ways as u64;
        debug_assert!(sets.is_power_of_two());
        Cache {
            lines: vec![EMPTY; sets as usize * ways],
            ways,
            mask: sets - 1,
        }
    }

    #[inline]
    fn set(&self, number: u64) -> usize {
        (number & self.mask) as usize * self.ways
    }

    /// The line, which becomes the latest used.
    #[inline]
    pub fn find(&mut self, number: u64) -> Option<&mut Line> {
        let set = self.set(number);
        let ways = &mut self.lines[set..set + self.ways];
        if ways[0].number == number {
            return Some(&mut ways[0]);
        }
        let place = ways.iter().position(|line| line.number == number)?;
        ways[..=place].rotate_right(1);
        Some(&mut ways[0])
    }

    /// The line, if it is there. Nobody used it.
    #[inline]
    pub fn peek(&mut self, number: u64) -> Option<&mut Line> {
        let set = self.set(number);
        self.lines[set..set + self.ways]
            .iter_mut()
            .find(|line| line.number == number)
    }

    /// Puts in a line that is not there, and says which had to go.
    pub fn insert(&mut self, line: Line) -> Option<Line> {
        let set = self.set(line.number);
        let ways = &mut self.lines[set..set + self.ways];
        ways.rotate_right(1);
        let gone = std::mem::replace(&mut ways[0], line);
        (gone.number != NOBODY).then_some(gone)
    }

    /// Takes a line out.
    pub fn remove(&mut self, number: u64) -> Option<Line> {
        let set = self.set(number);
        let ways = &mut self.lines[set..set + self.ways];
        let place = ways.iter().position(|line| line.number == number)?;
        ways[place..].rotate_left(1);
        Some(std::mem::replace(&mut ways[self.ways - 1], EMPTY))
    }

    /// Every dirty line.
    pub fn dirty(&mut self) -> impl Iterator<Item = &mut Line> {
        self.lines.iter_mut().filter(|line| line.dirty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: u64) -> Line {
        Line { number, ..EMPTY }
    }

    #[test]
    fn the_least_recently_used_of_the_set_goes() {
        let mut cache = Cache::new(2 * 2 * 64, 2);
        assert_eq!(cache.insert(line(0)), None);
        assert_eq!(cache.insert(line(2)), None);
        assert_eq!(cache.insert(line(1)), None, "the other set");
        assert!(cache.find(0).is_some());
        assert_eq!(cache.insert(line(4)), Some(line(2)));
        assert!(cache.find(0).is_some() && cache.find(2).is_none() && cache.find(1).is_some());
        cache.find(4).unwrap().dirty = true;
        assert_eq!(cache.dirty().map(|line| line.number).collect::<Vec<_>>(), [4]);
        assert_eq!(cache.remove(4).map(|line| line.number), Some(4));
        assert_eq!(cache.insert(line(6)), None, "into the freed way");
    }
}
