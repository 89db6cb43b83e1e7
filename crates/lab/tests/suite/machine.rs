//! The whole machine: does it run, is what it says right, does it survive.

use twinpage_baselines::SchemeKind;
use twinpage_core::medium::Cause;
use twinpage_lab::config::Described;
use twinpage_lab::config::machine::Config;
use twinpage_lab::controller::Order;
use twinpage_lab::controller::lookup::Backup;
use twinpage_lab::experiment::Experiment;
use twinpage_lab::machine::{Ended, Machine, Mode, Outcome, Plan, Stop};
use twinpage_lab::trace::{Addresses, Clock, Event, Header, NativeWriter, Record};
use twinpage_lab::workload::list::{self, Setting};
use twinpage_lab::workload::uniform::Uniform;
use twinpage_lab::{Port, Progress, Space, Workload};

/// DPC's machine, a sixty-fourth of it: caches, DRAM and pool.
fn small(scheme: SchemeKind) -> Plan {
    let mut plan = Config::find("dpc").unwrap().plan(scheme);
    plan.shape.levels[0].bytes /= 16;
    plan.shape.levels[1].bytes /= 64;
    plan.controller.dram_bytes /= 64;
    plan.nvm_bytes /= 64;
    plan.pool_pages /= 64;
    plan.journal_bytes /= 64;
    plan.tables.blocks /= 64;
    plan.tables.pages /= 64;
    plan.interval_fs /= 16;
    plan.warm_up = 300_000;
    plan.instructions = 1_500_000;
    plan
}

fn uniform() -> Uniform {
    Uniform::new(1200, 4, 40, 7)
}

fn run(plan: Plan, scheme: SchemeKind) -> Outcome {
    run_with(plan, scheme, false)
}

fn run_with(plan: Plan, scheme: SchemeKind, remember: bool) -> Outcome {
    let mut workload = uniform();
    let mut machine = Machine::new(plan, scheme, &mut workload, remember).unwrap();
    machine.run(Stop::default()).unwrap()
}

#[test]
fn every_scheme_runs_and_the_baseline_is_fastest() {
    let baseline = run(small(SchemeKind::InPlace), SchemeKind::InPlace);
    assert_eq!(baseline.checkpoints, 0);
    for scheme in SchemeKind::ALL {
        let outcome = run(small(scheme), scheme);
        println!("{scheme}: {}", serde_json::to_string(&outcome).unwrap());
        assert!(outcome.instructions >= 1_499_000);
        assert!(outcome.time_ns >= baseline.time_ns, "{scheme}");
        if scheme != SchemeKind::InPlace {
            assert!(outcome.checkpoints > 1, "{scheme}");
            assert!(outcome.nvm_writes.total >= baseline.nvm_writes.total, "{scheme}");
        }
    }
}

/// However often an access comes again for want of a miss register, and however many wait for one line.
#[test]
fn a_miss_is_counted_once() {
    let mut plan = small(SchemeKind::DualPage);
    plan.shape.misses = 1;
    let outcome = run(plan, SchemeKind::DualPage);
    assert!(outcome.caches.last_misses > 1000);
    assert_eq!(outcome.caches.last_misses, outcome.controller.reads);
}

/// The power fails at moments spread over the run: each time the recovered memory must be exactly some
/// checkpoint's, by the oracle.
fn crashes(plan: &Plan, scheme: SchemeKind, times: u64) -> u64 {
    crashes_of(|| Box::new(uniform()), plan, scheme, times)
}

/// The same of another program.
fn crashes_of(program: impl Fn() -> Box<dyn Workload>, plan: &Plan, scheme: SchemeKind, times: u64) -> u64 {
    let mut epochs = std::collections::BTreeSet::new();
    let mut last = 0;
    for turn in 0..times {
        let at = plan.interval_fs / 7 + turn * plan.interval_fs * 8 / 13;
        let mut workload = program();
        let mut machine = Machine::new(plan.clone(), scheme, &mut *workload, true).unwrap();
        let outcome = machine.run(Stop { crash_fs: Some(at) }).unwrap();
        assert_eq!(outcome.ended, Ended::Crash);
        let recovery = machine.crash(&mut *program());
        assert!(recovery.consistent, "{scheme}, crash {turn}: {recovery:?}");
        assert!(recovery.epoch >= last && recovery.batches <= recovery.batches_run);
        last = recovery.epoch;
        epochs.insert(recovery.epoch);
    }
    epochs.len() as u64
}

#[test]
fn what_a_crash_leaves_is_a_checkpoint() {
    for scheme in SchemeKind::ALL
        .into_iter()
        .filter(|&scheme| scheme != SchemeKind::InPlace)
    {
        let plan = Plan {
            warm_up: 1000,
            instructions: 20_000_000,
            ..small(scheme)
        };
        let found = crashes(&plan, scheme, 9);
        println!("{scheme}: {found} different checkpoints recovered");
        assert!(found > 1, "{scheme}: the crashes hit {found} checkpoints");
    }
}

/// Programs whose threads wait for one another: the checkpoint comes while some wait, and the order in which they ask is
/// the same when the batches are run again.
#[test]
fn what_a_crash_leaves_of_programs_with_locks_is_a_checkpoint() {
    let setting = Setting {
        scale: 0.004,
        cores: 4,
        seed: 3,
    };
    for name in ["memcached", "vacation"] {
        for scheme in [SchemeKind::DualPage, SchemeKind::UndoLog] {
            let plan = Plan {
                warm_up: 1000,
                instructions: 200_000_000,
                ..small(scheme)
            };
            let found = crashes_of(|| list::make(name, &setting).unwrap(), &plan, scheme, 5);
            assert!(found > 1, "{name}, {scheme}: the crashes hit {found} checkpoints");
        }
    }
}

/// The same loads all over memory take longer where each needs what one before it read, the longer the nearer that is.
#[test]
fn pointers_that_are_followed_take_their_time() {
    let folder = tempfile::tempdir().unwrap();
    let time = |behind: Option<u8>| {
        let path = folder.path().join("loads.trace");
        let header = Header {
            cores: 1,
            clock: Clock::Instructions,
            addresses: Addresses::Virtual,
            origin: "made up".into(),
        };
        let mut writer = NativeWriter::new(std::fs::File::create(&path).unwrap(), &header).unwrap();
        let mut random = fastrand::Rng::with_seed(2);
        for _ in 0..20_000 {
            let (at, size) = (random.u64(..1 << 15) * 64, 8);
            let event = match behind {
                None => Event::Load { at, size },
                Some(behind) => Event::Follow { at, size, behind },
            };
            let (core, after) = (0, 4);
            writer.write(&Record { core, after, event }).unwrap();
        }
        writer.finish().unwrap();
        drop(writer);
        let setting = Setting {
            scale: 1.0,
            cores: 1,
            seed: 1,
        };
        let mut workload = list::make(&format!("trace:{}", path.display()), &setting).unwrap();
        let mut plan = small(SchemeKind::InPlace);
        (plan.shape.cores, plan.warm_up, plan.instructions) = (1, 20_000, 60_000);
        let mut machine = Machine::new(plan, SchemeKind::InPlace, &mut *workload, false).unwrap();
        machine.run(Stop::default()).unwrap().time_ns as f64
    };
    let [free, fourth, last] = [None, Some(4), Some(1)].map(time);
    assert!(
        fourth > 1.05 * free && last > 1.5 * fourth,
        "{free} {fourth} {last}"
    );
}

/// Branches, fetches and page walks take time, the same for every program and the more the more pages it touches.
#[test]
fn the_front_end_and_page_walks_take_time() {
    let scheme = SchemeKind::InPlace;
    let with = |change: fn(&mut Plan)| {
        let mut plan = small(scheme);
        change(&mut plan);
        run(plan, scheme).time_ns
    };
    let ideal = with(|plan| (plan.shape.events_fs, plan.shape.tlb) = (0, None));
    let front = with(|plan| plan.shape.tlb = None);
    let walks = with(|plan| plan.shape.events_fs = 0);
    let both = with(|_| ());
    assert!(
        ideal < front && ideal < walks && front < both,
        "{ideal} {front} {walks} {both}"
    );
    let shape = small(scheme).shape;
    assert_eq!(shape.events_fs, (7 * 15 + 5 * 12) * shape.cycle_fs / 1000);
}

#[test]
fn what_a_crash_leaves_is_a_checkpoint_with_overlap() {
    let scheme = SchemeKind::DualPage;
    let plan = Plan {
        warm_up: 1000,
        instructions: 20_000_000,
        mode: Mode::Overlap,
        ..small(scheme)
    };
    assert!(crashes(&plan, scheme, 9) > 1);
}

/// A pool so small that every epoch needs pages which another one holds.
fn short_of_pages(scheme: SchemeKind) -> Plan {
    Plan {
        pool_pages: 700,
        warm_up: 1000,
        instructions: 20_000_000,
        ..small(scheme)
    }
}

/// DPC 4.4.3: reclaim is off the critical path. None of it is in a stop, and it is done in time.
#[test]
fn pages_are_reclaimed_while_the_cores_run() {
    let scheme = SchemeKind::DualPage;
    let plan = Plan {
        instructions: 6_000_000,
        ..short_of_pages(scheme)
    };
    let outcome = run(plan, scheme);
    let reclaimed = outcome.nvm_causes[&Cause::Reclaim];
    println!("{reclaimed} lines of {:?}", outcome.nvm_writes);
    assert!(reclaimed > 1000);
    assert!(outcome.nvm_writes.pre_allocation >= reclaimed);
    assert!(crashes(&short_of_pages(scheme), scheme, 9) > 1);
}

/// DPC 4.5.2: the whole table goes to NVM at each checkpoint, unless the journal is all there is.
#[test]
fn the_table_is_backed_up_whole_or_by_its_changes() {
    let scheme = SchemeKind::DualPage;
    let mut plan = small(scheme);
    plan.instructions *= 4;
    let whole = run(plan.clone(), scheme);
    let lines = (plan.pool_pages * 101).div_ceil(8).div_ceil(64) * whole.checkpoints;
    plan.controller.backup = Backup::Journal;
    let journal = run(plan, scheme);
    let snapshot = |outcome: &Outcome| outcome.nvm_causes.get(&Cause::Snapshot).copied().unwrap_or(0);
    assert!(snapshot(&whole) >= lines && lines > 0);
    assert!(snapshot(&journal) < lines / 2);
    // Runs of other stalls have other numbers of epochs.
    let each = |outcome: &Outcome, lines: u64| lines as f64 / outcome.checkpoints as f64;
    assert!(
        each(&whole, whole.nvm_writes.commit)
            > each(&journal, journal.nvm_writes.commit) + each(&whole, lines / 2),
        "{:?} in {} epochs, {:?} in {}, {lines} lines",
        whole.nvm_writes,
        whole.checkpoints,
        journal.nvm_writes,
        journal.checkpoints
    );
}

/// A page that is written twice in an epoch counts once (DPC Figure 1).
#[test]
fn clean_lines_are_counted_by_epoch() {
    let scheme = SchemeKind::CopyOnWrite;
    let mut plan = small(scheme);
    plan.controller.dram_bytes = 64 * 4096;
    plan.interval_fs *= 64;
    let outcome = run(plan, scheme);
    let counts = &outcome.controller;
    assert!(outcome.checkpoints > 0 && counts.pages_written > counts.epoch_pages);
    let share = 1.0 - counts.epoch_lines as f64 / (64 * counts.epoch_pages) as f64;
    assert_eq!(outcome.clean_share, Some(share));
    assert_eq!(
        run(small(SchemeKind::InPlace), SchemeKind::InPlace).clean_share,
        None
    );
}

/// An eviction waits for the log, or for the copy. A copy is 64 lines, and the NVM has more to do here than it can: there it is
/// nearly all the same who waits.
#[test]
fn an_eviction_waits_for_what_is_written_first() {
    for scheme in [SchemeKind::UndoLog, SchemeKind::CopyOnWrite] {
        let mut plan = small(scheme);
        plan.controller.dram_bytes = 64 * 4096;
        let before = run(plan.clone(), scheme);
        let mut other = plan.clone();
        match scheme {
            SchemeKind::UndoLog => other.controller.undo = Order::Posted,
            _ => other.controller.copies = Order::Posted,
        }
        let posted = run(other, scheme);
        println!("{} and {} ns", before.time_ns, posted.time_ns);
        match scheme {
            SchemeKind::UndoLog => assert!(before.time_ns > posted.time_ns),
            _ => assert_ne!(before.time_ns, posted.time_ns),
        }
        plan.instructions = 20_000_000;
        assert!(crashes(&plan, scheme, 5) > 1);
    }
}

/// ThyNVM's tables take their DRAM from the cache, as much as they hold.
#[test]
fn thynvm_lives_in_the_dram_there_is() {
    let scheme = SchemeKind::ThyNvm;
    let mut plan = small(scheme);
    plan.instructions = 3_000_000;
    let within = run(plan.clone(), scheme);
    plan.controller.tables_beside = true;
    let beside = run(plan, scheme);
    println!("misses {} and {}", within.dram_miss_rate, beside.dram_miss_rate);
    assert!(within.dram_miss_rate > beside.dram_miss_rate);
}

/// Without protection the same crashes are found out: the check can fail.
#[test]
fn the_unprotected_baseline_does_not_survive() {
    let scheme = SchemeKind::InPlace;
    let plan = Plan {
        warm_up: 1000,
        instructions: 20_000_000,
        mode: Mode::Stall,
        ..small(scheme)
    };
    let torn = (0..8).filter(|turn| {
        let at = plan.interval_fs * (20 + turn) / 7;
        let mut workload = uniform();
        let mut machine = Machine::new(plan.clone(), scheme, &mut workload, true).unwrap();
        machine.run(Stop { crash_fs: Some(at) }).unwrap();
        !machine.crash(&mut uniform()).consistent
    });
    assert!(torn.count() > 0);
}

#[test]
fn overlap_stalls_less_and_writes_no_more() {
    let scheme = SchemeKind::DualPage;
    let stalled = run(small(scheme), scheme);
    let overlapped = run(
        Plan {
            mode: Mode::Overlap,
            ..small(scheme)
        },
        scheme,
    );
    println!("{:?}\n{:?}", stalled.stall_ns, overlapped.stall_ns);
    println!(
        "{} and {} ns, {} and {} writes",
        stalled.time_ns, overlapped.time_ns, stalled.nvm_writes.total, overlapped.nvm_writes.total
    );
    assert!(overlapped.stall_ns.checkpoint < stalled.stall_ns.checkpoint / 2);
    assert!(overlapped.time_ns < stalled.time_ns);
}

#[test]
fn the_same_run_gives_the_same_outcome() {
    let scheme = SchemeKind::DualPage;
    let plan = Plan {
        instructions: 500_000,
        ..small(scheme)
    };
    assert_eq!(run(plan.clone(), scheme), run(plan, scheme));
}

/// A run that cannot be crashed moves no data, and takes exactly as long.
#[test]
fn what_can_be_crashed_takes_no_longer() {
    for scheme in SchemeKind::ALL {
        let plan = Plan {
            instructions: 400_000,
            ..small(scheme)
        };
        let without = run_with(plan.clone(), scheme, false);
        assert_eq!(without, run_with(plan, scheme, true), "{scheme}");
    }
}

/// A table smaller by as much as its machine has as much smaller a cache.
#[test]
fn cached_entries_shrink_with_the_machine() {
    let entries = |set: &str, by| {
        let config = Config::with("dpc", &[format!("table.cached_entries={set}")]);
        config
            .and_then(|config| config.smaller(by))
            .map(|config| config.plan.controller.cached_entries)
    };
    assert_eq!(entries("10000", 64).unwrap(), 157);
    assert_eq!([0, 1].map(|few| entries(&few.to_string(), 64).unwrap()), [0, 1]);
    let refused = entries("2097153", 1).unwrap_err().to_string();
    assert!(refused.contains("each page of NVM"), "{refused}");
}

#[test]
fn a_damaged_machine_file_is_refused_with_its_line() {
    let good = include_str!("../../configs/dpc.toml");
    let line = |key: &str| 1 + good.lines().position(|line| line.starts_with(key)).unwrap();
    for (from, to, expected) in [
        ("cores = 4", "cores = 0", format!("line {}", line("cores"))),
        ("cores = 4", "coers = 4", format!("line {}", line("cores"))),
        ("width = 4", "width = 4.5", format!("line {}", line("width"))),
        (
            "size = \"300 MiB\"",
            "size = \"300 MB\"",
            format!("line {}", line("size = \"300")),
        ),
        (
            "device = \"pcm\"",
            "device = \"pmc\"",
            format!("line {}", line("device = \"pcm")),
        ),
        ("ways = 16 ", "ways = 7 ", format!("line {}", line("ways = 16"))),
        (
            "placement = \"split\"",
            "placement = \"spilt\"",
            format!("line {}", line("placement")),
        ),
        (
            "interval = \"30000000 cycles\"",
            "interval = 30000000",
            format!("line {}", line("interval")),
        ),
        (
            "interval = \"30000000 cycles\"",
            "interval = \"0 ns\"",
            format!("line {}: `interval` of [checkpoint]", line("interval")),
        ),
        (
            "fetch_misses = 5 ",
            "fetch_misses = 1001 ",
            format!("line {}: `fetch_misses`", line("fetch_misses")),
        ),
        (
            "fetch = \"12 cycles\"",
            "fetch = \"2 ms\"",
            format!("line {}: `fetch`", line("fetch =")),
        ),
        ("overlap = false\n", "", "missing field `overlap`".into()),
    ] {
        assert!(good.contains(from), "{from}");
        let said = Config::parse("dpc.toml", &good.replace(from, to))
            .unwrap_err()
            .to_string();
        assert!(said.contains(&expected), "{to}: {said}");
    }
    let machine = Config::find("dpc").unwrap();
    assert_eq!(machine.hash(), Config::find("dpc").unwrap().hash());
    assert_ne!(machine.hash(), Config::find("twins").unwrap().hash());
}

#[test]
fn a_memory_is_no_larger_than_its_device() {
    let refused = |set: &[&str]| {
        let set: Vec<String> = set.iter().map(|&set| set.into()).collect();
        Config::with("dpc", &set).unwrap_err().to_string()
    };
    let why = refused(&["nvm.size=16 GiB"]);
    assert!(
        why.contains("`size` of [nvm]") && why.contains("8589934592 bytes"),
        "{why}"
    );
    let why = refused(&["dram.size=16 GiB", "nvm.size=32 GiB"]);
    assert!(
        why.contains("`size` of [dram]") && why.contains("8589934592 bytes"),
        "{why}"
    );
}

/// A core that waits since the warm-up loses only what it waits for while it is counted.
#[test]
fn cores_lose_no_more_time_than_there_is() {
    let mut config = Config::find("dpc").unwrap().smaller(64).unwrap();
    (config.plan.warm_up, config.plan.instructions) = (50_000, 600_000);
    let cores = config.plan.shape.cores as u64;
    let experiment = Experiment {
        config,
        scheme: "dude-tm".parse().unwrap(),
        workload: "vacation".into(),
        scale: 1.0 / 64.0,
        seed: 1,
        crash_fs: None,
    };
    let outcome = experiment.run().unwrap().outcome;
    let stall = outcome.stall_ns;
    let lost = stall.dram + stall.nvm + stall.store + stall.checkpoint + stall.idle;
    assert!(stall.idle > lost / 2, "{stall:?}");
    assert!(
        lost <= cores * outcome.time_ns,
        "{stall:?} in {} ns",
        outcome.time_ns
    );
}

#[test]
fn simulated_time_has_an_end() {
    let set = |value: &str| Config::with("dpc", &[value.to_owned()]).and_then(|config| config.smaller(64));
    let why = set("cpu.tlb.walk=2 s").unwrap_err().to_string();
    assert!(why.contains("`walk` of [cpu.tlb]: a second at most"), "{why}");
    let mut workload = uniform();
    let plan = set("cpu.tlb.walk=1 s").unwrap().plan(SchemeKind::DualPage);
    let mut machine = Machine::new(plan, SchemeKind::DualPage, &mut workload, false).unwrap();
    let why = machine.run(Stop::default()).unwrap_err().to_string();
    assert!(why.contains("two and a half hours"), "{why}");
}

/// A machine so small that its epochs last no time would end them for ever.
#[test]
fn epochs_of_a_smaller_machine_last() {
    let config = Config::with("dpc", &["checkpoint.interval=0.0001 ps".into()]);
    assert!(config.unwrap_err().to_string().contains("an epoch must last"));
    let config = Config::with("dpc", &["checkpoint.interval=0.01 ps".into()]).unwrap();
    let why = config.smaller(64).unwrap_err().to_string();
    assert!(why.contains("epochs that last"), "{why}");
}

/// Core 0 ends after some batches; the others wait for more from it.
struct Deserted(u32);

impl Workload for Deserted {
    fn name(&self) -> &str {
        "deserted"
    }

    fn footprint_bytes(&self) -> u64 {
        4096
    }

    fn fill(&self, _: &mut Space) {}

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        port.work(100);
        match (core, self.0) {
            (0, 0) => Progress::Done,
            (0, _) => {
                self.0 -= 1;
                Progress::More
            }
            _ => Progress::Waiting,
        }
    }

    fn check(&self, _: &Space) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn cores_that_wait_for_ever_are_an_error() {
    let scheme = SchemeKind::DualPage;
    let mut workload = Deserted(20);
    let mut machine = Machine::new(small(scheme), scheme, &mut workload, false).unwrap();
    let why = machine.run(Stop::default()).unwrap_err().to_string();
    assert!(why.contains("deserted") && why.contains("1, 2, 3"), "{why}");
}
