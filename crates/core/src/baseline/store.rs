//! What the protected baselines have in common: a store of pages, around the way one of them keeps
//! its lines.
//!
//! * A [`Mechanism`] keeps lines: where newer versions go, what makes them the checkpoint. It is the
//!   scheme; everything else here is the same for all, so that only the schemes are compared.
//! * The [`Ground`] holds what is on the medium besides: the lanes and the book.
//! * Abandoning an epoch is recovery: the checkpoint on the medium is whole at any time.

use super::book::{Book, Header, Prepared, damaged};
use super::fault::Fault;
use super::lanes::{EXTENT_LIMIT, Lane, Lanes};
use super::metered::Metered;
use crate::any::SchemeKind;
use crate::buffer::Buffer;
use crate::compare::{differing_from_newest, nonzero_lines};
use crate::error::{Error, Result};
use crate::geometry::{Geometry, LINES_PER_PAGE, LineMask, PageId, Span};
use crate::medium::{Cause, Medium, Path};
use crate::scheme::{Damage, Epoch, Info, PoolInfo, Recovered, Room, Scheme, Traffic};
use std::collections::hash_map::RandomState;
use std::fmt::Debug;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// What is on the medium besides the lines: which extent is where, and what each page is.
#[derive(Debug)]
pub struct Ground {
    pub(super) header: Header,
    pub(super) lanes: Lanes,
    pub(super) book: Book,
    pub(super) fault: Option<Fault>,
}

impl Ground {
    pub(super) fn geometry(&self) -> Geometry {
        self.header.geometry
    }

    pub(super) fn line_bytes(&self) -> usize {
        self.header.geometry.line_bytes()
    }

    /// Where a line is in a lane of pages.
    pub(super) fn line(&self, page: u64, line: usize) -> u64 {
        page * self.header.geometry.page_bytes() as u64 + (line * self.line_bytes()) as u64
    }

    pub(super) fn faulty(&self, fault: Fault) -> bool {
        cfg!(any(test, feature = "faults")) && self.fault == Some(fault)
    }

    /// Reads lines of a page at home.
    pub(super) fn read_home<M: Medium>(
        &self,
        medium: &Metered<M>,
        page: u64,
        first: usize,
        into: &mut [u8],
    ) -> Result<()> {
        self.lanes.read(medium, Lane::HOME, self.line(page, first), into)
    }

    /// Every page that is there has a home.
    pub(super) fn homes_are_there(&self) -> Result<()> {
        let missing = self
            .book
            .words()
            .find(|&(page, _)| self.lanes.at(Lane::HOME, self.line(page, 0)).is_none());
        match missing {
            None => Ok(()),
            Some((page, _)) => Err(damaged("directory", 0, format!("page {page} has no place"))),
        }
    }

    /// Makes an epoch durable, and every line posted before.
    pub(super) fn publish<M: Medium>(&mut self, medium: &mut Metered<M>, epoch: &Prepared) -> Result<()> {
        let fault = self.fault.filter(|_| cfg!(any(test, feature = "faults")));
        self.book.publish(medium, &mut self.lanes, epoch, fault)
    }

    /// Posts lines of a page to its home.
    pub(super) fn write_home<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        page: u64,
        first: usize,
        bytes: &[u8],
    ) -> Result<()> {
        let at = self.line(page, first);
        self.lanes.write(medium, Lane::HOME, at, bytes)
    }
}

/// Newer versions of some lines of a page: `lines` of `bytes`, which begin at line `first`. What
/// `bytes` hold besides is the newest version as well.
#[derive(Clone, Copy, Debug)]
pub struct Newer<'a> {
    pub(super) page: u64,
    pub(super) first: usize,
    pub(super) bytes: &'a [u8],
    pub(super) lines: LineMask,
    pub(super) line_bytes: usize,
}

impl<'a> Newer<'a> {
    /// The content of consecutive lines.
    pub(super) fn run(&self, run: &Range<usize>) -> &'a [u8] {
        &self.bytes[(run.start - self.first) * self.line_bytes..(run.end - self.first) * self.line_bytes]
    }

    /// The content of one line.
    pub(super) fn line(&self, line: usize) -> &'a [u8] {
        self.run(&(line..line + 1))
    }
}

/// How lines are kept so that an epoch of them becomes the checkpoint, or none of it.
///
/// Pages are numbers here. A page is there when its word in the book is not zero.
#[allow(private_interfaces)]
pub trait Mechanism: Sized + Debug {
    /// Which scheme it is.
    const KIND: SchemeKind;
    /// How its stores begin.
    const MAGIC: [u8; 8];
    /// Whether every page has its home in the lane of homes, from before its first write on.
    const HOMES: bool = true;

    /// What it knows of the checkpoint on the medium, `section` being what it added to the last
    /// commit. It may post writes.
    ///
    /// # Errors
    /// [`Error::Damaged`] says what is wrong and where.
    fn load<M: Medium>(medium: &mut Metered<M>, ground: &mut Ground, section: &[u8]) -> Result<Self>;

    /// The newest version of lines, or what lies where they would be if the page is not there.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn read<M: Medium>(
        &self,
        medium: &Metered<M>,
        ground: &Ground,
        page: u64,
        first: usize,
        into: &mut [u8],
    ) -> Result<()>;

    /// The newest version in place, where it lies together.
    fn view<'a, M: Medium>(
        &'a self,
        medium: &'a Metered<M>,
        ground: &'a Ground,
        page: u64,
        first: usize,
        len: usize,
    ) -> Option<&'a [u8]>;

    /// Keeps newer versions of lines. The page may have a word of the mechanism's own in the book.
    ///
    /// # Errors
    /// As [`Scheme::write`].
    fn write<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        ground: &mut Ground,
        newer: Newer<'_>,
    ) -> Result<Room>;

    /// The page holds nothing from the next commit on. Its word is still in the book.
    fn discard(&mut self, ground: &mut Ground, page: u64) {
        let _ = (ground, page);
    }

    /// Everything written becomes the checkpoint.
    ///
    /// # Errors
    /// As [`Scheme::commit`].
    fn commit<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        ground: &mut Ground,
        context: &[u8],
    ) -> Result<()>;

    /// As [`Scheme::begin`].
    ///
    /// # Errors
    /// As [`Scheme::begin`].
    fn begin<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        ground: &mut Ground,
        context: &[u8],
    ) -> Result<Epoch> {
        self.commit(medium, ground, context)?;
        Ok(ground.book.record.epoch)
    }

    /// As [`Scheme::proceed`].
    ///
    /// # Errors
    /// As [`Scheme::proceed`].
    fn proceed<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        ground: &mut Ground,
        lines: u64,
    ) -> Result<bool> {
        let _ = (medium, ground, lines);
        Ok(true)
    }

    /// Its second homes of pages, if it has a limited number.
    fn pool(&self) -> PoolInfo {
        PoolInfo::default()
    }
}

/// A store that keeps its lines in the way of `P`.
#[derive(Debug)]
pub struct Store<M, P> {
    medium: Metered<M>,
    ground: Ground,
    mechanism: P,
    context_len: u64,
    /// The epoch found no room and waits to be abandoned.
    lost: bool,
    /// Why nothing can be durable any more.
    poisoned: Option<String>,
    scratch: Mutex<Buffer>,
}

impl<M: Medium, P: Mechanism> Store<M, P> {
    /// A new store on `medium`, whatever was there before; a random `id` if none is given.
    pub(super) fn create_with(
        medium: M,
        geometry: Geometry,
        id: Option<u64>,
        params: [u64; 2],
    ) -> Result<Store<M, P>> {
        let header = Header {
            magic: P::MAGIC,
            geometry,
            id: id.unwrap_or_else(|| RandomState::new().build_hasher().finish()),
            params,
        };
        let mut medium = Metered::new(medium);
        if medium.len() >= 64 {
            medium.write(0, &[0; 64])?;
            medium.fence()?;
        }
        let lanes = Lanes::create(&mut medium, geometry, header.seed())?;
        let book = Book::create(&mut medium, header.seed())?;
        let mut ground = Ground {
            header,
            lanes,
            book,
            fault: None,
        };
        let mechanism = P::load(&mut medium, &mut ground, &[])?;
        medium.fence()?;
        medium.write(0, &header.encode())?;
        medium.fence()?;
        let medium = Metered::new(medium.into_inner());
        Ok(Store::assemble(medium, ground, mechanism, 0))
    }

    fn assemble(medium: Metered<M>, ground: Ground, mechanism: P, context_len: u64) -> Store<M, P> {
        Store {
            medium,
            ground,
            mechanism,
            context_len,
            lost: false,
            poisoned: None,
            scratch: Mutex::default(),
        }
    }

    fn recover_from(medium: M, fault: Option<Fault>) -> Result<(Store<M, P>, Recovered)> {
        let mut medium = Metered::new(medium);
        let (ground, mechanism, context) = Store::load(&mut medium, fault)?;
        let found = Recovered {
            epoch: ground.book.record.epoch,
            context,
        };
        let len = found.context.len() as u64;
        Ok((Store::assemble(medium, ground, mechanism, len), found))
    }

    /// The checkpoint on the medium.
    fn load(medium: &mut Metered<M>, fault: Option<Fault>) -> Result<(Ground, P, Vec<u8>)> {
        medium.waits(Path::Critical);
        medium.on(Cause::Journal);
        let header = Header::load(medium, P::MAGIC, P::KIND.name())?;
        if medium.len() < header.geometry.extent_bytes() as u64 {
            return Err(damaged("medium", medium.len(), "it ends within its first extent"));
        }
        let lanes = Lanes::load(medium, header.geometry, header.seed())?;
        let (book, context, section) = Book::load(medium, &lanes, header.seed())?;
        let mut ground = Ground {
            header,
            lanes,
            book,
            fault,
        };
        let mechanism = P::load(medium, &mut ground, &section)?;
        Ok((ground, mechanism, context))
    }

    pub(super) fn mechanism(&self) -> &P {
        &self.mechanism
    }

    /// The medium.
    pub fn medium(&self) -> &M {
        self.medium.inner()
    }

    /// The medium, and an end to the scheme. What was not committed is forgotten.
    pub fn into_medium(self) -> M {
        self.medium.into_inner()
    }

    /// Makes this mistake from now on.
    #[cfg(any(test, feature = "faults"))]
    pub fn plant(&mut self, fault: Fault) {
        self.ground.fault = Some(fault);
    }

    /// [`Scheme::recover`], making this mistake from the start.
    ///
    /// # Errors
    /// As recovery.
    #[cfg(any(test, feature = "faults"))]
    pub fn recover_with(medium: M, fault: Fault) -> Result<(Store<M, P>, Recovered)> {
        Store::recover_from(medium, Some(fault))
    }

    /// The lines `len` bytes from line `first` on are.
    fn span(&self, page: PageId, first: usize, len: usize) -> Result<LineMask> {
        let line = self.ground.line_bytes();
        let count = len / line;
        let limit = EXTENT_LIMIT * self.geometry().extent_pages();
        if !len.is_multiple_of(line) || first + count > LINES_PER_PAGE || page.0 >= limit {
            let page = page.0;
            return Err(Error::Invalid(format!(
                "{len} bytes from line {first} of page {page}: expected whole {line}-byte lines of a page below {limit}"
            )));
        }
        Ok(LineMask::run(first, count))
    }

    /// Whether an epoch can go on, and who waits for what it does.
    fn ready(&mut self, path: Path) -> Result<()> {
        if let Some(why) = &self.poisoned {
            return Err(Error::Poisoned(why.clone()));
        }
        if self.lost {
            return Err(Error::Invalid("the epoch found no room: abandon it first".into()));
        }
        self.medium.waits(path);
        Ok(())
    }

    /// What an error means for what comes next.
    fn settle<T>(&mut self, result: Result<T>) -> Result<T> {
        match &result {
            Ok(_) | Err(Error::Invalid(_)) => {}
            Err(Error::Full { .. }) => self.lost = true,
            Err(error) => {
                self.poisoned.get_or_insert_with(|| error.to_string());
            }
        }
        result
    }

    fn write_lines(&mut self, span: Span<'_>, lines: LineMask) -> Result<Room> {
        let line_bytes = self.ground.line_bytes();
        let newer = Newer {
            page: span.page.0,
            first: span.first,
            bytes: span.bytes,
            lines,
            line_bytes,
        };
        if self.is_present(span.page) {
            return self.mechanism.write(&mut self.medium, &mut self.ground, newer);
        }
        self.land()?;
        // A page that was not there: every other line of it is zero from now on.
        let mut whole = vec![0; self.geometry().page_bytes()];
        self.medium.on(Cause::Data);
        if P::HOMES {
            // What lies there is known only when it is known where.
            let at = self.ground.line(newer.page, 0);
            let Ground { lanes, .. } = &mut self.ground;
            lanes.reach(&mut self.medium, Lane::HOME, at, whole.len())?;
        }
        self.mechanism
            .read(&self.medium, &self.ground, newer.page, 0, &mut whole)?;
        let mut lines = lines;
        if !self.ground.faulty(Fault::NoZeroFill) {
            lines = lines | LineMask(nonzero_lines(&whole, line_bytes));
        }
        whole.fill(0);
        for run in newer.lines.runs() {
            whole[run.start * line_bytes..run.end * line_bytes].copy_from_slice(newer.run(&run));
        }
        let newer = Newer {
            first: 0,
            bytes: &whole,
            lines,
            ..newer
        };
        let room = self.mechanism.write(&mut self.medium, &mut self.ground, newer)?;
        if self.ground.book.get(newer.page) == 0 {
            self.ground.book.set(newer.page, 1);
        }
        Ok(room)
    }

    /// Pages come and go between checkpoints only: the one in flight is durable first.
    fn land(&mut self) -> Result<()> {
        while !self
            .mechanism
            .proceed(&mut self.medium, &mut self.ground, u64::MAX)?
        {}
        Ok(())
    }

    /// Longer contexts do not fit into a journal.
    fn context_fits(&self, context: &[u8]) -> Result<()> {
        let most = EXTENT_LIMIT * self.geometry().extent_bytes() as u64 / 2;
        match context.len() as u64 <= most {
            true => Ok(()),
            false => Err(Error::Invalid(format!(
                "a context of {} bytes: at most {most} fit",
                context.len()
            ))),
        }
    }
}

impl<M: Medium, P: Mechanism> Scheme for Store<M, P> {
    type Medium = M;

    fn recover(medium: M) -> Result<(Store<M, P>, Recovered)> {
        Store::recover_from(medium, None)
    }

    fn geometry(&self) -> Geometry {
        self.ground.geometry()
    }

    fn read(&self, page: PageId, first: usize, into: &mut [u8]) -> Result<()> {
        self.span(page, first, into.len())?;
        if !self.is_present(page) {
            into.fill(0);
            return Ok(());
        }
        self.mechanism
            .read(&self.medium, &self.ground, page.0, first, into)
    }

    fn view(&self, page: PageId, first: usize, len: usize) -> Option<&[u8]> {
        self.span(page, first, len)
            .ok()
            .filter(|_| self.is_present(page))?;
        self.mechanism
            .view(&self.medium, &self.ground, page.0, first, len)
    }

    fn is_present(&self, page: PageId) -> bool {
        self.ground.book.get(page.0) != 0
    }

    fn diff(&self, span: Span<'_>) -> Result<LineMask> {
        self.span(span.page, span.first, span.bytes.len())?;
        differing_from_newest(self, span, || {
            self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
        })
    }

    fn write(&mut self, span: Span<'_>, lines: LineMask) -> Result<Room> {
        let held = self.span(span.page, span.first, span.bytes.len())?;
        span.must_hold(held, lines)?;
        if lines.is_empty() {
            return Ok(Room::Plenty);
        }
        let ready = self.ready(Path::Background);
        let written = ready.and_then(|()| self.write_lines(span, lines));
        self.settle(written)
    }

    fn discard(&mut self, pages: Range<PageId>) -> Result<()> {
        let ready = self.ready(Path::Background);
        self.settle(ready)?;
        let landed = self.land();
        self.settle(landed)?;
        let range = pages.start.0..pages.end.0;
        let words = self.ground.book.words();
        let mut gone: Vec<u64> = words
            .map(|(page, _)| page)
            .filter(|page| range.contains(page))
            .collect();
        gone.sort_unstable();
        for page in gone {
            self.mechanism.discard(&mut self.ground, page);
            self.ground.book.set(page, 0);
        }
        Ok(())
    }

    fn commit(&mut self, context: &[u8]) -> Result<Epoch> {
        self.context_fits(context)?;
        let ready = self.ready(Path::Critical);
        let done = ready.and_then(|()| self.mechanism.commit(&mut self.medium, &mut self.ground, context));
        self.settle(done)?;
        self.context_len = context.len() as u64;
        Ok(self.epoch())
    }

    fn begin(&mut self, context: &[u8]) -> Result<Epoch> {
        self.context_fits(context)?;
        let ready = self.ready(Path::Critical);
        let begun = ready.and_then(|()| self.mechanism.begin(&mut self.medium, &mut self.ground, context));
        let epoch = self.settle(begun)?;
        self.context_len = self.ground.book.record.context_len;
        Ok(epoch)
    }

    fn proceed(&mut self, lines: u64) -> Result<bool> {
        let ready = self.ready(Path::Background);
        let done = ready.and_then(|()| self.mechanism.proceed(&mut self.medium, &mut self.ground, lines));
        let done = self.settle(done)?;
        self.context_len = self.ground.book.record.context_len;
        Ok(done)
    }

    fn abandon(&mut self) {
        if self.poisoned.is_some() {
            return;
        }
        let loaded = Store::load(&mut self.medium, self.ground.fault);
        match loaded {
            Ok((ground, mechanism, _)) => {
                (self.ground, self.mechanism) = (ground, mechanism);
                self.lost = false;
            }
            Err(error) => self.poisoned = Some(error.to_string()),
        }
    }

    fn epoch(&self) -> Epoch {
        self.ground.book.record.epoch
    }

    fn traffic(&self) -> Traffic {
        self.medium.traffic()
    }

    fn info(&self) -> Info {
        Info {
            scheme: P::KIND.name(),
            version: 1,
            checksums: false,
            geometry: self.geometry(),
            epoch: self.epoch(),
            pages: self.ground.book.pages(),
            medium_bytes: self.medium.len(),
            context_bytes: self.context_len,
            pool: self.mechanism.pool(),
            log: None,
            traffic: self.traffic(),
        }
    }

    fn check(&self) -> Result<Vec<Damage>> {
        self.ground.book.check(&self.medium, &self.ground.lanes)
    }
}
