//! A model of [`Direct`] memory behind processor caches, and what a crash may leave of it.
//!
//! * A word that was stored arrives at any time, with any of the values it had since it last was durable; or, unless
//!   it was written back and fenced, never.
//! * Words arrive in any order: lines are evicted as they like, and this is more than they may do.
//! * Growth may be lost until the next fence, with all that lies in it.
//! * A store that was not told ([`Direct::stored`]) is found when its range is written back: it was written back
//!   while it was being written, and [`Model::complaint`] says so.
//!
//! The model logs what is done; [`Crash`] follows a log and builds the images a crash may leave at each point of it.

#![allow(unsafe_code)]

use crate::direct::{Counts, Direct};
use crate::flush::CACHE_LINE;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use twinpage_core::crash::Random;
use twinpage_core::{Error, Offset, Result};

const WORD: usize = 8;
const PAGE: usize = 4096;

/// One thing that was done to the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A word was stored.
    Stored(usize, u64),
    /// A word was written back, as it was then.
    Sent(usize, u64),
    /// A fence.
    Fenced,
    /// It became that many bytes long.
    Grown(usize),
    /// What a test noted.
    Note(u64),
}

#[derive(Clone, Copy, Debug)]
#[repr(align(4096))]
struct Page(#[expect(dead_code, reason = "reached through `base`")] [u8; PAGE]);

/// Memory of a fixed capacity, which never moves.
#[derive(Debug)]
pub struct Model {
    base: *mut u8,
    fence_is_flush: bool,
    streams: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Owns what `base` points to.
    pages: Box<[Page]>,
    len: usize,
    /// The memory as the log has it.
    known: Vec<u8>,
    log: Vec<Event>,
    counts: Counts,
    complaint: Option<String>,
    /// Fences from this one on fail.
    fails_at: Option<u64>,
}

// SAFETY: `base` points to pages that the value owns; its users decide on writes, as for a
// mapping.
unsafe impl Send for Model {}
// SAFETY: `base` points to pages that the value owns; all other fields are behind a lock.
unsafe impl Sync for Model {}

impl Model {
    /// Memory that holds `image` and can grow to `capacity` bytes.
    #[must_use]
    pub fn new(image: &[u8], capacity: usize) -> Model {
        let pages = capacity.max(image.len()).div_ceil(PAGE);
        let mut pages = vec![Page([0; PAGE]); pages].into_boxed_slice();
        let base = pages.as_mut_ptr().cast::<u8>();
        // SAFETY: the pages have room for the image.
        unsafe { base.copy_from_nonoverlapping(image.as_ptr(), image.len()) };
        Model {
            base,
            fence_is_flush: false,
            streams: false,
            state: Mutex::new(State {
                pages,
                len: image.len(),
                known: image.to_vec(),
                log: Vec::new(),
                counts: Counts::default(),
                complaint: None,
                fails_at: None,
            }),
        }
    }

    /// The same, where a fence is a flush of a device.
    #[must_use]
    pub fn flushed(image: &[u8], capacity: usize) -> Model {
        Model {
            fence_is_flush: true,
            ..Model::new(image, capacity)
        }
    }

    /// The same, where values are stored past the caches.
    #[must_use]
    pub fn streaming(image: &[u8], capacity: usize) -> Model {
        Model {
            streams: true,
            ..Model::new(image, capacity)
        }
    }

    /// Notes something in the log.
    pub fn note(&self, note: u64) {
        self.state().log.push(Event::Note(note));
    }

    /// What was done so far.
    #[must_use]
    pub fn log(&self) -> Vec<Event> {
        self.state().log.clone()
    }

    /// What was done wrong, if anything.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        self.state().complaint.clone()
    }

    /// The fence after `good` more ones fails, and all later ones.
    pub fn fail_after(&self, good: u64) {
        let mut state = self.state();
        state.fails_at = Some(state.counts.fences + good);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn word(&self, state: &State, word: usize) -> u64 {
        debug_assert!(word * WORD < state.pages.len() * PAGE);
        // SAFETY: an aligned word of the pages.
        unsafe { self.base.cast::<u64>().add(word).read_volatile() }
    }

    /// Logs the words of `range` that changed since they were looked at; whether there were any.
    fn look(&self, state: &mut State, range: &Range<Offset>) -> bool {
        let mut any = false;
        for word in range.start as usize / WORD..(range.end as usize).div_ceil(WORD) {
            let (now, at) = (self.word(state, word), word * WORD);
            let known = u64::from_ne_bytes(std::array::from_fn(|k| state.known[at + k]));
            if now != known {
                state.known[at..at + WORD].copy_from_slice(&now.to_ne_bytes());
                state.log.push(Event::Stored(word, now));
                any = true;
            }
        }
        any
    }
}

impl Direct for Model {
    fn base(&self) -> *mut u8 {
        self.base
    }

    fn len(&self) -> u64 {
        self.state().len as u64
    }

    fn grow(&self, len: u64) -> Result<()> {
        let mut state = self.state();
        let len = len as usize;
        let capacity = state.pages.len() * PAGE;
        if len > capacity {
            return Err(Error::Full {
                what: "the model".into(),
                needed: (len - capacity) as u64,
            });
        }
        if len > state.len {
            state.len = len;
            state.known.resize(len, 0);
            state.log.push(Event::Grown(len));
        }
        Ok(())
    }

    fn write_back(&self, range: Range<Offset>) {
        let mut state = self.state();
        if self.look(&mut state, &range) {
            state.complaint = Some(format!("{range:?} was written back while it was being written"));
        }
        let lines = range.start as usize / CACHE_LINE..(range.end as usize).div_ceil(CACHE_LINE);
        state.counts.write_backs += lines.len() as u64;
        for word in lines.start * CACHE_LINE / WORD..lines.end * CACHE_LINE / WORD {
            // Of a neighbour that is being written the last value that was told: any is possible anyway.
            let at = word * WORD;
            let known = u64::from_ne_bytes(std::array::from_fn(|k| state.known[at + k]));
            state.log.push(Event::Sent(word, known));
        }
    }

    fn fence(&self) -> Result<()> {
        let mut state = self.state();
        state.counts.fences += 1;
        if state.fails_at.is_some_and(|at| state.counts.fences > at) {
            return Err(Error::poisoned(Error::Invalid(
                "a fence failed on purpose".into(),
            )));
        }
        state.log.push(Event::Fenced);
        Ok(())
    }

    fn fence_is_flush(&self) -> bool {
        self.fence_is_flush
    }

    fn streams(&self) -> bool {
        self.streams
    }

    fn is_watched(&self) -> bool {
        true
    }

    fn stored(&self, range: Range<Offset>) {
        let mut state = self.state();
        self.look(&mut state, &range);
    }

    fn counts(&self) -> Counts {
        self.state().counts
    }
}

/// What a crash may leave at a point of a log.
#[derive(Clone, Debug)]
pub struct Crash {
    durable: Vec<u8>,
    /// Of each word that may differ from what is durable: the values it had since.
    pending: BTreeMap<usize, Vec<u64>>,
    sent: Vec<(usize, u64)>,
    /// The length since a growth that was not fenced.
    len: usize,
}

impl Crash {
    /// At the beginning, when the memory held `image` durably.
    #[must_use]
    pub fn new(image: &[u8]) -> Crash {
        Crash {
            durable: image.to_vec(),
            pending: BTreeMap::new(),
            sent: Vec::new(),
            len: image.len(),
        }
    }

    /// One more thing was done.
    pub fn advance(&mut self, event: Event) {
        match event {
            Event::Stored(word, value) => self.pending.entry(word).or_default().push(value),
            Event::Sent(word, value) => self.sent.push((word, value)),
            Event::Grown(len) => self.len = len,
            Event::Fenced => {
                self.durable.resize(self.len, 0);
                for (word, value) in self.sent.drain(..) {
                    put(&mut self.durable, word, value);
                    // What was stored after it was written back may still arrive.
                    if let Some(values) = self.pending.get_mut(&word) {
                        let known = values.iter().rposition(|&later| later == value);
                        values.drain(..known.map_or(0, |k| k + 1));
                        if values.is_empty() {
                            self.pending.remove(&word);
                        }
                    }
                }
            }
            Event::Note(_) => {}
        }
    }

    /// Images a crash may leave here: nothing more arrived, all did, each word alone and each missing where they are
    /// few, and `samples` random ones.
    pub fn images(&self, samples: usize, random: &mut Random) -> Vec<Vec<u8>> {
        const FEW: usize = 5;
        let mut images = vec![
            self.image(|_, _| None),
            self.image(|_, values| values.last().copied()),
        ];
        if self.pending.len() <= FEW {
            for &one in self.pending.keys() {
                images.push(self.image(|word, values| (word == one).then(|| values[values.len() - 1])));
                images.push(self.image(|word, values| (word != one).then(|| values[values.len() - 1])));
            }
        }
        for _ in 0..samples {
            let likely = 1 + random.below(8);
            let shorter = random.once_in(4);
            let mut image = self.image(|_, values| {
                let arrives = !random.once_in(likely + 1);
                arrives.then(|| values[random.below(values.len() as u64) as usize])
            });
            if shorter {
                image.truncate(self.durable.len());
            }
            images.push(image);
        }
        images
    }

    fn image(&self, mut arrives: impl FnMut(usize, &[u64]) -> Option<u64>) -> Vec<u8> {
        let mut image = self.durable.clone();
        image.resize(self.len, 0);
        for (&word, values) in &self.pending {
            if let Some(value) = arrives(word, values) {
                put(&mut image, word, value);
            }
        }
        image
    }
}

fn put(image: &mut [u8], word: usize, value: u64) {
    image[word * WORD..(word + 1) * WORD].copy_from_slice(&value.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_words(images: &[Vec<u8>]) -> std::collections::BTreeSet<u64> {
        images
            .iter()
            .map(|image| u64::from_ne_bytes(std::array::from_fn(|k| image[k])))
            .collect()
    }

    fn left(model: &Model) -> std::collections::BTreeSet<u64> {
        let mut crash = Crash::new(&[0; PAGE]);
        model.log().into_iter().for_each(|event| crash.advance(event));
        first_words(&crash.images(100, &mut Random::new(1)))
    }

    #[test]
    fn a_store_arrives_at_any_time_or_never_until_it_is_written_back_and_fenced() {
        let model = Model::new(&[0; PAGE], PAGE);
        let store = |value: u64| {
            // SAFETY: the first word of the memory.
            unsafe { model.base().cast::<u64>().write(value) };
            model.stored(0..8);
        };
        store(1);
        model.fence().unwrap();
        assert_eq!(left(&model), [0, 1].into(), "not written back");
        store(2);
        assert_eq!(left(&model), [0, 1, 2].into());
        model.write_back(0..8);
        assert_eq!(left(&model), [0, 1, 2].into(), "not fenced");
        store(3);
        model.fence().unwrap();
        assert_eq!(
            left(&model),
            [2, 3].into(),
            "3 was stored after 2 was written back"
        );
        assert!(model.complaint().is_none());
        // SAFETY: the model owns the pages at `base`, and no other thread uses them.
        unsafe { model.base().cast::<u64>().write(4) };
        model.write_back(0..8);
        assert!(model.complaint().is_some());
    }
}
