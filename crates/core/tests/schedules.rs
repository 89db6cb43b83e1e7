//! The queue of calls under other schedules than the system's: random ones, and such as have few changes of thread at the
//! worst places. A failing one is printed, and can be replayed.

#[allow(dead_code)]
#[path = "../src/operation_log/queue.rs"]
mod queue;

mod sync {
    pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering};
    pub(crate) use shuttle::thread::yield_now;
}

use queue::{Queue, Refused, WORD};
use shuttle::sync::Arc;
use shuttle::thread;

const CALLERS: u64 = 3;
const RECORDS: u64 = 4;
/// Bytes before each group.
const ROOM: u64 = 2 * WORD;

/// Words of a record: its caller, its number, and as many more as the number says.
fn words_of(number: u64) -> u64 {
    1 + number % 3
}

fn first_word(caller: u64, number: u64) -> u64 {
    (caller + 1) << 8 | number
}

/// A caller appends its records, each in a place of its own. With the planted fault the first word is stored before the
/// others.
fn append(queue: &Queue, caller: u64, is_early: bool) -> u64 {
    for number in 0..RECORDS {
        let bytes = words_of(number) * WORD;
        let at = loop {
            match queue.reserve(bytes) {
                Ok(at) => break at,
                Err(Refused::Full) => thread::yield_now(),
                Err(Refused::Closed) => return number,
            }
        };
        let mut rest = (1..words_of(number)).map(|word| at * 100 + word);
        if is_early && let Some(second) = rest.next() {
            queue.write(at, first_word(caller, number), []);
            queue.write(at + WORD, second, rest);
        } else {
            queue.write(at, first_word(caller, number), rest);
        }
    }
    RECORDS
}

/// Takes what there is: the place of each record and its words.
fn take(queue: &Queue, start: &mut u64, taken: &mut Vec<(u64, Vec<u64>)>) {
    let (first, end) = (*start + ROOM, queue.cut());
    let mut bytes = Vec::new();
    let head = |first: u64| (first, words_of(first & 0xff) * WORD);
    queue.take(first..end, head, &mut bytes);
    *start = end;
    let (words, rest) = bytes.as_chunks::<8>();
    assert!(rest.is_empty());
    let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
    let mut at = first;
    while let Some(first) = words.next() {
        let count = words_of(first & 0xff);
        let record = std::iter::once(first).chain(words.by_ref().take(count as usize - 1));
        taken.push((at, record.collect()));
        at += count * WORD;
    }
    assert_eq!(at, end, "a place was skipped");
}

/// Every record is taken once, whole, and those of a caller in their order; after the end none is appended.
fn all_are_taken(closes_early: bool, is_early: bool) {
    // So small that it is full again and again.
    let queue = Arc::new(Queue::new(0, 8 * WORD, ROOM));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let queue = queue.clone();
            thread::spawn(move || append(&queue, caller, is_early))
        })
        .collect();
    let (mut start, mut taken) = (0, Vec::new());
    let is_done = |taken: &Vec<_>| taken.len() as u64 == CALLERS * RECORDS;
    let enough = if closes_early { 3 } else { u64::MAX };
    while !is_done(&taken) && (taken.len() as u64) < enough {
        take(&queue, &mut start, &mut taken);
        thread::yield_now();
    }
    queue.close();
    take(&queue, &mut start, &mut taken);
    assert_eq!(queue.reserve(WORD), Err(Refused::Closed));
    let appended: Vec<u64> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
    for (caller, appended) in (0..).zip(&appended) {
        let own = taken.iter().filter(|(_, words)| words[0] >> 8 == caller + 1);
        for (number, (at, words)) in own.clone().enumerate() {
            let rest = (1..words_of(number as u64)).map(|word| at * 100 + word);
            let expected: Vec<u64> = std::iter::once(first_word(caller, number as u64))
                .chain(rest)
                .collect();
            assert_eq!(*words, expected);
        }
        assert_eq!(own.count() as u64, *appended, "those of caller {caller}");
    }
}

fn runs() -> usize {
    twinpage_campaign::either(1000, 50_000)
}

#[test]
fn all_calls_are_taken_once_under_random_schedules() {
    for closes_early in [false, true] {
        shuttle::check_random(move || all_are_taken(closes_early, false), runs());
    }
}

#[test]
fn all_calls_are_taken_once_under_schedules_of_few_changes() {
    for (closes_early, changes) in [(false, 2), (false, 4), (true, 3)] {
        shuttle::check_pct(move || all_are_taken(closes_early, false), runs(), changes);
    }
}

#[test]
fn a_record_that_is_seen_before_it_is_whole_is_found() {
    let found = std::panic::catch_unwind(|| shuttle::check_random(|| all_are_taken(false, true), 1000));
    assert!(found.is_err());
}
