//! What a baseline keeps about its pages, and how an epoch of it becomes durable: a word for each
//! page, the context and whatever the scheme adds, by one record.
//!
//! ```text
//! journal of the epoch: changed words, context, what the scheme adds    posted
//! fence                                                                 it and every line are durable
//! record of the epoch, in one of two places                             posted
//! fence                                                                 the commit is durable
//! changed words to the table, mark                                      posted
//! ```
//!
//! * Even and odd epochs have a journal and a record each: what the last commit needs is not touched.
//! * Recovery takes the newest record and applies its journal to the table again.
//! * A torn record is erased before another is written in its place, so that no chance completes it.
//! * The mark names a record that is durable, and is so itself before the next record is written: a
//!   newest record older than the mark is damage.

use super::extent_map::{ExtentMap, Stream, checked, unchecked};
use super::fault::Fault;
use crc32c::{crc32c, crc32c_append};
use std::collections::HashMap;
use std::mem::offset_of;
use twinpage_core::SchemeKind;
use twinpage_core::error::{Error, Result};
use twinpage_core::geometry::Geometry;
use twinpage_core::medium::{Cause, Medium, Offset};
use twinpage_core::metered::Metered;
use twinpage_core::record;
use twinpage_core::scheme::{Damage, Epoch};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

const VERSION: u32 = 1;
/// Bytes of the header and of a record.
const BLOCK: usize = 64;
const RECORD_AT: [Offset; 2] = [512, 1024];
const MARK_AT: Offset = 1536;
/// Words of the table kept together in memory.
const GROUP: usize = 512;

/// The bytes of the header.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    line_bytes: U32,
    extent_bytes: U64,
    id: U64,
    params: [U64; 2],
    reserved: [u8; 12],
    crc: U32,
}

/// The bytes of the record of a commit.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy)]
#[repr(C)]
struct RawRecord {
    epoch: U64,
    pages: U64,
    journal_len: U64,
    context_len: U64,
    own: U64,
    journal_crc: U32,
    reserved: [u8; 16],
    crc: U32,
}

const _: () = assert!(size_of::<RawHeader>() == BLOCK && size_of::<RawRecord>() == BLOCK);

impl record::Record for RawHeader {
    const SUM_AT: usize = offset_of!(RawHeader, crc);
}

impl record::Record for RawRecord {
    const SUM_AT: usize = offset_of!(RawRecord, crc);
}

/// What is fixed when a store is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) magic: [u8; 8],
    pub(super) geometry: Geometry,
    pub(super) id: u64,
    /// Two numbers of the scheme's own.
    pub(super) params: [u64; 2],
}

impl Header {
    pub(super) fn seed(&self) -> u32 {
        crc32c(&self.id.to_le_bytes())
    }

    pub(super) fn encode(&self) -> [u8; BLOCK] {
        let raw = RawHeader {
            magic: self.magic,
            version: VERSION.into(),
            line_bytes: (self.geometry.line_bytes() as u32).into(),
            extent_bytes: (self.geometry.extent_bytes() as u64).into(),
            id: self.id.into(),
            params: self.params.map(U64::from),
            reserved: [0; 12],
            crc: U32::ZERO,
        };
        zerocopy::transmute!(record::seal(raw, &[], 0))
    }

    pub(super) fn load<M: Medium>(medium: &Metered<M>, kind: SchemeKind) -> Result<Header> {
        let mut raw = RawHeader::new_zeroed();
        if medium.len() < BLOCK as u64 {
            let len = medium.len();
            return Err(Error::Foreign(format!("{len} bytes are too few for a store")));
        }
        medium.read(0, raw.as_mut_bytes())?;
        let magic = kind.magic();
        if raw.magic != magic {
            return Err(Error::Foreign(format!("it is no {kind} store")));
        }
        let damaged = |why: &str| Error::Damaged {
            what: "header",
            at: 0,
            why: why.into(),
        };
        record::verify(&raw, &[], 0).map_err(|_| damaged("its checksum does not fit"))?;
        if raw.version.get() != VERSION {
            return Err(Error::Foreign(format!(
                "{kind} format version {}, this build reads {VERSION}",
                raw.version
            )));
        }
        let extent = u32::try_from(raw.extent_bytes.get()).unwrap_or(0);
        let geometry = Geometry::new(raw.line_bytes.get(), extent);
        Ok(Header {
            magic,
            geometry: geometry.map_err(|error| damaged(&error.to_string()))?,
            id: raw.id.get(),
            params: raw.params.map(U64::get),
        })
    }
}

/// The record of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Record {
    pub(super) epoch: Epoch,
    /// Pages that hold something.
    pub(super) pages: u64,
    pub(super) journal_len: u64,
    pub(super) journal_crc: u32,
    pub(super) context_len: u64,
    /// A number of the scheme's own.
    pub(super) own: u64,
}

impl Record {
    fn encode(&self, seed: u32) -> [u8; BLOCK] {
        let raw = RawRecord {
            epoch: self.epoch.into(),
            pages: self.pages.into(),
            journal_len: self.journal_len.into(),
            context_len: self.context_len.into(),
            own: self.own.into(),
            journal_crc: self.journal_crc.into(),
            reserved: [0; 16],
            crc: U32::ZERO,
        };
        zerocopy::transmute!(record::seal(raw, &[], seed))
    }

    fn decode(block: &[u8; BLOCK], seed: u32) -> Option<Record> {
        let raw: RawRecord = zerocopy::transmute!(*block);
        record::verify(&raw, &[], seed).ok()?;
        Some(Record {
            epoch: raw.epoch.get(),
            pages: raw.pages.get(),
            journal_len: raw.journal_len.get(),
            journal_crc: raw.journal_crc.get(),
            context_len: raw.context_len.get(),
            own: raw.own.get(),
        })
    }
}

/// An epoch ready to become durable.
#[derive(Debug)]
pub(super) struct Prepared {
    record: Record,
    /// The journal, in three parts: changed words, context, what the scheme adds.
    words: Vec<u8>,
    context: Vec<u8>,
    section: Vec<u8>,
    changed: Vec<u64>,
}

/// The words of all pages, and the record of the last commit.
#[derive(Debug)]
pub(super) struct PageTable {
    seed: u32,
    pub(super) record: Record,
    table: HashMap<u64, Box<[u64; GROUP]>>,
    /// Pages with a word that is not zero.
    pages: u64,
    /// Pages whose word changed in this epoch.
    changed: Vec<u64>,
    /// Pages whose word of the last commit is not in the table on the medium yet, and the word.
    unapplied: Vec<(u64, u64)>,
    /// The mark lags behind the record.
    unmarked: bool,
    /// The place of the next record holds a torn one.
    torn: bool,
}

impl PageTable {
    /// Of a store without a page. Posted.
    pub(super) fn create<M: Medium>(medium: &mut Metered<M>, seed: u32) -> Result<PageTable> {
        let record = Record {
            journal_crc: seed,
            ..Record::default()
        };
        let table = PageTable::new(seed, record);
        medium.write(RECORD_AT[0], &table.record.encode(seed))?;
        medium.write(RECORD_AT[1], &[0; BLOCK])?;
        medium.write(MARK_AT, &checked(seed, MARK_AT, 0).to_le_bytes())?;
        Ok(table)
    }

    fn new(seed: u32, record: Record) -> PageTable {
        PageTable {
            seed,
            record,
            table: HashMap::new(),
            pages: record.pages,
            changed: Vec::new(),
            unapplied: Vec::new(),
            unmarked: false,
            torn: false,
        }
    }

    /// As the last commit left it, with its context and what the scheme added.
    pub(super) fn load<M: Medium>(
        medium: &Metered<M>,
        streams: &ExtentMap,
        seed: u32,
    ) -> Result<(PageTable, Vec<u8>, Vec<u8>)> {
        let mut table = PageTable::find(medium, seed)?;
        let journal = table.read_journal(medium, streams)?;
        let (changes, rest) = table.split(&journal)?;
        let (context, section) = rest;
        table.read_table(medium, streams)?;
        for &(page, word) in &changes {
            table.put(page, word);
        }
        table.unapplied = changes;
        let found = table.table.values().flat_map(|group| group.iter());
        let found = found.filter(|&&word| word != 0).count() as u64;
        if found != table.record.pages {
            let why = format!("{found} pages are there, the record says {}", table.record.pages);
            return Err(damaged("table", medium.len(), why));
        }
        table.pages = found;
        Ok((table, context, section))
    }

    /// The newest record, and what the mark says of it.
    fn find<M: Medium>(medium: &Metered<M>, seed: u32) -> Result<PageTable> {
        let mut blocks = [[0; BLOCK]; 2];
        for (block, at) in blocks.iter_mut().zip(RECORD_AT) {
            medium.read(at, block)?;
        }
        let records =
            [0, 1].map(|k| Record::decode(&blocks[k as usize], seed).filter(|record| record.epoch % 2 == k));
        let Some(record) = records.into_iter().flatten().max_by_key(|record| record.epoch) else {
            return Err(damaged("record", RECORD_AT[0], "neither of the two is valid"));
        };
        let mut mark = [0; 8];
        medium.read(MARK_AT, &mut mark)?;
        let marked = unchecked(seed, MARK_AT, u64::from_le_bytes(mark));
        let fits = marked.is_some_and(|marked| marked == record.epoch || marked + 1 == record.epoch);
        if !fits {
            let why = format!(
                "the newest record is of epoch {}, the mark says {marked:?}",
                record.epoch
            );
            return Err(damaged("mark", MARK_AT, why));
        }
        let mut table = PageTable::new(seed, record);
        let other = (record.epoch as usize + 1) % 2;
        table.torn = records[other].is_none() && blocks[other] != [0; BLOCK];
        table.unmarked = marked != Some(record.epoch);
        Ok(table)
    }

    fn read_journal<M: Medium>(&self, medium: &Metered<M>, streams: &ExtentMap) -> Result<Vec<u8>> {
        let stream = Stream::JOURNAL.of_epoch(self.record.epoch);
        let Record {
            journal_len,
            context_len,
            journal_crc,
            ..
        } = self.record;
        let at = streams.at(stream, 0).unwrap_or(0);
        if journal_len > streams.len(stream) || context_len > journal_len {
            let why = format!("{journal_len} bytes with a context of {context_len}: the medium has fewer");
            return Err(damaged("journal", at, why));
        }
        let mut journal = vec![0; journal_len as usize];
        streams.read(medium, stream, 0, &mut journal)?;
        let crc = crc32c_append(self.seed, &journal);
        if crc != journal_crc {
            let why = format!("checksum {crc:08x}, its record says {journal_crc:08x}");
            return Err(damaged("journal", at, why));
        }
        Ok(journal)
    }

    /// Changed words, then context and what the scheme added.
    #[allow(clippy::type_complexity)]
    fn split(&self, journal: &[u8]) -> Result<(Vec<(u64, u64)>, (Vec<u8>, Vec<u8>))> {
        if self.record.journal_len == 0 {
            return Ok(Default::default());
        }
        let words = journal.as_chunks::<8>().0;
        let words: Vec<u64> = words.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let count = words.first().copied().unwrap_or(0) as usize;
        let context = count.checked_mul(16).and_then(|bytes| bytes.checked_add(8));
        let section = context.and_then(|at| at.checked_add(self.record.context_len as usize));
        let (Some(context), Some(section)) = (context, section.filter(|&at| at <= journal.len())) else {
            return Err(damaged("journal", 0, format!("{count} words do not fit into it")));
        };
        let changes = words[1..1 + 2 * count].as_chunks::<2>().0;
        let changes = changes.iter().map(|&[page, word]| (page, word)).collect();
        let rest = (journal[context..section].to_vec(), journal[section..].to_vec());
        Ok((changes, rest))
    }

    fn read_table<M: Medium>(&mut self, medium: &Metered<M>, streams: &ExtentMap) -> Result<()> {
        self.each_word(medium, streams, |table, page, word, at| {
            let value = unchecked(table.seed, page, word).filter(|&value| value != 0);
            let why = || format!("the word {word:016x} of page {page} does not check");
            table.put(page, value.ok_or_else(|| damaged("table", at, why()))?);
            Ok(())
        })
    }

    /// Every word of the table on the medium that is not zero, with its page and where it is.
    fn each_word<M: Medium>(
        &mut self,
        medium: &Metered<M>,
        streams: &ExtentMap,
        mut visit: impl FnMut(&mut PageTable, u64, u64, Offset) -> Result<()>,
    ) -> Result<()> {
        let mut bytes = [0; GROUP * 8];
        for offset in (0..streams.len(Stream::TABLE)).step_by(bytes.len()) {
            let Some(at) = streams.at(Stream::TABLE, offset) else {
                continue;
            };
            medium.read(at, &mut bytes)?;
            for (index, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
                let word = u64::from_le_bytes(*word);
                if word != 0 {
                    visit(self, offset / 8 + index as u64, word, at + index as u64 * 8)?;
                }
            }
        }
        Ok(())
    }

    /// The word of a page; zero for one that holds nothing.
    pub(super) fn get(&self, page: u64) -> u64 {
        let group = self.table.get(&(page / GROUP as u64));
        group.map_or(0, |group| group[page as usize % GROUP])
    }

    fn put(&mut self, page: u64, word: u64) {
        let group = self.table.entry(page / GROUP as u64);
        group.or_insert_with(|| Box::new([0; GROUP]))[page as usize % GROUP] = word;
    }

    /// Changes the word of a page (48 bits), from the next commit on.
    pub(super) fn set(&mut self, page: u64, word: u64) {
        let had = self.get(page);
        if had != word {
            self.pages = self.pages + u64::from(had == 0) - u64::from(word == 0);
            self.put(page, word);
            self.changed.push(page);
        }
    }

    /// How many pages hold something.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    /// Pages that hold something and their words, in no order.
    pub(super) fn words(&self) -> impl Iterator<Item = (u64, u64)> {
        self.table.iter().flat_map(|(&group, words)| {
            let first = group * GROUP as u64;
            let words = words.iter().enumerate();
            words
                .filter(|&(_, &word)| word != 0)
                .map(move |(k, &word)| (first + k as u64, word))
        })
    }

    /// The epoch as it stands, to be made durable by [`PageTable::publish`]. What changes from here on is the
    /// next one's.
    pub(super) fn prepare(&mut self, context: &[u8], section: Vec<u8>, own: u64) -> Prepared {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        let mut words = (changed.len() as u64).to_le_bytes().to_vec();
        for &page in &changed {
            words.extend(page.to_le_bytes());
            words.extend(self.get(page).to_le_bytes());
        }
        let parts = [&words[..], context, &section];
        let record = Record {
            epoch: self.record.epoch + 1,
            pages: self.pages,
            journal_len: parts.iter().map(|part| part.len() as u64).sum(),
            journal_crc: parts.iter().fold(self.seed, |crc, part| crc32c_append(crc, part)),
            context_len: context.len() as u64,
            own,
        };
        Prepared {
            record,
            words,
            context: context.to_vec(),
            section,
            changed,
        }
    }

    /// Makes an epoch durable, and every line posted before.
    ///
    /// # Errors
    /// [`Error::Full`] before anything of the last commit is touched.
    pub(super) fn publish<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        streams: &mut ExtentMap,
        epoch: &Prepared,
        fault: Option<Fault>,
    ) -> Result<()> {
        medium.on(Cause::Journal);
        self.apply(medium, streams)?;
        let stream = Stream::JOURNAL.of_epoch(epoch.record.epoch);
        for &page in &epoch.changed {
            streams.reach(medium, Stream::TABLE, page * 8, 8)?;
        }
        let mut at = 0;
        let parts = [
            (Cause::Journal, &epoch.words),
            (Cause::Context, &epoch.context),
            (Cause::Journal, &epoch.section),
        ];
        for (cause, part) in parts {
            medium.on(cause);
            streams.write(medium, stream, at, part)?;
            at += part.len() as u64;
        }
        medium.on(Cause::Journal);
        let place = RECORD_AT[epoch.record.epoch as usize % 2];
        if self.torn && fault != Some(Fault::LeaveTorn) {
            medium.write(place, &[0; BLOCK])?;
        }
        if fault != Some(Fault::SkipDataFence) {
            medium.fence()?;
        }
        if fault == Some(Fault::MarkEarly) {
            let mark = checked(self.seed, MARK_AT, epoch.record.epoch);
            medium.write(MARK_AT, &mark.to_le_bytes())?;
        }
        self.torn = true;
        medium.write(place, &epoch.record.encode(self.seed))?;
        if fault != Some(Fault::SkipRecordFence) {
            medium.fence()?;
        }
        self.torn = false;
        self.record = epoch.record;
        self.unmarked = true;
        self.unapplied = epoch
            .changed
            .iter()
            .zip(epoch.words[8..].as_chunks::<16>().0)
            .map(|(&page, bytes)| {
                (
                    page,
                    u64::from_le_bytes(bytes[8..].try_into().unwrap_or_default()),
                )
            })
            .collect();
        match self.apply(medium, streams) {
            // The next commit begins with it.
            Err(Error::Full { .. }) => Ok(()),
            other => other.map_err(Error::poisoned),
        }
    }

    /// Posts the last commit's words to the table, and the mark.
    fn apply<M: Medium>(&mut self, medium: &mut Metered<M>, streams: &mut ExtentMap) -> Result<()> {
        while let Some(&(page, word)) = self.unapplied.last() {
            let word = if word == 0 {
                0
            } else {
                checked(self.seed, page, word)
            };
            streams.write(medium, Stream::TABLE, page * 8, &word.to_le_bytes())?;
            self.unapplied.pop();
        }
        if self.unmarked {
            let mark = checked(self.seed, MARK_AT, self.record.epoch);
            medium.write(MARK_AT, &mark.to_le_bytes())?;
            self.unmarked = false;
        }
        Ok(())
    }

    /// What on the medium is not as the last commit left it.
    pub(super) fn check<M: Medium>(&self, medium: &Metered<M>, streams: &ExtentMap) -> Result<Vec<Damage>> {
        let mut damage = Vec::new();
        let mut note = |result: Result<()>| match result {
            Err(Error::Damaged { what, at, why }) => {
                damage.push(Damage {
                    what: what.into(),
                    at,
                    why,
                });
                Ok(())
            }
            other => other,
        };
        let record = PageTable::find(medium, self.seed).and_then(|found| match found.record == self.record {
            true => Ok(()),
            false => {
                let why = format!("expected {:?}, found {:?}", self.record, found.record);
                Err(damaged("record", RECORD_AT[self.record.epoch as usize % 2], why))
            }
        });
        note(record)?;
        note(self.read_journal(medium, streams).map(drop))?;
        note(PageTable::new(self.seed, self.record).read_table(medium, streams))?;
        Ok(damage)
    }
}

pub(super) fn damaged(what: &'static str, at: Offset, why: impl Into<String>) -> Error {
    Error::Damaged {
        what,
        at,
        why: why.into(),
    }
}
