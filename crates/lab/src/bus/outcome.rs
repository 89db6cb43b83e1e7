//! What a run counts, and the energy that follows from the counts alone.

use crate::device::energy::Commands;

/// Bits of a line.
const LINE_BITS: f64 = 512.0;

/// What happened in a run, after its warm-up.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct Counts {
    /// Transactions ended.
    pub transactions: u64,
    /// How long they took, in femtoseconds.
    pub time_fs: u64,
    /// Instructions of all cores.
    pub instructions: u64,
    /// Loads and stores of all cores, by line.
    pub l1_accesses: u64,
    /// Those that missed the first cache.
    pub l1_misses: u64,
    /// Lines that cores asked to be written back: `clwb`, `clflushopt`, `clflush`.
    pub write_backs: u64,
    /// Of them, those that were dirty.
    pub dirty_write_backs: u64,
    /// Lines written past the caches.
    pub streams: u64,
    /// Fences of both kinds.
    pub fences: u64,
    /// Femtoseconds cores waited at fences, and for room for write-backs.
    pub fence_stall_fs: u64,
    /// Femtoseconds cores waited for locks, and for the lines of atomic accesses. Those of 64 cores that wait are more
    /// than 64 bits hold after five minutes.
    pub lock_stall_fs: u128,
    /// Of the time at fences, the last core's: of programs of sections it is the background's.
    pub last_fence_fs: u64,
    /// Femtoseconds that it waited for the programs of other cores.
    pub last_idle_fs: u64,
    /// Lines that no cache had.
    pub last_misses: u64,
    /// Lines that came from the last cache of another node.
    pub remote: u64,
    /// Lines read from memory.
    pub reads: u64,
    /// Lines written to it.
    pub writes: u64,
    /// Of them, those written to the NVM beside DRAM.
    pub nvm_writes: u64,
    /// Of the reads, those that found their row open.
    pub row_hit_reads: u64,
    /// The same of writes.
    pub row_hit_writes: u64,
    /// Joules by the memory device's own model.
    pub device_j: f64,
    /// Writes to the disk.
    pub disk_writes: u64,
    /// Bytes of them.
    pub disk_bytes: u64,
    /// Femtoseconds the disk worked.
    pub disk_fs: u64,
}

impl Counts {
    /// What the device counted.
    pub(super) fn device(mut self, done: &Commands) -> Counts {
        self.reads = done.reads;
        self.writes = done.writes;
        self.row_hit_reads = done.reads - done.first_reads;
        self.row_hit_writes = done.writes - done.first_writes;
        self
    }

    /// What happened since `before`.
    #[must_use]
    pub(super) fn since(&self, before: &Counts) -> Counts {
        Counts {
            transactions: self.transactions - before.transactions,
            time_fs: self.time_fs - before.time_fs,
            instructions: self.instructions - before.instructions,
            l1_accesses: self.l1_accesses - before.l1_accesses,
            l1_misses: self.l1_misses - before.l1_misses,
            write_backs: self.write_backs - before.write_backs,
            dirty_write_backs: self.dirty_write_backs - before.dirty_write_backs,
            streams: self.streams - before.streams,
            fences: self.fences - before.fences,
            fence_stall_fs: self.fence_stall_fs - before.fence_stall_fs,
            lock_stall_fs: self.lock_stall_fs - before.lock_stall_fs,
            last_fence_fs: self.last_fence_fs - before.last_fence_fs,
            last_idle_fs: self.last_idle_fs - before.last_idle_fs,
            last_misses: self.last_misses - before.last_misses,
            remote: self.remote - before.remote,
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            nvm_writes: self.nvm_writes - before.nvm_writes,
            row_hit_reads: self.row_hit_reads - before.row_hit_reads,
            row_hit_writes: self.row_hit_writes - before.row_hit_writes,
            device_j: self.device_j - before.device_j,
            disk_writes: self.disk_writes - before.disk_writes,
            disk_bytes: self.disk_bytes - before.disk_bytes,
            disk_fs: self.disk_fs - before.disk_fs,
        }
    }

    /// Transactions a second; 0 of a run that took no time.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        match self.time_fs {
            0 => 0.0,
            time => self.transactions as f64 / (time as f64 * 1e-15),
        }
    }

    /// Of the accesses to the first cache, the part that missed.
    #[must_use]
    pub fn l1_miss_rate(&self) -> f64 {
        self.l1_misses as f64 / self.l1_accesses as f64
    }

    /// Lines read from memory and written to it.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.reads + self.writes
    }
}

/// What accesses cost, in joules.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Prices {
    /// A bit read from a row that is open.
    pub hit_read_j: f64,
    /// A bit written to it.
    pub hit_write_j: f64,
    /// A bit read from the array: its row was not open.
    pub array_read_j: f64,
    /// A bit written.
    pub array_write_j: f64,
    /// An instruction.
    pub instruction_j: f64,
    /// An access to the first cache.
    pub l1_j: f64,
    /// A line from or to the shared cache.
    pub shared_j: f64,
}

/// A disk.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Disk {
    /// Before a write's first byte, in femtoseconds.
    pub access_fs: u64,
    /// A byte, in femtoseconds.
    pub byte_fs: u64,
    /// Watts, while it works.
    pub power_w: f64,
}

impl Disk {
    /// Femtoseconds of a write.
    #[must_use]
    pub fn write_fs(&self, bytes: u64) -> u64 {
        self.access_fs + bytes * self.byte_fs
    }
}

/// Joules, dynamic: what accesses cost.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Energy {
    /// The memory's accesses.
    pub memory_j: f64,
    /// Instructions and caches.
    pub processor_j: f64,
    /// The disk.
    pub disk_j: f64,
}

impl Energy {
    /// All of it.
    #[must_use]
    pub fn total_j(&self) -> f64 {
        self.memory_j + self.processor_j + self.disk_j
    }
}

impl Prices {
    /// What a run cost: it follows from the counts alone.
    #[must_use]
    pub fn energy(&self, counts: &Counts, disk: &Disk) -> Energy {
        let hits =
            self.hit_read_j * counts.row_hit_reads as f64 + self.hit_write_j * counts.row_hit_writes as f64;
        let array = self.array_read_j * (counts.reads - counts.row_hit_reads) as f64
            + self.array_write_j * (counts.writes - counts.row_hit_writes) as f64;
        let shared = counts.l1_misses + counts.write_backs;
        Energy {
            memory_j: LINE_BITS * (hits + array),
            processor_j: self.instruction_j * counts.instructions as f64
                + self.l1_j * counts.l1_accesses as f64
                + self.shared_j * shared as f64,
            disk_j: disk.power_w * counts.disk_fs as f64 * 1e-15,
        }
    }
}
