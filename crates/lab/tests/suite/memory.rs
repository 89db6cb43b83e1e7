//! A memory alone, in four layers: does it run, is the shape right, are the timings right, is the
//! scheduling right.

use twinpage_lab::device::bank::{Banks, Command};
use twinpage_lab::device::spec::BUILT_IN;
use twinpage_lab::device::{Class, Device, Kind, Memory};
use twinpage_lab::drive::{Request, drive};

fn device(name: &str) -> Device {
    Device::find(name).unwrap()
}

fn read(cycle: u64, at: u64) -> Request {
    Request {
        cycle,
        at,
        write: false,
    }
}

fn write(cycle: u64, at: u64) -> Request {
    Request {
        cycle,
        at,
        write: true,
    }
}

/// `count` requests at random lines of the whole device, as fast as they go.
fn random(count: u64, bytes: u64, every: u64) -> impl Iterator<Item = Request> {
    let mut random = fastrand::Rng::with_seed(1);
    (0..count).map(move |number| read(number * every, random.u64(..bytes / 64) * 64))
}

mod it_runs {
    use super::*;

    #[test]
    fn every_device_serves_reads_and_writes() {
        for (name, _) in BUILT_IN {
            let device = device(name);
            let mixed = random(2000, device.bytes(), 1).enumerate();
            let outcome = drive(
                &device,
                mixed.map(|(n, request)| Request {
                    write: n % 3 == 0,
                    ..request
                }),
            );
            assert_eq!(outcome.requests, 2000, "{name}");
            assert!(
                outcome.read_ns.p50 > 0.0 && outcome.write_ns.p50 > 0.0 && outcome.energy_j > 0.0,
                "{name}: {outcome:?}"
            );
        }
    }

    #[test]
    fn the_same_requests_give_the_same_answer() {
        let device = device("ddr3-1600k");
        let run = || drive(&device, random(5000, device.bytes(), 3));
        assert_eq!(run(), run());
    }

    #[test]
    fn a_damaged_device_file_is_refused_with_its_line() {
        let good = include_str!("../../devices/ddr3-1600k.toml");
        let wrong = |from: &str, to: &str| {
            assert!(good.contains(from));
            Device::parse("ddr3.toml", &good.replace(from, to))
                .unwrap_err()
                .to_string()
        };
        let line = |key: &str| 1 + good.lines().position(|line| line.starts_with(key)).unwrap();
        for (from, to, expected) in [
            (
                "cl = \"11 cycles\"",
                "cl = \"11\"",
                format!("line {}", line("cl =")),
            ),
            ("cl = \"11 cycles\"", "cl = 11", format!("line {}", line("cl ="))),
            (
                "cl = \"11 cycles\"",
                "cl = \"0 cycles\"",
                format!("line {}", line("cl =")),
            ),
            ("t_rtp", "t_rpt", format!("line {}", line("t_rtp"))),
            (
                "t_rc = \"39 cycles\"",
                "t_rc = \"20 cycles\"",
                format!("line {}", line("t_rc =")),
            ),
            ("banks = 8", "banks = 7", format!("line {}", line("banks"))),
            (
                "vdd = \"1.35 V\"",
                "vdd = \"1.35 A\"",
                format!("line {}", line("vdd")),
            ),
            (
                "drain_to = 8",
                "drain_to = 24",
                format!("line {}", line("drain_to")),
            ),
            ("t_faw = \"24 cycles\"\n", "", "missing field `t_faw`".into()),
            (
                "channels = 1",
                "channels = 32",
                format!("line {}: `channels` of [shape]: 16 at most", line("channels")),
            ),
            (
                "row = \"8 KiB\"          # consecutive bytes of a bank\nrow_buffer = \"8 KiB\"",
                "row = \"2 MiB\"\nrow_buffer = \"2 MiB\"",
                "`row_buffer` of [shape]: 1 MiB at most".into(),
            ),
            (
                "rows = 65536\nrow = \"8 KiB\"",
                "rows = 4294967296\nrow = \"1 MiB\"",
                format!("line {}: `rows` of [shape]", line("rows")),
            ),
            (
                "cl = \"11 cycles\"",
                "cl = \"3 s\"",
                format!("line {}: `cl` of [timing]", line("cl =")),
            ),
            (
                "t_rfc = \"208 cycles\"",
                "t_rfc = \"3 s\"",
                format!("line {}: `t_rfc` of [refresh]", line("t_rfc")),
            ),
        ] {
            let said = wrong(from, to);
            assert!(
                said.contains("ddr3.toml") && said.contains(&expected),
                "{to}: {said}"
            );
        }
        assert!(
            Device::find("no-such-device")
                .unwrap_err()
                .to_string()
                .contains("pcm-mlc")
        );
    }
}

mod the_shape_is_right {
    use super::*;

    #[test]
    fn the_devices_hold_what_they_should() {
        for (name, ..) in BUILT_IN {
            let bytes = if name == "simpo-nvram" { 4 << 30 } else { 8 << 30 };
            assert_eq!(device(name).bytes(), bytes, "{name}");
        }
        let ddr3 = device("ddr3-1600k");
        assert_eq!(
            (ddr3.cycle_fs, ddr3.timing.cl, ddr3.timing.refi),
            (1_250_000, 11, 6240)
        );
        let pcm = device("pcm");
        assert_eq!(
            (
                pcm.cycle_fs,
                pcm.timing.rcd,
                pcm.timing.write_pulse,
                pcm.timing.refi
            ),
            (2_500_000, 48, 60, 0)
        );
    }

    #[test]
    fn addresses_are_row_bank_rank_column_from_the_top() {
        let memory = Memory::new(device("ddr3-1600k"));
        let place = |at: u64| memory.place(at);
        assert_eq!(place(0), place(8191));
        assert_eq!((place(8192).bank, place(8192).row), (8, 0), "the other rank");
        assert_eq!((place(16384).bank, place(16384).row), (1, 0), "the next bank");
        assert_eq!(
            (place(8192 * 16).bank, place(8192 * 16).row),
            (0, 1),
            "the next row"
        );
        let mut seen = std::collections::HashSet::new();
        assert!((0..4096u64).all(|n| seen.insert((place(n * 8192).bank, place(n * 8192).row))));
    }
}

mod the_timings_are_right {
    use super::*;

    /// Refresh is far away in these.
    fn one(name: &str, requests: &[Request]) -> f64 {
        let mut device = device(name);
        device.timing.refi = 0;
        drive(&device, requests.iter().copied()).read_ns.p99
    }

    #[test]
    fn light_load_is_a_closed_form() {
        let row = 8192 * 16;
        // Long after one another: a closed row, then the open row, then another row of the bank.
        assert_eq!(one("ddr3-1600k", &[read(0, 0)]), 32.5);
        let after = |second: u64| {
            let mut device = device("ddr3-1600k");
            device.timing.refi = 0;
            let both = drive(&device, [read(0, 0), read(1000, second)]).read_ns;
            2.0 * both.mean - 32.5
        };
        assert_eq!(after(64), 18.75, "row hit: CL + BL/2");
        assert_eq!(after(row), 46.25, "row conflict: tRP + tRCD + CL + BL/2");
        let pcm = |count: u64| {
            drive(&device("pcm"), (0..count).map(|n| read(n * 1000, n * 2048)))
                .read_ns
                .p50
        };
        assert_eq!(
            pcm(100),
            137.5,
            "PCM random read: tCMD + tRP + tRCD + tCAS + tBURST"
        );
        let open = drive(&device("pcm"), (0..100).map(|n| read(n * 1000, 0)))
            .read_ns
            .p50;
        assert_eq!(open, 15.0, "PCM open row: tCMD + tCAS + tBURST");
    }

    /// After `first` at cycle 0 (and what it needs), `then` may go at `gap` and not a cycle before.
    fn probe(name: &str, first: &[(Command, usize, u64)], then: (Command, usize), gap: u64) {
        let device = device(name);
        let mut timing = device.timing;
        timing.refi = 0;
        let mut banks = Banks::new(timing, device.ranks as usize, device.banks as usize);
        let mut last = 0;
        for &(command, bank, at) in first {
            assert!(banks.earliest(command, bank, 0) <= at, "{command:?} at {at}");
            banks.issue(command, bank, 0, at);
            last = at;
        }
        let earliest = banks.earliest(then.0, then.1, last);
        assert_eq!(earliest - last, gap, "{first:?} then {then:?}");
        assert!(
            banks.earliest(then.0, then.1, last + gap - 1) > last + gap - 1,
            "not a cycle before"
        );
        assert_eq!(
            banks.earliest(then.0, then.1, last + gap),
            last + gap,
            "and not a cycle after"
        );
    }

    #[test]
    fn each_constraint_holds_at_its_cycle() {
        use Command::{Activate, Precharge, Read, Write};
        let t = device("ddr3-1600k").timing;
        let act = (Activate, 0, 0);
        probe("ddr3-1600k", &[act], (Read, 0), t.rcd);
        probe("ddr3-1600k", &[act], (Write, 0), t.rcd);
        probe("ddr3-1600k", &[act], (Precharge, 0), t.ras);
        probe("ddr3-1600k", &[act], (Activate, 1), t.rrd);
        probe("ddr3-1600k", &[act, (Precharge, 0, 28)], (Activate, 0), t.rp);
        probe("ddr3-1600k", &[act, (Precharge, 0, 40)], (Activate, 0), t.rp);
        let four = [act, (Activate, 1, 5), (Activate, 2, 10), (Activate, 3, 15)];
        probe("ddr3-1600k", &four, (Activate, 4), t.faw - 15);
        probe("ddr3-1600k", &four, (Activate, 8), 1);
        let two_open = [act, (Activate, 1, 5), (Activate, 8, 10)];
        let with = |command| [&two_open[..], &[(command, 0, 100)]].concat();
        probe("ddr3-1600k", &with(Read), (Read, 1), t.ccd);
        probe("ddr3-1600k", &with(Read), (Read, 8), t.burst + t.rtrs);
        probe(
            "ddr3-1600k",
            &with(Read),
            (Write, 1),
            t.cl + t.burst + t.rtrs - t.cwl,
        );
        probe(
            "ddr3-1600k",
            &with(Read),
            (Write, 8),
            t.cl + t.burst + t.rtrs - t.cwl,
        );
        probe("ddr3-1600k", &with(Read), (Precharge, 0), t.rtp);
        probe("ddr3-1600k", &with(Write), (Write, 1), t.ccd);
        probe("ddr3-1600k", &with(Write), (Write, 8), t.burst + t.rtrs);
        probe("ddr3-1600k", &with(Write), (Read, 1), t.cwl + t.burst + t.wtr);
        probe(
            "ddr3-1600k",
            &with(Write),
            (Read, 8),
            t.cwl + t.burst + t.rtrs - t.cl,
        );
        probe("ddr3-1600k", &with(Write), (Precharge, 0), t.cwl + t.burst + t.wr);
    }

    #[test]
    fn a_pcm_write_keeps_its_bank_busy() {
        use Command::{Activate, Read, Write};
        let t = device("pcm").timing;
        let first = [(Activate, 0, 0), (Activate, 1, 4), (Write, 0, 60)];
        probe("pcm", &first, (Write, 0), t.cwl + t.burst + t.write_pulse);
        probe("pcm", &first, (Read, 0), t.cwl + t.burst + t.write_pulse);
        probe("pcm", &first, (Write, 1), t.burst);
        probe("pcm", &first, (Read, 1), t.cwl + t.burst + t.wtr);
    }

    /// Currents are those of a rank, whether it is refreshed or not; leakage is a channel's.
    #[test]
    fn standing_by_costs_each_rank_its_current() {
        let text = include_str!("../../devices/ddr3-1600k.toml");
        let from = text.find("[refresh]").unwrap();
        let to = text.find("[queue]").unwrap();
        let text = format!("{}{}", &text[..from], &text[to..]);
        let device = Device::parse("mine.toml", &text).unwrap();
        let joules = Memory::new(device.clone()).energy_j(1000);
        let seconds = 1000.0 * device.cycle_fs as f64 * 1e-15;
        let idle_w = 8.0 * 1.35 * 0.032;
        assert!((joules / (2.0 * idle_w * seconds) - 1.0).abs() < 1e-9, "{joules}");
        let wrong = text.replace("idd0 = \"55 mA\"", "idd0 = \"5 mA\"");
        let why = Device::parse("mine.toml", &wrong).unwrap_err().to_string();
        assert!(why.contains("`idd0` of [energy.currents]"), "{why}");
        let pcm = Memory::new(Device::find("pcm").unwrap()).energy_j(1000);
        assert!((pcm / (3.120_202 * 2.5e-6) - 1.0).abs() < 1e-9, "{pcm}");
    }

    #[test]
    fn refresh_takes_its_time_and_comes_round() {
        let device = device("ddr3-1600k");
        let t = device.timing;
        // The first rank is due at half the interval; a read one cycle before and at it.
        let due = t.refi / 2;
        let at = |cycle: u64| drive(&device, [read(cycle, 0)]).read_ns.p50;
        assert_eq!(at(due - t.rcd - t.cl), 32.5);
        assert_eq!(at(due), 32.5 + t.rfc as f64 * 1.25);
        assert_eq!(at(due + t.rfc), 32.5);
        let mut memory = Memory::new(device.clone());
        memory.push(
            0,
            twinpage_lab::device::Kind::Read,
            twinpage_lab::device::Class::Demand,
            0,
            1,
            t.refi * 100,
        );
        memory.run_until(u64::MAX / 2, |_| ());
        assert_eq!(memory.commands().refreshes, 2 * 100, "skipped ones are counted");
    }
}

mod the_scheduling_is_right {
    use super::*;

    #[test]
    fn row_hits_go_first_and_may_not_starve_others() {
        let mut device = device("ddr3-1600k");
        device.timing.refi = 0;
        let row = 8192 * 16;
        // A conflict in the middle of hits waits for them: three activates fewer than in order.
        let requests = [read(0, 0), read(1, row), read(2, 64), read(3, 128)];
        assert_eq!(drive(&device, requests).activates, 2);
        let mut hits = |streak: u32| {
            device.queue.hit_streak = streak;
            let requests = std::iter::once(read(0, 0))
                .chain([read(1, row)])
                .chain((0..200).map(|n| read(2 + n, n % 128 * 64)));
            drive(&device, requests)
        };
        assert!(hits(4).activates > hits(1000).activates);
    }

    #[test]
    fn reads_pass_writes_until_there_are_many() {
        let mut device = device("pcm");
        let few = (0..8).map(|n| write(n, n * 2048)).chain([read(9, 256)]);
        let read_alone = 15.0 + 120.0;
        let outcome = drive(&device, few);
        assert!(outcome.read_ns.p50 <= read_alone + 180.0, "{outcome:?}");
        device.queue.drain_from = 2;
        device.queue.drain_to = 0;
        let many = (0..8).map(|n| write(n, n * 2048)).chain([read(9, 256)]);
        assert!(drive(&device, many).read_ns.p50 > read_alone);
    }

    /// Random lines, of which every other is written.
    fn half_written(count: u64, bytes: u64, every: u64) -> impl Iterator<Item = Request> {
        random(count, bytes, every)
            .enumerate()
            .map(|(number, request)| Request {
                write: number % 2 == 1,
                ..request
            })
    }

    #[test]
    fn a_row_that_was_opened_is_used_before_it_is_closed() {
        let device = device("ddr3-1600k");
        let count = 200_000;
        let mixed = drive(&device, half_written(count, device.bytes(), 0));
        // A row is opened once for a request, whichever way the bus goes meanwhile.
        assert!(mixed.activates as f64 / (count as f64) < 1.05, "{mixed:?}");
    }

    /// With little to do the median read takes what the closed form says, which good simulators meet, and what is asked for is
    /// done as fast as it is asked for. The mean is compared with a plain model's (`plain`).
    #[test]
    fn light_traffic_takes_what_the_closed_forms_say() {
        let device = device("ddr3-1600k");
        let (count, every) = (100_000, 100);
        let takes = |requests: &mut dyn Iterator<Item = Request>, ns: f64| {
            let outcome = drive(&device, requests);
            assert_eq!(outcome.read_ns.p50, ns);
            let offered = 64.0 / (every as f64 * device.cycle_fs as f64 * 1e-6);
            assert!((outcome.gb_per_s / offered - 1.0).abs() < 0.01, "{outcome:?}");
        };
        takes(&mut (0..count).map(|n| read(n * every, n * 64)), 18.75);
        takes(&mut random(count, device.bytes(), every), 46.25);
        takes(&mut half_written(count, device.bytes(), every), 46.25);
    }

    /// Random requests of all kinds, by when they come.
    fn mixed(device: &Device, random: &mut fastrand::Rng) -> Vec<(u64, Kind, Class, u64, u64)> {
        let mut cycle = 0;
        let pages = device.bytes() / 4096;
        let near = random.u64(..pages - 8);
        let request = |_| {
            cycle += [0, random.u64(..8), random.u64(..80), random.u64(..9000)][random.usize(..4)];
            let kind = [Kind::Read, Kind::Write][random.usize(..2)];
            let class = [Class::Demand, Class::Background][random.usize(..2)];
            let lines = [1, 1, random.u64(1..=64), 64][random.usize(..4)];
            let page = [random.u64(..pages), near + random.u64(..8)][random.usize(..2)];
            let first = random.u64(..=64 - lines);
            (cycle, kind, class, page * 4096 + first * 64, lines)
        };
        (0..1000).map(request).collect()
    }

    /// A memory asked cycle by cycle, one asked seldom, and one asked at the end do the same at the same
    /// times, and nothing is done before the bound said so.
    #[test]
    fn when_a_memory_is_asked_changes_nothing() {
        for (name, _) in BUILT_IN {
            let device = device(name);
            for seed in 0..4 {
                let mut random = fastrand::Rng::with_seed(seed);
                let requests = mixed(&device, &mut random);
                let mut asked = |often: u64| {
                    let mut memory = Memory::new(device.clone());
                    let mut done = Vec::new();
                    let mut now = 0;
                    for (id, &(cycle, kind, class, at, lines)) in requests.iter().enumerate() {
                        while often > 0 && now + 1 < cycle {
                            now = (now + random.u64(1..=often)).min(cycle - 1);
                            let bound = memory.bound();
                            let before = done.len();
                            memory.run_until(now, |one| done.push((one.id, one.at)));
                            let early = done[before..].iter().find(|one| one.1 < bound);
                            assert_eq!(early, None, "{name}, seed {seed}, before {bound}");
                        }
                        memory.push(id as u64, kind, class, at, lines, cycle);
                    }
                    memory.run_until(u64::MAX / 2, |one| done.push((one.id, one.at)));
                    assert_eq!(memory.waiting(), 0);
                    assert_eq!(memory.bound(), u64::MAX);
                    done.sort_unstable();
                    (done, memory.commands())
                };
                let late = asked(0);
                assert!(asked(1) == late, "{name}, seed {seed}, every cycle");
                assert!(asked(500) == late, "{name}, seed {seed}, now and then");
            }
        }
    }

    /// Lines of one row asked for at once take as long as the banks say, line by line.
    #[test]
    fn a_run_takes_as_long_as_its_lines() {
        for (name, column) in [
            ("ddr3-1600k", Command::Read),
            ("ddr3-1600k", Command::Write),
            ("pcm", Command::Read),
            ("pcm", Command::Write),
        ] {
            let mut device = device(name);
            device.timing.refi = 0;
            let (kind, latency) = match column {
                Command::Read => (Kind::Read, device.timing.read_latency()),
                _ => (Kind::Write, device.timing.write_latency()),
            };
            for lines in 1..=device.buffer_bytes / 64 {
                let mut banks = Banks::new(device.timing, device.ranks as usize, device.banks as usize);
                let mut at = banks.earliest(Command::Activate, 0, 7);
                banks.issue(Command::Activate, 0, 0, at);
                for _ in 0..lines {
                    at = banks.earliest(column, 0, at);
                    banks.issue(column, 0, 0, at);
                }
                let mut memory = Memory::new(device.clone());
                memory.push(0, kind, Class::Demand, 0, lines, 7);
                let mut done = Vec::new();
                memory.run_until(1 << 20, |one| done.push(one.at));
                assert_eq!(done, [at + latency], "{name}, {lines} lines");
            }
        }
    }

    #[test]
    fn banks_work_side_by_side() {
        let device = device("pcm");
        let apart = drive(&device, (0..64).map(|n| write(0, n * 256)));
        let same = drive(&device, (0..64).map(|n| write(0, n * 2048)));
        assert!(
            same.time_ns > 6.0 * apart.time_ns,
            "{} and {}",
            same.time_ns,
            apart.time_ns
        );
    }
}
