//! Every scheme, the engine and the explorer, as small as they go: for Miri (`make miri`), which is some
//! thousand times slower than the machine. This crate has no unsafe code of its own (it forbids it), so what
//! is left to see is what it uses. It runs as an ordinary test too.

use std::convert::Infallible;
use twinpage_baselines::{AnyScheme, Setup};
use twinpage_core::crash::{Effort, Explorer, Image, Step, Subject};
use twinpage_core::dual_page::{DualPage, Options, PoolLimit};
use twinpage_core::engine::Engine;
use twinpage_core::*;

/// Pages of 4 KiB, an extent each.
fn geometry() -> Geometry {
    Geometry::new(64, 4096).unwrap()
}

fn write(store: &mut impl Scheme, page: u64, line: usize, value: u8) {
    let _ = store
        .write(PageLines::from(PageId(page), line, &[value; 64], 64))
        .unwrap();
}

fn read(store: &impl Scheme, page: u64, line: usize) -> u8 {
    let mut bytes = [0xaa; 64];
    store.read(PageId(page), line, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == bytes[0]));
    bytes[0]
}

/// Writes, overwrites, a discard, an epoch given up, recovery.
fn live(kind: SchemeKind) {
    let setup = Setup {
        journal_bytes: 512,
        context_bytes: 64,
        id: Some(7),
        ..Setup::new(geometry())
    };
    let mut store = AnyScheme::create(kind, Image::new(8), &setup).unwrap();
    for (epoch, value) in (1..).zip([1, 2, 3]) {
        write(&mut store, 0, 3, value);
        write(&mut store, 5, 60, value);
        assert_eq!(store.commit(b"here").unwrap(), epoch);
    }
    store.discard(PageId(5)..PageId(6)).unwrap();
    store.commit(b"there").unwrap();
    store.reclaim(2).unwrap();
    if kind != SchemeKind::InPlace {
        write(&mut store, 0, 3, 9);
        store.abandon();
    }
    assert!(store.check().unwrap().is_empty());
    let (store, found) = AnyScheme::recover(store.into_medium()).unwrap();
    assert_eq!((found.epoch, &found.context[..]), (4, &b"there"[..]), "{kind}");
    assert_eq!((read(&store, 0, 3), read(&store, 5, 60)), (3, 0), "{kind}");
}

#[test]
fn dual_page_lives() {
    live(SchemeKind::DualPage);
}

#[test]
fn baselines_live() {
    for kind in SchemeKind::ALL {
        if !matches!(kind, SchemeKind::DualPage | SchemeKind::Packed) {
            live(kind);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "its pages are 256 KiB, and are looked through byte by byte")]
fn packed_lives() {
    live(SchemeKind::Packed);
}

/// Changes one line of a page at every stop.
struct Counter(u8);

impl Source for Counter {
    type Error = Infallible;
    fn capture(&mut self, into: &mut Capture) -> std::result::Result<(), Infallible> {
        self.0 += 1;
        into.pieces.push(Piece {
            page: PageId(2),
            held: LineMask::run(7, 1),
            compare: self.0.is_multiple_of(2),
        });
        into.bytes.append(64).fill(self.0);
        into.context.push(self.0);
        Ok(())
    }
    fn settled(&mut self, _: &mut Capture, _: Outcome<'_>) {}
}

#[test]
fn an_engine_writes_in_the_background() {
    let store = DualPage::create(Image::new(8), &Options::new(geometry()).journal_bytes(512).id(7)).unwrap();
    let mut engine = Engine::start(store, ()).unwrap();
    let mut counter = Counter(0);
    for _ in 0..4 {
        engine.checkpoint(&mut counter).unwrap();
    }
    engine.wait(&mut counter).unwrap();
    let store = engine.finish().scheme;
    assert_eq!((store.epoch(), read(&store, 2, 7)), (4, 4));
}

#[test]
fn a_run_is_crashed_everywhere() {
    let options = Options::new(geometry())
        .pool(PoolLimit::Pages(2))
        .journal_bytes(256)
        .id(7);
    // Of a store that is there already: making one has hundreds of images.
    let empty = DualPage::create(Image::new(4096), &options)
        .unwrap()
        .into_medium();
    let subject = Subject {
        create: Box::new(|medium| Ok(DualPage::recover(medium)?.0)),
        recover: Box::new(DualPage::recover),
    };
    let effort = Effort {
        samples: 0,
        lives: 200,
        deep: 0,
        short_recovery: 0,
        only_crashes: false,
    };
    let write = |value| Step::Write {
        page: 0,
        lines: LineMask::run(2, 1),
        value,
    };
    let steps = [write(1), Step::Commit(0, 0), write(2), Step::Commit(3, 4)];
    let mut explorer = Explorer::new(subject, effort, 3);
    explorer.explore(empty, &steps).unwrap();
    assert!(explorer.counts.images > 20, "{:?}", explorer.counts);
    println!("{:?}", explorer.counts);
}

/// Threads append to the queue of the operation log while another takes.
#[test]
fn calls_are_appended_without_a_lock() {
    use twinpage_core::operation_log::{Call, Group, LEAST_RING, Log};
    const CALLS: u32 = 40;
    let log = Log::create(Image::new(8), 7, LEAST_RING, 0, Poison::default()).unwrap();
    let (appender, mut taker) = log.queue(1, 1024);
    let mut taken = [0_u32; 3];
    std::thread::scope(|scope| {
        let callers: Vec<_> = (1..=2)
            .map(|thread| {
                let appender = appender.clone();
                scope.spawn(move || {
                    for number in 0..CALLS {
                        let arguments = number.to_le_bytes();
                        let call = Call {
                            object: 0,
                            function: 0,
                            thread,
                            lane: None,
                            arguments: &arguments[..number as usize % 5],
                        };
                        while appender.append(&call).is_err() {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let mut used = Group::default();
        loop {
            let is_last = callers.iter().all(|caller| caller.is_finished());
            used = taker.take(used, 0);
            for call in used.calls() {
                let number = &mut taken[call.thread as usize];
                assert_eq!(call.arguments, &number.to_le_bytes()[..*number as usize % 5]);
                *number += 1;
            }
            if is_last {
                break;
            }
            std::thread::yield_now();
        }
    });
    assert_eq!(taken, [0, CALLS, CALLS]);
}
