//! Packed lines: small changes on a medium of large lines, near the cost of a log.
//!
//! On a disk a line is 4 KiB, so a scheme that writes lines writes 4 KiB for every 16 bytes that
//! change here and there. [`Packed`] is a room between its caller and such a scheme. To its caller
//! it is a scheme of small lines: a page is one line of the scheme below, and a line a 64th of that,
//! so over [`Geometry::DISK`](crate::Geometry::DISK) its geometry is [`Geometry::MEMORY`](crate::Geometry::MEMORY), lines of 64 bytes in pages of
//! 4 KiB. **A caller that knows its changed lines of 64 bytes says just those**, as on memory, and
//! nothing is compared or read to find them:
//!
//! ```
//! use twinpage_core::crash::Image;
//! use twinpage_core::dual_page::{self, DualPage};
//! use twinpage_core::packed::{Options, Packed};
//! use twinpage_core::{Geometry, PageId, PageLines, Scheme};
//!
//! # fn main() -> twinpage_core::Result<()> {
//! let disk = DualPage::create(Image::new(512), &dual_page::Options::new(Geometry::DISK))?;
//! let mut store = Packed::create(disk, &Options::default())?;
//! assert_eq!(store.geometry(), Geometry::MEMORY); // 64-byte lines, on a disk
//! for page in (0..1000).map(PageId) {
//!     store.write(PageLines::from(page, 0, &[1; 4096], 64))?;
//! }
//! store.commit(b"roots")?;
//!
//! let before = store.info().traffic;
//! for page in (0..1000).map(PageId) {
//!     store.write(PageLines::from(page, 9, &[2; 64], 64))?;
//! }
//! store.commit(b"roots")?;
//! let spent = store.info().traffic - before; // 64,000 bytes changed, in pages of 4 MB
//! assert!(spent.total_bytes() < 80_000);
//!
//! let (store, found) = Packed::<DualPage<Image>>::recover(store.into_medium())?;
//! assert_eq!((found.epoch, &found.context[..]), (2, &b"roots"[..]));
//! let mut line = [0; 64];
//! store.read(PageId(500), 9, &mut line)?;
//! assert_eq!(line, [2; 64]);
//! # Ok(())
//! # }
//! ```
//!
//! A reader that does not know how a store was made recovers the scheme below, asks
//! [`is_packed`] of the context found, and goes on with [`Packed::over`] if it is.
//!
//! # How
//!
//! The changed lines of many pages are packed back to back into *strips*, with a directory before
//! them, and written to a *log* (`batch.rs`): a ring of pages of the scheme below, set apart. Pages
//! that changed in most of their lines go straight to their own place. One commit of the scheme below
//! makes both durable at once; there is no second mechanism to prove. The root of the log, which says
//! from where to where it reaches, is at the beginning of the context of that commit.
//!
//! ```text
//!   write --> waiting --> few lines of a page ---> strips, one batch ---> log (a ring) ---.
//!              |   '----> most of its lines, or a new page ---> its own place  <--- fold --'
//!              '--------> a small commit ---> payload in the journal below, and they go on waiting
//! ```
//!
//! A commit of few bytes is not worth a page of the log and one of the context: its lines go into the record below, which
//! is one write and one fence, and wait in memory for the next commit that is larger (`payload.rs`).
//!
//! An index in memory (`index.rs`) knows which lines are in the log; reading lays them over the page.
//! When the ring comes round, the pages that have live lines in the oldest batch are *folded*:
//! written whole to their own places. Folding begins early and grows with what is in use, so that no
//! commit has to do much of it. A source that can give those pages whole is told before which they are
//! ([`Scheme::fold_hints`]); other pages are read, from their own places and from every strip.
//!
//! # Choices by cost
//!
//! A page that changes in `n` of its 64 lines costs `n` in the log now, and 64 (a page) once when it
//! is folded. If it changes again so in `k` epochs before that, an epoch costs `n + 64 / k`; written
//! whole each time it costs 64. The log is better while `n < 64 (1 - 1/k)`.
//!
//! * **[`Tuning::whole_lines`]**, 40: from this number of changed lines on, a page is written whole. That is
//!   right for `k` near 3. A page that never changes again loses at most 40 of 104 by waiting; one
//!   that does gains up to a `k`-th of 64.
//! * **[`Tuning::payload_bytes`]**, 8192: up to this size a commit is a payload. It costs 1.3 bytes a byte of three lines,
//!   and what it holds once more when it goes to the log, lines that changed again once for all; a page of the log and
//!   one of the context are 8192 bytes.
//! * **A commit of at most two pages** that have nothing in the log writes them whole: a batch and the
//!   root in the context below are two lines of the disk as well, and would be owed a fold.
//! * **[`Tuning::log_percent`]**, 100, and **[`Options::log_bytes`]**, 64 MiB: the log grows with the store to
//!   what it holds, so that a small store has a small file, and no longer than the limit. `k` is what the log
//!   holds over what an epoch appends. The log bounds the disk (twice it: every page has two homes), what recovery
//!   reads (its directories), and the index (`index.rs`).
//! * **[`Tuning::pressure_percent`]**, 100: of the log `u` is in use. For each page appended, that many
//!   percent of `u / (1 - u)` pages are folded in the next commit. It settles where folding frees as
//!   much as is appended; a commit is `1 / (1 - u)` times its strips at most, until the ring is full.
//!
//! Measured so: 80,000 random pairs of 16 bytes in 32 MiB an epoch write 26.2 bytes per changed byte as
//! plain pages, 7.2 packed (3.8 of them strips, which is what a log alone would write, and 3.4 folding);
//! the largest commit is 1.05 times the mean once settled, 1.5 times while the log fills for the first
//! time. `cargo bench -p twinpage-core --bench packed` repeats it, and with `-- --sensitivity` varies
//! each of these choices.
//!
//! # Invariants
//!
//! * A line that waits and was written before the last commit is in a payload of the checkpoint.
//! * The newest version of a line is in `waiting`, else in the one strip where it is live, else in the
//!   page's own place.
//! * A page with a live strip is there: the first write of a page, and the first after a discard, is
//!   whole. So the log needs to know nothing of pages that come and go.
//! * When a page is written whole or discarded, and strips of it are live, the next batch drops it:
//!   a batch later than them in the ring, so they leave the ring first (`log.rs`).
//! * No line of the ring is written over while the newest version needs it. That the checkpoint may
//!   still need it is the business of the scheme below, which never touches its checkpoint.
//! * All that is known can be known from the checkpoint below alone: to abandon is to recover
//!   (`recover.rs`).

mod batch;
mod fault;
mod index;
mod layout;
mod log;
mod payload;
mod presence;
mod recover;
mod scheme;
mod waiting;

#[cfg(any(test, feature = "faults"))]
pub use fault::Fault;
#[cfg(not(any(test, feature = "faults")))]
use fault::Fault;

use crate::buffer::Buffer;
use crate::dual_page::DualPage;
use crate::error::{Error, Result};
use crate::geometry::{LineMask, PageId, PageLines};
use crate::medium::{Cause, Medium};
use crate::scheme::{Pressure, Recovered, Scheme, Traffic};
use crate::shell::{Mechanism, Shell};
use batch::{Builder, Sizes};
use index::Index;
use layout::{FIRST_SHEETS, LOG_SHEETS, Layout, Root, SHEET};
use payload::Flight;
use presence::Presence;
use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::Mutex;
use waiting::Waiting;

/// The fewest sheets a log can do with: one being written, one being emptied, one between.
const LEAST_SHEETS: u64 = 3;

/// How a store is made. None of it can be changed later.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes the log may grow to, rounded up to 64 pages. A longer one folds pages more rarely; it takes
    /// twice its length on the medium in the end, and at most about as much memory.
    pub log_bytes: u64,
    /// Tells the store's log from others that were on the same medium; a random number if not given.
    pub id: Option<u64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            log_bytes: 64 << 20,
            id: None,
        }
    }
}

impl Options {
    /// The same with a log of this number of bytes.
    #[must_use]
    pub fn log_bytes(self, log_bytes: u64) -> Options {
        Options { log_bytes, ..self }
    }

    /// The same with this id, for runs that must repeat byte for byte.
    #[must_use]
    pub fn id(self, id: u64) -> Options {
        Options { id: Some(id), ..self }
    }
}

/// The choices by cost; see the [module](self). Not kept with the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// From this number of changed lines on, a page is written whole; 1 packs nothing.
    pub whole_lines: u32,
    /// How eagerly pages are folded before the log is full.
    pub pressure_percent: u32,
    /// How long the log becomes, as a share of the store's content.
    pub log_percent: u32,
    /// Up to this number of bytes a commit is a payload in the journal below; 0: none is.
    pub payload_bytes: usize,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            whole_lines: 40,
            pressure_percent: 100,
            log_percent: 100,
            payload_bytes: 8 << 10,
        }
    }
}

/// Whether the context of a scheme is that of one with packed lines over it.
#[must_use]
pub fn is_packed(context: &[u8]) -> bool {
    !matches!(Root::decode(context), Err(Error::Foreign(_)))
}

/// Packed lines over a scheme of large lines. See the [module](self).
#[derive(Debug)]
pub struct Packed<S> {
    below: S,
    shell: Shell,
    layout: Layout,
    tuning: Tuning,
    /// As the last commit left it.
    root: Root,
    /// The commit which the scheme below has begun.
    flying: Option<Flight>,
    presence: Presence,
    index: Index,
    waiting: Waiting,
    /// Pages the next batch drops.
    drops: BTreeSet<u64>,
    /// The log as of now; the batches of the index lie between.
    tail: u64,
    head: u64,
    /// Lines appended in this epoch.
    appended: u64,
    /// And in the one before.
    lately: u64,
    /// Bytes that may be folded.
    credit: u64,
    /// Pages to fold in this epoch, if they come whole; ascending.
    wanted: Vec<u64>,
    /// Something was written since the last commit.
    open: bool,
    /// Bytes that the scheme below takes for data and that are none: the log, folded pages, the map.
    placed: Traffic,
    fault: Option<Fault>,
    // Buffers, kept to be used again.
    builder: Builder,
    batch: Vec<u8>,
    page: Vec<u8>,
    context: Vec<u8>,
    /// The context of the last commit, and of the one that has begun.
    last_context: Vec<u8>,
    next_context: Vec<u8>,
    scratch: Mutex<Buffer>,
}

impl<S: Mechanism> Packed<S> {
    /// A new store over `below`, which has no checkpoint yet. It lasts from its first commit on.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a scheme with small lines, one that has a checkpoint, or options that make no sense.
    pub fn create(below: S, options: &Options) -> Result<Packed<S>> {
        let layout = Layout::over(below.geometry())?;
        if below.epoch() > 0 {
            let epoch = below.epoch();
            return Err(Error::Invalid(format!(
                "the store has a checkpoint, epoch {epoch}: recover it, or make a new one"
            )));
        }
        let sheet = SHEET * layout.page_bytes() as u64;
        let sheets = options.log_bytes.div_ceil(sheet);
        if !(LEAST_SHEETS..=LOG_SHEETS).contains(&sheets) {
            let (least, most, asked) = (LEAST_SHEETS * sheet, LOG_SHEETS * sheet, options.log_bytes);
            return Err(Error::Invalid(format!(
                "a log of {asked} bytes: expected {least} to {most}"
            )));
        }
        let id = options
            .id
            .unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let root = Root {
            log_sheets: sheets.min(FIRST_SHEETS) as u32,
            limit_sheets: sheets as u32,
            id,
            tail: 0,
            head: 0,
            pages: 0,
        };
        Ok(Packed::assemble(below, layout, root))
    }

    fn assemble(below: S, layout: Layout, root: Root) -> Packed<S> {
        // The scheme below knows how long a context it takes.
        let shell = Shell::new(layout.geometry, layout.page_limit(), u64::MAX);
        Packed {
            shell: shell.sharing(below.shell().poison().clone()),
            below,
            layout,
            tuning: Tuning::default(),
            root,
            flying: None,
            presence: Presence::default(),
            index: Index::new(root.lines()),
            waiting: Waiting::default(),
            drops: BTreeSet::new(),
            tail: root.tail,
            head: root.head,
            appended: 0,
            lately: 0,
            credit: 0,
            wanted: Vec::new(),
            open: false,
            placed: Traffic::default(),
            fault: None,
            builder: Builder::default(),
            batch: Vec::new(),
            page: Vec::new(),
            context: Vec::new(),
            last_context: Vec::new(),
            next_context: Vec::new(),
            scratch: Mutex::default(),
        }
    }

    /// The scheme below.
    pub fn below(&self) -> &S {
        &self.below
    }

    /// Changes the choices by cost, from now on.
    pub fn set_tuning(&mut self, tuning: Tuning) {
        self.tuning = tuning;
    }

    /// Data written below since `before` was for this cause.
    fn count(&mut self, cause: Cause, before: Traffic) {
        let bytes = self.below.written().data_bytes - before.data_bytes;
        self.placed.add(cause, bytes as usize);
    }

    /// How many lines suit the store's content.
    fn fitting_lines(&self) -> u64 {
        self.root
            .fitting_lines(self.presence.pages, self.tuning.log_percent)
    }

    fn sizes(&self) -> Sizes {
        Sizes {
            line: self.layout.line_bytes(),
            page: self.layout.page_bytes(),
        }
    }

    /// Fills `into` with the newest version of the lines from `first` on.
    fn read_page(&self, page: u64, first: usize, into: &mut [u8]) -> Result<()> {
        let line = self.layout.line_bytes();
        let wanted = LineMask::run(first, into.len() / line);
        if !self.presence.has(page) {
            into.fill(0);
            return Ok(());
        }
        let waiting = self.waiting.get(page);
        let wait = waiting.map_or(LineMask::NONE, |page| page.lines.held & wanted);
        let packed = self.index.lines(page) & wanted & !wait;
        match wanted & !wait & !packed {
            LineMask::NONE => {}
            _ if waiting.is_some_and(|page| page.born) => into.fill(0),
            _ => self.read_own_place(page, first, into)?,
        }
        if !packed.is_empty() {
            self.read_strips(page, packed, first, into)?;
        }
        for run in wait.runs() {
            let from = waiting.map_or(&[][..], |page| page.lines.run(run.clone()));
            into[(run.start - first) * line..(run.end - first) * line].copy_from_slice(from);
        }
        Ok(())
    }

    /// The lines as they are in the page's own place.
    fn read_own_place(&self, page: u64, first: usize, into: &mut [u8]) -> Result<()> {
        let (sheet, place) = self.layout.page(page);
        if into.len() == self.layout.page_bytes() {
            return self.below.read(sheet, place, into);
        }
        let mut whole = vec![0; self.layout.page_bytes()];
        self.below.read(sheet, place, &mut whole)?;
        let start = first * self.layout.line_bytes();
        into.copy_from_slice(&whole[start..start + into.len()]);
        Ok(())
    }

    /// Whether a page of which all lines are held goes whole to its own place: it would be read to be written there
    /// later.
    fn is_better_whole(&self, lines: &PageLines<'_>) -> bool {
        let page = lines.page.0;
        lines.held == LineMask::ALL
            && (lines.changed.count() >= self.tuning.whole_lines as usize
                || !self.presence.has(page)
                || self.wanted.binary_search(&page).is_ok())
    }

    /// Newer versions of lines of a page, all of which are held.
    fn write_held(&mut self, lines: PageLines<'_>) -> Result<Pressure> {
        let page = lines.page.0;
        if lines.held == LineMask::ALL {
            self.presence.set(page);
            self.waiting.remove(page);
            return match self.wanted.binary_search(&page) {
                Ok(_) => self.fold_given(page, lines.bytes),
                Err(_) => self.write_whole(page, lines.bytes),
            };
        }
        let presence = &mut self.presence;
        self.waiting.put(lines, || !presence.set(page));
        match self.waiting.is_full(self.layout) {
            true => self.place_waiting(),
            false => Ok(Pressure::None),
        }
    }

    /// Writes lines of the scheme below, from line `first` of page `sheet` on.
    fn write_below(&mut self, sheet: PageId, first: usize, bytes: &[u8]) -> Result<Pressure> {
        let lines = PageLines::from(sheet, first, bytes, self.layout.page_bytes());
        self.below.write(lines)
    }

    /// A page goes to its own place; its lines in the log are void.
    fn write_whole(&mut self, page: u64, bytes: &[u8]) -> Result<Pressure> {
        let (sheet, place) = self.layout.page(page);
        let room = self.write_below(sheet, place, bytes)?;
        self.void(page);
        Ok(room)
    }

    /// The page's lines in the log are void.
    fn void(&mut self, page: u64) {
        if self.index.drop_page(page) && !self.faulty(Fault::ForgetDrop) {
            self.drops.insert(page);
        }
    }

    fn drop_range(&mut self, pages: Range<u64>) {
        let gone = self.presence.clear(pages.clone());
        self.open |= !gone.is_empty();
        self.waiting.remove_range(pages);
        for page in gone {
            if self.faulty(Fault::KeepDiscarded) {
                self.index.drop_page(page);
            }
            self.void(page);
        }
    }

    /// Writes what waits and the map. The root of the commit is before `context` in the scheme's own context.
    fn post_newest(&mut self, context: &[u8]) -> Result<Root> {
        self.open = true;
        self.fold_some()?;
        let _ = self.place_waiting()?;
        self.let_go();
        self.write_map()?;
        let root = Root {
            tail: self.tail,
            head: self.head,
            pages: self.presence.pages,
            ..self.root
        };
        let root = root.fitted(self.fitting_lines());
        for sheet in (root.log_sheets..self.root.log_sheets).map(|sheet| PageId(sheet.into())) {
            if self.below.is_present(sheet) {
                self.below.discard(sheet..PageId(sheet.0 + 1))?;
            }
        }
        let written = match self.faulty(Fault::OldRoot) && self.root.head > 0 {
            true => self.root,
            false => root,
        };
        self.context.clear();
        self.context.extend_from_slice(&written.encode());
        self.context.extend_from_slice(context);
        self.keep_context(context);
        Ok(root)
    }

    /// The scheme below has committed, with this root.
    fn adopt_newest(&mut self, root: Root) {
        self.root = root;
        self.index.fit(root.lines());
        self.presence.end_epoch();
        self.waiting.end_epoch();
        self.adopt_context();
        self.earn();
        self.open = false;
    }

    /// Writes the lines of the map that changed, and lets go of sheets without a page.
    fn write_map(&mut self) -> Result<()> {
        let emptied: Vec<u64> = self.presence.emptied().collect();
        for sheet in emptied.into_iter().map(Layout::sheet) {
            if self.below.is_present(sheet) {
                self.below.discard(sheet..PageId(sheet.0 + 1))?;
            }
        }
        if self.faulty(Fault::ForgetMap) && self.root.pages > 0 {
            return Ok(());
        }
        for number in self.presence.changed_lines(self.layout) {
            self.presence
                .encode(number, self.root.seed(), self.layout, &mut self.batch);
            let (page, first) = Layout::map(number);
            let before = self.below.written();
            let lines = PageLines::from(page, first, &self.batch, self.layout.page_bytes());
            let _ = self.below.write(lines)?;
            self.count(Cause::Snapshot, before);
        }
        Ok(())
    }
}

impl<M: Medium> Packed<DualPage<M>> {
    /// The checkpoint on `medium`, exactly as its last durable commit left it.
    ///
    /// # Errors
    /// As [`DualPage::recover`] and [`Packed::over`].
    pub fn recover(medium: M) -> Result<(Packed<DualPage<M>>, Recovered)> {
        let (below, found) = DualPage::recover(medium)?;
        Packed::over(below, found)
    }

    /// The medium.
    pub fn medium(&self) -> &M {
        self.below.medium()
    }

    /// The medium, and an end to the schemes. Writes without a commit are forgotten.
    pub fn into_medium(self) -> M {
        self.below.into_medium()
    }
}
