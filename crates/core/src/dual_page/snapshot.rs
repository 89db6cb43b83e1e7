//! The whole mapping in one piece, for when the journal is full (DPC 3.4: the recovery context).
//!
//! ```text
//! context len, context crc
//! redo: how many pages, then as in a journal record
//! extents: how many, then for each that has a page in the checkpoint, by logical number:
//!     distance from the one before, place on the medium
//!     its pages, in runs: a number (length << 2 | kind), and for kind 2 a number of derivative pages
//!         0 absent      1 in the base page      2 in both: derivative page, CPBV
//! where lines have checksums, those of every page that is there follow it, and those of redo follow redo
//! ```
//!
//! * It stands for a record: the change that did not fit the journal is in it already.
//! * It copies no data page. Its checksum is in the switch record that names it.

use super::codec::{Cursor, put_mask, put_number, put_step};
use super::journal::{ContextMark, Redo, put_context, put_redo, read_context, read_redo};
use super::map::{Entry, Flags, Frame, Key, MAX_EXTENTS, Table};
use super::sums::{PageSums, Sums, line_of};
use crate::geometry::{Geometry, LINES_PER_PAGE, LineMask};

/// Which version of the table to write down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Version {
    /// The state after the last commit, with pages on their way home already there.
    Checkpoint,
    /// The state after the commit that is being made.
    Newest,
}

/// One page in a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Absent,
    Base,
    Dual(Frame, LineMask),
}

impl Kind {
    fn of(entry: &Entry, version: Version) -> Kind {
        let (there, cpbv) = match version {
            Version::Checkpoint => (Flags::CHECKPOINT, entry.cpbv),
            Version::Newest => (Flags::NEWEST, entry.newest()),
        };
        if !entry.is(there) {
            return Kind::Absent;
        }
        // A page in the fall-back has no derivative page: its dirty lines are named by the redo list.
        let kept = !entry.is(Flags::RECLAIMING);
        let recorded = !entry.is(Flags::FRESH) || version == Version::Newest && !cpbv.is_empty();
        match entry.frame {
            Some(frame) if kept && recorded => Kind::Dual(frame, cpbv),
            _ => Kind::Base,
        }
    }

    /// The line of the medium that is line `line` of the page, whose base is `base`.
    fn line(self, base: u64, line: usize) -> u64 {
        match self {
            Kind::Dual(frame, cpbv) if cpbv.has(line) => line_of(frame.number(), line),
            _ => line_of(base, line),
        }
    }

    fn number(self) -> u64 {
        match self {
            Kind::Absent => 0,
            Kind::Base => 1,
            Kind::Dual(..) => 2,
        }
    }
}

/// What a snapshot says besides the table.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) context: ContextMark,
    pub(super) redo: Vec<(Key, Redo)>,
    /// Checksums of lines, in a store that has them.
    pub(super) sums: Option<Sums>,
}

/// Makes `out` the snapshot.
pub(super) fn encode(
    table: &Table,
    version: Version,
    context: ContextMark,
    redo: &[(Key, Redo)],
    sums: Option<&Sums>,
    out: &mut Vec<u8>,
) {
    out.clear();
    put_context(out, context);
    put_number(out, redo.len() as u64);
    put_redo(out, redo);
    if let Some(sums) = sums {
        redo.iter().for_each(|(_, redo)| put_sums(out, redo.sums(sums)));
    }
    let mut extents = table.in_order();
    extents.retain(|extent| {
        extent
            .entries
            .iter()
            .any(|entry| Kind::of(entry, version) != Kind::Absent)
    });
    put_number(out, extents.len() as u64);
    let mut last = (0, 0, 0);
    for extent in extents {
        put_number(out, extent.logical - last.0);
        put_step(out, last.1, extent.physical.into());
        last.0 = extent.logical + 1;
        last.1 = extent.physical.into();
        let mut base = u64::from(extent.physical) * extent.entries.len() as u64;
        for run in extent
            .entries
            .chunk_by(|a, b| Kind::of(a, version).number() == Kind::of(b, version).number())
        {
            put_number(out, (run.len() as u64) << 2 | Kind::of(&run[0], version).number());
            for entry in run {
                let kind = Kind::of(entry, version);
                if let Kind::Dual(frame, cpbv) = kind {
                    put_step(out, last.2, frame.number());
                    put_mask(out, cpbv);
                    last.2 = frame.number() + 1;
                }
                if let Some(sums) = sums.filter(|_| kind != Kind::Absent) {
                    put_sums(
                        out,
                        (0..LINES_PER_PAGE).map(|k| (k, sums.get(kind.line(base, k)))),
                    );
                }
                base += 1;
            }
        }
    }
}

fn put_sums(out: &mut Vec<u8>, sums: impl Iterator<Item = (usize, u32)>) {
    let mut page = PageSums::default();
    page.push(sums);
    page.encode(out);
}

/// The table a snapshot describes, with checksums of lines or without. At most `most` extents are made. Whether the
/// extents and derivative pages exist, the caller checks.
///
/// # Errors
/// The field that is out of its range.
pub(super) fn decode(
    bytes: &[u8],
    geometry: Geometry,
    most: u32,
    checksums: bool,
) -> Result<(Table, Rest), String> {
    let mut body = Cursor::new(bytes);
    read_table(&mut body, geometry, most, checksums).ok_or_else(|| body.refuse())
}

fn read_table(
    body: &mut Cursor<'_>,
    geometry: Geometry,
    most: u32,
    checksums: bool,
) -> Option<(Table, Rest)> {
    let extent_pages = geometry.extent_pages();
    let mut table = Table::new(extent_pages);
    let mut sums = checksums.then(|| Sums::new(geometry, most));
    let context = read_context(body)?;
    let count = body.named("list of lines in the fall-back").number()?;
    let redo = read_redo(body, count)?;
    if let Some(sums) = &mut sums {
        for (_, redo) in &redo {
            let found = PageSums::decode(body, 1)?;
            let (mask, page) = found.pages().next()?;
            redo.restore_sums(sums, mask, page)?;
        }
    }
    let count = body.named("number of extents").number();
    let count = count.filter(|&count| count <= most.into())?;
    let mut last = (0_u64, 0, 0);
    for _ in 0..count {
        let logical = last
            .0
            .checked_add(body.named("number of an extent").number()?)
            .filter(|&logical| logical < MAX_EXTENTS)?;
        let physical = u32::try_from(body.step(last.1)?).ok()?;
        last.0 = logical + 1;
        last.1 = physical.into();
        table.insert(logical, physical, false);
        read_pages(
            body,
            &mut table,
            Key(logical * extent_pages),
            (u64::from(physical) * extent_pages, extent_pages),
            &mut last.2,
            sums.as_mut(),
        )?;
    }
    (body.named("end").left() == 0).then_some((table, Rest { context, redo, sums }))
}

/// The pages of one extent, from key `first` and page `base` of the medium on. At least one is there, or the extent
/// would not be.
fn read_pages(
    body: &mut Cursor<'_>,
    table: &mut Table,
    first: Key,
    (base, pages): (u64, u64),
    last: &mut u64,
    mut sums: Option<&mut Sums>,
) -> Option<()> {
    let (mut page, mut present) = (0, false);
    while page < pages {
        let head = body.named("number of pages").number()?;
        let end = page
            .checked_add(head >> 2)
            .filter(|&end| end > page && end <= pages)?;
        for page in page..end {
            let place = table.find(Key(first.0 + page))?;
            let mut kind = Kind::Base;
            match head & 3 {
                0 => continue,
                1 => {}
                2 => {
                    let frame = Frame::new(body.named("derivative page").step(*last)?)?;
                    *last = frame.number() + 1;
                    table[place].frame = Some(frame);
                    table[place].cpbv = body.mask()?;
                    kind = Kind::Dual(frame, table[place].cpbv);
                }
                _ => return None,
            }
            table[place].set(Flags::NEWEST, true);
            table.set_in_checkpoint(place, true);
            present = true;
            if let Some(sums) = &mut sums {
                let found = PageSums::decode(body, 1)?;
                let (mask, page_sums) = found.pages().next()?;
                for (line, &sum) in mask.runs().flatten().zip(page_sums) {
                    sums.restore(kind.line(base + page, line), sum);
                }
            }
        }
        page = end;
    }
    present.then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const PAGES: u64 = 6;

    fn geometry() -> Geometry {
        Geometry::new(64, PAGES as u32 * 4096).unwrap()
    }

    /// A table of extents at odd places, each page absent, single or dual as told.
    fn table(pages: &[(u8, u32, u64)]) -> Table {
        let mut table = Table::new(PAGES);
        for (index, &(kind, frame, cpbv)) in pages.iter().enumerate() {
            let logical = 3 * (index as u64 / PAGES) + 1;
            if !table.contains(logical) {
                table.insert(logical, 1000 - logical as u32, false);
            }
            let place = table.find(Key(logical * PAGES + index as u64 % PAGES)).unwrap();
            if kind > 0 {
                table[place].set(Flags::NEWEST, true);
                table.set_in_checkpoint(place, true);
            }
            if kind > 1 {
                table[place].frame = Frame::new(u64::from(frame) + 1);
                table[place].cpbv = LineMask(cpbv);
            }
        }
        table
    }

    fn same(a: &Table, b: &Table) -> bool {
        let used = |table: &Table| {
            let extents = table.in_order().into_iter().filter(|extent| extent.present > 0);
            extents
                .map(|e| (e.logical, e.physical, e.entries.clone()))
                .collect::<Vec<_>>()
        };
        used(a) == used(b) && a.pages() == b.pages()
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            pages in vec((0_u8..3, 0_u32..u32::MAX, any::<u64>()), 0..40),
            lines in vec((0_u64..1200 * PAGES * 64, any::<u32>()), 0..400),
            checksums: bool,
            len: u64,
            crc: u32,
        ) {
            let table = table(&pages);
            let mut sums = Sums::new(geometry(), 1200);
            lines.into_iter().for_each(|(line, sum)| sums.restore(line, sum));
            let known = checksums.then_some(&sums);
            let context = ContextMark { len, crc };
            let redo = [(Key(3), Redo { lines: LineMask(6), places: vec![70, 71] })];
            let mut out = vec![];
            encode(&table, Version::Checkpoint, context, &redo, known, &mut out);
            let (read, rest) = decode(&out, geometry(), 1200, checksums).unwrap();
            prop_assert!(same(&table, &read));
            prop_assert_eq!((rest.context, &rest.redo[..]), (context, &redo[..]));
            if let Some(found) = &rest.sums {
                for extent in read.extents() {
                    let base = u64::from(extent.physical) * PAGES;
                    for (base, entry) in (base..).zip(&extent.entries).filter(|(_, entry)| entry.is(Flags::NEWEST)) {
                        let kind = Kind::of(entry, Version::Checkpoint);
                        // A derivative page past the end of the medium, which recovery refuses, has none.
                        let there = |line: &u64| line / (PAGES * 64) < 1200;
                        for line in (0..64).map(|line| kind.line(base, line)).filter(there) {
                            prop_assert_eq!(found.get(line), sums.get(line));
                        }
                    }
                }
                prop_assert_eq!((found.get(70), found.get(71)), (sums.get(70), sums.get(71)));
            }
            for cut in 0..out.len() {
                prop_assert!(decode(&out[..cut], geometry(), 1200, checksums).is_err());
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..300), checksums: bool) {
            let _ = decode(&bytes, geometry(), 9, checksums);
        }
    }
}
