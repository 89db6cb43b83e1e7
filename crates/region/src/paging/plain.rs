//! All pages of a region at once, when it is opened: where no kernel tells of page faults (Miri, and the
//! thread sanitizer's windows of plain memory).

use crate::epochs::Progress;
use crate::error::Result;
use crate::store::Store;
use crate::window::{PAGE, Place};
use std::ops::Range;
use std::sync::Arc;

/// Pages brought and taken since a region was opened: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Paging {
    /// Pages of 4 KiB read from the store.
    pub loaded_pages: u64,
    /// Pages that went to stay within the budget.
    pub evicted_pages: u64,
    /// Pages in memory that were brought.
    pub resident_pages: u64,
}

/// There is none: a window's pager is never set.
pub(crate) enum Pager {}

/// All is there.
pub(crate) struct Serving {
    paging: Paging,
}

impl Pager {
    pub(crate) fn start(
        place: Place,
        bytes: usize,
        store: Box<dyn Store>,
        _progress: Arc<Progress>,
        _budget: Option<usize>,
        _ask: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Serving> {
        let mut paging = Paging::default();
        let mut page = [0; PAGE];
        for at in (0..bytes).step_by(PAGE).filter(|&at| store.has_bytes(at)) {
            store.read_bytes(at, &mut page)?;
            // SAFETY: the region has so many bytes, and nobody uses it yet.
            unsafe { place.base().add(at).copy_from_nonoverlapping(page.as_ptr(), PAGE) };
            paging.loaded_pages += 1;
            paging.resident_pages += 1;
        }
        Ok(Serving { paging })
    }

    pub(crate) fn takes_away(&self) -> bool {
        match *self {}
    }

    pub(crate) fn adopt(&self, _range: Range<usize>) -> Result<()> {
        match *self {}
    }

    pub(crate) fn discard<E>(&self, _: Range<usize>, _: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        match *self {}
    }

    pub(crate) fn cut(&self) {
        match *self {}
    }

    pub(crate) fn landed(&self) {
        match *self {}
    }

    pub(crate) fn lost(&self) {
        match *self {}
    }
}

impl Serving {
    pub(crate) fn kernel_waits(&self) -> bool {
        true
    }

    pub(crate) fn paging(&self) -> Paging {
        self.paging
    }
}

/// Pages never go.
pub(crate) fn set_in_flight(_: Place, _: usize) {}

/// As above.
pub(crate) fn end_flight(_: Place, _: usize) {}
