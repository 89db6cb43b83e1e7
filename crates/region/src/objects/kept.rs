//! The folder in which a region keeps what was called of its objects: calls that its checkpoints hold already, compressed,
//! and bases, copies of the region to begin from.
//!
//! ```text
//! base-0000        calls-0000-4000.zst  calls-4000-9000.zst        calls-9000-9900.zst        | the log of the region
//! a copy as of 0   the calls since, one file after the other       base-9000, another copy    | has the last calls
//! ```
//!
//! * A file has its name once it is whole and durable. Positions are those of the operation log.
//! * Calls are kept before the log may write over them, so nothing is missing between the last file and the log.
//! * A base is made when keeping begins, when an object is made, and when half of the bytes that may be kept were written
//!   since the last one. Before the second base from the end, files go when there are too many bytes.

use super::file::APART;
use super::listing::found;
use crate::error::{Error, Result};
use crate::superblock::LogPosition;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use twinpage_core::operation_log::{Entry, Found};
use twinpage_os::folder::sync_folder_of;

/// What a file of calls begins with.
const MAGIC: [u8; 8] = *b"tpkept\0\x01";
/// How hard calls are compressed: a gigabyte takes some seconds.
const LEVEL: i32 = 3;

/// Calls that were kept together.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Calls {
    /// The definitions of their log.
    pub(super) definitions: Vec<String>,
    pub(super) entries: Vec<Entry>,
}

/// A file of calls, by its name.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct CallsFile {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

/// A copy of the region, by its name.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Base {
    /// It has all calls before this position.
    pub(super) start: u64,
    /// It has none from this position on.
    pub(super) end: u64,
    /// It has each object up to this number.
    pub(super) last_object: u64,
    pub(super) path: PathBuf,
    bytes: u64,
}

/// What a folder has, in order.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) folder: PathBuf,
    pub(super) bases: Vec<Base>,
    pub(super) calls: Vec<CallsFile>,
}

impl Kept {
    /// Looks into a folder.
    pub(super) fn look(folder: &Path) -> Result<Kept> {
        let failed = |source| Error::system(format!("looking into {}", folder.display()), source);
        let (mut bases, mut calls) = (Vec::new(), Vec::new());
        for file in fs::read_dir(folder).map_err(failed)? {
            let file = file.map_err(failed)?;
            let (path, name) = (file.path(), file.file_name());
            // One that was removed meanwhile is none.
            let (Some(name), Ok(data)) = (name.to_str(), file.metadata()) else {
                continue;
            };
            if let Some([start, end, last_object]) = numbers(name, "base-", ".twin") {
                let bytes = std::os::unix::fs::MetadataExt::blocks(&data) * 512;
                bases.push(Base {
                    start,
                    end,
                    last_object,
                    path,
                    bytes,
                });
            } else if let Some([start, end]) = numbers(name, "calls-", ".zst") {
                let bytes = data.len();
                calls.push(CallsFile {
                    start,
                    end,
                    path,
                    bytes,
                });
            }
        }
        bases.sort_by_key(|base| base.start);
        calls.sort_by_key(|file| file.start);
        let folder = folder.to_owned();
        Ok(Kept { folder, bases, calls })
    }

    /// One past the last call that a file of calls or a base has.
    pub(super) fn end(&self) -> Option<u64> {
        let base = self.bases.last().map(|base| base.start);
        base.max(self.calls.last().map(|file| file.end))
    }

    /// One past the last call that is kept.
    pub(super) fn calls_end(&self) -> Option<u64> {
        let last = self.calls.last().map(|file| file.end);
        last.or(self.bases.first().map(|base| base.start))
    }

    /// What the log of the region in the file `path` has beyond, and from where on. None of it is missing, if the log was not
    /// written over by a program that keeps nothing: then it is from the place that the region's checkpoint names.
    pub(super) fn rest_in(&self, path: &Path, place: LogPosition) -> Result<Option<(u64, Found)>> {
        let end = self.calls_end().unwrap_or(place.start);
        let Some(mut least) = found(path, place)? else {
            return Ok(None);
        };
        if end >= place.start {
            // Since the place was looked at, more may have been kept.
            least.entries.retain(|entry| entry.position >= end);
            return Ok(Some((end, least)));
        }
        let start = first_after(end, place.start);
        Ok(Some(match found(path, LogPosition { start, ..place }) {
            Ok(Some(rest)) if rest.end == least.end => (end, rest),
            _ => (place.start, least),
        }))
    }

    /// Bytes of files of calls after a position.
    pub(super) fn bytes_after(&self, position: u64) -> u64 {
        let after = self.calls.iter().filter(|file| file.start >= position);
        after.map(|file| file.bytes).sum()
    }

    /// Removes what is oldest, as long as there are more than `most` bytes, and a later base.
    pub(super) fn trim(&mut self, most: u64) -> Result<()> {
        let remove = |path: &Path| {
            fs::remove_file(path).map_err(|e| Error::system(format!("removing {}", path.display()), e))
        };
        while let [first, second, ..] = &self.bases[..]
            && first.bytes + self.bytes_after(0) + self.bases[1..].iter().map(|b| b.bytes).sum::<u64>() > most
        {
            let later = second.start;
            // The base first: calls without one before them are no harm.
            remove(&first.path)?;
            self.bases.remove(0);
            for file in self.calls.extract_if(.., |file| file.end <= later) {
                remove(&file.path)?;
            }
        }
        Ok(())
    }

    /// Keeps calls from position `start` to `end`.
    pub(super) fn add(&mut self, start: u64, end: u64, calls: &Calls) -> Result<()> {
        let path = self.folder.join(format!("calls-{start:020}-{end:020}.zst"));
        let bytes = encode(calls).map_err(|source| error(&path, source.to_string()))?;
        store(&path, &bytes).map_err(|e| Error::system(format!("writing {}", path.display()), e))?;
        let bytes = bytes.len() as u64;
        self.calls.push(CallsFile {
            start,
            end,
            path,
            bytes,
        });
        Ok(())
    }

    /// The name of a base: from where on it lacks calls, from where on it has none, the last number of its objects.
    pub(super) fn base_path(&self, start: u64, end: u64, last_object: u64) -> PathBuf {
        let name = format!("base-{start:020}-{end:020}-{last_object:020}.twin");
        self.folder.join(name)
    }
}

impl CallsFile {
    /// Reads it.
    pub(super) fn read(&self) -> Result<Calls> {
        let path = &self.path;
        let bytes = fs::read(path).map_err(|e| Error::system(format!("reading {}", path.display()), e))?;
        decode(&bytes).map_err(|why| error(path, why))
    }
}

/// Where a log that goes on to a position has the first call after `end`: a new log begins apart from the one before.
pub(super) fn first_after(end: u64, position: u64) -> u64 {
    match position - end < APART {
        true => end,
        false => end + APART,
    }
}

fn error(file: &Path, why: String) -> Error {
    let file = file.to_owned();
    Error::Log { file, why }
}

/// The numbers in a name.
fn numbers<const COUNT: usize>(name: &str, head: &str, tail: &str) -> Option<[u64; COUNT]> {
    let all = name.strip_prefix(head)?.strip_suffix(tail)?.split('-');
    let all: Vec<u64> = all.map(|number| number.parse().ok()).collect::<Option<_>>()?;
    all.try_into().ok()
}

fn encode(calls: &Calls) -> std::io::Result<Vec<u8>> {
    let plain = postcard::to_stdvec(calls).map_err(std::io::Error::other)?;
    let mut packer = zstd::Encoder::new(MAGIC.to_vec(), LEVEL)?;
    packer.include_checksum(true)?;
    packer.write_all(&plain)?;
    packer.finish()
}

fn decode(bytes: &[u8]) -> Result<Calls, String> {
    let packed = bytes
        .strip_prefix(&MAGIC)
        .ok_or("it is no file of calls that were kept")?;
    let damaged = |why: String| format!("it is damaged: {why}");
    let plain = zstd::decode_all(packed).map_err(|error| damaged(error.to_string()))?;
    match postcard::take_from_bytes(&plain) {
        Ok((calls, [])) => Ok(calls),
        Ok((_, rest)) => Err(damaged(format!("{} bytes are left over", rest.len()))),
        Err(error) => Err(damaged(error.to_string())),
    }
}

/// Writes a file that has its name when it is whole and durable.
fn store(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_folder_of(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(count: u64) -> Calls {
        let entry = |number: u64| Entry {
            position: number * 32,
            next: number * 32 + 32,
            closed_ms: 7,
            object: 0,
            function: (number % 3) as u16,
            thread: 1,
            lane: number.is_multiple_of(2).then_some(number),
            arguments: number.to_le_bytes().to_vec(),
        };
        Calls {
            definitions: vec!["rows\nadd(by: u64)\n#1".to_owned()],
            entries: (0..count).map(entry).collect(),
        }
    }

    #[test]
    fn calls_are_kept_smaller_and_any_damage_is_noticed() {
        let whole = calls(1000);
        let bytes = encode(&whole).unwrap();
        assert!(bytes.len() < 1000 * 32 / 2, "{} bytes", bytes.len());
        assert_eq!(decode(&bytes).unwrap(), whole);
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            // Some bits of a frame say nothing of its content.
            if let Ok(calls) = decode(&flipped) {
                assert_eq!(calls, whole, "byte {at}");
            }
            assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn the_oldest_files_go_where_a_later_base_is() {
        let folder = tempfile::tempdir().unwrap();
        let base = |start: u64| {
            let name = format!("base-{start}-{start}-1.twin");
            fs::write(folder.path().join(name), [7; 4096]).unwrap();
        };
        let mut kept = Kept::look(folder.path()).unwrap();
        assert_eq!(kept.end(), None);
        base(0);
        for start in [0, 100, 200] {
            kept.add(start, start + 100, &calls(9)).unwrap();
        }
        kept = Kept::look(folder.path()).unwrap();
        kept.trim(0).unwrap();
        assert_eq!(
            (kept.bases.len(), kept.calls.len(), kept.end()),
            (1, 3, Some(300))
        );
        base(200);
        kept = Kept::look(folder.path()).unwrap();
        kept.trim(1 << 20).unwrap();
        assert_eq!((kept.bases.len(), kept.calls.len()), (2, 3));
        kept.trim(5000).unwrap();
        assert_eq!(
            (kept.bases.len(), kept.calls.len(), kept.end()),
            (1, 1, Some(300))
        );
        let again = Kept::look(folder.path()).unwrap();
        assert_eq!((again.bases, again.calls), (kept.bases, kept.calls));
    }
}
