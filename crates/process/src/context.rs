//! What is kept with each checkpoint of a program beside its pages: the recovery context.
//!
//! ```text
//!  0  header, 64 bytes: magic, version, section lengths, clocks
//! 64  threads: one slot each of the same size: registers, mask, extended state
//!     running: descriptors' offsets, timers, waiting signals   (postcard)
//!     steady:  layout, kernel state, descriptors, names        (postcard)
//!     pages:   the table of chunks (`pages`)
//!     streams: held output, consumed input (`stdio`)           (as that module wrote it)
//!     calls:   what is left of calls in flight (`interrupted`) (postcard; nothing when there are none)
//!     tree:    the program's descendants ([`Tree`])            (postcard; nothing when there are none)
//!     members: a context of each that lives, one after the other
//! ```
//!
//! * Every section begins on a 64-byte line, and the parts that change in every epoch come first and
//!   have a fixed size, so that a commit writes only the lines that changed.
//! * The store keeps its checksum; here lengths and versions are checked.
//! * A member's context has its memory, threads, signals and timers. Descriptors, streams, files and calls in flight of
//!   the whole tree are in the program's own: they are shared, or named by threads.

mod reader;
mod version1;
mod writer;

#[cfg(test)]
mod tests;

pub use reader::read;
pub use writer::{Threads, Writer};

use crate::advice::Advice;
use crate::clocks::Clocks;
use crate::credentials::Credentials;
use crate::descriptors::{Descriptor, Held, Notice};
use crate::files::{self, OpenFile, RolledBack};
use crate::interrupted::Unfinished;
use crate::ipc;
use crate::kernel::{Kernel, Running};
use crate::layout::Mapping;
use crate::machine::Machine;
use crate::objects;
use crate::segments;
use crate::threads::{Pending, ThreadRegisters, ThreadState};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use twinpage_core::Epoch;
use twinpage_os::trace::{Registers, Tid};

const MAGIC: u32 = u32::from_le_bytes(*b"TPCX");
/// Raised whenever a section changes shape; a build reads all versions up to its own.
/// Version 3 has sockets to the outside, version 4 the tables of descriptors behind the steady part, version 5 the
/// descendants, version 6 the number of a scheduling group behind the tables, version 7 [`Added`] behind that, version 8
/// [`Keepers`] behind that; other bytes are those of version 2.
pub const VERSION: u32 = 8;
const LINE: usize = 64;
const WORDS_IN_REGISTERS: usize = size_of::<Registers>() / 8;
/// tid, mask, robust head and length, rseq address, size and signature, extended length, registers.
const THREAD_HEAD: usize = (8 + WORDS_IN_REGISTERS) * 8;

/// State that changes by itself.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct VolatileState {
    /// What each descriptor holds, in the order of [`StableState::descriptors`].
    pub held: Vec<Held>,
    /// Timers.
    pub timers: Running,
    /// Waiting signals.
    pub pending: Vec<Pending>,
    /// Files open for writing, and how long they were.
    pub files: Vec<OpenFile>,
    /// Files whose content is among the pages.
    pub objects: Vec<objects::Saved>,
    /// Open files that have several names.
    pub links: Vec<files::Linked>,
    /// A signal had stopped the program: it goes on when it is told to.
    pub stopped: bool,
    /// Guard pages, from one address to another.
    pub guards: Vec<(u64, u64)>,
}

impl VolatileState {
    /// Puts the program's files back to this checkpoint, of `epoch` of the state in `dir`.
    ///
    /// # Errors
    /// As [`files::rollback()`].
    pub fn roll_back_files(&self, dir: &Path, epoch: Epoch) -> files::Result<RolledBack> {
        let stored = self.objects.iter().filter_map(objects::Saved::as_stored_file);
        files::rollback(dir, epoch, &self.files, &stored.collect::<Vec<_>>())
    }
}

/// State that changes by watched calls.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StableState {
    /// Where it was made.
    pub machine: Machine,
    /// Process id in its namespace.
    pub pid: i32,
    /// The command, for people.
    pub command: Vec<String>,
    /// What is mapped.
    pub mappings: Vec<Mapping>,
    /// Advice on it.
    pub marks: Vec<Advice>,
    /// Kernel state.
    pub kernel: Kernel,
    /// Open descriptors.
    pub descriptors: Vec<Descriptor>,
    /// Names and steady state of the threads.
    pub threads: Vec<ThreadState>,
    /// Set when the first process ended: its exit code, or the signal that killed it. Others may live on:
    /// [`Context::ending`].
    pub ended: Option<Ending>,
    /// Named pipes that it made.
    #[serde(with = "crate::path_bytes::list")]
    pub fifos: Vec<PathBuf>,
    /// Set when the main thread ended before the others: its exit code.
    pub main_thread_ended: Option<i32>,
    /// Threads with descriptors of their own, and the table of each ([`crate::descriptors::tables`]). Version 4.
    #[serde(skip)]
    pub apart: Vec<(Tid, usize)>,
    /// System V shared memory of the whole tree. Version 7.
    #[serde(skip)]
    pub segments: segments::Saved,
    /// System V semaphores and message queues of the whole tree. Version 7.
    #[serde(skip)]
    pub ipc: ipc::Saved,
    /// The id that a process or thread of the tree got last; 0: it is not known. Version 7.
    #[serde(skip)]
    pub last_id: i32,
}

impl StableState {
    /// A descendant's, with nothing of its own yet.
    pub(crate) fn of_descendant(machine: Machine) -> StableState {
        StableState {
            machine,
            pid: 0,
            command: Vec::new(),
            mappings: Vec::new(),
            marks: Vec::new(),
            kernel: Kernel::default(),
            descriptors: Vec::new(),
            threads: Vec::new(),
            ended: None,
            fifos: Vec::new(),
            main_thread_ended: None,
            apart: Vec::new(),
            segments: segments::Saved::default(),
            ipc: ipc::Saved::default(),
            last_id: 0,
        }
    }
}

/// What version 7 has behind the steady part: fields of its entries that earlier versions lack.
#[derive(Default, Serialize, Deserialize)]
struct Added {
    /// [`ThreadState::credentials`], by thread.
    credentials: Vec<(Tid, Credentials)>,
    /// [`Descriptor::notice`], by the number of the descriptor that the others of its open file share.
    notices: Vec<(i32, Notice)>,
    /// [`StableState::segments`].
    segments: segments::Saved,
    /// [`StableState::ipc`].
    ipc: ipc::Saved,
    /// [`Mapping::only_read`], by first address.
    only_read: Vec<u64>,
    /// [`StableState::last_id`].
    last_id: i32,
}

impl Added {
    fn of(fixed: &StableState) -> Added {
        let threads = fixed.threads.iter();
        let firsts = fixed.descriptors.iter().filter(|one| one.shares == one.fd);
        Added {
            credentials: threads
                .filter_map(|thread| Some((thread.tid, thread.credentials.clone()?)))
                .collect(),
            notices: firsts.filter_map(|one| Some((one.fd, one.notice?))).collect(),
            segments: fixed.segments.clone(),
            ipc: fixed.ipc.clone(),
            only_read: (fixed.mappings.iter())
                .filter(|mapping| mapping.only_read)
                .map(|mapping| mapping.start)
                .collect(),
            last_id: fixed.last_id,
        }
    }

    fn put_into(self, fixed: &mut StableState) {
        (fixed.segments, fixed.ipc, fixed.last_id) = (self.segments, self.ipc, self.last_id);
        for mapping in &mut fixed.mappings {
            mapping.only_read = self.only_read.contains(&mapping.start);
        }
        for (tid, credentials) in self.credentials {
            let thread = fixed.threads.iter_mut().find(|thread| thread.tid == tid);
            if let Some(thread) = thread {
                thread.credentials = Some(credentials);
            }
        }
        for (fd, notice) in self.notices {
            let descriptor = fixed.descriptors.iter_mut().find(|one| one.fd == fd);
            if let Some(descriptor) = descriptor {
                descriptor.notice = Some(notice);
            }
        }
    }
}

/// What version 8 has behind that: the threads that keep their capabilities when they become another user,
/// [`ThreadState::keeps_capabilities`].
#[derive(Default, Serialize, Deserialize)]
struct Keepers(Vec<Tid>);

impl Keepers {
    fn of(fixed: &StableState) -> Keepers {
        let keepers = fixed.threads.iter().filter(|thread| thread.keeps_capabilities);
        Keepers(keepers.map(|thread| thread.tid).collect())
    }

    fn put_into(&self, fixed: &mut StableState) {
        for thread in &mut fixed.threads {
            thread.keeps_capabilities = self.0.contains(&thread.tid);
        }
    }
}

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// With this exit code.
    Exit(i32),
    /// By this signal.
    Signal(i32),
}

/// The program's descendants.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Tree {
    /// All of them, those that ended and were not waited for as well.
    pub members: Vec<Member>,
    /// The process group that has the program's terminal; 0: there is none.
    pub foreground: i32,
}

/// One descendant, by ids of the program's namespace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Its process id.
    pub pid: i32,
    /// Its parent; 1: it is an orphan.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// The signal that its parent gets at its end, clone(2); 0: none.
    pub exit_signal: i32,
    /// Whether it lives.
    pub state: MemberState,
}

/// Whether a descendant lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MemberState {
    /// It does.
    Lives {
        /// Bytes of its context.
        context_bytes: u32,
        /// A signal stopped it, and its parent was not told yet: wait(2).
        stop_untold: bool,
    },
    /// It ended so.
    Ended(Ending),
}

impl Member {
    /// Whether it lives.
    #[must_use]
    pub fn lives(&self) -> bool {
        matches!(self.state, MemberState::Lives { .. })
    }
}

/// A whole context, as read back.
#[derive(Clone, Debug)]
pub struct Context {
    /// The clocks.
    pub clocks: Clocks,
    /// Registers.
    pub threads: Vec<ThreadRegisters>,
    /// What runs.
    pub live: VolatileState,
    /// What is steady.
    pub fixed: StableState,
    /// The table of chunks.
    pub pages: Vec<u8>,
    /// The streams' own bytes.
    pub streams: Vec<u8>,
    /// What is left of calls in flight.
    pub unfinished: Vec<Unfinished>,
    /// The descendants.
    pub tree: Tree,
    /// The contexts of those that live, in the same order.
    pub members: Vec<Context>,
}

impl Context {
    /// How the program ended, if all of it did: no process lives.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        self.fixed.ended.filter(|_| self.members.is_empty())
    }

    /// The process that has a table of descriptors; 0 is the program's own.
    #[must_use]
    pub fn process_of_table(&self, table: usize) -> i32 {
        let thread = self.fixed.apart.iter().find(|(_, other)| *other == table);
        let has_it = |one: &&Context| {
            let mut threads = one.threads.iter();
            thread.is_some_and(|(tid, _)| threads.any(|thread| thread.tid == *tid))
        };
        self.members
            .iter()
            .find(has_it)
            .map_or(self.fixed.pid, |one| one.fixed.pid)
    }

    /// The program's own context, then those of its living descendants.
    pub fn processes(&self) -> impl Iterator<Item = &Context> {
        std::iter::once(self).chain(&self.members)
    }

    /// Whether a thread has an alternate stack that a delivery disarms.
    pub(crate) fn disarms(&self) -> bool {
        self.processes()
            .any(|one| one.fixed.threads.iter().any(ThreadState::disarms))
    }

    /// The tables of chunks: of the program first, then of its living descendants.
    #[must_use]
    pub fn page_tables(&self) -> Vec<&[u8]> {
        self.processes().map(|one| &one.pages[..]).collect()
    }
}

/// What stands beside a program's own state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside<'a> {
    /// The table of chunks.
    pub pages: &'a [u8],
    /// The streams' own bytes.
    pub streams: &'a [u8],
    /// The descendants; the lengths of their contexts are filled in.
    pub members: &'a [(Member, Arc<[u8]>)],
    /// See [`Tree::foreground`].
    pub foreground: i32,
}
