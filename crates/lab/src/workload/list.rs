//! The workloads there are, by name.

use super::Workload;
use super::ann::Ann;
use super::busy::Busy;
use super::community::Community;
use super::components::Components;
use super::echo::Echo;
use super::flann::Flann;
use super::memcached::Memcached;
use super::nstore::NStore;
use super::pagerank::PageRank;
use super::replay::Replay;
use super::sps::{self, Sps};
use super::sweep::Sweep;
use super::tatp::Tatp;
use super::tpcc::Tpcc;
use super::turns::Outside;
use super::uniform::Uniform;
use super::vacation::Vacation;
use crate::added::Added;
use crate::op::PAGE_BYTES;
use std::path::Path;

/// One workload, as it is listed.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What it is called.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// What DPC's Table 5 says of it, where it has it.
    pub paper: Option<Characteristics>,
    make: fn(&Setting) -> Box<dyn Workload>,
}

/// What DPC's Table 5 measures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Characteristics {
    /// Of the requests that reach the DRAM cache, those for pages it does not hold, in percent.
    pub miss_percent: f64,
    /// Reads for each write.
    pub read_write_ratio: f64,
    /// Memory it computes on, in MB.
    pub footprint_mb: f64,
}

/// What a workload is made with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Setting {
    /// Footprint as a share of the paper's; 1 is its size.
    pub scale: f64,
    /// Cores it runs on.
    pub cores: usize,
    /// Everything random follows from it.
    pub seed: u64,
}

impl Setting {
    /// About that many bytes, scaled.
    fn bytes(&self, paper_mb: f64) -> u64 {
        (paper_mb * 1e6 * self.scale) as u64
    }
}

pub(crate) const fn table5(
    miss_percent: f64,
    read_write_ratio: f64,
    footprint_mb: f64,
) -> Option<Characteristics> {
    Some(Characteristics {
        miss_percent,
        read_write_ratio,
        footprint_mb,
    })
}

/// Instructions of Memcached and Vacation outside their data, for each access to it (`ssp.toml` says why).
const OUTSIDE: u32 = 75;

/// All workloads, those of DPC's Table 5 first, in its order.
pub const ALL: &[Entry] = &[
    Entry {
        name: "pagerank",
        about: "PageRank on an R-MAT graph, by sweeps over its vertices; ranks flow along edges (PR)",
        paper: table5(17.61, 2.23, 1548.0),
        make: |setting| {
            Box::new(Sweep::<PageRank>::new(
                setting.bytes(1548.0),
                setting.cores,
                setting.seed,
            ))
        },
    },
    Entry {
        name: "community",
        about: "Community detection by label propagation on an R-MAT graph (CD)",
        paper: table5(15.14, 1.91, 1357.0),
        make: |setting| {
            Box::new(Sweep::<Community>::new(
                setting.bytes(1357.0),
                setting.cores,
                setting.seed,
            ))
        },
    },
    Entry {
        name: "components",
        about: "Connected components of an R-MAT graph: the least label spreads (CC)",
        paper: table5(5.30, 2.27, 1208.0),
        make: |setting| {
            Box::new(Sweep::<Components>::new(
                setting.bytes(1208.0),
                setting.cores,
                setting.seed,
            ))
        },
    },
    Entry {
        name: "ann",
        about: "Nearest neighbours in 16 dimensions on kd-trees, built and asked; a copy on each core (Ann)",
        paper: table5(13.26, 2.15, 773.0),
        make: |setting| Box::new(Ann::new(setting.bytes(773.0), setting.cores, setting.seed)),
    },
    Entry {
        name: "flann",
        about: "Nearest neighbours in 128 dimensions on randomised kd-trees; a copy on each core (Flann)",
        paper: table5(12.58, 1.55, 576.0),
        make: |setting| Box::new(Flann::new(setting.bytes(576.0), setting.cores, setting.seed)),
    },
    Entry {
        name: "tatp",
        about: "TATP on hash tables: UPDATE_LOCATION transactions (TATP)",
        paper: table5(56.72, 2.47, 1247.0),
        make: |setting| {
            Box::new(Tatp::new(
                setting.bytes(1247.0),
                setting.cores,
                setting.seed,
                false,
            ))
        },
    },
    Entry {
        name: "tatp-mix",
        about: "TATP on hash tables: its mix of seven transactions",
        paper: None,
        make: |setting| {
            Box::new(Tatp::new(
                setting.bytes(1247.0),
                setting.cores,
                setting.seed,
                true,
            ))
        },
    },
    Entry {
        name: "tpcc",
        about: "TPC-C on hash tables: New-Order transactions (TPCC)",
        paper: table5(53.96, 1.72, 864.0),
        make: |setting| {
            Box::new(Tpcc::new(
                setting.bytes(864.0),
                setting.cores,
                setting.seed,
                false,
            ))
        },
    },
    Entry {
        name: "tpcc-mix",
        about: "TPC-C on hash tables: New-Order and Payment",
        paper: None,
        make: |setting| Box::new(Tpcc::new(setting.bytes(864.0), setting.cores, setting.seed, true)),
    },
    Entry {
        name: "echo",
        about: "An Echo-like versioned key-value store, flushed and fenced (Echo)",
        paper: table5(43.57, 1.43, 818.0),
        make: |setting| Box::new(Echo::new(setting.bytes(818.0), setting.cores, setting.seed)),
    },
    Entry {
        name: "nstore",
        about: "An N-Store-like store: tuples in place with a write-ahead log, flushed and fenced (N-Store)",
        paper: table5(35.82, 1.38, 1090.0),
        make: |setting| Box::new(NStore::new(setting.bytes(1090.0), setting.cores, setting.seed)),
    },
    Entry {
        name: "memcached",
        about: "A Memcached-like cache: hash table, list of the latest used; 90% SET (SSP)",
        paper: None,
        make: |setting| {
            let keys = (setting.bytes(1000.0) / 60).max(64);
            Box::new(Memcached::new(
                keys,
                setting.cores,
                Outside::Behind(OUTSIDE),
                0,
                setting.seed,
            ))
        },
    },
    Entry {
        name: "vacation",
        about: "STAMP's travel agency on red-black trees (SSP)",
        paper: None,
        make: |setting| {
            let tuples = (setting.bytes(1000.0) / 110).max(64);
            Box::new(Vacation::new(
                tuples,
                setting.cores,
                Outside::Within(OUTSIDE),
                0,
                setting.seed,
            ))
        },
    },
    Entry {
        name: "uniform",
        about: "Counters picked at random; half the visits add one",
        paper: None,
        make: |setting| {
            let pages = (setting.bytes(1000.0) / PAGE_BYTES).max(1);
            Box::new(Uniform::new(pages, setting.cores, 50, setting.seed))
        },
    },
];

static OWN: Added<Entry> = Added::new();

/// Adds a workload of one's own to those the lab knows. To be called first in `main`.
///
/// # Panics
/// When its name is taken.
pub fn add(name: &'static str, about: &'static str, make: fn(&Setting) -> Box<dyn Workload>) {
    let has_name = |other: &Entry| other.name == name;
    assert!(!ALL.iter().any(has_name), "{name} is a workload of the house");
    let paper = None;
    let own = Entry {
        name,
        about,
        paper,
        make,
    };
    OWN.add(own, name, has_name);
}

/// All workloads, those that were added last.
#[must_use]
pub fn all() -> Vec<Entry> {
    ALL.iter().copied().chain(OWN.all()).collect()
}

/// The workload of that name.
#[must_use]
pub fn find(name: &str) -> Option<Entry> {
    all().into_iter().find(|entry| entry.name == name)
}

/// Makes a workload by its name, a program of MSS (`sps:lcs`), or plays back traces: `trace:FILE,FILE,...`. Any of them with
/// so many instructions more before each access is `busy:N:NAME`.
///
/// # Errors
/// No such name, a trace that cannot be read, or a setting that makes no sense.
pub fn make(name: &str, setting: &Setting) -> Result<Box<dyn Workload>, String> {
    if !(setting.scale > 0.0 && setting.scale <= 64.0) {
        return Err(format!(
            "a scale is above 0 and at most 64, not {}",
            setting.scale
        ));
    }
    if !(1..=64).contains(&setting.cores) {
        return Err(format!("a workload runs on 1 to 64 cores, not {}", setting.cores));
    }
    if let Some((instructions, inner)) = busy(name) {
        let instructions = instructions
            .parse()
            .map_err(|_| format!("{name}: {instructions} is no number of instructions"))?;
        return Ok(Box::new(Busy::new(make(inner, setting)?, instructions)));
    }
    if let Some(paths) = name.strip_prefix("trace:") {
        return Ok(Box::new(Replay::open(paths, setting.cores)?));
    }
    if let Some(variant) = name.strip_prefix("sps:") {
        return swaps(variant, setting);
    }
    let entry = find(name).ok_or_else(|| {
        let names: Vec<_> = all().iter().map(|entry| entry.name).collect();
        format!(
            "no workload is called {name}; there are {}, sps:PROGRAM, trace:FILE and busy:N:WORKLOAD",
            names.join(", ")
        )
    })?;
    Ok((entry.make)(setting))
}

/// The instructions and the program of `busy:N:NAME`.
fn busy(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("busy:")?.split_once(':')
}

/// The traces that a workload of that name plays.
pub fn traces(name: &str) -> impl Iterator<Item = &Path> {
    let mut name = name;
    while let Some((_, inner)) = busy(name) {
        name = inner;
    }
    let paths = name.strip_prefix("trace:").into_iter();
    paths.flat_map(|paths| paths.split(',')).map(Path::new)
}

/// A program of MSS's study, of its size.
fn swaps(variant: &str, setting: &Setting) -> Result<Box<dyn Workload>, String> {
    // The one with a disk is for machines that have one.
    let is_here = |variant: &sps::Variant| variant.name != "dl";
    let found = sps::Variant::find(variant).filter(is_here).ok_or_else(|| {
        let names: Vec<_> = sps::ALL
            .iter()
            .filter(|one| is_here(one))
            .map(|one| one.name)
            .collect();
        format!(
            "sps has no program {variant} here; there are {}",
            names.join(", ")
        )
    })?;
    if setting.cores < found.cores() {
        return Err(format!("sps:{variant} runs on {} cores at least", found.cores()));
    }
    let scaled = |whole: f64, least: u64| ((whole * setting.scale) as u64).max(least);
    let size = sps::Size {
        strings: scaled(100_000.0, 64),
        log_entries: scaled(4096.0, 4),
        threshold: 0.6,
        persist: sps::Persist::All,
    };
    Ok(Box::new(Sps::new(found, size, setting.seed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_found_however_busy_their_cores_are() {
        for name in ["trace:a,b", "busy:5:trace:a,b", "busy:1:busy:2:trace:a,b"] {
            let found: Vec<&Path> = traces(name).collect();
            assert_eq!(found, ["a", "b"].map(Path::new), "{name}");
        }
        assert_eq!(traces("busy:1:tatp").count(), 0);
    }
}
