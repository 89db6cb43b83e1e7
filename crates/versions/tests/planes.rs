//! Planes beside the same steps on plain memory.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use support::folders;
use twinpage_campaign::seed;
use twinpage_os::Durability;
use twinpage_versions::{Error, Options, Pace, Planes, look};

fn jacobi(old: &[f64], new: &mut [f64]) {
    let last = old.len() - 1;
    new[0] = old[0];
    new[last] = old[last];
    for k in 1..last {
        new[k] = (old[k - 1] + old[k] + old[k + 1]) / 3.0 + 1e-3;
    }
}

fn random_steps<const N: usize>(options: &Options, path: &std::path::Path, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model = vec![0.0; 3 + random.usize(..5000)];
    let mut steps = 0;
    for _ in 0..3 {
        let mut field = Planes::<f64, N>::open_with(options, path, model.len()).unwrap();
        assert_eq!((field.steps_done(), field.newest()), (steps, &model[..]));
        for _ in 0..random.u32(..12) {
            let mut after = model.clone();
            jacobi(&model, &mut after);
            match random.u8(..6) {
                0 => {
                    let outcome = catch_unwind(AssertUnwindSafe(|| {
                        field.step(|_, new| {
                            new.fill(7.0);
                            panic!("on purpose");
                        })
                    }));
                    assert!(outcome.is_err());
                }
                1 => {
                    let part = 1..model.len() / 2;
                    field
                        .step_range(part.clone(), |old, new| {
                            assert_eq!(new.len(), part.len());
                            new.copy_from_slice(&old[part.clone()]);
                            new[0] += 1.0;
                        })
                        .unwrap_or(());
                    model[1] += 1.0;
                    steps += 1;
                }
                2 => {
                    let more = model.len() + random.usize(..3000);
                    field.reserve(more).unwrap();
                    model.resize(more, 0.0);
                }
                3 => field.durable().unwrap(),
                _ => {
                    field.step(jacobi).unwrap();
                    model = after;
                    steps += 1;
                }
            }
            assert_eq!((field.steps_done(), field.newest()), (steps, &model[..]));
        }
        field.durable().unwrap();
    }
}

#[test]
fn steps_are_those_of_plain_memory() {
    let first = seed();
    for folder in folders() {
        for (k, pace) in [Pace::Immediate, Pace::Threshold(0.4), Pace::Manual]
            .into_iter()
            .enumerate()
        {
            let options = Options::new().pace(pace);
            let seed = first.wrapping_add(k as u64);
            random_steps::<2>(&options, &folder.path().join(format!("two{k}")), seed);
            random_steps::<3>(&options, &folder.path().join(format!("three{k}")), seed);
        }
    }
}

#[test]
fn what_is_copied_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut field = Planes::<u32, 2>::open(folder.path().join("field"), 1000).unwrap();
    field.step_range(100..900, |_, new| new.fill(1)).unwrap();
    assert_eq!(field.statistics().copied_bytes, 200 * 4);
    field.step(|_, new| new.fill(2)).unwrap();
    assert_eq!(field.statistics().copied_bytes, 200 * 4);
    assert!(catch_unwind(AssertUnwindSafe(|| field.step_range(900..1001, |_, _| ()))).is_err());
    assert_eq!(field.steps_done(), 2);
}

/// A plane lies where the header says, one value after another: for other programs.
#[test]
fn a_plane_can_be_read_at_its_documented_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("field");
    let mut field = Planes::<f64, 3>::open(&path, 1000).unwrap();
    for _ in 0..5 {
        field
            .step(|_, new| (0..).zip(new).for_each(|(k, value)| *value = f64::from(k) / 7.0))
            .unwrap();
    }
    field.durable().unwrap();
    let file = std::fs::read(&path).unwrap();
    let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|k| file[at + k]));
    let (count, first, stride) = (long(32) as usize, long(48) as usize, long(56) as usize);
    let (step, plane) = ((long(4096) >> 18) - 1, long(4096) as usize >> 16 & 3);
    assert_eq!((count, step), (1000, 5));
    let at = first + plane * stride;
    for k in 0..count {
        assert_eq!(f64::from_bits(long(at + 8 * k)), k as f64 / 7.0);
    }
}

fn on_disk() -> Options {
    Options::new().durability(Durability::Disk)
}

/// On a disk a step costs one flush.
#[test]
fn a_step_on_a_disk_is_flushed_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("field");
    let mut field = Planes::<u64, 3>::open_with(&on_disk(), &path, 5000).unwrap();
    let fences = |field: &Planes<u64, 3>| field.statistics().medium.fences;
    let before = fences(&field);
    for step in 1..=20 {
        field.step(|_, new| new.fill(step)).unwrap();
        field.durable().unwrap();
    }
    assert_eq!(fences(&field) - before, 20);
    // Growth takes the sums with it.
    field.reserve(6000).unwrap();
    field.step(|old, new| new.copy_from_slice(old)).unwrap();
    field.durable().unwrap();
    assert!(look(&path).unwrap().in_use.is_some());
    drop(field);
    let found = look(&path).unwrap();
    assert_eq!((found.durable, found.header.version), (21, 2));
    assert!(found.check().unwrap().is_empty());
    drop(found);
    let field = Planes::<u64, 3>::open_with(&on_disk(), &path, 6000).unwrap();
    assert_eq!((field.newest()[4999], field.newest()[5000]), (20, 0));
}

/// A power cut after the write of a step and before its flush: any of its sectors may be missing, and the word is
/// that of the step before. The seals say which step is whole.
#[test]
fn a_step_that_a_power_cut_tore_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("field");
    let mut field = Planes::<u64, 2>::open_with(&on_disk(), &path, 4096).unwrap();
    for step in 1..=7 {
        field.step(|_, new| new.fill(step)).unwrap();
        field.durable().unwrap();
    }
    drop(field);
    let whole = std::fs::read(&path).unwrap();
    let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|k| whole[at + k]));
    let seal = [4224, 4288].into_iter().max_by_key(|at| long(*at) >> 18).unwrap();
    let other = if seal == 4224 { 4288 } else { 4224 };
    assert_eq!((long(seal) >> 18, long(other) >> 18, long(4096) >> 18), (8, 7, 8));
    let open = |bytes: &[u8]| {
        let path = folder.path().join("cut");
        std::fs::write(&path, bytes).unwrap();
        let looked = look(&path).map(|found| (found.durable, found.check().map(|damage| damage.len())));
        let field = Planes::<u64, 2>::open_with(&on_disk(), &path, 4096);
        match (looked, field) {
            (Ok((durable, Ok(0))), Ok(field)) => {
                assert_eq!(durable, field.steps_done());
                assert!(field.newest().iter().all(|&value| value == field.steps_done()));
                Some(field.steps_done())
            }
            (_, Err(_)) => None,
            (looked, Ok(field)) => panic!("{looked:?}, and {} steps", field.steps_done()),
        }
    };
    // The word of step 5: two behind, as far as it can be.
    let mut cut = whole.clone();
    let old = Planes::<u64, 2>::open_with(&on_disk(), folder.path().join("five"), 4096);
    let mut old = old.unwrap();
    for step in 1..=5 {
        old.step(|_, new| new.fill(step)).unwrap();
    }
    old.durable().unwrap();
    drop(old);
    let five = std::fs::read(folder.path().join("five")).unwrap();
    cut[4096..4104].copy_from_slice(&five[4096..4104]);
    assert_eq!(open(&cut), Some(7), "the seal speaks for the step");
    // Step 7's plane lacks a sector; its seal lacks the sum; all of the seal is missing.
    let plane = 8192 + (long(seal) as usize >> 16 & 3) * 32768;
    let mut torn = cut.clone();
    torn[plane + 1024..plane + 1536].fill(5);
    assert_eq!(open(&torn), Some(6));
    let mut torn = cut.clone();
    torn[seal + 8..seal + 16].fill(0);
    assert_eq!(open(&torn), Some(6));
    let mut torn = cut.clone();
    torn[seal..seal + 16].fill(0);
    assert_eq!(open(&torn), Some(6));
    // Step 6 was durable: its plane cannot be torn by a crash. A flipped bit is damage.
    let plane = 8192 + (long(other) as usize >> 16 & 3) * 32768;
    torn[plane + 77] ^= 4;
    torn[seal..seal + 16].copy_from_slice(&cut[seal..seal + 16]);
    torn[seal + 8..seal + 16].fill(0);
    assert_eq!(open(&torn), None);
}

/// Planes of version 1, whose steps have no seals, go on as they were.
#[test]
fn planes_of_version_1_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("field");
    let mut field = Planes::<u64, 3>::open_with(&on_disk(), &path, 1000).unwrap();
    field.step(|_, new| new.fill(1)).unwrap();
    field.durable().unwrap();
    drop(field);
    let mut file = std::fs::read(&path).unwrap();
    file[8] = 1;
    let crc = crc32c::crc32c(&file[..252]);
    file[252..256].copy_from_slice(&crc.to_le_bytes());
    file[4224..4304].fill(0);
    std::fs::write(&path, &file).unwrap();
    let mut field = Planes::<u64, 3>::open_with(&on_disk(), &path, 1000).unwrap();
    let before = field.statistics().medium.fences;
    field.step(|old, new| new.fill(old[0] + 1)).unwrap();
    field.durable().unwrap();
    assert_eq!(field.statistics().medium.fences - before, 2);
    drop(field);
    let found = look(&path).unwrap();
    assert_eq!((found.header.version, found.durable), (1, 2));
    drop(found);
    // Growth writes a header of today.
    let mut field = Planes::<u64, 3>::open_with(&on_disk(), &path, 1000).unwrap();
    field.reserve(2000).unwrap();
    drop(field);
    assert_eq!(look(&path).unwrap().header.version, 2);
}

/// More values than any file holds: their bytes are a number that wraps.
#[test]
fn sizes_that_no_file_has_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("planes");
    for count in [1 << 45, 1 << 61, usize::MAX] {
        let error = Planes::<f64, 2>::open(&path, count).unwrap_err();
        assert!(matches!(error, Error::TooLarge { .. }), "{error}");
        assert!(!path.exists());
    }
    let mut planes = Planes::<f64, 2>::open(&path, 10).unwrap();
    planes.step(|_, new| new.fill(7.0)).unwrap();
    for count in [1 << 45, 1 << 61, usize::MAX] {
        assert!(matches!(planes.reserve(count), Err(Error::TooLarge { .. })));
    }
    assert_eq!(planes.newest(), [7.0; 10]);
    planes.step(|old, new| new.copy_from_slice(old)).unwrap();
    planes.durable().unwrap();
}
