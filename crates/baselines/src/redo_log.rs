//! The redo log at line grain (DPC 2.1): newer versions of lines go to the log; the record of the
//! commit makes the log the checkpoint; then the lines are written in place, behind the next epoch.
//!
//! * Optimised with an unbounded map, so that a line has one place in the log an epoch.
//! * DHTM's buffer of 64 entries (SSP 5.1) keeps lines that are written again soon out of the log. Here a line is logged
//!   once a commit, as by a buffer without a bound.
//! * `log.rs` has the log, its form and what keeps it right.
//!
//! Volatile state: the map, for each line in the log its number (42 bits) and its place in the log
//! (32 bits).

use super::extent_map::Stream;
use super::log::Log;
use super::store::{LineStore, Store, StoreLayout};
use twinpage_core::SchemeKind;
use twinpage_core::error::Result;
use twinpage_core::geometry::{Geometry, LineMask, PageLines};
use twinpage_core::medium::{Cause, Medium, Path};
use twinpage_core::metered::Metered;
use twinpage_core::scheme::Pressure;

/// Bits of the map after an epoch that wrote that many lines.
#[must_use]
pub fn metadata_bits(lines: u64) -> u64 {
    lines * (crate::undo_log::BITS_PER_LINE + 32)
}

/// A store with a redo log. See the [module](self).
pub type RedoLog<M> = Store<M, Redo>;

impl<M: Medium> RedoLog<M> {
    /// A new store on `medium`, whatever was there before; a random `id` if none is given.
    ///
    /// # Errors
    /// [`twinpage_core::Error::Full`] when not even an empty store fits.
    pub fn create(medium: M, geometry: Geometry, id: Option<u64>) -> Result<RedoLog<M>> {
        Store::create_with(medium, geometry, id, [0; 2])
    }
}

/// The log.
#[derive(Debug)]
pub struct Redo {
    log: Log,
}

impl LineStore for Redo {
    const KIND: SchemeKind = SchemeKind::RedoLog;

    fn load<M: Medium>(medium: &mut Metered<M>, layout: &mut StoreLayout, _: &[u8]) -> Result<Redo> {
        layout.homes_are_there()?;
        let entries = layout.table.record.own;
        let log = Log::load(medium, layout, entries)?;
        Ok(Redo { log })
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
        self.log.read(medium, layout, page, first, into)
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
        (self.log.has(page) & lines).is_empty().then_some(())?;
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
        self.log.write(medium, layout, newer, Cause::Log)?;
        Ok(Pressure::None)
    }

    fn commit<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        context: &[u8],
    ) -> Result<()> {
        self.log.post_homes(medium, layout)?;
        let epoch = layout.table.prepare(context, Vec::new(), self.log.entries());
        layout.publish(medium, &epoch)?;
        medium.waits(Path::Background);
        self.log.committed(medium, layout)
    }
}
