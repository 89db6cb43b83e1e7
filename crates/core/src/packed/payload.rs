//! A small commit is a payload in the journal of the scheme below: one write and one fence (`dual_page/payload.rs`).
//!
//! ```text
//! payload   context: 0, or its bytes + 1, and they | a page: gap, mask, its lines | a page ...
//! ```
//!
//! * What a payload has are lines written since the last commit, of pages that are there, and the context if it changed.
//!   Its lines go on waiting, so that many commits later they go to the log together; the next other commit does that.
//! * Recovery puts the lines of the payloads into the waiting list, one payload after the other.
//! * A payload writes its lines twice, and saves a page of the log, one of the context, and what the record below
//!   says of them: it is for commits up to [`Tuning::payload_bytes`](super::Tuning::payload_bytes).

use super::Packed;
use super::fault::Fault;
use super::waiting::Waiting;
use crate::dual_page::codec::{Cursor, put_mask, put_number};
use crate::error::{Error, Result};
use crate::geometry::{PageId, PageLines};
use crate::scheme::{Commit, Epoch};
use crate::shell::Mechanism;

/// The content of the payloads of a checkpoint.
#[derive(Debug, Default)]
pub(super) struct Payloads {
    pub(super) waiting: Waiting,
    /// The last context they have.
    pub(super) context: Option<Vec<u8>>,
}

impl Payloads {
    /// Adds a later one.
    ///
    /// # Errors
    /// The field that is out of its range.
    fn add(&mut self, payload: &[u8], line: usize, pages: u64) -> Result<(), String> {
        let mut body = Cursor::new(payload);
        self.read(&mut body, line, pages).ok_or_else(|| body.refuse())
    }

    fn read(&mut self, body: &mut Cursor<'_>, line: usize, pages: u64) -> Option<()> {
        if let Some(len) = body.named("context").number()?.checked_sub(1) {
            self.context = Some(body.bytes(len)?.to_vec());
        }
        let mut next: u64 = 0;
        while body.left() > 0 {
            let page = next
                .checked_add(body.named("number of a page").number()?)
                .filter(|&page| page < pages)?;
            let held = body
                .named("lines of a page")
                .mask()
                .filter(|held| !held.is_empty())?;
            let lines = PageLines {
                page: PageId(page),
                held,
                changed: held,
                line_bytes: line,
                bytes: body.bytes((held.count() * line) as u64)?,
            };
            self.waiting.put(lines, || false);
            next = page + 1;
        }
        Some(())
    }
}

impl<S: Mechanism> Packed<S> {
    /// What the payloads of the checkpoint below say.
    pub(super) fn load_payloads(&self) -> Result<Payloads> {
        let mut found = Payloads::default();
        for payload in self.below.payloads()? {
            let added = found.add(&payload, self.layout.line_bytes(), self.layout.page_limit());
            added.map_err(|why| Error::damaged("payload of packed lines", 0, why))?;
        }
        found.waiting.end_epoch();
        Ok(found)
    }

    /// Begins the commit of the epoch as a payload, if it can be one.
    pub(super) fn begin_small(&mut self, context: &[u8]) -> Result<Option<Commit>> {
        let has_context = context != self.last_context;
        let changed = if has_context { context.len() } else { 0 };
        let least = self.waiting.fresh_lines() * self.layout.line_bytes() + changed;
        let room = self.below.payload_room().min(self.tuning.payload_bytes);
        // The first commit has the root.
        let is_first = self.below.last_epoch() == 0;
        if least >= room || is_first || !self.drops.is_empty() || self.presence.has_changed() {
            return Ok(None);
        }
        let mut payload = std::mem::take(&mut self.batch);
        self.encode_payload(has_context.then_some(context), &mut payload);
        let begun = match payload.len() <= room {
            true => self.below.begin_payload(&payload).map(Some),
            false => Ok(None),
        };
        self.batch = payload;
        if matches!(begun, Ok(Some(_))) {
            self.keep_context(context);
        }
        begun
    }

    fn encode_payload(&mut self, context: Option<&[u8]>, payload: &mut Vec<u8>) {
        payload.clear();
        put_number(payload, context.map_or(0, |context| context.len() as u64 + 1));
        if !self.faulty(Fault::ForgetContext) || context.is_none() {
            payload.extend_from_slice(context.unwrap_or_default());
        } else {
            payload.clear();
            put_number(payload, 0);
        }
        let mut left = match self.faulty(Fault::ForgetLine) {
            true => self.waiting.fresh_lines().saturating_sub(1),
            false => usize::MAX,
        };
        let mut next = 0;
        self.waiting.each_fresh(|page, fresh| {
            if left < fresh.count() {
                return;
            }
            left -= fresh.count();
            put_number(payload, page.lines.page.0 - next);
            put_mask(payload, fresh);
            for run in fresh.runs() {
                payload.extend_from_slice(page.lines.run(run));
            }
            next = page.lines.page.0 + 1;
        });
    }

    /// The payload is durable.
    fn adopt_small(&mut self) {
        self.waiting.end_epoch();
        if self.faulty(Fault::ForgetWaiting) {
            self.waiting.clear();
        }
        self.wanted.clear();
        self.adopt_context();
        self.open = false;
    }

    /// This is the context of the commit that has begun.
    pub(super) fn keep_context(&mut self, context: &[u8]) {
        self.next_context.clear();
        self.next_context.extend_from_slice(context);
    }

    /// The commit that had begun is durable.
    pub(super) fn adopt_context(&mut self) {
        std::mem::swap(&mut self.last_context, &mut self.next_context);
    }

    /// The commit that had begun is durable.
    pub(super) fn adopt(&mut self, flight: Flight) {
        match flight {
            Flight::Small => self.adopt_small(),
            Flight::Whole(root) => self.adopt_newest(root),
        }
    }

    /// Commits the epoch as a payload, if it can be one.
    pub(super) fn commit_small(&mut self, context: &[u8]) -> Result<Option<Epoch>> {
        let epoch = match self.begin_small(context)? {
            None => return Ok(None),
            Some(Commit::Durable(epoch)) => epoch,
            Some(Commit::Flushing(flush)) => self.below.end_payload(flush.flush())?,
        };
        self.adopt_small();
        Ok(Some(epoch))
    }

    /// Whether these lines wait, and no others.
    pub(super) fn waits_as(&self, found: &Waiting) -> bool {
        let same =
            |a: PageLines<'_>, b: PageLines<'_>| (a.page, a.held, a.bytes) == (b.page, b.held, b.bytes);
        let mut both = found.iter().zip(self.waiting.iter());
        found.len() == self.waiting.len() && both.all(|(a, b)| same(a.lines, b.lines))
    }
}

/// Whether a page of which lines wait is not there.
pub(super) fn absent(waiting: &Waiting, has: impl Fn(u64) -> bool) -> Option<u64> {
    let mut pages = waiting.iter().map(|page| page.lines.page.0);
    pages.find(|&page| !has(page))
}

/// What one epoch's commit is below.
#[derive(Debug)]
pub(super) enum Flight {
    /// A payload.
    Small,
    /// A commit with this root.
    Whole(super::Root),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::LineMask;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(payload in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Payloads::default().add(&payload, 8, 1 << 20);
        }
    }

    #[test]
    fn later_lines_are_newer() {
        let mut found = Payloads::default();
        let payload = |context: &[u8], page: u8, lines: &[u8], value: u8| {
            let mut payload = context.to_vec();
            payload.push(page);
            put_mask(&mut payload, LineMask(lines.iter().map(|line| 1 << line).sum()));
            payload.extend(lines.iter().flat_map(|_| [value; 8]));
            payload
        };
        found
            .add(&payload(&[3, b'a', b'b'], 5, &[1, 2], 7), 8, 6)
            .unwrap();
        found.add(&payload(&[0], 5, &[2, 9], 8), 8, 6).unwrap();
        assert_eq!(found.context.as_deref(), Some(&b"ab"[..]));
        let page = found.waiting.get(5).unwrap();
        let lines = [1, 2, 9].map(|line| page.lines.run(line..line + 1)[0]);
        assert_eq!((page.lines.held, lines), (LineMask(0b10_0000_0110), [7, 8, 8]));
        let mut refused = |payload: &[u8]| found.add(payload, 8, 6).unwrap_err();
        let past_the_end = refused(&payload(&[0], 6, &[2], 8));
        assert!(
            past_the_end.contains("number of a page, before byte 2 of 11"),
            "{past_the_end}"
        );
        assert!(refused(&[9, 1]).contains("context, before byte 1 of 2"));
        assert!(refused(&[0, 1, 5, 0, 0]).contains("lines of a page, before byte 3 of 5"));
    }
}
