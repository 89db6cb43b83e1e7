//! The turn: one thread at a time flushes the open group and runs the calls of all threads.

use super::answers::Answers;
use super::calls::thread_number;
use super::file::{LogFile, random};
use super::follower::PLACE;
use super::host::{Arguments, Host, Hosted, Object, Outcome, Undecodable};
use super::replay::{Left, definition, number};
use super::run::{RunError, apply, in_update, run};
use crate::error::{Error, Result};
use crate::region::{Attached, Inner, Region, Update};
use crate::superblock::LogPosition;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use twinpage_core::operation_log::{Appender, Call, Entry, Found, Group, Log};
use twinpage_os::{AnyMedium, Lock};

/// Calls after which a checkpoint is made (SIMPO 4.2: every 1000 functions).
const CHECKPOINT_EVERY: u32 = 1000;
/// The part of a flush, one in so many, that a group waits for the callers of the last one.
const GATHERING: u32 = 8;
/// The longest such wait, where a disk was busy.
const LONGEST_GATHERING: Duration = Duration::from_millis(1);
/// A new log begins so far after the place of the one before that no object's position is past it.
pub(super) const APART: u64 = 1 << 32;

/// The objects of a region and their log.
pub(crate) struct Objects {
    window: crate::address::Place,
    file: LogFile,
    /// What callers append to; none when the region is closed.
    tail: Mutex<Option<Appender>>,
    /// The turn. None when the region is closed.
    server: Mutex<Option<Server>>,
    answers: Answers,
    /// The last checkpoint will need no log.
    is_clean: AtomicBool,
    /// It runs another region's calls, and takes none.
    follows: AtomicBool,
    /// The lock of the region that this one has taken over from.
    taken_over: Mutex<Option<Lock>>,
}

/// The turn of a thread, until it is dropped.
struct Turn<'a> {
    server: Option<MutexGuard<'a, Option<Server>>>,
    answers: &'a Answers,
}

impl Turn<'_> {
    fn server(&mut self) -> &mut Option<Server> {
        self.server.as_mut().expect("it is there until the drop")
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.server = None;
        self.answers.wake();
    }
}

/// What the thread with the turn has.
pub(super) struct Server {
    log: Log<AnyMedium>,
    hosts: HashMap<u16, Box<dyn Hosted>>,
    left: Left,
    /// The first deferrable method that panicked and was not told of.
    panicked: Option<Error>,
    /// The instant call of the thread with the turn, and its answer.
    own: (Option<u64>, Option<Result<Outcome>>),
    /// Calls since the last checkpoint.
    ran: u32,
    /// Instant calls of the last group, and how long its flush took.
    last: (u32, Duration),
    /// A group that found no room on the medium.
    kept: Option<Group>,
    /// Positions of instant calls that failed before they were written.
    withdrawn: Vec<u64>,
    /// A group that was flushed and run, for its memory.
    used: Group,
    inner: Arc<Inner>,
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "objects of {}", self.file.path.display())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Milliseconds of Unix time.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

fn closed() -> Error {
    Error::Invalid("the region is closed, and its objects with it".into())
}

impl Objects {
    /// Makes the log, or opens the one that the last checkpoint names.
    pub(super) fn open(region: &Region) -> Result<Objects> {
        if region.sections().is_some() {
            let why = "a region that was opened for sections has no objects: open it without `sections`";
            return Err(Error::Invalid(why.into()));
        }
        let follows = Objects::follows(region)?;
        let (file, inner) = (LogFile::of(region)?, region.inner.clone());
        let progress = inner.progress();
        progress.check_poison()?;
        let (known, poison) = (progress.log(), progress.poison());
        let (log, left) = match known.id {
            0 => (file.create(known.start + APART, poison)?, Left::default()),
            id => {
                let (log, found) = file.open(id, known.start, poison)?;
                (log, Left::new(found))
            }
        };
        let server = Server {
            hosts: HashMap::new(),
            left,
            panicked: None,
            own: (None, None),
            ran: 0,
            last: (0, Duration::ZERO),
            kept: None,
            withdrawn: Vec::new(),
            used: Group::default(),
            inner,
            log,
        };
        server.keep_place(server.log.end());
        Ok(Objects {
            window: region.place(),
            file,
            tail: Mutex::new(Some(server.log.appender(random()))),
            server: Mutex::new(Some(server)),
            answers: Answers::default(),
            is_clean: AtomicBool::new(false),
            follows: AtomicBool::new(follows),
            taken_over: Mutex::new(None),
        })
    }

    /// Whether the region was following another when it was used last.
    pub(super) fn follows(region: &Region) -> Result<bool> {
        let roots = region.roots()?;
        Ok(roots.iter().any(|root| root.name == PLACE))
    }

    /// Opens an object: makes it if there is none, and runs what the log has of it. Says the number of its definition.
    pub(super) fn host<T: Object>(
        &self,
        region: &Region,
        name: &str,
        make: impl for<'r> FnOnce(&Update<'r>) -> T::In<'r>,
    ) -> Result<u16> {
        let mut turn = self.turn();
        let server = turn.server().as_mut().ok_or_else(closed)?;
        let end = server.log.end();
        let text = definition(name, T::FUNCTIONS);
        let mut position = region.root::<u64>(&format!("{name}: position in the operation log"))?;
        let known = region.read(|view| *position.get(view));
        let calls = match known {
            // It is made now.
            0 => Vec::new(),
            _ => server.left.calls(name, known, T::FUNCTIONS, &self.file)?,
        };
        let root = region.root_with::<T>(name, make)?;
        if known == 0 {
            region.update(|update| *position.get_mut(update) = end);
        }
        let mut host: Box<dyn Hosted> = Box::new(Host { root, position });
        for (function, entry) in &calls {
            let outcome = run(&server.inner, &mut *host, *function, entry);
            if let Err(RunError::Undecodable(Undecodable(why))) = outcome {
                let signature = T::FUNCTIONS[*function].signature;
                return Err(self.file.error(format!(
                    "the arguments of a call of the object {name:?} to `{signature}` cannot be read: {why}; a type of \
                     them has changed: run the build that made it until it closes the region, then this one"
                )));
            }
        }
        let number = server.log.define(&text).map_err(|error| server.failed(error))?;
        server.hosts.insert(number, host);
        server.left.forget(name);
        server.keep_place(end);
        // The object is there before the first call of it is in the log.
        server.inner.checkpoint()?;
        server.release();
        Ok(number)
    }

    /// Appends a call, and says its position. Where the group is full it is run first.
    pub(super) fn append(
        &self,
        object: u16,
        function: u16,
        lane: Option<u64>,
        arguments: &[u8],
    ) -> Result<u64> {
        if self.follows.load(Ordering::Relaxed) {
            let why = "the region follows another: its objects take calls once it has taken over from that";
            return Err(Error::Invalid(why.into()));
        }
        let thread = thread_number();
        let call = Call {
            object,
            function,
            thread,
            lane,
            arguments,
        };
        loop {
            let appended = lock(&self.tail).as_mut().ok_or_else(closed)?.append(&call);
            match appended {
                Err(twinpage_core::Error::Full { .. }) => self.make_room()?,
                other => return Ok(other?),
            }
        }
    }

    #[cold]
    fn make_room(&self) -> Result<()> {
        if self.window.is_inside() {
            return Err(Error::Invalid(
                "so many calls wait that the operation log is full, and inside an update none can be run: call `sync` \
                 before the update"
                    .into(),
            ));
        }
        self.with_turn(|server| server.serve(self))
    }

    pub(super) fn instant(
        &self,
        object: u16,
        function: u16,
        lane: Option<u64>,
        arguments: &[u8],
    ) -> Result<Outcome> {
        self.outside_update()?;
        self.answers.expect();
        let appended = self.append(object, function, lane, arguments);
        let position = appended.inspect_err(|_| self.answers.expect_no_more())?;
        let is_turn_free = || !matches!(self.server.try_lock(), Err(TryLockError::WouldBlock));
        loop {
            if let Some(turn) = self.try_turn() {
                return self.answer(turn, position);
            }
            if let Some(answer) = self.answers.wait(position, is_turn_free) {
                return answer;
            }
        }
    }

    /// Runs what waits, and a call with it.
    fn answer(&self, mut turn: Turn<'_>, position: u64) -> Result<Outcome> {
        if turn.server().is_none() {
            // The close may have run it.
            return self.answers.take(position).unwrap_or_else(|| Err(closed()));
        }
        let lost = "the call was not run: an earlier failure ended the operation log";
        self.in_turn(turn, |server| {
            let (served, answer) = match server.log.end() > position {
                // Another thread has run it.
                true => (Ok(()), self.answers.take(position)),
                false => server.serve_with(self, position),
            };
            answer.unwrap_or_else(|| Err(served.err().unwrap_or_else(|| Error::Invalid(lost.into()))))
        })
    }

    pub(super) fn read(&self, object: u16, function: u16, arguments: &[u8]) -> Result<Outcome> {
        self.outside_update()?;
        self.with_turn(|server| {
            server.serve(self)?;
            let arguments = Arguments {
                bytes: arguments,
                lane: None,
            };
            let host = server.hosts.get_mut(&object).ok_or_else(closed)?;
            in_update(&server.inner, |update| {
                apply(&mut **host, update, usize::from(function), &arguments)
            })
            .map_err(RunError::into_error)
        })
    }

    /// Whether calls are refused: those of another region are run.
    pub(super) fn refuse_calls(&self, refuse: bool) {
        self.follows.store(refuse, Ordering::Relaxed);
    }

    /// Keeps the lock of a region that this one has taken over from.
    pub(super) fn keep(&self, leaders: Lock) {
        *lock(&self.taken_over) = Some(leaders);
    }

    pub(super) fn sync_and_tell(&self) -> Result<()> {
        self.outside_update()?;
        self.with_turn(|server| {
            server.serve(self)?;
            server.panicked.take().map_or(Ok(()), Err)
        })
    }

    fn outside_update(&self) -> Result<()> {
        match self.window.is_inside() {
            false => Ok(()),
            true => Err(Error::Invalid(
                "an instant call inside an update, or inside a method of an object, would wait for itself: make it \
                 after the update"
                    .into(),
            )),
        }
    }

    /// Waits for the turn.
    fn turn(&self) -> Turn<'_> {
        let (server, answers) = (Some(lock(&self.server)), &self.answers);
        Turn { server, answers }
    }

    fn try_turn(&self) -> Option<Turn<'_>> {
        let server = match self.server.try_lock() {
            Ok(server) => Some(server),
            Err(TryLockError::Poisoned(server)) => Some(server.into_inner()),
            Err(TryLockError::WouldBlock) => return None,
        };
        let answers = &self.answers;
        Some(Turn { server, answers })
    }

    pub(super) fn with_turn<R>(&self, work: impl FnOnce(&mut Server) -> Result<R>) -> Result<R> {
        self.in_turn(self.turn(), work)
    }

    /// Works in a turn. A checkpoint that is due is made after it.
    fn in_turn<R>(&self, mut turn: Turn<'_>, work: impl FnOnce(&mut Server) -> Result<R>) -> Result<R> {
        let server = turn.server().as_mut().ok_or_else(closed)?;
        let done = work(server);
        let due = server.take_due();
        drop(turn);
        if let Some(inner) = due {
            // The calls are durable. What a checkpoint says is told again by the next one, or by the flush it makes room
            // for.
            let _ = inner.checkpoint();
        }
        done
    }
}

impl Attached for Objects {
    fn sync(&self) -> Result<()> {
        self.with_turn(|server| server.serve(self))
    }

    fn end(&self) -> Result<()> {
        let mut turn = self.turn();
        let _released = lock(&self.taken_over).take(); // when all is closed
        let Some(mut ended) = turn.server().take() else {
            return Ok(());
        };
        let served = ended.serve(self);
        // Calls that were appended meanwhile.
        let rest = match (&served, lock(&self.tail).take()) {
            (Ok(()), Some(mut appender)) => ended.run_group(self, appender.take(Group::default(), now_ms())),
            _ => Ok(()),
        };
        if served.is_ok() && rest.is_ok() && ended.left.is_empty() {
            let start = ended.log.end();
            ended.inner.progress().set_log(LogPosition { id: 0, start });
            self.is_clean.store(true, Ordering::Release);
        }
        served.and(rest)
    }

    fn ended(&self) {
        if self.is_clean.load(Ordering::Acquire) {
            // One that cannot be removed now is replaced by the next.
            let _ = self.file.remove();
        }
    }

    fn abandon(&self) {
        lock(&self.tail).take();
        self.turn().server().take();
    }
}

impl Server {
    /// Makes durable and runs what was appended so far.
    fn serve(&mut self, objects: &Objects) -> Result<()> {
        if let Some(group) = self.kept.take() {
            self.run_group(objects, group)?;
        }
        self.gather(&objects.answers);
        let is_long = |appender: &Appender| !self.log.has_room(appender.open());
        if lock(&objects.tail).as_ref().is_some_and(is_long) {
            self.make_room()?;
        }
        let group = match lock(&objects.tail).as_mut() {
            Some(appender) if !appender.open().is_empty() => {
                appender.take(std::mem::take(&mut self.used), now_ms())
            }
            _ => return self.inner.progress().check_poison(),
        };
        self.run_group(objects, group)
    }

    /// The same, for the caller of an instant call: its answer, if it was run.
    fn serve_with(&mut self, objects: &Objects, position: u64) -> (Result<()>, Option<Result<Outcome>>) {
        self.own.0 = Some(position);
        let served = self.serve(objects);
        self.own.0 = None;
        let answer = self.own.1.take();
        if answer.is_none() {
            // Its caller is told that it was not run: it must not run later.
            self.withdrawn.push(position);
            objects.answers.expect_no_more();
        }
        (served, answer)
    }

    /// Lets the threads that were answered with the last group make their next calls, for a part of the time that a
    /// flush takes: those that come too late wait for a whole one.
    fn gather(&self, answers: &Answers) {
        let (calls, flush) = self.last;
        if answers.expected() >= calls {
            return;
        }
        let (begun, longest) = (Instant::now(), LONGEST_GATHERING.min(flush / GATHERING));
        while answers.expected() < calls && begun.elapsed() < longest {
            std::thread::yield_now();
        }
    }

    /// Makes a group durable and runs it. One that finds no room is kept.
    fn run_group(&mut self, objects: &Objects, mut group: Group) -> Result<()> {
        if group.is_empty() {
            return Ok(());
        }
        self.release();
        if !self.log.has_room(&group)
            && let Err(error) = self.make_room()
        {
            self.kept = Some(group);
            return Err(error);
        }
        self.withdrawn
            .retain(|&position| !self.log.withdraw(&mut group, position));
        // One caller alone waits for no other, and looks at no clock.
        let begun = (objects.answers.expected() > 1).then(Instant::now);
        match self.log.flush(&group) {
            Ok(()) => {}
            Err(twinpage_core::Error::Full { what, needed }) => {
                self.kept = Some(group);
                return Err(Error::Store(twinpage_core::Error::Full { what, needed }));
            }
            Err(error) => return Err(self.failed(error)),
        }
        let flush = begun.map_or(Duration::ZERO, |begun| begun.elapsed());
        let calls = group.entries().map(|entry| self.run(objects, &entry)).sum();
        self.last = (calls, flush);
        self.keep_place(group.end());
        self.used = group;
        Ok(())
    }

    /// A checkpoint makes room in the log, unless calls are in it that wait for their objects.
    fn make_room(&mut self) -> Result<()> {
        self.inner.checkpoint()?;
        self.release();
        match self.left.is_empty() {
            true => Ok(()),
            false => Err(Error::Invalid(format!(
                "the operation log is full of calls of objects that were not opened since the last crash: open {}",
                self.left.names()
            ))),
        }
    }

    /// Runs a call. Says how many answers there are: one for an instant call.
    fn run(&mut self, objects: &Objects, entry: &Entry) -> u32 {
        let Some(host) = self.hosts.get_mut(&entry.object) else {
            return 0;
        };
        let function = usize::from(entry.function);
        let is_instant = host.functions()[function].is_instant;
        let outcome = run(&self.inner, &mut **host, function, entry).map_err(RunError::into_error);
        self.ran += 1;
        match (outcome, is_instant) {
            (outcome, true) if self.own.0 == Some(entry.position) => {
                objects.answers.expect_no_more();
                self.own.1 = Some(outcome);
            }
            (outcome, true) => objects.answers.put(entry.position, outcome),
            (Err(error), false) => drop(self.panicked.get_or_insert(error)),
            (Ok(_), false) => {}
        }
        u32::from(is_instant)
    }

    /// Runs calls of the region that this one follows, which `found` has. None is run unless all can be. Says how many
    /// were.
    pub(super) fn follow(&mut self, found: &Found, entries: &[Entry], log: &Path) -> Result<usize> {
        let refuse = |why| {
            let file = log.to_owned();
            Error::Log { file, why }
        };
        let mut calls = Vec::new();
        for entry in entries {
            let definition = &found.definitions[usize::from(entry.object)];
            let name = definition.lines().next().unwrap_or_default();
            let host = self.hosts.iter().find(|(_, host)| host.name() == name);
            let (&host, hosted) = host.ok_or_else(|| {
                refuse(format!(
                    "it has calls of the object {name:?}: open it in the copy, too"
                ))
            })?;
            calls.push((
                host,
                number(definition, entry, hosted.functions()).map_err(refuse)?,
                entry,
            ));
        }
        let mut ran = 0;
        for (host, function, entry) in calls {
            let Some(host) = self.hosts.get_mut(&host) else {
                continue;
            };
            if entry.position < in_update(&self.inner, |update| host.position(update)) {
                continue;
            }
            // One that panics did so there.
            if let Err(RunError::Undecodable(Undecodable(why))) =
                run(&self.inner, &mut **host, function, entry)
            {
                let signature = host.functions()[function].signature;
                return Err(refuse(format!(
                    "the arguments of a call of the object {:?} to `{signature}` cannot be read: {why}",
                    host.name()
                )));
            }
            self.ran += 1;
            ran += 1;
        }
        Ok(ran)
    }

    /// From the next cut on, the log may forget calls before `end`, unless some wait for their object to be opened.
    fn keep_place(&self, end: u64) {
        let progress = self.inner.progress();
        let start = match self.left.is_empty() {
            true => {
                progress.log_was_run();
                end
            }
            false => progress.log().start,
        };
        let id = self.log.id();
        progress.set_log(LogPosition { id, start });
    }

    /// The calls that the last checkpoint holds make room for new ones.
    fn release(&mut self) {
        if let (_, Some(superblock)) = self.inner.progress().last()
            && superblock.log.id == self.log.id()
        {
            self.log.release(superblock.log.start);
        }
    }

    /// Whether a checkpoint is due, once.
    fn take_due(&mut self) -> Option<Arc<Inner>> {
        let is_due = self.ran >= CHECKPOINT_EVERY || self.log.used() > self.log.ring() / 2;
        is_due.then(|| {
            self.ran = 0;
            self.inner.clone()
        })
    }

    /// The log failed: nothing later may become durable.
    fn failed(&self, error: twinpage_core::Error) -> Error {
        match error {
            twinpage_core::Error::Invalid(why) => Error::Invalid(why),
            error => self.inner.progress().set_poison(error),
        }
    }
}
