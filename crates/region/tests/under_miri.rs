//! A short walk through everything that is unsafe in here, made for Miri (`make miri`): it says when memory
//! is used that is not there, not initialized, not aligned or not ours, when threads race and when memory
//! leaks. It runs as an ordinary test too.
//!
//! Two things that a checkpoint does on purpose have no name in the language, and are left out here: a sweep
//! may copy a line while a writer changes it, and then throws the copy away (`marks.rs`); and it copies the
//! bytes between fields, which need not be initialized. So no checkpoint is made while other threads write, and
//! the types here have no such bytes.

use std::collections::BTreeMap as StdMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use twinpage::collections::{BTreeMap, BTreeSet, Box, HashMap, HashSet, String, Vec, VecDeque};
use twinpage::window::Window;
use twinpage::{Error, Heap, Persist, Region, SchemeKind};
use twinpage_core::{Geometry, Medium, Offset, ProductScheme, Setup};

/// So often under Miri, more often otherwise.
const TIMES: u64 = if cfg!(miri) { 1 } else { 50 };

fn with_heap(test: impl FnOnce(Heap<'_>)) {
    let window = Window::volatile().unwrap();
    // SAFETY: nothing of a region or of another heap is in sight.
    let heap = unsafe { Heap::create(&window, 7) }.unwrap();
    test(heap);
    let report = heap.check();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    assert_eq!(heap.stats().used_blocks, 0);
}

#[test]
fn rows() {
    with_heap(|heap| {
        let text = |n: u64| String::from_in(&"x".repeat(n as usize % 7), heap);
        let mut list = Vec::new_in(heap);
        list.extend((0..20 * TIMES).map(text));
        list.insert(3, text(5));
        drop((list.remove(0), list.swap_remove(2), list.pop()));
        list.retain(|text| text.len() != 3);
        list.drain(2..5).for_each(drop);
        list.dedup();
        list.sort();
        list.shrink_to_fit();
        assert!(list.iter().rev().all(|text| text.len() < 7));
        list.truncate(3);
        let mut rest = list.into_iter();
        drop((rest.next(), rest));

        let mut ring = VecDeque::new_in(heap);
        for n in 0..20 * TIMES {
            ring.push_back(Box::new_in(n, heap));
            ring.push_front(Box::new_in(n, heap));
            drop((ring.pop_back(), ring.get(1).map(|n| **n)));
        }
        ring.make_contiguous().sort();
        ring.iter_mut().for_each(|n| **n += 1);
        ring.truncate(2);

        let mut word = String::new_in(heap);
        word.push_str("größe");
        word.push('!');
        assert_eq!((word.pop(), word.as_str()), (Some('!'), "größe"));
        let nothing: Vec<()> = Vec::from_iter_in((0..9).map(|_| ()), heap);
        assert_eq!(nothing.len(), 9);
        // Larger than a slab, grown where it is and moved.
        let mut large = Vec::<[u64; 100]>::new_in(heap);
        (0..120).for_each(|n| large.push([n; 100]));
        assert!((0..120).zip(large.iter()).all(|(n, row)| row[99] == n));
    });
}

#[test]
fn tables() {
    with_heap(|heap| {
        let mut map = HashMap::<u64, Box<u64>>::new_in(heap);
        let mut tree = BTreeMap::<u64, Box<u64>>::new_in(heap);
        let mut std = StdMap::new();
        for n in 0..60 * TIMES {
            let key = n * 37 % 41;
            match n % 4 {
                0 => {
                    let gone = (map.remove(&key).map(|v| *v), tree.remove(&key).map(|v| *v));
                    let had = std.remove(&key);
                    assert_eq!(gone, (had, had));
                }
                1 => {
                    **map.entry(key).or_insert_with(|| Box::new_in(0, heap)) += 1;
                    **tree.entry(key).or_insert_with(|| Box::new_in(0, heap)) += 1;
                    *std.entry(key).or_insert(0) += 1;
                }
                _ => {
                    map.insert(key, Box::new_in(n, heap));
                    tree.insert(key, Box::new_in(n, heap));
                    std.insert(key, n);
                }
            }
        }
        assert!(
            tree.iter()
                .map(|(k, v)| (*k, **v))
                .eq(std.iter().map(|(k, v)| (*k, *v)))
        );
        assert_eq!(map.len(), std.len());
        assert!(
            std.iter()
                .all(|(k, v)| map.get(k).is_some_and(|found| **found == *v))
        );
        tree.range_mut(10..30).for_each(|(_, v)| **v += 1);
        map.iter_mut().for_each(|(_, v)| **v += 1);
        map.retain(|k, _| k % 3 > 0);
        map.shrink_to_fit();
        let mut some = tree.into_iter();
        drop((some.next(), some.next_back(), some));
        map.drain().take(2).for_each(drop);

        let mut names = HashSet::<String>::new_in(heap);
        let mut sorted = BTreeSet::<String>::new_in(heap);
        for n in 0..10 {
            names.insert(String::from_in(&n.to_string(), heap));
            sorted.insert(String::from_in(&n.to_string(), heap));
        }
        assert!(names.contains("7") && sorted.contains("7") && !names.contains("77"));
        sorted.pop_first();
    });
}

/// Bytes that outlive the region on them. All of it in large steps, which is what an interpreter is good at.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<std::vec::Vec<u8>>>);

impl Medium for Kept {
    fn len(&self) -> u64 {
        self.0.lock().unwrap().len() as u64
    }
    fn grow(&mut self, len: u64) -> twinpage_core::Result<()> {
        let mut bytes = self.0.lock().unwrap();
        let mut more = vec![0; bytes.len().max(len as usize)];
        more[..bytes.len()].copy_from_slice(&bytes);
        *bytes = more;
        Ok(())
    }
    fn read(&self, at: Offset, into: &mut [u8]) -> twinpage_core::Result<()> {
        into.copy_from_slice(&self.0.lock().unwrap()[at as usize..][..into.len()]);
        Ok(())
    }
    fn write(&mut self, at: Offset, bytes: &[u8]) -> twinpage_core::Result<()> {
        self.0.lock().unwrap()[at as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn fence(&mut self) -> twinpage_core::Result<()> {
        Ok(())
    }
    fn atom(&self) -> usize {
        8
    }
}

#[derive(Persist)]
struct Order<'r> {
    item: u64,
    note: String<'r>,
}

#[derive(Persist)]
#[persist(name = "Count")]
struct CountV1(u64);

#[derive(Persist)]
#[persist(version = 2, from = CountV1)]
struct Count(u64, u64);

impl From<CountV1> for Count {
    fn from(old: CountV1) -> Count {
        Count(old.0, 1)
    }
}

/// A medium with an empty store, whose journal is soon looked through.
fn medium() -> Kept {
    let medium = Kept::default();
    let setup = Setup {
        journal_bytes: 4096,
        ..Setup::new(Geometry::new(64, 4 * 4096).unwrap())
    };
    drop(ProductScheme::create(SchemeKind::DualPage, medium.clone(), &setup).unwrap());
    medium
}

/// Threads in updates at the same time, checkpoints, a second life, a migration, a root removed.
#[test]
fn a_region() {
    let medium = medium();
    let open = || {
        let options = Region::options().scheme(SchemeKind::DualPage);
        options.open_on(medium.clone(), Geometry::MEMORY).unwrap()
    };
    {
        let region = open();
        let mut orders = region.root::<HashMap<u64, Order>>("orders").unwrap();
        let mut lists = [0, 1].map(|n| region.root::<Vec<u64>>(&n.to_string()).unwrap());
        let mut count = region.root_with::<CountV1>("count", |_| CountV1(3)).unwrap();
        region.update(|u| {
            let note = u.string("two");
            orders.get_mut(u).insert(7, Order { item: 1, note });
            count.get_mut(u).0 += 1;
        });
        region.checkpoint().unwrap();
        std::thread::scope(|scope| {
            for list in &mut lists {
                let region = &region;
                scope.spawn(move || (0..20).for_each(|n| region.update(|u| list.get_mut(u).push(n))));
            }
        });
        let ticket = region.ticket();
        region.durable().unwrap();
        assert!(region.is_durable(ticket).unwrap());
        // What was marked since the cut is of the next epoch.
        region.update(|u| orders.get_mut(u).get_mut(&7).unwrap().item = 2);
        let [first, _] = lists;
        region.update(|u| first.remove(u)).unwrap();
        drop((orders, count));
        region.close().unwrap();
    }
    let region = open();
    let orders = region.root::<HashMap<u64, Order>>("orders").unwrap();
    let count = region.root::<Count>("count").unwrap();
    let list = region.root::<Vec<u64>>("1").unwrap();
    region.read(|v| {
        let order = &orders.get(v)[&7];
        assert_eq!((order.item, order.note.as_str()), (2, "two"));
        assert_eq!(count.get(v).0, 4);
        assert!(list.get(v).iter().copied().eq(0..20));
    });
    assert_eq!(region.roots().unwrap().len(), 3);
    drop(orders);
    region.remove_root("orders").unwrap();
    assert!(region.check().unwrap().is_sound());
}

/// Sections of threads that take turns, readers between them, one inside another, an error and a panic that undo, a
/// second life.
#[test]
fn a_region_of_sections() {
    let medium = medium();
    let open = || {
        let options = Region::options().sections().scheme(SchemeKind::DualPage);
        options.open_on(medium.clone(), Geometry::MEMORY).unwrap()
    };
    {
        let region = open();
        let orders = region.shared::<HashMap<u64, Order>>("orders").unwrap();
        let list = region.shared::<Vec<u64>>("list").unwrap();
        let put = |item: u64, fails: bool| {
            region.atomic(|section| {
                list.write(section).push(item);
                let note = section.string("a note that lies in the heap");
                orders.write(section).insert(item, Order { item, note });
                match fails {
                    true => Err(section.abort()),
                    false => Ok(()),
                }
            })
        };
        put(1, false).unwrap();
        put(2, true).unwrap_err();
        std::thread::scope(|scope| {
            for thread in [10, 20] {
                let put = &put;
                scope.spawn(move || (0..4).for_each(|n| drop(put(thread + n, n == 2))));
            }
            for _ in 0..4 {
                let counts = region.read(|v| (list.read(v).len(), orders.read(v).len()));
                assert_eq!(counts.0, counts.1, "half a section");
            }
        });
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _ = region.atomic(|section| -> Result<(), Error> {
                orders.write(section).clear();
                region.atomic(|inner| {
                    list.write(inner).clear();
                    Ok::<_, Error>(())
                })?;
                panic!("on purpose");
            });
        }));
        assert!(panicked.is_err());
        region.close().unwrap();
    }
    let region = open();
    let orders = region.shared::<HashMap<u64, Order>>("orders").unwrap();
    let list = region.shared::<Vec<u64>>("list").unwrap();
    region.read(|v| {
        let (orders, list) = (orders.read(v), list.read(v));
        assert_eq!((orders.len(), list.len()), (7, 7));
        assert!(
            list.iter()
                .all(|item| orders[item].item == *item && orders[item].note.len() > 20)
        );
    });
    assert!(region.check().unwrap().is_sound());
}
