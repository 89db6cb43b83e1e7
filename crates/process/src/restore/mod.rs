//! Bringing a program back: the same process, at the same addresses, with the same ids.
//!
//! 1. Its descriptors are opened here, at high numbers (`files`), and those of its descendants beside them.
//! 2. A child with its process id inherits them, puts them in their places and waits.
//! 3. It makes its descendants, copies of itself, in the same order of parents, sessions and groups (`tree`). What
//!    follows is done to each, the program last.
//! 4. The child is emptied and mapped again, driven from outside by injected calls (`space`).
//! 5. Its pages are filled from the store, all processors at once: all of them, or what it needs to go on (`loading`).
//! 6. Its kernel state is set, its threads are made (`kernel`).
//! 7. Registers last: from then on it is the program. One that has ended ends again instead.
//! 8. It runs while the rest of its pages is filled. A system call waits until all of it is there.
//!
//! A failure on the way leaves the state directory as it was.

mod apart;
mod datagrams;
mod files;
mod in_process;
mod interests;
mod ipc;
mod kernel;
mod loading;
mod loopback;
mod made_sockets;
mod objects;
mod pairs;
mod pidfds;
mod pipes;
mod registers;
pub mod sockets;
mod space;
mod tables;
mod terminals;
mod threads;
mod tree;
pub mod unix_sockets;

pub use apart::{Table, side_by_side};
pub use made_sockets::MadeSockets;

use crate::advice::AdviceInForce;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::files::Ident;
use crate::interrupted::Calls;
use crate::launch;
use crate::memory::Memory;
use crate::objects::Objects;
use crate::pages::Pages;
use crate::pairs::Pairs;
use crate::program::Adopted;
use crate::segments::Segments;
use crate::state::Store;
use crate::stdio::Stdio;
use crate::threads::ThreadRegisters;
use crate::timers::Dues;
use loading::Loading;
use std::collections::HashMap;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::SystemTime;
use twinpage_os::cpuid::{self, Level};
use twinpage_os::inject;
use twinpage_os::remote::Process;
use twinpage_os::seccomp::Filter;
use twinpage_os::trace::{self, Status, Tid};
use twinpage_os::tracker::Tracker;
use twinpage_os::{namespaces, signals, spawn};

/// A program as it was, or as it was a moment later: all its memory is there, and every thread is stopped.
pub struct Restored {
    /// The process.
    pub process: Process,
    /// Its threads.
    pub tids: Vec<Tid>,
    /// Its memory, tracked.
    pub memory: Memory,
    /// Files whose content the checkpoint holds.
    pub objects: Objects,
    /// System V shared memory.
    pub segments: Segments,
    /// Its socket pairs.
    pub pairs: Pairs,
    /// The calls that it and its descendants were in.
    pub calls: Calls,
    /// Its descendants that live.
    pub(crate) descendants: Vec<Adopted>,
    /// What its threads stopped for, those that did.
    pub stops: Vec<(Tid, Status)>,
    /// When it went on.
    pub went_on: SystemTime,
    /// Why it did not go on before all of its memory was there, if so.
    pub waited: Option<&'static str>,
}

/// What is there of the program already.
pub struct Surroundings<'a> {
    /// Its standard streams.
    pub streams: &'a Stdio,
    /// Its sockets to the outside.
    pub sockets: &'a MadeSockets,
    /// The level above which the processor's features are hidden from it.
    pub cpu_floor: Option<Level>,
    /// It is told of the resume by a signal, before it goes on.
    pub is_told: bool,
}

/// What every process of the tree is made with.
struct With<'a> {
    /// The program's context, which has what the whole tree shares.
    tree: &'a Context,
    sources: &'a files::Sources,
    store: &'a Store,
    filter: &'a Filter,
    apart: &'a [Table],
}

/// Brings back the program of `context`, all of whose descriptors are in one table but for `apart`, and whose pages are in `store`. Files that the rollback had to
/// make again have other inodes: `moved`, from old to new. In the state directory `state` things are made
/// that have no name.
///
/// # Errors
/// Names what is missing on this machine, or differs from what the program had.
pub fn restore(
    context: &Context,
    state: &Path,
    store: &Store,
    surroundings: &Surroundings<'_>,
    filter: &Filter,
    moved: &[(Ident, Ident)],
    apart: &[Table],
) -> Result<Restored> {
    use twinpage_core::Scheme;
    let all_pages = Pages::from_tables(store.geometry(), &context.page_tables())?;
    let mut all_pages = all_pages.into_iter();
    let pages = all_pages
        .next()
        .ok_or_else(|| Error::Internal("no page table".into()))?;
    let made = objects::make(context, store, &pages, moved)?;
    ipc::make(&context.fixed.ipc)?;
    let sources = files::open(context, state, surroundings, moved, &made)?;
    let pid = start_child(context, surroundings, &sources)?;
    let process =
        Process::open(pid).map_err(|source| Error::target("cannot open the new process", source))?;
    let pairs = pairs::make(&process, context, sources.base())?;
    let living = make_tree(&process, context, surroundings.streams)?;
    let layout = crate::layout::Layout::open(pid)
        .map_err(|source| Error::target("cannot look at the program", source))?;
    let ended = end_again(&process, context)?;
    let with = With {
        tree: context,
        sources: &sources,
        store,
        filter,
        apart,
    };
    let mut calls = Calls::default();
    let descendants = fill_descendants(living, all_pages, &with, &mut calls)?;
    let mut waited = loading::hindrance(&process, context, surroundings.is_told)?;
    let Filled {
        tracker,
        tids,
        loading,
    } = match ended {
        None => fill_process(&process, context, &pages, &with, waited.is_none())?,
        Some(ended) => ended,
    };
    if waited.is_none() && loading.is_over() {
        waited = Some("the kernel refuses to wait for its pages");
    }
    let segments = made.segments(&context.fixed.segments)?;
    let objects = made.finish(context)?;
    go_on_with_ids(context)?;
    let filler = filler(&process, &tracker, store, &pages);
    let (went_on, stops) = let_begin(filler, loading, waited.is_none(), &with, &mut calls)?;
    let (process, tids) = stop_and_end(process, tids, context)?;
    let marks = AdviceInForce::new(context.fixed.marks.clone());
    let mut memory = Memory::new(layout, tracker, pages, marks, store.geometry());
    for &(start, end) in &context.live.guards {
        memory.may_guard(start..end);
    }
    Ok(Restored {
        process,
        tids,
        pairs,
        calls,
        memory,
        objects,
        segments,
        descendants,
        stops,
        went_on,
        waited,
    })
}

/// Makes the processes of the tree, with their terminals. Returns the descendants that live.
fn make_tree(process: &Process, context: &Context, streams: &Stdio) -> Result<Vec<Process>> {
    kernel::open_terminal(process, context)?;
    let living = tree::grow(process, context)?;
    if let (Some(terminal), true) = (streams.terminal(), context.tree.foreground > 0) {
        kernel::give_terminal(process, terminal as u64, context.tree.foreground)?;
    }
    terminals::give(process, &living, context)?;
    Ok(living)
}

/// Ends the first process again if it had ended. Its descendants are filled later, which drops its signals.
fn end_again(process: &Process, context: &Context) -> Result<Option<Filled>> {
    if context.fixed.ended.is_none() {
        return Ok(None);
    }
    let tracker = crate::program::track(process, process.pid())?;
    tree::end_first(process)?;
    Ok(Some(Filled {
        tracker,
        tids: Vec::new(),
        loading: Loading::default(),
    }))
}

/// Ends the main thread again if it had ended, and stops the program if it was stopped. Returns the living threads.
fn stop_and_end(process: Process, tids: Vec<Tid>, context: &Context) -> Result<(Process, Vec<Tid>)> {
    let main_thread = process.pid();
    let process = match context.fixed.main_thread_ended {
        Some(code) => threads::end_main_thread(process, &tids, code)?,
        None => process,
    };
    if context.live.stopped {
        threads::stop_all(&process)?;
    }
    let lives = |tid: &Tid| *tid == process.thread() || *tid != main_thread;
    let tids = tids.into_iter().filter(lives).collect();
    Ok((process, tids))
}

/// Fills the descendants that live, children before parents. Parents come first in what this gives.
fn fill_descendants(
    living: Vec<Process>,
    pages: impl Iterator<Item = Pages>,
    with: &With<'_>,
    calls: &mut Calls,
) -> Result<Vec<Adopted>> {
    let mut with_pages: HashMap<i32, (&Context, Pages)> = (with.tree.members.iter().zip(pages))
        .map(|(member, pages)| (member.fixed.pid, (member, pages)))
        .collect();
    let mut descendants = Vec::new();
    for process in living.into_iter().rev() {
        let known = with_pages.remove(&process.pid());
        let (own, pages) =
            known.ok_or_else(|| Error::Internal(format!("process {} is not known", process.pid())))?;
        kernel::enter_directory(&process, own)?;
        descendants.push(descendant(process, own, pages, with, calls)?);
    }
    descendants.reverse();
    Ok(descendants)
}

/// The program begins where it was: while its memory is loaded, where that `is_early`, else once all of it is there. Says
/// when it went on, and what its threads stopped for meanwhile.
fn let_begin(
    filler: loading::Filler<'_>,
    loading: Loading,
    is_early: bool,
    with: &With<'_>,
    calls: &mut Calls,
) -> Result<(SystemTime, Vec<(Tid, Status)>)> {
    let (process, context) = (filler.process, with.tree);
    let is_first = |thread: &ThreadRegisters| is_early && loading::is_outside(context, thread);
    begin(process, context, with, calls, is_first)?;
    let went_on = SystemTime::now();
    let stops = match is_early {
        false => Vec::new(),
        true => {
            let first = context.threads.iter().filter(|thread| is_first(thread));
            let first: Vec<Tid> = first.map(|thread| thread.tid).collect();
            loading.run(filler, &first)?
        }
    };
    begin(process, context, with, calls, |thread| !is_first(thread))?;
    Ok((went_on, stops))
}

fn filler<'a>(
    process: &'a Process,
    tracker: &'a Tracker,
    store: &'a Store,
    pages: &'a Pages,
) -> loading::Filler<'a> {
    loading::Filler {
        process,
        tracker,
        store,
        pages,
    }
}

/// The next process or thread gets the id that it would have got: not one that a process had which the program may
/// remember.
fn go_on_with_ids(context: &Context) -> Result<()> {
    let threads = (context.processes()).flat_map(|one| one.threads.iter().map(|thread| thread.tid));
    let members = context.tree.members.iter().map(|member| member.pid);
    let last = match context.fixed.last_id {
        0 => threads.chain(members).max().unwrap_or_default(),
        last => last,
    };
    namespaces::set_last_pid(last)
        .map_err(|source| Error::target("cannot go on with the ids of processes", source))
}

/// A descendant, all of whose threads are stopped.
fn descendant(
    process: Process,
    context: &Context,
    pages: Pages,
    with: &With<'_>,
    calls: &mut Calls,
) -> Result<Adopted> {
    let Filled { tracker, tids, .. } = fill_process(&process, context, &pages, with, false)?;
    begin(&process, context, with, calls, |_| true)?;
    if context.live.stopped {
        tree::stop_again(&process, &tids)?;
    }
    let layout = crate::layout::Layout::open(process.pid())
        .map_err(|source| Error::target("cannot look at a process of the program", source))?;
    let marks = AdviceInForce::new(context.fixed.marks.clone());
    Ok(Adopted {
        memory: Memory::of_descendant(layout, tracker, pages, marks),
        stopped: context.live.stopped,
        dues: Dues::resumed(&context.fixed.kernel.timers, &context.live.timers, context.clocks),
        process,
        tids,
    })
}

/// A process that is what it was, but for the registers of its threads.
struct Filled {
    tracker: Tracker,
    tids: Vec<Tid>,
    loading: Loading,
}

/// Makes a process what it was, but for the registers of its threads and, `early`, most of its pages.
fn fill_process(
    process: &Process,
    context: &Context,
    pages: &Pages,
    with: &With<'_>,
    early: bool,
) -> Result<Filled> {
    let &With { sources, apart, .. } = with;
    space::empty(process, context)?;
    space::map(process, context, sources)?;
    let tracker = crate::program::track(process, process.pid())?;
    let loading = loading::fill(filler(process, &tracker, with.store, pages), context, early)?;
    space::advise(process, context)?; // behind the pages: it parts mappings, which are filled whole
    space::guard(process, context)?;
    kernel::set(process, context, with)?;
    let mut tids = threads::make_threads(process, context, apart)?;
    kernel::open_about_itself(process, context)?;
    tids.extend(tables::part(process, apart)?);
    kernel::set_notices(process, context, apart)?;
    if process.pid() == with.tree.fixed.pid {
        tables::close_others(process, apart)?;
    }
    if !with.tree.tree.members.is_empty() {
        tree::take_stops(process, with.tree)?;
        tree::forget_signals(process)?;
    }
    ipc::undo(process, context, &with.tree.fixed.ipc)?;
    threads::set_credentials(process, context)?;
    threads::set_threads(process, context)?;
    registers::shorten_frames(process, context)?;
    kernel::take_locks(process, context, apart)?;
    kernel::set_limits(process, context)?;
    Ok(Filled {
        tracker,
        tids,
        loading,
    })
}

/// Gives `these` threads of a process their registers.
fn begin(
    process: &Process,
    context: &Context,
    with: &With<'_>,
    calls: &mut Calls,
    these: impl Fn(&ThreadRegisters) -> bool,
) -> Result<()> {
    let Some(any) = context.threads.iter().find(|thread| these(thread)) else {
        return Ok(());
    };
    let length = registers::extended_length(any.tid)?;
    for thread in context.threads.iter().filter(|thread| these(thread)) {
        let unfinished = &with.tree.unfinished;
        let call = unfinished.iter().find(|call| call.tid == thread.tid);
        registers::begin_where_it_was(process, thread, length, call, calls)?;
    }
    Ok(())
}

const CANNOT_ENTER: i32 = 124;
const CANNOT_PLANT: i32 = 123;
const CANNOT_HIDE: i32 = 122;

/// A child with the program's id, its descriptors, directory and mask, stopped and traced.
fn start_child(context: &Context, around: &Surroundings<'_>, sources: &files::Sources) -> Result<Tid> {
    let fixed = &context.fixed;
    let make = |source| Error::target("cannot make the program's process", source);
    let (mut ready, ready_end) = std::io::pipe().map_err(make)?;
    let ready_end = sources.above(ready_end)?; // out of the way of the program's descriptors
    let ready_end_fd = ready_end.as_raw_fd();
    let directory = match fixed.ended {
        None => sources.working_directory(&fixed.kernel)?,
        Some(_) => c"/".to_owned(),
    };
    let terminal = around.streams.terminal().map(|stream| stream as i32);
    let umask = fixed.kernel.umask;
    namespaces::set_last_pid(fixed.pid - 1).map_err(make)?;
    let pid = spawn::clone_with_pid(fixed.pid, || {
        signals::reset_actions();
        spawn::leave_session();
        sources.put_in_place(terminal);
        if spawn::enter_directory(&directory, umask).is_err() {
            spawn::exit_now(CANNOT_ENTER);
        }
        if inject::plant_here().is_err() {
            spawn::exit_now(CANNOT_PLANT);
        }
        if around.cpu_floor.is_some() && cpuid::set_off().is_err() {
            spawn::exit_now(CANNOT_HIDE);
        }
        spawn::close(ready_end_fd);
        spawn::wait_for_ever();
    })
    .map_err(make)?;
    drop(ready_end);
    ready.read_to_end(&mut Vec::new()).map_err(make)?; // ends when the child closed its end
    if let Err(error) = launch::seize(pid) {
        // One that ended cannot be traced either: it says more.
        return Err(match trace::wait(pid, false).map_err(make)? {
            Some((_, Status::Exited(code))) => not_prepared(code, &fixed.kernel.directory),
            Some((_, Status::Killed(_))) => Error::Killed,
            _ => error,
        });
    }
    trace::interrupt(pid).map_err(make)?;
    loop {
        match trace::wait(pid, true).map_err(make)?.map(|(_, status)| status) {
            Some(Status::Interrupted) => return Ok(pid),
            Some(Status::Exited(code)) => return Err(not_prepared(code, &fixed.kernel.directory)),
            Some(Status::Killed(_)) => return Err(Error::Killed),
            Some(Status::Signal(signal)) => trace::go_on(pid, signal).map_err(make)?,
            // For example the stop of an exiting process (PTRACE_EVENT_EXIT).
            Some(_) => trace::go_on(pid, 0).map_err(make)?,
            None => {}
        }
    }
}

/// Why the child ended before it was the program.
fn not_prepared(code: i32, directory: &Path) -> Error {
    match code {
        CANNOT_ENTER => Error::State(format!(
            "{}: the program's working directory is gone or may not be entered; make it again to resume",
            directory.display()
        )),
        CANNOT_HIDE => {
            Error::Machine("cpuid cannot be turned off for the program: report this kernel".into())
        }
        _ => Error::Internal("the new process died while it was prepared".into()),
    }
}
