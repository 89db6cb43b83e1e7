//! What an update or a reading has, in the hands of others: of threads that are scoped in it, and of what comes after an
//! update inside a reading.

use twinpage::collections::{BTreeMap, BinaryHeap, HashMap, String, Vec, VecDeque};
use twinpage::{Error, Persist, Region, Shared};

/// Collections of each kind.
#[derive(Persist)]
struct All<'r> {
    list: Vec<'r, String<'r>>,
    ring: VecDeque<'r, String<'r>>,
    table: HashMap<'r, u64, String<'r>>,
    tree: BTreeMap<'r, u64, String<'r>>,
    heap: BinaryHeap<'r, u64>,
}

/// Changes each in every way that moves what is in it.
fn change(all: &mut All, text: impl Fn(u64) -> std::string::String) {
    let heap = all.list.heap();
    let made = |n| String::from_in(&text(n), heap);
    for n in 0..300 {
        all.list.push(made(n));
        all.ring.push_front(made(n));
        all.table.insert(n, made(n));
        all.tree.insert(n, made(n));
        all.heap.push(n);
    }
    for n in 0..200 {
        all.list.swap_remove(n as usize % 50);
        all.ring.rotate_right(7);
        all.ring.pop_back();
        all.table.remove(&n);
        all.tree.remove(&(n * 3 % 300));
        all.heap.pop();
    }
}

/// A thread that is in no update itself writes what the update that made it lends it.
#[test]
fn scoped_threads_write_what_an_update_lends_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lent.twin");
    let region = Region::open(&file).unwrap();
    let [mut one, mut other] = ["one", "other"].map(|name| region.root::<All>(name).unwrap());
    let text = |n| format!("text {n}, long enough for a block of its own");
    for _ in 0..3 {
        region.update(|u| {
            let one = one.get_mut(u);
            std::thread::scope(|scope| {
                scope.spawn(|| change(one, text));
            });
        });
        region.update(|u| change(other.get_mut(u), text));
        region.durable().unwrap();
    }
    drop((one, other));
    let region = {
        drop(region);
        Region::options().checked().open(&file).unwrap()
    };
    let [one, other] = ["one", "other"].map(|name| region.root::<All>(name).unwrap());
    region.read(|v| {
        let (one, other) = (one.get(v), other.get(v));
        assert_eq!(one.list, other.list);
        assert_eq!(one.ring, other.ring);
        assert!(one.table.len() == other.table.len() && one.tree.iter().eq(other.tree.iter()));
        assert_eq!(one.heap.len(), other.heap.len());
    });
    let report = region.check().unwrap();
    assert!(report.is_sound(), "{report:?}");
}

/// A value that an update inside a reading made with the reading's brand is there until the reading ends, and so long there
/// is no checkpoint.
#[test]
fn an_update_in_a_reading_lasts_as_long_as_the_reading() {
    let folder = tempfile::tempdir().unwrap();
    let region = Region::open(folder.path().join("read.twin")).unwrap();
    let names = region.root::<Vec<String>>("names").unwrap();
    let shared = Shared::new(region.root::<Vec<u64>>("shared").unwrap());
    let blocks = || region.check().unwrap().stats.used_blocks;
    let before = blocks();
    region.read(|v| {
        let heap = names.get(v).heap();
        let mut copied = region.update(|_| Vec::from_iter_in(0..1000_u64, heap));
        let also = shared.lock_to_read(v).clone();
        let refused = region.durable().unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused}");
        assert!(refused.to_string().contains("after the reading"), "{refused}");
        region.read(|_| drop(also));
        copied.extend(0..5000);
        assert_eq!(copied.len(), 6000);
    });
    assert_eq!(blocks(), before);
    region.durable().unwrap();
}

/// A lock that is forgotten in a reading does not keep the region from its checkpoints.
#[test]
fn a_forgotten_lock_ends_with_its_reading() {
    let folder = tempfile::tempdir().unwrap();
    let region = Region::open(folder.path().join("forgotten.twin")).unwrap();
    let shared = Shared::new(region.root::<u64>("shared").unwrap());
    let other = region.root::<u64>("other").unwrap();
    region.read(|v| {
        std::mem::forget(shared.lock_to_read(v));
        assert_eq!(*other.get(v), 0);
    });
}
