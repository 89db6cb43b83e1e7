//! A vector of any place would come into a region.

use twinpage::collections::{String, Vec};
use twinpage::{Heap, Persist};

#[derive(Persist)]
struct Alone {
    words: Vec<'static, u64>,
}

#[derive(Persist)]
struct Beside<'r> {
    name: String<'r>,
    pair: (u8, Option<Vec<'static, u64>>),
}

#[derive(Persist)]
#[repr(u8)]
enum Hold {
    Nothing,
    Words(Vec<'static, u64>),
}

#[derive(Persist)]
struct Elsewhere {
    heap: Heap<'static>,
}

fn main() {}
