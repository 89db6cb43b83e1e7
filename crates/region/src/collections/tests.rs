//! Each collection against that of `std`, on memory whose marks are checked.

mod btree;
mod deque;
mod hash;
mod memory;
mod more;
mod string;
mod vec;

use crate::address::PAGE;
use crate::gate::Pinned;
use crate::heap::{Heap, RawHeap};
use crate::marks::{self, LINE};
use crate::window::Window;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use twinpage_core::LineMask;
use twinpage_core::buffer::Buffer;

/// A heap, and a picture of its region as the checkpoints would have it: what is marked is copied to
/// the picture, and then the picture must be the region. So a write that was not marked is found.
///
/// All happens inside updates, as in a region that is kept, so that lines are marked by the same short roads.
pub(super) struct Watched {
    update: Option<Pinned>,
    window: Window,
    picture: Vec<u8>,
    pub(super) heap: Heap<'static>,
}

impl Watched {
    pub(super) fn new() -> Watched {
        let window = Window::reserve(None).unwrap();
        let update = Some(window.place().enter());
        let raw = RawHeap::create(window.place(), 0x5eed).unwrap();
        // SAFETY: the tests drop what they make before what it is in.
        let heap = unsafe { Heap::branded(raw) };
        Watched {
            update,
            window,
            picture: Vec::new(),
            heap,
        }
    }

    /// Takes a checkpoint, between two updates.
    pub(super) fn check(&mut self) {
        let place = self.window.place();
        self.update = None;
        let report = self.heap.check();
        assert!(report.damage.is_empty(), "{:?}", report.damage);
        self.picture.resize(place.bytes(), 0);
        let (mut frozen, mut buffer) = (marks::cut(place), Buffer::default());
        while let Some((number, lines)) = frozen.next_page(&mut buffer) {
            let lines = LineMask(lines).runs().flatten();
            for (line, bytes) in lines.zip(buffer.chunks(LINE)) {
                let to = number * PAGE + line * LINE;
                self.picture[to..to + LINE].copy_from_slice(bytes);
            }
            buffer.clear();
        }
        drop(frozen);
        self.update = Some(place.enter());
        // SAFETY: that many bytes are usable, and no one writes meanwhile.
        let memory = unsafe { std::slice::from_raw_parts(place.base(), place.bytes()) };
        if memory == self.picture {
            return;
        }
        if let Some(at) = memory.iter().zip(&self.picture).position(|(a, b)| a != b) {
            panic!("byte {at:#x} was written and not marked");
        }
    }

    /// Nothing is in use any more.
    pub(super) fn assert_empty(&self) {
        assert_eq!(self.heap.stats().used_blocks, 0);
    }
}

/// Counts values that are alive, and panics where it is asked to.
#[derive(Clone, Default)]
pub(super) struct Census(Rc<State>);

#[derive(Default)]
struct State {
    alive: RefCell<std::collections::BTreeMap<u64, u32>>,
    panics_at: Cell<u64>,
}

/// A value that is counted.
pub(super) struct Counted {
    census: Census,
    pub(super) id: u64,
}

impl Census {
    pub(super) fn make(&self, id: u64) -> Counted {
        *self.0.alive.borrow_mut().entry(id).or_default() += 1;
        Counted {
            census: self.clone(),
            id,
        }
    }

    pub(super) fn alive(&self) -> usize {
        self.0.alive.borrow().values().map(|&n| n as usize).sum()
    }

    /// The drop, comparison or hash of this value will panic.
    pub(super) fn panic_at(&self, id: u64) {
        self.0.panics_at.set(id);
    }
}

impl Counted {
    fn used(&self) {
        assert!(
            self.census.0.panics_at.get() != self.id || std::thread::panicking(),
            "as asked for {}",
            self.id
        );
    }
}

impl Clone for Counted {
    fn clone(&self) -> Counted {
        self.used();
        self.census.make(self.id)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        {
            let mut alive = self.census.0.alive.borrow_mut();
            let count = alive.get_mut(&self.id).expect("never dropped twice");
            *count = count.checked_sub(1).expect("never dropped twice");
        }
        self.used();
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Counted) -> bool {
        self.used();
        self.id == other.id
    }
}

impl Eq for Counted {}

impl PartialOrd for Counted {
    fn partial_cmp(&self, other: &Counted) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Counted {
    fn cmp(&self, other: &Counted) -> std::cmp::Ordering {
        self.used();
        self.id.cmp(&other.id)
    }
}

impl std::hash::Hash for Counted {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.used();
        self.id.hash(state);
    }
}

impl std::fmt::Debug for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.id.fmt(f)
    }
}

/// Runs what is expected to panic with [`Census::panic_at`].
pub(super) fn panics(f: impl FnOnce()) {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).expect_err("it was asked to panic");
}

/// How many cases a property test tries.
pub(super) fn cases(usual: u32) -> proptest::test_runner::Config {
    let long = twinpage_campaign::is_long();
    proptest::test_runner::Config {
        cases: match long {
            _ if cfg!(miri) => 1,
            true => usual * 20,
            false => usual,
        },
        failure_persistence: None,
        ..Default::default()
    }
}
