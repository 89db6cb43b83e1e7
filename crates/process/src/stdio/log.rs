//! An append-only log of one stream, addressed by stream position.
//!
//! A log is a few files in the state directory, each named by the position of its first byte
//! (`output-0.0000000000800000`). A byte's offset in its file is its position in the stream; the
//! files are sparse, so what came before costs nothing:
//!
//! ```text
//!  output-0.0000000000000000   [########]
//!  output-0.0000000000800000   (hole)    [########]
//!  output-0.0000000001000000   (hole)    (hole)    [###      ]
//!                               ^ position 0        ^ 16 MiB  ^ end
//! ```
//!
//! Invariants:
//! * A byte below `end` never changes: the kernel may still show it to a reader of a pipe that
//!   `sendfile` filled with the file's own pages.
//! * Space is given back by removing whole files, never by punching holes: the kernel zeroes part of
//!   a large folio in place, under the eyes of that reader.
//! * Every byte below `end` is in exactly one file, from `floor` on.

use super::error::{Error, Result};
use rustix::fd::AsFd;
use rustix::pipe::SpliceFlags;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes after which a new file is begun.
const SEGMENT_BYTES: u64 = 8 << 20;

/// One file of a log.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// The position of its first byte.
    pub(super) start: u64,
    /// The file; offsets in it are stream positions.
    pub(super) file: Arc<File>,
}

/// An append-only log of one stream.
#[derive(Debug)]
pub(super) struct Log {
    dir: PathBuf,
    name: String,
    segments: VecDeque<Segment>,
    /// The position after the last byte.
    end: u64,
    /// Every byte below is on the disk.
    synced: u64,
}

/// What [`Log::sync_later`] found to be synced, without the log's owner having to wait for it.
#[derive(Debug)]
pub(super) struct Unsynced {
    files: Vec<Segment>,
    /// Among them is one that was begun since the last sync.
    begun: bool,
    dir: PathBuf,
    name: String,
    to: u64,
}

impl Log {
    /// A new, empty log. Files of an older log of that name are removed.
    pub(super) fn create(dir: &Path, name: &str) -> Result<Log> {
        for (_, path) in list(dir, name)? {
            remove(&path)?;
        }
        Ok(Log {
            dir: dir.into(),
            name: name.into(),
            segments: VecDeque::new(),
            end: 0,
            synced: 0,
        })
    }

    /// The log as a context left it: it must hold `floor..end`, of which `tail` (the last bytes) is
    /// given by the context itself and written again. What lies past `end` belongs to no checkpoint
    /// and is forgotten, unless `keep_rest` says that it is still wanted (input).
    pub(super) fn open(
        dir: &Path,
        name: &str,
        floor: u64,
        end: u64,
        tail: &[u8],
        keep_rest: bool,
    ) -> Result<Log> {
        let vouched = end.saturating_sub(tail.len() as u64).max(floor);
        let mut log = Log {
            dir: dir.into(),
            name: name.into(),
            segments: VecDeque::new(),
            end: vouched,
            synced: 0,
        };
        let mut rest = vouched;
        for (start, path) in list(dir, name)? {
            if start >= vouched && !(keep_rest && start == rest) {
                remove(&path)?;
                continue;
            }
            let file = Arc::new(
                open_options()
                    .open(&path)
                    .map_err(|e| Error::io(format!("open {}", path.display()), e))?,
            );
            let len = file
                .metadata()
                .map_err(|e| Error::io(format!("read {}", path.display()), e))?
                .len();
            if rest < len && (start < vouched || keep_rest) {
                rest = len;
            }
            log.segments.push_back(Segment { start, file });
        }
        log.check_covers(floor, vouched)?;
        if keep_rest {
            log.end = rest.max(vouched);
        }
        if log.end < end {
            log.append(&tail[(log.end - (end - tail.len() as u64)) as usize..])?;
        }
        Ok(log)
    }

    /// Whether a log, looked at only, holds what a context needs of it: as [`Log::open`].
    pub(super) fn check(dir: &Path, name: &str, floor: u64, end: u64, tail: &[u8]) -> Result<()> {
        let vouched = end.saturating_sub(tail.len() as u64).max(floor);
        let mut log = Log {
            dir: dir.into(),
            name: name.into(),
            segments: VecDeque::new(),
            end: vouched,
            synced: 0,
        };
        for (start, path) in list(dir, name)?.into_iter().filter(|(start, _)| *start < vouched) {
            let file = File::open(&path).map_err(|e| Error::io(format!("open {}", path.display()), e))?;
            log.segments.push_back(Segment {
                start,
                file: Arc::new(file),
            });
        }
        log.check_covers(floor, vouched)
    }

    /// Refuses a log that lost some of `floor..to`.
    fn check_covers(&self, floor: u64, to: u64) -> Result<()> {
        let mut at = floor;
        for (i, segment) in self.segments.iter().enumerate() {
            let len = segment.file.metadata().map_err(|e| self.failed("read", e))?.len();
            let stop = self.segments.get(i + 1).map_or(len, |next| len.min(next.start));
            if segment.start <= at && at < stop {
                at = stop;
            }
        }
        if at >= to {
            return Ok(());
        }
        Err(Error::Damaged {
            what: self.dir.join(&self.name),
            why: format!("bytes {floor} to {to} of the stream are needed, and they end at {at}"),
        })
    }

    /// The position after the last byte.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Every byte below this is on the disk.
    pub(super) fn synced(&self) -> u64 {
        self.synced
    }

    /// Appends `bytes`.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = self.end;
        let file = self.tail()?;
        file.write_all_at(bytes, end)
            .map_err(|e| self.failed("write", e))?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Moves up to `len` bytes from a pipe to the end of the log, in one system call: killed at any
    /// instant, a byte is in the pipe or in the log (splice(2)). `None` when the pipe is empty,
    /// `Some(0)` when it is empty and nobody can write to it any more.
    pub(super) fn splice_from(&mut self, pipe: impl AsFd, len: usize) -> Result<Option<usize>> {
        let file = self.tail()?;
        let mut at = self.end;
        let got = loop {
            match rustix::pipe::splice(&pipe, None, &*file, Some(&mut at), len, SpliceFlags::NONBLOCK) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other,
            }
        };
        match got {
            Ok(n) => {
                self.end += n as u64;
                Ok(Some(n))
            }
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(e) => Err(self.failed("splice into", e.into())),
        }
    }

    /// The file that takes the next byte.
    fn tail(&mut self) -> Result<Arc<File>> {
        match self.segments.back() {
            Some(last) if self.end < last.start + SEGMENT_BYTES => Ok(Arc::clone(&last.file)),
            _ => {
                let path = self.dir.join(format!("{}.{:016x}", self.name, self.end));
                let file = open_options()
                    .create(true)
                    .truncate(true)
                    .open(&path)
                    .map_err(|e| Error::io(format!("create {}", path.display()), e))?;
                let file = Arc::new(file);
                self.segments.push_back(Segment {
                    start: self.end,
                    file: Arc::clone(&file),
                });
                Ok(file)
            }
        }
    }

    /// The file that holds the byte at `at`, and the position where it hands over to the next.
    pub(super) fn segment(&self, at: u64) -> Option<(Arc<File>, u64)> {
        let i = self.segments.partition_point(|s| s.start <= at).checked_sub(1)?;
        let stop = self.segments.get(i + 1).map_or(self.end, |next| next.start);
        (at < stop).then(|| (Arc::clone(&self.segments[i].file), stop))
    }

    /// Fills `into` from position `at` and says how much there was.
    pub(super) fn read(&self, at: u64, into: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < into.len() {
            let from = at + done as u64;
            let Some((file, stop)) = self.segment(from) else {
                break;
            };
            let want = (into.len() - done).min((stop - from) as usize);
            match file.read_at(&mut into[done..done + want], from) {
                Ok(0) => {
                    return Err(Error::Damaged {
                        what: self.dir.join(&self.name),
                        why: format!("it ends at byte {from} of the stream, before byte {}", self.end),
                    });
                }
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failed("read", e)),
            }
        }
        Ok(done)
    }

    /// Bytes below `to` are no longer needed: removes the files that hold nothing else.
    pub(super) fn trim(&mut self, to: u64) -> Result<()> {
        while self.segments.len() > 1 && self.segments[1].start <= to {
            let path = self
                .dir
                .join(format!("{}.{:016x}", self.name, self.segments[0].start));
            remove(&path)?;
            self.segments.pop_front();
        }
        Ok(())
    }

    /// What is to be synced so that every byte is on the disk; `None` when all is.
    pub(super) fn sync_later(&self) -> Option<Unsynced> {
        if self.synced >= self.end {
            return None;
        }
        let first = self
            .segments
            .partition_point(|s| s.start <= self.synced)
            .saturating_sub(1);
        Some(Unsynced {
            files: self.segments.iter().skip(first).cloned().collect(),
            begun: self.segments.back().is_some_and(|last| last.start >= self.synced),
            dir: self.dir.clone(),
            name: self.name.clone(),
            to: self.end,
        })
    }

    /// [`Unsynced::sync`] came back: everything below `to` is on the disk.
    pub(super) fn note_synced(&mut self, to: u64) {
        self.synced = self.synced.max(to);
    }

    fn failed(&self, verb: &str, e: io::Error) -> Error {
        Error::io(format!("{verb} {}", self.dir.join(&self.name).display()), e)
    }
}

impl Unsynced {
    /// fdatasync(2) of the files, and of the directory where it names a new one. Returns the position below
    /// which all is on the disk.
    pub(super) fn sync(&self) -> Result<u64> {
        let failed = |e| Error::io(format!("sync {}", self.dir.join(&self.name).display()), e);
        for segment in &self.files {
            segment.file.sync_data().map_err(failed)?;
        }
        if self.begun {
            let dir = File::open(&self.dir).map_err(failed)?;
            dir.sync_all().map_err(failed)?;
        }
        Ok(self.to)
    }
}

fn open_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(format!("remove {}", path.display()), e))
        }
        _ => Ok(()),
    }
}

/// The files of the log `name`, by position.
fn list(dir: &Path, name: &str) -> Result<Vec<(u64, PathBuf)>> {
    let failed = |e| Error::io(format!("list {}", dir.display()), e);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let start = path
            .file_name()
            .and_then(|n| n.to_str())
            .and_then(|n| n.strip_prefix(name))
            .and_then(|n| n.strip_prefix('.'))
            .and_then(|n| u64::from_str_radix(n, 16).ok());
        if let Some(start) = start {
            found.push((start, path));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary directory")
    }

    fn bytes(from: u64, len: usize) -> Vec<u8> {
        (from..from + len as u64)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect()
    }

    #[test]
    fn reads_back_across_files_and_trims_whole_files_only() {
        let dir = dir();
        let mut log = Log::create(dir.path(), "output-0").unwrap();
        let chunk = 3 << 20;
        for i in 0..8 {
            log.append(&bytes(i * chunk as u64, chunk)).unwrap();
        }
        assert!(log.segments.len() > 2);
        let mut back = vec![0; 20 << 20];
        assert_eq!(log.read(1 << 20, &mut back).unwrap(), back.len());
        assert_eq!(back, bytes(1 << 20, 20 << 20));
        log.trim(10 << 20).unwrap();
        assert_eq!(list(dir.path(), "output-0").unwrap().len(), log.segments.len());
        let mut back = vec![0; 100];
        log.read(10 << 20, &mut back).unwrap();
        assert_eq!(back, bytes(10 << 20, 100));
        assert!(log.segments[0].start <= 10 << 20);
    }

    #[test]
    fn opening_forgets_what_no_checkpoint_covers() {
        let dir = dir();
        let mut log = Log::create(dir.path(), "output-0").unwrap();
        log.append(&bytes(0, 20 << 20)).unwrap();
        log.append(b"late").unwrap();
        drop(log);
        let mut log = Log::open(dir.path(), "output-0", 5, 1000, &[], false).unwrap();
        assert_eq!(log.end(), 1000);
        log.append(b"other").unwrap();
        let mut back = [0; 10];
        assert_eq!(log.read(995, &mut back).unwrap(), 10);
        assert_eq!(&back[5..], b"other");
        assert_eq!(back[..5], bytes(995, 5));
    }

    #[test]
    fn opening_writes_the_contexts_tail_again_when_the_log_lost_it() {
        let dir = dir();
        for lost in [false, true] {
            let mut log = Log::create(dir.path(), "x").unwrap();
            log.append(&bytes(0, 500)).unwrap();
            let tail = bytes(400, 100);
            if lost {
                log.segments[0].file.set_len(400).unwrap();
            }
            drop(log);
            let log = Log::open(dir.path(), "x", 100, 500, &tail, false).unwrap();
            let mut back = vec![0; 400];
            assert_eq!(log.read(100, &mut back).unwrap(), 400);
            assert_eq!(back, bytes(100, 400));
        }
    }

    #[test]
    fn a_log_that_lost_bytes_is_refused() {
        let dir = dir();
        let mut log = Log::create(dir.path(), "x").unwrap();
        log.append(&bytes(0, 500)).unwrap();
        log.segments[0].file.set_len(450).unwrap();
        drop(log);
        assert!(Log::check(dir.path(), "x", 100, 500, &[]).is_err());
        assert!(Log::check(dir.path(), "x", 460, 500, &bytes(460, 40)).is_ok());
        let error = Log::open(dir.path(), "x", 100, 500, &[], false).unwrap_err();
        assert!(error.to_string().contains("450"), "{error}");
        assert!(Log::open(dir.path(), "x", 460, 500, &bytes(460, 40), false).is_ok());
    }

    #[test]
    fn the_rest_of_an_input_log_is_kept() {
        let dir = dir();
        let mut log = Log::create(dir.path(), "input").unwrap();
        log.append(&bytes(0, 9 << 20)).unwrap();
        log.append(&bytes(9 << 20, 100)).unwrap();
        let end = log.end();
        drop(log);
        let log = Log::open(dir.path(), "input", 10, 40, &[], true).unwrap();
        assert_eq!(log.end(), end);
        let mut back = vec![0; 200];
        log.read(end - 200, &mut back).unwrap();
        assert_eq!(back, bytes(end - 200, 200));
    }
}
