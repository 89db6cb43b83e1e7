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
    pub const ALL: [SchemeKind; 10] = [
        SchemeKind::DualPage,
        SchemeKind::Packed,
        SchemeKind::UndoLog,
        SchemeKind::Nvml,
        SchemeKind::RedoLog,
        SchemeKind::DudeTm,
        SchemeKind::CopyOnWrite,
        SchemeKind::ThyNvm,
        SchemeKind::PageOverlay,
        SchemeKind::InPlace,
    ];

    /// Those that products use. The others are baselines, which only the benchmarks and the lab link.
    pub const PRODUCTS: [SchemeKind; 2] = [SchemeKind::DualPage, SchemeKind::Packed];

    /// The name a user types.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SchemeKind::DualPage => "dual-page",
            SchemeKind::Packed => "packed",
            SchemeKind::UndoLog => "undo-log",
            SchemeKind::Nvml => "nvml",
            SchemeKind::RedoLog => "redo-log",
            SchemeKind::DudeTm => "dude-tm",
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
