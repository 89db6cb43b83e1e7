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
    pub(super) fn images(&self, samples: usize, random: &mut Random) -> Images<'_> {
        self.choose(EVERY, EACH, samples, random)
    }

    /// As [`Crash::images`], but fewer.
    pub fn few_images(&self, samples: usize, random: &mut Random) -> Images<'_> {
        self.choose(EVERY / 2, 0, samples, random)
    }

    fn choose(&self, every: usize, each: usize, samples: usize, random: &mut Random) -> Images<'_> {
        let atoms = self.atoms();
        let number = atoms.len();
        let subsets = if number <= every {
            (0..1 << number).map(Subset::Bits).collect()
        } else {
            let alone_and_missing = (0..number).flat_map(|one| [Subset::Alone(one), Subset::Missing(one)]);
            let drawn = (0..samples).map(|sample| match (sample % 4, random.number()) {
                (0, seed) => Subset::Operations(seed),
                (1, seed) => Subset::Half(seed),
                (2, seed) => Subset::Most(seed),
                (_, seed) => Subset::Few(seed),
            });
            let most = [Subset::Bits(0), Subset::All].into_iter();
            let most = most.chain(alone_and_missing.filter(|_| number <= each));
            most.chain(drawn).collect()
        };
        Images {
            crash: self,
            atoms,
            subsets,
        }
    }

    /// The image a crash leaves when everything made it.
    pub(super) fn whole(&self) -> Image {
        self.image(&self.atoms(), Subset::All)
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

    fn image(&self, atoms: &[Atom], there: Subset) -> Image {
        let mut bytes = self.durable.clone();
        for (_, atom) in atoms.iter().enumerate().filter(|(k, atom)| there.has(*k, atom)) {
            match atom {
                Atom::Bytes(index, range) => apply(&mut bytes, &self.pending[*index], Some(range)),
                Atom::Whole(index) => apply(&mut bytes, &self.pending[*index], None),
            }
        }
        Image::from_bytes(bytes, self.atom)
    }
}

/// The atoms that are there after a crash.
#[derive(Clone, Copy, Debug)]
enum Subset {
    /// Those whose bit is set, of few.
    Bits(usize),
    All,
    Alone(usize),
    Missing(usize),
    /// Drawn with this seed: operations whole or not at all.
    Operations(u64),
    /// One atom of two.
    Half(u64),
    /// All but one of eight.
    Most(u64),
    /// One of eight.
    Few(u64),
}

impl Subset {
    fn has(self, number: usize, atom: &Atom) -> bool {
        let draw = |seed: u64, k: usize, times| Random::new(seed ^ (k as u64) << 20).once_in(times);
        match self {
            Subset::Bits(bits) => bits.checked_shr(number as u32).unwrap_or(0) & 1 == 1,
            Subset::All => true,
            Subset::Alone(one) => number == one,
            Subset::Missing(one) => number != one,
            Subset::Operations(seed) => draw(seed, op_of(atom), 2),
            Subset::Half(seed) => draw(seed, number, 2),
            Subset::Most(seed) => !draw(seed, number, 8),
            Subset::Few(seed) => draw(seed, number, 8),
        }
    }
}

/// The images that a crash may leave. They may be large, so each is built when it is looked at.
#[derive(Debug)]
pub struct Images<'c> {
    crash: &'c Crash,
    atoms: Vec<Atom>,
    subsets: Vec<Subset>,
}

impl Images<'_> {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.subsets.len()
    }

    /// Builds one, by its number.
    #[must_use]
    pub fn image(&self, number: usize) -> Image {
        self.crash.image(&self.atoms, self.subsets[number])
    }
}

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
        (0..images.count())
            .map(|one| images.image(one).bytes().to_vec())
            .collect()
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
