//! The in-place scheme: no protection. Every line has one home and is written there, so a crash in
//! the middle of an epoch leaves a mixture. It is here to measure what protection costs.
//!
//! ```text
//! page 0           header at 0, state at 512
//! then             the context, up to the size chosen when the store is made
//! then, repeated   one page of bits, which of the pages after it hold something | 8 * page bytes pages
//! ```
//!
//! * The state says whether an epoch is open. It is posted before the first write of an epoch and
//!   durable, closed again, with its commit. Recovery refuses a store with an open epoch.
//! * Posting the open state has no fence of its own: when the program alone dies it is always seen;
//!   when the machine does, a mixture may go unnoticed.

use crc32c::crc32c;
use std::collections::{BTreeSet, HashMap};
use std::mem::offset_of;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use twinpage_core::SchemeKind;
use twinpage_core::buffer::Buffer;
use twinpage_core::compare::{differing_from_newest, nonzero_lines};
use twinpage_core::error::{Error, Result};
use twinpage_core::geometry::{Geometry, LINES_PER_PAGE, LineMask, PageId, PageLines};
use twinpage_core::medium::{Cause, Medium, Offset, Path};
use twinpage_core::metered::Metered;
use twinpage_core::record::{self, Record};
use twinpage_core::scheme::{
    Damage, Epoch, Idle, Info, PoolInfo, Pressure, Recovered, Simulated, TableEntry, Traffic,
};
use twinpage_core::shell::{Mechanism, Shell};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

const MAGIC: [u8; 8] = SchemeKind::InPlace.magic();
const VERSION: u32 = 1;
const STATE_AT: Offset = 512;
/// Bytes of the header and of the state, checksums included.
const BLOCK: usize = 40;
/// The highest page; a byte's offset stays within 63 bits.
const PAGE_LIMIT: u64 = 1 << 40;

/// The bytes of the header.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    line_bytes: U32,
    version: U32,
    extent_bytes: U64,
    context_limit: U64,
    crc: U32,
    reserved: U32,
}

/// The bytes of the state.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy)]
#[repr(C)]
struct RawState {
    epoch: U64,
    open: U64,
    context_len: U64,
    context_crc: U32,
    pages: U32,
    crc: U32,
    reserved: U32,
}

const _: () = assert!(size_of::<RawHeader>() == BLOCK && size_of::<RawState>() == BLOCK);

impl Record for RawHeader {
    const SUM_AT: usize = offset_of!(RawHeader, crc);
}

impl Record for RawState {
    const SUM_AT: usize = offset_of!(RawState, crc);
}

/// The content of the state.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct State {
    epoch: Epoch,
    open: bool,
    context_len: u64,
    context_crc: u32,
    /// How many pages hold something.
    pages: u32,
}

impl State {
    fn encode(self) -> RawState {
        let raw = RawState {
            epoch: self.epoch.into(),
            open: u64::from(self.open).into(),
            context_len: self.context_len.into(),
            context_crc: self.context_crc.into(),
            pages: self.pages.into(),
            crc: U32::ZERO,
            reserved: U32::ZERO,
        };
        record::seal(raw, &[], 0)
    }

    fn decode(raw: &RawState) -> Option<State> {
        record::verify(raw, &[], 0).ok()?;
        (raw.reserved == U32::ZERO).then(|| State {
            epoch: raw.epoch.get(),
            open: raw.open != U64::ZERO,
            context_len: raw.context_len.get(),
            context_crc: raw.context_crc.get(),
            pages: raw.pages.get(),
        })
    }
}

/// The scheme, on its medium. See the [module](self).
#[derive(Debug)]
pub struct InPlace<M> {
    medium: Metered<M>,
    shell: Shell,
    geometry: Geometry,
    context_limit: u64,
    state: State,
    /// Which pages hold something: 64 to a word, words without any left out.
    present: HashMap<u64, u64>,
    /// How many they are.
    pages: u32,
    /// Words that changed in this epoch.
    changed: BTreeSet<u64>,
    scratch: Mutex<Buffer>,
}

impl<M: Medium> InPlace<M> {
    /// A new store on `medium`, whatever was there before, for contexts of at most `context_limit` bytes.
    ///
    /// # Errors
    /// [`Error::Full`] when not even an empty store fits.
    pub fn create(mut medium: M, geometry: Geometry, context_limit: u64) -> Result<InPlace<M>> {
        let page = geometry.page_bytes() as u64;
        let context_limit = context_limit.next_multiple_of(page);
        medium.grow(page + context_limit)?;
        let header = RawHeader {
            magic: MAGIC,
            line_bytes: (geometry.line_bytes() as u32).into(),
            version: VERSION.into(),
            extent_bytes: (geometry.extent_bytes() as u64).into(),
            context_limit: context_limit.into(),
            crc: U32::ZERO,
            reserved: U32::ZERO,
        };
        medium.write(0, record::seal(header, &[], 0).as_bytes())?;
        let mut store = InPlace::new(medium, geometry, context_limit, State::default());
        for group in 0..store.groups() {
            let bits = store.bits_at(group * store.group_pages());
            store.medium.write(bits, &vec![0; page as usize])?;
        }
        store.medium.write(STATE_AT, store.state.encode().as_bytes())?;
        store.medium.fence()?;
        store.medium = Metered::new(store.medium.into_inner());
        Ok(store)
    }

    fn new(medium: M, geometry: Geometry, context_limit: u64, state: State) -> InPlace<M> {
        InPlace {
            medium: Metered::new(medium),
            shell: Shell::new(geometry, PAGE_LIMIT, context_limit),
            geometry,
            context_limit,
            state,
            present: HashMap::new(),
            pages: 0,
            changed: BTreeSet::new(),
            scratch: Mutex::default(),
        }
    }

    /// The medium.
    pub fn medium(&self) -> &M {
        self.medium.inner()
    }

    /// The medium, and an end to the scheme.
    pub fn into_medium(self) -> M {
        self.medium.into_inner()
    }

    /// Pages between two pages of bits.
    fn group_pages(&self) -> u64 {
        8 * self.geometry.page_bytes() as u64
    }

    /// Groups that have their page of bits on the medium.
    fn groups(&self) -> u64 {
        let page = self.geometry.page_bytes() as u64;
        let pages = self.medium.len().saturating_sub(page + self.context_limit) / page;
        pages.div_ceil(self.group_pages() + 1)
    }

    /// Where the bits of the group of a page lie.
    fn bits_at(&self, page: u64) -> Offset {
        let page_bytes = self.geometry.page_bytes() as u64;
        let pages = page / self.group_pages() * (self.group_pages() + 1);
        page_bytes + self.context_limit + pages * page_bytes
    }

    /// Where a line lies.
    fn at(&self, page: PageId, line: usize) -> Offset {
        let index = 1 + page.0 % self.group_pages();
        let page_at = self.bits_at(page.0) + index * self.geometry.page_bytes() as u64;
        page_at + (line * self.geometry.line_bytes()) as u64
    }

    fn set_present(&mut self, page: PageId, there: bool) {
        let (word, bit) = (page.0 / 64, 1 << (page.0 % 64));
        let bits = self.present.entry(word).or_default();
        *bits = if there { *bits | bit } else { *bits & !bit };
        self.pages = if there { self.pages + 1 } else { self.pages - 1 };
        self.changed.insert(word);
    }

    /// The first write of an epoch says that it is open.
    fn open(&mut self) -> Result<()> {
        if !self.state.open {
            self.state.open = true;
            let before = self.medium.waits(Path::Background);
            self.post(STATE_AT, self.state.encode().as_bytes(), Cause::Journal)?;
            self.medium.waits(before);
        }
        Ok(())
    }

    /// Posts a write and counts it.
    fn post(&mut self, at: Offset, bytes: &[u8], cause: Cause) -> Result<()> {
        self.medium.on(cause);
        self.medium.write(at, bytes)
    }

    /// Makes lines of a page zero that hold something else.
    fn zero_rest(&mut self, page: PageId, lines: LineMask) -> Result<()> {
        let mut bytes = vec![0; self.geometry.page_bytes()];
        self.medium.on(Cause::Data);
        self.medium.read(self.at(page, 0), &mut bytes)?;
        let line = self.geometry.line_bytes();
        let dirty = lines & LineMask(nonzero_lines(&bytes, line));
        bytes.fill(0);
        for run in dirty.runs() {
            let zeros = &bytes[run.start * line..run.end * line];
            self.post(self.at(page, run.start), zeros, Cause::Data)?;
        }
        Ok(())
    }

    fn read_context(&self) -> Result<Vec<u8>> {
        let at = self.geometry.page_bytes() as u64;
        let State {
            context_len,
            context_crc,
            ..
        } = self.state;
        let end = at
            .checked_add(context_len)
            .filter(|&end| context_len <= self.context_limit && end <= self.medium.len());
        if end.is_none() {
            let why = format!(
                "{context_len} bytes, the store was made for {}",
                self.context_limit
            );
            return Err(Error::Damaged {
                what: "context",
                at,
                why,
            });
        }
        let mut context = vec![0; context_len as usize];
        self.medium.read(at, &mut context)?;
        let crc = crc32c(&context);
        if crc != context_crc {
            let why = format!("checksum {crc:08x}, its commit says {context_crc:08x}");
            return Err(Error::Damaged {
                what: "context",
                at,
                why,
            });
        }
        Ok(context)
    }

    /// Which pages are there.
    fn read_present(&mut self) -> Result<()> {
        let mut bits = vec![0; self.geometry.page_bytes()];
        for group in 0..self.groups() {
            let first = group * self.group_pages();
            self.medium.read(self.bits_at(first), &mut bits)?;
            for (index, word) in bits.as_chunks::<8>().0.iter().enumerate() {
                let word = u64::from_le_bytes(*word);
                if word != 0 {
                    self.present.insert(first / 64 + index as u64, word);
                }
            }
        }
        let pages: u64 = self
            .present
            .values()
            .map(|bits| u64::from(bits.count_ones()))
            .sum();
        let last = self
            .present
            .iter()
            .map(|(word, bits)| word * 64 + 63 - u64::from(bits.leading_zeros()))
            .max();
        let end = last.map_or(0, |page| self.at(PageId(page), LINES_PER_PAGE));
        self.pages = self.state.pages;
        if pages != self.pages.into() || end > self.medium.len() {
            let why = format!("{pages} pages up to byte {end}, its commit says {}", self.pages);
            return Err(Error::Damaged {
                what: "medium",
                at: self.medium.len(),
                why,
            });
        }
        Ok(())
    }
}

fn read_raw<R: Record + FromZeros>(medium: &impl Medium, at: Offset) -> Result<R> {
    let mut raw = R::new_zeroed();
    medium.read(at, raw.as_mut_bytes())?;
    Ok(raw)
}

impl<M: Medium> InPlace<M> {
    /// The checkpoint on `medium`, if no epoch was open when its program stopped.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Foreign`] say what is wrong and where.
    pub fn recover(medium: M) -> Result<(InPlace<M>, Recovered)> {
        if medium.len() < STATE_AT + BLOCK as u64 {
            return Err(Error::Foreign(format!(
                "{} bytes are too few for an in-place store",
                medium.len()
            )));
        }
        let header: RawHeader = read_raw(&medium, 0)?;
        if header.magic != MAGIC {
            return Err(Error::Foreign("it is no in-place store".into()));
        }
        let damaged = |what, at, why: &str| Error::Damaged {
            what,
            at,
            why: why.into(),
        };
        if record::verify(&header, &[], 0).is_err() || header.reserved != U32::ZERO {
            return Err(damaged("header", 0, "its checksum does not fit"));
        }
        if header.version.get() != VERSION {
            return Err(Error::Foreign(format!(
                "in-place format version {}, this build reads {VERSION}",
                header.version
            )));
        }
        let extent = u32::try_from(header.extent_bytes.get()).unwrap_or(0);
        let geometry = Geometry::new(header.line_bytes.get(), extent)
            .map_err(|error| damaged("header", 0, &error.to_string()))?;
        let context_limit = header.context_limit.get();
        if context_limit
            .checked_add(geometry.page_bytes() as u64)
            .is_none_or(|end| end > medium.len())
        {
            return Err(damaged("medium", medium.len(), "it ends within the context"));
        }
        let Some(state) = State::decode(&read_raw(&medium, STATE_AT)?) else {
            return Err(damaged("state", STATE_AT, "its checksum does not fit"));
        };
        if state.open {
            let why = format!(
                "the program stopped in epoch {}, and the in-place scheme keeps no second version to go back to",
                state.epoch + 1
            );
            return Err(Error::Damaged {
                what: "in-place store",
                at: STATE_AT,
                why,
            });
        }
        let mut store = InPlace::new(medium, geometry, context_limit, state);
        store.read_present()?;
        let context = store.read_context()?;
        Ok((
            store,
            Recovered {
                epoch: state.epoch,
                context,
            },
        ))
    }
}

impl<M: Medium> Mechanism for InPlace<M> {
    const CAN_ABANDON: bool = false;

    fn shell(&self) -> &Shell {
        &self.shell
    }

    fn shell_mut(&mut self) -> &mut Shell {
        &mut self.shell
    }

    fn prepare(&mut self, path: Path) -> Result<()> {
        self.medium.waits(path);
        Ok(())
    }

    fn read_newest(&self, page: PageId, first: usize, into: &mut [u8]) -> Result<()> {
        match self.has_page(page) {
            true => self.medium.read(self.at(page, first), into),
            false => {
                into.fill(0);
                Ok(())
            }
        }
    }

    fn view_newest(&self, page: PageId, first: usize, len: usize) -> Option<&[u8]> {
        self.has_page(page).then_some(())?;
        self.medium.view(self.at(page, first), len)
    }

    fn has_page(&self, page: PageId) -> bool {
        self.present
            .get(&(page.0 / 64))
            .is_some_and(|bits| bits >> (page.0 % 64) & 1 == 1)
    }

    fn diff_newest(&self, page: PageId, first: usize, bytes: &[u8]) -> Result<LineMask> {
        differing_from_newest(self, page, first, bytes, || {
            self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
        })
    }

    fn write_newest(&mut self, lines: PageLines<'_>) -> Result<Pressure> {
        self.open()?;
        let page = lines.page;
        let end = self.at(page, LINES_PER_PAGE);
        if end > self.medium.len() {
            self.medium
                .grow(end.next_multiple_of(self.geometry.extent_bytes() as u64))?;
        }
        self.medium.on(Cause::Data);
        let at = self.at(page, 0);
        self.medium.write_lines(at, lines.changed, &lines)?;
        if !self.has_page(page) {
            self.zero_rest(page, !lines.changed)?;
            self.set_present(page, true);
        }
        Ok(Pressure::None)
    }

    fn discard_pages(&mut self, pages: Range<PageId>) -> Result<()> {
        self.open()?;
        let words = pages.start.0 / 64..pages.end.0.div_ceil(64);
        let known: Vec<u64> = self
            .present
            .keys()
            .copied()
            .filter(|word| words.contains(word))
            .collect();
        for page in known
            .into_iter()
            .flat_map(|word| word * 64..word * 64 + 64)
            .map(PageId)
        {
            if pages.contains(&page) && self.has_page(page) {
                self.set_present(page, false);
            }
        }
        Ok(())
    }

    fn commit_epoch(&mut self, context: &[u8]) -> Result<Epoch> {
        self.open()?;
        let at = self.geometry.page_bytes() as u64;
        self.post(at, context, Cause::Context)?;
        for word in std::mem::take(&mut self.changed) {
            let at = self.bits_at(word * 64) + word * 64 % self.group_pages() / 8;
            let bits = self.present.get(&word).copied().unwrap_or_default();
            self.post(at, &bits.to_le_bytes(), Cause::Journal)?;
        }
        self.medium.fence()?;
        let context_len = context.len() as u64;
        let epoch = self.state.epoch + 1;
        let state = State {
            epoch,
            open: false,
            context_len,
            context_crc: crc32c(context),
            pages: self.pages,
        };
        self.post(STATE_AT, state.encode().as_bytes(), Cause::Journal)?;
        self.medium.fence()?;
        self.state = state;
        Ok(epoch)
    }

    /// There is no other version to go back to: an epoch with anything written poisons the store.
    fn forget_epoch(&mut self) -> Result<()> {
        match self.state.open {
            true => Err(Error::Invalid(
                "an epoch was abandoned, and the in-place scheme keeps no second version".into(),
            )),
            false => Ok(()),
        }
    }

    fn last_epoch(&self) -> Epoch {
        self.state.epoch
    }

    fn written(&self) -> Traffic {
        self.medium.traffic()
    }

    fn describe(&self) -> Info {
        Info {
            scheme: "in-place",
            version: VERSION,
            checksums: false,
            geometry: self.geometry,
            epoch: self.state.epoch,
            pages: self.pages.into(),
            medium_bytes: self.medium.len(),
            context_bytes: self.state.context_len,
            pool: PoolInfo::default(),
            log: None,
            traffic: self.medium.traffic(),
            poison: self.shell.poison().clone(),
        }
    }

    fn find_damage(&self) -> Result<Vec<Damage>> {
        let state = State::decode(&read_raw(&self.medium, STATE_AT)?);
        let mut damage = Vec::new();
        if state != Some(self.state) {
            let why = format!("expected {:?}, found {state:?}", self.state);
            damage.push(Damage {
                what: "state".into(),
                at: STATE_AT,
                why,
            });
        }
        match self.read_context() {
            Ok(_) => Ok(damage),
            Err(Error::Damaged { what, at, why }) => {
                damage.push(Damage {
                    what: what.into(),
                    at,
                    why,
                });
                Ok(damage)
            }
            Err(error) => Err(error),
        }
    }
}

impl<M: Medium> Idle for InPlace<M> {}

impl<M: Medium> Simulated for InPlace<M> {
    fn table_entry(&self, _: PageId) -> TableEntry {
        TableEntry::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinpage_core::Scheme;
    use twinpage_core::crash::Image;

    fn create() -> InPlace<Image> {
        InPlace::create(Image::new(8), Geometry::new(64, 8192).unwrap(), 5000).unwrap()
    }

    fn write(store: &mut InPlace<Image>, page: u64, line: usize, value: u8) {
        assert_eq!(
            store
                .write(PageLines::from(PageId(page), line, &[value; 64], 64))
                .unwrap(),
            Pressure::None
        );
    }

    #[test]
    fn what_was_committed_is_there() {
        let mut store = create();
        for round in 1..5 {
            for page in [0, 1, 63, 64, 40_000] {
                write(&mut store, page, round, round as u8);
            }
            store.discard(PageId(1)..PageId(64)).unwrap();
            write(&mut store, 63, 9, 9);
            store.commit(&vec![round as u8; 1000 * round]).unwrap();
            assert_eq!(store.check().unwrap(), []);
            let (again, recovered) = InPlace::recover(store.into_medium()).unwrap();
            assert_eq!(
                recovered,
                Recovered {
                    epoch: round as u64,
                    context: vec![round as u8; 1000 * round]
                }
            );
            store = again;
            assert_eq!(store.info().pages, 4);
            let mut page = [1; 4096];
            store.read(PageId(63), 0, &mut page).unwrap();
            let mut expected = [0; 4096];
            expected[9 * 64..10 * 64].fill(9);
            assert_eq!(page, expected);
            assert_eq!(
                store
                    .diff(&PageLines::from(PageId(63), 8, &[9; 128], 64))
                    .unwrap(),
                LineMask(1 << 8)
            );
        }
    }

    #[test]
    fn an_open_epoch_is_refused_by_name() {
        let mut store = create();
        store.commit(b"").unwrap();
        write(&mut store, 3, 0, 1);
        let refused = InPlace::recover(store.into_medium()).unwrap_err();
        assert!(refused.to_string().contains("stopped in epoch 2"), "{refused}");
    }

    #[test]
    fn there_is_no_way_back() {
        let mut store = create();
        store.abandon();
        store.commit(b"nothing was open").unwrap();
        write(&mut store, 3, 0, 1);
        store.abandon();
        assert!(matches!(store.commit(b""), Err(Error::Poisoned(_))));
    }

    #[test]
    fn cuts_and_flips_are_refused_or_harmless() {
        let mut store = create();
        write(&mut store, 3, 0, 1);
        store.commit(b"context").unwrap();
        let image = store.into_medium();
        for len in 0..image.bytes().len() {
            let cut = Image::from_bytes(image.bytes()[..len].to_vec(), 8);
            assert!(InPlace::recover(cut).is_err() || len >= 5 * 4096, "{len}");
        }
        for at in (0..BLOCK).chain(512..512 + BLOCK) {
            let mut bytes = image.bytes().to_vec();
            bytes[at] ^= 4;
            assert!(InPlace::recover(Image::from_bytes(bytes, 8)).is_err(), "{at}");
        }
    }
}
