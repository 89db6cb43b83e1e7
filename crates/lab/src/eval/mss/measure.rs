//! Measures: what of a run is compared.

use super::runs::Run;

/// What of a run is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    Time,
    Throughput,
    L1Misses,
    L1MissRate,
    Accesses,
    Reads,
    Writes,
    MemoryEnergy,
    ProcessorEnergy,
    Energy,
    DeviceEnergy,
}

impl Measure {
    pub(super) fn name(self) -> &'static str {
        match self {
            Measure::Time => "time",
            Measure::Throughput => "throughput",
            Measure::L1Misses => "L1 misses",
            Measure::L1MissRate => "L1 miss rate",
            Measure::Accesses => "memory accesses",
            Measure::Reads => "memory reads",
            Measure::Writes => "memory writes",
            Measure::MemoryEnergy => "memory energy",
            Measure::ProcessorEnergy => "processor energy",
            Measure::Energy => "energy",
            Measure::DeviceEnergy => "energy by the device",
        }
    }

    /// Of a swap; a rate as it is.
    pub(super) fn of(self, run: &Run) -> f64 {
        let counts = &run.counts;
        let whole = match self {
            Measure::Throughput => return counts.per_second(),
            Measure::L1MissRate => return counts.l1_miss_rate(),
            Measure::Time => counts.time_fs as f64 * 1e-6,
            Measure::L1Misses => counts.l1_misses as f64,
            Measure::Accesses => counts.accesses() as f64,
            Measure::Reads => counts.reads as f64,
            Measure::Writes => counts.writes as f64,
            Measure::MemoryEnergy => run.energy_j.memory_j * 1e9,
            Measure::ProcessorEnergy => run.energy_j.processor_j * 1e9,
            Measure::Energy => run.energy_j.total_j() * 1e9,
            Measure::DeviceEnergy => counts.device_j * 1e9,
        };
        whole / counts.transactions as f64
    }

    pub(super) fn is_energy(self) -> bool {
        use Measure as M;
        matches!(
            self,
            M::MemoryEnergy | M::ProcessorEnergy | M::Energy | M::DeviceEnergy
        )
    }
}
