//! Hash tables: one segment, or a directory of segments.

use super::Walk;
use crate::collections::hash::table::{self, directory};
use std::alloc::Layout;

/// How the places of segments are used.
#[derive(Default)]
struct Count {
    used: u64,
    deleted: u64,
    usable: u64,
}

impl Walk<'_> {
    pub(super) fn hash(&mut self, of: u32, at: u64, who: &str) {
        let [first, places, items, left] = [0, 8, 16, 24].map(|offset| self.image.u64(at + offset));
        self.heap(at + 40, who);
        if places == 0 {
            if items != 0 || left != 0 || first == 0 {
                self.damaged(at, format!("{who}: {items} entries and no block"));
            }
            return;
        }
        let mut count = Count::default();
        let is_divided = places & directory::DIRECTORY as u64 != 0;
        let is_whole = match is_divided {
            true => self.directory(
                of,
                first,
                places & !(directory::DIRECTORY as u64),
                &mut count,
                who,
            ),
            false => self.segment(of, first, places, &mut count, who),
        };
        if !is_whole || self.blocks.is_none() {
            return; // of a head only the blocks are looked at
        }
        let Count {
            used,
            deleted,
            usable,
        } = count;
        let more = if is_divided { directory::DIVIDED as u64 } else { 0 };
        if used != items || left.wrapping_add(used + deleted) != usable + more {
            let what = format!(
                "{who}: {items} entries and {left} more, but {used} places are used, {deleted} deleted and {usable} usable"
            );
            self.damaged(at, what);
        }
    }

    /// Each segment is in a directory as often in a row as a power of two says, where that divides its number.
    fn directory(&mut self, of: u32, first: u64, depth: u64, count: &mut Count, who: &str) -> bool {
        let layout = (1..=directory::DEEPEST as u64).contains(&depth);
        let layout = layout.then(|| directory::block(depth as usize));
        if !self.claim(first, layout, &format!("{who}: its directory")) {
            return false;
        }
        let segment =
            |walk: &Self, number: u64| [0, 8].map(|word| walk.image.u64(first + number * 16 + word));
        let (mut number, all) = (0, 1 << depth);
        while number < all {
            let found = segment(self, number);
            let same = (number..all)
                .take_while(|&other| segment(self, other) == found)
                .count() as u64;
            if !same.is_power_of_two() || !number.is_multiple_of(same) || same == all {
                self.damaged(
                    first,
                    format!("{who}: a segment is {same} times in its directory, from {number} on"),
                );
                return false;
            }
            if found[1] < table::GROUP as u64 {
                self.damaged(
                    first,
                    format!("{who}: a segment of {} places in its directory", found[1]),
                );
                return false;
            }
            if !self.segment(of, found[0], found[1], count, who) {
                return false;
            }
            number += same;
        }
        true
    }

    fn segment(&mut self, of: u32, controls: u64, places: u64, count: &mut Count, who: &str) -> bool {
        let block = usize::try_from(places)
            .ok()
            .zip(self.layout(of, 1))
            .and_then(|(n, entry): (usize, Layout)| table::block(n, entry));
        let (Some((layout, start)), true) = (block, places.is_power_of_two() && places >= 4) else {
            self.damaged(controls, format!("{who}: a table of {places} places"));
            return false;
        };
        if !self.claim(controls.wrapping_sub(start as u64), Some(layout), who) {
            return false;
        }
        if self.blocks.is_none() {
            return true;
        }
        let image = self.image;
        let bytes = image
            .at(controls, places.max(table::GROUP as u64))
            .unwrap_or_default();
        let (own, beyond) = bytes.split_at((places as usize).min(bytes.len()));
        let number = |is: fn(u8) -> bool| own.iter().filter(|&&control| is(control)).count() as u64;
        let used = number(|control| control < table::EMPTY);
        let deleted = number(|control| control == table::DELETED);
        let empty = number(|control| control == table::EMPTY);
        if used + deleted + empty != places || beyond.iter().any(|&control| control != table::BEYOND) {
            let what =
                format!("{who}: of {places} places {used} are used, {deleted} deleted and {empty} empty");
            self.damaged(controls, what);
            return false;
        }
        count.used += used;
        count.deleted += deleted;
        count.usable += table::usable(places as usize) as u64;
        let entry = self.description.get(of).bytes;
        if self.owns[of as usize] {
            let used = own
                .iter()
                .enumerate()
                .filter(|(_, control)| **control < table::EMPTY);
            for (index, _) in used {
                self.rest.push((of, controls - (index as u64 + 1) * entry, 1));
            }
        }
        true
    }
}
