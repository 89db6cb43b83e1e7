//! Workloads: does each compute the right result, notice when memory is wrong, and do the same again?

use twinpage_lab::trace::{Addresses, Clock, Event, Header, NativeWriter, Record};
use twinpage_lab::workload::list::{self, Setting};
use twinpage_lab::{Kind, Op, Progress, Space, Workload, workload};

/// A run: batches of cores in a random order, as a machine might ask for them.
struct Run {
    workload: Box<dyn Workload>,
    space: Space,
    /// A digest of every operation.
    digest: u32,
    loads: u64,
    stores: u64,
    instructions: u64,
    done: bool,
}

impl Run {
    fn new(name: &str, setting: &Setting) -> Run {
        let workload = list::make(name, setting).unwrap();
        let mut space = Space::new(workload.footprint_bytes());
        workload.fill(&mut space);
        Run {
            workload,
            space,
            digest: 0,
            loads: 0,
            stores: 0,
            instructions: 0,
            done: false,
        }
    }

    fn go(&mut self, setting: &Setting, order: u64, instructions: u64) {
        let mut random = fastrand::Rng::with_seed(order);
        let mut batch = Vec::new();
        let mut left: Vec<usize> = (0..setting.cores).collect();
        let mut waits = 0;
        let until = self.instructions + instructions;
        while self.instructions < until && !left.is_empty() {
            let turn = random.usize(..left.len());
            match workload::next(&mut *self.workload, left[turn], &mut self.space, &mut batch) {
                Progress::Done => drop(left.swap_remove(turn)),
                Progress::Waiting => waits += 1,
                Progress::More => waits = 0,
            }
            assert!(waits < 1000, "all wait for each other");
            self.count(&batch);
        }
        self.done = left.is_empty();
    }

    fn count(&mut self, batch: &[Op]) {
        assert!(batch.len() < 20_000, "a batch of {} operations", batch.len());
        for op in batch {
            self.digest = crc32c::crc32c_append(self.digest, &op.at.to_le_bytes());
            self.digest = crc32c::crc32c_append(self.digest, &[op.kind as u8, op.bytes]);
            self.instructions += op.instructions();
            self.loads += u64::from(op.kind == Kind::Load);
            self.stores += u64::from(op.kind == Kind::Store);
        }
    }
}

fn settings() -> impl Iterator<Item = Setting> {
    [(1, 0.0005), (4, 0.002)]
        .into_iter()
        .map(|(cores, scale)| Setting {
            scale,
            cores,
            seed: fastrand::u64(..),
        })
}

#[test]
fn each_computes_what_it_should() {
    for entry in list::ALL {
        for setting in settings() {
            println!("{} {setting:?}", entry.name);
            let mut run = Run::new(entry.name, &setting);
            run.workload
                .check(&run.space)
                .unwrap_or_else(|why| panic!("before the first batch: {why}"));
            for part in 0..4 {
                run.go(&setting, setting.seed + part, 2_000_000);
                let told = run.workload.check(&run.space);
                told.unwrap_or_else(|why| panic!("after {} instructions: {why}", run.instructions));
            }
            assert!(
                run.loads > 0 && run.stores > 0,
                "{} loads, {} stores",
                run.loads,
                run.stores
            );
        }
    }
}

/// Memory as it was some operations ago is not what it should be now: the check must say so.
#[test]
fn each_notices_lost_writes() {
    for entry in list::ALL {
        for setting in settings() {
            let mut run = Run::new(entry.name, &setting);
            run.go(&setting, 1, 500_000);
            let mut earlier = run.space.clone();
            let more = match entry.name {
                // Labels only fall, and any on the way is right: until the end.
                "components" => u64::MAX / 2,
                // What counts is the answers; there must be new ones.
                "ann" | "flann" => 20_000_000,
                _ => 100_000,
            };
            run.go(&setting, 2, more);
            run.workload.check(&run.space).unwrap();
            std::mem::swap(&mut run.space, &mut earlier);
            let told = run.workload.check(&run.space);
            assert!(told.is_err(), "{} {setting:?} did not notice", entry.name);
        }
    }
}

#[test]
fn components_end() {
    let setting = Setting {
        scale: 0.002,
        cores: 4,
        seed: 7,
    };
    let mut run = Run::new("components", &setting);
    run.go(&setting, 1, u64::MAX / 2);
    assert!(run.done);
    run.workload.check(&run.space).unwrap();
}

/// The same seed and order of batches: the same operations and the same bytes.
#[test]
fn each_does_the_same_again() {
    let setting = Setting {
        scale: 0.001,
        cores: 4,
        seed: 3,
    };
    for entry in list::ALL {
        let [one, other] = [(); 2].map(|()| {
            let mut run = Run::new(entry.name, &setting);
            run.go(&setting, 5, 1_000_000);
            run
        });
        assert_eq!(one.digest, other.digest, "{}", entry.name);
        assert!(one.space == other.space, "{}", entry.name);
    }
}

/// A trace is read twice, which a pipe or a device cannot be.
#[test]
fn a_trace_that_is_no_file_is_not_played() {
    let setting = Setting {
        scale: 1.0 / 64.0,
        cores: 1,
        seed: 1,
    };
    let why = list::make(&format!("trace:a{}", ",b".repeat(setting.cores)), &setting)
        .err()
        .unwrap();
    assert!(why.contains("the machine has"), "{why}");
    let why = list::make("trace:/dev/null", &setting).err().unwrap();
    assert!(why.contains("read twice"), "{why}");
}

/// A trace of several cores, and one of one core on every core: the bytes are those that were stored.
#[test]
fn traces_are_played() {
    let scratch = tempfile::tempdir().unwrap();
    for cores in [1, 3] {
        let path = scratch.path().join(format!("{cores}.trace"));
        let header = Header {
            cores,
            clock: Clock::Instructions,
            addresses: Addresses::Virtual,
            origin: "made up".into(),
        };
        let mut random = fastrand::Rng::with_seed(cores.into());
        let mut writer = NativeWriter::new(std::fs::File::create(&path).unwrap(), &header).unwrap();
        let mut instructions = 0;
        for _ in 0..50_000 {
            let at = 0x7f00_0000_0000 + random.u64(..100_000);
            let size = random.u16(1..=100);
            let event = match random.u8(..10) {
                0 => Event::Fence,
                1 => Event::Persist { at, size },
                2..5 => Event::Load { at, size },
                5..8 => Event::Store {
                    at,
                    size,
                    value: None,
                },
                _ => Event::Store {
                    at,
                    size: 2,
                    value: Some(random.u64(..1 << 16)),
                },
            };
            let (core, after) = (random.u8(..cores), random.u32(10..100));
            instructions += u64::from(after);
            writer.write(&Record { core, after, event }).unwrap();
        }
        writer.finish().unwrap();
        drop(writer);

        let setting = Setting {
            scale: 1.0,
            cores: 4,
            seed: 0,
        };
        let mut run = Run::new(&format!("trace:{}", path.display()), &setting);
        run.go(&setting, 1, 1_000_000);
        run.workload.check(&run.space).unwrap();
        run.go(&setting, 2, u64::MAX / 2);
        assert!(run.done);
        let copies = if cores == 1 { 4 } else { 1 };
        assert!(run.instructions.abs_diff(copies * instructions) < 100);
        run.workload.check(&run.space).unwrap();
        let middle = run.space.bytes().len() / 2 + 100;
        run.space.bytes_mut()[middle] ^= 1;
        assert!(run.workload.check(&run.space).is_err());

        let mut damaged = std::fs::read(&path).unwrap();
        let at = damaged.len() / 2;
        damaged[at] ^= 4;
        std::fs::write(&path, damaged).unwrap();
        let refused = list::make(&format!("trace:{}", path.display()), &setting)
            .err()
            .unwrap();
        assert!(refused.contains("byte"), "{refused}");
    }
}
