//! A seeded generator, and the real ends of streams.

use rustix::fd::OwnedFd;
use std::fs::File;
use std::io::Read;
use std::thread::JoinHandle;

/// A small generator (splitmix64): the same seed, the same numbers.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Reads everything there is to read, in the background.
pub(crate) fn collect(fd: OwnedFd) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        let mut file = File::from(fd);
        let mut bytes = [0; 65536];
        loop {
            match file.read(&mut bytes) {
                Ok(n) if n > 0 => all.extend(&bytes[..n]),
                // The master of a terminal that no process has open reads an error.
                _ => return all,
            }
        }
    })
}

/// /dev/null.
pub(crate) fn null() -> OwnedFd {
    File::open("/dev/null").expect("/dev/null").into()
}

/// Fails with the first difference.
#[track_caller]
pub(crate) fn same(found: &[u8], wanted: &[u8], what: &str) {
    if found != wanted {
        let at = found.iter().zip(wanted).take_while(|(a, b)| a == b).count();
        let near =
            |b: &[u8]| String::from_utf8_lossy(&b[at.saturating_sub(40)..b.len().min(at + 40)]).into_owned();
        panic!(
            "{what}: {} bytes instead of {}, different from byte {at} on:\n{:?}\n{:?}",
            found.len(),
            wanted.len(),
            near(found),
            near(wanted)
        );
    }
}

/// A pipe that no child of another test inherits.
pub(crate) fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe")
}
