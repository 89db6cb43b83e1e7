//! Machines of several nodes, each with a last cache of its own: what a line costs that comes from another core.
//!
//! * The shared level of the hierarchy holds what the last caches of all nodes hold together. A line lies in the nodes
//!   of the cores that used it since it was last written.
//! * Nodes of one package are neighbours. Packages are fully connected between nodes of the same place in their
//!   package; other nodes of other packages are two hops apart.

use super::sharers::Sharers;

/// How far apart cores are, and what that costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Distances {
    /// Cores of a node.
    pub node: usize,
    /// Nodes of a package.
    pub package: usize,
    /// Cycles to get a line from a core of the same node, of the same package, one hop and two hops away.
    pub line: [u32; 4],
    /// Cycles to write a line that several cores share, the furthest of them so far away.
    pub shared: [u32; 4],
}

impl Distances {
    /// 0 in one node, 1 in one package, else the hops and 1.
    #[must_use]
    pub fn between(&self, one: usize, other: usize) -> usize {
        let [one, other] = [one, other].map(|core| core / self.node);
        let place = |node: usize| node % self.package;
        match () {
            () if one == other => 0,
            () if one / self.package == other / self.package => 1,
            () if place(one) == place(other) => 2,
            () => 3,
        }
    }

    /// Cycles until `core` has a line that other cores may hold, and whether the line comes from another node.
    /// `taken`: another core had to give it up, or its right to write it. `near`: cycles of the last cache.
    pub(super) fn cycles<S: Sharers>(
        &self,
        core: usize,
        sharers: S,
        write: bool,
        taken: bool,
        near: u32,
    ) -> (u32, bool) {
        let away = |other: usize| self.between(core, other);
        let others = || sharers.without(core).cores();
        let Some(nearest) = sharers.cores().map(away).min() else {
            return (near, false);
        };
        let is_remote = nearest > 0;
        let count = others().count();
        let cycles = match (write, taken) {
            (true, true) if count > 1 => self.shared[others().map(away).max().unwrap_or(0)],
            (_, true) => self.line[others().map(away).min().unwrap_or(0)],
            (_, false) if is_remote => self.line[nearest],
            (_, false) => near,
        };
        (cycles, is_remote)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISTANCES: Distances = Distances {
        node: 8,
        package: 2,
        line: [81, 161, 172, 252],
        shared: [246, 255, 286, 296],
    };

    #[test]
    fn nodes_and_packages() {
        let all = [(0, 7), (0, 8), (0, 16), (0, 24), (8, 24), (9, 16)];
        let found = all.map(|(one, other)| DISTANCES.between(one, other));
        assert_eq!(found, [0, 1, 2, 3, 2, 3]);
    }

    #[test]
    fn a_line_costs_what_its_way_costs() {
        let set = |cores: &[usize]| cores.iter().fold(0_u64, |set, &core| set.with(core));
        let cycles = |cores: &[usize], write, taken| DISTANCES.cycles(0, set(cores), write, taken, 40);
        assert_eq!(cycles(&[], true, false), (40, false));
        assert_eq!(cycles(&[0], false, false), (40, false));
        assert_eq!(cycles(&[24], true, true), (252, true));
        assert_eq!(cycles(&[8, 24], false, false), (161, true), "from the nearest");
        assert_eq!(cycles(&[1, 24], false, false), (40, false), "the own node has it");
        assert_eq!(
            cycles(&[0, 1, 24], true, true),
            (296, false),
            "the furthest must give it up"
        );
    }
}
