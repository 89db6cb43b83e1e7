//! The schemes that the lab runs, by name: those of the house, and those that a program adds.
//!
//! An added scheme lives in a crate of its own, and runs everywhere one of the house does: in simulated time
//! (`lab run`, `lab eval --with`), through power cuts (`--crash-at`), under the crash explorer (`lab verify`).
//!
//! * A name stands for one scheme; those of the house are taken.

use crate::added::Added;
use crate::controller::nvm::Nvm;
use crate::ground::{Exploration, Explored};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use twinpage_baselines::{AnyScheme, SchemeKind};
use twinpage_core::crash::{Recorder, Subject};
use twinpage_core::scheme::{Recovered, Simulated};
use twinpage_core::{Medium, Result};

pub use twinpage_baselines::Setup;

/// A scheme of one's own, on any medium: simulated memory that counts time, or one that records for the explorer.
pub trait OwnScheme: 'static {
    /// What it is called: `--scheme NAME`.
    const NAME: &'static str;
    /// Whether its own checkpoints overlap with execution: [`Simulated::begin`] and [`Simulated::proceed`] are its,
    /// and the machine does not stop for a commit.
    const OVERLAPS: bool = false;
    /// Whether it looks at the data it is given, as one with checksums of lines does. Else a run without a power cut moves
    /// none: lines that it reads hold zeros, and it is faster.
    const READS_DATA: bool = false;
    /// A store of it.
    type Store<M: Medium + 'static>: Simulated + 'static;

    /// A new store on `medium`, durable when this returns.
    ///
    /// # Errors
    /// A medium that is too small, or fails.
    fn create<M: Medium + 'static>(medium: M, setup: &Setup) -> Result<Self::Store<M>>;

    /// The checkpoint on `medium`, as its last durable commit left it.
    ///
    /// # Errors
    /// [`twinpage_core::Error::Foreign`] and [`twinpage_core::Error::Damaged`] say what is wrong and where.
    fn recover<M: Medium + 'static>(medium: M) -> Result<(Self::Store<M>, Recovered)>;
}

/// Adds a scheme to those the lab knows. To be called first in `main`.
///
/// # Panics
/// When its name is taken.
pub fn add<O: OwnScheme>() {
    let is_ours = SchemeKind::ALL.iter().any(|kind| kind.name() == O::NAME);
    assert!(!is_ours, "{} is a scheme of the house", O::NAME);
    let own = Entry {
        name: O::NAME,
        overlaps: O::OVERLAPS,
        reads_data: O::READS_DATA,
        create: |medium, setup| Ok(Box::new(O::create(medium, setup)?)),
        recover: |medium| {
            let (store, found) = O::recover(medium)?;
            Ok((Box::new(store), found))
        },
        explore: |ground| {
            let setup = ground.setup();
            ground.explore(Subject {
                create: Box::new(move |medium| O::create(medium, &setup)),
                recover: Box::new(O::recover),
            })
        },
    };
    OWN.add(own, O::NAME, |other| other.name == O::NAME);
}

/// A store in simulated time.
pub(crate) type Simulation = Box<dyn Simulated>;

/// An added scheme, on the media the lab has.
#[derive(Clone, Copy)]
struct Entry {
    name: &'static str,
    overlaps: bool,
    reads_data: bool,
    create: fn(Nvm, &Setup) -> Result<Simulation>,
    recover: fn(Nvm) -> Result<(Simulation, Recovered)>,
    explore: fn(&mut Exploration<'_>) -> Explored,
}

static OWN: Added<Entry> = Added::new();

/// Which scheme.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SchemeName {
    /// One of the house.
    House(SchemeKind),
    /// One that was added, by its name.
    Own(&'static str),
}

impl SchemeName {
    /// What the papers are about.
    pub const DUAL_PAGE: SchemeName = SchemeName::House(SchemeKind::DualPage);

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SchemeName::House(kind) => kind.name(),
            SchemeName::Own(name) => name,
        }
    }

    /// Which of the house it is, if it is one.
    #[must_use]
    pub fn house(self) -> Option<SchemeKind> {
        match self {
            SchemeName::House(kind) => Some(kind),
            SchemeName::Own(_) => None,
        }
    }

    /// Whether its own checkpoints overlap with execution.
    #[must_use]
    pub fn overlaps(self) -> bool {
        match self {
            SchemeName::House(kind) => twinpage_baselines::overlaps(kind),
            SchemeName::Own(name) => own(name).overlaps,
        }
    }

    /// Whether it looks at data.
    pub(crate) fn reads_data(self) -> bool {
        match self {
            SchemeName::House(kind) => twinpage_baselines::reads_data(kind),
            SchemeName::Own(name) => own(name).reads_data,
        }
    }

    /// The derivative pages of its pool, which has room for this number of pages.
    pub(crate) fn pool_pages(self, pages: u64) -> u64 {
        self.house()
            .map_or(pages, |kind| twinpage_baselines::pool_pages(kind, pages))
    }

    pub(crate) fn create(self, nvm: Nvm, setup: &Setup) -> Result<Simulation> {
        match self {
            SchemeName::House(kind) => Ok(Box::new(AnyScheme::create(kind, nvm, setup)?)),
            SchemeName::Own(name) => (own(name).create)(nvm, setup),
        }
    }

    pub(crate) fn recover(self, nvm: Nvm) -> Result<(Simulation, Recovered)> {
        match self {
            SchemeName::House(_) => {
                let (store, found) = AnyScheme::recover(nvm)?;
                Ok((Box::new(store), found))
            }
            SchemeName::Own(name) => (own(name).recover)(nvm),
        }
    }

    /// Puts it under the explorer.
    pub(crate) fn explore(self, ground: &mut Exploration<'_>) -> Explored {
        match self {
            SchemeName::House(kind) => {
                let setup = ground.setup();
                ground.explore(Subject {
                    create: Box::new(move |medium: Recorder| AnyScheme::create(kind, medium, &setup)),
                    recover: Box::new(AnyScheme::recover),
                })
            }
            SchemeName::Own(name) => (own(name).explore)(ground),
        }
    }
}

/// The entry of a name that was found before.
fn own(name: &str) -> Entry {
    let found = OWN.all().into_iter().find(|entry| entry.name == name);
    found.expect("a scheme is named only after it was added")
}

impl From<SchemeKind> for SchemeName {
    fn from(kind: SchemeKind) -> SchemeName {
        SchemeName::House(kind)
    }
}

impl PartialEq<SchemeKind> for SchemeName {
    fn eq(&self, kind: &SchemeKind) -> bool {
        *self == SchemeName::House(*kind)
    }
}

impl fmt::Display for SchemeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SchemeName {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<SchemeName, String> {
        let own = OWN.all();
        if let Some(found) = own.iter().find(|entry| entry.name == name) {
            return Ok(SchemeName::Own(found.name));
        }
        name.parse()
            .map(SchemeName::House)
            .map_err(|why: twinpage_core::Error| {
                let added: String = own.iter().map(|entry| format!(", {}", entry.name)).collect();
                format!("{why}{added}")
            })
    }
}

impl Serialize for SchemeName {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for SchemeName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<SchemeName, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}
