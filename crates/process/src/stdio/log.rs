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
//! * What a context needs of a log has the checksum that the context says.

use super::error::{Error, Result};
use super::sums::Sums;
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
/// What is moved from a pipe at once.
pub(super) const SPLICE_BYTES: usize = 65536;

/// One file of a log.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// The position of its first byte.
    pub(super) start: u64,
    /// The file; offsets in it are stream positions.
    pub(super) file: Arc<File>,
}

/// What a context needs of a log: bytes `floor..end`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept<'a> {
    pub(super) floor: u64,
    pub(super) end: u64,
    /// The last of them, which the log may have lost.
    pub(super) tail: &'a [u8],
    /// The running sums at `floor` and `end`; `None` where an earlier build wrote it.
    pub(super) sums: Option<[u32; 2]>,
}

impl Kept<'_> {
    /// The log must hold everything below.
    fn vouched(&self) -> u64 {
        self.end.saturating_sub(self.tail.len() as u64).max(self.floor)
    }

    /// The end of the tail, from position `at` on.
    fn tail_from(&self, at: u64) -> &[u8] {
        let left = self.end.saturating_sub(at).min(self.tail.len() as u64) as usize;
        &self.tail[self.tail.len() - left..]
    }
}

/// What may be done with the files of a log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Look,
    Write,
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
    sums: Sums,
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
            sums: Sums::new(0, 0),
        })
    }

    /// The log as a context left it, to go on. The tail that it lost is written again. What lies past the
    /// context's end belongs to no checkpoint and is forgotten, unless `keep_rest` says that it is still
    /// wanted (input).
    pub(super) fn open(dir: &Path, name: &str, kept: Kept<'_>, keep_rest: bool) -> Result<Log> {
        let mut log = Log::find(dir, name, kept, keep_rest, Access::Write)?;
        log.append(kept.tail_from(log.end))?;
        log.verify(kept)?;
        Ok(log)
    }

    /// The log as [`Log::open`] has it, to be looked at only: a lost tail stays lost.
    pub(super) fn look(dir: &Path, name: &str, kept: Kept<'_>, keep_rest: bool) -> Result<Log> {
        let log = Log::find(dir, name, kept, keep_rest, Access::Look)?;
        log.verify(kept)?;
        Ok(log)
    }

    fn find(dir: &Path, name: &str, kept: Kept<'_>, keep_rest: bool, access: Access) -> Result<Log> {
        let vouched = kept.vouched();
        let mut log = Log {
            dir: dir.into(),
            name: name.into(),
            segments: VecDeque::new(),
            end: vouched,
            synced: 0,
            sums: Sums::new(kept.floor, kept.sums.map_or(0, |[floor, _]| floor)),
        };
        let mut rest = vouched;
        for (start, path) in list(dir, name)? {
            if start >= vouched && !(keep_rest && start == rest) {
                if access == Access::Write {
                    remove(&path)?;
                }
                continue;
            }
            let file = OpenOptions::new()
                .read(true)
                .write(access == Access::Write)
                .open(&path)
                .map_err(|e| Error::io(format!("open {}", path.display()), e))?;
            let len = file
                .metadata()
                .map_err(|e| Error::io(format!("read {}", path.display()), e))?
                .len();
            if rest < len && (start < vouched || keep_rest) {
                rest = len;
            }
            let file = Arc::new(file);
            log.segments.push_back(Segment { start, file });
        }
        log.check_covers(kept.floor, vouched)?;
        if keep_rest {
            log.end = rest.max(vouched);
        }
        log.sum_up()?;
        Ok(log)
    }

    /// Refuses a log whose bytes are not those that the context needs.
    fn verify(&self, kept: Kept<'_>) -> Result<()> {
        let Some([_, wanted]) = kept.sums else {
            return Ok(());
        };
        let found = self.sum(kept.end.min(self.end))?;
        if crc32c::crc32c_append(found, kept.tail_from(self.end)) == wanted {
            return Ok(());
        }
        Err(self.damaged(format!(
            "bytes {} to {} of the stream do not have their checksum",
            kept.floor, kept.end
        )))
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
        Err(self.damaged(format!(
            "bytes {floor} to {to} of the stream are needed, and they end at {at}"
        )))
    }

    /// The running sum at a position: of all bytes of the stream before it (in a state of an earlier build: since
    /// the log was opened).
    pub(super) fn sum(&self, at: u64) -> Result<u32> {
        self.sums.at(at, &|at, into| self.read(at, into))
    }

    /// The running sums at both ends of what a checkpoint needs. No later one needs anything below `floor`.
    pub(super) fn sums(&mut self, floor: u64, end: u64) -> Result<[u32; 2]> {
        let sums = [self.sum(floor)?, self.sum(end)?];
        self.sums.forget_below(floor, sums[0]);
        Ok(sums)
    }

    /// Sums what was added to the files.
    fn sum_up(&mut self) -> Result<()> {
        let mut sums = std::mem::take(&mut self.sums);
        let done = sums.extend_to(self.end, &|at, into| self.read(at, into));
        self.sums = sums;
        done
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
        if self.sums.end() == end {
            self.sums.extend(bytes);
        }
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Moves up to `len` bytes from a pipe to the end of the log, in one system call: killed at any
    /// instant, a byte is in the pipe or in the log (splice(2)). `None` when the pipe is empty,
    /// `Some(0)` when it is empty and has no writer any more.
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
                self.sum_up()?;
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
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
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
                    let why = format!("it ends at byte {from} of the stream, before byte {}", self.end);
                    return Err(self.damaged(why));
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

    pub(super) fn damaged(&self, why: String) -> Error {
        let what = self.dir.join(&self.name);
        Error::Damaged { what, why }
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
mod tests;
