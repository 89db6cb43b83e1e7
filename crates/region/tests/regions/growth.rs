//! Tables grow a segment at a time: no insertion moves more than one segment.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use twinpage::collections::HashMap;
use twinpage::{Persist, Region};

thread_local! {
    static HASHED: Cell<usize> = const { Cell::new(0) };
}

/// Counts how often it is hashed: once for each entry that is moved.
#[derive(Persist, Clone, Copy, PartialEq, Eq, Debug)]
struct Key(u64);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        HASHED.set(HASHED.get() + 1);
        self.0.hash(state);
    }
}

#[test]
fn an_insertion_moves_a_segment_at_most() {
    let entries: u64 = twinpage_campaign::either(400_000 / 3 * 3, 9_999_999);
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("grown.twin");
    let region = Region::open(&path).unwrap();
    let mut map = region.root::<HashMap<Key, [u64; 3]>>("map").unwrap();
    let mut most = 0;
    for key in 0..entries {
        HASHED.set(0);
        region.update(|u| map.get_mut(u).insert(Key(key), [key; 3]));
        most = most.max(HASHED.get());
    }
    println!("of {entries} insertions one moved {most} entries, the others fewer");
    // A segment has at most 1 MiB of entries.
    assert!(most <= 32 << 10, "an insertion moved {most} of {entries} entries");
    assert!(most > 10_000, "no segment was ever split: {most}");
    let report = region.check().unwrap();
    assert!(report.is_sound() && report.leaked_blocks == 0, "{report:?}");
    drop(map);
    region.close().unwrap();

    let region = Region::options().checked().open(&path).unwrap();
    let mut map = region.root::<HashMap<Key, [u64; 3]>>("map").unwrap();
    region.read(|v| {
        let map = map.get(v);
        assert_eq!(
            (map.len(), map.iter().count()),
            (entries as usize, entries as usize)
        );
        assert!((0..entries).all(|key| map.get(&Key(key)) == Some(&[key; 3])));
        assert!(!map.contains_key(&Key(entries)));
    });
    region.update(|u| {
        let map = map.get_mut(u);
        map.retain(|key, _| key.0 % 3 > 0);
        assert_eq!(
            map.extract_if(|key, _| key.0 % 3 == 1).count() as u64,
            entries / 3
        );
        assert_eq!(map.len() as u64, entries / 3);
        map.shrink_to_fit();
        assert!(
            (2..entries)
                .step_by(3)
                .all(|key| map.remove(&Key(key)) == Some([key; 3]))
        );
        assert!(map.is_empty());
    });
    assert!(region.check().unwrap().is_sound());
    drop(map);
    region.remove_root("map").unwrap();
    let report = region.check().unwrap();
    assert!(report.is_sound() && report.leaked_blocks == 0, "{report:?}");
}
