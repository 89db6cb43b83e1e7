//! PageRank: how important pages are, by who links to them.

use std::collections::BTreeMap;

/// Links, and ranks that are refined round by round.
#[derive(Default)]
pub struct PageRank {
    links: BTreeMap<u64, Vec<u64>>,
    ranks: BTreeMap<u64, f64>,
    joined: Vec<(Vec<u64>, f64)>,
    contributions: Vec<(u64, f64)>,
    sums: BTreeMap<u64, f64>,
}

impl PageRank {
    /// A page links to another.
    pub fn link(&mut self, from: u64, to: u64) {
        self.links.entry(from).or_default().push(to);
        self.ranks.insert(from, 1.0);
        self.ranks.insert(to, 1.0);
    }

    /// Each page's links, with its rank.
    pub fn join(&mut self) {
        for (page, links) in &self.links {
            self.joined.push((links.clone(), self.ranks[page]));
        }
    }

    /// A page's rank is shared out over its links.
    pub fn contribute(&mut self) {
        for (links, rank) in self.joined.drain(..) {
            let share = rank / links.len() as f64;
            self.contributions.extend(links.iter().map(|page| (*page, share)));
        }
    }

    /// What each page gets is added up.
    pub fn reduce(&mut self) {
        for (page, share) in self.contributions.drain(..) {
            *self.sums.entry(page).or_insert(0.0) += share;
        }
    }

    /// A part of every rank is everyone's.
    pub fn damp(&mut self) {
        for (page, rank) in &mut self.ranks {
            *rank = 0.15 + 0.85 * self.sums.get(page).copied().unwrap_or(0.0);
        }
        self.sums.clear();
    }

    /// Pages with their ranks.
    pub fn ranks(&self) -> Vec<(u64, f64)> {
        self.ranks.iter().map(|(page, rank)| (*page, *rank)).collect()
    }
}
