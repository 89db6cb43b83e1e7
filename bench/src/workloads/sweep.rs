//! `sweep`: one pass after the other over 1% of a 256 MiB array, then over the next 1%.
//!
//! An operation adds to one word of every 64-byte line of 4 KiB. A window is passed over 256 times, which
//! takes native memory about as long as an epoch.

use super::{Setting, Workload, same};
use crate::engine::{Engine, Result};

const PIECES: u64 = 65_536;
const PASSES: u64 = 256;
const WORDS: usize = 512;
const WORDS_PER_LINE: usize = 8;

type Piece = [u64; WORDS];

pub(crate) struct Sweep<E: Engine> {
    array: E::Array<Piece>,
    walk: Walk,
}

/// Which piece is next.
#[derive(Clone, Copy)]
struct Walk {
    pieces: u64,
    window: u64,
    begin: u64,
    pass: u64,
    at: u64,
}

impl Walk {
    fn new(setting: &Setting) -> Walk {
        let pieces = setting.scaled(PIECES, 200);
        Walk {
            pieces,
            window: pieces / 100,
            begin: 0,
            pass: 0,
            at: 0,
        }
    }

    /// A piece, and the word of its lines that is added to.
    #[inline]
    fn next(&mut self) -> (u64, usize) {
        if self.at == self.window {
            (self.at, self.pass) = (0, self.pass + 1);
            if self.pass == PASSES {
                self.pass = 0;
                self.begin = (self.begin + self.window) % (self.pieces - self.window);
            }
        }
        let piece = self.begin + self.at;
        self.at += 1;
        (piece, self.pass as usize % WORDS_PER_LINE)
    }
}

/// What one operation does.
#[inline]
fn add(piece: &mut Piece, word: usize) {
    for line in piece.chunks_exact_mut(WORDS_PER_LINE) {
        line[word] = line[word].wrapping_add(1);
    }
}

fn first(number: u64) -> Piece {
    [number; WORDS]
}

impl<E: Engine> Workload<E> for Sweep<E> {
    const BETWEEN: u64 = 16;

    fn open(engine: &E, setting: Setting, _: bool) -> Result<Self> {
        let walk = Walk::new(&setting);
        Ok(Sweep {
            array: engine.array(setting.name(0), walk.pieces, first)?,
            walk: Walk::new(&setting),
        })
    }

    fn operate(&mut self, tx: &mut E::Tx<'_, '_>) -> Result<u64> {
        let (piece, word) = self.walk.next();
        E::change(tx, &mut self.array, piece, |piece| add(piece, word))?;
        Ok((WORDS / WORDS_PER_LINE * size_of::<u64>()) as u64)
    }

    fn check(&self, engine: &E, operations: u64) -> Result<()> {
        let mut walk = Walk {
            begin: 0,
            pass: 0,
            at: 0,
            ..self.walk
        };
        let mut added = vec![[0u32; WORDS_PER_LINE]; walk.pieces as usize];
        for _ in 0..operations {
            let (piece, word) = walk.next();
            added[piece as usize][word] += 1;
        }
        engine.group(&mut |tx| {
            let mut pieces = added.iter().zip(0..);
            pieces.try_for_each(|(added, number)| {
                let mut expected = first(number);
                for (at, word) in expected.iter_mut().enumerate() {
                    *word = word.wrapping_add(added[at % WORDS_PER_LINE].into());
                }
                same(
                    "a piece of the array",
                    &E::at(tx, &self.array, number)?,
                    &expected,
                )
            })
        })
    }
}
