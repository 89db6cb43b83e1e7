//! Counts what reading costs, so that a few bad bytes cannot cost much: no time is measured, only
//! calls, bytes and memory, which are the same on every machine.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use twinpage_core::crash::Image;
use twinpage_core::{Medium, Offset, Result};

thread_local! {
    static NOW: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// An allocator that knows how many bytes this thread has. Make it the global one of a test.
#[derive(Debug)]
pub struct Counting;

impl Counting {
    fn count(new: usize, old: usize) {
        let now = (NOW.get() + new).saturating_sub(old);
        NOW.set(now);
        PEAK.set(PEAK.get().max(now));
    }

    /// The most bytes this thread had at once while `deed` ran, above what it had before.
    pub fn peak<T>(deed: impl FnOnce() -> T) -> (T, usize) {
        let before = NOW.get();
        PEAK.set(before);
        let result = deed();
        (result, PEAK.get() - before)
    }
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches plain cells of this
// thread, which need no allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::count(layout.size(), 0);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Counting::count(layout.size(), 0);
        // SAFETY: the caller's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, bytes: *mut u8, layout: Layout) {
        Counting::count(0, layout.size());
        // SAFETY: the caller's.
        unsafe { System.dealloc(bytes, layout) }
    }

    unsafe fn realloc(&self, bytes: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Counting::count(size, layout.size());
        // SAFETY: the caller's.
        unsafe { System.realloc(bytes, layout, size) }
    }
}

/// What was asked of a medium.
#[derive(Clone, Default, Debug)]
pub struct Usage(Rc<[Cell<u64>; 3]>);

impl Usage {
    fn add(&self, what: usize, amount: u64) {
        self.0[what].set(self.0[what].get() + amount);
    }

    /// Reads, and views.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.0[0].get()
    }

    /// Bytes of all of them.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.0[1].get()
    }

    /// Writes, growths and discards.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.0[2].get()
    }
}

/// Bytes an image may grow by: forged numbers ask for much.
const GROWTH: u64 = 16 << 20;

/// An image that counts.
#[derive(Debug)]
pub struct Metered {
    image: Image,
    /// Whether its bytes can be seen in place, as a memory's can.
    in_place: bool,
    usage: Usage,
}

impl Metered {
    /// These bytes, and what will be asked of them.
    #[must_use]
    pub fn new(bytes: Vec<u8>, in_place: bool) -> (Metered, Usage) {
        let usage = Usage::default();
        let limit = bytes.len() as u64 + GROWTH;
        (
            Metered {
                image: Image::from_bytes(bytes, 8).limited(limit),
                in_place,
                usage: usage.clone(),
            },
            usage,
        )
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.image.bytes()
    }

    fn count_read(&self, len: usize) {
        self.usage.add(0, 1);
        self.usage.add(1, len as u64);
    }
}

impl Medium for Metered {
    fn len(&self) -> u64 {
        self.image.len()
    }

    fn grow(&mut self, len: u64) -> Result<()> {
        self.usage.add(2, u64::from(len > self.image.len()));
        self.image.grow(len)
    }

    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        self.count_read(into.len());
        self.image.read(at, into)
    }

    fn view(&self, at: Offset, len: usize) -> Option<&[u8]> {
        self.count_read(len);
        self.in_place.then(|| self.image.view(at, len)).flatten()
    }

    fn write(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        self.usage.add(2, 1);
        self.image.write(at, bytes)
    }

    fn discard(&mut self, range: Range<Offset>) -> Result<()> {
        self.usage.add(2, 1);
        self.image.discard(range)
    }

    fn fence(&mut self) -> Result<()> {
        self.image.fence()
    }

    fn atom(&self) -> usize {
        self.image.atom()
    }
}
