//! Cold objects go to the next level where the region's file is full, and come back when they are called (SIMPO 3.4).
//!
//! * Cold is what was not called for longest: a clock goes on when another object is called than the last, and each
//!   object keeps the time of its last call. One that is not open was not called at all.
//! * What goes is each page that the object's own blocks fill. The blocks stay in use, so its addresses stay; what shares
//!   a page with others stays in the region.
//! * The thread with the turn moves objects, so none changes while it is looked at. Nothing depends on that it is the last
//!   to touch one: a move leaves every byte what it is ([`crate::next_level`]).
//! * A call that is logged leaves its object where it is; it comes back when the call is run, all of it. Where that finds
//!   no room, it is called where it is, and pages that it writes come back with their checkpoint.

use super::Objects;
use super::group::Server;
use super::life::Life;
use crate::error::{Error, Result};
use crate::lock::read;
use crate::root::filled_pages;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use twinpage_core::operation_log::{Entry, Found, Group};

/// Which object was called last: its time is the clock's.
#[derive(Debug)]
pub(super) struct Clock(AtomicU64);

impl Default for Clock {
    /// Later than what was never called.
    fn default() -> Clock {
        Clock(AtomicU64::new(1))
    }
}

impl Clock {
    /// An object is called. Again and again the same: nothing is written.
    fn note(&self, life: &Life) {
        if life.called() != self.0.load(Ordering::Relaxed) {
            life.set_called(self.0.fetch_add(1, Ordering::Relaxed) + 1);
        }
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// An object that might go.
struct Candidate {
    called: u64,
    id: u64,
    name: String,
    is_open: bool,
}

impl Objects {
    /// A call is about to be run here: its object comes back.
    pub(super) fn call(&self, object: u16) -> Result<()> {
        let Some(next) = &self.next else { return Ok(()) };
        match self.note_call(object) {
            Some(id) if next.has_object(id) => self.with_turn(|server| server.bring_back(self, id)),
            _ => Ok(()),
        }
    }

    /// The object that is called, by its number in the table, if it is open.
    fn note_call(&self, object: u16) -> Option<u64> {
        let hosts = self.hosts();
        let host = read(hosts.get(object)?);
        self.clock.note(host.life());
        Some(host.id())
    }

    /// An object is opened.
    pub(super) fn note_opening(&self, life: &Arc<Life>) {
        self.clock.note(life);
    }

    /// Moves the coldest object to the next level that has anything to be moved, but not the one called last. Whether one
    /// was. If not all `is_durable`, what is not goes another time.
    pub(super) fn move_coldest(&self, server: &mut Server, is_durable: bool) -> Result<bool> {
        let Some(next) = &self.next else { return Ok(false) };
        for candidate in self.coldest_first(server) {
            let Candidate { called, id, .. } = candidate;
            let is_away = next.has_object(id) && !server.partly_away.contains(&id);
            if is_away || server.unmovable.get(&id) == Some(&called) {
                continue;
            }
            let pages = filled_pages(&server.inner, &candidate.name, candidate.is_open)?;
            let moved = match server.inner.checkpoints().move_out(id, &pages) {
                Err(Error::Full(_)) => return Ok(false), // no room there either
                moved => moved?,
            };
            match is_durable {
                true => server.partly_away.remove(&id),
                false => server.partly_away.insert(id),
            };
            if moved > 0 {
                return Ok(true);
            }
            if pages.is_empty() {
                server.unmovable.insert(id, called);
            }
        }
        Ok(false)
    }

    /// All objects but the one that was called last, the coldest first.
    fn coldest_first(&self, server: &Server) -> Vec<Candidate> {
        let (hosts, now) = (self.hosts(), self.clock.now());
        let open: HashMap<u64, u64> = (hosts.all().map(read))
            .map(|host| (host.id(), host.life().called()))
            .collect();
        let all = server.table.all(&server.inner).into_iter();
        let mut all: Vec<_> = all
            .map(|(id, name)| Candidate {
                called: open.get(&id).copied().unwrap_or(0),
                id,
                name,
                is_open: open.contains_key(&id),
            })
            .filter(|candidate| candidate.called != now || !candidate.is_open)
            .collect();
        all.sort_by_key(|candidate| (candidate.called, candidate.id));
        all
    }
}

impl Server {
    /// A checkpoint. Where the file is full, cold objects go.
    pub(super) fn checkpoint(&mut self, objects: &Objects) -> Result<()> {
        let inner = self.inner.clone();
        let mut failed = Ok(());
        let made = inner.checkpoint_making(|is_durable| match objects.move_coldest(self, is_durable) {
            Ok(moved) => moved,
            Err(error) => {
                failed = Err(error);
                false
            }
        });
        made?;
        failed
    }

    /// The objects that a group has calls of come back.
    pub(super) fn bring_back_called(&mut self, objects: &Objects, group: &Group) -> Result<()> {
        let Some(next) = &objects.next else { return Ok(()) };
        let mut last = None;
        for call in group.calls() {
            if last.replace(call.object) != Some(call.object)
                && let Some(id) = objects.note_call(call.object)
                && next.has_object(id)
            {
                self.bring_back(objects, id)?;
            }
        }
        Ok(())
    }

    /// Those that calls of the region have that this one follows.
    pub(super) fn bring_back_followed(
        &mut self,
        objects: &Objects,
        found: &Found,
        entries: &[Entry],
    ) -> Result<()> {
        let called: BTreeSet<u16> = entries.iter().map(|entry| entry.object).collect();
        for object in called {
            let name = found.definitions[usize::from(object)].lines().next();
            let numbered = name.and_then(|name| Some(objects.hosts().numbered(name)?.0));
            if let (Some(next), Some(number)) = (&objects.next, numbered)
                && let Some(id) = objects.note_call(number)
                && next.has_object(id)
            {
                self.bring_back(objects, id)?;
            }
        }
        Ok(())
    }

    /// An object comes back, and others go for it.
    pub(super) fn bring_back(&mut self, objects: &Objects, object: u64) -> Result<()> {
        let is_full = |moved: &Result<usize>| matches!(moved, Err(Error::Full(_)));
        let mut moved = self.inner.checkpoints().move_back(object);
        while is_full(&moved) && objects.move_coldest(self, false)? {
            moved = self.inner.checkpoints().move_back(object);
        }
        match moved {
            Err(Error::Full(_)) => Ok(()),
            Err(error) => Err(error),
            Ok(_) if self.inner.is_over_limit() => self.checkpoint(objects),
            Ok(_) => Ok(()),
        }
    }
}
