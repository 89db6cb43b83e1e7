//! Where everything lies, and what an entry of the log is, byte by byte.
//!
//! ```text
//! DRAM  locks | tail of the log | done cursor | a line for each server | the array: the copy that functions run on | the
//!       file in the page cache
//! NVM   resilient index | LogCkpt cursor | word of the other forms | allocator | copy 0 | copy 1 | entries | contexts
//! file  two places, each: position, checksum, array
//!
//! entry    0 number | 8 function, hint, thread | 16 place of its context | 24 checksum | 28 state
//! context  0 argument | 8 result
//! copy     0 position: the last entry in it | 64 array
//! ```
//!
//! * Entries are numbered from 1 on; entry n lies in slot n modulo the log's length, its context in the same.
//! * The checksum is of number, function, place and argument: an entry of an earlier round, or one that is not whole, is
//!   not valid. The state is not in it, for it changes in place.

use super::config::Sizes;
use crate::op::{LINE_BYTES, PAGE_BYTES};
use crate::space::Plain;

/// Bytes of an entry, and of its context.
pub(super) const ENTRY: u64 = 32;
/// Bytes before a copy's array.
pub(super) const COPY_HEADER: u64 = 64;
/// Bytes before the array in a place of the file.
pub(super) const FILE_HEADER: u64 = 16;
/// What the resilient index is masked with (3.2.2).
pub(super) const MASK: u64 = 8;

/// The state of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    New = 1,
    Done = 2,
    Resilient = 3,
}

/// What is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    /// allInc: adds to every element. Its hint is ALL.
    All(u32),
    /// rowInc: adds to the elements of one of the two rows, which is its hint.
    Row(usize, u32),
    /// The empty instant function that ends a group.
    Sync,
}

impl Function {
    /// Function, hint and thread, as an entry has them.
    fn word(self, thread: usize) -> u64 {
        let (function, hint): (u64, u64) = match self {
            Function::All(_) => (1, 0xffff),
            Function::Row(row, _) => (2, row as u64),
            Function::Sync => (3, 0),
        };
        function | hint << 16 | (thread as u64) << 32
    }

    fn argument(self) -> u64 {
        match self {
            Function::All(by) | Function::Row(_, by) => by.into(),
            Function::Sync => 0,
        }
    }

    fn of(word: u64, argument: u64) -> Option<Function> {
        let by = u32::try_from(argument).ok()?;
        let hint = word >> 16 & 0xffff;
        match (word & 0xffff, hint) {
            (1, 0xffff) => Some(Function::All(by)),
            (2, 0 | 1) => Some(Function::Row(hint as usize, by)),
            (3, 0) => Some(Function::Sync),
            _ => None,
        }
    }
}

/// Addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) sizes: Sizes,
    pub(super) locks: u64,
    pub(super) tail: u64,
    pub(super) done: u64,
    pub(super) servers: u64,
    pub(super) array: u64,
    pub(super) cached: u64,
    pub(super) nvm: u64,
    pub(super) index: u64,
    pub(super) cursor: u64,
    pub(super) word: u64,
    pub(super) allocator: u64,
    copies: u64,
    entries: u64,
    contexts: u64,
    pub(super) file: u64,
    pub(super) bytes: u64,
}

impl Places {
    pub(super) fn new(sizes: Sizes) -> Places {
        Places::at(sizes, 0, Places::dram_bytes(sizes))
    }

    /// Those of one object beside others: its part of DRAM, and its part of NVM.
    pub(super) fn at(sizes: Sizes, dram: u64, nvm: u64) -> Places {
        let line = |number: u64| number * LINE_BYTES;
        let array_bytes = sizes.rows * sizes.columns * 4;
        let copies = nvm + PAGE_BYTES;
        let entries = copies + 2 * (COPY_HEADER + array_bytes).next_multiple_of(PAGE_BYTES);
        let contexts = (entries + sizes.log_entries * ENTRY).next_multiple_of(PAGE_BYTES);
        let file = (contexts + sizes.log_entries * ENTRY).next_multiple_of(PAGE_BYTES);
        Places {
            sizes,
            locks: dram,
            tail: dram + line(8),
            done: dram + line(10),
            servers: dram + line(12),
            array: dram + PAGE_BYTES,
            cached: dram + (PAGE_BYTES + array_bytes).next_multiple_of(PAGE_BYTES),
            nvm,
            index: nvm,
            cursor: nvm + line(1),
            word: nvm + line(2),
            allocator: nvm + line(3),
            copies,
            entries,
            contexts,
            file,
            bytes: file + 2 * (FILE_HEADER + array_bytes).next_multiple_of(PAGE_BYTES),
        }
    }

    /// Bytes of DRAM that an object has.
    pub(super) fn dram_bytes(sizes: Sizes) -> u64 {
        PAGE_BYTES + 2 * (sizes.rows * sizes.columns * 4).next_multiple_of(PAGE_BYTES)
    }

    pub(super) fn array_bytes(&self) -> u64 {
        self.sizes.rows * self.sizes.columns * 4
    }

    pub(super) fn lock(&self, number: usize) -> u64 {
        self.locks + number as u64 * LINE_BYTES
    }

    pub(super) fn server(&self, lane: usize) -> u64 {
        self.servers + lane as u64 * LINE_BYTES
    }

    pub(super) fn copy(&self, number: u64) -> u64 {
        self.copies + number * (COPY_HEADER + self.array_bytes()).next_multiple_of(PAGE_BYTES)
    }

    pub(super) fn file(&self, number: u64) -> u64 {
        self.file + number * (FILE_HEADER + self.array_bytes()).next_multiple_of(PAGE_BYTES)
    }

    pub(super) fn entry(&self, number: u64) -> u64 {
        self.entries + number % self.sizes.log_entries * ENTRY
    }

    pub(super) fn context(&self, number: u64) -> u64 {
        self.contexts + number % self.sizes.log_entries * ENTRY
    }

    /// The bytes of the array that a function adds to.
    pub(super) fn part(&self, function: Function) -> (u64, u64) {
        let row = self.sizes.columns * 4;
        match function {
            Function::All(_) => (0, self.array_bytes()),
            Function::Row(which, _) => (self.sizes.others[which] * row, row),
            Function::Sync => (0, 0),
        }
    }

    /// An entry and its context.
    pub(super) fn encode(&self, number: u64, function: Function, thread: usize) -> ([u8; 32], [u8; 16]) {
        self.encode_words(number, function.word(thread), function.argument())
    }

    /// The same, of a function that is a word: function, hint and thread.
    pub(super) fn encode_words(&self, number: u64, word: u64, argument: u64) -> ([u8; 32], [u8; 16]) {
        let context = self.context(number);
        let mut entry = [0; 32];
        for (place, value) in [number, word, context].into_iter().enumerate() {
            value.put(&mut entry[place * 8..][..8]);
        }
        let state = State::New as u64;
        let sum = u64::from(checksum(number, word, context, argument));
        (sum | state << 32).put(&mut entry[24..]);
        let mut bytes = [0; 16];
        argument.put(&mut bytes[..8]);
        (entry, bytes)
    }

    /// The word of an entry that holds its checksum, with another state.
    pub(super) fn with_state(entry: &[u8], state: State) -> u64 {
        u64::get(&entry[24..32]) & 0xffff_ffff | (state as u64) << 32
    }

    /// The function that entry `number` is of, if it is valid. `read` gives what memory holds.
    pub(super) fn decode(&self, number: u64, read: &dyn Fn(u64, usize) -> Vec<u8>) -> Option<Function> {
        let (word, argument) = self.decode_words(number, read)?;
        Function::of(word, argument)
    }

    /// The word and the argument of that entry.
    pub(super) fn decode_words(
        &self,
        number: u64,
        read: &dyn Fn(u64, usize) -> Vec<u8>,
    ) -> Option<(u64, u64)> {
        let entry = read(self.entry(number), ENTRY as usize);
        let word = |place: usize| u64::get(&entry[place..place + 8]);
        let argument = u64::get(&read(self.context(number), 8));
        let is_whole = word(0) == number
            && word(16) == self.context(number)
            && word(24) as u32 == checksum(number, word(8), word(16), argument);
        is_whole.then(|| (word(8), argument))
    }
}

fn checksum(number: u64, word: u64, context: u64, argument: u64) -> u32 {
    let words = [number, word, context, argument];
    words
        .iter()
        .fold(0, |sum, word| crc32c::crc32c_append(sum, &word.to_le_bytes()))
}

/// Adds a function's argument to the elements of a part, as both execution and replay do.
pub(super) fn add(part: &mut [u8], function: Function) {
    let (Function::All(by) | Function::Row(_, by)) = function else {
        return;
    };
    for element in part.chunks_exact_mut(4) {
        (u32::get(element).wrapping_add(by)).put(element);
    }
}
