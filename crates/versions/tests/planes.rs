//! Planes beside the same steps on plain memory.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use support::{folders, seed};
use twinpage_versions::{Options, Pace, Planes};

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
