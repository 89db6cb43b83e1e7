//! Advice that stays on mappings: madvise(2).
//!
//! * Advice about one thing replaces earlier advice about it; the default removes it.
//! * What is unmapped or mapped again has none. That is not told: where a mapping has advice on a part of it alone, the
//!   part was mapped again, as the kernel makes two mappings of what differs.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Advice on a range of addresses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Advice {
    /// First address.
    pub start: u64,
    /// Past the last.
    pub end: u64,
    /// `MADV_*`.
    pub advice: i32,
}

/// The advice in force.
#[derive(Clone, Debug, Default)]
pub struct AdviceInForce(Vec<Advice>);

/// What a piece of advice is about, and whether it is the default there. `None`: it leaves no mark.
fn subject(advice: i32) -> Option<(u8, bool)> {
    Some(match advice {
        libc::MADV_NORMAL => (0, true),
        libc::MADV_RANDOM | libc::MADV_SEQUENTIAL => (0, false),
        libc::MADV_HUGEPAGE | libc::MADV_NOHUGEPAGE => (1, false),
        libc::MADV_DODUMP => (2, true),
        libc::MADV_DONTDUMP => (2, false),
        libc::MADV_DOFORK => (3, true),
        libc::MADV_DONTFORK => (3, false),
        libc::MADV_KEEPONFORK => (4, true),
        libc::MADV_WIPEONFORK => (4, false),
        libc::MADV_UNMERGEABLE => (5, true),
        libc::MADV_MERGEABLE => (5, false),
        _ => return None,
    })
}

impl AdviceInForce {
    /// The marks that a context held.
    #[must_use]
    pub fn new(marks: Vec<Advice>) -> AdviceInForce {
        AdviceInForce(marks)
    }

    /// All of them.
    #[must_use]
    pub fn list(&self) -> &[Advice] {
        &self.0
    }

    /// The program gives advice. False when it is of a kind that leaves no mark.
    pub fn advise(&mut self, range: Range<u64>, advice: i32) -> bool {
        let Some((about, default)) = subject(advice) else {
            return false;
        };
        self.cut(&range, |mark| {
            subject(mark.advice).is_some_and(|(other, _)| other == about)
        });
        if !default && !range.is_empty() {
            self.0.push(Advice {
                start: range.start,
                end: range.end,
                advice,
            });
        }
        true
    }

    /// What was mapped in the range is gone.
    pub fn forget(&mut self, range: Range<u64>) {
        if !self.0.is_empty() {
            self.cut(&range, |_| true);
        }
    }

    /// Forgets advice that one mapping, which has these addresses, cannot have: that on a part of it.
    pub fn forget_parts(&mut self, mapping: &Range<u64>) {
        let within = |mark: &Advice| mark.start < mapping.end && mark.end > mapping.start;
        let inside: Vec<Advice> = self.0.iter().filter(|mark| within(mark)).cloned().collect();
        for mark in &inside {
            let same = inside.iter().filter(|other| other.advice == mark.advice);
            let covered: u64 = same
                .map(|other| other.end.min(mapping.end) - other.start.max(mapping.start))
                .sum();
            if covered < mapping.end - mapping.start {
                self.cut(mapping, |other| other.advice == mark.advice);
            }
        }
    }

    /// Takes the range out of the marks that `of` picks.
    fn cut(&mut self, range: &Range<u64>, of: impl Fn(&Advice) -> bool) {
        let mut kept = Vec::with_capacity(self.0.len());
        for mark in self.0.drain(..) {
            if !of(&mark) || mark.end <= range.start || mark.start >= range.end {
                kept.push(mark);
                continue;
            }
            let before = Advice {
                end: range.start,
                ..mark
            };
            let after = Advice {
                start: range.end,
                ..mark
            };
            kept.extend([before, after].into_iter().filter(|mark| mark.start < mark.end));
        }
        self.0 = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_replaces_advice_about_the_same() {
        let mut marks = AdviceInForce::default();
        assert!(marks.advise(0..100, libc::MADV_DONTDUMP));
        assert!(marks.advise(0..100, libc::MADV_DONTFORK));
        assert!(marks.advise(20..30, libc::MADV_DODUMP));
        assert!(!marks.advise(0..100, libc::MADV_DONTNEED));
        let ranges: Vec<_> = marks
            .list()
            .iter()
            .map(|mark| (mark.start, mark.end, mark.advice))
            .collect();
        let dump = libc::MADV_DONTDUMP;
        assert_eq!(
            ranges,
            [(0, 20, dump), (30, 100, dump), (0, 100, libc::MADV_DONTFORK)]
        );
        marks.forget_parts(&(0..20));
        marks.forget_parts(&(50..100));
        assert_eq!(marks.list().len(), 3, "these mappings have them whole");
        marks.forget_parts(&(0..40));
        let dumped = marks.list().iter().filter(|mark| mark.advice == dump);
        assert!(dumped.into_iter().all(|mark| mark.start >= 40));
        marks.advise(0..20, dump);
        marks.forget(10..100);
        assert_eq!(marks.list().len(), 2);
        assert!(marks.list().iter().all(|mark| mark.end == 10));
    }
}
