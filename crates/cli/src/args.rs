//! The command line: every subcommand, option and example.

use crate::lab::Lab;
use crate::values::{self, at, control_key, every, keep, level, rate, share, signal, until};
use clap::builder::{ArgPredicate, RangedU64ValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use twinpage::objects::Until;
use twinpage_commands::report::{interval, within};
use twinpage_os::Durability;
use twinpage_os::cpuid::Level;
use twinpage_process::older::{At, Keep};
use twinpage_process::pace::{Every, Limits};
use twinpage_process::session::{OnFull, OnTerm, OnUncapturable, Pace};
use twinpage_process::sockets::Replies;
use twinpage_process::state::Network;

/// Memory that outlives its program.
#[derive(Parser, Debug)]
#[command(name = "twinpage", version, about, propagate_version = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a program, keeping a checkpoint of it every few milliseconds
    #[command(after_help = "Example:\n  twinpage run --every 16ms --state /tmp/state -- python3 simulate.py")]
    Run(Run),
    /// Go on with a killed program from its last checkpoint
    #[command(
        after_help = "Example:\n  twinpage resume /tmp/state\n  twinpage run --keep 6@10min --state /tmp/state -- python3 search.py\n  twinpage resume /tmp/state --at 30min"
    )]
    Resume(Resume),
    /// Bring this terminal to a program that runs detached; leaving it does not end the program
    #[command(
        after_help = "Example:\n  twinpage run --detach --state /tmp/session -- bash\n  twinpage attach /tmp/session\n\nExit code: the program's when it ends meanwhile, 0 when the key leaves."
    )]
    Attach(Attach),
    /// The states there are: what runs, what can be resumed, how old and how large each is
    #[command(after_help = "Example:\n  twinpage list\n  twinpage list --json /backup/states")]
    List(List),
    /// Suspend a running program: a checkpoint, then the end; resume goes on
    #[command(
        after_help = "Example:\n  twinpage stop ~/.local/state/twinpage/python3-1\n  twinpage resume ~/.local/state/twinpage/python3-1"
    )]
    Stop(Stop),
    /// Make a second program from one: a copy of its state, at its last checkpoint; both go on by themselves
    #[command(
        after_help = "Example:\n  twinpage stop /tmp/state\n  twinpage fork /tmp/state /tmp/other\n  twinpage resume /tmp/other\n\nThe program must not run. Files with a name are not copied: both programs have the same ones, and\nthe one does not undo what the other did to them (docs/guarantees.md)."
    )]
    Fork(Fork),
    /// Remove the states of programs that have finished
    #[command(after_help = "Example:\n  twinpage clean --dry-run\n  twinpage clean /tmp/state")]
    Clean(Clean),
    /// Say what is in a state, a region or a versioned array: the program, its checkpoint, what it costs
    #[command(
        after_help = "Example:\n  twinpage info /tmp/state\n  twinpage info orders.twin\n\nOnly looks: also while the program runs. The objects of a region are\nlisted with their sizes, for which all of it is read."
    )]
    Info(Look),
    /// Read everything in a state, a region or a versioned array and verify every checksum, heap and root
    #[command(
        after_help = "Example:\n  twinpage check /tmp/state\n  twinpage check orders.twin\n\nExit code 0 when all is whole, 1 when there is damage, 125 when it cannot be told."
    )]
    Check(Look),
    /// Ask the program that has a region open what its checkpoints cost
    #[command(after_help = "Example:\n  twinpage stats orders.twin --json")]
    Stats(Stats),
    /// The calls of a region's objects since its last checkpoint, which the next opening runs again, with their arguments
    #[command(
        after_help = "Example:\n  twinpage log scores.twin\n  twinpage log scores.twin --until 10min\n  twinpage log scores.twin --follow\n  twinpage log scores.twin --kept scores.kept --until 10min --into past.twin\n  twinpage log scores.twin --withdraw 4294967392\n\nOnly looks, but for --into and --withdraw: also while a program has the region open. Arguments of types that the log does not\ndescribe are shown as bytes."
    )]
    Log(Log),
    /// Copy a region at one of its epochs, also while a program has it open and goes on; or a versioned array at rest
    #[command(after_help = "Example:\n  twinpage backup orders.twin /backup/orders.twin")]
    Backup(Backup),
    /// Would my program survive? Run it undisturbed, then killed and resumed again and again, and compare
    #[command(
        long_about = PROVE_HELP,
        after_help = "Example:\n  twinpage prove --kills 20 -- python3 examples/wordcount.py\n\nExit code 0 when every run was identical, 1 when one was not, 125 when it could not be told."
    )]
    Prove(Prove),
    /// Which methods of an object can be logged now and run later, and what makes the others instant
    #[command(
        long_about = CLASSIFY_HELP,
        after_help = "Example:\n  twinpage classify src/scores.rs src/rows.rs\n  twinpage classify src --json"
    )]
    Classify(Classify),
    /// Measure what checkpoints cost on this machine
    #[command(after_help = "Example:\n  twinpage bench process --heap-mib 256 --every 16ms")]
    Bench(Bench),
    /// The papers' memory controllers in simulated time: traces, workloads, experiments
    #[command(after_help = "Example:\n  twinpage lab record --out ls.trace -- ls -l /")]
    Lab(Lab),
}

const PROVE_HELP: &str = "\
Would my program survive?

Runs the program once undisturbed, without twinpage; then under twinpage without kills, so that what
twinpage itself changes is told apart; then killed with SIGKILL at random instants and resumed each
time, in as many runs as it takes for so many kills. What each run printed on standard output and
standard error, the files it made and how it ended are compared byte for byte.

Every run has a session of its own without a terminal. What the program started ends with it.

Every run starts in a fresh, empty scratch directory: files that the program names relative to its
directory are made there. Arguments that name something in the current directory are made absolute,
so that scripts and inputs are found. Files that the program writes elsewhere are written by every
run and not compared. Standard input is given to every run when it is a file; otherwise it is empty.";

const CLASSIFY_HELP: &str = "\
Which methods of an object can be logged now and run later, and what makes the others instant

A method that touches only its object, its arguments and locals, and returns nothing, is deferrable.
Every other method is instant: its caller waits for it. Calls are followed through the sources that
are given; pure functions of Rust's own libraries and of twinpage's collections are known. For each
instant method every line that makes it so is printed, with the way out.

Where impls are marked #[object], their methods are listed; otherwise those of all types.
#[instant] and #[deferrable] on a function overrule what is found.";

#[derive(Args, Debug)]
pub(crate) struct Log {
    /// One JSON document on standard output; with --follow, one a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Then show calls as they are logged, until the region is closed
    #[arg(long)]
    pub(crate) follow: bool,
    /// Take the call at this position out, so that it is never run: where it ends the program or never returns, and so its
    /// object cannot be opened. No program may have the region open
    #[arg(long, value_name = "POSITION", conflicts_with_all = ["follow", "until"])]
    pub(crate) withdraw: Option<u64>,
    /// Only calls that were durable by then: a time (UTC) as 2026-11-23T18:00:00Z, or an age as 10min; or those up to the
    /// call at a position
    #[arg(long, value_name = "TIME|POSITION", value_parser = until, conflicts_with = "follow")]
    pub(crate) until: Option<Until>,
    /// Also the calls that the region keeps in this folder (Options::keep_calls)
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["follow", "withdraw"])]
    pub(crate) kept: Option<PathBuf>,
    /// Make the new region COPY as the region was then: its objects run the calls when they are opened
    #[arg(long, value_name = "COPY", requires_all = ["kept", "until"])]
    pub(crate) into: Option<PathBuf>,
    /// The region's file
    #[arg(value_name = "FILE")]
    pub(crate) region: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Classify {
    /// One JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Rust files, or directories of them
    #[arg(value_name = "FILE.rs|DIR", required = true)]
    pub(crate) sources: Vec<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Prove {
    /// How many times it is killed
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) kills: u32,
    /// Draw the instants of an earlier proof again
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,
    /// Time from one checkpoint to the next, such as 16ms, 1s, 500us; or auto: the pace that run chooses
    #[arg(long, value_name = "TIME", default_value = "16ms", value_parser = every)]
    pub(crate) every: values::Every,
    /// What a checkpoint survives: the machine's death (disk, dax) or the program's only (memory)
    #[arg(long, value_enum, default_value_t = DurabilityArgument::Disk)]
    pub(crate) durability: DurabilityArgument,
    /// The longest that any run may take, with all its kills and resumes, such as 5min; without it there is no limit
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub(crate) timeout: Option<Duration>,
    /// Where to make the scratch directory, instead of where temporary files go
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch: Option<PathBuf>,
    /// Leave the scratch directory, with what the last runs made
    #[arg(long)]
    pub(crate) keep: bool,
    /// One JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) pace: PaceArguments,
    /// Where the checkpoints are kept: a new or empty directory, or one whose program was killed before its first checkpoint
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// What a checkpoint survives: the machine's death (disk, dax) or the program's only (memory)
    #[arg(long, value_enum, default_value_t = DurabilityArgument::Disk)]
    pub(crate) durability: DurabilityArgument,
    /// When goes out what the program sends to others over TCP, UDP and Unix sockets. A resume listens again and resets
    /// connections
    #[arg(long, value_enum, default_value_t = RepliesArgument::Held)]
    pub(crate) replies: RepliesArgument,
    /// The network that the program is in
    #[arg(long, value_enum, default_value_t = NetworkArgument::Machine)]
    pub(crate) network: NetworkArgument,
    /// The level of the least processor that it is to go on with: features above it are hidden from the program
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    pub(crate) cpu_floor: Option<Level>,
    /// Tell the program of each resume by this signal, such as USR1, which it must handle
    #[arg(long, value_name = "SIGNAL", value_parser = signal)]
    pub(crate) resume_signal: Option<i32>,
    /// List what is supported and what is refused, call by call, and do nothing
    #[arg(long)]
    pub(crate) explain: bool,
    /// With --explain: as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The program and its arguments
    #[arg(last = true, required_unless_present = "explain", value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Resume {
    #[command(flatten)]
    pub(crate) pace: PaceArguments,
    /// Go back to an older checkpoint that --keep kept: its number, or how old it is at least (10min). The newest is
    /// kept too
    #[arg(long, value_name = "NUMBER|AGE", value_parser = at)]
    pub(crate) at: Option<At>,
    /// The directory that twinpage run kept the checkpoints in
    #[arg(value_name = "DIR")]
    pub(crate) state: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Attach {
    /// The key that leaves, as ^X; or none
    #[arg(long, value_name = "KEY", default_value = "^\\", value_parser = control_key)]
    pub(crate) key: values::Key,
    /// The directory that twinpage run keeps the checkpoints in
    #[arg(value_name = "STATE")]
    pub(crate) state: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// One JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// States, or directories of states [default: the user's state directory]
    #[arg(value_name = "DIR")]
    pub(crate) places: Vec<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Stop {
    /// One JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// The directory that twinpage run keeps the checkpoints in
    #[arg(value_name = "STATE")]
    pub(crate) state: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Fork {
    /// One JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// The directory that twinpage run keeps the checkpoints in
    #[arg(value_name = "STATE")]
    pub(crate) state: PathBuf,
    /// The directory of the second program, which does not exist yet
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Clean {
    /// One JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Say what would be removed, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// States, or directories of states [default: the user's state directory]
    #[arg(value_name = "DIR")]
    pub(crate) places: Vec<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Look {
    /// One JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// The directory that twinpage run kept the checkpoints in, or the file of a region or an array
    #[arg(value_name = "DIR|FILE")]
    pub(crate) state: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Stats {
    /// One JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// The file of the region
    #[arg(value_name = "REGION")]
    pub(crate) region: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Backup {
    /// One JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// The file of the region, or of the array
    #[arg(value_name = "FILE")]
    pub(crate) region: PathBuf,
    /// The copy, which must not be there yet
    #[arg(value_name = "COPY")]
    pub(crate) file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct PaceArguments {
    /// Time from one checkpoint to the next, such as 16ms, 1s, 500us; or auto: as often as the limits allow
    #[arg(long, value_name = "TIME", default_value = "auto", value_parser = every, allow_hyphen_values = true)]
    pub(crate) every: values::Every,
    /// With --every auto: the most that checkpoints may take of the program's time [default: 3%]
    #[arg(long, value_name = "PERCENT", value_parser = share)]
    pub(crate) slowdown: Option<f64>,
    /// With --every auto: the most that is written to a disk, averaged over a few minutes [default: 4MB/s]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) write_rate: Option<f64>,
    /// With --every auto: the most work that is to be lost with a kill; more where the other limits leave no choice
    /// [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub(crate) lose_at_most: Option<Duration>,
    /// What SIGTERM and SIGHUP from outside do: suspend the program, so that a resume goes on, or reach it
    #[arg(long, value_enum, default_value_t = OnTermArgument::Suspend)]
    pub(crate) on_term: OnTermArgument,
    /// What ^C and a SIGINT from outside do: reach the program, or suspend it, so that a resume goes on
    #[arg(long, value_enum, default_value_t = OnTermArgument::Forward)]
    pub(crate) on_interrupt: OnTermArgument,
    /// Keep copies of N older checkpoints as well, at most one in each EVERY [default: 10min]; resume --at goes back
    #[arg(long, value_name = "N[@EVERY]", value_parser = keep)]
    pub(crate) keep: Option<Keep>,
    /// Leave a finished program's state also where no --state was named
    #[arg(long)]
    pub(crate) keep_state: bool,
    /// What to do when there is no room for a checkpoint
    #[arg(long, value_enum, default_value_t = OnFullArgument::Stop)]
    pub(crate) on_full: OnFullArgument,
    /// What to do when the program has something that cannot be captured
    #[arg(long, value_enum, default_value_t = OnUncapturableArgument::Stop)]
    pub(crate) on_uncapturable: OnUncapturableArgument,
    /// Run in the background, on a terminal of its own that twinpage attach shows
    #[arg(long)]
    pub(crate) detach: bool,
    /// Write statistics, as JSON, to this file when the program ends
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// Append what twinpage itself has to say to this file, not to standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) messages: Option<PathBuf>,
}

impl PaceArguments {
    /// # Errors
    /// When limits are given that a fixed pace would not follow.
    pub(crate) fn pace(&self) -> Result<Pace, String> {
        let on_full = match self.on_full {
            OnFullArgument::Stop => OnFull::Stop,
            OnFullArgument::Continue => OnFull::Continue,
        };
        let on_uncapturable = match self.on_uncapturable {
            OnUncapturableArgument::Stop => OnUncapturable::Stop,
            OnUncapturableArgument::Warn => OnUncapturable::Warn,
        };
        Ok(Pace {
            every: self.chosen()?,
            on_full,
            on_uncapturable,
            on_term: self.on_term.choice(),
            on_interrupt: self.on_interrupt.choice(),
            keep: self.keep,
        })
    }

    fn chosen(&self) -> Result<Every, String> {
        let usual = Limits::default();
        let given = [
            ("--slowdown", self.slowdown.is_some()),
            ("--write-rate", self.write_rate.is_some()),
            ("--lose-at-most", self.lose_at_most.is_some()),
        ];
        let given = given.into_iter().find(|(_, is_given)| *is_given);
        match (self.every, given) {
            (values::Every::Auto, _) => Ok(Every::Auto(Limits {
                slowdown: self.slowdown.unwrap_or(usual.slowdown),
                bytes_per_s: self.write_rate.unwrap_or(usual.bytes_per_s),
                lose_at_most: self.lose_at_most.unwrap_or(usual.lose_at_most),
            })),
            (values::Every::Fixed(every), None) => Ok(Every::Fixed(every)),
            (values::Every::Fixed(every), Some((limit, _))) => Err(format!(
                "{limit} is a limit for a pace that is chosen, and --every {} fixes it: leave one of them out",
                humantime::format_duration(every).to_string().replace(' ', "")
            )),
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum BenchCommand {
    /// A program that writes to its heap, alone and under checkpoints
    #[command(
        after_help = "Example:\n  twinpage bench process --heap-mib 256 --dirty-percent 1 --every 16ms --json"
    )]
    Process(ProcessArguments),
    /// Programs of other people that do real work: alone and under checkpoints, in turns; or proved to survive
    #[command(
        after_help = "Example:\n  twinpage bench programs --only xz,sqlite,torch --json\n  twinpage bench programs --kills 20\n\nInterpreters of Python are looked for in $PYTHON, or as python3. Exit code 0 when every run was identical with the one\nalone, 1 when one was not, 125 when it could not be told."
    )]
    Programs(ProgramsArguments),
    /// Process trees, servers and a terminal session, each beside the same without checkpoints
    #[command(
        after_help = "Example:\n  twinpage bench trees --only redis,memcached --json\n\nWhat is not installed is named and left out."
    )]
    Trees(TreesArguments),
    /// Data structures in a region beside the same ones volatile, and beside other stores
    #[command(
        disable_help_flag = true,
        disable_version_flag = true,
        after_help = "Example:\n  twinpage bench region --workload hash-rand,sps --engine native,twinpage,lmdb --json"
    )]
    Region(RegionArguments),
    /// Failure-atomic sections beside the same structures volatile, and beside other stores
    #[command(
        disable_help_flag = true,
        disable_version_flag = true,
        after_help = "Example:\n  twinpage bench sections --workload hash-rand,sps --engine twinpage,pmemobj --threads 1,2 --json"
    )]
    Sections(RegionArguments),
    /// Versioned arrays beside redo logs and other stores: the SPS programs of MSS
    #[command(
        disable_help_flag = true,
        disable_version_flag = true,
        after_help = "Example:\n  twinpage bench versions --swaps 100000 --variant l,lcs,tcs --json"
    )]
    Versions(RegionArguments),
    /// Persistent objects: the array of SIMPO's microbenchmark, and instant calls beside other stores
    #[command(
        disable_help_flag = true,
        disable_version_flag = true,
        after_help = "Example:\n  twinpage bench objects --workload all-inc --threads 1,2 --json"
    )]
    Objects(RegionArguments),
    /// The simulator itself: simulated requests and instructions a second of processor time
    #[command(after_help = "Example:\n  twinpage bench lab --repeat 5 --json")]
    Lab(LabArguments),
    /// The program that the process bench runs
    #[command(
        hide = true,
        after_help = "Example:\n  twinpage bench writer --heap-mib 64 --dirty-percent 1 --rounds 100 --spin 1000"
    )]
    Writer(WriterArguments),
}

#[derive(Args, Debug)]
pub(crate) struct LabArguments {
    /// Runs of each setting; medians are shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) repeat: u16,
    /// The machine and its workloads are smaller by this power of two
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) smaller: u64,
    /// Instructions of a run, of all cores together
    #[arg(long, value_name = "N", default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) instructions: u64,
    /// One JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a program is checkpointed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Mode {
    /// At the default pace, on a disk
    Default,
    /// Every 16 ms, on a disk
    #[value(name = "16ms-disk")]
    Disk,
    /// Every 16 ms, in memory
    #[value(name = "16ms-memory")]
    Memory,
}

/// What `bench trees` measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Measure {
    /// The stop of a tree of one busy process and 64 that sleep, over that of the busy one alone
    Sleepers,
    /// A shell that starts a thousand programs, one after the other
    Children,
    /// make -j2 of a C project of 100 files
    Make,
    /// Requests a second of a Redis server with 50 clients
    Redis,
    /// Requests a second of a memcached server, the same
    Memcached,
    /// What a request of Redis takes that nothing else is asked beside
    Latency,
    /// The resume of a killed tmux session with six processes, until it answers
    Tmux,
}

#[derive(Args, Debug)]
pub(crate) struct ProgramsArguments {
    /// Only these; all that are installed if none is named
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Short jobs of every kind (compilers, shells, servers with their clients, science), which --kills proves
    #[arg(long, requires = "kills")]
    pub(crate) jobs: bool,
    /// How they are checkpointed; with --kills at the default pace unless one is named
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Mode::Default, Mode::Disk, Mode::Memory], default_value_if("kills", ArgPredicate::IsPresent, "default"))]
    pub(crate) mode: Vec<Mode>,
    /// Runs of each; medians are shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) repeat: u16,
    /// Prove that they survive that many kills, instead of measuring them
    #[arg(long, value_name = "N", conflicts_with = "repeat", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) kills: Option<u32>,
    /// One JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct TreesArguments {
    /// Only these
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',', default_values_t = Measure::value_variants().to_vec())]
    pub(crate) only: Vec<Measure>,
    /// Runs of each; medians are shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) repeat: u16,
    /// Outstanding requests of each client of Redis and memcached
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) pipeline: u32,
    /// Seconds that a server is asked, or that the busy process works
    #[arg(long, default_value_t = 3.0, value_parser = within(0.01, 86_400.0))]
    pub(crate) seconds: f64,
    /// One JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ProcessArguments {
    /// Sizes of the heap
    #[arg(long, value_delimiter = ',', default_values_t = [256, 1024], value_parser = heap_mib())]
    pub(crate) heap_mib: Vec<usize>,
    /// Share of its pages written in each epoch
    #[arg(long, value_delimiter = ',', default_values_t = [0.1, 1.0, 10.0], value_parser = within(0.0, 100.0))]
    pub(crate) dirty_percent: Vec<f64>,
    /// Times from one checkpoint to the next
    #[arg(long, value_delimiter = ',', default_values = ["16ms", "100ms"], value_parser = interval)]
    pub(crate) every: Vec<Duration>,
    /// The same pages in every epoch, or others each time
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Pattern::WorkingSet])]
    pub(crate) pattern: Vec<Pattern>,
    /// Seconds of work in each run
    #[arg(long, default_value_t = 3.0, value_parser = within(0.01, 86_400.0))]
    pub(crate) seconds: f64,
    /// Runs of each setting; medians are shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    repeat: u16,
    /// What a checkpoint survives
    #[arg(long, value_enum, default_value_t = DurabilityArgument::Memory)]
    pub(crate) durability: DurabilityArgument,
    /// Where the states are kept [default: /dev/shm for memory, the temporary directory for disk]
    #[arg(long, value_name = "DIR")]
    place: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

impl ProcessArguments {
    pub(crate) fn repeat(&self) -> usize {
        usize::from(self.repeat)
    }

    pub(crate) fn place(&self) -> PathBuf {
        self.place.clone().unwrap_or_else(|| match self.durability {
            DurabilityArgument::Memory => PathBuf::from("/dev/shm"),
            DurabilityArgument::Disk | DurabilityArgument::Dax => std::env::temp_dir(),
        })
    }
}

/// What the program beside this one takes; it has the help, too.
#[derive(Args, Debug)]
pub(crate) struct RegionArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub(crate) options: Vec<OsString>,
}

/// Reads the size of a heap: one with pages, and of a TiB at most.
fn heap_mib() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=1 << 20)
}

#[derive(Args, Debug)]
pub(crate) struct WriterArguments {
    /// Size of the heap
    #[arg(long, value_parser = heap_mib())]
    pub(crate) heap_mib: usize,
    /// Share of its pages written in a round
    #[arg(long, value_parser = within(0.0, 100.0))]
    pub(crate) dirty_percent: f64,
    /// Which pages
    #[arg(long, value_enum, default_value_t = Pattern::WorkingSet)]
    pub(crate) pattern: Pattern,
    /// Rounds to do
    #[arg(long)]
    pub(crate) rounds: usize,
    /// Steps of computing for each page
    #[arg(long)]
    pub(crate) spin: u64,
    /// Make this file when the heap is there, and wait for a checkpoint of it before
    #[arg(long)]
    pub(crate) ready: Option<PathBuf>,
}

/// Which pages are written in a round.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pattern {
    /// The same in every round, spread over the heap
    WorkingSet,
    /// Others in every round, anywhere
    Uniform,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum OnTermArgument {
    /// Make a checkpoint and end; twinpage resume goes on
    Suspend,
    /// Pass the signal on to the program
    Forward,
}

impl OnTermArgument {
    fn choice(self) -> OnTerm {
        match self {
            OnTermArgument::Suspend => OnTerm::Suspend,
            OnTermArgument::Forward => OnTerm::Forward,
        }
    }
}

#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum RepliesArgument {
    /// What is sent waits until the checkpoint that covers it is durable; a kill forgets nothing the outside saw
    Held,
    /// What is sent goes out at once; a kill may forget what the outside saw last
    Loose,
    /// The same, but fsync and its kind wait for a checkpoint; a kill forgets nothing acknowledged after one
    Synced,
    /// Nothing does: sockets to the outside are refused, so that all that the program has comes back
    None,
}

impl From<RepliesArgument> for Replies {
    fn from(argument: RepliesArgument) -> Replies {
        match argument {
            RepliesArgument::Held => Replies::Held,
            RepliesArgument::Loose => Replies::Loose,
            RepliesArgument::Synced => Replies::Synced,
            RepliesArgument::None => Replies::Refused,
        }
    }
}

#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum NetworkArgument {
    /// The machine's; a resume resets connections to others
    Machine,
    /// One of its own, which no other program is in; all connections and ports come back
    Keep,
}

impl From<NetworkArgument> for Network {
    fn from(argument: NetworkArgument) -> Network {
        match argument {
            NetworkArgument::Machine => Network::Machine,
            NetworkArgument::Keep => Network::Kept,
        }
    }
}

#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum OnFullArgument {
    /// End the program; make room, then resume
    Stop,
    /// Let it go on without new checkpoints; what it prints, and changes of its files, wait for room
    Continue,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum OnUncapturableArgument {
    /// End the program at once; its last checkpoint can be resumed
    Stop,
    /// Say so, and let it go on without new checkpoints until it can be captured again
    Warn,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum DurabilityArgument {
    /// Survive a power cut
    Disk,
    /// Survive the end of the program
    Memory,
    /// Survive a power cut, on persistent memory (a DAX file system) or not at all
    Dax,
}

impl DurabilityArgument {
    /// As it is written on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            DurabilityArgument::Disk => "disk",
            DurabilityArgument::Memory => "memory",
            DurabilityArgument::Dax => "dax",
        }
    }
}

impl From<DurabilityArgument> for Durability {
    fn from(argument: DurabilityArgument) -> Durability {
        match argument {
            DurabilityArgument::Disk => Durability::Disk,
            DurabilityArgument::Memory => Durability::Memory,
            DurabilityArgument::Dax => Durability::Dax,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_holds_together() {
        Arguments::command().debug_assert();
        for line in [
            &["run", "--", "true"][..],
            &["resume", "state"],
            &["prove", "--", "true"],
        ] {
            let words = ["twinpage"].iter().chain(line);
            assert!(Arguments::try_parse_from(words).is_ok(), "{line:?}");
        }
        for command in Arguments::command().get_subcommands() {
            let help = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(help.contains("Example"), "{} has no example", command.get_name());
        }
    }
}
