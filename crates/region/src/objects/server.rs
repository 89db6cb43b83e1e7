//! The turn: one thread at a time flushes the open group and runs the calls of all threads.

use super::Objects;
use super::answers::Answers;
use super::cold::Clock;
use super::file::{APART, LogFile, ROOM, random};
use super::follower::PLACE;
use super::function::{Outcome, Undecodable};
use super::group::{Server, made_later, open_already};
use super::host::{Host, Hosted, Object};
use super::hosts::{Freed, Hosts};
use super::keeper::Keeper;
use super::lanes::LaneThreads;
use super::life::Life;
use super::replay::{Left, definition};
use super::sharing::Sharers;
use super::table::{ObjectTable, position_of, remove_unopened};
use super::thread::{Known, Threads, thread_number};
use crate::error::{Error, Result};
use crate::lock::{lock, read, write};
use crate::region::{Attached, Region, Update};
use crate::superblock::LogPosition;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use twinpage_core::operation_log::{Call, Entry, Logged, NAMED};
use twinpage_os::Lock;

/// Bytes of calls that may wait before a caller runs them, where a flush takes about a microsecond: few enough to be in
/// the cache still. On a disk it is half of the room.
const FEW: u64 = 64 << 10;
/// How many times as much may wait where another thread ran calls last: the object is in that one's cache.
const OTHERS: u64 = 4;

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

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "objects of {}", self.file.path.display())
    }
}

fn closed() -> Error {
    Error::Invalid("the region is closed, and its objects with it".into())
}

/// Why an object cannot be called.
fn gone(hosts: &Hosts, object: u16) -> Error {
    hosts.freed(object).map_or_else(closed, Freed::error)
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
        let (mut log, mut left) = match known.id {
            0 => (file.create(known.start + APART, poison)?, Left::default()),
            id => {
                let (log, found) = file.open(id, known.start, poison)?;
                (log, Left::new(found))
            }
        };
        let (appender, taker) = log.queue(random(), ROOM);
        let lanes = LaneThreads::new(inner.server_threads);
        let ran = AtomicU64::new(taker.next_call());
        let table = ObjectTable::open(region)?;
        left.keep(|name, id| {
            let there = region.read(|view| table.find(view, name));
            there.is_some_and(|there| id.is_none_or(|id| id == there))
        });
        let next = inner.next.clone();
        let wanted = inner.kept.as_ref();
        if follows && wanted.is_some() {
            let why = "a region that follows another keeps no calls (`keep_calls`): that one may";
            return Err(Error::Invalid(why.into()));
        }
        let keeper = wanted.map(|wanted| {
            let last_object = table.last(&inner);
            Keeper::open(wanted, known, &mut log, &inner, last_object)
        });
        let keeper = keeper.transpose()?;
        let keeps = keeper.is_some();
        let server = Server::new(log, taker, left, table, keeper, inner);
        server.keep_place(server.log.end());
        let few = match file.outlives_the_machine() {
            true => appender.room() / 2,
            false => FEW.min(appender.room() / 2),
        };
        Ok(Objects {
            window: region.place(),
            file,
            appender,
            few,
            server: Mutex::new(Some(server)),
            hosts: RwLock::default(),
            ran,
            last_server: AtomicU32::new(0),
            lanes,
            threads: Threads::default(),
            answers: Answers::default(),
            is_clean: AtomicBool::new(false),
            follows: AtomicBool::new(follows),
            taken_over: Mutex::new(None),
            sharers: Sharers::default(),
            keeps,
            next,
            clock: Clock::default(),
        })
    }

    /// Whether the region was following another when it was used last.
    pub(super) fn follows(region: &Region) -> Result<bool> {
        let roots = region.roots()?;
        Ok(roots.iter().any(|root| root.name == PLACE))
    }

    /// Opens an object: makes it if there is none, and runs what the log has of it. Says the number of its definition, and
    /// what its handles look at.
    pub(super) fn host<T: Object>(
        &self,
        region: &Region,
        name: &str,
        make: impl for<'r> FnOnce(&Update<'r>) -> T::In<'r>,
    ) -> Result<(u16, Arc<Life>)> {
        let mut turn = self.turn();
        let server = turn.server().as_mut().ok_or_else(closed)?;
        let end = server.log.end();
        let calls = match region.read(|view| server.table.find(view, name)) {
            Some(_) => {
                let position = region.root::<u64>(&position_of(name));
                let position = position.map_err(|error| open_already(name, error))?;
                let known = region.read(|view| *position.get(view));
                server.left.calls(name, known, T::FUNCTIONS, &self.file)?
            }
            None if self.follows.load(Ordering::Relaxed) => return Err(Error::Invalid(made_later(name))),
            None => Vec::new(),
        };
        // Before the object is made: the log may have no room for one more.
        let id = region.read(|view| server.table.number_for(view, name));
        let is_new = id > server.table.last(&server.inner);
        self.verify(id)?;
        if !calls.is_empty() {
            server.bring_back(self, id)?;
        }
        let text = definition(name, T::FUNCTIONS, id);
        let number = server.log.define(&text).map_err(|error| server.failed(error))?;
        let table = &mut server.table;
        let host = region.update(|update| Host::<T>::open(region, update, table, (name, end), make))?;
        let mut host: Box<dyn Hosted> = Box::new(host.with_threads(server.left.thread_names()));
        let panicked = self.run_again(&mut *host, &calls)?;
        server.panicked = server.panicked.take().or(panicked);
        let life = host.life().clone();
        self.note_opening(&life);
        self.hosts_to_change().add(number, host);
        server.left.forget(name);
        server.keep_place(end);
        // The object is there before the first call of it is in the log.
        server.checkpoint(self)?;
        server.wants_base(is_new);
        server.release();
        Ok((number, life))
    }

    /// Frees an object, open or not: what was called of it until now is run first. It is gone for good when this returns.
    pub(super) fn free(&self, region: &Region, name: &str) -> Result<()> {
        if self.follows.load(Ordering::Relaxed) {
            let why = "the region follows another: free the object there, or here once it has taken over";
            return Err(Error::Invalid(why.into()));
        }
        self.with_turn(|server| {
            if region.read(|view| server.table.find(view, name)).is_none() {
                return Err(Error::Invalid(format!("there is no object {name:?} to be freed")));
            }
            self.refuse_shared(name)?;
            let id = region.read(|view| server.table.number_for(view, name));
            self.verify(id)?;
            self.run_last_calls(server, name)?;
            let host = self.hosts_to_change().take(name);
            region.update(|update| {
                if host.is_none() {
                    remove_unopened(region, name)?;
                }
                // Before a `Drop` of the program, which may panic: a number is given once.
                server.table.remove(update, name);
                // In the update: the cut that lacks the object lacks its pages.
                if let Some(next) = &self.next {
                    next.free(id);
                }
                host.map_or(Ok(()), |host| host.free(update))
            })?;
            server.left.forget(name);
            server.keep_place(server.log.end());
            server.checkpoint(self)?;
            server.wants_base(true);
            server.release();
            Ok(())
        })
    }

    /// That all can be read which an object has in the next level.
    fn verify(&self, id: u64) -> Result<()> {
        self.next.as_ref().map_or(Ok(()), |next| Ok(next.verify(id)?))
    }

    /// Refuses to free an object that other processes have.
    fn refuse_shared(&self, name: &str) -> Result<()> {
        let sharers = self.sharers.of(name);
        match sharers.is_empty() {
            true => Ok(()),
            false => Err(Error::Invalid(format!(
                "the object {name:?} is shared by the processes {sharers:?}: they let go of it when they drop their handles, or \
                 end"
            ))),
        }
    }

    /// Takes no more calls of an object and runs those that wait, or takes them again.
    fn run_last_calls(&self, server: &mut Server, name: &str) -> Result<()> {
        let life = self.hosts().named(name).map(|host| read(host).life().clone());
        let set_freed = |is_freed| life.iter().for_each(|life| life.set_freed(is_freed));
        set_freed(true);
        server.serve(self).inspect_err(|_| set_freed(false))
    }

    /// Runs the calls of an object that its last checkpoint lacks. Says which deferrable one panicked first: its caller may
    /// not have been told.
    fn run_again(&self, host: &mut dyn Hosted, calls: &[(usize, Entry)]) -> Result<Option<Error>> {
        let calls: Vec<_> = (calls.iter())
            .map(|(function, entry)| Logged {
                function: *function as u16,
                ..entry.logged()
            })
            .collect();
        let (mut left, mut panicked) = (&calls[..], None);
        while !left.is_empty() {
            let ran = host.run(left, None);
            let functions = host.functions();
            let deferred = |place: usize| !functions[usize::from(left[place].function)].is_instant;
            let mut outcomes = ran.outcomes.into_iter();
            let failed = outcomes.find_map(|(place, outcome)| outcome.err().filter(|_| deferred(place)));
            panicked = panicked.or(failed);
            left = &left[ran.calls..];
            if let Some(Undecodable(why)) = ran.undecodable {
                let (name, signature) = (
                    host.name(),
                    host.functions()[usize::from(left[0].function)].signature,
                );
                return Err(self.file.error(format!(
                    "the arguments of a call of the object {name:?} to `{signature}` cannot be read: {why}; a type of \
                     them has changed: run the build that made it until it closes the region, then this one; or take the call \
                     out with `twinpage log {} --withdraw {}`",
                    self.file.region.display(),
                    left[0].position,
                )));
            }
        }
        Ok(panicked)
    }

    /// The number of a thread in the log, and what an object knows of it.
    pub(super) fn know(&self, thread: &str, object: u16) -> Result<(u32, Known)> {
        self.outside_update("an instant call")?;
        self.with_turn(|server| {
            // What it called until now is counted.
            server.serve(self)?;
            let number = NAMED | u32::from(server.define_thread(thread)?);
            let hosts = self.hosts();
            let host = hosts.get(object).ok_or_else(|| gone(&hosts, object))?;
            Ok((number, write(host).know(thread, number)))
        })
    }

    /// A call that survived had panicked.
    pub(super) fn panicked_before(&self, object: u16, function: u16, why: String) -> Error {
        match self.hosts().get(object) {
            Some(host) => {
                let host = read(host);
                Error::Panicked {
                    object: host.name().to_owned(),
                    method: host.functions()[usize::from(function)].signature.to_owned(),
                    why,
                }
            }
            None => closed(),
        }
    }

    /// The objects that are open.
    pub(super) fn hosts(&self) -> RwLockReadGuard<'_, Hosts> {
        read(&self.hosts)
    }

    fn hosts_to_change(&self) -> RwLockWriteGuard<'_, Hosts> {
        write(&self.hosts)
    }

    /// Appends a call, and says its position. Where the group is full it is run first.
    pub(super) fn append(
        &self,
        thread: u32,
        object: u16,
        function: u16,
        lane: Option<u64>,
        arguments: &[u8],
    ) -> Result<u64> {
        if self.follows.load(Ordering::Relaxed) {
            let why = "the region follows another: its objects take calls once it has taken over from that";
            return Err(Error::Invalid(why.into()));
        }
        let call = Call {
            object,
            function,
            thread,
            lane,
            arguments,
        };
        loop {
            match self.appender.append(&call) {
                Ok(position) => return Ok(position),
                Err(_) if self.appender.is_closed() => return Err(closed()),
                Err(twinpage_core::Error::Full { .. }) => self.make_room()?,
                Err(other) => return Err(other.into()),
            }
        }
    }

    /// Appends a call that is not waited for. Where much waits it is run.
    #[inline]
    pub(super) fn defer(
        &self,
        thread: u32,
        object: u16,
        function: u16,
        lane: Option<u64>,
        arguments: &[u8],
    ) -> Result<()> {
        let position = self.append(thread, object, function, lane, arguments)?;
        if self.appender.waiting(position) >= self.few {
            self.run_some();
        }
        Ok(())
    }

    /// Runs what waits, unless another thread does. What fails is told to who waits for it.
    #[cold]
    fn run_some(&self) {
        let is_last = self.last_server.load(Ordering::Relaxed) == thread_number();
        let few = if is_last { self.few } else { OTHERS * self.few };
        if self.appender.waiting(self.appender.end()) >= few
            && !self.window.is_inside()
            && let Some(turn) = self.try_turn()
        {
            let _ = self.in_turn(turn, |server| server.serve(self));
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
        let needed = self.appender.room() / 2;
        self.with_turn(|server| {
            match self.appender.waiting(self.appender.end()) > needed {
                true => server.serve(self),
                // Another thread has run them meanwhile.
                false => Ok(()),
            }
        })
    }

    pub(super) fn instant(
        &self,
        thread: u32,
        object: u16,
        function: u16,
        lane: Option<u64>,
        arguments: &[u8],
    ) -> Result<Outcome> {
        self.outside_update("an instant call")?;
        self.answers.expect();
        let appended = self.append(thread, object, function, lane, arguments);
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

    /// Runs a call that changes nothing, once those made before it were run. Such calls run beside one another: the turn is
    /// needed only where something waits.
    pub(super) fn read(&self, object: u16, function: u16, arguments: &[u8]) -> Result<Outcome> {
        self.outside_update("an instant call")?;
        if self.ran.load(Ordering::Acquire) < self.appender.end() {
            self.with_turn(|server| server.serve(self))?;
        }
        self.call(object)?;
        let hosts = self.hosts();
        let host = read(hosts.get(object).ok_or_else(|| gone(&hosts, object))?);
        host.inner().progress().check_poison()?;
        host.look(function, arguments)
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
        self.outside_update("an instant call")?;
        self.with_turn(|server| {
            server.serve(self)?;
            server.panicked.take().map_or(Ok(()), Err)
        })
    }

    pub(super) fn outside_update(&self, what: &str) -> Result<()> {
        match self.window.is_inside() {
            false => Ok(()),
            true => Err(Error::Invalid(format!(
                "{what} inside an update, or inside a method of an object, would wait for itself: make it after the update"
            ))),
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
        self.last_server.store(thread_number(), Ordering::Relaxed);
        let done = work(server);
        let due = server.take_due();
        drop(turn);
        if let Some(inner) = due {
            // The calls are durable. What a checkpoint says is told again by the next one, or by the flush it makes room
            // for.
            let _ = inner.checkpoint();
            // One that cannot be made now is wanted still.
            let _ = self.make_base();
        }
        done
    }

    /// Works with what the thread with the turn has, and makes no checkpoint after it; none when the region is closed.
    pub(super) fn with_server<R>(&self, work: impl FnOnce(&mut Server) -> R) -> Option<R> {
        self.turn().server().as_mut().map(work)
    }

    /// Whether what is called is kept.
    pub(super) fn keeps(&self) -> bool {
        self.keeps
    }
}

impl Objects {
    /// Gives the objects up, and with them the region's memory.
    fn forget_hosts(&self) {
        *self.hosts_to_change() = Hosts::default();
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
        let done = ended.end(self);
        if done.is_ok() && self.next.is_some() {
            // The last checkpoint follows, and moves nothing: there is room for it, or it says so.
            let _ = ended.checkpoint(self);
        }
        if done.is_ok() {
            // The run of the program is over.
            let hosts = self.hosts();
            hosts.all().for_each(|host| write(host).forget_threads());
        }
        let done = done.and_then(|()| match ended.keeper {
            Some(_) => ended.checkpoint(self).and_then(|_| ended.release_all()),
            None => Ok(()),
        });
        if done.is_ok() && ended.left.is_empty() {
            let start = ended.log.end();
            ended.inner.progress().set_log(LogPosition { id: 0, start });
            self.is_clean.store(true, Ordering::Release);
        }
        self.forget_hosts();
        done
    }

    fn ended(&self) {
        if self.is_clean.load(Ordering::Acquire) {
            // One that cannot be removed now is replaced by the next.
            let _ = self.file.remove();
        }
    }

    fn make_room(&self, is_durable: bool) -> bool {
        let mut turn = self.turn();
        let server = turn.server().as_mut();
        // What fails here is told by the calls that need it.
        server.is_some_and(|server| self.move_coldest(server, is_durable).unwrap_or(false))
    }

    fn abandon(&self) {
        if let Some(mut server) = self.turn().server().take() {
            server.abandon();
        }
        self.forget_hosts();
    }
}
