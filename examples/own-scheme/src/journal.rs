//! A workload of one's own: each core appends records to a ring, then moves the ring's head.
//!
//! * A record holds its number: what must lie in the rings follows from the heads alone.

use twinpage_lab::op::PAGE_BYTES;
use twinpage_lab::workload::list::Setting;
use twinpage_lab::{Port, Progress, Space, Workload};

/// Bytes of a record, of which the first eight are its number.
const RECORD: u64 = 128;
/// Records appended in a batch.
const BATCH: u64 = 64;

pub struct Journal {
    /// Bytes of each core's part: a page for the head, then the ring.
    part: u64,
    /// Records each core has appended.
    appended: Vec<u64>,
}

pub fn make(setting: &Setting) -> Box<dyn Workload> {
    let bytes = (256e6 * setting.scale) as u64 / setting.cores as u64;
    Box::new(Journal {
        part: bytes.next_multiple_of(PAGE_BYTES) + PAGE_BYTES,
        appended: vec![0; setting.cores],
    })
}

impl Journal {
    /// Records that fit into a ring.
    fn room(&self) -> u64 {
        (self.part - PAGE_BYTES) / RECORD
    }

    /// Where record `number` of a core lies.
    fn at(&self, core: usize, number: u64) -> u64 {
        self.head(core) + PAGE_BYTES + number % self.room() * RECORD
    }

    /// Where a core's head lies.
    fn head(&self, core: usize) -> u64 {
        core as u64 * self.part
    }
}

impl Workload for Journal {
    fn name(&self) -> &str {
        "journal"
    }

    fn footprint_bytes(&self) -> u64 {
        self.part * self.appended.len() as u64
    }

    fn fill(&self, _: &mut Space) {}

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        for _ in 0..BATCH {
            let number = self.appended[core];
            let mut record = [number as u8; RECORD as usize];
            record[..8].copy_from_slice(&number.to_le_bytes());
            port.work(20);
            port.store_bytes(self.at(core, number), &record);
            port.store(self.head(core), number + 1);
            self.appended[core] += 1;
        }
        Progress::More
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        let word = |at: u64| {
            let bytes = space.at(at, 8).try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        for (core, &appended) in self.appended.iter().enumerate() {
            let head = word(self.head(core));
            if head != appended {
                return Err(format!(
                    "core {core} appended {appended} records, its head says {head}"
                ));
            }
            for number in appended.saturating_sub(self.room())..appended {
                let found = word(self.at(core, number));
                if found != number {
                    return Err(format!("core {core}: record {found} lies where {number} should"));
                }
            }
        }
        Ok(())
    }
}
