//! How long a program has been at rest since its last checkpoint: after a kill its clock goes on from there.
//!
//! * A program at rest gets no checkpoint. Without this, a kill would take its clock back to the last one, and a wait
//!   would begin again from there.
//! * It is a file in memory (`/dev/shm`), so that nothing is written to a disk: a power cut loses it, and it alone.
//! * It names the checkpoint by its clocks, so that it is never taken for another's.
//! * What cannot be written or read is as if it were not there.

use crate::clocks::{Clock, Clocks};
use crate::context::{Context, VolatileState};
use crate::descriptors::{DescriptorKind, Held};
use rustix::fs::{AtFlags, Mode, OFlags, fstat, mkdir, open, openat, unlinkat};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MAGIC: u64 = u64::from_le_bytes(*b"TPRESTED");

/// The file.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct Record {
    magic: u64,
    /// Clocks of the checkpoint, nanoseconds.
    monotonic_ns: u64,
    realtime_ns: u64,
    /// The program's monotonic clock, until which nothing ran.
    until_ns: u64,
    /// Of the words before: a file that is read while it is written is none.
    sum: u64,
}
const _: () = assert!(size_of::<Record>() == 40);

impl Record {
    fn sum(&self) -> u64 {
        let words = [self.magic, self.monotonic_ns, self.realtime_ns, self.until_ns];
        words.iter().fold(0, |sum: u64, word| sum.rotate_left(17) ^ word)
    }
}

/// The record of one state.
#[derive(Debug)]
pub struct Rested {
    directory: Option<OwnedFd>,
    name: String,
    file: Option<File>,
}

impl Rested {
    /// Of the state in this directory.
    #[must_use]
    pub fn of(state: &Path) -> Rested {
        let meta = std::fs::metadata(state).ok();
        Rested {
            directory: meta.is_some().then(directory).flatten(),
            name: meta.map_or(String::new(), |meta| format!("{:x}-{:x}", meta.dev(), meta.ino())),
            file: None,
        }
    }

    /// Nothing ran since the checkpoint that was made at `checkpoint`, until now.
    pub fn write(&mut self, checkpoint: Clocks, until_ns: u64) {
        if self.file.is_none() {
            self.file = self.open(OFlags::CREATE | OFlags::WRONLY);
        }
        let mut record = Record {
            magic: MAGIC,
            monotonic_ns: checkpoint.monotonic_ns,
            realtime_ns: checkpoint.realtime_ns,
            until_ns,
            sum: 0,
        };
        record.sum = record.sum();
        let written = self
            .file
            .as_ref()
            .map(|file| file.write_all_at(record.as_bytes(), 0));
        if !matches!(written, Some(Ok(()))) {
            self.file = None;
        }
    }

    /// How long nothing ran after the checkpoint that was made at `checkpoint`, nanoseconds.
    #[must_use]
    pub fn ns_since(&self, checkpoint: Clocks) -> u64 {
        let mut bytes = [0; size_of::<Record>()];
        let read = self
            .open(OFlags::RDONLY)
            .map(|file| file.read_exact_at(&mut bytes, 0));
        let record = Record::read_from_bytes(&bytes);
        let (Some(Ok(())), Ok(record)) = (read, record) else {
            return 0;
        };
        let is_its = record.magic == MAGIC
            && record.sum == record.sum()
            && (record.monotonic_ns, record.realtime_ns) == (checkpoint.monotonic_ns, checkpoint.realtime_ns);
        if is_its {
            record.until_ns.saturating_sub(record.monotonic_ns)
        } else {
            0
        }
    }

    /// The state is of no use any more.
    pub fn remove(self) {
        if let Some(directory) = &self.directory {
            let _ = unlinkat(directory, &self.name, AtFlags::empty()); // most have none
        }
    }

    fn open(&self, flags: OFlags) -> Option<File> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = openat(
            self.directory.as_ref()?,
            &self.name,
            flags,
            Mode::RUSR | Mode::WUSR,
        );
        opened.ok().map(File::from)
    }
}

/// The program stood still for so long after the checkpoint: timers that would be set for what they have left from the
/// resume on have less.
pub fn shorten_timers(context: &mut Context, ns: u64) {
    const REAL: usize = 0; // setitimer(2)
    if ns == 0 {
        return;
    }
    // Those of the monotonic clock are set for an instant.
    let is_set_for_what_is_left = |clock: Clock| clock.runs() && clock != Clock::Monotonic;
    let shorten = |left: u64| {
        if left == 0 {
            0
        } else {
            left.saturating_sub(ns).max(1)
        }
    }; // 0 is a timer that is not set
    let VolatileState { held, timers, .. } = &mut context.live;
    let [_, _, seconds, micros] = &mut timers.interval_timers[REAL];
    let left_us = shorten((*seconds * 1_000_000 + *micros) * 1000).div_ceil(1000);
    (*seconds, *micros) = (left_us / 1_000_000, left_us % 1_000_000);
    for (timer, [_, _, seconds, nanos]) in context.fixed.kernel.timers.iter().zip(&mut timers.timers) {
        if is_set_for_what_is_left(timer.clock) {
            let left_ns = shorten(*seconds * 1_000_000_000 + *nanos);
            (*seconds, *nanos) = (left_ns / 1_000_000_000, left_ns % 1_000_000_000);
        }
    }
    for (descriptor, held) in context.fixed.descriptors.iter().zip(held) {
        match (&descriptor.kind, held) {
            (
                DescriptorKind::Timer { clock },
                Held::Countdown { left_ns, .. } | Held::CountdownUntilSet { left_ns, .. },
            ) if is_set_for_what_is_left(*clock) => *left_ns = shorten(*left_ns),
            _ => {}
        }
    }
}

/// This user's own directory in memory. Another's with its name is none.
fn directory() -> Option<OwnedFd> {
    let user = rustix::process::geteuid().as_raw();
    let path = format!("/dev/shm/twinpage-{user}");
    let _ = mkdir(&path, Mode::RWXU); // most often it is there
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = open(&path, flags, Mode::empty()).ok()?;
    let stat = fstat(&directory).ok()?;
    let is_own = stat.st_uid == user && stat.st_mode & 0o077 == 0;
    is_own.then_some(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_checkpoint_that_it_names_is_later() {
        let state = tempfile::tempdir().unwrap();
        let at = |monotonic_ns| Clocks {
            monotonic_ns,
            realtime_ns: 7,
        };
        let mut rested = Rested::of(state.path());
        if rested.directory.is_none() {
            println!("SKIPPED: /dev/shm is not to be written to here");
            return;
        }
        assert_eq!(rested.ns_since(at(100)), 0);
        rested.write(at(100), 150);
        rested.write(at(100), 175);
        assert_eq!(Rested::of(state.path()).ns_since(at(100)), 75);
        assert_eq!(rested.ns_since(at(99)), 0);
        let path = format!(
            "/dev/shm/twinpage-{}/{}",
            rustix::process::geteuid().as_raw(),
            rested.name
        );
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[24] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(rested.ns_since(at(100)), 0, "a damaged one");
        rested.remove();
        assert!(!Path::new(&path).exists());
    }
}
