//! What the thread with the turn does: takes the calls that wait, makes them durable with one flush, and runs them.

use super::Objects;
use super::answers::Answers;
use super::function::{Outcome, Undecodable};
use super::hosts::Freed;
use super::keeper::Keeper;
use super::replay::{Left, id_of, number};
use super::run::Ran;
use super::table::ObjectTable;
use crate::error::{Error, Result, RootError};
use crate::lock::{read, write};
use crate::region::Inner;
use crate::superblock::LogPosition;
use std::cmp::Ordering::{Equal, Greater, Less};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use twinpage_core::operation_log::{Entry, Found, Group, Log, Logged, Taker};
use twinpage_os::AnyMedium;

/// Calls after which a checkpoint is made (SIMPO 4.2: every 1000 functions).
const CHECKPOINT_EVERY: u32 = 1000;
/// The part of a flush, one in this many, that a group waits for the callers of the last one.
const GATHERING: u32 = 8;
/// The longest such wait, where a disk was busy.
const LONGEST_GATHERING: Duration = Duration::from_millis(1);
/// Calls that are run together at most.
const CHUNK: usize = 4096;

/// What the thread with the turn has.
pub(super) struct Server {
    pub(super) log: Log<AnyMedium>,
    taker: Taker,
    pub(super) left: Left,
    pub(super) table: ObjectTable,
    /// The first deferrable method that panicked and was not told of.
    pub(super) panicked: Option<Error>,
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
    /// Keeps what checkpoints hold, if that is asked for.
    pub(super) keeper: Option<Keeper>,
    /// Objects without a page of their own, by number, as of their last calls.
    pub(super) unmovable: HashMap<u64, u64>,
    /// Objects that went while some of them was not durable.
    pub(super) partly_away: HashSet<u64>,
    pub(super) inner: Arc<Inner>,
}

/// Why a copy cannot run calls of an object, or make it.
pub(super) fn made_later(name: &str) -> String {
    format!(
        "the object {name:?} was made after the copy that follows, which has no such one: begin again with a new backup of \
         the region"
    )
}

/// The root with the position of an object is in use for as long as the object is open.
pub(super) fn open_already(object: &str, error: Error) -> Error {
    let name = object.to_owned();
    match error {
        Error::Root(RootError::InUse { .. }) => RootError::Opened { name }.into(),
        other => other,
    }
}

/// Milliseconds of Unix time.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

impl Server {
    pub(super) fn new(
        log: Log<AnyMedium>,
        taker: Taker,
        left: Left,
        table: ObjectTable,
        keeper: Option<Keeper>,
        inner: Arc<Inner>,
    ) -> Server {
        Server {
            taker,
            left,
            table,
            panicked: None,
            own: (None, None),
            ran: 0,
            last: (0, Duration::ZERO),
            kept: None,
            withdrawn: Vec::new(),
            used: Group::default(),
            keeper,
            unmovable: HashMap::new(),
            partly_away: HashSet::new(),
            inner,
            log,
        }
    }

    /// Makes durable and runs what was appended so far.
    pub(super) fn serve(&mut self, objects: &Objects) -> Result<()> {
        if let Some(group) = self.kept.take() {
            self.run_group(objects, group)?;
        }
        self.gather(&objects.answers);
        if self.taker.is_empty() {
            return self.inner.progress().check_poison();
        }
        let group = self.taker.take(std::mem::take(&mut self.used), now_ms());
        self.run_group(objects, group)
    }

    /// Takes no call from now on, and does what waits. Whether all was done.
    pub(super) fn end(&mut self, objects: &Objects) -> Result<()> {
        self.taker.close();
        self.serve(objects)
    }

    /// Takes no call from now on, and leaves what waits.
    pub(super) fn abandon(&mut self) {
        self.taker.close();
    }

    /// The same, for the caller of an instant call: its answer, if it was run.
    pub(super) fn serve_with(
        &mut self,
        objects: &Objects,
        position: u64,
    ) -> (Result<()>, Option<Result<Outcome>>) {
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

    /// The number of a definition that names a thread.
    pub(super) fn define_thread(&mut self, name: &str) -> Result<u16> {
        let defined = self.log.define(name);
        defined.map_err(|error| self.failed(error))
    }

    /// Makes a group durable and runs it. One that finds no room is kept.
    fn run_group(&mut self, objects: &Objects, mut group: Group) -> Result<()> {
        if group.is_empty() {
            return Ok(());
        }
        self.release();
        let prepared = match self.log.has_room(&group) {
            true => Ok(()),
            false => self.make_room(objects),
        };
        if let Err(error) = prepared.and_then(|()| self.bring_back_called(objects, &group)) {
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
        let calls = self.run_calls(objects, &group);
        self.last = (calls, flush);
        self.keep_place(group.end());
        self.used = group;
        objects.ran.store(self.taker.next_call(), Ordering::Release);
        Ok(())
    }

    /// A checkpoint makes room in the log, unless calls are in it that wait for their objects.
    fn make_room(&mut self, objects: &Objects) -> Result<()> {
        self.checkpoint(objects)?;
        self.release_all()?;
        match self.left.is_empty() {
            true => Ok(()),
            false => Err(Error::Invalid(format!(
                "the operation log is full of calls of objects that were not opened since the last crash: open {}",
                self.left.names()
            ))),
        }
    }

    /// Runs the calls of a group, those of an object that follow one another together. Says how many answers there are:
    /// one for each instant call.
    fn run_calls(&mut self, objects: &Objects, group: &Group) -> u32 {
        let (mut calls, mut answers) = (group.calls().peekable(), 0);
        let mut chunk = Vec::new();
        while let Some(first) = calls.next() {
            chunk.clear();
            chunk.push(first);
            while chunk.len() < CHUNK
                && let Some(call) = calls.next_if(|call| call.object == first.object)
            {
                chunk.push(call);
            }
            answers += self.run_chunk(objects, &chunk);
        }
        answers
    }

    /// Runs calls of one object.
    fn run_chunk(&mut self, objects: &Objects, calls: &[Logged<'_>]) -> u32 {
        let hosts = objects.hosts();
        let Some(host) = hosts.get(calls[0].object) else {
            let freed = hosts.freed(calls[0].object);
            return freed.map_or(0, |freed| self.refuse(objects, freed, calls));
        };
        let (mut host, mut answers, mut at) = (write(host), 0, 0);
        while at < calls.len() {
            let left = &calls[at..];
            let Ran {
                calls: ran,
                mut outcomes,
                undecodable,
            } = host.run(left, Some(&objects.lanes));
            at += ran;
            if let Some(undecodable) = undecodable {
                let signature = host.functions()[usize::from(left[ran].function)].signature;
                outcomes.push((ran, Err(undecodable.error(host.name(), signature))));
                at += 1; // it stays in the log, and is not waited for
            }
            for (place, outcome) in outcomes {
                let call = &left[place];
                let is_instant = host.functions()[usize::from(call.function)].is_instant;
                answers += u32::from(is_instant);
                self.answer(objects, call.position, is_instant, outcome);
            }
        }
        self.ran += calls.len() as u32;
        answers
    }

    /// Calls that were appended while another thread freed their object.
    fn refuse(&mut self, objects: &Objects, freed: &Freed, calls: &[Logged<'_>]) -> u32 {
        let mut answers = 0;
        for call in calls {
            let is_instant = freed.is_instant(call.function);
            answers += u32::from(is_instant);
            self.answer(objects, call.position, is_instant, Err(freed.error()));
        }
        answers
    }

    /// What a call returned goes to its caller; that a deferrable one failed, to who asks next.
    fn answer(&mut self, objects: &Objects, position: u64, is_instant: bool, outcome: Result<Outcome>) {
        match (outcome, is_instant) {
            (outcome, true) if self.own.0 == Some(position) => {
                objects.answers.expect_no_more();
                self.own.1 = Some(outcome);
            }
            (outcome, true) => objects.answers.put(position, outcome),
            (Err(error), false) => drop(self.panicked.get_or_insert(error)),
            (Ok(_), false) => {}
        }
    }

    /// Runs calls of the region that this one follows, which `found` has. None is run unless all can be. Says how many
    /// were.
    pub(super) fn follow(
        &mut self,
        objects: &Objects,
        found: &Found,
        entries: &[Entry],
        log: &Path,
    ) -> Result<usize> {
        let refuse = |why| {
            let file = log.to_owned();
            Error::Log { file, why }
        };
        self.bring_back_followed(objects, found, entries)?;
        let hosts = objects.hosts();
        let mut calls = Vec::new();
        for entry in entries {
            let definition = &found.definitions[usize::from(entry.object)];
            let name = definition.lines().next().unwrap_or_default();
            let host = hosts.named(name).ok_or_else(|| {
                refuse(format!(
                    "it has calls of the object {name:?}: open it in the copy, too"
                ))
            })?;
            match id_of(definition).map(|id| id.cmp(&read(host).id())) {
                // Of one that was freed before the copy was made.
                Some(Less) => continue,
                Some(Greater) => return Err(refuse(made_later(name))),
                Some(Equal) | None => {}
            }
            let function = number(definition, entry, read(host).functions()).map_err(refuse)?;
            let function = function as u16;
            calls.push((
                host,
                Logged {
                    function,
                    // Its program runs where the calls are made.
                    thread: 0,
                    ..entry.logged()
                },
            ));
        }
        let mut ran = 0;
        for (host, call) in calls {
            let mut host = write(host);
            if call.position < host.position() {
                continue;
            }
            // One that panics did so there.
            if let Some(Undecodable(why)) = host.run(&[call], None).undecodable {
                let signature = host.functions()[usize::from(call.function)].signature;
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
    pub(super) fn keep_place(&self, end: u64) {
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
    pub(super) fn release(&mut self) {
        let Some(start) = self.releasable() else {
            return;
        };
        match &mut self.keeper {
            None => self.log.release(start),
            // Where that fails it is told when there is no other room.
            Some(keeper) if keeper.is_due(start, self.log.ring()) => drop(self.release_all()),
            Some(_) => {}
        }
    }

    /// All of them, once they are kept where that is asked for.
    pub(super) fn release_all(&mut self) -> Result<()> {
        if let Some(start) = self.releasable() {
            let start = match &mut self.keeper {
                None => start,
                Some(keeper) => keeper.keep(&self.log, start)?,
            };
            self.log.release(start);
        }
        Ok(())
    }

    /// Objects have come or gone: what is kept begins anew, if that `is_so`.
    pub(super) fn wants_base(&mut self, is_so: bool) {
        if let Some(keeper) = &mut self.keeper {
            keeper.wants_base |= is_so;
        }
    }

    /// From where on calls are in no durable checkpoint.
    fn releasable(&self) -> Option<u64> {
        let (_, superblock) = self.inner.progress().last();
        let log = superblock?.log;
        (log.id == self.log.id()).then_some(log.start)
    }

    /// Whether a checkpoint is due, once.
    pub(super) fn take_due(&mut self) -> Option<Arc<Inner>> {
        let is_due = self.ran >= CHECKPOINT_EVERY || self.log.used() > self.log.ring() / 2;
        is_due.then(|| {
            self.ran = 0;
            self.inner.clone()
        })
    }

    /// The log failed: nothing later may become durable.
    pub(super) fn failed(&self, error: twinpage_core::Error) -> Error {
        match error {
            twinpage_core::Error::Invalid(why) => Error::Invalid(why),
            error => self.inner.progress().set_poison(error),
        }
    }
}
