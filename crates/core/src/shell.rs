//! The shell of every scheme: what callers give is checked here, and what an error means is decided here.
//!
//! * A [`Mechanism`] is a scheme's own part: it is given pages that can be, and lines that are held.
//! * An epoch that finds no room is lost: everything but [`Scheme::abandon`] is refused until it is forgotten.
//! * After any other failure of a write, a fence or a commit the store is poisoned for good.

use crate::error::{Error, Result};
use crate::geometry::{Geometry, LINES_PER_PAGE, LineMask, PageId, PageLines};
use crate::medium::{Offset, Path};
use crate::poison::Poison;
use crate::scheme::{Commit, Damage, Epoch, FoldHints, Info, Pressure, Scheme, Traffic};
use std::io;
use std::ops::Range;

/// What every store has besides its mechanism.
#[derive(Clone, Debug)]
pub struct Shell {
    geometry: Geometry,
    page_limit: u64,
    context_limit: u64,
    poison: Poison,
    /// The epoch found no room and waits to be abandoned.
    lost: bool,
}

impl Shell {
    /// Of a store of pages below `page_limit`, with contexts of at most `context_limit` bytes.
    #[must_use]
    pub fn new(geometry: Geometry, page_limit: u64, context_limit: u64) -> Shell {
        Shell {
            geometry,
            page_limit,
            context_limit,
            poison: Poison::default(),
            lost: false,
        }
    }

    /// The same with the flag of the store that this one is a layer of.
    #[must_use]
    pub fn sharing(self, poison: Poison) -> Shell {
        Shell { poison, ..self }
    }

    /// How the medium is cut.
    #[must_use]
    #[inline]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The flag that says nothing is durable any more.
    #[must_use]
    pub fn poison(&self) -> &Poison {
        &self.poison
    }

    /// Whether the epoch found no room and waits to be abandoned.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// The lines that `len` bytes from line `first` of a page on are.
    ///
    /// # Errors
    /// [`Error::Invalid`] when they are no whole lines of one page, or there can be no such page.
    pub fn lines(&self, page: PageId, first: usize, len: usize) -> Result<LineMask> {
        let line = self.geometry.line_bytes();
        let count = len / line;
        if !len.is_multiple_of(line) || first + count > LINES_PER_PAGE {
            let page = page.0;
            return Err(Error::Invalid(format!(
                "{len} bytes from line {first} of page {page}: expected whole {line}-byte lines of one page"
            )));
        }
        self.page(page)?;
        Ok(LineMask::run(first, count))
    }

    fn page(&self, page: PageId) -> Result<()> {
        match page.0 < self.page_limit {
            true => Ok(()),
            false => Err(Error::Invalid(format!(
                "page {} lies past the end of the page space, {}",
                page.0, self.page_limit
            ))),
        }
    }

    /// That the lines can be, and their content fits them.
    fn held(&self, lines: &PageLines<'_>) -> Result<()> {
        let PageLines {
            page, held, changed, ..
        } = *lines;
        let (line, len) = (self.geometry.line_bytes(), lines.bytes.len());
        if lines.line_bytes != line || len != held.count() * line {
            return Err(Error::Invalid(format!(
                "{len} bytes for {} lines of page {}: expected whole {line}-byte lines",
                held.count(),
                page.0
            )));
        }
        if !(changed & !held).is_empty() {
            return Err(Error::Invalid(format!(
                "lines {changed:?} of page {}: only {held:?} are held",
                page.0
            )));
        }
        self.page(page)
    }

    fn context(&self, context: &[u8]) -> Result<()> {
        match context.len() as u64 <= self.context_limit {
            true => Ok(()),
            false => Err(Error::Invalid(format!(
                "a context of {} bytes: at most {} fit",
                context.len(),
                self.context_limit
            ))),
        }
    }

    /// Whether an epoch can go on.
    #[inline]
    fn ready(&self) -> Result<()> {
        self.poison.check()?;
        match self.lost {
            true => Err(Error::Invalid("the epoch found no room: abandon it first".into())),
            false => Ok(()),
        }
    }

    /// What an error means for what comes next.
    #[cold]
    fn fail(&mut self, error: Error, can_abandon: bool) -> Error {
        match &error {
            Error::Invalid(_) => {}
            Error::Full { .. } if can_abandon => self.lost = true,
            error => self.poison.set(error),
        }
        error
    }
}

/// How a scheme keeps lines so that an epoch of them becomes the checkpoint, or none of it.
///
/// What it is given was checked by its shell: pages can be, lines are in their page and held. It is not
/// called when the store is poisoned, or between a lost epoch and [`Mechanism::forget_epoch`].
pub trait Mechanism {
    /// Whether an epoch that found no room can be forgotten. Where it cannot, it poisons the store.
    const CAN_ABANDON: bool = true;

    /// The shell.
    fn shell(&self) -> &Shell;

    /// The shell, to be changed.
    fn shell_mut(&mut self) -> &mut Shell;

    /// An operation begins that this one waits for; what recovery left to do is done now.
    ///
    /// # Errors
    /// As [`Scheme::write`].
    fn prepare(&mut self, path: Path) -> Result<()>;

    /// As [`Scheme::read`].
    ///
    /// # Errors
    /// As [`Scheme::read`].
    fn read_newest(&self, page: PageId, first: usize, into: &mut [u8]) -> Result<()>;

    /// As [`Scheme::view`].
    fn view_newest(&self, page: PageId, first: usize, len: usize) -> Option<&[u8]>;

    /// Where on the medium the newest version of a line lies, for messages; `None` where that is not known.
    fn newest_place(&self, page: PageId, line: usize) -> Option<Offset> {
        let _ = (page, line);
        None
    }

    /// As [`Scheme::is_present`], of any number.
    fn has_page(&self, page: PageId) -> bool;

    /// Which of consecutive lines differ from the newest version.
    ///
    /// # Errors
    /// As [`Scheme::diff`].
    fn diff_newest(&self, page: PageId, first: usize, bytes: &[u8]) -> Result<LineMask>;

    /// As [`Scheme::write`]; at least one line changed.
    ///
    /// # Errors
    /// As [`Scheme::write`].
    fn write_newest(&mut self, lines: PageLines<'_>) -> Result<Pressure>;

    /// As [`Scheme::fold_hints`].
    ///
    /// # Errors
    /// As [`Scheme::fold_hints`].
    fn find_wishes(&mut self) -> Result<FoldHints> {
        Ok(FoldHints::default())
    }

    /// As [`Scheme::discard`].
    ///
    /// # Errors
    /// As [`Scheme::discard`].
    fn discard_pages(&mut self, pages: Range<PageId>) -> Result<()>;

    /// As [`Scheme::commit`].
    ///
    /// # Errors
    /// As [`Scheme::commit`].
    fn commit_epoch(&mut self, context: &[u8]) -> Result<Epoch>;

    /// Bytes that a commit of nothing but a payload may have now; 0 where there are no such commits, or the epoch has
    /// changes of pages.
    fn payload_room(&self) -> usize {
        0
    }

    /// Begins a commit of which `payload` is all: bytes of the layer above, at least one and at most
    /// [`Mechanism::payload_room`]. The context stays. A payload is a part of the checkpoint until the next other commit.
    ///
    /// # Errors
    /// As [`Scheme::commit`]; [`Error::Invalid`] for a payload without room.
    fn begin_payload(&mut self, payload: &[u8]) -> Result<Commit> {
        let len = payload.len();
        Err(Error::Invalid(format!(
            "a payload of {len} bytes, of a scheme that has none"
        )))
    }

    /// The wait that [`Mechanism::begin_payload`] asked for is over.
    ///
    /// # Errors
    /// As [`Scheme::commit`].
    fn end_payload(&mut self, flushed: io::Result<()>) -> Result<Epoch> {
        let _ = flushed;
        Err(Error::Invalid("no payload has begun".into()))
    }

    /// The payloads of the checkpoint, the first one first.
    ///
    /// # Errors
    /// As [`Scheme::read`].
    fn payloads(&self) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    /// As [`Scheme::abandon`].
    ///
    /// # Errors
    /// Any error poisons the store.
    fn forget_epoch(&mut self) -> Result<()>;

    /// As [`Scheme::epoch`].
    fn last_epoch(&self) -> Epoch;

    /// Bytes written to the medium since the scheme was opened.
    fn written(&self) -> Traffic;

    /// As [`Scheme::info`].
    fn describe(&self) -> Info;

    /// As [`Scheme::check`].
    ///
    /// # Errors
    /// As [`Scheme::check`].
    fn find_damage(&self) -> Result<Vec<Damage>>;
}

/// An operation on a store that is whole, with what its error means for what comes next. Where there is none,
/// nothing is moved: a load of what was just stored in other pieces would wait for all stores before it, those
/// to the medium too.
///
/// # Errors
/// That of the operation; [`Error::Poisoned`], and [`Error::Invalid`] in a lost epoch.
#[inline]
pub fn guarded<T: Mechanism, R>(
    store: &mut T,
    path: Path,
    operation: impl FnOnce(&mut T) -> Result<R>,
) -> Result<R> {
    store.shell().ready()?;
    if let Err(error) = store.prepare(path) {
        return Err(store.shell_mut().fail(error, T::CAN_ABANDON));
    }
    match operation(store) {
        Ok(value) => Ok(value),
        Err(error) => Err(store.shell_mut().fail(error, T::CAN_ABANDON)),
    }
}

/// As [`guarded`], for the end of an operation that began before: nothing is prepared.
///
/// # Errors
/// As [`guarded`].
pub fn waited<T: Mechanism, R>(store: &mut T, operation: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
    store.shell().ready()?;
    operation(store).map_err(|error| store.shell_mut().fail(error, T::CAN_ABANDON))
}

/// As [`guarded`], for something done to a page.
///
/// # Errors
/// As [`guarded`]; [`Error::Invalid`] when there can be no such page.
pub fn guarded_page<T: Mechanism, R>(
    store: &mut T,
    page: PageId,
    operation: impl FnOnce(&mut T) -> Result<R>,
) -> Result<R> {
    store.shell().page(page)?;
    guarded(store, Path::Background, operation)
}

/// As [`guarded`], for something done with a context.
///
/// # Errors
/// As [`guarded`]; [`Error::Invalid`] when the context is too long.
pub fn guarded_context<T: Mechanism, R>(
    store: &mut T,
    context: &[u8],
    operation: impl FnOnce(&mut T) -> Result<R>,
) -> Result<R> {
    store.shell().context(context)?;
    guarded(store, Path::Critical, operation)
}

impl<T: Mechanism> Scheme for T {
    #[inline]
    fn geometry(&self) -> Geometry {
        self.shell().geometry
    }

    fn read(&self, page: PageId, first: usize, into: &mut [u8]) -> Result<()> {
        self.shell().lines(page, first, into.len())?;
        self.read_newest(page, first, into)
    }

    fn view(&self, page: PageId, first: usize, len: usize) -> Option<&[u8]> {
        self.shell().lines(page, first, len).ok()?;
        self.view_newest(page, first, len)
    }

    fn is_present(&self, page: PageId) -> bool {
        self.has_page(page)
    }

    fn diff(&self, lines: &PageLines<'_>) -> Result<LineMask> {
        self.shell().held(lines)?;
        lines.held.runs().try_fold(LineMask::NONE, |differ, run| {
            let more = self.diff_newest(lines.page, run.start, lines.run(run))?;
            Ok(differ | more)
        })
    }

    #[inline]
    fn write(&mut self, lines: PageLines<'_>) -> Result<Pressure> {
        self.shell().held(&lines)?;
        if lines.changed.is_empty() {
            return Ok(Pressure::None);
        }
        guarded(self, Path::Background, |store| store.write_newest(lines))
    }

    fn fold_hints(&mut self) -> Result<FoldHints> {
        guarded(self, Path::Background, T::find_wishes)
    }

    fn discard(&mut self, pages: Range<PageId>) -> Result<()> {
        let limit = PageId(self.shell().page_limit);
        guarded(self, Path::Background, |store| {
            store.discard_pages(pages.start.min(limit)..pages.end.min(limit))
        })
    }

    fn commit(&mut self, context: &[u8]) -> Result<Epoch> {
        guarded_context(self, context, |store| store.commit_epoch(context))
    }

    fn abandon(&mut self) {
        if let Err(error) = self.forget_epoch() {
            self.shell().poison.set(&error);
        }
        self.shell_mut().lost = false;
    }

    fn epoch(&self) -> Epoch {
        self.last_epoch()
    }

    fn info(&self) -> Info {
        self.describe()
    }

    fn check(&self) -> Result<Vec<Damage>> {
        self.find_damage()
    }
}
