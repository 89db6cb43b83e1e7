//! Undo logs at line grain: the old version of a line goes to the log, durably, before the first write of the line in
//! an epoch; the line itself is written in place. Two of them differ in one thing, how often they fence:
//!
//! * [`UndoLog`] (DPC 2.1 and 5.1.2, "Logging"): lines wait in a queue until their entries are durable, and one fence
//!   serves up to 64 of them.
//! * [`Nvml`] (DPC 5.3, SSP 5.1; libpmemobj's `tx_add_range`): each range of lines is logged, fenced and then written.
//!
//! ```text
//! log of the epoch, packed:     | entry | entry | entry | ...        (stream 4)
//! entry:   0       8        12     16            16 + line bytes
//!          | line  | fenced | crc  | old version |
//! ```
//!
//! * Optimised with an unbounded map (DPC 5.1.2 after Sanchez): a line is logged once an epoch.
//! * A line is written in place after a fence that its entry was posted before.
//! * `fenced` says how many entries were durable before this one was written. A valid entry behind
//!   an invalid one that it says was durable is damage; otherwise the invalid one is the torn end.
//! * An entry belongs to the epoch it undoes to: a commit empties the log by its number alone.
//! * Undoing may be repeated. What is undone stays logged, and the log goes on where it was.
//!
//! Volatile state: the map, 42 bits for each line logged; the queue of 64 lines.

use super::extent_map::Stream;
use super::fault::Fault;
use super::page_table::damaged;
use super::store::{LineStore, Store, StoreLayout};
use std::collections::{BTreeMap, HashMap};
use std::mem::offset_of;
use twinpage_core::SchemeKind;
use twinpage_core::error::{Error, Result};
use twinpage_core::geometry::{Geometry, LineMask, PageLines};
use twinpage_core::medium::{Cause, Medium};
use twinpage_core::metered::Metered;
use twinpage_core::record::{self, Record};
use twinpage_core::scheme::Pressure;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes of an entry before its line.
const HEAD: usize = 16;
/// Lines that wait for their entries to be durable, at most.
const QUEUE: usize = 64;

/// Bits a line of the map costs: its number in a 48-bit address space (DPC 2.3).
pub const BITS_PER_LINE: u64 = 42;

/// Bits of the map after an epoch that wrote that many lines. The queue is 64 lines besides.
#[must_use]
pub fn metadata_bits(lines: u64) -> u64 {
    lines * BITS_PER_LINE
}

/// A store with an undo log. See the [module](self).
pub type UndoLog<M> = Store<M, Undo<true>>;

/// A store with an undo log that fences each range. See the [module](self).
pub type Nvml<M> = Store<M, Undo<false>>;

impl<M: Medium, const QUEUED: bool> Store<M, Undo<QUEUED>> {
    /// A new store on `medium`, whatever was there before; a random `id` if none is given.
    ///
    /// # Errors
    /// [`twinpage_core::Error::Full`] when not even an empty store fits.
    pub fn create(medium: M, geometry: Geometry, id: Option<u64>) -> Result<Self> {
        Store::create_with(medium, geometry, id, [0; 2])
    }
}

/// What is logged in this epoch. `QUEUED`: one fence serves a queue of lines, else each range of lines has its own.
#[derive(Debug, Default)]
pub struct Undo<const QUEUED: bool> {
    logged: HashMap<u64, LineMask>,
    /// Lines whose entries are not durable yet, by page and line.
    queue: BTreeMap<(u64, usize), Box<[u8]>>,
    /// Entries of the log, and how many of them are durable.
    entries: u64,
    fenced: u64,
    buffer: Vec<u8>,
}

/// An entry before its line, which the checksum covers, too.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy)]
#[repr(C)]
struct RawEntry {
    /// The page, and six bits for the line.
    line: U64,
    fenced: U32,
    crc: U32,
}

const _: () = assert!(size_of::<RawEntry>() == HEAD);

impl Record for RawEntry {
    const SUM_AT: usize = offset_of!(RawEntry, crc);
}

impl StoreLayout {
    fn entry_bytes(&self) -> usize {
        HEAD + self.line_bytes()
    }

    /// The head of an entry, if it is valid.
    fn decode_entry(&self, entry: &[u8]) -> Option<RawEntry> {
        let found: RawEntry = record::peek(entry)?;
        record::verify(&found, &entry[HEAD..], self.log_seed(self.table.record.epoch)).ok()?;
        Some(found)
    }
}

impl<const QUEUED: bool> Undo<QUEUED> {
    /// Logs lines of a page as they are, without a fence.
    fn log<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        page: u64,
        lines: LineMask,
    ) -> Result<()> {
        let line_bytes = layout.line_bytes();
        let mut old = vec![0; layout.geometry().page_bytes()];
        let seed = layout.log_seed(layout.table.record.epoch);
        let buffer = &mut self.buffer;
        buffer.clear();
        medium.on(Cause::Log);
        for run in lines.runs() {
            layout.read_home(medium, page, run.start, &mut old[..run.len() * line_bytes])?;
            for (line, old) in run.zip(old.chunks_exact(line_bytes)) {
                let entry = RawEntry {
                    line: (page << 6 | line as u64).into(),
                    fenced: (self.fenced as u32).into(),
                    crc: U32::ZERO,
                };
                buffer.extend_from_slice(record::seal(entry, old, seed).as_bytes());
                buffer.extend_from_slice(old);
            }
        }
        let at = self.entries * layout.entry_bytes() as u64;
        layout.streams.write(medium, Stream::OWN, at, buffer)?;
        self.entries += lines.count() as u64;
        let logged = self.logged.entry(page).or_default();
        *logged = *logged | lines;
        Ok(())
    }

    /// Logs lines that are written for the first time, which then wait for their entries, or are written after a fence.
    fn log_first<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        newer: PageLines<'_>,
        fresh: LineMask,
    ) -> Result<()> {
        if QUEUED {
            if self.queue.len() + fresh.count() > QUEUE {
                self.flush(medium, layout)?;
            }
            if !fresh.is_empty() {
                self.log(medium, layout, newer.page.0, fresh)?;
                self.enqueue(newer, fresh);
            }
            return Ok(());
        }
        for range in fresh.runs() {
            let range = LineMask::run(range.start, range.len());
            self.log(medium, layout, newer.page.0, range)?;
            self.enqueue(newer, range);
            self.flush(medium, layout)?;
        }
        Ok(())
    }

    /// Lines of a page that wait.
    fn waiting(&self, page: u64) -> LineMask {
        let lines = self.queue.range((page, 0)..(page + 1, 0));
        lines.fold(LineMask::NONE, |mask, (&(_, line), _)| {
            mask | LineMask::run(line, 1)
        })
    }

    /// These lines wait for their entries to be durable.
    fn enqueue(&mut self, newer: PageLines<'_>, lines: LineMask) {
        for line in lines.runs().flatten() {
            self.queue.insert((newer.page.0, line), newer.line(line).into());
        }
    }

    /// Makes the log durable, then writes what waited for it in place.
    fn flush<M: Medium>(&mut self, medium: &mut Metered<M>, layout: &mut StoreLayout) -> Result<()> {
        if self.queue.is_empty() {
            return Ok(());
        }
        medium.on(Cause::Log);
        if !layout.faulty(Fault::SkipLogFence) {
            medium.fence()?;
        }
        self.fenced = self.entries;
        medium.on(Cause::Data);
        while let Some((&(page, first), _)) = self.queue.first_key_value() {
            // Neighbours go in one write.
            self.buffer.clear();
            let mut end = first;
            while let Some(bytes) = self.queue.get(&(page, end)) {
                self.buffer.extend_from_slice(bytes);
                end += 1;
            }
            layout.write_home(medium, page, first, &self.buffer)?;
            (first..end).for_each(|line| drop(self.queue.remove(&(page, line))));
        }
        Ok(())
    }

    /// Puts every line of the log back as it was.
    fn undo<M: Medium>(&mut self, medium: &mut Metered<M>, layout: &mut StoreLayout) -> Result<()> {
        let bytes = layout.entry_bytes();
        let mut entry = vec![0; bytes];
        let mut now = vec![0; layout.line_bytes()];
        let (mut index, mut invalid) = (0, None);
        medium.on(Cause::Log);
        // No more than a queue of entries is written without a fence.
        while index <= invalid.unwrap_or(index) + QUEUE as u64 {
            let at = index * bytes as u64;
            if at + bytes as u64 > layout.streams.len(Stream::OWN) {
                break;
            }
            layout.streams.read(medium, Stream::OWN, at, &mut entry)?;
            match layout.decode_entry(&entry) {
                None => {
                    invalid.get_or_insert(index);
                }
                Some(entry) if invalid.is_some_and(|invalid| invalid < entry.fenced.get().into()) => {
                    let why = format!("entry {index} says {} were durable before it", entry.fenced);
                    return Err(damaged(
                        "log",
                        layout.streams.at(Stream::OWN, at).unwrap_or(at),
                        why,
                    ));
                }
                Some(RawEntry { line, .. }) => {
                    let (page, line) = (line.get() >> 6, line.get() as usize & 63);
                    layout.read_home(medium, page, line, &mut now)?;
                    if now != entry[HEAD..] {
                        match layout.write_home(medium, page, line, &entry[HEAD..]) {
                            // It stays logged, and is written before the next commit.
                            Err(Error::Full { .. }) => {
                                self.queue.insert((page, line), entry[HEAD..].into());
                            }
                            other => other?,
                        }
                    }
                    // What lies behind an invalid entry will be written over.
                    if invalid.is_none() {
                        let logged = self.logged.entry(page).or_default();
                        *logged = *logged | LineMask::run(line, 1);
                    }
                }
            }
            index += 1;
        }
        self.entries = invalid.unwrap_or(index);
        // After an abandoned epoch the entries are not durable yet, and their lines count as logged.
        if self.entries > 0 {
            medium.fence()?;
        }
        self.fenced = self.entries;
        Ok(())
    }
}

impl<const QUEUED: bool> LineStore for Undo<QUEUED> {
    const KIND: SchemeKind = match QUEUED {
        true => SchemeKind::UndoLog,
        false => SchemeKind::Nvml,
    };
    const WRITES_FIRST: Option<Cause> = Some(Cause::Log);

    fn load<M: Medium>(medium: &mut Metered<M>, layout: &mut StoreLayout, _: &[u8]) -> Result<Self> {
        layout.homes_are_there()?;
        let mut undo = Undo::default();
        undo.undo(medium, layout)?;
        Ok(undo)
    }

    fn read<M: Medium>(
        &self,
        medium: &Metered<M>,
        layout: &StoreLayout,
        page: u64,
        first: usize,
        into: &mut [u8],
    ) -> Result<()> {
        layout.read_home(medium, page, first, into)?;
        let line_bytes = layout.line_bytes();
        let lines = first..first + into.len() / line_bytes;
        for (&(_, line), bytes) in self.queue.range((page, lines.start)..(page, lines.end)) {
            let start = (line - first) * line_bytes;
            into[start..start + line_bytes].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn view<'a, M: Medium>(
        &'a self,
        medium: &'a Metered<M>,
        layout: &'a StoreLayout,
        page: u64,
        first: usize,
        len: usize,
    ) -> Option<&'a [u8]> {
        let end = first + len / layout.line_bytes();
        let mut waiting = self.queue.range((page, first)..(page, end));
        waiting.next().is_none().then_some(())?;
        layout
            .streams
            .view(medium, Stream::HOME, layout.line(page, first), len)
    }

    fn write<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        newer: PageLines<'_>,
    ) -> Result<Pressure> {
        let (page, lines) = (newer.page.0, newer.changed);
        let logged = self.logged.get(&page).copied().unwrap_or_default();
        let mut fresh = lines & !logged;
        if layout.faulty(Fault::ForgetLine) {
            fresh = fresh & !LineMask(0x0101_0101_0101_0101);
        }
        if layout.faulty(Fault::LogTwice) {
            fresh = lines;
        }
        self.log_first(medium, layout, newer, fresh)?;
        let again = lines & !fresh;
        let waiting = again & self.waiting(page);
        self.enqueue(newer, waiting);
        medium.on(Cause::Data);
        for run in (again & !waiting).runs() {
            layout.write_home(medium, page, run.start, newer.run(run))?;
        }
        Ok(Pressure::None)
    }

    fn commit<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        context: &[u8],
    ) -> Result<()> {
        self.flush(medium, layout)?;
        let epoch = layout.table.prepare(context, Vec::new(), 0);
        layout.publish(medium, &epoch)?;
        self.logged.clear();
        (self.entries, self.fenced) = (0, 0);
        Ok(())
    }
}
