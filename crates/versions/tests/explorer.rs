//! Arrays crashed at every point of random runs, on the model of processor caches: what is recovered is the state
//! after some whole update, not before the last that was called durable; recovery is crashed again. And mistakes made
//! on purpose are found.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use twinpage_campaign::{either, seed};
use twinpage_core::crash::Random;
use twinpage_os::modelled::{Crash, Event, Model};
use twinpage_versions::{Header, Options, Pace, Planes, Planted, Versions};

const COUNT: usize = 5;
const MOST: usize = 9;
const CAPACITY: usize = 1 << 16;
/// Notes of updates that are called durable; others are of those that begin.
const DURABLE: u64 = 1 << 32;

/// A value that is torn when its words differ.
type Value = [u64; 3];

fn options(planted: Option<Planted>) -> Options {
    Options::new().stepped().per_block(4).planted(planted)
}

/// What an array did: the states after each update, by number, and the log.
struct Run<S> {
    start: Vec<u8>,
    states: Vec<(u64, S)>,
    log: Vec<Event>,
    complaint: Option<String>,
}

type Elements = Vec<Value>;

fn elements<const N: usize>(array: &Versions<Value, N>) -> Elements {
    (0..array.len()).map(|index| *array.get(index)).collect()
}

/// What a model is made by.
type Medium = fn(&[u8], usize) -> Model;

/// Random updates, with the persister a few steps further now and then: also inside an update.
fn run_elements<const N: usize>(
    medium: Medium,
    image: Vec<u8>,
    count: usize,
    random: &mut Random,
    planted: Option<Planted>,
) -> Run<Elements> {
    let model = Arc::new(medium(&image, CAPACITY));
    let pace = match random.below(3) {
        0 => Pace::Immediate,
        1 => Pace::Threshold(0.5),
        _ => Pace::Manual,
    };
    let mut array = Versions::<Value, N>::open_on(&options(planted).pace(pace), model.clone(), count, |k| {
        [k as u64; 3]
    })
    .unwrap();
    let stepper = array.stepper();
    model.note(DURABLE | array.ticket().number());
    let mut states = vec![(array.ticket().number(), elements(&array))];
    let mut told = stepper.durable();
    let go_on = |random: &mut Random, told: &mut u64| {
        for _ in 0..random.below(7) {
            if !stepper.step() {
                break;
            }
        }
        if stepper.durable() > *told {
            *told = stepper.durable();
            model.note(DURABLE | *told);
        }
    };
    for number in 0..4 + random.below(10) {
        let panics = random.once_in(6);
        let steps = 1 + random.below(3);
        let before = array.ticket().number();
        let mut expected = elements(&array);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            array.update(|update| {
                for _ in 0..steps {
                    let (a, b) = (
                        random.below(update.len() as u64) as usize,
                        random.below(update.len() as u64) as usize,
                    );
                    if random.once_in(2) {
                        update.swap(a, b);
                        expected.swap(a, b);
                    } else if random.once_in(3) {
                        expected[a] = [1000 * (number + 1) + a as u64; 3];
                        update.set(a, expected[a]);
                    } else {
                        let value = update.get_mut(a);
                        value[0] += 100 * (number + 1);
                        value[1] = value[0];
                        value[2] = value[0];
                        expected[a] = *value;
                    }
                    go_on(random, &mut told);
                }
                if panics {
                    std::panic::resume_unwind(Box::new("on purpose"));
                }
            });
        }));
        assert_eq!(outcome.is_err(), panics);
        if !panics {
            assert_eq!(elements(&array), expected);
        }
        assert!(!panics || array.ticket().number() == before);
        states.push((array.ticket().number(), elements(&array)));
        go_on(random, &mut told);
        if random.once_in(5) {
            array.durable().unwrap();
            told = array.ticket().number();
            model.note(DURABLE | told);
        }
        if random.once_in(12) && array.len() < MOST {
            let more = array.len() + 1 + random.below((MOST - array.len()) as u64) as usize;
            array.reserve(more, |k| [k as u64; 3]).unwrap();
            told = array.ticket().number();
            states.push((told, elements(&array)));
            model.note(DURABLE | told);
        }
    }
    Run {
        start: image,
        states,
        log: model.log(),
        complaint: model.complaint(),
    }
}

/// Opens an image, and says which state it found.
type Recover<'a, S> = &'a mut dyn FnMut(Vec<u8>, &mut Random) -> Result<S, String>;

/// Crashes `run` at every point; `recover` opens an image and says which state it found, or what is wrong.
/// Returns the images looked at.
fn explore<S: PartialEq + std::fmt::Debug>(
    run: &Run<S>,
    random: &mut Random,
    recover: Recover<'_, S>,
) -> Result<u64, String> {
    if let Some(complaint) = &run.complaint {
        return Err(complaint.clone());
    }
    let mut crash = Crash::new(&run.start);
    let (mut durable, mut images) = (None, 0);
    for (point, &event) in run.log.iter().enumerate() {
        crash.advance(event);
        if let Event::Note(note) = event {
            durable = Some(note & !DURABLE);
        }
        // Of words that are written back, or stored, one after another not all are points of their own.
        let next = run.log.get(point + 1);
        let goes_on = match event {
            Event::Sent(..) => matches!(next, Some(Event::Sent(..))),
            Event::Stored(..) => matches!(next, Some(Event::Stored(..))) && !random.once_in(3),
            _ => false,
        };
        if goes_on {
            continue;
        }
        let Some(durable) = durable else { continue };
        for image in crash.images(2, random) {
            images += 1;
            let found = recover(image, random).map_err(|why| format!("point {point}: {why}"))?;
            let is_one = |(number, state): &(u64, S)| *number >= durable && *state == found;
            if !run.states.iter().any(is_one) {
                return Err(format!(
                    "point {point}: {durable} was durable, and {found:?} is no state from there on"
                ));
            }
        }
    }
    Ok(images)
}

/// How many values the array in an image has; `otherwise`, when there is none yet.
fn count(image: &[u8], otherwise: usize) -> usize {
    Header::read(image).map_or(otherwise, |header| header.count as usize)
}

/// Opens an image as the next life would, also after a crash of the recovery.
fn recover_elements<const N: usize>(image: Vec<u8>, random: &mut Random) -> Result<Elements, String> {
    let open = |image: &[u8]| {
        let model = Arc::new(Model::new(image, CAPACITY));
        let first = |k| [k as u64; 3];
        let array = Versions::<Value, N>::open_on(&options(None), model.clone(), count(image, COUNT), first);
        let array = array.map_err(|error| error.to_string())?;
        Ok::<_, String>((elements(&array), model))
    };
    let (found, model) = open(&image)?;
    let mut crash = Crash::new(&image);
    for event in model.log() {
        crash.advance(event);
        if random.once_in(40) {
            for image in crash.images(1, random) {
                let (again, _) = open(&image)?;
                if again != found {
                    return Err(format!(
                        "{found:?} was recovered, and {again:?} after a crash of that"
                    ));
                }
            }
        }
    }
    Ok(found)
}

/// Two lives in a row: the second begins with what a crash of the first may have left.
fn elements_twice<const N: usize>(seed: u64, planted: Option<Planted>) -> Result<u64, String> {
    elements_on::<N>(Model::new, seed, planted)
}

/// Where values are stored past the caches.
fn elements_streamed<const N: usize>(seed: u64, planted: Option<Planted>) -> Result<u64, String> {
    elements_on::<N>(Model::streaming, seed, planted)
}

fn elements_on<const N: usize>(medium: Medium, seed: u64, planted: Option<Planted>) -> Result<u64, String> {
    let mut random = Random::new(seed);
    let first = run_elements::<N>(medium, Vec::new(), COUNT, &mut random, planted);
    let mut recover = |image: Vec<u8>, random: &mut Random| recover_elements::<N>(image, random);
    let mut images = explore(&first, &mut random, &mut recover)?;
    let mut crash = Crash::new(&first.start);
    // Not before the array is there: a file is made under another name, a bare medium is not.
    let made = first.log.iter().position(|event| matches!(event, Event::Note(_)));
    let until = first.log.len() - random.below(first.log.len() as u64 / 3) as usize;
    let until = until.max(made.map_or(0, |note| note + 1));
    first.log[..until].iter().for_each(|&event| crash.advance(event));
    for image in crash.images(1, &mut random) {
        let count = count(&image, COUNT);
        let second = run_elements::<N>(medium, image, count, &mut random, planted);
        images += explore(&second, &mut random, &mut recover)?;
    }
    Ok(images)
}

fn planes<const N: usize>(seed: u64, planted: Option<Planted>) -> Result<u64, String> {
    planes_on::<N>(Model::new, seed, planted)
}

/// Where a fence is a flush, steps have seals.
fn planes_with_seals<const N: usize>(seed: u64, planted: Option<Planted>) -> Result<u64, String> {
    planes_on::<N>(Model::flushed, seed, planted)
}

fn planes_on<const N: usize>(medium: Medium, seed: u64, planted: Option<Planted>) -> Result<u64, String> {
    let mut random = Random::new(seed);
    let first = run_planes::<N>(medium, Vec::new(), &mut random, planted);
    let open = |image: &[u8]| {
        let model = Arc::new(medium(image, CAPACITY));
        let options = options(planted.filter(|planted| *planted == Planted::SealBelieved));
        let field = Planes::<u64, N>::open_on(&options, model.clone(), count(image, 6));
        let field = field.map_err(|error| error.to_string())?;
        Ok::<_, String>(((field.steps_done(), field.newest().to_vec()), model))
    };
    // The recovery is crashed again.
    let mut recover = |image: Vec<u8>, random: &mut Random| {
        let (found, model) = open(&image)?;
        let mut crash = Crash::new(&image);
        for event in model.log() {
            crash.advance(event);
            if !random.once_in(10) {
                continue;
            }
            for image in crash.images(1, random) {
                let (again, _) = open(&image)?;
                if again != found {
                    return Err(format!(
                        "{found:?} was recovered, and {again:?} after a crash of that"
                    ));
                }
            }
        }
        Ok(found)
    };
    let mut images = explore(&first, &mut random, &mut recover)?;
    // A second life, on what a crash of the first may have left.
    let made = first.log.iter().position(|event| matches!(event, Event::Note(_)));
    let until = first.log.len() - random.below(first.log.len() as u64 / 3) as usize;
    let until = until.max(made.map_or(0, |note| note + 1));
    let mut crash = Crash::new(&first.start);
    first.log[..until].iter().for_each(|&event| crash.advance(event));
    for image in crash.images(1, &mut random) {
        let second = run_planes::<N>(medium, image, &mut random, planted);
        images += explore(&second, &mut random, &mut recover)?;
    }
    Ok(images)
}

type Field = (u64, Vec<u64>);

fn run_planes<const N: usize>(
    medium: Medium,
    image: Vec<u8>,
    random: &mut Random,
    planted: Option<Planted>,
) -> Run<Field> {
    let model = Arc::new(medium(&image, CAPACITY));
    let pace = if random.once_in(3) {
        Pace::Manual
    } else {
        Pace::Immediate
    };
    let wanted = count(&image, 6);
    let mut field = Planes::<u64, N>::open_on(&options(planted).pace(pace), model.clone(), wanted).unwrap();
    let stepper = field.stepper();
    let mut told = field.steps_done();
    model.note(DURABLE | told);
    let mut states = vec![(told, (told, field.newest().to_vec()))];
    for _ in 0..4 + random.below(12) {
        let range = match random.below(3) {
            0 => 1..4,
            _ => 0..field.len(),
        };
        let panics = random.once_in(8);
        let expected: Vec<u64> = field.newest().to_vec();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            field.step_range(range.clone(), |old, new| {
                for (k, value) in new.iter_mut().enumerate() {
                    *value = old[range.start + k] + 1 + k as u64;
                    if random.once_in(3) {
                        stepper.step();
                    }
                }
                if panics {
                    std::panic::resume_unwind(Box::new("on purpose"));
                }
            })
        }));
        assert_eq!(outcome.is_err(), panics);
        if panics {
            assert_eq!(field.newest(), expected);
        }
        states.push((field.steps_done(), (field.steps_done(), field.newest().to_vec())));
        for _ in 0..random.below(6) {
            stepper.step();
        }
        if random.once_in(6) {
            field.durable().unwrap();
        }
        if random.once_in(10) && field.len() < 50 {
            field.reserve(field.len() * 3).unwrap();
            states.push((field.steps_done(), (field.steps_done(), field.newest().to_vec())));
            told = field.steps_done();
            model.note(DURABLE | told);
        }
        if stepper.durable() > told {
            told = stepper.durable();
            model.note(DURABLE | told);
        }
    }
    Run {
        start: image,
        states,
        log: model.log(),
        complaint: model.complaint(),
    }
}

fn all(seed: u64, planted: Option<Planted>) -> Result<u64, String> {
    Ok(elements_twice::<2>(seed, planted)?
        + elements_twice::<3>(seed, planted)?
        + elements_streamed::<2>(seed, planted)?
        + elements_streamed::<3>(seed, planted)?
        + planes::<2>(seed, planted)?
        + planes::<3>(seed, planted)?
        + planes_with_seals::<2>(seed, planted)?
        + planes_with_seals::<3>(seed, planted)?)
}

#[test]
fn every_crash_leaves_a_whole_update() {
    let (first, runs) = (seed(), either(4, 400));
    let mut images = 0;
    for seed in (0..runs).map(|k| first.wrapping_add(k)) {
        images += all(seed, None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    println!("{runs} runs, {images} images of what a crash left");
    assert!(images > runs * 300);
}

#[test]
fn mistakes_made_on_purpose_are_found() {
    type Search = fn(u64, Option<Planted>) -> Result<u64, String>;
    let cases: [(Planted, &str, Search); 14] = [
        (Planted::WordBeforeFence, "elements", elements_twice::<3>),
        (Planted::WordBeforeFence, "streamed", elements_streamed::<3>),
        (Planted::WordBeforeFence, "planes", planes::<3>),
        (Planted::ReusedTooEarly, "two versions", elements_twice::<2>),
        (Planted::ReusedTooEarly, "three versions", elements_twice::<3>),
        (Planted::ReusedTooEarly, "streamed", elements_streamed::<3>),
        (Planted::ReusedTooEarly, "planes", planes::<3>),
        (
            Planted::ReusedTooEarly,
            "planes with seals",
            planes_with_seals::<2>,
        ),
        (Planted::SealBelieved, "two planes", planes_with_seals::<2>),
        (Planted::SealBelieved, "three planes", planes_with_seals::<3>),
        (Planted::NumberNotErased, "elements", elements_twice::<3>),
        (Planted::FlushedWhileWritten, "elements", elements_twice::<3>),
        (Planted::PanickedNumberStays, "elements", elements_twice::<2>),
        (Planted::PanickedNumberStays, "streamed", elements_streamed::<2>),
    ];
    let first = seed();
    for (planted, where_, search) in cases {
        let found = (0..60).find_map(|k| {
            let search = || search(first.wrapping_add(k), Some(planted));
            // A mistake may also show by an assertion on the running array.
            match catch_unwind(AssertUnwindSafe(search)) {
                Ok(outcome) => outcome.err(),
                Err(_) => Some("the array itself went wrong".into()),
            }
        });
        println!(
            "{planted:?}, {where_}: {}",
            found.as_deref().unwrap_or("not found")
        );
        assert!(found.is_some(), "{planted:?} survived 60 runs on {where_}");
    }
}

#[test]
fn after_a_failed_flush_nothing_is_called_durable() {
    let first = seed();
    for k in 0..40 {
        let mut random = Random::new(first.wrapping_add(k));
        let model = Arc::new(Model::new(&[], CAPACITY));
        let options = Options::new().per_block(4).inline().pace(Pace::Immediate);
        let mut array =
            Versions::<Value, 3>::open_on(&options, model.clone(), COUNT, |k| [k as u64; 3]).unwrap();
        let good = random.below(7);
        model.fail_after(good);
        let mut durable = elements(&array);
        for k in 0..10_u64 {
            array.update(|update| update.set(k as usize % COUNT, [100 + k; 3]));
            let ticket = array.ticket();
            match array.durable() {
                // Two fences each.
                Ok(()) => {
                    assert!(2 * (k + 1) <= good && ticket.is_durable());
                    durable = elements(&array);
                }
                Err(error) => {
                    let twinpage_versions::Error::Poisoned { cause, .. } = &error else {
                        panic!("{error}");
                    };
                    assert!(matches!(**cause, twinpage_core::Error::Invalid(_)), "{cause:?}");
                    assert!(2 * (k + 1) > good && !ticket.is_durable() && ticket.wait().is_err());
                }
            }
            // In memory it goes on.
            assert_eq!(array.get(k as usize % COUNT), &[100 + k; 3]);
        }
        drop(array);
        let mut crash = Crash::new(&[]);
        model.log().into_iter().for_each(|event| crash.advance(event));
        for image in crash.images(5, &mut random) {
            let found = recover_elements::<3>(image, &mut random).unwrap();
            // The last word may have arrived before its fence failed.
            let ahead = found.iter().zip(&durable).filter(|(a, b)| a != b).count();
            assert!(ahead <= 1, "{found:?} beside {durable:?}");
        }
    }
}
