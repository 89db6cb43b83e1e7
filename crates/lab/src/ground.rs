//! Where a scheme is explored: random runs on media of several kinds, stopped at every write and fence; what a crash
//! there may leave is recovered and compared with what was promised ([`twinpage_core::crash`]).
//!
//! * A run follows from its seed and its medium alone.

use twinpage_baselines::Setup;
use twinpage_core::crash::{
    Counts, Effort, Explorer, Image, Profile, Random, Recorder, Seen, Subject, overlapped, random_steps,
};
use twinpage_core::dual_page::PoolLimit;
use twinpage_core::geometry::Geometry;
use twinpage_core::scheme::Simulated;

/// A kind of medium, and how much a run does on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// Bytes that are written whole or not at all.
    atom: usize,
    /// Pages the medium may grow by, once a store is made.
    room: u64,
    /// Derivative pages, for a scheme with a pool.
    pool: PoolLimit,
    /// Pages that the run writes.
    pages: u64,
}

/// The kinds there are.
pub(crate) const KINDS: [Kind; 4] = [
    Kind {
        name: "memory",
        atom: 8,
        room: u64::MAX,
        pool: PoolLimit::Grow,
        pages: 10,
    },
    Kind {
        name: "memory, small pool",
        atom: 8,
        room: u64::MAX,
        pool: PoolLimit::Pages(3),
        pages: 10,
    },
    Kind {
        name: "disk",
        atom: 512,
        room: u64::MAX,
        pool: PoolLimit::Grow,
        pages: 10,
    },
    Kind {
        name: "memory that fills up",
        atom: 8,
        room: 11,
        pool: PoolLimit::Grow,
        pages: 12,
    },
];

const EFFORT: Effort = Effort {
    samples: 6,
    lives: 40,
    deep: 40,
    short_recovery: 2,
    only_crashes: false,
};

/// Where one run is explored.
pub(crate) struct Exploration<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) seed: u64,
    /// Whether commits are begun and worked on behind what follows.
    pub(crate) overlaps: bool,
}

/// Lines as the lab has them; a medium grows by single pages, so that what a crash leaves is quickly copied.
fn geometry() -> Geometry {
    Geometry::new(64, 4096).expect("an extent is a page")
}

/// What came of one run.
pub(crate) type Explored = (Counts, Seen, Result<(), String>);

impl Exploration<'_> {
    pub(crate) fn setup(&self) -> Setup {
        Setup {
            pool: self.kind.pool,
            journal_bytes: 512,
            context_bytes: 4096,
            id: Some(1),
            ..Setup::new(geometry())
        }
    }

    pub(crate) fn explore<S: Simulated>(&mut self, subject: Subject<S>) -> Explored {
        let mut random = Random::new(self.seed);
        let profile = Profile {
            epochs: 10,
            pages: self.kind.pages,
            writes: 5,
            context: 300,
        };
        let mut steps = random_steps(&profile, &mut random);
        if self.overlaps {
            steps = overlapped(&steps, &mut random);
        }
        let page_bytes = geometry().page_bytes() as u64;
        let empty = Image::new(self.kind.atom);
        let made = match (subject.create)(Recorder::new(empty.clone())) {
            Ok(store) => store.info().medium_bytes,
            Err(why) => {
                return (
                    Counts::default(),
                    Seen::default(),
                    Err(format!("it cannot be made: {why}")),
                );
            }
        };
        let medium = empty.limited(made.saturating_add(self.kind.room.saturating_mul(page_bytes)));
        let mut explorer = Explorer::new(subject, EFFORT, self.seed);
        let explored = explorer.explore(medium, &steps);
        (
            explorer.counts,
            explorer.seen,
            explored.map_err(|broken| broken.to_string()),
        )
    }
}
