//! Failure-atomic sections: all or nothing, durable, one after the other; memory as it was after a failure.

mod costs;
mod faults;
mod flushes;
mod kills;
mod schemes;
mod space;
#[path = "../support/mod.rs"]
mod support;
mod undo;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use support::{folders, when_free};
use twinpage::collections::Vec as List;
use twinpage::{Durability, Error, Handle, Options, Region, Result, SchemeKind, Section};
use twinpage_core::crash::Image;
use twinpage_core::{Geometry, PageId, ProductScheme, Scheme};
use twinpage_os::faulty::{Call, Fault, Faults, Faulty};

const HOUR: Duration = Duration::from_secs(3600);

fn sections() -> Options {
    Region::options().sections()
}

fn in_memory() -> Region {
    sections().open_on(Image::new(8), Geometry::MEMORY).unwrap()
}

/// All bytes of a region, as they are in memory.
fn bytes_of(region: &Region) -> Vec<u8> {
    let place = region.place();
    region.read(|_| {
        // SAFETY: usable bytes, which do not change during a reading.
        unsafe { std::slice::from_raw_parts(place.base(), place.bytes()) }.to_vec()
    })
}

/// A section that cannot fail by itself.
fn run(region: &Region, work: impl for<'r> FnOnce(&Section<'r>)) -> Result<()> {
    region.atomic(|section| {
        work(section);
        Ok(())
    })
}

fn add(region: &Region, count: &Handle<u64>) -> Result<u64> {
    region.atomic(|section| {
        let count = count.write(section);
        *count += 1;
        Ok(*count)
    })
}

#[test]
fn a_region_is_opened_for_sections_or_for_epochs() {
    for folder in folders() {
        let path = folder.path().join("region");
        let both = sections()
            .every(Duration::from_millis(1))
            .open(&path)
            .unwrap_err();
        assert!(both.to_string().contains("every"), "{both}");
        assert!(!path.exists());
        let both = sections().memory_budget(1 << 20).open(&path).unwrap_err();
        assert!(both.to_string().contains("budget"), "{both}");

        let region = when_free(|| sections().open(&path));
        let count = region.shared::<u64>("count").unwrap();
        assert_eq!(add(&region, &count).unwrap(), 1);
        assert!(matches!(region.checkpoint(), Err(Error::Invalid(why)) if why.contains("sections")));
        assert!(matches!(region.root::<u64>("other"), Err(Error::Invalid(why)) if why.contains("shared")));
        let update = catch_unwind(AssertUnwindSafe(|| region.update(|_| ()))).unwrap_err();
        assert!(update.downcast_ref::<&str>().unwrap().contains("atomic"));
        drop(count);
        region.close().unwrap();

        // The file does not know: the next opening chooses.
        let region = when_free(|| Region::open(&path));
        let mut count = region.root::<u64>("count").unwrap();
        region.update(|u| *count.get_mut(u) += 1);
        region.durable().unwrap();
        assert!(matches!(region.shared::<u64>("count"), Err(Error::Invalid(why)) if why.contains("epochs")));
        let refused = region.atomic(|_| Ok::<_, Error>(())).unwrap_err();
        assert!(refused.to_string().contains("epochs"), "{refused}");
        drop(count);
        region.close().unwrap();

        let region = when_free(|| sections().open(&path));
        let count = region.shared::<u64>("count").unwrap();
        assert_eq!(region.read(|view| *count.read(view)), 2);
    }
}

#[test]
fn a_section_is_durable_when_it_returns() {
    for folder in folders() {
        let path = folder.path().join("region");
        let region = when_free(|| sections().open(&path));
        let count = region.shared::<u64>("count").unwrap();
        let at = region.read(|view| region.place().offset_of(&raw const *count.read(view)));
        for _ in 0..3 {
            let number = add(&region, &count).unwrap();
            // What is in the file now is what a kill would leave.
            let image = Image::from_bytes(std::fs::read(&path).unwrap(), 8);
            let (store, _) = ProductScheme::recover(image).unwrap();
            let mut line = [0; 64];
            store
                .read(PageId(at as u64 / 4096), at % 4096 / 64, &mut line)
                .unwrap();
            assert_eq!(line[at % 64..][..8], number.to_ne_bytes());
        }
        let epoch = region.epoch();
        region
            .atomic(|section| Ok::<_, Error>(*count.read(section)))
            .unwrap();
        assert_eq!(
            region.epoch(),
            epoch,
            "a section that changes nothing commits nothing"
        );
    }
}

/// Its record is valid by the checksums of its lines; once it is durable they are damaged, not torn.
#[test]
fn damage_to_the_last_section_is_told() {
    const VALUE: u64 = 0x7769_7473_2d77_656c;
    let [_, folder] = folders();
    for scheme in SchemeKind::PRODUCTS {
        let path = folder.path().join(scheme.name());
        let options = sections().durability(Durability::Disk).scheme(scheme);
        let region = options.clone().open(&path).unwrap();
        let list = region.shared::<List<u64>>("list").unwrap();
        run(&region, |section| list.write(section).resize(2000, 1)).unwrap();
        run(&region, |section| list.write(section)[700] = VALUE).unwrap();
        drop(list);
        region.close().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let found: Vec<usize> = bytes
            .windows(8)
            .enumerate()
            .filter(|(_, word)| *word == VALUE.to_ne_bytes())
            .map(|(at, _)| at)
            .collect();
        assert!(!found.is_empty(), "{scheme}");
        found.iter().for_each(|&at| bytes[at] ^= 4);
        std::fs::write(&path, bytes).unwrap();
        let told = when_free(|| match options.clone().checked().open(&path) {
            Err(error @ (Error::Locked(_) | Error::Taken { .. })) => Err(error),
            other => Ok(other.unwrap_err()),
        });
        assert!(told.to_string().contains("damaged"), "{scheme}: {told}");
    }
}

#[test]
fn an_error_a_panic_and_an_abort_undo_everything() {
    let region = in_memory();
    let list = region.shared::<List<u64>>("list").unwrap();
    region
        .atomic(|section| -> Result<()> {
            list.write(section).extend(0..100);
            Ok(())
        })
        .unwrap();
    let before = bytes_of(&region);
    let spoil = |section: &Section<'_>| {
        let list = list.write(section);
        list.extend(0..10_000);
        list.retain(|number| number % 3 == 0);
    };
    let refused = region.atomic(|section| {
        spoil(section);
        Err::<(), _>(Error::Invalid("on purpose".into()))
    });
    assert!(matches!(refused, Err(Error::Invalid(why)) if why == "on purpose"));
    assert!(bytes_of(&region)[..before.len()] == before);

    let aborted = region.atomic(|section| -> Result<()> {
        spoil(section);
        let _ = section.abort();
        Ok(())
    });
    assert!(matches!(aborted, Err(Error::Aborted)));
    assert!(bytes_of(&region)[..before.len()] == before);

    let panicked = catch_unwind(AssertUnwindSafe(|| {
        region.atomic(|section| -> Result<()> {
            spoil(section);
            panic!("on purpose");
        })
    }));
    assert!(panicked.is_err());
    assert!(bytes_of(&region)[..before.len()] == before);
    assert_eq!(region.read(|view| list.read(view).len()), 100);
    assert!(region.check().unwrap().is_sound());
    // The turn is free.
    run(&region, |section| list.write(section).push(7)).unwrap();
}

#[test]
fn a_section_inside_another_is_part_of_it() {
    let region = in_memory();
    let [a, b] = ["a", "b"].map(|name| region.shared::<u64>(name).unwrap());
    let both = || {
        (
            region.read(|view| *a.read(view)),
            region.read(|view| *b.read(view)),
        )
    };
    let epoch = region.epoch();
    region
        .atomic(|outer| -> Result<()> {
            *a.write(outer) += 1;
            // The same function twice: what an inner section took is free when it ends.
            add(&region, &b)?;
            add(&region, &b)?;
            assert_eq!(*b.read(outer), 2);
            assert_eq!(region.epoch(), epoch);
            Ok(())
        })
        .unwrap();
    assert_eq!((both(), region.epoch()), ((1, 2), epoch + 1));

    // One that fails makes the outer one fail, whatever that makes of it.
    let outer = region.atomic(|outer| -> Result<()> {
        *a.write(outer) += 1;
        let inner = region.atomic(|inner| {
            *b.write(inner) += 1;
            Err::<(), _>(Error::Invalid("inner".into()))
        });
        assert!(matches!(inner, Err(Error::Invalid(_))));
        Ok(())
    });
    assert!(matches!(outer, Err(Error::Aborted)));
    let outer = region.atomic(|outer| -> Result<()> {
        *a.write(outer) += 1;
        let inner = catch_unwind(AssertUnwindSafe(|| {
            region.atomic(|inner| -> Result<()> {
                *b.write(inner) += 1;
                panic!("on purpose");
            })
        }));
        assert!(inner.is_err());
        Ok(())
    });
    assert!(matches!(outer, Err(Error::Aborted)));
    assert_eq!((both(), region.epoch()), ((1, 2), epoch + 1));
}

/// What panics, in a section of its own that is undone by it.
fn panic_of(region: &Region, work: impl for<'r> FnOnce(&Section<'r>)) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| {
        region.atomic(|section| {
            work(section);
            Ok::<_, Error>(())
        })
    }));
    *panic.unwrap_err().downcast::<String>().unwrap()
}

#[test]
fn no_section_has_a_root_twice() {
    let region = in_memory();
    let count = region.shared::<u64>("count").unwrap();
    let twice = panic_of(&region, |section| {
        let (_one, _two) = (count.write(section), count.write(section));
    });
    assert!(
        twice.contains("written") && twice.contains("take it once"),
        "{twice}"
    );
    panic_of(&region, |section| {
        let (_one, _two) = (count.read(section), count.write(section));
    });
    panic_of(&region, |section| {
        let (_one, _two) = (count.write(section), count.read(section));
    });
    panic_of(&region, |outer| {
        let _one = count.write(outer);
        let _ = region.atomic(|inner| Ok::<_, Error>(*count.read(inner)));
    });
    panic_of(&region, |outer| {
        let _one = count.read(outer);
        let _ = run(&region, |inner| *count.write(inner) += 1);
    });
    // Read inside, with the outer section: the reference is there until that one ends.
    panic_of(&region, |outer| {
        let mut found = None;
        let _ = region.atomic(|inner| {
            let _ = count.read(inner);
            found = Some(count.read(outer));
            Ok::<_, Error>(())
        });
        let _two = count.write(outer);
        assert_eq!(found, Some(&0));
    });
    // Reading twice is free, and so is the next section.
    region
        .atomic(|outer| {
            let (one, two) = (count.read(outer), count.read(outer));
            assert_eq!(one, two);
            run(&region, |inner| assert_eq!(count.read(inner), one))
        })
        .unwrap();
    assert_eq!(add(&region, &count).unwrap(), 1);
    assert!(region.shared::<u64>("count").is_err(), "one handle of a name");
}

#[test]
fn what_would_wait_for_itself_is_refused() {
    let region = in_memory();
    let count = region.shared::<u64>("count").unwrap();
    let told = |error: Error| {
        assert!(
            matches!(&error, Error::Invalid(why) if why.contains("wait for itself")),
            "{error}"
        );
    };
    let ticket = region.ticket();
    region
        .atomic(|_| {
            told(region.durable().unwrap_err());
            told(region.wait(ticket).unwrap_err());
            told(region.shared::<u64>("other").unwrap_err());
            told(region.remove_root("other").unwrap_err());
            told(region.save_as("/nowhere").unwrap_err());
            Ok::<_, Error>(())
        })
        .unwrap();
    region.read(|view| {
        told(add(&region, &count).unwrap_err());
        told(region.durable().unwrap_err());
        told(region.shared::<u64>("other").unwrap_err());
        assert_eq!(region.read(|inner| *count.read(inner)), *count.read(view));
    });
    let panic = catch_unwind(AssertUnwindSafe(|| {
        region.atomic(|_| Ok::<_, Error>(region.read(|view| *count.read(view))))
    }));
    assert!(
        panic
            .unwrap_err()
            .downcast_ref::<&str>()
            .unwrap()
            .contains("read with the section")
    );
    let other = in_memory();
    let elsewhere = panic_of(&other, |section| *count.write(section) = 7);
    assert!(elsewhere.contains("another region"), "{elsewhere}");
    add(&region, &count).unwrap();
}

#[test]
fn a_section_within_a_bound_is_waited_for_later() {
    for folder in folders() {
        let region = sections().open(folder.path().join("region")).unwrap();
        let count = region.shared::<u64>("count").unwrap();
        let later = |bound| {
            region.atomic_within(bound, |section| {
                *count.write(section) += 1;
                Ok::<_, Error>(region.ticket())
            })
        };
        let epoch = region.epoch();
        let tickets = [(); 5].map(|()| later(HOUR).unwrap());
        assert_eq!(region.epoch(), epoch);
        assert!(!region.is_durable(tickets[0]).unwrap());
        region.wait(tickets[4]).unwrap();
        assert_eq!(region.epoch(), epoch + 1, "one commit for all");
        assert!(tickets.iter().all(|&ticket| region.is_durable(ticket).unwrap()));
        region.durable().unwrap();
        assert_eq!(region.epoch(), epoch + 1);

        let ticket = later(Duration::from_millis(1)).unwrap();
        while !region.is_durable(ticket).unwrap() {
            std::thread::yield_now();
        }
        // A later one with a shorter bound is not held up by it.
        let _ = later(Duration::MAX).unwrap();
        let ticket = later(Duration::ZERO).unwrap();
        while !region.is_durable(ticket).unwrap() {
            std::thread::yield_now();
        }
        let _ = later(HOUR).unwrap();
        drop(count);
        region.close().unwrap();
        let region = sections().open(folder.path().join("region")).unwrap();
        let count = region.shared::<u64>("count").unwrap();
        assert_eq!(region.read(|view| *count.read(view)), 9);
    }
}

/// Words of two threads on the same lines: readers see whole sections only, and in the end all is there.
#[test]
fn readers_never_see_half_a_section() {
    const PAIRS: usize = 500;
    let rounds = twinpage_campaign::either(400, 20_000);
    for folder in folders() {
        let path = folder.path().join("region");
        let region = when_free(|| sections().open(&path));
        let words = region.shared::<List<u64>>("words").unwrap();
        run(&region, |section| words.write(section).resize(4 * PAIRS, 0)).unwrap();
        let done = AtomicBool::new(false);
        let looks = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let writers = [0, 1].map(|own| {
                let (region, words) = (&region, &words);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::new();
                    for round in 0..rounds {
                        let fails = random.u8(..4) == 0;
                        let outcome = region.atomic(|section| {
                            let words = words.write(section);
                            let at = random.usize(..PAIRS) * 2 + own;
                            words[at] += 1;
                            words[2 * PAIRS + at] += 1;
                            if fails { Err(section.abort()) } else { Ok(()) }
                        });
                        assert_eq!(outcome.is_err(), fails, "round {round}");
                    }
                })
            });
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    region.read(|view| {
                        let (left, right) = words.read(view).split_at(2 * PAIRS);
                        assert_eq!(left, right);
                    });
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
            for writer in writers {
                writer.join().unwrap();
            }
            while looks.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            done.store(true, Ordering::Relaxed);
        });
        let memory = bytes_of(&region);
        drop(words);
        region.close().unwrap();
        let region = when_free(|| sections().open(&path));
        assert!(
            bytes_of(&region) == memory,
            "the file has another state than memory had"
        );
    }
}

fn faulty(scheme: SchemeKind) -> (Region, Faults) {
    let (medium, faults) = Faulty::new(Image::new(8));
    let region = sections().scheme(scheme).open_on(medium, Geometry::MEMORY);
    (region.unwrap(), faults)
}

#[test]
fn a_full_medium_undoes_the_section_and_nothing_else() {
    for scheme in [SchemeKind::DualPage, SchemeKind::Packed] {
        let (region, faults) = faulty(scheme);
        let list = region.shared::<List<u64>>("list").unwrap();
        let count = region.shared::<u64>("count").unwrap();
        let grow = |section: &Section<'_>| list.write(section).resize(2_000_000, 7);
        run(&region, |section| list.write(section).extend(0..1000)).unwrap();
        let before = bytes_of(&region);
        let epoch = region.epoch();
        faults.plan(Call::Grow, 0, Fault::NoRoom);
        let undone = run(&region, grow);
        assert!(matches!(undone, Err(Error::Undone(_))), "{undone:?}");
        assert!(bytes_of(&region)[..before.len()] == before && region.epoch() == epoch);
        // One without a waiter, and those that were built on it.
        let tickets = [(); 3].map(|()| {
            region
                .atomic_within(HOUR, |section| {
                    let count = count.write(section);
                    *count += 1;
                    if *count == 1 {
                        grow(section);
                    }
                    Ok::<_, Error>(region.ticket())
                })
                .unwrap()
        });
        let undone = add(&region, &count);
        assert!(matches!(undone, Err(Error::Undone(_))), "{undone:?}");
        for ticket in tickets {
            assert!(matches!(region.wait(ticket), Err(Error::Undone(_))));
            assert!(matches!(region.is_durable(ticket), Err(Error::Undone(_))));
        }
        assert!(bytes_of(&region)[..before.len()] == before && region.epoch() == epoch);
        assert!(faults.struck() > 0);
        faults.make_room();
        // What there is now is durable, and all goes on.
        region.durable().unwrap();
        assert!(region.is_durable(region.ticket()).unwrap());
        assert_eq!(add(&region, &count).unwrap(), 1);
        run(&region, grow).unwrap();
        assert!(tickets.iter().all(|&ticket| region.is_durable(ticket).is_err()));
        assert!(region.check().unwrap().is_sound());
    }
}

/// A section of another region is refused before anything is noted of the root.
#[test]
fn a_root_stays_taken_when_another_region_is_refused_it() {
    let (region, other) = (in_memory(), in_memory());
    let (count, others) = (
        region.shared::<u64>("count").unwrap(),
        other.shared::<u64>("count").unwrap(),
    );
    // Its scopes have other numbers.
    for _ in 0..5 {
        add(&other, &others).unwrap();
    }
    run(&region, |section| {
        *count.write(section) += 1;
        let elsewhere = panic_of(&other, |elsewhere| assert_eq!(*count.read(elsewhere), 1));
        assert!(elsewhere.contains("another region"), "{elsewhere}");
        let again = catch_unwind(AssertUnwindSafe(|| *count.write(section) += 1));
        assert!(again.is_err(), "two `&mut` to one value");
    })
    .unwrap();
}
