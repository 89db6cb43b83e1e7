//! The same sections on every scheme: those that papers measure against, on the road of the library's own.

use super::sections;
use super::support::{folders, when_free};
use super::undo::{lives, seeded};
use twinpage::{Region, SchemeKind};
use twinpage_baselines::AllSchemes;

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

#[test]
fn what_the_library_alone_cannot_open_says_how_it_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    for kind in SchemeKind::ALL {
        if SchemeKind::PRODUCTS.contains(&kind) {
            continue;
        }
        let path = folder.path().join(kind.name());
        let made = sections().scheme(kind).open(&path).unwrap_err().to_string();
        assert!(made.contains("twinpage-baselines"), "{made}");
        drop(sections().scheme(kind).open_with(&path, &AllSchemes).unwrap());
        let opened = sections().open(&path).unwrap_err().to_string();
        assert!(opened.contains("twinpage-baselines"), "{kind}: {opened}");
        assert!(opened.contains(kind.name()), "{kind}: {opened}");
    }
}
