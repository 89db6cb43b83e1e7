//! The runs.

use super::{StudyRequest, Tell};
use crate::bus::config::DurableIn;
use crate::bus::{Config, Counts, Energy, Machine};
use crate::device::Device;
use crate::eval::each::each;
use crate::workload::sps::{Persist, Size, Sps, Variant};
use std::collections::BTreeMap;

/// What is other than on the machine of the study.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Other {
    Nothing,
    /// Persists for each swap.
    Threshold(f64),
    /// The memory device.
    Device(&'static str),
    /// A write is durable in the cells.
    Cells,
    /// The persistence thread makes the last swap alone durable.
    Last,
    /// The log has so many times the entries.
    Log(f64),
}

/// A run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Key {
    pub(super) variant: Variant,
    pub(super) swaps: u64,
    pub(super) other: Other,
}

impl Key {
    /// The program by its name, on the machine of the study.
    pub(super) fn plain(name: &str, swaps: u64) -> Key {
        Key {
            variant: Variant::find(name).expect("a program of the study"),
            swaps,
            other: Other::Nothing,
        }
    }

    pub(super) fn with(self, other: Other) -> Key {
        Key { other, ..self }
    }

    pub(super) fn name(&self, config: &Config) -> String {
        let program = format!("{}/{}", self.variant.name, self.swaps);
        match self.other {
            Other::Nothing => program,
            Other::Threshold(threshold) if threshold == config.study.threshold => program,
            Other::Threshold(threshold) => format!("{program}/threshold={threshold}"),
            Other::Device(device) => format!("{program}/device={device}"),
            Other::Last => format!("{program}/persist=last"),
            Other::Cells => format!("{program}/durable=cells"),
            Other::Log(times) => format!("{program}/log={times}"),
        }
    }

    fn run(&self, config: &Config, seed: u64) -> Result<Run, String> {
        let mut config = config.clone();
        let study = config.study.clone();
        let mut size = Size {
            strings: study.strings,
            log_entries: study.log_entries,
            threshold: study.threshold,
            persist: Persist::All,
        };
        match self.other {
            Other::Nothing => {}
            Other::Threshold(threshold) => size.threshold = threshold,
            Other::Device(device) => {
                let memory = &mut config.hardware.memory;
                let channels = memory.channels;
                *memory = Device::find(device).map_err(|why| why.to_string())?;
                memory.channels = channels;
            }
            Other::Last => size.persist = Persist::Last,
            Other::Cells => config.hardware.durable = DurableIn::Cells,
            Other::Log(times) => size.log_entries = ((size.log_entries as f64 * times) as u64).max(4),
        }
        let mut program = Sps::new(self.variant, size, seed);
        let (prices, disk) = (config.prices, config.disk);
        let mut machine = Machine::new(config.hardware.clone(), Some(disk), &mut program);
        let counts = machine.run(study.warm_up, self.swaps)?;
        machine
            .check()
            .map_err(|why| format!("{}: {why}", self.variant.name))?;
        drop(machine);
        let persists = program.persists();
        Ok(Run {
            name: self.name(&config),
            program: self.variant.name,
            swaps: self.swaps,
            threshold: (persists > 0).then(|| persists as f64 / program.swaps() as f64),
            waits: (persists > 0).then_some(program.waits()),
            energy_j: prices.energy(&counts, &disk),
            counts,
        })
    }
}

/// What a run counted.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Run {
    /// Program, swaps, and what is other than on the machine of the study.
    pub name: String,
    /// The program.
    pub program: &'static str,
    /// Swaps counted.
    pub swaps: u64,
    /// Persists for each swap, as they were reached; none without a persistence thread.
    pub threshold: Option<f64>,
    /// How often a swap waited for that thread.
    pub waits: Option<u64>,
    /// What happened.
    pub counts: Counts,
    /// What it cost, by the counts and the machine's prices.
    pub energy_j: Energy,
}

/// All of them.
pub(super) struct Runs(BTreeMap<String, Run>);

impl Runs {
    /// Does the runs.
    pub(super) fn all(
        config: &Config,
        keys: &[Key],
        asked: &StudyRequest,
        tell: Tell<'_>,
    ) -> Result<Runs, String> {
        let runs = each(keys, asked.jobs, tell, |key| {
            let run = key.run(config, asked.seed)?;
            Ok((run.name.clone(), run))
        })?;
        Ok(Runs(runs))
    }

    pub(super) fn get(&self, config: &Config, key: &Key) -> &Run {
        &self.0[&key.name(config)]
    }

    pub(super) fn into_all(self) -> Vec<Run> {
        self.0.into_values().collect()
    }
}
