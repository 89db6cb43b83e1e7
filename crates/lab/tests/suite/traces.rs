//! Traces: does each form say what its tool meant, round-trip, and refuse what is damaged?

use fastrand::Rng;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use twinpage_lab::trace::{
    Addresses, Clock, Error, Event, Form, Header, NativeReader, NativeWriter, Position, Record, Trace,
    convert,
};

fn load(after: u32, at: u64, size: u16) -> Record {
    let event = Event::Load { at, size };
    Record {
        core: 0,
        after,
        event,
    }
}

fn store(after: u32, at: u64, size: u16) -> Record {
    let event = Event::Store {
        at,
        size,
        value: None,
    };
    Record {
        core: 0,
        after,
        event,
    }
}

fn open(name: &str, bytes: impl Into<Vec<u8>>) -> Trace {
    Trace::from_bytes(name, bytes.into(), None).unwrap()
}

fn records(trace: Trace) -> Vec<Record> {
    trace.map(Result::unwrap).collect()
}

/// Runs `deed` with one seed after another; the seed that fails is printed.
fn campaign(name: &str, deed: impl Fn(&mut Rng)) {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = number("TWINPAGE_FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..));
    let runs = number("TWINPAGE_FUZZ_RUNS").unwrap_or(twinpage_campaign::either(200, 20_000));
    for seed in (0..runs).map(|run| first.wrapping_add(run)) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| deed(&mut Rng::with_seed(seed)))) {
            let _ = writeln!(
                std::io::stderr(),
                "again with: TWINPAGE_FUZZ_SEED={seed} TWINPAGE_FUZZ_RUNS=1 cargo test -p twinpage-lab {name}"
            );
            resume_unwind(panic);
        }
    }
}

/// Any records at all that a header of that many cores allows.
fn arbitrary(rng: &mut Rng, cores: u8, count: usize) -> Vec<Record> {
    let mut near = rng.u64(..1 << 47);
    (0..count)
        .map(|_| {
            let size = match rng.u8(..4) {
                0 => rng.u16(1..=4096),
                _ => 1 << rng.u8(..7),
            };
            near = match rng.u8(..4) {
                0 => rng.u64(..=u64::MAX - 4096),
                _ => (near % (u64::MAX - 8192)) + rng.u64(..64),
            };
            let event = match rng.u8(..7) {
                0 => Event::Load { at: near, size },
                6 => Event::Follow {
                    at: near,
                    size,
                    behind: rng.u8(1..=8),
                },
                1 => Event::Store {
                    at: near,
                    size,
                    value: None,
                },
                2 => {
                    let size = rng.u16(1..=8);
                    let value = rng.u64(..) >> (64 - 8 * size);
                    Event::Store {
                        at: near,
                        size,
                        value: Some(value),
                    }
                }
                3 => Event::Persist { at: near, size },
                4 => Event::Fence,
                _ => Event::Commit,
            };
            let after = match rng.u8(..3) {
                0 => rng.u32(..),
                _ => rng.u32(..3),
            };
            Record {
                core: rng.u8(..cores),
                after,
                event,
            }
        })
        .collect()
}

fn native(header: &Header, records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = NativeWriter::new(&mut bytes, header).unwrap();
    for record in records {
        writer.write(record).unwrap();
    }
    writer.finish().unwrap();
    bytes
}

fn header(rng: &mut Rng) -> Header {
    Header {
        cores: rng.u8(1..=64),
        clock: if rng.bool() {
            Clock::Instructions
        } else {
            Clock::Cycles
        },
        addresses: if rng.bool() {
            Addresses::Virtual
        } else {
            Addresses::Physical
        },
        origin: "ls -l /ä".repeat(rng.usize(..9)),
    }
}

#[test]
fn ours_round_trips() {
    campaign("ours_round_trips", |rng| {
        let header = header(rng);
        let count = rng.usize(..2000);
        let records = arbitrary(rng, header.cores, count);
        let trace = open("t", native(&header, &records));
        assert_eq!((trace.form(), trace.header()), (Form::Native, &header));
        assert_eq!(self::records(trace), records);
    });
}

#[test]
fn ours_spans_blocks_and_is_compact() {
    let header = Header {
        cores: 1,
        clock: Clock::Instructions,
        addresses: Addresses::Virtual,
        origin: String::new(),
    };
    let records: Vec<_> = (0..1_000_000)
        .map(|i| load(i as u32 % 3, 0x1000 + i * 24, 8))
        .collect();
    let bytes = native(&header, &records);
    assert!(
        bytes.len() < 100_000,
        "{} bytes for a million regular loads",
        bytes.len()
    );
    assert_eq!(self::records(open("t", bytes)), records);
}

/// Any flip, cut, or addition is noticed, and no record before it is lost or changed.
#[test]
fn ours_refuses_any_damage() {
    campaign("ours_refuses_any_damage", |rng| {
        let header = header(rng);
        let records = arbitrary(rng, header.cores, 300);
        let whole = native(&header, &records);
        let mut bytes = whole.clone();
        match rng.u8(..3) {
            0 => bytes.truncate(rng.usize(..bytes.len())),
            1 => bytes.push(rng.u8(..)),
            _ => {
                let at = rng.usize(..bytes.len());
                bytes[at] ^= 1 << rng.u8(..8);
            }
        }
        let refusal = match NativeReader::new("t", &bytes[..]) {
            Err(refusal) => refusal,
            Ok(mut reader) => loop {
                match reader.next_record() {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("damage was not noticed"),
                    Err(refusal) => break refusal,
                }
            },
        };
        assert!(
            matches!(refusal, Error::Refused { place: Position::Byte(at), .. } if at <= whole.len() as u64)
        );
    });
}

#[test]
fn a_trace_without_its_end_gives_its_whole_blocks_then_refuses() {
    let header = Header {
        cores: 1,
        clock: Clock::Instructions,
        addresses: Addresses::Virtual,
        origin: "cut".into(),
    };
    let all = arbitrary(&mut Rng::with_seed(1), 1, 300);
    let mut bytes = native(&header, &all);
    bytes.truncate(bytes.len() - 32);
    let mut trace = open("cut", bytes);
    let mut found = Vec::new();
    let refusal = loop {
        match trace.next_record() {
            Ok(record) => found.push(record.expect("an end without an end")),
            Err(refusal) => break refusal.to_string(),
        }
    };
    assert_eq!(found, all);
    assert!(refusal.contains("before the trace's end"), "{refusal}");
}

#[test]
fn impossible_records_are_not_written() {
    let header = Header {
        cores: 2,
        clock: Clock::Instructions,
        addresses: Addresses::Virtual,
        origin: String::new(),
    };
    let mut writer = NativeWriter::new(Vec::new(), &header).unwrap();
    let wrong = [
        Record {
            core: 2,
            ..load(1, 0, 8)
        },
        load(1, 0, 0),
        load(1, 0, 4097),
        load(1, u64::MAX, 2),
        Record {
            core: 0,
            after: 0,
            event: Event::Store {
                at: 0,
                size: 2,
                value: Some(1 << 16),
            },
        },
        Record {
            core: 0,
            after: 0,
            event: Event::Store {
                at: 0,
                size: 9,
                value: Some(1),
            },
        },
    ];
    for record in wrong {
        assert!(writer.write(&record).is_err(), "{record:?}");
    }
}

const LACKEY: &str = "==16787== Lackey, an example Valgrind tool
==16787== Command: /bin/true
I  0401ab70,3
I  0401ab73,5
 S 1fff000748,8
 L 0402bdc8,8
I  0401b770,1
 M 0421fd30,16
==16787== Exit code: 0
";

#[test]
fn lackey_is_understood() {
    let trace = open("lackey.txt", LACKEY);
    assert_eq!(
        (trace.form(), trace.header().addresses),
        (Form::Lackey, Addresses::Virtual)
    );
    let expected = [
        store(2, 0x1f_ff00_0748, 8),
        load(0, 0x402_bdc8, 8),
        load(1, 0x421_fd30, 16),
        store(0, 0x421_fd30, 16),
    ];
    assert_eq!(records(trace), expected);
}

/// An instruction as ChampSim writes it.
fn instruction(stores: [u64; 2], loads: [u64; 4]) -> Vec<u8> {
    let mut bytes = 0x40_1000u64.to_le_bytes().to_vec();
    bytes.extend([0, 0, 1, 2, 3, 4, 5, 6]);
    bytes.extend(
        stores
            .iter()
            .chain(&loads)
            .flat_map(|address| address.to_le_bytes()),
    );
    bytes
}

#[test]
fn champsim_is_understood() {
    let bytes = [
        instruction([0, 0], [0x1000, 0, 0, 0]),
        instruction([0, 0], [0; 4]),
        instruction([0x3000, 0], [0x2000, 0x2008, 0, 0]),
        instruction([0, 0], [0; 4]),
    ]
    .concat();
    let expected = [
        load(1, 0x1000, 8),
        load(2, 0x2000, 8),
        load(0, 0x2008, 8),
        store(0, 0x3000, 8),
    ];
    assert_eq!(records(open("bzip2.champsimtrace", bytes.clone())), expected);

    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&bytes).unwrap();
    let gz = gz.finish().unwrap();
    assert_eq!(records(open("a.champsimtrace.gz", gz.clone())), expected);
    let mut cut = open("a.champsimtrace.gz", gz[..gz.len() - 9].to_vec());
    assert!(std::iter::from_fn(|| cut.next_record().transpose()).any(|record| record.is_err()));

    let options = lzma_rust2::XzOptions::with_preset(1);
    let mut xz = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
    xz.write_all(&bytes).unwrap();
    assert_eq!(
        records(open("a.champsimtrace.xz", xz.finish().unwrap())),
        expected
    );

    let zst = zstd::encode_all(&bytes[..], 3).unwrap();
    assert_eq!(records(open("a.champsim.zst", zst)), expected);
}

#[test]
fn requests_are_understood() {
    let expected = [load(10, 0x1000, 64), store(5, 0x2fc0, 64), load(0, 0x40, 64)];
    let dramsim = "0x1000 READ 10\n0x2FFF WRITE 15\n0x40 READ 15\n";
    assert_eq!(records(open("d.trc", dramsim)), expected);
    for csv in [
        "cycle,write,address\n10,0,4096\n15,1,0x2fff\n15,0,64\n",
        "10, R, 4096\r\n15, W, 0x2fff\r\n15, R, 64",
    ] {
        let trace = open("a.csv", csv);
        assert_eq!((trace.form(), trace.header().clock), (Form::Csv, Clock::Cycles));
        assert_eq!(records(trace), expected);
    }
    let trace = open("r.trace", "LD 0x1000\nST 8192\n");
    assert_eq!(trace.form(), Form::Ramulator);
    assert_eq!(records(trace), [load(1, 0x1000, 64), store(1, 8192, 64)]);
    let trace = open("core.trace", "3 4096\n0 8192 12288\n");
    assert_eq!(
        (trace.form(), trace.header().clock),
        (Form::RamulatorCore, Clock::Instructions)
    );
    assert_eq!(
        records(trace),
        [load(4, 4096, 64), load(1, 8192, 64), store(0, 12288, 64)]
    );
}

#[test]
fn what_is_wrong_is_refused_with_its_place() {
    let long = "L".repeat(5000);
    let instruction = instruction([0, 0], [1, 0, 0, 0]);
    let mut flags = [instruction.clone(), instruction.clone()].concat();
    flags[64 + 8] = 7;
    let cases: Vec<(&str, Form, Vec<u8>, Position, &str)> = vec![
        (
            "lackey",
            Form::Lackey,
            b"I  0401,3\n X 10,8\n".to_vec(),
            Position::Line(2),
            "I, S, L or M",
        ),
        (
            "lackey",
            Form::Lackey,
            b"I  0401,3\n S 10,0\n".to_vec(),
            Position::Line(2),
            "no size",
        ),
        (
            "lackey",
            Form::Lackey,
            b"I  0401,3\n S 10,99999\n".to_vec(),
            Position::Line(2),
            "no size",
        ),
        (
            "lackey",
            Form::Lackey,
            b"I  0401,3\n S xyz,8\n".to_vec(),
            Position::Line(2),
            "hexadecimal",
        ),
        (
            "lackey",
            Form::Lackey,
            b"I  04\xc3\xa4".to_vec(),
            Position::Line(1),
            "expected",
        ),
        (
            "lackey",
            Form::Lackey,
            b" S ffffffffffffffff,8".to_vec(),
            Position::Line(1),
            "does not fit",
        ),
        (
            "lackey",
            Form::Lackey,
            b"I  0401,3\nhello\n".to_vec(),
            Position::Line(2),
            "hello",
        ),
        (
            "lackey",
            Form::Lackey,
            long.into_bytes(),
            Position::Line(1),
            "longer than",
        ),
        (
            "lackey",
            Form::Lackey,
            b"I  \xff\xfe,1".to_vec(),
            Position::Line(1),
            "not text",
        ),
        (
            "dram",
            Form::DramSim3,
            b"0x10 READ 5\n0x20 READ 4\n".to_vec(),
            Position::Line(2),
            "backwards",
        ),
        (
            "dram",
            Form::DramSim3,
            b"0x10 READ 5\n0x20 FETCH 9\n".to_vec(),
            Position::Line(2),
            "FETCH",
        ),
        (
            "dram",
            Form::DramSim3,
            b"10 READ 5\n".to_vec(),
            Position::Line(1),
            "0x",
        ),
        (
            "dram",
            Form::DramSim3,
            b"0x10 READ 5\n\n".to_vec(),
            Position::Line(2),
            "expected",
        ),
        (
            "dram",
            Form::DramSim3,
            b"0x10 READ 99999999999\n".to_vec(),
            Position::Line(1),
            "too long",
        ),
        (
            "ram",
            Form::Ramulator,
            b"LD 0x10\nLD zz\n".to_vec(),
            Position::Line(2),
            "zz",
        ),
        (
            "ram",
            Form::Ramulator,
            b"LD 0x10000000000000000\n".to_vec(),
            Position::Line(1),
            "64 bits",
        ),
        (
            "ramc",
            Form::RamulatorCore,
            b"1 2\n1\n".to_vec(),
            Position::Line(2),
            "expected",
        ),
        (
            "csv",
            Form::Csv,
            b"cycle,write,address\n1,2,3\n".to_vec(),
            Position::Line(2),
            "0 or 1",
        ),
        (
            "csv",
            Form::Csv,
            b"1,0,3\ncycle,write,address\n".to_vec(),
            Position::Line(2),
            "0 or 1",
        ),
        (
            "champsim",
            Form::ChampSim,
            instruction[..63].to_vec(),
            Position::Byte(0),
            "63 there",
        ),
        (
            "champsim",
            Form::ChampSim,
            flags,
            Position::Byte(72),
            "branch flags",
        ),
        (
            "native",
            Form::Native,
            b"twintrac\x03\0\0\0".repeat(3),
            Position::Byte(8),
            "version 3",
        ),
        (
            "native",
            Form::Native,
            b"ELF".repeat(30),
            Position::Byte(0),
            "twintrac",
        ),
        (
            "native",
            Form::Native,
            b"twin".to_vec(),
            Position::Byte(0),
            "ends inside the header",
        ),
    ];
    for (name, form, bytes, expected, words) in cases {
        let told = String::from_utf8_lossy(&bytes).into_owned();
        let found = Trace::from_bytes(name, bytes, Some(form)).and_then(|mut trace| {
            while trace.next_record()?.is_some() {}
            Ok(())
        });
        match found {
            Err(Error::Refused {
                name: at,
                place,
                what,
            }) => {
                assert_eq!((&at[..], place), (name, expected), "{told:?}: {what}");
                assert!(what.contains(words), "{told:?}: {what}");
            }
            other => panic!("{form}: {told:?} gave {other:?}"),
        }
    }
}

#[test]
fn forms_that_cannot_be_told_are_asked_for() {
    for bytes in [&b""[..], b"hello world\n", b"\x7fELF\x02\x01\x01"] {
        let error = Trace::from_bytes("x", bytes.to_vec(), None)
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("say its form"), "{error}");
    }
    assert!("dramsim2".parse::<Form>().unwrap_err().contains("dramsim3"));
}

/// Written in a form and read back: the same requests.
#[test]
fn conversions_keep_the_requests() {
    let rewritten = |bytes: Vec<u8>, form| {
        let mut output = Vec::new();
        let done = convert(&mut open("in", bytes), &mut output, form, u64::MAX).unwrap();
        (done, output)
    };
    let (done, ours) = rewritten(LACKEY.into(), Form::Native);
    assert_eq!((done.records, done.instructions), (4, 3));
    let trace = open("ours", ours.clone());
    assert_eq!(trace.header().origin, "in");
    assert_eq!(records(trace), records(open("lackey", LACKEY)));

    let (_, dramsim) = rewritten(ours.clone(), Form::DramSim3);
    let expected = "0x1fff000740 WRITE 2\n0x402bdc0 READ 2\n0x421fd00 READ 3\n0x421fd00 WRITE 3\n";
    // 0x421fd30 and the 15 bytes after it lie in one line.
    assert_eq!(String::from_utf8(dramsim.clone()).unwrap(), expected);
    let (_, again) = rewritten(dramsim.clone(), Form::DramSim3);
    assert_eq!(again, dramsim);
    let (_, ramulator) = rewritten(dramsim, Form::Ramulator);
    assert!(ramulator.starts_with(b"ST 0x1fff000740\nLD 0x402bdc0\n"));
    let (_, again) = rewritten(ramulator.clone(), Form::Ramulator);
    assert_eq!(again, ramulator);

    let refused = convert(&mut open("l", LACKEY), Vec::new(), Form::Lackey, 1).unwrap_err();
    assert!(refused.to_string().contains("read, not written"), "{refused}");
}

/// Whatever the bytes: records or a refusal, and never more memory than a block's worth.
#[test]
fn damaged_traces_never_panic() {
    campaign("damaged_traces_never_panic", |rng| {
        let header = header(rng);
        let samples: [(Form, Vec<u8>); 7] = [
            (Form::Native, native(&header, &arbitrary(rng, header.cores, 40))),
            (Form::ChampSim, instruction([1, 2], [3, 4, 5, 6]).repeat(3)),
            (Form::DramSim3, b"0x1000 READ 10\n0x2FFF WRITE 15\n".to_vec()),
            (Form::Ramulator, b"LD 0x1000\nST 8192\n".to_vec()),
            (Form::RamulatorCore, b"3 4096\n0 8192 12288\n".to_vec()),
            (Form::Lackey, LACKEY.into()),
            (
                Form::Csv,
                b"cycle,write,address\n10,0,4096\n15,1,0x2fff\n".to_vec(),
            ),
        ];
        for (form, sample) in samples {
            let mut bytes = sample.clone();
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(..bytes.len());
                match rng.u8(..4) {
                    0 => bytes[at] = rng.u8(..),
                    1 => bytes.insert(at, rng.u8(..)),
                    2 => bytes[at] ^= 1 << rng.u8(..8),
                    _ => bytes.truncate(at + 1),
                }
            }
            let form = if rng.bool() { Some(form) } else { None };
            let Ok(mut trace) = Trace::from_bytes("damaged", bytes, form) else {
                continue;
            };
            for _ in 0..100_000 {
                match trace.next_record() {
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => break,
                }
            }
            let _ = convert(&mut trace, std::io::sink(), Form::DramSim3, 1000);
        }
    });
}

/// A file of version 1 is read as it was; what it cannot have is refused.
#[test]
fn files_of_version_1_are_read() {
    let header = Header {
        cores: 1,
        clock: Clock::Instructions,
        addresses: Addresses::Virtual,
        origin: "before".into(),
    };
    let file = |events: &[Event]| {
        let mut bytes = Vec::new();
        let mut writer = NativeWriter::new(&mut bytes, &header).unwrap();
        for &event in events {
            writer
                .write(&Record {
                    core: 0,
                    after: 2,
                    event,
                })
                .unwrap();
        }
        writer.finish().unwrap();
        drop(writer);
        bytes[8] = 1;
        let head = 20 + header.origin.len();
        let crc = crc32c::crc32c(&bytes[..head]).to_le_bytes();
        bytes[head..head + 4].copy_from_slice(&crc);
        bytes
    };
    let load = Event::Load { at: 64, size: 8 };
    let old = Trace::from_bytes("old", file(&[load, Event::Fence]), None).unwrap();
    let events: Vec<Event> = old.map(|record| record.unwrap().event).collect();
    assert_eq!(events, [load, Event::Fence]);
    let follow = Event::Follow {
        at: 64,
        size: 8,
        behind: 1,
    };
    let mut wrong = Trace::from_bytes("wrong", file(&[load, follow]), None).unwrap();
    wrong.next_record().unwrap();
    assert!(wrong.next_record().unwrap_err().to_string().contains("no record"));
}
