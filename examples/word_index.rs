//! An index of the words of a text, which was kept otherwise by the program's first version.
//!
//! ```text
//! cargo run --release --example word_index -- first index.twin TEXT   # as the first version did
//! cargo run --release --example word_index -- add index.twin TEXT     # goes on where it ended, in the new form
//! cargo run --release --example word_index -- find index.twin mem     # lines of words that begin with "mem"
//! ```
//!
//! The first version kept words as they are written, in no order. This one has them in lower case and in order, so
//! that beginnings can be found. Whichever opens the file: the root says which type it holds, and an index of the first
//! version becomes one of this, all at once, in the first checkpoint. The place in the text is part of the index and
//! changes in the same update as the words: after a kill the next run reads on there, and no line counts twice.

use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::ops::Bound::{Included, Unbounded};
use std::path::Path;
use std::time::Duration;
use twinpage::collections::{BTreeMap, HashMap, String as Text, Vec};
use twinpage::{Heap, Persist, Region};

/// The index of the first version.
#[derive(Persist)]
#[persist(name = "Index")]
struct IndexV1<'r> {
    words: HashMap<'r, Text<'r>, Vec<'r, u64>>,
    /// Bytes and lines of the text that are in the index.
    read: u64,
    lines: u64,
}

/// The index: in which lines each word is, in ascending order.
#[derive(Persist)]
#[persist(version = 2, from = IndexV1<'r>, with = in_order)]
struct Index<'r> {
    words: BTreeMap<'r, Text<'r>, Vec<'r, u64>>,
    read: u64,
    lines: u64,
}

/// What one version kept, as the next keeps it.
fn in_order<'r>(old: IndexV1<'r>, heap: Heap<'r>) -> Index<'r> {
    let mut words = BTreeMap::<Text, Vec<u64>>::new_in(heap);
    for (word, lines) in old.words {
        let word = word.to_lowercase();
        words.entry_ref(word.as_str()).or_default().extend(lines);
    }
    for lines in words.values_mut() {
        lines.sort_unstable();
        lines.dedup();
    }
    let (read, lines) = (old.read, old.lines);
    Index { words, read, lines }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: std::vec::Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<std::vec::Vec<_>>()[..] {
        ["first", file, text] => first(Path::new(file), Path::new(text)),
        ["add", file, text] => add(Path::new(file), Path::new(text)),
        ["find", file, beginning] => {
            for (word, lines) in find(Path::new(file), beginning)? {
                println!("{word}: {lines:?}");
            }
            Ok(())
        }
        _ => Err("usage: word_index first|add FILE TEXT, word_index find FILE BEGINNING".into()),
    }
}

/// Adds the rest of the text, as the first version of this program did.
pub(crate) fn first(file: &Path, text: &Path) -> Result<(), Box<dyn Error>> {
    let region = open(file)?;
    let mut index = region.root::<IndexV1>("index")?;
    let read = region.read(|v| index.get(v).read);
    each_line(text, read, |line| {
        region.update(|u| {
            let index = index.get_mut(u);
            index.lines += 1;
            index.read += line.len() as u64;
            for word in words(line) {
                index.words.entry_ref(word).or_default().push(index.lines);
            }
        });
    })?;
    Ok(region.close()?)
}

/// Adds the rest of the text.
pub(crate) fn add(file: &Path, text: &Path) -> Result<(), Box<dyn Error>> {
    let region = open(file)?;
    let mut index = region.root::<Index>("index")?;
    let read = region.read(|v| index.get(v).read);
    each_line(text, read, |line| {
        region.update(|u| {
            let index = index.get_mut(u);
            index.lines += 1;
            index.read += line.len() as u64;
            for word in words(line).map(str::to_lowercase) {
                let lines = index.words.entry_ref(word.as_str()).or_default();
                if lines.last() != Some(&index.lines) {
                    lines.push(index.lines);
                }
            }
        });
    })?;
    Ok(region.close()?)
}

/// A word, and the lines it is in.
pub(crate) type Found = (String, std::vec::Vec<u64>);

/// Words that begin so, each with its lines.
pub(crate) fn find(file: &Path, beginning: &str) -> Result<std::vec::Vec<Found>, Box<dyn Error>> {
    let region = open(file)?;
    let index = region.root::<Index>("index")?;
    Ok(region.read(|v| {
        let from = index.get(v).words.range::<str>((Included(beginning), Unbounded));
        let found = from.take_while(|(word, _)| word.starts_with(beginning));
        found
            .map(|(word, lines)| (word.to_string(), lines.to_vec()))
            .collect()
    }))
}

fn open(file: &Path) -> twinpage::Result<Region> {
    Region::options().every(Duration::from_millis(16)).open(file)
}

/// Every line from byte `read` of the text on.
fn each_line(text: &Path, read: u64, mut act: impl FnMut(&str)) -> std::io::Result<()> {
    let mut text = BufReader::new(File::open(text)?);
    text.seek(SeekFrom::Start(read))?;
    let mut line = String::new();
    while text.read_line(&mut line)? > 0 {
        act(&line);
        line.clear();
    }
    Ok(())
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
}
