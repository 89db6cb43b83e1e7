//! The operation log beside a store that checkpoints: a crash after every operation of either medium. What is
//! recovered is a prefix of the calls, with all that were acknowledged; faults planted on purpose are found.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use twinpage_core::crash::{Choice, Crash, Image, Op, Random};
use twinpage_core::dual_page::{DualPage, Options};
use twinpage_core::operation_log::{
    Appender, Call, Group, LEAST_RING, Log, NAMED, Taker, header, read, read_new,
};
use twinpage_core::{Error, Geometry, Medium, Offset, PageId, PageLines, Poison, Result, Scheme};

const ID: u64 = 0x1d;
const RING: u64 = LEAST_RING;
/// Where the ring begins.
const RING_AT: usize = 64 << 10;

/// What was done to two media, in one order.
type Tape = Rc<RefCell<Vec<(usize, Op)>>>;

/// A medium that writes to the tape.
struct Taped {
    image: Image,
    number: usize,
    tape: Tape,
    /// A planted fault: flushes are answered and not done.
    lies: bool,
}

impl Taped {
    fn note(&self, op: Op) {
        self.tape.borrow_mut().push((self.number, op));
    }
}

impl Medium for Taped {
    fn len(&self) -> u64 {
        self.image.len()
    }
    fn grow(&mut self, len: u64) -> Result<()> {
        if len > self.len() {
            self.note(Op::Grow(len));
        }
        self.image.grow(len)
    }
    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        self.image.read(at, into)
    }
    fn write(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        let bytes_of = bytes.to_vec();
        self.note(Op::Write { at, bytes: bytes_of });
        self.image.write(at, bytes)
    }
    fn discard(&mut self, range: Range<Offset>) -> Result<()> {
        self.note(Op::Discard(range.clone(), true));
        self.image.discard(range)
    }
    fn fence(&mut self) -> Result<()> {
        if !self.lies {
            self.note(Op::Fence);
        }
        Ok(())
    }
    fn atom(&self) -> usize {
        self.image.atom()
    }
}

/// What is done wrong on purpose.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    None,
    /// A group is acknowledged before it is durable.
    NoFence,
    /// The ring is used again before the checkpoint is durable.
    EarlyRelease,
    /// Every life has the same number.
    SameLife,
}

/// A number of a call, as its arguments: long enough that the ring goes round.
fn arguments(number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(8 + (number % 5) as usize * 9, number as u8);
    bytes
}

fn append(appender: &Appender, number: u64) {
    append_of(1, appender, number);
}

fn append_of(thread: u32, appender: &Appender, number: u64) {
    let call = Call {
        object: 0,
        function: (number % 3) as u16,
        thread,
        lane: Some(number).filter(|number| number % 2 == 1),
        arguments: &arguments(number),
    };
    appender.append(&call).expect("small groups");
}

/// An object that counts its calls, in a page of a store; the log beside it.
struct Object {
    store: DualPage<Taped>,
    log: Log<Taped>,
    appender: Appender,
    taker: Taker,
    applied: u64,
    fault: Fault,
}

impl Object {
    fn media(images: [Image; 2], tape: &Tape, fault: Fault) -> [Taped; 2] {
        let mut number = 0;
        images.map(|image| {
            let lies = fault == Fault::NoFence && number == 1;
            let tape = tape.clone();
            number += 1;
            Taped {
                image,
                number: number - 1,
                tape,
                lies,
            }
        })
    }

    fn create(tape: &Tape, fault: Fault) -> Object {
        let [store, log] = Object::media([Image::new(8), Image::new(8)], tape, fault);
        let mut options = Options::new(Geometry::new(64, 16 << 10).unwrap());
        options.journal_bytes = 4 << 10;
        let mut store = DualPage::create(store, &options).unwrap();
        let mut log = Log::create(log, ID, RING, 0, Poison::default()).unwrap();
        assert_eq!(log.define("object\nadd(number: u64)").unwrap(), 0);
        store.commit(&0_u64.to_le_bytes()).unwrap();
        let (appender, taker) = log.queue(1, RING);
        let applied = 0;
        Object {
            store,
            log,
            appender,
            taker,
            applied,
            fault,
        }
    }

    /// Opens both again and runs what the checkpoint lacks. An error says what is wrong.
    fn recover(
        images: [Image; 2],
        life: u64,
        tape: &Tape,
        fault: Fault,
    ) -> std::result::Result<Object, String> {
        let [store, log] = Object::media(images, tape, fault);
        let (store, found) = DualPage::recover(store).map_err(|e| e.to_string())?;
        let start = u64::from_le_bytes(found.context[..8].try_into().unwrap());
        let (log, found) = Log::open(log, ID, start, Poison::default()).map_err(|e| e.to_string())?;
        let mut line = [0; 64];
        store.read(PageId(0), 0, &mut line).map_err(|e| e.to_string())?;
        let mut applied = u64::from_le_bytes(line[..8].try_into().unwrap());
        for entry in &found.entries {
            if entry.arguments != arguments(applied) || u64::from(entry.function) != applied % 3 {
                return Err(format!("after {applied} calls comes {entry:?}"));
            }
            applied += 1;
        }
        let life = if fault == Fault::SameLife { 1 } else { life };
        let (appender, taker) = log.queue(life, RING);
        Ok(Object {
            store,
            log,
            appender,
            taker,
            applied,
            fault,
        })
    }

    /// Logs calls and runs them. Where the ring is full a checkpoint makes room.
    fn group(&mut self, calls: u64) {
        for number in self.applied..self.applied + calls {
            append(&self.appender, number);
        }
        let group = self.taker.take(Group::default(), 0);
        assert_eq!(group.entries().count() as u64, calls);
        if let Err(Error::Full { .. }) = self.log.flush(&group) {
            match self.fault {
                Fault::EarlyRelease => self.log.release(self.log.end()),
                _ => self.checkpoint(),
            }
            self.log.flush(&group).unwrap();
        }
        self.applied += calls;
    }

    /// A checkpoint, with the position of the log in its context.
    fn checkpoint(&mut self) {
        let end = self.log.end();
        let mut line = [0; 64];
        line[..8].copy_from_slice(&self.applied.to_le_bytes());
        let _ = self
            .store
            .write(PageLines::from(PageId(0), 0, &line, 64))
            .unwrap();
        self.store.commit(&end.to_le_bytes()).unwrap();
        self.log.release(end);
    }
}

/// A run: groups and checkpoints; notes of how many calls were begun and acknowledged are on the tape as epochs.
fn run(object: &mut Object, tape: &Tape, random: &mut Random, steps: u64) {
    for _ in 0..steps {
        let calls = 1 + random.below(12);
        let note = |op| tape.borrow_mut().push((0, op));
        note(Op::Committing(object.applied + calls));
        object.group(calls);
        note(Op::Durable(object.applied));
        if random.once_in(9) {
            object.checkpoint();
        }
    }
}

/// Stops what is on the tape at every point and recovers what is left. Says the first promise that was broken, and how
/// many images there were.
fn explore(
    starts: &[Image; 2],
    tape: &Tape,
    mut acknowledged: u64,
    fault: Fault,
    random: &mut Random,
    depth: u32,
) -> (u64, Option<String>) {
    let mut crashes = [Crash::new(&starts[0]), Crash::new(&starts[1])];
    let (mut begun, mut images, mut is_made) = (acknowledged, 0, false);
    let ops = tape.borrow().clone();
    for (point, (number, op)) in ops.iter().enumerate() {
        match op {
            Op::Committing(calls) => (begun, is_made) = ((*calls).max(begun), true),
            Op::Durable(calls) => acknowledged = (*calls).max(acknowledged),
            _ => {}
        }
        if !crashes[*number].advance(op) || !is_made {
            continue;
        }
        // All images of both media: one that was built before is combined with new ones of the other medium.
        let mut now = crashes.clone();
        let all: Vec<_> = (now.iter_mut().map(|crash| crash.images(Choice::FEW, random))).collect();
        for at in 0..all[0].len().max(all[1].len()).min(6) {
            let pick = |number: usize| all[number][at % all[number].len()]();
            let left = [pick(0), pick(1)];
            images += 1;
            let second = Tape::default();
            let mut object = match Object::recover(left.clone(), random.number(), &second, fault) {
                Ok(object) => object,
                Err(why) => return (images, Some(format!("point {point}: {why}"))),
            };
            if !(acknowledged..=begun).contains(&object.applied) {
                let found = format!("{} calls of {acknowledged}..={begun}", object.applied);
                return (images, Some(format!("point {point}: {found}")));
            }
            if depth > 0 && random.once_in(25) {
                let known = object.applied;
                second.borrow_mut().push((0, Op::Committing(known)));
                run(&mut object, &second, random, 2);
                let (more, broken) = explore(&left, &second, known, fault, random, depth - 1);
                images += more;
                if broken.is_some() {
                    return (images, broken);
                }
            }
        }
    }
    (images, None)
}

fn campaign(fault: Fault, seed: u64, steps: u64) -> (u64, Option<String>) {
    let (tape, mut random) = (Tape::default(), Random::new(seed));
    let mut object = Object::create(&tape, fault);
    run(&mut object, &tape, &mut random, steps);
    let empty = [Image::new(8), Image::new(8)];
    explore(&empty, &tape, 0, fault, &mut random, 1)
}

#[test]
fn whatever_the_instant_acknowledged_calls_are_there_and_none_twice() {
    let seed = twinpage_campaign::seed();
    for seed in (0..twinpage_campaign::either(1, 40)).map(|more| seed.wrapping_add(more)) {
        let (images, broken) = campaign(Fault::None, seed, 20);
        assert_eq!(broken, None, "seed {seed}");
        assert!(images > 200, "seed {seed}: only {images} images");
    }
}

#[test]
fn planted_faults_are_found() {
    for fault in [Fault::NoFence, Fault::EarlyRelease, Fault::SameLife] {
        let found = (0..40).find_map(|seed| campaign(fault, seed, 20).1);
        assert!(found.is_some(), "{fault:?} was not found");
    }
}

/// A log with three groups of calls of a thread with a name, and where each begins.
fn three_groups() -> (Image, [u64; 3]) {
    let mut log = Log::create(Image::new(8), ID, RING, RING * 3 - 200, Poison::default()).unwrap();
    log.define("object\nadd(number: u64)").unwrap();
    let thread = NAMED | u32::from(log.define("worker-1").unwrap());
    let (appender, mut taker) = log.queue(7, RING);
    let mut number = 0;
    let starts = [0, 1, 2].map(|_| {
        for _ in 0..4 {
            append_of(thread, &appender, number);
            number += 1;
        }
        let group = taker.take(Group::default(), 0);
        log.flush(&group).unwrap();
        group.start()
    });
    (log.into_medium(), starts)
}

#[test]
fn damage_is_refused_with_its_place_and_a_torn_last_group_ends_the_log() {
    let (image, starts) = three_groups();
    let whole = read(&image, ID, starts[0]).unwrap();
    assert_eq!(whole.entries.len(), 12);
    assert!(
        starts[0] / RING != whole.end / RING,
        "the ring ends within the log"
    );
    for position in (starts[0]..whole.end).step_by(3) {
        let at = RING_AT + (position % RING) as usize;
        let mut flipped = image.clone();
        flipped.bytes_mut()[at] ^= 0x10;
        match read(&flipped, ID, starts[0]) {
            // Zeros that pad a record are in no checksum.
            Ok(found) if found.entries.len() == 12 => assert_eq!(found.entries, whole.entries),
            Ok(found) => {
                assert!(
                    position >= starts[2] && found.end <= position,
                    "position {position} was passed over"
                );
                assert_eq!(found.entries[..], whole.entries[..found.entries.len()]);
                assert!(found.entries.len() >= 8);
            }
            Err(Error::Damaged { what, at: place, .. }) => {
                assert!(position < starts[2], "position {position} is of the last group");
                assert_eq!(what, "record of the operation log");
                assert!(place as usize <= at || at < RING_AT + 200, "{place} for {at}");
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// More objects and threads than there is room for before the ring, which these fill to its last byte.
#[test]
fn definitions_go_on_behind_the_ring() {
    const MANY: u16 = 3000;
    let name = |number: u16| format!("object {number}\nadd(number: u64)\n#{number}");
    let mut log = Log::create(Image::new(8), ID, RING, 0, Poison::default()).unwrap();
    let (appender, mut taker) = log.queue(7, RING);
    for number in 0..MANY {
        assert_eq!(log.define(&name(number)).unwrap(), number);
        if number % 1000 == 999 {
            // The log is opened again, with a last definition that is torn.
            let mut image = log.into_medium();
            let (again, found) = Log::open(image.clone(), ID, 0, Poison::default()).unwrap();
            assert!(
                found.definitions.into_iter().eq((0..=number).map(name)),
                "{number}"
            );
            log = again;
            let last = image.bytes().iter().rposition(|&byte| byte != 0).unwrap();
            image.bytes_mut()[last] ^= 1;
            assert_eq!(
                read(&image, ID, 0).unwrap().definitions.len(),
                usize::from(number)
            );
        }
        assert_eq!(log.define(&name(number / 2)).unwrap(), number / 2);
    }
    // A call of an object of each place.
    for object in [1, MANY - 1] {
        let (function, thread, lane) = (0, 1, None);
        appender
            .append(&Call {
                object,
                function,
                thread,
                lane,
                arguments: &[],
            })
            .unwrap();
    }
    log.flush(&taker.take(Group::default(), 0)).unwrap();
    let image = log.into_medium();
    let objects: Vec<u16> = read(&image, ID, 0)
        .unwrap()
        .entries
        .iter()
        .map(|entry| entry.object)
        .collect();
    assert_eq!(objects, [1, MANY - 1]);
    // Without those behind the ring, or with a gap before it, one of them has no name.
    let cut = Image::from_bytes(image.bytes()[..RING_AT + RING as usize].to_vec(), 8);
    let mut flipped = image;
    flipped.bytes_mut()[200] ^= 1;
    for damaged in [cut, flipped] {
        let why = read(&damaged, ID, 0).unwrap_err().to_string();
        assert!(why.contains("that a call names is gone"), "{why}");
    }
}

#[test]
fn other_logs_and_damaged_files_are_refused() {
    let (image, starts) = three_groups();
    let refused = |image: &Image| read(image, ID, starts[0]).unwrap_err().to_string();
    assert!(
        read(&image, ID + 1, starts[0])
            .unwrap_err()
            .to_string()
            .contains("of another store")
    );
    let cut = |len: usize| Image::from_bytes(image.bytes()[..len].to_vec(), 8);
    assert!(refused(&cut(0)).contains("it is cut: 0 bytes"));
    assert!(refused(&cut(RING_AT + 100)).contains("it is cut"));
    let flipped = |at: usize| {
        let mut image = image.clone();
        image.bytes_mut()[at] ^= 1;
        image
    };
    assert!(refused(&flipped(0)).contains("no operation log"));
    assert!(refused(&flipped(8)).contains("version 0"));
    for at in 12..32 {
        assert!(
            refused(&flipped(at)).contains("damaged header of the operation log"),
            "byte {at}"
        );
    }
    // The object's, and that of the thread behind it.
    for (definition, at) in [(0, 64), (1, 64 + 24 + 24)] {
        let why = format!("the definition {definition} that a call names is gone");
        for byte in 0..24 + 8 {
            assert!(refused(&flipped(at + byte)).contains(&why), "byte {byte}");
        }
    }
    assert_eq!(header(&image).unwrap().ring, RING);
}

#[test]
fn a_group_costs_one_fence_and_a_small_call_few_bytes() {
    let tape = Tape::default();
    let mut object = Object::create(&tape, Fault::None);
    tape.borrow_mut().clear();
    let before = object.log.end();
    for _ in 0..50 {
        let call = Call {
            object: 0,
            function: 1,
            thread: 1,
            lane: None,
            arguments: &[7, 1],
        };
        object.appender.append(&call).unwrap();
    }
    object.log.flush(&object.taker.take(Group::default(), 0)).unwrap();
    let fences = tape
        .borrow()
        .iter()
        .filter(|(_, op)| matches!(op, Op::Fence))
        .count();
    assert_eq!(fences, 1);
    assert!((object.log.end() - before) / 50 <= 48);
}

#[test]
fn a_full_ring_and_long_arguments_are_refused_before_anything_is_written() {
    let mut log = Log::create(Image::new(8), ID, RING, 0, Poison::default()).unwrap();
    log.define("object\nput(bytes: Vec<u8>)").unwrap();
    let (appender, mut taker) = log.queue(1, RING);
    // One more than a call may have in a ring of this size.
    let long = vec![1; RING as usize / 16 + 1];
    let call = |arguments| Call {
        object: 0,
        function: 0,
        thread: 1,
        lane: None,
        arguments,
    };
    assert!(matches!(appender.append(&call(&long)), Err(Error::Invalid(_))));
    let mut flushed = 0;
    let refused = loop {
        while appender.append(&call(&long[1..])).is_ok() {}
        let group = taker.take(Group::default(), 0);
        match log.flush(&group) {
            Ok(()) => flushed = group.end(),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::Full { .. }));
    assert_eq!((log.end(), log.used()), (flushed, flushed));
    log.release(flushed);
    assert_eq!(log.used(), 0);
    assert_eq!(read(log.medium(), ID, 0).unwrap().end, flushed);
}

#[test]
fn a_withdrawn_call_is_skipped_before_and_after_a_crash() {
    let mut log = Log::create(Image::new(8), ID, RING, 0, Poison::default()).unwrap();
    log.define("object\na()\nb()\nc()").unwrap();
    let (appender, mut taker) = log.queue(1, RING);
    let positions: Vec<u64> = (0..4)
        .map(|number| {
            let arguments = &arguments(number)[..];
            let call = Call {
                object: 0,
                function: 1,
                thread: 1,
                lane: None,
                arguments,
            };
            appender.append(&call).unwrap()
        })
        .collect();
    let mut group = taker.take(Group::default(), 0);
    assert!(log.withdraw(&mut group, positions[1]));
    let next = group.end();
    assert!(!log.withdraw(&mut group, next), "another group's");
    let run: Vec<_> = group.entries().collect();
    assert_eq!(
        run.iter().map(|entry| entry.position).collect::<Vec<_>>(),
        [positions[0], positions[2], positions[3]]
    );
    log.flush(&group).unwrap();
    let found = read(log.medium(), ID, 0).unwrap();
    assert_eq!((found.entries, found.end), (run, group.end()));
}

/// A medium that counts the bytes that are read.
struct Counted(Image, Cell<u64>);

impl Medium for Counted {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn grow(&mut self, len: u64) -> Result<()> {
        self.0.grow(len)
    }
    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        self.1.set(self.1.get() + into.len() as u64);
        self.0.read(at, into)
    }
    fn write(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        self.0.write(at, bytes)
    }
    fn discard(&mut self, range: Range<Offset>) -> Result<()> {
        self.0.discard(range)
    }
    fn fence(&mut self) -> Result<()> {
        self.0.fence()
    }
    fn atom(&self) -> usize {
        self.0.atom()
    }
}

/// Who follows a log reads what is new, not the ring; a reader after a crash reads all of it.
#[test]
fn what_is_new_costs_what_it_is() {
    const LARGE: u64 = 8 << 20;
    let medium = Counted(Image::new(8), Cell::new(0));
    // So that what is written goes over the end of the ring.
    let mut log = Log::create(medium, ID, LARGE, LARGE - 64, Poison::default()).unwrap();
    log.define("object\nadd(number: u64)").unwrap();
    let (appender, mut taker) = log.queue(7, 1 << 20);
    let mut number = 0;
    let mut group_of = |count: u64| {
        for _ in 0..count {
            append(&appender, number);
            number += 1;
        }
        taker.take(Group::default(), 0)
    };
    let (mut from, mut entries) = (log.end(), 0);
    for count in [1, 5000, 1, 3] {
        let group = group_of(count);
        log.flush(&group).unwrap();
        let medium = log.medium();
        medium.1.set(0);
        let found = read_new(medium, ID, from).unwrap();
        let bytes = medium.1.get();
        assert!(
            bytes <= 2 * (found.end - from) + (64 << 10),
            "{bytes} bytes for {count} calls"
        );
        assert_eq!(found.end, log.end());
        entries += found
            .entries
            .iter()
            .filter(|entry| entry.position >= group.start())
            .count() as u64;
        from = group.start();
        let whole = read(medium, ID, LARGE - 64).unwrap();
        assert_eq!(whole.entries.len() as u64, entries);
        assert!(medium.1.get() > LARGE);
    }
    // Nothing is new.
    log.medium().1.set(0);
    assert_eq!(read_new(log.medium(), ID, log.end()).unwrap().entries, []);
    assert!(log.medium().1.get() <= 64 << 10);
}
