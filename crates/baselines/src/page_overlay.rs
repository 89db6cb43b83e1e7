//! Page overlays as a checkpoint scheme (DPC 2.3, 3.5 and 5.1.2, "PageOverlay"): the lines of a page
//! that were written in the epoch are kept in a segment beside it, and written to the regular page
//! after the commit.
//!
//! ```text
//! segment of 4, 8, 16 or 32 lines:   | metadata | 3, 7, 15 or 31 lines, in slots as they came |
//! segment of 64 lines:               | every line at its own place |
//! metadata:   0            40           44     52      60    64
//!             | 64 pointers | free slots | page | epoch | crc |     5 bits a pointer, 0: no slot
//! ```
//!
//! * A segment that is full moves to one of the next size: the write that causes it is answered when
//!   the lines are there (DPC 5.2), and the old segment is free at once: no checkpoint knows it.
//! * Metadata is kept in the controller and written at the commit. The journal names each segment
//!   and its lines; the record is the pointer that flips.
//! * Then lines go to the regular pages. Even and odd epochs have segments of their own (streams 4 and
//!   5), so that a segment is used again only when its lines are home for sure.
//! * Where there is no room at home lines stay in their segment, and the next epoch begins with them.
//!
//! Volatile state: the metadata, 352 bits a page (DPC Table 3).

use super::extent_map::Stream;
use super::fault::Fault;
use super::page_table::damaged;
use super::store::{LineStore, Store, StoreLayout};
use std::collections::BTreeMap;
use std::mem::offset_of;
use twinpage_core::SchemeKind;
use twinpage_core::error::{Error, Result};
use twinpage_core::geometry::{Geometry, LINES_PER_PAGE, LineMask, PageLines};
use twinpage_core::medium::{Cause, Medium, Path};
use twinpage_core::metered::Metered;
use twinpage_core::record::{self, Record};
use twinpage_core::scheme::Pressure;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// Lines of a segment, by class.
const LINES: [u64; 5] = [4, 8, 16, 32, 64];
/// Lines of a page it holds.
const CAPACITY: [usize; 5] = [3, 7, 15, 31, 64];
/// The class without metadata.
const DIRECT: u8 = 4;
/// Bytes of metadata.
const METADATA: usize = 64;

/// Bits a page with an overlay costs: 64 slot pointers of 5 bits and 32 bits for free slots.
pub const BITS_PER_PAGE: u64 = 64 * 5 + 32;

/// Bits of the metadata after an epoch that wrote that many pages.
#[must_use]
pub fn metadata_bits(pages: u64) -> u64 {
    pages * BITS_PER_PAGE
}

/// A store of pages with overlays. See the [module](self).
pub type PageOverlay<M> = Store<M, Overlays>;

impl<M: Medium> PageOverlay<M> {
    /// A new store on `medium`, whatever was there before; a random `id` if none is given.
    ///
    /// # Errors
    /// [`Error::Full`] when not even an empty store fits.
    pub fn create(medium: M, geometry: Geometry, id: Option<u64>) -> Result<PageOverlay<M>> {
        Store::create_with(medium, geometry, id, [0; 2])
    }
}

/// The bytes of metadata.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct Metadata {
    /// 5 bits for each line of the page.
    pointers: [u8; 40],
    free: U32,
    page: U64,
    epoch: U64,
    crc: U32,
}

const _: () = assert!(size_of::<Metadata>() == METADATA);

impl Record for Metadata {
    const SUM_AT: usize = offset_of!(Metadata, crc);
}

/// The overlay of a page.
#[derive(Clone, Debug)]
struct Overlay {
    class: u8,
    /// Where the segment begins in its stream, in lines.
    start: u64,
    lines: LineMask,
    /// The slot of each line, where there are slots.
    slots: [u8; LINES_PER_PAGE],
    /// Slots not in use.
    free: u32,
}

impl Overlay {
    fn new(class: u8, start: u64) -> Overlay {
        let slots = LINES[usize::from(class)].min(32);
        Overlay {
            class,
            start,
            lines: LineMask::NONE,
            slots: [0; LINES_PER_PAGE],
            free: (u32::MAX >> (32 - slots)) & !1,
        }
    }

    /// Gives a line its slot.
    fn place(&mut self, line: usize) {
        if self.class != DIRECT && !self.lines.has(line) {
            let slot = self.free.trailing_zeros();
            self.free &= !(1 << slot);
            self.slots[line] = slot as u8;
        }
        self.lines = self.lines | LineMask::run(line, 1);
    }

    /// Where a line is in the stream, in bytes.
    fn at(&self, line: usize, line_bytes: usize) -> u64 {
        let slot = match self.class {
            DIRECT => line as u64,
            _ => self.slots[line].into(),
        };
        (self.start + slot) * line_bytes as u64
    }

    /// Its metadata, for an epoch.
    fn metadata(&self, page: u64, epoch: u64, seed: u32) -> Metadata {
        let mut pointers = [0; 40];
        for (line, &slot) in self.slots.iter().enumerate() {
            let bits = u16::from(slot) << (line * 5 % 8);
            pointers[line * 5 / 8] |= bits as u8;
            // The last pointer ends with the last byte.
            if let Some(next) = pointers.get_mut(line * 5 / 8 + 1) {
                *next |= (bits >> 8) as u8;
            }
        }
        let metadata = Metadata {
            pointers,
            free: self.free.into(),
            page: page.into(),
            epoch: epoch.into(),
            crc: U32::ZERO,
        };
        record::seal(metadata, &[], seed)
    }

    /// Takes slots from metadata. False if they are not those of its lines.
    fn adopt(&mut self, found: &Metadata, page: u64, epoch: u64, seed: u32) -> bool {
        for line in 0..LINES_PER_PAGE {
            let byte = |at: usize| found.pointers.get(at).copied().unwrap_or_default();
            let bits = u16::from_le_bytes([byte(line * 5 / 8), byte(line * 5 / 8 + 1)]);
            self.slots[line] = (bits >> (line * 5 % 8)) as u8 & 31;
        }
        self.free = found.free.get();
        let slots = LINES[usize::from(self.class)];
        let fits = |line: usize| (1..slots).contains(&self.slots[line].into());
        self.lines.runs().flatten().all(fits) && self.metadata(page, epoch, seed) == *found
    }
}

/// Where segments come from in one epoch.
#[derive(Debug, Default)]
struct Segments {
    free: [Vec<u64>; LINES.len()],
    end: u64,
}

impl Segments {
    fn take(&mut self, class: u8) -> u64 {
        self.free[usize::from(class)].pop().unwrap_or_else(|| {
            self.end += LINES[usize::from(class)];
            self.end - LINES[usize::from(class)]
        })
    }
}

/// The overlays of the epoch in progress, and those of the last one that are not home yet.
#[derive(Debug, Default)]
pub struct Overlays {
    pages: BTreeMap<u64, Overlay>,
    segments: Segments,
    homeless: BTreeMap<u64, Overlay>,
}

/// The smallest class for that many lines.
fn class_for(lines: LineMask) -> u8 {
    let fits = |capacity: &usize| *capacity >= lines.count();
    CAPACITY.iter().position(fits).unwrap_or_default() as u8
}

fn stream(epoch: u64) -> Stream {
    Stream::OWN.of_epoch(epoch)
}

impl Overlays {
    /// Makes the overlay of a page large enough for `lines` more. Where lines have to move for it,
    /// the call waits from here on.
    fn make_room<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        page: u64,
        lines: LineMask,
    ) -> Result<()> {
        let Some(old) = self.pages.get(&page) else {
            let class = class_for(lines);
            let start = self.segments.take(class);
            self.pages.insert(page, Overlay::new(class, start));
            return Ok(());
        };
        let class = class_for(old.lines | lines);
        if class <= old.class {
            return Ok(());
        }
        let old = old.clone();
        let line_bytes = layout.line_bytes();
        let stream = stream(layout.table.record.epoch + 1);
        let mut larger = Overlay::new(class, self.segments.take(class));
        let mut bytes = vec![0; line_bytes];
        medium.on(Cause::Migration);
        medium.waits(Path::Critical);
        // Lines about to be written need not come along.
        for line in (old.lines & !lines).runs().flatten() {
            larger.place(line);
            layout
                .streams
                .read(medium, stream, old.at(line, line_bytes), &mut bytes)?;
            let at = larger.at(line, line_bytes);
            if !layout.faulty(Fault::ForgetMove) {
                layout.streams.write(medium, stream, at, &bytes)?;
            }
        }
        self.segments.free[usize::from(old.class)].push(old.start);
        self.pages.insert(page, larger);
        Ok(())
    }

    /// Posts the lines of the last commit's overlays to their pages.
    fn post_homes<M: Medium>(&mut self, medium: &mut Metered<M>, layout: &mut StoreLayout) -> Result<()> {
        if self.homeless.is_empty() {
            return Ok(());
        }
        medium.on(Cause::WriteBack);
        let line_bytes = layout.line_bytes();
        let stream = stream(layout.table.record.epoch);
        let mut bytes = Vec::new();
        while let Some((&page, overlay)) = self.homeless.first_key_value() {
            for run in overlay.lines.runs() {
                bytes.resize(run.len() * line_bytes, 0);
                for (line, into) in run.clone().zip(bytes.chunks_exact_mut(line_bytes)) {
                    layout
                        .streams
                        .read(medium, stream, overlay.at(line, line_bytes), into)?;
                }
                layout.write_home(medium, page, run.start, &bytes)?;
            }
            self.homeless.pop_first();
        }
        Ok(())
    }

    /// Posts the metadata of every overlay; what the journal says of them.
    fn persist<M: Medium>(&self, medium: &mut Metered<M>, layout: &mut StoreLayout) -> Result<Vec<u8>> {
        let epoch = layout.table.record.epoch + 1;
        let seed = layout.header.seed();
        let mut section = Vec::with_capacity(self.pages.len() * 24);
        medium.on(Cause::Journal);
        for (&page, overlay) in &self.pages {
            if overlay.class != DIRECT && !layout.faulty(Fault::ForgetMetadata) {
                let at = overlay.start * layout.line_bytes() as u64;
                let metadata = overlay.metadata(page, epoch, seed);
                layout
                    .streams
                    .write(medium, stream(epoch), at, metadata.as_bytes())?;
            }
            let place = u64::from(overlay.class) << 56 | overlay.start;
            for word in [page, place, overlay.lines.0] {
                section.extend(word.to_le_bytes());
            }
        }
        Ok(section)
    }

    /// One overlay as the journal has it.
    fn load_one<M: Medium>(medium: &Metered<M>, layout: &StoreLayout, words: [u64; 3]) -> Result<Overlay> {
        let [page, place, lines] = words;
        let epoch = layout.table.record.epoch;
        let (class, start) = ((place >> 56) as u8, place & (u64::MAX >> 8));
        let stream = stream(epoch);
        let nowhere = || {
            let why = format!("the overlay of page {page} has class {class} and begins at line {start}");
            damaged("journal", 0, why)
        };
        let most = layout.streams.len(stream) / layout.line_bytes() as u64;
        if class > DIRECT || start > most {
            return Err(nowhere());
        }
        let mut overlay = Overlay::new(class, start);
        overlay.lines = LineMask(lines);
        if class != DIRECT {
            let mut found = Metadata::new_zeroed();
            let at = start * layout.line_bytes() as u64;
            layout.streams.read(medium, stream, at, found.as_mut_bytes())?;
            if !overlay.adopt(&found, page, epoch, layout.header.seed()) {
                let at = layout.streams.at(stream, at).unwrap_or(at);
                return Err(damaged(
                    "overlay metadata",
                    at,
                    format!("it is not that of page {page}"),
                ));
            }
        }
        // A segment reaches as far as it was written.
        let there = |line: usize| {
            layout
                .streams
                .at(stream, overlay.at(line, layout.line_bytes()))
                .is_some()
        };
        if !overlay.lines.runs().flatten().all(there) {
            return Err(nowhere());
        }
        Ok(overlay)
    }
}

impl LineStore for Overlays {
    const KIND: SchemeKind = SchemeKind::PageOverlay;
    const GROWS: bool = true;

    fn load<M: Medium>(
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        section: &[u8],
    ) -> Result<Overlays> {
        layout.homes_are_there()?;
        let mut overlays = Overlays::default();
        medium.on(Cause::Journal);
        for words in section.as_chunks::<24>().0 {
            let words = words.as_chunks::<8>().0;
            let words = [words[0], words[1], words[2]].map(u64::from_le_bytes);
            let overlay = Overlays::load_one(medium, layout, words)?;
            overlays.homeless.insert(words[0], overlay);
        }
        match overlays.post_homes(medium, layout) {
            Ok(()) | Err(Error::Full { .. }) => Ok(overlays),
            Err(error) => Err(error),
        }
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
        let wanted = LineMask::run(first, into.len() / line_bytes);
        let epoch = layout.table.record.epoch;
        let kept = [
            (epoch, self.homeless.get(&page)),
            (epoch + 1, self.pages.get(&page)),
        ];
        for (epoch, overlay) in kept {
            let Some(overlay) = overlay else { continue };
            for line in (overlay.lines & wanted).runs().flatten() {
                let start = (line - first) * line_bytes;
                let into = &mut into[start..start + line_bytes];
                layout
                    .streams
                    .read(medium, stream(epoch), overlay.at(line, line_bytes), into)?;
            }
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
        let wanted = LineMask::run(first, len / layout.line_bytes());
        let kept = [self.pages.get(&page), self.homeless.get(&page)];
        let elsewhere = kept
            .into_iter()
            .flatten()
            .any(|overlay| !(overlay.lines & wanted).is_empty());
        (!elsewhere).then_some(())?;
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
        self.post_homes(medium, layout)?;
        self.make_room(medium, layout, page, lines)?;
        let line_bytes = layout.line_bytes();
        let stream = stream(layout.table.record.epoch + 1);
        medium.on(Cause::Data);
        if let Some(overlay) = self.pages.get_mut(&page) {
            for line in lines.runs().flatten() {
                overlay.place(line);
                let at = overlay.at(line, line_bytes);
                layout.streams.write(medium, stream, at, newer.line(line))?;
            }
        }
        Ok(Pressure::None)
    }

    fn discard(&mut self, _: &mut StoreLayout, page: u64) {
        if let Some(overlay) = self.pages.remove(&page) {
            self.segments.free[usize::from(overlay.class)].push(overlay.start);
        }
        self.homeless.remove(&page);
    }

    fn commit<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        context: &[u8],
    ) -> Result<()> {
        self.post_homes(medium, layout)?;
        let section = self.persist(medium, layout)?;
        let epoch = layout.table.prepare(context, section, 0);
        layout.publish(medium, &epoch)?;
        self.segments = Segments::default();
        self.homeless = std::mem::take(&mut self.pages);
        if layout.faulty(Fault::LeaveInOverlay) {
            self.homeless.clear();
        }
        match self.post_homes(medium, layout) {
            // The next epoch begins with it.
            Err(Error::Full { .. }) => Ok(()),
            other => other.map_err(Error::poisoned),
        }
    }
}
