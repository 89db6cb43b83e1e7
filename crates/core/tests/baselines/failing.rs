//! A medium that fails once, at every operation of a run in turn: with no room, or for good.

use crate::{KINDS, setup};
use std::cell::Cell;
use std::rc::Rc;
use twinpage_core::crash::*;
use twinpage_core::*;

/// How the medium fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    /// A write or growth finds no room; later ones do.
    Full,
    /// A write or a fence fails.
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
    fn fence(&mut self) -> Result<()> {
        self.count(false)
    }
    fn atom(&self) -> usize {
        8
    }
}

/// Runs `steps` on a medium that fails at operation `at`. False if the run ended before.
fn fails_at(kind: SchemeKind, steps: &[Step], how: How, at: i64) -> bool {
    let left = Rc::new(Cell::new(i64::MAX));
    let medium = Failing {
        image: Image::new(8),
        how,
        left: Rc::clone(&left),
        failed: Cell::new(false),
    };
    let store = AnyScheme::create(kind, medium, &setup()).unwrap();
    left.set(at);
    let mut run = Run::new(store, Log::default(), State::default());
    let went = run.go(steps);
    let reached = left.get() < 0;
    left.set(i64::MAX);
    match how {
        How::Full => {
            assert!(went.is_ok(), "{kind}, operation {at}: {went:?}");
            assert_eq!(run.differs().unwrap(), None, "{kind}, operation {at}");
        }
        How::Io if reached => {
            let refused = run.scheme.commit(b"");
            assert!(refused.is_err(), "{kind}, operation {at}: a failure is for good");
        }
        How::Io => {}
    }
    let epoch = run.scheme.epoch();
    let medium = run.scheme.into_medium();
    let (store, found) = AnyScheme::recover(medium.image).unwrap();
    assert!(
        (epoch..epoch + 2).contains(&found.epoch),
        "{kind}: {} of {epoch}",
        found.epoch
    );
    let differs = differs_after_recovery(&store, &found, &run.states[&found.epoch]).unwrap();
    assert_eq!(differs, None, "{kind}, {how:?} at operation {at}");
    assert_eq!(store.check().unwrap(), [], "{kind}, {how:?} at operation {at}");
    reached
}

#[test]
fn whatever_fails_the_checkpoint_is_whole() {
    let profile = Profile {
        epochs: 7,
        pages: 8,
        writes: 5,
        context: 200,
    };
    for kind in KINDS {
        for seed in 1..3 {
            let mut random = Random::new(seed);
            let steps = random_steps(&profile, &mut random);
            let mut steps = overlapped(&steps, &mut random);
            steps.push(Step::Commit(5, 5));
            for how in [How::Full, How::Io] {
                let points = (0..).take_while(|&at| fails_at(kind, &steps, how, at)).count();
                println!("{kind}, seed {seed}, {how:?}: {points} points");
                assert!(points > 30, "{points}");
            }
        }
    }
}
