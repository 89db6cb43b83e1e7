//! The same sections on every scheme: those that papers measure against, on the road of the library's own.

use super::sections;
use super::support::{folders, when_free};
use super::undo::{lives, seeded};
use twinpage::{Region, SchemeKind, Stores};
use twinpage_baselines::{AnyScheme, Setup};
use twinpage_core::{Medium, Recovered, Result};

/// Stores of every scheme.
pub(super) struct AllSchemes;

impl Stores for AllSchemes {
    type Scheme<M: Medium + Send + 'static> = AnyScheme<M>;

    fn create<M: Medium + Send + 'static>(
        &self,
        kind: SchemeKind,
        medium: M,
        setup: &twinpage_core::Setup,
    ) -> Result<AnyScheme<M>> {
        let setup = Setup {
            pool: setup.pool,
            journal_bytes: setup.journal_bytes,
            checksums: setup.checksums,
            id: setup.id,
            ..Setup::new(setup.geometry)
        };
        AnyScheme::create(kind, medium, &setup)
    }

    fn recover<M: Medium + Send + 'static>(&self, medium: M) -> Result<(AnyScheme<M>, Recovered)> {
        AnyScheme::recover(medium)
    }
}

#[test]
fn every_scheme_serves_sections() {
    let steps = twinpage_campaign::either(30, 600);
    let (_, mut random) = seeded();
    for folder in folders() {
        for kind in SchemeKind::ALL {
            let path = folder.path().join(kind.name());
            let open = || -> Region {
                let region = when_free(|| sections().scheme(kind).open_with(&path, &AllSchemes));
                assert_eq!(region.info().scheme, kind.name());
                region
            };
            lives(kind.name(), &open, steps, &mut random);
        }
    }
}
