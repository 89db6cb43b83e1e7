//! The heap against a model: blocks that do not overlap, keep what they hold, and are all given back.

use proptest::prelude::*;
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use twinpage::Heap;
use twinpage::heap::HeapError;
use twinpage::window::{Place, STEP, Window};

const UNIT: usize = 64 << 10;

fn window() -> Window {
    Window::volatile().unwrap()
}

fn heap(window: &Window) -> Heap<'_> {
    // SAFETY: nothing of a region is in sight, and values of two heaps do not meet.
    unsafe { Heap::create(window, 1) }.unwrap()
}

fn open(window: &Window) -> Result<Heap<'_>, HeapError> {
    // SAFETY: the same.
    unsafe { Heap::open(window) }
}

#[derive(Clone, Debug)]
enum Op {
    Take { bytes: usize, align: usize },
    Free(usize),
    Extend(usize, usize),
    GiveBack,
}

fn op() -> impl Strategy<Value = Op> {
    let bytes = prop_oneof![
        4 => 1_usize..300,
        3 => 300_usize..9000,
        2 => 9000_usize..60_000,
        2 => 60_000_usize..2_000_000,
    ];
    let align = prop_oneof![6 => Just(8_usize), 1 => (0_u32..=16).prop_map(|power| 1 << power)];
    prop_oneof![
        10 => (bytes, align).prop_map(|(bytes, align)| Op::Take { bytes, align }),
        8 => any::<usize>().prop_map(Op::Free),
        2 => (any::<usize>(), 1_usize..400_000).prop_map(|(which, by)| Op::Extend(which, by)),
        1 => Just(Op::GiveBack),
    ]
}

struct Model<'r> {
    heap: Heap<'r>,
    /// Blocks in use: address, layout and the byte they are filled with.
    blocks: BTreeMap<usize, (Layout, u8)>,
    next: u8,
}

impl Model<'_> {
    fn fill(&mut self, block: NonNull<u8>, layout: Layout) {
        self.next = self.next.wrapping_add(1);
        let place = Place::of(block.as_ptr()).unwrap();
        let offset = place.offset_of(block.as_ptr());
        // SAFETY: the block is ours and has that many bytes.
        unsafe {
            place.touch(offset..offset + layout.size());
            block.write_bytes(self.next, layout.size());
        }
        self.blocks.insert(block.addr().get(), (layout, self.next));
    }

    fn nth(&self, which: usize) -> Option<(usize, Layout)> {
        let index = which.checked_rem(self.blocks.len())?;
        self.blocks
            .iter()
            .nth(index)
            .map(|(&at, &(layout, _))| (at, layout))
    }

    fn block(at: usize) -> NonNull<u8> {
        NonNull::new(std::ptr::with_exposed_provenance_mut(at)).unwrap()
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Take { bytes, align } => {
                let layout = Layout::from_size_align(bytes, align).unwrap();
                let block = self.heap.allocate(layout);
                assert_eq!(block.addr().get() % align, 0);
                self.fill(block, layout);
            }
            Op::Free(which) => {
                if let Some((at, layout)) = self.nth(which) {
                    self.verify(at);
                    self.blocks.remove(&at);
                    // SAFETY: the model has it as in use, with that layout.
                    unsafe { self.heap.deallocate(Self::block(at), layout) };
                }
            }
            Op::Extend(which, by) => {
                if let Some((at, old)) = self.nth(which) {
                    let new = Layout::from_size_align(old.size() + by, old.align()).unwrap();
                    // SAFETY: as above; the new layout is larger.
                    if unsafe { self.heap.try_extend(Self::block(at), old, new) }.unwrap() {
                        self.verify(at);
                        self.fill(Self::block(at), new);
                    }
                }
            }
            Op::GiveBack => {
                self.heap.give_back().unwrap();
                assert_eq!(self.heap.stats().held_bytes, 0);
            }
        }
    }

    fn verify(&self, at: usize) {
        let (layout, value) = self.blocks[&at];
        // SAFETY: the block is in use and was filled.
        let bytes = unsafe { std::slice::from_raw_parts(Self::block(at).as_ptr(), layout.size()) };
        assert!(bytes.iter().all(|&b| b == value), "the block at {at:#x} changed");
    }

    fn verify_all(&self) {
        let mut end = 0;
        for (&at, &(layout, _)) in &self.blocks {
            assert!(at >= end, "blocks overlap at {at:#x}");
            end = at + layout.size();
            self.verify(at);
        }
        let stats = self.heap.stats();
        assert_eq!(stats.used_blocks, self.blocks.len() as u64);
        let parts = stats.used_bytes + stats.free_bytes + stats.scattered_bytes + stats.own_bytes;
        assert_eq!(parts, stats.span_bytes, "{stats:?}");
    }
}

fn run(ops: &[Op]) {
    let window = window();
    let heap = heap(&window);
    let mut model = Model {
        heap,
        blocks: BTreeMap::new(),
        next: 0,
    };
    for op in ops {
        model.run(op);
    }
    model.verify_all();
    let again = open(&window).unwrap();
    assert_eq!(again.stats(), heap.stats());
    while !model.blocks.is_empty() {
        model.run(&Op::Free(0));
    }
    let stats = heap.stats();
    assert_eq!((stats.used_blocks, stats.used_bytes), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: twinpage_campaign::either(100, 2000), ..ProptestConfig::default() })]
    #[test]
    fn blocks_are_apart_and_keep_what_they_hold(ops in prop::collection::vec(op(), 1..400)) {
        run(&ops);
    }
}

#[test]
fn memory_is_used_again() {
    let window = window();
    let heap = heap(&window);
    let layout = Layout::from_size_align(100_000, 8).unwrap();
    let mut spans = Vec::new();
    for _ in 0..3 {
        let blocks: Vec<_> = (0..1000).map(|_| heap.allocate(layout)).collect();
        for block in blocks {
            // SAFETY: just allocated so.
            unsafe { heap.deallocate(block, layout) };
        }
        spans.push(heap.stats().span_bytes);
    }
    assert_eq!(spans[0], spans[2]);
    let stats = heap.stats();
    assert!(
        stats.held_bytes <= (64 << 20).max(stats.span_bytes / 4),
        "{stats:?}"
    );
}

#[test]
fn a_block_of_nothing_takes_nothing() {
    let window = window();
    let heap = heap(&window);
    let layout = Layout::from_size_align(0, 4096).unwrap();
    let block = heap.allocate(layout);
    assert_eq!(block.addr().get() % 4096, 0);
    // SAFETY: allocated so.
    unsafe { heap.deallocate(block, layout) };
    assert_eq!(heap.stats().used_blocks, 0);
}

#[test]
fn a_bound_is_an_error_and_nothing_is_lost() {
    let window = window();
    let heap = heap(&window);
    window.place().set_bound(8 * STEP);
    let layout = Layout::from_size_align(UNIT, 8).unwrap();
    let mut blocks = Vec::new();
    let error = loop {
        match heap.try_allocate(layout) {
            Ok(block) => blocks.push(block),
            Err(error) => break error,
        }
    };
    let HeapError::Grow(error) = error else {
        panic!("{error}")
    };
    assert!(matches!(*error, twinpage::Error::Bound { .. }), "{error}");
    assert_eq!(blocks.len(), 8 * STEP / UNIT - 1);
    let before = heap.stats();
    assert!(heap.try_allocate(layout).is_err());
    assert_eq!(heap.stats(), before);
    // SAFETY: allocated so.
    unsafe { heap.deallocate(blocks.pop().unwrap(), layout) };
    heap.try_allocate(layout).unwrap();
    let huge = Layout::from_size_align(1 << 50, 8).unwrap();
    assert!(matches!(heap.try_allocate(huge), Err(HeapError::TooLarge { .. })));
    let strict = Layout::from_size_align(8, 1 << 20).unwrap();
    let refused = heap.try_allocate(strict).unwrap_err();
    assert!(
        matches!(
            refused,
            HeapError::Alignment {
                align: 1_048_576,
                most: 65_536
            }
        ),
        "{refused}"
    );
}

#[test]
fn the_table_moves_when_the_heap_outgrows_it() {
    let window = window();
    let heap = heap(&window);
    let layout = Layout::from_size_align(40 * UNIT, 8).unwrap();
    // Room for 3072 units in the first table: 12,000 need two moves. Nothing of it is written.
    let blocks: Vec<_> = (0..300).map(|_| heap.allocate(layout)).collect();
    let stats = heap.stats();
    assert_eq!(
        (stats.used_blocks, stats.used_bytes),
        (300, 300 * 40 * UNIT as u64)
    );
    assert_eq!(open(&window).unwrap().stats(), stats);
    for block in blocks {
        // SAFETY: allocated so.
        unsafe { heap.deallocate(block, layout) };
    }
    assert_eq!(heap.stats().used_bytes, 0);
}

#[test]
fn a_block_freed_twice_is_noticed() {
    let window = window();
    let heap = heap(&window);
    for bytes in [24, 500, 20_000, 300_000] {
        let layout = Layout::from_size_align(bytes, 8).unwrap();
        let (block, _other) = (heap.allocate(layout), heap.allocate(layout));
        // SAFETY: allocated so. The second time is what is tried.
        let twice = std::panic::catch_unwind(|| unsafe {
            heap.deallocate(block, layout);
            heap.deallocate(block, layout);
        });
        let message = *twice.unwrap_err().downcast::<String>().unwrap();
        assert!(message.contains("damaged"), "{message}");
    }
}

#[test]
fn what_is_no_heap_is_refused() {
    let window = Window::volatile().unwrap();
    assert!(matches!(open(&window), Err(HeapError::Damaged(_))));
    window.place().grow(STEP).unwrap();
    assert!(matches!(open(&window), Err(HeapError::Damaged(_))));
    let heap = heap(&window);
    assert_eq!(open(&window).unwrap(), heap);
    for (at, byte) in [(0, 9), (8, 2), (13, 1), (18, 1), (25, 0)] {
        let byte_at = window.place().base().wrapping_add(at);
        // SAFETY: the first bytes of the window are usable; the old one is put back.
        unsafe {
            let old = byte_at.read();
            byte_at.write(byte);
            assert!(open(&window).is_err(), "byte {at}");
            byte_at.write(old);
        }
    }
}

#[test]
fn threads_take_and_free_each_others_blocks() {
    let window = window();
    let heap = heap(&window);
    let rounds = 30_000;
    let (send, receive): (Vec<_>, Vec<_>) = (0..4)
        .map(|_| std::sync::mpsc::channel::<(usize, Layout, u8)>())
        .unzip();
    std::thread::scope(|scope| {
        for (own, receive) in receive.into_iter().enumerate() {
            let send = send.clone();
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(own as u64);
                let free = |(at, layout, value): (usize, Layout, u8)| {
                    let block = Model::block(at);
                    // SAFETY: the sender gave the block away, filled.
                    unsafe {
                        let bytes = std::slice::from_raw_parts(block.as_ptr(), layout.size());
                        assert!(bytes.iter().all(|&b| b == value));
                        heap.deallocate(block, layout);
                    }
                };
                for round in 0..rounds {
                    let bytes = match random.u8(..) {
                        0..4 => random.usize(9_000..200_000),
                        _ => random.usize(1..400),
                    };
                    let layout = Layout::from_size_align(bytes, 8).unwrap();
                    let (block, value) = (heap.allocate(layout), round as u8);
                    // SAFETY: the block is ours.
                    unsafe { block.write_bytes(value, bytes) };
                    send[random.usize(..4)]
                        .send((block.addr().get(), layout, value))
                        .unwrap();
                    receive.try_iter().for_each(free);
                }
                drop(send);
                receive.iter().for_each(free);
            });
        }
        drop(send);
    });
    assert_eq!(heap.stats().used_blocks, 0);
}
