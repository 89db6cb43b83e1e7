//! Arrays as small as they go, in memory of their own: for Miri (`make miri`), which sees what the unsafe code of the
//! arrays and of the hand-over does, on two threads too. It runs as an ordinary test as well.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use twinpage_os::direct::{Counts, Direct};
use twinpage_versions::{Options, Pace, Planes, Versions};

const CAPACITY: usize = 256 << 10;

/// Memory that needs nothing to be durable.
#[derive(Debug)]
struct Plain {
    base: *mut u8,
    len: AtomicU64,
    streams: bool,
}

// SAFETY: memory of its own; its users decide on writes, as for a mapping.
unsafe impl Send for Plain {}
// SAFETY: as above.
unsafe impl Sync for Plain {}

impl Plain {
    fn layout() -> Layout {
        Layout::from_size_align(CAPACITY, 4096).unwrap()
    }

    fn new(streams: bool) -> Arc<Plain> {
        Arc::new(Plain {
            // SAFETY: not of no bytes.
            base: unsafe { alloc_zeroed(Plain::layout()) },
            len: AtomicU64::new(0),
            streams,
        })
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // SAFETY: allocated so.
        unsafe { dealloc(self.base, Plain::layout()) };
    }
}

impl Direct for Plain {
    fn base(&self) -> *mut u8 {
        self.base
    }

    fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    fn grow(&self, len: u64) -> twinpage_core::Result<()> {
        assert!(len as usize <= CAPACITY);
        self.len.fetch_max(len, Ordering::Relaxed);
        Ok(())
    }

    fn write_back(&self, range: Range<u64>) {
        let (at, bytes) = (range.start as usize, (range.end - range.start) as usize);
        // SAFETY: inside, and aligned for a word where it is one.
        unsafe {
            let from = self.base.add(at);
            std::hint::black_box(match bytes {
                // A number: a word that the next update may store meanwhile.
                8 => AtomicU64::from_ptr(from.cast()).load(Ordering::Relaxed),
                // A value, which does not change while it is written back.
                _ => std::slice::from_raw_parts(from, bytes)
                    .iter()
                    .map(|&byte| u64::from(byte))
                    .sum(),
            });
        }
    }

    fn fence(&self) -> twinpage_core::Result<()> {
        Ok(())
    }

    fn streams(&self) -> bool {
        self.streams
    }

    fn counts(&self) -> Counts {
        Counts::default()
    }
}

/// A few updates of each kind, beside a vector; a panic, growth, and the next life.
fn elements<const N: usize>(options: &Options, streams: bool) {
    const COUNT: usize = 5;
    type Value = [u32; 3];
    let options = options.clone().per_block(4);
    let memory = Plain::new(streams);
    let first = |index| [index as u32; 3];
    let mut model: Vec<Value> = (0..COUNT).map(first).collect();
    let mut array = Versions::<Value, N>::open_on(&options, memory.clone(), COUNT, first).unwrap();
    for round in 0..4_usize {
        let (a, b, c) = (round % COUNT, (round * 2 + 1) % COUNT, (round * 3 + 2) % COUNT);
        array.update(|update| {
            update.swap(a, b);
            update.get_mut(c)[1] += 7;
            update.set(a, [round as u32; 3]);
            // In place: it was changed by this update.
            update.swap(a, c);
        });
        model.swap(a, b);
        model[c][1] += 7;
        model[a] = [round as u32; 3];
        model.swap(a, c);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            array.update(|update| {
                update.get_mut(b)[0] = 99;
                std::panic::resume_unwind(Box::new("on purpose"));
            });
        }));
        assert!(panicked.is_err());
        assert!((0..COUNT).all(|index| *array.get(index) == model[index]));
    }
    array.reserve(COUNT + 3, first).unwrap();
    model.extend((COUNT..COUNT + 3).map(first));
    array.update(|update| update.swap(0, COUNT + 2));
    model.swap(0, COUNT + 2);
    array.durable().unwrap();
    drop(array);
    let array =
        Versions::<Value, N>::open_on(&options, memory, COUNT + 3, |_| panic!("it is there")).unwrap();
    assert!((0..COUNT + 3).all(|index| *array.get(index) == model[index]));
}

fn planes<const N: usize>(options: &Options) {
    let memory = Plain::new(false);
    let mut field = Planes::<u32, N>::open_on(options, memory.clone(), 12).unwrap();
    for step in 1..4 {
        field
            .step(|old, new| (0..12).for_each(|k| new[k] = old[k] + k as u32))
            .unwrap();
        assert_eq!(field.newest()[5], 5 * step);
    }
    field.step_range(2..4, |_, new| new.fill(1)).unwrap();
    field.reserve(20).unwrap();
    field.durable().unwrap();
    drop(field);
    let field = Planes::<u32, N>::open_on(options, memory, 20).unwrap();
    assert_eq!(field.steps_done(), 4);
    assert_eq!(
        (field.newest()[3], field.newest()[5], field.newest()[19]),
        (1, 15, 0)
    );
}

#[test]
fn arrays_on_one_thread() {
    let options = Options::new().inline().pace(Pace::Immediate);
    elements::<2>(&options, false);
    elements::<3>(&options, false);
    elements::<3>(&options, true);
    planes::<2>(&options);
    planes::<3>(&options);
}

#[test]
fn arrays_with_a_persistence_thread() {
    let options = Options::new().pace(Pace::Immediate);
    elements::<2>(&options, false);
    elements::<3>(&options, false);
    elements::<3>(&options, true);
    planes::<3>(&options);
}
