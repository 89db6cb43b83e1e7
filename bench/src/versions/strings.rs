//! The strings that all programs swap, and what the swaps make of them.

use super::arguments::SpsArguments;
use crate::engine::Result;
use twinpage_os::Durability;
use twinpage_os::direct::{Direct, DirectFile, Instructions};

pub(super) type Text = [u8; 256];

/// The string that number `number` is at the beginning: no two are the same.
pub(super) fn first(number: u64) -> Text {
    let mut text = [0; 256];
    for (k, word) in text.chunks_exact_mut(8).enumerate() {
        let mixed = (number << 5 | k as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&mixed.to_le_bytes());
    }
    text
}

/// The swaps, the same for every variant of a seed.
pub(super) fn swaps(arguments: &SpsArguments) -> impl Iterator<Item = (usize, usize)> + use<> {
    let mut random = fastrand::Rng::with_seed(arguments.seed);
    let strings = arguments.strings;
    (0..arguments.swaps).map(move |_| {
        let a = random.usize(..strings);
        (a, (a + random.usize(1..strings)) % strings)
    })
}

/// Compares the strings with what the swaps make of the first.
pub(super) fn check(arguments: &SpsArguments, at: impl Fn(usize) -> Result<Text>) -> Result<()> {
    let mut model: Vec<u64> = (0..arguments.strings as u64).collect();
    swaps(arguments).for_each(|(a, b)| model.swap(a, b));
    for (index, &from) in model.iter().enumerate() {
        if at(index)? != first(from) {
            return Err(format!(
                "wrong result: string {index} is not the one that number {from} was"
            ));
        }
    }
    Ok(())
}

/// Memory in a file, as an array of strings and room for more behind them.
pub(super) struct Strings {
    pub(super) direct: DirectFile,
    pub(super) count: usize,
}

impl Strings {
    /// `more` bytes lie behind the strings.
    pub(super) fn new(arguments: &SpsArguments, instructions: Instructions, more: usize) -> Result<Strings> {
        let path = arguments.place.join("strings");
        let direct = DirectFile::create(&path, Durability::Memory, Some(instructions)).map_err(failed)?;
        let bytes = (arguments.strings * size_of::<Text>() + more) as u64;
        direct.grow(bytes).map_err(failed)?;
        direct.populate(&(0..bytes));
        let strings = Strings {
            direct,
            count: arguments.strings,
        };
        for index in 0..strings.count {
            // SAFETY: a string of the array.
            unsafe { strings.at(index).write(first(index as u64)) };
        }
        Ok(strings)
    }

    pub(super) fn at(&self, index: usize) -> *mut Text {
        debug_assert!(index < self.count);
        // SAFETY: inside the mapping.
        unsafe { self.direct.base().cast::<Text>().add(index) }
    }

    /// Where what lies behind the strings begins.
    pub(super) fn behind(&self) -> u64 {
        (self.count * size_of::<Text>()) as u64
    }

    pub(super) fn check(&self, arguments: &SpsArguments) -> Result<()> {
        // SAFETY: a string of the array, which does not change any more.
        check(arguments, |index| Ok(unsafe { *self.at(index) }))
    }
}

pub(super) fn failed(error: impl std::fmt::Display) -> String {
    error.to_string()
}
