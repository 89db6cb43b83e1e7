//! The context of a commit, in pages of its own: what changed of it is written.

use super::journal::ContextMark;
use super::map::{Flags, Key};
use super::{Cause, DualPage, Result};
use crate::geometry::{PageId, PageLines};
use crate::medium::Medium;
use crate::scheme::Scheme;
use crc32c::crc32c;

/// The newest version of the context, if it is short: most commits have the context of the one before, and need not look
/// at the medium to find that out.
#[derive(Debug, Default)]
pub(super) struct WrittenContext {
    bytes: Vec<u8>,
    mark: ContextMark,
    is_known: bool,
}

impl WrittenContext {
    const MOST: usize = 4096;

    fn mark_of(&self, context: &[u8]) -> Option<ContextMark> {
        (self.is_known && self.bytes == context).then_some(self.mark)
    }

    fn keep(&mut self, context: &[u8], mark: ContextMark) {
        self.is_known = context.len() <= WrittenContext::MOST;
        if self.is_known {
            self.bytes.clear();
            self.bytes.extend_from_slice(context);
            self.mark = mark;
        }
    }

    /// The epoch is forgotten, and what it wrote.
    pub(super) fn forget(&mut self) {
        self.is_known = false;
    }
}

impl<M: Medium> DualPage<M> {
    /// Makes this the newest version of the context.
    pub(super) fn set_context(&mut self, context: &[u8]) -> Result<ContextMark> {
        if let Some(mark) = self.written_context.mark_of(context) {
            return Ok(mark);
        }
        let mark = self.write_context(context)?;
        self.written_context.keep(context, mark);
        Ok(mark)
    }

    /// Writes what changed of the context to its pages.
    fn write_context(&mut self, context: &[u8]) -> Result<ContextMark> {
        let geometry = self.geometry();
        let (line, page_bytes) = (geometry.line_bytes(), geometry.page_bytes());
        for (page, bytes) in context.chunks(page_bytes).enumerate() {
            let key = Key(page as u64);
            let whole = bytes.len() / line * line;
            let mut tail = vec![0; (bytes.len() - whole).next_multiple_of(line)];
            tail[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
            // A page of the context is always there, so that its length can be checked.
            let absent = !self.table.entry(key).is(Flags::NEWEST);
            for (first, bytes) in [(0, &bytes[..whole]), (whole / line, &tail[..])] {
                let held = PageLines::from(PageId(page as u64), first, bytes, line);
                let changed = match absent {
                    true => held.held,
                    false => self.diff_key(key, first, bytes)?,
                };
                if !changed.is_empty() {
                    let _ = self.write_key(key, &held.only(changed), Cause::Context)?;
                }
            }
        }
        let used = context.len().div_ceil(page_bytes) as u64;
        let had = self.context.len.div_ceil(page_bytes as u64);
        if used < had {
            self.discard_keys(Key(used)..Key(had));
        }
        Ok(ContextMark {
            len: context.len() as u64,
            crc: crc32c(context),
        })
    }
}
