//! Connected Components: which vertices of a graph hang together.

use std::collections::BTreeMap;

/// Edges, and of each vertex the least one that it is known to reach.
#[derive(Default)]
pub struct Components {
    edges: Vec<(u64, u64)>,
    least: BTreeMap<u64, u64>,
    messages: Vec<(u64, u64)>,
}

impl Components {
    /// Two vertices are joined.
    pub fn edge(&mut self, one: u64, other: u64) {
        self.edges.push((one, other));
        self.least.insert(one, one);
        self.least.insert(other, other);
    }

    /// Each vertex tells its neighbours the least one that it reaches.
    pub fn send(&mut self) {
        for (one, other) in &self.edges {
            self.messages.push((*other, self.least[one]));
            self.messages.push((*one, self.least[other]));
        }
    }

    /// Vertices learn. Says whether any did.
    pub fn receive(&mut self) -> bool {
        let mut is_new = false;
        for (vertex, least) in self.messages.drain(..) {
            if let Some(known) = self.least.get_mut(&vertex)
                && least < *known
            {
                *known = least;
                is_new = true;
            }
        }
        is_new
    }

    /// Vertices, each with the least of its component.
    pub fn components(&self) -> Vec<(u64, u64)> {
        self.least
            .iter()
            .map(|(vertex, least)| (*vertex, *least))
            .collect()
    }
}
