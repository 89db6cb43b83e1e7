//! A context as bytes. Those of the steady part are kept until it changes.

use super::{
    Added, Beside, Keepers, LINE, MAGIC, MemberState, StableState, THREAD_HEAD, Tree, VERSION, VolatileState,
};
use crate::clocks::Clocks;
use crate::error::{Error, Result};
use crate::interrupted::Unfinished;
use crate::threads::ThreadRegisters;
use serde::Serialize;

impl Beside<'_> {
    /// The sections `tree` and `members`.
    fn sections(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        if self.members.is_empty() {
            return Ok(Default::default());
        }
        let mut tree = Tree {
            members: Vec::with_capacity(self.members.len()),
            foreground: self.foreground,
        };
        let mut contexts = Vec::new();
        for (member, context) in self.members {
            let mut member = member.clone();
            if let MemberState::Lives { context_bytes, .. } = &mut member.state {
                *context_bytes = context.len() as u32;
                contexts.extend_from_slice(context);
            }
            tree.members.push(member);
        }
        Ok((encode(&tree)?, contexts))
    }
}

/// The threads of a program at a stop.
#[derive(Clone, Copy, Debug, Default)]
pub struct Threads<'a> {
    /// Registers.
    pub moving: &'a [ThreadRegisters],
    /// What is left of the calls that some are in.
    pub unfinished: &'a [Unfinished],
}

/// Writes contexts, keeping the bytes of the steady part until it changes.
#[derive(Debug, Default)]
pub struct Writer {
    fixed: Vec<u8>,
}

impl Writer {
    /// The steady part changed.
    ///
    /// # Errors
    /// Never in practice: every field can be encoded.
    pub fn set_fixed(&mut self, fixed: &StableState) -> Result<()> {
        self.fixed = encode(&(
            fixed,
            &fixed.apart,
            fixed.kernel.settings.group,
            Added::of(fixed),
            Keepers::of(fixed),
        ))?;
        Ok(())
    }

    /// Writes a context.
    ///
    /// # Errors
    /// Never in practice: every field can be encoded.
    pub fn write(
        &self,
        into: &mut Vec<u8>,
        clocks: Clocks,
        threads: Threads<'_>,
        live: &VolatileState,
        beside: Beside<'_>,
    ) -> Result<()> {
        let live = encode(live)?;
        let (tree, members) = beside.sections()?;
        let calls = match threads.unfinished {
            [] => Vec::new(),
            unfinished => encode(&unfinished)?,
        };
        let threads = threads.moving;
        let slot = slot_bytes(threads);
        let lengths = [
            threads.len() * slot,
            live.len(),
            self.fixed.len(),
            beside.pages.len(),
            beside.streams.len(),
        ];
        into.clear();
        into.extend_from_slice(&MAGIC.to_le_bytes());
        into.extend_from_slice(&VERSION.to_le_bytes());
        into.extend_from_slice(&(slot as u32).to_le_bytes());
        for length in lengths {
            into.extend_from_slice(&(length as u32).to_le_bytes());
        }
        into.extend_from_slice(&clocks.monotonic_ns.to_le_bytes());
        into.extend_from_slice(&clocks.realtime_ns.to_le_bytes());
        for length in [calls.len(), tree.len(), members.len()] {
            into.extend_from_slice(&(length as u32).to_le_bytes());
        }
        pad(into);
        for thread in threads {
            let end = into.len() + slot;
            write_thread(into, thread);
            into.resize(end, 0);
        }
        let (pages, streams) = (beside.pages, beside.streams);
        for section in [&live, &self.fixed, pages, streams, &calls, &tree, &members] {
            into.extend_from_slice(section);
            pad(into);
        }
        Ok(())
    }
}

pub(super) fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|error| Error::Internal(format!("cannot encode the context: {error}")))
}

fn pad(into: &mut Vec<u8>) {
    into.resize(into.len().next_multiple_of(LINE), 0);
}

fn slot_bytes(threads: &[ThreadRegisters]) -> usize {
    let extended = threads
        .iter()
        .map(|thread| thread.extended.len())
        .max()
        .unwrap_or(0);
    (THREAD_HEAD + extended).next_multiple_of(LINE)
}

fn write_thread(into: &mut Vec<u8>, thread: &ThreadRegisters) {
    let head = [
        thread.tid as u64,
        thread.mask,
        thread.robust.0,
        thread.robust.1,
        thread.rseq.address,
        u64::from(thread.rseq.size),
        u64::from(thread.rseq.signature),
        thread.extended.len() as u64,
    ];
    for word in head
        .into_iter()
        .chain(twinpage_os::trace::words(&thread.registers))
    {
        into.extend_from_slice(&word.to_le_bytes());
    }
    into.extend_from_slice(&thread.extended);
}
