//! The program's memory at a stop: which pages changed, and what they hold.
//!
//! * Layout changes are found by comparing /proc/PID/maps, and by asking for mappings that are not
//!   tracked: a mapping made or moved since the last stop, and any that the kernel merged with it.
//!   Nothing is believed of such a mapping: what was stored there is forgotten, and all of it counts as
//!   written, whatever its page tables say.
//! * Pages that madvise(2), mremap(2) or the truncation of a mapped file may have dropped are looked for
//!   among the stored ones, and so are those of the stack, which grows over what was unmapped.
//! * In a chunk with hot pages nothing is protected by the scan: hot pages are captured and compared
//!   each time, the few cold ones written are protected one by one. In every other chunk one scan
//!   takes and protects.
//! * Where the last stop had many cold pages, they are protected and copied before the next one ([`precopy`]).

mod inherited;
mod precopy;

use crate::advice::{Advice, AdviceInForce};
use crate::copies::Copies;
use crate::error::{Error, Result};
use crate::files::Ident;
use crate::layout::{Kind, Layout, Mapping};
use crate::objects::{self, Objects};
use crate::pages::{CHUNK_BYTES, Pages, page_index};
use crate::scan::{Cut, Walks};
pub use inherited::Maker;
pub use precopy::Precopied;
use std::ops::Range;
use twinpage_core::{Capture, Geometry, Piece};
use twinpage_os::copier;
use twinpage_os::remote::{Process, Remote};
use twinpage_os::tracker::{END_OF_MEMORY, PAGE, Region, Tracker};

/// The memory of one program.
pub struct Memory {
    layout: Layout,
    tracker: Tracker,
    pages: Pages,
    compare: bool,
    /// Ranges that a watched call may have emptied since the last stop.
    dropped: Vec<Range<u64>>,
    /// The program has made guard pages: from then on every capture looks for them.
    guarded: bool,
    /// Files that were truncated since the last stop: private copies of their pages may be gone.
    truncated: Vec<Ident>,
    marks: AdviceInForce,
    /// The marks changed since the last capture.
    marked: bool,
    /// Mappings of files without a name that were captured whole.
    gone: Vec<Range<u64>>,
    /// Pieces of an epoch that failed: captured again whatever the tracker says.
    owed: Vec<Piece>,
    /// Copies made before the stop.
    early: precopy::Copies,
    /// Mappings that were tracked before it.
    tracked_early: Vec<precopy::Tracked>,
    /// Pages of the last capture that were not hot.
    cold: u64,
    /// Pages in memory at the last look before a stop.
    resident: u64,
    regions: Vec<Region>,
    walks: Walks,
    found: Vec<Found>,
    ranges: Vec<Remote>,
    copies: Copies,
}

/// A run of pages to capture.
#[derive(Clone, Copy)]
struct Found {
    start: u64,
    pages: u64,
    /// It was left writable, or will be: written or not, it must be compared.
    hot: bool,
}

/// Microseconds each part of a capture took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts {
    /// Reading the layout and finding new mappings.
    pub layout_us: f64,
    /// Finding written pages.
    pub scan_us: f64,
    /// Copying them.
    pub copy_us: f64,
    /// Pages copied.
    pub pages: u64,
}

impl Memory {
    /// The memory of a program whose pages the store (of this geometry) may already hold.
    pub fn new(
        layout: Layout,
        tracker: Tracker,
        pages: Pages,
        marks: AdviceInForce,
        geometry: Geometry,
    ) -> Memory {
        Memory {
            layout,
            tracker,
            pages,
            compare: (geometry.line_bytes() as u64) < PAGE,
            dropped: Vec::new(),
            guarded: false,
            truncated: Vec::new(),
            marks,
            marked: false,
            gone: Vec::new(),
            owed: Vec::new(),
            early: precopy::Copies::default(),
            tracked_early: Vec::new(),
            cold: 0,
            resident: 0,
            regions: Vec::new(),
            walks: Walks::default(),
            found: Vec::new(),
            ranges: Vec::new(),
            copies: Copies::default(),
        }
    }

    /// The same of a descendant. Its pages are copied from outside: a capture's buffer lies in the program.
    #[must_use]
    pub fn of_descendant(layout: Layout, tracker: Tracker, pages: Pages, marks: AdviceInForce) -> Memory {
        let geometry = pages.geometry();
        Memory {
            copies: Copies::from_outside(),
            guarded: tracker.knows_guards(), // it may have made some before the first look at it
            ..Memory::new(layout, tracker, pages, marks, geometry)
        }
    }

    /// What is mapped, as of the last capture.
    #[must_use]
    pub fn mappings(&self) -> &[Mapping] {
        self.layout.mappings()
    }

    /// The places of pages, for the context.
    pub fn pages(&mut self) -> &mut Pages {
        &mut self.pages
    }

    /// Its pages, for a process that is gone.
    #[must_use]
    pub fn into_pages(self) -> Pages {
        self.pages
    }

    /// A call that may empty pages of `range` is about to run.
    pub fn may_drop(&mut self, range: Range<u64>) {
        self.dropped.push(range);
    }

    /// The program is about to turn pages of `range` into guards, or did so in an earlier life. False where
    /// the kernel does not say which pages are.
    pub fn may_guard(&mut self, range: Range<u64>) -> bool {
        let known = self.tracker.knows_guards();
        if known {
            self.guarded = true;
            self.may_drop(range);
        }
        known
    }

    /// The guard pages of the program, as ranges of addresses.
    ///
    /// # Errors
    /// When the program is gone.
    pub fn guards(&self) -> Result<Vec<(u64, u64)>> {
        let mut found = Vec::new();
        for range in outside_window().into_iter().filter(|_| self.guarded) {
            let looked = self.tracker.guards(range, &mut found);
            looked.map_err(|source| Error::target("cannot look for guard pages", source))?;
        }
        let is_captured = |region: &Region| {
            let next = self
                .mappings()
                .partition_point(|mapping| mapping.end <= region.start);
            let mapping = self.mappings().get(next);
            mapping.is_some_and(|mapping| mapping.kind.is_captured())
        };
        found.retain(is_captured);
        Ok(found.iter().map(|region| (region.start, region.end)).collect())
    }

    /// The program is about to move `range`, perhaps of several mappings. The kernel moves mappings that
    /// are tracked one by one only, and merges none that is with one that is not yet: `wholly`, or where
    /// only some are, none is tracked until the next stop, so that the call goes as it would alone.
    ///
    /// # Errors
    /// When the program is gone.
    pub fn may_move(&mut self, range: Range<u64>, wholly: bool) -> Result<()> {
        let mut untracked = Vec::new();
        let looked = self.tracker.unregistered(range.clone(), &mut untracked);
        let freed = looked.and_then(|()| {
            if wholly || !untracked.is_empty() {
                self.tracker.unregister(range)?;
            }
            Ok(())
        });
        freed.map_err(|source| Error::target("cannot look at memory that is about to move", source))
    }

    /// A call that may truncate `file` is about to run. Private mappings lose their copies of the pages
    /// past the new end (truncate(2) unmaps them), unlike when a hole is punched.
    pub fn may_truncate(&mut self, file: Ident) {
        self.truncated.push(file);
    }

    /// The program gives advice on a range. False when it is of a kind that leaves no mark.
    pub fn advise(&mut self, range: Range<u64>, advice: i32) -> bool {
        self.marked = true;
        self.marks.advise(range, advice)
    }

    /// The advice in force.
    #[must_use]
    pub fn marks(&self) -> &[Advice] {
        self.marks.list()
    }

    /// These pieces must be captured again.
    pub fn owe(&mut self, pieces: &[Piece]) {
        self.owed.extend_from_slice(pieces);
    }

    /// Whether it must.
    #[must_use]
    pub fn owes(&self) -> bool {
        !self.owed.is_empty() || !self.early.is_empty()
    }

    /// The pages that may have been written since the last capture. Nothing is protected again, and the program
    /// may run.
    ///
    /// # Errors
    /// When the program is gone.
    pub fn written(&mut self) -> Result<&[Region]> {
        self.regions.clear();
        for range in outside_window() {
            let seen = self.tracker.see_written(range, &mut self.regions);
            seen.map_err(|source| Error::target("cannot ask which pages were written", source))?;
        }
        Ok(&self.regions)
    }

    /// A piece was compared: it had changed, or not. Whether it is of this memory.
    pub fn learn(&mut self, piece: Piece, changed: bool) -> bool {
        self.pages.learn(piece, changed)
    }

    /// The program replaced itself. Nothing of its new memory is tracked yet, so the next capture
    /// forgets the old pages by itself.
    pub fn replace(&mut self, layout: Layout, tracker: Tracker) {
        self.layout = layout;
        self.tracker = tracker;
        self.dropped.clear();
        self.truncated.clear();
        self.early = precopy::Copies::default();
        self.tracked_early.clear();
        self.copies = Copies::default(); // helpers still had the old memory
    }

    /// The process has ended: nothing is mapped, and its pages are not kept.
    pub fn end(&mut self) {
        self.layout.end();
        self.marks = AdviceInForce::default();
        self.guarded = false;
    }

    /// Forgets all its pages.
    pub fn forget(&mut self, into: &mut Capture) {
        self.owed.clear();
        self.pages.forget(0..END_OF_MEMORY, &mut into.discarded, |_| true);
    }

    /// Captures what changed since the last capture, and notes what was written to `objects`. The program is stopped.
    /// At the first capture of a process, what it has from its maker is not captured again. True when the layout changed.
    ///
    /// # Errors
    /// When a mapping cannot be captured or the program is gone.
    pub fn capture(
        &mut self,
        process: &Process,
        objects: &mut Objects,
        maker: Option<Maker<'_>>,
        into: &mut Capture,
        parts: &mut Parts,
    ) -> Result<bool> {
        let clock = std::time::Instant::now();
        self.end_precopy(into);
        let changed = self.follow_layout(objects, into)?;
        self.find_dropped(into)?;
        let after_layout = clock.elapsed();
        objects.find_written(process.pid(), self.layout.mappings(), &self.tracker)?;
        self.find_written(objects, into)?;
        self.find_gone(process);
        if let Some(mut maker) = maker {
            self.leave_inherited(process, &mut maker);
        }
        let after_scan = clock.elapsed();
        self.copy(process, into)?;
        let micros = |duration: std::time::Duration| duration.as_secs_f64() * 1e6;
        parts.layout_us = micros(after_layout);
        parts.scan_us = micros(after_scan - after_layout);
        parts.copy_us = micros(clock.elapsed() - after_scan);
        parts.pages = into.pieces.len() as u64;
        Ok(changed)
    }

    /// Tracks new mappings and forgets what is mapped no longer.
    fn follow_layout(&mut self, objects: &Objects, into: &mut Capture) -> Result<bool> {
        let changed = self.layout.refresh(|mappings| objects.resolve(mappings))?;
        // A mapping that came and went since the last stop may have been copied meanwhile.
        if changed || !self.tracked_early.is_empty() {
            self.forget_unmapped(into);
        }
        let found = self.find_untracked();
        found.map_err(|source| Error::target("cannot look for new mappings", source))?;
        let fresh = (self.layout.mappings().iter())
            .filter(|mapping| mapping.kind.is_tracked())
            .filter(|mapping| {
                let mut early = self.tracked_early.iter();
                overlaps(&self.regions, mapping) || early.any(|early| early.is_doubtful(mapping))
            });
        let mut tracked = !self.tracked_early.is_empty();
        for mapping in fresh {
            let range = mapping.range();
            self.gone.retain(|taken| *taken != range);
            self.pages.forget(range.clone(), &mut into.discarded, |_| true);
            match self.tracker.register_as_written(range.clone()) {
                Err(error) if mapping.refuses_tracking(&error) => continue,
                registered => registered.map_err(|source| {
                    Error::target(
                        format!("cannot track writes to {:x}-{:x}", range.start, range.end),
                        source,
                    )
                })?,
            }
            tracked = true;
        }
        self.tracked_early.clear();
        Ok(changed || tracked || std::mem::take(&mut self.marked))
    }

    /// Puts the mapped ranges that are not tracked into `regions`.
    fn find_untracked(&mut self) -> std::io::Result<()> {
        self.regions.clear();
        let mut ranges = outside_window().into_iter();
        ranges.try_for_each(|range| self.tracker.unregistered(range, &mut self.regions))
    }

    /// Pages stored at addresses where nothing is mapped now.
    fn forget_unmapped(&mut self, into: &mut Capture) {
        let mut end = 0;
        for mapping in self
            .layout
            .mappings()
            .iter()
            .filter(|mapping| mapping.kind.is_captured())
        {
            self.marks.forget(end..mapping.start);
            self.marks.forget_parts(&mapping.range());
            self.pages
                .forget(end..mapping.start, &mut into.discarded, |_| true);
            end = mapping.end;
        }
        self.pages
            .forget(end..END_OF_MEMORY, &mut into.discarded, |_| true);
    }

    /// Where stored pages may have been emptied since the last stop.
    fn perhaps_dropped(&mut self) -> Vec<Range<u64>> {
        let mut ranges = std::mem::take(&mut self.dropped);
        let truncated = std::mem::take(&mut self.truncated);
        let mappings = self.layout.mappings().iter();
        let doubtful = mappings.filter(|mapping| match mapping.kind {
            Kind::Stack => true,
            // A name that leads nowhere tells nothing, so its mapping is looked at.
            Kind::PrivateFile if !truncated.is_empty() => {
                rustix::fs::stat(&mapping.path).map_or(true, |stat| truncated.contains(&Ident::from(&stat)))
            }
            _ => false,
        });
        ranges.extend(doubtful.map(Mapping::range));
        ranges
    }

    /// Stored pages that are gone. In a private mapping of a file, a page that is the file's again is
    /// empty too.
    fn find_dropped(&mut self, into: &mut Capture) -> Result<()> {
        for range in self.perhaps_dropped() {
            self.regions.clear();
            let mappings = self.layout.mappings();
            let first = mappings.partition_point(|mapping| mapping.end <= range.start);
            for mapping in mappings[first..]
                .iter()
                .take_while(|mapping| mapping.start < range.end)
            {
                let part = range.start.max(mapping.start)..range.end.min(mapping.end);
                if mapping.kind == Kind::GoneFile {
                    self.gone.retain(|taken| *taken != mapping.range()); // dropped pages are the file's again
                }
                let looked = if mapping.kind.is_private_file() {
                    let lifted = self.tracker.unprotect(part.clone());
                    lifted.and_then(|()| self.tracker.private_copies(part, &mut self.regions))
                } else {
                    self.tracker.present(part, &mut self.regions)
                };
                looked.map_err(|source| Error::target("cannot look for dropped pages", source))?;
            }
            let present = &self.regions;
            let gone = |address: u64| {
                let next = present.partition_point(|region| region.end <= address);
                !present
                    .get(next)
                    .is_some_and(|region| region.start <= address && !region.is_zero())
            };
            self.pages.forget(range, &mut into.discarded, gone);
        }
        Ok(())
    }

    fn find_written(&mut self, objects: &mut Objects, into: &mut Capture) -> Result<()> {
        self.found.clear();
        let cuts = self.strategies();
        let mut walks = std::mem::take(&mut self.walks);
        let walked = walks.run(&self.tracker, cuts, self.layout.mappings());
        walked.map_err(|source| Error::target("cannot ask which pages were written", source))?;
        self.sort_out(&walks, into)?;
        self.walks = walks;
        self.settle_copies(into);
        self.cold = self.early.count();
        let cold = self.found.iter().filter(|found| !found.hot);
        self.cold += cold.map(|found| found.pages).sum::<u64>();
        self.add_owed(objects);
        Ok(())
    }

    /// The address space, cut into ranges with hot pages and ranges without.
    fn strategies(&self) -> Vec<Cut> {
        let mut cuts = Vec::new();
        let mut from = 0;
        for (start, chunk) in self.pages.chunks() {
            if !chunk.leaves_pages_writable() {
                continue;
            }
            if start > from {
                cuts.push((from..start, false));
            }
            match cuts.last_mut() {
                Some((last, true)) if last.end == start => last.end = start + CHUNK_BYTES,
                _ => cuts.push((start..start + CHUNK_BYTES, true)),
            }
            from = start + CHUNK_BYTES;
        }
        if from < END_OF_MEMORY {
            cuts.push((from..END_OF_MEMORY, false));
        }
        leave_out(cuts, copier::WINDOW..copier::END)
    }

    /// Sorts the scanned regions out: zero pages are forgotten, unwritten pages of files left, the
    /// rest found. Pages grow warm.
    fn sort_out(&mut self, walks: &Walks, into: &mut Capture) -> Result<()> {
        let mut own = Vec::new();
        for (stays_writable, region) in walks.found() {
            if region.is_zero() {
                self.pages
                    .forget(region.start..region.end, &mut into.discarded, |_| true);
                continue;
            }
            own.clear();
            self.own_parts(region, &mut own)?;
            for part in &own {
                self.warm(part.clone(), stays_writable)?;
            }
        }
        Ok(())
    }

    /// The parts of a region that are the program's own pages: all of it, unless it lies in a
    /// private mapping of a file.
    fn own_parts(&mut self, region: Region, own: &mut Vec<Range<u64>>) -> Result<()> {
        let mappings = self.layout.mappings();
        let first = mappings.partition_point(|mapping| mapping.end <= region.start);
        for mapping in mappings[first..]
            .iter()
            .take_while(|mapping| mapping.start < region.end)
        {
            let part = region.start.max(mapping.start)..region.end.min(mapping.end);
            if mapping.kind.is_private_file() {
                let mut copies = Vec::new();
                let asked = self.tracker.private_copies(part, &mut copies);
                asked.map_err(|source| Error::target("cannot ask which pages are the file's", source))?;
                own.extend(copies.iter().map(|region| region.start..region.end));
            } else if mapping.kind.is_captured() {
                own.push(part);
            }
        }
        Ok(())
    }

    /// Adds written pages to what is found. In a range with hot pages, those that are not hot are
    /// protected again here.
    fn warm(&mut self, range: Range<u64>, hot_range: bool) -> Result<()> {
        let mut cold: Option<Range<u64>> = None;
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min((at / CHUNK_BYTES + 1) * CHUNK_BYTES);
            let chunk = self.pages.chunk(at);
            for address in (at..end).step_by(PAGE as usize) {
                let index = page_index(address);
                let was_hot = chunk.is_hot(index);
                let was_left = chunk.find_written(index);
                let hot = was_left || hot_range && was_hot;
                let stays = hot_range && chunk.is_hot(index);
                chunk.leave_writable(index, stays);
                add_found(&mut self.found, address, hot);
                if hot_range && !stays {
                    match &mut cold {
                        Some(run) if run.end == address => run.end += PAGE,
                        _ => {
                            protect(&self.tracker, cold.replace(address..address + PAGE))?;
                        }
                    }
                }
            }
            at = end;
        }
        protect(&self.tracker, cold)
    }

    /// All pages of mappings whose file has just lost its last name: nothing else has them.
    fn find_gone(&mut self, process: &Process) {
        let mappings = self.layout.mappings().iter();
        let gone = mappings.filter(|mapping| mapping.kind == Kind::GoneFile);
        let gone: Vec<Range<u64>> = gone.map(Mapping::range).collect();
        self.gone.retain(|taken| gone.contains(taken));
        for range in gone {
            if self.gone.contains(&range) {
                continue;
            }
            // Behind the end of the file there is nothing.
            let starts: Vec<u64> = range.clone().step_by(PAGE as usize).collect();
            let there = starts.partition_point(|start| process.read(*start, &mut [0]).is_ok());
            self.add(starts[..there].to_vec());
            self.gone.push(range);
        }
    }

    /// Pieces of a failed epoch that the scan did not find again.
    fn add_owed(&mut self, objects: &mut Objects) {
        let mut owed: Vec<u64> = self
            .owed
            .drain(..)
            .filter_map(|piece| self.pages.address(piece))
            .collect();
        owed.retain(|address| self.pages.find(*address).is_some());
        for key in owed.extract_if(.., |address| objects::is_key(*address)) {
            objects.owe(key);
        }
        self.add(owed);
    }

    /// Adds pages to what was found, unless they are there.
    fn add(&mut self, owed: Vec<u64>) {
        if owed.is_empty() {
            return;
        }
        let mut found: Vec<Range<u64>> = self
            .found
            .iter()
            .map(|found| found.start..found.start + found.pages * PAGE)
            .collect();
        found.sort_by_key(|range| range.start);
        for address in owed {
            let next = found.partition_point(|range| range.end <= address);
            if !found.get(next).is_some_and(|range| range.contains(&address)) {
                self.found.push(Found {
                    start: address,
                    pages: 1,
                    hot: false,
                });
            }
        }
    }

    /// Copies what was found.
    fn copy(&mut self, process: &Process, into: &mut Capture) -> Result<()> {
        let count: u64 = self.found.iter().map(|found| found.pages).sum();
        self.ranges.clear();
        into.pieces.reserve(count as usize);
        for found in &self.found {
            for page in 0..found.pages {
                let (address, compare) = (found.start + page * PAGE, self.compare || found.hot);
                let piece = self.pages.piece(address, compare, &mut into.discarded);
                into.pieces.push(piece);
            }
            self.ranges.push(Remote {
                start: found.start,
                len: (found.pages * PAGE) as usize,
            });
        }
        let bytes = (count * PAGE) as usize;
        self.copies
            .run(
                process,
                self.layout.mappings(),
                &mut self.ranges,
                bytes,
                &mut into.bytes,
            )
            .map_err(|source| Error::target("cannot copy the program's memory", source))
    }
}

/// Adds a page behind those that were found.
fn add_found(found: &mut Vec<Found>, address: u64, hot: bool) {
    match found.last_mut() {
        Some(last) if last.hot == hot && last.start + last.pages * PAGE == address => last.pages += 1,
        _ => found.push(Found {
            start: address,
            pages: 1,
            hot,
        }),
    }
}

fn protect(tracker: &Tracker, range: Option<Range<u64>>) -> Result<()> {
    let Some(range) = range else { return Ok(()) };
    tracker
        .protect(range)
        .map_err(|source| Error::target("cannot protect a page again", source))
}

/// All addresses but those of the copier's window.
fn outside_window() -> [Range<u64>; 2] {
    [0..copier::WINDOW, copier::END..END_OF_MEMORY]
}

/// The cuts without `window`, which lies inside at most one of them.
fn leave_out(mut cuts: Vec<Cut>, window: Range<u64>) -> Vec<Cut> {
    let at = cuts.partition_point(|(range, _)| range.end <= window.start);
    if let Some((range, _)) = cuts.get_mut(at)
        && range.start < window.start
        && window.end < range.end
    {
        let behind = (window.end..range.end, false);
        range.end = window.start;
        cuts.insert(at + 1, behind);
    }
    cuts
}

fn overlaps(regions: &[Region], mapping: &Mapping) -> bool {
    let next = regions.partition_point(|region| region.end <= mapping.start);
    regions.get(next).is_some_and(|region| region.start < mapping.end)
}
