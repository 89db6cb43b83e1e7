//! A scheme of one's own: a page has two homes, and is written whole to the one that does not hold its checkpoint.
//!
//! ```text
//! page 0           magic, geometry, bytes of context | record at 512 | record at 1024
//! then             the context, twice: of odd and of even epochs
//! then, repeated   a page of tables: one at 0, one at 2048 | 64 pages, two homes each, side by side
//!
//! record           epoch | length and checksum of the context | pages that hold something | checksum      32 bytes
//! table            epoch | which pages hold something | which of them in the second home | checksum       32 bytes
//! ```
//!
//! * Of a group's two tables the checkpoint's is the newest that is not newer than the record's epoch.
//! * What a commit left that was cut short is erased by recovery: the next commit of that number may leave its group out.
//! * A commit writes pages, contexts and tables where no checkpoint is; a fence; its record; a fence.

use std::collections::BTreeSet;
use std::ops::Range;
use twinpage_core::error::{Error, Result};
use twinpage_core::geometry::{Geometry, LINES_PER_PAGE, LineMask, PageId, PageLines};
use twinpage_core::medium::{Cause, Medium, Offset, Path};
use twinpage_core::metered::Metered;
use twinpage_core::scheme::{Damage, Epoch, Idle, Info, PoolInfo, Pressure, Recovered, Simulated, Traffic};
use twinpage_core::shell::{Mechanism, Shell};
use twinpage_lab::schemes::{OwnScheme, Setup};

const MAGIC: u64 = u64::from_le_bytes(*b"wholepg1");
/// Pages of a group: a bit each in two words.
const GROUP: u64 = 64;
const PAGE_LIMIT: u64 = 1 << 32;
const RECORDS: [Offset; 2] = [512, 1024];
/// Where in their page the two tables of a group lie, on sectors of their own.
const TABLES: [Offset; 2] = [0, 2048];

/// How the lab makes and finds stores of this scheme.
pub struct Family;

impl OwnScheme for Family {
    const NAME: &'static str = "whole-pages";
    type Store<M: Medium + 'static> = WholePages<M>;

    fn create<M: Medium + 'static>(medium: M, setup: &Setup) -> Result<WholePages<M>> {
        WholePages::create(medium, setup)
    }

    fn recover<M: Medium + 'static>(medium: M) -> Result<(WholePages<M>, Recovered)> {
        WholePages::recover(medium)
    }
}

/// The same with a mistake: its commits do not wait for the pages. `verify` finds it.
pub struct Hasty;

impl OwnScheme for Hasty {
    const NAME: &'static str = "whole-pages-hasty";
    type Store<M: Medium + 'static> = WholePages<M>;

    fn create<M: Medium + 'static>(medium: M, setup: &Setup) -> Result<WholePages<M>> {
        let mut store = WholePages::create(medium, setup)?;
        store.is_hasty = true;
        Ok(store)
    }

    fn recover<M: Medium + 'static>(medium: M) -> Result<(WholePages<M>, Recovered)> {
        let (mut store, found) = WholePages::recover(medium)?;
        store.is_hasty = true;
        Ok((store, found))
    }
}

/// 64 pages: what the checkpoint holds, and what the next one will.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Group {
    /// The epoch of the table in force, and which of the two it is.
    epoch: Epoch,
    table: usize,
    checkpoint: Pages,
    newest: Pages,
    /// Pages whose newest version has left the checkpoint's home.
    moved: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Pages {
    present: u64,
    in_second: u64,
}

pub struct WholePages<M> {
    medium: Metered<M>,
    shell: Shell,
    geometry: Geometry,
    /// Bytes for a context, in whole pages.
    context_bytes: u64,
    epoch: Epoch,
    context_len: u64,
    pages: u64,
    groups: Vec<Group>,
    changed: BTreeSet<usize>,
    is_hasty: bool,
}

/// Three words and their checksum.
fn seal(words: [u64; 3]) -> [u8; 32] {
    let mut block = [0; 32];
    for (bytes, word) in block.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let sum = crc32c::crc32c(&block[..24]);
    block[24..28].copy_from_slice(&sum.to_le_bytes());
    block
}

/// The words at a place, if their checksum is theirs.
fn unseal(medium: &impl Medium, at: Offset) -> Result<Option<[u64; 3]>> {
    let mut block = [0; 32];
    medium.read(at, &mut block)?;
    let mut words = [0; 3];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    Ok((seal(words) == block).then_some(words))
}

fn damaged(what: &'static str, at: Offset, why: &str) -> Error {
    let why = why.into();
    Error::Damaged { what, at, why }
}

impl<M: Medium> WholePages<M> {
    fn create(mut medium: M, setup: &Setup) -> Result<WholePages<M>> {
        let Setup {
            geometry,
            context_bytes,
            ..
        } = *setup;
        let page = geometry.page_bytes() as u64;
        let context_bytes = context_bytes.next_multiple_of(page);
        medium.grow(page + 2 * context_bytes)?;
        let shape = (geometry.line_bytes() as u64) << 32 | geometry.extent_bytes() as u64;
        medium.write(0, &seal([MAGIC, shape, context_bytes]))?;
        let mut store = WholePages::new(medium, geometry, context_bytes);
        // Where a medium was used before, no table of then may be taken for one of now.
        store.clear_tables(store.data_at())?;
        store.write_record(0, &[])?;
        store.medium.fence()?;
        store.medium = Metered::new(store.medium.into_inner());
        Ok(store)
    }

    fn new(medium: M, geometry: Geometry, context_bytes: u64) -> WholePages<M> {
        WholePages {
            medium: Metered::new(medium),
            shell: Shell::new(geometry, PAGE_LIMIT, context_bytes),
            geometry,
            context_bytes,
            epoch: 0,
            context_len: 0,
            pages: 0,
            groups: Vec::new(),
            changed: BTreeSet::new(),
            is_hasty: false,
        }
    }

    fn recover(medium: M) -> Result<(WholePages<M>, Recovered)> {
        if medium.len() < 2048 {
            return Err(Error::Foreign(format!(
                "{} bytes are too few for whole pages",
                medium.len()
            )));
        }
        let shape = match unseal(&medium, 0)? {
            Some([MAGIC, shape, context_bytes]) => (shape, context_bytes),
            _ => return Err(Error::Foreign("it is no store of whole pages".into())),
        };
        let geometry = Geometry::new((shape.0 >> 32) as u32, shape.0 as u32)?;
        let mut store = WholePages::new(medium, geometry, shape.1);
        if store.data_at() > store.medium.len() {
            return Err(damaged(
                "medium",
                store.medium.len(),
                "it ends within the context",
            ));
        }
        store.medium.on(Cause::Journal);
        let context = store.read_record()?;
        store.read_tables()?;
        let epoch = store.epoch;
        Ok((store, Recovered { epoch, context }))
    }

    /// The newest record whose context is whole. A context is written before its record, so that the other
    /// record's is the checkpoint where this one's is torn.
    fn read_record(&mut self) -> Result<Vec<u8>> {
        let mut newest = None;
        for at in RECORDS {
            if let Some(record) = unseal(&self.medium, at)? {
                newest = newest.max(Some(record));
            }
        }
        let [epoch, context, pages] =
            newest.ok_or_else(|| damaged("records", RECORDS[0], "none is whole"))?;
        let (len, sum) = (context >> 32, context as u32);
        if len > self.context_bytes {
            return Err(damaged(
                "record",
                RECORDS[0],
                "its context is longer than there is room",
            ));
        }
        let mut bytes = vec![0; len as usize];
        self.medium.read(self.context_at(epoch), &mut bytes)?;
        if crc32c::crc32c(&bytes) != sum {
            return Err(damaged(
                "context",
                self.context_at(epoch),
                "its checksum is another",
            ));
        }
        (self.epoch, self.context_len, self.pages) = (epoch, len, pages);
        Ok(bytes)
    }

    fn write_record(&mut self, epoch: Epoch, context: &[u8]) -> Result<()> {
        self.medium.on(Cause::Journal);
        let described = (context.len() as u64) << 32 | u64::from(crc32c::crc32c(context));
        let record = seal([epoch, described, self.pages]);
        self.medium.write(RECORDS[epoch as usize % 2], &record)
    }

    /// The tables of the checkpoint. Newer ones are erased.
    fn read_tables(&mut self) -> Result<()> {
        let mut is_erased = false;
        while self.group_at(self.groups.len() as u64) + self.page() <= self.medium.len() {
            let at = self.group_at(self.groups.len() as u64);
            let mut group = Group::default();
            for (table, offset) in TABLES.into_iter().enumerate() {
                match unseal(&self.medium, at + offset)? {
                    Some([epoch, present, in_second]) if (group.epoch..=self.epoch).contains(&epoch) => {
                        let checkpoint = Pages { present, in_second };
                        let newest = checkpoint;
                        group = Group {
                            epoch,
                            table,
                            checkpoint,
                            newest,
                            moved: 0,
                        };
                    }
                    Some([epoch, ..]) if epoch > self.epoch => {
                        self.medium.write(at + offset, &[0; 32])?;
                        is_erased = true;
                    }
                    _ => {}
                }
            }
            self.groups.push(group);
        }
        if is_erased {
            self.medium.fence()?;
        }
        let found: u64 = self
            .groups
            .iter()
            .map(|group| u64::from(group.checkpoint.present.count_ones()))
            .sum();
        match found == self.pages {
            true => Ok(()),
            false => {
                let why = format!("they have {found} pages, their commit says {}", self.pages);
                Err(damaged("tables", self.data_at(), &why))
            }
        }
    }

    /// Makes the tables zero that lie from `at` to the end of the medium.
    fn clear_tables(&mut self, at: Offset) -> Result<()> {
        let mut group = (at - self.data_at()).div_ceil(self.group_bytes());
        while self.group_at(group) + self.page() <= self.medium.len() {
            let at = self.group_at(group);
            for offset in TABLES {
                self.medium.write(at + offset, &[0; 32])?;
            }
            group += 1;
        }
        Ok(())
    }

    fn page(&self) -> u64 {
        self.geometry.page_bytes() as u64
    }

    fn context_at(&self, epoch: Epoch) -> Offset {
        self.page() + epoch % 2 * self.context_bytes
    }

    fn data_at(&self) -> Offset {
        self.page() + 2 * self.context_bytes
    }

    fn group_bytes(&self) -> u64 {
        (1 + 2 * GROUP) * self.page()
    }

    fn group_at(&self, group: u64) -> Offset {
        self.data_at() + group * self.group_bytes()
    }

    fn group(&self, page: PageId) -> Option<&Group> {
        self.groups.get((page.0 / GROUP) as usize)
    }

    /// Where a home of a page lies.
    fn home(&self, page: PageId, in_second: bool) -> Offset {
        let homes = 2 * (page.0 % GROUP) + u64::from(in_second);
        self.group_at(page.0 / GROUP) + (1 + homes) * self.page()
    }

    /// Where the newest version of a page lies, if it has one.
    fn newest(&self, page: PageId) -> Option<Offset> {
        let Pages { present, in_second } = self.group(page)?.newest;
        let bit = 1 << (page.0 % GROUP);
        (present & bit != 0).then(|| self.home(page, in_second & bit != 0))
    }

    /// Room for a page and its group, whose tables are zero before the first commit that has it.
    fn make_room(&mut self, page: PageId) -> Result<()> {
        let end = self.home(page, true) + self.page();
        if end > self.medium.len() {
            self.medium
                .grow(end.next_multiple_of(self.geometry.extent_bytes() as u64))?;
        }
        let groups = (page.0 / GROUP) as usize + 1;
        if groups > self.groups.len() {
            self.groups.resize(groups, Group::default());
        }
        Ok(())
    }
}

impl<M: Medium> Mechanism for WholePages<M> {
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
        self.medium.on(Cause::Data);
        match self.newest(page) {
            Some(at) => self
                .medium
                .read(at + (first * self.geometry.line_bytes()) as u64, into),
            None => {
                into.fill(0);
                Ok(())
            }
        }
    }

    fn view_newest(&self, page: PageId, first: usize, len: usize) -> Option<&[u8]> {
        let at = self.newest(page)? + (first * self.geometry.line_bytes()) as u64;
        self.medium.view(at, len)
    }

    fn has_page(&self, page: PageId) -> bool {
        self.newest(page).is_some()
    }

    fn diff_newest(&self, page: PageId, first: usize, bytes: &[u8]) -> Result<LineMask> {
        let mut newest = vec![0; bytes.len()];
        self.read_newest(page, first, &mut newest)?;
        let line = self.geometry.line_bytes();
        let pairs = newest.chunks(line).zip(bytes.chunks(line)).zip(first..);
        let differing = pairs.filter(|((old, new), _)| old != new);
        Ok(differing.fold(LineMask::NONE, |all, (_, line)| all | LineMask::run(line, 1)))
    }

    fn write_newest(&mut self, lines: PageLines<'_>) -> Result<Pressure> {
        let (page, bit) = (lines.page, 1 << (lines.page.0 % GROUP));
        self.make_room(page)?;
        let index = (page.0 / GROUP) as usize;
        let group = self.groups[index];
        let was_present = group.newest.present & bit != 0;
        let in_second = match group.moved & bit != 0 {
            true => group.newest.in_second & bit != 0,
            false => group.checkpoint.present & bit != 0 && group.checkpoint.in_second & bit == 0,
        };
        let at = self.home(page, in_second);
        // The lines that did not change come along, or are zero.
        if group.moved & bit == 0 || !was_present {
            let rest = !lines.changed;
            let mut whole = vec![0; self.geometry.page_bytes()];
            self.read_newest(page, 0, &mut whole)?;
            self.medium.on(Cause::Copy);
            let whole = PageLines::from(page, 0, &whole, self.geometry.line_bytes());
            self.medium
                .write_lines(at, rest & LineMask::run(0, LINES_PER_PAGE), &whole)?;
        }
        self.medium.on(Cause::Data);
        self.medium.write_lines(at, lines.changed, &lines)?;
        let group = &mut self.groups[index];
        group.moved |= bit;
        group.newest.present |= bit;
        group.newest.in_second = match in_second {
            true => group.newest.in_second | bit,
            false => group.newest.in_second & !bit,
        };
        self.changed.insert(index);
        Ok(Pressure::None)
    }

    fn discard_pages(&mut self, pages: Range<PageId>) -> Result<()> {
        let end = pages.end.0.min(self.groups.len() as u64 * GROUP);
        for page in pages.start.0..end {
            let index = (page / GROUP) as usize;
            self.groups[index].newest.present &= !(1 << (page % GROUP));
            self.changed.insert(index);
        }
        Ok(())
    }

    fn commit_epoch(&mut self, context: &[u8]) -> Result<Epoch> {
        let epoch = self.epoch + 1;
        self.medium.on(Cause::Context);
        self.medium.write(self.context_at(epoch), context)?;
        self.medium.on(Cause::Journal);
        for &index in &self.changed {
            let Group { table, newest, .. } = self.groups[index];
            let at = self.data_at() + index as u64 * self.group_bytes() + TABLES[1 - table];
            self.medium
                .write(at, &seal([epoch, newest.present, newest.in_second]))?;
        }
        if !self.is_hasty {
            self.medium.fence()?;
        }
        let present = self
            .groups
            .iter()
            .map(|group| u64::from(group.newest.present.count_ones()));
        self.pages = present.sum();
        self.write_record(epoch, context)?;
        self.medium.fence()?;
        for index in std::mem::take(&mut self.changed) {
            let group = &mut self.groups[index];
            let (newest, table) = (group.newest, 1 - group.table);
            *group = Group {
                epoch,
                table,
                checkpoint: newest,
                newest,
                moved: 0,
            };
        }
        (self.epoch, self.context_len) = (epoch, context.len() as u64);
        Ok(epoch)
    }

    fn forget_epoch(&mut self) -> Result<()> {
        for index in std::mem::take(&mut self.changed) {
            let group = &mut self.groups[index];
            (group.newest, group.moved) = (group.checkpoint, 0);
        }
        Ok(())
    }

    fn last_epoch(&self) -> Epoch {
        self.epoch
    }

    fn written(&self) -> Traffic {
        self.medium.traffic()
    }

    fn describe(&self) -> Info {
        Info {
            scheme: Family::NAME,
            version: 1,
            checksums: false,
            geometry: self.geometry,
            epoch: self.epoch,
            pages: self
                .groups
                .iter()
                .map(|group| u64::from(group.newest.present.count_ones()))
                .sum(),
            medium_bytes: self.medium.len(),
            context_bytes: self.context_len,
            pool: PoolInfo::default(),
            log: None,
            traffic: self.medium.traffic(),
            poison: self.shell().poison().clone(),
        }
    }

    fn find_damage(&self) -> Result<Vec<Damage>> {
        let mut found = Vec::new();
        for (index, group) in (0..).zip(&self.groups).filter(|(_, group)| group.epoch > 0) {
            let at = self.group_at(index) + TABLES[group.table];
            let Pages { present, in_second } = group.checkpoint;
            if unseal(&self.medium, at)? != Some([group.epoch, present, in_second]) {
                let (what, why) = ("table".into(), "it is not what its commit wrote".into());
                found.push(Damage { what, at, why });
            }
        }
        Ok(found)
    }
}

impl<M: Medium> Idle for WholePages<M> {}
impl<M: Medium> Simulated for WholePages<M> {}
