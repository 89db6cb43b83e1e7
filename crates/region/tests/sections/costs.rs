//! What a section costs: fences, lines of the context, memory allocated. Nothing of it grows with the region.

use super::sections;
use super::support::written;
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
    // Those of the three words. That of the root itself is as it was.
    assert_eq!(statistics.changed_lines, 3 * TIMES);
    assert_eq!(statistics.lines, 3 * TIMES);
    assert_eq!(fences, 2 * TIMES);
    assert_eq!(allocated, 0, "a section allocates");
}

/// A vector's own line is written where its length or its place changes, and nowhere else.
#[test]
fn only_the_lines_that_change_are_written() {
    let (region, list, _) = region(SchemeKind::DualPage, 8, Geometry::MEMORY);
    let few = region.shared::<List<u64>>("few").unwrap();
    let fill = |few: &mut List<'_, u64>| {
        few.reserve_exact(8);
        few.extend(0..7);
    };
    super::run(&region, |section| fill(few.write(section))).unwrap();
    // With room for eight they have a line of their own.
    assert_eq!(region.read(|view| few.read(view).capacity()), 8);
    let lines = |change: &dyn for<'r> Fn(&mut List<'r, u64>, &mut List<'r, u64>)| {
        region.forget_statistics();
        super::run(&region, |section| change(list.write(section), few.write(section))).unwrap();
        region.statistics().changed_lines
    };
    assert_eq!(lines(&|_, _| ()), 0);
    assert_eq!(lines(&|list, _| *list.get_mut(77).unwrap() += 1), 1);
    assert_eq!(lines(&|list, _| list[7] += 1), 1);
    assert_eq!(lines(&|list, _| list.swap(7, 70_000)), 2);
    assert_eq!(lines(&|list, _| *list.last_mut().unwrap() += 1), 1);
    assert_eq!(lines(&|_, few| few.iter_mut().for_each(|word| *word += 1)), 1);
    assert_eq!(lines(&|list, few| std::mem::swap(&mut list[7], &mut few[1])), 2);
    // The end and the length.
    assert_eq!(lines(&|_, few| few.push(7)), 2);
    // The length alone, and not if it is again as it was.
    assert_eq!(lines(&|_, few| assert!(few.pop().is_some())), 1);
    assert_eq!(
        lines(&|_, few| {
            let last = few.pop().unwrap();
            few.push(last);
        }),
        1
    );
    // Both of themselves.
    assert!((1..=2).contains(&lines(&|list, few| std::mem::swap(list, few))));
    assert_eq!(
        region.read(|view| (list.read(view).len(), few.read(view).len())),
        (7, 1 << 20)
    );
    assert!(region.check().unwrap().is_sound());
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

/// The same as the system sees it: one thread, a file on a disk. Of a small section all is in one write.
#[test]
fn the_system_sees_one_write_and_one_flush_a_section() {
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
    let name = "costs::the_system_sees_one_write_and_one_flush_a_section";
    let Some(seen) = written(name, &[(FILE, file.as_os_str())]) else {
        return;
    };
    let flushes = seen.iter().filter(|call| call.contains("sync(")).count();
    let writes = seen.len() - flushes;
    for (what, count) in [("flushes", flushes), ("writes", writes)] {
        assert!(
            (TIMES..=TIMES * 105 / 100).contains(&count),
            "{count} {what} of {TIMES} sections"
        );
    }
}

/// Bytes that sections write for a byte of changed lines, one line on each of some pages, again and again.
/// Or with `moves`, on other pages each time.
fn written_bytes(
    scheme: SchemeKind,
    geometry: Geometry,
    atom: usize,
    pages: &[(usize, usize)],
    moves: bool,
) -> f64 {
    const PAGE: usize = 512;
    let (region, list, _) = region(scheme, atom, geometry);
    let run = |times: usize| {
        for round in 0..times {
            let done = region.atomic(|section| {
                let list = list.write(section);
                for &(page, lines) in pages {
                    let page = if moves { (page + 7 * round) % 1000 } else { page };
                    // The list does not begin with a page, so these are lines in the middle of one.
                    (0..lines).for_each(|line| list[page * PAGE + 8 * (8 + 3 * line)] = round as u64);
                }
                Ok::<_, Error>(())
            });
            done.unwrap();
        }
    };
    run(100);
    region.forget_statistics();
    run(2000);
    let statistics = region.statistics();
    println!("{scheme}, lines of {}: {statistics:?}", geometry.line_bytes());
    statistics.bytes_per_changed_byte
}

/// The issue of sections asks for 1.4 bytes a byte of three lines on three pages, and 1.15 of ten on six.
#[test]
fn a_section_writes_little_more_than_its_lines() {
    let three = [(0, 1), (300, 1), (900, 1)];
    let ten = [(0, 2), (100, 1), (300, 2), (500, 2), (700, 1), (900, 2)];
    for (scheme, geometry, atom) in [
        (SchemeKind::DualPage, Geometry::MEMORY, 8),
        (SchemeKind::Packed, Geometry::DISK, 512),
    ] {
        let of = |pages| written_bytes(scheme, geometry, atom, pages, false);
        let (three, ten) = (of(&three), of(&ten));
        println!("{scheme}: {three:.3} of three lines, {ten:.3} of ten");
        assert!(
            three <= 1.4 && ten <= 1.15,
            "{scheme}: {three} of three, {ten} of ten"
        );
    }
}

/// Lines that are elsewhere each time are folded into their pages later, so a disk has them written more than once; in
/// memory they are not.
#[test]
fn lines_that_move_are_written_few_times() {
    let three = [(0, 1), (300, 1), (900, 1)];
    for (scheme, geometry, atom, most) in [
        (SchemeKind::DualPage, Geometry::MEMORY, 8, 1.4),
        (SchemeKind::Packed, Geometry::DISK, 512, 5.0),
    ] {
        let bytes = written_bytes(scheme, geometry, atom, &three, true);
        println!("{scheme}: {bytes:.3} of three lines on other pages each time");
        assert!(bytes <= most, "{scheme}: {bytes}");
    }
}
