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

mod version1;

use crate::advice::Advice;
use crate::clocks::Clocks;
use crate::descriptors::{Descriptor, Held};
use crate::error::{Error, Result};
use crate::files::{self, OpenFile};
use crate::interrupted::Unfinished;
use crate::kernel::{Kernel, Running};
use crate::layout::Mapping;
use crate::machine::Machine;
use crate::objects;
use crate::threads::{Pending, ThreadRegisters, ThreadState};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use twinpage_os::trace::{Registers, Rseq, Tid};

const MAGIC: u32 = u32::from_le_bytes(*b"TPCX");
/// Raised whenever a section changes shape; a build reads all versions up to its own.
/// Version 3 has sockets to the outside, version 4 the tables of descriptors behind the steady part, version 5 the
/// descendants, version 6 the number of a scheduling group behind the tables; other bytes are those of version 2.
pub const VERSION: u32 = 6;
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
    /// Set when the program ended: its exit code, or the signal that killed it.
    pub ended: Option<Ending>,
    /// Named pipes that it made.
    #[serde(with = "crate::path_bytes::list")]
    pub fifos: Vec<PathBuf>,
    /// Set when the main thread ended before the others: its exit code.
    pub main_thread_ended: Option<i32>,
    /// Threads with descriptors of their own, and the table of each ([`crate::descriptors::tables`]). Version 4.
    #[serde(skip)]
    pub apart: Vec<(Tid, usize)>,
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
    /// The tables of chunks: of the program first, then of its living descendants.
    #[must_use]
    pub fn page_tables(&self) -> Vec<&[u8]> {
        let members = self.members.iter().map(|member| &member.pages[..]);
        std::iter::once(&self.pages[..]).chain(members).collect()
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
        self.fixed = encode(&(fixed, &fixed.apart, fixed.kernel.settings.group))?;
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

fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
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

/// Reads a context back.
///
/// # Errors
/// Says which part is not as it was written.
pub fn read(bytes: &[u8]) -> Result<Context> {
    read_one(bytes, true)
}

fn damaged(what: &str) -> Error {
    Error::Damaged(format!("context: {what}"))
}

/// Reads the context of the program, or of a member, which has no members of its own.
fn read_one(bytes: &[u8], is_program: bool) -> Result<Context> {
    let header = bytes
        .get(..LINE)
        .ok_or_else(|| damaged("it is shorter than its header"))?;
    let word = |index: usize| u32::from_le_bytes(header[index * 4..][..4].try_into().expect("four bytes"));
    if word(0) != MAGIC {
        return Err(damaged("it does not begin as one"));
    }
    let version = word(1);
    if !(1..=VERSION).contains(&version) {
        return Err(Error::State(format!(
            "the state was written in context version {version}, this build reads versions up to {VERSION}: resume it with the twinpage that wrote it"
        )));
    }
    let clock = |at: usize| u64::from_le_bytes(header[at..][..8].try_into().expect("eight bytes"));
    let clocks = Clocks {
        monotonic_ns: clock(32),
        realtime_ns: clock(40),
    };
    let slot = word(2) as usize;
    let mut at = LINE;
    let mut section = |index: usize, what: &str| {
        let length = word(index) as usize;
        let section = bytes
            .get(at..at.saturating_add(length))
            .ok_or_else(|| damaged(what));
        at = (at + length).next_multiple_of(LINE);
        section
    };
    let threads = section(3, "threads are cut off")?;
    let live = section(4, "running state is cut off")?;
    let fixed = section(5, "steady state is cut off")?;
    let pages = section(6, "the page table is cut off")?.to_vec();
    let streams = section(7, "the streams are cut off")?.to_vec();
    let calls = section(12, "the calls in flight are cut off")?;
    let tree = section(13, "the descendants are cut off")?;
    let members = section(14, "the contexts of descendants are cut off")?;
    if slot < THREAD_HEAD || !threads.len().is_multiple_of(slot) {
        return Err(damaged("thread slots of an impossible size"));
    }
    let threads = threads
        .chunks_exact(slot)
        .map(|slot| read_thread(slot).ok_or_else(|| damaged("a thread's extended state is cut off")))
        .collect::<Result<_>>()?;
    let (live, fixed) = match version {
        1 => version1::decode(live, fixed),
        4.. => postcard::from_bytes(live).and_then(|live| {
            let ((fixed, apart), rest): ((StableState, _), _) = postcard::take_from_bytes(fixed)?;
            let mut fixed = StableState { apart, ..fixed };
            if version >= 6 {
                fixed.kernel.settings.group = postcard::from_bytes(rest)?;
            }
            Ok((live, fixed))
        }),
        _ => postcard::from_bytes(live).and_then(|live| Ok((live, postcard::from_bytes(fixed)?))),
    }
    .map_err(|error| damaged(&error.to_string()))?;
    let tree: Tree = match tree {
        [] => Tree::default(),
        _ if !is_program => return Err(damaged("a descendant with descendants of its own")),
        tree => postcard::from_bytes(tree).map_err(|error| damaged(&error.to_string()))?,
    };
    let context = Context {
        clocks,
        threads,
        live,
        fixed,
        pages,
        streams,
        unfinished: match calls {
            [] => Vec::new(),
            calls => postcard::from_bytes(calls).map_err(|error| damaged(&error.to_string()))?,
        },
        members: read_members(&tree, members)?,
        tree,
    };
    check_tree(&context)?;
    Ok(context)
}

fn read_members(tree: &Tree, mut bytes: &[u8]) -> Result<Vec<Context>> {
    let mut contexts = Vec::new();
    for member in &tree.members {
        let MemberState::Lives { context_bytes, .. } = member.state else {
            continue;
        };
        let (own, rest) = (bytes.split_at_checked(context_bytes as usize))
            .ok_or_else(|| damaged("the context of a descendant is cut off"))?;
        let context = read_one(own, false)?;
        if context.fixed.pid != member.pid {
            return Err(damaged("the context of another process"));
        }
        contexts.push(context);
        bytes = rest;
    }
    Ok(contexts)
}

/// Ids are given once, and every parent is there.
fn check_tree(context: &Context) -> Result<()> {
    let first = context.fixed.pid;
    let members = &context.tree.members;
    let mut ids = HashSet::from([first]);
    for member in members {
        if member.pid < 2 || !ids.insert(member.pid) {
            return Err(damaged("a process id stands twice"));
        }
    }
    let lives = |pid: i32| pid == first || members.iter().any(|member| member.pid == pid && member.lives());
    if !members
        .iter()
        .all(|member| member.parent == 1 || lives(member.parent))
    {
        return Err(damaged("a process whose parent is not there"));
    }
    for other in &context.members {
        let mut tids = other.threads.iter().map(|thread| thread.tid);
        if !tids.all(|tid| tid == other.fixed.pid || tid > 1 && ids.insert(tid)) {
            return Err(damaged("a thread id stands twice"));
        }
    }
    Ok(())
}

fn read_thread(slot: &[u8]) -> Option<ThreadRegisters> {
    let word = |index: usize| u64::from_le_bytes(slot[index * 8..][..8].try_into().expect("eight bytes"));
    let registers = twinpage_os::trace::from_words(&std::array::from_fn(|index| word(8 + index)));
    let extended = slot
        .get(THREAD_HEAD..THREAD_HEAD.checked_add(word(7) as usize)?)?
        .to_vec();
    Some(ThreadRegisters {
        tid: word(0) as i32,
        registers,
        mask: word(1),
        robust: (word(2), word(3)),
        rseq: Rseq::new(word(4), word(5) as u32, word(6) as u32),
        extended,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BESIDE: Beside<'_> = Beside {
        pages: b"table",
        streams: b"streams",
        members: &[],
        foreground: 0,
    };

    fn sample() -> (Writer, Vec<ThreadRegisters>, VolatileState) {
        let mut registers = twinpage_os::trace::from_words(&[0; WORDS_IN_REGISTERS]);
        registers.rip = 0x1234;
        let thread = ThreadRegisters {
            tid: 300,
            registers,
            mask: 5,
            robust: (6, 24),
            rseq: Rseq::new(7, 32, 8),
            extended: vec![9; 832],
        };
        let mut writer = Writer::default();
        let fixed = StableState {
            machine: Machine::this().unwrap(),
            pid: 300,
            command: vec!["true".into()],
            mappings: Vec::new(),
            marks: Vec::new(),
            kernel: Kernel::default(),
            descriptors: Vec::new(),
            threads: Vec::new(),
            ended: Some(Ending::Exit(3)),
            fifos: Vec::new(),
            main_thread_ended: None,
            apart: vec![(301, 1)],
        };
        writer.set_fixed(&fixed).unwrap();
        (writer, vec![thread], VolatileState::default())
    }

    #[test]
    fn a_context_reads_back() {
        let (writer, threads, live) = sample();
        let clocks = Clocks {
            monotonic_ns: 1,
            realtime_ns: 2,
        };
        let unfinished = [Unfinished {
            tid: 300,
            number: libc::SYS_poll,
            until_ns: Some(7),
            done: 0,
            wanted: 0,
            tells: true,
        }];
        let threads = Threads {
            moving: &threads,
            unfinished: &unfinished,
        };
        let mut bytes = Vec::new();
        writer.write(&mut bytes, clocks, threads, &live, BESIDE).unwrap();
        let context = read(&bytes).unwrap();
        assert_eq!(context.unfinished, unfinished);
        assert_eq!(context.clocks, clocks);
        assert_eq!(context.threads[0].registers.rip, 0x1234);
        assert_eq!(context.threads[0].extended, [9; 832]);
        assert_eq!(
            (&context.pages[..], &context.streams[..]),
            (&b"table"[..], &b"streams"[..])
        );
        assert_eq!(context.fixed.ended, Some(Ending::Exit(3)));
        assert_eq!(context.fixed.apart, [(301, 1)]);
    }

    fn member(pid: i32, state: MemberState) -> Member {
        Member {
            pid,
            parent: 300,
            group: 300,
            session: 300,
            exit_signal: libc::SIGCHLD,
            state,
        }
    }

    /// A program with one child that lives and one that ended.
    fn sample_tree() -> Vec<u8> {
        let (writer, threads, live) = sample();
        let threads = Threads {
            moving: &threads,
            unfinished: &[],
        };
        let lives = MemberState::Lives {
            context_bytes: 0,
            stop_untold: true,
        };
        let mut child = Writer::default();
        let mut own = StableState::of_descendant(Machine::this().unwrap());
        own.pid = 302;
        child.set_fixed(&own).unwrap();
        let mut context = Vec::new();
        let clocks = Clocks::default();
        child
            .write(&mut context, clocks, Threads::default(), &live, Beside::default())
            .unwrap();
        let members = [
            (member(302, lives), context.into()),
            (member(301, MemberState::Ended(Ending::Exit(3))), Arc::default()),
        ];
        let beside = Beside {
            members: &members,
            foreground: 302,
            ..BESIDE
        };
        let mut bytes = Vec::new();
        writer.write(&mut bytes, clocks, threads, &live, beside).unwrap();
        bytes
    }

    #[test]
    fn a_tree_reads_back() {
        let context = read(&sample_tree()).unwrap();
        let pids: Vec<i32> = context.tree.members.iter().map(|member| member.pid).collect();
        assert_eq!((pids, context.tree.foreground), (vec![302, 301], 302));
        assert_eq!(context.tree.members[1].state, MemberState::Ended(Ending::Exit(3)));
        assert_eq!((context.members.len(), context.members[0].fixed.pid), (1, 302));
    }

    #[test]
    fn a_tree_that_cannot_be_is_refused() {
        let refused = |edit: fn(&mut Context)| {
            let mut context = read(&sample_tree()).unwrap();
            edit(&mut context);
            check_tree(&context).unwrap_err();
        };
        refused(|context| context.tree.members[0].pid = 300);
        refused(|context| context.tree.members[0].pid = 301);
        refused(|context| context.tree.members[0].pid = 1);
        refused(|context| context.tree.members[0].parent = 301); // it ended
        refused(|context| context.tree.members[1].parent = 303);
    }

    /// As in docs/format.md.
    #[test]
    fn a_tree_is_written_as_it_is_drawn() {
        let tree = Tree {
            members: vec![member(301, MemberState::Ended(Ending::Exit(3)))],
            foreground: 0,
        };
        let drawn = [1, 0xda, 4, 0xd8, 4, 0xd8, 4, 0xd8, 4, 0x22, 1, 0, 6, 0];
        assert_eq!(encode(&tree).unwrap(), drawn);
    }

    /// As in docs/format.md.
    #[test]
    fn calls_are_written_as_they_are_drawn() {
        let call = Unfinished {
            tid: 300,
            number: libc::SYS_poll,
            until_ns: Some(5_000_000),
            done: 0,
            wanted: 0,
            tells: false,
        };
        let drawn = [1, 0xd8, 4, 0x0e, 1, 0xc0, 0x96, 0xb1, 2, 0, 0, 0];
        assert_eq!(encode(&[call].as_slice()).unwrap(), drawn);
    }

    #[test]
    fn the_first_version_is_still_read() {
        let context = read(include_bytes!("../tests/fixtures/context-1.bin")).unwrap();
        let fixed = &context.fixed;
        assert_eq!(fixed.command, ["../p/c_kernel", "1000"]);
        assert_eq!(fixed.kernel.directory, std::path::Path::new("/tmp/program/w"));
        assert_eq!(
            (
                fixed.kernel.actions.len(),
                fixed.kernel.limits.len(),
                fixed.kernel.timers.len()
            ),
            (64, 16, 3)
        );
        assert_eq!(fixed.descriptors.len(), context.live.held.len());
        assert_eq!(fixed.threads.len(), context.threads.len());
        assert_eq!((fixed.ended, fixed.main_thread_ended), (None, None));
        assert!(!context.live.stopped && !context.pages.is_empty() && !context.streams.is_empty());
    }

    #[test]
    fn no_cut_and_no_flip_panics() {
        let bytes = sample_tree();
        for length in 0..bytes.len() {
            let _ = read(&bytes[..length]);
        }
        for at in 0..bytes.len() {
            for bit in [0x80, 0x01] {
                let mut flipped = bytes.clone();
                flipped[at] ^= bit;
                let _ = read(&flipped);
            }
        }
    }
}
