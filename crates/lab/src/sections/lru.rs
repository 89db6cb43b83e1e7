//! A set of pages of limited size; the least recently used goes first.

#[derive(Clone, Debug)]
pub(super) struct Lru {
    /// The latest used last.
    pages: Vec<u64>,
    room: usize,
}

impl Lru {
    pub(super) fn new(room: usize) -> Lru {
        Lru {
            pages: Vec::with_capacity(room + 1),
            room,
        }
    }

    /// Uses a page. Says whether it was there, and which page had to go.
    pub(super) fn touch(&mut self, page: u64) -> (bool, Option<u64>) {
        if self.pages.last() == Some(&page) {
            return (true, None);
        }
        let place = self.pages.iter().rposition(|&other| other == page);
        if let Some(place) = place {
            self.pages.remove(place);
        }
        self.pages.push(page);
        let gone = (self.pages.len() > self.room).then(|| self.pages.remove(0));
        (place.is_some(), gone)
    }

    /// Drops a page. Says whether it was there.
    pub(super) fn remove(&mut self, page: u64) -> bool {
        let place = self.pages.iter().position(|&other| other == page);
        place.is_some_and(|place| self.pages.remove(place) == page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes() {
        let mut lru = Lru::new(2);
        assert_eq!(lru.touch(1), (false, None));
        assert_eq!(lru.touch(2), (false, None));
        assert_eq!(lru.touch(1), (true, None));
        assert_eq!(lru.touch(3), (false, Some(2)));
        assert_eq!(lru.touch(1), (true, None));
    }
}
