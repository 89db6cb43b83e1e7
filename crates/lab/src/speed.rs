//! How fast the simulator is: simulated requests and instructions a second of processor time.
//!
//! * A run's setting up (filling the workload's memory) is not counted: what is measured is the simulation.
//! * The thread's processor time counts, so other work on the machine disturbs little; but not nothing.

use crate::config::Described;
use crate::config::machine::Config;
use crate::device::Device;
use crate::drive::{Request, drive};
use crate::machine::{Machine, Stop};
use crate::schemes::SchemeName;
use crate::workload::list::{self, Setting};
use std::time::Duration;

/// Thousand random requests a processor second of Ramulator 2.1 at saturation, measured as DDR3-1600K by
/// the same requests.
pub const RAMULATOR_KILO: f64 = 339.0;

/// How requests come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// As fast as they go.
    Saturated,
    /// One in 100 cycles.
    Light,
}

/// Random reads of single lines, over the whole of a DDR3-1600K. Requests a second.
///
/// # Errors
/// The device cannot be read.
pub fn requests(load: Load, count: u64) -> Result<f64, String> {
    let device = Device::find("ddr3-1600k").map_err(|why| why.to_string())?;
    let every = match load {
        Load::Saturated => 0,
        Load::Light => 100,
    };
    let mut random = fastrand::Rng::with_seed(1);
    let requests: Vec<Request> = (0..count)
        .map(|number| Request {
            cycle: number * every,
            at: random.u64(..device.bytes() / 64) * 64,
            write: false,
        })
        .collect();
    let begun = cpu_time();
    let outcome = drive(&device, requests);
    Ok(outcome.requests as f64 / (cpu_time() - begun).as_secs_f64())
}

/// One run of the machine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ran {
    /// Instructions a second, the warm-up's too.
    pub instructions_per_s: f64,
    /// Pages brought into the DRAM cache for every 1000 instructions.
    pub page_misses: f64,
    /// Lines asked of the DRAM cache for every 1000 instructions.
    pub line_reads: f64,
}

/// The dual page on DPC's machine, made smaller, with a workload of the list.
///
/// # Errors
/// No such workload or size, or the run's own error.
pub fn instructions(workload: &str, smaller: u64, instructions: u64) -> Result<Ran, String> {
    let config = Config::find("dpc").and_then(|config| config.smaller(smaller));
    let mut config = config.map_err(|why| why.to_string())?;
    config.plan.warm_up = instructions / 10;
    config.plan.instructions = instructions;
    let setting = Setting {
        scale: 1.0 / smaller as f64,
        cores: config.plan.shape.cores,
        seed: 1,
    };
    let mut program = list::make(workload, &setting)?;
    let scheme = SchemeName::DUAL_PAGE;
    let mut machine =
        Machine::new(config.plan(scheme), scheme, &mut *program, false).map_err(|why| why.to_string())?;
    let begun = cpu_time();
    let outcome = machine.run(Stop::default()).map_err(|why| why.to_string())?;
    let seconds = (cpu_time() - begun).as_secs_f64();
    let ran = (config.plan.warm_up + outcome.instructions) as f64;
    let thousands = outcome.instructions as f64 / 1000.0;
    Ok(Ran {
        instructions_per_s: ran / seconds,
        page_misses: outcome.controller.misses as f64 / thousands,
        line_reads: outcome.controller.reads as f64 / thousands,
    })
}

/// What this thread has used of a processor.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
