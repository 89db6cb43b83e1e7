//! Many regions at once: as many as a process has windows, and a clear error for one more.

use twinpage::collections::Vec;
use twinpage::window::WINDOWS;
use twinpage::{Error, Region};

mod support;

/// How many find room: the address sanitizer has memory where one of them would lie.
fn room() -> usize {
    WINDOWS - usize::from(std::env::var_os("TWINPAGE_SANITIZED").is_some())
}

/// Each of them has its own values, also in the next life.
#[test]
fn a_process_has_64_regions_open_at_once() {
    const { assert!(WINDOWS >= 64) };
    for folder in support::folders() {
        let path = |number: usize| folder.path().join(format!("{number}.twin"));
        for life in 0..2 {
            let mut open = std::vec::Vec::new();
            for number in 0..room() {
                let region = Region::open(path(number)).unwrap_or_else(|e| panic!("region {number}: {e}"));
                let mut list = region.root::<Vec<u64>>("list").unwrap();
                region.update(|u| list.get_mut(u).push((number + life) as u64));
                open.push((region, list));
            }
            let more = path(room());
            let refused = Region::open(&more).unwrap_err();
            assert!(
                matches!(refused, Error::NoWindow { windows: WINDOWS }),
                "{refused}"
            );
            assert!(!more.exists());
            for (number, (region, list)) in open.iter().enumerate() {
                let expected: std::vec::Vec<u64> = (0..=life).map(|life| (number + life) as u64).collect();
                region.read(|v| assert_eq!(list.get(v)[..], expected[..]));
            }
            for (region, list) in open {
                drop(list);
                region.close().unwrap();
            }
        }
    }
}
