//! What the protected baselines have in common: a store of pages, around the way one of them keeps
//! its lines.
//!
//! * A [`LineStore`] keeps lines: where newer versions go, what makes them the checkpoint. It is the
//!   scheme; everything else here is the same for all, so that only the schemes are compared.
//! * The [`StoreLayout`] holds what is on the medium besides: the streams and the book.
//! * Abandoning an epoch is recovery: the checkpoint on the medium is whole at any time.

use super::extent_map::{EXTENT_LIMIT, ExtentMap, Stream};
use super::fault::Fault;
use super::page_table::{Header, PageTable, Prepared, damaged};
use crc32c::crc32c_append;
use std::collections::hash_map::RandomState;
use std::fmt::Debug;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use twinpage_core::SchemeKind;
use twinpage_core::buffer::Buffer;
use twinpage_core::compare::{differing_from_newest, nonzero_lines};
use twinpage_core::error::Result;
use twinpage_core::geometry::{Geometry, LineMask, PageId, PageLines};
use twinpage_core::medium::{Cause, Medium, Path};
use twinpage_core::metered::Metered;
use twinpage_core::scheme::{
    Damage, Epoch, Idle, Info, PoolInfo, Pressure, Recovered, Simulated, TableEntry, Traffic,
};
use twinpage_core::shell::{self, Mechanism, Shell};

/// What is on the medium besides the lines: which extent is where, and what each page is.
#[derive(Debug)]
pub struct StoreLayout {
    pub(super) header: Header,
    pub(super) streams: ExtentMap,
    pub(super) table: PageTable,
    pub(super) fault: Option<Fault>,
}

impl StoreLayout {
    /// The seed of the checksums of a log's entries: they tell the log of one epoch from that of another.
    pub(super) fn log_seed(&self, epoch: u64) -> u32 {
        crc32c_append(self.header.seed(), &epoch.to_le_bytes())
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.header.geometry
    }

    pub(super) fn line_bytes(&self) -> usize {
        self.header.geometry.line_bytes()
    }

    /// Where a line is in a stream of pages.
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
        self.streams
            .read(medium, Stream::HOME, self.line(page, first), into)
    }

    /// Every page that is there has a home.
    pub(super) fn homes_are_there(&self) -> Result<()> {
        let missing = self
            .table
            .words()
            .find(|&(page, _)| self.streams.at(Stream::HOME, self.line(page, 0)).is_none());
        match missing {
            None => Ok(()),
            Some((page, _)) => Err(damaged("directory", 0, format!("page {page} has no place"))),
        }
    }

    /// Makes an epoch durable, and every line posted before.
    pub(super) fn publish<M: Medium>(&mut self, medium: &mut Metered<M>, epoch: &Prepared) -> Result<()> {
        let fault = self.fault.filter(|_| cfg!(any(test, feature = "faults")));
        self.table.publish(medium, &mut self.streams, epoch, fault)
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
        self.streams.write(medium, Stream::HOME, at, bytes)
    }
}

/// How lines are kept so that an epoch of them becomes the checkpoint, or none of it.
///
/// Pages are numbers here. A page is there when its word in the book is not zero.
#[allow(private_interfaces)]
pub trait LineStore: Sized + Debug {
    /// Which scheme it is.
    const KIND: SchemeKind;
    /// Whether every page has its home in the stream of homes, from before its first write on.
    const HOMES: bool = true;
    /// As [`Simulated::writes_first`].
    const WRITES_FIRST: Option<Cause> = None;
    /// As [`Simulated::grows`].
    const GROWS: bool = false;

    /// What it knows of the checkpoint on the medium, `section` being what it added to the last
    /// commit. It may post writes.
    ///
    /// # Errors
    /// [`Error::Damaged`] says what is wrong and where.
    fn load<M: Medium>(medium: &mut Metered<M>, layout: &mut StoreLayout, section: &[u8]) -> Result<Self>;

    /// The newest version of lines, or what lies where they would be if the page is not there.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn read<M: Medium>(
        &self,
        medium: &Metered<M>,
        layout: &StoreLayout,
        page: u64,
        first: usize,
        into: &mut [u8],
    ) -> Result<()>;

    /// The newest version in place, where it lies together.
    fn view<'a, M: Medium>(
        &'a self,
        medium: &'a Metered<M>,
        layout: &'a StoreLayout,
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
        layout: &mut StoreLayout,
        newer: PageLines<'_>,
    ) -> Result<Pressure>;

    /// The page holds nothing from the next commit on. Its word is still in the book.
    fn discard(&mut self, layout: &mut StoreLayout, page: u64) {
        let _ = (layout, page);
    }

    /// Everything written becomes the checkpoint.
    ///
    /// # Errors
    /// As [`Scheme::commit`].
    fn commit<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        context: &[u8],
    ) -> Result<()>;

    /// As [`Simulated::begin`].
    ///
    /// # Errors
    /// As [`Simulated::begin`].
    fn begin<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        context: &[u8],
    ) -> Result<Epoch> {
        self.commit(medium, layout, context)?;
        Ok(layout.table.record.epoch)
    }

    /// As [`Simulated::proceed`].
    ///
    /// # Errors
    /// As [`Simulated::proceed`].
    fn proceed<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        lines: u64,
    ) -> Result<bool> {
        let _ = (medium, layout, lines);
        Ok(true)
    }

    /// Bytes of DRAM that its pages and lines take now, if it keeps some there.
    fn dram_bytes(&self, geometry: Geometry) -> Option<u64> {
        let _ = geometry;
        None
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
    layout: StoreLayout,
    mechanism: P,
    shell: Shell,
    context_len: u64,
    scratch: Mutex<Buffer>,
}

impl<M: Medium, P: LineStore> Store<M, P> {
    /// A new store on `medium`, whatever was there before; a random `id` if none is given.
    pub(super) fn create_with(
        medium: M,
        geometry: Geometry,
        id: Option<u64>,
        params: [u64; 2],
    ) -> Result<Store<M, P>> {
        let header = Header {
            magic: P::KIND.magic(),
            geometry,
            id: id.unwrap_or_else(|| RandomState::new().build_hasher().finish()),
            params,
        };
        let mut medium = Metered::new(medium);
        if medium.len() >= 64 {
            medium.write(0, &[0; 64])?;
            medium.fence()?;
        }
        let streams = ExtentMap::create(&mut medium, geometry, header.seed())?;
        let table = PageTable::create(&mut medium, header.seed())?;
        let mut layout = StoreLayout {
            header,
            streams,
            table,
            fault: None,
        };
        let mechanism = P::load(&mut medium, &mut layout, &[])?;
        medium.fence()?;
        medium.write(0, &header.encode())?;
        medium.fence()?;
        let medium = Metered::new(medium.into_inner());
        Ok(Store::assemble(medium, layout, mechanism, 0))
    }

    fn assemble(medium: Metered<M>, layout: StoreLayout, mechanism: P, context_len: u64) -> Store<M, P> {
        let geometry = layout.geometry();
        let (pages, bytes) = (geometry.extent_pages(), geometry.extent_bytes() as u64);
        // Longer contexts do not fit into a journal.
        let shell = Shell::new(geometry, EXTENT_LIMIT * pages, EXTENT_LIMIT * bytes / 2);
        Store {
            medium,
            layout,
            mechanism,
            shell,
            context_len,
            scratch: Mutex::default(),
        }
    }

    /// The checkpoint on `medium`, exactly as its last durable commit left it.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Foreign`] say what is wrong and where.
    pub fn recover(medium: M) -> Result<(Store<M, P>, Recovered)> {
        Store::recover_from(medium, None)
    }

    fn recover_from(medium: M, fault: Option<Fault>) -> Result<(Store<M, P>, Recovered)> {
        let mut medium = Metered::new(medium);
        let (layout, mechanism, context) = Store::load(&mut medium, fault)?;
        let found = Recovered {
            epoch: layout.table.record.epoch,
            context,
        };
        let len = found.context.len() as u64;
        Ok((Store::assemble(medium, layout, mechanism, len), found))
    }

    /// The checkpoint on the medium.
    fn load(medium: &mut Metered<M>, fault: Option<Fault>) -> Result<(StoreLayout, P, Vec<u8>)> {
        medium.waits(Path::Critical);
        medium.on(Cause::Journal);
        let header = Header::load(medium, P::KIND)?;
        if medium.len() < header.geometry.extent_bytes() as u64 {
            return Err(damaged("medium", medium.len(), "it ends within its first extent"));
        }
        let streams = ExtentMap::load(medium, header.geometry, header.seed())?;
        let (table, context, section) = PageTable::load(medium, &streams, header.seed())?;
        let mut layout = StoreLayout {
            header,
            streams,
            table,
            fault,
        };
        let mechanism = P::load(medium, &mut layout, &section)?;
        Ok((layout, mechanism, context))
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
        self.layout.fault = Some(fault);
    }

    /// [`Store::recover`], making this mistake from the start.
    ///
    /// # Errors
    /// As recovery.
    #[cfg(any(test, feature = "faults"))]
    pub fn recover_with(medium: M, fault: Fault) -> Result<(Store<M, P>, Recovered)> {
        Store::recover_from(medium, Some(fault))
    }

    /// The first write of a page: every other line of it is zero from now on.
    fn write_birth(&mut self, newer: PageLines<'_>) -> Result<Pressure> {
        self.finish_commit()?;
        let (page, line_bytes) = (newer.page.0, newer.line_bytes);
        let mut whole = vec![0; self.layout.geometry().page_bytes()];
        self.medium.on(Cause::Data);
        if P::HOMES {
            // What lies there is known only when it is known where.
            let at = self.layout.line(page, 0);
            let StoreLayout { streams, .. } = &mut self.layout;
            streams.reach(&mut self.medium, Stream::HOME, at, whole.len())?;
        }
        self.mechanism
            .read(&self.medium, &self.layout, page, 0, &mut whole)?;
        let mut changed = newer.changed;
        if !self.layout.faulty(Fault::NoZeroFill) {
            changed = changed | LineMask(nonzero_lines(&whole, line_bytes));
        }
        whole.fill(0);
        for run in newer.changed.runs() {
            whole[run.start * line_bytes..run.end * line_bytes].copy_from_slice(newer.run(run));
        }
        let newer = PageLines::from(newer.page, 0, &whole, line_bytes).only(changed);
        let room = self.mechanism.write(&mut self.medium, &mut self.layout, newer)?;
        if self.layout.table.get(page) == 0 {
            self.layout.table.set(page, 1);
        }
        Ok(room)
    }

    /// Pages come and go between checkpoints only: the one in flight is durable first.
    fn finish_commit(&mut self) -> Result<()> {
        while !self
            .mechanism
            .proceed(&mut self.medium, &mut self.layout, u64::MAX)?
        {}
        Ok(())
    }
}

impl<M: Medium, P: LineStore> Mechanism for Store<M, P> {
    fn shell(&self) -> &Shell {
        &self.shell
    }

    fn shell_mut(&mut self) -> &mut Shell {
        &mut self.shell
    }

    fn prepare(&mut self, path: Path) -> Result<()> {
        self.medium.waits(path);
        Ok(())
    }

    fn read_newest(&self, page: PageId, first: usize, into: &mut [u8]) -> Result<()> {
        if !self.has_page(page) {
            into.fill(0);
            return Ok(());
        }
        let wrong = self.layout.faulty(Fault::ReadFromFirst);
        let first = if wrong { 0 } else { first };
        self.mechanism
            .read(&self.medium, &self.layout, page.0, first, into)
    }

    fn view_newest(&self, page: PageId, first: usize, len: usize) -> Option<&[u8]> {
        self.has_page(page).then_some(())?;
        let wrong = self.layout.faulty(Fault::ViewFirst);
        let first = if wrong { 0 } else { first };
        self.mechanism
            .view(&self.medium, &self.layout, page.0, first, len)
    }

    fn has_page(&self, page: PageId) -> bool {
        self.layout.table.get(page.0) != 0
    }

    fn diff_newest(&self, page: PageId, first: usize, bytes: &[u8]) -> Result<LineMask> {
        if self.layout.faulty(Fault::Overlook) {
            return Ok(LineMask::NONE);
        }
        differing_from_newest(self, page, first, bytes, || {
            self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
        })
    }

    fn write_newest(&mut self, lines: PageLines<'_>) -> Result<Pressure> {
        match self.has_page(lines.page) {
            true => self.mechanism.write(&mut self.medium, &mut self.layout, lines),
            false => self.write_birth(lines),
        }
    }

    fn discard_pages(&mut self, pages: Range<PageId>) -> Result<()> {
        self.finish_commit()?;
        let range = pages.start.0..pages.end.0;
        let words = self.layout.table.words();
        let mut gone: Vec<u64> = words
            .map(|(page, _)| page)
            .filter(|page| range.contains(page))
            .collect();
        gone.sort_unstable();
        for page in gone {
            self.mechanism.discard(&mut self.layout, page);
            self.layout.table.set(page, 0);
        }
        Ok(())
    }

    fn commit_epoch(&mut self, context: &[u8]) -> Result<Epoch> {
        self.mechanism
            .commit(&mut self.medium, &mut self.layout, context)?;
        self.context_len = context.len() as u64;
        Ok(self.last_epoch())
    }

    /// Abandoning is recovery, which a poisoned medium refuses.
    fn forget_epoch(&mut self) -> Result<()> {
        self.shell.poison().check()?;
        let (layout, mechanism, _) = Store::load(&mut self.medium, self.layout.fault)?;
        (self.layout, self.mechanism) = (layout, mechanism);
        Ok(())
    }

    fn last_epoch(&self) -> Epoch {
        self.layout.table.record.epoch
    }

    fn written(&self) -> Traffic {
        self.medium.traffic()
    }

    fn describe(&self) -> Info {
        Info {
            scheme: P::KIND.name(),
            version: 1,
            checksums: false,
            geometry: self.layout.geometry(),
            epoch: self.last_epoch(),
            pages: self.layout.table.pages(),
            medium_bytes: self.medium.len(),
            context_bytes: self.context_len,
            pool: self.mechanism.pool(),
            log: None,
            traffic: self.medium.traffic(),
            poison: self.shell.poison().clone(),
        }
    }

    fn find_damage(&self) -> Result<Vec<Damage>> {
        self.layout.table.check(&self.medium, &self.layout.streams)
    }
}

impl<M: Medium, P: LineStore> Idle for Store<M, P> {}

impl<M: Medium, P: LineStore> Simulated for Store<M, P> {
    fn begin(&mut self, context: &[u8]) -> Result<Epoch> {
        shell::guarded_context(self, context, |store| {
            let Store {
                medium,
                layout,
                mechanism,
                ..
            } = store;
            let epoch = mechanism.begin(medium, layout, context)?;
            store.context_len = store.layout.table.record.context_len;
            Ok(epoch)
        })
    }

    fn proceed(&mut self, lines: u64) -> Result<bool> {
        shell::guarded(self, Path::Background, |store| {
            let Store {
                medium,
                layout,
                mechanism,
                ..
            } = store;
            let done = mechanism.proceed(medium, layout, lines)?;
            store.context_len = store.layout.table.record.context_len;
            Ok(done)
        })
    }

    fn table_entry(&self, _: PageId) -> TableEntry {
        TableEntry::Controller
    }

    fn dram_bytes(&self) -> Option<u64> {
        self.mechanism.dram_bytes(self.layout.geometry())
    }

    fn writes_first(&self) -> Option<Cause> {
        P::WRITES_FIRST
    }

    fn grows(&self) -> bool {
        P::GROWS
    }
}
