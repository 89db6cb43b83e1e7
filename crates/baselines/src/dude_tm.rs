//! DudeTM (ASPLOS 2017; DPC 5.3): transactions run on a shadow in DRAM and are durable once their redo log is; a log
//! of many is brought home at once, in the background.
//!
//! ```text
//! perform:    in the caller's memory, which is the shadow
//! persist:    | epoch 1 | epoch 2 | ... | epoch n |         one log for a group of epochs (stream 4 or 5)
//! reproduce:  the group's lines go home, each in its newest version alone; then the other log begins
//! ```
//!
//! * Its durable id is the number of the last durable epoch: a section is acknowledged when that reaches its own.
//! * A line has one entry an epoch, which writing it again in the epoch writes again. An entry of a commit is never
//!   written over while its group is not home.
//! * The record of a commit says which group the log is of, and how many entries it has; all of them are valid then.
//! * A log is kept until a commit of the next group is durable, and with it every line that was sent home. Sending home
//!   may be repeated.
//! * A page that is not there keeps its entries, which mean nothing; when it comes back, those lines are logged that
//!   are not zero.
//! * Where there is no room at home the group goes on, and its next commit tries again.
//!
//! Volatile state: for each line in the log its number and its place there.

use super::extent_map::Stream;
use super::fault::Fault;
use super::log::{HEAD, decode_entry, encode_entry};
use super::page_table::damaged;
use super::store::{LineStore, Store, StoreLayout};
use std::collections::BTreeMap;
use twinpage_core::SchemeKind;
use twinpage_core::error::{Error, Result};
use twinpage_core::geometry::{Geometry, LINES_PER_PAGE, LineMask, PageLines};
use twinpage_core::medium::{Cause, Medium, Path};
use twinpage_core::metered::Metered;
use twinpage_core::scheme::Pressure;

/// Epochs of a group, where nothing else is asked for.
pub const GROUP: u32 = 16;

/// A store in the way of DudeTM. See the [module](self).
pub type DudeTm<M> = Store<M, Dude>;

impl<M: Medium> DudeTm<M> {
    /// A new store on `medium`, whatever was there before, whose log is brought home after that many epochs; a random `id`
    /// if none is given.
    ///
    /// # Errors
    /// [`Error::Full`] when not even an empty store fits; [`Error::Invalid`] for a group of no epoch.
    pub fn create(medium: M, geometry: Geometry, group: u32, id: Option<u64>) -> Result<DudeTm<M>> {
        if group == 0 {
            return Err(Error::Invalid("a group of 0 epochs: expected 1 or more".into()));
        }
        Store::create_with(medium, geometry, id, [group.into(), 0])
    }
}

/// Lines of a page in the log.
#[derive(Debug)]
struct LoggedLines {
    lines: LineMask,
    /// Of those, the lines that the epoch in progress wrote.
    fresh: LineMask,
    /// The newest entry of each.
    entries: Box<[u32; LINES_PER_PAGE]>,
}

/// The log of the group.
#[derive(Debug, Default)]
pub struct Dude {
    pages: BTreeMap<u64, LoggedLines>,
    /// Pages that the epoch in progress wrote.
    fresh: Vec<u64>,
    group: u32,
    /// Of the log.
    entries: u32,
    /// Commits of the group.
    epochs: u32,
    buffer: Vec<u8>,
}

fn stream(layout: &StoreLayout, group: u32) -> Stream {
    match layout.faulty(Fault::OneLog) {
        true => Stream::OWN,
        false => Stream::OWN.of_epoch(group.into()),
    }
}

/// Where an entry begins in its log.
fn place(layout: &StoreLayout, entry: u32) -> u64 {
    u64::from(entry) * (HEAD + layout.line_bytes()) as u64
}

impl Dude {
    /// The log of the newest commit.
    fn load_log<M: Medium>(&mut self, medium: &mut Metered<M>, layout: &StoreLayout) -> Result<()> {
        let stream = stream(layout, self.group);
        if place(layout, self.entries) > layout.streams.len(stream) {
            let why = format!("{} entries do not fit into it", self.entries);
            return Err(damaged("log", 0, why));
        }
        let mut entry = vec![0; HEAD + layout.line_bytes()];
        medium.on(Cause::Log);
        for index in 0..self.entries {
            let at = place(layout, index);
            layout.streams.read(medium, stream, at, &mut entry)?;
            let Some((page, line)) = decode_entry(layout, self.group.into(), &entry) else {
                let at = layout.streams.at(stream, at).unwrap_or(at);
                let why = format!("the checksum of entry {index} does not fit");
                return Err(damaged("log", at, why));
            };
            // A page that was discarded has no line to bring home.
            if layout.table.get(page) != 0 {
                let places = self.places(page);
                places.lines = places.lines | LineMask::run(line, 1);
                places.entries[line] = index;
            }
        }
        Ok(())
    }

    fn places(&mut self, page: u64) -> &mut LoggedLines {
        self.pages.entry(page).or_insert_with(|| LoggedLines {
            lines: LineMask::NONE,
            fresh: LineMask::NONE,
            entries: Box::new([0; LINES_PER_PAGE]),
        })
    }

    /// Posts entries one after the other, from entry `first` on.
    fn put<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        newer: PageLines<'_>,
        lines: impl IntoIterator<Item = usize>,
        first: u32,
    ) -> Result<()> {
        let group = self.group.into();
        self.buffer.clear();
        for line in lines {
            encode_entry(
                layout,
                group,
                newer.page.0,
                line,
                newer.line(line),
                &mut self.buffer,
            );
        }
        let (stream, at) = (stream(layout, self.group), place(layout, first));
        layout.streams.write(medium, stream, at, &self.buffer)
    }

    /// Replaces lines of `into`, which begins at line `first`, by their versions in the log.
    fn read_log<M: Medium>(
        &self,
        medium: &Metered<M>,
        layout: &StoreLayout,
        page: u64,
        first: usize,
        into: &mut [u8],
    ) -> Result<()> {
        let Some(places) = self.pages.get(&page) else {
            return Ok(());
        };
        let line_bytes = layout.line_bytes();
        let wanted = LineMask::run(first, into.len() / line_bytes);
        for line in (places.lines & wanted).runs().flatten() {
            let at = place(layout, places.entries[line]) + HEAD as u64;
            let into = &mut into[(line - first) * line_bytes..][..line_bytes];
            layout
                .streams
                .read(medium, stream(layout, self.group), at, into)?;
        }
        Ok(())
    }

    /// Posts the newest version of every line of the log to its home. The next commit is of another group.
    fn reproduce<M: Medium>(&mut self, medium: &mut Metered<M>, layout: &mut StoreLayout) -> Result<()> {
        medium.on(Cause::WriteBack);
        let line_bytes = layout.line_bytes();
        let mut bytes = Vec::new();
        for (&page, places) in &self.pages {
            if layout.table.get(page) == 0 || layout.faulty(Fault::LeaveInLog) {
                continue;
            }
            for run in places.lines.runs() {
                bytes.resize(run.len() * line_bytes, 0);
                self.read_log(medium, layout, page, run.start, &mut bytes)?;
                layout.write_home(medium, page, run.start, &bytes)?;
            }
        }
        self.pages.clear();
        self.fresh.clear();
        (self.group, self.entries, self.epochs) = (self.group.wrapping_add(1), 0, 0);
        Ok(())
    }
}

impl LineStore for Dude {
    const KIND: SchemeKind = SchemeKind::DudeTm;

    fn load<M: Medium>(medium: &mut Metered<M>, layout: &mut StoreLayout, _: &[u8]) -> Result<Dude> {
        layout.homes_are_there()?;
        let own = layout.table.record.own;
        let mut dude = Dude {
            group: (own >> 32) as u32,
            entries: own as u32,
            ..Dude::default()
        };
        dude.load_log(medium, layout)?;
        match dude.reproduce(medium, layout) {
            Ok(()) | Err(Error::Full { .. }) => Ok(dude),
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
        self.read_log(medium, layout, page, first, into)
    }

    fn view<'a, M: Medium>(
        &'a self,
        medium: &'a Metered<M>,
        layout: &'a StoreLayout,
        page: u64,
        first: usize,
        len: usize,
    ) -> Option<&'a [u8]> {
        let lines = LineMask::run(first, len / layout.line_bytes());
        let logged = self
            .pages
            .get(&page)
            .map_or(LineMask::NONE, |places| places.lines);
        (logged & lines).is_empty().then_some(())?;
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
        medium.on(Cause::Log);
        let logged = self
            .pages
            .get(&newer.page.0)
            .map_or(LineMask::NONE, |places| places.fresh);
        for line in (newer.changed & logged).runs().flatten() {
            let entry = self.pages[&newer.page.0].entries[line];
            self.put(medium, layout, newer, [line], entry)?;
        }
        let fresh = newer.changed & !logged;
        if fresh.is_empty() {
            return Ok(Pressure::None);
        }
        let first = self.entries;
        self.put(medium, layout, newer, fresh.runs().flatten(), first)?;
        self.entries += fresh.count() as u32;
        if logged.is_empty() {
            self.fresh.push(newer.page.0);
        }
        let places = self.places(newer.page.0);
        places.lines = places.lines | fresh;
        places.fresh = places.fresh | fresh;
        for (line, entry) in fresh.runs().flatten().zip(first..) {
            places.entries[line] = entry;
        }
        Ok(Pressure::None)
    }

    fn commit<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        context: &[u8],
    ) -> Result<()> {
        let own = u64::from(self.group) << 32 | u64::from(self.entries);
        let epoch = layout.table.prepare(context, Vec::new(), own);
        layout.publish(medium, &epoch)?;
        for page in self.fresh.drain(..) {
            if let Some(places) = self.pages.get_mut(&page) {
                places.fresh = LineMask::NONE;
            }
        }
        self.epochs += 1;
        if u64::from(self.epochs) < layout.header.params[0] {
            return Ok(());
        }
        medium.waits(Path::Background);
        match self.reproduce(medium, layout) {
            // The next commit tries again.
            Err(Error::Full { .. }) => Ok(()),
            other => other.map_err(Error::poisoned),
        }
    }
}
