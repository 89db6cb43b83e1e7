//! The baselines: what their metadata costs, beside a model, damaged, on media that fail, and what
//! they write for what has changed. The crash explorer has them as well.

mod cost;
mod damage;
mod failing;
#[path = "../support/failing.rs"]
mod medium;
mod model;

use twinpage_baselines::{AnyScheme, Setup};
use twinpage_baselines::{Switching, Tables};
use twinpage_core::crash::Image;
use twinpage_core::*;

/// The schemes that protect, but for the dual page and what is built on it.
const KINDS: [SchemeKind; 7] = [
    SchemeKind::UndoLog,
    SchemeKind::Nvml,
    SchemeKind::RedoLog,
    SchemeKind::DudeTm,
    SchemeKind::CopyOnWrite,
    SchemeKind::ThyNvm,
    SchemeKind::PageOverlay,
];

/// Small extents and small tables, so that everything happens.
fn setup() -> Setup {
    let mut setup = Setup::new(Geometry::new(64, 4096).unwrap());
    setup.id = Some(0x1d);
    setup.context_bytes = 1 << 14;
    setup.tables = Tables {
        blocks: 60,
        pages: 4,
        switching: Switching::Paper,
    };
    setup
}

fn create(kind: SchemeKind) -> AnyScheme<Image> {
    AnyScheme::create(kind, Image::new(8), &setup()).unwrap()
}

/// Writes a line filled with a value.
fn write_line<M: Medium>(store: &mut AnyScheme<M>, page: u64, line: usize, value: u8) -> Pressure {
    let bytes = vec![value; store.geometry().line_bytes()];
    let span = PageLines::from(PageId(page), line, &bytes, store.geometry().line_bytes());
    store.write(span).unwrap()
}

/// The first lines of a page, one by one.
fn write_lines<M: Medium>(store: &mut AnyScheme<M>, page: u64, lines: usize, value: u8) {
    for line in 0..lines {
        let _ = write_line(store, page, line, value);
    }
}

/// Some lines of a page at once.
fn write_page<M: Medium>(store: &mut AnyScheme<M>, page: u64, lines: LineMask, value: u8) {
    let bytes = vec![value; store.geometry().page_bytes()];
    let span = PageLines::from(PageId(page), 0, &bytes, store.geometry().line_bytes());
    let _ = store.write(span.only(lines)).unwrap();
}
