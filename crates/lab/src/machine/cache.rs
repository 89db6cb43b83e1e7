//! One cache: sets of ways, the least recently used of a set goes first.
//!
//! * It holds tags and states, no bytes: the newest bytes of a cached line are the space's.
//! * The ways of a set lie in order of use, the latest first; tags apart from states, so that a set's tags
//!   are looked at together.

use super::sharers::Sharers;

/// What is known of a line in a cache.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct State<S = u16> {
    /// Newer than what is below.
    pub dirty: bool,
    /// May be written without asking (private caches).
    pub writable: bool,
    /// Cores whose private caches may hold it (the shared cache).
    pub sharers: S,
}

/// A line in a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line<S = u16> {
    /// Which line of memory.
    pub number: u64,
    /// What is known of it.
    pub state: State<S>,
}

/// No line of memory has this tag.
const NO_TAG: u32 = u32::MAX;

/// A cache.
#[derive(Clone, Debug)]
pub struct Cache<S = u16> {
    /// Of each way, the line's number without the part that says the set.
    tags: Vec<u32>,
    states: Vec<State<S>>,
    ways: usize,
    set_bits: u32,
}

impl Cache {
    /// Of `bytes` bytes in all, of a machine of up to 16 cores. Sets are a power of two.
    #[must_use]
    pub fn new(bytes: u64, ways: usize) -> Cache {
        Cache::of(bytes, ways)
    }
}

impl<S: Sharers> Cache<S> {
    /// Of `bytes` bytes in all. Sets are a power of two.
    #[must_use]
    pub fn of(bytes: u64, ways: usize) -> Cache<S> {
        let sets = bytes / 64 / ways as u64;
        debug_assert!(sets.is_power_of_two());
        Cache {
            tags: vec![NO_TAG; sets as usize * ways],
            states: vec![State::default(); sets as usize * ways],
            ways,
            set_bits: sets.trailing_zeros(),
        }
    }

    /// The first way of the line's set, and the line's tag.
    #[inline]
    fn set(&self, number: u64) -> (usize, u32) {
        let set = number & ((1 << self.set_bits) - 1);
        debug_assert!(number >> self.set_bits < u64::from(NO_TAG));
        (set as usize * self.ways, (number >> self.set_bits) as u32)
    }

    /// The number of the line with this tag in the set of the line `like`.
    fn number(&self, like: u64, tag: u32) -> u64 {
        u64::from(tag) << self.set_bits | like & ((1 << self.set_bits) - 1)
    }

    /// Which way of the set has the tag.
    #[inline]
    fn way(&self, set: usize, tag: u32) -> Option<usize> {
        let tags = &self.tags[set..set + self.ways];
        let (eights, rest) = tags.as_chunks::<8>();
        for (number, eight) in eights.iter().enumerate() {
            // All eight are compared at once: mostly it is none of them.
            if eight.iter().fold(false, |found, &other| found | (other == tag)) {
                let place = eight.iter().position(|&other| other == tag)?;
                return Some(set + number * 8 + place);
            }
        }
        let place = rest.iter().position(|&other| other == tag)?;
        Some(set + eights.len() * 8 + place)
    }

    /// The line, which becomes the latest used.
    #[inline]
    pub fn find(&mut self, number: u64) -> Option<&mut State<S>> {
        let (set, tag) = self.set(number);
        if self.tags[set] != tag {
            let way = self.way(set, tag)?;
            let state = self.states[way];
            self.make_room(set, way);
            self.tags[set] = tag;
            self.states[set] = state;
        }
        Some(&mut self.states[set])
    }

    /// The line, if it is there. That is no use of it.
    #[inline]
    pub fn peek(&mut self, number: u64) -> Option<&mut State<S>> {
        let (set, tag) = self.set(number);
        let way = self.way(set, tag)?;
        Some(&mut self.states[way])
    }

    /// Puts in a line that is not there, and says which had to go.
    #[inline]
    pub fn insert(&mut self, number: u64, state: State<S>) -> Option<Line<S>> {
        let (set, tag) = self.set(number);
        let last = set + self.ways - 1;
        let (old, gone) = (self.tags[last], self.states[last]);
        self.make_room(set, last);
        self.tags[set] = tag;
        self.states[set] = state;
        (old != NO_TAG).then(|| Line {
            number: self.number(number, old),
            state: gone,
        })
    }

    /// Takes a line out.
    #[inline]
    pub fn remove(&mut self, number: u64) -> Option<State<S>> {
        let (set, tag) = self.set(number);
        let way = self.way(set, tag)?;
        let state = self.states[way];
        let last = set + self.ways - 1;
        self.tags.copy_within(way + 1..=last, way);
        self.states.copy_within(way + 1..=last, way);
        self.tags[last] = NO_TAG;
        self.states[last] = State::default();
        Some(state)
    }

    /// Cleans every dirty line, and tells its number.
    pub fn clean_all(&mut self, mut tell: impl FnMut(u64)) {
        for way in 0..self.tags.len() {
            if std::mem::take(&mut self.states[way].dirty) {
                tell(self.number((way / self.ways) as u64, self.tags[way]));
            }
        }
    }

    /// The ways of the set before `way` become one less recent each; the first is to be written.
    #[inline]
    fn make_room(&mut self, set: usize, way: usize) {
        self.tags.copy_within(set..way, set + 1);
        self.states.copy_within(set..way, set + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_of_the_set_goes() {
        let mut cache = Cache::new(2 * 2 * 64, 2);
        let state = State::default();
        assert_eq!(cache.insert(0, state), None);
        assert_eq!(cache.insert(2, state), None);
        assert_eq!(cache.insert(1, state), None, "the other set");
        assert!(cache.find(0).is_some());
        assert_eq!(cache.insert(4, state), Some(Line { number: 2, state }));
        assert!(cache.find(0).is_some() && cache.find(2).is_none() && cache.find(1).is_some());
        cache.find(4).unwrap().dirty = true;
        let mut dirty = Vec::new();
        cache.clean_all(|number| dirty.push(number));
        assert_eq!(dirty, [4]);
        cache.clean_all(|number| panic!("{number} was cleaned"));
        assert!(cache.remove(4).is_some() && cache.remove(4).is_none());
        assert_eq!(cache.insert(6, state), None, "into the freed way");
    }

    #[test]
    fn it_does_what_a_list_does() {
        for ways in [1, 2, 8, 12, 16] {
            let seed = fastrand::u64(..);
            let mut random = fastrand::Rng::with_seed(seed);
            let mut cache = Cache::new(4 * ways as u64 * 64, ways);
            let mut sets = vec![Vec::<(u64, u16)>::new(); 4];
            for sharers in 0..10_000 {
                let number = random.u64(..6 * ways as u64);
                let set = &mut sets[number as usize % 4];
                let place = set.iter().position(|line| line.0 == number);
                let expected = place.map(|place| set.remove(place));
                let state = match random.u8(..3) {
                    0 => cache.remove(number),
                    1 => {
                        let found = cache.find(number).copied();
                        set.splice(..0, expected);
                        found
                    }
                    _ => {
                        let found = cache.peek(number).copied();
                        if let (Some(place), Some(line)) = (place, expected) {
                            set.insert(place, line);
                        } else {
                            let state = State {
                                sharers,
                                ..State::default()
                            };
                            let gone = cache.insert(number, state).map(|line| line.number);
                            set.insert(0, (number, sharers));
                            let last = (set.len() > ways).then(|| set.pop()).flatten();
                            assert_eq!(gone, last.map(|line| line.0), "seed {seed}");
                        }
                        found
                    }
                };
                let found = state.map(|state| state.sharers);
                assert_eq!(found, expected.map(|line| line.1), "seed {seed}");
            }
        }
    }
}
