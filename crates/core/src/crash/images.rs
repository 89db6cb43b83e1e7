//! What a crash may leave on the medium.
//!
//! * All writes before the last fence are there.
//! * Of later writes, any subset of the atoms is there. Few atoms: every subset is built. Many:
//!   none, all, each one alone, each one missing, and seeded samples.
//! * An image that was there after the operation before is not built again.

use super::image::Image;
use super::random::Random;
use super::recorder::Op;
use crate::medium::{Medium, Offset};
use std::ops::Range;
use std::rc::Rc;

/// Which images are built.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Up to this number of atoms: every subset.
    every: usize,
    /// Up to this number of atoms: each alone and each missing.
    each: usize,
    /// Random subsets, where there are too many to build all.
    samples: usize,
}

impl Choice {
    /// A small number.
    pub const FEW: Choice = Choice::new(3, 0, 4);

    /// Many, with this number of random subsets.
    pub(super) const fn many(samples: usize) -> Choice {
        Choice::new(6, 20, samples)
    }

    const fn new(every: usize, each: usize, samples: usize) -> Choice {
        Choice { every, each, samples }
    }
}

/// The durable bytes at a point of a run, and the writes without a fence.
#[derive(Clone, Debug)]
pub struct Crash {
    durable: Vec<u8>,
    pending: Vec<Op>,
    atom: usize,
    /// The number of atoms when images were last built, since the last fence or durable commit.
    seen: Option<usize>,
}

/// A piece of a pending operation that is there whole or not at all.
#[derive(Clone, Debug)]
enum Atom {
    Bytes(usize, Range<usize>),
    Whole(usize),
}

impl Crash {
    /// Nothing was done yet.
    #[must_use]
    pub fn new(start: &Image) -> Crash {
        Crash {
            durable: start.bytes().to_vec(),
            pending: Vec::new(),
            atom: start.atom(),
            seen: None,
        }
    }

    /// One more operation was done. True if it is a new point to crash at.
    pub fn advance(&mut self, op: &Op) -> bool {
        // When a commit begins, the epochs that were allowed still are.
        if matches!(op, Op::Fence | Op::Durable(_)) {
            self.seen = None;
        }
        match op {
            Op::Committing(_) | Op::Durable(_) => return false,
            Op::Fence => {
                for op in std::mem::take(&mut self.pending) {
                    match op {
                        Op::Discard(_, false) => {}
                        op => apply(&mut self.durable, &op, None),
                    }
                }
            }
            op => self.pending.push(op.clone()),
        }
        true
    }

    /// The images that a crash here may leave, without those that were among them after the operation before.
    pub fn images(&mut self, choice: Choice, random: &mut Random) -> Vec<Maker<'_>> {
        let atoms = self.atoms();
        let all = atoms.len();
        let seen = self.seen.replace(all);
        let mut subsets: Vec<Subset> = Vec::new();
        // `end` is behind the last atom of the subset. One that ends among the atoms of the last images was among those.
        let mut add = |end: usize, subset: Subset| {
            if seen.is_none_or(|seen| end > seen) {
                subsets.push(subset);
            }
        };
        if all <= choice.every {
            for subset in 0..1_usize << all {
                let end = usize::BITS - subset.leading_zeros();
                add(end as usize, Box::new(move |k, _| subset >> k & 1 == 1));
            }
        } else {
            add(0, Box::new(|_, _| false));
            add(all, Box::new(|_, _| true));
            for one in (0..all).filter(|_| all <= choice.each) {
                add(one + 1, Box::new(move |k, _| k == one));
                add(all, Box::new(move |k, _| k != one));
            }
            for sample in 0..choice.samples {
                // Operations whole or not at all; atoms one by one; all but a few; only a few.
                let seed = random.number();
                let draw = move |k: usize, times: u64| Random::new(seed ^ (k as u64) << 20).once_in(times);
                let subset: Subset = match sample % 4 {
                    0 => Box::new(move |_, atom| draw(op_of(atom), 2)),
                    1 => Box::new(move |k, _| draw(k, 2)),
                    2 => Box::new(move |k, _| !draw(k, 8)),
                    _ => Box::new(move |k, _| draw(k, 8)),
                };
                add(all, subset);
            }
        }
        let atoms: Rc<[Atom]> = atoms.into();
        let this = &*self;
        let maker = |there: Subset| -> Maker<'_> {
            let atoms = Rc::clone(&atoms);
            Box::new(move || this.image(&atoms, &there))
        };
        subsets.into_iter().map(maker).collect()
    }

    /// The image a crash leaves when everything made it.
    pub(super) fn whole(&self) -> Image {
        self.image(&self.atoms(), &|_, _| true)
    }

    fn atoms(&self) -> Vec<Atom> {
        let mut atoms = Vec::new();
        for (index, op) in self.pending.iter().enumerate() {
            match op {
                Op::Write { at, bytes } => {
                    let mut start = 0;
                    while start < bytes.len() {
                        let into_atom = (*at as usize + start) % self.atom;
                        let end = (start + self.atom - into_atom).min(bytes.len());
                        atoms.push(Atom::Bytes(index, start..end));
                        start = end;
                    }
                }
                _ => atoms.push(Atom::Whole(index)),
            }
        }
        atoms
    }

    fn image(&self, atoms: &[Atom], there: &dyn Fn(usize, &Atom) -> bool) -> Image {
        let mut bytes = self.durable.clone();
        for (_, atom) in atoms.iter().enumerate().filter(|(k, atom)| there(*k, atom)) {
            match atom {
                Atom::Bytes(index, range) => apply(&mut bytes, &self.pending[*index], Some(range)),
                Atom::Whole(index) => apply(&mut bytes, &self.pending[*index], None),
            }
        }
        Image::from_bytes(bytes, self.atom)
    }
}

/// Whether an atom is there after a crash, by its number.
type Subset = Box<dyn Fn(usize, &Atom) -> bool>;

/// Builds an image that a crash may leave. It may be large, so there is one when it is looked at.
pub type Maker<'c> = Box<dyn Fn() -> Image + 'c>;

fn op_of(atom: &Atom) -> usize {
    match atom {
        Atom::Bytes(index, _) | Atom::Whole(index) => *index,
    }
}

/// Does `op`, or a piece of it. What lies past the end, for growth that did not happen, is lost.
fn apply(image: &mut Vec<u8>, op: &Op, piece: Option<&Range<usize>>) {
    let clip = |at: Offset, len: usize| {
        let start = (at as usize).min(image.len());
        start..(at as usize + len).min(image.len())
    };
    match op {
        Op::Write { at, bytes } => {
            let piece = piece.cloned().unwrap_or(0..bytes.len());
            let range = clip(at + piece.start as u64, piece.len());
            let len = range.len();
            image[range].copy_from_slice(&bytes[piece.start..piece.start + len]);
        }
        Op::Grow(len) if *len as usize > image.len() => image.resize(*len as usize, 0),
        Op::Discard(range, _) => {
            let range = clip(range.start, (range.end - range.start) as usize);
            image[range].fill(0);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn write(at: Offset, bytes: &[u8]) -> Op {
        Op::Write {
            at,
            bytes: bytes.to_vec(),
        }
    }

    fn images(crash: &Crash) -> BTreeSet<Vec<u8>> {
        let mut crash = Crash {
            seen: None,
            ..crash.clone()
        };
        let images = crash.images(Choice::many(50), &mut Random::new(1));
        images.iter().map(|image| image().bytes().to_vec()).collect()
    }

    #[test]
    fn what_is_fenced_is_there_and_the_rest_in_every_subset() {
        let mut crash = Crash::new(&Image::from_bytes(vec![0; 4], 2));
        assert!(crash.advance(&write(0, &[1])));
        assert!(crash.advance(&Op::Fence));
        assert!(!crash.advance(&Op::Committing(1)));
        crash.advance(&write(1, &[2, 2]));
        let torn = [[1, 0, 0, 0], [1, 2, 0, 0], [1, 0, 2, 0], [1, 2, 2, 0]];
        assert_eq!(images(&crash), torn.map(Vec::from).into());
    }

    #[test]
    fn an_image_is_built_once_between_two_fences() {
        let mut crash = Crash::new(&Image::from_bytes(vec![0; 16], 1));
        let mut built = BTreeSet::new();
        for at in 0..6 {
            crash.advance(&write(at, &[1]));
            for image in crash.images(Choice::many(0), &mut Random::new(1)) {
                assert!(built.insert(image().bytes().to_vec()), "built twice after {at}");
            }
            assert_eq!(built, images(&crash));
        }
        // With many atoms: all are there, or all but one; the new one alone.
        crash.advance(&write(6, &[1]));
        let new = crash.images(Choice::many(0), &mut Random::new(1)).len();
        assert_eq!(new, 1 + 7 + 1);
        // Another checkpoint is promised from here on: all are looked at again.
        crash.advance(&Op::Durable(1));
        crash.advance(&write(7, &[1]));
        let again = crash.images(Choice::many(0), &mut Random::new(1)).len();
        assert_eq!(again, 2 + 8 + 8);
    }

    #[test]
    fn growth_that_is_lost_takes_its_writes_along() {
        let mut crash = Crash::new(&Image::from_bytes(vec![0; 2], 8));
        crash.advance(&Op::Grow(4));
        crash.advance(&write(1, &[3, 3]));
        let torn: [&[u8]; 4] = [&[0, 0], &[0, 3], &[0, 0, 0, 0], &[0, 3, 3, 0]];
        assert_eq!(images(&crash), torn.map(Vec::from).into());
    }

    #[test]
    fn a_discard_may_show_or_not() {
        let mut crash = Crash::new(&Image::from_bytes(vec![5; 2], 8));
        crash.advance(&Op::Discard(0..1, true));
        assert_eq!(images(&crash), [[0, 5], [5, 5]].map(Vec::from).into());
        crash.advance(&Op::Fence);
        assert_eq!(images(&crash), [[0, 5]].map(Vec::from).into());
    }

    #[test]
    fn many_atoms_are_sampled() {
        let mut crash = Crash::new(&Image::from_bytes(vec![0; 256], 8));
        crash.advance(&write(0, &[1; 256]));
        let images = images(&crash);
        assert!(images.len() > 30 && images.contains(&vec![0; 256]) && images.contains(&vec![1; 256]));
        assert!(
            images
                .iter()
                .all(|image| image.chunks(8).all(|atom| atom == [0; 8] || atom == [1; 8]))
        );
    }
}
