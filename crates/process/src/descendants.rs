//! The processes that a program made, and those that they made: which there are, and what each is.
//!
//! * Every descendant is traced from its first instruction to its end, and has the program's filter.
//! * A descendant is known before it runs, and until its end was taken note of: by its parent (wait(2)), or by
//!   init where the parent ended before.
//! * A call that may make a process counts as one from its beginning until it is known what it made.
//! * A thread is counted as running until it is known to stand still.
//! * What a descendant did that no look at it would find keeps it from being captured, and what it makes as well.

use crate::advice::AdviceInForce;
use crate::command_line::command_of;
use crate::context::Ending;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::time::{Duration, Instant};
use twinpage_os::proc_file::{self, field};
use twinpage_os::remote::Process;
use twinpage_os::trace::Tid;

/// Processes by their ids, which are one namespace's with those of all threads.
#[derive(Debug, Default)]
pub struct Descendants {
    list: BTreeMap<i32, Descendant>,
    /// Threads of living descendants.
    threads: BTreeMap<Tid, OfDescendant>,
    /// Threads in a call that may make a process: its flags, clone(2).
    making: HashMap<Tid, u64>,
    /// There were some since [`Descendants::take_lived`].
    lived: bool,
    /// Some came or went since.
    changed: bool,
}

/// A thread of a descendant.
#[derive(Clone, Copy, Debug)]
struct OfDescendant {
    pid: i32,
    state: State,
    /// It has not stopped yet.
    is_new: bool,
}

/// Whether a thread runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Running,
    /// It stands still, and can be looked at.
    Stopped,
    /// A signal stopped its whole process, and the thread can be looked at.
    GroupStopped,
    /// The same, and it waits for the signal that ends it.
    Listening,
    /// Calls were made in it, and it goes back to where a signal had stopped it.
    Returning,
    /// It is not let go yet: see `program/standing.rs`.
    Standing,
    /// It is left alone at this stop: see `program/asleep.rs`.
    Asleep,
}

/// A process that is not the first.
#[derive(Debug)]
pub struct Descendant {
    pid: i32,
    parent: i32,
    since: Instant,
    /// It uses its parent's memory: `CLONE_VM`.
    pub(crate) shares_memory: bool,
    /// It has executed a program, which its maker may tell of later than it does itself.
    executed: bool,
    ended: Option<Ending>,
    /// Opened at the first call that needs it.
    pub(crate) process: Option<Process>,
    /// The advice it gave on its memory, or inherited, until its memory is followed.
    pub(crate) advice: AdviceInForce,
    /// What it did that is not captured.
    unfit: Option<&'static str>,
}

/// A descendant, as it is told to people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Described {
    /// Its process id, in the program's namespace.
    pub pid: i32,
    /// Its command line; what it was, if it ended and its parent has not waited for it.
    pub command: String,
    /// How long it has lived.
    pub age: Duration,
    /// It ended, and its parent has not waited for it.
    pub ended: bool,
}

/// A descendant that keeps checkpoints from being made. Its command line is read when it is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Obstacle {
    pid: i32,
    /// The call that it made; none of one that uses its maker's memory.
    called: Option<&'static str>,
}

impl Descendants {
    /// A thread begins a call that may make a process.
    pub(crate) fn begin_making(&mut self, tid: Tid, flags: u64) {
        self.making.insert(tid, flags);
    }

    /// What a thread was making, if it was: its call ended, with a process or without.
    pub(crate) fn end_making(&mut self, tid: Tid) -> Option<u64> {
        self.making.remove(&tid)
    }

    /// Threads in a call that may make a process.
    pub(crate) fn makers(&self) -> Vec<Tid> {
        self.making.keys().copied().collect()
    }

    /// A process was made, as its maker tells. It may have stopped before, or ended.
    pub(crate) fn add(&mut self, pid: i32, parent: i32, flags: Option<u64>) {
        (self.lived, self.changed) = (true, true);
        let unfit = self.list.get(&parent).and_then(|parent| parent.unfit);
        let known = self
            .list
            .entry(pid)
            .or_insert_with(|| Descendant::new(pid, parent));
        known.unfit = known.unfit.or(unfit);
        if let Some(flags) = flags {
            known.shares_memory = flags & libc::CLONE_VM as u64 != 0 && !known.executed;
        }
        if known.ended.is_none() {
            self.threads.entry(pid).or_insert(OfDescendant::new(pid));
        }
    }

    /// A process stopped that was not known, or whose id an earlier one had.
    pub(crate) fn meet(&mut self, pid: i32, parent: i32) {
        (self.lived, self.changed) = (true, true);
        self.list.insert(pid, Descendant::new(pid, parent));
        self.threads.insert(pid, OfDescendant::new(pid));
    }

    /// A process of a checkpoint is there again. It ended, or its threads stand still.
    pub(crate) fn restored(&mut self, pid: i32, parent: i32, state: Result<&[Tid], Ending>) {
        self.meet(pid, parent);
        match state {
            Err(ending) => self.end_thread(pid, ending),
            Ok(tids) => {
                for tid in tids {
                    self.add_thread(*tid, pid);
                    self.has_begun(*tid);
                    self.set_state(*tid, State::Stopped);
                }
            }
        }
    }

    /// Those that ended before they were known have no other sign of it than that their ids are free.
    pub(crate) fn forget_lost(&mut self, is_free: impl Fn(i32) -> bool) {
        let asleep = |pid: &i32| (self.threads.get(pid)).is_some_and(|thread| thread.state == State::Asleep);
        let mut living = self.living();
        living.retain(|pid| !asleep(pid)); // the end of a sleeper is noticed otherwise
        for pid in living.into_iter().filter(|pid| is_free(*pid)) {
            self.end_thread(pid, Ending::Signal(libc::SIGKILL));
            self.list.remove(&pid);
        }
    }

    /// A descendant made a thread.
    pub(crate) fn add_thread(&mut self, tid: Tid, pid: i32) {
        self.threads.entry(tid).or_insert(OfDescendant::new(pid));
    }

    /// A thread is gone that nothing told of.
    pub(crate) fn forget_thread(&mut self, tid: Tid) {
        self.threads.remove(&tid);
    }

    /// The descendant that a thread is of.
    #[must_use]
    pub fn of_thread(&self, tid: Tid) -> Option<i32> {
        self.threads.get(&tid).map(|thread| thread.pid)
    }

    /// A thread stopped, or was let go. What is no descendant's is not known here.
    pub(crate) fn set_state(&mut self, tid: Tid, state: State) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.state = state;
        }
    }

    /// Whether a thread goes back to where a signal had stopped it.
    pub(crate) fn returns(&self, tid: Tid) -> bool {
        (self.threads.get(&tid)).is_some_and(|thread| thread.state == State::Returning)
    }

    /// A thread stopped. Whether it had before.
    pub(crate) fn has_begun(&mut self, tid: Tid) -> bool {
        let thread = self.threads.get_mut(&tid);
        thread.is_some_and(|thread| !std::mem::replace(&mut thread.is_new, false))
    }

    /// All threads of living descendants: process, thread, state.
    pub(crate) fn threads(&self) -> impl Iterator<Item = (i32, Tid, State)> {
        self.threads
            .iter()
            .map(|(tid, thread)| (thread.pid, *tid, thread.state))
    }

    /// The thread with the lowest id above this one.
    pub(crate) fn thread_after(&self, tid: Tid) -> Option<Tid> {
        let mut above = self.threads.range((Bound::Excluded(tid), Bound::Unbounded));
        above.next().map(|(next, _)| *next)
    }

    /// The threads of one, its first thread first.
    pub(crate) fn tids_of(&self, pid: i32) -> Vec<Tid> {
        let others = self.threads().filter(|(of, tid, _)| *of == pid && *tid != pid);
        let first = self.threads.contains_key(&pid).then_some(pid);
        first.into_iter().chain(others.map(|(_, tid, _)| tid)).collect()
    }

    /// A descendant did something that no look at it would find.
    pub(crate) fn is_unfit(&mut self, pid: i32, call: &'static str) {
        if let Some(descendant) = self.list.get_mut(&pid) {
            descendant.unfit.get_or_insert(call);
        }
    }

    /// Why no checkpoint can be made now, if a descendant that lives is the reason.
    pub(crate) fn obstacle(&self) -> Option<Obstacle> {
        let mut living = self.list.values().filter(|one| one.ended.is_none());
        let found = living.find(|one| one.shares_memory || one.unfit.is_some())?;
        Some(Obstacle {
            pid: found.pid,
            called: found.unfit.filter(|_| !found.shares_memory),
        })
    }

    /// A living descendant, or one that was not waited for.
    pub(crate) fn get_mut(&mut self, pid: i32) -> Option<&mut Descendant> {
        self.list.get_mut(&pid)
    }

    /// Whether there is such a descendant, living or not waited for.
    pub(crate) fn has(&self, pid: i32) -> bool {
        self.list.contains_key(&pid)
    }

    /// The process whose memory a descendant began with; none once it has executed a program.
    pub(crate) fn maker(&self, pid: i32) -> Option<i32> {
        let one = self.list.get(&pid).filter(|one| !one.executed);
        one.map(Descendant::parent)
    }

    /// Whether a descendant uses its maker's memory: `CLONE_VM`.
    pub(crate) fn shares_memory(&self, pid: i32) -> bool {
        self.list.get(&pid).is_some_and(|one| one.shares_memory)
    }

    /// How many threads a descendant has.
    #[must_use]
    pub fn threads_of(&self, pid: i32) -> usize {
        self.threads.values().filter(|thread| thread.pid == pid).count()
    }

    /// A descendant executes another program: one thread is left, in a memory of its own.
    pub(crate) fn execute(&mut self, pid: i32) {
        self.threads.retain(|_, thread| thread.pid != pid);
        self.threads.insert(
            pid,
            OfDescendant {
                is_new: false,
                ..OfDescendant::new(pid)
            },
        );
        if let Some(descendant) = self.list.get_mut(&pid) {
            descendant.shares_memory = false;
            descendant.executed = true;
            descendant.process = None;
            descendant.advice = AdviceInForce::default();
        }
    }

    /// A thread of a descendant ended; with the last one, whose id is the process's, the process, and so.
    pub(crate) fn end_thread(&mut self, tid: Tid, ending: Ending) {
        self.changed = true;
        self.making.remove(&tid);
        self.threads.remove(&tid);
        if let Some(descendant) = self.list.get_mut(&tid) {
            self.threads.retain(|_, thread| thread.pid != tid);
            descendant.ended = Some(ending);
            descendant.process = None;
        }
    }

    /// Those that ended, and how. They may have been waited for since.
    pub(crate) fn ended(&self) -> impl Iterator<Item = (i32, Ending)> {
        self.list
            .values()
            .filter_map(|descendant| Some((descendant.pid, descendant.ended?)))
    }

    /// Whether none is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether there are none: all ended, and were waited for. `is_waited_for` says that of an id.
    pub(crate) fn are_gone(&mut self, is_waited_for: impl Fn(i32) -> bool) -> bool {
        if self.list.is_empty() && self.making.is_empty() {
            return true;
        }
        self.list
            .retain(|pid, descendant| descendant.ended.is_none() || !is_waited_for(*pid));
        self.list.is_empty() && self.making.is_empty()
    }

    /// Whether a process lives.
    #[must_use]
    pub fn any_lives(&self) -> bool {
        !self.making.is_empty() || self.list.values().any(|descendant| descendant.ended.is_none())
    }

    /// Those that live.
    #[must_use]
    pub fn living(&self) -> Vec<i32> {
        let living = self.list.values().filter(|descendant| descendant.ended.is_none());
        living.map(|descendant| descendant.pid).collect()
    }

    /// Whether any came or went since [`Descendants::take_lived`], or one is being made.
    pub(crate) fn changed(&self) -> bool {
        self.changed || !self.making.is_empty()
    }

    /// Whether there were any since the last call.
    pub(crate) fn take_lived(&mut self) -> bool {
        let lives = self.any_lives();
        self.changed = false;
        std::mem::replace(&mut self.lived, lives)
    }

    /// The process that has kept the program from being captured longest: the oldest child of the program `first`, or
    /// of no living descendant, that lives; if none does, the oldest that has not been waited for.
    #[must_use]
    pub fn oldest(&self, first: i32) -> Option<Described> {
        let living: HashSet<i32> = self.living().into_iter().collect();
        let tops = self.list.values();
        let tops = tops.filter(|one| one.parent == first || !living.contains(&one.parent));
        tops.min_by_key(|one| (one.ended.is_some(), one.since))
            .map(Descendant::describe)
    }
}

impl Descendant {
    /// The process that made it.
    pub(crate) fn parent(&self) -> i32 {
        self.parent
    }

    fn new(pid: i32, parent: i32) -> Descendant {
        Descendant {
            pid,
            parent,
            since: Instant::now(),
            shares_memory: false,
            executed: false,
            ended: None,
            process: None,
            advice: AdviceInForce::default(),
            unfit: None,
        }
    }

    fn describe(&self) -> Described {
        Described {
            pid: self.pid,
            command: command_of(self.pid),
            age: self.since.elapsed(),
            ended: self.ended.is_some(),
        }
    }
}

impl OfDescendant {
    fn new(pid: i32) -> OfDescendant {
        OfDescendant {
            pid,
            state: State::Running,
            is_new: true,
        }
    }
}

impl Described {
    /// Its id and command line.
    #[must_use]
    pub fn name(&self) -> String {
        name(self.pid, &self.command)
    }
}

fn name(pid: i32, command: &str) -> String {
    match command {
        "" => format!("process {pid}"),
        command => format!("process {pid} ({command})"),
    }
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = name(self.pid, &command_of(self.pid));
        match self.called {
            Some(call) => write!(f, "{name} has called {call}, what that changes is not captured"),
            None => write!(f, "{name} uses the memory of the process that made it (vfork)"),
        }
    }
}

/// What it is, and why it counts.
impl std::fmt::Display for Described {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let why = if self.ended {
            "ended and was not waited for"
        } else {
            "has not ended"
        };
        write!(f, "{} {why}", self.name())
    }
}

/// The process that a thread is of, and that one's parent: proc_pid_status(5).
pub(crate) fn process_of(tid: Tid) -> Option<(i32, i32)> {
    let status = proc_file::text(format!("/proc/{tid}/status")).ok()?;
    let number = |name| field(&status, name)?.parse().ok();
    Some((number("Tgid")?, number("PPid")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORK: Option<u64> = Some(libc::SIGCHLD as u64);
    const FIRST: i32 = 300;
    const ENDED: Ending = Ending::Exit(0);

    #[test]
    fn a_process_is_there_from_the_call_that_makes_it_until_it_is_waited_for() {
        let mut tree = Descendants::default();
        assert!(tree.are_gone(|_| true));
        tree.begin_making(FIRST, libc::SIGCHLD as u64);
        assert!(!tree.are_gone(|_| true), "the call may have made one");
        let flags = tree.end_making(FIRST);
        tree.add(301, FIRST, flags);
        assert!(!tree.are_gone(|_| true));
        tree.end_thread(301, ENDED);
        assert!(!tree.any_lives() && !tree.are_gone(|_| false));
        assert!(tree.are_gone(|pid| pid == 301));
        assert!(tree.take_lived() && !tree.take_lived());
    }

    #[test]
    fn a_call_that_fails_makes_none() {
        let mut tree = Descendants::default();
        tree.begin_making(FIRST, 0);
        assert_eq!(tree.end_making(FIRST), Some(0));
        assert!(tree.are_gone(|_| false));
    }

    #[test]
    fn it_lives_as_long_as_its_last_thread() {
        let mut tree = Descendants::default();
        tree.add(301, FIRST, FORK);
        tree.add_thread(302, 301);
        assert_eq!((tree.of_thread(302), tree.threads_of(301)), (Some(301), 2));
        tree.end_thread(302, ENDED);
        assert_eq!(tree.living(), [301]);
        tree.add_thread(303, 301);
        tree.execute(301);
        assert_eq!((tree.of_thread(303), tree.threads_of(301)), (None, 1));
        tree.end_thread(301, ENDED);
        assert_eq!(tree.living(), [] as [i32; 0]);
    }

    #[test]
    fn memory_is_its_own_after_exec() {
        let mut tree = Descendants::default();
        tree.meet(301, FIRST); // its first stop comes before the event of its making
        tree.add(301, FIRST, Some((libc::CLONE_VM | libc::CLONE_VFORK) as u64));
        assert!(tree.shares_memory(301));
        tree.execute(301);
        assert!(!tree.shares_memory(301));
        tree.add(301, FIRST, Some((libc::CLONE_VM | libc::CLONE_VFORK) as u64)); // its maker stops late
        assert!(!tree.shares_memory(301));
    }

    #[test]
    fn the_oldest_child_is_named_not_what_it_made() {
        let mut tree = Descendants::default();
        tree.add(301, FIRST, FORK);
        tree.add(302, 301, FORK);
        tree.add(303, FIRST, FORK);
        assert_eq!(tree.oldest(FIRST).unwrap().pid, 301);
        tree.end_thread(301, ENDED);
        assert_eq!(tree.oldest(FIRST).unwrap().pid, 302, "an orphan, older than 303");
        assert!(!tree.are_gone(|pid| pid == 301), "the others live");
        tree.end_thread(303, ENDED);
        tree.end_thread(302, ENDED);
        assert!(tree.oldest(FIRST).unwrap().ended);
    }

    #[test]
    fn an_id_may_be_used_again_and_an_end_come_before_all_else() {
        let mut tree = Descendants::default();
        tree.meet(301, FIRST);
        tree.end_thread(301, ENDED);
        tree.add(301, FIRST, FORK); // its maker stops after it ended
        assert!(!tree.any_lives() && tree.of_thread(301).is_none());
        tree.add(301, FIRST, FORK); // another one
        tree.meet(301, FIRST);
        assert_eq!(tree.living(), [301]);
        tree.add(302, FIRST, FORK); // killed before its first stop
        tree.forget_lost(|pid| pid == 302);
        assert_eq!((tree.living(), tree.of_thread(302)), (vec![301], None));
    }
}
