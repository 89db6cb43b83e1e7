//! A vector of any place would come into a region, by another name.

use twinpage::Persist;
use twinpage::collections::{String, Vec};

type Words = Vec<'static, u64>;

#[derive(Persist)]
struct Beside<'r> {
    name: String<'r>,
    words: Words,
}

#[derive(Persist)]
#[repr(u8)]
enum Hold {
    Nothing,
    Words(Words),
}

trait Kept {
    type Value;
}

impl Kept for u64 {
    type Value = Words;
}

#[derive(Persist)]
struct Indirect {
    words: <u64 as Kept>::Value,
}

fn main() {}
