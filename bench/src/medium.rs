//! The medium itself: what it is, how much it takes, and how much was written to it.

use crate::engine::Result;
use rustix::fs::{OFlags, statfs};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// `TMPFS_MAGIC`, linux/magic.h.
const TMPFS: i64 = 0x0102_1994;

/// Whether files in `directory` stay in memory.
pub(crate) fn is_memory(directory: &Path) -> Result<bool> {
    let status =
        statfs(directory).map_err(|error| format!("cannot look at {}: {error}", directory.display()))?;
    Ok(status.f_type as i64 == TMPFS)
}

/// Everything in the file system of `directory` is where it stays.
pub(crate) fn sync(directory: &Path) -> Result<()> {
    let synced = File::open(directory).and_then(|file| Ok(rustix::fs::syncfs(file)?));
    synced.map_err(|error| format!("cannot sync {}: {error}", directory.display()))
}

/// Bytes this process has written, as the system counts: on a memory file system what was given to calls
/// (`wchar`), elsewhere the pages that were made dirty and will go to the disk (`write_bytes`, proc_pid_io(5)).
pub(crate) fn written(in_memory: bool) -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/io")
        .map_err(|error| format!("cannot read /proc/self/io: {error}"))?;
    let name = if in_memory { "wchar: " } else { "write_bytes: " };
    let count = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.parse().ok());
    count.ok_or_else(|| format!("/proc/self/io has no {name}"))
}

/// What a medium takes, measured.
#[derive(Serialize, Clone, Debug)]
pub(crate) struct Bandwidth {
    pub(crate) path: String,
    pub(crate) medium: &'static str,
    /// Bytes a second, one after the other.
    pub(crate) sequential_bytes_per_s: f64,
    /// Bytes a second, of 4 KiB pieces anywhere in 256 MiB, a flush for every 512 of them.
    pub(crate) scattered_bytes_per_s: f64,
    /// Microseconds of a flush of one 4 KiB piece, the median.
    pub(crate) flush_us: f64,
}

/// How a medium is called.
pub(crate) fn name(in_memory: bool) -> &'static str {
    if in_memory { "memory file" } else { "disk file" }
}

const FILE_BYTES: u64 = 256 << 20;
const PIECE: usize = 4096;
const CHUNK: usize = 1 << 20;

/// Measures the medium that `directory` is on.
pub(crate) fn measure(directory: &Path, length: Duration) -> Result<Bandwidth> {
    let bandwidth = || -> std::io::Result<Bandwidth> {
        let in_memory = is_memory(directory).map_err(std::io::Error::other)?;
        let path = directory.join("bandwidth");
        let file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .custom_flags(OFlags::CLOEXEC.bits() as i32)
            .open(&path)?;
        let chunk: Vec<u8> = (0..CHUNK).map(|at| (at * 7) as u8).collect();
        for at in (0..FILE_BYTES).step_by(CHUNK) {
            file.write_all_at(&chunk, at)?;
        }
        file.sync_all()?;
        let sequential_bytes_per_s = sequential(&file, &chunk, length)?;
        let scattered_bytes_per_s = scattered(&file, &chunk, length)?;
        let flush_us = flush(&file, &chunk)?;
        std::fs::remove_file(path)?;
        Ok(Bandwidth {
            path: directory.display().to_string(),
            medium: name(in_memory),
            sequential_bytes_per_s,
            scattered_bytes_per_s,
            flush_us,
        })
    };
    bandwidth().map_err(|error| format!("cannot measure {}: {error}", directory.display()))
}

fn sequential(file: &File, chunk: &[u8], length: Duration) -> std::io::Result<f64> {
    let (begun, mut bytes) = (Instant::now(), 0);
    while begun.elapsed() < length {
        for _ in 0..64 {
            file.write_all_at(chunk, bytes % FILE_BYTES)?;
            bytes += chunk.len() as u64;
        }
        file.sync_data()?;
    }
    Ok(bytes as f64 / begun.elapsed().as_secs_f64())
}

fn scattered(file: &File, chunk: &[u8], length: Duration) -> std::io::Result<f64> {
    let mut random = fastrand::Rng::with_seed(1);
    let (begun, mut bytes) = (Instant::now(), 0);
    while begun.elapsed() < length {
        for _ in 0..512 {
            let piece = random.u64(..FILE_BYTES / PIECE as u64);
            file.write_all_at(&chunk[..PIECE], piece * PIECE as u64)?;
            bytes += PIECE as u64;
        }
        file.sync_data()?;
    }
    Ok(bytes as f64 / begun.elapsed().as_secs_f64())
}

fn flush(file: &File, chunk: &[u8]) -> std::io::Result<f64> {
    let mut times = Vec::new();
    for at in 0..21 {
        let begun = Instant::now();
        file.write_all_at(&chunk[..PIECE], at * CHUNK as u64)?;
        file.sync_data()?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(twinpage_commands::report::median(&mut times))
}
