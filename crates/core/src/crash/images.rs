//! What a crash may leave on the medium.
//!
//! * All writes before the last fence are there.
//! * Of later writes, any subset of the atoms is there. Few atoms: every subset is built. Many:
//!   none, all, each one alone, each one missing, and seeded samples.

use super::image::Image;
use super::random::Random;
use super::recorder::Op;
use crate::medium::{Medium, Offset};
use std::ops::Range;
use std::rc::Rc;

/// Up to this number of atoms: every subset.
const EVERY: usize = 6;
/// Up to this number of atoms: each alone and each missing.
const EACH: usize = 20;

/// The durable bytes at a point of a run, and the writes without a fence.
#[derive(Debug)]
pub struct Crash {
    durable: Vec<u8>,
    pending: Vec<Op>,
    atom: usize,
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
        }
    }

    /// One more operation was done. True if it is a new point to crash at.
    pub fn advance(&mut self, op: &Op) -> bool {
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

    /// The images a crash here may leave: `samples` random ones where there are too many to build all.
    pub(super) fn images(&self, samples: usize, random: &mut Random) -> Vec<Maker<'_>> {
        self.choose(EVERY, EACH, samples, random)
    }

    /// As [`Crash::images`], but fewer.
    pub fn few_images(&self, samples: usize, random: &mut Random) -> Vec<Maker<'_>> {
        self.choose(EVERY / 2, 0, samples, random)
    }

    fn choose(&self, every: usize, each: usize, samples: usize, random: &mut Random) -> Vec<Maker<'_>> {
        let atoms = self.atoms();
        let mut subsets: Vec<Subset> = Vec::new();
        if atoms.len() <= every {
            for subset in 0..1_usize << atoms.len() {
                subsets.push(Box::new(move |k, _| subset >> k & 1 == 1));
            }
        } else {
            subsets.push(Box::new(|_, _| false));
            subsets.push(Box::new(|_, _| true));
            for one in (0..atoms.len()).filter(|_| atoms.len() <= each) {
                subsets.push(Box::new(move |k, _| k == one));
                subsets.push(Box::new(move |k, _| k != one));
            }
            for sample in 0..samples {
                // Operations whole or not at all; atoms one by one; all but a few; only a few.
                let seed = random.number();
                let draw = move |k: usize, times: u64| Random::new(seed ^ (k as u64) << 20).once_in(times);
                subsets.push(match sample % 4 {
                    0 => Box::new(move |_, atom| draw(op_of(atom), 2)),
                    1 => Box::new(move |k, _| draw(k, 2)),
                    2 => Box::new(move |k, _| !draw(k, 8)),
                    _ => Box::new(move |k, _| draw(k, 8)),
                });
            }
        }
        let atoms: Rc<[Atom]> = atoms.into();
        let maker = |there: Subset| -> Maker<'_> {
            let atoms = Rc::clone(&atoms);
            Box::new(move || self.image(&atoms, &there))
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
        let images = crash.images(50, &mut Random::new(1));
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
