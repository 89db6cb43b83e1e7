//! Pages come when they are first touched, and cold ones go when memory is short.
//!
//! ```text
//! absent --- touched: read from the store ---> loaded --- clean, cold, over budget ---> absent
//! ```
//!
//! A thread of its own answers the faults (`twinpage_os::missing`). What holds:
//!
//! * A page is loaded with what the store's newest version has: the last checkpoint, or the epoch in
//!   flight where that has been written already. So a page may go only while no line of it is newer
//!   than the store: none is marked, none is frozen, none is in a part that was swept and not yet
//!   handed over ([`IN_FLIGHT`], until the epoch is durable).
//! * Whether a page is so is looked at while it is protected: a writer marks before it writes, so one
//!   that came first is seen by its mark, and one that comes later sleeps, finds the page gone and
//!   loads it again.
//! * A page that was discarded reads as zero. Until the store says so itself, which is when the epoch of
//!   the discard is durable, a flag does; there are two, for the epoch in progress and the one in flight.
//! * The budget is a goal: pages that are written in the epoch in progress cannot go. When there are
//!   too many of them a checkpoint is asked for, which makes them clean.
//!
//! Where the system has no page faults for this process (a filter against userfaultfd(2)), all pages are
//! brought when the region is opened, and there is no pager and no budget.
//!
//! Which pages are cold: a clock goes round those that are loaded, in the order they came (DPC replaces by LRU, which a
//! program's own loads do not let one see). A page that was written, or came back after it had gone, is passed over by
//! the clock a few times; others go when it comes by. Where too few could go it comes by again when an epoch has become
//! durable, or a sixteenth of the budget was brought.

use crate::address::{PAGE, Place};
use crate::error::{Error, Result};
use crate::lock::lock;
use crate::marks;
use crate::residence::{DISCARDED, FLAGS, FLAGS_BYTES, HEAT, HEAT_ONE, IN_FLIGHT, LOADED, LOST, WENT, flags};
use crate::store::Store;
use crate::zone::{HAS_FAULTS, WINDOWS};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use twinpage_core::{Buffer, Poison};
use twinpage_os::missing::{Fault, Missing};

/// Pages brought together, at first and where one fault follows the other.
const CHUNK: usize = 16;
const CHUNK_MOST: usize = 256;
/// Pages that go together.
const BATCH: usize = 64;
/// How often the clock goes round: a page is passed over as often as it is hot, and taken then.
const ROUNDS: usize = 5;

/// Brings and takes the pages of one region.
pub(crate) struct Pager {
    place: Place,
    missing: Missing,
    store: Box<dyn Store>,
    /// Of a poisoned store no page is evicted: what was written since stays in memory.
    poison: Poison,
    budget: Option<usize>,
    /// Held while pages are brought, taken or discarded.
    work: Mutex<Work>,
    /// Bytes from the base whose pages are brought: all behind, until `adopt`, are the kernel's.
    served: AtomicUsize,
    counts: Counts,
    /// Called when too much is dirty.
    ask: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct Work {
    /// With a budget: the loaded pages from where the clock stands. A page that was discarded stays here, and comes once
    /// more when it is brought again.
    clock: VecDeque<usize>,
    /// The clock rests until more pages than these are loaded.
    enough: usize,
    /// Loaded pages.
    resident: usize,
    /// One past the last page brought, and how many were brought with it.
    next: usize,
    chunk: usize,
    buffer: Buffer,
    /// Cuts so far, of which the lowest bit counts.
    phase: usize,
    /// Discarded pages since the last cut, and before it in an epoch that is not durable.
    discarded: Vec<Range<usize>>,
    flying: Vec<Range<usize>>,
}

#[derive(Debug, Default)]
struct Counts {
    loaded: AtomicU64,
    gone: AtomicU64,
    resident: AtomicUsize,
}

/// Pages brought and taken since a region was opened.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::Region;
/// use twinpage::collections::Vec;
///
/// # let load = || -> twinpage::Result<()> {
/// let region = Region::open("numbers.twin")?;
/// let mut numbers = region.root::<Vec<u64>>("numbers")?;
/// region.update(|u| numbers.get_mut(u).extend(0..100_000));
/// # drop(numbers);
/// # region.close()
/// # };
/// # load()?;
/// # let region = Region::open("numbers.twin")?;
/// # let numbers = region.root::<Vec<u64>>("numbers")?;
/// // In the next life of the program pages come as they are touched, and some ahead of that.
/// assert_eq!(region.read(|v| numbers.get(v)[70_000]), 70_000);
/// let paging = region.statistics().paging;
/// assert!(paging.loaded_pages > 0 || paging.loaded_at_open);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Paging {
    /// Pages of 4 KiB read from the store.
    pub loaded_pages: u64,
    /// Pages that went to stay within the budget.
    pub evicted_pages: u64,
    /// Pages in memory that were brought; those that grew since are not counted without a budget.
    pub resident_pages: u64,
    /// All pages were brought when the region was opened: the system has no userfaultfd(2) for this process.
    pub loaded_at_open: bool,
}

/// The pager of each window whose pages are not all in memory.
static PAGERS: [Mutex<Option<Arc<Pager>>>; WINDOWS] = [const { Mutex::new(None) }; WINDOWS];

/// The pager of a window, if it has one.
pub(crate) fn of(place: Place) -> Option<Arc<Pager>> {
    lock(&PAGERS[place.index()]).clone()
}

fn set(place: Place, pager: Option<Arc<Pager>>) {
    let takes_away = pager.as_ref().is_some_and(|pager| pager.takes_away());
    *lock(&PAGERS[place.index()]) = pager;
    place.state().takes_away.store(takes_away, Ordering::Release);
}

/// The thread that answers faults, until dropped.
pub(crate) struct Serving {
    /// None: all was brought at once.
    pager: Option<Arc<Pager>>,
    brought: Paging,
    thread: Option<JoinHandle<()>>,
}

impl Pager {
    /// Takes the first `bytes` bytes of the region over, none of which is loaded.
    pub(crate) fn start(
        place: Place,
        bytes: usize,
        store: Box<dyn Store>,
        poison: Poison,
        budget: Option<usize>,
        ask: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Serving> {
        let missing = match ask_for_faults() {
            Ok(missing) => missing,
            Err(_) if budget.is_none() => return bring_all(place, bytes, &*store),
            Err(error) => {
                return Err(Error::Invalid(format!(
                    "a memory budget needs userfaultfd(2), which the system refuses ({error}): allow it, or \
                     open the region without a budget"
                )));
            }
        };
        if budget.is_some() && !missing.can_protect() {
            return Err(Error::Invalid(
                "a memory budget needs Linux 5.7: open the region without one".into(),
            ));
        }
        place.open_side(FLAGS..FLAGS + FLAGS_BYTES)?;
        let pager = Arc::new(Pager {
            place,
            missing,
            store,
            poison,
            budget: budget.map(|bytes| (bytes / PAGE).max(BATCH)),
            work: Mutex::default(),
            served: AtomicUsize::new(0),
            counts: Counts::default(),
            ask,
        });
        pager.serve(0..bytes)?;
        let server = pager.clone();
        let thread = Builder::new()
            .name("twinpage-pager".into())
            .spawn(move || server.run())
            .map_err(|e| Error::system("starting the thread that brings pages", e))?;
        set(place, Some(pager.clone()));
        Ok(Serving {
            pager: Some(pager),
            brought: Paging::default(),
            thread: Some(thread),
        })
    }

    pub(crate) fn paging(&self) -> Paging {
        Paging {
            loaded_pages: self.counts.loaded.load(Ordering::Relaxed),
            evicted_pages: self.counts.gone.load(Ordering::Relaxed),
            resident_pages: self.counts.resident.load(Ordering::Relaxed) as u64,
            loaded_at_open: false,
        }
    }

    /// Whether pages may go.
    pub(crate) fn takes_away(&self) -> bool {
        self.budget.is_some()
    }

    /// The region grew. Without a budget the kernel gives the new pages, large ones if it can.
    pub(crate) fn adopt(&self, range: Range<usize>, prefer_large: impl FnOnce()) -> Result<()> {
        match self.budget {
            Some(_) => return self.serve(range),
            None => prefer_large(),
        }
        Ok(())
    }

    fn serve(&self, range: Range<usize>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let base = self.place.base().addr();
        self.missing
            .register(base + range.start..base + range.end)
            .map_err(|e| Error::system("asking for the faults of a region", e))?;
        self.served.store(range.end, Ordering::Release);
        Ok(())
    }

    /// Whole pages are made zero with `zero` and will be, whatever the store has.
    pub(crate) fn discard<E>(
        &self,
        range: Range<usize>,
        zero: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut work = self.work();
        let end = range.end.min(self.served.load(Ordering::Acquire));
        let pages = range.start / PAGE..(end / PAGE).max(range.start / PAGE);
        let in_section = self.place.state().lists.load(Ordering::Relaxed);
        for page in pages.clone() {
            let had = self.flags(page).fetch_and(!(LOADED | LOST), Ordering::Relaxed);
            work.resident -= usize::from(had & LOADED != 0);
            if !in_section {
                self.flags(page)
                    .fetch_or(DISCARDED[work.phase & 1], Ordering::Relaxed);
            }
        }
        zero()?;
        match in_section {
            true => self.bring_zeros(&mut work, pages),
            false => work.discarded.push(pages),
        }
        self.counts.resident.store(work.resident, Ordering::Relaxed);
        Ok(())
    }

    /// Brings pages that a section gave back, which are zero now: whatever becomes of the section, no fault may bring
    /// them from the store before it knows of it.
    fn bring_zeros(&self, work: &mut Work, pages: Range<usize>) {
        if pages.is_empty() {
            return;
        }
        let base = self.place.base().addr();
        let brought = self
            .missing
            .zero(base + pages.start * PAGE..base + pages.end * PAGE);
        brought.unwrap_or_else(|e| give_up("bringing pages", e));
        for page in pages.clone() {
            self.flags(page).fetch_or(LOADED, Ordering::Relaxed);
        }
        self.came(work, pages);
    }

    /// A cut was made, and the epoch before is settled.
    pub(crate) fn cut(&self) {
        let mut work = self.work();
        debug_assert!(work.flying.is_empty());
        work.phase += 1;
        work.flying = std::mem::take(&mut work.discarded);
    }

    /// The cut is durable: the store says what was discarded.
    pub(crate) fn landed(&self) {
        let mut work = self.work();
        work.enough = 0;
        let flag = DISCARDED[(work.phase + 1) & 1];
        for page in std::mem::take(&mut work.flying).into_iter().flatten() {
            self.flags(page).fetch_and(!flag, Ordering::Relaxed);
        }
    }

    /// The cut is lost: what it discarded goes with the next.
    pub(crate) fn lost(&self) {
        let mut work = self.work();
        let (old, new) = (DISCARDED[(work.phase + 1) & 1], DISCARDED[work.phase & 1]);
        let flying = std::mem::take(&mut work.flying);
        for page in flying.iter().cloned().flatten() {
            if self.flags(page).fetch_and(!old, Ordering::Relaxed) & old != 0 {
                self.flags(page).fetch_or(new, Ordering::Relaxed);
            }
        }
        work.discarded.extend(flying);
    }

    /// The thread's life.
    fn run(&self) {
        let _last = AbortOnPanic;
        // An error here is of the descriptor itself: no fault could be served any more.
        while let Some(fault) = self.missing.wait().unwrap_or_else(|e| give_up("waiting", e)) {
            match fault {
                Fault::Missing(address) => self.bring(address),
                // The protection is over: it lasts no longer than this thread needs to look.
                Fault::Protected(address) => self.wake(address),
            }
            self.make_room();
        }
    }

    /// Brings the page at `address`, and some beside it.
    fn bring(&self, address: usize) {
        let mut work = self.work();
        let page = (address - self.place.base().addr()) / PAGE;
        if self.has(page, LOADED) {
            return self.wake(address);
        }
        let work = &mut *work;
        work.chunk = match work.next == page {
            true => (work.chunk * 2).clamp(CHUNK, CHUNK_MOST),
            false => CHUNK,
        };
        // With a budget, neighbours that were not asked for would evict others.
        let chunk = if self.budget.is_some() { CHUNK } else { work.chunk };
        let start = page / chunk * chunk;
        let end = (start + chunk).min(self.served.load(Ordering::Acquire) / PAGE);
        let first = (start..page)
            .rfind(|&page| self.has(page, LOADED))
            .map_or(start, |p| p + 1);
        let last = (page..end).find(|&page| self.has(page, LOADED)).unwrap_or(end);
        work.next = last;
        let mut at = first;
        while at < last {
            let zero = self.is_zero(at);
            let count = (at..last).take_while(|&page| self.is_zero(page) == zero).count();
            self.bring_run(work, at, count, zero);
            at += count;
        }
        self.counts.resident.store(work.resident, Ordering::Relaxed);
    }

    fn bring_run(&self, work: &mut Work, first: usize, count: usize, zero: bool) {
        let at = self.place.base().addr() + first * PAGE;
        let brought = if zero {
            self.missing.zero(at..at + count * PAGE)
        } else {
            work.buffer.clear();
            match self
                .store
                .read_bytes(first * PAGE, work.buffer.append(count * PAGE))
            {
                Ok(()) => self.missing.fill(at, &work.buffer),
                Err(_) if count > 1 => {
                    // Page by page: only those that cannot be read are withheld.
                    return (first..first + count).for_each(|page| self.bring_run(work, page, 1, false));
                }
                Err(error) => {
                    eprintln!(
                        "twinpage: a page of a region cannot be loaded, touching it raises SIGBUS: {error}"
                    );
                    self.flags(first).fetch_or(LOST, Ordering::Relaxed);
                    self.missing.poison(at..at + PAGE)
                }
            }
        };
        brought.unwrap_or_else(|e| give_up("bringing pages", e));
        for page in first..first + count {
            let flags = self.flags(page);
            let had = flags.fetch_or(LOADED, Ordering::Relaxed);
            if had & WENT != 0 {
                flags.fetch_or(HEAT, Ordering::Relaxed);
            }
        }
        self.came(work, first..first + count);
        self.counts.loaded.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Pages are loaded that were not.
    fn came(&self, work: &mut Work, pages: Range<usize>) {
        work.resident += pages.len();
        if self.budget.is_none() {
            return;
        }
        work.clock.extend(pages);
        if work.clock.len() > 2 * work.resident {
            let mut clock = Vec::from(std::mem::take(&mut work.clock));
            clock.sort_unstable();
            clock.dedup();
            clock.retain(|&page| self.has(page, LOADED));
            work.clock = clock.into();
        }
    }

    /// Whether the page is zero, by its flag or because the store has nothing of it.
    fn is_zero(&self, page: usize) -> bool {
        self.has(page, DISCARDED[0] | DISCARDED[1]) || !self.store.has_bytes(page * PAGE)
    }

    /// Takes pages away until the budget is met, or the clock went round often enough.
    fn make_room(&self) {
        let Some(budget) = self.budget else { return };
        let mut work = self.work();
        if work.resident <= budget.max(work.enough) || self.poison.is_set() {
            return;
        }
        // A little more than needed, so that the next faults need not.
        let goal = budget - (budget / 64).min(BATCH);
        let mut looks = work.clock.len() * ROUNDS;
        while work.resident > goal && looks > 0 {
            looks -= 1;
            self.turn(&mut work);
        }
        self.counts.resident.store(work.resident, Ordering::Relaxed);
        work.enough = 0;
        if work.resident > budget {
            work.enough = work.resident + budget / 16;
            (self.ask)();
        }
    }

    /// The clock looks at a page. If it may go, so do those that came with it.
    fn turn(&self, work: &mut Work) {
        let Some(first) = work.clock.pop_front() else {
            return;
        };
        if !self.has(first, LOADED) {
            return; // it was discarded
        }
        let (mut count, mut run) = (1, usize::from(self.may_go(first)));
        while run == count && count < BATCH && work.clock.front() == Some(&(first + count)) {
            work.clock.pop_front();
            run += usize::from(self.may_go(first + count));
            count += 1;
        }
        if run > 0 {
            work.resident -= self.take(first, run);
        }
        let stay = (first..first + count).filter(|&page| self.has(page, LOADED));
        work.clock.extend(stay);
    }

    /// Whether the clock takes the page. Cools it if not.
    fn may_go(&self, page: usize) -> bool {
        let flags = self.flags(page);
        let now = flags.load(Ordering::Relaxed);
        if now & LOADED == 0 || now & IN_FLIGHT != 0 || marks::is_marked(self.place, page) {
            return false;
        }
        if now & HEAT != 0 {
            flags.fetch_sub(HEAT_ONE, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Takes those of `count` pages from `first` on that are clean still. Says how many.
    fn take(&self, first: usize, count: usize) -> usize {
        let base = self.place.base().addr();
        let bytes = |pages: Range<usize>| base + pages.start * PAGE..base + pages.end * PAGE;
        let all = first..first + count;
        let failed = |e| give_up("taking pages away", e);
        self.missing.protect(bytes(all.clone())).unwrap_or_else(failed);
        let is_clean = |page: usize| !marks::is_marked(self.place, page) && !self.has(page, IN_FLIGHT);
        let (mut taken, mut at) = (0, first);
        while at < all.end {
            let run = (at..all.end).take_while(|&page| is_clean(page)).count();
            if run > 0 {
                // SAFETY: the pages are protected and clean: the store has what they hold, and who
                // touches them next gets it from there.
                unsafe { self.place.forget(at * PAGE..(at + run) * PAGE) }
                    .unwrap_or_else(|e| give_up("taking pages away", std::io::Error::other(e)));
                for page in at..at + run {
                    self.flags(page).fetch_and(!(LOADED | HEAT), Ordering::Relaxed);
                    self.flags(page).fetch_or(WENT, Ordering::Relaxed);
                }
                taken += run;
            }
            at += run.max(1);
        }
        self.missing.release(bytes(all)).unwrap_or_else(failed);
        self.counts.gone.fetch_add(taken as u64, Ordering::Relaxed);
        taken
    }

    fn wake(&self, address: usize) {
        let page = address / PAGE * PAGE;
        self.missing
            .wake(page..page + PAGE)
            .unwrap_or_else(|e| give_up("waking", e));
    }

    /// Whether the page is in memory, or was a moment ago.
    pub(crate) fn is_here(&self, page: usize) -> bool {
        page * PAGE >= self.served.load(Ordering::Acquire) || self.has(page, LOADED)
    }

    fn has(&self, page: usize, flag: u8) -> bool {
        self.flags(page).load(Ordering::Relaxed) & flag != 0
    }

    fn flags(&self, page: usize) -> &AtomicU8 {
        // SAFETY: the pager of the window, which is in use as long as its pager; it is asked for pages of the data.
        unsafe { flags(self.place, page) }
    }

    fn work(&self) -> std::sync::MutexGuard<'_, Work> {
        lock(&self.work)
    }
}

/// Threads sleep on pages that cannot be faulted in: there is no way to tell them.
fn give_up(what: &str, error: std::io::Error) -> ! {
    eprintln!("twinpage: {what}: {error}; the region cannot be used any more");
    std::process::abort()
}

/// A panic of the pager would leave threads asleep for ever.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            give_up("bringing pages", std::io::ErrorKind::Other.into());
        }
    }
}

fn ask_for_faults() -> std::io::Result<Missing> {
    match HAS_FAULTS {
        true => Missing::new(),
        false => Err(std::io::ErrorKind::Unsupported.into()),
    }
}

/// Brings the first `bytes` bytes of a region that is not in use yet.
fn bring_all(place: Place, bytes: usize, store: &dyn Store) -> Result<Serving> {
    let mut brought = Paging {
        loaded_at_open: true,
        ..Paging::default()
    };
    let mut page = [0; PAGE];
    for at in (0..bytes).step_by(PAGE).filter(|&at| store.has_bytes(at)) {
        store.read_bytes(at, &mut page)?;
        let to = place.base().wrapping_add(at).cast::<*mut u8>();
        // As addresses, so that those into the region are pointers again (`std::ptr`, exposed provenance).
        for (k, word) in page.as_chunks().0.iter().enumerate() {
            let word = std::ptr::with_exposed_provenance_mut(usize::from_ne_bytes(*word));
            // SAFETY: the window has `bytes` usable bytes and is known only here.
            unsafe { to.add(k).write(word) };
        }
        brought.loaded_pages += 1;
        brought.resident_pages += 1;
    }
    Ok(Serving {
        pager: None,
        brought,
        thread: None,
    })
}

impl Serving {
    pub(crate) fn kernel_waits(&self) -> bool {
        self.pager
            .as_ref()
            .is_none_or(|pager| pager.missing.kernel_waits())
    }

    /// That the page can be loaded, if it was not.
    pub(crate) fn verify(&self, page: usize, store: &dyn Store) -> Result<()> {
        let Some(pager) = &self.pager else { return Ok(()) };
        if (pager.is_here(page) && !pager.has(page, LOST)) || pager.is_zero(page) {
            return Ok(());
        }
        Ok(store.read_bytes(page * PAGE, &mut [0; PAGE])?)
    }

    pub(crate) fn paging(&self) -> Paging {
        self.pager.as_ref().map_or(self.brought, |pager| pager.paging())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let Some(pager) = &self.pager else { return };
        set(pager.place, None);
        pager.missing.end();
        if let Some(thread) = self.thread.take() {
            // The thread ends on its own, or with the program.
            let _ = thread.join();
        }
    }
}
