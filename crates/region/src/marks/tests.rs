//! Marks, cuts and sweeps, alone and under threads.

use super::*;
use crate::window::Window;
use crate::zone::{SAVED_BYTES, STEP};
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::AtomicBool;
use twinpage_core::PageId;
use twinpage_core::buffer::Buffer;

/// Marked lines of a page in the current map.
fn marked(place: Place, page: usize) -> u64 {
    let map = place.state().here.current.load(Ordering::Relaxed);
    // SAFETY: tests ask for usable pages.
    mask(unsafe { marks(map, lines_of(page)) })
}

fn updating<R>(place: Place, f: impl FnOnce() -> R) -> R {
    let _inside = place.enter();
    f()
}

fn fill(place: Place, offset: usize, bytes: usize, value: u8) {
    let at = place.base().wrapping_add(offset);
    mark_bytes(at, bytes);
    // SAFETY: tests write usable memory of their own window.
    unsafe { at.write_bytes(value, bytes) };
}

/// What a sweep yields, applied to `image`.
fn apply(frozen: &mut Frozen, image: &mut [u8]) -> usize {
    let (mut buffer, mut lines_swept) = (Buffer::default(), 0);
    while let Some((number, lines)) = frozen.next_page(&mut buffer) {
        for (line, bytes) in lines_in(lines).zip(buffer.chunks(LINE)) {
            let at = number * PAGE + line * LINE;
            image[at..at + LINE].copy_from_slice(bytes);
        }
        assert_eq!(buffer.len(), lines.count_ones() as usize * LINE);
        lines_swept += lines_in(lines).count();
        buffer.clear();
    }
    lines_swept
}

fn lines_in(lines: u64) -> impl Iterator<Item = usize> {
    twinpage_core::LineMask(lines).runs().flatten()
}

#[test]
fn lines_are_marked_where_bytes_are_written() {
    let window = Window::volatile().unwrap();
    let place = window.place();
    place.grow(STEP).unwrap();
    let at = |offset| place.base().wrapping_add(offset);
    mark_bytes(at(0), 0);
    assert_eq!(marked(place, 0), 0);
    mark_bytes(at(63), 1);
    assert_eq!(marked(place, 0), 1);
    mark_bytes(at(64 * 5 + 60), 5);
    assert_eq!(marked(place, 0), 1 | 0b11 << 5);
    mark_bytes(at(PAGE - 1), PAGE + 2);
    assert_eq!(
        (marked(place, 0) >> 63, marked(place, 1), marked(place, 2)),
        (1, !0, 1)
    );
    let on_stack = 5_u64;
    mark_bytes(&raw const on_stack, 8);
    let on_heap = Box::new(5_u64);
    mark_bytes(&raw const *on_heap, 8);
    assert!(may_write(&raw const on_stack) && may_write(at(0)));
}

/// Every run of a few lines, wherever it begins, with each of its lines missing.
#[test]
fn few_lines_are_looked_at_together() {
    let window = Window::volatile().unwrap();
    let place = window.place();
    place.grow(STEP).unwrap();
    for (first, count) in (0..16).flat_map(|first| (2..10).map(move |count| (first, count))) {
        let lines = run(first, count);
        for missing in lines_in(lines) {
            let map = place.state().here.current.load(Ordering::Relaxed);
            // SAFETY: the page is usable.
            let marks = unsafe { marks(map, lines_of(0)) };
            set(marks, 0);
            for line in lines_in(lines & !(1 << missing)) {
                mark_bytes(place.base().wrapping_add(line * LINE + 5), 1);
            }
            assert_eq!(marked(place, 0), lines & !(1 << missing));
            mark_bytes(
                place.base().wrapping_add(first * LINE + 63),
                (count - 2) * LINE + 2,
            );
            assert_eq!(marked(place, 0), lines, "{count} lines from {first}");
        }
    }
}

/// Of two lines both are marked, wherever they lie: the first of their groups or not, frozen or not, of two windows.
#[test]
fn two_lines_are_marked_together() {
    let windows = [Window::reserve(None).unwrap(), Window::reserve(None).unwrap()];
    let [place, other] = [&windows[0], &windows[1]].map(Window::place);
    place.grow(2 * STEP).unwrap();
    other.grow(STEP).unwrap();
    let at = |place: Place, page: usize, line: usize| place.base().wrapping_add(page * PAGE + line * LINE);
    let (near, far) = (1, 2 * STEP / PAGE - 1);
    let mark_and_write = |line: usize, value: u8| {
        updating(place, || {
            for (one, two) in [(near, far), (far, near)] {
                mark_spans([
                    Span::of_line(at(place, one, line)),
                    Span::of_line(at(place, two, line + 1)),
                ]);
            }
            for (page, line) in [(near, line), (near, line + 1), (far, line), (far, line + 1)] {
                // SAFETY: usable memory of this test's own window.
                unsafe { at(place, page, line).write_bytes(value, LINE) };
            }
        });
    };
    mark_and_write(4, 1);
    assert_eq!([near, far].map(|page| marked(place, page)), [0b11 << 4; 2]);
    mark_and_write(8, 2); // the groups are noted by now
    assert_eq!(
        [near, far].map(|page| marked(place, page)),
        [0b11 << 4 | 0b11 << 8; 2]
    );

    let mut frozen = cut(place);
    mark_and_write(5, 3); // of each two, one was frozen
    assert_eq!([near, far].map(|page| marked(place, page)), [0b11 << 5; 2]);
    let mut image = vec![0; 2 * STEP];
    assert_eq!(apply(&mut frozen, &mut image), 8);
    for (page, line, value) in [(near, 4, 1), (near, 5, 1), (far, 5, 1), (far, 9, 2), (far, 6, 0)] {
        assert_eq!(
            image[page * PAGE + line * LINE],
            value,
            "page {page}, line {line}"
        );
    }

    let _outer = other.enter();
    let both = |one, two| mark_spans([Span::of_line(one), Span::of_line(two)]);
    updating(place, || both(at(place, near, 20), at(other, near, 21)));
    assert_eq!((marked(place, near) >> 20, marked(other, near)), (1, 1 << 21));
    assert!(may_write(at(other, 0, 0)) && !may_write(at(place, 0, 0)));
}

fn run(first: usize, count: usize) -> u64 {
    twinpage_core::LineMask::run(first, count).0
}

/// Has the test below write outside an update, in a process of its own.
const OUTSIDE_NOW: &str = "TWINPAGE_TEST_WRITES_OUTSIDE";

#[test]
fn a_write_outside_an_update_is_told_what_to_do() {
    let window = Window::reserve(None).unwrap();
    let place = window.place();
    place.grow(STEP).unwrap();
    assert!(!may_write(place.base()));
    assert!(std::panic::catch_unwind(|| assert_may_write(place.base())).is_err());
    if std::env::var_os(OUTSIDE_NOW).is_some() {
        mark_bytes(place.base(), 8); // this process ends
    }
    if !cfg!(miri) {
        let test = "marks::tests::a_write_outside_an_update_is_told_what_to_do";
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        let ended = again
            .args(["--exact", test, "--nocapture"])
            .env(OUTSIDE_NOW, "")
            .output();
        let ended = ended.unwrap();
        assert_eq!(ended.status.signal(), Some(libc::SIGABRT));
        let message = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(message.contains("region.update("), "{message}");
    }
    updating(place, || {
        mark_bytes(place.base(), 8);
        assert_may_write(place.base());
    });
    assert_eq!(marked(place, 0), 1);
}

#[test]
fn a_cut_keeps_what_was_there() {
    for by_page in [false, true] {
        let window = Window::reserve(None).unwrap();
        let place = window.place();
        place.grow(2 * STEP).unwrap();
        set_geometry(place, if by_page { Geometry::DISK } else { Geometry::MEMORY });
        let mut image = vec![0; 2 * STEP];
        updating(place, || {
            fill(place, 0, 64, 1);
            fill(place, STEP + 100, 5000, 2);
        });
        let mut frozen = cut(place);
        updating(place, || fill(place, 32, 64, 3));
        apply(&mut frozen, &mut image);
        assert!(image[..64].iter().all(|&b| b == 1) && image[64..STEP].iter().all(|&b| b == 0));
        assert!(image[STEP + 100..STEP + 5100].iter().all(|&b| b == 2));
        let mut frozen = cut(place);
        let lines = apply(&mut frozen, &mut image);
        assert_eq!(lines, if by_page { 64 } else { 2 });
        assert!(image[..32].iter().all(|&b| b == 1) && image[32..96].iter().all(|&b| b == 3));
    }
}

#[test]
fn a_lost_cut_comes_with_the_next() {
    let window = Window::reserve(None).unwrap();
    let place = window.place();
    place.grow(2 * STEP).unwrap();
    let mut image = vec![0; 2 * STEP];
    let far = 2 * STEP / PAGE - 1;
    updating(place, || {
        for page in [0, 3, far] {
            fill(place, page * PAGE + 7, 60, (1 + page) as u8);
        }
    });
    let mut frozen = cut(place);
    frozen.next_page(&mut Buffer::default()).unwrap();
    updating(place, || fill(place, 3 * PAGE + 7, 60, 9));
    frozen.requeue();
    let mut frozen = cut(place);
    assert_eq!(apply(&mut frozen, &mut image), 6);
    assert_eq!(
        [0, 3, far].map(|page| image[page * PAGE + 66]),
        [1, 9, (1 + far) as u8]
    );
}

#[test]
fn forgotten_pages_are_saved_and_no_longer_marked() {
    let window = Window::reserve(None).unwrap();
    let place = window.place();
    place.grow(STEP).unwrap();
    let mut image = vec![0; STEP];
    updating(place, || fill(place, 0, 4 * PAGE, 1));
    let mut frozen = cut(place);
    updating(place, || {
        fill(place, PAGE, 3 * PAGE, 2);
        // SAFETY: nothing lives there.
        unsafe { place.discard(PAGE..3 * PAGE) }.unwrap();
    });
    apply(&mut frozen, &mut image);
    assert!(image[..4 * PAGE].iter().all(|&b| b == 1));
    assert_eq!([0, 1, 2, 3].map(|page| marked(place, page)), [0, 0, 0, !0]);
    assert_eq!(take_discarded(place, Geometry::MEMORY), [PageId(1)..PageId(3)]);
}

#[test]
#[cfg_attr(miri, ignore = "many pages, looked at mark by mark")]
fn a_part_of_a_stored_page_is_written_with_zeros() {
    let window = Window::reserve(None).unwrap();
    let place = window.place();
    place.grow(STEP.max(192 * PAGE)).unwrap();
    set_geometry(place, Geometry::DISK);
    updating(place, || {
        fill(place, 0, place.bytes(), 1);
        // SAFETY: nothing lives there.
        unsafe { place.discard(60 * PAGE..130 * PAGE) }.unwrap();
    });
    assert_eq!(take_discarded(place, Geometry::DISK), [PageId(1)..PageId(2)]);
    assert_eq!(
        [60, 63, 64, 127, 128].map(|page| marked(place, page)),
        [!0, !0, 0, 0, !0]
    );
}

/// The last slots are too few for what a writer wants to save at once: he waits for the sweep, and the sweep
/// does not wait for him.
#[test]
#[cfg_attr(miri, ignore = "every slot there is")]
fn who_finds_too_few_slots_waits_for_the_sweep() {
    let slots = SAVED_BYTES / PAGE;
    let bytes = ((slots + 1) * PAGE).next_multiple_of(STEP);
    let window = Window::reserve(None).unwrap();
    let place = window.place();
    place.grow(bytes).unwrap();
    set_geometry(place, Geometry::DISK);
    updating(place, || fill(place, 0, bytes, 1));
    let mut frozen = cut(place);
    updating(place, || {
        for page in 0..slots - 1 {
            fill(place, page * PAGE, 1, 2);
        }
    });
    let mut image = vec![0; bytes];
    std::thread::scope(|scope| {
        scope.spawn(|| updating(place, || fill(place, (slots - 1) * PAGE, 2 * PAGE, 2)));
        while place.state().saved.0.load(Ordering::Acquire) <= slots {
            std::thread::yield_now();
        }
        apply(&mut frozen, &mut image);
    });
    assert!(image.iter().all(|&byte| byte == 1));
}

/// Threads write their own words of shared lines while sweeps run; every cut must be a picture of
/// its instant.
#[test]
fn every_sweep_is_the_picture_of_its_cut() {
    let cuts = match cfg!(miri) {
        true => 2, // another schedule with every seed of Miri's own
        false => twinpage_campaign::either(400, 20_000),
    };
    let seed = twinpage_campaign::seed();
    for (by_page, whole) in [(false, false), (true, false), (false, true)] {
        pictures(by_page, whole, cuts, seed);
    }
}

/// `whole`: some pages are captured whole because they are wanted, and some because much of them changed.
fn pictures(by_page: bool, whole: bool, cuts: u32, seed: u64) {
    const BYTES: usize = if cfg!(miri) { PAGE } else { 48 * PAGE };
    const LINES: usize = if cfg!(miri) { 4 } else { BYTES / LINE };
    let window = Window::reserve(None).unwrap();
    let place = window.place();
    place.grow(STEP.max(BYTES)).unwrap();
    set_geometry(place, if by_page { Geometry::DISK } else { Geometry::MEMORY });
    let done = AtomicBool::new(false);
    let words = place.base().cast::<AtomicU64>();
    // SAFETY: the words are usable for as long as the window is, and only used atomically.
    let words: &[AtomicU64] = unsafe { std::slice::from_raw_parts(words, BYTES / 8) };
    let mut image = vec![0; BYTES];
    let mut random = fastrand::Rng::with_seed(seed);
    std::thread::scope(|scope| {
        for own in 0..3 {
            let (done, mut random) = (&done, random.fork());
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    updating(place, || {
                        for _ in 0..random.usize(1..40) {
                            let word = &words[random.usize(..LINES) * 8 + own + random.usize(..2) * 4];
                            mark_bytes(word, 8);
                            word.fetch_add(random.u64(..), Ordering::Relaxed);
                        }
                    });
                }
            });
        }
        for cut_number in 0..cuts {
            let (mut frozen, picture) = {
                let _stop = place
                    .close_gate(std::time::Duration::from_secs(600), |_| ())
                    .unwrap();
                let words = words.iter().flat_map(|w| w.load(Ordering::Relaxed).to_ne_bytes());
                let wanted = (0..BYTES / PAGE).filter(|_| whole && random.u8(..8) == 0);
                let asked_lines = mark_whole(place, wanted);
                let whole_from = if whole { random.u32(1..64) } else { u32::MAX };
                let frozen = cut(place).wanting(whole_from, asked_lines);
                (frozen, words.collect::<Vec<_>>())
            };
            apply(&mut frozen, &mut image);
            if image != picture {
                done.store(true, Ordering::Relaxed);
                let at = image.iter().zip(&picture).position(|(a, b)| a != b);
                panic!("seed {seed}, cut {cut_number}: not the picture at byte {at:?}");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_page_is_swept_whole_where_that_is_wanted() {
    let window = Window::reserve(None).unwrap();
    let place = window.place();
    place.grow(STEP).unwrap();
    let mut image = vec![0; STEP];
    updating(place, || fill(place, 0, STEP, 1));
    apply(&mut cut(place), &mut image);
    // The first is wanted, of the second much changed, of the third as much and then other lines, of the
    // fourth little.
    updating(place, || {
        fill(place, 0, 64, 2);
        fill(place, PAGE, 3000, 2);
        fill(place, 2 * PAGE, 3000, 2);
        fill(place, 3 * PAGE, 64, 2);
    });
    let asked_lines = mark_whole(place, [0].into_iter());
    assert_eq!(asked_lines, 63);
    let mut frozen = cut(place).wanting(40, asked_lines);
    updating(place, || {
        fill(place, 0, PAGE, 3);
        fill(place, PAGE, 64, 3);
        fill(place, 2 * PAGE, PAGE, 3);
    });
    let mut buffer = Buffer::default();
    let mut swept = Vec::new();
    while let Some((page, lines)) = frozen.next_page(&mut buffer) {
        assert_eq!(buffer.len(), lines.count_ones() as usize * LINE);
        assert!(buffer.iter().all(|&byte| byte == 1 || byte == 2));
        swept.push((page, lines));
        buffer.clear();
    }
    assert_eq!(swept, [(0, !0), (1, !0), (2, run(0, 47)), (3, 1)]);
    assert_eq!(frozen.changed_lines(), 1 + 47 + 47 + 1);
}

/// The last page of a group is given back when a sweep is about to copy it: it is saved before.
#[test]
fn the_last_page_of_a_group_is_saved_until_it_was_swept() {
    let window = Window::reserve(None).unwrap();
    let place = window.place();
    place.grow(STEP).unwrap();
    let page = GROUP - 1;
    updating(place, || fill(place, page * PAGE, PAGE, 1));
    let map = place.state().here.current.load(Ordering::Relaxed);
    let mut frozen = cut(place);
    assert_eq!(frozen.next_waiting(), Some((page, !0)));
    updating(place, || {
        // SAFETY: nothing lives there.
        unsafe { place.discard(page * PAGE..(page + 1) * PAGE) }.unwrap();
    });
    // SAFETY: the page is usable.
    let marks = unsafe { page_marks(map, page) };
    assert!(!any(marks), "zeros would count as its content");
    let mut image = vec![0; STEP];
    assert_eq!(apply(&mut frozen, &mut image), LINES_PER_PAGE);
    assert!(image[page * PAGE..][..PAGE].iter().all(|&byte| byte == 1));
    // SAFETY: the window is in use.
    assert!(!any(unsafe { summary(map, 0..STEP / PAGE / GROUP) }));
}
