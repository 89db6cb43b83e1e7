//! The machine of many cores with locks and NVM, and the mechanisms of SIMPO on it.

use std::collections::VecDeque;
use twinpage_lab::bus::{Counts, Machine};
use twinpage_lab::config::Described;
use twinpage_lab::objects::crash::{Crashed, Step};
use twinpage_lab::objects::{ALL, Calls, Config, NATIVE, Program, Scan, Variant};
use twinpage_lab::op::Kind;
use twinpage_lab::workload::{Progress, Workload};
use twinpage_lab::{Port, Space};

fn simpo() -> Config {
    Config::find("simpo").unwrap()
}

/// What each core does in a batch, again and again.
struct Batches<F> {
    batch: F,
    numbers: Vec<u64>,
    persistent_from: u64,
}

impl<F: FnMut(usize, u64, &mut Port<'_>) + Send> Workload for Batches<F> {
    fn name(&self) -> &str {
        "a test"
    }

    fn footprint_bytes(&self) -> u64 {
        64 << 20
    }

    fn persistent_from(&self) -> u64 {
        self.persistent_from
    }

    fn fill(&self, _: &mut Space) {}

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        let Some(number) = self.numbers.get_mut(core) else {
            return Progress::Done;
        };
        (self.batch)(core, *number, port);
        *number += 1;
        Progress::More
    }

    fn check(&self, _: &Space) -> Result<(), String> {
        Ok(())
    }
}

/// A thousand commits of such batches, by that many cores.
fn run(config: &Config, cores: usize, batch: impl FnMut(usize, u64, &mut Port<'_>) + Send) -> Counts {
    let mut program = Batches {
        batch,
        numbers: vec![0; cores],
        persistent_from: 32 << 20,
    };
    Machine::new(config.hardware.clone(), None, &mut program)
        .run(100, 1000)
        .unwrap()
}

fn each_ns(counts: &Counts) -> f64 {
    counts.time_fs as f64 * 1e-6 / counts.transactions as f64
}

#[test]
fn a_line_that_two_cores_write_costs_what_its_way_costs() {
    let config = simpo();
    // Cores 0 and `other` add to a number in turn; the others do nothing.
    let between = |other: usize| {
        let counts = run(&config, other + 1, |core, _, port| {
            match core == 0 || core == other {
                true => {
                    port.fetch_add(0, 1);
                    port.commit();
                }
                false => port.work(1_000_000),
            }
        });
        each_ns(&counts) * 2.2
    };
    let found = [1, 8, 16, 24].map(between);
    let expected = simpo().hardware.distances.unwrap().line;
    for (cycles, expected) in found.iter().zip(expected) {
        let expected = f64::from(expected);
        assert!((expected * 0.9..expected * 1.2).contains(cycles), "{found:?}");
    }
    let alone = run(&config, 1, |_, _, port| {
        port.fetch_add(0, 1);
        port.commit();
    });
    assert!(each_ns(&alone) * 2.2 < 6.0, "{alone:?}");
    assert_eq!(alone.remote, 0);
}

#[test]
fn sixty_four_cores_each_have_their_own_bit() {
    let mut config = simpo();
    config.hardware.shape.cores = 64;
    // All read a line, then the last one writes it: it is taken from all others.
    let counts = run(&config, 64, |core, number, port| {
        match (core, number % 2) {
            (63, 0) => port.store(0, number),
            (_, 0) => {
                let _: u64 = port.load(0);
            }
            _ => port.work(2000),
        }
        port.commit();
    });
    assert!(counts.remote > 20, "{counts:?}");
}

/// Threads take a lock, add to a number that it guards, and give it back.
fn guarded(config: &Config, threads: usize, work: u32) -> Counts {
    let mut inside: Option<usize> = None;
    run(config, threads, move |core, number, port| match number % 3 {
        0 => {
            port.work(10);
            port.lock(0);
        }
        1 => {
            assert_eq!(inside.replace(core), None, "beside {core}");
            let count: u64 = port.load(64);
            port.work(work);
            port.store(64, count + 1);
        }
        _ => {
            assert_eq!(inside.take(), Some(core));
            port.unlock(0);
            port.commit();
        }
    })
}

#[test]
fn a_lock_admits_one_and_waiting_costs() {
    let config = simpo();
    let costs = config.hardware.locks.unwrap();
    let [one, two, many] = [1, 2, 40].map(|threads| guarded(&config, threads, 1000));
    for counts in [one, two, many] {
        assert_eq!(counts.transactions, 1000);
        // Never less than the work under the lock: 1000 instructions, two a cycle.
        assert!(each_ns(&counts) > 227.0, "{counts:?}");
    }
    assert!(one.lock_stall_fs * 20 < u128::from(one.time_fs), "{one:?}");
    // Where threads sleep, holders wake them.
    let woken = costs.wake_fs as f64 * 1e-6;
    assert!(each_ns(&two) > each_ns(&one) * 1.1, "{two:?}");
    assert!(each_ns(&many) > each_ns(&one) + woken * 0.2, "{many:?}");
    // Threads that spin pass the lock on, and all of them fetch its line.
    let mut spinning = config.clone();
    spinning.hardware.locks.as_mut().unwrap().spin_fs = u64::MAX;
    let [few, more] = [2, 40].map(|threads| guarded(&spinning, threads, 1000));
    assert!(each_ns(&more) > each_ns(&few) * 2.0, "{more:?}");
}

#[test]
fn nvm_lies_beside_dram_and_its_writes_take_longer() {
    let config = simpo();
    let at = |base: u64| {
        run(&config, 1, move |_, number, port| {
            port.store(base + number * 4096 % (16 << 20), number);
            port.write_back(Kind::FlushOpt, base + number * 4096 % (16 << 20), 8);
            port.fence();
            port.commit();
        })
    };
    let [dram, nvm] = [at(0), at(32 << 20)];
    assert_eq!((dram.nvm_writes, nvm.nvm_writes), (0, 1000));
    assert_eq!((dram.writes, nvm.writes), (1000, 1000));
    assert!(
        each_ns(&nvm) > each_ns(&dram) + 30.0,
        "{} {}",
        each_ns(&nvm),
        each_ns(&dram)
    );
}

/// The same array, small, with short groups.
fn small() -> Config {
    let mut config = simpo();
    config.sizes.rows = 6;
    // More than a sector.
    config.sizes.columns = 30;
    config.sizes.group = 7;
    config.sizes.log_entries = 64;
    config
}

#[test]
fn every_mechanism_adds_what_is_called() {
    let config = small();
    for variant in ALL {
        for calls in [Calls::AllInc, Calls::RowInc] {
            for threads in [1, 2, 7, 60] {
                let mut program = Program::new(variant, calls, threads, &config);
                let mut machine = Machine::new(config.hardware.clone(), Some(config.ssd), &mut program);
                let counts = machine.run(20, 400).unwrap();
                machine
                    .check()
                    .unwrap_or_else(|why| panic!("{}: {why}", variant.name));
                drop(machine);
                assert!(program.numbered() >= 420, "{}", variant.name);
                assert_eq!(program.checkpoints() > 0, variant != NATIVE, "{}", variant.name);
                assert_eq!(counts.disk_writes > 0, variant.name == "ssd");
                let is_in_nvm = variant.form.is_some() && variant.name != "ssd";
                assert!(!is_in_nvm || counts.nvm_writes > 0, "{}", variant.name);
            }
        }
    }
}

/// SIMPO 4.1 and Table 7: ssd flushes "every 1,000 functions", here every 7 with the entry that ends them.
#[test]
fn the_file_is_flushed_with_the_log() {
    let writes = |flushes_each| {
        let mut config = small();
        config.ssd_flushes_each = flushes_each;
        let mut program = Program::new(Variant::find("ssd").unwrap(), Calls::AllInc, 1, &config);
        let mut machine = Machine::new(config.hardware.clone(), Some(config.ssd), &mut program);
        machine.run(70, 700).unwrap().disk_writes
    };
    assert_eq!(writes(true), 700);
    assert!(writes(false).abs_diff(700 / 7) <= 17, "{}", writes(false));
}

/// Runs a program with operations in any order, and crashes it after each of them. Says where what is recovered is wrong.
fn crash_everywhere(
    variant: Variant,
    calls: Calls,
    threads: usize,
    seed: u64,
    fault: &mut dyn FnMut(&mut VecDeque<Step>),
) -> Result<u64, String> {
    let config = small();
    let program = Program::new(variant, calls, threads, &config);
    let mut crashed = Crashed::new(program, threads + 1, seed);
    let replayed = crashed.crash_everywhere(fault, |program| {
        program.checkpoints() >= 4 && program.numbered() >= 80
    });
    replayed.map_err(|why| format!("seed {seed}: {why}"))
}

#[test]
fn a_crash_anywhere_loses_nothing_that_was_acknowledged() {
    let seed = fastrand::u64(..);
    for variant in ALL.into_iter().filter(|variant| *variant != NATIVE) {
        for calls in [Calls::AllInc, Calls::RowInc] {
            for threads in [1, 4] {
                let replayed = crash_everywhere(variant, calls, threads, seed, &mut |_| {}).unwrap();
                // ssd's file is behind its log.
                let is_behind = !variant.each || variant.name == "ssd";
                assert_eq!(replayed > 0, is_behind, "{}, seed {seed}", variant.name);
            }
        }
    }
}

/// The crashes find a fault in one of some runs at least.
fn is_found(name: &str, mut fault: impl FnMut(&mut VecDeque<Step>)) {
    let variant = Variant::find(name).unwrap();
    let is_found = (0..20).any(|seed| crash_everywhere(variant, Calls::AllInc, 3, seed, &mut fault).is_err());
    assert!(is_found, "{name}");
}

/// Takes out the operations of a kind of every batch that writes the word `value` says of.
fn without(steps: &mut VecDeque<Step>, kind: Kind, value: impl Fn(u64) -> bool) {
    let is_such = |step: &Step| {
        step.op.kind == Kind::Store
            && step.bytes.len() == 8
            && value(u64::from_le_bytes(step.bytes[..].try_into().unwrap()))
    };
    if steps.iter().any(is_such) {
        steps.retain(|step| step.op.kind != kind);
    }
}

#[test]
fn entries_that_are_not_flushed_are_missed() {
    for name in ["hybrid", "fc", "m-server", "simpo"] {
        // The batches of the log's flush have nothing but flushes.
        is_found(name, |steps| {
            if steps.iter().all(|step| step.op.kind == Kind::FlushOpt) && steps.len() > 2 {
                steps.clear();
            }
        });
    }
    is_found("simpo-all", |steps| {
        if steps.iter().all(|step| step.op.kind == Kind::FlushOpt) {
            steps.clear();
        }
    });
}

#[test]
fn an_index_without_its_mask_is_found() {
    for name in ["hybrid", "simpo"] {
        is_found(name, |steps| {
            // The masked index is not written at all.
            let is_masked = |step: &Step| {
                step.op.kind == Kind::Store && matches!(step.bytes[..], [8 | 9, 0, 0, 0, 0, 0, 0, 0])
            };
            if steps.len() == 3 && steps.iter().any(is_masked) {
                steps.clear();
            }
        });
    }
}

#[test]
fn a_fence_between_copy_and_index_is_missed() {
    for name in ["nvram", "hybrid", "simpo", "double", "cow"] {
        is_found(name, |steps| {
            // A copy is the one batch with many stores and a fence.
            if steps.iter().filter(|step| step.op.kind == Kind::Store).count() > 4 {
                steps.retain(|step| step.op.kind != Kind::Fence);
                steps.retain(|step| step.op.kind != Kind::FlushOpt);
            }
        });
    }
}

#[test]
fn a_lost_line_of_a_copy_is_found() {
    for name in ["nvram", "hybrid", "double", "cow"] {
        is_found(name, |steps| {
            if steps.iter().filter(|step| step.op.kind == Kind::Store).count() > 4 {
                let place = steps.iter().rposition(|step| step.op.kind == Kind::FlushOpt);
                place.into_iter().for_each(|place| drop(steps.remove(place)));
            }
        });
    }
}

#[test]
fn an_old_copy_that_is_not_kept_aside_is_found() {
    is_found("cow", |steps| without(steps, Kind::Store, |value| value == 1));
}

#[test]
fn a_place_of_the_file_that_is_written_over_is_found() {
    // Both places at once: a torn write leaves none.
    is_found("ssd", |steps| {
        for step in steps.iter_mut().filter(|step| step.op.kind == Kind::Disk) {
            let first = step.bytes[..8].to_vec();
            let at = u64::from_le_bytes(first.try_into().unwrap());
            step.bytes[..8].copy_from_slice(&(at / 8192 * 8192).to_le_bytes());
        }
    });
}

#[test]
fn recovery_takes_the_time_of_what_it_reads() {
    let mut config = simpo();
    config.sizes.group = 50;
    let timed = |mut scan: Scan| {
        let batches = scan.batches();
        let mut machine = Machine::new(config.hardware.clone(), None, &mut scan);
        let counts = machine.run(0, batches).unwrap();
        machine.check().unwrap();
        counts.time_fs
    };
    let object = timed(Scan::object(&config));
    assert!(object > 50 * 100 * 1_000_000, "{object}");
    let [few, many] = [6400, 64_000].map(|entries| timed(Scan::application(&config, 1, entries)));
    assert!((8..12).contains(&(many / few)), "{few} {many}");
}

#[test]
fn a_machine_file_that_cannot_be_says_where() {
    let text = include_str!("../../configs/simpo.toml");
    for (from, to, expected) in [
        ("cores = 64", "cores = 65", "1 to 64"),
        ("others = [0, 5]", "others = [5, 5]", "two different rows"),
        ("log_entries = 8192", "log_entries = 1024", "holds two groups"),
        (
            "log_entries = 8192",
            "log_entries = 4294967296",
            "4194304 at most",
        ),
        (
            "turnaround = \"7000 cycles\"",
            "turnaround = \"2 s\"",
            "`turnaround` of [lock]",
        ),
        ("56, 60]", "56, 64]", "from 1 to the number of cores"),
        ("spin = { is", "spins = { is", "spins"),
        ("device = \"simpo-nvram\"", "device = \"tape\"", "tape"),
    ] {
        assert!(text.contains(from), "{from}");
        let why = Config::parse("mine.toml", &text.replacen(from, to, 1)).unwrap_err();
        assert!(why.to_string().contains(expected), "{why}");
    }
    assert!(simpo().smaller(3).is_err() && simpo().smaller(128).is_err());
    assert_eq!(simpo().smaller(64).unwrap().study.functions, 1000);
}
