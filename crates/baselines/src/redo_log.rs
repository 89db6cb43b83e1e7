//! The redo log at line grain (DPC 2.1): newer versions of lines go to the log; the record of the
//! commit makes the log the checkpoint; then the lines are written in place, behind the next epoch.
//!
//! * Optimised with an unbounded map, so that a line has one place in the log an epoch.
//! * `log.rs` has the log, its form and what keeps it right.
//!
//! Volatile state: the map, for each line in the log its number (42 bits) and its place in the log
//! (32 bits).

use super::lanes::Lane;
use super::log::Log;
use super::store::{Ground, LineStore, Store};
use twinpage_core::SchemeKind;
use twinpage_core::error::Result;
use twinpage_core::geometry::{Geometry, LineMask, PageLines};
use twinpage_core::medium::{Cause, Medium, Path};
use twinpage_core::metered::Metered;
use twinpage_core::scheme::Room;

/// Bits of the map after an epoch that wrote so many lines.
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
    const MAGIC: [u8; 8] = *b"redolog1";

    fn load<M: Medium>(medium: &mut Metered<M>, ground: &mut Ground, _: &[u8]) -> Result<Redo> {
        ground.homes_are_there()?;
        let entries = ground.book.record.own;
        let log = Log::load(medium, ground, entries)?;
        Ok(Redo { log })
    }

    fn read<M: Medium>(
        &self,
        medium: &Metered<M>,
        ground: &Ground,
        page: u64,
        first: usize,
        into: &mut [u8],
    ) -> Result<()> {
        ground.read_home(medium, page, first, into)?;
        self.log.read(medium, ground, page, first, into)
    }

    fn view<'a, M: Medium>(
        &'a self,
        medium: &'a Metered<M>,
        ground: &'a Ground,
        page: u64,
        first: usize,
        len: usize,
    ) -> Option<&'a [u8]> {
        let lines = LineMask::run(first, len / ground.line_bytes());
        (self.log.has(page) & lines).is_empty().then_some(())?;
        ground
            .lanes
            .view(medium, Lane::HOME, ground.line(page, first), len)
    }

    fn write<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        ground: &mut Ground,
        newer: PageLines<'_>,
    ) -> Result<Room> {
        self.log.write(medium, ground, newer, Cause::Log)?;
        Ok(Room::Plenty)
    }

    fn commit<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        ground: &mut Ground,
        context: &[u8],
    ) -> Result<()> {
        self.log.post_homes(medium, ground)?;
        let epoch = ground.book.prepare(context, Vec::new(), self.log.entries());
        ground.publish(medium, &epoch)?;
        medium.waits(Path::Background);
        self.log.committed(medium, ground)
    }
}
