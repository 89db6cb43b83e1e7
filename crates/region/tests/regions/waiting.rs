//! No thread waits for ever: updates that need each other go on while a cut waits for them, and a checkpoint that
//! cannot be made says which thread is in the way. Tickets are of one region.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;
use twinpage::collections::Vec;
use twinpage::{Error, Region, Shared};

fn open(folder: &tempfile::TempDir, name: &str) -> Region {
    let options = Region::options().every(Duration::from_millis(1));
    options.open(folder.path().join(name)).unwrap()
}

/// Waits for a cut that stays closed longer than any patience at the start.
fn long() {
    std::thread::sleep(Duration::from_millis(60));
}

/// One thread takes a lock and then enters an update, another takes it inside one.
#[test]
fn a_lock_taken_before_and_inside_updates() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let region = open(&folder, "lock");
    let count = Mutex::new(region.root::<u64>("count").unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..5 {
                let mut count = count.lock().unwrap();
                long();
                region.update(|u| *count.get_mut(u) += 1);
            }
        });
        scope.spawn(|| (0..5).for_each(|_| region.update(|u| *count.lock().unwrap().get_mut(u) += 1)));
    });
    assert_eq!(region.read(|v| *count.lock().unwrap().get(v)), 10);
    region.durable().unwrap();
}

/// The lock of a shared root is taken inside updates and readings only: threads that change two of them, with long
/// updates while cuts are wanted, all come to an end, and every change is there.
#[test]
fn shared_roots_are_changed_by_many_threads() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let (region, other) = (open(&folder, "shared"), open(&folder, "other"));
    let [a, b] = ["a", "b"].map(|name| Shared::new(region.root::<Vec<u64>>(name).unwrap()));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (region, a, b) = (&region, &a, &b);
            scope.spawn(move || {
                for round in 0..100 {
                    region.update(|u| {
                        a.lock(u).push(thread);
                        if round % 50 == 0 {
                            long();
                        }
                        b.lock(u).push(thread);
                    });
                    assert!(region.read(|v| a.lock_to_read(v).contains(&thread)));
                }
            });
        }
    });
    region.durable().unwrap();
    for list in [a, b] {
        let in_another = std::panic::AssertUnwindSafe(|| other.update(|u| list.lock(u).clear()));
        assert!(std::panic::catch_unwind(in_another).is_err());
        let list = list.into_root();
        assert_eq!(region.read(|v| list.get(v).len()), 400);
    }
}

/// The lock of a shared root is held inside an update only, also to read: an update of the thread that holds it waits
/// for no cut, and a checkpoint is refused to it, of any region, with the lock's name.
#[test]
fn a_lock_held_to_read_keeps_out_cuts() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = || Region::options().patience(Duration::ZERO);
    let region = options().open(folder.path().join("region")).unwrap();
    let other = options().open(folder.path().join("other")).unwrap();
    let count = Shared::new(region.root::<u64>("count").unwrap());
    let mut written = region.root::<u64>("written").unwrap();
    region.update(|u| *count.lock(u) += 7);
    let refused = region.read(|v| {
        let held = count.lock_to_read(v);
        let cut = std::thread::scope(|scope| scope.spawn(|| region.checkpoint()).join().unwrap());
        assert!(matches!(cut, Err(Error::Busy { .. })), "{cut:?}");
        region.update(|u| *written.get_mut(u) = *held);
        let ticket = region.ticket();
        [
            region.durable(),
            region.checkpoint().map(drop),
            region.wait(ticket),
            other.durable(),
        ]
    });
    for refused in refused {
        let refused = refused.unwrap_err().to_string();
        for part in ["count", file!(), "let the lock go"] {
            assert!(refused.contains(part), "{refused}");
        }
    }
    region.durable().unwrap();
    other.durable().unwrap();
    assert_eq!(region.read(|v| *written.get(v)), 7);
}

/// A thread that forgets a lock is inside an update for ever.
#[test]
fn a_close_with_a_forgotten_lock_says_so() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("forgotten");
    let refused = std::thread::spawn({
        let path = path.clone();
        move || {
            let region = Region::open(path).unwrap();
            let count = Shared::new(region.root::<u64>("count").unwrap());
            region.update(|u| *count.lock(u) = 5);
            region.durable().unwrap();
            region.update(|u| std::mem::forget(count.lock_to_read(u)));
            drop(count);
            region.close().unwrap_err().to_string()
        }
    });
    let refused = refused.join().unwrap();
    for part in ["closing a region", "count", file!(), "let the lock go"] {
        assert!(refused.contains(part), "{refused}");
    }
    let region = Region::open(&path).unwrap();
    let count = region.root::<u64>("count").unwrap();
    assert_eq!(region.read(|v| *count.get(v)), 5);
}

/// A thread that takes the lock of a shared root twice is told so, with both places, and can go on.
#[test]
fn a_lock_is_taken_once_by_a_thread() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let region = open(&folder, "twice");
    let [a, b] = ["a", "b"].map(|name| Shared::new(region.root::<u64>(name).unwrap()));
    let twice: [&dyn Fn(&twinpage::Update<'_>); 3] = [
        &|u| *a.lock(u) += *a.lock_to_read(u),
        &|u| assert_eq!(*a.lock_to_read(u), *a.lock(u)),
        &|u| {
            let (_first, _other) = (a.lock(u), b.lock(u));
            drop(a.lock(u));
        },
    ];
    for twice in twice {
        let told = std::panic::AssertUnwindSafe(|| region.update(|u| twice(u)));
        let told = std::panic::catch_unwind(told).unwrap_err();
        let told = told.downcast::<String>().unwrap();
        assert!(told.contains("root \"a\"") && told.contains(file!()), "{told}");
        region.update(|u| *a.lock(u) += *b.lock(u) + 1);
    }
    region.durable().unwrap();
    assert_eq!(region.read(|v| *a.lock_to_read(v)), 3);
}

/// Two threads update two regions, one inside the other, in opposite orders.
#[test]
fn two_regions_in_opposite_orders() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let (a, b) = (open(&folder, "a"), open(&folder, "b"));
    let nested = |first: &Region, second: &Region, name: &str| {
        let mut one = first.root::<u64>(name).unwrap();
        let mut two = second.root::<u64>(name).unwrap();
        for _ in 0..5 {
            first.update(|u| {
                *one.get_mut(u) += 1;
                long();
                second.update(|u| *two.get_mut(u) += 1);
            });
        }
        assert_eq!(
            (first.read(|v| *one.get(v)), second.read(|v| *two.get(v))),
            (5, 5)
        );
    };
    std::thread::scope(|scope| {
        scope.spawn(|| nested(&a, &b, "here"));
        scope.spawn(|| nested(&b, &a, "there"));
    });
}

/// An update hands work to other threads, which enter the region themselves.
#[test]
fn threads_of_an_update_enter_it_too() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let region = open(&folder, "scope");
    let mut list = region.root::<Vec<u64>>("list").unwrap();
    region.update(|u| list.get_mut(u).resize(1000, 0));
    region.update(|u| {
        let (low, high) = list.get_mut(u).as_mut_slice().split_at_mut(500);
        std::thread::scope(|scope| {
            for half in [low, high] {
                scope.spawn(|| {
                    long();
                    region.update(|_| half.fill(1));
                });
            }
        });
    });
    assert_eq!(region.read(|v| list.get(v).iter().sum::<u64>()), 1000);
}

/// A thread that holds a lock asks for a checkpoint, while an update waits for that lock: neither can go on. The
/// checkpoint is given up with an error that names both, and all goes on.
#[test]
fn a_checkpoint_that_cannot_be_made_names_who_is_in_the_way() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    for every in [None, Some(Duration::from_millis(1))] {
        let mut options = Region::options().patience(Duration::from_millis(100));
        if let Some(every) = every {
            options = options.every(every);
        }
        let region = options.open(folder.path().join(format!("{every:?}"))).unwrap();
        let count = Mutex::new(region.root::<u64>("count").unwrap());
        let mut begun = region.root::<u64>("begun").unwrap();
        let (inside, is_inside) = channel();
        std::thread::scope(|scope| {
            let held = count.lock().unwrap();
            let count = &count;
            let region = &region;
            let updating = std::thread::Builder::new().name("updates".into());
            let update = move || {
                region.update(|u| {
                    *begun.get_mut(u) += 1; // so that there is something to make durable
                    inside.send(()).unwrap();
                    *count.lock().unwrap().get_mut(u) += 1;
                });
            };
            updating.spawn_scoped(scope, update).unwrap();
            is_inside.recv().unwrap();
            let ticket = region.ticket();
            for error in [region.durable().unwrap_err(), region.wait(ticket).unwrap_err()] {
                let Error::Busy { inside, waiting, .. } = &error else {
                    panic!("{error}")
                };
                assert!(
                    inside.contains("(updates)") && waiting.contains("thread "),
                    "{error}"
                );
            }
            assert!(!region.is_durable(ticket).unwrap());
            drop(held);
        });
        region.durable().unwrap();
        region.close().unwrap();
    }
}

#[test]
fn a_ticket_is_of_one_region() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let (a, b) = (open(&folder, "a"), open(&folder, "b"));
    a.durable().unwrap();
    let ticket = b.update(|_| b.ticket());
    for refused in [a.is_durable(ticket).map(|_| ()), a.wait(ticket)] {
        let refused = refused.unwrap_err();
        assert!(refused.to_string().contains("another region"), "{refused}");
    }
    b.wait(ticket).unwrap();
    assert!(b.is_durable(ticket).unwrap());
}

/// A ticket that was taken in an update covers all of it: no checkpoint passes over an update that has written nothing
/// yet.
#[test]
fn a_ticket_covers_what_its_update_writes_later() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = Region::options().patience(Duration::ZERO);
    let region = options.open(folder.path().join("later")).unwrap();
    let mut count = region.root::<u64>("count").unwrap();
    region.durable().unwrap();
    let ticket = region.update(|u| {
        let ticket = region.ticket();
        // It waits for the update, or finds that there is nothing to do.
        let other = std::thread::scope(|scope| scope.spawn(|| region.checkpoint()).join().unwrap());
        assert!(matches!(other, Err(Error::Busy { .. })), "{other:?}");
        *count.get_mut(u) += 1;
        ticket
    });
    assert!(!region.is_durable(ticket).unwrap());
    region.durable().unwrap();
    assert!(region.is_durable(ticket).unwrap());
    let epoch = region.epoch();
    region.durable().unwrap();
    assert_eq!(region.epoch(), epoch, "nothing was written since");
}
