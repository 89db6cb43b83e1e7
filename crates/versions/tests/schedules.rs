//! The hand-over under other schedules than the system's: random ones, and such as have few changes of thread at the
//! worst places. A failing one is printed, and can be replayed.

#[allow(dead_code)]
#[path = "../src/handover.rs"]
mod handover;

mod sync {
    pub(crate) use shuttle::sync::atomic::{AtomicU8, Ordering};
}

use handover::{Collecting, Handover, InFlight};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use shuttle::thread;

const UPDATES: u64 = 5;

/// What the two threads share.
#[derive(Default)]
struct Both {
    handover: Handover,
    wanted: AtomicBool,
    ended: AtomicBool,
    durable: AtomicU64,
}

/// Every update reaches the other side once, in order, with both its ranges, and never while it is being made.
fn updates_pass_whole(is_due: fn(u64) -> bool) {
    let both = Arc::new(Both::default());
    let own = Arc::clone(&both);
    let persistence = thread::spawn(move || persist(&own));
    let handover = &both.handover;
    let (mut collecting, mut handed) = (Collecting::default(), 0);
    for number in 1..=UPDATES {
        if collecting.begin(handover) {
            handed = number - 1;
        }
        assert!(
            both.durable.load(Ordering::SeqCst) <= handed,
            "not handed over, and durable"
        );
        for _ in 0..2 {
            collecting.batch(handover).ranges.push(number..number + 1);
            thread::yield_now();
        }
        collecting.batch(handover).number = number;
        if collecting.end(handover, is_due(number)) {
            handed = number;
        }
        both.wanted.store(number % 3 == 0, Ordering::SeqCst);
    }
    both.ended.store(true, Ordering::SeqCst);
    persistence.join().unwrap();
    assert_eq!(both.durable.load(Ordering::SeqCst), UPDATES);
}

fn persist(both: &Both) {
    let (mut in_flight, mut next) = (InFlight::default(), 1);
    loop {
        let ends = both.ended.load(Ordering::SeqCst);
        if !in_flight.take(&both.handover, both.wanted.load(Ordering::SeqCst) || ends) {
            if ends {
                return;
            }
            thread::yield_now();
            continue;
        }
        let numbers = |in_flight: &mut InFlight| -> Vec<u64> {
            let ranges = &in_flight.batch(&both.handover).ranges;
            ranges.iter().map(|range| range.start).collect()
        };
        let last = in_flight.batch(&both.handover).number;
        let all: Vec<u64> = (next..=last).flat_map(|number| [number; 2]).collect();
        assert_eq!(numbers(&mut in_flight), all);
        thread::yield_now();
        assert_eq!(numbers(&mut in_flight), all, "changed while it was in flight");
        next = last + 1;
        both.durable.store(last, Ordering::SeqCst);
        in_flight.done(&both.handover);
    }
}

fn paces() -> [fn(u64) -> bool; 3] {
    [|_| true, |number| number % 2 == 0, |_| false]
}

#[test]
fn updates_pass_whole_under_random_schedules() {
    let runs = twinpage_campaign::either(1000, 50_000);
    for is_due in paces() {
        shuttle::check_random(move || updates_pass_whole(is_due), runs);
    }
}

#[test]
fn updates_pass_whole_under_schedules_of_few_changes() {
    let runs = twinpage_campaign::either(1000, 50_000);
    for is_due in paces() {
        for changes in [2, 4] {
            shuttle::check_pct(move || updates_pass_whole(is_due), runs, changes);
        }
    }
}
