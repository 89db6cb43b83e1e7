//! The machine with its memory on the bus, and the programs of MSS on it.

use twinpage_lab::bus::config::DurableIn;
use twinpage_lab::bus::{Config, Counts, Machine};
use twinpage_lab::config::Described;
use twinpage_lab::op::Kind;
use twinpage_lab::provenance::Provenance;
use twinpage_lab::workload::sps::{ALL, Persist, Size, Sps, Variant};
use twinpage_lab::workload::{Progress, Workload};
use twinpage_lab::{Port, Space};

/// What a core does in one batch, again and again.
struct Program<F>(F, u64);

impl<F: FnMut(u64, &mut Port<'_>) + Send> Workload for Program<F> {
    fn name(&self) -> &str {
        "a test"
    }

    fn footprint_bytes(&self) -> u64 {
        64 << 20
    }

    fn fill(&self, _: &mut Space) {}

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        if core > 0 {
            return Progress::Done;
        }
        (self.0)(self.1, port);
        self.1 += 1;
        port.commit();
        Progress::More
    }

    fn check(&self, _: &Space) -> Result<(), String> {
        Ok(())
    }
}

fn mss() -> Config {
    Config::find("mss").unwrap()
}

fn run(batch: impl FnMut(u64, &mut Port<'_>) + Send) -> Counts {
    let mut program = Program(batch, 0);
    let Config { hardware, disk, .. } = mss();
    Machine::new(hardware, Some(disk), &mut program)
        .run(100, 1000)
        .unwrap()
}

/// Stores eight lines of a page that was not touched before, and has them written back.
fn eight_lines(how: Option<Kind>, fence: bool) -> Counts {
    run(move |batch, port| {
        let at = batch * 4096;
        for line in 0..8 {
            port.store(at + line * 64, batch);
        }
        if let Some(how) = how {
            port.write_back(how, at, 512);
        }
        if fence {
            port.fence();
        }
    })
}

#[test]
fn a_load_from_memory_takes_what_the_machine_file_says() {
    // Each address comes from the load before.
    let counts = run(|batch, port| {
        let at: u64 = port.load(batch % 2 * 4096);
        let _: u64 = port.follow(at + batch * 40_960 % (60 << 20));
        port.full_fence();
    });
    let each_ns = counts.time_fs as f64 / 1e6 / 1000.0;
    // 36 cycles and 57 ns; a row that must be closed first takes 14 ns longer. A full fence takes 9 ns.
    assert!((67.0..100.0).contains(&each_ns), "{each_ns} ns");
}

#[test]
fn fences_wait_for_what_was_written_back() {
    let stores = eight_lines(None, false);
    assert_eq!((stores.write_backs, stores.fences), (0, 0));
    let [optimized, ordered] = [Kind::FlushOpt, Kind::Flush].map(|how| {
        let free = eight_lines(Some(how), false);
        let fenced = eight_lines(Some(how), true);
        for counts in [free, fenced] {
            assert_eq!((counts.write_backs, counts.dirty_write_backs), (8000, 8000));
            assert!(counts.writes > 7800, "{counts:?}");
        }
        assert_eq!((free.fences, fenced.fences), (0, 1000));
        assert!(fenced.fence_stall_fs > 1_000_000 * 1000, "{fenced:?}");
        assert!(fenced.time_fs > free.time_fs, "{how:?}");
        fenced.time_fs as f64
    });
    // Eight lookups and eight ways to the memory, one after the other: 34 ns each.
    assert!(
        ordered > optimized + 1000.0 * 7.0 * 30.0 * 1e6,
        "{ordered} {optimized}"
    );
}

#[test]
fn a_flush_invalidates_and_a_write_back_does_not() {
    let again = |how: Kind| {
        run(move |batch, port| {
            port.store(batch % 4 * 64, batch);
            port.write_back(how, batch % 4 * 64, 8);
            port.fence();
        })
    };
    let (kept, flushed) = (again(Kind::Persist), again(Kind::FlushOpt));
    assert_eq!((kept.l1_misses, kept.reads), (0, 0));
    assert_eq!((flushed.l1_misses, flushed.reads), (1000, 1000));
    // Each was stored to before it was written back. The memory's queue merges some, where the line is in it still.
    assert_eq!((kept.dirty_write_backs, flushed.dirty_write_backs), (1000, 1000));
    assert!(
        kept.writes < 1000 && flushed.writes == 1000,
        "{kept:?} {flushed:?}"
    );
    let clean = run(|_, port| {
        port.write_back(Kind::Persist, 0, 64);
        port.fence();
    });
    assert_eq!((clean.write_backs, clean.writes), (1000, 0));
}

#[test]
fn streams_read_nothing() {
    let counts = run(|batch, port| {
        port.stream_bytes(batch * 576 % (60 << 20), &[1; 576]);
        port.fence();
    });
    assert_eq!((counts.streams, counts.reads, counts.l1_accesses), (9000, 0, 0));
    assert!(counts.writes.abs_diff(9000) < 100, "{counts:?}");
}

/// A number of cores write one line past the caches, and wait until it is durable.
struct Appenders(usize);

impl Workload for Appenders {
    fn name(&self) -> &str {
        "appenders"
    }

    fn footprint_bytes(&self) -> u64 {
        4096
    }

    fn fill(&self, _: &mut Space) {}

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        if core >= self.0 {
            return Progress::Done;
        }
        port.stream_bytes(0, &[1; 64]);
        port.fence();
        port.commit();
        Progress::More
    }

    fn check(&self, _: &Space) -> Result<(), String> {
        Ok(())
    }
}

/// While one of four writes the line, the three others wait, and then go together: two writes for four commits.
#[test]
fn writes_of_a_line_that_is_being_written_go_together() {
    let mut hardware = mss().hardware;
    hardware.durable = DurableIn::Cells;
    let run = |cores| {
        Machine::new(hardware.clone(), None, &mut Appenders(cores))
            .run(100, 1000)
            .unwrap()
    };
    let (alone, four) = (run(1), run(4));
    assert_eq!((alone.streams, alone.writes), (1000, 1000));
    assert!(four.writes.abs_diff(500) < 10, "{four:?}");
    let ratio = alone.time_fs as f64 / four.time_fs as f64;
    assert!(ratio > 1.8, "{ratio}");
}

/// The first core waits a second; the second commits once a microsecond.
struct Sleeper;

impl Workload for Sleeper {
    fn name(&self) -> &str {
        "a sleeper"
    }

    fn footprint_bytes(&self) -> u64 {
        4096
    }

    fn fill(&self, _: &mut Space) {}

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        match core {
            0 => port.wait(1_000_000_000_000_000),
            1 => port.wait(1_000_000_000),
            _ => return Progress::Done,
        }
        port.commit();
        Progress::More
    }

    fn check(&self, _: &Space) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn a_run_takes_as_long_as_its_commits_and_not_as_its_longest_wait() {
    let Config { hardware, disk, .. } = mss();
    let counts = Machine::new(hardware, Some(disk), &mut Sleeper)
        .run(10, 100)
        .unwrap();
    let us = counts.time_fs as f64 / 1e9;
    assert!((100.0..101.0).contains(&us), "{us}");
}

#[test]
fn energy_is_that_of_the_counts() {
    let Config { prices, disk, .. } = mss();
    let counts = Counts {
        reads: 100,
        row_hit_reads: 40,
        writes: 50,
        row_hit_writes: 10,
        instructions: 1000,
        l1_accesses: 300,
        l1_misses: 20,
        write_backs: 5,
        disk_fs: 1_000_000_000_000_000,
        ..Counts::default()
    };
    let energy = prices.energy(&counts, &disk);
    let bits = 40.0 * 0.93 + 60.0 * 1.00 + 10.0 * 1.02 + 40.0 * 2.89;
    assert!((energy.memory_j / (bits * 512.0 * 1e-12) - 1.0).abs() < 1e-9);
    let processor = 1000.0 * 70.0 + 300.0 * 20.0 + 25.0 * 800.0;
    assert!((energy.processor_j / (processor * 1e-12) - 1.0).abs() < 1e-9);
    assert!((energy.disk_j - 5.9).abs() < 1e-9);
}

#[test]
fn every_program_keeps_its_strings() {
    let config = mss().smaller(64).unwrap();
    for variant in ALL {
        let size = Size {
            strings: 200,
            log_entries: 32,
            threshold: 0.6,
            persist: Persist::All,
        };
        let mut program = Sps::new(variant, size, 7);
        let mut machine = Machine::new(config.hardware.clone(), Some(config.disk), &mut program);
        let counts = machine.run(50, 1000).unwrap();
        machine
            .check()
            .unwrap_or_else(|why| panic!("{}: {why}", variant.name));
        drop(machine);
        assert!(program.swaps() >= 1050);
        assert_eq!(counts.disk_writes > 0, variant.name == "dl");
        if program.persists() > 0 {
            let reached = program.persists() as f64 / program.swaps() as f64;
            assert!((reached / 0.6 - 1.0).abs() < 0.05, "{}: {reached}", variant.name);
        }
    }
}

#[test]
fn a_machine_file_that_cannot_be_says_where() {
    let text = include_str!("../../configs/mss.toml");
    for (from, to, expected) in [
        ("channels = 2", "channels = 3", "line 32: `channels` of [memory]"),
        ("threshold = 0.6", "threshold = 1.5", "`threshold` of [study]"),
        (
            "durable = \"queue\"",
            "durable = \"soon\"",
            "unknown variant `soon`",
        ),
        ("cores = 8", "cores = 80", "`cores` of [cpu]: 80 cannot be"),
    ] {
        let wrong = text.replacen(from, to, 1);
        assert_ne!(wrong, text);
        let why = Config::parse("mine.toml", &wrong).unwrap_err().to_string();
        assert!(why.contains(expected), "{why}");
    }
    for by in [0, 3, 1 << 63] {
        assert!(Config::find("mss").unwrap().smaller(by).is_err());
    }
    assert!(Variant::find("lcs").is_some() && Variant::find("LCS").is_none());
}

#[test]
fn the_study_is_repeated_small() {
    use twinpage_lab::eval::mss::{ARTIFACTS, evaluate};
    use twinpage_lab::eval::{Document, StudyRequest};
    let asked = StudyRequest {
        artifacts: Vec::new(),
        set: Vec::new(),
        smaller: 64,
        seed: 1,
        jobs: Some(2),
        provenance: Provenance::default(),
    };
    let evaluation = evaluate(&asked, &|_, _, _| ()).unwrap();
    assert_eq!(evaluation.artifacts(), ARTIFACTS.map(|(name, _)| name));
    let ours = |artifact: &str, series: &str| {
        let mut of = evaluation.rows.iter().map(|row| &row.row);
        let found = of.rfind(|row| row.artifact == artifact && row.series == series);
        found.unwrap_or_else(|| panic!("no {series} in {artifact}")).ours
    };
    for row in &evaluation.rows {
        assert!(row.row.ours.is_finite() && !row.of.is_empty(), "{row:?}");
        // A row of energy can be computed again from its counts.
        let is_energy = row.row.series.contains("energy") && !row.row.series.contains("least");
        assert_eq!(
            row.counts.len(),
            if is_energy { row.counts.len().max(1) } else { 0 },
            "{row:?}"
        );
    }
    // The signs of 4.1 to 4.3: flushes and fences cost time, accesses and energy; a log on a disk costs most.
    assert!(ours("fig4a", "lcs") < 1.0 && ours("fig4a", "lcm") <= ours("fig4a", "lcs") * 1.01);
    assert!(ours("disk", "l over dl: throughput") > 2.0 && ours("disk", "l over dl: energy") < 0.5);
    assert!(ours("fig4c", "lcs") > 1.2 && ours("fig4c", "ts") < ours("fig4c", "tcs"));
    assert!(ours("fig4b", "ics over lcs: L1 miss rate") > 1.0);
    assert!(ours("fig5", "ics over lcs: memory energy") > 0.0);
    // A line that is written back and kept is not read again.
    assert!(ours("fig4c", "lcs-clwb") < ours("fig4c", "lcs"));
    for artifact in evaluation.artifacts() {
        assert!(evaluation.figure(artifact).unwrap().starts_with("<svg"));
    }
    let unknown = StudyRequest {
        artifacts: vec!["fig3".into()],
        ..asked
    };
    assert!(
        evaluate(&unknown, &|_, _, _| ())
            .unwrap_err()
            .contains("no artifact fig3")
    );
}

/// The programs are workloads of the other machines too, crashed and recovered like any.
#[test]
fn the_programs_run_under_a_scheme() {
    use twinpage_lab::config::machine::Config;
    use twinpage_lab::experiment::Experiment;
    use twinpage_lab::machine::Ended;
    for variant in ALL.iter().filter(|variant| variant.name != "dl") {
        let mut config = Config::find("dpc").unwrap().smaller(64).unwrap();
        config.plan.warm_up = 50_000;
        let report = Experiment {
            config,
            scheme: "dual-page".parse().unwrap(),
            workload: format!("sps:{}", variant.name),
            scale: 1.0 / 512.0,
            seed: 3,
            crash_fs: Some(700_000_000_000),
        }
        .run()
        .unwrap();
        let recovery = report
            .recovery
            .unwrap_or_else(|| panic!("{}: {}", variant.name, report.outcome.ended));
        assert_eq!(report.outcome.ended, Ended::Crash);
        assert!(
            recovery.consistent && recovery.batches_run > 1000,
            "{}: {recovery:?}",
            variant.name
        );
    }
    let disk = Experiment {
        config: Config::find("dpc").unwrap().smaller(64).unwrap(),
        scheme: "dual-page".parse().unwrap(),
        workload: "sps:dl".into(),
        scale: 1.0,
        seed: 1,
        crash_fs: None,
    };
    assert!(disk.run().unwrap_err().contains("no program dl here"));
}
