//! What goes wrong below a region, and copies made while it is used: nothing is lost, nothing lies.

use crate::support::{Bytes, folders, when_free};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use twinpage::collections::{HashMap, Vec as List};
use twinpage::inspect::inspect;
use twinpage::{Error, Region, SchemeKind};
use twinpage_core::Geometry;
use twinpage_core::crash::Image;
use twinpage_os::faulty::{Call, Fault, Faults, Faulty};

fn faulty(scheme: SchemeKind) -> (Region, Faults) {
    let (medium, faults) = Faulty::new(Image::new(8));
    let region = Region::options().scheme(scheme).open_on(medium, Geometry::MEMORY);
    (region.unwrap(), faults)
}

#[test]
fn after_a_failed_flush_nothing_is_durable_and_all_can_be_saved() {
    let [folder, _] = folders();
    for (number, fault) in [Fault::Refused, Fault::HalfDone].into_iter().enumerate() {
        let (region, faults) = faulty(SchemeKind::DualPage);
        let bytes = Bytes::of(&region);
        bytes.grow(1 << 20);
        bytes.fill(0, 1 << 20, 1);
        region.checkpoint().unwrap();
        let epoch = region.epoch();
        faults.plan(Call::Fence, 0, fault);
        bytes.fill(1000, 1000, 2);
        let ticket = region.ticket();
        for _ in 0..3 {
            let error = region.checkpoint().unwrap_err();
            assert!(
                matches!(&error, Error::Poisoned(cause) if matches!(&**cause, twinpage_core::Error::Io { what, .. } if what.contains("planned"))),
                "{error}"
            );
            assert!(error.to_string().contains("save_as"));
            assert!(region.durable().is_err() && region.wait(ticket).is_err());
            assert!(region.is_durable(ticket).is_err());
        }
        assert_eq!(region.epoch(), epoch);
        // The program goes on, and can be saved elsewhere.
        bytes.fill(5000, 100, 3);
        let path = folder.path().join(number.to_string());
        region.save_as(&path).unwrap();
        assert!(region.save_as(&path).unwrap_err().to_string().contains("exists"));
        assert!(region.backup(folder.path().join("other")).is_err());
        let refused = region.update(|_| region.save_as(folder.path().join("third")).unwrap_err());
        assert!(refused.to_string().contains("after the update"), "{refused}");
        assert!(region.close().is_err());
        let region = when_free(|| Region::open(&path));
        let bytes = Bytes::of(&region);
        assert!(bytes.are(0, 1000, 1) && bytes.are(1000, 1000, 2) && bytes.are(2000, 3000, 1));
        assert!(bytes.are(5000, 100, 3) && bytes.are(5100, (1 << 20) - 5100, 1));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_full_medium_loses_a_checkpoint_and_nothing_else() {
    for scheme in [SchemeKind::DualPage, SchemeKind::Packed] {
        let (region, faults) = faulty(scheme);
        let bytes = Bytes::of(&region);
        bytes.grow(16 << 20);
        bytes.fill(0, 1 << 20, 1);
        region.checkpoint().unwrap();
        let epoch = region.epoch();
        faults.plan(Call::Grow, 0, Fault::NoRoom);
        bytes.fill(0, 16 << 20, 2);
        region.update(|update| {
            // SAFETY: nothing lives there.
            unsafe { update.place().discard(0..1 << 19) }.unwrap();
        });
        let ticket = region.ticket();
        for _ in 0..2 {
            let error = region.checkpoint().unwrap_err();
            assert!(matches!(error, Error::Full(_)), "{error}");
            assert_eq!(region.epoch(), epoch);
        }
        assert!(faults.struck() > 0 && region.is_durable(ticket).is_err());
        bytes.fill(1 << 20, 4096, 3);
        faults.make_room();
        region.durable().unwrap();
        assert!(region.is_durable(ticket).unwrap());
        assert_eq!(region.epoch(), epoch + 1);
        let [folder, _] = folders();
        let path = folder.path().join("copy");
        region.backup(&path).unwrap();
        region.close().unwrap();
        let region = when_free(|| Region::open(&path));
        let bytes = Bytes::of(&region);
        assert!(bytes.are(0, 1 << 19, 0) && bytes.are(1 << 19, 1 << 19, 2));
        assert!(bytes.are(1 << 20, 4096, 3) && bytes.are((1 << 20) + 4096, (15 << 20) - 4096, 2));
    }
}

#[test]
fn a_backup_is_of_one_instant_while_threads_go_on() {
    const WORDS: usize = (8 << 20) / 8;
    for folder in folders() {
        let path = folder.path().join("region");
        let region = Region::options()
            .every(Duration::from_millis(1))
            .open(&path)
            .unwrap();
        let bytes = Bytes::of(&region);
        bytes.grow(WORDS * 8 + 4096);
        bytes.fill(0, WORDS * 4, 1);
        let done = AtomicBool::new(false);
        let copies = std::thread::scope(|scope| {
            for own in 0..2 {
                let (region, done) = (&region, &done);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::new();
                    let count = WORDS * 8 + own * 64;
                    while !done.load(Ordering::Relaxed) {
                        // A word, its twin in the other half, and how many there were.
                        region.update(|_| {
                            let at = (random.usize(..WORDS / 4) * 2 + own) * 8;
                            let value = random.u64(..);
                            bytes.set_word(at, value);
                            bytes.set_word(count, bytes.word(count) + 1);
                            bytes.set_word(at + WORDS * 4, !value);
                        });
                    }
                });
            }
            let copies: Vec<_> = (0..3)
                .map(|number| {
                    let path = folder.path().join(number.to_string());
                    let before = bytes.word(WORDS * 8);
                    let epoch = region.backup(&path).unwrap();
                    (path, before, epoch)
                })
                .collect();
            done.store(true, Ordering::Relaxed);
            copies
        });
        assert!(copies.is_sorted_by_key(|(.., epoch)| *epoch));
        region.close().unwrap();
        for (path, before, _) in copies {
            let region = when_free(|| Region::open(&path));
            let bytes = Bytes::of(&region);
            assert!(bytes.word(WORDS * 8) >= before);
            for at in (0..WORDS * 4).step_by(8) {
                let (one, twin) = (bytes.word(at), bytes.word(at + WORDS * 4));
                let untouched = one == u64::from_ne_bytes([1; 8]) && twin == 0;
                assert!(untouched || twin == !one, "word at {at}: {one:x} and {twin:x}");
            }
        }
    }
}

#[test]
fn no_damage_to_a_file_makes_a_panic() {
    let [folder, _] = folders();
    let (path, bad) = (folder.path().join("region"), folder.path().join("bad"));
    {
        let region = Region::options()
            .scheme(SchemeKind::DualPage)
            .open(&path)
            .unwrap();
        let mut map = region.root::<HashMap<u64, List<u64>>>("map").unwrap();
        for key in 0..200 {
            region.update(|u| {
                let mut list = List::new_in(u.heap());
                list.extend(0..key % 30);
                map.get_mut(u).insert(key, list);
            });
            if key % 20 == 0 {
                region.checkpoint().unwrap();
            }
        }
    }
    let whole = std::fs::read(&path).unwrap();
    let used: Vec<usize> = (0..whole.len()).filter(|&at| whole[at] != 0).collect();
    let seed = twinpage_campaign::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut refused, mut damaged) = (0, 0);
    for _ in 0..twinpage_campaign::either(300, 20_000) {
        let mut bytes = whole.clone();
        for _ in 0..random.usize(1..4) {
            let at = used[random.usize(..used.len())];
            bytes[at] = match random.u8(..3) {
                0 => bytes[at] ^ 1 << random.u8(..8),
                1 => 0xff,
                _ => random.u8(..),
            };
        }
        if random.u8(..8) == 0 {
            bytes.truncate(random.usize(..whole.len()));
        }
        std::fs::write(&bad, &bytes).unwrap();
        match inspect(&bad) {
            Ok(look) => {
                let (store, heap) = look.check().unwrap();
                let sound = store.is_empty() && heap.is_some_and(|heap| heap.is_sound());
                damaged += u32::from(!sound);
                drop(look);
                // What can be opened can be asked for its roots, whatever the answer.
                if let Ok(region) = Region::open(&bad) {
                    let _ = region.roots();
                }
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 0 && damaged > 0, "{refused} refused, {damaged} damaged");
}

#[test]
fn a_file_that_cannot_be_made_is_called_by_its_name() {
    let error = Region::open("/proc/orders.twin").unwrap_err().to_string(); // where nothing can be made
    assert!(error.starts_with("making /proc/orders.twin: "), "{error}");
}
