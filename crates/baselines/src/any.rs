//! Every scheme by its name, the products' and the baselines, for a comparison.
//!
//! * A store says on its medium which scheme made it, so that [`AnyScheme::recover`] needs no name.

use crate::in_place::InPlace;
use crate::{CopyOnWrite, DudeTm, Nvml, PageOverlay, RedoLog, Tables, ThyNvm, UndoLog, dude_tm};
use std::io;
use std::ops::Range;
use twinpage_core::dual_page::{DualPage, PoolLimit};
use twinpage_core::error::{Error, Result};
use twinpage_core::geometry::{Geometry, LINES_PER_PAGE, LineMask, PageId, PageLines};
use twinpage_core::medium::{Cause, Medium};
use twinpage_core::packed::Packed;
use twinpage_core::product::{self, ProductScheme, Stores};
use twinpage_core::scheme::{
    Commit, Damage, Epoch, FoldHints, Idle, Info, Pressure, Recovered, Scheme, Simulated, TableEntry, Traffic,
};
use twinpage_core::{SchemeKind, forward_scheme};

/// How a store of any scheme is made. Each scheme takes from it what it has a use for.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The lines and pages the caller sees. [`SchemeKind::Packed`] cuts the medium into lines 64 times
    /// as large.
    pub geometry: Geometry,
    /// How many derivative pages there may be.
    pub pool: PoolLimit,
    /// Bytes of journal, for a scheme that keeps one.
    pub journal_bytes: u64,
    /// The longest context, in bytes, for a scheme that must know.
    pub context_bytes: u64,
    /// Whether lines have checksums, for the dual page and packed lines over it; if not said, where lines on the medium
    /// are of 4096 bytes or more.
    pub checksums: Option<bool>,
    /// The tables of ThyNVM.
    pub tables: Tables,
    /// How many epochs DudeTM logs before it brings them home, together.
    pub group: u32,
    /// Tells the store from others that were on the same medium; a random number if not given.
    pub id: Option<u64>,
}

impl Setup {
    /// A growing pool, a journal of a mebibyte, contexts of up to a mebibyte.
    #[must_use]
    pub fn new(geometry: Geometry) -> Setup {
        Setup {
            geometry,
            pool: PoolLimit::Grow,
            journal_bytes: 1 << 20,
            context_bytes: 1 << 20,
            checksums: None,
            tables: Tables::default(),
            group: dude_tm::GROUP,
            id: None,
        }
    }

    fn product(&self) -> product::Setup {
        product::Setup {
            geometry: self.geometry,
            pool: self.pool,
            journal_bytes: self.journal_bytes,
            checksums: self.checksums,
            id: self.id,
        }
    }
}

/// Stores of every scheme, for a region: `Options::open_with` of the crate `twinpage`.
#[derive(Clone, Copy, Default, Debug)]
pub struct AllSchemes;

impl Stores for AllSchemes {
    type Scheme<M: Medium + Send + 'static> = AnyScheme<M>;

    fn create<M: Medium + Send + 'static>(
        &self,
        kind: SchemeKind,
        medium: M,
        setup: &product::Setup,
    ) -> Result<AnyScheme<M>> {
        AnyScheme::create(kind, medium, &Setup::from(setup))
    }

    fn recover<M: Medium + Send + 'static>(&self, medium: M) -> Result<(AnyScheme<M>, Recovered)> {
        AnyScheme::recover(medium)
    }
}

impl From<&product::Setup> for Setup {
    fn from(setup: &product::Setup) -> Setup {
        Setup {
            pool: setup.pool,
            journal_bytes: setup.journal_bytes,
            checksums: setup.checksums,
            id: setup.id,
            ..Setup::new(setup.geometry)
        }
    }
}

/// Whether a scheme works on the epoch before while the next one runs: [`Simulated::begin`] does not wait.
#[must_use]
pub fn overlaps(kind: SchemeKind) -> bool {
    kind == SchemeKind::ThyNvm
}

/// Whether a scheme looks at the data it is given: packed lines have checksums.
#[must_use]
pub fn reads_data(kind: SchemeKind) -> bool {
    kind == SchemeKind::Packed
}

/// The derivative pages of a pool with room for this number of pages of 64 lines: below packed lines, pages are 64 times as
/// large.
#[must_use]
pub fn pool_pages(kind: SchemeKind, pages: u64) -> u64 {
    match kind {
        SchemeKind::Packed => pages.div_ceil(LINES_PER_PAGE as u64),
        _ => pages,
    }
}

/// A store of one scheme or another.
#[derive(Debug)]
pub enum AnyScheme<M> {
    /// [`SchemeKind::DualPage`].
    DualPage(Box<DualPage<M>>),
    /// [`SchemeKind::Packed`].
    Packed(Box<Packed<DualPage<M>>>),
    /// [`SchemeKind::UndoLog`].
    UndoLog(Box<UndoLog<M>>),
    /// [`SchemeKind::Nvml`].
    Nvml(Box<Nvml<M>>),
    /// [`SchemeKind::RedoLog`].
    RedoLog(Box<RedoLog<M>>),
    /// [`SchemeKind::DudeTm`].
    DudeTm(Box<DudeTm<M>>),
    /// [`SchemeKind::CopyOnWrite`].
    CopyOnWrite(Box<CopyOnWrite<M>>),
    /// [`SchemeKind::ThyNvm`].
    ThyNvm(Box<ThyNvm<M>>),
    /// [`SchemeKind::PageOverlay`].
    PageOverlay(Box<PageOverlay<M>>),
    /// [`SchemeKind::InPlace`].
    InPlace(Box<InPlace<M>>),
}

/// The same expression, whichever scheme it is.
macro_rules! each {
    ($any:expr, $store:ident => $do:expr) => {
        match $any {
            AnyScheme::DualPage($store) => $do,
            AnyScheme::Packed($store) => $do,
            AnyScheme::UndoLog($store) => $do,
            AnyScheme::Nvml($store) => $do,
            AnyScheme::RedoLog($store) => $do,
            AnyScheme::DudeTm($store) => $do,
            AnyScheme::CopyOnWrite($store) => $do,
            AnyScheme::ThyNvm($store) => $do,
            AnyScheme::PageOverlay($store) => $do,
            AnyScheme::InPlace($store) => $do,
        }
    };
}

impl<M: Medium> AnyScheme<M> {
    /// A new store on `medium`, whatever was there before.
    ///
    /// # Errors
    /// Those of the scheme's own `create`; [`Error::Invalid`] where checksums are asked of a scheme that has none.
    pub fn create(kind: SchemeKind, medium: M, setup: &Setup) -> Result<AnyScheme<M>> {
        let has_checksums = matches!(kind, SchemeKind::DualPage | SchemeKind::Packed);
        if setup.checksums == Some(true) && !has_checksums {
            return Err(Error::Invalid(format!(
                "the scheme {kind} has no checksums of lines: dual-page and packed have"
            )));
        }
        Ok(match kind {
            SchemeKind::DualPage | SchemeKind::Packed => {
                AnyScheme::from(ProductScheme::create(kind, medium, &setup.product())?)
            }
            SchemeKind::UndoLog => {
                AnyScheme::UndoLog(Box::new(UndoLog::create(medium, setup.geometry, setup.id)?))
            }
            SchemeKind::Nvml => AnyScheme::Nvml(Box::new(Nvml::create(medium, setup.geometry, setup.id)?)),
            SchemeKind::DudeTm => {
                let store = DudeTm::create(medium, setup.geometry, setup.group, setup.id)?;
                AnyScheme::DudeTm(Box::new(store))
            }
            SchemeKind::RedoLog => {
                AnyScheme::RedoLog(Box::new(RedoLog::create(medium, setup.geometry, setup.id)?))
            }
            SchemeKind::CopyOnWrite => {
                AnyScheme::CopyOnWrite(Box::new(CopyOnWrite::create(medium, setup.geometry, setup.id)?))
            }
            SchemeKind::ThyNvm => {
                let store = ThyNvm::create(medium, setup.geometry, &setup.tables, setup.id)?;
                AnyScheme::ThyNvm(Box::new(store))
            }
            SchemeKind::PageOverlay => {
                AnyScheme::PageOverlay(Box::new(PageOverlay::create(medium, setup.geometry, setup.id)?))
            }
            SchemeKind::InPlace => AnyScheme::InPlace(Box::new(InPlace::create(
                medium,
                setup.geometry,
                setup.context_bytes,
            )?)),
        })
    }

    /// Which scheme it is.
    pub fn kind(&self) -> SchemeKind {
        match self {
            AnyScheme::DualPage(_) => SchemeKind::DualPage,
            AnyScheme::Packed(_) => SchemeKind::Packed,
            AnyScheme::UndoLog(_) => SchemeKind::UndoLog,
            AnyScheme::Nvml(_) => SchemeKind::Nvml,
            AnyScheme::RedoLog(_) => SchemeKind::RedoLog,
            AnyScheme::DudeTm(_) => SchemeKind::DudeTm,
            AnyScheme::CopyOnWrite(_) => SchemeKind::CopyOnWrite,
            AnyScheme::ThyNvm(_) => SchemeKind::ThyNvm,
            AnyScheme::PageOverlay(_) => SchemeKind::PageOverlay,
            AnyScheme::InPlace(_) => SchemeKind::InPlace,
        }
    }

    /// The medium.
    pub fn medium(&self) -> &M {
        each!(self, store => store.medium())
    }

    /// The medium, and an end to the scheme.
    pub fn into_medium(self) -> M {
        each!(self, store => store.into_medium())
    }
}

impl<M> From<ProductScheme<M>> for AnyScheme<M> {
    fn from(store: ProductScheme<M>) -> AnyScheme<M> {
        match store {
            ProductScheme::DualPage(store) => AnyScheme::DualPage(store),
            ProductScheme::Packed(store) => AnyScheme::Packed(store),
        }
    }
}

impl<M: Medium> AnyScheme<M> {
    /// The checkpoint on `medium`, exactly as its last durable commit left it.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Foreign`] say what is wrong and where; nothing is written then.
    pub fn recover(medium: M) -> Result<(AnyScheme<M>, Recovered)> {
        let mut magic = [0; 8];
        if medium.len() >= 8 {
            medium.read(0, &mut magic)?;
        }
        Ok(match SchemeKind::of_magic(magic) {
            Some(SchemeKind::UndoLog) => {
                let (store, found) = UndoLog::recover(medium)?;
                (AnyScheme::UndoLog(Box::new(store)), found)
            }
            Some(SchemeKind::Nvml) => {
                let (store, found) = Nvml::recover(medium)?;
                (AnyScheme::Nvml(Box::new(store)), found)
            }
            Some(SchemeKind::DudeTm) => {
                let (store, found) = DudeTm::recover(medium)?;
                (AnyScheme::DudeTm(Box::new(store)), found)
            }
            Some(SchemeKind::RedoLog) => {
                let (store, found) = RedoLog::recover(medium)?;
                (AnyScheme::RedoLog(Box::new(store)), found)
            }
            Some(SchemeKind::CopyOnWrite) => {
                let (store, found) = CopyOnWrite::recover(medium)?;
                (AnyScheme::CopyOnWrite(Box::new(store)), found)
            }
            Some(SchemeKind::ThyNvm) => {
                let (store, found) = ThyNvm::recover(medium)?;
                (AnyScheme::ThyNvm(Box::new(store)), found)
            }
            Some(SchemeKind::PageOverlay) => {
                let (store, found) = PageOverlay::recover(medium)?;
                (AnyScheme::PageOverlay(Box::new(store)), found)
            }
            Some(SchemeKind::InPlace) => {
                let (store, found) = InPlace::recover(medium)?;
                (AnyScheme::InPlace(Box::new(store)), found)
            }
            Some(SchemeKind::DualPage | SchemeKind::Packed) | None => {
                let (store, found) = ProductScheme::recover(medium)?;
                (AnyScheme::from(store), found)
            }
        })
    }
}

impl<M: Medium> Scheme for AnyScheme<M> {
    forward_scheme!(each);
}

impl<M: Medium> Idle for AnyScheme<M> {
    fn begin_commit(&mut self, context: &[u8]) -> Result<Commit> {
        each!(self, store => store.begin_commit(context))
    }
    fn end_commit(&mut self, flushed: io::Result<()>) -> Result<Epoch> {
        each!(self, store => store.end_commit(flushed))
    }
    fn traffic(&self) -> Traffic {
        each!(self, store => store.traffic())
    }
    fn give_back(&mut self) -> Result<bool> {
        each!(self, store => store.give_back())
    }
}

impl<M: Medium> Simulated for AnyScheme<M> {
    fn preallocate(&mut self, page: PageId) -> Result<Pressure> {
        each!(self, store => store.preallocate(page))
    }

    fn begin(&mut self, context: &[u8]) -> Result<Epoch> {
        each!(self, store => store.begin(context))
    }

    fn proceed(&mut self, lines: u64) -> Result<bool> {
        each!(self, store => store.proceed(lines))
    }

    fn defer_reclaim(&mut self) {
        each!(self, store => store.defer_reclaim());
    }

    fn shortage(&mut self) -> Option<u64> {
        each!(self, store => store.shortage())
    }

    fn reclaim(&mut self, pages: u64) -> Result<u64> {
        each!(self, store => store.reclaim(pages))
    }

    fn set_cached(&mut self, page: PageId, cached: bool) {
        each!(self, store => store.set_cached(page, cached));
    }

    fn table_entry(&self, page: PageId) -> TableEntry {
        each!(self, store => store.table_entry(page))
    }

    fn table_entries(&self) -> Option<u64> {
        each!(self, store => store.table_entries())
    }

    fn dram_bytes(&self) -> Option<u64> {
        each!(self, store => store.dram_bytes())
    }

    fn writes_first(&self) -> Option<Cause> {
        each!(self, store => store.writes_first())
    }

    fn grows(&self) -> bool {
        each!(self, store => store.grows())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinpage_core::crash::Image;

    #[test]
    fn every_scheme_is_known_by_its_name_and_found_again() {
        for kind in SchemeKind::ALL {
            assert_eq!(kind.name().parse::<SchemeKind>().unwrap(), kind);
            let setup = Setup::new(Geometry::new(64, 8192).unwrap());
            let mut store = AnyScheme::create(kind, Image::new(8), &setup).unwrap();
            let line = PageLines::from(PageId(3), 2, &[9; 64], 64);
            let _ = store.write(line).unwrap();
            store.commit(b"roots").unwrap();
            assert_eq!(store.info().scheme, kind.name());
            let (store, found) = AnyScheme::recover(store.into_medium()).unwrap();
            assert_eq!(
                (store.kind(), found.epoch, &found.context[..]),
                (kind, 1, &b"roots"[..])
            );
            assert!(store.diff(&line).unwrap().is_empty() && store.is_present(line.page));
        }
        let unknown = "two-page".parse::<SchemeKind>().unwrap_err().to_string();
        assert!(
            unknown.contains("dual-page") && unknown.contains("in-place"),
            "{unknown}"
        );
        let foreign = AnyScheme::recover(Image::from_bytes(vec![7; 9000], 8));
        assert!(matches!(foreign, Err(Error::Foreign(_))));
        assert!(matches!(
            AnyScheme::recover(Image::new(8)),
            Err(Error::Foreign(_))
        ));
    }
}
