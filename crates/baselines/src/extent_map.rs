//! Where things are on the medium: streams, each an endless sequence of bytes made of extents.
//!
//! * An extent joins a stream when the stream first reaches it, for good; a word in the directory says so.
//! * The word is posted before anything in the extent is relied on, and durable by the same fence.
//!   One that is lost in a crash leaves the extent free; one that stays is no harm.
//! * A word that outlived its extent (a growth that was lost) is erased before the medium grows again.
//! * What an extent held before is still there, but for streams that must begin with zeros.
//!
//! ```text
//! every N-th extent, from the first      N = (page bytes - 2048) / 8
//! | 2048 bytes: in extent 0 the header and the records | N words, one for each extent from here on |
//! ```

use crc32c::crc32c_append;
use twinpage_core::error::{Error, Result};
use twinpage_core::geometry::Geometry;
use twinpage_core::medium::{Cause, Medium, Offset};
use twinpage_core::metered::Metered;

/// Where the words begin in an extent that has them.
const WORDS_AT: u64 = 2048;
/// Extents a stream may have.
pub(super) const EXTENT_LIMIT: u64 = 1 << 26;
/// Bytes zeroed at once.
const CHUNK: usize = 1 << 16;

/// One of the sequences a store is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stream(pub(super) u8);

impl Stream {
    /// Pages at home: page `n` begins at `n` pages.
    pub(super) const HOME: Stream = Stream(0);
    /// The table: a word for each page.
    pub(super) const TABLE: Stream = Stream(1);
    /// The journal of even epochs; the one of odd epochs follows.
    pub(super) const JOURNAL: Stream = Stream(2);
    /// What the scheme keeps besides: a log, segments, page frames; one of even epochs or the only one.
    pub(super) const OWN: Stream = Stream(4);
    const COUNT: usize = 8;

    /// This stream for even epochs, the next one for odd ones.
    pub(super) fn of_epoch(self, epoch: u64) -> Stream {
        Stream(self.0 + (epoch % 2) as u8)
    }
}

/// The lower half of a crc xor its upper half.
pub(super) fn fold(crc: u32) -> u64 {
    u64::from((crc ^ crc >> 16) as u16)
}

/// `value` (48 bits) with a check in its upper bits; never zero unless by chance once in 2^48.
pub(super) fn checked(seed: u32, place: u64, value: u64) -> u64 {
    let crc = crc32c_append(crc32c_append(seed, &place.to_le_bytes()), &value.to_le_bytes());
    fold(crc) << 48 | value
}

/// The value of a word [`checked`] made for this place.
pub(super) fn unchecked(seed: u32, place: u64, word: u64) -> Option<u64> {
    let value = word & ((1 << 48) - 1);
    (checked(seed, place, value) == word).then_some(value)
}

/// Which extent is where in which stream.
#[derive(Debug)]
pub(super) struct ExtentMap {
    geometry: Geometry,
    seed: u32,
    /// By stream and place in it: the extent, 0 where there is none.
    extents: [Vec<u32>; Stream::COUNT],
    /// Extents that belong to no stream, and the first past all there are.
    free: Vec<u32>,
    end: u64,
    /// Extents past the end that have a word: it was written and the growth was lost.
    stale: Vec<u64>,
}

impl ExtentMap {
    /// Extents that have a word each in one extent of words.
    fn words(geometry: Geometry) -> u64 {
        (geometry.page_bytes() as u64 - WORDS_AT) / 8
    }

    /// Where the word of an extent is.
    fn word_at(geometry: Geometry, extent: u64) -> Offset {
        let words = ExtentMap::words(geometry);
        extent / words * words * geometry.extent_bytes() as u64 + WORDS_AT + extent % words * 8
    }

    fn empty(geometry: Geometry, seed: u32) -> ExtentMap {
        ExtentMap {
            geometry,
            seed,
            extents: Default::default(),
            free: Vec::new(),
            end: 0,
            stale: Vec::new(),
        }
    }

    /// No streams yet. What the medium held before is free.
    pub(super) fn create<M: Medium>(
        medium: &mut Metered<M>,
        geometry: Geometry,
        seed: u32,
    ) -> Result<ExtentMap> {
        medium.grow(geometry.extent_bytes() as u64)?;
        let words = ExtentMap::words(geometry);
        let mut streams = ExtentMap::empty(geometry, seed);
        streams.end = medium.len() / geometry.extent_bytes() as u64;
        let zeros = vec![0; words as usize * 8];
        for first in (0..streams.end).step_by(words as usize) {
            medium.write(ExtentMap::word_at(geometry, first), &zeros)?;
        }
        streams.free = (0..streams.end)
            .rev()
            .filter(|extent| extent % words != 0)
            .map(|extent| extent as u32)
            .collect();
        Ok(streams)
    }

    /// The streams as the words on the medium have them.
    pub(super) fn load<M: Medium>(medium: &Metered<M>, geometry: Geometry, seed: u32) -> Result<ExtentMap> {
        let mut streams = ExtentMap::empty(geometry, seed);
        let words = ExtentMap::words(geometry);
        streams.end = medium.len() / geometry.extent_bytes() as u64;
        let mut bytes = vec![0; words as usize * 8];
        for extent in 0..streams.end {
            if extent % words == 0 {
                medium.read(ExtentMap::word_at(geometry, extent), &mut bytes)?;
                continue;
            }
            let index = (extent % words) as usize * 8;
            let word = u64::from_le_bytes(bytes[index..index + 8].try_into().unwrap_or_default());
            if word == 0 {
                streams.free.push(extent as u32);
            } else if !unchecked(seed, extent, word).is_some_and(|value| streams.adopt(value, extent)) {
                return Err(Error::Damaged {
                    what: "directory",
                    at: ExtentMap::word_at(geometry, extent),
                    why: format!("the word {word:016x} gives extent {extent} no place in a stream"),
                });
            }
        }
        streams.free.reverse();
        let known = streams.end.next_multiple_of(words);
        let word = |extent: u64| &bytes[(extent % words) as usize * 8..][..8];
        streams.stale = (streams.end..known)
            .filter(|&extent| word(extent) != [0; 8])
            .collect();
        Ok(streams)
    }

    /// The extent belongs where the word says: stream plus one, and place in it. False if it cannot.
    fn adopt(&mut self, value: u64, extent: u64) -> bool {
        let (stream, index) = ((value >> 40) as usize, value & ((1 << 40) - 1));
        if !(1..=Stream::COUNT).contains(&stream) || index >= EXTENT_LIMIT {
            return false;
        }
        let stream = &mut self.extents[stream - 1];
        let index = index as usize;
        if stream.len() <= index {
            stream.resize(index + 1, 0);
        }
        let free = stream[index] == 0;
        stream[index] = extent as u32;
        free
    }

    /// Where a byte of a stream is, if the stream reaches so far.
    pub(super) fn at(&self, stream: Stream, offset: u64) -> Option<Offset> {
        let bytes = self.geometry.extent_bytes() as u64;
        let extent = *self.extents[usize::from(stream.0)].get((offset / bytes) as usize)?;
        (extent != 0).then(|| u64::from(extent) * bytes + offset % bytes)
    }

    /// How far the extents of a stream reach, holes included.
    pub(super) fn len(&self, stream: Stream) -> u64 {
        self.extents[usize::from(stream.0)].len() as u64 * self.geometry.extent_bytes() as u64
    }

    /// Where the pieces of `len` bytes at `offset` are, one for each extent: place and length.
    fn pieces(&self, offset: u64, len: usize) -> impl Iterator<Item = (u64, usize)> + use<> {
        let bytes = self.geometry.extent_bytes() as u64;
        let mut done = 0;
        std::iter::from_fn(move || {
            let at = offset + done as u64;
            let piece = (len - done).min((bytes - at % bytes) as usize);
            done += piece;
            (piece > 0).then_some((at, piece))
        })
    }

    /// Makes the stream reach all of these bytes.
    ///
    /// # Errors
    /// [`Error::Full`] when the medium cannot grow.
    pub(super) fn reach<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        stream: Stream,
        offset: u64,
        len: usize,
    ) -> Result<()> {
        for (at, _) in self.pieces(offset, len) {
            if self.at(stream, at).is_none() {
                self.claim(medium, stream, at / self.geometry.extent_bytes() as u64)?;
            }
        }
        Ok(())
    }

    /// An extent for place `index` of a stream.
    fn claim<M: Medium>(&mut self, medium: &mut Metered<M>, stream: Stream, index: u64) -> Result<()> {
        if index >= EXTENT_LIMIT {
            return Err(Error::Invalid(format!(
                "extent {index} of a stream: there are {EXTENT_LIMIT}"
            )));
        }
        let bytes = self.geometry.extent_bytes() as u64;
        let had = medium.len();
        let extent = match self.free.last() {
            Some(&extent) => u64::from(extent),
            None => {
                self.erase_stale(medium)?;
                let extent = self.end + u64::from(self.end.is_multiple_of(ExtentMap::words(self.geometry)));
                medium.grow((extent + 1) * bytes)?;
                self.end = extent + 1;
                self.free.push(extent as u32);
                extent
            }
        };
        if stream == Stream::TABLE && extent * bytes < had {
            self.zero(medium, extent)?;
        }
        let value = u64::from(stream.0 + 1) << 40 | index;
        let word = checked(self.seed, extent, value);
        let at = ExtentMap::word_at(self.geometry, extent);
        write_aside(medium, at, &word.to_le_bytes())?;
        self.free.pop();
        self.adopt(value, extent);
        Ok(())
    }

    /// Words past the end go before their extents come, or an extent might have the place of another.
    fn erase_stale<M: Medium>(&mut self, medium: &mut Metered<M>) -> Result<()> {
        if self.stale.is_empty() {
            return Ok(());
        }
        for &extent in &self.stale {
            let at = ExtentMap::word_at(self.geometry, extent);
            write_aside(medium, at, &[0; 8])?;
        }
        medium.fence()?;
        self.stale.clear();
        Ok(())
    }

    /// Makes an extent zero, durably, before a word says what it is.
    fn zero<M: Medium>(&self, medium: &mut Metered<M>, extent: u64) -> Result<()> {
        let bytes = self.geometry.extent_bytes();
        let zeros = vec![0; CHUNK.min(bytes)];
        let at = extent * bytes as u64;
        for start in (0..bytes).step_by(zeros.len()) {
            let len = zeros.len().min(bytes - start);
            write_aside(medium, at + start as u64, &zeros[..len])?;
        }
        medium.fence()
    }

    /// Reads bytes of a stream; what it does not reach reads as zero.
    pub(super) fn read<M: Medium>(
        &self,
        medium: &Metered<M>,
        stream: Stream,
        offset: u64,
        into: &mut [u8],
    ) -> Result<()> {
        for (at, len) in self.pieces(offset, into.len()) {
            let start = (at - offset) as usize;
            let into = &mut into[start..start + len];
            match self.at(stream, at) {
                Some(at) => medium.read(at, into)?,
                None => into.fill(0),
            }
        }
        Ok(())
    }

    /// The bytes themselves, where the medium is memory and they lie in one extent.
    pub(super) fn view<'a, M: Medium>(
        &self,
        medium: &'a Metered<M>,
        stream: Stream,
        offset: u64,
        len: usize,
    ) -> Option<&'a [u8]> {
        self.pieces(offset, len).nth(1).is_none().then_some(())?;
        medium.view(self.at(stream, offset)?, len)
    }

    /// Posts a write to a stream, which reaches as far from now on.
    pub(super) fn write<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        stream: Stream,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        self.reach(medium, stream, offset, bytes.len())?;
        for (at, len) in self.pieces(offset, bytes.len()) {
            let start = (at - offset) as usize;
            if let Some(at) = self.at(stream, at) {
                medium.write(at, &bytes[start..start + len])?;
            }
        }
        Ok(())
    }
}

/// Posts a write of the map amid writes for another cause.
fn write_aside<M: Medium>(medium: &mut Metered<M>, at: Offset, bytes: &[u8]) -> Result<()> {
    let before = medium.cause();
    medium.on(Cause::Journal);
    let written = medium.write(at, bytes);
    medium.on(before);
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinpage_core::crash::Image;

    #[test]
    fn a_word_whose_extent_was_lost_gives_nothing_away() {
        let geometry = Geometry::new(64, 4096).unwrap();
        let mut medium = Metered::new(Image::new(8));
        let mut streams = ExtentMap::create(&mut medium, geometry, 7).unwrap();
        streams.reach(&mut medium, Stream::HOME, 0, 1).unwrap();
        streams.reach(&mut medium, Stream::HOME, 4096, 1).unwrap();
        streams.reach(&mut medium, Stream::HOME, 8192, 1).unwrap();
        // A crash: extents 2 and 3 never came to be, the word of extent 3 is there, that of 2 is not.
        let mut bytes = medium.into_inner().bytes()[..2 * 4096].to_vec();
        bytes[2048 + 16..2048 + 24].fill(0);
        let mut medium = Metered::new(Image::from_bytes(bytes, 8));
        let mut streams = ExtentMap::load(&medium, geometry, 7).unwrap();
        assert_eq!(
            (streams.at(Stream::HOME, 0), streams.at(Stream::HOME, 8192)),
            (Some(4096), None)
        );
        // What was at extent 3 comes to extent 2; then the medium grows over extent 3, and no more.
        streams.reach(&mut medium, Stream::HOME, 8192, 1).unwrap();
        assert_eq!(streams.at(Stream::HOME, 8192), Some(2 * 4096));
        medium.grow(4 * 4096).unwrap();
        let streams = ExtentMap::load(&medium, geometry, 7).unwrap();
        assert_eq!(streams.at(Stream::HOME, 8192), Some(2 * 4096));
    }

    #[test]
    fn an_extent_of_the_table_begins_with_zeros() {
        let geometry = Geometry::new(64, 4096).unwrap();
        let mut medium = Metered::new(Image::from_bytes(vec![9; 3 * 4096], 8));
        let mut streams = ExtentMap::create(&mut medium, geometry, 7).unwrap();
        streams.reach(&mut medium, Stream::TABLE, 0, 8).unwrap();
        streams.reach(&mut medium, Stream::HOME, 0, 8).unwrap();
        let mut bytes = [1; 4096];
        streams.read(&medium, Stream::TABLE, 0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 4096]);
        streams.read(&medium, Stream::HOME, 0, &mut bytes).unwrap();
        assert_eq!(bytes, [9; 4096]);
    }
}
