//! Mistakes made on purpose, which the other tests of sections must find: they would not be worth much otherwise.

use super::sections;
use super::support::{folders, when_free};
use super::undo::{lives, seeded};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use twinpage::{Region, SchemeKind, Stores};
use twinpage_core::scheme::{Epoch, Info, Pressure};
use twinpage_core::{
    Damage, Geometry, Idle, LineMask, Medium, PageId, PageLines, ProductScheme, Recovered, Result, Scheme,
    Setup,
};

/// A mistake, as the store sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// A commit leaves a line of its write set out, now and then.
    LeaveOutLine,
    /// A section that is undone leaves the first page of the heap as it is.
    KeepHeap,
}

/// A store of a library that makes a mistake.
struct Flawed<M> {
    store: ProductScheme<M>,
    fault: Fault,
    writes: AtomicU64,
    /// Where the region lies, once that is known.
    base: Arc<AtomicUsize>,
}

impl<M: Medium> Scheme for Flawed<M> {
    fn geometry(&self) -> Geometry {
        self.store.geometry()
    }
    fn read(&self, page: PageId, first: usize, into: &mut [u8]) -> Result<()> {
        let base = self.base.load(Ordering::Relaxed);
        if self.fault == Fault::KeepHeap && page == PageId(0) && base != 0 {
            let at = std::ptr::with_exposed_provenance::<u8>(base + first * 64);
            // SAFETY: the region is open and has a heap; it is read by the thread that has the turn.
            into.copy_from_slice(unsafe { std::slice::from_raw_parts(at, into.len()) });
            return Ok(());
        }
        self.store.read(page, first, into)
    }
    fn is_present(&self, page: PageId) -> bool {
        self.store.is_present(page)
    }
    fn diff(&self, lines: &PageLines<'_>) -> Result<LineMask> {
        self.store.diff(lines)
    }
    fn write(&mut self, lines: PageLines<'_>) -> Result<Pressure> {
        let count = self.writes.fetch_add(1, Ordering::Relaxed);
        if self.fault == Fault::LeaveOutLine && count % 50 == 49 && self.store.is_present(lines.page) {
            let first = lines.changed.runs().next().map_or(0, |run| run.start);
            let rest = lines.changed & !LineMask::run(first, 1);
            return self.store.write(lines.only(rest));
        }
        self.store.write(lines)
    }
    fn discard(&mut self, pages: Range<PageId>) -> Result<()> {
        self.store.discard(pages)
    }
    fn commit(&mut self, context: &[u8]) -> Result<Epoch> {
        self.store.commit(context)
    }
    fn abandon(&mut self) {
        self.store.abandon();
    }
    fn epoch(&self) -> Epoch {
        self.store.epoch()
    }
    fn info(&self) -> Info {
        self.store.info()
    }
    fn check(&self) -> Result<Vec<Damage>> {
        self.store.check()
    }
}

impl<M: Medium> Idle for Flawed<M> {
    fn give_back(&mut self) -> Result<bool> {
        self.store.give_back()
    }
}

/// Makes stores with a mistake.
struct WithFault {
    fault: Fault,
    base: Arc<AtomicUsize>,
}

impl WithFault {
    fn put_in<M>(&self, store: ProductScheme<M>) -> Flawed<M> {
        Flawed {
            store,
            fault: self.fault,
            writes: AtomicU64::new(0),
            base: self.base.clone(),
        }
    }
}

impl Stores for WithFault {
    type Scheme<M: Medium + Send + 'static> = Flawed<M>;

    fn create<M: Medium + Send + 'static>(
        &self,
        kind: SchemeKind,
        medium: M,
        setup: &Setup,
    ) -> Result<Flawed<M>> {
        Ok(self.put_in(ProductScheme::create(kind, medium, setup)?))
    }

    fn recover<M: Medium + Send + 'static>(&self, medium: M) -> Result<(Flawed<M>, Recovered)> {
        let (store, found) = ProductScheme::recover(medium)?;
        Ok((self.put_in(store), found))
    }
}

#[test]
fn planted_mistakes_are_found() {
    let (_, mut random) = seeded();
    let [folder, _] = folders();
    for fault in [Fault::None, Fault::LeaveOutLine, Fault::KeepHeap] {
        let mut run = |number: u32| {
            let path = folder.path().join(format!("{fault:?} {number}"));
            let base = Arc::new(AtomicUsize::new(0));
            let stores = WithFault {
                fault,
                base: base.clone(),
            };
            let open = || -> Region {
                base.store(0, Ordering::Relaxed);
                let options = sections().scheme(SchemeKind::DualPage);
                let region = when_free(|| options.clone().open_with(&path, &stores));
                region.load(0..4096).unwrap();
                base.store(region.place().base().addr(), Ordering::Relaxed);
                region
            };
            let lived = catch_unwind(AssertUnwindSafe(|| lives("planted", &open, 60, &mut random)));
            lived.is_err()
        };
        match fault {
            Fault::None => assert!(!run(0)),
            _ => assert!((0..5).any(run), "{fault:?} was not found"),
        }
    }
}
