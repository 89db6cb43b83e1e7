//! The turn: one thread at a time flushes the open group and runs the calls of all threads.

use super::file::{LogFile, random};
use super::host::{Arguments, Host, Hosted, Object, Outcome, Undecodable};
use super::replay::{Left, definition};
use crate::error::{Error, Result};
use crate::region::{Attached, Inner, Region, Update, View};
use crate::superblock::LogPosition;
use std::any::Any;
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use twinpage_core::operation_log::{Appender, Call, Entry, Group, Log};
use twinpage_os::AnyMedium;

/// Calls after which a checkpoint is made (SIMPO 4.2: every 1000 functions).
const CHECKPOINT_EVERY: u32 = 1000;
/// A new log begins so far after the place of the one before that no object's position is past it.
const APART: u64 = 1 << 32;

/// The objects of a region and their log.
pub(crate) struct Objects {
    window: crate::address::Place,
    file: LogFile,
    /// What callers append to; none when the region is closed.
    tail: Mutex<Option<Appender>>,
    /// The turn. None when the region is closed.
    server: Mutex<Option<Server>>,
    /// The last checkpoint will need no log.
    is_clean: AtomicBool,
}

/// What the thread with the turn has.
struct Server {
    log: Log<AnyMedium>,
    hosts: HashMap<u16, Box<dyn Hosted>>,
    left: Left,
    /// What instant calls of other threads returned, by position.
    answers: HashMap<u64, Result<Outcome>>,
    /// The first deferrable method that panicked and was not told of.
    panicked: Option<Error>,
    /// Calls since the last checkpoint.
    ran: u32,
    /// A group that found no room on the medium.
    kept: Option<Group>,
    /// A group that was flushed and run, for its memory.
    used: Group,
    inner: Arc<Inner>,
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "objects of {}", self.file.path.display())
    }
}

/// The persistent number of this thread: in the order in which threads first called.
fn thread_number() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    thread_local!(static NUMBER: Cell<u32> = const { Cell::new(0) });
    if NUMBER.get() == 0 {
        NUMBER.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
    }
    NUMBER.get()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            answers: HashMap::new(),
            panicked: None,
            ran: 0,
            kept: None,
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
            is_clean: AtomicBool::new(false),
        })
    }

    /// Opens an object: makes it if there is none, and runs what the log has of it. Says the number of its definition.
    pub(super) fn host<T: Object>(
        &self,
        region: &Region,
        name: &str,
        make: impl for<'r> FnOnce(&Update<'r>) -> T::In<'r>,
    ) -> Result<u16> {
        let mut server = lock(&self.server);
        let server = server.as_mut().ok_or_else(closed)?;
        // What is appended from here on is after all that is run again.
        server.serve(self)?;
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

    /// Appends a call. Where the group is full it is run first.
    fn append(&self, call: &Call<'_>) -> Result<u64> {
        loop {
            let appended = lock(&self.tail).as_mut().ok_or_else(closed)?.append(call);
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

    pub(super) fn defer(
        &self,
        object: u16,
        function: u16,
        lane: Option<u64>,
        arguments: &[u8],
    ) -> Result<()> {
        let thread = thread_number();
        let call = Call {
            object,
            function,
            thread,
            lane,
            arguments,
        };
        self.append(&call).map(|_| ())
    }

    pub(super) fn instant(
        &self,
        object: u16,
        function: u16,
        lane: Option<u64>,
        arguments: &[u8],
    ) -> Result<Outcome> {
        self.outside_update()?;
        let thread = thread_number();
        let call = Call {
            object,
            function,
            thread,
            lane,
            arguments,
        };
        let position = self.append(&call)?;
        self.with_turn(|server| {
            // Another thread may have run it.
            if !server.answers.contains_key(&position) {
                server.serve(self)?;
            }
            let lost =
                || Error::Invalid("the call was not run: an earlier failure ended the operation log".into());
            server.answers.remove(&position).unwrap_or_else(|| Err(lost()))
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

    /// Waits for the turn. A checkpoint that is due is made after it.
    fn with_turn<R>(&self, work: impl FnOnce(&mut Server) -> Result<R>) -> Result<R> {
        let (done, due) = {
            let mut server = lock(&self.server);
            let server = server.as_mut().ok_or_else(closed)?;
            let done = work(server);
            (done, server.take_due())
        };
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
        let mut server = lock(&self.server);
        let Some(mut ended) = server.take() else {
            return Ok(());
        };
        let served = ended.serve(self);
        // Calls that were appended meanwhile.
        let rest = match (&served, lock(&self.tail).take()) {
            (Ok(()), Some(mut appender)) => ended.run_group(appender.take(Group::default())),
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
        lock(&self.server).take();
    }
}

/// Why a call has no outcome.
enum RunError {
    Undecodable(Undecodable),
    Panicked(Error),
}

impl RunError {
    fn into_error(self) -> Error {
        match self {
            RunError::Undecodable(Undecodable(why)) => Error::Invalid(format!(
                "the arguments of the call cannot be read again as they were written: {why}"
            )),
            RunError::Panicked(error) => error,
        }
    }
}

fn in_update<R>(inner: &Inner, change: impl FnOnce(&Update<'_>) -> R) -> R {
    let _inside = inner.place().enter();
    change(&Update::new(View::new(inner.place(), inner)))
}

/// Runs a method. A panic ends it, and nothing else.
fn apply(
    host: &mut dyn Hosted,
    update: &Update<'_>,
    function: usize,
    arguments: &Arguments<'_>,
) -> Result<Outcome, RunError> {
    let applied = catch_unwind(AssertUnwindSafe(|| host.apply(update, function, arguments)));
    match applied {
        Ok(outcome) => outcome.map_err(RunError::Undecodable),
        Err(panic) => Err(RunError::Panicked(Error::Panicked {
            object: host.name().to_owned(),
            method: host.functions()[function].signature.to_owned(),
            why: said(&*panic),
        })),
    }
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "something that is not text".to_owned())
}

/// Runs a call and notes its position, in one update.
fn run(inner: &Inner, host: &mut dyn Hosted, function: usize, entry: &Entry) -> Result<Outcome, RunError> {
    let arguments = Arguments {
        bytes: &entry.arguments,
        lane: entry.lane,
    };
    in_update(inner, |update| {
        let outcome = apply(host, update, function, &arguments);
        // Arguments that cannot be read stay in the log.
        if !matches!(outcome, Err(RunError::Undecodable(_))) {
            host.advance(update, entry.next);
        }
        outcome
    })
}

impl Server {
    /// Makes durable and runs what was appended so far.
    fn serve(&mut self, objects: &Objects) -> Result<()> {
        if let Some(group) = self.kept.take() {
            self.run_group(group)?;
        }
        let is_long = |appender: &Appender| !self.log.has_room(appender.open());
        if lock(&objects.tail).as_ref().is_some_and(is_long) {
            self.make_room()?;
        }
        let group = match lock(&objects.tail).as_mut() {
            Some(appender) if !appender.open().is_empty() => appender.take(std::mem::take(&mut self.used)),
            _ => return self.inner.progress().check_poison(),
        };
        self.run_group(group)
    }

    /// Makes a group durable and runs it. One that finds no room is kept.
    fn run_group(&mut self, group: Group) -> Result<()> {
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
        match self.log.flush(&group) {
            Ok(()) => {}
            Err(twinpage_core::Error::Full { what, needed }) => {
                self.kept = Some(group);
                return Err(Error::Store(twinpage_core::Error::Full { what, needed }));
            }
            Err(error) => return Err(self.failed(error)),
        }
        for entry in group.entries() {
            self.run(&entry);
        }
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

    fn run(&mut self, entry: &Entry) {
        let Some(host) = self.hosts.get_mut(&entry.object) else {
            return;
        };
        let function = usize::from(entry.function);
        let is_instant = host.functions()[function].is_instant;
        let outcome = run(&self.inner, &mut **host, function, entry).map_err(RunError::into_error);
        self.ran += 1;
        match (outcome, is_instant) {
            (outcome, true) => drop(self.answers.insert(entry.position, outcome)),
            (Err(error), false) => drop(self.panicked.get_or_insert(error)),
            (Ok(_), false) => {}
        }
    }

    /// From the next cut on, calls before `end` are needed no more, unless some wait for their object to be opened.
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

    /// What the last checkpoint has is needed no more.
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
