//! The DRAM cache of NVM pages and its table (CPT): which page lies in which frame, and which of its
//! lines are newer than NVM (DPC 4.1).
//!
//! * Real bytes where they will be looked at: a frame then holds what the DRAM would.
//! * The least recently used frame goes first.
//! * DRAM that something else needs is reserved: so many frames fewer hold pages.

use crate::op::PAGE_BYTES;

const NONE: u32 = u32::MAX;
/// In the table: the rest names a fill.
const FILLING: u32 = 1 << 31;
const NO_PAGE: u64 = u64::MAX;

/// One page of DRAM.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The page it holds.
    pub page: u64,
    /// Lines newer than NVM, one bit each.
    pub dirty: u64,
    /// Its data has not all come yet.
    filling: bool,
    newer: u32,
    older: u32,
}

impl Frame {
    /// Whether it holds a page.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.page != NO_PAGE
    }

    /// Whether its data has not all come yet.
    #[must_use]
    pub fn is_filling(&self) -> bool {
        self.filling
    }
}

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Whole in this frame.
    Here(u32),
    /// On its way: the fill of this number.
    Coming(u32),
    /// Not in DRAM.
    Nowhere,
}

/// The DRAM cache.
#[derive(Debug)]
pub struct Frames {
    frames: Vec<Frame>,
    bytes: Vec<u8>,
    blank: bool,
    /// For each page its frame, or its fill.
    table: Vec<u32>,
    newest: u32,
    oldest: u32,
    used: u32,
    /// Frames given up, that hold nothing.
    spare: Vec<u32>,
    /// So many frames hold no page.
    reserved: u32,
}

impl Frames {
    /// `bytes` of DRAM for a memory of `pages` pages; if it is `blank`, all frames share the bytes of one.
    #[must_use]
    pub fn new(bytes: u64, pages: u64, blank: bool) -> Frames {
        let count = (bytes / PAGE_BYTES) as usize;
        let free = Frame {
            page: NO_PAGE,
            dirty: 0,
            filling: false,
            newer: NONE,
            older: NONE,
        };
        Frames {
            frames: vec![free; count],
            bytes: vec![0; if blank { 1 } else { count } * PAGE_BYTES as usize],
            blank,
            table: vec![NONE; pages as usize],
            newest: NONE,
            oldest: NONE,
            used: 0,
            spare: Vec::new(),
            reserved: 0,
        }
    }

    /// Where a page is.
    #[must_use]
    #[inline]
    pub fn find(&self, page: u64) -> Found {
        match self.table[page as usize] {
            NONE => Found::Nowhere,
            fill if fill & FILLING != 0 => Found::Coming(fill & !FILLING),
            frame => Found::Here(frame),
        }
    }

    /// The page is on its way, by this fill.
    pub fn comes(&mut self, page: u64, fill: u32) {
        self.table[page as usize] = FILLING | fill;
    }

    /// The page that comes into the frame is whole.
    pub fn came(&mut self, frame: u32) {
        let state = &mut self.frames[frame as usize];
        state.filling = false;
        self.table[state.page as usize] = frame;
    }

    /// A frame.
    #[must_use]
    #[inline]
    pub fn frame(&self, frame: u32) -> &Frame {
        &self.frames[frame as usize]
    }

    /// A frame, to change.
    #[inline]
    pub fn frame_mut(&mut self, frame: u32) -> &mut Frame {
        &mut self.frames[frame as usize]
    }

    /// What a frame holds.
    #[must_use]
    pub fn bytes(&self, frame: u32) -> &[u8] {
        let start = if self.blank { 0 } else { frame as usize } * PAGE_BYTES as usize;
        &self.bytes[start..start + PAGE_BYTES as usize]
    }

    /// What a frame holds, to change.
    pub fn bytes_mut(&mut self, frame: u32) -> &mut [u8] {
        let start = if self.blank { 0 } else { frame as usize } * PAGE_BYTES as usize;
        &mut self.bytes[start..start + PAGE_BYTES as usize]
    }

    /// A line's bytes come to a frame.
    #[inline]
    pub fn put_line(&mut self, frame: u32, line: u64, bytes: &[u8]) {
        if !self.blank {
            let offset = (line % 64 * 64) as usize;
            self.bytes_mut(frame)[offset..offset + 64].copy_from_slice(bytes);
        }
    }

    /// The page was used.
    pub fn used_now(&mut self, frame: u32) {
        if self.newest != frame {
            self.unlink(frame);
            self.link(frame);
        }
    }

    /// So many frames are to hold no page.
    pub fn reserve(&mut self, frames: u32) {
        self.reserved = frames;
    }

    /// Whether more frames hold pages than may.
    pub fn is_over(&self) -> bool {
        self.holding() + self.reserved as usize > self.frames.len()
    }

    fn holding(&self) -> usize {
        self.used as usize - self.spare.len()
    }

    /// A frame that was taken holds no page until there is room again.
    pub fn give_up(&mut self, frame: u32) {
        self.spare.push(frame);
    }

    /// A frame that holds nothing, if another may hold a page.
    pub fn fresh(&mut self) -> Option<u32> {
        if self.holding() + self.reserved as usize >= self.frames.len() {
            return None;
        }
        if let Some(frame) = self.spare.pop() {
            return Some(frame);
        }
        ((self.used as usize) < self.frames.len()).then(|| {
            self.used += 1;
            self.used - 1
        })
    }

    /// The page will come into the frame, which holds nothing.
    pub fn put(&mut self, frame: u32, page: u64) {
        let state = &mut self.frames[frame as usize];
        state.page = page;
        state.dirty = 0;
        state.filling = true;
        self.link(frame);
    }

    /// The page leaves its frame.
    pub fn take(&mut self, frame: u32) {
        let page = self.frames[frame as usize].page;
        self.table[page as usize] = NONE;
        self.unlink(frame);
        self.frames[frame as usize].page = NO_PAGE;
    }

    /// Frames that hold pages, the least recently used first.
    pub fn oldest_first(&self) -> impl Iterator<Item = u32> {
        let next = |frame: u32| Some(frame).filter(|&frame| frame != NONE);
        std::iter::successors(next(self.oldest), move |&frame| {
            next(self.frames[frame as usize].newer)
        })
    }

    /// Frames with dirty lines, in order of their pages.
    #[must_use]
    pub fn dirty(&self) -> Vec<u32> {
        let mut dirty: Vec<u32> = (0..self.used)
            .filter(|&frame| self.frame(frame).is_used() && self.frame(frame).dirty != 0)
            .collect();
        dirty.sort_unstable_by_key(|&frame| self.frame(frame).page);
        dirty
    }

    fn link(&mut self, frame: u32) {
        let before = self.newest;
        let state = &mut self.frames[frame as usize];
        state.newer = NONE;
        state.older = before;
        match before {
            NONE => self.oldest = frame,
            before => self.frames[before as usize].newer = frame,
        }
        self.newest = frame;
    }

    fn unlink(&mut self, frame: u32) {
        let Frame { newer, older, .. } = self.frames[frame as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.frames[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.frames[newer as usize].older = older,
        }
    }
}

/// Where a line lies in DRAM.
pub(super) fn address(frame: u32, line: u64) -> u64 {
    u64::from(frame) * crate::op::PAGE_BYTES + line % 64 * 64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_comes_first() {
        let mut frames = Frames::new(3 * PAGE_BYTES, 10, false);
        for page in [4, 7, 9] {
            let frame = frames.fresh().unwrap();
            frames.comes(page, 5);
            frames.put(frame, page);
            assert_eq!(frames.find(page), Found::Coming(5));
            frames.came(frame);
        }
        assert_eq!(frames.fresh(), None);
        let order = |frames: &Frames| {
            frames
                .oldest_first()
                .map(|frame| frames.frame(frame).page)
                .collect::<Vec<_>>()
        };
        let here = |frames: &Frames, page| match frames.find(page) {
            Found::Here(frame) => frame,
            other => panic!("page {page} is {other:?}"),
        };
        frames.used_now(here(&frames, 4));
        assert_eq!(order(&frames), [7, 9, 4]);
        let gone = here(&frames, 9);
        frames.take(gone);
        assert_eq!((order(&frames), frames.find(9)), (vec![7, 4], Found::Nowhere));
        frames.put(gone, 1);
        frames.frame_mut(gone).dirty = 2;
        assert_eq!((order(&frames), frames.dirty()), (vec![7, 4, 1], vec![gone]));
        frames.reserve(2);
        assert!(frames.is_over());
        for page in [7, 4] {
            let frame = here(&frames, page);
            frames.take(frame);
            frames.give_up(frame);
        }
        assert!(!frames.is_over() && frames.fresh().is_none());
        frames.reserve(1);
        assert!(frames.fresh().is_some() && frames.fresh().is_none());
    }
}
