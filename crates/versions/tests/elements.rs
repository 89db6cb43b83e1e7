//! Arrays of elements beside a plain vector: what updates make of them, in this life and the next.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use support::folders;
use twinpage_campaign::seed;
use twinpage_os::Durability;
use twinpage_os::direct::Direct;
use twinpage_os::modelled::Model;
use twinpage_versions::{Error, Options, Pace, Planes, Versions};

type Text = [u8; 256];

fn text(index: usize) -> Text {
    let mut text = [index as u8; 256];
    text[..8].copy_from_slice(&(index as u64).to_le_bytes());
    text
}

/// What the array holds is what the model does.
fn same<const N: usize>(array: &Versions<Text, N>, model: &[Text]) {
    assert_eq!(array.len(), model.len());
    for (index, text) in model.iter().enumerate() {
        assert_eq!(array.get(index), text, "element {index}");
    }
}

/// Random updates, some of which panic, on an array that is closed and opened again in between.
fn beside_a_vector<const N: usize>(options: &Options, path: &std::path::Path, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let count = random.usize(1..300);
    let mut model: Vec<Text> = (0..count).map(text).collect();
    for _ in 0..3 {
        let known = model.clone();
        let mut array =
            Versions::<Text, N>::open_with(options, path, model.len(), |index| known[index]).unwrap();
        same(&array, &model);
        for _ in 0..random.usize(0..100) {
            let mut after = model.clone();
            let panics = random.u8(..8) == 0;
            let steps = random.usize(0..6);
            let draw = |random: &mut fastrand::Rng| random.usize(..known.len());
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                array.update(|update| {
                    for _ in 0..steps {
                        let (a, b) = (draw(&mut random), draw(&mut random));
                        match random.u8(..4) {
                            0 | 1 => {
                                update.swap(a, b);
                                after.swap(a, b);
                            }
                            2 => {
                                update.set(a, text(b + 7));
                                after[a] = text(b + 7);
                            }
                            _ => {
                                let byte = &mut update.get_mut(a)[9];
                                *byte = byte.wrapping_add(1);
                                after[a][9] = after[a][9].wrapping_add(1);
                            }
                        }
                        assert_eq!(update.get(a), &after[a]);
                    }
                    assert!(!panics, "on purpose");
                });
            }));
            assert_eq!(outcome.is_err(), panics);
            if !panics {
                model = after;
            }
            if random.u8(..30) == 0 {
                array.durable().unwrap();
            }
        }
        same(&array, &model);
        array.durable().unwrap();
        assert_eq!(array.statistics().durable, array.ticket().number());
        if random.bool() {
            let more = model.len() + random.usize(0..300);
            array.reserve(more, text).unwrap();
            model.extend((model.len()..more).map(text));
            same(&array, &model);
        }
    }
}

#[test]
fn any_updates_beside_a_vector() {
    let first = seed();
    for folder in folders() {
        for (k, pace) in [Pace::Immediate, Pace::Threshold(0.3), Pace::Manual]
            .into_iter()
            .enumerate()
        {
            for inline in [false, true] {
                let options = Options::new().pace(pace);
                let options = if inline { options.inline() } else { options };
                for round in 0..2 {
                    let seed = first.wrapping_add(round);
                    let name = |n: u32| folder.path().join(format!("{k}{inline}{round}{n}"));
                    beside_a_vector::<2>(&options, &name(2), seed);
                    beside_a_vector::<3>(&options, &name(3), seed);
                }
            }
        }
    }
}

/// What is changed in place again and again is written back once with its batch, also where values are stored past the
/// caches: of each update the numbers are, and of the batch the values. What a failed update listed is listed again.
#[test]
fn what_is_changed_often_is_written_back_once() {
    let model = Arc::new(Model::streaming(&[], 1 << 20));
    let options = Options::new().pace(Pace::Manual).stepped();
    let mut array = Versions::<Text, 3>::open_on(&options, model.clone(), 2, text).unwrap();
    let written = |array: &Versions<Text, 3>, before: u64| {
        array.durable().unwrap();
        model.counts().write_backs - before
    };
    let change = |array: &mut Versions<Text, 3>, panics: bool| {
        array.update(|update| {
            for turn in 0..10_000 {
                let byte = &mut update.get_mut(turn % 2)[9];
                *byte = byte.wrapping_add(1);
            }
            assert!(!panics, "on purpose");
        });
    };
    let before = model.counts().write_backs;
    for _ in 0..10 {
        change(&mut array, false);
    }
    let lines = written(&array, before);
    assert!((8..100).contains(&lines), "{lines} lines were written back");
    let before = model.counts().write_backs;
    catch_unwind(AssertUnwindSafe(|| change(&mut array, true))).unwrap_err();
    change(&mut array, false);
    let lines = written(&array, before);
    assert!((8..100).contains(&lines), "{lines} lines were written back");
    assert_eq!(array.get(0)[9], text(0)[9].wrapping_add((11 * 5000 % 256) as u8));
    assert_eq!(model.complaint(), None);
}

#[test]
fn the_threshold_asked_for_is_reached() {
    for folder in folders().into_iter().skip(1) {
        for asked in [0.2, 0.6, 1.0] {
            let path = folder.path().join(format!("{asked}"));
            let options = Options::new().pace(Pace::Threshold(asked));
            let mut array = Versions::<Text, 3>::open_with(&options, &path, 5000, text).unwrap();
            let mut random = fastrand::Rng::with_seed(1);
            for _ in 0..20_000 {
                let (a, b) = (random.usize(..5000), random.usize(..5000));
                array.update(|update| update.swap(a, b));
            }
            let found = array.statistics();
            assert!(found.updates > 19_900, "a swap with itself changes nothing");
            assert!((found.threshold / asked - 1.0).abs() < 0.05, "{asked}: {found:?}");
            assert_eq!(found.version_waits, 0, "three versions never wait: {found:?}");
        }
    }
}

#[test]
fn two_versions_wait_where_three_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new().pace(Pace::Immediate);
    fn run<const N: usize>(options: &Options, path: &std::path::Path) -> u64 {
        // On a disk: a flush takes longer than an update.
        let mut array = Versions::<u64, N>::open_with(options, path, 4, |_| 0).unwrap();
        for _ in 0..50 {
            array.update(|update| *update.get_mut(1) += 1);
        }
        array.durable().unwrap();
        assert_eq!(*array.get(1), 50);
        array.statistics().version_waits
    }
    let two = run::<2>(&options, &folder.path().join("2"));
    let three = run::<3>(&options, &folder.path().join("3"));
    assert!(two > 0 && three == 0, "two waited {two} times, three {three}");
}

#[test]
fn a_ticket_is_waited_for_on_any_thread_at_any_pace() {
    for folder in folders() {
        for pace in [Pace::Immediate, Pace::Threshold(0.01), Pace::Manual] {
            let path = folder.path().join(format!("{pace:?}"));
            let options = Options::new().pace(pace);
            let mut array = Versions::<u64, 3>::open_with(&options, &path, 10, |_| 0).unwrap();
            array.update(|update| update.set(3, 5));
            let ticket = array.ticket();
            // No update follows, and the one thread is enough.
            ticket.wait().unwrap();
            assert!(ticket.is_durable());
            let waiting: Vec<_> = (0..20)
                .map(|k| {
                    array.update(|update| update.set(4, k));
                    let ticket = array.ticket();
                    std::thread::spawn(move || ticket.wait())
                })
                .collect();
            for thread in waiting {
                thread.join().unwrap().unwrap();
            }
        }
    }
}

#[test]
fn what_was_not_durable_is_not_there_after_the_array_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("array");
    let options = Options::new().pace(Pace::Manual);
    let mut array = Versions::<u64, 2>::open_with(&options, &path, 100, |index| index as u64).unwrap();
    array.update(|update| update.set(1, 10));
    array.durable().unwrap();
    array.update(|update| update.set(1, 11));
    array.update(|update| update.set(2, 12));
    let ticket = array.ticket();
    drop(array);
    assert!(matches!(ticket.wait(), Err(Error::Closed { number: 3.., .. })));
    let array = Versions::<u64, 2>::open(&path, 100, |_| unreachable!()).unwrap();
    assert_eq!((*array.get(1), *array.get(2)), (10, 2));
}

#[test]
fn a_wait_changes_nothing_after_the_array_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("array");
    for round in 0..100 {
        let options = Options::new().pace(Pace::Manual);
        let mut array = Versions::<u64, 2>::open_with(&options, &path, 100, |_| 0).unwrap();
        array.update(|update| update.set(round, 7));
        let tickets = [array.ticket(), array.ticket()];
        let waiting = tickets.map(|ticket| std::thread::spawn(move || ticket.wait().is_ok()));
        drop(array);
        let closed = std::fs::read(&path).unwrap();
        let durable = waiting.map(|thread| thread.join().unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), closed, "round {round}");
        let array = Versions::<u64, 2>::open(&path, 100, |_| unreachable!()).unwrap();
        assert!(*array.get(round) == 7 || durable == [false; 2], "round {round}");
    }
}

#[test]
fn another_array_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("array");
    drop(Versions::<u64, 3>::open(&path, 10, |_| 1).unwrap());
    let before = std::fs::read(&path).unwrap();
    let texts = [
        Versions::<i64, 3>::open(&path, 10, |_| 1)
            .unwrap_err()
            .to_string(),
        Versions::<u64, 2>::open(&path, 10, |_| 1)
            .unwrap_err()
            .to_string(),
        Versions::<u64, 3>::open(&path, 11, |_| 1)
            .unwrap_err()
            .to_string(),
        Versions::<u32, 3>::open(&path, 10, |_| 1)
            .unwrap_err()
            .to_string(),
        twinpage_versions::Planes::<u64, 3>::open(&path, 10)
            .unwrap_err()
            .to_string(),
    ];
    for text in texts {
        assert!(text.contains("10 elements of type u64 (8 bytes"), "{text}");
        assert!(text.contains(path.to_str().unwrap()), "{text}");
    }
    assert!(before == std::fs::read(&path).unwrap());
    let held = Versions::<u64, 3>::open(&path, 10, |_| 1).unwrap();
    let second = Versions::<u64, 3>::open(&path, 10, |_| 1).unwrap_err();
    assert!(matches!(second, Error::Locked(_)), "{second}");
    drop(held);
}

#[test]
fn damage_is_told_and_nothing_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("array");
    let mut array = Versions::<Text, 3>::open(&path, 300, text).unwrap();
    for k in 0..200 {
        array.update(|update| update.swap(k, 299 - k));
    }
    drop(array);
    let whole = std::fs::read(&path).unwrap();
    let open = || Versions::<Text, 3>::open(&path, 300, |_| unreachable!());
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let error = open().unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        assert!(std::fs::read(&path).unwrap() == bytes, "{error}");
        error
    };
    for len in [0, 8, 100, 4096, 8192, whole.len() - 4096] {
        let error = refused(&whole[..len]);
        assert!(
            error.contains("cut") || error.contains("not a versioned array"),
            "{error}"
        );
    }
    // Header, word, numbers: each flipped bit that counts.
    for byte in (0..256).chain(4096..4104) {
        let mut bytes = whole.clone();
        bytes[byte] ^= 1 << (byte % 8);
        refused(&bytes);
    }
    for index in [0_usize, 7, 255, 256, 299] {
        let row = 8192 + index / 256 * (8192 + 3 * 65536) + index % 256 * 32;
        let mut found = 0;
        for byte in row..row + 24 {
            let mut bytes = whole.clone();
            bytes[byte] ^= 1 << (byte % 8);
            let error = refused(&bytes);
            assert!(error.contains(&format!("element {index}")), "{error}");
            found += 1;
        }
        assert_eq!(found, 24);
    }
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(open().unwrap().get(0), &text(299));
}

#[test]
fn something_else_is_not_taken_for_an_array() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("letter");
    std::fs::write(&path, "Dear Ada ".repeat(2000)).unwrap();
    let error = Versions::<u64>::open(&path, 10, |_| 1).unwrap_err().to_string();
    assert!(
        error.contains("not a versioned array") && error.contains("letter"),
        "{error}"
    );
    let error = Versions::<u64>::open(folder.path(), 10, |_| 1)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("directory") || error.contains("regular file"),
        "{error}"
    );
}

#[test]
fn an_array_without_room_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("array");
    let error = Versions::<[u8; 4096], 3>::open(&path, 1 << 30, |_| [0; 4096]).unwrap_err();
    assert!(
        matches!(error, Error::Store(twinpage_core::Error::Full { .. })),
        "{error}"
    );
    assert!(error.to_string().contains("/array"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    // One that is there stays as it is.
    let mut array = Versions::<[u8; 4096], 3>::open(&path, 10, |_| [7; 4096]).unwrap();
    let error = array.reserve(1 << 30, |_| [0; 4096]).unwrap_err().to_string();
    assert!(error.contains("full"), "{error}");
    array.update(|update| update.set(9, [8; 4096]));
    array.durable().unwrap();
    drop(array);
    let array = Versions::<[u8; 4096], 3>::open(&path, 10, |_| unreachable!()).unwrap();
    assert_eq!((array.get(0)[0], array.get(9)[0]), (7, 8));
}

/// What it would have been made as is an inner matter.
#[test]
fn a_folder_that_is_no_persistent_memory_is_named() {
    for folder in folders() {
        let options = Options::new().durability(Durability::Dax);
        let path = folder.path().join("array");
        let error = Versions::<u64>::open_with(&options, &path, 10, |_| 1)
            .unwrap_err()
            .to_string();
        let named = format!("a file in {} cannot be used", folder.path().display());
        assert!(error.contains(&named) && !error.contains(".new"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

/// More values than any file holds: their bytes are a number that wraps.
#[test]
fn sizes_that_no_file_has_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("elements");
    for count in [1 << 45, 1 << 59, 1 << 61, usize::MAX] {
        let opened = Versions::<u64, 2>::open(&path, count, |_| panic!("no element is made"));
        assert!(matches!(opened, Err(Error::TooLarge { .. })));
        assert!(!path.exists());
    }
    let mut array = Versions::<u64, 2>::open(&path, 10, |_| 7).unwrap();
    for count in [1 << 45, 1 << 59, 1 << 61, usize::MAX] {
        let larger = array.reserve(count, |_| panic!("no element is made"));
        assert!(matches!(larger, Err(Error::TooLarge { .. })));
    }
    assert_eq!((array.len(), *array.get(9)), (10, 7));
}

/// The file may be moved, and its name another's, before an array is copied.
#[test]
fn a_backup_is_of_the_array_and_not_of_what_has_its_name() {
    for folder in folders() {
        let at = |name: &str| folder.path().join(name);
        let mut array = Versions::<u64, 2>::open(at("array"), 10, |_| 1).unwrap();
        let mut planes = Planes::<u64, 2>::open(at("planes"), 10).unwrap();
        std::fs::rename(at("array"), at("moved")).unwrap();
        std::fs::remove_file(at("planes")).unwrap();
        let others = Versions::<u64, 2>::open(at("array"), 10, |_| 9).unwrap();
        array.update(|update| update.set(3, 7));
        planes.step(|_, new| new.fill(5)).unwrap();
        array.backup(at("copy")).unwrap();
        planes.backup(at("copy of planes")).unwrap();
        drop((array, planes, others));
        let copy = Versions::<u64, 2>::open(at("copy"), 10, |_| unreachable!()).unwrap();
        assert_eq!((*copy.get(0), *copy.get(3)), (1, 7));
        let copy = Planes::<u64, 2>::open(at("copy of planes"), 10).unwrap();
        assert_eq!(copy.newest(), [5; 10]);
    }
}

/// It knows of no update since the fork(2), and has no thread that makes any durable.
#[test]
fn an_array_that_a_forked_child_drops_stays_its_parents() {
    for folder in folders() {
        for (name, options) in [("thread", Options::new()), ("inline", Options::new().inline())] {
            let path = folder.path().join(name);
            let mut array = Versions::<u64, 2>::open_with(&options, &path, 10, |_| 0).unwrap();
            array.update(|update| update.set(0, 1));
            let mut ends = [0; 2];
            // SAFETY: the child takes no lock that a thread of the parent may have held, and ends without unwinding.
            let child = unsafe {
                assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
                libc::fork()
            };
            if child == 0 {
                // SAFETY: it waits for the parent's updates, and ends the child.
                unsafe { libc::read(ends[0], [0_u8].as_mut_ptr().cast(), 1) };
                let dropped = catch_unwind(AssertUnwindSafe(|| drop(array)));
                // SAFETY: it ends the child.
                unsafe { libc::_exit(i32::from(dropped.is_err())) };
            }
            (2..20).for_each(|value| array.update(|update| update.set(0, value)));
            array.durable().unwrap();
            let mut status = -1;
            // SAFETY: the ends are those of the pipe, and the status is this function's own.
            unsafe {
                assert_eq!(libc::write(ends[1], [7_u8].as_ptr().cast(), 1), 1);
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                assert_eq!(ends.map(|end| libc::close(end)), [0; 2]);
            }
            assert_eq!(status, 0);
            // As after a kill: nothing more is made durable.
            let read = twinpage_versions::Reader::<u64, 2>::open(&path).unwrap();
            assert_eq!(read.read(|view| view.get(0)).unwrap(), 19);
            drop(array);
            let array = Versions::<u64, 2>::open(&path, 10, |_| unreachable!()).unwrap();
            assert_eq!(*array.get(0), 19);
        }
    }
}
