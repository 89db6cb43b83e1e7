//! What is recovered from memory after a crash (3.3.2).

use super::places::{COPY_HEADER, FILE_HEADER, Function, MASK, Places, add};
use super::variant::{Form, Log, Variant};
use crate::space::Plain;

/// An object after recovery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// The last function in it.
    pub position: u64,
    /// The array.
    pub array: Vec<u8>,
    /// Functions that were run again.
    pub replayed: u64,
}

/// Recovers an object kept by `variant`; `read` gives what memory and file hold.
///
/// # Errors
/// What cannot be.
pub(super) fn recover(
    variant: &Variant,
    places: &Places,
    read: &dyn Fn(u64, usize) -> Vec<u8>,
) -> Result<Recovered, String> {
    let word = |at: u64| u64::get(&read(at, 8));
    let array = |copy: u64| read(places.copy(copy) + COPY_HEADER, places.array_bytes() as usize);
    let (position, array) = match variant.form {
        None => return Err(format!("{} keeps nothing", variant.name)),
        Some(Form::File) => newest_place(places, read),
        Some(Form::Dual) => {
            let index = word(places.index);
            let copy = index & !MASK;
            if copy > 1 {
                return Err(format!("the resilient index is {index}"));
            }
            let position = match (index & MASK != 0, variant.each) {
                // The copy is of the last group that ended: none ends before the mask is gone. Functions that are
                // flushed one by one may already follow that end.
                (true, false) => last(places, word(places.cursor), read, |function| {
                    function == Function::Sync
                }),
                // The log is behind such a checkpoint: the copy says what it holds.
                (true, true) => word(places.copy(copy)),
                (false, _) => word(places.cursor),
            };
            (position, array(copy))
        }
        Some(Form::Double) => {
            // The lowest bit says that the copy of the checkpoint is not the checkpoint's yet.
            let state = word(places.word);
            (state >> 1, array(1 - (state & 1)))
        }
        Some(Form::CopyOnWrite) => match word(places.word) {
            0 => (word(places.cursor), array(0)),
            _ => (word(places.copy(1)), array(1)),
        },
    };
    Ok(replay(variant, places, position, array, read))
}

/// The last entry after `from` that `is_such` accepts; `from` if there is none.
fn last(
    places: &Places,
    from: u64,
    read: &dyn Fn(u64, usize) -> Vec<u8>,
    is_such: impl Fn(Function) -> bool,
) -> u64 {
    let such = entries(places, from, read).filter(|(_, function)| is_such(*function));
    such.last().map_or(from, |(number, _)| number)
}

/// Valid entries after one, in order, without a gap.
fn entries<'a>(
    places: &'a Places,
    from: u64,
    read: &'a dyn Fn(u64, usize) -> Vec<u8>,
) -> impl Iterator<Item = (u64, Function)> + 'a {
    (from + 1..=from + places.sizes.log_entries)
        .map_while(move |number| Some((number, places.decode(number, read)?)))
}

fn replay(
    variant: &Variant,
    places: &Places,
    position: u64,
    mut array: Vec<u8>,
    read: &dyn Fn(u64, usize) -> Vec<u8>,
) -> Recovered {
    // A group's end is its commit mark.
    let until = last(places, position, read, |function| {
        variant.log == Log::Each || function == Function::Sync
    });
    let mut replayed = 0;
    for (_, function) in entries(places, position, read).take_while(|(number, _)| *number <= until) {
        let (from, bytes) = places.part(function);
        add(&mut array[from as usize..(from + bytes) as usize], function);
        replayed += u64::from(function != Function::Sync);
    }
    Recovered {
        position: until,
        array,
        replayed,
    }
}

/// The newest whole place of the file, or the array as it began.
fn newest_place(places: &Places, read: &dyn Fn(u64, usize) -> Vec<u8>) -> (u64, Vec<u8>) {
    let bytes = (FILE_HEADER + places.array_bytes()) as usize;
    let whole = (0..2)
        .map(|number| read(places.file(number), bytes))
        .filter(|place| {
            let sum = u64::get(&place[8..16]);
            u64::get(&place[..8]) > 0 && sum == u64::from(file_checksum(place))
        });
    let newest = whole.max_by_key(|place| u64::get(&place[..8]));
    match newest {
        Some(place) => (u64::get(&place[..8]), place[FILE_HEADER as usize..].to_vec()),
        None => (0, vec![0; places.array_bytes() as usize]),
    }
}

/// Of a place's position and array.
pub(super) fn file_checksum(place: &[u8]) -> u32 {
    let sum = crc32c::crc32c(&place[..8]);
    crc32c::crc32c_append(sum, &place[FILE_HEADER as usize..])
}
