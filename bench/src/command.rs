//! The command line: each benchmark, and the processes it starts.

use crate::args::{HELP, OpenArguments, RegionArguments, SECTIONS_HELP, SectionsArguments, WorkerArguments};
use crate::objects::{ObjectArguments, ObjectsArguments};
use crate::versions::{ArrayArguments, SpsArguments, VersionsArguments};
use clap::{Parser, Subcommand};

/// The library beside what it is compared to, in one run.
#[derive(Parser, Debug)]
#[command(name = "twinpage-bench", version, about)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Data structures in a region beside the same ones volatile, and beside other stores
    #[command(
        bin_name = "twinpage bench region",
        long_about = HELP,
        after_help = "Example:\n  twinpage bench region --workload hash-rand,sps --engine native,twinpage,lmdb --medium /dev/shm --json"
    )]
    Region(RegionArguments),
    /// Failure-atomic sections beside the same structures volatile, and beside stores with each operation durable
    #[command(
        bin_name = "twinpage bench sections",
        long_about = SECTIONS_HELP,
        after_help = "Example:\n  twinpage bench sections --workload hash-rand,sps --engine twinpage,pmemobj --medium /dev/shm --threads 1,2 --json"
    )]
    Sections(SectionsArguments),
    /// The SPS programs of MSS: redo logs, versioned arrays and their peers, on memory files
    #[command(
        bin_name = "twinpage bench versions",
        after_help = "Example:\n  twinpage bench versions --swaps 100000,1000000 --repeat 200 --json\n  twinpage bench versions --variant l,lcs,tcs,tcs-clwb --repeat 5"
    )]
    Versions(VersionsArguments),
    /// One run of one variant, for `versions`
    #[command(hide = true)]
    Sps(SpsArguments),
    /// One part that is not SPS, for `versions`
    #[command(hide = true)]
    Array(ArrayArguments),
    /// Persistent objects: the array of SIMPO's microbenchmark, and instant calls beside other stores
    #[command(
        bin_name = "twinpage bench objects",
        after_help = "Example:\n  twinpage bench objects --json\n  twinpage bench objects --workload instant --medium /var/tmp --repeat 3"
    )]
    Objects(ObjectsArguments),
    /// One run of one variant, for `objects`
    #[command(hide = true)]
    Object(ObjectArguments),
    /// One engine on one workload, for `region` and `sections`: does what it is told on standard input
    #[command(hide = true)]
    Worker(WorkerArguments),
    /// Fills a region and goes on changing it until it is killed, for `region`
    #[command(hide = true)]
    Fill(OpenArguments),
    /// Opens such a region and reads from it, for `region`
    #[command(hide = true)]
    Look(OpenArguments),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Contestant, each_scheme};
    use clap::CommandFactory;
    use twinpage_core::SchemeKind;

    #[test]
    fn the_command_line_holds_together() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn checksums_are_twinpages_alone() {
        let words = "twinpage-bench region --engine twinpage,lmdb --checksums off,on";
        let Ok(Command::Region(arguments)) =
            Arguments::try_parse_from(words.split(' ')).map(|all| all.command)
        else {
            panic!("it is not refused");
        };
        let names: Vec<String> = arguments
            .common
            .contestants(&arguments.scheme)
            .iter()
            .map(Contestant::to_string)
            .collect();
        let twinpage = ["twinpage without checksums", "twinpage with checksums"];
        assert_eq!(names, ["native", twinpage[0], twinpage[1], "lmdb"]);
    }

    #[test]
    fn schemes_are_taken_once_each() {
        let schemes = |words: &str| {
            let line = [
                "twinpage-bench",
                "region",
                "--scheme",
                words,
                "--engine",
                "twinpage,lmdb",
            ];
            match Arguments::try_parse_from(line).map(|arguments| arguments.command) {
                Ok(Command::Region(arguments)) => Ok(arguments),
                other => Err(format!("{other:?}")),
            }
        };
        let all = each_scheme(&schemes("undo-log,all,undo-log").unwrap().scheme);
        assert_eq!(all.len(), SchemeKind::ALL.len());
        assert_eq!(all[0], Some(SchemeKind::UndoLog));
        let contestants = schemes("chosen,in-place").unwrap();
        let contestants = contestants.common.contestants(&contestants.scheme);
        let names: Vec<String> = contestants.iter().map(Contestant::to_string).collect();
        assert_eq!(names, ["native", "twinpage", "twinpage in-place", "lmdb"]);
        let wrong = schemes("no-log").unwrap_err();
        assert!(wrong.contains("no-log") && wrong.contains("thynvm"), "{wrong}");
    }
}
