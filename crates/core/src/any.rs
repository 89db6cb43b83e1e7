//! Every scheme by its name, for whoever lets a user choose one.
//!
//! * A store says on its medium which scheme made it, so that [`AnyScheme::recover`] needs no name.

use crate::baseline::in_place::{self, InPlace};
use crate::baseline::{
    CopyOnWrite, Mechanism, PageOverlay, RedoLog, Tables, ThyNvm, UndoLog, copy_on_write, page_overlay,
    redo_log, thynvm, undo_log,
};
use crate::dual_page::{self, DualPage, Options, PoolLimit};
use crate::error::{Error, Result};
use crate::geometry::{Geometry, LINES_PER_PAGE, LineMask, Lines, PageId, Span};
use crate::medium::{Medium, Offset};
use crate::packed::{self, Packed, is_packed};
use crate::scheme::{Damage, Epoch, Info, Recovered, Room, Scheme, Traffic, Wishes};
use crate::source::Capture;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// The schemes there are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchemeKind {
    /// [`DualPage`].
    DualPage,
    /// [`Packed`] lines over [`DualPage`]: for small lines on a disk.
    Packed,
    /// [`UndoLog`].
    UndoLog,
    /// [`RedoLog`].
    RedoLog,
    /// [`CopyOnWrite`].
    CopyOnWrite,
    /// [`ThyNvm`].
    #[serde(rename = "thynvm")]
    ThyNvm,
    /// [`PageOverlay`].
    PageOverlay,
    /// [`InPlace`]: no protection at all.
    InPlace,
}

impl SchemeKind {
    /// All of them, the dual page first.
    pub const ALL: [SchemeKind; 8] = [
        SchemeKind::DualPage,
        SchemeKind::Packed,
        SchemeKind::UndoLog,
        SchemeKind::RedoLog,
        SchemeKind::CopyOnWrite,
        SchemeKind::ThyNvm,
        SchemeKind::PageOverlay,
        SchemeKind::InPlace,
    ];

    /// The name a user types.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SchemeKind::DualPage => "dual-page",
            SchemeKind::Packed => "packed",
            SchemeKind::UndoLog => "undo-log",
            SchemeKind::RedoLog => "redo-log",
            SchemeKind::CopyOnWrite => "copy-on-write",
            SchemeKind::ThyNvm => "thynvm",
            SchemeKind::PageOverlay => "page-overlay",
            SchemeKind::InPlace => "in-place",
        }
    }
}

impl fmt::Display for SchemeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SchemeKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<SchemeKind> {
        let found = SchemeKind::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| {
            let all = SchemeKind::ALL.map(SchemeKind::name).join(", ");
            Error::Invalid(format!("no scheme is called {name:?}: there are {all}"))
        })
    }
}

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
            id: None,
        }
    }

    fn dual_page(&self, geometry: Geometry) -> Options {
        let defaults = Options::new(geometry);
        Options {
            pool: self.pool,
            journal_bytes: self.journal_bytes,
            checksums: self.checksums.unwrap_or(defaults.checksums),
            id: self.id,
            ..defaults
        }
    }

    /// The same for the scheme below packed lines.
    fn below_packed(&self) -> Result<Options> {
        let (line, extent) = (self.geometry.page_bytes(), self.geometry.extent_bytes());
        let extent = extent.next_multiple_of(line * LINES_PER_PAGE);
        Ok(self.dual_page(Geometry::new(line as u32, extent as u32)?))
    }

    fn packed(&self) -> packed::Options {
        packed::Options {
            id: self.id,
            ..packed::Options::default()
        }
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
    /// [`SchemeKind::RedoLog`].
    RedoLog(Box<RedoLog<M>>),
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
            AnyScheme::RedoLog($store) => $do,
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
            SchemeKind::DualPage => AnyScheme::DualPage(Box::new(DualPage::create(
                medium,
                &setup.dual_page(setup.geometry),
            )?)),
            SchemeKind::Packed => {
                let below = DualPage::create(medium, &setup.below_packed()?)?;
                AnyScheme::Packed(Box::new(Packed::create(below, &setup.packed())?))
            }
            SchemeKind::UndoLog => {
                AnyScheme::UndoLog(Box::new(UndoLog::create(medium, setup.geometry, setup.id)?))
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
            AnyScheme::RedoLog(_) => SchemeKind::RedoLog,
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

/// Which scheme made the store on `medium`; the one below for packed lines, of which only the
/// context of a commit tells.
///
/// # Errors
/// [`Error::Foreign`] when none did, [`Error::Io`] when it cannot be read.
pub fn kind_on(medium: &impl Medium) -> Result<SchemeKind> {
    let mut magic = [0; 8];
    if medium.len() >= 8 {
        medium.read(0, &mut magic)?;
    }
    match magic {
        dual_page::MAGIC => Ok(SchemeKind::DualPage),
        undo_log::Undo::MAGIC => Ok(SchemeKind::UndoLog),
        redo_log::Redo::MAGIC => Ok(SchemeKind::RedoLog),
        copy_on_write::Copies::MAGIC => Ok(SchemeKind::CopyOnWrite),
        thynvm::Hybrid::MAGIC => Ok(SchemeKind::ThyNvm),
        page_overlay::Overlays::MAGIC => Ok(SchemeKind::PageOverlay),
        in_place::MAGIC => Ok(SchemeKind::InPlace),
        _ => Err(Error::Foreign("it begins like no store of any scheme".into())),
    }
}

impl<M: Medium> Scheme for AnyScheme<M> {
    type Medium = M;

    fn recover(medium: M) -> Result<(AnyScheme<M>, Recovered)> {
        Ok(match kind_on(&medium)? {
            SchemeKind::DualPage | SchemeKind::Packed => {
                let (store, found) = DualPage::recover(medium)?;
                if is_packed(&found.context) {
                    let (store, found) = Packed::over(store, found)?;
                    return Ok((AnyScheme::Packed(Box::new(store)), found));
                }
                (AnyScheme::DualPage(Box::new(store)), found)
            }
            SchemeKind::UndoLog => {
                let (store, found) = UndoLog::recover(medium)?;
                (AnyScheme::UndoLog(Box::new(store)), found)
            }
            SchemeKind::RedoLog => {
                let (store, found) = RedoLog::recover(medium)?;
                (AnyScheme::RedoLog(Box::new(store)), found)
            }
            SchemeKind::CopyOnWrite => {
                let (store, found) = CopyOnWrite::recover(medium)?;
                (AnyScheme::CopyOnWrite(Box::new(store)), found)
            }
            SchemeKind::ThyNvm => {
                let (store, found) = ThyNvm::recover(medium)?;
                (AnyScheme::ThyNvm(Box::new(store)), found)
            }
            SchemeKind::PageOverlay => {
                let (store, found) = PageOverlay::recover(medium)?;
                (AnyScheme::PageOverlay(Box::new(store)), found)
            }
            SchemeKind::InPlace => {
                let (store, found) = InPlace::recover(medium)?;
                (AnyScheme::InPlace(Box::new(store)), found)
            }
        })
    }

    fn geometry(&self) -> Geometry {
        each!(self, store => store.geometry())
    }

    fn read(&self, page: PageId, first: usize, into: &mut [u8]) -> Result<()> {
        each!(self, store => store.read(page, first, into))
    }

    fn view(&self, page: PageId, first: usize, len: usize) -> Option<&[u8]> {
        each!(self, store => store.view(page, first, len))
    }

    fn place(&self, page: PageId, line: usize) -> Option<Offset> {
        each!(self, store => store.place(page, line))
    }

    fn is_present(&self, page: PageId) -> bool {
        each!(self, store => store.is_present(page))
    }

    fn diff(&self, span: Span<'_>) -> Result<LineMask> {
        each!(self, store => store.diff(span))
    }

    fn write(&mut self, span: Span<'_>, lines: LineMask) -> Result<Room> {
        each!(self, store => store.write(span, lines))
    }

    fn write_capture(&mut self, capture: &Capture, changed: &mut dyn FnMut(LineMask)) -> Result<Room> {
        each!(self, store => store.write_capture(capture, changed))
    }

    fn write_lines(&mut self, page: PageId, lines: Lines<'_>) -> Result<Room> {
        each!(self, store => store.write_lines(page, lines))
    }

    fn wishes(&mut self) -> Result<Wishes> {
        each!(self, store => store.wishes())
    }

    fn expect(&mut self, page: PageId) -> Result<Room> {
        each!(self, store => store.expect(page))
    }

    fn discard(&mut self, pages: Range<PageId>) -> Result<()> {
        each!(self, store => store.discard(pages))
    }

    fn commit(&mut self, context: &[u8]) -> Result<Epoch> {
        each!(self, store => store.commit(context))
    }

    fn begin(&mut self, context: &[u8]) -> Result<Epoch> {
        each!(self, store => store.begin(context))
    }

    fn proceed(&mut self, lines: u64) -> Result<bool> {
        each!(self, store => store.proceed(lines))
    }

    fn abandon(&mut self) {
        each!(self, store => store.abandon());
    }

    fn epoch(&self) -> Epoch {
        each!(self, store => store.epoch())
    }

    fn traffic(&self) -> Traffic {
        each!(self, store => store.traffic())
    }

    fn consolidate(&mut self, pages: u64) -> Result<u64> {
        each!(self, store => store.consolidate(pages))
    }

    fn info(&self) -> Info {
        each!(self, store => store.info())
    }

    fn check(&self) -> Result<Vec<Damage>> {
        each!(self, store => store.check())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::Image;

    #[test]
    fn every_scheme_is_known_by_its_name_and_found_again() {
        for kind in SchemeKind::ALL {
            assert_eq!(kind.name().parse::<SchemeKind>().unwrap(), kind);
            let setup = Setup::new(Geometry::new(64, 8192).unwrap());
            let mut store = AnyScheme::create(kind, Image::new(8), &setup).unwrap();
            let span = Span {
                page: PageId(3),
                first: 2,
                bytes: &[9; 64],
            };
            let _ = store.write(span, LineMask::run(2, 1)).unwrap();
            store.commit(b"roots").unwrap();
            assert_eq!(store.info().scheme, kind.name());
            let (store, found) = AnyScheme::recover(store.into_medium()).unwrap();
            assert_eq!(
                (store.kind(), found.epoch, &found.context[..]),
                (kind, 1, &b"roots"[..])
            );
            assert!(store.diff(span).unwrap().is_empty() && store.is_present(span.page));
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
