//! Regions of raw bytes: what is written in updates is there again, and what goes wrong is told.

use crate::support::{Bytes, folders};
use std::time::Duration;
use twinpage::objects::structures::Queue;
use twinpage::{Durability, Error, Reader, Region, SchemeKind};

#[test]
fn what_was_written_is_there_again() {
    for (folder, scheme) in folders()
        .iter()
        .flat_map(|f| SchemeKind::PRODUCTS.map(|kind| (f, kind)))
    {
        let path = folder.path().join(scheme.name());
        let region = Region::options().scheme(scheme).open(&path).unwrap();
        let base = region.place().base();
        let bytes = Bytes::of(&region);
        bytes.grow(5 << 20);
        bytes.fill(0, 100, 1);
        bytes.fill(3 << 20, 300_000, 2);
        let epoch = region.checkpoint().unwrap();
        assert_eq!(
            region.checkpoint().unwrap(),
            epoch,
            "nothing was written in between"
        );
        bytes.fill(50, 100, 3);
        drop(region);

        let region = Region::open(&path).unwrap();
        assert_eq!((region.place().base(), region.epoch()), (base, epoch + 1));
        assert_eq!(region.info().scheme, scheme.name());
        let bytes = Bytes::of(&region);
        assert!(bytes.are(0, 50, 1) && bytes.are(50, 100, 3) && bytes.are(150, 1 << 20, 0));
        assert!(bytes.are(3 << 20, 300_000, 2) && bytes.are((3 << 20) + 300_000, 1 << 20, 0));
        assert_eq!(region.place().bytes(), 6 << 20);
        assert!(matches!(
            Region::options().base(1 << 50).open(&path),
            Err(Error::Locked(_))
        ));
    }
}

#[test]
fn what_is_given_back_stays_away() {
    for folder in folders() {
        let path = folder.path().join("region");
        let region = Region::open(&path).unwrap();
        let bytes = Bytes::of(&region);
        bytes.grow(4 << 20);
        bytes.fill(0, 4 << 20, 1);
        region.checkpoint().unwrap();
        let pages = region.info().pages;
        region.update(|update| {
            // SAFETY: nothing lives there.
            unsafe { update.place().discard(4096..3 << 20) }.unwrap();
        });
        bytes.fill(1 << 20, 10, 7);
        region.close().unwrap();
        let region = Region::open(&path).unwrap();
        let bytes = Bytes::of(&region);
        assert!(bytes.are(0, 4096, 1) && bytes.are(4096, (1 << 20) - 4096, 0));
        assert!(bytes.are(1 << 20, 10, 7) && bytes.are((1 << 20) + 10, (2 << 20) - 10, 0));
        assert!(bytes.are(3 << 20, 1 << 20, 1));
        assert!(
            region.info().pages < pages / 2,
            "{} of {pages}",
            region.info().pages
        );
    }
}

#[test]
fn checkpoints_happen_by_themselves() {
    let folder = &folders()[0];
    let region = Region::options()
        .every(Duration::from_millis(2))
        .open(folder.path().join("region"))
        .unwrap();
    let bytes = Bytes::of(&region);
    bytes.grow(1 << 20);
    for round in 0..20 {
        bytes.fill(round * 1000, 1000, 1 + round as u8);
        let ticket = region.ticket();
        if round % 3 == 0 {
            region.durable().unwrap();
            assert!(region.is_durable(ticket).unwrap());
        }
        region.wait(ticket).unwrap();
        assert!(region.is_durable(ticket).unwrap());
    }
    let statistics = region.statistics();
    assert!(
        statistics.epochs > 0 && statistics.changed_lines >= 20 * 15,
        "{statistics:?}"
    );
    assert!(statistics.bytes_per_changed_byte > 1.0, "{statistics:?}");
}

#[test]
fn a_checkpoint_inside_an_update_is_refused() {
    let folder = &folders()[0];
    let region = Region::open(folder.path().join("region")).unwrap();
    region.update(|_| {
        let error = region.checkpoint().unwrap_err().to_string();
        assert!(error.contains("after the update"), "{error}");
        assert!(region.durable().is_err());
        let ticket = region.ticket();
        assert!(region.wait(ticket).is_err());
    });
    region.durable().unwrap();
}

#[test]
fn an_update_that_panics_leaves_the_region_open() {
    let folder = &folders()[0];
    let path = folder.path().join("region");
    let region = Region::open(&path).unwrap();
    let bytes = Bytes::of(&region);
    bytes.grow(1 << 20);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        region.update(|_| {
            bytes.write(0, 64, 5);
            panic!("on purpose");
        })
    }));
    assert!(panicked.is_err());
    bytes.fill(64, 64, 6);
    region.close().unwrap();
    let region = Region::open(&path).unwrap();
    assert!(Bytes::of(&region).are(0, 64, 5) && Bytes::of(&region).are(64, 64, 6));
}

#[test]
fn what_cannot_be_opened_is_refused_and_left_alone() {
    let folder = &folders()[0];
    let path = folder.path().join("region");
    let region = Region::open(&path).unwrap();
    let base = region.place().base().addr();
    let bytes = Bytes::of(&region);
    bytes.grow(1 << 20);
    bytes.fill(0, 1 << 20, 9);
    let other = folder.path().join("other");
    let taken = Region::options().base(base).open(&other).unwrap_err();
    assert!(matches!(taken, Error::Taken { .. }), "{taken}");
    assert!(!other.exists());
    region.close().unwrap();

    let refused = |options: twinpage::Options| options.open(&path).unwrap_err().to_string();
    assert!(refused(Region::options().scheme(SchemeKind::InPlace)).contains("dual-page"));
    assert!(refused(Region::options().base(base ^ (1 << 40))).contains("only good there"));
    assert!(refused(Region::options().bound(1 << 20)).contains("bound"));
    let whole = std::fs::read(&path).unwrap();
    for (bytes, why) in [
        (&b"nonsense"[..], "not a store"),
        (&[][..], "not a store"),
        (&whole[..whole.len() / 2], "damaged"),
    ] {
        std::fs::write(&other, bytes).unwrap();
        let error = Region::open(&other).unwrap_err().to_string();
        let name = other.display().to_string();
        assert!(error.contains(why) && error.contains(&name), "{error}");
        let read = Reader::open(&other).unwrap_err().to_string();
        assert!(read.contains(why) && read.contains(&name), "{read}");
        assert_eq!(std::fs::read(&other).unwrap(), bytes);
    }
    assert!(Region::open(folder.path()).is_err());
    assert!(Region::open("/").is_err());
    assert!(Region::open("/nowhere/region").is_err());
    let region = Region::open(&path).unwrap();
    assert!(Bytes::of(&region).are(0, 1 << 20, 9));
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(names.len(), 2, "no drafts are left: {names:?}");
}

/// As open(2) makes a file. What lies beside a region is beside its file, by whatever name it is opened.
#[test]
fn a_link_that_leads_nowhere_is_a_name_of_a_new_region() {
    for folder in folders() {
        let at = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink("region", at("link")).unwrap();
        let region = Region::open(at("link")).unwrap();
        let queue = region.object::<Queue>("queue", |u| Queue::new_in(u, 7));
        queue.unwrap().enqueue(7);
        assert!(at("region.log").exists() && !at("link.log").exists());
        region.close().unwrap();
        assert!(at("region").symlink_metadata().unwrap().is_file());
        Region::open(at("region")).unwrap().close().unwrap();

        std::os::unix::fs::symlink("array", at("to_array")).unwrap();
        twinpage::Versions::<u64, 2>::open(at("to_array"), 5, |_| 0).unwrap();
        assert!(at("array").symlink_metadata().unwrap().is_file());
        std::os::unix::fs::symlink("round", at("round")).unwrap();
        assert!(Region::open(at("round")).is_err());
    }
}

/// On a disk lines of 64 bytes are packed, unless others are asked for.
#[test]
fn lines_have_the_size_that_was_asked_for() {
    for folder in folders() {
        for line in [64, 4096] {
            let path = folder.path().join(format!("of-{line}"));
            for _ in ["made", "opened"] {
                let region = Region::options().line_bytes(line).open(&path).unwrap();
                assert_eq!(region.info().geometry.line_bytes(), line as usize);
                region.close().unwrap();
            }
        }
        let packed = Region::options().scheme(SchemeKind::Packed).line_bytes(4096);
        let error = packed.open(folder.path().join("packed")).unwrap_err().to_string();
        assert!(error.contains("64 bytes and not of 4096"), "{error}");
    }
}

/// A child made by fork(2) has the value that stands for the region, and neither its threads nor its memory.
#[test]
fn a_region_that_a_forked_child_drops_stays_its_parents() {
    for folder in folders() {
        let path = folder.path().join("region");
        let options = Region::options().every(Duration::from_millis(1));
        let region = options.open(&path).unwrap();
        let mut count = region.root::<u64>("count").unwrap();
        region.update(|u| *count.get_mut(u) = 7);
        for closes in [false, true] {
            // SAFETY: the child takes no lock that a thread of the parent may have held, and ends without unwinding.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let is_refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match closes {
                    true => matches!(region.close(), Err(Error::Invalid(_))),
                    false => {
                        drop(region);
                        true
                    }
                }));
                // SAFETY: it ends the child.
                unsafe { libc::_exit(i32::from(!is_refused.unwrap_or_default())) };
            }
            let mut status = -1;
            // SAFETY: the status is this function's own.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "closes: {closes}");
        }
        region.update(|u| *count.get_mut(u) += 1);
        drop(count);
        region.close().unwrap();
        let region = Region::open(&path).unwrap();
        let count = region.root::<u64>("count").unwrap();
        assert_eq!(region.read(|v| *count.get(v)), 8);
    }
}

#[test]
fn a_bound_can_be_set_and_stays() {
    let folder = &folders()[0];
    let path = folder.path().join("region");
    let region = Region::options()
        .bound(4 << 20)
        .durability(Durability::Disk)
        .open(&path)
        .unwrap();
    assert_eq!(region.info().scheme, "packed");
    let error = region.place().grow(5 << 20).unwrap_err();
    assert!(matches!(error, Error::Bound { .. }), "{error}");
    Bytes::of(&region).grow(4 << 20);
    drop(region);
    assert_eq!(Region::open(&path).unwrap().place().bound(), 4 << 20);
    assert_eq!(
        Region::options()
            .bound(8 << 20)
            .open(&path)
            .unwrap()
            .place()
            .bound(),
        8 << 20
    );
}
