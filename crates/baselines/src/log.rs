//! Newer versions of lines in a log, until the commit that makes them the checkpoint has brought
//! them home: the redo log, and what overflows a table that is full.
//!
//! ```text
//! log of the epoch, packed:     | entry | entry | ...                (stream 4 for even epochs, 5 for odd ones)
//! entry:   0      8     12    16            16 + line bytes
//!          | line | crc | 0   | newer version |
//! ```
//!
//! * A line has one entry an epoch: writing it again writes its entry again.
//! * The record of the commit says how many entries there are, and all of them are valid then.
//! * A page that is discarded keeps its entries, which mean nothing while it is not there; one that
//!   comes back in the same epoch has those written again that are not zero.
//! * After the commit the lines are copied home, and the log is kept until the next commit is
//!   durable: two logs take turns. Copying may be repeated.
//! * Where there is no room at home (a hole in a file on a full disk) lines stay in the log, and the
//!   next epoch begins with copying them.

use super::extent_map::Stream;
use super::fault::Fault;
use super::page_table::damaged;
use super::store::StoreLayout;
use std::collections::{BTreeMap, HashMap};
use std::mem::offset_of;
use twinpage_core::error::{Error, Result};
use twinpage_core::geometry::{LINES_PER_PAGE, LineMask, PageLines};
use twinpage_core::medium::{Cause, Medium};
use twinpage_core::metered::Metered;
use twinpage_core::record::{self, Record};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes of an entry before its line.
pub(super) const HEAD: usize = 16;

/// An entry before its line, which the checksum covers, too.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy)]
#[repr(C)]
struct RawEntry {
    /// The page, and six bits for the line.
    line: U64,
    crc: U32,
    reserved: U32,
}

const _: () = assert!(size_of::<RawEntry>() == HEAD);

impl Record for RawEntry {
    const SUM_AT: usize = offset_of!(RawEntry, crc);
}

/// Where lines of a page are in a log.
#[derive(Debug)]
struct LoggedLines {
    lines: LineMask,
    entries: Box<[u32; LINES_PER_PAGE]>,
}

/// The log of the epoch in progress, and what of the last one is not home yet.
#[derive(Debug, Default)]
pub(super) struct Log {
    pages: HashMap<u64, LoggedLines>,
    entries: u64,
    /// Lines of the last commit on their way home, by page.
    homeless: BTreeMap<u64, LoggedLines>,
    buffer: Vec<u8>,
}

fn stream(layout: &StoreLayout, epoch: u64) -> Stream {
    match layout.faulty(Fault::OneLog) {
        true => Stream::OWN,
        false => Stream::OWN.of_epoch(epoch),
    }
}

/// Appends the entry of a line.
pub(super) fn encode_entry(
    layout: &StoreLayout,
    log: u64,
    page: u64,
    line: usize,
    newer: &[u8],
    into: &mut Vec<u8>,
) {
    let entry = RawEntry {
        line: (page << 6 | line as u64).into(),
        crc: U32::ZERO,
        reserved: U32::ZERO,
    };
    into.extend_from_slice(record::seal(entry, newer, layout.log_seed(log)).as_bytes());
    into.extend_from_slice(newer);
}

/// Page and line of an entry; none where it is not valid.
pub(super) fn decode_entry(layout: &StoreLayout, log: u64, entry: &[u8]) -> Option<(u64, usize)> {
    let found: RawEntry = record::peek(entry)?;
    record::verify(&found, &entry[HEAD..], layout.log_seed(log)).ok()?;
    let line = found.line.get();
    Some((line >> 6, line as usize & 63))
}

impl Log {
    /// The log of the last commit, of that many entries, being copied home.
    pub(super) fn load<M: Medium>(
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        entries: u64,
    ) -> Result<Log> {
        let mut log = Log::default();
        let epoch = layout.table.record.epoch;
        let bytes = HEAD + layout.line_bytes();
        let mut entry = vec![0; bytes];
        medium.on(Cause::Log);
        if entries.saturating_mul(bytes as u64) > layout.streams.len(stream(layout, epoch)) {
            return Err(damaged("log", 0, format!("{entries} entries do not fit into it")));
        }
        for index in 0..entries {
            let at = index * bytes as u64;
            layout
                .streams
                .read(medium, stream(layout, epoch), at, &mut entry)?;
            let Some((page, line)) = decode_entry(layout, epoch, &entry) else {
                let at = layout.streams.at(stream(layout, epoch), at).unwrap_or(at);
                return Err(damaged(
                    "log",
                    at,
                    format!("the checksum of entry {index} does not fit"),
                ));
            };
            // A page that was discarded has no line to bring home.
            if layout.table.get(page) != 0 {
                let places = Log::places(log.homeless.entry(page));
                places.lines = places.lines | LineMask::run(line, 1);
                places.entries[line] = index as u32;
            }
        }
        match log.post_homes(medium, layout) {
            Ok(()) | Err(Error::Full { .. }) => Ok(log),
            Err(error) => Err(error),
        }
    }

    fn places(entry: std::collections::btree_map::Entry<'_, u64, LoggedLines>) -> &mut LoggedLines {
        entry.or_insert_with(|| LoggedLines {
            lines: LineMask::NONE,
            entries: Box::new([0; LINES_PER_PAGE]),
        })
    }

    /// Lines of a page that are in a log.
    pub(super) fn has(&self, page: u64) -> LineMask {
        let mine = self
            .pages
            .get(&page)
            .map_or(LineMask::NONE, |places| places.lines);
        mine | self
            .homeless
            .get(&page)
            .map_or(LineMask::NONE, |places| places.lines)
    }

    /// How many entries the epoch has.
    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    /// Replaces lines of `into`, which begins at line `first`, by their versions in a log.
    pub(super) fn read<M: Medium>(
        &self,
        medium: &Metered<M>,
        layout: &StoreLayout,
        page: u64,
        first: usize,
        into: &mut [u8],
    ) -> Result<()> {
        let line_bytes = layout.line_bytes();
        let epoch = layout.table.record.epoch;
        let wanted = LineMask::run(first, into.len() / line_bytes);
        let logs = [
            (epoch, self.homeless.get(&page)),
            (epoch + 1, self.pages.get(&page)),
        ];
        for (epoch, places) in logs {
            let Some(places) = places else { continue };
            for line in (places.lines & wanted).runs().flatten() {
                let at = u64::from(places.entries[line]) * (HEAD + line_bytes) as u64 + HEAD as u64;
                let start = (line - first) * line_bytes;
                let into = &mut into[start..start + line_bytes];
                layout.streams.read(medium, stream(layout, epoch), at, into)?;
            }
        }
        Ok(())
    }

    /// Puts newer versions of lines into the log, for `cause`.
    pub(super) fn write<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        newer: PageLines<'_>,
        cause: Cause,
    ) -> Result<()> {
        self.post_homes(medium, layout)?;
        medium.on(cause);
        let logged = self
            .pages
            .get(&newer.page.0)
            .map_or(LineMask::NONE, |places| places.lines);
        let (fresh, again) = (newer.changed & !logged, newer.changed & logged);
        for line in again.runs().flatten() {
            let entry = self.pages[&newer.page.0].entries[line];
            self.put(medium, layout, newer, [line], entry.into())?;
        }
        if fresh.is_empty() {
            return Ok(());
        }
        let first = self.entries;
        self.put(medium, layout, newer, fresh.runs().flatten(), first)?;
        self.entries += fresh.count() as u64;
        let places = self.pages.entry(newer.page.0).or_insert_with(|| LoggedLines {
            lines: LineMask::NONE,
            entries: Box::new([0; LINES_PER_PAGE]),
        });
        places.lines = places.lines | fresh;
        for (line, entry) in fresh.runs().flatten().zip(first..) {
            places.entries[line] = entry as u32;
        }
        Ok(())
    }

    /// Posts entries one after the other, from entry `first` on.
    fn put<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        newer: PageLines<'_>,
        lines: impl IntoIterator<Item = usize>,
        first: u64,
    ) -> Result<()> {
        let epoch = layout.table.record.epoch + 1;
        let buffer = &mut self.buffer;
        buffer.clear();
        for line in lines {
            encode_entry(layout, epoch, newer.page.0, line, newer.line(line), buffer);
        }
        let at = first * (HEAD + layout.line_bytes()) as u64;
        layout.streams.write(medium, stream(layout, epoch), at, buffer)
    }

    /// The commit is durable: its lines go home.
    pub(super) fn committed<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
    ) -> Result<()> {
        let pages = std::mem::take(&mut self.pages).into_iter();
        self.homeless = pages.filter(|&(page, _)| layout.table.get(page) != 0).collect();
        self.entries = 0;
        if layout.faulty(Fault::LeaveInLog) {
            self.homeless.clear();
        }
        match self.post_homes(medium, layout) {
            // The next epoch begins with it.
            Err(Error::Full { .. }) => Ok(()),
            other => other.map_err(Error::poisoned),
        }
    }

    /// Posts copies of the last commit's lines to their homes.
    pub(super) fn post_homes<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
    ) -> Result<()> {
        if self.homeless.is_empty() {
            return Ok(());
        }
        medium.on(Cause::WriteBack);
        let line_bytes = layout.line_bytes();
        let log = stream(layout, layout.table.record.epoch);
        let mut bytes = Vec::new();
        while let Some((&page, places)) = self.homeless.first_key_value() {
            for run in places.lines.runs() {
                bytes.resize(run.len() * line_bytes, 0);
                for (line, into) in run.clone().zip(bytes.chunks_exact_mut(line_bytes)) {
                    let at = u64::from(places.entries[line]) * (HEAD + line_bytes) as u64 + HEAD as u64;
                    layout.streams.read(medium, log, at, into)?;
                }
                layout.write_home(medium, page, run.start, &bytes)?;
            }
            self.homeless.pop_first();
        }
        Ok(())
    }
}
