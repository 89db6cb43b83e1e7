//! What the machines are loaded with: the workloads here, and mixes of recorded programs.
//!
//! * SPEC CPU 2006 is not free. A mix of it is played where each of its four programs has a trace of one
//!   that stands in for it (`make traces`); a mix that lacks one is left out, and the evaluation says so.
//! * DPC's workloads are those of its Table 5, Twins' the mixes of its Table II. Without any of those
//!   mixes Twins' figures are made with DPC's workloads that are free.

use super::{Paper, Request};
use crate::workload::list::{self, Characteristics};

/// One workload of the evaluation.
#[derive(Clone, Debug)]
pub(super) struct Load {
    /// What it is called in the figures.
    pub(super) name: String,
    /// What the lab calls it.
    pub(super) workload: String,
    /// What DPC's Table 5 says of it.
    pub(super) said: Option<Characteristics>,
    /// What Twins' Table II says of it.
    pub(super) mix: Option<MixSaid>,
    /// One program by itself, on one core (Twins Figure 2).
    pub(super) is_single: bool,
}

/// A line of Twins Table II.
#[derive(Clone, Copy, Debug)]
pub(super) struct MixSaid {
    /// Of a hundred accesses to the last cache, those that miss: of another machine, from a paper it cites.
    pub(super) last_miss_percent: f64,
    /// Its footprint.
    pub(super) footprint_mb: f64,
}

/// Four programs on four cores.
struct Mix {
    name: &'static str,
    paper: Paper,
    programs: [&'static str; 4],
    said: Option<Characteristics>,
    mix: Option<MixSaid>,
}

const fn dpc(name: &'static str, programs: [&'static str; 4], said: Option<Characteristics>) -> Mix {
    Mix {
        name,
        paper: Paper::Dpc,
        programs,
        said,
        mix: None,
    }
}

const fn twins(
    name: &'static str,
    programs: [&'static str; 4],
    last_miss_percent: f64,
    footprint_mb: f64,
) -> Mix {
    Mix {
        name,
        paper: Paper::Twins,
        programs,
        said: None,
        mix: Some(MixSaid {
            last_miss_percent,
            footprint_mb,
        }),
    }
}

/// The mixes of DPC Table 5 and Twins Table II.
const MIXES: [Mix; 10] = [
    dpc(
        "SPEC1",
        ["leslie3d", "sjeng", "sphinx3", "wrf"],
        list::table5(16.08, 4.54, 1199.0),
    ),
    dpc(
        "SPEC2",
        ["GemsFDTD", "lbm", "milc", "soplex"],
        list::table5(5.43, 1.80, 1473.0),
    ),
    twins("WD1", ["gamess", "h264ref", "h264ref", "povray"], 2.0, 34.0),
    twins("WD2", ["bzip2", "bzip2", "gromacs", "gromacs"], 24.2, 1716.0),
    twins("WD3", ["bzip2", "gcc", "gromacs", "perlbench"], 40.4, 1842.0),
    twins("WD4", ["gcc", "gcc", "mcf", "perlbench"], 57.3, 2471.0),
    twins("WD5", ["astar", "gobmk", "mcf", "omnetpp"], 64.7, 2109.0),
    twins("WD6", ["gobmk", "leslie3d", "omnetpp", "wrf"], 77.7, 986.0),
    twins("WD7", ["leslie3d", "sjeng", "sphinx3", "wrf"], 88.3, 1011.0),
    twins("WD8", ["GemsFDTD", "lbm", "milc", "soplex"], 96.3, 1878.0),
];

/// The trace that stands in for a program (`crates/lab/programs/record`).
fn stand_in(program: &str) -> &str {
    match program {
        "perlbench" => "perl",
        "h264ref" => "x264",
        "gamess" => "ergo",
        "gobmk" => "gnugo",
        "mcf" => "mincost",
        "soplex" => "simplex",
        "GemsFDTD" => "fdtd",
        "leslie3d" => "fluid",
        "wrf" => "weather",
        "milc" => "lattice",
        "sphinx3" => "speech",
        "omnetpp" => "events",
        "astar" => "paths",
        same => same,
    }
}

/// The workloads of the paper, and what of them is left out, and why.
pub(super) fn choose(request: &Request) -> (Vec<Load>, Vec<String>) {
    let (mut loads, mut left_out) = (Vec::new(), Vec::new());
    for mix in MIXES.iter().filter(|mix| mix.paper == request.paper) {
        match mix.find(request) {
            Ok(workload) => loads.push(Load {
                name: mix.name.into(),
                workload,
                said: mix.said,
                mix: mix.mix,
                is_single: false,
            }),
            Err(why) => left_out.push(format!("{} ({}): {why}", mix.name, mix.programs.join(", "))),
        }
    }
    if request.paper == Paper::Dpc || loads.is_empty() {
        if request.paper == Paper::Twins {
            left_out.push("all mixes, so the figures are made with DPC's workloads".into());
        }
        let free = list::ALL.iter().filter(|entry| entry.paper.is_some());
        loads.extend(free.map(|entry| Load {
            name: entry.name.into(),
            workload: entry.name.into(),
            said: entry.paper,
            mix: None,
            is_single: false,
        }));
    }
    if request.paper == Paper::Twins {
        loads.extend(singles(request));
    }
    (loads, left_out)
}

/// The workloads of a paper by their names, whether they can be run or not.
pub(super) fn names(paper: Paper) -> Vec<&'static str> {
    let mixes = MIXES.iter().filter(|mix| mix.paper == paper).map(|mix| mix.name);
    let free = list::ALL
        .iter()
        .filter(|entry| paper == Paper::Dpc && entry.paper.is_some());
    mixes.chain(free.map(|entry| entry.name)).collect()
}

/// Whether some program can be run by itself.
pub(super) fn has_singles(request: &Request) -> bool {
    request.paper == Paper::Twins && !singles(request).is_empty()
}

/// The programs of all mixes that have a trace, each by itself.
fn singles(request: &Request) -> Vec<Load> {
    let Some(folder) = &request.traces else {
        return Vec::new();
    };
    let mut programs: Vec<&str> = MIXES.iter().flat_map(|mix| mix.programs).collect();
    programs.sort_unstable();
    programs.dedup();
    let trace = |program: &&str| folder.join(format!("{}.trace", stand_in(program)));
    let recorded = programs.into_iter().filter(|program| trace(program).is_file());
    recorded
        .map(|program| Load {
            name: program.into(),
            workload: format!("trace:{}", trace(&program).display()),
            said: None,
            mix: None,
            is_single: true,
        })
        .collect()
}

impl Mix {
    /// The traces that stand in for it.
    fn find(&self, request: &Request) -> Result<String, String> {
        let Some(folder) = &request.traces else {
            return Err("no traces are given (make traces, then --traces target/traces)".into());
        };
        let mut paths = Vec::new();
        let mut missing = Vec::new();
        for program in self.programs {
            let path = folder.join(format!("{}.trace", stand_in(program)));
            match path.is_file() {
                true => paths.push(path.display().to_string()),
                false => missing.push(format!("{} for {program}", path.display())),
            }
        }
        match missing.is_empty() {
            true => Ok(format!("trace:{}", paths.join(","))),
            false => Err(format!("there is no {}", missing.join(", no "))),
        }
    }
}
