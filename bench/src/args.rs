//! The command lines of `twinpage bench region`, `sections`, `versions` and `objects`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use serde::{Serialize, Serializer};
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::time::Duration;
use twinpage_commands::report::interval;
use twinpage_core::SchemeKind;

pub(crate) const HELP: &str = "\
Data structures in a region beside the same ones volatile, and beside other stores

Every engine runs the same operations, drawn from the same seed, in a process of its own; the processes
take turns, one repetition after the other, and wait stopped in between. At the end each store is
closed, opened again and compared with what the operations must have made of it.

Durability is matched: at most --every of work is lost in a crash, and again with every operation
durable before the next. Peers are shared libraries of the system, opened when they are installed;
one that is absent is named above the table.";

pub(crate) const SECTIONS_HELP: &str = "\
Failure-atomic sections beside the same structures volatile, and beside stores with each operation durable

Every operation is a section of twinpage (`Region::atomic`) or a transaction of a peer, durable before the
next begins; threads of twinpage share commits. A second row of twinpage has groups: its sections do not
wait (`Region::atomic_within`), and a crash loses those of --within at most. Data is divided among the
threads; the engines take turns, and results are compared after reopening, as in `twinpage bench region`.

fences_per_section (memory files) and flushes_per_section (disks) are those of twinpage; latency_us is from
the beginning of an operation until it is durable, and not known of groups.";

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WorkloadName {
    /// Swap two random 256-byte strings of 100,000
    Sps,
    /// Insert or delete 8-byte pairs among 1 M keys of a hash table
    HashRand,
    /// The same, 80% of it on 15% of the keys
    HashZipf,
    /// Insert or delete 8-byte pairs among 1 M keys of a tree
    BtreeRand,
    /// The same, 80% of it on 15% of the keys
    BtreeZipf,
    /// Update location of TATP, 1 M subscribers
    Tatp,
    /// New order of TPC-C on hash tables
    Tpcc,
    /// Pass after pass over 1% of a 256 MiB array
    Sweep,
    /// Open a region of 1 GiB after a kill, to its first read
    Open,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EngineName {
    /// The same structures, volatile
    Native,
    Twinpage,
    Lmdb,
    Rocksdb,
    Sqlite,
    Redb,
    /// PMDK's libpmemobj, with PMEM_IS_PMEM_FORCE=1
    Pmemobj,
}

/// An engine, and how it is to work where there is a choice.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Contestant {
    #[serde(serialize_with = "serialize_spelled")]
    pub(crate) engine: EngineName,
    #[serde(flatten)]
    pub(crate) form: Form,
}

/// How twinpage stores a region; the library chooses where nothing is said.
#[derive(Args, Serialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Form {
    /// How lines become durable
    #[arg(long)]
    pub(crate) scheme: Option<SchemeKind>,
    /// Whether lines have checksums
    #[arg(long)]
    pub(crate) checksums: Option<bool>,
}

impl Form {
    /// The words that tell it to a process of ours.
    pub(crate) fn words(self) -> impl Iterator<Item = String> {
        let scheme = self.scheme.map(|scheme| format!("--scheme={scheme}"));
        let checksums = self.checksums.map(|on| format!("--checksums={on}"));
        scheme.into_iter().chain(checksums)
    }
}

impl Display for Contestant {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&spelled(self.engine))?;
        let form = self.form;
        form.scheme.map_or(Ok(()), |scheme| write!(f, " {scheme}"))?;
        match form.checksums {
            None => Ok(()),
            Some(true) => f.write_str(" with checksums"),
            Some(false) => f.write_str(" without checksums"),
        }
    }
}

/// One word of `--checksums`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Checksums {
    /// On a disk, not in memory
    Chosen,
    On,
    Off,
}

impl Checksums {
    fn is_on(self) -> Option<bool> {
        match self {
            Checksums::Chosen => None,
            Checksums::On => Some(true),
            Checksums::Off => Some(false),
        }
    }
}

/// One word of `--scheme`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Schemes {
    Chosen,
    All,
    One(SchemeKind),
}

fn schemes(word: &str) -> Result<Schemes, String> {
    match word {
        "chosen" => Ok(Schemes::Chosen),
        "all" => Ok(Schemes::All),
        name => match name.parse() {
            Ok(scheme) => Ok(Schemes::One(scheme)),
            Err(error) => Err(format!("{error}, all, chosen")),
        },
    }
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Durability {
    /// At most --every is lost
    Every,
    /// Each operation before the next
    Each,
}

/// As it is written on the command line.
pub(crate) fn spelled(value: impl ValueEnum) -> String {
    let value = value.to_possible_value().expect("no value is skipped");
    value.get_name().to_owned()
}

fn serialize_spelled<S: Serializer>(engine: &EngineName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&spelled(*engine))
}

/// Those of `all` that differ, in their order.
pub(crate) fn each_once<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

/// What is asked of every run that compares stores.
#[derive(Args, Debug)]
pub(crate) struct Common {
    /// What it is computed on; native is always there, for the ratios [default: all]
    #[arg(long, value_enum, value_delimiter = ',', hide_default_value = true, default_values_t = EngineName::value_variants().to_vec())]
    pub(crate) engine: Vec<EngineName>,
    /// Whether twinpage's lines have checksums; several are measured beside one another
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Checksums::Chosen])]
    pub(crate) checksums: Vec<Checksums>,
    /// Directories to make the stores in: on tmpfs they are memory files, elsewhere files on a disk
    /// [default: /dev/shm and the directory for temporary files]
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    pub(crate) medium: Vec<PathBuf>,
    /// Seconds of each repetition
    #[arg(long, default_value_t = 0.5, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Repetitions; medians are shown, and the least and the most
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) repeat: u16,
    /// How much of the data there is: 1 is as described
    #[arg(long, default_value_t = 1.0, value_parser = scale)]
    pub(crate) scale: f64,
    /// What the operations are drawn from
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

impl Common {
    /// The engines measured. Native first, also where it was not asked for: the ratios are over it.
    pub(crate) fn contestants(&self, schemes: &[Schemes]) -> Vec<Contestant> {
        let engines = [EngineName::Native].iter().chain(&self.engine);
        each_once(engines.flat_map(|&engine| {
            let (schemes, checksums) = match engine {
                EngineName::Twinpage => (each_scheme(schemes), &self.checksums[..]),
                _ => (vec![None], &[Checksums::Chosen][..]),
            };
            let each = |scheme| {
                checksums.iter().map(move |checksums| Contestant {
                    engine,
                    form: Form {
                        scheme,
                        checksums: checksums.is_on(),
                    },
                })
            };
            schemes.into_iter().flat_map(each).collect::<Vec<_>>()
        }))
    }
}

/// The schemes asked for, each once; none for what twinpage chooses.
pub(crate) fn each_scheme(words: &[Schemes]) -> Vec<Option<SchemeKind>> {
    each_once(words.iter().flat_map(|word| match word {
        Schemes::Chosen => vec![None],
        Schemes::All => SchemeKind::ALL.map(Some).to_vec(),
        Schemes::One(scheme) => vec![Some(*scheme)],
    }))
}

#[derive(Args, Debug)]
pub(crate) struct RegionArguments {
    /// What is computed [default: all]
    #[arg(long, value_enum, value_delimiter = ',', hide_default_value = true, default_values_t = WorkloadName::value_variants().to_vec())]
    pub(crate) workload: Vec<WorkloadName>,
    /// How twinpage makes lines durable: schemes by name, `all` of them, or as it chooses itself
    #[arg(long, value_delimiter = ',', default_value = "chosen", value_parser = schemes)]
    pub(crate) scheme: Vec<Schemes>,
    /// What may be lost in a crash
    #[arg(long, value_name = "TIME", value_delimiter = ',', default_values = ["16ms"], value_parser = interval)]
    pub(crate) every: Vec<Duration>,
    /// Durability to measure [default: both]
    #[arg(long, value_enum, value_delimiter = ',', hide_default_value = true, default_values_t = [Durability::Every, Durability::Each])]
    pub(crate) durability: Vec<Durability>,
    /// Threads that work at once, each on structures of its own
    #[arg(long, value_delimiter = ',', default_values_t = [1], value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) threads: Vec<u32>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct SectionsArguments {
    /// What is computed
    #[arg(long, value_delimiter = ',', default_values = ["hash-rand", "btree-rand", "sps", "tatp"], value_parser = in_sections())]
    pub(crate) workload: Vec<WorkloadName>,
    /// How twinpage makes lines durable: schemes by name, `all` of them, or as it chooses itself
    #[arg(long, value_delimiter = ',', default_values = ["chosen", "undo-log", "redo-log"], value_parser = schemes)]
    pub(crate) scheme: Vec<Schemes>,
    /// What a group may lose in a crash
    #[arg(long, value_name = "TIME", default_value = "16ms", value_parser = interval)]
    pub(crate) within: Duration,
    /// Threads that work at once, each on structures of its own
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 8], value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) threads: Vec<u32>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Workloads of which an operation takes each of its structures once.
fn in_sections() -> impl TypedValueParser<Value = WorkloadName> {
    use WorkloadName::{BtreeRand, BtreeZipf, HashRand, HashZipf, Sps, Tatp};
    let all = [HashRand, HashZipf, BtreeRand, BtreeZipf, Sps, Tatp];
    PossibleValuesParser::new(all.map(|one| one.to_possible_value().expect("no value is skipped")))
        .map(|name| WorkloadName::from_str(&name, false).expect("one of those above"))
}

#[derive(Args, Debug)]
pub(crate) struct WorkerArguments {
    #[arg(long, value_enum)]
    pub(crate) workload: WorkloadName,
    #[arg(long, value_enum)]
    pub(crate) engine: EngineName,
    #[command(flatten)]
    pub(crate) form: Form,
    /// In failure-atomic sections of twinpage
    #[arg(long)]
    pub(crate) sections: bool,
    #[arg(long)]
    pub(crate) place: PathBuf,
    /// Each operation when it is not given
    #[arg(long, value_parser = interval)]
    pub(crate) every: Option<Duration>,
    #[arg(long)]
    pub(crate) threads: u32,
    #[arg(long)]
    pub(crate) scale: f64,
    #[arg(long)]
    pub(crate) seed: u64,
}

/// A whole number within bounds.
pub(crate) fn whole(text: &str, least: usize, most: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("expected a whole number from {least} to {most}")),
    }
}

#[derive(Args, Debug)]
pub(crate) struct OpenArguments {
    #[arg(long)]
    pub(crate) place: PathBuf,
    #[command(flatten)]
    pub(crate) form: Form,
    #[arg(long)]
    pub(crate) mib: u64,
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    positive(text, 3600.0)
}

fn scale(text: &str) -> Result<f64, String> {
    positive(text, 16.0)
}

/// A number above 0 within a bound.
pub(crate) fn positive(text: &str, at_most: f64) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 && number <= at_most => Ok(number),
        _ => Err(format!("expected a number above 0 and up to {at_most}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_bounds() {
        assert_eq!(scale("0.01"), Ok(0.01));
        for wrong in ["0", "-1", "nan", "inf", "17", "x"] {
            assert!(scale(wrong).is_err(), "{wrong}");
        }
    }
}
