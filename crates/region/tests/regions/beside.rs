//! One file, and several who come to it at once: those that look, and those that make it.

use rustix::fs::inotify;
use std::mem::MaybeUninit;
use std::sync::Barrier;
use std::thread;
use twinpage::inspect::inspect;
use twinpage::{Error, Region};

#[test]
fn who_only_looks_is_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.twin");
    Region::open(&path).unwrap().close().unwrap();
    let looks = [(); 2].map(|()| inspect(&path).unwrap());
    for look in &looks {
        assert_eq!(look.in_use, None, "another looks, and none writes");
        assert!(look.check().unwrap().0.is_empty());
    }
    // Who opens it waits for them.
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, &path, inotify::WatchFlags::OPEN).unwrap();
    let opening = thread::spawn({
        let path = path.clone();
        move || Region::open(path).and_then(Region::close)
    });
    let (mut opened, mut buffer) = (0, [MaybeUninit::uninit(); 4096]);
    while opened < 10 && !opening.is_finished() {
        let mut news = inotify::Reader::new(&watch, &mut buffer);
        while news.next().is_ok() {
            opened += 1;
        }
        thread::yield_now();
    }
    drop(looks);
    opening.join().unwrap().unwrap();
}

#[test]
fn who_makes_it_at_the_same_time_finds_it_in_use_and_nothing_else() {
    const MAKERS: usize = 4;
    for round in 0..50 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.twin");
        let (begin, end) = (Barrier::new(MAKERS), Barrier::new(MAKERS));
        let open = || {
            begin.wait();
            let opened = Region::open(&path);
            end.wait();
            opened.map(drop)
        };
        let opened = thread::scope(|scope| {
            let makers = [(); MAKERS].map(|()| scope.spawn(open));
            makers.map(|maker| maker.join().unwrap())
        });
        assert_eq!(
            opened.iter().filter(|opened| opened.is_ok()).count(),
            1,
            "round {round}: {opened:?}"
        );
        let in_use = |opened: &Result<(), Error>| matches!(opened, Ok(()) | Err(Error::Locked(_)));
        assert!(opened.iter().all(in_use), "round {round}: {opened:?}");
        let left = std::fs::read_dir(folder.path()).unwrap().flatten();
        let left: Vec<_> = left.map(|file| file.file_name()).collect();
        assert_eq!(left, ["test.twin"], "round {round}");
    }
}
