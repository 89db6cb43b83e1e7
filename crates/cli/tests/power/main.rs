//! Power cuts: a machine of QEMU's is killed from outside at any instant, boots again, and must find
//! exactly one commit, none older than what it said was durable. `make power` runs it.
//!
//! ```text
//!   this program (host)                                  this program again (guest, process 1)
//!   machine: QEMU, its memory and its console  <-------  "durable 17"
//!   persistent memory: a file mapped by QEMU   <------>  ext4 -o dax: the DAX medium
//!   disk: a server with a volatile cache       <------>  ext4: the file medium
//!   the power goes: QEMU is killed, and of the disk's cache any subset of sectors stays
//! ```
//!
//! * What the guest had in its page cache is lost in every cut, as is any part of what the disk had not
//!   been told to flush: a forgotten `fdatasync` is found.
//! * QEMU's caches are the host's, and outlive it: every store the guest executed is on its persistent
//!   memory. So these cuts prove order, metadata and recovery on DAX, but not that nothing was left in
//!   the processor's caches. That is proved over a model of them (`crates/os/tests/cache.rs`).
//! * A disk may also fail: see [`disk::Failure`].
//!
//! It needs `qemu-system-x86_64`, `mke2fs` and an unpacked kernel package, whose place `TWINPAGE_KERNEL`
//! says; without that, nothing is run. `TWINPAGE_SEED` repeats the choices of an earlier run (not the
//! instants: a machine is not that exact), `TWINPAGE_LONG` makes more cuts, `TWINPAGE_SHORT` one of each kind.

mod arrays;
mod disk;
mod guest;
mod machine;
mod names;
mod program;
mod writer;

use disk::{Disk, Failure};
use machine::{Console, Drive, Job, Machine};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use twinpage_core::crash::Random;

/// Bytes of the persistent memory, and of the disk.
const DRIVE_BYTES: u64 = 96 << 20;

fn main() -> ExitCode {
    if std::process::id() == 1 {
        guest::run();
    }
    if std::env::args().nth(1).as_deref() == Some(program::COUNT) {
        program::count(std::env::args().nth(2).expect("a folder").into());
    }
    let Some(kernel) = std::env::var_os("TWINPAGE_KERNEL") else {
        println!("power cuts: not run; make power does");
        return ExitCode::SUCCESS;
    };
    let seed = twinpage_campaign::seed();
    let is_short = std::env::var_os("TWINPAGE_SHORT").is_some();
    let power = Power {
        machine: Machine::new(&PathBuf::from(kernel)),
        random: Random::new(seed),
        cuts: match (twinpage_campaign::is_long(), is_short) {
            (true, _) => 20,
            (_, true) => 1,
            _ => 8,
        },
    };
    power.run();
    ExitCode::SUCCESS
}

/// The drives of the emulated machine.
struct Drives {
    memory: Drive,
    disk: Disk,
}

impl Drives {
    fn disk(&self) -> Drive {
        Drive::Disk(self.disk.clone())
    }
}

/// A part of the campaign, with its name.
type Part = (&'static str, fn(&mut Power, &Drives));

const PARTS: [Part; 5] = [
    ("dax", |power, drives| {
        power.cut_often("persistent memory", &drives.memory, [Job::Write, Job::Look]);
        let arrays = [Job::Arrays, Job::LookAtArrays];
        power.cut_often("arrays on persistent memory", &drives.memory, arrays);
    }),
    ("dax-program", |power, drives| {
        power.cut_a_program("a program on persistent memory", &drives.memory)
    }),
    ("disk", |power, drives| {
        power.cut_often("a disk", &drives.disk(), [Job::Write, Job::Look]);
        let arrays = [Job::Arrays, Job::LookAtArrays];
        power.cut_often("arrays on a disk", &drives.disk(), arrays);
    }),
    ("disk-program", |power, drives| {
        power.cut_a_program("a program on a disk", &drives.disk())
    }),
    ("failures", |power, drives| power.fail_often(&drives.disk)),
];

/// The parts whose names begin with the argument; all without one. An unknown name is an error.
fn asked_for() -> Vec<Part> {
    let asked = std::env::args().nth(1).unwrap_or_default();
    let parts: Vec<Part> = PARTS
        .into_iter()
        .filter(|(name, _)| name.starts_with(&asked))
        .collect();
    let names = PARTS.map(|(name, _)| name);
    assert!(!parts.is_empty(), "{asked:?} is none of {names:?}");
    parts
}

struct Power {
    machine: Machine,
    random: Random,
    cuts: u32,
}

impl Power {
    fn run(mut self) {
        let folder = tempfile::tempdir().expect("a folder for the machine's memory");
        let memory = folder.path().join("memory");
        let file = std::fs::File::create(&memory).expect("a file for the persistent memory");
        file.set_len(DRIVE_BYTES).expect("room for the persistent memory");
        let disk = Disk::start(folder.path().join("disk"), DRIVE_BYTES).expect("a disk");
        let drives = Drives {
            memory: Drive::Memory(memory),
            disk,
        };
        for (_, run) in asked_for() {
            run(&mut self, &drives);
        }
    }

    /// A disk that fails in each way, and one that lies.
    fn fail_often(&mut self, disk: &Disk) {
        for failure in [
            Failure::OneFlush,
            Failure::OneWrite,
            Failure::Flushes,
            Failure::Writes,
        ] {
            self.fail(disk, failure);
        }
        self.lie(disk);
    }

    /// Writes, cuts the power and looks, again and again.
    fn cut_often(&mut self, name: &str, drive: &Drive, [write, look]: [Job; 2]) {
        let begun = Instant::now();
        let mut told = 0;
        let mut found = Vec::new();
        for cut in 0..self.cuts {
            let mut console = self.machine.boot(drive, write, told > 0);
            // One in four boots is cut at any instant: in the kernel, in its own recovery, in ours.
            if cut > 0 && self.random.once_in(4) {
                console.run_for(Duration::from_millis(self.random.below(6000)));
            } else {
                let first = console.recovered();
                assert!(
                    first >= told,
                    "{name}: epoch {first} was found, {told} was durable"
                );
                found.push(first);
                for _ in 0..self.random.below(400) {
                    console.durable();
                }
                console.run_for(Duration::from_micros(self.random.below(20_000)));
            }
            told = told.max(console.cut());
            drive.cut(&mut self.random);
        }
        let mut console = self.machine.boot(drive, look, told > 0);
        let last = console.recovered();
        assert!(last >= told, "{name}: epoch {last} was found, {told} was durable");
        console.cut();
        println!(
            "{name}: {} power cuts, {} recoveries looked at, {last} epochs, {:.1} s",
            self.cuts,
            found.len() + 1,
            begun.elapsed().as_secs_f64()
        );
    }

    /// The same with a whole program, which prints into a file. The guest verifies that the file is what an
    /// undisturbed run would have printed, with nothing missing and nothing twice, and says each line it finds.
    fn cut_a_program(&mut self, name: &str, drive: &Drive) {
        let begun = Instant::now();
        let mut last = 0;
        for _ in 0..=self.cuts {
            let mut console = self.machine.boot(drive, Job::Program, last > 0);
            // Steps that a cut took from the file are said again first.
            let enough = last + 1 + self.random.below(200);
            while last < enough {
                last = console.step();
            }
            console.run_for(Duration::from_micros(self.random.below(20_000)));
            console.cut();
            drive.cut(&mut self.random);
        }
        println!(
            "{name}: {} power cuts, {last} steps, {:.1} s",
            self.cuts,
            begun.elapsed().as_secs_f64()
        );
    }

    /// A disk that lies about its flushes loses epochs, and that is noticed.
    fn lie(&mut self, disk: &Disk) {
        let drive = Drive::Disk(disk.clone());
        let mut console = self.machine.boot(&drive, Job::Write, false);
        console.recovered();
        disk.fail(Failure::Lies);
        for _ in 0..20 {
            console.durable();
        }
        let told = console.cut();
        drive.cut(&mut self.random);
        let mut console = self.machine.boot(&drive, Job::Look, told > 0);
        let found = console.recovered();
        assert!(
            found < told,
            "the disk forgot all since epoch {told} was durable, and {found} was found"
        );
        console.cut();
        println!("Lies: noticed, {told} was called durable and {found} was found");
    }

    /// The disk fails under a writer: it must say so, call nothing durable from then on, and lose nothing.
    fn fail(&mut self, disk: &Disk, failure: Failure) {
        let drive = Drive::Disk(disk.clone());
        let mut console = self.machine.boot(&drive, Job::Write, false);
        console.recovered();
        let mut told = 0;
        for _ in 0..20 {
            told = console.durable();
        }
        disk.fail(failure);
        let (refused, why) = console.refused();
        assert!(
            refused > told,
            "{failure:?}: {refused} refused, {told} was durable"
        );
        told = told.max(console.cut());
        assert!(
            told < refused,
            "{failure:?}: {told} was called durable after {refused} failed"
        );
        drive.cut(&mut self.random);
        let mut console = self.machine.boot(&drive, Job::Look, told > 0);
        let found = console.recovered();
        assert!(
            found >= told,
            "{failure:?}: epoch {found} was found, {told} was durable"
        );
        console.cut();
        println!("{failure:?}: epoch {refused} refused ({why}); {told} was durable, {found} was found");
    }
}

impl Drive {
    /// The power is gone.
    fn cut(&self, random: &mut Random) {
        if let Drive::Disk(disk) = self {
            disk.cut(random);
        }
    }
}

/// What the writer says on the console.
impl Console {
    /// The epoch it found, whole.
    fn recovered(&mut self) -> u64 {
        self.number_after("whole")
    }

    /// The next epoch that it says is durable.
    fn durable(&mut self) -> u64 {
        self.number_after("durable")
    }

    /// The epoch that failed, and why.
    fn refused(&mut self) -> (u64, String) {
        let line = self.wait_for("refused");
        let (epoch, why) = line.split_once(' ').expect("an epoch and a reason");
        (epoch.parse().expect("an epoch"), why.to_owned())
    }

    /// The next step that the program printed.
    fn step(&mut self) -> u64 {
        self.number_after("step")
    }

    fn number_after(&mut self, word: &str) -> u64 {
        let line = self.wait_for(word);
        line.parse().unwrap_or_else(|_| panic!("{word} {line:?}"))
    }

    /// Kills the machine. Returns the last epoch it had called durable.
    fn cut(self) -> u64 {
        let lines = self.kill();
        let told = lines
            .iter()
            .rev()
            .find_map(|line| line.strip_prefix("durable ")?.parse().ok());
        told.unwrap_or(0)
    }
}
