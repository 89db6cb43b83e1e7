//! Payloads: commits of a few bytes that the layer above understands, each one write and one fence.
//!
//! * A record with a payload is valid by its own checksum, so nothing has to be durable before it, and no mark follows.
//! * Payloads are a part of the checkpoint, in the order of their records, until the next commit without one: what they
//!   said is then in pages.
//! * A snapshot that is no commit, of a reclaim, is followed by the records with the payloads that still count.

use super::fault::Fault;
use super::journal::{self, Change, PAYLOAD_OVERHEAD, Stamp};
use super::{Commit, DualPage, Error, Result};
use crate::medium::{Medium, bytes};
use crate::scheme::Epoch;

impl<M: Medium> DualPage<M> {
    /// Bytes that the payload of a commit may have now: none after anything was written since the last one, or in a
    /// store of an earlier version.
    pub(super) fn payload_limit(&self) -> usize {
        let is_begun = !self.touched.is_empty() || !self.claimed.is_empty() || self.redo_pending;
        match self.slots.superblock.payloads && !is_begun {
            true => (self.slots.room() as usize).saturating_sub(PAYLOAD_OVERHEAD),
            false => 0,
        }
    }

    pub(super) fn start_payload(&mut self, payload: &[u8]) -> Result<Commit> {
        let limit = self.payload_limit();
        if !(1..=limit).contains(&payload.len()) {
            let len = payload.len();
            return Err(Error::Invalid(format!(
                "a payload of {len} bytes: expected 1 to {limit}"
            )));
        }
        match self.post_payload(payload)? {
            Some(flush) => Ok(Commit::Flushing(flush)),
            None => self.adopt_newest(Ok(())).map(Commit::Durable),
        }
    }

    /// The payloads that are a part of the checkpoint, the first one first, with their epochs.
    pub(super) fn read_payloads(&self) -> Result<Vec<(Epoch, Vec<u8>)>> {
        let mut payloads = Vec::new();
        let Some(start) = self.slots.payload_at else {
            return Ok(payloads);
        };
        let records = bytes(&self.medium, start, (self.slots.tail - start) as usize)?;
        let (generation, seed) = (self.slots.switch.generation, self.slots.seed);
        let mut at = 0;
        while at < records.len() {
            let found = journal::find(&records[at..], generation, seed);
            let whole = found.and_then(|(stamp, len)| {
                let change = journal::decode(&records[at..at + len]).ok()?;
                Some((stamp.epoch, change.payload, len))
            });
            let Some((epoch, payload, len)) = whole else {
                let why = "it was valid when it was read before";
                return Err(Error::damaged("journal record", start + at as u64, why));
            };
            if !payload.is_empty() {
                payloads.push((epoch, payload));
            }
            at += len;
        }
        Ok(payloads)
    }

    /// The records that follow a snapshot which stands for record `stamp`, and their number.
    pub(super) fn followers(&self, stamp: Stamp) -> Result<(Vec<u8>, u64)> {
        let (mut records, mut record, mut count) = (Vec::new(), Vec::new(), 0);
        if self.faulty(Fault::DropPayloads) {
            return Ok((records, count));
        }
        for (epoch, payload) in self.read_payloads()? {
            count += 1;
            let change = Change {
                context: self.context,
                unfenced: true,
                payload,
                ..Change::default()
            };
            let stamp = Stamp {
                generation: self.slots.next,
                sequence: stamp.sequence + count,
                epoch,
            };
            let whole = journal::encode(&change, stamp, self.slots.seed, &mut record);
            whole.ok_or_else(|| {
                let (len, most) = (change.payload.len(), u32::MAX);
                Error::Invalid(format!(
                    "a payload of {len} bytes, of at most {most} with its record: commit the pages themselves"
                ))
            })?;
            records.extend_from_slice(&record);
        }
        Ok((records, count))
    }
}
