//! The hand-over on real threads. All its schedules: `tests/schedules.rs`.

use crate::handover::{Collecting, Handover, InFlight};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Two threads: every update reaches the other side once, in order, with all of its ranges, and never while it is
/// being made.
#[test]
fn every_update_passes_once_and_whole() {
    const UPDATES: u64 = 200_000;
    let handover = Handover::default();
    let (wanted, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let durable = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut in_flight, mut next) = (InFlight::default(), 1);
            loop {
                let ends = ended.load(Ordering::SeqCst);
                if !in_flight.take(&handover, wanted.load(Ordering::SeqCst) || ends) {
                    if ends {
                        break;
                    }
                    std::hint::spin_loop();
                    continue;
                }
                let batch = in_flight.batch(&handover);
                let numbers: Vec<u64> = batch.ranges.iter().map(|range| range.start).collect();
                // Two ranges an update.
                let all: Vec<u64> = (next..=batch.number).flat_map(|number| [number; 2]).collect();
                assert_eq!(numbers, all);
                next = batch.number + 1;
                durable.store(batch.number, Ordering::SeqCst);
                in_flight.done(&handover);
            }
            assert_eq!(next, UPDATES + 1);
        });
        let mut random = fastrand::Rng::new();
        let (mut collecting, mut handed) = (Collecting::default(), 0);
        for number in 1..=UPDATES {
            if collecting.begin(&handover) {
                handed = number - 1;
            }
            assert!(durable.load(Ordering::SeqCst) <= handed);
            for _ in 0..2 {
                let batch = collecting.batch(&handover);
                batch.ranges.push(number..number + 1);
            }
            collecting.batch(&handover).number = number;
            if collecting.end(&handover, random.u8(..3) == 0) {
                handed = number;
            }
            wanted.store(random.u8(..5) == 0, Ordering::SeqCst);
        }
        ended.store(true, Ordering::SeqCst);
    });
}
