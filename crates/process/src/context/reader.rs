//! Decodes a context. Damage of any kind is an error that names the damaged section.

use super::{
    Added, Context, Keepers, LINE, MAGIC, MemberState, StableState, THREAD_HEAD, Tree, VERSION,
    VolatileState, version1,
};
use crate::clocks::Clocks;
use crate::descriptors::Held;
use crate::descriptors::tables::of_earlier_builds;
use crate::error::{Error, Result};
use crate::threads::ThreadRegisters;
use std::collections::HashSet;
use twinpage_os::trace::Rseq;

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
        4.. => postcard::from_bytes(live).and_then(|mut live| {
            let ((fixed, apart), rest): ((StableState, _), _) = postcard::take_from_bytes(fixed)?;
            let mut fixed = StableState { apart, ..fixed };
            if version >= 6 {
                let (group, rest) = postcard::take_from_bytes(rest)?;
                fixed.kernel.settings.group = group;
                if version >= 7 {
                    let (added, rest) = postcard::take_from_bytes::<Added>(rest)?;
                    added.put_into(&mut fixed);
                    if version >= 8 {
                        postcard::from_bytes::<Keepers>(rest)?.put_into(&mut fixed);
                    }
                }
            }
            if version < 7 {
                renumber(&mut live, &mut fixed).ok_or(postcard::Error::SerdeDeCustom)?;
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
pub(super) fn check_tree(context: &Context) -> Result<()> {
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

/// The numbers of descriptors of earlier builds become those of this one. `None` where one is too high.
fn renumber(live: &mut VolatileState, fixed: &mut StableState) -> Option<()> {
    let renumber = |number: &mut i32| {
        *number = of_earlier_builds(*number)?;
        Some(())
    };
    for descriptor in &mut fixed.descriptors {
        renumber(&mut descriptor.fd)?;
        renumber(&mut descriptor.shares)?;
    }
    for held in &mut live.held {
        if let Held::Watched(interests) = held {
            for interest in interests {
                renumber(&mut interest.target)?;
            }
        }
    }
    Some(())
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
