//! Steps: what a design turns a program's accesses into.
//!
//! * Lines and addresses are physical.
//! * A step says both what the machine does and what durable memory holds afterwards, so that what is timed is what is
//!   crashed.

use crate::op::{Kind, LINE_BYTES, Op};

/// What an appended line of a log or journal says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// An undo log's entry: this line as it was before the section.
    Old(u64),
    /// A redo log's entry: this line as it is now.
    New(u64),
    /// The section of this core ends, with the number of its entries.
    End(usize),
    /// SSP's journal: the pages of one transaction.
    Pages(Vec<Page>),
}

/// A page in SSP's metadata journal.
///
/// The paper's record has the new bitmap, which the memory controller makes from all records before it. Here a record has
/// the bits that change: it says the same in whatever order the records of several cores are made and become durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// The virtual page. The paper names the slot (SID) instead, which names the page.
    pub number: u64,
    /// The original physical page.
    pub p0: u64,
    /// The second one.
    pub p1: u64,
    /// Lines whose committed version is from here on in the other page. None after consolidation: all are in the first.
    pub moved: Option<u64>,
}

/// One step of a core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// The program's own load, store or work, at a physical address.
    Own(Op),
    /// The first line is from here on called the second, in the caches.
    Remap(u64, u64),
    /// A line goes to memory, and stays in the caches.
    WriteBack(u64),
    /// A line of a log or journal, written past the caches, with the records that are complete with it.
    Append(u64, Vec<Record>),
    /// The first line is copied to the second, past the caches.
    Copy(u64, u64),
    /// A line that only recovery reads.
    Keep(u64),
    /// Earlier writes are durable before the core goes on.
    Fence,
    /// The core waits, in femtoseconds.
    Wait(u64),
    /// The section is acknowledged.
    Acknowledge,
}

impl Step {
    /// As operations of the machine.
    pub(super) fn lower(&self, ops: &mut Vec<Op>) {
        let mut push = |kind, at, bytes| {
            ops.push(Op {
                at,
                work: 0,
                bytes,
                kind,
                behind: 0,
            });
        };
        let byte = |line: u64| line * LINE_BYTES;
        match self {
            &Step::Own(op) => ops.push(op),
            &Step::Remap(old, new) => push(Kind::Remap, old << 32 | new, 64),
            &Step::WriteBack(line) => push(Kind::Persist, byte(line), 64),
            Step::Append(line, _) | Step::Keep(line) => push(Kind::Stream, byte(*line), 64),
            &Step::Copy(from, to) => {
                push(Kind::Load, byte(from), 64);
                push(Kind::Stream, byte(to), 64);
            }
            Step::Fence => push(Kind::FullFence, 0, 0),
            &Step::Wait(fs) => push(Kind::Wait, fs, 0),
            Step::Acknowledge => push(Kind::Commit, 0, 0),
        }
    }
}
