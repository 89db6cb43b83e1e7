//! Valid stores whose every commit is known.

use fastrand::Rng;
use std::collections::BTreeMap;
use twinpage_core::crash::Image;
use twinpage_core::dual_page::{DualPage, Options, PoolLimit};
use twinpage_core::{Geometry, Medium, PageId, PageLines, Result, Scheme};

/// Pages a store may have.
pub const PAGES: u64 = 16;

/// What a checkpoint holds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct State {
    /// The commit.
    pub epoch: u64,
    /// The pages that are there.
    pub pages: BTreeMap<u64, Vec<u8>>,
    /// What was committed with it.
    pub context: Vec<u8>,
}

impl State {
    /// The newest version of a store.
    ///
    /// # Errors
    /// As [`Scheme::read`].
    pub fn of<M: Medium>(store: &DualPage<M>, context: Vec<u8>) -> Result<State> {
        let mut pages = BTreeMap::new();
        for page in (0..PAGES).filter(|&page| store.is_present(PageId(page))) {
            let mut bytes = vec![0; store.geometry().page_bytes()];
            store.read(PageId(page), 0, &mut bytes)?;
            pages.insert(page, bytes);
        }
        Ok(State {
            epoch: store.epoch(),
            pages,
            context,
        })
    }

    /// Whether everything is equal but bytes of lines, and then how many bytes differ.
    #[must_use]
    pub fn differing_bytes(&self, other: &State) -> Option<usize> {
        let same = self.epoch == other.epoch
            && self.context == other.context
            && self.pages.keys().eq(other.pages.keys())
            && self
                .pages
                .values()
                .map(Vec::len)
                .eq(other.pages.values().map(Vec::len));
        let pairs = self.pages.values().flatten().zip(other.pages.values().flatten());
        same.then(|| pairs.filter(|(a, b)| a != b).count())
    }
}

/// One moment of a store, right after a commit.
#[derive(Clone, Debug)]
pub struct Moment {
    /// What was committed.
    pub state: State,
    /// The medium.
    pub image: Vec<u8>,
}

/// A store, and what it was.
#[derive(Debug)]
pub struct History {
    /// The first and the last moments, and some between.
    pub moments: Vec<Moment>,
    /// Every commit: its context, and which pages were there.
    pub commits: Vec<(Vec<u8>, Vec<u64>)>,
    /// Whether its lines have checksums.
    pub checksums: bool,
}

/// So many last moments are all kept.
const RECENT: usize = 5;

impl History {
    /// A store with some epochs, every choice made by `rng`. Some have so many that their journal is
    /// full now and then.
    ///
    /// # Panics
    /// When a store on a medium that works fails.
    #[must_use]
    pub fn new(rng: &mut Rng) -> History {
        let (line, extent) = [(64, 4096), (64, 16384), (128, 8192), (256, 16384)][rng.usize(..4)];
        let geometry = Geometry::new(line, extent).expect("a possible geometry");
        let pool = [PoolLimit::Grow, PoolLimit::Pages(1), PoolLimit::Pages(5)][rng.usize(..3)];
        let checksums = rng.bool();
        let options = Options::new(geometry)
            .checksums(checksums)
            .pool(pool)
            .journal_bytes(rng.u64(1..4096))
            .id(rng.u64(..));
        let mut store = DualPage::create(Image::new(8), &options).expect("a store");
        let mut state = State::default();
        let mut history = History {
            moments: Vec::new(),
            commits: Vec::new(),
            checksums,
        };
        // Some end when their journal has just been full: then a snapshot says it all.
        let (epochs, to_snapshot) = [(16, false), (150, false), (50, true)][rng.usize(..3)];
        let epochs = rng.u64(1..epochs);
        loop {
            let before = store.info().traffic.snapshot_bytes;
            history.keep(&store, &state, rng);
            run_epoch(&mut store, &mut state, rng).expect("an epoch");
            let snapshot = store.info().traffic.snapshot_bytes > before;
            if state.epoch >= epochs && (snapshot || !to_snapshot || state.epoch >= epochs + 200) {
                break;
            }
        }
        history.keep(&store, &state, rng);
        history
    }

    /// Keeps this moment, and lets go of most of those some time before.
    fn keep(&mut self, store: &DualPage<Image>, state: &State, rng: &mut Rng) {
        self.commits
            .push((state.context.clone(), state.pages.keys().copied().collect()));
        let image = store.medium().bytes().to_vec();
        self.moments.push(Moment {
            state: state.clone(),
            image,
        });
        if self.moments.len() > RECENT + 1 && rng.u8(..16) > 0 {
            self.moments.remove(self.moments.len() - 1 - RECENT);
        }
    }

    /// The last moment.
    ///
    /// # Panics
    /// Never: a history has at least the empty store.
    #[must_use]
    pub fn last(&self) -> &Moment {
        self.moments.last().expect("a moment")
    }

    /// Any moment.
    #[must_use]
    pub fn any(&self, rng: &mut Rng) -> &Moment {
        &self.moments[rng.usize(..self.moments.len())]
    }
}

/// One more epoch: some lines written, now and then a page discarded, and a commit.
///
/// # Errors
/// As [`Scheme::write`] and [`Scheme::commit`].
pub fn run_epoch<M: Medium>(store: &mut DualPage<M>, state: &mut State, rng: &mut Rng) -> Result<()> {
    let line = store.geometry().line_bytes();
    for _ in 0..rng.usize(0..6) {
        let (page, first) = (rng.u64(..PAGES), rng.usize(..64));
        let lines = if rng.bool() { 1 } else { rng.usize(1..=64 - first) };
        // Every line differs from every other, so that one taken for another is seen.
        let bytes = random(rng, lines * line);
        let _ = store.write(PageLines::from(PageId(page), first, &bytes, line))?;
        let whole = state.pages.entry(page).or_insert_with(|| vec![0; 64 * line]);
        whole[first * line..][..bytes.len()].copy_from_slice(&bytes);
    }
    if rng.u8(..4) == 0 {
        let page = rng.u64(..PAGES);
        store.discard(PageId(page)..PageId(page + 1))?;
        state.pages.remove(&page);
    }
    let len = rng.usize(..300);
    state.context = random(rng, len);
    state.epoch = store.commit(&state.context)?;
    Ok(())
}

/// So many bytes.
pub fn random(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}
