//! Commits of sections on their way to the store.
//!
//! ```text
//! section ends: its lines --> open group --> group on its way --> the store, one commit
//!                             (the next section adds to it)
//! ```
//!
//! * Sections are numbered in the order in which they end. A group holds those that follow one another.
//! * Lines are added by the thread that has the turn. A later piece is newer than an earlier one, and every piece is
//!   newer than the group's discards.
//! * The group on its way stays here until its commit has ended, so that a section that is undone finds its lines.

use crate::address::{PAGE, Place};
use crate::epochs::{Progress, piece};
use crate::lock::{lock, read, write};
use crate::marks::{self, LINE};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, RwLock};
use twinpage_core::{Geometry, LineMask, PageId, PageLines, Piece};

/// What some sections changed.
#[derive(Debug, Default)]
pub(super) struct Group {
    pieces: Vec<Piece>,
    bytes: Vec<u8>,
    discarded: Vec<Range<PageId>>,
    /// Lines of 64 bytes that were marked.
    marked: u64,
}

impl Group {
    /// Holds nothing, keeps the memory.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.bytes.clear();
        self.discarded.clear();
        self.marked = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.discarded.is_empty()
    }

    /// Pages of the store that hold nothing any more, before anything is written.
    pub(super) fn discarded(&self) -> &[Range<PageId>] {
        &self.discarded
    }

    /// Lines of 64 bytes that were marked, once for every section.
    pub(super) fn marked(&self) -> u64 {
        self.marked
    }

    /// What was written, in order.
    pub(super) fn lines(&self, geometry: Geometry) -> impl Iterator<Item = PageLines<'_>> {
        let line_bytes = geometry.line_bytes();
        let mut rest = &self.bytes[..];
        self.pieces.iter().map(move |&Piece { page, held, .. }| {
            let (bytes, behind) = rest.split_at(held.count() * line_bytes);
            rest = behind;
            PageLines {
                page,
                held,
                changed: held,
                line_bytes,
                bytes,
            }
        })
    }

    /// What was written, as pages of the system: the page's number, and its lines of 64 bytes with their bytes.
    pub(super) fn small_lines(&self, geometry: Geometry) -> impl Iterator<Item = (usize, LineMask, &[u8])> {
        let (page_bytes, line_bytes) = (geometry.page_bytes(), geometry.line_bytes());
        self.lines(geometry).flat_map(move |lines| {
            let at = lines.page.0 as usize * page_bytes;
            let small = (line_bytes == LINE).then_some((at / PAGE, lines.held, lines.bytes));
            let large = lines.held.runs().flatten().filter(move |_| line_bytes != LINE);
            let large =
                large.map(move |line| ((at + line * line_bytes) / PAGE, LineMask::ALL, lines.line(line)));
            small.into_iter().chain(large)
        })
    }

    /// The pages of the system that were given back.
    pub(super) fn discarded_pages(&self, geometry: Geometry) -> impl Iterator<Item = Range<usize>> {
        let pages = geometry.page_bytes() / PAGE;
        let small = move |range: &Range<PageId>| range.start.0 as usize * pages..range.end.0 as usize * pages;
        self.discarded.iter().map(small)
    }

    /// Adds lines of a page of the region, which lie in memory.
    fn add(&mut self, place: Place, geometry: Geometry, page: usize, lines: LineMask) {
        self.marked += lines.count() as u64;
        let lines = stored_lines(geometry, lines);
        marks::copy_lines(place, page, lines, &mut self.bytes);
        piece(&mut self.pieces, geometry, page, lines);
    }

    /// The pages hold nothing any more. What earlier sections wrote there goes.
    fn discard(&mut self, pages: Range<PageId>, geometry: Geometry) {
        if self.pieces.iter().any(|piece| pages.contains(&piece.page)) {
            let mut left = Group::default();
            for lines in self.lines(geometry).filter(|lines| !pages.contains(&lines.page)) {
                let (page, held) = (lines.page, lines.held);
                let compare = false;
                left.pieces.push(Piece { page, held, compare });
                left.bytes.extend_from_slice(lines.bytes);
            }
            (self.pieces, self.bytes) = (left.pieces, left.bytes);
        }
        self.discarded.push(pages);
    }
}

/// The lines of a page of the region that are read and written to have these: all, where the store's lines are as large
/// as pages.
pub(super) fn stored_lines(geometry: Geometry, lines: LineMask) -> LineMask {
    match geometry.line_bytes() {
        LINE => lines,
        _ => LineMask::ALL,
    }
}

/// Bytes of a group above which a section does not join it: a group is in memory.
const LONG: usize = 16 << 20;

/// The commits on their way.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) geometry: Geometry,
    open: Mutex<Group>,
    flying: RwLock<Group>,
    /// The group on its way found no room: it and the open one wait to be undone, and nothing is committed.
    lost: Mutex<Option<String>>,
    is_lost: AtomicBool,
}

impl Queue {
    pub(super) fn new(geometry: Geometry) -> Queue {
        Queue {
            geometry,
            open: Mutex::default(),
            flying: RwLock::default(),
            lost: Mutex::default(),
            is_lost: AtomicBool::new(false),
        }
    }

    /// Takes what a section changed, which is marked. Says the number of the last section that changed anything: what
    /// this one saw is durable when that one is.
    pub(super) fn capture(&self, place: Place, progress: &Progress) -> u64 {
        let mut open = lock(&self.open);
        let mut changed = false;
        for pages in marks::take_discarded(place, self.geometry) {
            open.discard(pages, self.geometry);
            changed = true;
        }
        marks::take_marks(place, |page, lines| {
            open.add(place, self.geometry, page, lines);
            changed = true;
        });
        progress.count_section(changed)
    }

    /// Whether the open group should be committed before it is longer still.
    pub(super) fn is_long(&self) -> bool {
        lock(&self.open).bytes.len() >= LONG
    }

    /// Lets `work` see the next group to be committed and the number of its last section. `None`: nothing waits.
    ///
    /// One thread at a time.
    pub(super) fn commit<R>(&self, progress: &Progress, work: impl FnOnce(&Group, u64) -> R) -> Option<R> {
        let last = {
            let mut open = lock(&self.open);
            if open.is_empty() {
                return None;
            }
            std::mem::swap(&mut *open, &mut *write(&self.flying));
            progress.sections()
        };
        Some(work(&read(&self.flying), last))
    }

    /// The group on its way is in the store.
    pub(super) fn landed(&self) {
        write(&self.flying).clear();
    }

    /// The group on its way found no room.
    pub(super) fn lose(&self, why: String) {
        *lock(&self.lost) = Some(why);
        self.is_lost.store(true, Ordering::Release);
    }

    /// Whether a group waits to be undone.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// Why a group must be undone, if one must.
    pub(super) fn why_lost(&self) -> Option<String> {
        lock(&self.lost).clone()
    }

    /// The groups on their way, the older one first.
    pub(super) fn with_groups<R>(&self, look: impl FnOnce([&Group; 2]) -> R) -> R {
        let open = lock(&self.open);
        look([&read(&self.flying), &open])
    }

    /// Forgets the groups, which were undone.
    pub(super) fn forget(&self) {
        lock(&self.open).clear();
        write(&self.flying).clear();
        *lock(&self.lost) = None;
        self.is_lost.store(false, Ordering::Release);
    }
}
