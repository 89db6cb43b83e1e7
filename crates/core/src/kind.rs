//! The names of schemes: what a user types, and what a result is filed under.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// The schemes there are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchemeKind {
    /// [`DualPage`](crate::dual_page::DualPage).
    DualPage,
    /// [`Packed`](crate::packed::Packed) lines over the dual page: for small lines on a disk.
    Packed,
    /// A baseline: the old versions of lines are logged before they are overwritten.
    UndoLog,
    /// A baseline: an undo log with a fence for each range of lines, as NVML's.
    Nvml,
    /// A baseline: new versions of lines are logged, and written home after the commit.
    RedoLog,
    /// A baseline: a shadow in DRAM, and a redo log that goes home by groups of epochs, as DudeTM.
    DudeTm,
    /// A baseline: a page is copied before its first write in an epoch.
    CopyOnWrite,
    /// A baseline: lines and pages at two grains, checkpoints overlapped with execution.
    #[serde(rename = "thynvm")]
    ThyNvm,
    /// A baseline: the changed lines of a page in a segment beside it.
    PageOverlay,
    /// A baseline: no protection at all.
    InPlace,
}

impl SchemeKind {
    /// All of them, the dual page first.
    #[rustfmt::skip]
    pub const ALL: [SchemeKind; 10] = {
        use SchemeKind::{CopyOnWrite, DualPage, DudeTm, InPlace, Nvml, Packed, PageOverlay, RedoLog, ThyNvm, UndoLog};
        [DualPage, Packed, UndoLog, Nvml, RedoLog, DudeTm, CopyOnWrite, ThyNvm, PageOverlay, InPlace]
    };

    /// Those that products use. The others are baselines, which only the benchmarks and the lab link.
    pub const PRODUCTS: [SchemeKind; 2] = [SchemeKind::DualPage, SchemeKind::Packed];

    /// The name a user types.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.names().0
    }

    /// How a store of this scheme begins on its medium. Packed lines lie in a store of the dual page.
    #[must_use]
    pub const fn magic(self) -> [u8; 8] {
        *self.names().1
    }

    const fn names(self) -> (&'static str, &'static [u8; 8]) {
        match self {
            SchemeKind::DualPage => ("dual-page", b"twinpage"),
            SchemeKind::Packed => ("packed", b"twinpage"),
            SchemeKind::UndoLog => ("undo-log", b"undolog1"),
            SchemeKind::Nvml => ("nvml", b"undonvml"),
            SchemeKind::RedoLog => ("redo-log", b"redolog1"),
            SchemeKind::DudeTm => ("dude-tm", b"dudetm_1"),
            SchemeKind::CopyOnWrite => ("copy-on-write", b"copywrt1"),
            SchemeKind::ThyNvm => ("thynvm", b"thynvm\0\x01"),
            SchemeKind::PageOverlay => ("page-overlay", b"overlay1"),
            SchemeKind::InPlace => ("in-place", b"inplace1"),
        }
    }

    /// Why a product neither makes nor opens a store of a baseline, and the way out.
    pub(crate) fn is_elsewhere(self) -> String {
        let own = SchemeKind::PRODUCTS.map(SchemeKind::name).join(" and ");
        format!(
            "the scheme {self} is of the crate twinpage-baselines: its stores are made and opened with \
             `Options::open_with(path, &AllSchemes)`; the library's own schemes are {own}"
        )
    }

    /// The scheme whose stores begin so: for the packed lines, the dual page below them.
    #[must_use]
    pub fn of_magic(magic: [u8; 8]) -> Option<SchemeKind> {
        SchemeKind::ALL.into_iter().find(|kind| kind.magic() == magic)
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
