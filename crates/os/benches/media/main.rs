//! How fast the media are: `cargo bench -p twinpage-os`. Where files go: TMPDIR (a disk), /dev/shm.
//!
//! Each figure stands beside the bare deed it is made of, in the same run.

mod uring;

use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use twinpage_core::dual_page::{DualPage, Options};
use twinpage_core::{Medium, PageId, PageLines, Scheme};
use twinpage_os::{AnyMedium, Durability, FileMedium, MemoryMedium};
use uring::Ring;

const DISK_LINE: usize = 4096;
const DISK_BYTES: u64 = 256 << 20;
const MEMORY_LINE: usize = 64;
const MEMORY_BYTES: u64 = 256 << 20;

/// Scattered places, the same in every run (xorshift64).
struct Scatter(u64);

impl Scatter {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn main() {
    // Without it, this is a test run: once around is enough.
    let measure = std::env::args().any(|arg| arg == "--bench");
    memory(if measure { 4_000_000 } else { 1000 });
    disk(measure);
    for durability in [Durability::Memory, Durability::Disk] {
        commits(durability, measure);
    }
}

/// Whole commits of the dual-page scheme: lines here and there in a store of 256 MiB.
fn commits(durability: Durability, measure: bool) {
    let shm = Path::new("/dev/shm");
    let folder = match durability {
        Durability::Memory if shm.is_dir() => tempfile::tempdir_in(shm),
        _ => tempfile::tempdir(),
    }
    .expect("a folder");
    let medium = AnyMedium::create(folder.path().join("store"), durability).expect("a file");
    let geometry = medium.geometry();
    let line = geometry.line_bytes();
    let mut store = DualPage::create(medium, &Options::new(geometry)).expect("a store");
    let pages = DISK_BYTES / geometry.page_bytes() as u64;
    let whole = vec![1; geometry.page_bytes()];
    for page in 0..pages {
        let lines = PageLines::from(PageId(page), 0, &whole, line);
        let _ = store.write(lines).expect("a write");
    }
    store.commit(b"").expect("a commit");
    let mut scatter = Scatter(88172645463325252);
    for (count, rounds) in [(65, 60), (655, 20), (6553, 5)] {
        let rounds = if measure { rounds } else { 1 };
        let mut took = Vec::new();
        let before = store.info().traffic.total_bytes();
        for round in 0..rounds {
            let bytes = vec![round as u8; line];
            let places: Vec<_> = (0..count)
                .map(|_| (scatter.below(pages), scatter.below(64)))
                .collect();
            let start = Instant::now();
            for &(page, first) in &places {
                let lines = PageLines::from(PageId(page), first as usize, &bytes, line);
                let _ = store.write(lines).expect("a write");
            }
            store.commit(b"").expect("a commit");
            took.push(start.elapsed());
        }
        epochs(
            &format!("{durability:?}: a dual-page commit of {count} lines of {line} bytes"),
            took,
        );
        println!(
            "{:60} {} bytes an epoch",
            "",
            (store.info().traffic.total_bytes() - before) / rounds
        );
    }
}

fn memory(writes: u64) {
    let folder = if Path::new("/dev/shm").is_dir() {
        Path::new("/dev/shm")
    } else {
        Path::new("/tmp")
    };
    let folder = tempfile::tempdir_in(folder).expect("a folder in memory");
    let mut medium = MemoryMedium::create(folder.path().join("store")).expect("a memory file");
    medium.grow(MEMORY_BYTES).expect("room");
    let start = Instant::now();
    for at in (0..MEMORY_BYTES).step_by(1 << 20) {
        medium.write(at, &[1; 1 << 20]).expect("a first write");
    }
    rate("memory: first writes of 1 MiB", MEMORY_BYTES, start.elapsed());

    let lines = MEMORY_BYTES / MEMORY_LINE as u64;
    let mut scatter = Scatter(88172645463325252);
    let before = medium.written_bytes();
    let start = Instant::now();
    for k in 0..writes {
        let line = [k as u8; MEMORY_LINE];
        medium
            .write(scatter.below(lines) * MEMORY_LINE as u64, &line)
            .expect("a write");
    }
    medium.fence().expect("a fence");
    each(
        "memory: random 64-byte lines",
        writes,
        start.elapsed(),
        medium.written_bytes() - before,
    );

    let mut plain = vec![1u8; MEMORY_BYTES as usize];
    let start = Instant::now();
    for k in 0..writes {
        let line = [k as u8; MEMORY_LINE];
        let at = scatter.below(lines) as usize * MEMORY_LINE;
        plain[at..at + MEMORY_LINE].copy_from_slice(&line);
    }
    std::hint::black_box(&plain);
    each(
        "  a plain vector, on huge pages",
        writes,
        start.elapsed(),
        writes * MEMORY_LINE as u64,
    );

    let source = vec![2u8; 4 << 20];
    for piece in [4096, 256 << 10] {
        let start = Instant::now();
        for at in (0..MEMORY_BYTES).step_by(piece) {
            medium.write(at, &source[..piece]).expect("a write");
        }
        rate(
            &format!("memory: writes of {piece} bytes in order"),
            MEMORY_BYTES,
            start.elapsed(),
        );
        let start = Instant::now();
        for at in (0..MEMORY_BYTES as usize).step_by(piece) {
            plain[at..at + piece].copy_from_slice(&source[..piece]);
        }
        std::hint::black_box(&plain);
        rate("  a plain vector, on huge pages", MEMORY_BYTES, start.elapsed());
    }
}

/// A line where `O_DIRECT` wants it.
#[repr(align(4096))]
struct Line([u8; DISK_LINE]);

/// Scattered lines and a fence, by each road, the roads in turn.
fn disk(measure: bool) {
    let folder = tempfile::tempdir().expect("a folder on a disk");
    let path = folder.path().join("store");
    let mut medium = FileMedium::create(&path).expect("a file");
    medium.grow(DISK_BYTES).expect("room");
    for at in (0..DISK_BYTES).step_by(DISK_LINE) {
        medium.write(at, &[1; DISK_LINE]).expect("a first write");
    }
    medium.fence().expect("a fence");
    let plain = File::options()
        .read(true)
        .write(true)
        .open(&path)
        .expect("the file");
    // A file of its own, none of which is in the page cache.
    let past = folder.path().join("past");
    std::fs::copy(&path, &past).expect("a copy");
    let uncached = File::open(&past).expect("the copy");
    uncached.sync_all().expect("a sync");
    fadvise(&uncached, 0, None, Advice::DontNeed).expect("its pages dropped");
    let mut rings = [Ring::open(&path, false).ok(), Ring::open(&past, true).ok()];

    let mut scatter = Scatter(88172645463325252);
    let lines = DISK_BYTES / DISK_LINE as u64;
    for (count, rounds) in [(1, 60), (65, 40), (655, 15), (6553, 5)] {
        let rounds = if measure { rounds } else { 1 };
        let mut took: [Vec<Duration>; 4] = Default::default();
        let mut again: [Vec<Duration>; 4] = Default::default();
        let before = medium.written_bytes();
        for round in 0..rounds {
            let line = Line([round as u8; DISK_LINE]);
            for road in 0..took.len() {
                let places: Vec<u64> = (0..count)
                    .map(|_| scatter.below(lines) * DISK_LINE as u64)
                    .collect();
                let start = Instant::now();
                match road {
                    0 => {
                        for &at in &places {
                            medium.write(at, &line.0).expect("a write");
                        }
                        medium.fence().expect("a fence");
                    }
                    1 => {
                        for &at in &places {
                            plain.write_all_at(&line.0, at).expect("a write");
                        }
                        plain.sync_data().expect("a sync");
                    }
                    _ => match &mut rings[road - 2] {
                        Some(ring) => ring.write(&places, &line.0).expect("a write"),
                        None => continue,
                    },
                }
                took[road].push(start.elapsed());
                let start = Instant::now();
                let mut into = [0; DISK_LINE];
                let file = if road == 3 { &uncached } else { &plain };
                for &at in &places {
                    file.read_exact_at(&mut into, at).expect("a read");
                }
                again[road].push(start.elapsed());
                if road == 3 {
                    fadvise(file, 0, None, Advice::DontNeed).expect("what was read dropped");
                }
            }
        }
        let [ours, bare, ring, direct] = took;
        epochs(&format!("disk: {count} lines of 4 KiB and a fence"), ours);
        let bytes = (medium.written_bytes() - before) / rounds;
        println!("{:60} {bytes} bytes an epoch", "");
        epochs("  pwrite and fdatasync, nothing else", bare);
        epochs("  io_uring over the page cache", ring);
        epochs("  io_uring past the page cache (O_DIRECT)", direct);
        let [ours, _, _, direct] = again;
        epochs("  reading them again: after the medium", ours);
        epochs("  reading them again: after O_DIRECT", direct);
    }
}

fn rate(what: &str, bytes: u64, took: Duration) {
    println!("{what:60} {:8.2} GB/s", bytes as f64 / took.as_secs_f64() / 1e9);
}

fn each(what: &str, times: u64, took: Duration, bytes: u64) {
    let each_ns = took.as_secs_f64() * 1e9 / times as f64;
    println!(
        "{what:60} {:8.2} M/s {each_ns:8.1} ns {bytes} bytes",
        1e3 / each_ns
    );
}

fn epochs(what: &str, mut took: Vec<Duration>) {
    if took.is_empty() {
        return println!("{what:60} not here");
    }
    took.sort();
    let p50 = took[took.len() / 2].as_secs_f64();
    let p90 = took[took.len() * 9 / 10].as_secs_f64();
    println!(
        "{what:60} {:8.1} /s p50 {:.3} ms p90 {:.3} ms",
        1.0 / p50,
        p50 * 1e3,
        p90 * 1e3
    );
}
