//! What a program's checkpoints cost: of this session, and of all the program's lives.
//!
//! ```text
//! DIR/statistics   magic "TPSTATS3" | bytes, 4 | crc32c, 4 | postcard: the statistics, the pace, the waits, the last load
//! ```
//!
//! * Percentiles come from histograms of a fixed size, exact to 1.6%, so nothing grows with a run.
//! * Version 2 lacks the last number. Earlier builds wrote no pace, no waits after it, or no load.
//! * The file is written several times a second and never synced: it survives a kill. After a power cut it
//!   may be old or torn; then it begins again. No checkpoint depends on it.

use crate::context::Ending;
use crate::pace::{Chosen, Reason};
use crate::program::Stop;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use twinpage_core::engine::Report;
use twinpage_core::{Geometry, Traffic};
pub use twinpage_measure::{Histogram, Percentiles};

const MAGIC: &[u8; 8] = b"TPSTATS3";
const VERSION_2: &[u8; 8] = b"TPSTATS2";
const HEAD: usize = 16;

/// The parts of a stop, each with its percentiles in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Parts {
    /// Until every thread stood still.
    pub interrupt: Percentiles,
    /// Looking for changed mappings.
    pub layout: Percentiles,
    /// Finding written pages.
    pub scan: Percentiles,
    /// Copying them.
    pub copy: Percentiles,
    /// Registers, descriptors, timers, streams.
    pub state: Percentiles,
}

/// What a session came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// How the program ended.
    pub ended: Option<Ending>,
    /// Commits.
    pub epochs: u64,
    /// The whole stop.
    pub stop_us: Percentiles,
    /// Its parts.
    pub stop_parts_us: Parts,
    /// Pages captured.
    pub pages: u64,
    /// Those of them that were copied before a stop, while the program ran.
    pub early_pages: u64,
    /// Descriptors looked at because a call may have changed them.
    pub descriptors: u64,
    /// Lines that had changed.
    pub lines: u64,
    /// Bytes in them, and in the changed lines of registers and kernel state.
    pub changed_bytes: u64,
    /// Bytes written to the store.
    pub bytes_written: u64,
    /// The one over the other; 0 where nothing had changed.
    pub bytes_per_changed_byte: f64,
    /// Bytes written, by cause.
    pub traffic: Traffic,
    /// What restoring took, for a resume: until the program went on.
    pub restore_ms: Option<f64>,
    /// The same until all its memory was there.
    pub loaded: Option<Loaded>,
    /// The pace of this session.
    pub pace: Chosen,
    /// The signal that suspended the program, if one did.
    pub suspended: Option<i32>,
    /// Checkpoints that waited for descendants, in this session.
    pub waits: Waits,
}

/// How the memory of a program came back at a resume.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Loaded {
    /// Milliseconds until all of it was there.
    pub ms: f64,
    /// Why the program did not go on before, if it did not.
    pub waited: Option<String>,
}

/// Checkpoints that waited until no descendant kept them from being made.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Waits {
    /// How many.
    pub checkpoints: u64,
    /// The longest, in microseconds.
    pub longest_us: u64,
    /// The process that one has waited for so long that it was told, and why; empty when none does.
    pub process: String,
}

/// What checkpoints cost so far.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Statistics {
    /// Commits.
    pub epochs: u64,
    /// Whole stops, in microseconds.
    pub stops: Histogram,
    /// Interrupt, layout, scan, copy, state: the fields of [`Parts`].
    parts: [Histogram; 5],
    /// Restores, in milliseconds; as many as there were resumes.
    pub restores: Histogram,
    /// Pages captured.
    pub pages: u64,
    /// Those of them that were copied before a stop. Of this session alone: not in the file.
    #[serde(skip)]
    pub early_pages: u64,
    /// Lines that had changed.
    pub lines: u64,
    /// Bytes in them, and in the changed lines of registers and kernel state.
    pub changed_bytes: u64,
    /// Bytes written to the store, by cause.
    pub traffic: Traffic,
    /// Descriptors looked at.
    pub descriptors: u64,
}

impl Statistics {
    /// Counts a stop.
    pub fn add_stop(&mut self, stop: &Stop) {
        self.stops.add(stop.total_us);
        let parts = [
            stop.interrupt_us,
            stop.layout_us,
            stop.scan_us,
            stop.copy_us,
            stop.state_us,
        ];
        for (histogram, part_us) in self.parts.iter_mut().zip(parts) {
            histogram.add(part_us);
        }
        self.pages += stop.pages;
        self.early_pages += stop.early_pages;
        self.descriptors += stop.descriptors;
    }

    /// Counts a commit in a store with lines of this size.
    pub fn add_commit(&mut self, report: &Report, line_bytes: u64) {
        self.epochs += 1;
        self.lines += report.lines;
        self.changed_bytes += report.lines * line_bytes + report.traffic.context_bytes;
        self.traffic = [self.traffic, report.traffic].into_iter().sum();
    }

    /// Counts what another one counted.
    pub fn merge(&mut self, other: &Statistics) {
        self.epochs += other.epochs;
        self.stops.merge(&other.stops);
        for (histogram, more) in self.parts.iter_mut().zip(&other.parts) {
            histogram.merge(more);
        }
        self.restores.merge(&other.restores);
        self.pages += other.pages;
        self.early_pages += other.early_pages;
        self.descriptors += other.descriptors;
        self.lines += other.lines;
        self.changed_bytes += other.changed_bytes;
        self.traffic = [self.traffic, other.traffic].into_iter().sum();
    }

    /// What was counted since an earlier look at the same program.
    #[must_use]
    pub fn since(&self, earlier: &Statistics) -> Statistics {
        Statistics {
            epochs: self.epochs - earlier.epochs,
            stops: self.stops.since(&earlier.stops),
            parts: std::array::from_fn(|part| self.parts[part].since(&earlier.parts[part])),
            restores: self.restores.since(&earlier.restores),
            pages: self.pages - earlier.pages,
            early_pages: self.early_pages - earlier.early_pages,
            descriptors: self.descriptors - earlier.descriptors,
            lines: self.lines - earlier.lines,
            changed_bytes: self.changed_bytes - earlier.changed_bytes,
            traffic: self.traffic - earlier.traffic,
        }
    }

    /// Write amplification: bytes written to the store for each byte of changed lines.
    #[must_use]
    pub fn bytes_per_changed_byte(&self) -> f64 {
        match self.changed_bytes {
            0 => 0.0,
            changed => self.traffic.total_bytes() as f64 / changed as f64,
        }
    }

    /// For people and scripts.
    #[must_use]
    pub fn summary(&self, ended: Option<Ending>) -> Summary {
        let [interrupt, layout, scan, copy, state] = [0, 1, 2, 3, 4].map(|n| self.parts[n].percentiles());
        Summary {
            ended,
            epochs: self.epochs,
            stop_us: self.stops.percentiles(),
            stop_parts_us: Parts {
                interrupt,
                layout,
                scan,
                copy,
                state,
            },
            pages: self.pages,
            early_pages: self.early_pages,
            descriptors: self.descriptors,
            lines: self.lines,
            changed_bytes: self.changed_bytes,
            bytes_written: self.traffic.total_bytes(),
            bytes_per_changed_byte: self.bytes_per_changed_byte(),
            traffic: self.traffic,
            restore_ms: None,
            loaded: None,
            pace: Chosen::default(),
            suspended: None,
            waits: Waits::default(),
        }
    }

    fn is_sound(&self) -> bool {
        let mut all = self.parts.iter().chain([&self.stops, &self.restores]);
        all.all(Histogram::is_sound)
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join("statistics")
}

/// The statistics of all lives of the program in the state directory `dir`; `None` when there are
/// none that can be believed.
#[must_use]
pub fn read(dir: &Path) -> Option<Statistics> {
    read_all(dir).map(|kept| kept.statistics)
}

/// The pace that was chosen last, over all lives; `None` as above.
#[must_use]
pub fn read_pace(dir: &Path) -> Option<Chosen> {
    read_all(dir).and_then(|kept| kept.pace)
}

/// How checkpoints waited for descendants, over all lives; `None` as above.
#[must_use]
pub fn read_waits(dir: &Path) -> Option<Waits> {
    read_all(dir).map(|kept| kept.waits)
}

/// How the program's memory came back at the last resume; `None` when there was none, or as above.
#[must_use]
pub fn read_loaded(dir: &Path) -> Option<Loaded> {
    read_all(dir).and_then(|kept| kept.loaded)
}

/// What the file holds.
#[derive(Clone, PartialEq, Debug, Default)]
struct Kept {
    statistics: Statistics,
    pace: Option<Chosen>,
    waits: Waits,
    loaded: Option<Loaded>,
}

fn read_all(dir: &Path) -> Option<Kept> {
    decode(&std::fs::read(path(dir)).ok()?)
}

fn decode(bytes: &[u8]) -> Option<Kept> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let is_old = bytes.starts_with(VERSION_2);
    if !is_old && !bytes.starts_with(MAGIC) {
        return None;
    }
    let body = bytes.get(HEAD..HEAD.checked_add(word(8)? as usize)?)?;
    if crc32c::crc32c(body) != word(12)? {
        return None;
    }
    let mut body = body.to_vec();
    if is_old {
        body.push(0); // descriptors
    }
    let (statistics, rest): (Statistics, _) = postcard::take_from_bytes(&body).ok()?;
    let (pace, rest) = postcard::take_from_bytes(rest)
        .map_or((None, &[][..]), |(pace, rest): (Chosen, _)| (Some(pace), rest));
    let (waits, rest) = postcard::take_from_bytes(rest).unwrap_or_default();
    let kept = Kept {
        statistics,
        pace,
        waits,
        loaded: postcard::from_bytes(rest).unwrap_or_default(),
    };
    Some(kept).filter(|kept| kept.statistics.is_sound())
}

fn encode(
    statistics: &Statistics,
    pace: &Chosen,
    waits: &Waits,
    loaded: Option<&Loaded>,
    into: &mut Vec<u8>,
) {
    into.clear();
    into.extend_from_slice(MAGIC);
    into.resize(HEAD, 0);
    let Ok(mut bytes) = postcard::to_extend(&(statistics, pace, waits, loaded), std::mem::take(into)) else {
        return; // never: every field can be encoded
    };
    let body = &bytes[HEAD..];
    let (length, sum) = (body.len() as u32, crc32c::crc32c(body));
    bytes[8..12].copy_from_slice(&length.to_le_bytes());
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    *into = bytes;
}

/// Keeps the statistics of a session and, in the state directory, those of all lives.
#[derive(Debug)]
pub struct Ledger {
    session: Statistics,
    life: Statistics,
    line_bytes: u64,
    file: Option<File>,
    bytes: Vec<u8>,
    saved: Option<Instant>,
    began: Instant,
    /// This session's pace, and what earlier ones ran and took.
    pace: Chosen,
    before: Chosen,
    /// This session's, and all lives'.
    waits: [Waits; 2],
    loaded: Option<Loaded>,
}

/// Statistics are at most this old after a kill.
const SAVE_EVERY: Duration = Duration::from_millis(100);

impl Drop for Ledger {
    fn drop(&mut self) {
        self.write();
    }
}

impl Ledger {
    /// Goes on with what is in the state directory `dir`, or begins. Statistics that cannot be kept
    /// stop no program.
    #[must_use]
    pub fn open(dir: &Path, geometry: Geometry) -> Ledger {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let kept = read_all(dir).unwrap_or_default();
        let before = Waits {
            process: String::new(),
            ..kept.waits
        };
        Ledger {
            session: Statistics::default(),
            life: kept.statistics,
            began: Instant::now(),
            pace: Chosen::default(),
            before: kept.pace.unwrap_or_default(),
            waits: [Waits::default(), before],
            loaded: kept.loaded,
            line_bytes: geometry.line_bytes() as u64,
            file: options.open(path(dir)).ok(),
            bytes: Vec::new(),
            saved: None,
        }
    }

    /// The program was restored: it went on after so long, and then its memory came back.
    pub fn restored(&mut self, ms: f64, loaded: Loaded) {
        self.loaded = Some(loaded);
        self.session.restores.add(ms);
        self.life.restores.add(ms);
        self.save();
    }

    /// What happened since the last call: takes the stops, and counts a commit.
    pub fn add(&mut self, stops: &mut Vec<Stop>, report: Option<&Report>) {
        for statistics in [&mut self.session, &mut self.life] {
            stops.iter().for_each(|stop| statistics.add_stop(stop));
            if let Some(report) = report {
                statistics.add_commit(report, self.line_bytes);
            }
        }
        stops.clear();
        self.save();
    }

    /// Whether there is something to add.
    #[must_use]
    pub fn has_news(&self, stops: &[Stop], report: Option<&Report>) -> bool {
        !stops.is_empty() || report.is_some()
    }

    /// A watched call, or something else the program stopped for, took so long.
    pub fn watched(&mut self, took: Duration) {
        self.pace.ours_s += took.as_secs_f64();
    }

    /// A checkpoint took so much of the program's time, and the next regular one comes after this interval.
    pub fn chosen(&mut self, (interval, why): (Duration, Reason), took: Duration) {
        self.pace.every_us = interval.as_micros() as u64;
        self.pace.why = why;
        self.pace.ours_s += took.as_secs_f64();
    }

    /// A checkpoint waited for descendants, and does no longer.
    pub fn waited(&mut self, time: Duration) {
        for waits in &mut self.waits {
            waits.checkpoints += 1;
            waits.longest_us = waits.longest_us.max(time.as_micros() as u64);
            waits.process.clear();
        }
    }

    /// A checkpoint waits for this process, and has for long.
    pub fn waits_for(&mut self, process: &str) {
        if self.waits[1].process != process {
            self.waits
                .iter_mut()
                .for_each(|waits| process.clone_into(&mut waits.process));
            self.write();
        }
    }

    /// The pace of this session, and what it came to.
    #[must_use]
    pub fn spent(&self) -> Chosen {
        Chosen {
            run_s: self.began.elapsed().as_secs_f64(),
            ..self.pace
        }
    }

    /// This session's, for people and scripts.
    #[must_use]
    pub fn summary(&self, ended: Option<Ending>) -> Summary {
        Summary {
            pace: self.spent(),
            waits: self.waits[0].clone(),
            ..self.session.summary(ended)
        }
    }

    /// Writes all lives' statistics, at most every [`SAVE_EVERY`]: less often than commits come.
    fn save(&mut self) {
        if self.saved.is_some_and(|saved| saved.elapsed() < SAVE_EVERY) {
            return;
        }
        self.saved = Some(Instant::now());
        self.write();
    }

    fn write(&mut self) {
        if let Some(file) = &self.file {
            let pace = Chosen {
                run_s: self.before.run_s + self.began.elapsed().as_secs_f64(),
                ours_s: self.before.ours_s + self.pace.ours_s,
                ..self.pace
            };
            encode(
                &self.life,
                &pace,
                &self.waits[1],
                self.loaded.as_ref(),
                &mut self.bytes,
            );
            let _ = file.write_all_at(&self.bytes, 0); // a full disk stops no program
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_2_is_read() {
        let statistics = Statistics {
            epochs: 7,
            ..Statistics::default()
        };
        let mut body = postcard::to_extend(&statistics, Vec::new()).unwrap();
        body.pop(); // descriptors
        let mut bytes = [&[0; HEAD], &body[..]].concat();
        bytes[..8].copy_from_slice(VERSION_2);
        bytes[8..12].copy_from_slice(&(body.len() as u32).to_le_bytes());
        bytes[12..16].copy_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        let kept = Kept {
            statistics,
            ..Kept::default()
        };
        assert_eq!(decode(&bytes), Some(kept));
    }

    #[test]
    fn the_ledger_goes_on_over_lives_and_bad_files() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()), None);
        let stop = Stop {
            total_us: 500.0,
            pages: 3,
            ..Stop::default()
        };
        let report = Report {
            lines: 2,
            ..Report::default()
        };
        for life in 1..=3 {
            let mut ledger = Ledger::open(dir.path(), Geometry::MEMORY);
            ledger.restored(7.0, Loaded::default());
            ledger.add(&mut vec![stop, stop], Some(&report));
            assert_eq!(ledger.session.stops.count(), 2);
            drop(ledger);
            let found = read(dir.path()).unwrap();
            assert_eq!((found.epochs, found.stops.count()), (life, 2 * life));
            assert_eq!((found.changed_bytes, found.restores.count()), (128 * life, life));
        }
        let bytes = std::fs::read(path(dir.path())).unwrap();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            assert_eq!(decode(&flipped), None, "byte {at}");
            assert_eq!(decode(&bytes[..at]), None);
        }
        std::fs::write(path(dir.path()), b"nonsense").unwrap();
        Ledger::open(dir.path(), Geometry::MEMORY).add(&mut vec![stop], None);
        assert_eq!(read(dir.path()).unwrap().stops.count(), 1);
    }
}
