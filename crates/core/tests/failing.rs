//! A medium that fails once, at every operation of a run in turn: with no room, or for good.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use twinpage_core::crash::*;
use twinpage_core::dual_page::{DualPage, Options, PoolLimit};
use twinpage_core::packed::{self, Packed, Tuning};
use twinpage_core::*;

/// How the medium fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    /// A write or growth finds no room; later ones do.
    Full,
    /// A write, a discard or a fence fails.
    Io,
}

/// Fails at operation `left`, counted down.
#[derive(Debug)]
struct Failing {
    image: Image,
    how: How,
    left: Rc<Cell<i64>>,
    failed: Cell<bool>,
}

impl Failing {
    fn count(&self, can_be_full: bool) -> Result<()> {
        if self.failed.get() && self.how == How::Io {
            return Err(Error::Poisoned("fail on purpose".into()));
        }
        if self.how == How::Full && !can_be_full {
            return Ok(());
        }
        self.left.set(self.left.get() - 1);
        if self.left.get() != -1 {
            return Ok(());
        }
        self.failed.set(true);
        Err(match self.how {
            How::Full => Error::Full {
                what: "the test".into(),
                needed: 1,
            },
            How::Io => Error::Io {
                what: "fail on purpose".into(),
                at: 0,
                source: std::io::Error::other("test"),
            },
        })
    }
}

impl Medium for Failing {
    fn len(&self) -> u64 {
        self.image.len()
    }
    fn grow(&mut self, len: u64) -> Result<()> {
        self.count(true)?;
        self.image.grow(len)
    }
    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        self.image.read(at, into)
    }
    fn write(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        if let Err(error) = self.count(true) {
            // Half of it went through, in whole atoms.
            self.image.write(at, &bytes[..bytes.len() / 16 * 8])?;
            return Err(error);
        }
        self.image.write(at, bytes)
    }
    fn discard(&mut self, range: Range<Offset>) -> Result<()> {
        self.count(false)?;
        self.image.discard(range)
    }
    fn fence(&mut self) -> Result<()> {
        self.count(false)
    }
    fn atom(&self) -> usize {
        8
    }
}

/// A scheme to run on such a medium.
trait Store: Scheme<Medium = Failing> {
    fn make(medium: Failing, pool: PoolLimit) -> Self;
    fn give_back(self) -> Failing;
}

impl Store for DualPage<Failing> {
    fn make(medium: Failing, pool: PoolLimit) -> Self {
        let options = Options::new(Geometry::new(64, 4096).unwrap())
            .pool(pool)
            .journal_bytes(400)
            .id(1);
        DualPage::create(medium, &options).unwrap()
    }
    fn give_back(self) -> Failing {
        self.into_medium()
    }
}

impl Store for Packed<DualPage<Failing>> {
    fn make(medium: Failing, pool: PoolLimit) -> Self {
        let options = Options::new(Geometry::new(4096, 64 * 4096).unwrap())
            .pool(pool)
            .journal_bytes(400)
            .id(1);
        let below = DualPage::create(medium, &options).unwrap();
        let options = packed::Options::default().log_bytes(3 * 64 * 4096).id(2);
        let mut store = Packed::create(below, &options).unwrap();
        store.set_tuning(Tuning {
            pressure_percent: 20_000,
            ..Tuning::default()
        });
        store
    }
    fn give_back(self) -> Failing {
        self.into_medium()
    }
}

/// Runs `steps` on a medium that fails at operation `at`. False if the run ended before.
fn fails_at<S: Store>(pool: PoolLimit, steps: &[Step], how: How, at: i64) -> bool {
    let left = Rc::new(Cell::new(i64::MAX));
    let medium = Failing {
        image: Image::new(8),
        how,
        left: Rc::clone(&left),
        failed: Cell::new(false),
    };
    let store = S::make(medium, pool);
    left.set(at);
    let mut run = Run::new(store, Log::default(), State::default());
    let went = run.go(steps);
    let reached = left.get() < 0;
    left.set(i64::MAX);
    match how {
        How::Full => {
            assert!(went.is_ok(), "{went:?}");
            assert_eq!(run.differs().unwrap(), None);
        }
        How::Io if reached => {
            let written = run.scheme.write(line(), LineMask(1));
            let committed = run.scheme.commit(b"");
            assert!(
                written.is_err() || matches!(committed, Err(Error::Poisoned(_))),
                "the next to call is told: {written:?}, {committed:?}"
            );
        }
        How::Io => {}
    }
    if went.is_err() {
        assert!(
            matches!(run.scheme.commit(b""), Err(Error::Poisoned(_))),
            "poisoned for good"
        );
    }
    let epoch = run.scheme.epoch();
    let (store, found) = S::recover(again(run.scheme.give_back())).unwrap();
    assert!(
        found.epoch == epoch || found.epoch == epoch + 1,
        "{} of {epoch}",
        found.epoch
    );
    assert_eq!(
        differs_after_recovery(&store, &found, &run.states[&found.epoch]).unwrap(),
        None
    );
    assert_eq!(store.check().unwrap(), []);
    reached
}

/// The same bytes on a medium that fails no more.
fn again(medium: Failing) -> Failing {
    Failing {
        left: Rc::new(Cell::new(i64::MAX)),
        failed: Cell::new(false),
        ..medium
    }
}

fn line() -> Span<'static> {
    Span {
        page: PageId(0),
        first: 0,
        bytes: &[1; 64],
    }
}

fn whatever_fails<S: Store>(profile: &Profile, pools: &[(u64, PoolLimit)]) {
    for &(seed, pool) in pools {
        let mut steps = random_steps(profile, &mut Random::new(seed));
        steps.push(Step::Commit(5, 5));
        for how in [How::Full, How::Io] {
            let points = (0..)
                .take_while(|&at| fails_at::<S>(pool, &steps, how, at))
                .count();
            println!("seed {seed}, {pool:?}, {how:?}: {points} points");
            assert!(points > 50, "{points}");
        }
    }
}

#[test]
fn whatever_fails_the_checkpoint_is_whole() {
    let profile = Profile {
        epochs: 8,
        pages: 9,
        writes: 5,
        context: 200,
    };
    let pools = [
        (1, PoolLimit::Grow),
        (2, PoolLimit::Pages(2)),
        (3, PoolLimit::Pages(7)),
    ];
    whatever_fails::<DualPage<Failing>>(&profile, &pools);
}

#[test]
fn and_so_it_is_with_packed_lines() {
    let profile = Profile {
        epochs: 9,
        pages: 40,
        writes: 12,
        context: 200,
    };
    let pools = [(1, PoolLimit::Grow), (4, PoolLimit::Pages(2))];
    whatever_fails::<Packed<DualPage<Failing>>>(&profile, &pools);
}
