//! What a section costs: fences, lines of the context, memory allocated. Nothing of it grows with the region.

use super::sections;
use super::support::flushes;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use twinpage::collections::Vec as List;
use twinpage::{Error, Handle, Region, SchemeKind};
use twinpage_core::crash::Image;
use twinpage_core::{Geometry, Medium, Offset, Result};

/// Counts what a thread allocates.
struct Counting;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all is the system's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + 1);
        // SAFETY: this function's own contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: this function's own contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A medium that counts its fences.
struct Fences {
    image: Image,
    count: Arc<AtomicU64>,
}

impl Medium for Fences {
    fn len(&self) -> u64 {
        self.image.len()
    }
    fn grow(&mut self, len: u64) -> Result<()> {
        self.image.grow(len)
    }
    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        self.image.read(at, into)
    }
    fn write(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        self.image.write(at, bytes)
    }
    fn fence(&mut self) -> Result<()> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.image.fence()
    }
    fn atom(&self) -> usize {
        self.image.atom()
    }
}

/// A region with a list of a million words, and the fences of its medium.
fn region(
    scheme: SchemeKind,
    atom: usize,
    geometry: Geometry,
) -> (Region, Handle<List<'static, u64>>, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let medium = Fences {
        image: Image::new(atom),
        count: count.clone(),
    };
    let region = sections().scheme(scheme).open_on(medium, geometry).unwrap();
    let list = region.shared::<List<u64>>("list").unwrap();
    region
        .atomic(|section| {
            list.write(section).resize(1 << 20, 0);
            Ok::<_, Error>(())
        })
        .unwrap();
    (region, list, count)
}

/// Sections that change words on three pages, far from each other.
fn run(region: &Region, list: &Handle<List<'static, u64>>, times: u64) {
    for round in 0..times {
        let done = region.atomic(|section| {
            let list = list.write(section);
            for at in [0, 1 << 18, 1 << 19] {
                list[at + round as usize % 400] += 1;
            }
            Ok::<_, Error>(())
        });
        done.unwrap();
    }
}

#[test]
fn a_section_costs_two_fences_and_no_memory() {
    const TIMES: u64 = 200;
    let (region, list, count) = region(SchemeKind::DualPage, 8, Geometry::MEMORY);
    let run = |times| run(&region, &list, times);
    run(1000);
    region.forget_statistics();
    let (fences, allocated) = (count.load(Ordering::Relaxed), ALLOCATED.get());
    run(TIMES);
    let (fences, allocated) = (
        count.load(Ordering::Relaxed) - fences,
        ALLOCATED.get() - allocated,
    );
    let statistics = region.statistics();
    assert_eq!(statistics.epochs, TIMES);
    assert_eq!(statistics.traffic.context_bytes, 0, "{statistics:?}");
    // Those of the three words, and that of the root itself, which is taken to be written.
    assert_eq!(statistics.changed_lines, 4 * TIMES);
    assert_eq!(statistics.lines, 4 * TIMES);
    assert_eq!(fences, 2 * TIMES);
    assert_eq!(allocated, 0, "a section allocates");
}

/// The commit is valid by the checksums of its lines: no flush is between them and its record. A new extent, and a
/// snapshot where the journal is full, have one more.
#[test]
fn a_section_on_a_disk_costs_one_flush() {
    const TIMES: u64 = 1000;
    for scheme in SchemeKind::PRODUCTS {
        let (region, list, count) = region(scheme, 512, Geometry::DISK);
        run(&region, &list, 100);
        let flushes = count.load(Ordering::Relaxed);
        run(&region, &list, TIMES);
        let flushes = count.load(Ordering::Relaxed) - flushes;
        assert!(
            (TIMES..TIMES * 105 / 100).contains(&flushes),
            "{scheme}: {flushes} flushes of {TIMES} sections"
        );
    }
}

/// The same as the system sees it: one thread, a file on a disk.
#[test]
fn the_system_sees_one_flush_a_section() {
    const FILE: &str = "TWINPAGE_TEST_FLUSHES";
    const TIMES: usize = 500;
    if let Some(path) = std::env::var_os(FILE) {
        let region = sections().open(path).unwrap();
        let count = region.shared::<u64>("count").unwrap();
        let add = || {
            super::add(&region, &count).unwrap();
        };
        (0..20).for_each(|_| add());
        println!("from here");
        (0..TIMES).for_each(|_| add());
        println!("to here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("count.twin");
    let name = "costs::the_system_sees_one_flush_a_section";
    let Some(seen) = flushes(name, &[(FILE, file.as_os_str())]) else {
        return;
    };
    assert!(
        (TIMES..=TIMES * 105 / 100).contains(&seen.len()),
        "{} flushes of {TIMES} sections",
        seen.len()
    );
}
